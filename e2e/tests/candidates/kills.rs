//! An operator that is killed at each of its writes while a gated change goes through, or is rejected: one operator after the other comes a
//! write further. What they leave is what one that lives leaves.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_e2e::When;
use slipway_e2e::fault::{Ground, SILENCE};

use super::{AGENT, CANDIDATE, End, FAILED, PASSED, Scene};

/// An operator lives for a second or two.
const TIMEOUT: Duration = Duration::from_mins(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The candidate's and the stable track's objects, the run and its statuses, and the agent's are more than this.
const MIN_KILLS: usize = 10;

impl Scene<'_> {
    /// Changes the agent, and kills one operator after the other until that has come to its end. Returns the writes at which they were
    /// killed.
    #[track_caller]
    fn killed(&mut self, change: &Value, end: End, when: When) -> Vec<String> {
        // The write that was prevented last comes first, and has to be made.
        let least = if when == When::Before { 2 } else { 1 };
        let door = self.trial.managers[0].door().clone();
        let (mut kills, mut write) = (Vec::new(), 1);
        door.arm(write, when);
        self.trial.home.change(AGENT, change);
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if door.has_killed() {
                kills.extend(door.trail().pop());
                // An operator that has changed nothing is followed by one that begins with the same writes.
                write = if door.changes() > 0 { least } else { write + 1 };
                door.arm(write, when);
            } else if door.silent_for() > SILENCE && end.is_over(&self.trial.home) {
                door.disarm();
                return kills;
            }
            self.trial.tend();
            assert!(Instant::now() < deadline, "{TIMEOUT:?} went by without an end, after kills {when:?} {kills:#?}");
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

#[track_caller]
fn survives(name: &str, change: &Value, end: End, when: When) {
    let ground = Ground::without_pods(name);
    let mut scene = Scene::new(&ground, false);
    scene.begins(&json!({}));
    let kills = scene.killed(change, end, when);
    scene.comes_to(end, &format!("kills {when:?} {kills:#?}"));
    for part in [CANDIDATE, "/evaluationruns"] {
        assert!(kills.iter().any(|write| write.contains(part)), "writes to {part} should be among {kills:#?}");
    }
    assert!(kills.len() > MIN_KILLS, "a change behind a gate takes more writes than {kills:#?}");
}

fn good() -> Value {
    json!({"systemPrompt": "second"})
}

/// No answer is worth so much.
fn bad() -> Value {
    json!({"systemPrompt": "second", "governance": {"minQualityScore": 100}})
}

#[test]
fn a_change_that_passes_survives_a_kill_before_every_write() {
    survives("admitted", &good(), PASSED, When::Before);
}

#[test]
fn a_change_that_passes_survives_a_kill_after_every_write() {
    survives("approved", &good(), PASSED, When::After);
}

#[test]
fn a_change_that_fails_survives_a_kill_before_every_write() {
    survives("declined", &bad(), FAILED, When::Before);
}

#[test]
fn a_change_that_fails_survives_a_kill_after_every_write() {
    survives("rejected", &bad(), FAILED, When::After);
}
