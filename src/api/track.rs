//! The tracks of an agent: workloads of one Agent beside each other, each with its own Deployment, Service and ConfigMap.
//! Names, labels and selectors of a workload follow from its track.

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
    }
}
