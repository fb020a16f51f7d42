//! Writes children by server-side apply, where they are not as they should be already. Beside the watches it is the only writer
//! to the caches, as the API server's answer is what a watch is about to report.

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::core::{PartialObjectMeta, Status};
use serde_json::{Value, json};
use slipway_api::labels;
use slipway_cluster::json::{hash, long_key, text};
use slipway_cluster::metrics::ByController;
use slipway_cluster::quota;
use slipway_cluster::write::{Error, by};
use slipway_cluster::{Key, Object};

use crate::caches::ChildKind;
use crate::caches::child::{Child, is_labelled};
use crate::context::Context;
use crate::drift;

/// The field manager of replacements; see [`send`].
const REPAIR: &str = "slipway/repair";
/// A resource version that no object can have: the first that etcd gives out is 2. What is applied with it is made
/// if there is nothing of that name, and is a conflict with anything that is there.
const NOTHING_THERE: &str = "1";

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

/// The API of one kind, in a namespace or (with an empty one) over all.
pub(crate) fn api(context: &Context, kind: ChildKind, namespace: &str) -> Api<Object> {
    let resource = kind.resource();
    if namespace.is_empty() {
        Api::all_with(context.client.clone(), &resource)
    } else {
        Api::namespaced_with(context.client.clone(), namespace, &resource)
    }
}

/// The name of an object in JSON.
pub(crate) fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Makes an object be as `desired` says, if it is not so already.
pub(crate) async fn apply(
    context: &Context,
    kind: ChildKind,
    owner: &str,
    desired: &Value,
    manager: &'static str,
) -> Result<Outcome, Error> {
    let text = |pointer: &str| desired.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let key = Key::new(text("/metadata/namespace"), text("/metadata/name"));
    let wanted = hash(desired);
    let before = context.caches.children(kind).get(&key);
    if let Some(before) = &before {
        if before.owner.as_deref().is_some_and(|uid| uid != owner) {
            return Ok(if before.is_labelled { Outcome::Left } else { Outcome::Taken });
        }
        if before.matches_hash == Some(wanted) {
            return Ok(Outcome::Unchanged);
        }
    }
    if let Some(why) = long_key(desired) {
        return Ok(Outcome::Refused(why));
    }
    let api = api(context, kind, &key.namespace);
    if before.is_none() {
        // Most likely there is nothing; whether that is so, the API server finds out in the same breath.
        match create(&api, &key.name, desired, manager).await {
            Ok(Some(mut object)) => {
                written(context, kind, key, &mut object, wanted);
                return Ok(Outcome::Created);
            }
            Ok(None) => {}
            Err(error) => return refused(kind, error),
        }
    }
    let known = before.as_ref().is_some_and(|before| before.owner.as_deref() == Some(owner));
    // What is not in the cache, or has lost its owner there, may be somebody else's.
    let found = if known { None } else { api.get_metadata_opt(&key.name).await? };
    if let Some(live) = found.as_ref().filter(|live| !is_ours(live, owner, manager) && !is_offered(live, desired)) {
        return Ok(if is_labelled(live) { Outcome::Left } else { Outcome::Taken });
    }
    let exists = known || found.is_some();
    let mut object = match send(&api, kind, &key.name, desired, manager, exists).await {
        Ok(object) => object,
        Err(error) => return refused(kind, error),
    };
    written(context, kind, key, &mut object, wanted);
    Ok(match before {
        _ if !exists => Outcome::Created,
        // One that was as it should be, was compared, and is something else, somebody else has changed.
        Some(before) if before.matches_hash.is_some() || !before.compared || !before.ever_matched => Outcome::Updated,
        _ => {
            let controller = manager.trim_start_matches("slipway/");
            context.metrics.repairs.get_or_create(&ByController { controller }).inc();
            Outcome::Repaired
        }
    })
}

/// Takes note of the API server's answer to a write, after which the object is as `wanted`. Where the watch has been faster
/// and has told of a later change or of the end, that counts, and the answer is no news.
pub(crate) fn written(context: &Context, kind: ChildKind, key: Key, object: &mut Object, wanted: u64) {
    object.types = Some(kind.types());
    let child = Child::written(object, wanted);
    let (uid, version) = (child.uid.clone(), child.resource_version);
    context.caches.children(kind).replace(key, child, |present, last_gone| match present {
        Some(present) if present.uid == uid => present.resource_version <= version,
        Some(present) => present.resource_version < version,
        None => last_gone < version,
    });
}

/// A refusal is something to tell the user; all else is tried again. A kind of others may be gone, or be served in another version.
fn refused(kind: ChildKind, error: kube::Error) -> Result<Outcome, Error> {
    match error {
        kube::Error::Api(status) if status.code == 404 && kind.is_optional() => Ok(Outcome::Refused(status.message)),
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => Ok(Outcome::Refused(status.message)),
        error => Err(error.into()),
    }
}

/// The reason of what a quota has no room for.
pub(crate) const QUOTA_EXCEEDED: &str = "QuotaExceeded";

/// The reason for which an object stands still that the API server refused in these words.
pub(crate) fn reason_of_refusal(why: &str) -> &'static str {
    if why.contains("exceeded quota") { QUOTA_EXCEEDED } else { "Refused" }
}

/// Makes an object if there is none of that name; `None` when there is one, whosever it may be. Field ownership is
/// the same as after any other apply, because the book of it leaves resource versions out.
async fn create(api: &Api<Object>, name: &str, desired: &Value, manager: &str) -> Result<Option<Object>, kube::Error> {
    let mut fresh = desired.clone();
    fresh["metadata"]["resourceVersion"] = json!(NOTHING_THERE);
    // Quotas themselves are not counted.
    let is_counted = desired["kind"] != "ResourceQuota";
    let make = || merge(api, name, &fresh, manager);
    match if is_counted { quota::retry_on_quota_conflict(make).await } else { make().await } {
        Ok(object) => Ok(Some(object)),
        // Its controller tries again.
        Err(kube::Error::Api(status)) if is_counted && quota::is_quota_conflict(&status) => Err(kube::Error::Api(status)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ours is what we control, and what nobody controls that we have written: its owner reference was taken away.
fn is_ours(object: &PartialObjectMeta<Object>, owner: &str, manager: &str) -> bool {
    match object.owner_references().iter().find(|reference| reference.controller == Some(true)) {
        Some(controller) => controller.uid == owner,
        None => object.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some(manager)),
    }
}

/// A namespace that bears the team's label but has no owner was made for the team by an admin, who alone may set it.
fn is_offered(object: &PartialObjectMeta<Object>, desired: &Value) -> bool {
    let wanted = desired["metadata"]["labels"][labels::TEAM].as_str();
    desired["kind"] == "Namespace"
        && object.owner_references().is_empty()
        && object.labels().get(labels::TEAM).map(String::as_str) == wanted
}

/// Applies `desired`, and takes out what others have added where only we may. Where the API server finds that
/// what is there cannot be mended step by step, it is replaced.
async fn send(api: &Api<Object>, kind: ChildKind, name: &str, desired: &Value, manager: &str, exists: bool) -> Result<Object, kube::Error> {
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

async fn merge(api: &Api<Object>, name: &str, desired: &Value, manager: &str) -> Result<Object, kube::Error> {
    let body = text(desired).map_err(kube::Error::SerdeError)?;
    let object = api.patch(name, &PatchParams::apply(manager).force(), &Patch::Apply(&body)).await?;
    let additions = drift::additions(object.managed_fields(), manager, &object.data, drift::of_others(desired));
    if additions.is_empty() {
        return Ok(object);
    }
    api.patch(name, &by(manager), &without(&object, &additions)?).await.map_err(outrun)
}

/// The API server answers 422 to a patch whose test fails, and to an object that is not valid. Only the second names the
/// object in its details; the first is a conflict.
fn outrun(error: kube::Error) -> kube::Error {
    match error {
        kube::Error::Api(status) if status.code == 422 && status.details.as_ref().is_none_or(|details| details.kind.is_empty()) => {
            kube::Error::Api(Box::new(Status { code: 409, ..*status }))
        }
        other => other,
    }
}

/// What takes these out, unless the object has changed since.
fn without(object: &Object, paths: &[String]) -> Result<Patch<()>, kube::Error> {
    let mut steps = vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": object.resource_version()})];
    steps.extend(paths.iter().map(|path| json!({"op": "remove", "path": path})));
    serde_json::from_value(Value::Array(steps)).map(Patch::Json).map_err(kube::Error::SerdeError)
}

/// Deletes an object that we own.
pub(crate) async fn delete(context: &Context, kind: ChildKind, key: &Key) -> Result<(), Error> {
    // Of a Job the API server would leave the pods.
    match api(context, kind, &key.namespace).delete(&key.name, &DeleteParams::background()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The objects that had a certain outcome, for an Event's note.
pub(crate) fn named(outcomes: &[(ChildKind, String, Outcome)], wanted: &Outcome) -> Option<String> {
    let names: Vec<String> =
        outcomes.iter().filter(|(_, _, outcome)| outcome == wanted).map(|(kind, name, _)| format!("{kind:?} {name}")).collect();
    (!names.is_empty()).then(|| names.join(", "))
}
