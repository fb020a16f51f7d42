//! The caches: list caches by kind, and the role bindings of teams.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::core::{ApiResource, NamespaceResourceScope};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use slipway_cluster::watch::{Readiness, WatchEvent, follow};
use slipway_cluster::{Cache, Guarded, Tasks};

use crate::access::Caller;
use crate::agents;
use crate::list_cache::{ListCache, ListEntry, parse_version};
use crate::team_bindings::TeamBinding;
use crate::{datasets, evaluations, governance, integrations, knowledge, skills, teams, tools};

pub(crate) struct Caches {
    /// The namespaces to watch; empty means all.
    namespaces: Vec<String>,
    pub agents: ListCache<agents::AgentState>,
    pub teams: ListCache<teams::View>,
    pub tools: ListCache,
    pub skills: ListCache,
    pub datasets: ListCache<datasets::Purpose>,
    pub evaluations: ListCache<evaluations::RunState>,
    pub knowledge_bases: ListCache,
    pub ingestions: ListCache<knowledge::JobState>,
    pub integrations: ListCache<integrations::IntegrationState>,
    pub policies: ListCache,
    /// The RoleBindings in the namespaces of teams.
    pub team_bindings: Cache<TeamBinding>,
    ready: Readiness,
}

impl Caches {
    pub(crate) fn new(namespaces: Vec<String>) -> Self {
        Self {
            namespaces,
            agents: ListCache::default(),
            teams: ListCache::default(),
            tools: ListCache::default(),
            skills: ListCache::default(),
            datasets: ListCache::default(),
            evaluations: ListCache::default(),
            knowledge_bases: ListCache::default(),
            ingestions: ListCache::default(),
            integrations: ListCache::default(),
            policies: ListCache::default(),
            team_bindings: Cache::default(),
            ready: Readiness::default(),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_ready()
    }

    /// Starts all watches. They run until the process ends; one that ends sooner fails the process.
    pub(crate) fn watch(self: &Arc<Self>, client: &Client, tasks: &Tasks) {
        let scopes = if self.namespaces.is_empty() { vec![None] } else { self.namespaces.iter().cloned().map(Some).collect() };
        for scope in scopes {
            self.follow(tasks, namespaced(client, scope.as_deref()), scope.clone(), |caches| &caches.agents, agents::item);
            self.follow(tasks, namespaced(client, scope.as_deref()), scope.clone(), |caches| &caches.tools, tools::item);
            self.follow(tasks, namespaced(client, scope.as_deref()), scope.clone(), |caches| &caches.skills, skills::item);
            self.follow(tasks, namespaced(client, scope.as_deref()), scope.clone(), |caches| &caches.datasets, datasets::item);
            self.follow(tasks, namespaced(client, scope.as_deref()), scope.clone(), |caches| &caches.evaluations, evaluations::item);
            self.follow(tasks, namespaced(client, scope.as_deref()), scope.clone(), |caches| &caches.knowledge_bases, knowledge::item);
            self.follow(tasks, namespaced(client, scope.as_deref()), scope.clone(), |caches| &caches.ingestions, knowledge::job_item);
            self.follow(tasks, namespaced(client, scope.as_deref()), scope.clone(), |caches| &caches.integrations, integrations::item);
            self.follow(tasks, namespaced(client, scope.as_deref()), scope.clone(), |caches| &caches.policies, governance::item);
            self.bindings(tasks, namespaced(client, scope.as_deref()), scope);
        }
        self.follow(tasks, Api::all(client.clone()), None, |caches| &caches.teams, |team| Some(teams::item(team)));
    }

    /// Fills a list cache from a watch.
    fn follow<K, T>(
        self: &Arc<Self>,
        tasks: &Tasks,
        api: Api<Guarded<K>>,
        scope: Option<String>,
        part: fn(&Self) -> &ListCache<T>,
        item: fn(&K) -> Option<ListEntry<T>>,
    ) where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
        T: Send + Sync + 'static,
    {
        self.ready.expect();
        part(self).set_source(ApiResource::erase::<K>(&()), scope.as_deref());
        let caches = self.clone();
        tasks.spawn(format!("watch of {}", K::plural(&())), async move {
            let mut updater = CacheUpdater { cache: part(&caches), scope: scope.as_deref(), listing: None };
            follow(api, None, Some(&caches.ready), |heard| updater.hear(heard, item)).await;
        });
    }

    /// The slugs of the teams in which a binding names the caller.
    pub(crate) fn teams_bound_to(&self, caller: &Caller) -> Vec<String> {
        let mut slugs: Vec<String> = Vec::new();
        for key in self.team_bindings.keys() {
            let Some(slug) = key.namespace.strip_prefix("team-") else { continue };
            if !slugs.iter().any(|known| known == slug) && self.team_bindings.get(&key).is_some_and(|bound| bound.names(caller)) {
                slugs.push(slug.to_owned());
            }
        }
        slugs
    }

    /// The number of members of a team, by its namespace.
    pub(crate) fn members(&self, namespace: &str) -> usize {
        let mut members: Vec<String> =
            self.team_bindings.in_namespace(namespace).iter().filter_map(|(_, bound)| bound.member.clone()).collect();
        members.sort_unstable();
        members.dedup();
        members.len()
    }

    fn bindings(self: &Arc<Self>, tasks: &Tasks, api: Api<RoleBinding>, scope: Option<String>) {
        self.ready.expect();
        let caches = self.clone();
        tasks.spawn("watch of rolebindings", async move {
            let hear = |heard: WatchEvent<RoleBinding>| match heard {
                WatchEvent::Seen(key, binding) if key.namespace.starts_with("team-") => {
                    drop(caches.team_bindings.insert(key, TeamBinding::of(*binding)));
                }
                WatchEvent::Seen(..) | WatchEvent::Listing => {}
                WatchEvent::Gone(key, _) => drop(caches.team_bindings.remove(&key)),
                WatchEvent::Listed(keys) => drop(caches.team_bindings.retain(scope.as_deref(), &keys)),
            };
            follow(api, None, Some(&caches.ready), hear).await;
        });
    }
}

/// Applies the events of one watch to a list cache.
struct CacheUpdater<'a, T> {
    cache: &'a ListCache<T>,
    scope: Option<&'a str>,
    /// During a list: the newest version in it so far.
    listing: Option<u64>,
}

impl<T> CacheUpdater<'_, T> {
    /// An object that does not fit its schema is not listed; a read of it reports why.
    fn hear<K: Resource>(&mut self, heard: WatchEvent<Guarded<K>>, item: fn(&K) -> Option<ListEntry<T>>) {
        match heard {
            WatchEvent::Listing => self.listing = Some(0),
            WatchEvent::Seen(key, object) => {
                let version = version(&*object);
                self.cache.set_version(&key, version);
                match object.0.ok().as_ref().and_then(item) {
                    Some(item) => self.cache.insert(&key, ListEntry { version, ..item }),
                    None => self.cache.remove(&key),
                }
                self.observe(version);
            }
            WatchEvent::Gone(key, object) => {
                self.cache.forget(&key);
                self.observe(version(&*object));
            }
            WatchEvent::Listed(keys) => {
                self.cache.retain(self.scope, &keys);
                if let Some(newest) = self.listing.take() {
                    self.cache.observe(self.scope, newest);
                }
            }
        }
    }

    /// A list is ordered by name: older versions may still follow.
    fn observe(&mut self, version: u64) {
        match &mut self.listing {
            Some(newest) => *newest = version.max(*newest),
            None => self.cache.observe(self.scope, version),
        }
    }
}

fn namespaced<K>(client: &Client, scope: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match scope {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn version(object: &impl ResourceExt) -> u64 {
    parse_version(object.meta().resource_version.as_deref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slipway_api::Agent;
    use slipway_cluster::Key;

    use super::*;

    fn seen(name: &str, version: u64) -> WatchEvent<Guarded<Agent>> {
        let metadata = json!({"name": name, "namespace": "team-a", "resourceVersion": version.to_string()});
        let agent: Agent = serde_json::from_value(json!({"metadata": metadata, "spec": {"name": name, "framework": "custom"}})).unwrap();
        WatchEvent::Seen(Key::new("team-a", name), Box::new(Guarded(Ok(agent))))
    }

    #[test]
    fn a_list_is_as_new_as_the_newest_in_it_once_it_has_ended_and_no_sooner() {
        let cache = ListCache::default();
        let mut updater = CacheUpdater { cache: &cache, scope: None, listing: None };
        let mut hear = |heard| {
            updater.hear(heard, agents::item);
            cache.observed().borrow().of("team-a")
        };
        // Both changed while the watch was down, the second one first.
        assert_eq!(hear(seen("b", 5)), 5);
        assert_eq!(hear(WatchEvent::Listing), 5);
        assert_eq!(hear(seen("a", 9)), 5);
        assert_eq!(hear(seen("b", 8)), 5);
        assert_eq!(hear(WatchEvent::Listed(["a", "b"].map(|name| Key::new("team-a", name)).into())), 9);
        assert_eq!(hear(seen("b", 10)), 10);
        assert_eq!(cache.get(&Key::new("team-a", "b")).unwrap().version, 10);
    }
}
