//! The canary of an agent: started, shown, given another weight, promoted and rolled back. Each is one write of the Agent; the
//! operator does the rest, and writes how the canary stands.
//!
//! `config` places what callers say of a canary in the resource, `view` is the form of one.

mod config;
mod view;

use kube::ResourceExt;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use slipway_api::canary::CanaryPhase;
use slipway_api::{Agent, AgentSpec, Canary, condition, ids, labels};
use slipway_http::{Error, Reply};
use slipway_release::promotion;

use super::gate::Governor;
use super::{conflict, find, run, write};
use crate::answer::{Answer, Created, Data, tagged};
use crate::call::{Call, Json};
use crate::write::{clear, has_key};
use crate::{fields, gitops};
use view::View;

/// A canary that is to be started.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CanaryStart")]
pub(crate) struct Start {
    /// What is different in the canary, by any field of an agent, and its weight. Of governance, resources and pod_template only what
    /// is given becomes another.
    #[schemars(schema_with = "config::start_form")]
    config: Map<String, Value>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CanaryWeight")]
pub(crate) struct Weight {
    /// How many percent of conversations go to the canary.
    #[serde(deserialize_with = "fields::integer")]
    #[schemars(range(min = 1, max = 100))]
    weight: i32,
}

/// What became of a canary.
#[derive(Serialize)]
pub(crate) struct End {
    status: &'static str,
    agent_id: String,
    #[serde(skip)]
    version: Option<String>,
}

impl Answer for End {
    fn form(_: &mut SchemaGenerator) -> Schema {
        let status = json!({"type": "string", "enum": ["promoted", "rolled_back"]});
        let properties = json!({"status": status, "agent_id": {"type": "string"}});
        json_schema!({"type": "object", "properties": properties, "required": ["status", "agent_id"]})
    }

    fn reply(self) -> Result<Reply, Error> {
        tagged(Reply::json(&self)?, self.version)
    }
}

impl End {
    fn of(agent: &Agent, status: &'static str) -> Self {
        let agent_id = ids::agent(&agent.namespace().unwrap_or_default(), &agent.name_any());
        Self { status, agent_id, version: agent.resource_version() }
    }
}

pub(crate) async fn get(call: Call) -> Result<Data<View>, Error> {
    let (agent, _) = find(&call).await?;
    answer(&agent)
}

/// With an Idempotency-Key the same canary can be asked for again while it is there.
pub(crate) async fn start(call: Call<Json<Start>>) -> Result<Created<View>, Error> {
    let (call, Json(Start { config })) = call.split();
    let asked = config::place(config)?;
    let is_repeatable = has_key(&call)?;
    let governor = Governor::of(&call, &json!({"canary": asked})).await?;
    let started = write(&call, |agent, what| {
        gitops::refuse(&agent.metadata, what)?;
        run::active(agent, what)?;
        let mut canary = config::merged(&asked, &agent.spec)?;
        // What cannot be read the cluster refuses, in its words.
        let read: Option<Canary> = serde_json::from_value(canary.clone()).ok();
        if is_repeatable && read.is_some() && agent.canary() == read.as_ref() {
            return Ok(json!({}));
        }
        ensure_none(agent, what)?;
        if let Some(fault) = read.and_then(|canary| canary.fault(&agent.spec)) {
            return Err(Error::bad_request(fields::spelled(fault)));
        }
        // One that is turned off may still be there.
        clear(&mut canary, &present(&agent.spec)?);
        governor.check(&agent.spec, &json!({"canary": canary}))?;
        let annotations = json!({labels::CANARY_ACTION: null, labels::CANARY_WEIGHT: null});
        Ok(json!({"spec": {"canary": canary}, "metadata": {"annotations": annotations}}))
    });
    answer(&started.await?).map(Created)
}

/// Under GitOps an annotation takes the place of the spec's weight.
pub(crate) async fn weigh(call: Call<Json<Weight>>) -> Result<Data<View>, Error> {
    let (call, Json(Weight { weight })) = call.split();
    if !(1..=100).contains(&weight) {
        return Err(Error::bad_request("weight: must be from 1 to 100"));
    }
    let weighed = write(&call, |agent, what| {
        run::active(agent, what)?;
        let canary = running(agent, what)?;
        let owned = gitops::owner(&agent.metadata).is_some();
        let annotation = (owned && canary.weight != weight).then(|| weight.to_string());
        let mut patch = json!({"metadata": {"annotations": {labels::CANARY_WEIGHT: annotation}}});
        if !owned {
            patch["spec"]["canary"]["weight"] = json!(weight);
        }
        Ok(patch)
    });
    answer(&weighed.await?)
}

/// Makes the canary's configuration the agent's. The canary serves until the agent's own pods do so.
pub(crate) async fn promote(call: Call) -> Result<End, Error> {
    let governor = Governor::asked(&call).await?;
    let promoted = write(&call, |agent, what| {
        gitops::refuse(&agent.metadata, what)?;
        run::active(agent, what)?;
        ensure_promotable(agent, what)?;
        let mut patch = promotion(&agent.spec).ok_or_else(|| without(what))?;
        governor.check(&agent.spec, &patch["spec"])?;
        patch["metadata"] = ending("promote");
        Ok(patch)
    });
    Ok(End::of(&promoted.await?, "promoted"))
}

/// Under GitOps the spec goes on asking for the canary, and the annotation alone ends it.
pub(crate) async fn rollback(call: Call) -> Result<End, Error> {
    let rolled_back = write(&call, |agent, what| {
        if gitops::owner(&agent.metadata).is_none() {
            asked_for(agent, what)?;
            return Ok(json!({"spec": {"canary": null}, "metadata": ending("rollback")}));
        }
        running(agent, what)?;
        ensure_begun(agent, what)?;
        Ok(json!({"metadata": {"annotations": {labels::CANARY_ACTION: "rollback"}}}))
    });
    Ok(End::of(&rolled_back.await?, "rolled_back"))
}

fn answer(agent: &Agent) -> Result<Data<View>, Error> {
    Ok(Data::at(View::of(agent)?, agent.resource_version()))
}

/// What tells the operator how a canary ended that the spec has no more.
fn ending(action: &str) -> Value {
    json!({"annotations": {labels::CANARY_ACTION: action, labels::CANARY_WEIGHT: null}})
}

/// The canary that stands in the spec, whether it is turned on or not.
fn present(spec: &AgentSpec) -> Result<Value, Error> {
    serde_json::to_value(&spec.canary).map_err(Error::internal)
}

fn phase(agent: &Agent) -> Option<CanaryPhase> {
    Some(agent.canary_status()?.phase)
}

/// 409 while there is a canary, or the end of one.
fn ensure_none(agent: &Agent, what: &str) -> Result<(), Error> {
    if agent.is_flaggers() {
        return Err(conflict(format!("{what} leaves its rollouts to Flagger, as the annotation {} says", labels::FLAGGER)));
    }
    if agent.canary().is_some() {
        return Err(conflict(format!("{what}: a canary is active; PATCH its weight, promote it or roll it back")));
    }
    match phase(agent) {
        None | Some(CanaryPhase::RolledBack) => Ok(()),
        Some(_) => Err(conflict(format!("{what}: the canary before is still on its way out; try again in a moment"))),
    }
}

fn without(what: &str) -> Error {
    conflict(format!("{what} has no canary; POST to its /canary starts one"))
}

/// The canary that the spec asks for. 409 without one.
fn asked_for<'a>(agent: &'a Agent, what: &str) -> Result<&'a Canary, Error> {
    agent.canary().ok_or_else(|| without(what))
}

/// The same, unless it was rolled back.
fn running<'a>(agent: &'a Agent, what: &str) -> Result<&'a Canary, Error> {
    let canary = asked_for(agent, what)?;
    match phase(agent) {
        Some(CanaryPhase::RolledBack) => {
            Err(conflict(format!("{what}: the canary was rolled back; it begins anew once spec.canary says something else")))
        }
        _ => Ok(canary),
    }
}

/// 409 until the operator has taken up the canary: it forgets what was asked before.
fn ensure_begun(agent: &Agent, what: &str) -> Result<(), Error> {
    match phase(agent) {
        None | Some(CanaryPhase::Promoting | CanaryPhase::Draining) => {
            Err(conflict(format!("{what}: the canary has not begun yet; try again in a moment")))
        }
        Some(_) => Ok(()),
    }
}

/// 409 for a canary that cannot be promoted, or not yet.
fn ensure_promotable(agent: &Agent, what: &str) -> Result<(), Error> {
    running(agent, what)?;
    ensure_begun(agent, what)?;
    let mut conditions = agent.status.iter().flat_map(|status| &status.conditions);
    if conditions.any(|found| found.type_ == condition::CANARY_READY && found.reason == condition::AWAITING_EVALUATION) {
        return Err(conflict(format!("{what}: the canary waits for its evaluation, which decides whether it may serve anybody")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Ask = fn(&Agent, &str) -> Result<(), Error>;

    const START: Ask = ensure_none;
    const WEIGH: Ask = |agent, what| running(agent, what).map(drop);
    const PROMOTE: Ask = ensure_promotable;
    const ROLL_BACK: Ask = |agent, what| asked_for(agent, what).map(drop);

    fn agent(enabled: Option<bool>, status: &Value) -> Agent {
        let canary = enabled.map(|enabled| json!({"enabled": enabled, "weight": 10}));
        let is_evaluated = status["message"] == "evaluated";
        let reason = if is_evaluated { condition::AWAITING_EVALUATION } else { "Progressing" };
        let ready = json!({"type": "CanaryReady", "status": "Unknown", "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = if status.is_null() { json!({}) } else { json!({"canary": status, "conditions": [ready]}) };
        serde_json::from_value(json!({
            "metadata": {"name": "helper"}, "spec": {"name": "H", "framework": "custom", "canary": canary}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn what_can_be_done_follows_from_where_a_canary_stands() {
        let at = |phase: &str| json!({"phase": phase});
        for (enabled, status, start, weigh, promote, roll_back) in [
            (None, Value::Null, "", "no canary", "no canary", "no canary"),
            (Some(false), Value::Null, "", "no canary", "no canary", "no canary"),
            (Some(true), Value::Null, "is active", "", "has not begun", ""),
            (Some(true), at("Progressing"), "is active", "", "", ""),
            (Some(true), json!({"phase": "Progressing", "message": "evaluated"}), "is active", "", "waits for its evaluation", ""),
            (Some(true), json!({"phase": "Progressing", "evaluation": "ev-1"}), "is active", "", "", ""),
            (Some(true), at("Paused"), "is active", "", "", ""),
            (Some(true), at("Inconclusive"), "is active", "", "", ""),
            (Some(true), at("Succeeded"), "is active", "", "", ""),
            (Some(true), at("RolledBack"), "is active", "was rolled back", "was rolled back", ""),
            (Some(true), at("Draining"), "is active", "", "has not begun", ""),
            (None, at("Serving"), "on its way out", "no canary", "no canary", "no canary"),
            (None, at("Promoting"), "on its way out", "no canary", "no canary", "no canary"),
            (Some(false), at("Draining"), "on its way out", "no canary", "no canary", "no canary"),
            (None, at("RolledBack"), "", "no canary", "no canary", "no canary"),
        ] {
            let agent = agent(enabled, &status);
            for (name, ask, says) in
                [("start", START, start), ("weigh", WEIGH, weigh), ("promote", PROMOTE, promote), ("roll back", ROLL_BACK, roll_back)]
            {
                let told = ask(&agent, "agent helper").err().map(|error| error.message().to_owned()).unwrap_or_default();
                assert_eq!(told.is_empty(), says.is_empty(), "{name} at {enabled:?} {status}: {told}");
                assert!(told.contains(says), "{name} at {enabled:?} {status}: {told}");
            }
        }
    }

    #[test]
    fn flaggers_agents_have_no_canary_of_ours() {
        let mut agent = agent(None, &Value::Null);
        agent.metadata.annotations = Some([(labels::FLAGGER.to_owned(), "true".to_owned())].into());
        assert!(ensure_none(&agent, "agent helper").unwrap_err().message().contains("Flagger"));
    }
}
