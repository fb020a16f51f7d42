//! The headers of an http or mcp tool: literal ones, and secrets, which never appear in logs.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use slipway_api::contract::tools::CONNECTION_HEADERS;

use crate::config_error::ConfigError;

pub(crate) struct HeaderSource<'a> {
    pub(crate) tool: &'a str,
    pub(crate) literal: &'a BTreeMap<String, String>,
    /// The variables of secret headers, by header.
    pub(crate) secret: &'a BTreeMap<String, String>,
    pub(crate) variables: &'a dyn Fn(&str) -> Option<String>,
}

impl HeaderSource<'_> {
    /// Reads secrets once: the environment of a process does not change.
    pub(crate) fn read(&self) -> Result<HeaderMap, Vec<ConfigError>> {
        let mut headers = HeaderMap::new();
        let mut errors = Vec::new();
        for (name, value) in self.literal {
            match (header(name), HeaderValue::from_str(value)) {
                (Ok(name), Ok(value)) => drop(headers.insert(name, value)),
                (Err(fault), _) => errors.push(ConfigError::new(self.tool, "headers", fault)),
                (_, Err(_)) => {
                    errors.push(ConfigError::new(self.tool, "headers", format!("{name}: the value must be printable text on one line")));
                }
            }
        }
        for (name, variable) in self.secret {
            let value = (self.variables)(variable).filter(|value| !value.is_empty());
            // Secrets often end with a line break.
            let value = value.as_deref().map(str::trim_end).map(HeaderValue::from_str);
            match (header(name), value) {
                (Ok(header), Some(Ok(mut value))) => {
                    value.set_sensitive(true);
                    if headers.insert(header, value).is_some_and(|before| before.is_sensitive()) {
                        let fault = format!("{name} is there twice; in headers capitals make no difference");
                        errors.push(ConfigError::new(self.tool, "headersFrom", fault));
                    }
                }
                (Err(fault), _) => errors.push(ConfigError::new(self.tool, "headersFrom", fault)),
                (_, None) => errors.push(ConfigError::new(self.tool, "headersFrom", format!("{name}: the variable {variable} is not set"))),
                (_, Some(Err(_))) => {
                    errors.push(ConfigError::new(
                        self.tool,
                        "headersFrom",
                        format!("{name}: {variable} must hold printable text on one line"),
                    ));
                }
            }
        }
        if errors.is_empty() { Ok(headers) } else { Err(errors) }
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
    fn secret_headers_are_sensitive_and_every_fault_is_listed() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let variables = |name: &str| match name {
            "TOKEN" => Some("Bearer hunter2\n".to_owned()),
            "BROKEN" => Some("hun\nter2".to_owned()),
            _ => None,
        };
        let (literal, secret) = (map(&[("X-Kind", "a")]), map(&[("Authorization", "TOKEN")]));
        let headers = HeaderSource { tool: "t", literal: &literal, secret: &secret, variables: &variables }.read().unwrap();
        assert_eq!(headers["authorization"], "Bearer hunter2");
        assert!(!format!("{headers:?}").contains("hunter2"));

        let twice = map(&[("X-A", "TOKEN"), ("x-a", "TOKEN")]);
        let errors = HeaderSource { tool: "t", literal: &map(&[("X-A", "b")]), secret: &twice, variables: &variables }.read().unwrap_err();
        assert_eq!(errors[0].to_string(), "tool t: headersFrom: x-a is there twice; in headers capitals make no difference");

        let (literal, secret) = (map(&[("Host", "a"), ("b b", "c"), ("X", "a\nb")]), map(&[("A", "MISSING"), ("B", "BROKEN")]));
        let errors = HeaderSource { tool: "t", literal: &literal, secret: &secret, variables: &variables }.read().unwrap_err();
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
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
