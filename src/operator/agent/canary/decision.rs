//! A decision about a canary: its status, its Events, and the writes besides.

use std::time::Duration;

use slipway_api::CanaryStatus;
use slipway_api::condition::Finding;

use super::events::CanaryEvent;

/// The most characters of a message; the schema takes as many.
const MAX_MESSAGE: usize = 4096;

/// What follows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Decision {
    pub status: Option<CanaryStatus>,
    /// Told before the status is written.
    pub events: Vec<CanaryEvent>,
    pub act: Act,
    pub finding: Option<Finding>,
    pub next: Option<Duration>,
}

/// What is written besides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Act {
    #[default]
    Nothing,
    DropAnnotation,
    Patch(CanaryEnd),
    MakeRun,
}

/// How a canary ends in the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CanaryEnd {
    Promoted,
    RolledBack,
}

pub(super) fn cut(message: String) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        Some(_) => message.chars().take(MAX_MESSAGE).collect(),
        None => message,
    }
}
