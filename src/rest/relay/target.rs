//! The agent that a call is relayed to: found in the list cache, without a request to the API server. An agent without pods
//! is not called.

use std::fmt;
use std::sync::Arc;

use slipway_cluster::Key;
use slipway_http::Error;

use crate::agents::{AgentState, Status};
use crate::call::Call;
use crate::list_cache::ListEntry;
use crate::{agents, cluster_error, page};

/// The called agent.
#[derive(Debug)]
pub(crate) struct Target {
    pub key: Key,
    pub item: Arc<ListEntry<AgentState>>,
}

/// The agent of the path. One that the cache lacks does not run.
pub(crate) async fn target<B>(call: &Call<B>) -> Result<Target, Error> {
    page::wait_for_caller_version(call, &call.context.caches.agents).await?;
    match agents::cached(call) {
        Some((key, item)) => Ok(Target { key, item }),
        None if !call.context.caches.is_ready() => Err(cluster_error::unavailable()),
        None => Err(Error::not_found(format!("there is no agent {}", call.path.part("id")))),
    }
}

impl Target {
    /// Why the agent has no pods to call, if it has none.
    pub(crate) fn no_pods_reason(&self) -> Option<String> {
        let name = &self.key.name;
        let AgentState { status, replicas, .. } = &self.item.data;
        match (status, replicas) {
            (Status::Created, _) => Some(format!("agent {name} has never been deployed; POST /api/v1/agents/{name}/deploy starts it")),
            (Status::Stopped, _) => Some(format!("agent {name} is stopped; POST /api/v1/agents/{name}/deploy starts it again")),
            (Status::Archived, _) => {
                Some(format!("agent {name} is archived; PATCH /api/v1/agents/{name}/status with active takes it back"))
            }
            (_, 0) => Some(format!("agent {name} has no pods, because its replicas are 0")),
            _ => None,
        }
    }
}

impl fmt::Display for Target {
    /// The agent, and its status unless it is deployed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AgentState { status, message, .. } = &self.item.data;
        write!(f, "agent {}", self.key.name)?;
        match message {
            _ if *status == Status::Deployed => Ok(()),
            Some(message) => write!(f, " (status {}: {message})", status.as_str()),
            None => write!(f, " (status {})", status.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::ConversationStorage;

    fn target(status: Status, message: Option<&str>, replicas: i32) -> Target {
        let data = AgentState {
            name: "Helper".into(),
            uid: "uid-1".into(),
            status,
            message: message.map(Into::into),
            replicas,
            storage: ConversationStorage::Platform,
            run_hash: None,
            canary_run: None,
            serves: None,
            alerting: None,
            ready_replicas: None,
            min_score: 75.0,
            safety_floor: None,
        };
        let item = ListEntry { id: "ag_1".to_owned(), version: 1, created: 0, search: "".into(), json: "{}".into(), omitted: None, data };
        Target { key: Key::new("team-a", "helper"), item: Arc::new(item) }
    }

    #[test]
    fn an_agent_that_does_not_run_says_why() {
        for (status, replicas, says) in [
            (Status::Created, 1, Some("never been deployed")),
            (Status::Stopped, 1, Some("is stopped")),
            (Status::Deployed, 0, Some("replicas are 0")),
            (Status::Archived, 1, Some("is archived")),
            (Status::Deploying, 1, None),
            (Status::Deployed, 1, None),
        ] {
            let reason = target(status, None, replicas).no_pods_reason();
            assert_eq!(reason.is_some(), says.is_some(), "{status:?}: {reason:?}");
            assert!(reason.unwrap_or_default().contains(says.unwrap_or_default()), "{status:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_agent_is_told_beside_its_name() {
        let failed = target(Status::DeployFailed, Some("the image \"x\" cannot be pulled"), 1);
        assert_eq!(failed.to_string(), "agent helper (status deploy_failed: the image \"x\" cannot be pulled)");
        assert_eq!(target(Status::Deployed, None, 1).to_string(), "agent helper");
    }

    #[test]
    fn statuses_are_spelled_as_in_the_view() {
        for status in [Status::Created, Status::Deploying, Status::Deployed, Status::DeployFailed, Status::Stopped, Status::Archived] {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
    }
}
