//! A manager that is killed at each of its writes, once before the API server has heard of it and once after: the next
//! one comes to the same end as one that lives, and then sends nothing.

use std::time::Duration;

use serde_json::json;
use slipway_e2e::When;
use slipway_e2e::fault::{Ground, Home, Manager, Trial};

use super::{AGENT, create};

/// Longer than the pause between two looks at everything.
const LONG: Duration = Duration::from_secs(33);

/// A trial on a team that has its namespace, a Tool and an Agent.
fn settled(ground: &Ground) -> Trial<'_> {
    let home = ground.home();
    let manager = Manager::alone(&home);
    let mut trial = Trial::new(home, vec![manager], Home::sight);
    trial.home.team();
    trial.settled_in();
    create(&trial.home);
    trial.rests(AGENT, "DeploymentReady", "creating it");
    trial
}

/// Something that can be done and undone, and the reasons of the agent's `Ready` after each.
struct Change {
    there: (fn(&Home), &'static str),
    back: (fn(&Home), &'static str),
}

impl Change {
    /// Does and undoes it again and again, and each time the manager is killed one write later; until it is not, because
    /// there is no such write.
    fn killed_everywhere(&self, trial: &mut Trial) {
        for when in [When::Before, When::After] {
            self.killed(trial, when);
        }
    }

    fn killed(&self, trial: &mut Trial, when: When) {
        let mut round = || {
            [self.there, self.back].map(|(act, reason)| {
                let before = trial.managers[0].door().written();
                act(&trial.home);
                let seen = trial.rests(AGENT, reason, "a change without a kill");
                (seen, trial.managers[0].door().written() - before)
            })
        };
        // On a busy machine one round may have a write or two more than another.
        let (first, mut calm) = (round(), round());
        for at in [0, 1] {
            calm[at].1 = calm[at].1.min(first[at].1);
        }
        assert_ne!(calm[0].0, calm[1].0, "a change should be seen");
        let mut kills = [0, 0];
        let mut ended = [false, false];
        while ended != [true, true] {
            for (at, (act, _)) in [self.there, self.back].into_iter().enumerate() {
                let door = trial.managers[0].door().clone();
                if !ended[at] {
                    door.arm(kills[at] + 1, when);
                }
                act(&trial.home);
                trial.comes_to(&calm[at].0, &format!("a kill {when:?} write {} of {}", kills[at] + 1, ["there", "back"][at]));
                if door.disarm() {
                    kills[at] += 1;
                } else {
                    ended[at] = true;
                }
                assert!(kills[at] < 40, "it never came to an end without a kill: {:?}", door.writes());
            }
        }
        // A state that is over at once has no status, nor the two writes of its Event, and no more than that is missing.
        for at in [0, 1] {
            assert!(kills[at] > 0 && kills[at] + 3 >= calm[at].1, "{} writes, and {} kills {when:?} them", calm[at].1, kills[at]);
        }
    }
}

#[test]
fn a_change_survives_a_kill_at_every_write() {
    let ground = Ground::new("changed");
    let mut trial = settled(&ground);
    let change = Change {
        there: (|home| home.change(AGENT, &json!({"systemPrompt": "second", "replicas": 2})), "DeploymentReady"),
        back: (|home| home.change(AGENT, &json!({"systemPrompt": "first", "replicas": 1})), "DeploymentReady"),
    };
    change.killed_everywhere(&mut trial);
    // Nor does the periodic look at everything make it speak.
    let seen = trial.home.sight();
    trial.stays(&seen, LONG);
}

#[test]
fn stopping_and_starting_survive_a_kill_at_every_write() {
    let ground = Ground::new("stopped");
    let mut trial = settled(&ground);
    let change = Change {
        there: (|home| home.change(AGENT, &json!({"suspend": true})), "Suspended"),
        back: (|home| home.change(AGENT, &json!({"suspend": false})), "DeploymentReady"),
    };
    change.killed_everywhere(&mut trial);
}

#[test]
fn a_fault_and_its_mending_survive_a_kill_at_every_write() {
    let ground = Ground::new("mended");
    let mut trial = settled(&ground);
    trial.home.change(AGENT, &json!({"tools": ["clock", "late"]}));
    trial.rests(AGENT, "ToolNotFound", "a reference to nothing");
    let change = Change {
        there: (|home| home.tool("late", "calculator"), "DeploymentReady"),
        back: (|home| home.delete("tools", "late"), "ToolNotFound"),
    };
    // An agent at fault keeps what it has: only the first mending makes its objects others.
    for (act, reason) in [change.there, change.back] {
        act(&trial.home);
        trial.rests(AGENT, reason, "the first mending");
    }
    change.killed_everywhere(&mut trial);
}

#[test]
fn a_skill_that_changes_survives_a_kill_at_every_write() {
    let ground = Ground::new("skilled");
    let mut trial = settled(&ground);
    trial.home.skill("forms", "Ask for each field.");
    trial.home.change(AGENT, &json!({"skills": ["forms"]}));
    trial.rests(AGENT, "DeploymentReady", "a skill");
    let change = Change {
        there: (|home| home.skill("forms", "Ask for all fields."), "DeploymentReady"),
        back: (|home| home.skill("forms", "Ask for each field."), "DeploymentReady"),
    };
    change.killed_everywhere(&mut trial);
}

#[test]
fn naming_a_skill_survives_a_kill_at_every_write() {
    let ground = Ground::new("named");
    let mut trial = settled(&ground);
    trial.home.skill("forms", "Ask for each field.");
    trial.rests(AGENT, "DeploymentReady", "a skill that nobody names");
    let change = Change {
        there: (|home| home.change(AGENT, &json!({"skills": ["forms"]})), "DeploymentReady"),
        back: (|home| home.change(AGENT, &json!({"skills": []})), "DeploymentReady"),
    };
    change.killed_everywhere(&mut trial);
}

const COMING_AND_GOING: Change = Change { there: (|home| home.delete("agents", AGENT), ""), back: (create, "DeploymentReady") };

#[test]
fn deleting_and_creating_an_agent_survive_a_kill_before_every_write() {
    let ground = Ground::new("deleted");
    COMING_AND_GOING.killed(&mut settled(&ground), When::Before);
}

#[test]
fn deleting_and_creating_an_agent_survive_a_kill_after_every_write() {
    let ground = Ground::new("created");
    COMING_AND_GOING.killed(&mut settled(&ground), When::After);
}

#[test]
fn a_team_with_an_agent_survives_a_kill_before_every_write() {
    founded("founded", When::Before);
}

#[test]
fn a_team_with_an_agent_survives_a_kill_after_every_write() {
    founded("settled", When::After);
}

/// Each run has a new team and a new platform, so that all is made from nothing.
fn founded(name: &str, when: When) {
    let ground = Ground::new(name);
    let run = |write: usize| {
        let home = ground.home();
        let manager = Manager::alone(&home);
        let mut trial = Trial::new(home, vec![manager], Home::shape);
        trial.managers[0].door().arm(write, when);
        trial.home.team();
        trial.settled_in();
        create(&trial.home);
        trial
    };
    let mut first = run(usize::MAX);
    let expected = first.rests(AGENT, "DeploymentReady", "creating all without a kill");
    let writes = first.managers[0].door().written();
    drop(first);
    for write in 1.. {
        let mut trial = run(write);
        trial.comes_to(&expected, &format!("a kill {when:?} write {write}"));
        if !trial.managers[0].door().disarm() {
            assert!(write + 3 > writes, "{writes} writes, and {} kills", write - 1);
            break;
        }
        assert!(write < 80, "it never came to an end without a kill: {:?}", trial.managers[0].door().writes());
    }
}
