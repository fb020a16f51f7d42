//! The pods of a track beside the stable one: whether they are ready, and what keeps them from becoming so.

use kube::Resource;
use slipway_api::{Agent, Track};
use slipway_cluster::Key;

use crate::caches::ChildKind;
use crate::caches::child::DeploymentState;
use crate::children::QUOTA_EXCEEDED;
use crate::context::Context;

/// What keeps pods from being ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodTrouble {
    pub reason: String,
    pub message: String,
}

impl PodTrouble {
    fn new(reason: &str, message: &str) -> Self {
        Self { reason: reason.to_owned(), message: message.to_owned() }
    }

    pub(super) fn said(&self) -> String {
        format!("{}: {}", self.reason, self.message)
    }
}

/// Whether pods are ready, or will not be by themselves. What a quota refuses waits for the quota.
pub(super) fn is_decided(deployment: &DeploymentState) -> bool {
    let is_ready = deployment.settled() && deployment.wanted > 0;
    // A quota may count ReplicaSets, too.
    let mut refusals = deployment.refused.iter().chain(deployment.stuck.iter().map(|(_, message)| message));
    let is_without_room = refusals.any(|why| is_for_want_of_room(why));
    is_ready || (deployment.current && deployment.stuck.is_some() && !is_without_room)
}

fn is_for_want_of_room(refused: &str) -> bool {
    refused.contains("exceeded quota")
}

/// The Deployment of a track, if it is this Agent's.
pub(super) fn deployment(agent: &Agent, track: Track, context: &Context) -> Option<DeploymentState> {
    let child = context.caches.children(ChildKind::Deployment).get(&workload(agent, track))?;
    child.deployment.as_deref().filter(|_| child.owner == agent.meta().uid).cloned()
}

fn workload(agent: &Agent, track: Track) -> Key {
    let key = Key::of(agent);
    Key::new(&key.namespace, track.workload(&key.name))
}

/// What keeps the pods of a track from being ready.
pub(super) fn trouble(agent: &Agent, track: Track, context: &Context) -> Option<PodTrouble> {
    problem(agent, track, &deployment(agent, track, context)?, context)
}

/// The same where they will not be by themselves, so that nothing need wait for them.
pub(super) fn is_given_up(state: &DeploymentState) -> bool {
    state.available == 0 && !state.settled() && is_decided(state)
}

/// What keeps the pods of a track from being ready for good, in words.
pub(crate) fn given_up(agent: &Agent, track: Track, context: &Context) -> Option<String> {
    let state = deployment(agent, track, context).filter(is_given_up)?;
    problem(agent, track, &state, context).map(|trouble| trouble.said())
}

fn problem(agent: &Agent, track: Track, state: &DeploymentState, context: &Context) -> Option<PodTrouble> {
    let refused = state.refused.as_deref().map(|why| {
        let reason = if is_for_want_of_room(why) { QUOTA_EXCEEDED } else { "FailedCreate" };
        PodTrouble::new(reason, why)
    });
    let of_pods = || {
        let problem = context.caches.pods.problem(&workload(agent, track)).filter(|_| !state.settled())?;
        Some(PodTrouble { reason: problem.reason, message: problem.message })
    };
    let stuck = |(reason, message): &(String, String)| {
        let reason = if is_for_want_of_room(message) { QUOTA_EXCEEDED } else { reason.as_str() };
        PodTrouble::new(reason, message)
    };
    refused.or_else(of_pods).or_else(|| state.stuck.as_ref().map(stuck))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_begins_when_pods_are_ready_or_are_given_up_and_not_for_want_of_room() {
        let state = |available: i32| DeploymentState {
            wanted: 1,
            updated: 1,
            ready: available,
            available,
            total: 1,
            current: true,
            ..DeploymentState::default()
        };
        let stuck = Some(("ProgressDeadlineExceeded".to_owned(), String::new()));
        let without_set = Some(("ReplicaSetCreateError".to_owned(), "replicasets.apps is forbidden: exceeded quota: slipway".to_owned()));
        let refused = |why: &str| Some(why.to_owned());
        for (what, state, begins) in [
            ("ready", state(1), true),
            ("on its way", state(0), false),
            ("of an earlier spec", DeploymentState { current: false, ..state(1) }, false),
            ("given up", DeploymentState { stuck: stuck.clone(), ..state(0) }, true),
            ("without room", DeploymentState { stuck: stuck.clone(), refused: refused("exceeded quota: slipway"), ..state(0) }, false),
            ("without room for a ReplicaSet", DeploymentState { stuck: without_set, ..state(0) }, false),
            ("not admitted", DeploymentState { stuck, refused: refused("denied by policy"), ..state(0) }, true),
            ("stopped", DeploymentState { current: true, ..DeploymentState::default() }, false),
        ] {
            assert_eq!(is_decided(&state), begins, "{what}");
        }
    }
}
