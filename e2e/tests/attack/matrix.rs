//! Attack: a call without the role for it. Every operation × every role × own and foreign team, held against a table that
//! was typed from the specification: by REST, and by kubectl with the right that the API's document says an operation takes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Deserializer, Value, json};
use slipway_e2e::attack::Installation;
use slipway_e2e::{Api, platform};
use slipway_peers::Issuer;

const RBAC: &str = "rbac.authorization.k8s.io";
const OWN: &str = "matrix";
const FOREIGN: &str = "matrix-foreign";
/// A team that nobody has.
const NOWHERE: &str = "matrix-nowhere";
const ROLES: [&str; 6] = ["platform_admin", "admin", "developer", "viewer", "chat", "nobody"];

/// A row of the table.
struct Row {
    method: &'static str,
    path: &'static str,
    role: &'static str,
}

fn table() -> Vec<Row> {
    let lines = include_str!("matrix/roles.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let row = |line: &'static str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [method, path, role, _, ..] => Row { method, path, role },
        _ => panic!("no row: {line}"),
    };
    lines.map(row).collect()
}

impl Row {
    /// The operation whatever its variables are called.
    fn operation(&self) -> String {
        operation(self.method, self.path)
    }

    /// Whether a caller of this role is let in, in the team of that role or in another.
    fn is_for(&self, role: &str, own: bool) -> bool {
        let in_team: &[&str] = match self.role {
            // No role matters there.
            "open" | "known" | "callback" | "gate" => return true,
            "platform_admin" => &[],
            "admin" => &["admin"],
            "developer" => &["admin", "developer"],
            "viewer" => &["admin", "developer", "viewer"],
            "chat" => &["admin", "developer", "chat"],
            other => panic!("{}: there is no role {other}", self.operation()),
        };
        role == "platform_admin" || (own && in_team.contains(&role))
    }

    /// Makes the call, which names nothing that exists but the team and says nothing that could be done.
    fn lets_in(&self, api: &Api, caller: &Caller, team: &str) -> Result<bool, String> {
        let team_in_path = if self.role == "platform_admin" { NOWHERE } else { team };
        let filled = self.path.split('/').map(|part| match part {
            "{teamId}" => team_in_path,
            part if part.starts_with('{') => "nothing-of-this-name",
            part => part,
        });
        let path = filled.collect::<Vec<_>>().join("/");
        let mut call = api.call(self.method, &path).header("X-Team", team);
        if self.role != "open" {
            call = call.token(&caller.token);
        }
        if self.method != "GET" {
            call = call.body("application/x-nothing", "nothing");
        }
        // An answer that is let in may be one that does not end.
        match call.stream().status {
            403 => Ok(false),
            status @ (401 | 429 | 500) => Err(format!("{status}: {}", call.send().body)),
            _ => Ok(true),
        }
    }
}

fn operation(method: &str, path: &str) -> String {
    let path = path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part });
    format!("{} {}", method.to_uppercase(), path.collect::<Vec<_>>().join("/"))
}

/// The operations of the API's document, and what each says that it takes.
fn document(api: &Api) -> BTreeMap<String, Value> {
    let document = api.call("GET", "/openapi.json").expect(200);
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, methods)| methods.as_object().unwrap().iter().map(move |method| (path, method)));
    operations.map(|(path, (method, of))| (operation(method, path), of["x-permission"].clone())).collect()
}

/// Somebody with a role in the team, in the cluster, or with none.
struct Caller {
    role: &'static str,
    /// What Kubernetes calls them.
    name: String,
    groups: Vec<String>,
    token: String,
}

/// For each role somebody of the issuer and a ServiceAccount, and somebody who is a developer by a group.
fn callers(slipway: &Installation, issuer: &Issuer) -> Vec<Caller> {
    let mut callers = Vec::new();
    for role in ROLES {
        let email = format!("matrix-{role}@example.com");
        let token = token(issuer, &json!({"email": email}));
        callers.push((json!({"kind": "User", "name": email}), Caller { role, token, groups: Vec::new(), name: email }));
        let account = format!("matrix-{}", role.replace('_', "-"));
        let person = slipway.person(&account);
        let groups = ["system:serviceaccounts", "system:serviceaccounts:people"].map(str::to_owned).into();
        callers.push((json!({"kind": "User", "name": person.user}), Caller { role, token: person.token, groups, name: person.user }));
    }
    let (group, name) = ("oidc:matrix-developers".to_owned(), "matrix-by-group@example.com".to_owned());
    let token = token(issuer, &json!({"email": name, "groups": ["matrix-developers"]}));
    callers.push((json!({"kind": "Group", "name": group}), Caller { role: "developer", token, groups: vec![group], name }));
    for (at, (subject, caller)) in callers.iter().enumerate() {
        let (kind, namespace) = match caller.role {
            "nobody" => continue,
            "platform_admin" => ("ClusterRoleBinding", Value::Null),
            _ => ("RoleBinding", json!(format!("team-{OWN}"))),
        };
        let mut subject = subject.clone();
        subject["apiGroup"] = json!(RBAC);
        slipway.apply(&json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": {"name": format!("matrix-{at}"), "namespace": namespace},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": format!("slipway-{}", caller.role.replace('_', "-"))},
            "subjects": [subject],
        }));
    }
    callers.into_iter().map(|(_, caller)| caller).collect()
}

fn token(issuer: &Issuer, more: &Value) -> String {
    let mut claims = json!({"aud": "slipway", "email_verified": true});
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    issuer.token(&claims.to_string())
}

#[test]
fn every_route_lets_in_whom_the_specification_lets_in_and_nobody_else() {
    let slipway = Installation::shared();
    let issuer = Issuer::start();
    for team in [OWN, FOREIGN] {
        slipway.team(team);
        slipway.kubectl(format!("wait team/{team} --for=condition=Ready --timeout=60s")).ok();
    }
    let callers = callers(&slipway, &issuer);
    let api = slipway.rest(&[
        ("SLIPWAY_OIDC_ISSUER", issuer.url()),
        ("SLIPWAY_OIDC_AUDIENCE", "slipway"),
        ("SLIPWAY_OIDC_USERNAME_CLAIM", "email"),
        ("SLIPWAY_OIDC_GROUPS_CLAIM", "groups"),
        ("SLIPWAY_OIDC_GROUPS_PREFIX", "oidc:"),
    ]);
    let (table, document) = (table(), document(&api));
    let operations: BTreeSet<String> = table.iter().map(Row::operation).collect();
    assert_eq!(operations.len(), table.len(), "an operation has two rows in roles.txt");
    let described: BTreeSet<String> = document.keys().cloned().collect();
    assert_eq!(operations, described, "roles.txt and the API's document should have the same operations");

    let configuration = crate::platform_configuration();
    let before = all_there_is(&slipway);
    let mut wrong = Vec::new();
    // Tokens of users are as wrong as any other for a callback, and wrong ones are limited.
    for row in table.iter().filter(|row| row.role != "callback") {
        for caller in &callers {
            for team in [OWN, FOREIGN] {
                let (expected, outcome) = (row.is_for(caller.role, team == OWN), row.lets_in(&api, caller, team));
                if outcome != Ok(expected) {
                    let Caller { role, name, .. } = caller;
                    wrong.push(format!("{} in {team}: {name} ({role}): {outcome:?}, not {expected}", row.operation()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} calls went otherwise than roles.txt says:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(all_there_is(&slipway), before, "calls that name nothing should do nothing");
    drop(configuration);

    // What the document says that each operation takes is held by the same roles: Kubernetes says so.
    for row in &table {
        let scope = match row.role {
            role @ ("open" | "known" | "callback" | "gate") => role,
            "platform_admin" => continue,
            _ => "team",
        };
        assert_eq!(document[&row.operation()]["scope"], scope, "{}", row.operation());
    }
    let rights: Vec<(&Row, &Value)> =
        table.iter().map(|row| (row, &document[&row.operation()])).filter(|(_, right)| right["verb"].is_string()).collect();
    assert_eq!(rights.len(), table.iter().filter(|row| !matches!(row.role, "open" | "known" | "callback" | "gate")).count());
    for caller in &callers {
        for team in [OWN, FOREIGN] {
            let questions: Vec<Value> = rights.iter().map(|(_, right)| question(right, team)).collect();
            for ((row, right), may) in rights.iter().zip(answers(&slipway, caller, &questions)) {
                let Caller { role, name, .. } = caller;
                assert_eq!(may, row.is_for(role, team == OWN), "kubectl, {name} ({role}) in {team}: {}: {right}", row.operation());
            }
        }
    }
}

/// The objects that calls could have made, changed or taken away.
fn all_there_is(slipway: &Installation) -> BTreeMap<String, String> {
    let ours = "agents,agentreleases,tools,skills,knowledgebases,ingestions,integrations,datasets,evaluationruns,guardrailpolicies,rolebindings,configmaps";
    let mut there = BTreeMap::new();
    for line in [
        format!("get {ours} -n team-{OWN}"),
        format!("get {ours} -n team-{FOREIGN}"),
        "get teams".to_owned(),
        format!("get configmap,secret slipway-platform -n {}", platform::NAMESPACE),
    ] {
        for object in slipway.kubectl(&line).json()["items"].as_array().unwrap() {
            // Other tests have teams too.
            let metadata = &object["metadata"];
            let name = format!("{line} {} {}", object["kind"], metadata["name"]);
            if object["kind"] != "Team" || name.contains("matrix") {
                there.insert(name, metadata["resourceVersion"].to_string());
            }
        }
    }
    there
}

/// What `kubectl auth can-i` asks.
fn question(right: &Value, team: &str) -> Value {
    let (namespace, name) = match right["scope"].as_str() {
        Some("team") => (format!("team-{team}"), ""),
        Some("platform") => (platform::NAMESPACE.to_owned(), "slipway-platform"),
        _ => (String::new(), ""),
    };
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "verb": right["verb"], "group": right["group"], "resource": right["resource"], "subresource": right["subresource"],
            "namespace": namespace, "name": name,
        }},
    })
}

/// All questions at once, asked as this caller.
fn answers(slipway: &Installation, caller: &Caller, questions: &[Value]) -> Vec<bool> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": questions});
    let mut call = slipway.kubectl("create -f - -o json").arg(format!("--as={}", caller.name)).input(list);
    for group in &caller.groups {
        call = call.arg(format!("--as-group={group}"));
    }
    let text = call.ok();
    let answers: Vec<Value> = Deserializer::from_str(&text).into_iter::<Value>().map(Result::unwrap).collect();
    let answers: Vec<Value> = answers.into_iter().flat_map(|answer| answer["items"].as_array().cloned().unwrap_or(vec![answer])).collect();
    assert_eq!(answers.len(), questions.len(), "{text}");
    answers.iter().map(|answer| answer["status"]["allowed"] == true).collect()
}
