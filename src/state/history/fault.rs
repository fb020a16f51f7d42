//! What can go wrong with the history, in words for whoever asked.

use std::io;
use std::path::Path;
use std::sync::Arc;

use gix::ObjectId;

/// Why the history did not do what was asked. Everything that was recorded before stands.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Fault {
    /// What was asked for cannot be: a name, a version, a status. Asking again does not help.
    #[error("{0}")]
    Refused(String),
    /// There is no such repository, agent or version.
    #[error("{0}")]
    Missing(String),
    /// What is stored is not what was written. It is left as it is.
    #[error("{0}")]
    Damaged(String),
    /// The disk did not do what it was told: it is full, or worse.
    #[error("{what}: {source}")]
    Disk { what: String, source: Arc<io::Error> },
    /// Somebody else holds the branch, or keeps moving it. Asking again later helps.
    #[error("{0}")]
    Busy(String),
}

impl Fault {
    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }

    pub(super) fn disk(deed: &str, path: &Path, source: io::Error) -> Self {
        Self::Disk { what: format!("cannot {deed} {}", path.display()), source: Arc::new(source) }
    }

    /// An object that the history needs cannot be read.
    pub(super) fn object(id: ObjectId, error: &impl std::fmt::Display) -> Self {
        Self::Damaged(format!("object {id} of the repository cannot be read: {error}; restore it from a mirror or a backup"))
    }

    /// Whether the disk is full, so that it helps to make it larger.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Disk { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}
