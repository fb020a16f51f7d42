//! What a mesh is told of a canary, whose kinds are installed while it serves and taken away while it serves. Only the objects are
//! looked at: nothing here runs a mesh.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Kinds, Team, fresh, kubectl, poll};
use slipway_peers::skip;

use super::{ended, serves, standing};

const OBJECTS: [&str; 3] = [
    "virtualservices.networking.istio.io/helper",
    "destinationrules.networking.istio.io/helper-primary",
    "destinationrules.networking.istio.io/helper-canary",
];

#[test]
fn a_mesh_is_told_of_a_canary_where_it_has_kinds_and_namespace() {
    let team = Team::new(&fresh("canary-mesh"));
    let agent = team.agent("helper", &json!({"storage": "memory"}));
    agent.ready();
    let Some(kinds) = Kinds::of_istio() else {
        skip("the cluster's kinds of Istio are somebody else's");
        return;
    };
    kinds.remove();
    agent.patch(&json!({"canary": {"enabled": true, "weight": 20, "systemPrompt": "second"}}));
    serves(&agent, 20);
    mesh(&agent, false, "the kinds of Istio are not installed");

    kinds.install();
    mesh(&agent, false, "is not enrolled: label it istio-injection=enabled");
    assert_eq!(there(&team), Vec::<String>::new(), "a namespace that is not enrolled has nothing of a mesh");
    label(&team, "istio.io/dataplane-mode=ambient");
    mesh(&agent, false, "without a waypoint");
    label(&team, "istio.io/dataplane-mode- istio-injection=enabled");
    mesh(&agent, true, "");
    assert_eq!(there(&team), OBJECTS);
    let service = |name: &str| format!("{name}.{}.svc.cluster.local", team.namespace);
    let found = team.get(OBJECTS[0]);
    assert_eq!(found["spec"]["hosts"], json!([service("helper")]), "what goes to a track's own Service is weighed already: {found:#}");
    assert_eq!(routes(&found), [(service("helper-primary"), "stable", 80), (service("helper-canary"), "canary", 20)].map(told));
    for (object, track) in [(OBJECTS[1], "stable"), (OBJECTS[2], "canary")] {
        let rule = team.get(object);
        assert_eq!(rule["spec"]["subsets"], json!([{"name": track, "labels": {"version": track}}]), "{rule:#}");
        // The subset is of pods that there are.
        let pods = team.kubectl(format!("get pods -l agents.slipway.dev/agent=helper,version={track}")).json();
        assert_eq!(pods["items"].as_array().map(Vec::len), Some(1), "{pods:#}");
    }

    agent.patch(&json!({"canary": {"weight": 70}}));
    serves(&agent, 70);
    weighs(&team, 70);
    // What somebody else makes of it is put back, and what somebody takes away is made again.
    team.kubectl(format!("patch {} --type=merge -p", OBJECTS[0])).arg(json!({"spec": {"hosts": ["elsewhere.example.com"]}})).ok();
    team.kubectl(format!("delete {}", OBJECTS[2])).ok();
    poll(60, || {
        let hosts = team.get(OBJECTS[0])["spec"]["hosts"].clone();
        let left = there(&team);
        if hosts == json!([service("helper")]) && left == OBJECTS {
            Ok(())
        } else {
            Err(format!("{hosts} and {left:?} should be as before"))
        }
    });

    kinds.remove();
    mesh(&agent, false, "the kinds of Istio are not installed");
    assert_eq!(standing(&agent.get())["weight"], 70, "the others that send the canary its share go on");
    kinds.install();
    mesh(&agent, true, "");
    weighs(&team, 70);
    // Who leaves the mesh leaves nothing in it.
    label(&team, "istio-injection-");
    mesh(&agent, false, "is not enrolled");
    poll(60, || nothing(&team));
    label(&team, "istio-injection=enabled");
    mesh(&agent, true, "");

    agent.patch(&json!({"canary": null}));
    ended(&agent);
    poll(60, || nothing(&team));
}

#[track_caller]
fn label(team: &Team, labels: &str) {
    kubectl(format!("label namespace {} --overwrite {labels}", team.namespace)).ok();
}

/// Waits until the status says whether a mesh has the canary's share, and why not.
#[track_caller]
fn mesh(agent: &Agent, carries: bool, says: &str) {
    agent.until(&format!("told that a mesh carries its weight: {carries} {says}"), 90, |found| {
        let told = standing(found)["carriers"].as_array().cloned().unwrap_or_default();
        let mesh = told.iter().find(|carrier| carrier["name"] == "mesh").cloned().unwrap_or_default();
        let rest = told.iter().find(|carrier| carrier["name"] == "rest").cloned().unwrap_or_default();
        let message = |carrier: &Value| carrier["message"].as_str().unwrap_or_default().to_owned();
        let is_direct = message(&rest).contains("directly reach stable alone");
        mesh["carries"] == carries && message(&mesh).contains(says) && rest["carries"] == true && is_direct != carries
    });
}

/// Of the objects that a mesh reads of the agent, those that there are.
#[track_caller]
fn there(team: &Team) -> Vec<String> {
    let is_there = |object: &&str| !team.get(object).is_null();
    OBJECTS.iter().copied().filter(is_there).map(str::to_owned).collect()
}

#[track_caller]
fn nothing(team: &Team) -> Result<(), String> {
    match there(team) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("nothing should be left of what a mesh reads, and this is: {left:?}")),
    }
}

type Route = (String, String, i64);

fn told((host, subset, weight): (String, &str, i64)) -> Route {
    (host, subset.to_owned(), weight)
}

/// Where a VirtualService leads by weight.
fn routes(service: &Value) -> Vec<Route> {
    let routes = service["spec"]["http"][0]["route"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let route = |to: &Value| (text(&to["destination"]["host"]), text(&to["destination"]["subset"]), to["weight"].as_i64().unwrap_or(-1));
    routes.iter().map(route).collect()
}

/// Waits until the canary has this share of what the mesh sends.
#[track_caller]
fn weighs(team: &Team, weight: i64) {
    poll(60, || {
        let found: Vec<i64> = routes(&team.get(OBJECTS[0])).into_iter().map(|(_, _, weight)| weight).collect();
        if found == [100 - weight, weight] {
            Ok(())
        } else {
            Err(format!("the canary should have {weight} of 100, and the weights are {found:?}"))
        }
    });
}
