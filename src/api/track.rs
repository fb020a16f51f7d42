//! The tracks of an agent: workloads of one Agent beside each other, each with its own Deployment, Service and ConfigMap.
//! Names, labels and selectors of a workload follow from its track, and so does who has a conversation.

use sha2::{Digest, Sha256};

/// Which of an agent's workloads something belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// Serves users. Its objects have the agent's name.
    Stable,
    /// Runs a release while that is evaluated, and serves nobody.
    Candidate,
    /// Serves a share of the users beside the stable track.
    Canary,
}

impl Track {
    pub const ALL: [Self; 3] = [Self::Stable, Self::Candidate, Self::Canary];

    /// The value of the label [`crate::labels::TRACK`] and of [`crate::contract::TRACK`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Candidate => "candidate",
            Self::Canary => "canary",
        }
    }

    /// The track of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|track| track.as_str() == name)
    }

    /// The name of an agent's workload on this track: of its Deployment, its Service and its ServiceAccount, and the value of the
    /// label [`crate::labels::NAME`].
    pub fn workload(self, agent: &str) -> String {
        match self {
            Self::Stable => agent.to_owned(),
            Self::Candidate | Self::Canary => format!("{agent}-{}", self.as_str()),
        }
    }

    /// The agent and the track of a workload of that name. No agent's name ends like the name of another track's workload.
    pub fn of_workload(name: &str) -> (&str, Self) {
        let agent = |track: Self| name.strip_suffix(track.as_str())?.strip_suffix('-');
        let other = [Self::Candidate, Self::Canary].into_iter().find_map(|track| Some((agent(track)?, track)));
        other.unwrap_or((name, Self::Stable))
    }

    /// The track that has a conversation while `weight` of a hundred are the canary's. Only conversations that a change of the weight
    /// passes change their track. The hash is a cryptographic one, so that ids of one agent's conversations tell nothing of another's.
    pub fn of_conversation(uid: &str, conversation: &str, weight: u8) -> Self {
        let digest = Sha256::new().chain_update(uid).chain_update([0_u8]).chain_update(conversation).finalize();
        let head = digest.iter().take(8).fold(0_u64, |bits, byte| (bits << 8) | u64::from(*byte));
        let percentile = (u128::from(head) * 100) >> 64;
        if percentile < u128::from(weight) { Self::Canary } else { Self::Stable }
    }

    /// The Service with the stable track's pods alone, which there is beside a canary.
    pub fn primary(agent: &str) -> String {
        format!("{agent}-primary")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{AGENT_NAME_MAX, AgentName, RESERVED_ENDINGS};

    #[test]
    fn a_workload_is_told_by_its_name_and_no_agent_has_that_name() {
        let longest = "a".repeat(AGENT_NAME_MAX);
        for agent in ["helper", "candidate", "canary", "helper-stable", &longest] {
            assert!(AgentName::new(agent).is_ok(), "{agent}");
            for track in Track::ALL {
                let workload = track.workload(agent);
                assert_eq!(Track::of_workload(&workload), (agent, track));
                assert!(workload.len() <= 63, "{workload} is the name of a Service and the value of a label");
                assert_eq!(AgentName::new(workload).is_ok(), track == Track::Stable);
                assert_eq!(Track::named(track.as_str()), Some(track));
            }
        }
        assert_eq!(
            (Track::Stable.workload("helper").as_str(), Track::Candidate.workload("helper").as_str()),
            ("helper", "helper-candidate")
        );
        assert!(Track::ALL.iter().skip(1).all(|track| RESERVED_ENDINGS.contains(&&*format!("-{}", track.as_str()))));
        assert_eq!(Track::named("primary"), None);
        assert!(AgentName::new(Track::primary("helper")).is_err(), "no agent has the name of the stable track's own Service");
    }

    #[test]
    fn conversations_are_shared_out_by_weight_and_move_only_with_it() {
        const MANY: u32 = 10_000;
        let ids: Vec<String> = (0..MANY).map(|at| format!("conv_{at}")).collect();
        let canaries = |uid: &str, weight: u8| -> Vec<bool> {
            ids.iter().map(|id| Track::of_conversation(uid, id, weight) == Track::Canary).collect()
        };
        let count = |chosen: &[bool]| u32::try_from(chosen.iter().filter(|is_canary| **is_canary).count()).unwrap();
        assert_eq!((count(&canaries("u", 0)), count(&canaries("u", 100))), (0, MANY));
        let mut before = canaries("u", 0);
        for weight in [1, 5, 25, 50, 99] {
            let now = canaries("u", weight);
            let share = f64::from(weight) / 100.0;
            let (expected, sigma) = (f64::from(MANY) * share, (f64::from(MANY) * share * (1.0 - share)).sqrt());
            assert!((f64::from(count(&now)) - expected).abs() <= 4.0 * sigma, "{weight} %: {}", count(&now));
            assert!(before.iter().zip(&now).all(|(before, now)| now >= before), "{weight} %: a higher weight takes none away");
            before = now;
        }
        let (one, other) = (canaries("u", 50), canaries("v", 50));
        let alike = one.iter().zip(&other).filter(|(one, other)| one == other).count();
        assert!((4_800..=5_200).contains(&alike), "two agents' choices have nothing to do with each other: {alike}");
    }
}
