//! The workload that a canary should have, by the spec and by its last status.

use slipway_api::canary::CanaryPhase;
use slipway_api::{Agent, AgentSpec, Canary, CanaryStatus};

use super::{spec_hash, steps};

/// What of a canary there should be.
pub(in crate::agent) enum Wants {
    /// A workload with this spec.
    Run(Box<Agent>),
    /// What there is, as it is.
    Keep,
    Nothing,
}

pub(in crate::agent) fn wants(agent: &Agent) -> Wants {
    let before = agent.canary_status();
    let Some(canary) = agent.canary().filter(|_| !agent.is_flaggers()) else {
        // It has yet to be told how it ended, or users have yet to be taken away from it.
        return if before.is_some() { Wants::Keep } else { Wants::Nothing };
    };
    match before {
        Some(before) if matches!(before.phase, CanaryPhase::Promoting | CanaryPhase::Draining) => Wants::Keep,
        Some(before) if before.phase == CanaryPhase::RolledBack && before.spec_hash == spec_hash(canary) => {
            if before.run_hash.is_some() {
                Wants::Keep
            } else {
                Wants::Nothing
            }
        }
        _ => Wants::Run(Box::new(effective(agent, canary, before))),
    }
}

/// The Agent as its canary runs it, with pods for the weight that is in force and for the one that is wanted. What stops the agent
/// stops it too, and what the agent remembers is shared.
fn effective(agent: &Agent, canary: &Canary, before: Option<&CanaryStatus>) -> Agent {
    let in_force = before.map_or(0, |before| before.weight);
    let highest = steps::wanted(agent, canary, before).max(in_force);
    let replicas = match agent.spec.replicas {
        0 => 0,
        replicas => canary.replicas.unwrap_or_else(|| share(replicas, highest)),
    };
    Agent { spec: AgentSpec { replicas, ..canary.over(&agent.spec) }, ..agent.clone() }
}

/// Rounded up, and never none.
fn share(replicas: i32, weight: i32) -> i32 {
    let percent = replicas.saturating_mul(weight);
    (percent / 100 + i32::from(percent % 100 > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use slipway_api::AgentStatus;

    use super::*;
    use crate::agent::pin::tests::agent_of;

    fn told(spec: &str, status: Option<CanaryStatus>, flagger: bool) -> Option<(Option<String>, i32)> {
        let mut agent = agent_of(spec);
        agent.status = Some(AgentStatus { canary: status, ..AgentStatus::default() });
        if flagger {
            agent.metadata.annotations = Some([(slipway_api::labels::FLAGGER.to_owned(), "true".to_owned())].into());
        }
        match wants(&agent) {
            Wants::Run(agent) => {
                assert_eq!(agent.spec.canary, None);
                Some((agent.spec.system_prompt, agent.spec.replicas))
            }
            Wants::Keep => Some((Some("as it is".to_owned()), -1)),
            Wants::Nothing => None,
        }
    }

    #[test]
    fn a_canary_runs_until_it_has_ended() {
        use CanaryPhase::{Draining, Progressing, Promoting, RolledBack, Serving};
        let asks = "systemPrompt: old, canary: {enabled: true, weight: 10, systemPrompt: new}";
        let off = "systemPrompt: old, canary: {enabled: false, weight: 10, systemPrompt: new}";
        let hash = spec_hash(&agent_of(asks).spec.canary.unwrap());
        let stood = |phase, run_hash: Option<&str>| {
            Some(CanaryStatus { phase, spec_hash: hash.clone(), run_hash: run_hash.map(str::to_owned), ..CanaryStatus::default() })
        };
        let runs = Some((Some("new".to_owned()), 1));
        let stays = Some((Some("as it is".to_owned()), -1));
        let other = "canary: {enabled: true, weight: 10, systemPrompt: newer}";
        let other_weight = "canary: {enabled: true, weight: 20, systemPrompt: new, replicas: 3}";
        for (what, spec, status, flagger, expected) in [
            ("it is asked for", asks, None, false, runs.clone()),
            ("it serves", asks, stood(Serving, None), false, runs.clone()),
            ("none is asked for", "replicas: 1", None, false, None),
            ("one is not enabled", off, None, false, None),
            ("its end is not told yet", "replicas: 1", stood(Serving, None), false, stays.clone()),
            ("the same by enabled", off, stood(Progressing, None), false, stays.clone()),
            ("one before is being promoted", asks, stood(Promoting, None), false, stays.clone()),
            ("one before is drained", asks, stood(Draining, None), false, stays.clone()),
            ("rolled back, with pods yet", asks, stood(RolledBack, Some("h")), false, stays.clone()),
            ("rolled back", asks, stood(RolledBack, None), false, None),
            ("rolled back, another weight", other_weight, stood(RolledBack, None), false, None),
            ("another after one that was rolled back", other, stood(RolledBack, None), false, Some((Some("newer".to_owned()), 1))),
            ("Flagger's", asks, None, true, None),
            ("Flagger's now", asks, stood(Serving, None), true, stays),
        ] {
            assert_eq!(told(spec, status, flagger), expected, "{what}");
        }
    }

    #[test]
    fn a_canary_has_its_share_of_the_pods_or_what_it_says() {
        let stood = |weight, desired_weight| CanaryStatus { weight, desired_weight, ..CanaryStatus::default() };
        for (replicas, canary, status, expected) in [
            (1, "weight: 1", None, 1),
            (10, "weight: 1", None, 1),
            (10, "weight: 25", None, 3),
            (4, "weight: 100", None, 4),
            (0, "weight: 50", None, 0),
            (0, "weight: 50, replicas: 2", None, 0),
            (2, "weight: 50, replicas: 5", None, 5),
            (2, "weight: 50, replicas: 0", None, 0),
            (10, "weight: 10, analysis: {steps: [50]}", Some(stood(10, 10)), 1),
            (10, "weight: 10, analysis: {steps: [50]}", Some(stood(10, 50)), 5),
            (10, "weight: 10", Some(stood(80, 80)), 8),
        ] {
            let spec = format!("systemPrompt: p, replicas: {replicas}, canary: {{enabled: true, {canary}}}");
            assert_eq!(told(&spec, status, false).unwrap().1, expected, "{spec}");
        }
    }
}
