//! The watches: each fills a cache and publishes what has changed.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::Api;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use slipway_api::{labels, platform};
use slipway_cluster::cached::Cached;
use slipway_cluster::references::Kind;
use slipway_cluster::watch::{WatchEvent, follow, namespaced};
use slipway_cluster::{Cache, Guarded, Key, Object};
use tokio::task::AbortHandle;

use crate::caches::child::{Child, version};
use crate::caches::secret::SecretState;
use crate::caches::{Caches, ChildKind};
use crate::children;
use crate::context::Context;
use crate::registry::Change;

fn spawn(context: &Context, name: &str, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    context.tasks.spawn(format!("watch of {name}"), task).abort_handle()
}

/// Watches one of our own kinds, of whose objects the cache has what `cached` leaves.
pub(crate) fn objects<K, T>(
    context: &Arc<Context>,
    api: Api<Guarded<K>>,
    scope: Option<&str>,
    cache: fn(&Caches) -> &Cache<T>,
    cached: fn(Guarded<K>) -> T,
) where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    T: Cached + 'static,
{
    context.caches.sources.expect();
    let (held, scope) = (context.clone(), scope.map(str::to_owned));
    spawn(context, &K::plural(&()), async move {
        let (context, kind) = (held, Kind::of::<K>());
        let cache = cache(&context.caches);
        let changed = |key: Key| context.registry.publish(&Change::Object(kind, key));
        let hear = |heard: WatchEvent<Guarded<K>>| match heard {
            WatchEvent::Seen(key, mut object) => {
                object.meta_mut().managed_fields = None;
                let cached = cached(*object);
                if cached.is_readable() {
                    context.reported.forget(&K::kind(&()), &key);
                }
                cache.insert(key.clone(), cached);
                changed(key);
            }
            WatchEvent::Gone(key, _) => {
                context.reported.forget(&K::kind(&()), &key);
                cache.remove(&key);
                changed(key);
            }
            WatchEvent::Listing => {}
            WatchEvent::Listed(keys) => {
                for key in cache.retain(scope.as_deref(), &keys) {
                    context.reported.forget(&K::kind(&()), &key);
                    changed(key);
                }
            }
        };
        follow(api, None, Some(&context.caches.sources), hear).await;
    });
}

fn dynamic(context: &Context, kind: ChildKind, scope: Option<&str>) -> Api<Object> {
    children::api(context, kind, scope.unwrap_or_default())
}

/// Watches the namespaces of teams, and the Secrets in each of them.
pub(crate) fn namespaces(context: &Arc<Context>) {
    context.caches.sources.expect();
    let held = context.clone();
    spawn(context, "namespaces", async move {
        let context = held;
        let mut secret_watches: HashMap<String, AbortHandle> = HashMap::new();
        let api = dynamic(&context, ChildKind::Namespace, None);
        let children = context.caches.children(ChildKind::Namespace);
        let changed = |namespace: &str| context.registry.publish(&Change::Namespace(namespace.to_owned()));
        let hear = |heard: WatchEvent<Object>| {
            let mut gone = Vec::new();
            match heard {
                WatchEvent::Seen(key, mut object) => {
                    let namespace = key.name.clone();
                    let watched = &context.settings.watch_namespaces;
                    let inside = watched.is_empty() || watched.contains(&namespace);
                    note(&context, ChildKind::Namespace, key, &mut object);
                    changed(&namespace);
                    if inside {
                        secret_watches.entry(namespace.clone()).or_insert_with(|| secrets(&context, namespace));
                    }
                }
                WatchEvent::Gone(key, object) => {
                    children.forget(&key, version(&object));
                    tell_owner(&context, ChildKind::Namespace, &object);
                    gone.push(key);
                }
                WatchEvent::Listing => {}
                WatchEvent::Listed(keys) => gone = children.retain(None, &keys),
            }
            for key in gone {
                changed(&key.name);
                if let Some(watch) = secret_watches.remove(&key.name) {
                    watch.abort();
                }
                context.caches.forget_secrets_of(&key.name);
            }
        };
        follow(api, Some(labels::TEAM), Some(&context.caches.sources), hear).await;
    });
}

/// Watches the Secrets of one team. The right to do so is given by the Team controller, perhaps only in a moment.
fn secrets(context: &Arc<Context>, namespace: String) -> AbortHandle {
    let held = context.clone();
    spawn(context, &format!("secrets of {namespace}"), async move {
        let context = held;
        let (caches, children) = (&context.caches, context.caches.children(ChildKind::Secret));
        let api = dynamic(&context, ChildKind::Secret, Some(&namespace));
        let changed = |key: Key| context.registry.publish(&Change::Object(Kind::of::<Secret>(), key));
        let hear = |heard: WatchEvent<Object>| match heard {
            WatchEvent::Seen(key, mut object) => {
                let typed = serde_json::to_value(&*object).and_then(serde_json::from_value::<Secret>);
                let Ok(secret) = typed else { return };
                let state = SecretState::of(&secret, &context.settings.secrets_hash_key);
                let same = caches.secrets.insert(key.clone(), state.clone()).is_some_and(|before| *before == state);
                let labelled = object.labels().get(labels::MANAGED_BY).is_some_and(|by| by == labels::OPERATOR);
                if labelled || children.get(&key).is_some() {
                    note(&context, ChildKind::Secret, key.clone(), &mut object);
                }
                if !same {
                    changed(key);
                }
            }
            WatchEvent::Gone(key, object) => {
                caches.secrets.remove(&key);
                if children.forget(&key, version(&object)).is_some() {
                    tell_owner(&context, ChildKind::Secret, &object);
                }
                changed(key);
            }
            WatchEvent::Listing => {}
            WatchEvent::Listed(keys) => {
                let gone = caches.secrets.retain(Some(&namespace), &keys);
                // A list comes late where the right to it does, and a Secret may have gone meanwhile without an event.
                if !children.retain(Some(&namespace), &keys).is_empty() {
                    context.registry.publish(&Change::Namespace(namespace.clone()));
                }
                if caches.know_secrets_of(&namespace) {
                    context.registry.publish(&Change::SecretsRead(namespace.clone()));
                }
                gone.into_iter().for_each(changed);
            }
        };
        follow(api, None, None, hear).await;
    })
}

/// Watches the ConfigMap with what of the platform's configuration was changed since it was installed. Agents wait for the
/// first word on it, so that none is rolled out twice.
pub(crate) fn platform(context: &Arc<Context>) {
    context.caches.sources.expect();
    let held = context.clone();
    spawn(context, "the platform's configuration", async move {
        let context = held;
        let config = &context.caches.platform;
        let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &context.settings.platform_namespace);
        let hear = |heard: WatchEvent<ConfigMap>| {
            let changed = match heard {
                WatchEvent::Seen(key, found) if key.name == platform::NAME => config.note(Some(&found)),
                WatchEvent::Gone(key, _) if key.name == platform::NAME => config.note(None),
                WatchEvent::Listed(keys) if !keys.iter().any(|key| key.name == platform::NAME) => config.note(None),
                _ => false,
            };
            if changed {
                tracing::info!(mlflow_uri = ?context.mlflow_uri(), "the platform's configuration has changed");
                context.registry.publish(&Change::Platform);
            }
        };
        follow(api, None, Some(&context.caches.sources), hear).await;
    });
}

/// Nobody waits for the first list of a kind that the cluster may lose.
pub(crate) fn children(context: &Arc<Context>, kind: ChildKind, scope: Option<String>) -> AbortHandle {
    if !kind.is_optional() {
        context.caches.made.expect();
    }
    let held = context.clone();
    spawn(context, &kind.resource().plural, async move {
        let context = held;
        sources_known(&context.caches).await;
        let selector = format!("{}={}", labels::MANAGED_BY, labels::OPERATOR);
        let api = dynamic(&context, kind, scope.as_deref());
        let cache = context.caches.children(kind);
        let hear = |heard: WatchEvent<Object>| match heard {
            WatchEvent::Seen(key, mut object) => note(&context, kind, key, &mut object),
            WatchEvent::Gone(key, object) => {
                cache.forget(&key, version(&object));
                tell_owner(&context, kind, &object);
            }
            WatchEvent::Listing => {}
            // The owner of a child that is gone finds out at the next resync.
            WatchEvent::Listed(keys) => drop(cache.retain(scope.as_deref(), &keys)),
        };
        let readiness = Some(&context.caches.made).filter(|_| !kind.is_optional());
        follow(api, Some(&selector), readiness, hear).await;
    })
}

/// Waits until what children are compared with is known; for Secrets, within reason.
async fn sources_known(caches: &Caches) {
    caches.sources.wait().await;
    for _ in 0..500 {
        let namespaces = caches.children(ChildKind::Namespace).keys();
        if namespaces.iter().all(|key| caches.knows_secrets_of(&key.name)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Takes note of an object of ours that a watch told of, and tells its owner if that changes anything.
fn note(context: &Context, kind: ChildKind, key: Key, object: &mut Object) {
    // Items of a list come without their type.
    object.types = Some(kind.types());
    let cache = context.caches.children(kind);
    let before = cache.get(&key);
    let owner = context.registry.owner(kind, object);
    // Of what nobody has made there is nothing desired, so that it does not matter who would have written it.
    let manager = owner.as_ref().map_or("", |(_, maker, _)| maker.manager);
    if let Some((registered, _, owner)) = &owner {
        registered.found(owner, kind, &key.name);
    }
    // A panic here would end every replica. The reconcile of the owner builds the same, and fails alone.
    let desired = || {
        let (registered, _, owner) = owner.as_ref()?;
        let body = catch_unwind(AssertUnwindSafe(|| registered.desired(owner, kind, object))).ok().flatten();
        body.filter(|body| children::name(body) == key.name)
    };
    let child = Child::look(object, before.as_deref(), desired, manager);
    let same = before.is_some_and(|before| {
        before.uid == child.uid
            && before.matches_hash == child.matches_hash
            && child.matches_hash.is_some()
            && before.deployment == child.deployment
            && before.route == child.route
            && before.deleting == child.deleting
    });
    let (uid, version) = (child.uid.clone(), child.resource_version);
    let replaced = cache.replace(key, child, |present, _| match present {
        Some(present) if present.uid == uid => present.resource_version <= version,
        Some(present) => present.resource_version < version,
        None => true,
    });
    if replaced && !same {
        tell_owner(context, kind, object);
    }
}

fn tell_owner(context: &Context, kind: ChildKind, object: &Object) {
    if let Some((_, maker, owner)) = context.registry.owner(kind, object) {
        context.registry.publish(&Change::Child(maker.kind, owner));
    }
}

pub(crate) fn pods(context: &Arc<Context>, scope: Option<String>) {
    context.caches.made.expect();
    let held = context.clone();
    spawn(context, "pods", async move {
        let context = held;
        let pods = &context.caches.pods;
        let api: Api<Pod> = namespaced(&context.client, scope.as_deref());
        let hear = |heard: WatchEvent<Pod>| {
            let touched: BTreeSet<Key> = match heard {
                WatchEvent::Seen(_, pod) => pods.seen(&pod).into_iter().collect(),
                WatchEvent::Gone(_, pod) => pods.gone(&pod).into_iter().collect(),
                WatchEvent::Listing => BTreeSet::new(),
                WatchEvent::Listed(keys) => pods.retain(scope.as_deref(), &keys),
            };
            for agent in touched {
                context.registry.publish(&Change::Pods(agent));
            }
        };
        follow(api, Some(labels::AGENT), Some(&context.caches.made), hear).await;
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};
    use slipway_cluster::controller::Phase;
    use slipway_cluster::json::hash;
    use tokio::sync::watch;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::registry::{Maker, Registered};
    use crate::testing::context;

    const MAKER: Maker =
        Maker { kind: "Agent", label: labels::AGENT, manager: "slipway/agent", children: &[ChildKind::ConfigMap], is_namespaced: true };

    /// Notes what it hears, and how often it is asked what a child should be.
    #[derive(Default)]
    struct Listener {
        heard: Mutex<Vec<Change>>,
        built: Mutex<usize>,
    }

    impl Registered for Listener {
        fn changed(&self, change: &Change) {
            self.heard.lock().unwrap().push(change.clone());
        }

        fn maker(&self) -> Option<&'static Maker> {
            Some(&MAKER)
        }

        fn desired(&self, _: &Key, _: ChildKind, _: &Object) -> Option<Value> {
            *self.built.lock().unwrap() += 1;
            Some(desired())
        }

        fn start(self: Arc<Self>, _: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
            Vec::new()
        }
    }

    fn desired() -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a-config"}, "data": {"A": "1"}})
    }

    fn live(version: u64, data: &Value) -> Object {
        let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "name": "a", "uid": "u", "controller": true});
        let metadata = json!({"name": "a-config", "namespace": "team-a", "uid": "c", "resourceVersion": version.to_string(), "ownerReferences": [owner]});
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})).unwrap()
    }

    #[tokio::test]
    async fn after_a_write_nothing_is_built_again_until_somebody_changes_it() {
        let (context, listener) = (context(), Arc::new(Listener::default()));
        context.registry.set(vec![listener.clone()]);
        let (key, kind) = (Key::new("team-a", "a-config"), ChildKind::ConfigMap);
        let matches = || context.caches.children(kind).get(&key).unwrap().matches_hash;
        children::written(&context, kind, key.clone(), &mut live(2, &json!({"A": "1"})), hash(&desired()));
        note(&context, kind, key.clone(), &mut live(2, &json!({"A": "1"})));
        assert_eq!((matches(), *listener.built.lock().unwrap()), (Some(hash(&desired())), 0));
        assert_eq!(*listener.heard.lock().unwrap(), [], "what the watch tells of a write is no news");

        note(&context, kind, key.clone(), &mut live(3, &json!({"A": "2"})));
        assert_eq!((matches(), *listener.built.lock().unwrap()), (None, 1));
        assert_eq!(*listener.heard.lock().unwrap(), [Change::Child("Agent", Key::new("team-a", "a"))]);

        children::written(&context, kind, key.clone(), &mut live(1, &json!({"A": "1"})), hash(&desired()));
        assert_eq!(matches(), None, "an answer that is older than what the watch told is no news either");
    }
}
