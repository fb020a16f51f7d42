//! Errors of the history.

use std::io;
use std::path::Path;
use std::sync::Arc;

use gix::ObjectId;

/// An error of the history. What was recorded before is not affected.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HistoryFault {
    /// The request is invalid: a name, a version, a status. Repeating it does not help.
    #[error("{0}")]
    Refused(String),
    /// No such repository, agent or version.
    #[error("{0}")]
    Missing(String),
    /// A file or object is not what was written. It is left as it is.
    #[error("{0}")]
    Damaged(String),
    /// The disk is full or failed.
    #[error("{what}: {source}")]
    Disk { what: String, source: Arc<io::Error> },
    /// Another program holds the branch. Repeating the request later helps.
    #[error("{0}")]
    Busy(String),
}

impl HistoryFault {
    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }

    pub(super) fn disk(action: &str, path: &Path, source: io::Error) -> Self {
        Self::Disk { what: format!("cannot {action} {}", path.display()), source: Arc::new(source) }
    }

    /// An object cannot be read.
    pub(super) fn object(id: ObjectId, error: &impl std::fmt::Display) -> Self {
        Self::Damaged(format!("object {id} of the repository cannot be read: {error}; restore it from a mirror or a backup"))
    }

    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Disk { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}
