//! The repository that Slipway serves: cloned by Git with a token, and its folder `deploy/` applied in a second cluster, in
//! which nothing runs of what it says.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use slipway_e2e::gitops::{Controller, Health};
use slipway_e2e::{Agent, Api, Checkout, Kubectl, Second, State, Team, fresh, poll};

use super::{runs, spec_in_full};

/// The specs of a namespace's Agents, by name.
#[track_caller]
fn specs(query: &Kubectl) -> BTreeMap<String, Value> {
    let list = query.json();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items.iter().map(|agent| (agent["metadata"]["name"].as_str().unwrap_or_default().to_owned(), meaning(&agent["spec"]))).collect()
}

/// The artifact knows no empty lists, and quantities as text alone; the API server keeps what it was given.
fn meaning(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec.as_object_mut().unwrap().retain(|_, value| *value != json!([]));
    for part in ["/resources/requests", "/resources/limits"] {
        for quantity in spec.pointer_mut(part).and_then(Value::as_object_mut).into_iter().flat_map(serde_json::Map::values_mut) {
            if quantity.is_number() {
                *quantity = quantity.to_string().into();
            }
        }
    }
    spec
}

#[test]
fn a_second_cluster_follows_the_served_repository() {
    let second = Second::start();
    // That has a place already; who asked for another one would keep it meanwhile.
    let team = Team::called(&format!("e2e-{}", fresh("gitops-served")));
    team.apply_spec(&json!({}));
    team.ready();
    let folder = tempfile::tempdir().unwrap();
    let state = State::of(&team, folder.path());
    let api = Api::start(&state.environment());
    team.tool("lookup", &json!({"name": "calculator", "type": "builtin"}));
    team.skill("forms", &json!({}));
    let quiet = |name: &str, prompt: &str| team.agent(name, &json!({"systemPrompt": prompt, "replicas": 0, "storage": "memory"}));
    let (helper, other) = (quiet("helper", "one"), quiet("other", "I am another."));
    let concierge: Agent = team.agent("concierge", &spec_in_full());
    for agent in [&helper, &other, &concierge] {
        runs(agent, 1);
    }
    let login = format!("http://git:{}@", team.token("viewer"));
    let url = format!("{}/state/{}.git", api.url().replace("http://", &login), team.slug);
    let checkout = Checkout::of(&url, folder.path().join("clone"), "deploy");

    second.kubectl(&format!("create namespace {}", team.namespace)).ok();
    let query = second.kubectl(&format!("get agents -n {}", team.namespace));
    let health = Health::of(&query);
    let controller = Controller::start(&checkout, &team.namespace, Some(second.kubeconfig()));
    // As such tools do, it asks the repository again and again: the end of an agent is written down a moment later.
    let follows = || {
        let expected = specs(&team.kubectl("get agents"));
        poll(90, || {
            checkout.pull();
            match specs(&query) {
                found if found == expected => Ok(()),
                found => {
                    std::thread::sleep(Duration::from_secs(1));
                    Err(format!("{expected:#?}\nshould be there, and this is: {found:#?}\n{}", controller.faults()))
                }
            }
        });
        expected
    };
    assert_eq!(follows().len(), 3);
    // Nobody runs them there, and nobody takes them for ready.
    let waited_for = |names: &[&str]| {
        for name in names {
            poll(20, || if health.said(name) == ["InProgress"] { Ok(()) } else { Err(format!("of {name}: {:?}", health.said(name))) });
        }
    };
    waited_for(&["helper", "other", "concierge"]);

    helper.patch(&json!({"systemPrompt": "two", "tools": ["lookup"]}));
    runs(&helper, 2);
    assert_eq!(follows()["helper"]["systemPrompt"], "two");

    helper.kubectl("annotate").arg("agents.slipway.dev/deploy-release=1").ok();
    runs(&helper, 1);
    assert_eq!((&follows()["helper"]["systemPrompt"], &follows()["helper"]["tools"]), (&json!("one"), &Value::Null));

    team.kubectl("delete agent other --timeout=90s").ok();
    assert_eq!(follows().into_keys().collect::<Vec<_>>(), ["concierge", "helper"]);
    // And so it stays, round after round.
    let generations = || {
        let list = query.json();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|agent| agent["metadata"]["resourceVersion"].clone()).collect::<Vec<_>>()
    };
    let before = generations();
    controller.round();
    assert_eq!((generations(), controller.faults()), (before, String::new()));
    waited_for(&["helper", "concierge"]);
}
