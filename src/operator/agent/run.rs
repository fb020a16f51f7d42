//! The evaluation runs that decide what an Agent runs: made once, and made again where another object of the same name was in the
//! way.

use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use slipway_api::{Agent, EvaluationRun, EvaluationRunSpec, labels};
use slipway_cluster::{Key, Object, quota, write};
use slipway_release::gate;

use super::MANAGER;
use crate::context::Context;

/// Makes a run, unless it is there; whether it was made now. `owner` is a controlling owner reference.
pub(super) async fn make(
    agent: &Agent,
    name: &str,
    owner: &Value,
    wanted: &EvaluationRunSpec,
    context: &Context,
) -> Result<bool, write::Error> {
    let key = Key::of(agent);
    let api: Api<Object> =
        Api::namespaced_with(context.client.clone(), &key.namespace, &kube::api::ApiResource::erase::<EvaluationRun>(&()));
    if let Some(made) = context.caches.evaluation_runs.get(&Key::new(&key.namespace, name)) {
        if made.0.as_ref().is_ok_and(|made| gate::is_run_spec(&made.spec, wanted)) {
            return Ok(false);
        }
        // It was made to be in the way, as the name follows from a UID, or when less was asked for.
        tracing::warn!(agent = %key, run = name, "an EvaluationRun is deleted that does not say what the run of its name has to say");
        let preconditions = Preconditions { uid: made.meta().uid.clone(), resource_version: None };
        let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        return match api.delete(name, &how).await {
            Ok(_) => Ok(false),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(error.into()),
        };
    }
    let object: Object = serde_json::from_value(object(agent, name, owner, wanted))?;
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match quota::retry_on_quota_conflict(|| api.create(&params, &object)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn object(agent: &Agent, name: &str, owner: &Value, wanted: &EvaluationRunSpec) -> Value {
    json!({
        "apiVersion": EvaluationRun::api_version(&()),
        "kind": EvaluationRun::kind(&()),
        "metadata": {
            "name": name,
            "namespace": agent.namespace(),
            "labels": {
                labels::NAME: agent.name_any(),
                labels::PART_OF: labels::PLATFORM,
                labels::MANAGED_BY: labels::OPERATOR,
                labels::AGENT: agent.name_any(),
            },
            "ownerReferences": [owner],
        },
        "spec": wanted,
    })
}
