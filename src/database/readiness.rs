//! Samples of agents' readiness: the manager adds one a minute and agent; no team's login has a right on the table.

use crate::readings::AgentKey;
use crate::{Fault, Tenants};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadinessSample {
    pub agent: AgentKey,
    pub ready: bool,
}

impl Tenants {
    /// Adds samples of this minute, by the database's clock. An agent has one a minute: a second one changes nothing.
    pub async fn record_readiness(&self, samples: &[ReadinessSample]) -> Result<(), Fault> {
        let _ = samples;
        Err(Fault::Unavailable("not yet".to_owned()))
    }
}
