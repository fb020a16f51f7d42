//! An operator that is killed at each of its writes while an integration comes, changes and goes, once before the API server has heard
//! of the write and once after: the next one comes to the same end as one that lives, and nothing of it is told twice. There is no node,
//! so that no worker is asked: each integration has a fault of its own.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_e2e::fault::{Ground, Home, Manager, Trial};
use slipway_e2e::{When, condition};

const NAME: &str = "hook";
/// What becomes of it, by the reason of its Ready; the last stage is its end.
const STAGES: [&str; 3] = ["AddressNotAllowed", "SecretMissing", ""];

/// Asks for a stage.
fn ask(home: &Home, stage: usize) {
    let hook = |url: &str| home.integration(NAME, &json!({"webhook": {"url": url}, "alerts": {}}));
    match stage {
        0 => hook("http://10.0.0.1/hook"),
        1 => hook("https://hook.example.com/hook"),
        _ => home.delete("integrations", NAME),
    }
}

/// The reason, if the status speaks of the present spec; empty without the integration.
fn reason(home: &Home) -> String {
    let found = home.get("apis/agents.slipway.dev/v1", "integrations", NAME);
    let is_present = found["status"]["observedGeneration"] == found["metadata"]["generation"];
    let reason = if is_present { condition(&found, "Ready")["reason"].as_str() } else { Some("coming") };
    if found.is_null() { String::new() } else { reason.unwrap_or("coming").to_owned() }
}

/// One life without a kill: what is seen at the end of each stage, and how many writes it took.
fn lived(trial: &mut Trial) -> [(Value, usize); 3] {
    [0, 1, 2].map(|stage| {
        let before = trial.managers[0].door().written();
        ask(&trial.home, stage);
        trial.until("the stage", |trial| reason(&trial.home) == STAGES[stage]);
        // Nobody of that name: what is waited for is that all is at rest.
        let seen = trial.rests("nobody", "", "a stage of an integration's life");
        (seen, trial.managers[0].door().written() - before)
    })
}

/// Integrations come and go, and each time the manager is killed one write later; until it is not, because there is no such write.
fn killed(name: &str, when: When) {
    let ground = Ground::new(name);
    let home = ground.home();
    let manager = Manager::alone(&home);
    let mut trial = Trial::new(home, vec![manager], Home::sight);
    trial.home.team();
    trial.settled_in();
    // What is made once and stays is there after the first.
    lived(&mut trial);
    let calm = lived(&mut trial);
    assert_ne!(calm[0].0, calm[2].0, "an integration should be seen");
    let (mut kills, mut ended) = ([0; 3], [false; 3]);
    while ended != [true; 3] {
        for stage in [0, 1, 2] {
            let door = trial.managers[0].door().clone();
            if !ended[stage] {
                door.arm(kills[stage] + 1, when);
            }
            ask(&trial.home, stage);
            trial.comes_to(&calm[stage].0, &format!("a kill {when:?} write {} of stage {stage}", kills[stage] + 1));
            if door.disarm() {
                kills[stage] += 1;
            } else {
                ended[stage] = true;
            }
            assert!(kills[stage] < 40, "it never came to an end without a kill: {:?}", door.writes());
        }
    }
    // Writes that follow each other closely may become one, and a fault is reported when it has stood for a while.
    for stage in [0, 1, 2] {
        let (writes, kills) = (calm[stage].1, kills[stage]);
        assert!((kills > 0 || writes == 0) && kills + 3 >= writes, "{writes} writes, and {kills} kills {when:?} them");
    }
    assert!(kills[0] > 0 && kills[1] > 0, "each change is written down: {kills:?}");
    ask(&trial.home, 0);
    trial.until("an Event about what is wrong", |trial| failures(&trial.home).iter().any(|event| event["note"].as_str().is_some()));
    trial.rests("nobody", "", "an Event");
    is_told_once(&trial.home);
}

fn failures(home: &Home) -> Vec<Value> {
    home.events("Integration", NAME).into_iter().filter(|event| event["reason"] == "IntegrationFailed").collect()
}

/// Of one integration one fault is told once.
#[track_caller]
fn is_told_once(home: &Home) {
    let mut told = BTreeMap::new();
    for event in failures(home) {
        let about = format!("{} {}", event["regarding"]["uid"], event["note"]);
        *told.entry(about).or_insert(0) += 1;
    }
    let twice: Vec<_> = told.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn an_integration_survives_a_kill_before_every_write() {
    killed("hooked", When::Before);
}

#[test]
fn an_integration_survives_a_kill_after_every_write() {
    killed("unhooked", When::After);
}
