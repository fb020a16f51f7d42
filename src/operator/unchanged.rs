//! Statuses whose write changed nothing. Server-side apply cannot take a field out that another manager owns too, so that such a
//! status never becomes what we want; it is not written again before the object or what we want changes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use slipway_cluster::Key;

/// How many objects are remembered. A cluster with more of them writes some again at a resync.
const MAX_OBJECTS: usize = 4096;

/// One write: the version of the object before it, and the hash of the status.
pub(crate) type Write = (String, u64);

#[derive(Default)]
pub(crate) struct UnchangedStatuses(Mutex<HashMap<(String, Key), Write>>);

impl UnchangedStatuses {
    /// Whether this write was made before and changed nothing.
    pub(crate) fn has(&self, kind: &str, key: &Key, write: &Write) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !all.is_empty() && all.get(&(kind.to_owned(), key.clone())) == Some(write)
    }

    pub(crate) fn insert(&self, kind: &str, key: &Key, write: Write) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let about = (kind.to_owned(), key.clone());
        if all.len() >= MAX_OBJECTS && !all.contains_key(&about) {
            all.clear();
        }
        all.insert(about, write);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use slipway_api::Tool;

    use super::*;
    use crate::testing::context_of;

    #[tokio::test]
    async fn a_status_that_cannot_be_had_is_written_once() {
        let tool = |version: &str| -> Tool {
            let metadata = json!({"name": "t", "namespace": "team-a", "resourceVersion": version});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"name": "t", "type": "builtin"}})).unwrap()
        };
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = writes.clone();
        let server = tower::service_fn(move |_: http::Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            // Whatever is applied, another manager's field stays, and with it the version.
            let body = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Tool", "metadata": {"name": "t", "resourceVersion": "7"}});
            std::future::ready(Ok::<_, std::io::Error>(http::Response::new(Body::from(body.to_string().into_bytes()))))
        });
        let context = context_of(Client::new(server, "default"));
        for (object, status, total) in [
            (tool("7"), "Available", 1),
            (tool("7"), "Available", 1),
            (tool("7"), "Error", 2),
            (tool("6"), "Error", 3),
            (tool("6"), "Error", 4),
        ] {
            context.write_status(&object, &json!({"phase": status}), "slipway/tool").await.unwrap();
            assert_eq!(writes.load(Ordering::SeqCst), total, "{status} on {:?}", object.metadata.resource_version);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let unchanged = UnchangedStatuses::default();
        for at in 0..=MAX_OBJECTS {
            unchanged.insert("Tool", &Key::new("team-a", at.to_string()), (String::new(), 0));
        }
        assert!(unchanged.0.lock().unwrap().len() <= MAX_OBJECTS);
    }
}
