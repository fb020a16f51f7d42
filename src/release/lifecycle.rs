//! The life of a release, as one function from where it stands and what happened to where it stands then.
//!
//! What may be told twice after a crash changes nothing the second time; a verdict may not be told twice, because
//! a sender that repeats it is mistaken about the release, or forging.

use std::fmt;

use thiserror::Error;

use crate::Status;

/// What can happen to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It is made; with a gate if it has to reach a score first.
    Created { gated: bool },
    /// Its evaluation reached the score.
    Passed,
    /// Its evaluation did not.
    Failed,
    /// Another version became active, or took its place in waiting for an evaluation.
    Superseded,
    /// Somebody asked for this very version: a rollback.
    Deployed,
    /// Its agent was deleted.
    AgentDeleted,
}

impl Event {
    pub const ALL: [Self; 7] = [
        Self::Created { gated: false },
        Self::Created { gated: true },
        Self::Passed,
        Self::Failed,
        Self::Superseded,
        Self::Deployed,
        Self::AgentDeleted,
    ];
}

/// Why something cannot happen to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{}", self.reason())]
pub struct Refused {
    pub from: Option<Status>,
    pub event: Event,
}

/// Where a release stands after an event; `None` is where it stands before there is one.
pub fn next(from: impl Into<Option<Status>>, event: Event) -> Result<Status, Refused> {
    use Status::{Active, Archived, Deleted, PendingEval, Rejected};
    let from = from.into();
    match (from, event) {
        (None, Event::Created { gated: true }) => Ok(PendingEval),
        // An agent's end is the end of its releases, whatever they were. Their files stay, so that one may be
        // deployed again by an Agent that takes up the name.
        (None, Event::Created { gated: false })
        | (Some(PendingEval), Event::Passed)
        | (Some(Active | Archived | Deleted), Event::Deployed) => Ok(Active),
        (Some(PendingEval), Event::Failed) => Ok(Rejected),
        (Some(PendingEval | Active | Archived), Event::Superseded) => Ok(Archived),
        (Some(status @ (Rejected | Deleted)), Event::Superseded) => Ok(status),
        (Some(_), Event::AgentDeleted) => Ok(Deleted),
        _ => Err(Refused { from, event }),
    }
}

impl Refused {
    fn reason(self) -> String {
        match (self.from, self.event) {
            (Some(Status::Rejected), Event::Deployed) => "the release was rejected by its evaluation, so it cannot be deployed".to_owned(),
            (Some(Status::PendingEval), Event::Deployed) => {
                "the release waits for its evaluation; it is deployed by passing it, and by nothing else".to_owned()
            }
            (Some(status), Event::Passed | Event::Failed) => format!("the release waits for no evaluation: it is {}", status.as_str()),
            (Some(status), event @ Event::Created { .. }) => format!("the release cannot be {event}: it is {} already", status.as_str()),
            (Some(status), event) => format!("the release cannot be {event} while it is {}", status.as_str()),
            (None, event) => format!("the release cannot be {event}: there is none"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created { .. } => "created",
            Self::Passed => "approved",
            Self::Failed => "rejected",
            Self::Superseded => "superseded",
            Self::Deployed => "deployed",
            Self::AgentDeleted => "deleted",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_in_every_state() {
        use Status::{Active, Archived, Deleted, PendingEval, Rejected};
        let none = None;
        // Created, created with a gate, passed, failed, superseded, deployed, agent deleted.
        let table: [(Option<Status>, [Option<Status>; 7]); 6] = [
            (none, [Some(Active), Some(PendingEval), none, none, none, none, none]),
            (Some(PendingEval), [none, none, Some(Active), Some(Rejected), Some(Archived), none, Some(Deleted)]),
            (Some(Active), [none, none, none, none, Some(Archived), Some(Active), Some(Deleted)]),
            (Some(Rejected), [none, none, none, none, Some(Rejected), none, Some(Deleted)]),
            (Some(Archived), [none, none, none, none, Some(Archived), Some(Active), Some(Deleted)]),
            (Some(Deleted), [none, none, none, none, Some(Deleted), Some(Active), Some(Deleted)]),
        ];
        for (from, row) in table {
            for (event, expected) in Event::ALL.into_iter().zip(row) {
                assert_eq!(next(from, event).ok(), expected, "{from:?} {event:?}");
            }
        }
    }

    #[test]
    fn what_is_told_twice_after_a_crash_changes_nothing() {
        for event in [Event::Superseded, Event::Deployed, Event::AgentDeleted] {
            for status in [Status::PendingEval, Status::Active, Status::Rejected, Status::Archived, Status::Deleted] {
                if let Ok(once) = next(status, event) {
                    assert_eq!(next(once, event), Ok(once), "{status:?} {event:?}");
                }
            }
        }
    }

    #[test]
    fn refusals_say_why() {
        for (from, event, reason) in [
            (Some(Status::Rejected), Event::Deployed, "the release was rejected by its evaluation, so it cannot be deployed"),
            (
                Some(Status::PendingEval),
                Event::Deployed,
                "the release waits for its evaluation; it is deployed by passing it, and by nothing else",
            ),
            (Some(Status::Active), Event::Passed, "the release waits for no evaluation: it is active"),
            (Some(Status::Archived), Event::Created { gated: true }, "the release cannot be created: it is archived already"),
            (None, Event::Superseded, "the release cannot be superseded: there is none"),
        ] {
            assert_eq!(next(from, event).unwrap_err().to_string(), reason);
        }
    }
}
