//! The one way in which specs that people own are changed: a merge patch of what was asked for, at the version that
//! was looked at, never forced, stamped with who asked. And the one way in which objects are made: once, however
//! often the same call with the same Idempotency-Key is repeated.

mod once;

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
use crate::{fault, judge};
use once::Once;

const MANAGER: &str = "slipway-rest";
/// How long a change that does not depend on what is there is tried again when others write at the same time.
const PATIENCE: Duration = Duration::from_secs(8);
/// Those who were too late wait about this long, and longer each time, so that they do not stay in each other's way.
const PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// How long a deletion waits to be heard of.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

/// Makes an object for the caller. A call that is repeated with its Idempotency-Key is given what it made before.
pub(crate) async fn create<K>(call: &Call, api: &Api<K>, mut object: K, what: &str) -> Result<K, Error>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    judge::object(&object)?;
    let once = Once::of(call, &object)?;
    if let Some(once) = &once {
        if let Some(made) = once.made(api).await? {
            return Ok(made);
        }
        once.stamp(&mut object);
    }
    object.annotations_mut().insert(labels::CHANGED_BY.to_owned(), call.caller.name.clone());
    let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match quota::past_races(|| api.create(&parameters, &object)).await {
        // The same call may have been faster, by way of another replica.
        Err(error) if once.is_some() && fault::exists_already(&error) => {
            let made = if let Some(once) = &once { once.made(api).await? } else { None };
            made.ok_or_else(|| fault::of_cluster(error, what))
        }
        outcome => {
            let made = outcome.map_err(|error| refused(call, error, what))?;
            if let Some(once) = &once {
                once.alone(call, api, &made).await?;
            }
            Ok(made)
        }
    }
}

/// What this very call made when it was made before, with the same Idempotency-Key.
pub(crate) async fn made_before<K>(call: &Call, api: &Api<K>, object: &K) -> Result<Option<K>, Error>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    match Once::of(call, object)? {
        Some(once) => once.made(api).await,
        None => Ok(None),
    }
}

/// Changes an object as `change` says, which sees it as it is, and is asked again if somebody else was faster.
/// With `If-Match` it is changed in that version or not at all.
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
    let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let begun = Instant::now();
    let mut pause = PAUSE;
    loop {
        let found = api.get(name).await.map_err(|error| fault::of_cluster(error, what))?;
        let version = found.resource_version().unwrap_or_default();
        expected.check(&version, what)?;
        let mut patch = change(&found)?;
        judge::patch::<K>(&patch)?;
        let stamp = json!({"resourceVersion": version, "annotations": {labels::CHANGED_BY: call.caller.name}});
        merge(&mut patch["metadata"], stamp);
        match api.patch(name, &parameters, &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 && !expected.is_one() && begun.elapsed() < PATIENCE => {
                sleep(about(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            outcome => return outcome.map_err(|error| refused(call, error, what)),
        }
    }
}

pub(crate) fn refused(call: &Call, error: kube::Error, what: &str) -> Error {
    fault::of_write(error, what, call.impersonates().then_some(call.caller.name.as_str()))
}

/// Half of the pause to one and a half: the clock's last digits are random enough to keep writers apart.
fn about(pause: Duration) -> Duration {
    let digits = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos() / 100 % 1000);
    pause / 2 + pause * digits / 1000
}

/// Deletes the object that was found, and no other of its name. The answer is a version of the cluster since which
/// it is gone, or going.
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
        // Something has yet to be done before it goes.
        Some(going) => Ok(going.resource_version()),
        None => Ok(gone(api, found, &version).await),
    }
}

/// The version at which an object went. The answer to a deletion doesn't say, but the watch does. Every replica's
/// watch tells of the same version, so each knows from it whether it has heard of the deletion.
async fn gone<K>(api: &Api<K>, found: &K, since: &str) -> Option<String>
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
    if let Ok(Some(version)) = timeout(HEARD_WITHIN, heard).await {
        return Some(version);
    }
    // Whatever the cluster's version is now, it is a later one.
    let list = api.list_metadata(&ListParams::default().limit(1)).await.ok()?;
    list.metadata.resource_version
}

/// The versions in which a caller wants a thing to be, to change it or to delete it.
pub(crate) enum Expected {
    Any,
    OneOf(Vec<String>),
}

impl Expected {
    /// What `If-Match` says: `*`, or tags that answers had.
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
            // Curl's users forget the quotes.
            let version = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag);
            (!version.is_empty() && !version.contains('"')).then(|| version.to_owned())
        };
        header.split(',').map(tag).collect::<Option<Vec<_>>>().map(Self::OneOf)
    }

    /// Whether one version is meant, so that another one is not to be tried.
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

/// Makes a merge patch a replacement: what is there and not in the patch is taken away.
pub(crate) fn clear(patch: &mut Value, present: &Value) {
    let (Value::Object(patch), Value::Object(present)) = (patch, present) else { return };
    for (name, before) in present {
        clear(patch.entry(name).or_insert(Value::Null), before);
    }
}

/// Puts the members of `more` into `value`, and those of objects within it into theirs.
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
