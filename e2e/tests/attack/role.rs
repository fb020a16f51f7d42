//! Attack: a role that the giver lacks. REST binds as itself, so that it has to judge what the API server would of the caller.

use std::sync::Arc;

use serde_json::{Value, json};
use slipway_e2e::attack::{Installation, Person};
use slipway_e2e::{Api, platform, poll};

const RBAC: &str = "rbac.authorization.k8s.io";
const ROLES: [&str; 3] = ["viewer", "developer", "admin"];
const ROUNDS: u64 = 16;

/// A team, and REST.
struct Ground {
    slipway: Arc<Installation>,
    rest: Api,
    team: &'static str,
}

impl Ground {
    fn of(team: &'static str) -> Self {
        let slipway = Installation::shared();
        slipway.team(team);
        Self { rest: slipway.rest(&[]), slipway, team }
    }
}

/// Somebody who may make RoleBindings in a namespace, and what else these rules say.
fn binder(slipway: &Installation, name: &str, namespace: &str, rules: &[Value]) -> Person {
    let person = slipway.person(name);
    let bindings = json!({"apiGroups": [RBAC], "resources": ["rolebindings"], "verbs": ["get", "list", "create", "delete"]});
    let rules: Vec<Value> = rules.iter().cloned().chain([bindings]).collect();
    let metadata = json!({"name": name, "namespace": namespace});
    slipway.apply(&json!({"apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata, "rules": rules}));
    slipway.apply(&json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "User", "apiGroup": RBAC, "name": person.user}],
    }));
    poll(10, || {
        let may = slipway.kubectl_with(&person.token, format!("auth can-i create rolebindings -n {namespace}")).run().stdout;
        if may.trim() == "yes" { Ok(()) } else { Err(format!("{name} should be able to make RoleBindings")) }
    });
    person
}

/// Whether REST makes somebody a member; a refusal leaves nothing.
#[track_caller]
fn by_rest(ground: &Ground, giver: &Person, email: &str, role: &str) -> bool {
    let Ground { slipway, rest, team } = ground;
    let reply =
        rest.call("POST", &format!("/teams/{team}/members")).token(&giver.token).json(&json!({"email": email, "role": role})).send();
    assert!(matches!(reply.status, 201 | 403), "{reply:?}");
    let bindings = slipway.kubectl(format!("get rolebindings -n team-{team} -l agents.slipway.dev/member")).json();
    let is_there = bindings["items"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|binding| binding["metadata"]["annotations"]["agents.slipway.dev/email"] == email);
    assert_eq!(is_there, reply.status == 201, "{reply:?}");
    is_there
}

fn by_kubectl(ground: &Ground, giver: &Person, role: &str) -> bool {
    let Ground { slipway, team, .. } = ground;
    let line = format!("create rolebinding trial -n team-{team} --clusterrole=slipway-{role} --user=trial@example.com --dry-run=server");
    let outcome = slipway.kubectl_with(&giver.token, line).run();
    let words = "attempting to grant RBAC permissions not currently held";
    assert!(outcome.code == Some(0) || outcome.stderr.contains(words), "{outcome:?}");
    outcome.code == Some(0)
}

/// The attack as it was: four verbs on agents looked like an admin's.
#[test]
fn four_verbs_and_bindings_make_nobody_an_admin() {
    let ground = Ground::of("climb");
    let Ground { slipway, rest, .. } = &ground;
    let agents = json!({"apiGroups": ["agents.slipway.dev"], "resources": ["agents"], "verbs": ["list", "create", "delete", "patch"]});
    let climber = binder(slipway, "climber", "team-climb", &[agents]);
    for role in ROLES {
        assert!(!by_rest(&ground, &climber, &format!("{role}@example.com"), role), "made a {role}");
        assert!(!by_kubectl(&ground, &climber, role), "kubectl made a {role}");
    }
    // Nor by the way of a change: the member was made by somebody who may.
    let admin = slipway.member("climb-admin", "slipway-admin", "team-climb");
    let members = "/teams/climb/members";
    poll(10, || match rest.call("POST", members).token(&admin.token).json(&json!({"email": "low@example.com", "role": "viewer"})).send() {
        reply if matches!(reply.status, 201 | 409) => Ok(()),
        reply => Err(format!("an admin should make a viewer: {reply:?}")),
    });
    let low = rest.call("GET", members).token(&admin.token).expect(200)["data"][0]["id"].as_str().unwrap_or_default().to_owned();
    rest.call("PATCH", &format!("{members}/{low}")).token(&climber.token).json(&json!({"role": "admin"})).expect(403);
    let bindings = slipway.kubectl("get rolebindings -n team-climb -l agents.slipway.dev/member").json();
    let roles: Vec<&Value> = bindings["items"].as_array().into_iter().flatten().map(|binding| &binding["roleRef"]["name"]).collect();
    assert_eq!(roles, ["slipway-viewer"]);
}

#[test]
fn who_may_bind_a_role_gives_that_and_no_other() {
    let ground = Ground::of("clerk");
    let bind = json!({"apiGroups": [RBAC], "resources": ["clusterroles"], "resourceNames": ["slipway-developer"], "verbs": ["bind"]});
    let clerk = binder(&ground.slipway, "clerk", "team-clerk", &[bind]);
    for role in ROLES {
        assert_eq!(by_rest(&ground, &clerk, &format!("{role}@example.com"), role), role == "developer", "{role}");
        assert_eq!(by_kubectl(&ground, &clerk, role), role == "developer", "{role}");
    }
}

/// A small generator: what a round tried is told by its number.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % bound
    }
}

/// All rights of a role, a rule for each.
fn single(slipway: &Installation, role: &str) -> Vec<Value> {
    let rules = slipway.kubectl(format!("get clusterrole slipway-{role}")).json()["rules"].clone();
    let texts = |rule: &Value, field: &str| rule[field].as_array().cloned().unwrap_or_default();
    let mut all = Vec::new();
    for rule in rules.as_array().into_iter().flatten() {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                all.extend(
                    texts(rule, "verbs").into_iter().map(|verb| json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]})),
                );
            }
        }
    }
    all
}

/// Rights that are nearly enough: those of a role but for some, spelled in other ways, by name, in part, or as a wildcard.
fn some(dice: &mut Dice, mut rights: Vec<Value>) -> Vec<Value> {
    for _ in 0..[0, 0, 1, 1, 2, 5][dice.below(6)] {
        rights.remove(dice.below(rights.len()));
    }
    let at = dice.below(rights.len());
    match dice.below(8) {
        0 => rights[at]["verbs"] = json!(["*"]),
        1 => rights[at]["resources"] = json!(["*"]),
        2 => rights[at]["apiGroups"] = json!(["*"]),
        3 => rights[at]["resourceNames"] = json!(["hello"]),
        4 => rights.push(json!({"apiGroups": ["agents.slipway.dev"], "resources": ["*"], "verbs": ["get", "list", "watch"]})),
        5 => rights.push(json!({"apiGroups": ["agents.slipway.dev", RBAC, "", "events.k8s.io"], "resources": ["*"], "verbs": ["*"]})),
        6 => {
            rights.push(json!({"apiGroups": [RBAC], "resources": ["clusterroles"], "resourceNames": ["slipway-admin"], "verbs": ["bind"]}));
        }
        _ => {}
    }
    rights
}

#[test]
fn rest_and_kubectl_say_the_same_of_who_gives_a_role() {
    let ground = Ground::of("verdict");
    let mut seen = [0, 0];
    for round in 0..ROUNDS {
        let mut dice = Dice(round);
        dice.below(1);
        let whole = ROLES[dice.below(3)];
        let rules = some(&mut dice, single(&ground.slipway, whole));
        let giver = binder(&ground.slipway, &format!("giver-{round}"), "team-verdict", &rules);
        for role in ROLES {
            let (kubectl, rest) =
                (by_kubectl(&ground, &giver, role), by_rest(&ground, &giver, &format!("{role}-{round}@example.com"), role));
            assert_eq!(kubectl, rest, "round {round}, most of {whole}, gives {role}: kubectl and REST disagree: {rules:#?}");
            seen[usize::from(kubectl)] += 1;
        }
    }
    assert!(seen.iter().all(|many| *many >= 5), "both verdicts should be met, not {seen:?}");
}

/// The right to write logins is REST's alone: nobody in a team has what it takes to give it.
#[test]
fn nobody_gives_the_right_to_write_logins() {
    let ground = Ground::of("logins");
    let Ground { slipway, rest, .. } = &ground;
    let admin = slipway.member("logins-admin", "slipway-admin", "team-logins");
    poll(10, || {
        let may = slipway.kubectl_with(&admin.token, "auth can-i create rolebindings -n team-logins").run().stdout;
        if may.trim() == "yes" { Ok(()) } else { Err("an admin should be able to make RoleBindings".to_owned()) }
    });
    for role in ["slipway-team-integrations", "slipway-team-secrets"] {
        let bind = format!("create rolebinding mine -n team-logins --clusterrole={role} --user={}", admin.user);
        let refused = slipway.kubectl_with(&admin.token, &bind).refused();
        assert!(refused.contains("attempting to grant RBAC permissions not currently held"), "{refused}");
        // Nor does REST, whose account has the first of them in every team.
        let token = slipway.token_of(platform::REST);
        slipway.kubectl_with(&token, bind).refused();
        let member = json!({"email": "eve@example.com", "role": role.trim_start_matches("slipway-")});
        rest.call("POST", "/teams/logins/members").token(&admin.token).json(&member).expect(400);
    }
    let bound = slipway.kubectl("get rolebinding mine -n team-logins --ignore-not-found -o name").ok();
    assert!(bound.is_empty(), "{bound}");
    // What the manager has given it is for REST's account, and can be used for nothing but logins.
    slipway.kubectl("wait rolebinding/slipway-team-integrations -n team-logins --for=create --timeout=30s").ok();
    let given = slipway.kubectl("get rolebinding slipway-team-integrations -n team-logins").json();
    assert_eq!((&given["roleRef"]["name"], given["subjects"].as_array().map(Vec::len)), (&json!("slipway-team-integrations"), Some(1)));
    assert_eq!(given["subjects"][0]["name"], platform::REST);
    let rules = slipway.kubectl("get clusterrole slipway-team-integrations").json()["rules"].clone();
    assert_eq!(rules, json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "update"]}]));
}
