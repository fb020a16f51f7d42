//! Knowledge bases: list, get, create, replace and delete. What is in them, the worker of the team knows.
//!
//! `request` reads a body and `source` the sources in it, `view` is the form of a knowledge base, `content` asks the worker for
//! documents and results, `ingest` begins an ingestion, with `upload` where a file is sent, `jobs` shows ingestions.

pub(crate) mod content;
pub(crate) mod ingest;
pub(crate) mod jobs;
mod request;
mod source;
mod upload;
mod view;

use kube::ResourceExt;
use kube::api::Api;
use serde_json::{Value, json};
use slipway_api::{KnowledgeBase, ids, names};
use slipway_cluster::Key;
use slipway_http::Error;

use crate::agents::Deleted;
use crate::answer::{Created, Data};
use crate::call::{Call, Json};
use crate::page::{self, Page, page};
use crate::permission::Right;
use crate::{cluster_error, gitops, write};

pub(crate) use jobs::{JobState, item as job_item};
use request::{NewKnowledgeBase, Replacement};
use view::View;
pub(crate) use view::item;

pub(crate) const LIST: Right = Right::on("list", "knowledgebases");
/// Also of documents and results: a reader of the knowledge base reads what is in it.
pub(crate) const GET: Right = Right::on("get", "knowledgebases");
pub(crate) const CREATE: Right = Right::on("create", "knowledgebases");
pub(crate) const CHANGE: Right = Right::on("patch", "knowledgebases");
pub(crate) const DELETE: Right = Right::on("delete", "knowledgebases");
pub(crate) const INGEST: Right = Right::on("create", "ingestions");
pub(crate) const LIST_JOBS: Right = Right::on("list", "ingestions");
pub(crate) const GET_JOB: Right = Right::on("get", "ingestions");
pub(crate) const CHANGE_JOB: Right = Right::on("patch", "ingestions");

pub(crate) async fn list(call: Call) -> Result<Page<View>, Error> {
    let (context, namespace) = (call.context.clone(), call.namespace());
    page(call, &context.caches.knowledge_bases, Some(&namespace)).await
}

pub(crate) async fn get(call: Call) -> Result<Data<View>, Error> {
    answer(&find(&call).await?)
}

pub(crate) async fn create(call: Call<Json<NewKnowledgeBase>>) -> Result<Created<View>, Error> {
    let (call, Json(body)) = call.split();
    let (name, spec) = body.read()?;
    let mut base = KnowledgeBase::new(&name, spec);
    base.metadata.namespace = Some(call.namespace());
    answer(&write::create(&call, &api(&call), base, &what(&name)).await?).map(Created)
}

/// Replaces the settings. Missing fields are reset.
pub(crate) async fn replace(call: Call<Json<Replacement>>) -> Result<Data<View>, Error> {
    let (call, Json(body)) = call.split();
    let name = named(&call)?;
    let wanted = serde_json::to_value(body.read()?).map_err(Error::internal)?;
    let (api, what) = (api(&call), what(&name));
    let changed = write::change(&call, &api, &name, &what, |present: &KnowledgeBase| {
        gitops::refuse(&present.metadata, &what)?;
        let mut patch: Value = wanted.clone();
        write::clear(&mut patch, &serde_json::to_value(&present.spec).map_err(Error::internal)?);
        Ok(json!({"spec": patch}))
    });
    answer(&changed.await?)
}

pub(crate) async fn delete(call: Call) -> Result<Data<Deleted>, Error> {
    let found = find(&call).await?;
    let what = what(&found.name_any());
    gitops::refuse(&found.metadata, &what)?;
    let version = write::delete(&call, &api(&call), &found, &what).await?;
    Ok(Data::since(Deleted { id: ids::knowledge_base(&found.name_any()), deleted: true }, version))
}

fn api(call: &Call) -> Api<KnowledgeBase> {
    Api::namespaced(call.client(), &call.namespace())
}

fn what(name: &str) -> String {
    format!("knowledge base {name}")
}

/// The name of the path's knowledge base, if it is one.
fn named<B>(call: &Call<B>) -> Result<String, Error> {
    let given = call.path.part("id");
    let name = ids::knowledge_base_name(given);
    if names::is_name(&name) { Ok(name) } else { Err(Error::not_found(format!("there is no {}", what(given)))) }
}

async fn find(call: &Call) -> Result<KnowledgeBase, Error> {
    let name = named(call)?;
    api(call).get(&name).await.map_err(|error| cluster_error::from_kube(error, &what(&name)))
}

/// The name of the path's knowledge base, which must exist. The cache knows it as a rule.
async fn existing(call: &Call) -> Result<String, Error> {
    let name = named(call)?;
    let cache = &call.context.caches.knowledge_bases;
    page::wait_for_caller_version(call, cache).await?;
    if cache.get(&Key::new(call.namespace(), name.clone())).is_none() {
        find(call).await?;
    }
    Ok(name)
}

fn answer(base: &KnowledgeBase) -> Result<Data<View>, Error> {
    Ok(Data::at(View::of(base)?, base.resource_version()))
}
