//! NetworkPolicies in force and attacked. The local cluster's network heeds none by itself: so each way is shown to be open
//! first, and then to be closed by what Slipway wrote into its policies and nothing else.

mod rules;
mod scene;

use std::net::TcpStream;

use serde_json::{Value, json};
use slipway_e2e::{Api, Fence, Team, poll};
use slipway_peers::skip;

use scene::{Scene, get_through, stop};

const FENCE: &str = "fence";

/// An attacker who has taken over an agent, a pod beside it or a pod of no team's gets no further than what agents need.
#[test]
fn what_is_taken_over_gets_no_further_than_agents_need() {
    if !Fence::is_possible() {
        skip("NetworkPolicies are put in force where the node is this machine");
        return;
    }
    let team = Team::new("fence");
    let other = team.beside("fence-other");
    let scene = Scene::set(&team, &other);
    let (closed, needed) = (scene.closed(), scene.needed());
    get_through("without a fence", &closed);
    get_through("without a fence", &needed);

    let mut fence = Fence::around(FENCE, &scene.namespaces());
    stop(&closed);
    get_through("with the fence", &needed);
    goes_on(&scene);

    // What a team opens to the world is the world, and not what lies in private.
    let outside = scene.outside();
    stop(&outside);
    team.apply(&json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "outside"},
        "spec": {"podSelector": {"matchExpressions": [{"key": "agents.slipway.dev/agent", "operator": "Exists"}]},
            "policyTypes": ["Egress"], "egress": documented_egress()},
    }));
    fence.renew();
    get_through("when it is opened", &outside);
    stop(&closed);

    // A run that was interrupted leaves no more than a run that was not.
    std::mem::forget(fence);
    drop(Fence::around(FENCE, &scene.namespaces()));
    assert_eq!(Fence::traces(FENCE), Vec::<String>::new());
    get_through("when the fence is gone", &closed[..1]);
}

/// The example for `agents.network.egress` in docs/platform.md.
fn documented_egress() -> Value {
    let text = std::fs::read_to_string(format!("{}/docs/platform.md", slipway_e2e::ROOT)).unwrap();
    let from = text.find("\n    agents:\n      network:\n").unwrap_or_else(|| panic!("docs/platform.md should show agents.network"));
    let example: Vec<_> = text[from + 1..].lines().take_while(|line| line.starts_with("    ")).collect();
    let values: Value = serde_yaml::from_str(&example.join("\n")).unwrap();
    values["agents"]["network"]["egress"].clone()
}

/// The platform's own ways, through all that it is made of: the node's probes, Services, REST and its relay.
fn goes_on(scene: &Scene) {
    poll(10, || TcpStream::connect(scene.speaker_port()).map(drop).map_err(|e| format!("the node's probes should reach agents: {e}")));
    assert!(scene.speaker.chat("by its Service").contains("by its Service"));
    let api = Api::installed().unwrap_or_else(|| panic!("REST is installed, and reached from the node"));
    let token = scene.speaker.team.token("developer");
    let path = format!("/agents/{}/chat", scene.speaker.name);
    let answer = api.call("POST", &path).token(&token).json(&json!({"message": "by the relay"})).expect(200);
    assert!(answer.to_string().contains("by the relay"), "{answer}");
    for pod in [&scene.speaker, &scene.neighbour].into_iter().flat_map(|agent| agent.pods()) {
        let container = &pod["status"]["containerStatuses"][0];
        assert_eq!((&container["ready"], &container["restartCount"]), (&json!(true), &json!(0)), "{container:#}");
    }
}
