//! Last step: say what is. One status write when something changed, and an Event when something turned.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::error_boundary::InvalidObject;
use kube::{Resource, ResourceExt};
use slipway_api::agent::{AgentStatus, Phase, Storage};
use slipway_api::condition::{self, AVAILABLE, Finding, READY, RECONCILING, STALLED, STORAGE_SHARED};
use slipway_api::{Agent, contract, ids, labels};

use super::MANAGER;
use super::apply::Applied;
use super::build::selector;
use super::resolve::{Fault, Resolved};
use crate::event::Happening;
use crate::queue::Key;
use crate::releases::stand;
use crate::world::child::DeploymentState;
use crate::world::pod::Problem;
use crate::world::{ChildKind, World};
use crate::write::{self, Outcome};

pub(super) async fn report(agent: &Agent, plan: &Resolved, applied: &Applied, world: &World) -> Result<(), write::Error> {
    let key = Key::of(agent);
    let ours = world.children(ChildKind::Deployment).get(&key).filter(|child| child.owner.as_deref() == agent.meta().uid.as_deref());
    let observed = Observed {
        fault: match plan {
            Resolved::Fault(fault) => Some(fault.clone()),
            _ => applied.fault.clone(),
        },
        waits: match plan {
            Resolved::Unknown(what) => Some(format!("waiting to read {what}")),
            _ => applied.left.clone(),
        },
        memory_only: matches!(plan, Resolved::Plan(plan) if plan.storage == Storage::Memory),
        deployment: ours.and_then(|child| child.deployment.clone()).map(|deployment| *deployment),
        problem: world.pods.problem(&key),
        in_line: world.rollout.waits(&key),
    };
    let status = status(agent, &observed, &world.settings.cluster_domain, Timestamp::now());
    let before = own(agent.status.clone().unwrap_or_default());
    if status != before {
        write::status::<Agent>(&world.client, &key, &status, MANAGER).await?;
    }
    tell(agent, &before, &status, applied, world).await;
    Ok(())
}

/// All that a status is made from.
pub(super) struct Observed {
    pub fault: Option<Fault>,
    pub waits: Option<String>,
    pub memory_only: bool,
    pub deployment: Option<DeploymentState>,
    pub problem: Option<Problem>,
    /// Its pods are replaced when it is its turn.
    pub in_line: bool,
}

/// Where the agent stands, in one word, a reason and a sentence.
struct Verdict {
    phase: Phase,
    ready: bool,
    stalled: bool,
    reason: String,
    message: String,
}

impl Verdict {
    fn new(phase: Phase, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { phase, ready: false, stalled: false, reason: reason.into(), message: message.into() }
    }

    fn ready(mut self) -> Self {
        self.ready = true;
        self
    }

    fn stalled(mut self) -> Self {
        self.stalled = true;
        self
    }
}

fn verdict(agent: &Agent, seen: &Observed) -> Verdict {
    let running = seen.deployment.as_ref().filter(|deployment| deployment.available > 0);
    if let Some(fault) = &seen.fault {
        let phase = if running.is_some() { Phase::Running } else { Phase::Failed };
        return Verdict::new(phase, fault.reason, &*fault.message).stalled();
    }
    if let Some(why) = &seen.waits {
        let phase = if running.is_some() { Phase::Running } else { Phase::Pending };
        return Verdict::new(phase, "Progressing", why);
    }
    let Some(deployment) = &seen.deployment else {
        return Verdict::new(Phase::Pending, "Progressing", "the Deployment is being made");
    };
    if let Some(why) = agent.stopped_by().or((agent.spec.replicas == 0).then_some("spec.replicas is 0")) {
        return if deployment.current && deployment.total == 0 {
            Verdict::new(Phase::Terminated, "Suspended", format!("{why}; no pods run")).ready()
        } else {
            Verdict::new(Phase::Pending, "Progressing", format!("{why}; {} pods are stopping", deployment.total))
        };
    }
    if deployment.settled() {
        let line = if seen.in_line { "; what the platform has changed they get when it is their turn (rollout.maxConcurrent)" } else { "" };
        let message = format!("{} of {} pods are ready{line}", deployment.ready, deployment.wanted);
        return Verdict::new(Phase::Running, "DeploymentReady", message).ready();
    }
    let phase = |fatal: bool| if fatal { Phase::Failed } else { Phase::Pending };
    if let Some(refused) = &deployment.refused {
        let reason = if refused.contains("exceeded quota") { "QuotaExceeded" } else { "FailedCreate" };
        return Verdict::new(Phase::Failed, reason, refused).stalled();
    }
    if let Some(problem) = &seen.problem {
        let verdict = Verdict::new(phase(problem.fatal), &*problem.reason, &*problem.message);
        return if problem.fatal { verdict.stalled() } else { verdict };
    }
    if let Some((reason, message)) = &deployment.stuck {
        return Verdict::new(Phase::Failed, reason, message).stalled();
    }
    let message = format!("{} of {} pods are updated, {} are available", deployment.updated, deployment.wanted, deployment.available);
    Verdict::new(Phase::Pending, "Progressing", message)
}

pub(super) fn status(agent: &Agent, seen: &Observed, cluster_domain: &str, now: Timestamp) -> AgentStatus {
    let (name, namespace) = (agent.name_any(), agent.namespace().unwrap_or_default());
    let before = agent.status.clone().unwrap_or_default();
    let verdict = verdict(agent, seen);
    let ready_pods = seen.deployment.as_ref().map_or(0, |deployment| deployment.ready);
    let available = seen.deployment.as_ref().is_some_and(|deployment| deployment.available > 0);
    let mut findings = vec![
        Finding::new(READY, verdict.ready, &*verdict.reason, &*verdict.message),
        Finding::new(RECONCILING, !verdict.ready && !verdict.stalled, &*verdict.reason, &*verdict.message),
        Finding::new(STALLED, verdict.stalled, &*verdict.reason, &*verdict.message),
        if available {
            Finding::new(AVAILABLE, true, "DeploymentReady", "the Service has at least one pod to send requests to")
        } else {
            Finding::new(AVAILABLE, false, &*verdict.reason, "the Service has no pod to send requests to")
        },
    ];
    if seen.memory_only && agent.spec.replicas > 1 {
        let message = "storage is memory, so each of the replicas remembers other conversations; use storage: postgresql or one replica";
        findings.push(Finding::new(STORAGE_SHARED, false, "MemoryPerReplica", message));
    }
    let deployed = || (verdict.ready && verdict.phase == Phase::Running).then(|| Time(condition::whole_seconds(now)));
    AgentStatus {
        phase: Some(verdict.phase),
        replicas: ready_pods,
        endpoint: Some(format!("http://{name}.{namespace}.svc.{cluster_domain}:{}", contract::PORT)),
        id: Some(ids::agent(&namespace, &name)),
        selector: Some(selector(&name, labels::STABLE).iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")),
        observed_generation: agent.meta().generation,
        restarted_at: agent.restarted_at().map(str::to_owned),
        first_deployed_at: before.first_deployed_at.clone().or_else(deployed),
        conditions: condition::conditions(findings, &before.conditions, agent.meta().generation, now),
        active_release: None,
        pinned_content: None,
    }
}

/// What of a status is this controller's to say: the other parts are written by whoever keeps the releases.
fn own(status: AgentStatus) -> AgentStatus {
    let mut conditions = condition::ours(status.conditions);
    conditions.retain(|condition| !stand::KINDS.contains(&&*condition.type_));
    AgentStatus { active_release: None, pinned_content: None, conditions, ..status }
}

/// An Agent that cannot even be read says so itself, and nobody else suffers.
pub(crate) async fn malformed(world: &World, key: &Key, invalid: &InvalidObject) -> Result<(), write::Error> {
    world.malformed::<Agent>(key, invalid, Phase::Failed, &[(READY, false), (STALLED, true)]).await
}

async fn tell(agent: &Agent, before: &AgentStatus, now: &AgentStatus, applied: &Applied, world: &World) {
    let about = agent.object_ref(&());
    for (outcome, reason, verb) in
        [(Outcome::Created, "Created", "Created"), (Outcome::Repaired, "Repaired", "Put back after a change by somebody else:")]
    {
        if let Some(names) = write::named(&applied.outcomes, &outcome) {
            let happening = Happening { warning: false, reason: reason.to_owned(), action: "Apply", note: format!("{verb} {names}") };
            world.events.publish(&about, happening).await;
        }
    }
    let ready = |status: &AgentStatus| {
        status.conditions.iter().find(|condition| condition.type_ == READY).map(|c| (c.status.clone(), c.reason.clone(), c.message.clone()))
    };
    let (Some((status, reason, message)), old) = (ready(now), ready(before)) else { return };
    let turned = old.is_none_or(|(old_status, old_reason, _)| old_status != status || old_reason != reason);
    if turned && reason != "Progressing" {
        let warning = status != "True";
        world.events.publish(&about, Happening { warning, reason, action: "Report", note: message }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(spec: &str) -> Agent {
        let yaml =
            format!("{{metadata: {{name: helper, namespace: team-a, generation: 4}}, spec: {{name: H, framework: custom, {spec}}}}}");
        serde_yaml::from_str(&yaml).unwrap()
    }

    fn deployment(wanted: i32, updated: i32, available: i32, total: i32) -> DeploymentState {
        DeploymentState { wanted, updated, ready: available, available, total, current: true, stuck: None, refused: None }
    }

    fn observed(deployment: DeploymentState) -> Observed {
        Observed { fault: None, waits: None, memory_only: true, deployment: Some(deployment), problem: None, in_line: false }
    }

    fn problem(reason: &str, fatal: bool) -> Problem {
        Problem { reason: reason.to_owned(), message: String::new(), fatal }
    }

    /// Phase, Ready, Stalled and the reason.
    fn summary(agent: &Agent, seen: &Observed) -> (Phase, String, String, String) {
        let status = status(agent, seen, "cluster.local", Timestamp::UNIX_EPOCH);
        let of = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
        (status.phase.unwrap(), of(READY).status.clone(), of(STALLED).status.clone(), of(READY).reason.clone())
    }

    #[test]
    fn what_is_said_of_an_agent() {
        let fault = Fault { reason: "ToolNotFound", message: "spec.tools[0]".to_owned() };
        let quota = DeploymentState { refused: Some("exceeded quota: slipway".to_owned()), ..deployment(1, 0, 0, 0) };
        let stuck = DeploymentState { stuck: Some(("ProgressDeadlineExceeded".to_owned(), String::new())), ..deployment(1, 1, 0, 1) };
        let stale = DeploymentState { current: false, ..deployment(1, 1, 1, 1) };
        let cases = [
            ("replicas: 1", observed(deployment(1, 1, 1, 1)), (Phase::Running, "True", "False", "DeploymentReady")),
            ("replicas: 1", observed(stale), (Phase::Pending, "False", "False", "Progressing")),
            ("replicas: 2", observed(deployment(2, 1, 2, 3)), (Phase::Pending, "False", "False", "Progressing")),
            (
                "replicas: 1",
                Observed { deployment: None, ..observed(deployment(0, 0, 0, 0)) },
                (Phase::Pending, "False", "False", "Progressing"),
            ),
            ("suspend: true", observed(deployment(0, 0, 0, 0)), (Phase::Terminated, "True", "False", "Suspended")),
            ("suspend: true", observed(deployment(0, 0, 1, 1)), (Phase::Pending, "False", "False", "Progressing")),
            (
                "replicas: 1",
                Observed { fault: Some(fault.clone()), ..observed(deployment(1, 1, 1, 1)) },
                (Phase::Running, "False", "True", "ToolNotFound"),
            ),
            (
                "replicas: 1",
                Observed { fault: Some(fault), deployment: None, ..observed(deployment(0, 0, 0, 0)) },
                (Phase::Failed, "False", "True", "ToolNotFound"),
            ),
            ("replicas: 1", observed(quota), (Phase::Failed, "False", "True", "QuotaExceeded")),
            ("replicas: 1", observed(stuck), (Phase::Failed, "False", "True", "ProgressDeadlineExceeded")),
            (
                "replicas: 1",
                Observed { problem: Some(problem("ImagePullBackOff", true)), ..observed(deployment(1, 1, 0, 1)) },
                (Phase::Failed, "False", "True", "ImagePullBackOff"),
            ),
            (
                "replicas: 1",
                Observed { problem: Some(problem("Unschedulable", false)), ..observed(deployment(1, 1, 0, 1)) },
                (Phase::Pending, "False", "False", "Unschedulable"),
            ),
        ];
        for (spec, seen, (phase, ready, stalled, reason)) in cases {
            assert_eq!(summary(&agent(spec), &seen), (phase, ready.to_owned(), stalled.to_owned(), reason.to_owned()), "{spec}");
        }
    }

    #[test]
    fn a_status_that_says_the_same_is_the_same() {
        let mut agent = agent("replicas: 1");
        let seen = observed(deployment(1, 1, 1, 1));
        let first = status(&agent, &seen, "cluster.local", Timestamp::from_second(100).unwrap());
        agent.status = Some(first.clone());
        assert_eq!(status(&agent, &seen, "cluster.local", Timestamp::from_second(200).unwrap()), first);
        assert_eq!(first.first_deployed_at, Some(Time(Timestamp::from_second(100).unwrap())));
    }

    #[test]
    fn what_is_said_of_releases_is_said_by_others() {
        let mut agent = agent("replicas: 1");
        let seen = observed(deployment(1, 1, 1, 1));
        let first = status(&agent, &seen, "cluster.local", Timestamp::UNIX_EPOCH);
        let released =
            condition::conditions(vec![Finding::new(condition::RELEASED, true, "Active", "v3")], &[], None, Timestamp::UNIX_EPOCH);
        let conditions = first.conditions.iter().cloned().chain(released).collect();
        agent.status = Some(AgentStatus { active_release: Some(3), pinned_content: Some("h".to_owned()), conditions, ..first.clone() });
        let next = status(&agent, &seen, "cluster.local", Timestamp::UNIX_EPOCH);
        assert_eq!((next.active_release, next.pinned_content.as_ref()), (None, None), "none of it is taken over");
        assert_eq!(next, own(agent.status.unwrap()), "and none of it is a reason to write");
    }

    #[test]
    fn who_stops_an_agent_by_annotation_is_told_so_and_a_restart_is_seen() {
        let mut agent = agent("replicas: 1");
        agent.annotations_mut().insert(labels::SUSPEND.to_owned(), "true".to_owned());
        agent.annotations_mut().insert(labels::RESTARTED_AT.to_owned(), "noon".to_owned());
        let status = status(&agent, &observed(deployment(0, 0, 0, 0)), "cluster.local", Timestamp::UNIX_EPOCH);
        let ready = status.conditions.iter().find(|condition| condition.type_ == READY).unwrap();
        assert_eq!(ready.message, "the annotation agents.slipway.dev/suspend is true; no pods run");
        assert_eq!((status.phase, status.restarted_at.as_deref()), (Some(Phase::Terminated), Some("noon")));
    }

    #[test]
    fn who_waits_in_a_rollout_is_ready_and_says_what_for() {
        let seen = Observed { in_line: true, ..observed(deployment(1, 1, 1, 1)) };
        let status = status(&agent("replicas: 1"), &seen, "cluster.local", Timestamp::UNIX_EPOCH);
        let ready = status.conditions.iter().find(|condition| condition.type_ == READY).unwrap();
        assert!(ready.status == "True" && ready.message.ends_with("(rollout.maxConcurrent)"), "{}", ready.message);
    }

    #[test]
    fn several_replicas_with_memory_carry_a_warning() {
        let warned = |spec: &str| {
            let status = status(&agent(spec), &observed(deployment(1, 1, 1, 1)), "cluster.local", Timestamp::UNIX_EPOCH);
            status.conditions.iter().any(|condition| condition.type_ == STORAGE_SHARED)
        };
        assert!(warned("replicas: 2") && !warned("replicas: 1"));
    }
}
