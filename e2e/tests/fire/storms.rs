//! An agent's whole life while requests are refused, slow or answered with what is old, and while watches lose events or
//! tell them twice. As soon as that ends, all is as on a calm day.

use std::collections::BTreeMap;
use std::time::Duration;

use slipway_e2e::fault::{Ground, Home, Manager, Trial, Weather, seed};

use super::{AGENT, LIFE, Step, calm};

/// So long a storm lasts after each thing that a user does, from the manager's first request on.
const LASTS: Duration = Duration::from_secs(3);

/// Lives through it; says what has happened. Every other time a new manager begins in the midst of it.
fn weathered(name: &str, weather: Weather) -> BTreeMap<&'static str, usize> {
    let calm = calm();
    let seed = seed();
    let ground = Ground::new(name);
    let home = ground.home();
    let manager = Manager::alone(&home);
    let mut trial = Trial::new(home, vec![manager], Home::shape);
    let door = trial.managers[0].door().clone();
    door.storm(weather, seed, LASTS);
    trial.home.team();
    trial.settled_in();
    for (at, (Step { what, act, .. }, expected)) in LIFE.into_iter().zip(&calm).enumerate() {
        door.storm(weather, seed, LASTS);
        if at % 2 == 1 {
            trial.managers[0].kill();
        }
        act(&trial.home);
        trial.comes_to(expected, &format!("{what} in {weather:?}, seed {seed}"));
    }
    assert_eq!(trial.home.reason(AGENT), "", "it has been deleted");
    door.met()
}

#[test]
fn requests_are_refused_and_writes_are_done_in_secret() {
    let met = weathered("refused", Weather { refused: 25, unheard: 30, ..Weather::default() });
    assert!(met.get("refused") > Some(&10) && met.contains_key("unheard"), "{met:?}");
}

#[test]
fn events_are_lost_and_watches_end() {
    let met = weathered("lost", Weather { lost: 3, ..Weather::default() });
    assert!(met.get("lost") > Some(&5), "{met:?}");
}

#[test]
fn old_events_are_told_again() {
    let met = weathered("repeated", Weather { repeated: 2, ..Weather::default() });
    assert!(met.get("repeated") > Some(&5), "{met:?}");
}

#[test]
fn reads_are_answered_with_what_is_old() {
    // What has expired is listed anew, and the list is old.
    let met = weathered("stale", Weather { stale: 60, lost: 4, ..Weather::default() });
    assert!(met.get("stale") > Some(&2), "{met:?}");
}

#[test]
fn everything_is_slow_and_all_of_it_at_once() {
    let met = weathered("worst", Weather { refused: 10, unheard: 30, stale: 30, lost: 7, repeated: 5, slow: 200 });
    assert!(["refused", "unheard", "lost", "repeated", "slow"].iter().all(|what| met.contains_key(what)), "{met:?}");
}
