//! The list of all Agents, for the deletion of what agents leave behind.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, ObjectMeta};
use kube::{Resource, ResourceExt};
use slipway_api::names::TeamSlug;
use slipway_api::{Agent, Team, ids};
use slipway_cluster::list;
use slipway_cluster::{Guarded, Key};

use crate::admission::{holder, home_of};
use crate::context::Context;
use crate::tenancy::rows::{Census, Roll};

/// The Agents and Teams that there are.
pub(super) struct CachedCensus<'a>(pub &'a Context);

impl CachedCensus<'_> {
    /// The namespace of a team that is there to stay, if we hear of all that is in it.
    fn home(&self, slug: &str) -> Option<String> {
        let team = self.0.caches.teams.get(&Key::new("", slug))?;
        let lives = team.0.as_ref().is_ok_and(|team| team.meta().deletion_timestamp.is_none());
        let namespace = TeamSlug::new(slug).ok()?.namespace();
        let watched = self.0.settings.watch_namespaces.is_empty() || self.0.settings.watch_namespaces.contains(&namespace);
        (lives && watched && self.0.caches.is_ready() && self.0.caches.team_of(&namespace).is_some()).then_some(namespace)
    }
}

impl Census for CachedCensus<'_> {
    fn heard(&self, team: &str) -> Option<Roll> {
        let namespace = self.home(team)?;
        let home = home_of(self.0, team)?;
        // An object that cannot be read is an Agent all the same, and so is a pod that an Agent left.
        let read = |key: &Key| self.0.caches.agents.get(key).and_then(|cached| holder(self.0, key, &cached.agent().ok()?));
        let keys =
            self.0.caches.agents.in_namespace(&namespace).into_iter().map(|(key, _)| key).chain(self.0.caches.pods.agents_in(&namespace));
        Some(Roll { home, agents: keys.map(|key| (ids::agent(&key.namespace, &key.name), read(&key))).collect() })
    }

    async fn asked(&self, team: &str) -> Option<HashMap<String, String>> {
        let namespace = self.home(team)?;
        let api: Api<Agent> = Api::namespaced(self.0.client.clone(), &namespace);
        let named =
            |agent: &ObjectMeta| (ids::agent(&namespace, agent.name.as_deref().unwrap_or_default()), agent.uid.clone().unwrap_or_default());
        match list::metadata(&api, named).await {
            Ok(found) => Some(found.into_iter().collect()),
            Err(error) => {
                tracing::warn!(team, %error, "which agents there are could not be asked; no rows are deleted until it can");
                None
            }
        }
    }

    fn teams(&self) -> Option<HashSet<String>> {
        self.0.caches.is_ready().then(|| self.0.caches.teams.keys().into_iter().map(|key| ids::team(&key.name)).collect())
    }

    async fn asked_teams(&self) -> Option<HashSet<String>> {
        let api: Api<Team> = Api::all(self.0.client.clone());
        match list::metadata(&api, |team| ids::team(team.name.as_deref().unwrap_or_default())).await {
            Ok(teams) => Some(teams.into_iter().collect()),
            Err(error) => {
                tracing::warn!(%error, "which Teams there are could not be asked; no rows are deleted until it can");
                None
            }
        }
    }

    fn age(&self, team: &str) -> Duration {
        let team = self.0.caches.teams.get(&Key::new("", team));
        let created = team.as_deref().and_then(|team: &Guarded<Team>| team.0.as_ref().ok()?.creation_timestamp());
        created.and_then(|created| Duration::try_from(Timestamp::now().duration_since(created.0)).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use kube::Client;
    use kube::client::Body;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};
    use slipway_cluster::event::Events;
    use slipway_cluster::{Object, Tasks};

    use super::*;
    use crate::caches::ChildKind;
    use crate::caches::child::Child;
    use crate::database::DatabaseUrl;
    use crate::metrics::Metrics;
    use crate::settings::Settings;
    use crate::tenancy::{Tenancy, Wanted};
    use crate::testing::settings;

    fn object<K: DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn team(more: &Value) -> Guarded<Team> {
        let mut whole =
            json!({"metadata": {"name": "a", "uid": "uid-of-a", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"name": "A"}});
        whole["metadata"].as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        Guarded(Ok(object(whole)))
    }

    fn agent(name: &str) -> Guarded<Agent> {
        Guarded(Ok(object(
            json!({"metadata": {"name": name, "namespace": "team-a", "uid": format!("uid-of-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"agents.slipway.dev/adopt": "an-earlier-one"}}, "spec": {"name": "H", "framework": "custom"}}),
        )))
    }

    /// Team a with its namespace, the agent one, and a pod that the agent two left; the API server knows of three.
    fn context(settings: Settings) -> Context {
        let server = tower::service_fn(async |request: Request<Body>| {
            let there = request.uri().path() == "/apis/agents.slipway.dev/v1/namespaces/team-a/agents";
            let item = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "three", "uid": "uid-of-three"}});
            let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": [item]});
            if there { Ok(Response::new(Body::from(list.to_string().into_bytes()))) } else { Err(std::io::Error::other("nothing there")) }
        });
        let client = Client::new(server, "default");
        let tenancy = Tenancy::open(&DatabaseUrl::parse("postgres://u@127.0.0.1:1/d").unwrap(), Wanted::Shared, b"key").unwrap();
        let context =
            Context::new(client.clone(), settings, Some(tenancy), Metrics::default(), Events::new(client, None), Tasks::default());
        context.caches.teams.insert(Key::new("", "a"), team(&json!({})));
        let namespace: Object = object(json!({"metadata": {"name": "team-a", "labels": {"agents.slipway.dev/team": "a"}}}));
        context.caches.children(ChildKind::Namespace).insert(Key::new("", "team-a"), Child::look(&namespace, None, || None, ""));
        context.caches.agents.insert(Key::new("team-a", "one"), agent("one").into());
        context.caches.pods.seen(&pod("two"));
        context
    }

    fn pod(of: &str) -> Pod {
        object(json!({"metadata": {"name": "p", "namespace": "team-a", "labels": {"agents.slipway.dev/agent": of}}}))
    }

    /// The ids of the agents that are heard of.
    fn heard(context: &Context) -> Option<HashSet<String>> {
        CachedCensus(context).heard("a").map(|roll| roll.agents.into_keys().collect())
    }

    fn ids_of(names: &[&str]) -> HashSet<String> {
        names.iter().map(|name| ids::agent("team-a", name)).collect()
    }

    #[tokio::test]
    async fn agents_count_while_they_or_their_pods_are_there() {
        let context = context(settings(None));
        assert_eq!(heard(&context), Some(ids_of(&["one", "two"])));
        let asked = HashMap::from([(ids::agent("team-a", "three"), "uid-of-three".to_owned())]);
        assert_eq!(CachedCensus(&context).asked("a").await, Some(asked));
        context.caches.pods.gone(&pod("two"));
        assert_eq!(heard(&context), Some(ids_of(&["one"])));
        assert!(CachedCensus(&context).heard("b").is_none() && CachedCensus(&context).asked("b").await.is_none());
        assert!(CachedCensus(&context).age("a") > Duration::from_hours(1) && CachedCensus(&context).age("b").is_zero());
        assert_eq!(CachedCensus(&context).teams(), Some(HashSet::from([ids::team("a")])));
        assert_eq!(CachedCensus(&context).asked_teams().await, None, "this server does not tell");
    }

    #[tokio::test]
    async fn an_agent_is_alone_when_no_pod_of_an_earlier_one_is_left() {
        let context = context(settings(None));
        let id = ids::agent("team-a", "one");
        let holder = || CachedCensus(&context).heard("a").unwrap().agents[&id].clone().unwrap();
        assert_eq!((holder().uid.as_str(), holder().adopts.as_deref(), holder().alone), ("uid-of-one", Some("an-earlier-one"), true));
        context.caches.pods.seen(&pod("one"));
        assert!(!holder().alone, "it has no Deployment yet, so that the pod is not its own");
        let deployment = |owner: &str| -> Object {
            object(json!({"metadata": {"name": "one", "namespace": "team-a",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Agent", "name": "one", "uid": owner, "controller": true}]}, "spec": {"replicas": 1}}))
        };
        let there = |owner| {
            context
                .caches
                .children(ChildKind::Deployment)
                .insert(Key::new("team-a", "one"), Child::look(&deployment(owner), None, || None, ""))
        };
        there("uid-of-one");
        assert!(!holder().alone, "a pod that is older than the Agent is not its own either");
        context.caches.pods.gone(&pod("one"));
        assert!(holder().alone);
        there("uid-of-another");
        assert!(!holder().alone, "an earlier Deployment may make pods yet");
    }

    #[tokio::test]
    async fn what_is_not_known_for_sure_is_not_told() {
        let elsewhere = context(Settings { watch_namespaces: vec!["team-b".to_owned()], ..settings(None) });
        assert!(
            CachedCensus(&elsewhere).heard("a").is_none() && CachedCensus(&elsewhere).asked("a").await.is_none(),
            "its namespace is not watched"
        );
        let early = context(settings(None));
        early.caches.made.expect();
        assert_eq!(heard(&early), None, "not every list has been told");
        let leaving = context(settings(None));
        leaving.caches.teams.insert(Key::new("", "a"), team(&json!({"deletionTimestamp": "2026-01-02T00:00:00Z"})));
        assert_eq!(heard(&leaving), None, "its rows go with it");
        let homeless = context(settings(None));
        homeless.caches.children(ChildKind::Namespace).remove(&Key::new("", "team-a"));
        assert_eq!(heard(&homeless), None, "the namespace is not there");
    }
}
