//! The headers of an http or mcp tool, literal ones and those whose values are secrets. The latter never appear in logs.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use slipway_api::contract::tools::CONNECTION_HEADERS;

use crate::refusal::Refusal;

pub(crate) struct Source<'a> {
    pub(crate) tool: &'a str,
    pub(crate) literal: &'a BTreeMap<String, String>,
    /// Header → variable.
    pub(crate) secret: &'a BTreeMap<String, String>,
    pub(crate) variables: &'a dyn Fn(&str) -> Option<String>,
}

impl Source<'_> {
    /// A process's environment does not change, so its secrets are read once, here.
    pub(crate) fn read(&self) -> Result<HeaderMap, Vec<Refusal>> {
        let mut headers = HeaderMap::new();
        let mut refusals = Vec::new();
        for (name, value) in self.literal {
            match (header(name), HeaderValue::from_str(value)) {
                (Ok(name), Ok(value)) => drop(headers.insert(name, value)),
                (Err(fault), _) => refusals.push(Refusal::new(self.tool, "headers", fault)),
                (_, Err(_)) => {
                    refusals.push(Refusal::new(self.tool, "headers", format!("{name}: the value must be printable text on one line")));
                }
            }
        }
        for (name, variable) in self.secret {
            let value = (self.variables)(variable).filter(|value| !value.is_empty());
            // Secrets are often written with a line break at their end.
            let value = value.as_deref().map(str::trim_end).map(HeaderValue::from_str);
            match (header(name), value) {
                (Ok(header), Some(Ok(mut value))) => {
                    value.set_sensitive(true);
                    if headers.insert(header, value).is_some_and(|before| before.is_sensitive()) {
                        let fault = format!("{name} is there twice; in headers capitals make no difference");
                        refusals.push(Refusal::new(self.tool, "headersFrom", fault));
                    }
                }
                (Err(fault), _) => refusals.push(Refusal::new(self.tool, "headersFrom", fault)),
                (_, None) => refusals.push(Refusal::new(self.tool, "headersFrom", format!("{name}: the variable {variable} is not set"))),
                (_, Some(Err(_))) => {
                    refusals.push(Refusal::new(
                        self.tool,
                        "headersFrom",
                        format!("{name}: {variable} must hold printable text on one line"),
                    ));
                }
            }
        }
        if refusals.is_empty() { Ok(headers) } else { Err(refusals) }
    }
}

fn header(name: &str) -> Result<HeaderName, String> {
    let header: HeaderName = name.parse().map_err(|_| format!("'{name}' is not the name of a header"))?;
    if CONNECTION_HEADERS.contains(&header.as_str()) {
        Err(format!("{name} belongs to the connection and cannot be set"))
    } else {
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_marked_and_every_fault_is_named() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let variables = |name: &str| match name {
            "TOKEN" => Some("Bearer hunter2\n".to_owned()),
            "BROKEN" => Some("hun\nter2".to_owned()),
            _ => None,
        };
        let (literal, secret) = (map(&[("X-Kind", "a")]), map(&[("Authorization", "TOKEN")]));
        let headers = Source { tool: "t", literal: &literal, secret: &secret, variables: &variables }.read().unwrap();
        assert_eq!(headers["authorization"], "Bearer hunter2");
        assert!(!format!("{headers:?}").contains("hunter2"));

        let twice = map(&[("X-A", "TOKEN"), ("x-a", "TOKEN")]);
        let refusals = Source { tool: "t", literal: &map(&[("X-A", "b")]), secret: &twice, variables: &variables }.read().unwrap_err();
        assert_eq!(refusals[0].to_string(), "tool t: headersFrom: x-a is there twice; in headers capitals make no difference");

        let (literal, secret) = (map(&[("Host", "a"), ("b b", "c"), ("X", "a\nb")]), map(&[("A", "MISSING"), ("B", "BROKEN")]));
        let refusals = Source { tool: "t", literal: &literal, secret: &secret, variables: &variables }.read().unwrap_err();
        let messages: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "tool t: headers: Host belongs to the connection and cannot be set",
                "tool t: headers: X: the value must be printable text on one line",
                "tool t: headers: 'b b' is not the name of a header",
                "tool t: headersFrom: A: the variable MISSING is not set",
                "tool t: headersFrom: B: BROKEN must hold printable text on one line",
            ]
        );
    }
}
