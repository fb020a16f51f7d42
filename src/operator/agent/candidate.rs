//! The run that decides on a release which waits: made once the release's pods are ready, or are not going to be, which the run
//! then tells. The state role reads what became of it.

use kube::api::{Api, DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use slipway_api::{Agent, AgentRelease, EvaluationRun, Track, labels};
use slipway_cluster::{Key, quota, write};
use slipway_release::{Artifact, gate};

use super::MANAGER;
use super::pin::{self, Source};
use crate::caches::child::DeploymentState;
use crate::caches::{ChildKind, HeldRelease, Release};
use crate::children::Outcome;
use crate::context::Context;

/// Makes the run of the release that waits, if its time has come and it is not there.
pub(super) async fn begin(agent: &Agent, outcomes: &[(ChildKind, String, Outcome)], context: &Context) -> Result<(), write::Error> {
    let key = Key::of(agent);
    let Some(held) = pin::pending(agent, context) else { return Ok(()) };
    if agent.stopped_by().is_some() {
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
            let Some(active) = pin::pinned(agent, version, context) else { return Ok(()) };
            Some(active)
        }
        Source::Spec | Source::Nothing => None,
    };
    let (release, active) = (&*held.release, active.as_ref().map(|active| &active.artifact));
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &key.namespace, &kube::api::ApiResource::erase::<EvaluationRun>(&()));
    let made = context.caches.evaluation_runs.get(&Key::new(&key.namespace, &held.run));
    if let Some(made) = made {
        let wanted = gate::run_spec(&release.name, active, &release.artifact);
        if made.0.as_ref().is_ok_and(|made| gate::is_run_spec(&made.spec, &wanted)) {
            return Ok(());
        }
        // It was made to be in the way: the name follows from a UID.
        tracing::warn!(agent = %key, run = held.run, "an EvaluationRun that Slipway has not made is deleted, for a release has its name");
        let preconditions = Preconditions { uid: made.meta().uid.clone(), resource_version: None };
        let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        return match api.delete(&held.run, &how).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(error.into()),
        };
    }
    let object: DynamicObject = serde_json::from_value(run(agent, &held, active))?;
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match quota::retry_on_quota_conflict(|| api.create(&params, &object)).await {
        Ok(_) => tracing::info!(agent = %key, run = held.run, release = release.name, "the evaluation of a release begins"),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Whether its pods are ready, or will not be by themselves. What a quota refuses waits for the quota.
fn is_decided(deployment: &DeploymentState) -> bool {
    let is_ready = deployment.settled() && deployment.wanted > 0;
    let is_without_room = deployment.refused.as_ref().is_some_and(|why| why.contains("exceeded quota"));
    is_ready || (deployment.current && deployment.stuck.is_some() && !is_without_room)
}

fn deployment(agent: &Agent, context: &Context) -> Option<DeploymentState> {
    let key = Key::of(agent);
    let workload = Key::new(&key.namespace, Track::Candidate.workload(&key.name));
    let child = context.caches.children(ChildKind::Deployment).get(&workload)?;
    child.deployment.as_deref().filter(|_| child.owner == agent.meta().uid).cloned()
}

/// What keeps the pods of a candidate from being ready.
pub(super) fn trouble(agent: &Agent, context: &Context) -> Option<String> {
    problem(agent, &deployment(agent, context)?, context)
}

/// What keeps the pods of a candidate from being ready for good, so that nothing need wait for them.
pub(crate) fn given_up(agent: &Agent, context: &Context) -> Option<String> {
    let state = deployment(agent, context).filter(|state| state.available == 0 && is_decided(state))?;
    problem(agent, &state, context)
}

fn problem(agent: &Agent, state: &DeploymentState, context: &Context) -> Option<String> {
    let key = Key::of(agent);
    let problem = context.caches.pods.problem(&Key::new(&key.namespace, Track::Candidate.workload(&key.name)));
    let problem = problem.filter(|_| !state.settled()).map(|problem| format!("{}: {}", problem.reason, problem.message));
    state.refused.clone().or(problem).or_else(|| state.stuck.as_ref().map(|(reason, message)| format!("{reason}: {message}")))
}

/// The run, owned by the release that it decides on.
fn run(agent: &Agent, held: &HeldRelease, active: Option<&Artifact>) -> Value {
    let release = &held.release;
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
            "ownerReferences": [owner(release)],
        },
        "spec": gate::run_spec(&release.name, active, &release.artifact),
    })
}

/// Of what goes with a release.
pub(super) fn owner(release: &Release) -> Value {
    json!({
        "apiVersion": AgentRelease::api_version(&()),
        "kind": AgentRelease::kind(&()),
        "name": release.name,
        "uid": release.uid,
        "controller": true,
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use kube::Client;
    use kube::client::Body;
    use kube::core::DeserializeGuard;
    use slipway_api::AgentStatus;

    use super::*;
    use crate::agent::pin::tests::{agent_of, artifact_of, release_of};
    use crate::caches::child::Child;
    use crate::testing::context_of;

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
        let refused = |why: &str| Some(why.to_owned());
        for (what, state, begins) in [
            ("ready", state(1), true),
            ("on its way", state(0), false),
            ("of an earlier spec", DeploymentState { current: false, ..state(1) }, false),
            ("given up", DeploymentState { stuck: stuck.clone(), ..state(0) }, true),
            ("without room", DeploymentState { stuck: stuck.clone(), refused: refused("exceeded quota: slipway"), ..state(0) }, false),
            ("not admitted", DeploymentState { stuck, refused: refused("denied by policy"), ..state(0) }, true),
            ("stopped", DeploymentState { current: true, ..DeploymentState::default() }, false),
        ] {
            assert_eq!(is_decided(&state), begins, "{what}");
        }
    }

    #[test]
    fn a_run_is_what_the_state_role_believes() {
        let agent = agent_of("systemPrompt: raw, governance: {minQualityScore: 1, evalDataset: easy}");
        let active = artifact_of(&agent_of("governance: {minQualityScore: 80, evalDataset: hard}"), 1);
        let held = HeldRelease {
            run: gate::run_name("r2", 1),
            release: release_of(&agent_of("systemPrompt: new, governance: {minQualityScore: 60, evalDataset: easy}"), 2).into(),
        };
        let made: EvaluationRun = serde_json::from_value(run(&agent, &held, Some(&active))).unwrap();
        assert_eq!(made.spec, gate::run_spec("helper-v2", Some(&active), &held.release.artifact));
        assert_eq!((made.spec.min_quality_score, made.spec.dataset.as_deref()), (Some(80), Some("hard")));
        assert_eq!((made.name_any(), made.owner_references()[0].uid.as_str()), (gate::run_name("r2", 1), "r2"));
    }

    #[tokio::test]
    async fn a_run_is_made_when_the_candidate_is_ready_and_another_of_its_name_goes() {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let hearing = sent.clone();
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            hearing.lock().unwrap().push(format!("{method} {}", path.rsplit('/').next().unwrap()));
            let answer = match method {
                http::Method::DELETE => json!({"kind": "Status", "status": "Success"}),
                _ => json!({"apiVersion": "agents.slipway.dev/v1", "kind": "EvaluationRun", "metadata": {"name": "r"}}),
            };
            async move { Ok::<_, Infallible>(http::Response::new(Body::from(answer.to_string().into_bytes()))) }
        });
        let context = context_of(Client::new(server, "default"));
        let (key, name) = (Key::new("team-a", "helper"), "helper-candidate".to_owned());
        let mut agent = agent_of("systemPrompt: new, governance: {minQualityScore: 60}");
        let held = HeldRelease { run: gate::run_name("r1", 1), release: release_of(&agent, 1).into() };
        let pending = AgentStatus { pending_release: Some(1), pending_evaluation: Some(held.run.clone()), ..AgentStatus::default() };
        agent.status = Some(pending);
        context.caches.held.insert(key, held.clone());
        let pods = |available: i32| {
            let owner = json!({"apiVersion": "v1", "kind": "Agent", "name": "helper", "uid": "u", "controller": true});
            let deployment: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": name, "ownerReferences": [owner]},
                "spec": {"replicas": 1},
                "status": {"replicas": 1, "updatedReplicas": 1, "readyReplicas": available, "availableReplicas": available},
            }))
            .unwrap();
            let child = Child::look(&deployment, None, || None, "");
            context.caches.children(ChildKind::Deployment).insert(Key::new("team-a", &name), child);
        };
        let of = |outcome| vec![(ChildKind::Deployment, name.clone(), outcome)];
        let told = async |agent: &Agent, outcome| {
            begin(agent, &of(outcome), &context).await.unwrap();
            std::mem::take(&mut *sent.lock().unwrap())
        };
        pods(0);
        assert!(told(&agent, Outcome::Unchanged).await.is_empty(), "it has no pods yet");
        pods(1);
        assert!(told(&agent, Outcome::Repaired).await.is_empty(), "its pods may be those of an earlier one");
        assert_eq!(told(&agent, Outcome::Unchanged).await, ["POST evaluationruns"]);
        let mut other: EvaluationRun = serde_json::from_value(run(&agent, &held, None)).unwrap();
        let runs = &context.caches.evaluation_runs;
        runs.insert(Key::new("team-a", &held.run), DeserializeGuard(Ok(other.clone())));
        assert!(told(&agent, Outcome::Unchanged).await.is_empty(), "it is there");
        other.spec.release = None;
        runs.insert(Key::new("team-a", &held.run), DeserializeGuard(Ok(other)));
        assert_eq!(told(&agent, Outcome::Unchanged).await, [format!("DELETE {}", held.run)]);
        agent.spec.suspend = true;
        assert!(told(&agent, Outcome::Unchanged).await.is_empty(), "a stopped agent is not evaluated");
    }
}
