//! Agents: list, get, create and delete.
//!
//! `change` and `run` change one, `canary` puts another beside it, `gate` asks which callers may lower what it is held to, `view`
//! is its form.

pub(crate) mod canary;
pub(crate) mod change;
mod gate;
pub(crate) mod run;
mod view;

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use slipway_api::names::{self, AgentName};
use slipway_api::{Agent, ids};
use slipway_cluster::{Key, list};
use slipway_http::{Error, StatusCode};

use crate::answer::{Created, Data, Single};
use crate::call::{Call, Json};
use crate::fields::{self, AGENT, NewAgent};
use crate::list_cache::ListEntry;
use crate::page::{self, Page, page};
use crate::{cluster_error, write};

pub(crate) use view::{AgentState, Alerting, ConversationStorage, Status, View, item, time};

pub(crate) async fn list(call: Call) -> Result<Page<View>, Error> {
    let (context, namespace) = (call.context.clone(), call.namespace());
    page(call, &context.caches.agents, Some(&namespace)).await
}

/// The agents of all teams.
pub(crate) async fn all(call: Call) -> Result<Page<View>, Error> {
    let context = call.context.clone();
    page(call, &context.caches.agents, None).await
}

/// From the cache if the caller names a version and the cache has it; otherwise from the API server.
pub(crate) async fn get(call: Call) -> Result<Single<View>, Error> {
    if page::is_cached_as_new(&call, &call.context.caches.agents)?
        && let Some((_, item)) = cached(&call)
        && let Some(whole) = item.whole()
    {
        return Ok(Single::cached(whole, item.version));
    }
    let (agent, _) = find(&call).await?;
    answer(&agent).map(Single::read)
}

pub(crate) async fn create(call: Call<Json<NewAgent>>) -> Result<Created<View>, Error> {
    let (call, Json(NewAgent(mut fields))) = call.split();
    let slug = slug(&mut fields)?;
    let mut spec = fields::without_nulls(fields::to_resource(&AGENT, flat(fields)?)?);
    // Deploying is a separate step.
    if let Some(spec) = spec.as_object_mut() {
        spec.entry("suspend").or_insert(json!(true));
    }
    // Unparsed, so that the API server validates every field and defaults are not written into the spec.
    let kind = ApiResource::erase::<Agent>(&());
    let mut agent = DynamicObject::new(slug.as_str(), &kind).data(json!({ "spec": spec }));
    agent.metadata.namespace = Some(call.namespace());
    let api: Api<DynamicObject> = Api::namespaced_with(call.client(), &call.namespace(), &kind);
    let made = write::create(&call, &api, agent, &format!("agent {slug}")).await?;
    let made: Agent = made.try_parse().map_err(Error::internal)?;
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
    // GitOps would create it again, without its conversations.
    crate::gitops::refuse(&agent.metadata, &what)?;
    let version = write::delete(&call, &api(&call), &agent, &what).await?;
    Ok(Data::since(Deleted { id: ids::agent(&call.namespace(), &agent.name_any()), deleted: true }, version))
}

pub(crate) fn api<B>(call: &Call<B>) -> Api<Agent> {
    Api::namespaced(call.client(), &call.namespace())
}

/// The agent of the path, from the API server, and its name in messages.
pub(crate) async fn find<B>(call: &Call<B>) -> Result<(Agent, String), Error> {
    let (name, what) = named(call).await?;
    let agent = api(call).get(&name).await.map_err(|error| cluster_error::from_kube(error, &what))?;
    ensure_not_deleted(&agent, &what)?;
    Ok((agent, what))
}

/// The agent of the path, from the cache.
pub(crate) fn cached<B>(call: &Call<B>) -> Option<(Key, Arc<ListEntry<AgentState>>)> {
    cached_as(call, call.path.part("id"))
}

/// The agent with this id or slug, from the cache.
pub(crate) fn cached_as<B>(call: &Call<B>, named: &str) -> Option<(Key, Arc<ListEntry<AgentState>>)> {
    let agents = &call.context.caches.agents;
    let namespace = call.namespace();
    let name = if named.starts_with("ag_") { agents.name_of(&namespace, named)? } else { named.to_owned() };
    let key = Key::new(namespace, name);
    let item = agents.get(&key)?;
    Some((key, item))
}

/// The name of the path's agent, and its name in messages.
async fn named<B>(call: &Call<B>) -> Result<(String, String), Error> {
    let named = call.path.part("id");
    let what = format!("agent {named}");
    match name(call, named).await? {
        Some(name) => Ok((name, what)),
        None => Err(Error::not_found(format!("there is no {what}"))),
    }
}

/// An agent that is being deleted counts as missing.
fn ensure_not_deleted(agent: &Agent, what: &str) -> Result<(), Error> {
    match agent.metadata.deletion_timestamp {
        Some(_) => Err(Error::not_found(format!("there is no {what} any more: it is being deleted"))),
        None => Ok(()),
    }
}

/// The name of the agent with this id or slug. An unknown id may be that of a new agent.
pub(crate) async fn name<B>(call: &Call<B>, named: &str) -> Result<Option<String>, Error> {
    if !named.starts_with("ag_") {
        return Ok(AgentName::new(named).ok().map(|name| name.as_str().to_owned()));
    }
    let namespace = call.namespace();
    if let Some(name) = call.context.caches.agents.name_of(&namespace, named) {
        return Ok(Some(name));
    }
    // One at a time, as the list may be large.
    let _one = call.context.caches.agents.fetch_turn().acquire().await;
    let present = list::metadata(&api(call), |agent| agent.name.clone().unwrap_or_default())
        .await
        .map_err(|error| cluster_error::from_kube(error, "agents"))?;
    Ok(present.into_iter().find(|name| ids::agent(&namespace, name) == named))
}

/// Changes the agent of the path by the patch that `change` returns. Its second argument is the agent's name in messages.
pub(crate) async fn write(call: &Call, change: impl Fn(&Agent, &str) -> Result<Value, Error>) -> Result<Agent, Error> {
    let (name, what) = named(call).await?;
    let change = |agent: &Agent| {
        ensure_not_deleted(agent, &what)?;
        change(agent, &what)
    };
    write::change(call, &api(call), &name, &what, change).await
}

fn answer(agent: &Agent) -> Result<Data<View>, Error> {
    Ok(Data::at(View::of(agent)?, agent.resource_version()))
}

/// 409: the agent is in no state for this.
fn conflict(message: String) -> Error {
    Error::new(StatusCode::CONFLICT, message)
}

/// The slug of a new agent: as given, or derived from its name.
fn slug(fields: &mut Map<String, Value>) -> Result<AgentName, Error> {
    let wrong = |error: names::NameError| Error::bad_request(format!("name: {error}; `slug` can be given apart from it"));
    let within = fields.get("config").and_then(|config| config.get("name")).cloned();
    match fields.remove("slug") {
        Some(Value::String(slug)) => AgentName::new(slug).map_err(|error| Error::bad_request(format!("slug: {error}"))),
        Some(Value::Null) | None => match fields.get("name").cloned().or(within) {
            Some(Value::String(name)) => names::slugify(&name).and_then(AgentName::new).map_err(wrong),
            Some(Value::Null) | None => Err(Error::bad_request("name: is required")),
            Some(_) => Err(Error::bad_request("name: must be a string")),
        },
        Some(_) => Err(Error::bad_request("slug: must be a string")),
    }
}

/// Fields may stand in `config`, as in replies, but each only once.
fn flat(mut fields: Map<String, Value>) -> Result<Value, Error> {
    match fields.remove("config") {
        None | Some(Value::Null) => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        if let Value::Object(map) = value { map } else { Map::new() }
    }

    #[test]
    fn a_slug_is_given_or_made_of_the_name() {
        for (fields, expected) in [
            (json!({"name": "Travel Helper"}), Ok("travel-helper")),
            (json!({"config": {"name": "Travel Helper"}}), Ok("travel-helper")),
            (json!({"name": "Travel Helper", "slug": "trips"}), Ok("trips")),
            (json!({"name": "Travel Helper", "slug": null}), Ok("travel-helper")),
            (json!({}), Err("name: is required")),
            (json!({"name": 5}), Err("name: must be a string")),
            (json!({"name": "!!!"}), Err("name: ")),
            (json!({"name": "x", "slug": "Not A Slug"}), Err("slug: ")),
            (json!({"name": "x", "slug": "x-canary"}), Err("slug: ")),
        ] {
            let slug = slug(&mut map(fields.clone())).map(|slug| slug.as_str().to_owned()).map_err(|error| error.message().to_owned());
            match (slug, expected) {
                (Ok(slug), Ok(expected)) => assert_eq!(slug, expected, "{fields}"),
                (Err(error), Err(expected)) => assert!(error.starts_with(expected), "{fields}: {error}"),
                (slug, expected) => panic!("{fields}: {slug:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn config_may_hold_the_fields_but_not_contradict_them() {
        let both = |beside: Value| flat(map(json!({"replicas": beside, "config": {"replicas": 2, "strategy": "simple"}})));
        assert_eq!(both(json!(2)).unwrap(), json!({"replicas": 2, "strategy": "simple"}));
        assert!(both(json!(3)).unwrap_err().message().contains("`replicas`"));
        assert!(flat(map(json!({"config": []}))).is_err());
    }
}
