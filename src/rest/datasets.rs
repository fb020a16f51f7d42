//! Datasets of an agent: list, get, create, replace and delete. A dataset that names no agent is every agent's.
//!
//! `request` reads a body, `view` is the form of a dataset.

mod request;
mod view;

use std::borrow::Cow;

use kube::ResourceExt;
use kube::api::Api;
use serde_json::json;
use slipway_api::{Dataset, ids, names};
use slipway_http::{Error, StatusCode};

use crate::agents::{self, Deleted};
use crate::answer::{Created, Data};
use crate::call::{Call, Json};
use crate::evaluations::agent_of;
use crate::list_cache::ListEntry;
use crate::page::{Page, page_of};
use crate::permission::{GOVERN, Right};
use crate::{cluster_error, gitops, write};

use request::{NewDataset, Replacement};
pub(crate) use view::{Purpose, item};
use view::{Summary, View};

pub(crate) const LIST: Right = Right::on("list", "datasets");
pub(crate) const GET: Right = Right::on("get", "datasets");
pub(crate) const CREATE: Right = Right::on("create", "datasets");
pub(crate) const CHANGE: Right = Right::on("patch", "datasets");
pub(crate) const DELETE: Right = Right::on("delete", "datasets");

pub(crate) async fn list(call: Call) -> Result<Page<Summary>, Error> {
    let (context, namespace) = (call.context.clone(), call.namespace());
    let agent = agent_of(&call).await?;
    let belongs = |_: &str, dataset: &ListEntry<Purpose>| dataset.data.agent.as_deref().is_none_or(|owner| owner == agent);
    page_of(call, &context.caches.datasets, Some(&namespace), belongs, |item| Ok(Cow::Borrowed(&*item.json))).await
}

pub(crate) async fn get(call: Call) -> Result<Data<View>, Error> {
    Ok(answer(&find(&call).await?.dataset))
}

pub(crate) async fn create(call: Call<Json<NewDataset>>) -> Result<Created<View>, Error> {
    let (call, Json(body)) = call.split();
    let (name, mut spec) = body.read()?;
    spec.agent = Some(agent_of(&call).await?);
    let what = format!("dataset {name}");
    if spec.protected && !may_govern(&call).await? {
        return Err(refused(&call, &what));
    }
    let mut dataset = Dataset::new(&name, spec);
    dataset.metadata.namespace = Some(call.namespace());
    Ok(Created(answer(&write::create(&call, &api(&call), dataset, &what).await?)))
}

/// Replaces a dataset but for its name and agent. Missing fields are reset.
pub(crate) async fn replace(call: Call<Json<Replacement>>) -> Result<Data<View>, Error> {
    let (call, Json(body)) = call.split();
    let Found { dataset, what, agent } = find(&call).await?;
    let name = dataset.name_any();
    let spec = body.read(&name)?;
    let (api, may_govern) = (api(&call), may_govern(&call).await?);
    let changed = write::change(&call, &api, &name, &what, |present: &Dataset| {
        gitops::refuse(&present.metadata, &what)?;
        if !is_for(present, &agent) {
            return Err(missing(&what, &agent));
        }
        if (present.spec.protected || spec.protected) && !may_govern {
            return Err(refused(&call, &what));
        }
        let wanted = slipway_api::DatasetSpec { agent: present.spec.agent.clone(), ..spec.clone() };
        let mut patch = serde_json::to_value(&wanted).map_err(Error::internal)?;
        write::clear(&mut patch, &serde_json::to_value(&present.spec).map_err(Error::internal)?);
        Ok(json!({"spec": patch}))
    });
    Ok(answer(&changed.await?))
}

pub(crate) async fn delete(call: Call) -> Result<Data<Deleted>, Error> {
    let Found { dataset, what, .. } = find(&call).await?;
    gitops::refuse(&dataset.metadata, &what)?;
    if dataset.spec.protected && !may_govern(&call).await? {
        return Err(refused(&call, &what));
    }
    let version = write::delete(&call, &api(&call), &dataset, &what).await?;
    Ok(Data::since(Deleted { id: ids::dataset(&dataset.name_any()), deleted: true }, version))
}

/// REST writes with its own account, so that it asks on behalf of the caller.
async fn may_govern(call: &Call) -> Result<bool, Error> {
    call.context.access.allows(&call.caller, GOVERN, &call.namespace(), None).await
}

fn refused(call: &Call, what: &str) -> Error {
    let message = format!("{what} is protected, or would be, and {} may not {GOVERN} in this team", call.caller.name);
    Error::new(StatusCode::FORBIDDEN, message)
}

/// The dataset of the path, its name in messages, and the name of the path's agent.
struct Found {
    dataset: Dataset,
    what: String,
    agent: String,
}

/// The agent may be deleted.
async fn find(call: &Call) -> Result<Found, Error> {
    let asked = call.path.part("id");
    let agent = agents::name(call, asked).await?.ok_or_else(|| Error::not_found(format!("there is no agent {asked}")))?;
    let given = call.path.part("name");
    let (name, what) = (ids::dataset_name(given), format!("dataset {given}"));
    if !names::is_name(&name) {
        return Err(missing(&what, &agent));
    }
    let dataset = api(call).get_opt(&name).await.map_err(|error| cluster_error::from_kube(error, &what))?;
    match dataset.filter(|dataset| is_for(dataset, &agent)) {
        Some(dataset) => Ok(Found { dataset, what, agent }),
        None => Err(missing(&what, &agent)),
    }
}

fn is_for(dataset: &Dataset, agent: &str) -> bool {
    dataset.spec.agent.as_deref().is_none_or(|owner| owner == agent)
}

fn missing(what: &str, agent: &str) -> Error {
    Error::not_found(format!("there is no {what} for agent {agent}"))
}

fn api(call: &Call) -> Api<Dataset> {
    Api::namespaced(call.client(), &call.namespace())
}

fn answer(dataset: &Dataset) -> Data<View> {
    Data::at(View::of(dataset), dataset.resource_version())
}
