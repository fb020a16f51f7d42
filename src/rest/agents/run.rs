//! Deploy, stop and restart. For an agent that GitOps owns these set annotations, as a change of the spec would be
//! reverted.

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Value, json};
use slipway_api::{Agent, labels};
use slipway_http::{Error, Reply};

use super::{View, conflict, write};
use crate::answer::{Answer, tagged};
use crate::call::Call;
use crate::gitops;

/// The agent after something was done to it, and what.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Done {
    data: View,
    action: &'static str,
}

impl Answer for Done {
    fn form(generator: &mut SchemaGenerator) -> Schema {
        let agent = generator.subschema_for::<View>();
        let action = json!({"type": "string", "enum": ["deployed", "stopped", "restarted"]});
        json_schema!({"type": "object", "properties": {"data": agent, "action": action}, "required": ["data", "action"]})
    }

    fn reply(self) -> Result<Reply, Error> {
        tagged(Reply::json(&self)?, self.data.resource_version)
    }
}

impl Done {
    pub(crate) fn of(agent: &Agent, action: &'static str) -> Result<Self, Error> {
        Ok(Self { data: View::of(agent)?, action })
    }
}

pub(crate) async fn deploy(call: Call) -> Result<Done, Error> {
    let deployed = write(&call, |agent, what| {
        active(agent, what)?;
        Ok(suspend(agent, false))
    });
    Done::of(&deployed.await?, "deployed")
}

pub(crate) async fn stop(call: Call) -> Result<Done, Error> {
    let stopped = write(&call, |agent, _| Ok(suspend(agent, true)));
    Done::of(&stopped.await?, "stopped")
}

pub(crate) async fn restart(call: Call) -> Result<Done, Error> {
    let now = Timestamp::now().to_string();
    let restarted = write(&call, |agent, what| {
        active(agent, what)?;
        if agent.stopped_by().is_some() {
            return Err(conflict(format!("{what} does not run; deploy starts it")));
        }
        Ok(json!({"metadata": {"annotations": {labels::RESTARTED_AT: now}}}))
    });
    Done::of(&restarted.await?, "restarted")
}

/// 409 for an archived agent.
pub(crate) fn active(agent: &Agent, what: &str) -> Result<(), Error> {
    if agent.is_archived() {
        let message = format!("{what} is archived; PATCH its status with {{\"status\": \"active\"}} first");
        return Err(conflict(message));
    }
    Ok(())
}

/// The patch that sets or clears suspension. The annotation is removed where the spec agrees.
fn suspend(agent: &Agent, wanted: bool) -> Value {
    let owned = gitops::owner(&agent.metadata).is_some();
    let annotation = (owned && agent.spec.suspend != wanted).then(|| wanted.to_string());
    let mut patch = json!({"metadata": {"annotations": {labels::SUSPEND: annotation}}});
    if !owned {
        patch["spec"]["suspend"] = json!(wanted);
    }
    patch
}

#[cfg(test)]
mod tests {
    use slipway_api::AgentSpec;

    use super::*;

    #[test]
    fn what_gitops_owns_is_stopped_and_started_by_annotation_alone() {
        let suspended = |owned: bool, suspend: bool, wanted: bool| {
            let mut agent = Agent::new("helper", AgentSpec { suspend, ..AgentSpec::default() });
            if owned {
                agent.metadata.labels = Some([("kustomize.toolkit.fluxcd.io/name".to_owned(), "apps".to_owned())].into());
            }
            let patch = super::suspend(&agent, wanted);
            (patch.get("spec").cloned(), patch["metadata"]["annotations"][labels::SUSPEND].clone())
        };
        assert_eq!(suspended(false, true, false), (Some(json!({"suspend": false})), Value::Null));
        assert_eq!(suspended(false, false, true), (Some(json!({"suspend": true})), Value::Null));
        assert_eq!(suspended(true, false, true), (None, json!("true")));
        assert_eq!(suspended(true, true, false), (None, json!("false")));
        assert_eq!(suspended(true, false, false), (None, Value::Null), "the spec says so already");
        assert_eq!(suspended(true, true, true), (None, Value::Null));
    }
}
