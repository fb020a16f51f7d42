//! The evaluation of a canary, where a gate asks for one: which run it is, and what has become of it.
//!
//! The name of the run follows from the Agent's UID, the canary's content and the attempt. A run that ended without scores is repeated, as
//! releases' runs are.

use slipway_api::condition::READY;
use slipway_api::evaluation_run::{EvaluationPhase, EvaluationProvider};
use slipway_api::{Agent, AgentSpec, Canary, CanaryStatus, EvaluationRun, EvaluationRunSpec};
use slipway_cluster::Key;
use slipway_release::content_of;
use slipway_release::gate::{self, MAX_ATTEMPTS};

use crate::agent::content;
use crate::agent::pin::{self, SpecSource};
use crate::context::Context;

/// An evaluation that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Evaluation {
    /// Whether it keeps users from the canary until it has passed. Else only the score is wanted.
    pub is_gate: bool,
    /// None while it cannot be said what is to be evaluated.
    pub run: Option<DecidingRun>,
    pub state: EvaluationState,
}

/// The run that decides.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DecidingRun {
    pub name: String,
    pub attempt: i32,
    pub wanted: EvaluationRunSpec,
}

/// What has become of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum EvaluationState {
    /// Something that the canary names, or the active release, has yet to be read.
    Unknown,
    /// It has yet to be made, in the place of another one that has its name, perhaps.
    Absent,
    Runs,
    /// None where the run itself is gone meanwhile.
    Passed(Option<f64>),
    Failed(String),
    /// All attempts ended without a score, or one that would not end better if it were repeated.
    Spent(String),
}

/// The evaluation that is asked for; none without a gate.
pub(super) fn of(agent: &Agent, canary: &Canary, before: Option<&CanaryStatus>, context: &Context) -> Option<Evaluation> {
    let gates = canary.analysis.as_ref().and_then(|analysis| analysis.gates.as_ref());
    let asked = gates.and_then(|gates| gates.score);
    let least = |spec: &AgentSpec| spec.governance.as_ref().and_then(|governance| governance.min_quality_score).filter(|score| *score > 0);
    // What the spec itself asks for a canary cannot lower, nor what the active release does.
    let is_gate = pin::is_gated(agent) || least(&canary.promoted(&agent.spec)).is_some();
    if !is_gate && asked.is_none() {
        return None;
    }
    let unknown = Some(Evaluation { is_gate, run: None, state: EvaluationState::Unknown });
    let active = match pin::source(agent) {
        SpecSource::Held(version) | SpecSource::Pinned(version) => match pin::pinned(agent, version, context) {
            Some(active) => Some(active),
            None => return unknown,
        },
        SpecSource::Spec | SpecSource::Nothing => None,
    };
    // Where nothing that runs has a gate yet, the agent's own spec is what a canary may not make easier.
    let own = content_of(agent);
    let held = active.as_ref().map(|active| &active.artifact).filter(|active| active.governance.min_quality_score > 0);
    let (Some(artifact), Some(uid)) = (content::canary_artifact(agent, context), agent.metadata.uid.as_deref()) else { return unknown };
    let wanted = gate::canary_run_spec(Some(held.unwrap_or(&own)), &artifact, asked.max(least(&agent.spec)));
    let key = gate::content_key(&artifact);
    let known = before.filter(|before| before.evaluation.as_deref() == Some(&*gate::canary_run_name(uid, &key, before.attempt)));
    let mut attempt = known.map_or(1, |known| known.attempt.clamp(1, MAX_ATTEMPTS));
    loop {
        let name = gate::canary_run_name(uid, &key, attempt);
        let found = context.caches.evaluation_runs.get(&Key::new(Key::of(agent).namespace, &*name));
        let found = found.as_ref().and_then(|found| found.0.as_ref().ok());
        let state = match found {
            Some(run) => outcome(run, &wanted, context.settings.allow_heuristic_gate),
            // It may have been cleared away since it let users to the canary.
            None if is_gate && known.is_some_and(|known| known.attempt == attempt && known.share() > 0) => EvaluationState::Passed(None),
            None => EvaluationState::Absent,
        };
        if matches!(state, EvaluationState::Spent(_)) && attempt < MAX_ATTEMPTS && !found.is_some_and(is_silent) {
            attempt += 1;
            continue;
        }
        return Some(Evaluation { is_gate, run: Some(DecidingRun { name, attempt, wanted }), state });
    }
}

/// Whether a run ended because the agent gives no answers, and would in another one.
fn is_silent(run: &EvaluationRun) -> bool {
    let status = run.status.as_ref().filter(|status| status.phase == Some(EvaluationPhase::Failed));
    status.is_some_and(|status| status.conditions.iter().any(|found| found.type_ == READY && found.reason == gate::NO_ANSWER))
}

/// What one run came to. Its status is this manager's own, by the policy that keeps others from statuses.
fn outcome(run: &EvaluationRun, wanted: &EvaluationRunSpec, allow_heuristic: bool) -> EvaluationState {
    if !gate::is_run_spec(&run.spec, wanted) {
        return EvaluationState::Absent;
    }
    let name = run.metadata.name.as_deref().unwrap_or_default();
    let status = run.status.clone().unwrap_or_default();
    let message = || status.conditions.iter().find(|found| found.type_ == READY).map_or("no reason was told", |ready| &*ready.message);
    match status.phase {
        None | Some(EvaluationPhase::Pending | EvaluationPhase::Running) => return EvaluationState::Runs,
        Some(EvaluationPhase::Cancelled) => return EvaluationState::Spent(format!("run {name} was cancelled")),
        Some(EvaluationPhase::Failed) => return EvaluationState::Spent(format!("run {name}: {}", message())),
        Some(EvaluationPhase::Completed) => {}
    }
    let (Some(provider), Some(score), Some(passed)) = (status.provider, status.score, status.passed) else {
        return EvaluationState::Spent(format!("run {name}: {}", status.verdict.as_deref().unwrap_or_else(message)));
    };
    let words = status.verdict.clone().unwrap_or_else(|| format!("avg={score}"));
    let asked = wanted.min_quality_score.map(f64::from);
    match provider {
        EvaluationProvider::Mock => EvaluationState::Spent(format!("run {name}: the agent was not reached")),
        _ if !passed || asked.is_some_and(|asked| status.threshold.is_none_or(|threshold| threshold < asked)) => {
            EvaluationState::Failed(format!("evaluation {name}: {words}"))
        }
        EvaluationProvider::Heuristic if !allow_heuristic => EvaluationState::Failed(format!(
            "evaluation {name}: {words}, judged by a comparison of words, which passes no gate; name a model in spec.judgeModel"
        )),
        EvaluationProvider::Heuristic | EvaluationProvider::Slipway => EvaluationState::Passed(Some(score)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use slipway_api::AgentStatus;
    use slipway_api::canary::CanaryPhase;
    use slipway_cluster::Guarded;

    use super::*;
    use crate::agent::pin::tests::{agent_of, release_of};
    use crate::testing::context;

    fn run(name: &str, spec: &EvaluationRunSpec, status: &Value) -> EvaluationRun {
        let whole = json!({"metadata": {"name": name, "namespace": "team-a"}, "spec": spec, "status": status});
        serde_json::from_value(whole).unwrap()
    }

    fn found(agent: &Agent, before: Option<&CanaryStatus>, context: &Context) -> Option<Evaluation> {
        of(agent, agent.canary().unwrap(), before, context)
    }

    #[tokio::test]
    async fn a_gate_of_the_spec_or_of_what_runs_asks_for_a_run() {
        let context = context();
        let asks = |spec: &str| {
            let evaluation = found(&agent_of(spec), None, &context)?;
            let wanted = evaluation.run.unwrap().wanted;
            Some((evaluation.is_gate, wanted.min_quality_score, wanted.dataset))
        };
        let hard = Some("hard".to_owned());
        for (spec, expected) in [
            (
                "governance: {minQualityScore: 60, evalDataset: hard}, canary: {enabled: true, weight: 1, overrides: {governance: {evalDataset: easy}}}",
                Some((true, Some(60), hard.clone())),
            ),
            ("canary: {enabled: true, weight: 1}", None),
            ("canary: {enabled: true, weight: 1, analysis: {gates: {score: 70}}}", Some((false, Some(70), None))),
            ("governance: {minQualityScore: 60}, canary: {enabled: true, weight: 1}", Some((true, Some(60), None))),
            (
                "governance: {minQualityScore: 60}, canary: {enabled: true, weight: 1, analysis: {gates: {score: 70}}}",
                Some((true, Some(70), None)),
            ),
            (
                "governance: {minQualityScore: 60}, canary: {enabled: true, weight: 1, overrides: {governance: {evalDataset: easy}}}",
                Some((true, Some(60), Some("easy".to_owned()))),
            ),
            ("canary: {enabled: true, weight: 1, overrides: {governance: {minQualityScore: 50}}}", Some((true, Some(50), None))),
        ] {
            assert_eq!(asks(spec), expected, "{spec}");
        }
        let mut held = agent_of("systemPrompt: p, canary: {enabled: true, weight: 1, overrides: {governance: {evalDataset: easy}}}");
        held.status = Some(AgentStatus { active_release: Some(3), quality_gate: Some(80), ..AgentStatus::default() });
        assert_eq!(found(&held, None, &context).unwrap().state, EvaluationState::Unknown, "what runs has yet to be read");
        let active = agent_of("governance: {minQualityScore: 80, evalDataset: hard}");
        context.caches.pins.insert(Key::of(&held), release_of(&active, 3));
        let wanted = found(&held, None, &context).unwrap().run.unwrap().wanted;
        assert_eq!((wanted.min_quality_score, wanted.dataset), (Some(80), hard), "what runs is not made easier");
        let late = "governance: {minQualityScore: 60, evalDataset: hard}, canary: {enabled: true, weight: 1, overrides: {governance: {evalDataset: easy}}}";
        let late = Agent { status: Some(AgentStatus { active_release: Some(3), ..AgentStatus::default() }), ..agent_of(late) };
        context.caches.pins.insert(Key::of(&late), release_of(&agent_of("systemPrompt: p"), 3));
        let wanted = found(&late, None, &context).unwrap().run.unwrap().wanted;
        assert_eq!(wanted.dataset.as_deref(), Some("hard"), "nor is the gate that has just been set");
    }

    #[tokio::test]
    async fn a_run_passes_fails_or_is_made_again() {
        let context = context();
        let agent = agent_of("governance: {minQualityScore: 60}, canary: {enabled: true, weight: 5, systemPrompt: new}");
        let first = found(&agent, None, &context).unwrap();
        assert_eq!((first.state.clone(), first.run.as_ref().unwrap().attempt), (EvaluationState::Absent, 1));
        let first = first.run.unwrap();
        let state = |name: &str, spec: &EvaluationRunSpec, status: Value| {
            let guarded = Guarded(Ok(run(name, spec, &status)));
            context.caches.evaluation_runs.insert(Key::new("team-a", name), guarded);
            let found = found(&agent, None, &context).unwrap();
            (found.state, found.run.unwrap().attempt)
        };
        let done = |provider: &str, passed: bool, threshold: i32| {
            let said = json!({"provider": provider, "score": 71.5, "passed": passed, "threshold": threshold, "verdict": "avg=71.5"});
            let mut whole = json!({"phase": "Completed"});
            whole.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
            whole
        };
        let of_first = |status: Value| state(&first.name, &first.wanted, status);
        assert_eq!(of_first(json!({})).0, EvaluationState::Runs);
        assert_eq!(of_first(json!({"phase": "Running"})).0, EvaluationState::Runs);
        assert_eq!(of_first(done("slipway", true, 60)), (EvaluationState::Passed(Some(71.5)), 1));
        assert!(matches!(of_first(done("slipway", false, 80)).0, EvaluationState::Failed(_)));
        assert!(matches!(of_first(done("slipway", true, 50)).0, EvaluationState::Failed(_)), "it was held to less");
        assert!(matches!(of_first(done("heuristic", true, 60)).0, EvaluationState::Failed(why) if why.contains("spec.judgeModel")));
        let easier = EvaluationRunSpec { min_quality_score: Some(1), ..first.wanted.clone() };
        assert_eq!(state(&first.name, &easier, done("slipway", true, 1)).0, EvaluationState::Absent, "it is another run");
        let failed = |reason: &str| {
            json!({"phase": "Failed", "conditions": [{"type": "Ready", "status": "False", "reason": reason,
            "message": "no pod", "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        // One without a verdict is repeated.
        assert_eq!(of_first(done("mock", true, 60)), (EvaluationState::Absent, 2));
        let names = [1, 2, 3].map(|attempt| gate::canary_run_name("u", first.wanted.content.as_deref().unwrap(), attempt));
        assert_eq!(names[0], first.name);
        assert_eq!(state(&names[1], &first.wanted, json!({"phase": "Cancelled"})), (EvaluationState::Absent, 3));
        let (spent, attempt) = state(&names[2], &first.wanted, failed("NoPod"));
        assert!(matches!(&spent, EvaluationState::Spent(why) if why.contains("no pod")), "{spent:?}");
        assert_eq!(attempt, 3);
        // One more would get no answer either.
        let (spent, attempt) = state(&names[1], &first.wanted, failed("NoAnswer"));
        assert!(matches!(spent, EvaluationState::Spent(_)), "{spent:?}");
        assert_eq!(attempt, 2);
        // A run that let users to the canary is not missed.
        context.caches.evaluation_runs.remove(&Key::new("team-a", &*first.name));
        let stood = |phase| CanaryStatus { phase, weight: 5, evaluation: Some(first.name.clone()), attempt: 1, ..CanaryStatus::default() };
        assert_eq!(found(&agent, Some(&stood(CanaryPhase::Serving)), &context).unwrap().state, EvaluationState::Passed(None));
        assert_eq!(found(&agent, Some(&stood(CanaryPhase::Progressing)), &context).unwrap().state, EvaluationState::Absent);
    }
}
