//! Governance: guardrail policies, and the scorecards of agents.
//!
//! `request` reads the body of a policy, `view` is its form, `scorecards` shows what agents have reached.

mod request;
pub(crate) mod scorecards;
mod view;

use kube::ResourceExt;
use kube::api::Api;
use serde_json::{Value, json};
use slipway_api::{GuardrailPolicy, GuardrailPolicySpec, ids, names};
use slipway_http::Error;

use crate::agents::Deleted;
use crate::answer::{Created, Data};
use crate::call::{Call, Json};
use crate::page::{Page, page};
use crate::permission::Right;
use crate::{cluster_error, gitops, write};

use request::{NewPolicy, Replacement};
use view::View;
pub(crate) use view::item;

const KIND: &str = "guardrailpolicies";
pub(crate) const LIST: Right = Right::on("list", KIND);
pub(crate) const GET: Right = Right::on("get", KIND);
pub(crate) const CREATE: Right = Right::on("create", KIND);
pub(crate) const CHANGE: Right = Right::on("patch", KIND);
pub(crate) const DELETE: Right = Right::on("delete", KIND);

pub(crate) async fn list(call: Call) -> Result<Page<View>, Error> {
    let (context, namespace) = (call.context.clone(), call.namespace());
    page(call, &context.caches.policies, Some(&namespace)).await
}

pub(crate) async fn get(call: Call) -> Result<Data<View>, Error> {
    Ok(answer(&find(&call).await?))
}

pub(crate) async fn create(call: Call<Json<NewPolicy>>) -> Result<Created<View>, Error> {
    let (call, Json(body)) = call.split();
    let (name, spec) = body.read()?;
    let mut policy = GuardrailPolicy::new(&name, spec);
    policy.metadata.namespace = Some(call.namespace());
    Ok(Created(answer(&write::create(&call, &api(&call), policy, &what(&name)).await?)))
}

/// Replaces a policy. Missing fields are reset.
pub(crate) async fn replace(call: Call<Json<Replacement>>) -> Result<Data<View>, Error> {
    let (call, Json(body)) = call.split();
    let name = named(&call)?;
    let spec: GuardrailPolicySpec = body.read()?;
    let wanted = serde_json::to_value(spec).map_err(Error::internal)?;
    let (api, what) = (api(&call), what(&name));
    let changed = write::change(&call, &api, &name, &what, |present: &GuardrailPolicy| {
        gitops::refuse(&present.metadata, &what)?;
        let mut patch: Value = wanted.clone();
        write::clear(&mut patch, &serde_json::to_value(&present.spec).map_err(Error::internal)?);
        Ok(json!({"spec": patch}))
    });
    Ok(answer(&changed.await?))
}

pub(crate) async fn delete(call: Call) -> Result<Data<Deleted>, Error> {
    let found = find(&call).await?;
    let what = what(&found.name_any());
    gitops::refuse(&found.metadata, &what)?;
    let version = write::delete(&call, &api(&call), &found, &what).await?;
    Ok(Data::since(Deleted { id: ids::guardrail_policy(&found.name_any()), deleted: true }, version))
}

fn api(call: &Call) -> Api<GuardrailPolicy> {
    Api::namespaced(call.client(), &call.namespace())
}

fn what(name: &str) -> String {
    format!("policy {name}")
}

/// The name of the path's policy, if it is one.
fn named<B>(call: &Call<B>) -> Result<String, Error> {
    let given = call.path.part("id");
    let name = ids::guardrail_policy_name(given);
    if names::is_name(&name) { Ok(name) } else { Err(Error::not_found(format!("there is no {}", what(given)))) }
}

async fn find(call: &Call) -> Result<GuardrailPolicy, Error> {
    let name = named(call)?;
    api(call).get(&name).await.map_err(|error| cluster_error::from_kube(error, &what(&name)))
}

fn answer(policy: &GuardrailPolicy) -> Data<View> {
    Data::at(View::of(policy), policy.resource_version())
}
