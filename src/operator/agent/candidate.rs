//! The run that decides on a release which waits: made once the release's pods are ready, or are not going to be, which the run
//! then tells. The state role reads what became of it.

use kube::api::{Api, DynamicObject, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use slipway_api::{Agent, AgentRelease, EvaluationRun, Track, labels};
use slipway_cluster::{Key, quota, write};
use slipway_release::{Artifact, gate};

use super::MANAGER;
use super::pin::{self, Source};
use crate::caches::child::DeploymentState;
use crate::caches::{ChildKind, HeldRelease};
use crate::children::Outcome;
use crate::context::Context;

/// Makes the run of the release that waits, if its time has come and it is not there.
pub(super) async fn begin(agent: &Agent, outcomes: &[(ChildKind, String, Outcome)], context: &Context) -> Result<(), write::Error> {
    let key = Key::of(agent);
    let Some(held) = pin::pending_run(agent).and_then(|run| context.caches.held.get(&key).filter(|held| held.run == run)) else {
        return Ok(());
    };
    let is_made = context.caches.evaluation_runs.get(&Key::new(&key.namespace, &held.run)).is_some();
    if agent.stopped_by().is_some() || is_made {
        return Ok(());
    }
    let name = Track::Candidate.workload(&key.name);
    let is_wanted = outcomes.contains(&(ChildKind::Deployment, name, Outcome::Unchanged));
    let deployment = deployment(agent, context);
    if !is_wanted || !deployment.as_ref().is_some_and(is_decided) {
        return Ok(());
    }
    let active = match pin::source(agent) {
        Source::Held(version) | Source::Pinned(version) => {
            let Some(active) = context.caches.pins.get(&key).filter(|known| known.metadata.version == version) else { return Ok(()) };
            Some(active)
        }
        Source::Spec | Source::Nothing => None,
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &key.namespace, &kube::api::ApiResource::erase::<EvaluationRun>(&()));
    let object: DynamicObject = serde_json::from_value(run(agent, &held, active.as_deref()))?;
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match quota::retry_on_quota_conflict(|| api.create(&params, &object)).await {
        Ok(_) => tracing::info!(agent = %key, run = held.run, release = held.name, "the evaluation of a release begins"),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Whether its pods are ready, or will not be by themselves. What a quota refuses waits for the quota.
fn is_decided(deployment: &DeploymentState) -> bool {
    let is_ready = deployment.settled() && deployment.wanted > 0;
    is_ready || (deployment.current && deployment.stuck.is_some() && deployment.refused.is_none())
}

fn deployment(agent: &Agent, context: &Context) -> Option<DeploymentState> {
    let key = Key::of(agent);
    let workload = Key::new(&key.namespace, Track::Candidate.workload(&key.name));
    let child = context.caches.children(ChildKind::Deployment).get(&workload)?;
    child.deployment.as_deref().filter(|_| child.owner == agent.meta().uid).cloned()
}

/// What keeps the pods of a candidate from being ready.
pub(super) fn trouble(agent: &Agent, context: &Context) -> Option<String> {
    let key = Key::of(agent);
    let state = deployment(agent, context)?;
    let problem = context.caches.pods.problem(&Key::new(&key.namespace, Track::Candidate.workload(&key.name)));
    let problem = problem.filter(|_| !state.settled()).map(|problem| format!("{}: {}", problem.reason, problem.message));
    state.refused.or(problem).or(state.stuck.map(|(reason, message)| format!("{reason}: {message}")))
}

/// The run, owned by the release that it decides on.
fn run(agent: &Agent, held: &HeldRelease, active: Option<&Artifact>) -> Value {
    let owner = json!({
        "apiVersion": AgentRelease::api_version(&()),
        "kind": AgentRelease::kind(&()),
        "name": held.name,
        "uid": held.uid,
        "controller": true,
    });
    json!({
        "apiVersion": EvaluationRun::api_version(&()),
        "kind": EvaluationRun::kind(&()),
        "metadata": {
            "name": held.run,
            "namespace": agent.namespace(),
            "labels": {
                labels::NAME: agent.name_any(),
                labels::PART_OF: labels::PLATFORM,
                labels::MANAGED_BY: labels::OPERATOR,
                labels::AGENT: agent.name_any(),
            },
            "ownerReferences": [owner],
        },
        "spec": gate::run_spec(&held.name, active, &held.artifact),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::pin::tests::{agent_of, artifact_of};

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
        let refused = Some("exceeded quota".to_owned());
        for (what, state, begins) in [
            ("ready", state(1), true),
            ("on its way", state(0), false),
            ("of an earlier spec", DeploymentState { current: false, ..state(1) }, false),
            ("given up", DeploymentState { stuck: stuck.clone(), ..state(0) }, true),
            ("without room", DeploymentState { stuck, refused, ..state(0) }, false),
            ("stopped", DeploymentState { current: true, ..DeploymentState::default() }, false),
        ] {
            assert_eq!(is_decided(&state), begins, "{what}");
        }
    }

    #[test]
    fn a_run_is_what_the_state_role_believes() {
        let agent = agent_of("systemPrompt: raw, governance: {minQualityScore: 1, evalDataset: easy}");
        let of = |spec: &str, version| artifact_of(&agent_of(spec), version);
        let active = of("governance: {minQualityScore: 80, evalDataset: hard}", 1);
        let held = HeldRelease {
            name: "helper-2".to_owned(),
            uid: "r2".to_owned(),
            run: gate::run_name("r2", 1),
            artifact: of("systemPrompt: new, governance: {minQualityScore: 60, evalDataset: easy}", 2),
        };
        let made: EvaluationRun = serde_json::from_value(run(&agent, &held, Some(&active))).unwrap();
        assert_eq!(made.spec, gate::run_spec("helper-2", Some(&active), &held.artifact));
        assert_eq!((made.spec.min_quality_score, made.spec.dataset.as_deref()), (Some(80), Some("hard")));
        assert_eq!((made.name_any(), made.owner_references()[0].uid.as_str()), (gate::run_name("r2", 1), "r2"));
    }
}
