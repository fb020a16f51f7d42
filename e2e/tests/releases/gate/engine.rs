//! A spec that the gate has rejected, in a repository which Argo CD's engine keeps: it comes by again and again, and nobody undoes what
//! another one did.

use serde_json::{Value, json};
use slipway_e2e::gitops::Controller;
use slipway_e2e::{Agent, Checkout, Repository, condition};

use super::{Ground, rejected, runs, stable_pods, waits};
use crate::gitops::{agent as manifest, nobody_writes};

const FILE: &str = "helper.yaml";

fn gated(prompt: &str, score: i32) -> String {
    manifest("helper", &json!({"systemPrompt": prompt, "governance": {"minQualityScore": score, "riskProfile": "low"}}))
}

#[test]
fn nobody_writes_while_an_engine_keeps_what_was_rejected() {
    let ground = Ground::gated("gate-engine");
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::new(folder.path().join("repository"), &format!("namespace: {}\n", ground.team.namespace));
    repository.commit("The first of all.", &[(FILE, Some(&gated("one", 1)))]);
    let checkout = Checkout::of(&repository.url(), folder.path().join("clone"), ".");
    let controller = Controller::start(&checkout, &ground.team.namespace, None);
    let commit = |message: &str, file: &str| {
        repository.commit(message, &[(FILE, Some(file))]);
        checkout.pull();
    };
    let agent = Agent { team: &ground.team, name: "helper".to_owned() };
    runs(&agent, 1);
    agent.ready();
    let before = stable_pods(&agent);

    commit("What no answer is worth.", &gated("two", 100));
    waits(&agent, 2);
    rejected(&agent, 2);
    agent.stalled(&["ReleaseRejected"], 30);
    let spec = agent.get()["spec"].clone();
    nobody_writes(&ground.team, &controller, 1);
    let now: Value = agent.get();
    assert_eq!((&now["spec"], &now["spec"]["systemPrompt"], &now["status"]["activeRelease"]), (&spec, &json!("two"), &json!(1)));
    assert_eq!(condition(&now, "Ready")["reason"], "ReleaseRejected");
    assert_eq!(ground.history("helper").len(), 2, "what was rejected is no new release: {:?}", ground.history("helper"));
    assert_eq!(stable_pods(&agent), before, "the pods that serve were never touched");

    commit("As it was.", &gated("one", 1));
    agent.ready();
    assert_eq!((stable_pods(&agent), controller.faults().as_str()), (before, ""));
}
