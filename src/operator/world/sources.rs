//! The watches, and which controllers hear of what they tell.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DynamicObject, TypeMeta};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use slipway_api::labels;
use tokio::task::AbortHandle;

use super::child::version;
use super::configured;
use super::kept::{Keep, light};
use super::references::Kind;
use super::{Cache, Child, ChildKind, Folded, Guarded, Kept, Maker, SecretState, World};
use crate::{agent, skill, team, write};
use slipway_cluster::Key;
use slipway_cluster::controller::Requests;
use slipway_cluster::watch::{Heard, follow};

/// Starts every watch. They run until the process ends.
pub fn watch_all(world: &Arc<World>) {
    let scopes = scopes(&world.settings.watch_namespaces);
    for scope in scopes.iter().map(Option::as_deref) {
        source(
            world,
            namespaced(&world.client, scope),
            scope,
            |world| &world.agents,
            Kept::from,
            |world, key| {
                // The Team counts its agents; a second is soon enough, and makes one count of many changes.
                if let Some(slug) = key.namespace.strip_prefix("team-") {
                    world.team_requests.add_after(Key::new("", slug), Duration::from_secs(1));
                }
                world.note_agent(&key);
                world.agent_requests.add(key);
            },
        );
        named(world, scope, Kind::Tool, |world| &world.tools, light, Some(|world| &world.tool_requests));
        named(world, scope, Kind::KnowledgeBase, |world| &world.knowledge_bases, light, None);
        named(world, scope, Kind::Skill, |world| &world.skills, Folded::from, Some(|world| &world.skill_requests));
    }
    source(
        world,
        Api::all(world.client.clone()),
        None,
        |world| &world.teams,
        // Whoever makes Teams may do more than fill a cache.
        |team| team,
        |world, key| {
            requeue_namespace(world, &format!("team-{}", key.name));
            world.team_requests.add(key);
        },
    );
    namespaces(world);
    configured::watch(world);
    for scope in scopes {
        for kind in ChildKind::ALL.into_iter().filter(|kind| !matches!(kind, ChildKind::Namespace | ChildKind::Secret)) {
            children(world, kind, scope.clone());
        }
        pods(world, scope);
    }
}

fn spawn(world: &World, name: String, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    world.tasks.spawn(format!("watch of {name}"), task).abort_handle()
}

fn requeue(requests: &Requests, keys: Vec<Key>) {
    requests.add_all(keys);
}

fn requeue_namespace(world: &World, namespace: &str) {
    for (key, _) in world.agents.in_namespace(namespace) {
        world.agent_requests.add(key);
    }
    for (key, _) in world.skills.in_namespace(namespace) {
        world.skill_requests.add(key);
    }
}

/// What is watched: these namespaces each, or without any all of the cluster.
pub(crate) fn scopes(namespaces: &[String]) -> Vec<Option<String>> {
    match namespaces {
        [] => vec![None],
        some => some.iter().cloned().map(Some).collect(),
    }
}

/// The API of a namespaced kind, in one namespace or in all.
pub(crate) fn namespaced<K>(client: &Client, scope: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match scope {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Watches a kind that agents name. A change goes to the agents that name the object, and to the kind's own
/// controller if it has one.
fn named<K, T>(
    world: &Arc<World>,
    scope: Option<&str>,
    kind: Kind,
    cache: fn(&World) -> &Cache<T>,
    keep: fn(Guarded<K>) -> T,
    own: Option<fn(&World) -> &Requests>,
) where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    T: Keep + 'static,
{
    source(world, namespaced(&world.client, scope), scope, cache, keep, move |world, key| {
        requeue(&world.agent_requests, world.references.to(kind, &key));
        if let Some(requests) = own {
            requests(world).add(key);
        }
    });
}

/// Watches one of our own kinds, of whose objects the cache has what `keep` leaves.
fn source<K, T>(
    world: &Arc<World>,
    api: Api<Guarded<K>>,
    scope: Option<&str>,
    cache: fn(&World) -> &Cache<T>,
    keep: fn(Guarded<K>) -> T,
    changed: impl Fn(&World, Key) + Send + Sync + 'static,
) where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    T: Keep + 'static,
{
    world.sources.expect();
    let (held, scope) = (world.clone(), scope.map(str::to_owned));
    spawn(world, K::plural(&()).into_owned(), async move {
        let world = held;
        let hear = |heard: Heard<Guarded<K>>| match heard {
            Heard::Seen(key, mut object) => {
                object.meta_mut().managed_fields = None;
                let kept = keep(*object);
                if kept.is_readable() {
                    world.told.forget(&K::kind(&()), &key);
                }
                cache(&world).insert(key.clone(), kept);
                changed(&world, key);
            }
            Heard::Gone(key, _) => {
                world.told.forget(&K::kind(&()), &key);
                cache(&world).remove(&key);
                changed(&world, key);
            }
            Heard::Listing => {}
            Heard::Listed(keys) => {
                let gone = cache(&world).retain(scope.as_deref(), &keys);
                for key in gone {
                    world.told.forget(&K::kind(&()), &key);
                    changed(&world, key);
                }
            }
        };
        follow(api, None, Some(&world.sources), hear).await;
    });
}

fn dynamic(world: &World, kind: ChildKind, scope: Option<&str>) -> Api<DynamicObject> {
    write::api(world, kind, scope.unwrap_or_default())
}

/// Watches the namespaces of teams, and the Secrets in each of them.
fn namespaces(world: &Arc<World>) {
    world.sources.expect();
    let held = world.clone();
    spawn(world, "namespaces".to_owned(), async move {
        let world = held;
        let mut secret_watches: HashMap<String, AbortHandle> = HashMap::new();
        let api = dynamic(&world, ChildKind::Namespace, None);
        let hear = |heard: Heard<DynamicObject>| {
            let mut gone = Vec::new();
            match heard {
                Heard::Seen(key, mut object) => {
                    let namespace = key.name.clone();
                    let inside = world.settings.watch_namespaces.is_empty() || world.settings.watch_namespaces.contains(&namespace);
                    see(&world, ChildKind::Namespace, key, &mut object);
                    requeue_namespace(&world, &namespace);
                    if inside {
                        secret_watches.entry(namespace.clone()).or_insert_with(|| secrets(&world, namespace));
                    }
                }
                Heard::Gone(key, object) => {
                    world.children(ChildKind::Namespace).forget(&key, version(&object));
                    request_owner(&world, ChildKind::Namespace, &object);
                    gone.push(key);
                }
                Heard::Listing => {}
                Heard::Listed(keys) => gone = world.children(ChildKind::Namespace).retain(None, &keys),
            }
            for key in gone {
                requeue_namespace(&world, &key.name);
                if let Some(slug) = key.name.strip_prefix("team-") {
                    world.team_requests.add(Key::new("", slug));
                }
                if let Some(watch) = secret_watches.remove(&key.name) {
                    watch.abort();
                }
                world.secrets_known.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.name);
                world.secrets.retain(Some(&key.name), &HashSet::new());
                world.children(ChildKind::Secret).retain(Some(&key.name), &HashSet::new());
            }
        };
        follow(api, Some(labels::TEAM), Some(&world.sources), hear).await;
    });
}

/// Watches the Secrets of one team. The right to do so is given by the Team controller, perhaps only in a moment.
fn secrets(world: &Arc<World>, namespace: String) -> AbortHandle {
    let held = world.clone();
    spawn(world, format!("secrets of {namespace}"), async move {
        let world = held;
        let api = dynamic(&world, ChildKind::Secret, Some(&namespace));
        let hear = |heard: Heard<DynamicObject>| {
            let mut touched = Vec::new();
            match heard {
                Heard::Seen(key, mut object) => {
                    let typed = serde_json::to_value(&*object).and_then(serde_json::from_value::<Secret>);
                    let Ok(secret) = typed else { return };
                    let state = SecretState::of(&secret, &world.settings.secrets_hash_key);
                    let same = world.secrets.insert(key.clone(), state.clone()).is_some_and(|before| *before == state);
                    let labelled = object.labels().get(labels::MANAGED_BY).is_some_and(|by| by == labels::OPERATOR);
                    if labelled || world.children(ChildKind::Secret).get(&key).is_some() {
                        see(&world, ChildKind::Secret, key.clone(), &mut object);
                    }
                    if !same {
                        touched.push(key);
                    }
                }
                Heard::Gone(key, object) => {
                    world.secrets.remove(&key);
                    if world.children(ChildKind::Secret).forget(&key, version(&object)).is_some() {
                        request_owner(&world, ChildKind::Secret, &object);
                    }
                    touched.push(key);
                }
                Heard::Listing => {}
                Heard::Listed(keys) => {
                    touched = world.secrets.retain(Some(&namespace), &keys);
                    world.children(ChildKind::Secret).retain(Some(&namespace), &keys);
                    let first = world.secrets_known.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace.clone());
                    if first {
                        requeue_namespace(&world, &namespace);
                        requeue(&world.tool_requests, tools_with_secrets(&world, &namespace, |_| true));
                    }
                }
            }
            for key in touched {
                requeue(&world.agent_requests, world.references.to(Kind::Secret, &key));
                requeue(&world.tool_requests, tools_with_secrets(&world, &namespace, |name| name == key.name));
            }
        };
        follow(api, None, None, hear).await;
    })
}

/// The Tools of a namespace with a header from a Secret of such a name.
fn tools_with_secrets(world: &World, namespace: &str, is_meant: impl Fn(&str) -> bool) -> Vec<Key> {
    let tools = world.tools.in_namespace(namespace).into_iter();
    let names_one = |tool: &Guarded<slipway_api::Tool>| {
        tool.0.as_ref().is_ok_and(|tool| tool.spec.headers_from.iter().any(|header| is_meant(&header.secret)))
    };
    tools.filter(|(_, tool)| names_one(tool)).map(|(key, _)| key).collect()
}

fn children(world: &Arc<World>, kind: ChildKind, scope: Option<String>) {
    world.made.expect();
    let held = world.clone();
    spawn(world, kind.resource().plural, async move {
        let world = held;
        sources_known(&world).await;
        let selector = format!("{}={}", labels::MANAGED_BY, labels::OPERATOR);
        let api = dynamic(&world, kind, scope.as_deref());
        let hear = |heard: Heard<DynamicObject>| match heard {
            Heard::Seen(key, mut object) => see(&world, kind, key, &mut object),
            Heard::Gone(key, object) => {
                world.children(kind).forget(&key, version(&object));
                request_owner(&world, kind, &object);
            }
            Heard::Listing => {}
            // Whoever owned what is gone finds out at the next resync.
            Heard::Listed(keys) => drop(world.children(kind).retain(scope.as_deref(), &keys)),
        };
        follow(api, Some(&selector), Some(&world.made), hear).await;
    });
}

/// Waits until what children are compared with is known; for Secrets, within reason.
async fn sources_known(world: &World) {
    world.sources.wait().await;
    for _ in 0..50 {
        let namespaces = world.children(ChildKind::Namespace).keys();
        if namespaces.iter().all(|key| world.knows_secrets_of(&key.name)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Takes note of an object of ours that a watch told of, and wakes its owner if that changes anything.
fn see(world: &World, kind: ChildKind, key: Key, object: &mut DynamicObject) {
    note(world, kind, key, object, None);
}

/// Takes note of the API server's answer to a write, after which the object is as `wanted`. Where the watch has been
/// faster and has told of a later change or of the end, that counts, and the answer is no news.
pub(crate) fn heard_back(world: &World, kind: ChildKind, key: Key, object: &mut DynamicObject, wanted: u64) {
    note(world, kind, key, object, Some(wanted));
}

fn note(world: &World, kind: ChildKind, key: Key, object: &mut DynamicObject, answered: Option<u64>) {
    // Items of a list come without their type.
    let resource = kind.resource();
    object.types = Some(TypeMeta { api_version: resource.api_version, kind: resource.kind });
    let cache = world.children(kind);
    let before = cache.get(&key);
    let owner = owner(kind, object);
    // Of what nobody has made there is nothing desired, so that it does not matter who would have written it.
    let manager = owner.as_ref().map_or("", |(maker, _)| maker.manager());
    let wanted = || owner.as_ref().and_then(|(maker, owner)| desired(world, *maker, owner, kind, &key, object));
    let mut child = Child::look(object, before.as_deref(), wanted, manager);
    if let Some(wanted) = answered {
        child = child.known_to_be(wanted);
    }
    let same = before.is_some_and(|before| {
        before.uid == child.uid
            && before.is == child.is
            && child.is.is_some()
            && before.deployment == child.deployment
            && before.deleting == child.deleting
    });
    let (uid, version) = (child.uid.clone(), child.resource_version);
    let replaced = cache.replace(key, child, |present, last_gone| match present {
        Some(present) if present.uid == uid => present.resource_version <= version,
        Some(present) => present.resource_version < version,
        None => answered.is_none() || last_gone < version,
    });
    if replaced && !same {
        request_owner(world, kind, object);
    }
}

fn desired(world: &World, maker: Maker, owner: &Key, kind: ChildKind, key: &Key, live: &DynamicObject) -> Option<serde_json::Value> {
    let found = match maker {
        Maker::Agent => agent::desired(world, owner, kind, &key.name),
        Maker::Skill => skill::desired(world, owner, live),
        Maker::Team => team::desired_child(world, owner, kind, key),
    };
    found.filter(|body| body["metadata"]["name"] == key.name.as_str())
}

/// Who has made an object: its owner, or whom its label names if it lost that.
fn owner(kind: ChildKind, object: &DynamicObject) -> Option<(Maker, Key)> {
    let owned = |maker: &Maker| object.owner_references().iter().find(|owner| owner.kind == maker.kind()).map(|owner| owner.name.clone());
    let labelled = |maker: &Maker| object.labels().get(maker.label()).cloned();
    let makers = || kind.makers().iter();
    let first = makers().find_map(|maker| Some((*maker, owned(maker)?)));
    let (maker, name) = first.or_else(|| makers().find_map(|maker| Some((*maker, labelled(maker)?))))?;
    let namespace = if maker == Maker::Team { String::new() } else { object.namespace().unwrap_or_default() };
    Some((maker, Key::new(namespace, name)))
}

fn request_owner(world: &World, kind: ChildKind, object: &DynamicObject) {
    if let Some((maker, owner)) = owner(kind, object) {
        maker.requests(world).add(owner);
    }
}

fn pods(world: &Arc<World>, scope: Option<String>) {
    world.made.expect();
    let held = world.clone();
    spawn(world, "pods".to_owned(), async move {
        let world = held;
        let api: Api<Pod> = namespaced(&world.client, scope.as_deref());
        let hear = |heard: Heard<Pod>| {
            let touched: Vec<Key> = match heard {
                Heard::Seen(_, pod) => world.pods.seen(&pod).into_iter().collect(),
                Heard::Gone(_, pod) => world.pods.gone(&pod).into_iter().collect(),
                Heard::Listing => Vec::new(),
                Heard::Listed(keys) => world.pods.retain(scope.as_deref(), &keys),
            };
            for agent in &touched {
                world.note_pods(agent);
            }
            requeue(&world.agent_requests, touched);
        };
        follow(api, Some(labels::AGENT), Some(&world.made), hear).await;
    });
}
