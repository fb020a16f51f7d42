//! Agents: lists, one of them, making and deleting.

mod view;

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use slipway_api::names::{self, AgentName};
use slipway_api::{Agent, AgentSpec, ids};
use slipway_cluster::Key;
use slipway_http::Error;

use crate::answer::{Created, Data};
use crate::call::{Call, Json};
use crate::fields::{self, AGENT, AgentFields};
use crate::page::{Page, page};
use crate::{fault, write};

pub(crate) use view::{View, item, time};

pub(crate) async fn list(call: Call) -> Result<Page<View>, Error> {
    let (context, namespace) = (call.context.clone(), call.namespace());
    page(call, &context.seen.agents, Some(&namespace)).await
}

pub(crate) async fn get(call: Call) -> Result<Data<View>, Error> {
    let (agent, _) = find(&call).await?;
    answer(&agent)
}

pub(crate) async fn create(call: Call<Json<AgentFields>>) -> Result<Created<View>, Error> {
    let (call, Json(AgentFields(mut fields))) = call.split();
    let slug = slug(&mut fields)?;
    let mut spec = fields::to_resource(&AGENT, flat(fields)?)?;
    // Deploying it is a step of its own.
    spec["suspend"] = json!(true);
    let spec: AgentSpec = serde_json::from_value(spec).map_err(|error| Error::bad_request(format!("the body does not fit: {error}")))?;
    let mut agent = Agent::new(slug.as_str(), spec);
    agent.metadata.namespace = Some(call.namespace());
    let made = write::create(&call, &api(&call), agent, &format!("agent {slug}")).await?;
    answer(&made).map(Created)
}

/// What is left of a thing that was deleted.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Deleted {
    pub id: String,
    pub deleted: bool,
}

pub(crate) async fn delete(call: Call) -> Result<Data<Deleted>, Error> {
    let (agent, what) = find(&call).await?;
    let preconditions = Preconditions { uid: agent.uid(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    api(&call).delete(&agent.name_any(), &parameters).await.map_err(|error| fault::of_cluster(error, &what))?;
    Ok(Data::new(Deleted { id: ids::agent(&call.namespace(), &agent.name_any()), deleted: true }))
}

pub(crate) fn api<B>(call: &Call<B>) -> Api<Agent> {
    Api::namespaced(call.context.client.clone(), &call.namespace())
}

/// The agent that the path names by id or slug, as the API server has it now, and what to call it.
pub(crate) async fn find<B>(call: &Call<B>) -> Result<(Agent, String), Error> {
    let named = call.path.part("id");
    let what = format!("agent {named}");
    let name = name(call, named).await?.ok_or_else(|| Error::not_found(format!("there is no {what}")))?;
    let agent = api(call).get(&name).await.map_err(|error| fault::of_cluster(error, &what))?;
    Ok((agent, what))
}

/// The name of the agent with this id or slug. An id that was not heard of may be one that was made just now.
pub(crate) async fn name<B>(call: &Call<B>, named: &str) -> Result<Option<String>, Error> {
    if !named.starts_with("ag_") {
        return Ok(AgentName::new(named).ok().map(|name| name.as_str().to_owned()));
    }
    let namespace = call.namespace();
    if let Some(name) = call.context.seen.agents.name_of(&namespace, named) {
        return Ok(Some(name));
    }
    let all = api(call).list_metadata(&ListParams::default()).await.map_err(|error| fault::of_cluster(error, "agents"))?;
    Ok(all.items.iter().map(ResourceExt::name_any).find(|name| ids::agent(&namespace, name) == named))
}

fn answer(agent: &Agent) -> Result<Data<View>, Error> {
    Ok(Data::at(View::of(agent)?, agent.resource_version()))
}

/// The slug that a new agent asks for, or the one that its name makes.
fn slug(fields: &mut Map<String, Value>) -> Result<AgentName, Error> {
    let wrong = |error: names::NameError| Error::bad_request(format!("name: {error}"));
    match fields.remove("slug") {
        Some(Value::String(slug)) => AgentName::new(slug).map_err(|error| Error::bad_request(format!("slug: {error}"))),
        Some(_) => Err(Error::bad_request("slug: must be a string")),
        None => match fields.get("name") {
            Some(Value::String(name)) => names::slugify(name).and_then(AgentName::new).map_err(wrong),
            Some(_) => Err(Error::bad_request("name: must be a string")),
            None => Err(Error::bad_request("name: is required")),
        },
    }
}

/// Fields may stand in `config` as well, as they do in answers; but each only once.
fn flat(mut fields: Map<String, Value>) -> Result<Value, Error> {
    match fields.remove("config") {
        None => {}
        Some(Value::Object(config)) => {
            for (name, value) in config {
                if fields.get(&name).is_some_and(|other| *other != value) {
                    return Err(Error::bad_request(format!("`{name}` is there twice, in `config` and beside it, with different values")));
                }
                fields.insert(name, value);
            }
        }
        Some(_) => return Err(Error::bad_request("config: must be an object")),
    }
    Ok(Value::Object(fields))
}

/// Where a list has this agent.
#[expect(dead_code, reason = "the routes that speak to agents use it")]
pub(crate) fn key<B>(call: &Call<B>, name: &str) -> Key {
    Key::new(call.namespace(), name)
}
