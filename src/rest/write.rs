//! The one way in which specs that people own are changed: a merge patch of what was asked for, at the version that
//! was looked at, never forced, stamped with who asked.

use std::fmt::Debug;

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slipway_api::labels;
use slipway_http::{Error, StatusCode, header};

use crate::call::Call;
use crate::fault;

const MANAGER: &str = "slipway-rest";
/// How often a change that does not depend on what is there is tried again when others write at the same time.
const ATTEMPTS: usize = 8;

/// Makes an object for the caller.
pub(crate) async fn create<K>(call: &Call, api: &Api<K>, mut object: K, what: &str) -> Result<K, Error>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    object.annotations_mut().insert(labels::CHANGED_BY.to_owned(), call.caller.name.clone());
    let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    api.create(&parameters, &object).await.map_err(|error| fault::of_cluster(error, what))
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
    K: Resource + DeserializeOwned + Clone + Debug,
{
    let expected = call.header(header::IF_MATCH).map(|tag| tag.trim().trim_start_matches("W/").trim_matches('"').to_owned());
    let mut attempt = 0;
    loop {
        attempt += 1;
        let found = api.get(name).await.map_err(|error| fault::of_cluster(error, what))?;
        let version = found.resource_version().unwrap_or_default();
        if expected.as_ref().is_some_and(|expected| *expected != version && expected != "*") {
            let message = format!("{what} is at version {version} by now, which If-Match does not name; read it again");
            return Err(Error::new(StatusCode::CONFLICT, message));
        }
        let mut patch = change(&found)?;
        let stamp = json!({"resourceVersion": version, "annotations": {labels::CHANGED_BY: call.caller.name}});
        merge(&mut patch["metadata"], stamp);
        match api
            .patch(name, &PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }, &Patch::Merge(patch))
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 409 && expected.is_none() && attempt < ATTEMPTS => {}
            outcome => return outcome.map_err(|error| fault::of_cluster(error, what)),
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
    fn a_replacement_takes_away_what_it_does_not_name() {
        let mut patch = json!({"a": 1, "map": {"x": "1"}, "list": [1]});
        clear(&mut patch, &json!({"a": 0, "b": 2, "map": {"x": "0", "y": "2"}, "list": [1, 2]}));
        assert_eq!(patch, json!({"a": 1, "b": null, "map": {"x": "1", "y": null}, "list": [1]}));
    }
}
