//! Deletes runs that have ended: each after its time, and of each agent all but the newest. A run that decided on a release is
//! kept while its AgentRelease exists, and one that decided on a canary while that is there.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PartialObjectMeta, Preconditions};
use slipway_api::evaluation_run::EvaluationPhase;
use slipway_api::{AgentRelease, EvaluationRun};
use slipway_cluster::{Key, write};

use crate::context::Context;

/// How long a run is kept that does not say it.
const TTL: Duration = Duration::from_hours(30 * 24);
/// How many runs that have ended are kept of one agent.
const KEPT_PER_AGENT: usize = 50;
/// How often it is looked whether a release or a canary is gone.
const RELEASE_INTERVAL: Duration = Duration::from_mins(10);
/// How often it is looked how many runs there are.
const COUNT_INTERVAL: Duration = Duration::from_mins(10);

/// Deletes a run that has been kept for long enough; says when to look again.
pub(super) async fn keep(context: &Context, key: &Key, run: &EvaluationRun) -> Result<Option<Duration>, write::Error> {
    let left = left(run, Timestamp::now());
    if !left.is_zero() && !is_surplus(context, key, run) {
        return Ok(Some(left.min(COUNT_INTERVAL)));
    }
    if is_of_canary(context, key, run) {
        return Ok(Some(RELEASE_INTERVAL));
    }
    if let Some(release) = &run.spec.release {
        let releases: Api<AgentRelease> = Api::namespaced(context.client.clone(), &key.namespace);
        let found: Option<PartialObjectMeta<AgentRelease>> = releases.get_metadata_opt(release).await?;
        if found.is_some() {
            return Ok(Some(RELEASE_INTERVAL));
        }
    }
    let preconditions = Preconditions { uid: run.uid(), resource_version: None };
    let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let runs: Api<EvaluationRun> = Api::namespaced(context.client.clone(), &key.namespace);
    match runs.delete(&key.name, &how).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether the agent's canary names the run as the one that decides on it.
fn is_of_canary(context: &Context, key: &Key, run: &EvaluationRun) -> bool {
    let agent = context.caches.agents.get(&Key::new(&key.namespace, &run.spec.agent)).and_then(|cached| cached.agent().ok());
    let evaluation = agent.and_then(|agent| agent.status?.canary?.evaluation);
    run.spec.content.is_some() && evaluation.as_ref() == Some(&key.name)
}

/// How much longer a run is kept.
fn left(run: &EvaluationRun, now: Timestamp) -> Duration {
    let ttl = run.spec.ttl_seconds_after_finished.and_then(|ttl| u64::try_from(ttl).ok()).map_or(TTL, Duration::from_secs);
    let Some(ended) = ended(run) else { return ttl };
    let ends = SignedDuration::try_from(ttl).ok().and_then(|ttl| ended.checked_add(ttl).ok()).unwrap_or(Timestamp::MAX);
    Duration::try_from(ends.duration_since(now)).unwrap_or_default()
}

fn ended(run: &EvaluationRun) -> Option<Timestamp> {
    run.status.as_ref()?.completed_at.as_ref().map(|time| time.0)
}

/// Whether as many newer runs of the agent are kept as there may be. Runs of releases are not counted: there are few.
fn is_surplus(context: &Context, key: &Key, run: &EvaluationRun) -> bool {
    let own = (ended(run), &key.name);
    let is_newer = |name: &String, other: &EvaluationRun| {
        let is_final = other.status.as_ref().and_then(|status| status.phase).is_some_and(EvaluationPhase::is_final);
        other.spec.agent == run.spec.agent && other.spec.release.is_none() && is_final && (ended(other), name) > own
    };
    let all = context.caches.evaluation_runs.in_namespace(&key.namespace);
    run.spec.release.is_none()
        && all.iter().filter(|(key, other)| other.0.as_ref().is_ok_and(|other| is_newer(&key.name, other))).count() >= KEPT_PER_AGENT
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slipway_cluster::Guarded;

    use super::*;
    use crate::testing::context;

    fn run(name: &str, ended: i64, more: &serde_json::Value) -> EvaluationRun {
        let mut whole = json!({"metadata": {"name": name, "namespace": "team-a"}, "spec": {"agent": "helper"},
            "status": {"phase": "Completed", "completedAt": Timestamp::from_second(ended).unwrap().to_string()}});
        whole["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_run_is_kept_for_its_time() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(left(&run("r", 100, &json!({"ttlSecondsAfterFinished": 10})), at(104)), Duration::from_secs(6));
        assert_eq!(left(&run("r", 100, &json!({"ttlSecondsAfterFinished": 10})), at(110)), Duration::ZERO);
        assert_eq!(left(&run("r", 100, &json!({})), at(100)), TTL);
    }

    #[tokio::test]
    async fn the_newest_runs_of_an_agent_are_kept() {
        let context = context();
        let key = |name: &str| Key::new("team-a", name);
        for at in 0..=50 {
            let name = format!("r{at:02}");
            context.caches.evaluation_runs.insert(key(&name), Guarded(Ok(run(&name, at, &json!({})))));
        }
        let surplus = |name: &str, at, more: &serde_json::Value| is_surplus(&context, &key(name), &run(name, at, more));
        assert!(surplus("r00", 0, &json!({})));
        assert!(!surplus("r01", 1, &json!({})));
        assert!(!surplus("r00", 0, &json!({"release": "helper-v1"})), "a run of a release");
        assert!(!surplus("r00", 0, &json!({"agent": "other"})));
    }

    #[tokio::test]
    async fn a_run_is_kept_while_a_canary_is_held_to_it() {
        let context = context();
        let agent = |status: &serde_json::Value| {
            let whole = json!({"metadata": {"name": "helper", "namespace": "team-a"}, "spec": {"name": "H", "framework": "custom"}, "status": status});
            let agent = Guarded(Ok(serde_json::from_value(whole).unwrap()));
            context.caches.agents.insert(Key::new("team-a", "helper"), agent.into());
        };
        let is_kept = |name: &str, more: &serde_json::Value| is_of_canary(&context, &Key::new("team-a", name), &run(name, 0, more));
        let decides = json!({"track": "canary", "content": "0a".repeat(32)});
        assert!(!is_kept("r", &decides), "its agent is gone");
        agent(&json!({"canary": {"phase": "Serving", "evaluation": "r"}}));
        assert!(is_kept("r", &decides));
        assert!(!is_kept("s", &decides));
        assert!(!is_kept("r", &json!({"track": "canary"})), "somebody else's");
        agent(&json!({}));
        assert!(!is_kept("r", &decides));
    }
}
