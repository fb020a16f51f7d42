//! The kinds by which a Gateway or a mesh is told where requests go. They are other projects': a cluster may have them, get them later
//! or lose them.
//!
//! The definition of each is watched by its name. While there is one, its objects are watched like those of other kinds; when it
//! goes, so does that watch, and the cache is empty. The manager waits for the first word on the definitions, and for no list of
//! objects: a kind that is installed in another version must not keep it from being ready.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PartialObjectMeta};
use slipway_cluster::watch::{WatchEvent, follow_fields};
use tokio::task::AbortHandle;

use crate::caches::ChildKind;
use crate::context::Context;
use crate::registry::Change;
use crate::watches;

/// A definition without what it defines.
type Definition = PartialObjectMeta<CustomResourceDefinition>;

/// Watches the definition of each such kind and, while there is one, its objects in these scopes.
pub(crate) fn watch(context: &Arc<Context>, scopes: &[Option<String>]) {
    for kind in ChildKind::ALL.into_iter().filter(|kind| kind.is_optional()) {
        context.caches.sources.expect();
        let name = definition(kind);
        let (held, named) = (context.clone(), format!("metadata.name={name}"));
        let mut known = Known { kind, scopes: scopes.to_vec(), watches: Vec::new() };
        drop(context.tasks.spawn(format!("watch of {name}"), async move {
            let context = held;
            let api: Api<Definition> = Api::all(context.client.clone());
            let hear = |heard: WatchEvent<Definition>| match heard {
                // One that is being deleted takes its objects with it, and must not be given new ones.
                WatchEvent::Seen(_, definition) => known.note(&context, definition.metadata.deletion_timestamp.is_none()),
                WatchEvent::Gone(..) => known.note(&context, false),
                WatchEvent::Listed(found) if found.is_empty() => known.note(&context, false),
                WatchEvent::Listing | WatchEvent::Listed(_) => {}
            };
            follow_fields(api, &named, Some(&context.caches.sources), hear).await;
        }));
    }
}

/// The name of the definition of a kind.
fn definition(kind: ChildKind) -> String {
    let resource = kind.resource();
    format!("{}.{}", resource.plural, resource.group)
}

/// A kind as it is known, with the watches of its objects.
struct Known {
    kind: ChildKind,
    scopes: Vec<Option<String>>,
    watches: Vec<AbortHandle>,
}

impl Known {
    fn note(&mut self, context: &Arc<Context>, is_there: bool) {
        let was_there = context.caches.has_kind(self.kind);
        if !is_there {
            self.watches.drain(..).for_each(|watch| watch.abort());
        }
        context.caches.know_kind(self.kind, is_there);
        if is_there && self.watches.is_empty() {
            let watched = self.scopes.iter().map(|scope| watches::children(context, self.kind, scope.clone()));
            self.watches = watched.collect();
        }
        if is_there != was_there {
            tracing::info!(kind = %definition(self.kind), is_there, "a kind that requests may be routed by is installed or gone");
        }
        // A definition is served a moment after it was made, and changes once more then.
        if is_there || was_there {
            context.registry.publish(&Change::Kinds);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;
    use slipway_cluster::controller::Phase;
    use slipway_cluster::{Key, Object};
    use tokio::sync::watch;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::caches::child::Child;
    use crate::registry::Registered;
    use crate::testing::context;

    #[derive(Default)]
    struct Listener(Mutex<Vec<Change>>);

    impl Registered for Listener {
        fn changed(&self, change: &Change) {
            self.0.lock().unwrap().push(change.clone());
        }

        fn start(self: Arc<Self>, _: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
            Vec::new()
        }
    }

    #[test]
    fn definitions_have_the_names_that_others_gave_them() {
        let optional = ChildKind::ALL.into_iter().filter(|kind| kind.is_optional());
        assert_eq!(
            optional.map(definition).collect::<Vec<_>>(),
            ["httproutes.gateway.networking.k8s.io", "virtualservices.networking.istio.io", "destinationrules.networking.istio.io"]
        );
    }

    #[tokio::test]
    async fn a_kind_that_goes_takes_its_objects_and_its_watches_along() {
        let (context, listener) = (context(), Arc::new(Listener::default()));
        context.registry.set(vec![listener.clone()]);
        let (kind, key) = (ChildKind::HttpRoute, Key::new("team-a", "helper"));
        let heard = || std::mem::take(&mut *listener.0.lock().unwrap());
        let mut known = Known { kind, scopes: vec![None], watches: Vec::new() };
        assert!(!context.caches.has_kind(kind) && context.caches.has_kind(ChildKind::Service));

        known.note(&context, false);
        assert_eq!(heard(), [], "that there is none is no news at first");
        known.note(&context, true);
        assert!(context.caches.has_kind(kind) && !context.caches.has_kind(ChildKind::VirtualService));
        assert_eq!((heard(), known.watches.len()), (vec![Change::Kinds], 1));
        assert!(context.is_ready(), "nobody waits for the list of its objects");
        known.note(&context, true);
        assert_eq!((heard(), known.watches.len()), (vec![Change::Kinds], 1), "it is served now, and watched already");

        let body = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "helper", "uid": "u"}});
        let object: Object = serde_json::from_value(body).unwrap();
        context.caches.children(kind).insert(key.clone(), Child::look(&object, None, || None, ""));
        let objects = known.watches[0].clone();
        known.note(&context, false);
        assert!(!context.caches.has_kind(kind) && context.caches.children(kind).get(&key).is_none());
        assert_eq!((heard(), known.watches.len()), (vec![Change::Kinds], 0));
        tokio::task::yield_now().await;
        assert!(objects.is_finished(), "its objects are watched no more");
    }
}
