//! The verdict on an agent: one word, a reason and a sentence. Pure: from the Agent and what was observed of it.
//!
//! `Ready` answers whether the agent serves, `Motion` whether its pods are what the spec says: on the way there (`Reconciling`),
//! or not getting there by themselves (`Stalled`). Stalled agents are not ready even while old pods serve, as kstatus has it;
//! `Available` and the phase tell that these do.

use slipway_api::Agent;
use slipway_api::agent::Phase;
use slipway_api::condition::{PENDING_EVALUATION, RELEASE_REJECTED};

use super::Observed;
use super::held::Held;
use crate::caches::child::DeploymentState;

pub(super) const PROGRESSING: &str = "Progressing";
const SUSPENDED: &str = "Suspended";
pub(super) const DEPLOYMENT_READY: &str = "DeploymentReady";

/// Whether the pods are what the spec says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Motion {
    Settled,
    Reconciling,
    Stalled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentVerdict {
    pub phase: Phase,
    pub ready: bool,
    pub motion: Motion,
    pub reason: String,
    pub message: String,
}

impl AgentVerdict {
    fn new(phase: Phase, motion: Motion, reason: impl Into<String>, message: impl Into<String>) -> Self {
        let ready = motion == Motion::Settled;
        Self { phase, ready, motion, reason: reason.into(), message: message.into() }
    }
}

pub(super) fn of(agent: &Agent, seen: &Observed) -> AgentVerdict {
    let serves = seen.deployment.as_ref().is_some_and(|deployment| deployment.available > 0);
    let phase = |otherwise| if serves { Phase::Running } else { otherwise };
    let stalled = |reason: &str, message: &str| AgentVerdict::new(phase(Phase::Failed), Motion::Stalled, reason, message);
    // While an old pod serves, an agent on its way is ready.
    let reconciling = |reason: &str, message: &str| AgentVerdict {
        ready: serves,
        ..AgentVerdict::new(phase(Phase::Pending), Motion::Reconciling, reason, message)
    };
    if let Some(fault) = &seen.fault {
        return stalled(fault.reason, &fault.message);
    }
    if let Some(why) = &seen.waits {
        return reconciling(PROGRESSING, why);
    }
    // What ails the pods that should serve comes first.
    let should_serve = seen.deployment.as_ref().is_some_and(|deployment| deployment.wanted > 0);
    if let Some(held) = seen.held.as_ref().filter(|_| (serves || !should_serve) && agent.stopped_by().is_none()) {
        return match held {
            Held::Waits(why) => reconciling(PENDING_EVALUATION, why),
            Held::Rejected(why) => stalled(RELEASE_REJECTED, why),
        };
    }
    let Some(deployment) = &seen.deployment else {
        // What a gate has held from the first has nothing to stop.
        return match agent.stopped_by().filter(|_| seen.held.is_some()) {
            Some(why) => AgentVerdict::new(Phase::Terminated, Motion::Settled, SUSPENDED, format!("{why}; no pods run")),
            None => reconciling(PROGRESSING, "the Deployment is being made"),
        };
    };
    if let Some(why) = agent.stopped_by().or((agent.spec.replicas == 0).then_some("spec.replicas is 0")) {
        return if deployment.current && deployment.total == 0 {
            AgentVerdict::new(Phase::Terminated, Motion::Settled, SUSPENDED, format!("{why}; no pods run"))
        } else {
            let message = format!("{why}; {} pods are stopping", deployment.total);
            AgentVerdict { ready: false, ..reconciling(PROGRESSING, &message) }
        };
    }
    if deployment.settled() {
        let line = if seen.in_line { "; what the platform has changed they get when it is their turn (rollout.maxConcurrent)" } else { "" };
        let message = format!("{} of {} pods are ready{line}", deployment.ready, deployment.wanted);
        return AgentVerdict::new(Phase::Running, Motion::Settled, DEPLOYMENT_READY, message);
    }
    if let Some((reason, message)) = deployment.refused.as_deref().and_then(refusal) {
        return if serves && deployment.stuck.is_none() { reconciling(reason, message) } else { stalled(reason, message) };
    }
    if let Some(problem) = &seen.problem {
        return if problem.fatal { stalled(&problem.reason, &problem.message) } else { reconciling(&problem.reason, &problem.message) };
    }
    if let Some((reason, message)) = &deployment.stuck {
        return stalled(reason, message);
    }
    reconciling(PROGRESSING, &progress(deployment))
}

fn progress(deployment: &DeploymentState) -> String {
    format!("{} of {} pods are updated, {} are available", deployment.updated, deployment.wanted, deployment.available)
}

/// Why the API server takes no pods. None for what comes with a new namespace and goes by itself.
fn refusal(message: &str) -> Option<(&'static str, &str)> {
    if message.contains("error looking up service account") {
        return None;
    }
    Some((if message.contains("exceeded quota") { "QuotaExceeded" } else { "FailedCreate" }, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::report::tests::{agent, deployment, observed};
    use crate::agent::resolve::ConditionFault;
    use crate::caches::pods::Problem;

    fn problem(reason: &str, fatal: bool) -> Problem {
        Problem { reason: reason.to_owned(), message: String::new(), fatal }
    }

    #[test]
    fn an_agent_serves_or_not_and_moves_or_not() {
        use Motion::{Reconciling, Settled, Stalled};
        use Phase::{Failed, Pending, Running, Terminated};
        let fault = || Some(ConditionFault { reason: "ToolNotFound", message: "spec.tools[0]".to_owned() });
        let refused = |message: &str, state: DeploymentState| DeploymentState { refused: Some(message.to_owned()), ..state };
        let stuck = |state| DeploymentState { stuck: Some(("ProgressDeadlineExceeded".to_owned(), String::new())), ..state };
        let stale = |state| DeploymentState { current: false, ..state };
        let quota = "pods \"a\" is forbidden: exceeded quota: slipway";
        let account = "pods \"a\" is forbidden: error looking up service account team-a/default: serviceaccount \"default\" not found";
        // wanted, updated, available, total
        let (whole, none, rolling, scaling) =
            (deployment(1, 1, 1, 1), deployment(1, 1, 0, 1), deployment(2, 1, 2, 3), deployment(3, 3, 1, 3));
        let with = |fault, problem, deployment| Observed { fault, problem, ..observed(deployment) };
        let absent = || Observed { deployment: None, ..observed(none.clone()) };
        let waits = |deployment| Observed { waits: Some("waiting to read the Secrets".to_owned()), ..observed(deployment) };
        for (what, spec, seen, (phase, ready, motion, reason)) in vec![
            ("all pods are as wanted", "replicas: 1", observed(whole.clone()), (Running, true, Settled, "DeploymentReady")),
            ("a first pod is on its way", "replicas: 1", observed(none.clone()), (Pending, false, Reconciling, "Progressing")),
            ("nothing is made yet", "replicas: 1", absent(), (Pending, false, Reconciling, "Progressing")),
            ("a change is not heard of", "replicas: 1", observed(stale(whole.clone())), (Running, true, Reconciling, "Progressing")),
            ("pods are replaced", "replicas: 2", observed(rolling.clone()), (Running, true, Reconciling, "Progressing")),
            ("pods are added", "replicas: 3", observed(scaling.clone()), (Running, true, Reconciling, "Progressing")),
            ("something is unknown", "replicas: 1", waits(whole.clone()), (Running, true, Reconciling, "Progressing")),
            ("all is unknown", "replicas: 1", waits(none.clone()), (Pending, false, Reconciling, "Progressing")),
            ("stopped", "suspend: true", observed(deployment(0, 0, 0, 0)), (Terminated, true, Settled, "Suspended")),
            ("no replicas", "replicas: 0", observed(deployment(0, 0, 0, 0)), (Terminated, true, Settled, "Suspended")),
            ("stopping", "suspend: true", observed(deployment(0, 0, 0, 1)), (Pending, false, Reconciling, "Progressing")),
            (
                "stopping, and answering still",
                "suspend: true",
                observed(deployment(0, 0, 1, 1)),
                (Running, false, Reconciling, "Progressing"),
            ),
            ("at fault, serving", "replicas: 1", with(fault(), None, whole.clone()), (Running, false, Stalled, "ToolNotFound")),
            ("at fault", "replicas: 1", Observed { fault: fault(), ..absent() }, (Failed, false, Stalled, "ToolNotFound")),
            ("no quota", "replicas: 1", observed(refused(quota, none.clone())), (Failed, false, Stalled, "QuotaExceeded")),
            (
                "no quota for a surge",
                "replicas: 2",
                observed(refused(quota, rolling.clone())),
                (Running, true, Reconciling, "QuotaExceeded"),
            ),
            ("no quota for more", "replicas: 3", observed(refused(quota, scaling.clone())), (Running, true, Reconciling, "QuotaExceeded")),
            (
                "no quota for long",
                "replicas: 2",
                observed(stuck(refused(quota, rolling.clone()))),
                (Running, false, Stalled, "QuotaExceeded"),
            ),
            ("not admitted", "replicas: 1", observed(refused("denied by policy", none.clone())), (Failed, false, Stalled, "FailedCreate")),
            ("a young namespace", "replicas: 1", observed(refused(account, none.clone())), (Pending, false, Reconciling, "Progressing")),
            ("given up", "replicas: 1", observed(stuck(none.clone())), (Failed, false, Stalled, "ProgressDeadlineExceeded")),
            (
                "no image",
                "replicas: 1",
                with(None, Some(problem("ImagePullBackOff", true)), none.clone()),
                (Failed, false, Stalled, "ImagePullBackOff"),
            ),
            (
                "no image for a change",
                "replicas: 2",
                with(None, Some(problem("ImagePullBackOff", true)), rolling.clone()),
                (Running, false, Stalled, "ImagePullBackOff"),
            ),
            (
                "no node",
                "replicas: 1",
                with(None, Some(problem("Unschedulable", false)), none.clone()),
                (Pending, false, Reconciling, "Unschedulable"),
            ),
            (
                "no node for more",
                "replicas: 3",
                with(None, Some(problem("Unschedulable", false)), scaling.clone()),
                (Running, true, Reconciling, "Unschedulable"),
            ),
            (
                "a pod that was in trouble",
                "replicas: 1",
                with(None, Some(problem("CrashLoopBackOff", true)), whole.clone()),
                (Running, true, Settled, "DeploymentReady"),
            ),
        ] {
            let found = of(&agent(spec), &seen);
            assert_eq!((found.phase, found.ready, found.motion, &*found.reason), (phase, ready, motion, reason), "{what}");
        }
    }

    #[test]
    fn what_a_gate_holds_is_told_unless_pods_that_should_serve_do_not() {
        use Motion::{Reconciling, Settled, Stalled};
        let waits = || Some(Held::Waits("v2 waits".to_owned()));
        let rejected = || Some(Held::Rejected("v2 was rejected".to_owned()));
        let (serving, starting, none) = (deployment(1, 1, 1, 1), deployment(1, 1, 0, 1), deployment(0, 0, 0, 0));
        let with = |held, deployment| Observed { deployment, held, ..observed(none.clone()) };
        for (what, spec, seen, (ready, motion, reason)) in [
            ("waits, serving", "replicas: 1", with(waits(), Some(serving.clone())), (true, Reconciling, PENDING_EVALUATION)),
            ("rejected, serving", "replicas: 1", with(rejected(), Some(serving)), (false, Stalled, RELEASE_REJECTED)),
            ("waits, a first one", "replicas: 1", with(waits(), None), (false, Reconciling, PENDING_EVALUATION)),
            ("rejected, a first one", "replicas: 1", with(rejected(), None), (false, Stalled, RELEASE_REJECTED)),
            ("waits, stopped before", "replicas: 1", with(waits(), Some(none.clone())), (false, Reconciling, PENDING_EVALUATION)),
            ("waits, pods are on their way", "replicas: 1", with(waits(), Some(starting)), (false, Reconciling, PROGRESSING)),
            ("waits, stopped", "suspend: true", with(waits(), Some(none.clone())), (true, Settled, SUSPENDED)),
            ("waits, stopped from the first", "suspend: true", with(waits(), None), (true, Settled, SUSPENDED)),
        ] {
            let found = of(&agent(spec), &seen);
            assert_eq!((found.ready, found.motion, &*found.reason), (ready, motion, reason), "{what}");
        }
    }

    #[test]
    fn who_waits_in_a_rollout_is_ready_and_says_what_for() {
        let found = of(&agent("replicas: 1"), &Observed { in_line: true, ..observed(deployment(1, 1, 1, 1)) });
        assert!(found.ready && found.message.ends_with("(rollout.maxConcurrent)"), "{}", found.message);
    }
}
