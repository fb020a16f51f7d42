//! A team per test: made at its beginning, cleared of what an interrupted run left, deleted at its end.

use serde_json::{Value, json};

use crate::agent::{Agent, condition};
use crate::door::{self, OURS};
use crate::kubectl::{Outcome, kubectl};
use crate::turn::{Turn, together};
use crate::watch::until;

/// The kinds that live in a team's namespace.
const KINDS: &str = "agents,tools,ingestions,knowledgebases,integrations,skills,datasets,evaluationruns,guardrailpolicies";

/// A Team, its namespace, and the test's turn.
pub struct Team {
    pub slug: String,
    pub namespace: String,
    /// None for a team whose test has a turn by another one.
    _turn: Option<Turn>,
}

impl Team {
    /// A team without quota or limits, named after the test.
    #[track_caller]
    pub fn new(test: &str) -> Self {
        Self::with(test, &json!({}))
    }

    /// A team with more in its spec.
    #[track_caller]
    pub fn with(test: &str, spec: &Value) -> Self {
        Self::within(together(), test, spec)
    }

    /// A team for a test that has its turn already.
    #[track_caller]
    pub fn within(turn: Turn, test: &str, spec: &Value) -> Self {
        let team = Self::planned(turn, test);
        team.apply_spec(spec);
        team.ready();
        team
    }

    /// A team that is not there yet, but will be deleted at the end.
    #[track_caller]
    pub fn planned(turn: Turn, test: &str) -> Self {
        Self::named(Some(turn), test)
    }

    /// Another team for the same test.
    #[must_use]
    #[track_caller]
    pub fn beside(&self, test: &str) -> Self {
        let team = Self::named(None, test);
        team.apply_spec(&json!({}));
        team.ready();
        team
    }

    /// A team by the name that a document gives it, which is not there yet, but will be deleted at the end.
    #[track_caller]
    pub fn called(slug: &str) -> Self {
        Self::swept(slug.to_owned(), None)
    }

    #[track_caller]
    fn named(turn: Option<Turn>, test: &str) -> Self {
        Self::swept(format!("e2e-{test}"), turn)
    }

    #[track_caller]
    fn swept(slug: String, turn: Option<Turn>) -> Self {
        let team = Self { namespace: format!("team-{slug}"), slug, _turn: turn };
        team.sweep();
        team
    }

    pub fn manifest(&self, spec: &Value) -> Value {
        let mut whole = json!({
            "apiVersion": "agents.slipway.dev/v1", "kind": "Team",
            "metadata": {"name": self.slug}, "spec": {"name": self.slug},
        });
        merge(&mut whole["spec"], spec);
        whole
    }

    #[track_caller]
    pub fn apply_spec(&self, spec: &Value) {
        let manifest = self.manifest(spec);
        if door::make("", &manifest).is_none() {
            kubectl("apply -f -").input(manifest).ok();
        }
    }

    #[track_caller]
    pub fn ready(&self) {
        until(&format!("teams --field-selector metadata.name={}", self.slug), 45, |teams| {
            let is_seen = |team: &&Value| team["status"]["observedGeneration"] == team["metadata"]["generation"];
            let is_ready = teams.iter().filter(is_seen).any(|team| condition(team, "Ready")["status"] == "True");
            is_ready.then_some(()).ok_or_else(|| format!("team {} should be ready", self.slug))
        });
    }

    /// `kubectl -n NAMESPACE LINE`.
    pub fn kubectl(&self, line: impl AsRef<str>) -> crate::Kubectl {
        kubectl(format!("-n {} {}", self.namespace, line.as_ref()))
    }

    #[track_caller]
    pub fn apply(&self, manifest: &Value) -> String {
        door::make(&self.namespace, manifest).unwrap_or_else(|| self.kubectl("apply -f -").input(manifest).ok())
    }

    /// An Agent with `spec` beside the required fields, applied.
    #[track_caller]
    pub fn agent(&self, name: &str, spec: &Value) -> Agent<'_> {
        let agent = Agent { team: self, name: name.to_owned() };
        self.apply(&agent.manifest(spec));
        agent
    }

    /// A Tool, applied.
    #[track_caller]
    pub fn tool(&self, name: &str, spec: &Value) {
        let mut whole = json!({
            "apiVersion": "agents.slipway.dev/v1", "kind": "Tool",
            "metadata": {"name": name}, "spec": {"name": name},
        });
        merge(&mut whole["spec"], spec);
        self.apply(&whole);
    }

    /// A Skill, applied.
    #[track_caller]
    pub fn skill(&self, name: &str, spec: &Value) {
        let mut whole = json!({
            "apiVersion": "agents.slipway.dev/v1", "kind": "Skill",
            "metadata": {"name": name}, "spec": {"name": name, "description": "What it does.", "instructions": "Do it."},
        });
        merge(&mut whole["spec"], spec);
        self.apply(&whole);
    }

    /// A Secret that agents may read, applied.
    #[track_caller]
    pub fn secret(&self, name: &str, data: &Value) {
        let labels = json!({"agents.slipway.dev/agent-readable": "true"});
        self.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}, "stringData": data}));
    }

    /// A token of a ServiceAccount of the team's namespace that has this role there: viewer, developer, admin.
    #[track_caller]
    pub fn token(&self, role: &str) -> String {
        let account = format!("e2e-{role}");
        let metadata = json!({"name": account});
        self.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}));
        self.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("slipway-{role}")},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}],
        }));
        let by_kubectl = || self.kubectl(format!("create token {account}")).ok().trim().to_owned();
        door::token(&self.namespace, &account, &[]).unwrap_or_else(by_kubectl)
    }

    /// The object as it is, null when there is none.
    #[track_caller]
    pub fn get(&self, object: &str) -> Value {
        self.kubectl(format!("get {object} --ignore-not-found")).json()
    }

    /// What an interrupted run left is taken away before the test begins.
    fn sweep(&self) {
        let (slug, namespace) = (&self.slug, &self.namespace);
        let is_there = |object: String| !kubectl(format!("get {object} --ignore-not-found -o name")).ok().trim().is_empty();
        if !is_there(format!("team/{slug}")) && !is_there(format!("namespace/{namespace}")) {
            return;
        }
        self.discard();
        kubectl(format!("wait team/{slug} --for=delete --timeout=60s")).ok();
        kubectl(format!("delete namespace {namespace} --ignore-not-found --timeout=60s")).ok();
    }

    fn discard(&self) {
        for kind in KINDS.split(',') {
            if door::delete(&format!("{OURS}/namespaces/{}/{kind}", self.namespace)).is_none() {
                self.kubectl(format!("delete {kind} --all --wait=false")).run();
            }
        }
        if door::delete(&format!("{OURS}/teams/{}", self.slug)).is_none() {
            kubectl(format!("delete team {} --ignore-not-found --wait=false", self.slug)).run();
        }
    }

    /// Where to look when a test has failed: what a user would look at.
    #[expect(clippy::print_stderr, reason = "the test harness shows this for failed tests alone")]
    fn tell(&self) {
        for line in [format!("get {KINDS},deployments,pods -o wide"), "events".to_owned()] {
            let Outcome { stdout, stderr, .. } = self.kubectl(&line).run();
            eprintln!("--- kubectl {line} -n {}\n{stdout}{stderr}", self.namespace);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell();
        }
        self.discard();
    }
}

/// Puts the fields of `more` into `base`.
pub(crate) fn merge(base: &mut Value, more: &Value) {
    if let (Some(base), Some(more)) = (base.as_object_mut(), more.as_object()) {
        base.extend(more.clone());
    }
}
