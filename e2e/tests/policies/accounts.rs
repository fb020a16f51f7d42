//! Threat: one of Slipway's own pods is taken over. What its account may do is little, and what it must never do is
//! refused whatever roles it is given.

use serde_json::{Value, json};
use slipway_e2e::{Team, kubectl, platform};

use super::chart::Policies;
use super::{Grant, Try, judge};

const RBAC: &str = "rbac.authorization.k8s.io";

fn binding(role: &str, name: &str, subjects: &Value, labels: &Value) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": {"name": name, "labels": labels},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}, "subjects": subjects,
    })
}

fn account(name: &str) -> Value {
    json!([{"kind": "ServiceAccount", "name": name, "namespace": "default"}])
}

fn user(name: &str) -> Value {
    json!([{"kind": "User", "apiGroup": RBAC, "name": name}])
}

fn resource(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": "agents.slipway.dev/v1", "kind": kind, "metadata": {"name": "probe"}, "spec": spec})
}

/// One that Pod Security lets into a team's namespace, so that it is the policy that has a word to say.
fn pod() -> Value {
    let security = json!({
        "runAsNonRoot": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let container = json!({"name": "c", "image": "example.com/c", "securityContext": security});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": {"containers": [container]}})
}

fn daemons() -> Value {
    let labels = json!({"app": "probe"});
    let template = json!({"metadata": {"labels": labels}, "spec": pod()["spec"]});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "probe"}, "spec": spec})
}

/// The Job of an Ingestion, as the manager makes it.
fn job(change: impl FnOnce(&mut Value)) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let mut spec = pod()["spec"].clone();
    spec["restartPolicy"] = json!("Never");
    spec["automountServiceAccountToken"] = json!(false);
    spec["containers"][0]["image"] = json!(format!("slipway.dev/slipway-worker:{version}"));
    let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Ingestion", "name": "probe", "uid": "u"});
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "ingest-probe", "ownerReferences": [owner]},
        "spec": {"template": {"spec": spec}},
    });
    change(&mut job);
    job
}

/// The same of an evaluation.
fn evaluator(run: &str, name: &str, image: &str) -> Value {
    job_of("EvaluationRun", run, name, image)
}

/// The same of the test of an integration's files.
fn probe(integration: &str, name: &str, image: &str) -> Value {
    job_of("Integration", integration, name, image)
}

fn job_of(kind: &str, owner_name: &str, name: &str, image: &str) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    job(|job| {
        job["metadata"]["name"] = json!(name);
        let owner = &mut job["metadata"]["ownerReferences"][0];
        (owner["kind"], owner["name"]) = (json!(kind), json!(owner_name));
        job["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("slipway.dev/slipway-{image}:{version}"));
    })
}

/// The chart's policies again, for three accounts that are administrators of the cluster, and would be stopped by nothing else.
#[test]
fn whatever_roles_an_account_is_given_it_stays_with_its_work() {
    let team = Team::new("policy-accounts");
    let names = ["manager", "rest", "state"].map(|part| format!("{}-{part}", team.slug));
    let settings = ["manager", "rest", "state"].map(|part| format!("{part}.serviceAccount.name={}-{part}", team.slug));
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let _policies = Policies::apply(
        &team.slug,
        &settings,
        &[
            "-confine-manager",
            "-confine-bindings",
            "-confine-jobs",
            "-confine-rollback",
            "-confine-defaults",
            "-confine-rest",
            "-confine-state",
        ],
        None,
    );
    let users = names.each_ref().map(|name| format!("system:serviceaccount:default:{name}"));
    let _grants = [0, 1, 2].map(|n| Grant::bind(&names[n], "cluster-admin", &users[n], None));
    team.agent("hello", &json!({"suspend": true}));
    let canary = json!({"enabled": true, "weight": 10, "systemPrompt": "two", "replicas": 2, "overrides": {"environment": "next"}});
    team.agent("twofold", &json!({"suspend": true, "systemPrompt": "one", "canary": canary}));
    team.apply(&resource("EvaluationRun", &json!({"agent": "hello"})));
    team.apply(&binding("slipway-viewer", "theirs", &user("ann@example.com"), &json!({})));
    team.apply(&resource("Integration", &json!({"name": "Probe", "prometheus": {"url": "https://metrics.example.com"}})));
    team.kubectl("wait guardrailpolicy/default-cost --for=create --timeout=30s").ok();
    team.kubectl("delete guardrailpolicy default-cost --timeout=30s").ok();
    let mut policy = resource("GuardrailPolicy", &tokens());
    policy["metadata"]["finalizers"] = json!(["agents.slipway.dev/default-policy", "example.com/kept"]);
    team.apply(&policy);
    manager(&team, &names[0], &users[0]);
    rights_to_logins(&team, &names, &users[0]);
    ends_of_canaries(&team, &users[0]);
    // Nobody else would, and the team could not go.
    team.kubectl("patch guardrailpolicy probe --type=merge -p").arg(r#"{"metadata":{"finalizers":null}}"#).ok();
    team.kubectl("delete guardrailpolicy probe --timeout=30s").ok();
    rest(&team, &users[1]);
    logins(&team, &users[1]);
    state(&team, &users[2]);
}

fn tokens() -> Value {
    json!({"name": "P", "severity": "warning", "rules": [{"type": "max_tokens", "operator": "lt", "value": "1"}]})
}

fn manager(team: &Team, name: &str, user_name: &str) {
    let dry = format!("--dry-run=server --as={user_name}");
    let create = |namespace: &str| format!("-n {namespace} create {dry} -f -");
    let here = &*team.namespace;
    let own = |namespace: &str, secret: &str| format!("-n {namespace} create secret generic {secret} {dry}");
    let secrets = |subjects: &Value| binding("slipway-team-secrets", "slipway-team-secrets-2", subjects, &json!({}));
    let everything = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": {"name": "probe"}, "rules": []});
    let away: &[&str] = &["the Slipway manager writes team-* namespaces and what is in them"];
    let bind: &[&str] = &["may bind slipway-team-secrets to itself", "see roleRef and subjects"];
    let rights: &[&str] = &["RoleBindings in team-* namespaces, and no other rights: not roles"];
    let delete: &[&str] = &["deletes its own, slipway-team-secrets"];
    let named: &[&str] = &["writes Jobs named ingest-*, evaluate-* or test-*"];
    let owned: &[&str] = &["metadata.ownerReferences", "belongs to the Ingestion, EvaluationRun or Integration that it is named after"];
    let image: &[&str] = &["runs the image of the chart's value worker.image, or runtime.image to evaluate"];
    let mut first = pod()["spec"]["containers"].clone();
    first[0]["name"] = json!("first");
    let none: &[&str] = &["has no account of the cluster"];
    let asks: &[&str] = &["of Agents the Slipway manager writes the annotations agents.slipway.dev/deploy-release and"];
    let annotated = |note: &str| format!("-n {here} annotate agent hello {note} {dry}");
    let begins: &[&str] = &["the Slipway manager makes the GuardrailPolicies that a team begins with"];
    let guard = |name: &str| {
        let mut policy = resource("GuardrailPolicy", &tokens());
        policy["metadata"]["name"] = json!(name);
        policy
    };
    let guarded = |change: &str| format!("-n {here} patch guardrailpolicy probe --type=merge {dry} -p {change}");
    let standard: &[&str] = &["metadata.labels", "pod-security.kubernetes.io/enforce: restricted"];
    let namespace = |standard: &str| {
        let labels = json!({"pod-security.kubernetes.io/enforce": standard});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("team-{name}"), "labels": labels}})
    };
    judge(&[
        Try::new(format!("create namespace elsewhere {dry}"), away),
        Try::new(format!("label namespace kube-system a=b {dry}"), away),
        Try::new(format!("delete namespace {} {dry}", platform::NAMESPACE), away),
        Try::new(format!("-n default create configmap probe {dry}"), away),
        Try::new(format!("-n kube-system delete configmap kube-root-ca.crt {dry}"), away),
        Try::new(own("default", "probe"), away),
        Try::new(own("kube-system", "slipway-keys"), away),
        Try::new(own("kube-system", "slipway-relay"), away),
        Try::new(own("default", "slipway-keys"), away),
        Try::with(create("default"), pod(), away),
        Try::with(create("kube-system"), daemons(), away),
        Try::with(create("default"), job(|_| ()), away),
        Try::with(create(here), job(|_| ()), &[]),
        Try::with(create(here), job(|job| job["metadata"]["name"] = json!("other")), named),
        Try::with(create(here), job(|job| job["metadata"]["ownerReferences"] = json!([])), owned),
        Try::with(create(here), job(|job| job["metadata"]["ownerReferences"][0]["name"] = json!("other")), owned),
        Try::with(create(here), job(|job| job["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.com/c")), image),
        Try::with(create(here), job(|job| job["spec"]["template"]["spec"]["initContainers"] = first.clone()), image),
        Try::with(create(here), job(|job| job["spec"]["template"]["spec"]["automountServiceAccountToken"] = json!(true)), none),
        Try::with(create(here), job(|job| job["spec"]["template"]["spec"]["serviceAccountName"] = json!("robot")), none),
        Try::with(create(here), evaluator("probe", "evaluate-probe", "runtime"), &[]),
        Try::with(create(here), evaluator(&"a".repeat(60), "evaluate-hash", "runtime"), &[]),
        Try::with(create(here), evaluator("probe", "evaluate-probe", "worker"), image),
        Try::with(create(here), evaluator("probe", "ingest-probe", "worker"), owned),
        Try::with(create(here), evaluator("probe", "evaluate-other", "runtime"), owned),
        Try::with(create(here), probe("probe", "test-probe", "worker"), &[]),
        Try::with(create(here), probe(&"a".repeat(60), "test-hash", "worker"), &[]),
        Try::with(create(here), probe("probe", "test-probe", "runtime"), image),
        Try::with(create(here), probe("probe", "test-other", "worker"), owned),
        Try::with(create(here), probe("probe", "ingest-probe", "worker"), owned),
        Try::new(format!("-n {here} create cronjob ingest-probe --image=c --schedule=@daily {dry}"), named),
        Try::with(create("default"), secrets(&account(name)), away),
        Try::new(format!("create clusterrolebinding probe --clusterrole=cluster-admin --user=mallory {dry}"), away),
        Try::new(format!("create clusterrole probe --verb=* --resource=* {dry}"), away),
        Try::new(format!("delete clusterrole slipway-viewer {dry}"), away),
        Try::with(create(here), binding("cluster-admin", "probe", &account(name), &json!({})), bind),
        Try::with(create(here), binding("slipway-admin", "probe", &user("mallory"), &json!({})), bind),
        Try::with(create(here), secrets(&user("mallory")), bind),
        Try::with(create(here), secrets(&account("somebody-elses")), bind),
        Try::with(create(here), secrets(&json!([account(name)[0], user("mallory")[0]])), bind),
        Try::with(create(here), secrets(&json!([])), bind),
        Try::with(create(here), everything, rights),
        Try::new(format!("-n {here} delete rolebinding theirs {dry}"), delete),
        Try::new(format!("-n {here} patch agent hello --type=merge {dry} -p {{\"spec\":{{\"suspend\":false}}}}"), asks),
        Try::new(format!("-n {here} label agent hello a=b {dry}"), asks),
        Try::new(format!("-n {here} patch agent hello --type=merge {dry} -p {{\"metadata\":{{\"finalizers\":[\"a.b/c\"]}}}}"), asks),
        Try::new(annotated("agents.slipway.dev/suspend=false"), asks),
        Try::new(format!("-n {here} delete agent hello {dry}"), asks),
        Try::with(create(here), resource("Agent", &json!({"name": "Probe", "framework": "custom"})), asks),
        Try::new(annotated("agents.slipway.dev/deploy-release=1 agents.slipway.dev/rolled-back=2"), &[]),
        Try::with(create(here), resource("GuardrailPolicy", &tokens()), begins),
        Try::with(create(here), guard("default-cost"), &[]),
        Try::with(create("default"), guard("default-cost"), begins),
        Try::new(guarded(r#"{"spec":{"enabled":false}}"#), begins),
        Try::new(guarded(r#"{"metadata":{"labels":{"a":"b"}}}"#), begins),
        Try::new(guarded(r#"{"metadata":{"annotations":{"a":"b"}}}"#), begins),
        Try::new(guarded(r#"{"metadata":{"finalizers":["agents.slipway.dev/default-policy"]}}"#), begins),
        Try::new(guarded(r#"{"metadata":{"finalizers":["example.com/kept"]}}"#), &[]),
        Try::new(format!("-n {here} delete guardrailpolicy probe {dry}"), begins),
        Try::new(format!("create namespace team-{name} {dry}"), standard),
        Try::with(format!("create {dry} -f -"), namespace("privileged"), standard),
        Try::with(format!("create {dry} -f -"), namespace("restricted"), &[]),
        Try::new(format!("-n {here} create configmap probe {dry}"), &[]),
        Try::new(format!("-n {here} delete rolebinding slipway-team-secrets {dry}"), &[]),
        Try::with(create(here), secrets(&account(name)), &[]),
    ]);
}

/// The right to write logins the manager gives to REST's account, and that to read them to itself.
fn rights_to_logins(team: &Team, names: &[String; 3], user_name: &str) {
    let here = &*team.namespace;
    let line = |verb: &str| format!("-n {here} {verb} --dry-run=server --as={user_name} -f -");
    let (manager, rest) = (account(&names[0]), account(&names[1]));
    let of = |role: &str, name: &str, subjects: &Value| binding(role, name, subjects, &json!({}));
    let (role, bind): (&str, &[&str]) =
        ("slipway-team-integrations", &["may bind slipway-team-secrets to itself", "see roleRef and subjects"]);
    // One of this name is there.
    judge(&[
        Try::with(line("create"), of("slipway-team-secrets", "slipway-team-secrets-2", &rest), bind),
        Try::with(line("create"), of(role, "slipway-team-integrations-2", &rest), bind),
        Try::with(line("replace"), of(role, role, &manager), bind),
        Try::with(line("replace"), of(role, role, &user("mallory")), bind),
        Try::with(line("replace"), of(role, role, &json!([rest[0], user("mallory")[0]])), bind),
        Try::with(line("replace"), of(role, role, &rest), &[]),
        Try::new(format!("-n {here} delete rolebinding {role} --dry-run=server --as={user_name}"), &[]),
    ]);
}

/// The manager ends canaries, which changes the spec, and begins none.
fn ends_of_canaries(team: &Team, user_name: &str) {
    let here = &team.namespace;
    let dry = format!("--dry-run=server --as={user_name}");
    let asks: &[&str] = &["of Agents the Slipway manager writes the annotations agents.slipway.dev/deploy-release and"];
    // As a promotion or a rollback does, which write the spec and say so.
    let ends = |action: &Value, spec: Value| {
        let mut change = json!({"metadata": {"annotations": {"agents.slipway.dev/canary-action": action}}, "spec": {"canary": null}});
        change["spec"].as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap_or_default());
        format!("-n {here} patch agent twofold --type=merge {dry} -p {change}")
    };
    let begin = json!({"spec": {"canary": {"enabled": true, "weight": 5}}});
    judge(&[
        Try::new(ends(&Value::Null, json!({})), asks),
        Try::new(ends(&json!("later"), json!({})), asks),
        Try::new(ends(&json!("rollback"), json!({"systemPrompt": "two"})), asks),
        Try::new(ends(&json!("rollback"), json!({"suspend": false})), asks),
        Try::new(ends(&json!("promote"), json!({"systemPrompt": "two", "suspend": false})), asks),
        Try::new(ends(&json!("promote"), json!({"systemPrompt": "two", "replicas": 2})), asks),
        Try::new(ends(&json!("promote"), json!({"systemPrompt": "two", "image": "example.com/c"})), asks),
        Try::new(ends(&json!("promote"), json!({"systemPrompt": "two", "canary": {"weight": 90}})), asks),
        Try::new(format!("-n {here} patch agent hello --type=merge {dry} -p {begin}"), asks),
        Try::new(ends(&json!("rollback"), json!({})), &[]),
        Try::new(ends(&json!("promote"), json!({"systemPrompt": "two", "environment": "next"})), &[]),
        Try::new(
            format!("-n {here} annotate agent hello agents.slipway.dev/canary-action=promote agents.slipway.dev/canary-weight=5 {dry}"),
            &[],
        ),
    ]);
}

fn rest(team: &Team, user_name: &str) {
    let dry = format!("--dry-run=server --as={user_name}");
    let create = |namespace: &str| format!("-n {namespace} create {dry} -f -");
    let here = &*team.namespace;
    let member = json!({"agents.slipway.dev/member": "user_0123456789abcdef"});
    let agent = resource("Agent", &json!({"name": "Probe", "framework": "custom"}));
    let away: &[&str] = &["Slipway's REST writes Slipway's kinds and members in team-* namespaces"];
    let bind: &[&str] = &["binds members, who are users, to slipway-viewer, slipway-developer and slipway-admin"];
    judge(&[
        Try::with(create("default"), agent.clone(), away),
        Try::with(create("default"), binding("slipway-viewer", "probe", &user("ann@example.com"), &member), away),
        Try::new(format!("create clusterrolebinding probe --clusterrole=cluster-admin --user=mallory {dry}"), away),
        Try::new(format!("-n {here} create role probe --verb=get --resource=secrets {dry}"), away),
        Try::new(format!("-n {here} create configmap probe {dry}"), away),
        Try::new(format!("-n {here} create secret generic slipway-platform {dry}"), away),
        Try::new(format!("-n default create secret generic probe {dry}"), away),
        Try::new(format!("-n default create secret generic slipway-platform {dry}"), away),
        Try::new(format!("-n default create configmap slipway-platform {dry}"), away),
        Try::with(create("default"), pod(), away),
        Try::with(create(here), daemons(), away),
        Try::with(create(here), binding("slipway-viewer", "probe", &user("ann@example.com"), &json!({})), bind),
        Try::with(create(here), binding("cluster-admin", "probe", &user("ann@example.com"), &member), bind),
        Try::with(create(here), binding("slipway-team-secrets", "probe", &user("ann@example.com"), &member), bind),
        Try::with(create(here), binding("slipway-viewer", "probe", &user("system:admin"), &member), bind),
        Try::with(create(here), binding("slipway-viewer", "probe", &account("default"), &member), bind),
        Try::new(format!("-n {here} delete rolebinding slipway-team-secrets {dry}"), bind),
        Try::with(create(here), agent, &[]),
        Try::with(create(here), resource("Tool", &json!({"name": "datetime", "type": "builtin"})), &[]),
        Try::with(create("default"), resource("GuardrailPolicy", &tokens()), away),
        Try::with(create(here), resource("GuardrailPolicy", &tokens()), &[]),
        Try::new(format!("-n {here} patch configmap slipway-policies --type=merge {dry} -p {{\"data\":null}}"), away),
        Try::with(create("default"), resource("Ingestion", &json!({"knowledgeBase": "docs", "upload": "up_1"})), away),
        Try::with(create(here), resource("Ingestion", &json!({"knowledgeBase": "docs", "upload": "up_1"})), &[]),
        Try::with(create(here), binding("slipway-admin", "probe", &user("ann@example.com"), &member), &[]),
        Try::new(format!("-n {here} delete agent hello {dry}"), &[]),
    ]);
}

/// The Secret of an Integration, as REST writes it.
fn login(uid: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Integration", "name": "probe", "uid": uid});
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "in-probe", "ownerReferences": [owner], "annotations": {"agents.slipway.dev/origin": "https://probe.example.com"}},
        "stringData": {"token": "t"},
    });
    change(&mut secret);
    secret
}

/// REST writes the logins of integrations, and nothing else that looks like one.
fn logins(team: &Team, user_name: &str) {
    let dry = format!("--dry-run=server --as={user_name}");
    let here = &*team.namespace;
    let (create, replace) = (|namespace: &str| format!("-n {namespace} create {dry} -f -"), format!("-n {here} replace {dry} -f -"));
    let uid = team.kubectl("get integration probe").json()["metadata"]["uid"].clone();
    let away: &[&str] = &["Slipway's REST writes Slipway's kinds and members in team-* namespaces, and in-* Secrets of Integrations there"];
    let owned: &[&str] = &["metadata.ownerReferences", "belongs to the Integration that it is named after"];
    let theirs: &[&str] = &["metadata.ownerReferences", "replaces no Secret that belongs to no Integration"];
    let plain: &[&str] = &["is Opaque, has 16 keys at most, names no service account, and is for no agent"];
    let of = |change: &dyn Fn(&mut Value)| login(&uid, change);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    // By its own name it would be taken already.
    let made = |change: &dyn Fn(&mut Value)| {
        of(&|secret| {
            secret["metadata"]["name"] = json!("in-fresh");
            secret["metadata"]["ownerReferences"][0]["name"] = json!("fresh");
            change(secret);
        })
    };
    team.apply(&of(&|_| ()));
    team.apply(&of(&|secret| secret["metadata"] = json!({"name": "in-theirs"})));
    let theirs_claimed = of(&|secret| {
        secret["metadata"]["name"] = json!("in-theirs");
        secret["metadata"]["ownerReferences"][0]["name"] = json!("theirs");
    });
    let many: serde_json::Map<String, Value> = (0..17).map(|at| (format!("k{at}"), json!("v"))).collect();
    judge(&[
        Try::with(create("default"), made(&|_| ()), away),
        Try::with(create(here), made(&|secret| secret["metadata"]["name"] = json!("out-fresh")), away),
        Try::with(create(here), made(&|secret| secret["metadata"]["name"] = json!("in-other")), owned),
        Try::with(create(here), made(&|secret| secret["metadata"]["ownerReferences"] = json!([])), owned),
        Try::with(create(here), made(&|secret| secret["metadata"]["ownerReferences"][0]["kind"] = json!("Agent")), owned),
        Try::with(create(here), made(&|secret| secret["metadata"]["ownerReferences"][0]["apiVersion"] = json!("v1")), owned),
        Try::with(create(here), made(&|secret| secret["metadata"]["ownerReferences"].as_array_mut().unwrap().push(pod.clone())), owned),
        Try::with(create(here), made(&|secret| secret["metadata"]["labels"] = json!({"agents.slipway.dev/agent-readable": "true"})), plain),
        Try::with(create(here), made(&|secret| secret["stringData"] = Value::Object(many.clone())), plain),
        Try::with(create(here), made(&|secret| secret["type"] = json!("example.com/other")), plain),
        Try::with(
            create(here),
            made(&|secret| {
                secret["type"] = json!("kubernetes.io/service-account-token");
                secret["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": "default"});
            }),
            plain,
        ),
        Try::with(replace.clone(), theirs_claimed, theirs),
        Try::with(replace.clone(), of(&|secret| secret["metadata"]["ownerReferences"] = json!([])), owned),
        Try::new(format!("-n {here} delete secret in-probe {dry}"), away),
        Try::with(create(here), made(&|_| ()), &[]),
        Try::with(replace, of(&|secret| secret["stringData"] = json!({"token": "newer"})), &[]),
    ]);
}

fn state(team: &Team, user_name: &str) {
    let dry = format!("--dry-run=server --as={user_name}");
    let create = |namespace: &str| format!("-n {namespace} create {dry} -f -");
    let here = &*team.namespace;
    let release = resource("AgentRelease", &json!({"agent": "hello"}));
    let away: &[&str] = &["Slipway's history changes agents and writes releases in team-* namespaces"];
    let callback: &[&str] = &["Slipway's history writes status.callback of an EvaluationRun and no other field"];
    // Its agent is stopped, so that it ends at once.
    let wait = format!("-n {here} wait evaluationrun/probe --for=jsonpath={{.status.phase}}=Failed --timeout=60s");
    kubectl(wait).ok();
    let status = |status: &Value| {
        let patch = json!({"status": status});
        format!("-n {here} patch evaluationrun probe --subresource=status --type=merge {dry} -p {patch}")
    };
    judge(&[
        Try::with(create("default"), release.clone(), away),
        Try::with(create(here), resource("Agent", &json!({"name": "Probe", "framework": "custom"})), away),
        Try::with(create(here), resource("Tool", &json!({"name": "datetime", "type": "builtin"})), away),
        Try::new(format!("-n {here} delete agent hello {dry}"), away),
        Try::new(format!("-n {here} create secret generic probe {dry}"), away),
        Try::new(format!("-n {here} create configmap probe {dry}"), away),
        Try::with(create(here), pod(), away),
        Try::with(create("kube-system"), daemons(), away),
        Try::new(format!("-n {here} create service clusterip probe --tcp=80 {dry}"), away),
        Try::new(format!("create clusterrolebinding probe --clusterrole=cluster-admin --user=mallory {dry}"), away),
        Try::new(format!("label team {} a=b {dry}", team.slug), away),
        Try::with(create(here), release, &[]),
        Try::new(format!("-n {here} annotate agent hello a=b {dry}"), &[]),
        Try::with(create(here), resource("EvaluationRun", &json!({"agent": "hello"})), away),
        Try::new(format!("-n {here} annotate evaluationrun probe a=b {dry}"), away),
        Try::new(status(&json!({"passed": true, "score": 100})), callback),
        Try::new(status(&json!({"phase": null})), callback),
        Try::new(status(&json!({"callback": {"attempt": 1, "status": "completed"}, "verdict": "PASSED"})), callback),
        Try::new(status(&json!({"callback": {"attempt": 1, "status": "completed"}})), &[]),
    ]);
}

/// What the chart's roles give, before any policy is asked.
#[test]
fn no_account_may_more_than_its_work_takes() {
    let team = Team::new("policy-rights");
    let can = |account: &str, what: &str| {
        let line = format!("auth can-i {what} --as=system:serviceaccount:{}:{account}", platform::NAMESPACE);
        kubectl(line).run().stdout.trim() == "yes"
    };
    let never = [
        "* *",
        "list secrets --all-namespaces",
        "list secrets -n kube-system",
        "get secret/slipway-database -n slipway-system",
        "impersonate users",
        "impersonate groups",
        "impersonate serviceaccounts",
        "create serviceaccounts --subresource=token --all-namespaces",
        "create clusterrolebindings",
        "create clusterroles",
        "escalate clusterroles",
        "bind clusterrole/cluster-admin",
        "bind clusterrole/admin",
        "create secrets -n slipway-system",
        "create pods --all-namespaces",
        "create pods --subresource=exec --all-namespaces",
        "create daemonsets.apps --all-namespaces",
        "create cronjobs.batch --all-namespaces",
        "delete nodes",
        "patch validatingadmissionpolicies",
        "delete validatingadmissionpolicybindings",
        "patch customresourcedefinitions",
    ];
    for account in [platform::MANAGER, platform::REST, platform::STATE] {
        for what in never {
            assert!(!can(account, what), "{account} should not be able to {what}");
        }
    }
    let defined = |account: &str| can(account, "get customresourcedefinition/agents.agents.slipway.dev");
    assert_eq!([platform::MANAGER, platform::REST, platform::STATE].map(defined), [false, true, false]);
    assert!(!can(platform::REST, "list customresourcedefinitions"));
    // The manager makes ConfigMaps for agents, skills and teams, and namespaces come and go: a policy keeps it to team-*.
    let config_maps = |account: &str| can(account, "create configmaps -n default");
    assert_eq!([platform::MANAGER, platform::REST, platform::STATE].map(config_maps), [true, false, false]);
    let manager = format!("system:serviceaccount:{}:{}", platform::NAMESPACE, platform::MANAGER);
    let refusal = kubectl(format!("create configmap probe -n default --dry-run=server --as={manager}")).refused();
    assert!(refusal.contains("the Slipway manager writes team-* namespaces and what is in them"), "{refusal}");
    let secrets = |account: &str| can(account, &format!("get secrets -n {}", team.namespace));
    assert_eq!([platform::MANAGER, platform::REST, platform::STATE].map(secrets), [true, false, false]);
    assert!(can(platform::MANAGER, "bind clusterrole/slipway-team-secrets") && !can(platform::MANAGER, "bind clusterrole/slipway-viewer"));
    // REST writes the logins of integrations, and reads none. The answer to a patch would be the whole.
    let logins = |verb: &str| can(platform::REST, &format!("{verb} secrets -n {}", team.namespace));
    let reads = ["get", "list", "watch", "patch", "delete", "deletecollection"].map(logins);
    assert_eq!((reads, ["create", "update"].map(logins)), ([false; 6], [true; 2]));
    assert!(!can(platform::STATE, &format!("create secrets -n {}", team.namespace)));
    assert!(!can(platform::REST, "bind clusterrole/slipway-team-integrations"));
    let tested = |account: &str| can(account, "patch integrations.agents.slipway.dev --subresource=status --all-namespaces");
    assert_eq!([platform::MANAGER, platform::REST, platform::STATE].map(tested), [true, false, false]);
    let status = |account: &str| can(account, "patch agentreleases.agents.slipway.dev --subresource=status --all-namespaces");
    assert_eq!([platform::MANAGER, platform::REST, platform::STATE].map(status), [false, false, true]);
    let jobs = |account: &str| can(account, "create jobs.batch --all-namespaces");
    assert_eq!([platform::MANAGER, platform::REST, platform::STATE].map(jobs), [true, false, false]);
    let fills = |account: &str| can(account, "patch ingestions.agents.slipway.dev --subresource=status --all-namespaces");
    assert_eq!([platform::MANAGER, platform::REST, platform::STATE].map(fills), [true, false, false]);
    // The manager makes the policies that a team begins with, and lets go of them: an admission policy says that it changes none.
    let guards = |account: &str| can(account, "patch guardrailpolicies.agents.slipway.dev --all-namespaces");
    assert_eq!([platform::MANAGER, platform::REST, platform::STATE].map(guards), [true, true, false]);
    let judges = |account: &str| can(account, "patch evaluationruns.agents.slipway.dev --subresource=status --all-namespaces");
    assert_eq!([platform::MANAGER, platform::REST, platform::STATE].map(judges), [true, false, true]);
}

/// Threats: the key of the hashes over Secrets, and Secrets themselves, in the hands of those who only use agents.
#[test]
fn roles_for_people_open_no_secret() {
    let team = Team::new("policy-people");
    team.secret("closed", &json!({"KEY": "value"}));
    for role in ["viewer", "developer", "admin"] {
        team.token(role);
        let can = |what: &str| {
            let line = format!("auth can-i {what} --as=system:serviceaccount:{}:e2e-{role}", team.namespace);
            kubectl(line).run().stdout.trim() == "yes"
        };
        let here = &team.namespace;
        assert!(can(&format!("get agents.agents.slipway.dev -n {here}")), "{role} should see agents");
        for what in [
            format!("get secret/slipway-keys -n {}", platform::NAMESPACE),
            format!("get secret/slipway-relay -n {}", platform::NAMESPACE),
            format!("get secret/closed -n {here}"),
            format!("get secret/slipway-runtime -n {here}"),
            // The login of an integration.
            format!("get secret/in-metrics -n {here}"),
            format!("patch integrations.agents.slipway.dev --subresource=status -n {here}"),
            format!("patch secret/slipway-canary-gate -n {here}"),
            format!("list secrets -n {here}"),
            // The label that lets agents use a Secret.
            format!("patch secret/closed -n {here}"),
            format!("create secrets -n {here}"),
            format!("create pods -n {here}"),
            format!("patch deployments.apps -n {here}"),
            format!("create pods --subresource=exec -n {here}"),
            format!("patch agents.agents.slipway.dev --subresource=status -n {here}"),
            format!("patch knowledgebases.agents.slipway.dev --subresource=status -n {here}"),
            format!("create jobs.batch -n {here}"),
            // The file in which agents' pods read the policies that hold them.
            format!("patch configmap/slipway-policies -n {here}"),
            format!("delete configmap/slipway-policies -n {here}"),
            format!("patch guardrailpolicies.agents.slipway.dev --subresource=status -n {here}"),
            "patch namespaces".to_owned(),
        ] {
            assert!(!can(&what), "{role} should not be able to {what}");
        }
        // The credential of the team's quality gates, which admins give to Flagger.
        let reads = can(&format!("get secret/slipway-canary-gate -n {here}"));
        assert_eq!(reads, role == "admin", "{role}: the credential of quality gates");
    }
}
