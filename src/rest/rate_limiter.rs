//! Rate limits of calls to agents: per team and per agent, concurrent and per second. Exact within this process; with
//! several replicas a team may have as many times the limits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use slipway_http::{Error, HeaderValue, StatusCode, header};

use crate::fast_map::FastMap;
use crate::metrics::Metrics;

/// Idle entries are swept at this length, and then at twice the remaining length.
const SWEEP_AT_LEN: usize = 1024;

/// The rate limits of calls to agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RateLimits {
    /// All calls of a team to its agents.
    pub team: RateLimit,
    /// All calls to one agent.
    pub agent: RateLimit,
    /// The concurrent event listeners of a team; 0 for no limit.
    pub listeners: u32,
}

/// 0 in any field means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RateLimit {
    /// Concurrent calls, streams included.
    pub at_once: u32,
    /// Calls per second, on average.
    pub per_second: u32,
    /// Calls that may begin at once after an idle time.
    pub burst: u32,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            team: RateLimit { at_once: 1024, per_second: 400, burst: 800 },
            agent: RateLimit { at_once: 256, per_second: 100, burst: 200 },
            listeners: 4096,
        }
    }
}

impl RateLimit {
    const fn at_once(at_once: u32) -> Self {
        Self { at_once, per_second: 0, burst: 0 }
    }

    const fn within(self) -> Limit {
        Limit { rate: self, period: Duration::from_secs(1) }
    }
}

/// A rate limit whose rate is for a period of its own.
#[derive(Debug, Clone, Copy)]
struct Limit {
    rate: RateLimit,
    period: Duration,
}

/// What one user may mark of one agent: in no minute more than 60 answers, a burst included.
const FEEDBACK: Limit = Limit { rate: RateLimit { at_once: 0, per_second: 30, burst: 30 }, period: Duration::from_mins(1) };

impl Limit {
    fn interval(self) -> Option<Duration> {
        (self.rate.per_second > 0).then(|| self.period / self.rate.per_second)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    Team(String),
    Agent {
        id: String,
        name: String,
    },
    Listeners(String),
    /// The worker of a team.
    Worker(String),
    Feedback {
        agent: String,
        user: String,
    },
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Team(team) => write!(f, "team {team}: calls to its agents"),
            Self::Agent { name, .. } => write!(f, "agent {name}: calls to it"),
            Self::Listeners(team) => write!(f, "team {team}: listeners to events"),
            Self::Worker(team) => write!(f, "team {team}: calls to its worker"),
            Self::Feedback { .. } => f.write_str("feedback of one user for one agent"),
        }
    }
}

/// The current usage of a subject.
#[derive(Debug)]
struct Usage {
    at_once: u32,
    /// When the token bucket is full again.
    full_again: Instant,
}

pub(crate) struct RateLimiter {
    limits: RateLimits,
    metrics: Metrics,
    usages: Mutex<Usages>,
}

struct Usages {
    of: FastMap<Subject, Usage>,
    swept_at: usize,
}

/// Admission of one call or listener; dropping it ends the usage.
pub(crate) struct Permit {
    limiter: Arc<RateLimiter>,
    subjects: [Option<Subject>; 3],
}

impl RateLimiter {
    pub(crate) fn new(limits: RateLimits, metrics: Metrics) -> Self {
        Self { limits, metrics, usages: Mutex::new(Usages { of: FastMap::default(), swept_at: SWEEP_AT_LEN }) }
    }

    /// Admits a call of `team` to its agent of this name and id. A refused call uses nothing.
    pub(crate) fn admit_call(self: &Arc<Self>, team: &str, name: &str, id: &str, now: Instant) -> Result<Permit, Error> {
        let agent = Subject::Agent { name: name.to_owned(), id: id.to_owned() };
        let wanted = [(Subject::Team(team.to_owned()), self.limits.team.within()), (agent, self.limits.agent.within())];
        self.take(&wanted, now)?;
        let [(team, _), (agent, _)] = wanted;
        self.metrics.relays.inc();
        Ok(Permit { limiter: self.clone(), subjects: [Some(team), Some(agent), None] })
    }

    /// Admits a mark, which counts as a call of the agent besides.
    pub(crate) fn admit_feedback(
        self: &Arc<Self>,
        team: &str,
        (name, id): (&str, &str),
        user: &str,
        now: Instant,
    ) -> Result<Permit, Error> {
        let agent = Subject::Agent { name: name.to_owned(), id: id.to_owned() };
        let marks = Subject::Feedback { agent: id.to_owned(), user: user.to_owned() };
        let team = Subject::Team(team.to_owned());
        let wanted = [(team, self.limits.team.within()), (agent, self.limits.agent.within()), (marks, FEEDBACK)];
        self.take(&wanted, now)?;
        self.metrics.relays.inc();
        Ok(Permit { limiter: self.clone(), subjects: wanted.map(|(subject, _)| Some(subject)) })
    }

    /// Admits a call to the worker of a team, which may take as many as an agent.
    pub(crate) fn admit_worker_call(self: &Arc<Self>, team: &str, now: Instant) -> Result<Permit, Error> {
        let wanted =
            [(Subject::Team(team.to_owned()), self.limits.team.within()), (Subject::Worker(team.to_owned()), self.limits.agent.within())];
        self.take(&wanted, now)?;
        let [(team, _), (worker, _)] = wanted;
        self.metrics.relays.inc();
        Ok(Permit { limiter: self.clone(), subjects: [Some(team), Some(worker), None] })
    }

    pub(crate) fn admit_listener(self: &Arc<Self>, team: &str, now: Instant) -> Result<Permit, Error> {
        let wanted = [(Subject::Listeners(team.to_owned()), RateLimit::at_once(self.limits.listeners).within())];
        self.take(&wanted, now)?;
        let [(team, _)] = wanted;
        self.metrics.listeners.inc();
        Ok(Permit { limiter: self.clone(), subjects: [Some(team), None, None] })
    }

    fn take(&self, wanted: &[(Subject, Limit)], now: Instant) -> Result<(), Error> {
        let mut usages = self.usages.lock().unwrap_or_else(PoisonError::into_inner);
        for (subject, limit) in wanted {
            let Some(usage) = usages.of.get(subject) else { continue };
            let RateLimit { at_once, per_second, burst } = limit.rate;
            if at_once > 0 && usage.at_once >= at_once {
                // A running call may end at any moment.
                return Err(too_many(&format!("{subject} under way are as many as may be, {at_once}"), 1));
            }
            let Some(interval) = limit.interval() else { continue };
            // The debt may add up to a burst.
            let owed = usage.full_again.saturating_duration_since(now) + interval;
            let too_much = owed.saturating_sub(interval * burst.max(1));
            if !too_much.is_zero() {
                let seconds = too_much.as_secs() + u64::from(too_much.subsec_nanos() > 0);
                let period = if limit.period > Duration::from_secs(1) { "minute" } else { "second" };
                return Err(too_many(&format!("{subject} may begin {per_second} times a {period}"), seconds));
            }
        }
        for (subject, limit) in wanted {
            let usage = match usages.of.get_mut(subject) {
                Some(usage) => usage,
                None => usages.of.entry(subject.clone()).or_insert(Usage { at_once: 0, full_again: now }),
            };
            usage.at_once += 1;
            if let Some(interval) = limit.interval() {
                usage.full_again = usage.full_again.max(now) + interval;
            }
        }
        if usages.of.len() >= usages.swept_at {
            usages.of.retain(|_, usage| usage.at_once > 0 || usage.full_again > now);
            usages.swept_at = SWEEP_AT_LEN.max(2 * usages.of.len());
        }
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let counted = if self.subjects[1].is_some() { &self.limiter.metrics.relays } else { &self.limiter.metrics.listeners };
        counted.dec();
        let mut usages = self.limiter.usages.lock().unwrap_or_else(PoisonError::into_inner);
        for subject in self.subjects.iter().flatten() {
            if let Some(usage) = usages.of.get_mut(subject) {
                usage.at_once = usage.at_once.saturating_sub(1);
            }
        }
    }
}

fn too_many(message: &str, seconds: u64) -> Error {
    Error::new(StatusCode::TOO_MANY_REQUESTS, message).with_header(header::RETRY_AFTER, HeaderValue::from(seconds))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NONE: RateLimit = RateLimit::at_once(0);

    fn limiter(team: RateLimit, agent: RateLimit) -> Arc<RateLimiter> {
        Arc::new(RateLimiter::new(RateLimits { team, agent, listeners: 2 }, Metrics::default()))
    }

    /// The seconds in Retry-After.
    fn wait(error: &Error) -> u64 {
        assert_eq!(error.status(), StatusCode::TOO_MANY_REQUESTS);
        error.header(&header::RETRY_AFTER).unwrap().to_str().unwrap().parse().unwrap()
    }

    #[test]
    fn places_are_counted_and_given_back() {
        let (limiter, now) = (limiter(RateLimit::at_once(3), RateLimit::at_once(2)), Instant::now());
        let first = limiter.admit_call("a", "x", "x", now).unwrap();
        let _second = limiter.admit_call("a", "x", "x", now).unwrap();
        assert!(limiter.admit_call("a", "x", "x", now).is_err_and(|error| error.message().contains("agent x")));
        let _third = limiter.admit_call("a", "y", "y", now).unwrap();
        assert!(limiter.admit_call("a", "z", "z", now).is_err_and(|error| error.message().contains("team a")));
        let _other = limiter.admit_call("b", "w", "w", now).unwrap();
        drop(first);
        let _again = limiter.admit_call("a", "x", "x", now).unwrap();
        let listeners = [limiter.admit_listener("a", now).unwrap(), limiter.admit_listener("a", now).unwrap()];
        assert!(limiter.admit_listener("a", now).is_err());
        assert_eq!((limiter.metrics.relays.get(), limiter.metrics.listeners.get()), (4, 2));
        drop(listeners);
        assert_eq!((limiter.metrics.relays.get(), limiter.metrics.listeners.get()), (4, 0));
    }

    #[test]
    fn a_call_that_the_agents_limit_refuses_uses_up_nothing_of_the_teams() {
        let (limiter, now) =
            (limiter(RateLimit { at_once: 0, per_second: 1, burst: 2 }, RateLimit { at_once: 0, per_second: 1, burst: 1 }), Instant::now());
        limiter.admit_call("a", "x", "x", now).unwrap();
        (0..10).for_each(|_| assert!(limiter.admit_call("a", "x", "x", now).is_err()));
        limiter.admit_call("a", "y", "y", now).unwrap();
    }

    /// Exactly the limit is admitted, in any order of threads.
    #[test]
    fn limits_are_exact_among_threads() {
        let limiter = limiter(RateLimit::at_once(50), NONE);
        let now = Instant::now();
        let permits: Vec<Permit> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|thread| {
                    let limiter = &limiter;
                    scope.spawn(move || {
                        (0..100).filter_map(|at| limiter.admit_call("a", "x", &format!("{thread}-{at}"), now).ok()).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(permits.len(), 50);
        drop(permits);
        assert!(limiter.admit_call("a", "x", "x", now).is_ok());
    }

    #[test]
    fn a_user_marks_sixty_answers_of_an_agent_in_no_minute_more() {
        let (limiter, begin) = (limiter(NONE, NONE), Instant::now());
        let mark = |agent: &str, user: &str, at: u64| limiter.admit_feedback("a", (agent, agent), user, begin + Duration::from_millis(at));
        let given = (0..600).filter(|at| mark("x", "ada", at * 100).is_ok()).count();
        assert!((59..=60).contains(&given), "{given} in a minute");
        assert_eq!(wait(&mark("x", "ada", 59_900).err().unwrap()), 1);
        assert!(mark("x", "bob", 59_900).is_ok() && mark("y", "ada", 59_900).is_ok(), "others are not held up");
        assert_eq!(limiter.metrics.relays.get(), 0);
    }

    #[test]
    fn meters_that_count_nothing_are_forgotten() {
        let limiter = limiter(NONE, RateLimit { at_once: 0, per_second: 10, burst: 1 });
        let begin = Instant::now();
        for at in 0..10_000_u32 {
            drop(limiter.admit_call("a", "x", &at.to_string(), begin + Duration::from_secs(u64::from(at))).unwrap());
        }
        assert!(limiter.usages.lock().unwrap().of.len() <= SWEEP_AT_LEN);
    }

    proptest! {
        /// A refused call that waits for Retry-After is admitted. One that waits a second less is not, unless less than a
        /// second was missing.
        #[test]
        fn what_retry_after_says_is_true(per_second in 1_u32..50, burst in 1_u32..20, gaps in proptest::collection::vec(0_u64..400, 1..80)) {
            let limiter = limiter(NONE, RateLimit { at_once: 0, per_second, burst });
            let mut now = Instant::now();
            let mut through = Vec::new();
            for gap in gaps {
                now += Duration::from_millis(gap);
                match limiter.admit_call("a", "x", "x", now) {
                    Ok(_) => through.push(now),
                    Err(error) => {
                        let seconds = wait(&error);
                        prop_assert!(seconds >= 1);
                        if seconds > 1 {
                            prop_assert!(limiter.admit_call("a", "x", "x", now + Duration::from_secs(seconds - 1)).is_err());
                        }
                        now += Duration::from_secs(seconds);
                        prop_assert!(limiter.admit_call("a", "x", "x", now).is_ok());
                        through.push(now);
                    }
                }
            }
            // No period admits more than its share of the rate and one burst.
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
