//! Threat: whom a guardrail policy holds switches it off, in the policy, or in the ConfigMap in which agents' pods read it.

use serde_json::{Value, json};
use slipway_e2e::{Team, kubectl, platform, until};

use super::{Grant, Try, judge};

const GUARDRAILS: &str = "guardrailpolicies";
const FILE: &str = "slipway-policies";

fn policy(name: &str) -> Value {
    let rule = json!({"type": "max_tokens", "operator": "lt", "value": "4096"});
    json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "GuardrailPolicy", "metadata": {"name": name},
        "spec": {"name": "Tokens", "severity": "critical", "rules": [rule]},
    })
}

#[test]
fn policies_are_written_by_admins_alone() {
    let team = Team::new("policy-guardrails");
    team.apply(&policy("tokens"));
    let users = ["viewer", "developer", "admin", "platform-admin"].map(|role| format!("{}-{role}", team.slug));
    let [viewer, developer, admin, platform_admin] = &users;
    let _viewer = Grant::bind("viewer", "slipway-viewer", viewer, Some(&team.namespace));
    let _developer = Grant::bind("developer", "slipway-developer", developer, Some(&team.namespace));
    let _admin = Grant::bind("admin", "slipway-admin", admin, Some(&team.namespace));
    let _platform_admin = Grant::bind(platform_admin, "slipway-platform-admin", platform_admin, None);
    let by = |user: &str, verb: &str| format!("-n {} {verb} --dry-run=server --as={user}", team.namespace);
    let off = |user: &str| format!("{} -p {}", by(user, "patch guardrailpolicy/tokens --type=merge"), json!({"spec": {"enabled": false}}));
    let mut tries = Vec::new();
    for user in [viewer, developer] {
        let words: &[&str] = &["forbidden", GUARDRAILS];
        tries.push(Try::with(by(user, "create -f -"), policy("other"), words));
        tries.push(Try::new(off(user), words));
        tries.push(Try::with(by(user, "replace -f -"), policy("tokens"), words));
        tries.push(Try::new(by(user, "delete guardrailpolicy/tokens"), words));
        tries.push(Try::new(by(user, "delete guardrailpolicies --all"), words));
        tries.push(Try::new(format!("-n {} get gp/tokens --as={user}", team.namespace), &[]));
    }
    for user in [admin, platform_admin] {
        tries.push(Try::with(by(user, "create -f -"), policy("other"), &[]));
        tries.push(Try::new(off(user), &[]));
        tries.push(Try::new(by(user, "delete guardrailpolicy/tokens"), &[]));
    }
    // What a team requires is no team's own word.
    let require = |user: &str| {
        format!(
            "patch team/{} --type=merge --dry-run=server --as={user} -p {}",
            team.slug,
            json!({"spec": {"requiredPolicies": ["tokens"]}})
        )
    };
    tries.push(Try::new(require(developer), &["forbidden", "teams"]));
    tries.push(Try::new(require(admin), &["forbidden", "teams"]));
    tries.push(Try::new(require(platform_admin), &[]));
    judge(&tries);
}

/// Kubernetes' own role `edit` has all rights on ConfigMaps of its namespace.
#[test]
fn the_file_of_policies_is_the_managers() {
    let team = Team::new("policy-file");
    until(&format!("configmaps -n {} --field-selector metadata.name={FILE}", team.namespace), 60, |found| {
        if found.is_empty() { Err("the team should have its file of policies".to_owned()) } else { Ok(()) }
    });
    let editor = format!("{}-editor", team.slug);
    let owner = format!("{}-owner", team.slug);
    let boss = format!("{}-boss", team.slug);
    let _editor = Grant::bind("editor", "edit", &editor, Some(&team.namespace));
    let _owner = Grant::bind("owner", "cluster-admin", &owner, Some(&team.namespace));
    let _boss = Grant::bind(&boss, "cluster-admin", &boss, None);
    let manager = format!("system:serviceaccount:{}:{}", platform::NAMESPACE, platform::MANAGER);
    let by = |user: &str, verb: &str| format!("-n {} {verb} --dry-run=server --as={user}", team.namespace);
    let forged = json!({"data": {"policies.json": "{\"policies\":[],\"default\":[],\"required\":[]}"}});
    let forge = |user: &str| format!("{} -p {forged}", by(user, &format!("patch configmap/{FILE} --type=merge")));
    let words: &[&str] = &["ConfigMap slipway-policies", "GuardrailPolicies", "change these instead"];
    let mut tries = Vec::new();
    for user in [&editor, &owner] {
        tries.push(Try::new(forge(user), words));
        tries.push(Try::new(by(user, &format!("label configmap/{FILE} a=b")), words));
        tries.push(Try::new(by(user, &format!("delete configmap/{FILE}")), words));
        // A collection, which names none.
        let all = format!("/api/v1/namespaces/{}/configmaps?dryRun=All", team.namespace);
        tries.push(Try::new(format!("delete --raw {all} --as={user}"), words));
        // Others' are theirs.
        tries.push(Try::new(by(user, "create configmap mine"), &[]));
    }
    tries.push(Try::new(forge(&manager), &[]));
    tries.push(Try::new(forge(&boss), &[]));
    judge(&tries);
    // Before there is one, nobody else makes it.
    let bare = format!("team-{}-bare", team.slug);
    let _namespace = Bare::make(&bare);
    let _maker = Grant::bind("editor", "edit", &editor, Some(&bare));
    judge(&[
        Try::new(format!("-n {bare} create configmap {FILE} --dry-run=server --as={editor}"), words),
        Try::new(format!("-n {bare} create configmap mine --dry-run=server --as={editor}"), &[]),
    ]);
}

/// The controller that empties a namespace, and the garbage collector, are held up by nothing.
#[test]
fn the_file_of_policies_goes_with_its_team() {
    let team = Team::new("policy-file-goes");
    kubectl(format!("delete team {} --wait=false", team.slug)).ok();
    kubectl(format!("wait namespace/{} --for=delete --timeout=120s", team.namespace)).ok();
}

/// A namespace of that name without a Team.
struct Bare<'a>(&'a str);

impl<'a> Bare<'a> {
    #[track_caller]
    fn make(name: &'a str) -> Self {
        kubectl(format!("create namespace {name}")).ok();
        Self(name)
    }
}

impl Drop for Bare<'_> {
    fn drop(&mut self) {
        kubectl(format!("delete namespace {} --ignore-not-found --wait=false", self.0)).run();
    }
}
