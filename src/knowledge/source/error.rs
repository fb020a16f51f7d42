//! Why a source cannot be listed or read. Messages name the field of the configuration that is to be mended, and hold no
//! credentials and no more of a URL than scheme, host and port.

use std::time::Duration;

use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// The configuration is wrong: somebody has to change it.
    Misconfigured,
    /// The credentials are missing, wrong, or have no right to this.
    Unauthorized,
    /// The source is away, slow or busy: the same will do later.
    Unavailable,
    /// The document is gone since it was listed.
    Gone,
    /// The document is too large, or in a state in which it cannot be read; the others are not concerned.
    Unfetchable,
    /// The source answers what it should not.
    Broken,
}

/// How far the request came that led to an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contact {
    /// None was sent, or nobody says.
    Untold,
    /// The egress rules refuse the address.
    Blocked,
    /// No answer came.
    Failed,
    /// None came in time.
    Late,
    /// An answer came.
    Answered,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{message}", field.map(|field| format!("{field}: ")).unwrap_or_default())]
pub struct SourceError {
    kind: SourceErrorKind,
    field: Option<&'static str>,
    message: String,
    retry_after: Option<Duration>,
    contact: Contact,
}

impl SourceError {
    pub fn new(kind: SourceErrorKind, message: impl Into<String>) -> Self {
        Self { kind, field: None, message: message.into(), retry_after: None, contact: Contact::Untold }
    }

    /// A fault of a field of the configuration.
    pub(crate) fn field(field: &'static str, message: impl Into<String>) -> Self {
        Self::new(SourceErrorKind::Misconfigured, message).at(field)
    }

    pub(crate) fn credentials(message: impl Into<String>) -> Self {
        Self::new(SourceErrorKind::Unauthorized, message).at("credentials_secret")
    }

    pub(crate) fn broken(message: impl Into<String>) -> Self {
        Self::new(SourceErrorKind::Broken, message)
    }

    pub(crate) fn gone(message: impl Into<String>) -> Self {
        Self::new(SourceErrorKind::Gone, message)
    }

    pub(crate) fn unfetchable(message: impl Into<String>) -> Self {
        Self::new(SourceErrorKind::Unfetchable, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(SourceErrorKind::Unavailable, message)
    }

    pub(crate) fn at(mut self, field: &'static str) -> Self {
        self.field = Some(field);
        self
    }

    pub(crate) fn after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    pub(crate) fn with_contact(mut self, contact: Contact) -> Self {
        self.contact = contact;
        self
    }

    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    pub fn contact(&self) -> Contact {
        self.contact
    }

    /// What is wrong, without the field.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The field of the source's configuration that is wrong.
    pub fn wrong_field(&self) -> Option<&'static str> {
        self.field
    }

    /// Whether the same may succeed later without anybody's doing.
    pub fn is_transient(&self) -> bool {
        self.kind == SourceErrorKind::Unavailable
    }

    /// Whether one document alone is concerned, and the others can be fetched.
    pub fn is_of_one_document(&self) -> bool {
        matches!(self.kind, SourceErrorKind::Gone | SourceErrorKind::Unfetchable)
    }

    /// How long the source asked to be left alone, bounded.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// One word for a condition.
    pub const fn reason(&self) -> &'static str {
        match self.kind {
            SourceErrorKind::Misconfigured => "SourceMisconfigured",
            SourceErrorKind::Unauthorized => "SourceUnauthorized",
            SourceErrorKind::Unavailable => "SourceUnavailable",
            SourceErrorKind::Gone => "DocumentGone",
            SourceErrorKind::Unfetchable => "DocumentUnfetchable",
            SourceErrorKind::Broken => "SourceBroken",
        }
    }
}
