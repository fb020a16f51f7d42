//! Tools: list, get, create, replace and delete.

use kube::ResourceExt;
use kube::api::Api;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use slipway_api::tool::ToolPhase;
use slipway_api::{Tool, ToolSpec, condition, names};
use slipway_http::Error;

use crate::agents::Deleted;
use crate::answer::{Created, Data};
use crate::call::{Call, Json};
use crate::fields::{self, TOOL};
use crate::list_cache::{self, ListEntry};
use crate::page::{Page, page};
use crate::{cluster_error, gitops, write};

/// Any tool fields.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Fields(pub(crate) Map<String, Value>);

impl JsonSchema for Fields {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ToolFields".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::try_from(fields::form(&TOOL)).unwrap_or_default()
    }
}

/// A tool.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tool")]
pub(crate) struct View {
    /// By what agents and paths name it.
    pub slug: String,
    #[serde(flatten)]
    pub fields: Fields,
    pub status: Status,
    /// Why it cannot be used, if that is so.
    pub message: Option<String>,
    pub resource_version: Option<String>,
    pub created_at: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ToolStatus")]
pub(crate) enum Status {
    Pending,
    Available,
    Disabled,
    Error,
    /// Nobody can say yet, as of an mcp server that no agent has reached.
    Unknown,
}

impl View {
    fn of(tool: &Tool) -> Result<Self, Error> {
        let spec = fields::to_callers(&TOOL, serde_json::to_value(&tool.spec).map_err(Error::internal)?)?;
        let status = tool.status.as_ref();
        let message = status.into_iter().flat_map(|status| &status.conditions).find(|found| found.type_ == condition::READY);
        Ok(Self {
            slug: tool.name_any(),
            fields: serde_json::from_value(spec).map_err(Error::internal)?,
            status: match status.and_then(|status| status.phase) {
                Some(ToolPhase::Error) => Status::Error,
                _ if !tool.spec.enabled => Status::Disabled,
                Some(ToolPhase::Available) => Status::Available,
                Some(ToolPhase::Unknown | ToolPhase::Disabled) => Status::Unknown,
                None => Status::Pending,
            },
            message: message.filter(|ready| ready.status != "True").map(|ready| ready.message.clone()),
            resource_version: tool.resource_version(),
            created_at: crate::agents::time(tool.creation_timestamp().map(|time| time.0)),
        })
    }
}

pub(crate) fn item(tool: &Tool) -> Option<ListEntry> {
    let description = tool.spec.description.as_deref().unwrap_or_default();
    let mut view = View::of(tool).ok()?;
    list_cache::omit_large(&mut view.fields.0, &[], &["name", "type"]);
    view.message = list_cache::truncate(view.message);
    Some(ListEntry {
        id: tool.name_any(),
        created: tool.creation_timestamp().map_or(0, |time| time.0.as_second()),
        search: format!("{} {} {} {description}", tool.name_any(), tool.spec.name, tool.spec.category).to_lowercase().into(),
        json: serde_json::to_string(&view).ok()?.into(),
        ..ListEntry::default()
    })
}

pub(crate) async fn list(call: Call) -> Result<Page<View>, Error> {
    let (context, namespace) = (call.context.clone(), call.namespace());
    page(call, &context.caches.tools, Some(&namespace)).await
}

pub(crate) async fn get(call: Call) -> Result<Data<View>, Error> {
    let (name, what) = named(&call)?;
    answer(&api(&call).get(&name).await.map_err(|error| cluster_error::from_kube(error, &what))?)
}

pub(crate) async fn create(call: Call<Json<Fields>>) -> Result<Created<View>, Error> {
    let (call, Json(Fields(given))) = call.split();
    let (slug, spec) = read(given)?;
    let mut tool = Tool::new(&slug, spec);
    tool.metadata.namespace = Some(call.namespace());
    answer(&write::create(&call, &api(&call), tool, &format!("tool {slug}")).await?).map(Created)
}

/// Replaces a tool. Missing fields are reset.
pub(crate) async fn replace(call: Call<Json<Fields>>) -> Result<Data<View>, Error> {
    let (call, Json(Fields(given))) = call.split();
    let (name, what) = named(&call)?;
    let wanted = serde_json::to_value(spec(given)?).map_err(Error::internal)?;
    let api = api(&call);
    let changed = write::change(&call, &api, &name, &what, |tool: &Tool| {
        gitops::refuse(&tool.metadata, &what)?;
        let mut patch = wanted.clone();
        let present = serde_json::to_value(&tool.spec).map_err(Error::internal)?;
        write::clear(&mut patch, &present);
        Ok(json!({"spec": patch}))
    });
    answer(&changed.await?)
}

pub(crate) async fn delete(call: Call) -> Result<Data<Deleted>, Error> {
    let (name, what) = named(&call)?;
    let found = api(&call).get(&name).await.map_err(|error| cluster_error::from_kube(error, &what))?;
    gitops::refuse(&found.metadata, &what)?;
    let version = write::delete(&call, &api(&call), &found, &what).await?;
    Ok(Data::since(Deleted { id: name, deleted: true }, version))
}

fn api(call: &Call) -> Api<Tool> {
    Api::namespaced(call.client(), &call.namespace())
}

/// The name of a new tool's resource, and its spec.
pub(crate) fn read(mut given: Map<String, Value>) -> Result<(String, ToolSpec), Error> {
    let slug = match given.remove("slug").as_ref().or(given.get("name")) {
        Some(Value::String(name)) => names::slugify(name).map_err(|error| Error::bad_request(format!("name: {error}")))?,
        _ => return Err(Error::bad_request("name: is required, as a string")),
    };
    Ok((slug, spec(given)?))
}

fn spec(given: Map<String, Value>) -> Result<ToolSpec, Error> {
    let spec = fields::without_nulls(fields::to_resource(&TOOL, Value::Object(given))?);
    serde_json::from_value(spec).map_err(|error| Error::bad_request(format!("the body does not fit: {error}")))
}

/// The name of the path's tool, and its name in messages.
fn named(call: &Call) -> Result<(String, String), Error> {
    let name = call.path.part("name");
    let what = format!("tool {name}");
    if names::is_name(name) { Ok((name.to_owned(), what)) } else { Err(Error::not_found(format!("there is no {what}"))) }
}

fn answer(tool: &Tool) -> Result<Data<View>, Error> {
    Ok(Data::at(View::of(tool)?, tool.resource_version()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_null_is_as_one_that_is_left_out() {
        let spec = |fields: Value| spec(fields.as_object().cloned().unwrap()).unwrap();
        let nulls = json!({"name": "clock", "type": "builtin", "enabled": null, "timeout": null, "headers": null, "description": null, "parameters": [{"name": "zone", "type": "string", "description": null, "required": null}]});
        assert_eq!(spec(nulls), spec(json!({"name": "clock", "type": "builtin", "parameters": [{"name": "zone", "type": "string"}]})));
    }
}
