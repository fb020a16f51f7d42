//! How much may be asked of agents: by one team, and of one agent, at once and by the second. Counted by this
//! process alone and exactly; with several replicas a team may have up to as many times as much.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use slipway_http::{Error, HeaderValue, StatusCode, header};

use crate::map::Map;
use crate::metrics::Metrics;

/// Meters that count nothing any more are looked for when there are this many, and then at twice what was left.
const MANY: usize = 1024;

/// What REST lets through to agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// All calls of a team to its agents.
    pub team: Limit,
    /// All calls to one agent.
    pub agent: Limit,
    /// How many listeners to events a team may have at once; 0 for no limit.
    pub listeners: u32,
}

/// Of any of these, 0 means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limit {
    /// Calls under way, streams included.
    pub at_once: u32,
    /// Calls that may begin in a second, in the long run.
    pub per_second: u32,
    /// Calls that may begin together after a rest.
    pub burst: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            team: Limit { at_once: 1024, per_second: 400, burst: 800 },
            agent: Limit { at_once: 256, per_second: 100, burst: 200 },
            listeners: 4096,
        }
    }
}

impl Limit {
    const fn at_once(at_once: u32) -> Self {
        Self { at_once, per_second: 0, burst: 0 }
    }

    fn interval(self) -> Option<Duration> {
        (self.per_second > 0).then(|| Duration::from_secs(1) / self.per_second)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    Team(String),
    Agent { id: String, name: String },
    Listeners(String),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Team(team) => write!(f, "team {team}: calls to its agents"),
            Self::Agent { name, .. } => write!(f, "agent {name}: calls to it"),
            Self::Listeners(team) => write!(f, "team {team}: listeners to events"),
        }
    }
}

/// What a subject uses at present.
#[derive(Debug)]
struct Meter {
    at_once: u32,
    /// When all that was used of the rate will have come back.
    rested: Instant,
}

pub(crate) struct Gate {
    limits: Limits,
    metrics: Metrics,
    meters: Mutex<Meters>,
}

struct Meters {
    of: Map<Subject, Meter>,
    swept_at: usize,
}

/// A place among the calls under way. It is given back when this goes.
pub(crate) struct Pass {
    gate: Arc<Gate>,
    subjects: [Option<Subject>; 2],
}

impl Gate {
    pub(crate) fn new(limits: Limits, metrics: Metrics) -> Self {
        Self { limits, metrics, meters: Mutex::new(Meters { of: Map::default(), swept_at: MANY }) }
    }

    /// Lets a call of `team` to its agent of this name and id through. One that is refused uses up nothing.
    pub(crate) fn call(self: &Arc<Self>, team: &str, name: &str, id: &str, now: Instant) -> Result<Pass, Error> {
        let agent = Subject::Agent { name: name.to_owned(), id: id.to_owned() };
        let wanted = [(Subject::Team(team.to_owned()), self.limits.team), (agent, self.limits.agent)];
        self.take(&wanted, now)?;
        let [(team, _), (agent, _)] = wanted;
        self.metrics.relays.inc();
        Ok(Pass { gate: self.clone(), subjects: [Some(team), Some(agent)] })
    }

    pub(crate) fn listener(self: &Arc<Self>, team: &str, now: Instant) -> Result<Pass, Error> {
        let wanted = [(Subject::Listeners(team.to_owned()), Limit::at_once(self.limits.listeners))];
        self.take(&wanted, now)?;
        let [(team, _)] = wanted;
        self.metrics.listeners.inc();
        Ok(Pass { gate: self.clone(), subjects: [Some(team), None] })
    }

    fn take(&self, wanted: &[(Subject, Limit)], now: Instant) -> Result<(), Error> {
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        for (subject, limit) in wanted {
            let Some(meter) = meters.of.get(subject) else { continue };
            if limit.at_once > 0 && meter.at_once >= limit.at_once {
                // When one of them ends cannot be known; a place may be free at any moment.
                return Err(refusal(&format!("{subject} under way are as many as may be, {}", limit.at_once), 1));
            }
            let Some(interval) = limit.interval() else { continue };
            // What is owed of the rate may add up to a burst.
            let owed = meter.rested.saturating_duration_since(now) + interval;
            let too_much = owed.saturating_sub(interval * limit.burst.max(1));
            if !too_much.is_zero() {
                let seconds = too_much.as_secs() + u64::from(too_much.subsec_nanos() > 0);
                return Err(refusal(&format!("{subject} may begin {} times a second", limit.per_second), seconds));
            }
        }
        for (subject, limit) in wanted {
            let meter = match meters.of.get_mut(subject) {
                Some(meter) => meter,
                None => meters.of.entry(subject.clone()).or_insert(Meter { at_once: 0, rested: now }),
            };
            meter.at_once += 1;
            if let Some(interval) = limit.interval() {
                meter.rested = meter.rested.max(now) + interval;
            }
        }
        if meters.of.len() >= meters.swept_at {
            meters.of.retain(|_, meter| meter.at_once > 0 || meter.rested > now);
            meters.swept_at = MANY.max(2 * meters.of.len());
        }
        Ok(())
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let counted = if self.subjects[1].is_some() { &self.gate.metrics.relays } else { &self.gate.metrics.listeners };
        counted.dec();
        let mut meters = self.gate.meters.lock().unwrap_or_else(PoisonError::into_inner);
        for subject in self.subjects.iter().flatten() {
            if let Some(meter) = meters.of.get_mut(subject) {
                meter.at_once = meter.at_once.saturating_sub(1);
            }
        }
    }
}

fn refusal(message: &str, seconds: u64) -> Error {
    Error::new(StatusCode::TOO_MANY_REQUESTS, message).with_header(header::RETRY_AFTER, HeaderValue::from(seconds))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NONE: Limit = Limit::at_once(0);

    fn gate(team: Limit, agent: Limit) -> Arc<Gate> {
        Arc::new(Gate::new(Limits { team, agent, listeners: 2 }, Metrics::default()))
    }

    /// The seconds in Retry-After.
    fn wait(error: &Error) -> u64 {
        assert_eq!(error.status(), StatusCode::TOO_MANY_REQUESTS);
        error.header(&header::RETRY_AFTER).unwrap().to_str().unwrap().parse().unwrap()
    }

    #[test]
    fn places_are_counted_and_given_back() {
        let (gate, now) = (gate(Limit::at_once(3), Limit::at_once(2)), Instant::now());
        let first = gate.call("a", "x", "x", now).unwrap();
        let _second = gate.call("a", "x", "x", now).unwrap();
        assert!(gate.call("a", "x", "x", now).is_err_and(|error| error.message().contains("agent x")));
        let _third = gate.call("a", "y", "y", now).unwrap();
        assert!(gate.call("a", "z", "z", now).is_err_and(|error| error.message().contains("team a")));
        let _other = gate.call("b", "w", "w", now).unwrap();
        drop(first);
        let _again = gate.call("a", "x", "x", now).unwrap();
        let listeners = [gate.listener("a", now).unwrap(), gate.listener("a", now).unwrap()];
        assert!(gate.listener("a", now).is_err());
        assert_eq!((gate.metrics.relays.get(), gate.metrics.listeners.get()), (4, 2));
        drop(listeners);
        assert_eq!((gate.metrics.relays.get(), gate.metrics.listeners.get()), (4, 0));
    }

    #[test]
    fn a_call_that_the_agents_limit_refuses_uses_up_nothing_of_the_teams() {
        let (gate, now) =
            (gate(Limit { at_once: 0, per_second: 1, burst: 2 }, Limit { at_once: 0, per_second: 1, burst: 1 }), Instant::now());
        gate.call("a", "x", "x", now).unwrap();
        (0..10).for_each(|_| assert!(gate.call("a", "x", "x", now).is_err()));
        gate.call("a", "y", "y", now).unwrap();
    }

    /// Whatever the order of things, exactly so many get through, and never one too few.
    #[test]
    fn limits_are_exact_among_threads() {
        let gate = gate(Limit::at_once(50), NONE);
        let now = Instant::now();
        let passes: Vec<Pass> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|thread| {
                    let gate = &gate;
                    scope.spawn(move || {
                        (0..100).filter_map(|at| gate.call("a", "x", &format!("{thread}-{at}"), now).ok()).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(passes.len(), 50);
        drop(passes);
        assert!(gate.call("a", "x", "x", now).is_ok());
    }

    #[test]
    fn meters_that_count_nothing_are_forgotten() {
        let gate = gate(NONE, Limit { at_once: 0, per_second: 10, burst: 1 });
        let begin = Instant::now();
        for at in 0..10_000_u32 {
            drop(gate.call("a", "x", &at.to_string(), begin + Duration::from_secs(u64::from(at))).unwrap());
        }
        assert!(gate.meters.lock().unwrap().of.len() <= MANY);
    }

    proptest! {
        /// A refused call that waits as long as it is told gets through, and one that waits a second less does not,
        /// unless less than a second was missing.
        #[test]
        fn what_retry_after_says_is_true(per_second in 1_u32..50, burst in 1_u32..20, gaps in proptest::collection::vec(0_u64..400, 1..80)) {
            let gate = gate(NONE, Limit { at_once: 0, per_second, burst });
            let mut now = Instant::now();
            let mut through = Vec::new();
            for gap in gaps {
                now += Duration::from_millis(gap);
                match gate.call("a", "x", "x", now) {
                    Ok(_) => through.push(now),
                    Err(error) => {
                        let seconds = wait(&error);
                        prop_assert!(seconds >= 1);
                        if seconds > 1 {
                            prop_assert!(gate.call("a", "x", "x", now + Duration::from_secs(seconds - 1)).is_err());
                        }
                        now += Duration::from_secs(seconds);
                        prop_assert!(gate.call("a", "x", "x", now).is_ok());
                        through.push(now);
                    }
                }
            }
            // In no stretch of time more begin than the rate and one burst allow.
            for (at, begin) in through.iter().enumerate() {
                for (more, end) in through[at..].iter().enumerate() {
                    let allowed = f64::from(burst) + end.duration_since(*begin).as_secs_f64() * f64::from(per_second) + 1e-6;
                    let begun = f64::from(u32::try_from(more + 1).unwrap());
                    prop_assert!(begun <= allowed, "{} in {:?}", begun, end.duration_since(*begin));
                }
            }
        }
    }
}
