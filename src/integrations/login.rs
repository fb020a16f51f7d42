//! The login that came with a request. It is never shown.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderValue;

use crate::outcome::{ConnectionFault, Reason};

pub(crate) struct IntegrationLogin<'a>(&'a BTreeMap<String, String>);

impl<'a> IntegrationLogin<'a> {
    pub(crate) fn new(data: &'a BTreeMap<String, String>) -> Self {
        Self(data)
    }

    /// All of it, for sources.
    pub(crate) fn data(&self) -> &'a BTreeMap<String, String> {
        self.0
    }

    /// None if the Secret has no such key, or an empty one. Secrets often end with a line break.
    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    pub(crate) fn required(&self, key: &str) -> Result<&'a str, ConnectionFault> {
        self.get(key).ok_or_else(|| ConnectionFault::new(Reason::SecretKeyMissing, format!("the Secret has no key {key}")))
    }

    /// The value of a key in a header, behind this word.
    pub(crate) fn header(&self, key: &str, word: &str) -> Result<Option<HeaderValue>, ConnectionFault> {
        self.get(key).map(|value| sensitive(key, &format!("{word}{value}"))).transpose()
    }

    /// `Authorization` by `token`, else by `username` and `password`, else none.
    pub(crate) fn authorization(&self) -> Result<Option<HeaderValue>, ConnectionFault> {
        if let Some(token) = self.header("token", "Bearer ")? {
            return Ok(Some(token));
        }
        let Some(user) = self.get("username") else { return Ok(None) };
        let login = STANDARD.encode(format!("{user}:{}", self.required("password")?));
        sensitive("password", &format!("Basic {login}")).map(Some)
    }
}

/// A header that is kept out of logs.
fn sensitive(key: &str, value: &str) -> Result<HeaderValue, ConnectionFault> {
    let wrong = |_| ConnectionFault::new(Reason::Invalid, format!("the Secret's key {key} has characters that no header can hold"));
    let mut header = HeaderValue::from_str(value).map_err(wrong)?;
    header.set_sensitive(true);
    Ok(header)
}
