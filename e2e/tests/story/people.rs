//! Steps 1 to 3: two teams, their people, and who may what.

use serde_json::{Value, json};
use slipway_e2e::{Kubectl, kubectl, platform};

use crate::stage::{Stage, namespace_of, until};
use crate::sums::user_id;

/// The four policies that every team begins with.
const POLICIES: [(&str, &str, &str, &str, &str, &str); 4] = [
    ("gp_default_tokens", "Token Limit", "warning", "max_tokens", "lt", "4096"),
    ("gp_default_latency", "Latency SLA", "critical", "max_latency", "lt", "2000"),
    ("gp_default_topics", "Blocked Topics", "critical", "blocked_topics", "contains", "violence,illegal_activity,self_harm"),
    ("gp_default_cost", "Daily Cost Cap", "warning", "max_cost_per_day", "lt", "10.00"),
];

/// A row of the specification's table of roles.
struct Action {
    what: &'static str,
    /// A call that changes nothing, no matter who makes it.
    method: &'static str,
    path: &'static str,
    /// The same by kubectl.
    asked: &'static str,
    /// Who may: platform_admin, admin, developer, viewer.
    may: [bool; 4],
}

const ALL: [bool; 4] = [true; 4];
const WRITERS: [bool; 4] = [true, true, true, false];
const ADMINS: [bool; 4] = [true, true, false, false];
const PLATFORM: [bool; 4] = [true, false, false, false];

#[rustfmt::skip]
const ACTIONS: [Action; 12] = [
    Action { what: "Create team", method: "POST", path: "/teams", asked: "create teams.agents.slipway.dev", may: PLATFORM },
    Action { what: "Delete team", method: "DELETE", path: "/teams/nobodys", asked: "delete teams.agents.slipway.dev", may: PLATFORM },
    Action { what: "Add/remove members", method: "POST", path: "/teams/harbor/members", asked: "create rolebindings -n team-harbor", may: ADMINS },
    Action { what: "Change member roles", method: "PATCH", path: "/teams/harbor/members/user_0", asked: "create rolebindings -n team-harbor", may: ADMINS },
    Action { what: "Create agent", method: "POST", path: "/agents", asked: "create agents.agents.slipway.dev -n team-harbor", may: WRITERS },
    Action { what: "Delete agent", method: "DELETE", path: "/agents/nobody", asked: "delete agents.agents.slipway.dev -n team-harbor", may: ADMINS },
    Action { what: "Deploy agent", method: "POST", path: "/agents/nobody/deploy", asked: "patch agents.agents.slipway.dev -n team-harbor", may: WRITERS },
    Action { what: "Update agent config", method: "PATCH", path: "/agents/nobody/config", asked: "patch agents.agents.slipway.dev -n team-harbor", may: WRITERS },
    Action { what: "Trigger evaluation", method: "POST", path: "/agents/nobody/evaluations", asked: "create evaluationruns.agents.slipway.dev -n team-harbor", may: WRITERS },
    Action { what: "View agents", method: "GET", path: "/agents", asked: "list agents.agents.slipway.dev -n team-harbor", may: ALL },
    Action { what: "Manage governance policies", method: "POST", path: "/governance/policies", asked: "create guardrailpolicies.agents.slipway.dev -n team-harbor", may: ADMINS },
    Action { what: "Platform config", method: "PUT", path: "/platform/config", asked: "patch configmaps/slipway-platform -n slipway-system", may: PLATFORM },
];

pub(crate) fn two_teams(stage: &mut Stage) {
    stage.play("Two teams");
    for slug in ["harbor", "depot"] {
        let namespace = platform::namespace(&format!("team-{slug}"));
        assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted", "{namespace:#}");
        until("four policies of the team", 60, || {
            let found = stage.get("root", slug, "/governance/policies");
            if found.as_array().is_some_and(|found| found.len() == POLICIES.len()) { Ok(()) } else { Err(found) }
        });
        let found = stage.get("root", slug, "/governance/policies");
        for (id, name, severity, rule, operator, value) in POLICIES {
            let policy = found.as_array().into_iter().flatten().find(|policy| policy["id"] == id).cloned().unwrap_or_default();
            let plain = policy["rules"][0]["value"].as_str().unwrap_or_default().replace(' ', "");
            let said =
                (&policy["name"], &policy["severity"], &policy["enabled"], &policy["rules"][0]["type"], &policy["rules"][0]["operator"]);
            assert_eq!(said, (&json!(name), &json!(severity), &json!(true), &json!(rule), &json!(operator)), "{id}: {policy:#}");
            assert_eq!((plain.as_str(), policy["rules"].as_array().map(Vec::len)), (value, Some(1)), "{id}: {policy:#}");
        }
    }
}

pub(crate) fn their_people(stage: &mut Stage) {
    stage.play("Their people");
    let members = stage.get("root", "harbor", "/teams/harbor/members");
    for (name, role) in [("ann", "admin"), ("dev", "developer"), ("vic", "viewer")] {
        let email = format!("{name}@example.com");
        let member = members.as_array().into_iter().flatten().find(|member| member["email"] == email).cloned().unwrap_or_default();
        assert_eq!((&member["id"], &member["role"]), (&json!(user_id(&email)), &json!(role)), "{members:#}");
    }
}

pub(crate) fn who_may_what(stage: &mut Stage) {
    stage.play("Who may what");
    let people = ["root", "ann", "dev", "vic"];
    for action in &ACTIONS {
        for (person, may) in people.into_iter().zip(action.may) {
            let what = format!("{}, by {person}", action.what);
            let status = stage.call(person, "harbor", action.method, action.path).json(&json!({})).send().status;
            assert_eq!(status != 403, may, "{what}: {} {} is {status}", action.method, action.path);
            let said = can(person, action.asked).run().stdout;
            assert_eq!(said.trim() == "yes", may, "{what}: kubectl auth can-i {} says {said:?}", action.asked);
        }
    }
    // What members were given by their addresses is the same.
    for (person, may) in people.into_iter().skip(1).zip(WRITERS.into_iter().skip(1)) {
        let asked = format!("auth can-i create agents.agents.slipway.dev -n team-harbor --as {person}@example.com");
        assert_eq!(kubectl(&asked).run().stdout.trim() == "yes", may, "kubectl {asked}");
    }
    for (call, status) in [
        (stage.call("bob", "harbor", "GET", "/agents"), 403),
        (stage.api.call("GET", "/agents").token("nonsense"), 401),
        (stage.api.call("GET", "/agents"), 401),
    ] {
        let error = call.expect(status);
        assert_eq!((names(&error), &error["path"]), (vec!["error", "message", "path"], &json!("/api/v1/agents")), "{error}");
    }
    assert_eq!(stage.call("ann", "harbor", "POST", "/teams").json(&json!({"name": "Third"})).send().status, 403);
}

fn can(person: &str, asked: &str) -> Kubectl {
    kubectl(format!("auth can-i {asked} --as system:serviceaccount:{}:{person}", namespace_of(person)))
}

/// The fields of an answer.
fn names(value: &Value) -> Vec<&str> {
    value.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}
