//! Changes of an agent: configuration, skills, archived or not.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use slipway_api::{Agent, labels};
use slipway_http::Error;

use super::gate::Governor;
use super::{View, answer, flat, write};
use crate::answer::Data;
use crate::call::{Call, Json};
use crate::fields::{self, AGENT, AgentFields};
use crate::gitops;

/// A merge patch of the spec. `name` is the display name; the slug never changes.
pub(crate) async fn config(call: Call<Json<AgentFields>>) -> Result<Data<View>, Error> {
    let (call, Json(AgentFields(fields))) = call.split();
    if fields.contains_key("slug") {
        return Err(Error::bad_request("slug: cannot be changed, because the id and all addresses derive from it"));
    }
    let spec = fields::to_resource(&AGENT, flat(fields)?)?;
    let governor = Governor::of(&call, &spec).await?;
    let changed = write(&call, |agent, what| {
        gitops::refuse(&agent.metadata, what)?;
        governor.check(&agent.spec, &spec)?;
        let mut patch = json!({ "spec": spec });
        if spec.get("suspend").is_some() {
            // A contradicting annotation would take precedence.
            patch["metadata"]["annotations"][labels::SUSPEND] = Value::Null;
        }
        if let Some(canary) = spec.get("canary") {
            patch["metadata"]["annotations"][labels::CANARY_WEIGHT] = Value::Null;
            // What was asked of the canary before is not to meet this one. With none it tells how that one ended.
            if !canary.is_null() {
                patch["metadata"]["annotations"][labels::CANARY_ACTION] = Value::Null;
            }
        }
        Ok(patch)
    });
    answer(&changed.await?)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AgentSkills")]
pub(crate) struct Skills {
    /// Names or ids (`sk_…`) of skills of the team.
    #[schemars(length(max = 32), inner(length(min = 1, max = 66)), extend("uniqueItems" = true))]
    skills: Vec<String>,
}

pub(crate) async fn skills(call: Call<Json<Skills>>) -> Result<Data<View>, Error> {
    let (call, Json(Skills { skills })) = call.split();
    let changed = write(&call, |agent, what| {
        gitops::refuse(&agent.metadata, what)?;
        Ok(json!({"spec": {"skills": skills}}))
    });
    answer(&changed.await?)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AgentWish")]
pub(crate) struct Wish {
    /// `archived`, or `active` to take an archived agent back as it was.
    #[schemars(schema_with = "wishes")]
    status: String,
}

fn wishes(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "enum": ["archived", "active"]})
}

/// Other statuses cannot be set.
pub(crate) async fn status(call: Call<Json<Wish>>) -> Result<Data<View>, Error> {
    let (call, Json(Wish { status })) = call.split();
    let archived = match status.as_str() {
        "archived" => json!("true"),
        "active" => Value::Null,
        _ => {
            return Err(Error::bad_request(
                "status: can be set to `archived`, and to `active` to undo that; deploy, stop and restart do the rest",
            ));
        }
    };
    let changed = write(&call, |_: &Agent, _| Ok(json!({"metadata": {"annotations": {labels::ARCHIVED: archived}}})));
    answer(&changed.await?)
}
