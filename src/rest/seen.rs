//! What of the cluster is known without asking: the shelves that lists are made of, and who is bound in which team.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::core::{ApiResource, DeserializeGuard, NamespaceResourceScope};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use slipway_cluster::Cache;
use slipway_cluster::watch::{Heard, Readiness, follow};

use crate::access::Caller;
use crate::agents;
use crate::bound::Bound;
use crate::shelf::{Item, Shelf, number};
use crate::{skills, teams, tools};

pub(crate) struct Seen {
    /// Only these namespaces are looked at; empty means all.
    namespaces: Vec<String>,
    pub agents: Shelf,
    pub teams: Shelf,
    pub tools: Shelf,
    pub skills: Shelf,
    /// Whom the bindings of teams' namespaces name.
    pub bound: Cache<Bound>,
    ready: Readiness,
}

impl Seen {
    pub(crate) fn new(namespaces: Vec<String>) -> Self {
        Self {
            namespaces,
            agents: Shelf::default(),
            teams: Shelf::default(),
            tools: Shelf::default(),
            skills: Shelf::default(),
            bound: Cache::default(),
            ready: Readiness::default(),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_ready()
    }

    /// Starts every watch. They run until the process ends.
    pub(crate) fn watch(self: &Arc<Self>, client: &Client) {
        let scopes = if self.namespaces.is_empty() { vec![None] } else { self.namespaces.iter().cloned().map(Some).collect() };
        for scope in scopes {
            self.follow(namespaced(client, scope.as_deref()), scope.clone(), |seen| &seen.agents, agents::item);
            self.follow(namespaced(client, scope.as_deref()), scope.clone(), |seen| &seen.tools, tools::item);
            self.follow(namespaced(client, scope.as_deref()), scope.clone(), |seen| &seen.skills, skills::item);
            self.bindings(namespaced(client, scope.as_deref()), scope);
        }
        self.follow(Api::all(client.clone()), None, |seen| &seen.teams, teams::item);
    }

    /// Keeps a shelf as a watch tells.
    fn follow<K>(
        self: &Arc<Self>,
        api: Api<DeserializeGuard<K>>,
        scope: Option<String>,
        part: fn(&Self) -> &Shelf,
        item: fn(&K) -> Option<Item>,
    ) where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
    {
        self.ready.expect();
        part(self).holds(ApiResource::erase::<K>(&()), scope.as_deref());
        let seen = self.clone();
        tokio::spawn(async move {
            let mut filling = Filling { shelf: part(&seen), scope: scope.as_deref(), listing: None };
            follow(api, None, Some(&seen.ready), |heard| filling.hear(heard, item)).await;
        });
    }

    /// The slugs of the teams in whose namespaces a binding names the caller.
    pub(crate) fn bound_to(&self, caller: &Caller) -> Vec<String> {
        let mut slugs: Vec<String> = Vec::new();
        for key in self.bound.keys() {
            let Some(slug) = key.namespace.strip_prefix("team-") else { continue };
            if !slugs.iter().any(|known| known == slug) && self.bound.get(&key).is_some_and(|bound| bound.names(caller)) {
                slugs.push(slug.to_owned());
            }
        }
        slugs
    }

    /// How many members a team has, by its namespace.
    pub(crate) fn members(&self, namespace: &str) -> usize {
        let mut members: Vec<String> = self.bound.in_namespace(namespace).iter().filter_map(|(_, bound)| bound.member.clone()).collect();
        members.sort_unstable();
        members.dedup();
        members.len()
    }

    fn bindings(self: &Arc<Self>, api: Api<RoleBinding>, scope: Option<String>) {
        self.ready.expect();
        let seen = self.clone();
        tokio::spawn(async move {
            let hear = |heard: Heard<RoleBinding>| match heard {
                Heard::Seen(key, binding) if key.namespace.starts_with("team-") => drop(seen.bound.insert(key, Bound::of(*binding))),
                Heard::Seen(..) | Heard::Listing => {}
                Heard::Gone(key, _) => drop(seen.bound.remove(&key)),
                Heard::Listed(keys) => drop(seen.bound.retain(scope.as_deref(), &keys)),
            };
            follow(api, None, Some(&seen.ready), hear).await;
        });
    }
}

/// What one watch does to a shelf.
struct Filling<'a> {
    shelf: &'a Shelf,
    scope: Option<&'a str>,
    /// While a list is read, the newest version in it so far.
    listing: Option<u64>,
}

impl Filling<'_> {
    /// An object that does not fit its schema is not listed; reading it says why.
    fn hear<K: Resource>(&mut self, heard: Heard<DeserializeGuard<K>>, item: fn(&K) -> Option<Item>) {
        match heard {
            Heard::Listing => self.listing = Some(0),
            Heard::Seen(key, object) => {
                let version = version(&*object);
                self.shelf.note(&key, version);
                match object.0.ok().as_ref().and_then(item) {
                    Some(item) => self.shelf.put(&key, Item { version, ..item }),
                    None => self.shelf.take(&key),
                }
                self.reach(version);
            }
            Heard::Gone(key, object) => {
                self.shelf.forget(&key);
                self.reach(version(&*object));
            }
            Heard::Listed(keys) => {
                self.shelf.keep(self.scope, &keys);
                if let Some(newest) = self.listing.take() {
                    self.shelf.reach(self.scope, newest);
                }
            }
        }
    }

    /// A list is in the order of names: what is older than something in it may be yet to come.
    fn reach(&mut self, version: u64) {
        match &mut self.listing {
            Some(newest) => *newest = version.max(*newest),
            None => self.shelf.reach(self.scope, version),
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
    number(object.meta().resource_version.as_deref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slipway_api::Agent;
    use slipway_cluster::Key;

    use super::*;

    fn seen(name: &str, version: u64) -> Heard<DeserializeGuard<Agent>> {
        let metadata = json!({"name": name, "namespace": "team-a", "resourceVersion": version.to_string()});
        let agent: Agent = serde_json::from_value(json!({"metadata": metadata, "spec": {"name": name, "framework": "custom"}})).unwrap();
        Heard::Seen(Key::new("team-a", name), Box::new(DeserializeGuard(Ok(agent))))
    }

    #[test]
    fn a_list_is_as_new_as_the_newest_in_it_once_it_has_ended_and_no_sooner() {
        let shelf = Shelf::default();
        let mut filling = Filling { shelf: &shelf, scope: None, listing: None };
        let mut hear = |heard| {
            filling.hear(heard, agents::item);
            shelf.reached().borrow().of("team-a")
        };
        // Both changed while nothing was heard, the second one first.
        assert_eq!(hear(seen("b", 5)), 5);
        assert_eq!(hear(Heard::Listing), 5);
        assert_eq!(hear(seen("a", 9)), 5);
        assert_eq!(hear(seen("b", 8)), 5);
        assert_eq!(hear(Heard::Listed(["a", "b"].map(|name| Key::new("team-a", name)).into())), 9);
        assert_eq!(hear(seen("b", 10)), 10);
        assert_eq!(shelf.get(&Key::new("team-a", "b")).unwrap().version, 10);
    }
}
