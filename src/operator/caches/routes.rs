//! The reasons why routes to agents are not as they should be.

use super::ChildKind;

/// Why what leads to an agent is not as it should be, by who reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RefusedRoutes {
    pub gateway: Option<String>,
    pub mesh: Option<String>,
}

impl RefusedRoutes {
    /// Of each reader the first reason counts.
    pub(crate) fn add(&mut self, kind: ChildKind, why: Option<String>) {
        let of_reader = if kind == ChildKind::HttpRoute { &mut self.gateway } else { &mut self.mesh };
        if of_reader.is_none() {
            *of_reader = why;
        }
    }
}
