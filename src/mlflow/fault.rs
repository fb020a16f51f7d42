//! Why something could not be written to MLflow. Messages hold no login and no more of a URL than scheme, host and port.

use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    #[error("{0}")]
    Address(String),
    #[error("{0}")]
    Unreachable(String),
    #[error("{place} refuses the login, or wants one: it answers with status {status}")]
    Unauthorized { place: String, status: u16 },
    #[error("MLflow refuses {call} with status {status}: {message}")]
    Refused { call: String, status: u16, code: String, message: String },
    #[error("{0}")]
    NotMlflow(String),
    #[error("MLflow's experiment {0:?} is deleted; restore it there")]
    ExperimentDeleted(String),
}

impl Fault {
    /// One word for a condition.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Address(_) => "AddressRefused",
            Self::Unreachable(_) => "Unreachable",
            Self::Unauthorized { .. } => "Unauthorized",
            Self::Refused { .. } => "Refused",
            Self::NotMlflow(_) => "NotMlflow",
            Self::ExperimentDeleted(_) => "ExperimentDeleted",
        }
    }

    pub(crate) fn has_code(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { code, .. } if code == wanted)
    }
}
