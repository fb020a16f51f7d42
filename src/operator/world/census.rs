//! Which agents there are, for those who delete what agents leave behind.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use slipway_api::names::TeamSlug;
use slipway_api::{Agent, Team, ids};
use tokio::time::Instant;

use super::{Guarded, World};
use crate::queue::Key;
use crate::tenancy::rows::Census;

impl World {
    /// Tells whoever deletes rows of an Agent that has gone.
    pub(super) fn note_agent(&self, agent: &Key) {
        if let Some(tenancy) = &self.tenancy
            && self.agents.get(agent).is_none()
        {
            tenancy.departed(&agent.namespace, &agent.name, Instant::now());
        }
    }

    /// The same of its last pod: until then it may still write.
    pub(super) fn note_pods(&self, agent: &Key) {
        if let Some(tenancy) = &self.tenancy
            && !self.pods.has(agent)
            && self.agents.get(agent).is_none()
        {
            tenancy.emptied(&agent.namespace, &agent.name, Instant::now());
        }
    }

    /// The namespace of a team that is there to stay, if we hear of all that is in it.
    fn home(&self, slug: &str) -> Option<String> {
        let team = self.teams.get(&Key::new("", slug))?;
        let lives = team.0.as_ref().is_ok_and(|team| team.meta().deletion_timestamp.is_none());
        let namespace = TeamSlug::new(slug).ok()?.namespace();
        let watched = self.settings.watch_namespaces.is_empty() || self.settings.watch_namespaces.contains(&namespace);
        (lives && watched && self.is_ready() && self.team_of(&namespace).is_some()).then_some(namespace)
    }
}

impl Census for World {
    fn heard(&self, team: &str) -> Option<HashSet<String>> {
        let namespace = self.home(team)?;
        // An object that cannot be read is an Agent all the same.
        let agents = self.agents.in_namespace(&namespace).into_iter().map(|(key, _)| key).chain(self.pods.agents_in(&namespace));
        Some(agents.map(|key| ids::agent(&key.namespace, &key.name)).collect())
    }

    async fn asked(&self, team: &str) -> Option<HashSet<String>> {
        let namespace = self.home(team)?;
        let api: Api<Agent> = Api::namespaced(self.client.clone(), &namespace);
        match api.list_metadata(&ListParams::default()).await {
            Ok(list) => Some(list.items.iter().map(|agent| ids::agent(&namespace, &agent.name_any())).collect()),
            Err(error) => {
                tracing::warn!(team, %error, "which agents there are could not be asked; no rows are deleted until it can");
                None
            }
        }
    }

    fn age(&self, team: &str) -> Duration {
        let team = self.teams.get(&Key::new("", team));
        let created = team.as_deref().and_then(|team: &Guarded<Team>| team.0.as_ref().ok()?.creation_timestamp());
        created.and_then(|created| Duration::try_from(Timestamp::now().duration_since(created.0)).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use kube::Client;
    use kube::api::DynamicObject;
    use kube::client::Body;
    use kube::core::DeserializeGuard;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::agent::tests::settings;
    use crate::database::DatabaseUrl;
    use crate::event::Events;
    use crate::metrics::Metrics;
    use crate::settings::Settings;
    use crate::tenancy::{Tenancy, Wanted};
    use crate::world::ChildKind;
    use crate::world::child::Child;

    fn object<K: DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn team(more: &Value) -> Guarded<Team> {
        let mut whole = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"name": "A"}});
        whole["metadata"].as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        DeserializeGuard(Ok(object(whole)))
    }

    fn agent(name: &str) -> Guarded<Agent> {
        DeserializeGuard(Ok(object(
            json!({"metadata": {"name": name, "namespace": "team-a"}, "spec": {"name": "H", "framework": "custom"}}),
        )))
    }

    /// Team a with its namespace, the agent one, and a pod that the agent two left; the API server knows of three.
    fn world(settings: Settings) -> World {
        let server = tower::service_fn(async |request: Request<Body>| {
            let there = request.uri().path() == "/apis/agents.slipway.dev/v1/namespaces/team-a/agents";
            let item = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "three"}});
            let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": [item]});
            if there { Ok(Response::new(Body::from(list.to_string().into_bytes()))) } else { Err(std::io::Error::other("nothing there")) }
        });
        let client = Client::new(server, "default");
        let tenancy = Tenancy::open(&DatabaseUrl::parse("postgres://u@127.0.0.1:1/d").unwrap(), Wanted::Shared, b"key").unwrap();
        let world = World::new(client.clone(), settings, Some(tenancy), Metrics::default(), Events::new(client, None));
        world.teams.insert(Key::new("", "a"), team(&json!({})));
        let namespace: DynamicObject = object(json!({"metadata": {"name": "team-a", "labels": {"agents.slipway.dev/team": "a"}}}));
        world.children(ChildKind::Namespace).insert(Key::new("", "team-a"), Child::look(&namespace, None, || None, ""));
        world.agents.insert(Key::new("team-a", "one"), agent("one").into());
        world.pods.seen(&pod("two"));
        world
    }

    fn pod(of: &str) -> Pod {
        object(json!({"metadata": {"name": "p", "namespace": "team-a", "labels": {"agents.slipway.dev/agent": of}}}))
    }

    fn ids_of(names: &[&str]) -> HashSet<String> {
        names.iter().map(|name| ids::agent("team-a", name)).collect()
    }

    #[tokio::test]
    async fn agents_count_while_they_or_their_pods_are_there() {
        let world = world(settings(None));
        assert_eq!(world.heard("a"), Some(ids_of(&["one", "two"])));
        assert_eq!(world.asked("a").await, Some(ids_of(&["three"])));
        world.pods.gone(&pod("two"));
        assert_eq!(world.heard("a"), Some(ids_of(&["one"])));
        assert_eq!((world.heard("b"), world.asked("b").await), (None, None));
        assert!(world.age("a") > Duration::from_hours(1) && world.age("b").is_zero());
    }

    #[tokio::test]
    async fn what_is_not_known_for_sure_is_not_told() {
        let elsewhere = world(Settings { watch_namespaces: vec!["team-b".to_owned()], ..settings(None) });
        assert_eq!((elsewhere.heard("a"), elsewhere.asked("a").await), (None, None), "its namespace is not watched");
        let early = world(settings(None));
        early.made.expect();
        assert_eq!(early.heard("a"), None, "not every list has been told");
        let leaving = world(settings(None));
        leaving.teams.insert(Key::new("", "a"), team(&json!({"deletionTimestamp": "2026-01-02T00:00:00Z"})));
        assert_eq!(leaving.heard("a"), None, "its rows go with it");
        let homeless = world(settings(None));
        homeless.children(ChildKind::Namespace).remove(&Key::new("", "team-a"));
        assert_eq!(homeless.heard("a"), None, "the namespace is not there");
    }
}
