//! How requests and watches fare at the door while a storm lasts: what is refused, told late, twice or not at all.
//!
//! What befalls a request depends on the seed, on the request, and on how often it was made: the same seed brings much
//! the same again, whatever the order in which requests come.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::message::{RelayedReply, Request};

/// The number of events of each watch that are sent again.
const AGAIN: usize = 3;

/// What may happen, and how often.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// The percentage of requests that are refused with 409, 429, 500 or 503 and do not reach the API server.
    pub refused: u64,
    /// The percentage of writes that are done and answered with 500 all the same.
    pub unheard: u64,
    /// The percentage of reads that get the previous answer once more.
    pub stale: u64,
    /// Each so-many-th event of watches is lost. Of that the API server tells by ending the watch: at times without a
    /// word, at times by breaking off, at times with 410, after which all is listed anew.
    pub lost: u64,
    /// After each so-many-th event the last ones are told once more, in their order.
    pub repeated: u64,
    /// Requests and events may wait for this number of milliseconds.
    pub slow: u64,
}

/// What the tests' random choices depend on: $SLIPWAY_FAULT_SEED, else the time. It is shown when a test fails.
#[expect(clippy::print_stderr, reason = "the test harness shows this for failed tests alone")]
pub fn seed() -> u64 {
    let given = std::env::var("SLIPWAY_FAULT_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let seed = given.unwrap_or_else(now);
    eprintln!("the same faults again: SLIPWAY_FAULT_SEED={seed}");
    seed
}

/// What becomes of a request.
pub(super) enum Fate {
    Passes,
    /// It is answered here.
    Answered(RelayedReply),
    /// It is done, and answered with this.
    Unheard(RelayedReply),
}

/// What becomes of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EventFate {
    Once,
    /// After it these once more.
    Again(Vec<Vec<u8>>),
    Lost(End),
}

/// How a watch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Quietly,
    Broken,
    Expired,
}

/// The weather at one door.
#[derive(Default)]
pub(super) struct Sky {
    weather: Weather,
    /// How long the storm lasts that nobody has met yet.
    coming: Option<Duration>,
    ends: Option<Instant>,
    seed: u64,
    rolls: HashMap<String, u64>,
    events: u64,
    losses: usize,
    answers: HashMap<String, RelayedReply>,
    met: BTreeMap<&'static str, usize>,
}

impl Sky {
    /// Its time begins with the first request: a process that has just been killed may take longer than that to begin anew.
    pub(super) fn storm(&mut self, weather: Weather, seed: u64, lasts: Duration) {
        (self.weather, self.seed, self.coming, self.ends) = (weather, seed, Some(lasts), None);
    }

    pub(super) fn is_calm(&self) -> bool {
        self.coming.is_none() && self.ends.is_none_or(|ends| ends <= Instant::now())
    }

    /// Watches last, and leases are renewed whatever happens: neither is a sign of work.
    fn begin_with(&mut self, request: &Request) {
        if !request.is_watch()
            && request.resource() != "leases"
            && let Some(lasts) = self.coming.take()
        {
            self.ends = Some(Instant::now() + lasts);
        }
    }

    /// How often each kind of fault has happened.
    pub(super) fn met(&self) -> BTreeMap<&'static str, usize> {
        self.met.clone()
    }

    fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    /// A number below a hundred, another one each time that the same is asked.
    fn roll(&mut self, what: &str) -> u64 {
        let times = self.rolls.entry(what.to_owned()).or_default();
        *times += 1;
        let mut hasher = DefaultHasher::new();
        (self.seed, what, *times).hash(&mut hasher);
        hasher.finish() % 100
    }

    /// How long something has to wait.
    pub(super) fn pause(&mut self, what: &str) -> Duration {
        if self.is_calm() || self.weather.slow == 0 {
            return Duration::ZERO;
        }
        self.meet("slow");
        Duration::from_millis(self.weather.slow * self.roll(&format!("pause {what}")) / 100)
    }

    pub(super) fn fate(&mut self, request: &Request) -> Fate {
        self.begin_with(request);
        // Who asks for somebody else what that one may do hands on what he is told, and must.
        if self.is_calm() || request.is_review() {
            return Fate::Passes;
        }
        let Weather { refused, unheard, stale, .. } = self.weather;
        let what = format!("{} {}", request.method, request.path());
        if self.roll(&format!("refused {what}")) < refused {
            self.meet("refused");
            let codes: &[u16] = if request.is_write() { &[409, 429, 500, 503] } else { &[429, 500, 503] };
            let at = usize::try_from(self.roll(&format!("code {what}"))).unwrap_or_default();
            return Fate::Answered(RelayedReply::refusal(codes[at % codes.len()]));
        }
        if request.is_write() && self.roll(&format!("unheard {what}")) < unheard {
            self.meet("unheard");
            return Fate::Unheard(RelayedReply::refusal(500));
        }
        // Each old answer is given once, so that a client that asks again gets on.
        if request.is_read()
            && self.roll(&format!("stale {what}")) < stale
            && let Some(old) = self.answers.remove(&request.target)
        {
            self.meet("stale");
            return Fate::Answered(old);
        }
        Fate::Passes
    }

    /// Keeps what a read was answered, for when it will be old.
    pub(super) fn remember(&mut self, request: &Request, reply: &RelayedReply) {
        if request.is_read() && matches!(reply.status, 200 | 404) {
            self.answers.insert(request.target.clone(), reply.clone());
        }
    }

    /// What becomes of an event of a watch, of which these are the last ones that were told.
    pub(super) fn event(&mut self, past: &VecDeque<Vec<u8>>) -> EventFate {
        if self.is_calm() {
            return EventFate::Once;
        }
        self.events += 1;
        let Weather { lost, repeated, .. } = self.weather;
        if lost > 0 && self.events.is_multiple_of(lost) {
            self.meet("lost");
            self.losses += 1;
            return EventFate::Lost([End::Quietly, End::Expired, End::Broken][self.losses % 3]);
        }
        if repeated > 0 && self.events.is_multiple_of(repeated) && !past.is_empty() {
            self.meet("repeated");
            return EventFate::Again(past.iter().skip(past.len().saturating_sub(AGAIN)).cloned().collect());
        }
        EventFate::Once
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_brings_the_same_weather() {
        let rolls = |seed| {
            let mut sky = Sky { seed, ..Sky::default() };
            ["a", "b", "a", "a"].map(|what| sky.roll(what))
        };
        assert_eq!(rolls(7), rolls(7));
        assert_ne!(rolls(7), rolls(8));
        assert_ne!(rolls(7)[0], rolls(7)[2], "the same request fares otherwise the next time");
    }

    #[test]
    fn each_third_event_is_lost_and_each_second_told_again() {
        let mut sky = Sky::default();
        let past = VecDeque::from([b"1".to_vec(), b"2".to_vec()]);
        assert_eq!(sky.event(&past), EventFate::Once);
        sky.storm(Weather { repeated: 2, lost: 3, ..Weather::default() }, 1, Duration::from_mins(1));
        let events: Vec<EventFate> = (0..3).map(|_| sky.event(&past)).collect();
        assert_eq!(events, [EventFate::Once, EventFate::Again(past.iter().cloned().collect()), EventFate::Lost(End::Expired)]);
    }

    #[test]
    fn a_storm_lasts_from_the_first_request_on() {
        let mut sky = Sky::default();
        sky.storm(Weather::default(), 1, Duration::ZERO);
        for (line, is_calm) in [
            ("GET /api/v1/pods?watch=true", false),
            ("PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/b", false),
            ("GET /api/v1/pods", true),
        ] {
            let request = Request::read(&mut format!("{line} HTTP/1.1\r\n\r\n").as_bytes()).unwrap().unwrap();
            assert!(matches!(sky.fate(&request), Fate::Passes), "{line}");
            assert_eq!(sky.is_calm(), is_calm, "{line}");
        }
    }
}
