//! Writes objects as callers ask. A change of a spec is a merge patch at the version that was read, never forced, annotated
//! with the caller. A creation is idempotent under its Idempotency-Key.

mod idempotency;

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::{StreamExt, pin_mut};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slipway_api::labels;
use slipway_cluster::quota;
use slipway_http::{Error, StatusCode, header};
use tokio::time::{sleep, timeout};

use crate::call::Call;
use crate::{cluster_error, validate};
use idempotency::IdempotencyKey;
pub(crate) use idempotency::{has_key, key_digest};

/// How long a change is retried on conflicts, unless it names a version.
const CONFLICT_RETRY_TIMEOUT: Duration = Duration::from_secs(8);
/// The backoff after a conflict, which doubles up to the maximum.
const BACKOFF_MIN: Duration = Duration::from_millis(4);
const BACKOFF_MAX: Duration = Duration::from_millis(200);
/// How long a deletion waits for its watch event.
const DELETION_EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Creates an object for the caller. A repeated call with its Idempotency-Key returns the first object.
pub(crate) async fn create<K>(call: &Call, api: &Api<K>, mut object: K, what: &str) -> Result<K, Error>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    validate::object(&object)?;
    let idempotency = IdempotencyKey::of(call, &object)?;
    if let Some(idempotency) = &idempotency {
        if let Some(made) = idempotency.made(api).await? {
            return Ok(made);
        }
        idempotency.stamp(&mut object);
    }
    object.annotations_mut().insert(labels::CHANGED_BY.to_owned(), call.caller.name.clone());
    let parameters = PostParams { field_manager: Some(labels::REST.to_owned()), ..PostParams::default() };
    match quota::retry_on_quota_conflict(|| api.create(&parameters, &object)).await {
        // The same call may have been faster on another replica.
        Err(error) if idempotency.is_some() && cluster_error::already_exists(&error) => {
            let made = if let Some(idempotency) = &idempotency { idempotency.made(api).await? } else { None };
            made.ok_or_else(|| cluster_error::from_kube(error, what))
        }
        outcome => {
            let made = outcome.map_err(|error| refused(call, error, what))?;
            if let Some(idempotency) = &idempotency {
                idempotency.ensure_first(call, api, &made).await?;
            }
            Ok(made)
        }
    }
}

/// The object that this call created earlier, with the same Idempotency-Key.
pub(crate) async fn made_before<K>(call: &Call, api: &Api<K>, object: &K) -> Result<Option<K>, Error>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    match IdempotencyKey::of(call, object)? {
        Some(idempotency) => idempotency.made(api).await,
        None => Ok(None),
    }
}

/// Changes an object by the patch that `change` returns for its current state, and retries on conflicts. With `If-Match`
/// only the named version is changed.
pub(crate) async fn change<K>(
    call: &Call,
    api: &Api<K>,
    name: &str,
    what: &str,
    change: impl Fn(&K) -> Result<Value, Error>,
) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    let expected = Expected::of(call)?;
    let parameters = PatchParams { field_manager: Some(labels::REST.to_owned()), ..PatchParams::default() };
    let begun = Instant::now();
    let mut backoff = BACKOFF_MIN;
    loop {
        let found = api.get(name).await.map_err(|error| cluster_error::from_kube(error, what))?;
        let version = found.resource_version().unwrap_or_default();
        expected.check(&version, what)?;
        let mut patch = change(&found)?;
        validate::patch::<K>(&patch)?;
        let stamp = json!({"resourceVersion": version, "annotations": {labels::CHANGED_BY: call.caller.name}});
        merge(&mut patch["metadata"], stamp);
        match api.patch(name, &parameters, &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 && !expected.is_one() && begun.elapsed() < CONFLICT_RETRY_TIMEOUT => {
                sleep(jittered(backoff)).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
            outcome => return outcome.map_err(|error| refused(call, error, what)),
        }
    }
}

pub(crate) fn refused(call: &Call, error: kube::Error, what: &str) -> Error {
    cluster_error::from_write(error, what, call.impersonates().then_some(call.caller.name.as_str()))
}

/// Between half and one and a half of the backoff. The clock's last digits are random enough.
fn jittered(backoff: Duration) -> Duration {
    let digits = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos() / 100 % 1000);
    backoff / 2 + backoff * digits / 1000
}

/// Deletes the object that was found, by UID. Returns a resource version at which it is gone or marked for deletion.
pub(crate) async fn delete<K>(call: &Call, api: &Api<K>, found: &K, what: &str) -> Result<Option<String>, Error>
where
    K: Resource + DeserializeOwned + Clone + Debug,
{
    let expected = Expected::of(call)?;
    let version = found.resource_version().unwrap_or_default();
    expected.check(&version, what)?;
    let preconditions = Preconditions { uid: found.uid(), resource_version: expected.is_one().then(|| version.clone()) };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    let deleted = api.delete(&found.name_any(), &parameters).await.map_err(|error| refused(call, error, what))?;
    match deleted.left() {
        // Finalizers keep it for now.
        Some(going) => Ok(going.resource_version()),
        None => Ok(deletion_version(api, found, &version).await),
    }
}

/// The resource version of a deletion. The response lacks it, but the watch event has it, and every replica's watch reports
/// the same one.
async fn deletion_version<K>(api: &Api<K>, found: &K, since: &str) -> Option<String>
where
    K: Resource + DeserializeOwned + Clone + Debug,
{
    let one = WatchParams::default().fields(&format!("metadata.name={}", found.name_any())).timeout(5);
    let heard = async {
        let events = api.watch_metadata(&one, since).await.ok()?;
        pin_mut!(events);
        while let Some(event) = events.next().await {
            match event.ok()? {
                WatchEvent::Deleted(object) if object.metadata.uid == found.uid() => return object.metadata.resource_version,
                _ => {}
            }
        }
        None
    };
    if let Ok(Some(version)) = timeout(DELETION_EVENT_TIMEOUT, heard).await {
        return Some(version);
    }
    // The current version is later.
    let list = api.list_metadata(&ListParams::default().limit(1)).await.ok()?;
    list.metadata.resource_version
}

/// The versions that a caller accepts for a change or deletion.
pub(crate) enum Expected {
    Any,
    OneOf(Vec<String>),
}

impl Expected {
    /// Reads `If-Match`: `*`, or a list of ETags.
    pub(crate) fn of<B>(call: &Call<B>) -> Result<Self, Error> {
        match call.headers.get(header::IF_MATCH).map(|value| value.to_str().unwrap_or_default()) {
            None => Ok(Self::Any),
            Some(header) => Self::read(header)
                .ok_or_else(|| Error::bad_request("the header If-Match must be the ETag of an earlier answer, in its quotes, or *")),
        }
    }

    fn read(header: &str) -> Option<Self> {
        if header.trim() == "*" {
            return Some(Self::Any);
        }
        let tag = |tag: &str| {
            let tag = tag.trim();
            let tag = tag.strip_prefix("W/").unwrap_or(tag);
            // The quotes may be missing.
            let version = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag);
            (!version.is_empty() && !version.contains('"')).then(|| version.to_owned())
        };
        header.split(',').map(tag).collect::<Option<Vec<_>>>().map(Self::OneOf)
    }

    /// Whether a version is named, so that conflicts are not retried.
    pub(crate) fn is_one(&self) -> bool {
        matches!(self, Self::OneOf(_))
    }

    pub(crate) fn check(&self, version: &str, what: &str) -> Result<(), Error> {
        match self {
            Self::OneOf(versions) if !versions.iter().any(|expected| expected == version) => {
                let message = format!("{what} is at version {version} by now, which If-Match does not name; read it again");
                Err(Error::new(StatusCode::CONFLICT, message))
            }
            _ => Ok(()),
        }
    }
}

/// Turns a merge patch into a replacement: fields that it lacks become null.
pub(crate) fn clear(patch: &mut Value, present: &Value) {
    let (Value::Object(patch), Value::Object(present)) = (patch, present) else { return };
    for (name, before) in present {
        clear(patch.entry(name).or_insert(Value::Null), before);
    }
}

/// Merges `more` into `value`, objects recursively.
pub(crate) fn merge(value: &mut Value, more: Value) {
    match (value, more) {
        (Value::Object(value), Value::Object(more)) => {
            for (name, inner) in more {
                merge(value.entry(name).or_insert(Value::Null), inner);
            }
        }
        (value, more) => *value = more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_names_versions() {
        for (header, version, passes) in [
            ("*", "7", true),
            ("\"7\"", "7", true),
            ("W/\"7\"", "7", true),
            ("7", "7", true),
            ("\"6\", \"7\"", "7", true),
            ("\"6\"", "7", false),
            ("\"77\"", "7", false),
        ] {
            let expected = Expected::read(header).unwrap();
            assert_eq!(expected.check(version, "agent a").is_ok(), passes, "{header}");
        }
        for nonsense in ["", "\"", "\"7", "\"6\",", "\"\""] {
            assert!(Expected::read(nonsense).is_none(), "{nonsense:?}");
        }
    }

    #[test]
    fn what_is_merged_keeps_what_it_does_not_name() {
        let mut value = json!({"annotations": {"a": 1}, "name": "n"});
        merge(&mut value, json!({"annotations": {"b": null}, "resourceVersion": "7"}));
        assert_eq!(value, json!({"annotations": {"a": 1, "b": null}, "name": "n", "resourceVersion": "7"}));
    }
}
