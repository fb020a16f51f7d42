//! Last step: one write of the status if something changed, and an Event if the verdict changed.
//!
//! `verdict` decides, `kubelet` reads messages that no pod's status has, `warnings` are problems that do not stop an agent.

mod held;
mod kubelet;
mod verdict;
mod warnings;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::core::error_boundary::InvalidObject;
use kube::{Resource, ResourceExt};
use slipway_api::agent::{AgentStatus, Phase};
use slipway_api::condition::{self, AVAILABLE, Finding, READY, RECONCILING, STALLED};
use slipway_api::{Agent, Track, contract, ids, labels};
use slipway_cluster::Key;
use slipway_cluster::controller::Next;
use slipway_cluster::event::EventSpec;
use slipway_cluster::write;

use super::apply::Applied;
use super::build::selector;
use super::pin::{self, SpecSource};
use super::resolve::{ConditionFault, Resolved};
use super::{Controller, MANAGER, Progress, canary, flagger, routing};
use crate::caches::ChildKind;
use crate::caches::child::DeploymentState;
use crate::caches::pods::Problem;
use crate::children::{self, Outcome};
use crate::context::Context;
use held::Held;
use verdict::{AgentVerdict, DEPLOYMENT_READY, Motion, PROGRESSING};

/// Says how an Agent is, by its stable track; when to look at it again, where that is sooner than usual.
pub(super) async fn report(
    agent: &Agent,
    progress: &Progress,
    canary: canary::CanaryReport,
    controller: &Controller,
) -> Next<write::Error> {
    let context = &*controller.context;
    let (plan, applied) = (&progress.resolved, &progress.applied);
    let key = Key::of(agent);
    let owned = |kind| context.caches.children(kind).get(&key).filter(|child| child.owner.as_deref() == agent.meta().uid.as_deref());
    let of_its_own = || owned(ChildKind::Deployment).and_then(|child| child.deployment.clone()).map(|deployment| *deployment);
    let of_flagger = flagger::serving(agent, context);
    let by_flagger = of_flagger.is_some();
    let deployment = of_flagger.or_else(of_its_own);
    let starting = match &deployment {
        Some(deployment) if !deployment.settled() => context.caches.pods.starting(&key),
        _ => None,
    };
    let problem = match (context.caches.pods.problem(&key), &starting) {
        (None, Some(pod)) => kubelet::problem(context, &key, pod).await,
        (problem, _) => problem,
    };
    let held = held::of(agent, progress.candidate.clone(), context);
    let observed = Observed {
        fault: match plan {
            Resolved::Fault(fault) => Some(fault.clone()),
            _ => applied.fault.clone(),
        },
        waits: match plan {
            Resolved::Unknown(_) if pin::source(agent) == SpecSource::Nothing => applied.left.clone(),
            Resolved::Unknown(what) => Some(format!("waiting to read {what}")),
            _ => applied.left.clone(),
        },
        warnings: match plan {
            Resolved::Plan(plan) => Some(warnings::of(agent, plan)),
            Resolved::Fault(_) => Some(Vec::new()),
            Resolved::Unknown(_) => None,
        },
        deployment,
        by_flagger,
        service: owned(ChildKind::Service).is_some(),
        taken: applied.outcomes.contains(&(ChildKind::Service, key.name.clone(), Outcome::Taken)),
        problem,
        in_line: controller.rollout.waits(&key),
        held,
        alerting: context.caches.alerting.of(&key),
        canary,
        exposed: routing::exposed(agent, &routing::gather(agent, context), &context.settings),
    };
    let status = status(agent, &observed, &context.settings.cluster_domain, Timestamp::now());
    let before = own(agent.status.clone().unwrap_or_default());
    let status = AgentStatus { run_hash: applied.run_hash.clone().or_else(|| before.run_hash.clone()), ..status };
    if status != before {
        context.write_status(agent, &status, MANAGER).await?;
        context.metrics.canary_turned(before.canary.as_ref(), status.canary.as_ref());
    }
    let doubt = tell(agent, &before, &status, applied, context).await;
    Ok([doubt, starting.map(|_| kubelet::LOOK_AGAIN)].into_iter().flatten().min())
}

/// All that a status is made from.
#[expect(clippy::struct_excessive_bools, reason = "each is true for reasons of its own")]
pub(super) struct Observed {
    pub fault: Option<ConditionFault>,
    pub waits: Option<String>,
    /// None while nobody can say; then what was said before stands.
    pub warnings: Option<Vec<Finding>>,
    pub deployment: Option<DeploymentState>,
    /// Whether that is Flagger's copy, whose pods serve.
    pub by_flagger: bool,
    /// Whether the Service is there and this Agent's own.
    pub service: bool,
    /// Whether a Service of the name is known to be somebody else's.
    pub taken: bool,
    pub problem: Option<Problem>,
    /// Its pods are replaced when it is its turn.
    pub in_line: bool,
    /// That a gate keeps the spec from its pods.
    pub held: Option<Held>,
    /// Its open alerts. None while nobody has looked; then what was said before stands.
    #[expect(clippy::option_option, reason = "nobody has looked, nothing was found, and what was found")]
    pub alerting: Option<Option<Finding>>,
    /// How its canary stands.
    pub canary: canary::CanaryReport,
    /// Whether the Gateway leads to it, where that is asked for.
    pub exposed: Option<Finding>,
}

pub(super) fn status(agent: &Agent, seen: &Observed, cluster_domain: &str, now: Timestamp) -> AgentStatus {
    let (name, namespace) = (agent.name_any(), agent.namespace().unwrap_or_default());
    let before = agent.status.clone().unwrap_or_default();
    let verdict = verdict::of(agent, seen);
    let endpoint = format!("http://{name}.{namespace}.svc.{cluster_domain}:{}", contract::PORT);
    let deployed = || (verdict.ready && verdict.phase == Phase::Running).then(|| Time(condition::whole_seconds(now)));
    let generation = agent.meta().generation;
    let mut conditions = condition::conditions(findings(&verdict, seen), &before.conditions, generation, now);
    let stand = |kinds: &[&str]| {
        before.conditions.iter().filter(|condition| kinds.contains(&&*condition.type_)).cloned().collect::<Vec<Condition>>()
    };
    conditions.extend(match &seen.warnings {
        Some(warnings) => condition::conditions(warnings.clone(), &before.conditions, generation, now),
        None => stand(&warnings::KINDS),
    });
    conditions.extend(match &seen.alerting {
        Some(alerting) => condition::conditions(alerting.iter().cloned().collect(), &before.conditions, generation, now),
        None => stand(&[condition::ALERTING]),
    });
    let of_canary = seen.canary.finding.iter().chain(&seen.exposed).cloned().collect();
    conditions.extend(condition::conditions(of_canary, &before.conditions, generation, now));
    AgentStatus {
        phase: Some(verdict.phase),
        replicas: seen.deployment.as_ref().map_or(0, |deployment| deployment.ready),
        // Nobody is to be sent to what only has the agent's name.
        endpoint: (!seen.taken).then_some(endpoint),
        id: Some(ids::agent(&namespace, &name)),
        selector: Some(pods(&name, seen.by_flagger)),
        observed_generation: generation,
        restarted_at: agent.restarted_at().map(str::to_owned),
        first_deployed_at: before.first_deployed_at.clone().or_else(deployed),
        conditions,
        run_hash: None,
        active_release: None,
        pending_release: None,
        pending_evaluation: None,
        quality_gate: None,
        pinned_content: None,
        canary: seen.canary.status.clone(),
    }
}

/// The pods that serve, for autoscalers.
fn pods(agent: &str, by_flagger: bool) -> String {
    let mut selected = selector(agent, Track::Stable);
    if by_flagger {
        selected.insert(labels::NAME.to_owned(), Track::primary(agent));
    }
    selected.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Ready has the words. The others have a reason, so that `kubectl describe` says everything once.
fn findings(verdict: &AgentVerdict, seen: &Observed) -> Vec<Finding> {
    const SEE_READY: &str = "see the condition Ready";
    let moves = |kind, motion, otherwise: &str| {
        if verdict.motion == motion {
            Finding::new(kind, true, &*verdict.reason, SEE_READY)
        } else {
            Finding::new(kind, false, otherwise, "")
        }
    };
    let available = seen.deployment.as_ref().is_some_and(|deployment| deployment.available > 0);
    let available = match (seen.taken, seen.service, available) {
        (true, ..) => Finding::new(AVAILABLE, false, "NameTaken", "the Service of this name is not this agent's"),
        (false, false, _) => Finding::new(AVAILABLE, false, "NoService", "the agent has no Service of its own"),
        (false, true, true) => Finding::new(AVAILABLE, true, DEPLOYMENT_READY, "the Service has at least one pod to send requests to"),
        (false, true, false) => Finding::new(AVAILABLE, false, "NoPods", "the Service has no pod to send requests to"),
    };
    let settled = match verdict.motion {
        Motion::Stalled => "Stalled",
        Motion::Settled | Motion::Reconciling => "Settled",
    };
    vec![
        Finding::new(READY, verdict.ready, &*verdict.reason, &*verdict.message),
        moves(RECONCILING, Motion::Reconciling, settled),
        moves(STALLED, Motion::Stalled, "NotStalled"),
        available,
    ]
}

/// What of a status is this controller's to say: the other parts are written by the release controller.
fn own(status: AgentStatus) -> AgentStatus {
    let mut conditions = condition::ours(status.conditions);
    conditions.retain(|condition| !condition::OF_RELEASES.contains(&&*condition.type_));
    AgentStatus {
        active_release: None,
        pending_release: None,
        pending_evaluation: None,
        quality_gate: None,
        pinned_content: None,
        conditions,
        ..status
    }
}

/// An Agent that cannot even be read says so itself, and nobody else suffers.
pub(crate) async fn malformed(context: &Context, key: &Key, invalid: &InvalidObject) -> Result<(), write::Error> {
    context.malformed::<Agent>(key, invalid, Phase::Failed, &[(READY, false), (STALLED, true)]).await
}

/// Tells what turned; of a warning that is held back for a moment, when it is due.
async fn tell(agent: &Agent, before: &AgentStatus, now: &AgentStatus, applied: &Applied, context: &Context) -> Option<Duration> {
    let about = agent.object_ref(&());
    for (outcome, reason, verb) in
        [(Outcome::Created, "Created", "Created"), (Outcome::Repaired, "Repaired", "Put back after a change by somebody else:")]
    {
        if let Some(names) = children::named(&applied.outcomes, &outcome) {
            let event = EventSpec { warning: false, reason: reason.to_owned(), action: "Apply", note: format!("{verb} {names}") };
            context.events.publish(&about, event).await;
        }
    }
    let of = |status: &AgentStatus, kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind).cloned();
    let ready = of(now, READY)?;
    let turned = of(before, READY).is_none_or(|old| (old.status, &old.reason) != (ready.status.clone(), &ready.reason));
    // On the way nothing is worth an Event but what keeps it from getting on.
    let moves = of(now, RECONCILING).is_some_and(|condition| condition.status == "True");
    let warning = ready.status != "True" || moves;
    // The release controller publishes the Events of a release that waits.
    let quiet = [PROGRESSING, condition::PENDING_EVALUATION].contains(&&*ready.reason);
    let told = turned && !quiet;
    let event = EventSpec { warning, reason: ready.reason.clone(), action: "Report", note: ready.message };
    let trouble = (warning && !quiet).then_some(event.clone());
    if let Some(event) = Some(event).filter(|_| told && trouble.is_none()) {
        context.events.publish(&about, event).await;
    }
    context.warn("Agent", &Key::of(agent), &about, trouble, told).await
}

#[cfg(test)]
mod tests {
    use slipway_api::CanaryStatus;

    use super::*;

    pub(super) fn agent(spec: &str) -> Agent {
        let yaml =
            format!("{{metadata: {{name: helper, namespace: team-a, generation: 4}}, spec: {{name: H, framework: custom, {spec}}}}}");
        serde_yaml::from_str(&yaml).unwrap()
    }

    pub(super) fn deployment(wanted: i32, updated: i32, available: i32, total: i32) -> DeploymentState {
        DeploymentState { wanted, updated, ready: available, available, total, current: true, stuck: None, refused: None }
    }

    pub(super) fn observed(deployment: DeploymentState) -> Observed {
        Observed {
            fault: None,
            waits: None,
            warnings: Some(Vec::new()),
            deployment: Some(deployment),
            by_flagger: false,
            service: true,
            taken: false,
            problem: None,
            in_line: false,
            held: None,
            alerting: None,
            canary: canary::CanaryReport::default(),
            exposed: None,
        }
    }

    fn told(agent: &Agent, seen: &Observed) -> AgentStatus {
        status(agent, seen, "cluster.local", Timestamp::UNIX_EPOCH)
    }

    fn of<'a>(status: &'a AgentStatus, kind: &str) -> &'a Condition {
        status.conditions.iter().find(|condition| condition.type_ == kind).unwrap()
    }

    #[test]
    fn what_is_said_of_an_agent_is_said_once() {
        let fault = Some(ConditionFault { reason: "ToolNotFound", message: "spec.tools[0]: there is no Tool nope".to_owned() });
        for (seen, expected) in [
            (observed(deployment(1, 1, 1, 1)), ["True", "False", "False", "True"]),
            (observed(deployment(2, 1, 2, 3)), ["True", "True", "False", "True"]),
            (observed(deployment(1, 1, 0, 1)), ["False", "True", "False", "False"]),
            (Observed { fault: fault.clone(), ..observed(deployment(1, 1, 1, 1)) }, ["False", "False", "True", "True"]),
        ] {
            let status = told(&agent("replicas: 1"), &seen);
            assert_eq!([READY, RECONCILING, STALLED, AVAILABLE].map(|kind| &*of(&status, kind).status), expected);
            let ready = of(&status, READY);
            let same = status.conditions.iter().filter(|condition| condition.message == ready.message).count();
            assert!(same == 1 && !ready.message.is_empty(), "{:#?}", status.conditions);
            let reasons =
                [RECONCILING, STALLED].map(|kind| of(&status, kind)).map(|it| (it.status == "True") == (it.reason == ready.reason));
            assert_eq!(reasons, [true, true], "who looks at one of them knows why: {:#?}", status.conditions);
        }
    }

    #[test]
    fn autoscalers_measure_the_pods_that_serve() {
        let selects = |by_flagger| {
            told(&agent("replicas: 1"), &Observed { by_flagger, ..observed(deployment(1, 1, 1, 1)) }).selector.unwrap_or_default()
        };
        assert!(selects(false).ends_with("app.kubernetes.io/name=helper"), "{}", selects(false));
        assert_eq!(selects(true), selects(false).replace("app.kubernetes.io/name=helper", "app.kubernetes.io/name=helper-primary"));
    }

    #[test]
    fn nobody_is_sent_to_a_service_that_is_not_the_agents() {
        let serving = || observed(deployment(1, 1, 1, 1));
        let status = told(&agent("replicas: 1"), &Observed { service: false, taken: true, ..serving() });
        assert_eq!(
            (&*of(&status, AVAILABLE).status, &*of(&status, AVAILABLE).reason, status.endpoint.as_deref()),
            ("False", "NameTaken", None)
        );
        let status = told(&agent("replicas: 1"), &Observed { service: false, ..serving() });
        assert_eq!((&*of(&status, AVAILABLE).status, &*of(&status, AVAILABLE).reason), ("False", "NoService"));
        assert_eq!(told(&agent("replicas: 1"), &serving()).endpoint.as_deref(), Some("http://helper.team-a.svc.cluster.local:8000"));
    }

    #[test]
    fn a_status_that_says_the_same_is_the_same() {
        let mut agent = agent("replicas: 1");
        let warned = Finding::new(condition::TOOLS_UNUSED, true, "StrategySimple", "spec.tools");
        let seen = Observed { warnings: Some(vec![warned]), ..observed(deployment(1, 1, 1, 1)) };
        let first = status(&agent, &seen, "cluster.local", Timestamp::from_second(100).unwrap());
        agent.status = Some(first.clone());
        assert_eq!(status(&agent, &seen, "cluster.local", Timestamp::from_second(200).unwrap()), first);
        assert_eq!(first.first_deployed_at, Some(Time(Timestamp::from_second(100).unwrap())));
        let unknown = Observed { warnings: None, ..observed(deployment(1, 1, 1, 1)) };
        assert_eq!(status(&agent, &unknown, "cluster.local", Timestamp::from_second(300).unwrap()), first, "what is not known now stands");
        let gone = status(&agent, &observed(deployment(1, 1, 1, 1)), "cluster.local", Timestamp::UNIX_EPOCH);
        assert!(gone.conditions.iter().all(|condition| condition.type_ != condition::TOOLS_UNUSED));
    }

    #[test]
    fn open_alerts_are_told_until_they_are_known_to_be_none() {
        let mut agent = agent("replicas: 1");
        let with = |alerting| Observed { alerting, ..observed(deployment(1, 1, 1, 1)) };
        let alert = Finding::new(condition::ALERTING, true, "LatencyHigh", "p95 is 3200 ms");
        agent.status = Some(told(&agent, &with(Some(Some(alert)))));
        let said = |alerting| told(&agent, &with(alerting)).conditions.into_iter().find(|found| found.type_ == condition::ALERTING);
        let first = said(None).expect("a new leader has not looked yet");
        assert_eq!((&*first.status, &*first.reason), ("True", "LatencyHigh"));
        assert_eq!(said(Some(None)), None);
    }

    #[test]
    fn how_a_canary_stands_is_said_while_there_is_one() {
        let mut agent = agent("replicas: 1");
        let finding = |kind| Some(Finding::new(kind, true, "Serving", "30 % of conversations"));
        let status = CanaryStatus { weight: 30, ..CanaryStatus::default() };
        let serving = canary::CanaryReport { status: Some(status.clone()), finding: finding(condition::CANARY_READY), next: None };
        let seen = Observed { canary: serving, exposed: finding(condition::EXPOSED), ..observed(deployment(1, 1, 1, 1)) };
        agent.status = Some(told(&agent, &seen));
        let said = own(agent.status.clone().unwrap());
        assert_eq!((said.canary.as_ref(), &*of(&said, condition::CANARY_READY).status), (Some(&status), "True"), "it is this controller's");
        assert_eq!(of(&said, condition::EXPOSED).status, "True");
        let ended = told(&agent, &observed(deployment(1, 1, 1, 1)));
        assert_eq!(ended.canary, None);
        let of_canary = [condition::CANARY_READY, condition::EXPOSED];
        assert!(ended.conditions.iter().all(|condition| !of_canary.contains(&&*condition.type_)), "{:#?}", ended.conditions);
    }

    #[test]
    fn what_is_said_of_releases_is_said_by_others() {
        let mut agent = agent("replicas: 1");
        let seen = observed(deployment(1, 1, 1, 1));
        let first = told(&agent, &seen);
        let released =
            condition::conditions(vec![Finding::new(condition::RELEASED, true, "Active", "v3")], &[], None, Timestamp::UNIX_EPOCH);
        let conditions = first.conditions.iter().cloned().chain(released).collect();
        agent.status = Some(AgentStatus { active_release: Some(3), pinned_content: Some("h".to_owned()), conditions, ..first.clone() });
        let next = told(&agent, &seen);
        assert_eq!((next.active_release, next.pinned_content.as_ref()), (None, None), "none of it is taken over");
        assert_eq!(next, own(agent.status.unwrap()), "and none of it is a reason to write");
    }

    #[test]
    fn who_stops_an_agent_by_annotation_is_told_so_and_a_restart_is_seen() {
        let mut agent = agent("replicas: 1");
        agent.annotations_mut().insert(labels::SUSPEND.to_owned(), "true".to_owned());
        agent.annotations_mut().insert(labels::RESTARTED_AT.to_owned(), "noon".to_owned());
        let status = told(&agent, &observed(deployment(0, 0, 0, 0)));
        assert_eq!(of(&status, READY).message, "the annotation agents.slipway.dev/suspend is true; no pods run");
        assert_eq!((status.phase, status.restarted_at.as_deref()), (Some(Phase::Terminated), Some("noon")));
    }
}
