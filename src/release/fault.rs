//! What can be wrong with an artifact, told so that it can be mended.

use thiserror::Error;

/// Why an artifact cannot be made, read or brought back.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ArtifactFault {
    #[error("the artifact has {0} bytes; at most {most} are possible", most = crate::LONGEST)]
    TooLong(usize),
    #[error("line {line}: {problem}")]
    Malformed { line: usize, problem: String },
    #[error("this is no artifact: {0}")]
    Misshapen(String),
    #[error("{field}: is {found:?}, and should be {expected:?}")]
    Foreign { field: &'static str, found: String, expected: String },
    #[error("metadata.checksum: is {found}, but what the artifact holds makes {computed}; it was changed after it was written")]
    Checksum { found: String, computed: String },
    #[error("metadata.checksum: is empty; the artifact was never sealed")]
    Unsealed,
    #[error("line {line} is not as Slipway writes it: {found:?} should be {expected:?}")]
    NotCanonical { line: usize, found: String, expected: String },
    #[error("{field}: {problem}")]
    Inconsistent { field: &'static str, problem: String },
    #[error("{field}: {found:?} is not known to this version of Slipway, so the release cannot be brought back by it")]
    UnknownWord { field: &'static str, found: String },
    #[error("{}: not known to this version of Slipway, so the release cannot be brought back by it", .0.join(", "))]
    UnknownFields(Vec<String>),
}

/// So much of a stranger's text as belongs into an error.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
