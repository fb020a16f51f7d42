//! Writes to objects of our own kinds: statuses by server-side apply, finalizers by merge patch.

use std::fmt::Debug;

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;

use crate::controller::Failure;
use crate::{Key, Object, json};

#[derive(Debug, Error)]
pub enum Error {
    #[error("the request to the API server failed: {0}")]
    Api(#[from] kube::Error),
    #[error("an object could not be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Failure for Error {
    fn category(&self) -> &'static str {
        match self {
            Self::Api(kube::Error::Api(status)) => match status.code {
                403 => "forbidden",
                404 => "not_found",
                409 => "conflict",
                400 | 422 => "invalid",
                429 => "throttled",
                _ => "api",
            },
            Self::Api(_) => "connection",
            Self::Json(_) => "json",
        }
    }
}

/// A typed object as JSON with `apiVersion` and `kind`: the form that is compared and applied.
pub fn value<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    Ok(value)
}

/// The parameters of a patch other than apply, by this field manager.
pub fn by(manager: &str) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }
}

/// Applies the status of an object of ours. Returns the written object, or none if it was deleted in the meantime.
pub async fn status<K>(client: &Client, key: &Key, status: &impl Serialize, manager: &str) -> Result<Option<Object>, Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    let api: Api<Object> = own_api::<K>(client, key);
    let mut wanted = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": key.name},
        "status": status,
    });
    let written = match apply_status(&api, &key.name, &wanted, manager).await {
        Err(Error::Api(kube::Error::Api(refused))) if !undeclared(&refused.message).is_empty() => {
            let unknown = undeclared(&refused.message);
            tracing::warn!(object = %key, ?unknown, "left out of a status: the definition in the cluster is older than this manager");
            for pointer in &unknown {
                remove(&mut wanted, pointer);
            }
            apply_status(&api, &key.name, &wanted, manager).await
        }
        other => other,
    };
    match written {
        Ok(written) => Ok(Some(written)),
        Err(Error::Api(kube::Error::Api(status))) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

async fn apply_status(api: &Api<Object>, name: &str, wanted: &Value, manager: &str) -> Result<Object, Error> {
    Ok(api.patch_status(name, &PatchParams::apply(manager).force(), &Patch::Apply(&json::text(wanted)?)).await?)
}

/// JSON pointers to the status fields that the CRD does not declare, from the error message of an apply, which then writes
/// nothing. Fields within lists are left out, as the message has no pointer to them.
fn undeclared(message: &str) -> Vec<String> {
    let fields = message.split(": field not declared in schema").filter_map(|before| before.split_whitespace().last());
    fields.filter(|field| field.starts_with(".status.") && !field.contains('[')).map(|field| field.replace('.', "/")).collect()
}

fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, field)) = pointer.rsplit_once('/') else { return };
    if let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        parent.remove(field);
    }
}

/// Sets the finalizers of an object of ours, unless it has changed since it was read.
pub async fn finalizers<K>(client: &Client, object: &K, finalizers: &[String]) -> Result<(), Error>
where
    K: Resource<DynamicType = ()>,
{
    let key = Key::of(object);
    let body = json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": finalizers}});
    match own_api::<K>(client, &key).patch_metadata(&key.name, &PatchParams::default(), &Patch::Merge(&body)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn own_api<K: Resource<DynamicType = ()>>(client: &Client, key: &Key) -> Api<Object> {
    let resource = kube::api::ApiResource::erase::<K>(&());
    if key.namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), &key.namespace, &resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_unknown_to_an_older_crd_are_left_out() {
        let one =
            "failed to create typed patch object (a/b; agents.slipway.dev/v1, Kind=Agent): .status.runHash: field not declared in schema";
        assert_eq!(undeclared(one), ["/status/runHash"]);
        let many = "failed to create typed patch object (a/b; c): errors:\n  .status.a.b: field not declared in schema\n  \
            .status.list[name=\"x\"].c: field not declared in schema\n  .spec.d: field not declared in schema";
        assert_eq!(undeclared(many), ["/status/a/b"]);
        assert!(undeclared("the object has been modified").is_empty());
        let mut object = json!({"status": {"a": {"b": 1, "c": 2}}});
        remove(&mut object, &undeclared(many)[0]);
        assert_eq!(object, json!({"status": {"a": {"c": 2}}}));
    }
}
