//! What a subprocess prints: blocks, and at last how it ended, each as a line of JSON.

use serde::{Deserialize, Serialize};

use crate::extract::ExtractSummary;
use crate::{Block, Unreadable};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Block(Block),
    Ended(Ended),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ended {
    Summary(ExtractSummary),
    Encrypted,
    Broken(String),
    TooLarge(String),
    Io(String),
}

impl From<Result<ExtractSummary, Unreadable>> for Ended {
    fn from(outcome: Result<ExtractSummary, Unreadable>) -> Self {
        match outcome {
            Ok(summary) => Self::Summary(summary),
            Err(Unreadable::Encrypted) => Self::Encrypted,
            Err(Unreadable::Broken(what)) => Self::Broken(what),
            Err(Unreadable::TooLarge(what)) => Self::TooLarge(what),
            Err(Unreadable::Reader(what)) => Self::Io(what),
            Err(Unreadable::Io(error)) => Self::Io(error.to_string()),
        }
    }
}

impl From<Ended> for Result<ExtractSummary, Unreadable> {
    fn from(ended: Ended) -> Self {
        Err(match ended {
            Ended::Summary(summary) => return Ok(summary),
            Ended::Encrypted => Unreadable::Encrypted,
            Ended::Broken(what) => Unreadable::Broken(what),
            Ended::TooLarge(what) => Unreadable::TooLarge(what),
            Ended::Io(what) => Unreadable::Reader(what),
        })
    }
}
