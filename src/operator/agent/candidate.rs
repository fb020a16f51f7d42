//! The evaluation run that decides on a release which waits. It is made once the release's pods are ready, or are known not to
//! become ready, which the run then reports. The state role reads its result.

use kube::Resource;
use serde_json::{Value, json};
use slipway_api::{Agent, AgentRelease, Track};
use slipway_cluster::{Key, write};
use slipway_release::gate;

use super::apply::Applied;
use super::pin::{self, SpecSource};
use super::resolve::Resolved;
use super::{run, track_pods};
use crate::caches::{ChildKind, Release};
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
    let deployment = track_pods::deployment(agent, Track::Candidate, context);
    if !is_wanted || !deployment.as_ref().is_some_and(track_pods::is_decided) {
        return Ok(());
    }
    let active = match pin::source(agent) {
        SpecSource::Held(version) | SpecSource::Pinned(version) => {
            let Some(active) = pin::pinned(agent, version, context) else { return Ok(()) };
            Some(active)
        }
        SpecSource::Spec | SpecSource::Nothing => None,
    };
    let (release, active) = (&*held.release, active.as_ref().map(|active| &active.artifact));
    let wanted = gate::run_spec(&release.name, active, &release.artifact);
    if run::make(agent, &held.run, &owner(release), &wanted, context).await? {
        tracing::info!(agent = %key, run = held.run, release = release.name, "the evaluation of a release begins");
    }
    Ok(())
}

/// The fault of a candidate, or what it waits for.
pub(super) fn trouble(resolved: &Resolved, applied: &Applied) -> Option<String> {
    let fault = match resolved {
        Resolved::Fault(fault) => Some(fault),
        Resolved::Plan(_) | Resolved::Unknown(_) => applied.fault.as_ref(),
    };
    fault.map(|fault| format!("{}: {}", fault.reason, fault.message)).or_else(|| applied.left.clone())
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

    use kube::client::Body;
    use kube::{Client, ResourceExt};
    use slipway_api::{AgentStatus, EvaluationRun};
    use slipway_cluster::{Guarded, Object};

    use super::*;
    use crate::agent::pin::tests::{agent_of, artifact_of, release_of};
    use crate::caches::HeldRelease;
    use crate::caches::child::Child;
    use crate::testing::context_of;

    const CANDIDATE: &str = "helper-candidate";

    #[test]
    fn a_run_is_what_the_state_role_believes() {
        let agent = agent_of("systemPrompt: raw, governance: {minQualityScore: 1, evalDataset: easy}");
        let active = artifact_of(&agent_of("governance: {minQualityScore: 80, evalDataset: hard}"), 1);
        let held = HeldRelease {
            run: gate::run_name("r2", 1),
            release: release_of(&agent_of("systemPrompt: new, governance: {minQualityScore: 60, evalDataset: easy}"), 2).into(),
        };
        let wanted = gate::run_spec(&held.release.name, Some(&active), &held.release.artifact);
        let made: EvaluationRun = serde_json::from_value(run::object(&agent, &held.run, &owner(&held.release), &wanted)).unwrap();
        assert_eq!(made.spec, gate::run_spec("helper-v2", Some(&active), &held.release.artifact));
        assert_eq!((made.spec.min_quality_score, made.spec.dataset.as_deref()), (Some(80), Some("hard")));
        assert_eq!((made.name_any(), made.owner_references()[0].uid.as_str()), (gate::run_name("r2", 1), "r2"));
    }

    /// An agent whose first release waits, as the caches have it.
    fn waiting(context: &Context) -> (Agent, HeldRelease) {
        let mut agent = agent_of("systemPrompt: new, governance: {minQualityScore: 60}");
        let held = HeldRelease { run: gate::run_name("r1", 1), release: release_of(&agent, 1).into() };
        let pending = AgentStatus { pending_release: Some(1), pending_evaluation: Some(held.run.clone()), ..AgentStatus::default() };
        agent.status = Some(pending);
        context.caches.held.insert(Key::new("team-a", "helper"), held.clone());
        (agent, held)
    }

    /// The caches have the candidate's Deployment, and this number of its pods can be used.
    fn has_pods(context: &Context, available: i32) {
        let owner = json!({"apiVersion": "v1", "kind": "Agent", "name": "helper", "uid": "u", "controller": true});
        let deployment: Object = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": CANDIDATE, "ownerReferences": [owner]},
            "spec": {"replicas": 1},
            "status": {"replicas": 1, "updatedReplicas": 1, "readyReplicas": available, "availableReplicas": available},
        }))
        .unwrap();
        let child = Child::look(&deployment, None, || None, "");
        context.caches.children(ChildKind::Deployment).insert(Key::new("team-a", CANDIDATE), child);
    }

    /// What became of the candidate's Deployment.
    fn of(outcome: Outcome) -> [(ChildKind, String, Outcome); 1] {
        [(ChildKind::Deployment, CANDIDATE.to_owned(), outcome)]
    }

    #[tokio::test]
    async fn two_managers_make_one_run() {
        let asked = Arc::new(Mutex::new(Vec::<(String, u16)>::new()));
        let store = asked.clone();
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let store = store.clone();
            async move {
                assert_eq!(request.method(), http::Method::POST);
                let run: Value = serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap();
                let name = run["metadata"]["name"].as_str().unwrap().to_owned();
                let is_there = store.lock().unwrap().iter().any(|(made, _)| *made == name);
                let (status, answer) = if is_there {
                    (409, json!({"kind": "Status", "status": "Failure", "reason": "AlreadyExists", "message": "it is there", "code": 409}))
                } else {
                    (201, run)
                };
                store.lock().unwrap().push((name, status));
                Ok::<_, Infallible>(http::Response::builder().status(status).body(Body::from(answer.to_string().into_bytes())).unwrap())
            }
        });
        let client = Client::new(server, "default");
        // Neither has heard of the other's run.
        let managers = [context_of(client.clone()), context_of(client)];
        for context in &managers {
            has_pods(context, 1);
            let (agent, _) = waiting(context);
            begin(&agent, &of(Outcome::Unchanged), context).await.unwrap();
        }
        assert_eq!(*asked.lock().unwrap(), [201, 409].map(|status| (gate::run_name("r1", 1), status)));
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
        let (mut agent, held) = waiting(&context);
        let told = async |agent: &Agent, outcome| {
            begin(agent, &of(outcome), &context).await.unwrap();
            std::mem::take(&mut *sent.lock().unwrap())
        };
        has_pods(&context, 0);
        assert!(told(&agent, Outcome::Unchanged).await.is_empty(), "it has no pods yet");
        has_pods(&context, 1);
        assert!(told(&agent, Outcome::Repaired).await.is_empty(), "its pods may be those of an earlier one");
        assert_eq!(told(&agent, Outcome::Unchanged).await, ["POST evaluationruns"]);
        let wanted = gate::run_spec(&held.release.name, None, &held.release.artifact);
        let mut other: EvaluationRun = serde_json::from_value(run::object(&agent, &held.run, &owner(&held.release), &wanted)).unwrap();
        let runs = &context.caches.evaluation_runs;
        runs.insert(Key::new("team-a", &held.run), Guarded(Ok(other.clone())));
        assert!(told(&agent, Outcome::Unchanged).await.is_empty(), "it is there");
        other.spec.release = None;
        runs.insert(Key::new("team-a", &held.run), Guarded(Ok(other)));
        assert_eq!(told(&agent, Outcome::Unchanged).await, [format!("DELETE {}", held.run)]);
        agent.spec.suspend = true;
        assert!(told(&agent, Outcome::Unchanged).await.is_empty(), "a stopped agent is not evaluated");
    }
}
