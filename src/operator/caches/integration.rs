//! The state of alerts on their way to an Integration: written by their delivery, reported by the integration controller.

use jiff::Timestamp;

/// How alerts get to an integration. The integration controller writes it into the status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// How many wait, in steps: 0, 1, 10, 100, 1000.
    pub waiting: i64,
    /// Since when none has arrived, if the last one did not.
    pub failing_since: Option<Timestamp>,
    /// What the receiver said last, while it takes none.
    pub last_error: Option<String>,
    /// Whether one arrived, and whether the last one that ended was given up.
    pub has_arrived: bool,
    pub gave_up: bool,
}
