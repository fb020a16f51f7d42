//! Idempotency-Key: a created object carries a hash of caller and key, and a hash of the body, written in the same request.
//! After a crash before the reply, a repeated call finds all that it needs.
//!
//! Concurrent calls with one key and different names each list the objects with the key at the version of their own
//! creation, and delete their own if another existed. Exactly the first one stays. A crash in between leaves both.

use std::fmt::Debug;

use kube::api::{Api, DeleteParams, ListParams, Preconditions, VersionMatch};
use kube::core::{PartialObjectMeta, Request};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use slipway_api::labels;
use slipway_http::{Error, StatusCode};

use crate::call::{Call, IDEMPOTENCY_KEY};
use crate::cluster_error;

const KEY_LEN_MAX: usize = 255;
/// Enough digits to be unique, and few enough for a label.
const HASH_DIGITS: usize = 40;

pub(super) struct IdempotencyKey {
    key: String,
    body: String,
}

impl IdempotencyKey {
    /// The hashes of a call, if it has a key. `object` is the requested object.
    pub(super) fn of(call: &Call, object: &impl Serialize) -> Result<Option<Self>, Error> {
        let Some(key) = key(call)? else { return Ok(None) };
        // Sorted, so that field order does not matter.
        let body = serde_json::to_value(object).map_err(Error::internal)?;
        Ok(Some(Self::hash(&call.caller.name, key, body.to_string().as_bytes())))
    }

    fn hash(caller: &str, key: &[u8], body: &[u8]) -> Self {
        let mut key = hex::encode(digest(caller, key));
        key.truncate(HASH_DIGITS);
        Self { key, body: hex::encode(Sha256::digest(body)) }
    }

    pub(super) fn stamp(&self, object: &mut impl ResourceExt) {
        object.labels_mut().insert(labels::IDEMPOTENCY_KEY.to_owned(), self.key.clone());
        object.annotations_mut().insert(labels::IDEMPOTENCY_BODY.to_owned(), self.body.clone());
    }

    /// The object that an earlier call with this key created.
    pub(super) async fn made<K>(&self, api: &Api<K>) -> Result<Option<K>, Error>
    where
        K: Resource + DeserializeOwned + Clone + Debug,
    {
        let found = api.list_metadata(&self.with_key()).await.map_err(|error| cluster_error::from_kube(error, "earlier call"))?;
        let Some(made) = found.items.iter().find(|made| made.metadata.deletion_timestamp.is_none()) else { return Ok(None) };
        if made.annotations().get(labels::IDEMPOTENCY_BODY) != Some(&self.body) {
            return Err(already_used(made));
        }
        let name = made.name_any();
        api.get_opt(&name).await.map_err(|error| cluster_error::from_kube(error, &name))
    }

    /// Deletes the object that was just created if another call with this key was first.
    pub(super) async fn ensure_first<K>(&self, call: &Call, api: &Api<K>, made: &K) -> Result<(), Error>
    where
        K: Resource + DeserializeOwned + Clone + Debug,
    {
        let Some(version) = made.resource_version() else { return Ok(()) };
        let then = self.with_key().at(&version).matching(VersionMatch::Exact);
        let found = api.list_metadata(&then).await.map_err(|error| cluster_error::from_kube(error, "earlier call"))?;
        let Some(earlier) = before(&found.items, made.uid().as_deref()) else { return Ok(()) };
        tracing::info!(
            name = made.name_any(),
            earlier = earlier.name_any(),
            "one Idempotency-Key for two things: the later one is taken back"
        );
        let preconditions = Preconditions { uid: made.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        // As REST itself: the right to create does not include the right to delete.
        let request = Request::new(api.resource_url()).delete(&made.name_any(), &parameters).map_err(Error::internal)?;
        match call.context.client.request_text(request).await {
            // It is gone already, or replaced.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(cluster_error::from_kube(error, "later call")),
            Ok(_) => {}
        }
        Err(already_used(earlier))
    }

    fn with_key(&self) -> ListParams {
        ListParams::default().labels(&format!("{}={}", labels::IDEMPOTENCY_KEY, self.key))
    }
}

/// The key of a call, if it has one.
fn key(call: &Call) -> Result<Option<&[u8]>, Error> {
    let Some(key) = call.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = key.as_bytes();
    if key.is_empty() || key.len() > KEY_LEN_MAX || !key.iter().all(u8::is_ascii_graphic) {
        return Err(Error::bad_request(format!("the header Idempotency-Key must have 1 to {KEY_LEN_MAX} visible ASCII characters")));
    }
    Ok(Some(key))
}

/// Whether the call has a key.
pub(crate) fn has_key(call: &Call) -> Result<bool, Error> {
    key(call).map(|key| key.is_some())
}

/// The hash of a call's key, for names that follow from it. None if the call has no key.
pub(crate) fn key_digest(call: &Call) -> Option<[u8; 32]> {
    call.headers.get(IDEMPOTENCY_KEY).map(|key| digest(&call.caller.name, key.as_bytes()))
}

fn digest(caller: &str, key: &[u8]) -> [u8; 32] {
    // The length prefix separates the name from the key.
    let mut hash = Sha256::new_with_prefix((caller.len() as u64).to_be_bytes());
    hash.update(caller);
    hash.update(key);
    hash.finalize().into()
}

/// An object besides the one with this uid.
fn before<'a, K>(found: &'a [PartialObjectMeta<K>], own: Option<&str>) -> Option<&'a PartialObjectMeta<K>> {
    found.iter().find(|other| other.metadata.uid.as_deref() != own && other.metadata.deletion_timestamp.is_none())
}

fn already_used(by: &impl ResourceExt) -> Error {
    let message = format!("this Idempotency-Key was used before, with another body, to make {}; use a new key", by.name_any());
    Error::new(StatusCode::CONFLICT, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_caller_key_or_body_is_another_mark() {
        let mark = |caller: &str, key: &str, body: &str| {
            let once = IdempotencyKey::hash(caller, key.as_bytes(), body.as_bytes());
            (once.key, once.body)
        };
        let first = mark("anna", "k1", "{}");
        assert_eq!(first, mark("anna", "k1", "{}"));
        assert_ne!(first.0, mark("ann", "ak1", "{}").0, "where the name ends and the key begins matters");
        assert_ne!(first.0, mark("bert", "k1", "{}").0);
        assert_ne!(first.0, mark("anna", "k2", "{}").0);
        let other = mark("anna", "k1", "{\"a\":1}");
        assert_eq!(first.0, other.0);
        assert_ne!(first.1, other.1);
        assert!(first.0.len() <= 63, "{} is a label's value", first.0);
    }
}
