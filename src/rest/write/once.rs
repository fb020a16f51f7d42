//! Idempotency-Key: what a call makes carries a hash of who called with which key, and one of what was asked for. It
//! is written with the object in one go, so a server that is killed before it could answer has left all that a
//! repeated call needs.
//!
//! Of calls at the same instant with one key and other names each looks, once it has made its object, at how things
//! were when it was made: whoever finds another's there takes back its own. Each sees those that came before it, so
//! that exactly the first one stays. A server that is killed in between leaves both.

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
use crate::fault;

const LONGEST: usize = 255;
/// Of a hash, as many hex digits as a label can hold and nobody finds twice.
const DIGITS: usize = 40;

pub(super) struct Once {
    key: String,
    body: String,
}

impl Once {
    /// The call's own mark, if it has a key. `object` is what it asks for.
    pub(super) fn of(call: &Call, object: &impl Serialize) -> Result<Option<Self>, Error> {
        let Some(key) = call.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
        let key = key.as_bytes();
        if key.is_empty() || key.len() > LONGEST || !key.iter().all(u8::is_ascii_graphic) {
            return Err(Error::bad_request(format!("the header Idempotency-Key must have 1 to {LONGEST} visible ASCII characters")));
        }
        // Sorted, so that the order of fields does not matter.
        let body = serde_json::to_value(object).map_err(Error::internal)?;
        Ok(Some(Self::marked(&call.caller.name, key, body.to_string().as_bytes())))
    }

    fn marked(caller: &str, key: &[u8], body: &[u8]) -> Self {
        // With the length in front, no name and key can look like another name and key.
        let mut hash = Sha256::new_with_prefix((caller.len() as u64).to_be_bytes());
        hash.update(caller);
        hash.update(key);
        let mut key = hex::encode(hash.finalize());
        key.truncate(DIGITS);
        Self { key, body: hex::encode(Sha256::digest(body)) }
    }

    pub(super) fn stamp(&self, object: &mut impl ResourceExt) {
        object.labels_mut().insert(labels::IDEMPOTENCY_KEY.to_owned(), self.key.clone());
        object.annotations_mut().insert(labels::IDEMPOTENCY_BODY.to_owned(), self.body.clone());
    }

    /// What this call made when it was made before.
    pub(super) async fn made<K>(&self, api: &Api<K>) -> Result<Option<K>, Error>
    where
        K: Resource + DeserializeOwned + Clone + Debug,
    {
        let found = api.list_metadata(&self.with_key()).await.map_err(|error| fault::of_cluster(error, "earlier call"))?;
        let Some(made) = found.items.iter().find(|made| made.metadata.deletion_timestamp.is_none()) else { return Ok(None) };
        if made.annotations().get(labels::IDEMPOTENCY_BODY) != Some(&self.body) {
            return Err(used(made));
        }
        let name = made.name_any();
        api.get_opt(&name).await.map_err(|error| fault::of_cluster(error, &name))
    }

    /// Takes back what was just made, if another call with this key had made something else by then.
    pub(super) async fn alone<K>(&self, call: &Call, api: &Api<K>, made: &K) -> Result<(), Error>
    where
        K: Resource + DeserializeOwned + Clone + Debug,
    {
        let Some(version) = made.resource_version() else { return Ok(()) };
        let then = self.with_key().at(&version).matching(VersionMatch::Exact);
        let found = api.list_metadata(&then).await.map_err(|error| fault::of_cluster(error, "earlier call"))?;
        let Some(earlier) = before(&found.items, made.uid().as_deref()) else { return Ok(()) };
        tracing::info!(
            name = made.name_any(),
            earlier = earlier.name_any(),
            "one Idempotency-Key for two things: the later one is taken back"
        );
        let preconditions = Preconditions { uid: made.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        // As REST itself: who may make something need not have the right to delete it.
        let request = Request::new(api.resource_url()).delete(&made.name_any(), &parameters).map_err(Error::internal)?;
        match call.context.client.request_text(request).await {
            // What is gone, or is another one of that name by now, needs no taking back.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(fault::of_cluster(error, "later call")),
            Ok(_) => {}
        }
        Err(used(earlier))
    }

    fn with_key(&self) -> ListParams {
        ListParams::default().labels(&format!("{}={}", labels::IDEMPOTENCY_KEY, self.key))
    }
}

/// What was there beside the object with this uid.
fn before<'a, K>(found: &'a [PartialObjectMeta<K>], own: Option<&str>) -> Option<&'a PartialObjectMeta<K>> {
    found.iter().find(|other| other.metadata.uid.as_deref() != own && other.metadata.deletion_timestamp.is_none())
}

fn used(by: &impl ResourceExt) -> Error {
    let message = format!("this Idempotency-Key was used before, with another body, to make {}; use a new key", by.name_any());
    Error::new(StatusCode::CONFLICT, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_caller_key_or_body_is_another_mark() {
        let mark = |caller: &str, key: &str, body: &str| {
            let once = Once::marked(caller, key.as_bytes(), body.as_bytes());
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
