//! What leads to an Agent from outside and weighs its tracks: an HTTPRoute of the Gateway API, and of Istio a VirtualService with
//! DestinationRules. Their kinds are compiled in nowhere: objects are JSON, and exist where their kinds do ([`ChildKind::is_optional`]).
//!
//! Everything here but [`gather`] is pure. The weight is that of the status, so that REST, the Gateway and the mesh follow one number.

use serde_json::Value;
use slipway_api::canary::Carrier;
use slipway_api::condition::{EXPOSED, Finding};
use slipway_api::{Agent, CanaryStatus, Track};

use crate::caches::ChildKind;
use crate::context::Context;
use crate::settings::Settings;

/// What surrounds an Agent that may be routed to.
pub(super) struct Seen;

/// Reads it from the caches.
pub(super) fn gather(_agent: &Agent, _context: &Context) -> Seen {
    Seen
}

/// The objects that there should be. `weight` is the canary's share; None without a canary.
pub(super) fn build(_agent: &Agent, _weight: Option<u8>, _seen: &Seen, _settings: &Settings) -> Vec<(ChildKind, Value)> {
    Vec::new()
}

/// All such objects that an agent can have.
pub(super) fn names(agent: &str) -> [(ChildKind, String); 4] {
    [
        (ChildKind::HttpRoute, agent.to_owned()),
        (ChildKind::VirtualService, agent.to_owned()),
        (ChildKind::DestinationRule, Track::primary(agent)),
        (ChildKind::DestinationRule, Track::Canary.workload(agent)),
    ]
}

/// Whether an agent can have an object of that kind and name.
pub(super) fn is_name(agent: &str, kind: ChildKind, name: &str) -> bool {
    kind.is_optional() && names(agent).iter().any(|(of_kind, known)| *of_kind == kind && known == name)
}

/// Who sends a canary its share, and who does not.
pub(super) fn carriers(_agent: &Agent, _canary: &CanaryStatus, _seen: &Seen, _settings: &Settings) -> Vec<Carrier> {
    Vec::new()
}

/// Whether the Gateway leads to the agent, where its spec asks for that.
pub(super) fn exposed(agent: &Agent, _seen: &Seen, _settings: &Settings) -> Option<Finding> {
    agent.spec.expose.map(|_| Finding::new(EXPOSED, false, "NotInThisVersion", "spec.expose: this version of Slipway makes no routes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_have_names_that_no_workload_has() {
        for (kind, name) in names("helper") {
            assert!(is_name("helper", kind, &name), "{kind:?} {name}");
            assert!(Track::ALL.into_iter().all(|track| !crate::agent::build::is_name("helper", track, kind, &name)), "{kind:?} {name}");
        }
        assert!(!is_name("helper", ChildKind::Service, "helper") && !is_name("helper", ChildKind::HttpRoute, "other"));
    }
}
