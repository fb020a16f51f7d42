//! Two managers: without the lease they do no harm to each other's work, with it the second takes over in time, and a write
//! of the first that comes too late is put right.

use std::time::{Duration, Instant};

use serde_json::json;
use slipway_e2e::fault::{Ground, Home, Manager, SILENCE, Trial};

use super::{AGENT, LIFE, Step, calm, create};

/// A lease holds for 15 s from when a standby has seen it renewed, which looks every two seconds: it is taken up to 18 s after the last
/// renewal, and later by what nine looks take on a busy machine. What is taken for a longer lease holds for a minute.
const TAKEN_OVER: Duration = Duration::from_secs(40);
/// A standby looks every two seconds.
const HANDED_OVER: Duration = Duration::from_secs(8);

#[test]
fn two_that_work_at_once_do_no_harm() {
    let calm = calm();
    let ground = Ground::new("both");
    let home = ground.home();
    let managers = ["one", "two"].map(|name| Manager::start(&home, name, false));
    let mut trial = Trial::new(home, managers.into(), Home::shape);
    trial.managers.iter_mut().for_each(Manager::ready);
    trial.home.team();
    trial.settled_in();
    for (Step { what, act, .. }, expected) in LIFE.into_iter().zip(&calm) {
        act(&trial.home);
        trial.comes_to(expected, &format!("{what} by two at once"));
    }
    for manager in &trial.managers {
        assert!(!manager.door().writes().is_empty(), "{} should have had a part in it", manager.name());
    }
}

/// Two that agree, the first of which leads and has an agent.
fn agreed(ground: &Ground) -> Trial<'_> {
    let home = ground.home();
    let first = Manager::start(&home, "one", true);
    let mut trial = Trial::new(home, vec![first], Home::shape);
    trial.home.team();
    trial.settled_in();
    assert_eq!(trial.home.leader(), "one");
    let second = Manager::start(&trial.home, "two", true);
    trial.managers.push(second);
    trial.managers[1].ready();
    create(&trial.home);
    trial.comes_to(&calm()[0], "creating it with one that stands by");
    assert!(trial.managers[1].door().writes().is_empty(), "who does not lead should write nothing");
    trial
}

#[test]
fn another_leads_soon_after_the_first_was_killed() {
    let ground = Ground::new("succession");
    let mut trial = agreed(&ground);
    // It stays away.
    trial.managers.remove(0);
    another_leads(&mut trial, TAKEN_OVER, "a change without a leader");
}

#[test]
fn another_leads_at_once_when_the_first_is_asked_to_end() {
    let ground = Ground::new("handover");
    let mut trial = agreed(&ground);
    trial.managers.remove(0).end();
    another_leads(&mut trial, HANDED_OVER, "a change while one follows the other");
}

/// The second leads by then, and does what is asked for meanwhile.
#[track_caller]
fn another_leads(trial: &mut Trial, within: Duration, after: &str) {
    let begun = Instant::now();
    trial.home.change(AGENT, &json!({"systemPrompt": "second"}));
    trial.until("another leader", |trial| trial.home.leader() == "two");
    assert!(begun.elapsed() < within, "it took {:?}", begun.elapsed());
    trial.comes_to(&calm()[1], after);
}

#[test]
fn a_lease_that_was_deleted_or_taken_by_a_stranger_comes_back() {
    let ground = Ground::new("stranger");
    let mut trial = agreed(&ground);
    assert!(trial.managers[0].leads());
    trial.home.delete_lease();
    trial.until("a lease", |trial| !trial.home.leader().is_empty());
    assert_eq!(trial.home.leader(), "one", "a standby cannot know that nobody leads");
    assert!(trial.managers[0].leads(), "it has had it all the while");

    // With what it says, nobody would ever lead again.
    let most = i32::MAX;
    trial.home.usurp(&json!({"holderIdentity": "stranger", "leaseDurationSeconds": most, "leaseTransitions": most}));
    trial.until("the end of who led", |trial| !trial.managers.iter().any(Manager::leads));
    assert_eq!(trial.home.leader(), "stranger", "it is not taken away at once");
    trial.until("a leader of ours", |trial| ["one", "two"].contains(&trial.home.leader().as_str()));
    trial.home.change(AGENT, &json!({"systemPrompt": "second"}));
    trial.comes_to(&calm()[1], "a change after a stranger's lease");
}

#[test]
fn a_write_of_an_old_leader_that_comes_late_is_put_right() {
    let ground = Ground::new("late");
    let mut trial = agreed(&ground);
    let (old, new) = (trial.managers[0].door().clone(), trial.managers[1].door().clone());
    old.hold("configmaps");
    trial.home.change(AGENT, &json!({"systemPrompt": "from an old leader"}));
    trial.until("a write that is held back", |_| old.is_holding());
    trial.until("another leader", |trial| trial.home.leader() == "two");
    assert_eq!(trial.managers[0].ends(), 1, "who cannot renew the lease should have ended before");
    trial.home.change(AGENT, &json!({"systemPrompt": "second"}));
    trial.until("what the new leader does", |trial| prompt(&trial.home) == "second" && new.silent_for() > SILENCE);
    new.count();
    assert_eq!(old.let_go(), 200, "the API server takes it");
    trial.until("what the new leader puts right", |_| !new.writes().is_empty());
    trial.until("the present prompt", |trial| prompt(&trial.home) == "second");
    // The old one hears of all that it has missed, and that it does not lead.
    old.reopen();
    // Its renewal of the lease comes late too, and is refused.
    assert_eq!(trial.home.leader(), "two");
    trial.comes_to(&calm()[1], "a write that came late");
}

fn prompt(home: &Home) -> String {
    let config = home.get("api/v1", "configmaps", &format!("{AGENT}-config"));
    config["data"]["RUNTIME_SYSTEM_PROMPT"].as_str().unwrap_or_default().to_owned()
}
