//! Every route × every role × own and foreign team. Which right a route takes, the API's description says; which roles
//! have that right, the specification says, here.

use std::collections::BTreeMap;

use serde_json::{Deserializer, Value, json};
use slipway_e2e::{Api, Team, kubectl, platform};
use slipway_peers::Issuer;

use super::callers::{Caller, Platform, accounts, people};

/// A team that nobody has.
const NOWHERE: &str = "e2e-nowhere";

/// The specification's table. None: it says nothing of such a right, and no route may take it.
fn roles(verb: &str, resource: &str) -> Option<&'static [&'static str]> {
    const READ: [&str; 3] = ["get", "list", "watch"];
    const WRITE: [&str; 3] = ["create", "update", "patch"];
    const KINDS: [&str; 5] = ["agents", "agentreleases", "tools", "skills", "knowledgebases"];
    match resource {
        // View agents and releases; create and deploy them and change their configuration; delete them.
        kind if KINDS.contains(&kind) && READ.contains(&verb) => Some(&["platform_admin", "admin", "developer", "viewer"]),
        kind if KINDS.contains(&kind) && WRITE.contains(&verb) => Some(&["platform_admin", "admin", "developer"]),
        kind if KINDS.contains(&kind) && verb == "delete" => Some(&["platform_admin", "admin"]),
        // Our own addition: talking to agents can be given alone.
        "agents/chat" if verb == "create" => Some(&["platform_admin", "admin", "developer", "chat"]),
        // Add and remove members, change their roles.
        "rolebindings" if ["get", "list", "watch", "create", "delete"].contains(&verb) => Some(&["platform_admin", "admin"]),
        // Create and delete teams; the platform's configuration.
        "teams" if verb == "create" || verb == "delete" => Some(&["platform_admin"]),
        "configmaps" | "secrets" if verb == "get" || verb == "patch" => Some(&["platform_admin"]),
        _ => None,
    }
}

/// What a route takes to be answered, as the description has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    scope: String,
    verb: String,
    group: String,
    resource: String,
    subresource: String,
}

impl Permission {
    fn of(operation: &Value) -> Self {
        let text = |name: &str| operation["x-permission"][name].as_str().unwrap_or_default().to_owned();
        let [scope, verb, group, resource, subresource] = ["scope", "verb", "group", "resource", "subresource"].map(text);
        Self { scope, verb, group, resource, subresource }
    }

    /// Whether the specification lets this role have it, in its own team or in another.
    fn is_for(&self, role: &str, own: bool) -> bool {
        let (mut resource, verb) = (self.resource.clone(), &self.verb);
        if !self.subresource.is_empty() {
            resource = format!("{resource}/{}", self.subresource);
        }
        let has = || {
            let roles = roles(verb, &resource);
            roles.unwrap_or_else(|| panic!("the table of roles says nothing of {verb} {resource}: {self:?}")).contains(&role)
        };
        match self.scope.as_str() {
            "open" | "known" => true,
            "team" => has() && (own || role == "platform_admin"),
            "cluster" | "platform" => has() && role == "platform_admin",
            other => panic!("what is the scope {other:?}? {self:?}"),
        }
    }
}

struct Route {
    method: String,
    path: String,
    permission: Permission,
}

fn routes(api: &Api) -> Vec<Route> {
    let description = api.call("GET", "/openapi.json").expect(200);
    let paths = description["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, operations)| {
        operations.as_object().unwrap().iter().map(move |(method, operation)| Route {
            method: method.to_uppercase(),
            path: path.clone(),
            permission: Permission::of(operation),
        })
    });
    operations.collect()
}

impl Route {
    /// Whether a call is let in. It names nothing that exists but the team, and says nothing that could be done.
    fn lets_in(&self, api: &Api, caller: &Caller, team: &str) -> Result<bool, String> {
        let team_in_path = if self.permission.scope == "cluster" { NOWHERE } else { team };
        let filled = self.path.split('/').map(|part| match part {
            "{team}" => team_in_path,
            part if part.starts_with('{') => "nothing-of-this-name",
            part => part,
        });
        let path = filled.collect::<Vec<_>>().join("/");
        let mut call = api.call(&self.method, &path).token(&caller.token).header("X-Team", team);
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

#[test]
fn every_route_lets_in_whom_the_specification_lets_in_and_nobody_else() {
    let own = Team::new("matrix");
    let foreign = own.beside("matrix-foreign");
    let issuer = Issuer::start();
    let callers: Vec<Caller> = people(&issuer, &own).into_iter().chain(accounts(&own)).collect();
    let _platform = Platform::admins(&own, &callers);
    let api = super::api(&issuer);
    let routes = routes(&api);
    assert!(routes.len() > 10, "a description of {} routes", routes.len());

    let mut wrong = Vec::new();
    for route in &routes {
        let Route { method, path, permission } = route;
        for caller in &callers {
            for (team, is_own) in [(&own, true), (&foreign, false)] {
                let expected = permission.is_for(caller.role, is_own);
                let outcome = route.lets_in(&api, caller, &team.slug);
                if outcome != Ok(expected) {
                    wrong.push(format!("{method} {path} in {}: {} ({}) {outcome:?}, not {expected}", team.slug, caller.name, caller.role));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} routes' calls went otherwise:\n{}", wrong.len(), routes.len(), wrong.join("\n"));

    // The same by kubectl: not our table, not our server.
    let mut rights: BTreeMap<&Permission, &Route> = BTreeMap::new();
    rights.extend(routes.iter().filter(|route| !route.permission.verb.is_empty()).map(|route| (&route.permission, route)));
    for caller in &callers {
        for (team, is_own) in [(&own, true), (&foreign, false)] {
            let questions: Vec<Value> = rights.keys().map(|right| question(right, team)).collect();
            for (right, may) in rights.keys().zip(answers(caller, &questions)) {
                let (who, place) = (&caller.name, &team.slug);
                assert_eq!(may, right.is_for(caller.role, is_own), "kubectl, {who} ({}) in {place}: {right:?}", caller.role);
            }
        }
    }
}

/// What `kubectl auth can-i` asks.
fn question(right: &Permission, team: &Team) -> Value {
    let (namespace, name) = match right.scope.as_str() {
        "team" => (team.namespace.as_str(), ""),
        "platform" => (platform::NAMESPACE, "slipway-platform"),
        _ => ("", ""),
    };
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "verb": right.verb, "group": right.group, "resource": right.resource, "subresource": right.subresource,
            "namespace": namespace, "name": name,
        }},
    })
}

/// All questions at once, asked as this caller.
fn answers(caller: &Caller, questions: &[Value]) -> Vec<bool> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": questions});
    let mut call = kubectl("create -f - -o json").arg(format!("--as={}", caller.name)).input(list);
    for group in &caller.groups {
        call = call.arg(format!("--as-group={group}"));
    }
    let text = call.ok();
    let answers: Vec<Value> = Deserializer::from_str(&text).into_iter::<Value>().map(Result::unwrap).collect();
    let answers: Vec<Value> = answers.into_iter().flat_map(|answer| answer["items"].as_array().cloned().unwrap_or(vec![answer])).collect();
    assert_eq!(answers.len(), questions.len(), "{text}");
    answers.iter().map(|answer| answer["status"]["allowed"] == true).collect()
}
