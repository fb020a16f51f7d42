//! One team on the ground: what a user asks of it, and all that is seen of it, so that two such sights can be compared.

use serde_json::{Map, Value, json};

use super::ground::{Ground, ask};
use crate::agent::condition;
use crate::compare::essence;
use crate::team::merge;

const OURS: &str = "apis/agents.slipway.dev/v1";
/// What there is of kinds that the operator makes or gives a status, by the place of each in the API.
const KINDS: [(&str, &str); 15] = [
    (OURS, "agents"),
    (OURS, "tools"),
    (OURS, "skills"),
    (OURS, "datasets"),
    (OURS, "guardrailpolicies"),
    (OURS, "integrations"),
    ("api/v1", "configmaps"),
    ("apis/apps/v1", "deployments"),
    ("api/v1", "services"),
    ("api/v1", "serviceaccounts"),
    ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    ("apis/networking.k8s.io/v1", "networkpolicies"),
    ("api/v1", "secrets"),
    ("api/v1", "resourcequotas"),
    ("api/v1", "limitranges"),
];
/// Whom agents act for, so that each has a ServiceAccount.
const ACCOUNT: &str = "somebody@project.example";
/// The name of a team's quota.
const QUOTA: &str = "slipway";
/// Fields that differ from one object to the next of the same name.
const PASSING: [&str; 4] = ["lastTransitionTime", "clusterIP", "clusterIPs", "uid"];
/// Times of which it matters whether there is one.
const TIMES: [&str; 4] = ["firstDeployedAt", "deletionTimestamp", "startedAt", "stepStartedAt"];
/// What an agent's objects have in common.
const LABEL: &str = "agents.slipway.dev/agent";
/// What depends on how an agent and its team are called, or on the platform's keys.
const PARTICULAR: [&str; 5] = [
    "/spec/template/metadata/annotations/agents.slipway.dev~1config-hash",
    "/spec/template/metadata/annotations/agents.slipway.dev~1run-hash",
    "/status/runHash",
    "/data/RUNTIME_CONTROL_PUBLIC_KEY",
    "/data/credential",
];
/// The same among the variables of a container.
const PARTICULAR_VARIABLE: &str = "RUNTIME_ACCESS_PUBLIC_KEY";

pub struct Home<'a> {
    pub(super) ground: &'a Ground,
    pub slug: String,
    pub namespace: String,
}

impl<'a> Home<'a> {
    pub(super) fn new(ground: &'a Ground, slug: String) -> Self {
        Self { ground, namespace: format!("team-{slug}"), slug }
    }

    /// The platform's namespace.
    pub(super) fn platform(&self) -> String {
        format!("{}-platform", self.slug)
    }

    fn team_path(&self) -> String {
        format!("/apis/agents.slipway.dev/v1/teams/{}", self.slug)
    }

    fn path(&self, group: &str, kind: &str, name: &str) -> String {
        format!("/{group}/namespaces/{}/{kind}/{name}", self.namespace)
    }

    fn own(&self, kind: &str, name: &str) -> String {
        self.path(OURS, kind, name)
    }

    /// Applies the Team, with all that makes its namespace hold one object of each kind.
    #[track_caller]
    pub fn team(&self) {
        self.apply_team(&json!({"quota": {"pods": "100"}}));
    }

    /// The same for a namespace that has pods: without a quota, as no controller counts what that limits.
    #[track_caller]
    pub fn team_with_pods(&self) {
        self.apply_team(&json!({}));
    }

    /// Gives the team a quota. Nothing is counted before [`Self::count`] says what is in use.
    #[track_caller]
    pub fn limit(&self, quota: &Value) {
        self.apply_team(&json!({"quota": quota}));
    }

    /// Says what the team's quota limits and how much of that is in use, as the controller of quotas does. The API server goes on counting
    /// what is made, and nobody what goes. False while the quota is not there.
    #[track_caller]
    pub fn count(&self, hard: &Value, used: &Value) -> bool {
        let path = self.path("api/v1", "resourcequotas", QUOTA);
        let is_there = self.ground.get(&path)["spec"]["hard"] == *hard;
        if is_there {
            self.ground.patch(&format!("{path}/status"), &json!({"status": {"hard": hard, "used": used}}));
        }
        is_there
    }

    /// Whether the API server would take one more pod like the first that there is.
    pub fn has_room(&self) -> bool {
        let [like, ..] = &*self.list("api/v1", "pods") else { return false };
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one-more"}, "spec": like["spec"]});
        let path = format!("/api/v1/namespaces/{}/pods?dryRun=All", self.namespace);
        let reply = ask(self.ground.address(), "POST", &path, &[("Content-Type", "application/json")], &pod);
        reply.is_ok_and(|reply| reply.status == 201)
    }

    #[track_caller]
    fn apply_team(&self, more: &Value) {
        let limits = json!({"default": {"cpu": "1"}});
        let mut spec = json!({"name": "A team", "containerLimits": limits, "gcpServiceAccounts": [ACCOUNT]});
        merge(&mut spec, more);
        let team = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Team", "metadata": {"name": self.slug}, "spec": spec});
        self.ground.apply(&self.team_path(), &team);
    }

    /// Whether agents can be put into the team's namespace.
    pub fn has_namespace(&self) -> bool {
        !self.ground.get(&format!("/api/v1/namespaces/{}", self.namespace)).is_null()
    }

    #[track_caller]
    fn put(&self, kind: &str, name: &str, spec: &Value) {
        let object = json!({"apiVersion": "agents.slipway.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        self.ground.apply(&self.own(&format!("{}s", kind.to_lowercase()), name), &object);
    }

    #[track_caller]
    pub fn agent(&self, name: &str, spec: &Value) {
        let mut whole = json!({"name": "An agent", "framework": "custom", "gcpServiceAccount": ACCOUNT});
        merge(&mut whole, spec);
        self.put("Agent", name, &whole);
    }

    /// A Tool that stands for this builtin one.
    #[track_caller]
    pub fn tool(&self, name: &str, builtin: &str) {
        self.put("Tool", name, &json!({"name": builtin, "type": "builtin"}));
    }

    #[track_caller]
    pub fn integration(&self, name: &str, spec: &Value) {
        let mut whole = json!({"name": "An integration"});
        merge(&mut whole, spec);
        self.put("Integration", name, &whole);
    }

    #[track_caller]
    pub fn skill(&self, name: &str, instructions: &str) {
        self.put("Skill", name, &json!({"name": name, "description": "What it is for.", "instructions": instructions}));
    }

    #[track_caller]
    pub fn dataset(&self, name: &str, cases: &Value) {
        self.put("Dataset", name, &json!({"cases": cases}));
    }

    /// A Dataset that is for one agent alone.
    #[track_caller]
    pub fn dataset_of(&self, agent: &str, name: &str, protected: bool, cases: &Value) {
        self.put("Dataset", name, &json!({"agent": agent, "protected": protected, "cases": cases}));
    }

    /// A merge patch of an Agent's spec.
    #[track_caller]
    pub fn change(&self, agent: &str, spec: &Value) {
        self.ground.patch(&self.own("agents", agent), &json!({"spec": spec}));
    }

    /// Asks for a release that was there before.
    #[track_caller]
    pub fn roll_back(&self, agent: &str, version: u64) {
        let annotations = json!({"agents.slipway.dev/deploy-release": version.to_string()});
        self.ground.patch(&self.own("agents", agent), &json!({"metadata": {"annotations": annotations}}));
    }

    /// Annotations of an Agent; null takes one away.
    #[track_caller]
    pub fn annotate(&self, agent: &str, annotations: &Value) {
        self.ground.patch(&self.own("agents", agent), &json!({"metadata": {"annotations": annotations}}));
    }

    /// How an Agent's canary stands; null without one.
    #[track_caller]
    pub fn canary(&self, agent: &str) -> Value {
        self.ground.get(&self.own("agents", agent))["status"]["canary"].clone()
    }

    /// The reasons of the Events about an Agent, one an Event.
    #[track_caller]
    pub fn told(&self, agent: &str) -> Vec<String> {
        self.events("Agent", agent).iter().filter_map(|event| event["reason"].as_str()).map(str::to_owned).collect()
    }

    /// The Events about an object.
    #[track_caller]
    pub fn events(&self, kind: &str, name: &str) -> Vec<Value> {
        let mut events = self.list("apis/events.k8s.io/v1", "events");
        events.retain(|event| event["regarding"]["kind"] == kind && event["regarding"]["name"] == name);
        events
    }

    /// What an agent runs and what its releases say: its prompt and version, each release's version and phase.
    #[track_caller]
    pub fn releases(&self, agent: &str) -> Value {
        let present = self.ground.get(&self.own("agents", agent));
        let line = |release: &Value| json!([release["status"]["version"], release["status"]["phase"]]);
        let mut releases: Vec<Value> = self.list(OURS, "agentreleases").iter().map(line).collect();
        releases.sort_by_key(Value::to_string);
        let asked = &present["metadata"]["annotations"]["agents.slipway.dev/deploy-release"];
        json!({
            "agent": {"prompt": present["spec"]["systemPrompt"], "version": present["status"]["activeRelease"], "asked": asked},
            "releases": releases,
        })
    }

    /// Deletes something of ours.
    #[track_caller]
    pub fn delete(&self, kind: &str, name: &str) {
        self.ground.delete(&self.own(kind, name));
    }

    #[track_caller]
    pub fn get(&self, group: &str, kind: &str, name: &str) -> Value {
        self.ground.get(&self.path(group, kind, name))
    }

    /// All objects of a kind in the team's namespace.
    #[track_caller]
    pub fn list(&self, group: &str, kind: &str) -> Vec<Value> {
        let list = self.ground.get(&format!("/{group}/namespaces/{}/{kind}", self.namespace));
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// The reason of an Agent's `Ready`, if its status speaks of the present spec; empty once nothing is left of it.
    pub fn reason(&self, name: &str) -> String {
        let agent = self.ground.get(&self.own("agents", name));
        if agent.is_null() {
            let is_left = |(group, kind): &(&str, &str)| {
                let list = self.ground.get(&format!("/{group}/namespaces/{}/{kind}?labelSelector={LABEL}%3D{name}", self.namespace));
                list["items"].as_array().is_some_and(|items| !items.is_empty())
            };
            return if KINDS.iter().any(is_left) { "leaving".to_owned() } else { String::new() };
        }
        let is_present = agent["status"]["observedGeneration"] == agent["metadata"]["generation"];
        let reason = if is_present { condition(&agent, "Ready")["reason"].as_str() } else { None };
        reason.unwrap_or("coming").to_owned()
    }

    fn lease_path(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/slipway-manager", self.platform())
    }

    /// Who holds the managers' lease.
    pub fn leader(&self) -> String {
        let lease = self.ground.get(&self.lease_path());
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// A merge patch of the lease's spec.
    #[track_caller]
    pub fn usurp(&self, spec: &Value) {
        self.ground.patch(&self.lease_path(), &json!({"spec": spec}));
    }

    #[track_caller]
    pub fn delete_lease(&self) {
        self.ground.delete(&self.lease_path());
    }

    /// All objects that the operator owns or speaks of: what each says, without what passes.
    #[track_caller]
    pub fn sight(&self) -> Value {
        let mut sight = Map::new();
        for path in [self.team_path(), format!("/api/v1/namespaces/{}", self.namespace)] {
            let object = self.ground.get(&path);
            if !object.is_null() {
                sight.insert(path, object);
            }
        }
        for (group, kind) in KINDS {
            for object in self.list(group, kind) {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                sight.insert(format!("{kind}/{name}"), object);
            }
        }
        for object in sight.values_mut() {
            let generation = object["metadata"]["generation"].take();
            *object = essence(object);
            settle(object, &generation);
        }
        Value::Object(sight)
    }

    /// The same without what only this team and its platform have, so that two teams can be compared.
    #[track_caller]
    pub fn shape(&self) -> Value {
        let mut sight = self.sight();
        let objects = sight.as_object_mut().into_iter().flat_map(Map::values_mut);
        let mut ids = Vec::new();
        for object in objects {
            ids.extend(object["status"]["id"].as_str().filter(|id| id.starts_with("ag_")).map(str::to_owned));
            for field in PARTICULAR {
                if let Some(field) = object.pointer_mut(field) {
                    *field = json!("some");
                }
            }
            let variables = object.pointer_mut("/spec/template/spec/containers/0/env").and_then(Value::as_array_mut);
            for variable in variables.into_iter().flatten().filter(|variable| variable["name"] == PARTICULAR_VARIABLE) {
                variable["value"] = json!("some");
            }
        }
        let text = ids.iter().fold(sight.to_string(), |text, id| text.replace(id, "ag_"));
        serde_json::from_str(&text.replace(&self.slug, "OURS")).unwrap_or_default()
    }
}

/// Takes out what passes. A generation that was observed is the present one, or it is not.
fn settle(value: &mut Value, generation: &Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !PASSING.contains(&name.as_str()));
            for (name, field) in fields.iter_mut() {
                match name.as_str() {
                    "observedGeneration" => *field = json!(if field == generation { "the present one" } else { "an earlier one" }),
                    time if TIMES.contains(&time) => *field = json!("some time"),
                    _ => settle(field, generation),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| settle(item, generation)),
        _ => {}
    }
}

/// The objects of which two sights say different things, with what each says.
pub(super) fn differences(expected: &Value, found: &Value) -> Vec<String> {
    let empty = Map::new();
    let (expected, found) = (expected.as_object().unwrap_or(&empty), found.as_object().unwrap_or(&empty));
    let mut names: Vec<_> = expected.keys().chain(found.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let differs = |name: &&&String| expected.get(**name) != found.get(**name);
    let show = |object: Option<&Value>| object.map_or("nothing".to_owned(), Value::to_string);
    names
        .iter()
        .filter(differs)
        .map(|name| format!("{name}: expected {}\n  got {}", show(expected.get(*name)), show(found.get(*name))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_taken_out_and_what_differs_is_told() {
        let seen = |generation: u64, phase: &str| {
            let mut object = json!({"metadata": {"uid": "u", "ownerReferences": [{"name": "a", "uid": "v"}]},
                "status": {"observedGeneration": 7, "phase": phase, "conditions": [{"lastTransitionTime": "2026"}]}});
            settle(&mut object, &json!(generation));
            json!({"agents/a": object})
        };
        let present = seen(7, "Running");
        assert_eq!(present["agents/a"]["metadata"], json!({"ownerReferences": [{"name": "a"}]}));
        assert_eq!(present["agents/a"]["status"], json!({"observedGeneration": "the present one", "phase": "Running", "conditions": [{}]}));
        assert_eq!(differences(&present, &present), Vec::<String>::new());
        for other in [seen(8, "Running"), seen(7, "Pending"), json!({})] {
            let told = differences(&present, &other);
            assert!(told.len() == 1 && told[0].starts_with("agents/a: "), "{told:?}");
        }
    }
}
