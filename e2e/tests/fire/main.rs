//! Under fire: whatever happens between a manager and the API server, and whenever the manager is killed, it comes to the
//! same end as on a calm day, and then sends nothing.
//!
//! `hack/test fire` runs this. These tests have an API server of their own, so that only what is being tried writes there,
//! and a binary of their own, so that nothing else runs meanwhile: they measure how long nothing is sent.

mod kills;
mod leaders;
mod releases;
mod storms;

use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use slipway_e2e::fault::{Ground, Home, Manager, Trial};

/// The agent that all of it is about.
const AGENT: &str = "helper";

/// One thing that a user does, and what comes of it.
struct Step {
    what: &'static str,
    act: fn(&Home),
    /// The reason of the agent's `Ready` in the end; empty when there is no agent.
    reason: &'static str,
}

/// What a user does with an agent from its beginning to its end, once its team has a namespace.
const LIFE: [Step; 7] = [
    Step { what: "creating it", act: create, reason: "DeploymentReady" },
    Step { what: "a change", act: |home| home.change(AGENT, &json!({"systemPrompt": "second"})), reason: "DeploymentReady" },
    Step { what: "stopping it", act: |home| home.change(AGENT, &json!({"suspend": true})), reason: "Suspended" },
    Step { what: "starting it", act: |home| home.change(AGENT, &json!({"suspend": false})), reason: "DeploymentReady" },
    Step { what: "a reference to nothing", act: |home| home.change(AGENT, &json!({"tools": ["clock", "late"]})), reason: "ToolNotFound" },
    Step { what: "its mending", act: |home| home.tool("late", "calculator"), reason: "DeploymentReady" },
    Step { what: "deleting it", act: |home| home.delete("agents", AGENT), reason: "" },
];

fn create(home: &Home) {
    home.tool("clock", "datetime");
    home.agent(AGENT, &json!({"tools": ["clock"], "systemPrompt": "first"}));
}

/// What is seen after each step of [`LIFE`] on a calm day.
fn calm() -> Vec<Value> {
    static CALM: Mutex<Vec<Value>> = Mutex::new(Vec::new());
    // A test that fails at it says why, and the next tries.
    let mut calm = CALM.lock().unwrap_or_else(PoisonError::into_inner);
    if calm.is_empty() {
        *calm = lived();
    }
    calm.clone()
}

fn lived() -> Vec<Value> {
    let ground = Ground::new("calm");
    let home = ground.home();
    let manager = Manager::alone(&home);
    let mut trial = Trial::new(home, vec![manager], Home::shape);
    trial.home.team();
    trial.settled_in();
    LIFE.iter()
        .map(|Step { what, act, reason }| {
            act(&trial.home);
            trial.rests(AGENT, reason, &format!("{what} on a calm day"))
        })
        .collect()
}
