//! The headers of an http or mcp tool: literal ones, and secrets, which never appear in logs.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use slipway_api::contract::tools::CONNECTION_HEADERS;
use slipway_api::contract::{HeaderAuth, ToolConfig};
use slipway_api::tool::HeaderScheme;

use crate::config_error::ConfigError;

pub(crate) struct HeaderSource<'a> {
    pub(crate) tool: &'a str,
    pub(crate) literal: &'a BTreeMap<String, String>,
    /// The variables of secret headers, by header.
    pub(crate) secret: &'a BTreeMap<String, String>,
    /// How secret headers are made of variables, by header.
    pub(crate) auth: &'a BTreeMap<String, HeaderAuth>,
    pub(crate) variables: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> HeaderSource<'a> {
    pub(crate) fn of(config: &'a ToolConfig, variables: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { tool: &config.name, literal: &config.headers, secret: &config.headers_from, auth: &config.auth, variables }
    }

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
        let plain = self.secret.iter().map(|(name, variable)| (name, variable, self.value(variable)));
        let made = self.auth.iter().map(|(name, auth)| (name, &auth.secret, self.made(auth)));
        for (name, variable, value) in plain.chain(made) {
            match (header(name), value.as_deref().map(HeaderValue::from_str)) {
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

    /// The value of a variable, without what Secrets often end with, a line break.
    fn value(&self, variable: &str) -> Option<String> {
        let value = (self.variables)(variable)?;
        Some(value.trim_end().to_owned()).filter(|value| !value.is_empty())
    }

    fn made(&self, auth: &HeaderAuth) -> Option<String> {
        let secret = self.value(&auth.secret)?;
        Some(match auth.scheme {
            HeaderScheme::Bearer => format!("Bearer {secret}"),
            HeaderScheme::Basic => {
                let user = auth.user.as_ref().and_then(|variable| self.value(variable)).unwrap_or_default();
                format!("Basic {}", STANDARD.encode(format!("{user}:{secret}")))
            }
        })
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
        let (literal, secret, auth) = (map(&[("X-Kind", "a")]), map(&[("Authorization", "TOKEN")]), BTreeMap::new());
        let headers = HeaderSource { tool: "t", literal: &literal, secret: &secret, auth: &auth, variables: &variables }.read().unwrap();
        assert_eq!(headers["authorization"], "Bearer hunter2");
        assert!(!format!("{headers:?}").contains("hunter2"));

        let twice = map(&[("X-A", "TOKEN"), ("x-a", "TOKEN")]);
        let literal = map(&[("X-A", "b")]);
        let errors = HeaderSource { tool: "t", literal: &literal, secret: &twice, auth: &auth, variables: &variables }.read().unwrap_err();
        assert_eq!(errors[0].to_string(), "tool t: headersFrom: x-a is there twice; in headers capitals make no difference");

        let (literal, secret) = (map(&[("Host", "a"), ("b b", "c"), ("X", "a\nb")]), map(&[("A", "MISSING"), ("B", "BROKEN")]));
        let errors = HeaderSource { tool: "t", literal: &literal, secret: &secret, auth: &auth, variables: &variables }.read().unwrap_err();
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

    #[test]
    fn logins_are_made_of_their_parts() {
        let variables = |name: &str| match name {
            "TOKEN" => Some("hunter2\n".to_owned()),
            "USER" => Some("ada".to_owned()),
            _ => None,
        };
        let none = BTreeMap::new();
        let read = |scheme: HeaderScheme, secret: &str, user: Option<&str>| {
            let auth = HeaderAuth { scheme, secret: secret.to_owned(), user: user.map(str::to_owned) };
            let auth = BTreeMap::from([("Authorization".to_owned(), auth)]);
            HeaderSource { tool: "t", literal: &none, secret: &none, auth: &auth, variables: &variables }.read()
        };
        for (scheme, user, expected) in
            [(HeaderScheme::Bearer, None, "Bearer hunter2"), (HeaderScheme::Basic, Some("USER"), "Basic YWRhOmh1bnRlcjI=")]
        {
            let headers = read(scheme, "TOKEN", user).unwrap();
            assert_eq!(headers["authorization"], expected);
            assert!(headers["authorization"].is_sensitive());
        }
        let errors = read(HeaderScheme::Bearer, "MISSING", None).unwrap_err();
        assert_eq!(errors[0].to_string(), "tool t: headersFrom: Authorization: the variable MISSING is not set");
    }
}
