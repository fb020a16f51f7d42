//! The only places where the operator writes to the cluster.

use std::fmt::Debug;

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{PartialObjectMeta, Status};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slipway_api::labels;
use slipway_cluster::controller::Failure;
use slipway_cluster::metrics::ByController;
use slipway_cluster::quota;
use thiserror::Error;

use crate::body::{body, long_key};
use crate::live;
use crate::world::child::is_labelled;
use crate::world::{ChildKind, World, heard_back};
use slipway_cluster::Key;

/// The field manager of replacements; see [`apply`].
const REPAIR: &str = "slipway/repair";
/// A resource version that no object can have: the first that etcd gives out is 2. What is applied with it is made
/// if there is nothing of that name, and is a conflict with anything that is there.
const NOTHING_THERE: &str = "1";

#[derive(Debug, Error)]
pub(crate) enum Error {
    #[error("the API server could not be asked: {0}")]
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

/// What came of writing a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is as it should be; nothing was sent.
    Unchanged,
    Created,
    /// We wanted it to be different from before.
    Updated,
    /// Somebody else had changed it.
    Repaired,
    /// An object of this name exists and is not ours.
    Taken,
    /// One exists that belonged to an earlier owner of the same name, and is about to go as that has gone.
    Left,
    /// The API server refused it, in these words.
    Refused(String),
}

/// A typed object as JSON, with its type: the form in which it is compared and applied.
pub(crate) fn value<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    Ok(value)
}

/// The API of one kind, in a namespace or (with an empty one) over all.
pub(crate) fn api(world: &World, kind: ChildKind, namespace: &str) -> Api<DynamicObject> {
    let resource = kind.resource();
    if namespace.is_empty() {
        Api::all_with(world.client.clone(), &resource)
    } else {
        Api::namespaced_with(world.client.clone(), namespace, &resource)
    }
}

/// Makes an object be as `desired` says, if it is not so already.
pub(crate) async fn child(world: &World, kind: ChildKind, owner: &str, desired: &Value, manager: &'static str) -> Result<Outcome, Error> {
    let text = |pointer: &str| desired.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let key = Key::new(text("/metadata/namespace"), text("/metadata/name"));
    let wanted = live::hash(desired);
    let before = world.children(kind).get(&key);
    if let Some(before) = &before {
        if before.owner.as_deref().is_some_and(|uid| uid != owner) {
            return Ok(if before.is_labelled { Outcome::Left } else { Outcome::Taken });
        }
        if before.is == Some(wanted) {
            return Ok(Outcome::Unchanged);
        }
    }
    if let Some(why) = long_key(desired) {
        return Ok(Outcome::Refused(why));
    }
    let api = api(world, kind, &key.namespace);
    if before.is_none() {
        // Most likely there is nothing; whether that is so, the API server finds out in the same breath.
        match create(&api, &key.name, desired, manager).await {
            Ok(Some(mut object)) => {
                heard_back(world, kind, key, &mut object, wanted);
                return Ok(Outcome::Created);
            }
            Ok(None) => {}
            Err(error) => return refused(error),
        }
    }
    let known = before.as_ref().is_some_and(|before| before.owner.as_deref() == Some(owner));
    // What is not in the cache, or has lost its owner there, may be somebody else's.
    let found = if known { None } else { api.get_metadata_opt(&key.name).await? };
    if let Some(live) = found.as_ref().filter(|live| !is_ours(live, owner, manager) && !is_offered(live, desired)) {
        return Ok(if is_labelled(live) { Outcome::Left } else { Outcome::Taken });
    }
    let exists = known || found.is_some();
    let mut object = match apply(&api, kind, &key.name, desired, manager, exists).await {
        Ok(object) => object,
        Err(error) => return refused(error),
    };
    heard_back(world, kind, key, &mut object, wanted);
    Ok(match before {
        _ if !exists => Outcome::Created,
        // One that was as it should be, was compared, and is something else, somebody else has changed.
        Some(before) if before.is.is_some() || !before.judged || !before.was_right => Outcome::Updated,
        _ => {
            let controller = manager.trim_start_matches("slipway/");
            world.metrics.repairs.get_or_create(&ByController { controller }).inc();
            Outcome::Repaired
        }
    })
}

/// A refusal is something to tell the user; all else is tried again.
fn refused(error: kube::Error) -> Result<Outcome, Error> {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => Ok(Outcome::Refused(status.message)),
        error => Err(error.into()),
    }
}

/// The reason for which an object stands still that the API server refused in these words.
pub(crate) fn reason_of_refusal(why: &str) -> &'static str {
    if why.contains("exceeded quota") { "QuotaExceeded" } else { "Refused" }
}

/// Makes an object if there is none of that name; `None` when there is one, whosever it may be. Field ownership is
/// the same as after any other apply, because the book of it leaves resource versions out.
async fn create(api: &Api<DynamicObject>, name: &str, desired: &Value, manager: &str) -> Result<Option<DynamicObject>, kube::Error> {
    let mut fresh = desired.clone();
    fresh["metadata"]["resourceVersion"] = json!(NOTHING_THERE);
    // Quotas themselves are not counted.
    let is_counted = desired["kind"] != "ResourceQuota";
    let make = || merge(api, name, &fresh, manager);
    match if is_counted { quota::past_races(make).await } else { make().await } {
        Ok(object) => Ok(Some(object)),
        // Its controller tries again.
        Err(kube::Error::Api(status)) if is_counted && quota::is_race(&status) => Err(kube::Error::Api(status)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ours is what we control, and what nobody controls that we have written: its owner reference was taken away.
fn is_ours(object: &PartialObjectMeta<DynamicObject>, owner: &str, manager: &str) -> bool {
    match object.owner_references().iter().find(|reference| reference.controller == Some(true)) {
        Some(controller) => controller.uid == owner,
        None => object.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some(manager)),
    }
}

/// A namespace that bears the team's label but has no owner was made for the team by an admin, who alone may set it.
fn is_offered(object: &PartialObjectMeta<DynamicObject>, desired: &Value) -> bool {
    let wanted = desired["metadata"]["labels"][labels::TEAM].as_str();
    desired["kind"] == "Namespace"
        && object.owner_references().is_empty()
        && object.labels().get(labels::TEAM).map(String::as_str) == wanted
}

/// Applies `desired`, and takes out what others have added where only we may. Where the API server finds that
/// what is there cannot be mended step by step, it is replaced.
async fn apply(
    api: &Api<DynamicObject>,
    kind: ChildKind,
    name: &str,
    desired: &Value,
    manager: &str,
    exists: bool,
) -> Result<DynamicObject, kube::Error> {
    let refused = match merge(api, name, desired, manager).await {
        Err(kube::Error::Api(status)) if exists && status.code == 422 => status,
        other => return other,
    };
    tracing::info!(?kind, name, refused = refused.message, "an object cannot be mended step by step and is replaced");
    if matches!(kind, ChildKind::ConfigMap | ChildKind::Secret) {
        // Somebody made it immutable. Nothing runs in it, so that it can be made anew.
        api.delete(name, &DeleteParams::default()).await?;
    } else {
        // Lists that are merged by key keep entries whose keys were changed; this replaces them whole. Another
        // manager's name keeps what is written here from staying on when it is no longer wanted.
        api.patch(name, &by(REPAIR), &Patch::Merge(json!({"spec": desired["spec"]}))).await?;
    }
    merge(api, name, desired, manager).await
}

async fn merge(api: &Api<DynamicObject>, name: &str, desired: &Value, manager: &str) -> Result<DynamicObject, kube::Error> {
    let body = body(desired).map_err(kube::Error::SerdeError)?;
    let object = api.patch(name, &PatchParams::apply(manager).force(), &Patch::Apply(&body)).await?;
    let additions = live::additions(object.managed_fields(), manager, &object.data);
    if additions.is_empty() {
        return Ok(object);
    }
    api.patch(name, &by(manager), &without(&object, &additions)?).await.map_err(outrun)
}

/// Of a patch whose test fails the API server says 422, as of an object that is not valid. The object was valid before what
/// others added, so that it is the test: it has changed since, and is looked at again.
fn outrun(error: kube::Error) -> kube::Error {
    match error {
        kube::Error::Api(status) if status.code == 422 => kube::Error::Api(Box::new(Status { code: 409, ..*status })),
        other => other,
    }
}

/// A write that is no apply, by this field manager.
pub(crate) fn by(manager: &str) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }
}

/// What takes these out, unless the object has changed since.
fn without(object: &DynamicObject, paths: &[String]) -> Result<Patch<()>, kube::Error> {
    let mut steps = vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": object.resource_version()})];
    steps.extend(paths.iter().map(|path| json!({"op": "remove", "path": path})));
    serde_json::from_value(Value::Array(steps)).map(Patch::Json).map_err(kube::Error::SerdeError)
}

/// Deletes an object that we own.
pub(crate) async fn delete(world: &World, kind: ChildKind, key: &Key) -> Result<(), Error> {
    match api(world, kind, &key.namespace).delete(&key.name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Writes the status of one of our own kinds; the object as it is now, nothing if it was deleted in the meantime.
pub(crate) async fn status<K>(client: &Client, key: &Key, status: &impl Serialize, manager: &str) -> Result<Option<DynamicObject>, Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    let api: Api<DynamicObject> = own_api::<K>(client, key);
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

async fn apply_status(api: &Api<DynamicObject>, name: &str, wanted: &Value, manager: &str) -> Result<DynamicObject, Error> {
    Ok(api.patch_status(name, &PatchParams::apply(manager).force(), &Patch::Apply(&body(wanted)?)).await?)
}

/// Pointers to the fields of a status that the definition does not have, by what the API server says of an apply: then
/// nothing of it is written. Within lists it names no field that could be left out.
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

/// Sets the finalizers of one of our own kinds, unless it has changed since we looked.
pub(crate) async fn finalizers<K>(client: &Client, object: &K, finalizers: &[String]) -> Result<(), Error>
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

fn own_api<K: Resource<DynamicType = ()>>(client: &Client, key: &Key) -> Api<DynamicObject> {
    let resource = kube::api::ApiResource::erase::<K>(&());
    if key.namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), &key.namespace, &resource)
    }
}

/// The objects that had a certain outcome, for an Event's note.
pub(crate) fn named(outcomes: &[(ChildKind, String, Outcome)], wanted: &Outcome) -> Option<String> {
    let names: Vec<String> =
        outcomes.iter().filter(|(_, _, outcome)| outcome == wanted).map(|(kind, name, _)| format!("{kind:?} {name}")).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_definition_does_not_know_is_left_out_and_nothing_else() {
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
