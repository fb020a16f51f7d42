//! The agent that a call is relayed to: found on the shelf, without a word to the API server, and asked nothing while
//! it is known not to run.

use std::fmt;
use std::sync::Arc;

use serde::Deserializer;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use slipway_cluster::Key;
use slipway_http::Error;

use crate::call::Call;
use crate::list_cache::ListEntry;
use crate::{agents, cluster_error, page};

/// Where a call goes.
#[derive(Debug)]
pub(crate) struct Target {
    pub key: Key,
    pub item: Arc<ListEntry>,
}

/// What a view says of how an agent is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentState {
    pub status: String,
    pub message: Option<String>,
    pub replicas: Option<i64>,
}

/// The agent that the path names by id or slug. One that is not heard of does not run.
pub(crate) async fn target<B>(call: &Call<B>) -> Result<Target, Error> {
    page::wait_for_caller_version(call, &call.context.caches.agents).await?;
    match agents::seen(call) {
        Some((key, item)) => Ok(Target { key, item }),
        None if !call.context.caches.is_ready() => Err(cluster_error::unavailable()),
        None => Err(Error::not_found(format!("there is no agent {}", call.path.part("id")))),
    }
}

impl Target {
    fn state(&self) -> &AgentState {
        self.item.state.get_or_init(|| AgentState::read(&self.item.json))
    }

    /// Why this agent cannot be asked, where that is known beforehand.
    pub(crate) fn rests(&self) -> Option<String> {
        let name = &self.key.name;
        let AgentState { status, replicas, .. } = self.state();
        match (status.as_str(), *replicas) {
            ("created", _) => Some(format!("agent {name} has never been deployed; POST /api/v1/agents/{name}/deploy starts it")),
            ("stopped", _) => Some(format!("agent {name} is stopped; POST /api/v1/agents/{name}/deploy starts it again")),
            ("archived", _) => Some(format!("agent {name} is archived; PATCH /api/v1/agents/{name}/status with active takes it back")),
            (_, Some(0)) => Some(format!("agent {name} has no pods, because its replicas are 0")),
            _ => None,
        }
    }
}

impl fmt::Display for Target {
    /// The agent, and what is known to be wrong with it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AgentState { status, message, .. } = self.state();
        write!(f, "agent {}", self.key.name)?;
        match message {
            _ if status == "deployed" || status.is_empty() => Ok(()),
            Some(message) => write!(f, " (status {status}: {message})"),
            None => write!(f, " (status {status})"),
        }
    }
}

impl AgentState {
    /// Reads the few fields that are needed and stops there: the rest of a view is as long as its system prompt.
    fn read(json: &str) -> Self {
        let mut found = Self::default();
        let mut deserializer = serde_json::Deserializer::from_str(json);
        // Stopping early is an error to the parser, and meant here.
        drop(deserializer.deserialize_map(Reader(&mut found)));
        found
    }
}

struct Reader<'a>(&'a mut AgentState);

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an agent's view")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let mut missing = 3;
        while missing > 0 {
            let Some(name) = map.next_key::<&str>()? else { return Ok(()) };
            missing -= 1;
            match name {
                "status" => self.0.status = map.next_value()?,
                "message" => self.0.message = map.next_value()?,
                "replicas" => self.0.replicas = map.next_value()?,
                _ => {
                    missing += 1;
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Err(M::Error::custom("enough"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(json: &str) -> Target {
        let item = ListEntry { json: json.to_owned(), ..ListEntry::default() };
        Target { key: Key::new("team-a", "helper"), item: Arc::new(item) }
    }

    #[test]
    fn an_agent_that_does_not_run_says_why() {
        for (json, says) in [
            (r#"{"id":"ag_1","status":"created","message":null,"replicas":1}"#, Some("never been deployed")),
            (r#"{"status":"stopped","message":null,"replicas":1}"#, Some("is stopped")),
            (r#"{"replicas":0,"status":"deployed","message":null}"#, Some("replicas are 0")),
            (r#"{"status":"archived","replicas":1}"#, Some("is archived")),
            (r#"{"status":"deploying","replicas":1}"#, None),
            (r#"{"status":"deployed","replicas":1}"#, None),
        ] {
            let rests = target(json).rests();
            assert_eq!(rests.is_some(), says.is_some(), "{json}: {rests:?}");
            assert!(rests.unwrap_or_default().contains(says.unwrap_or_default()), "{json}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_agent_is_told_beside_its_name() {
        let failed = target(r#"{"status":"deploy_failed","message":"the image \"x\" cannot be pulled","replicas":1,"config":{}}"#);
        assert_eq!(failed.to_string(), "agent helper (status deploy_failed: the image \"x\" cannot be pulled)");
        assert_eq!(target(r#"{"status":"deployed","message":null,"replicas":1}"#).to_string(), "agent helper");
    }

    #[test]
    fn what_stands_after_the_fields_that_are_needed_is_not_read() {
        let state = AgentState::read(r#"{"status":"deployed","message":null,"replicas":2,"config": nothing that could be read"#);
        assert_eq!(state, AgentState { status: "deployed".to_owned(), message: None, replicas: Some(2) });
    }
}
