//! Managers that work for one team, and waiting for them: until what is seen is as it should be, and nothing is sent.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::door::CountedRequest;
use super::home::{Home, differences};
use super::manager::Manager;

/// So long nobody asks for anything once the end is reached. A Team counts its agents a second after a change, and on a
/// machine with other work that may become nearly two.
pub const SILENCE: Duration = Duration::from_secs(2);
/// A reconcile that has failed again and again comes again within a minute. Only a test that fails waits to the end.
const TIMEOUT: Duration = Duration::from_mins(3);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How what is seen of a team is looked at: [`Home::sight`] for the same team again, [`Home::shape`] for another one.
type Look<'a> = fn(&Home<'a>) -> Value;

pub struct Trial<'a> {
    pub home: Home<'a>,
    pub managers: Vec<Manager>,
    look: Look<'a>,
}

impl<'a> Trial<'a> {
    pub fn new(home: Home<'a>, managers: Vec<Manager>, look: Look<'a>) -> Self {
        Self { home, managers, look }
    }

    /// Waits for something, and keeps managers running meanwhile.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(self) {
            assert!(Instant::now() < deadline, "{TIMEOUT:?} went by without {what}");
            self.tend();
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    #[track_caller]
    pub fn tend(&mut self) {
        self.managers.iter_mut().for_each(Manager::tend);
    }

    /// Waits for the namespace of the team.
    #[track_caller]
    pub fn settled_in(&mut self) {
        self.until("a namespace for the team", |trial| trial.home.has_namespace());
    }

    pub fn is_silent(&self) -> bool {
        let is_silent = |manager: &Manager| manager.door().is_calm() && manager.door().silent_for() > SILENCE;
        self.managers.iter().all(is_silent) && self.managers.iter().all(Manager::is_ready)
    }

    /// What is seen once the agent has come to that reason (none: once it has gone) and nothing is sent any more. Who takes
    /// up something in the midst of a silence has another one before him.
    #[track_caller]
    pub fn rests(&mut self, agent: &str, reason: &str, after: &str) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        let mut told = "there was no silence yet".to_owned();
        loop {
            self.tend();
            if self.is_silent() {
                let present = self.home.reason(agent);
                let seen = (self.look)(&self.home);
                match if present == reason { self.stayed(&seen, SILENCE) } else { Err(format!("it is {present:?}")) } {
                    Ok(()) => return seen,
                    Err(problem) => told = problem,
                }
            }
            let last = self.last();
            assert!(
                Instant::now() < deadline,
                "{TIMEOUT:?} after {after}, {agent} should rest and be {reason:?}, the last that was sent being {last:?}: {told}"
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn last(&self) -> Vec<Option<CountedRequest>> {
        self.managers.iter().map(|manager| manager.door().asked().into_iter().next_back()).collect()
    }

    /// Waits until all is as expected and nothing is sent, and looks whether it stays so.
    #[track_caller]
    pub fn comes_to(&mut self, expected: &Value, after: &str) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.tend();
            // While somebody is at work there is little to be seen.
            let told = if self.is_silent() { differences(expected, &(self.look)(&self.home)) } else { Vec::new() };
            if told.is_empty() && self.is_silent() {
                return;
            }
            let last = self.last();
            assert!(Instant::now() < deadline, "{TIMEOUT:?} after {after}, the last that was sent being {last:?}:\n{}", told.join("\n"));
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Nothing is sent for so long, and nothing changes.
    #[track_caller]
    pub fn stays(&self, expected: &Value, long: Duration) {
        self.stayed(expected, long).unwrap_or_else(|problem| panic!("{problem}"));
    }

    fn stayed(&self, expected: &Value, long: Duration) -> Result<(), String> {
        self.managers.iter().for_each(|manager| manager.door().count());
        std::thread::sleep(long);
        for manager in &self.managers {
            let asked = manager.door().asked();
            if !asked.is_empty() {
                return Err(format!("{} should send nothing for {long:?} and has sent {asked:?}", manager.name()));
            }
            if !manager.is_ready() {
                return Err(format!("{} should live for {long:?} and does not", manager.name()));
            }
        }
        let told = differences(expected, &(self.look)(&self.home));
        if told.is_empty() { Ok(()) } else { Err(format!("{long:?} later:\n{}", told.join("\n"))) }
    }
}
