//! Credentials: the files of a folder, where a Secret is mounted, or its data. Each source's module says which keys it reads.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderValue;

use super::{SourceError, Surroundings};

const MAX_CREDENTIAL_BYTES: u64 = 64 * 1024;

/// Where the keys of a Secret are.
#[derive(Clone)]
pub enum Credentials {
    /// The folder where it is mounted. Files are read when they are asked for.
    Folder(PathBuf),
    /// Its data, as text.
    Map(Arc<BTreeMap<String, String>>),
}

/// A value that is never printed.
#[derive(Clone)]
pub(crate) struct Credential(String);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

impl Credential {
    #[cfg(test)]
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl Credentials {
    pub(crate) fn of(surroundings: &Surroundings) -> Result<Self, SourceError> {
        surroundings.credentials.clone().ok_or_else(|| SourceError::credentials("the source has no Secret"))
    }

    /// None if the Secret has no such key, or an empty one.
    pub(crate) fn get(&self, key: &'static str) -> Result<Option<Credential>, SourceError> {
        let text = match self {
            Self::Folder(folder) => read(folder, key)?,
            Self::Map(data) => data.get(key).cloned(),
        };
        // Files made by people end with a line break.
        Ok(text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(|text| Credential(text.to_owned())))
    }

    pub(crate) fn required(&self, key: &'static str) -> Result<Credential, SourceError> {
        self.get(key)?.ok_or_else(|| SourceError::credentials(format!("the Secret has no key {key}")))
    }

    /// Atlassian's: `email` and `api_token`, or `token` alone, as the value of `Authorization`.
    pub(crate) fn atlassian(&self) -> Result<HeaderValue, SourceError> {
        if let Some(token) = self.get("token")? {
            return secret_header("token", &format!("Bearer {}", token.reveal()));
        }
        let (Some(email), Some(token)) = (self.get("email")?, self.get("api_token")?) else {
            return Err(SourceError::credentials("the Secret has to have the keys email and api_token, or the key token"));
        };
        secret_header("api_token", &format!("Basic {}", STANDARD.encode(format!("{}:{}", email.reveal(), token.reveal()))))
    }
}

/// A key of a mounted Secret.
fn read(folder: &Path, key: &'static str) -> Result<Option<String>, SourceError> {
    let unreadable = |what: &str| SourceError::credentials(format!("the Secret's key {key} {what}"));
    let file = match std::fs::File::open(folder.join(key)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&format!("cannot be read: {error}"))),
    };
    let mut text = String::new();
    file.take(MAX_CREDENTIAL_BYTES + 1).read_to_string(&mut text).map_err(|_| unreadable("is no text"))?;
    if text.len() as u64 > MAX_CREDENTIAL_BYTES {
        return Err(unreadable("is over 64 KiB"));
    }
    Ok(Some(text))
}

/// A header that is kept out of logs.
pub(crate) fn secret_header(key: &str, value: &str) -> Result<HeaderValue, SourceError> {
    let mut header = HeaderValue::from_str(value)
        .map_err(|_| SourceError::credentials(format!("the Secret's key {key} has characters that no header can hold")))?;
    header.set_sensitive(true);
    Ok(header)
}
