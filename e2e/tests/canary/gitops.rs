//! A canary in a spec that Argo CD's engine keeps: people steer it by annotations, which the engine leaves alone, and nobody undoes
//! what another one did. The operator stands behind a door that counts what it sends.

use std::time::Duration;

use serde_json::{Value, json};
use slipway_e2e::fault::{Ground, Home, Manager, Trial};
use slipway_e2e::gitops::Controller;
use slipway_e2e::{Checkout, Repository};

use crate::gitops::agent;

const AGENT: &str = "helper";
const FILE: &str = "helper.yaml";
/// How long nobody may write anything, beside a canary and after its end: ten minutes in all. The engine comes by every other second.
const QUIET: Duration = Duration::from_mins(5);
/// The fewest rounds of the engine in that time, on however busy a machine.
const MIN_ROUNDS: usize = 20;

/// A canary with that prompt, in a spec whose author gave it a tenth.
fn manifest(prompt: &str) -> String {
    agent(AGENT, &json!({"systemPrompt": "one", "canary": {"enabled": true, "weight": 10, "systemPrompt": prompt, "tools": []}}))
}

fn live(home: &Home) -> Value {
    home.get("apis/agents.slipway.dev/v1", "agents", AGENT)
}

#[test]
fn a_canary_in_a_spec_of_gitops_is_steered_by_annotations() {
    let ground = Ground::new("steered");
    let home = ground.home();
    let manager = Manager::alone(&home);
    let mut trial = Trial::new(home, vec![manager], Home::sight);
    trial.home.team();
    trial.settled_in();
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::new(folder.path().join("repository"), &format!("namespace: {}\n", trial.home.namespace));
    repository.commit("The first of all.", &[(FILE, Some(&manifest("two")))]);
    let checkout = Checkout::of(&repository.url(), folder.path().join("clone"), ".");
    let controller = Controller::start(&checkout, &trial.home.namespace, Some(ground.kubeconfig()));
    let commit = |message: &str, file: &str| {
        repository.commit(message, &[(FILE, Some(file))]);
        checkout.pull();
    };

    has(&mut trial, "Serving", 10);
    let spec = live(&trial.home)["spec"].clone();
    let generation = live(&trial.home)["metadata"]["generation"].clone();
    for weight in [25_u64, 100, 40] {
        trial.home.annotate(AGENT, &json!({"agents.slipway.dev/canary-weight": weight.to_string()}));
        has(&mut trial, "Serving", weight);
        controller.round();
        assert_eq!(trial.home.canary(AGENT)["weight"], weight, "the engine has come by");
    }
    nobody_writes(&mut trial, &controller);

    // It ends, and the spec goes on asking for it.
    trial.home.annotate(AGENT, &json!({"agents.slipway.dev/canary-action": "rollback"}));
    has(&mut trial, "RolledBack", 0);
    trial.until("nothing that was the canary's", |trial| {
        let is_gone = |group: &str, kind: &str, name: &str| trial.home.get(group, kind, name).is_null();
        is_gone("apis/apps/v1", "deployments", "helper-canary") && is_gone("api/v1", "services", "helper-primary")
    });
    nobody_writes(&mut trial, &controller);
    let now = live(&trial.home);
    assert_eq!((&now["spec"], &now["metadata"]["generation"]), (&spec, &generation), "nobody has written to the spec");
    assert!(now["metadata"]["annotations"]["agents.slipway.dev/canary-action"].is_null(), "{now:#}");
    is_told(&trial.home, [1, 1]);

    // Another one in the repository begins, with the weight of its own, and one that is taken out of it ends.
    commit("Another one.", &manifest("three"));
    has(&mut trial, "Serving", 10);
    commit("No more of it.", &agent(AGENT, &json!({"systemPrompt": "one"})));
    trial.until("no canary", |trial| trial.home.canary(AGENT).is_null());
    trial.rests(AGENT, "DeploymentReady", "the end of the second canary");
    is_told(&trial.home, [2, 2]);
    assert_eq!(controller.faults(), "");
}

/// Waits until the canary is in this phase and has this weight.
#[track_caller]
fn has(trial: &mut Trial, phase: &str, weight: u64) {
    trial.until(&format!("a canary that is {phase} with {weight} %"), |trial| {
        let canary = trial.home.canary(AGENT);
        canary["phase"] == phase && canary["weight"] == weight
    });
}

/// Round after round of the engine nothing changes, the operator sends nothing, and the engine has nothing to put right.
#[track_caller]
fn nobody_writes(trial: &mut Trial, controller: &Controller) {
    let seen = trial.rests(AGENT, "DeploymentReady", "the last change");
    let first = controller.rounds().len();
    trial.stays(&seen, QUIET);
    let rounds = controller.rounds().split_off(first);
    assert!(rounds.len() >= MIN_ROUNDS, "in {QUIET:?} there were {} rounds: {}", rounds.len(), controller.faults());
    for round in &rounds {
        assert!(round.len() == 1 && round[0].ends_with(" unchanged"), "the engine had something to put right: {round:#?}");
    }
}

/// This number of Events for beginnings and for ends by rollback has been published, each once.
#[track_caller]
fn is_told(home: &Home, expected: [usize; 2]) {
    let told = home.told(AGENT);
    let count = |reason: &str| told.iter().filter(|found| *found == reason).count();
    assert_eq!(["AgentCanaryStarted", "AgentCanaryRolledBack"].map(count), expected, "{told:?}");
}
