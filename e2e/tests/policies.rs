//! The chart's admission policies, attacked by those against whom they are made. Each refuses in words that name the field
//! and what would be right, and lets people and Slipway do what they do. What is asked for is a dry run wherever it can be,
//! which the API server judges alike.

mod accounts;
mod chart;
mod datasets;
mod gate;
mod guardrails;
mod images;
mod names;

use serde_json::{Value, json};
use slipway_e2e::{Kubectl, Team, kubectl, poll};

/// How long the API server may take to heed a policy or a role that was just made.
const HEEDED: u64 = 30;

/// Something that somebody tries, and the words of the refusal; without any it must be allowed.
struct Try {
    line: String,
    input: Value,
    says: &'static [&'static str],
}

impl Try {
    fn new(line: impl Into<String>, says: &'static [&'static str]) -> Self {
        Self { line: line.into(), input: Value::Null, says }
    }

    fn with(line: impl Into<String>, input: Value, says: &'static [&'static str]) -> Self {
        Self { line: line.into(), input, says }
    }

    fn call(&self) -> Kubectl {
        // A patch and the like have spaces in them, and stand at the end.
        let (line, last) = self.line.split_once(" -p ").map_or((self.line.as_str(), None), |(line, last)| (line, Some(last)));
        let call = kubectl(line);
        let call = last.map_or(call.clone(), |last| call.arg("-p").arg(last));
        if self.input.is_null() { call } else { call.input(&self.input) }
    }
}

/// All that is forbidden is refused, and then all that is allowed passes: what was just made is heeded by then.
#[track_caller]
fn judge(tries: &[Try]) {
    let (allowed, forbidden): (Vec<_>, Vec<_>) = tries.iter().partition(|one| one.says.is_empty());
    for one in forbidden {
        poll(HEEDED, || {
            let outcome = one.call().run();
            let refused = outcome.code != Some(0) && one.says.iter().all(|word| outcome.stderr.contains(word));
            let told = || format!("{}\nshould be refused with {:?}: {}{}", one.call(), one.says, outcome.stderr, outcome.stdout);
            if refused { Ok(()) } else { Err(told()) }
        });
    }
    for one in allowed {
        poll(HEEDED, || {
            let outcome = one.call().run();
            if outcome.code == Some(0) { Ok(()) } else { Err(format!("{}\nshould be allowed: {}", one.call(), outcome.stderr)) }
        });
    }
}

/// A role for somebody, in a namespace or in all, until the end of the test.
struct Grant {
    kind: &'static str,
    name: String,
    namespace: Option<String>,
}

impl Grant {
    /// `role` exists already.
    #[track_caller]
    fn bind(name: &str, role: &str, user: &str, namespace: Option<&str>) -> Self {
        let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
        let subject = json!({"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"});
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": [subject],
        });
        kubectl("apply -f -").input(binding).ok();
        Self { kind, name: name.to_owned(), namespace: namespace.map(str::to_owned) }
    }

    /// A role of these rules, for the whole cluster.
    #[track_caller]
    fn make(name: &str, rules: &Value, user: &str) -> [Self; 2] {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
        kubectl("apply -f -").input(role).ok();
        let role = Self { kind: "ClusterRole", name: name.to_owned(), namespace: None };
        [role, Self::bind(name, name, user, None)]
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let within = self.namespace.as_ref().map(|namespace| format!("-n {namespace}")).unwrap_or_default();
        kubectl(format!("delete {} {} {within} --ignore-not-found --wait=false", self.kind, self.name)).run();
    }
}

/// Threats: forging the verdict on a release, the approval of a server's tools, or which release runs.
#[test]
fn a_status_takes_more_than_every_right_in_one_namespace() {
    let team = Team::new("policy-status");
    team.agent("hello", &json!({"suspend": true}));
    team.tool("clock", &json!({"name": "datetime", "type": "builtin"}));
    team.skill("greet", &json!({}));
    let release = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "AgentRelease", "metadata": {"name": "mine", "namespace": team.namespace},
        "spec": {"agent": "hello"},
    });
    kubectl("create -f -").input(&release).ok();
    let dataset = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "Dataset", "metadata": {"name": "golden", "namespace": team.namespace},
        "spec": {"cases": [{"input": "a"}]},
    });
    kubectl("create -f -").input(&dataset).ok();
    let policy = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "GuardrailPolicy", "metadata": {"name": "tokens", "namespace": team.namespace},
        "spec": {"name": "P", "severity": "warning", "rules": [{"type": "max_tokens", "operator": "lt", "value": "1"}]},
    });
    kubectl("create -f -").input(&policy).ok();
    let (owner, boss) = (format!("{}-owner", team.slug), format!("{}-boss", team.slug));
    let _owner = Grant::bind("owner", "cluster-admin", &owner, Some(&team.namespace));
    let _boss = Grant::bind(&boss, "cluster-admin", &boss, None);
    let patch = |object: &str, user: &str, status: Value| {
        let status = json!({"status": status});
        format!("-n {} patch {object} --subresource=status --type=merge --dry-run=server --as={user} -p {status}", team.namespace)
    };
    let words: &[&str] = &["status: Slipway alone writes", "change the spec instead"];
    judge(&[
        Try::new(patch("agent/hello", &owner, json!({"activeRelease": 7})), words),
        Try::new(patch("agent/hello", &owner, json!({"canary": {"phase": "Serving", "weight": 100}})), words),
        Try::new(patch("agent/hello", &owner, json!({"canary": {"evaluation": "ev-mine"}})), words),
        Try::new(patch("agentrelease/mine", &owner, json!({"phase": "active", "version": 7})), words),
        Try::new(patch("tool/clock", &owner, json!({"phase": "Available"})), words),
        Try::new(patch("skill/greet", &owner, json!({"phase": "Available"})), words),
        Try::new(patch("dataset/golden", &owner, json!({"phase": "Available"})), words),
        Try::new(patch("guardrailpolicy/tokens", &owner, json!({"violations": {"total": 0, "blocked": 0}})), words),
        Try::new(
            format!(
                "-n {} patch agent/hello --type=merge --dry-run=server --as={owner} -p {{\"spec\":{{\"description\":\"d\"}}}}",
                team.namespace
            ),
            &[],
        ),
        // An autoscaler's way.
        Try::new(format!("-n {} scale agent/hello --replicas=2 --dry-run=server --as={owner}", team.namespace), &[]),
        Try::new(patch("agent/hello", &boss, json!({"activeRelease": null})), &[]),
        Try::new(patch("tool/clock", &boss, json!({"phase": "Available"})), &[]),
    ]);
}

/// Threat: a namespace that is said to be a team's shares that team's rights and Secrets.
#[test]
fn a_teams_label_goes_on_its_own_namespace_by_who_may_change_the_team() {
    let team = Team::new("policy-label");
    let slug = &team.slug;
    let stray = format!("{}-x", team.namespace);
    let (clerk, lead) = (format!("{slug}-clerk"), format!("{slug}-lead"));
    let namespaces = json!({"apiGroups": [""], "resources": ["namespaces", "namespaces/status", "namespaces/finalize"], "verbs": ["*"]});
    let teams = json!({"apiGroups": ["agents.slipway.dev"], "resources": ["teams"], "resourceNames": [slug, format!("{slug}-x")], "verbs": ["update", "delete"]});
    let _clerk = Grant::make(&clerk, &json!([namespaces]), &clerk);
    let _lead = Grant::make(&lead, &json!([namespaces, teams]), &lead);
    let forged = |name: &str, team: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"agents.slipway.dev/team": team}}});
    let create = |user: &str| format!("create -f - --dry-run=server --as={user}");
    let label = |user: &str, label: &str| format!("label --overwrite namespace {} {label} --dry-run=server --as={user}", team.namespace);
    let finalize = format!("/api/v1/namespaces/{}/finalize", team.namespace);
    let mut moved = slipway_e2e::platform::namespace(&team.namespace);
    moved["metadata"]["labels"]["agents.slipway.dev/team"] = json!("other");
    let words: &[&str] = &["metadata.labels", "agents.slipway.dev/team", "create a Team instead"];
    judge(&[
        Try::with(create(&clerk), forged(&stray, slug), words),
        Try::with(create(&clerk), forged(&stray, &format!("{slug}-x")), words),
        Try::with(create(&lead), forged(&stray, slug), words),
        Try::with(create(&lead), forged("kube-lookalike", slug), words),
        Try::new(label(&clerk, "agents.slipway.dev/team=other"), words),
        Try::new(label(&clerk, "agents.slipway.dev/team-"), words),
        Try::new(label(&lead, "agents.slipway.dev/team=other"), words),
        Try::with(format!("replace --raw {finalize}?dryRun=All -f - --as={clerk}"), moved.clone(), words),
        Try::with(format!("replace --raw {finalize}?dryRun=All -f - --as={lead}"), moved, words),
        // What is nobody's business.
        Try::new(label(&clerk, "cost-centre=7"), &[]),
        Try::new(label(&clerk, "agents.slipway.dev/team-lead=ann"), &[]),
        Try::with(create(&clerk), json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stray}}), &[]),
        // A backup, restored by somebody with the rights for that.
        Try::with(create(&lead), forged(&stray, &format!("{slug}-x")), &[]),
        Try::new(label(&lead, "agents.slipway.dev/team-"), &[]),
    ]);
}
