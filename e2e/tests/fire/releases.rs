//! Releases and a rollback in bad weather, with two processes that may be killed: the one that runs agents, and the one that
//! keeps their history. Each change is one version, whatever happens to the process that writes it down.
//!
//! None of them has a gate, as here no pod answers the cases of an evaluation. An operator that is killed at each write of a gated change
//! is in `candidates/kills.rs`, where pods are processes, and a state role in `releases/kills.rs`, on the cluster.

use std::time::Duration;

use serde_json::{Value, json};
use slipway_e2e::fault::{Ground, Home, Manager, Trial, Weather, seed};

use super::{AGENT, create};

const LASTS: Duration = Duration::from_secs(3);

type Act = fn(&Home);

/// What a user does, and the version that runs then.
const STEPS: [(&str, Act, u64); 5] = [
    ("creating it", create, 1),
    ("a change", |home| home.change(AGENT, &json!({"systemPrompt": "second"})), 2),
    ("another", |home| home.change(AGENT, &json!({"systemPrompt": "third", "tools": []})), 3),
    ("rolling back", |home| home.roll_back(AGENT, 1), 1),
    ("a change of what was brought back", |home| home.change(AGENT, &json!({"systemPrompt": "fourth"})), 4),
];

fn seen(home: &Home) -> Value {
    home.releases(AGENT)
}

fn begun<'a>(ground: &'a Ground, folder: &std::path::Path) -> Trial<'a> {
    let home = ground.home();
    let managers = vec![Manager::alone(&home), Manager::keeper(&home, folder)];
    let mut trial = Trial::new(home, managers, seen);
    trial.home.team();
    trial.settled_in();
    trial
}

#[test]
fn releases_and_a_rollback_come_to_the_same_end_in_any_weather() {
    let ground = Ground::new("releases");
    let folder = tempfile::tempdir().unwrap();
    let mut trial = begun(&ground, folder.path());
    let mut expected = Vec::new();
    for (what, act, version) in STEPS {
        act(&trial.home);
        trial.until(&format!("version {version} after {what}"), |trial| seen(&trial.home)["agent"]["version"] == version);
        expected.push(trial.rests(AGENT, "DeploymentReady", what));
    }
    drop(trial);

    let seed = seed();
    let folder = tempfile::tempdir().unwrap();
    let mut trial = begun(&ground, folder.path());
    let weather = Weather { refused: 10, unheard: 30, stale: 30, lost: 5, repeated: 4, slow: 50 };
    for (at, ((what, act, _), expected)) in STEPS.into_iter().zip(&expected).enumerate() {
        for manager in &trial.managers {
            manager.door().storm(weather, seed, LASTS);
        }
        // One of the two begins anew in the midst of it.
        trial.managers[at % 2].kill();
        act(&trial.home);
        trial.comes_to(expected, &format!("{what} in {weather:?}, seed {seed}"));
    }
    let met: Vec<_> = trial.managers.iter().map(|manager| manager.door().met()).collect();
    let is_met = |what: &&str| met.iter().any(|met| met.contains_key(what));
    assert!(["refused", "unheard", "lost", "repeated"].iter().all(is_met), "{met:?}");
}
