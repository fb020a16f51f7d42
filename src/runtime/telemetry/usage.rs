//! Usage by minute, provider and model: the database gets these in place of a row per request. Finished minutes are taken
//! and written; a minute that could not be written is given back and added up again, for a day at most.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use slipway_database::UsageMinute;

/// Older minutes are dropped.
const MAX_MINUTES: i64 = 24 * 60;
/// Of one minute; further models count as `other`.
const MAX_MODELS: usize = 16;
const OTHER: &str = "other";

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RequestEnd {
    /// With an answer, or with what a guard says in place of one.
    #[default]
    Answered,
    Failed,
    /// Nobody waited for it, so that nobody knows.
    Cancelled,
}

/// One request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// Background work uses tokens and is no request.
    pub(crate) behind_the_scenes: bool,
    pub(crate) end: RequestEnd,
    /// None where nothing was answered, or nobody waited for it.
    pub(crate) latency: Option<Duration>,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) cost_micros: u64,
    /// It used tokens of a model whose price is not known.
    pub(crate) is_unpriced: bool,
    /// A guard has blocked something of it, once or many times.
    pub(crate) is_blocked: bool,
    pub(crate) pii: u64,
    pub(crate) injections: u64,
    pub(crate) violations: u64,
    /// Its turn is stored with its trace, or an exporter has accepted its spans.
    pub(crate) audited: u64,
    /// An answer of an agent with knowledge, and one with sources.
    pub(crate) retrieved: u64,
    pub(crate) cited: u64,
    /// Kept of what fails and of attempts at injection.
    pub(crate) trace: Option<String>,
}

#[derive(Default)]
pub(crate) struct UsageByMinute {
    /// By the minute's number since 1970; each holds few models.
    minutes: Mutex<BTreeMap<i64, Vec<UsageMinute>>>,
}

impl UsageByMinute {
    pub(crate) fn record(&self, now: Timestamp, provider: &str, model: &str, sample: &Sample) {
        let number = number(now);
        let mut minutes = self.lock();
        let models = minutes.entry(number).or_default();
        count(entry(models, number, provider, model), sample);
    }

    /// Takes out the finished minutes, oldest first.
    pub(crate) fn take_finished(&self, now: Timestamp) -> Vec<UsageMinute> {
        let mut minutes = self.lock();
        let under_way = minutes.split_off(&number(now));
        let finished = std::mem::replace(&mut *minutes, under_way);
        finished.into_values().flatten().collect()
    }

    /// Takes out all minutes, with the current one: before the process ends.
    pub(crate) fn take_all(&self) -> Vec<UsageMinute> {
        std::mem::take(&mut *self.lock()).into_values().flatten().collect()
    }

    /// Takes back minutes that could not be written. Returns how many requests were dropped with minutes that are too old.
    pub(crate) fn give_back(&self, now: Timestamp, unwritten: Vec<UsageMinute>) -> u64 {
        let oldest = number(now) - MAX_MINUTES;
        let mut minutes = self.lock();
        for usage in unwritten {
            let number = number(usage.minute);
            let models = minutes.entry(number).or_default();
            entry(models, number, &usage.provider, &usage.model).add(&usage);
        }
        let kept = minutes.split_off(&oldest);
        let given_up = std::mem::replace(&mut *minutes, kept);
        let lost: i64 = given_up.values().flatten().map(|usage| usage.requests).sum();
        lost.unsigned_abs()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, Vec<UsageMinute>>> {
        self.minutes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(now: Timestamp) -> i64 {
    now.as_second().div_euclid(60)
}

fn entry<'a>(models: &'a mut Vec<UsageMinute>, number: i64, provider: &str, model: &str) -> &'a mut UsageMinute {
    let find = |models: &[UsageMinute], provider: &str, model: &str| {
        models.iter().position(|usage| usage.provider == provider && usage.model == model)
    };
    let place = find(models, provider, model).or_else(|| if models.len() < MAX_MODELS { None } else { find(models, OTHER, OTHER) });
    let place = place.unwrap_or_else(|| {
        let (provider, model) = if models.len() < MAX_MODELS { (provider, model) } else { (OTHER, OTHER) };
        models.push(UsageMinute::empty(start(number), provider, model));
        models.len() - 1
    });
    &mut models[place]
}

fn start(number: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH.saturating_add(SignedDuration::from_secs(number * 60)).unwrap_or_default()
}

fn count(minute: &mut UsageMinute, sample: &Sample) {
    let Sample {
        behind_the_scenes,
        end,
        latency,
        input_tokens,
        output_tokens,
        cost_micros,
        is_unpriced,
        is_blocked,
        pii,
        injections,
        violations,
        audited,
        retrieved,
        cited,
        ref trace,
    } = *sample;
    if !behind_the_scenes {
        minute.requests += 1;
        minute.errors += i64::from(end == RequestEnd::Failed);
        minute.cancelled += i64::from(end == RequestEnd::Cancelled);
        // A share of requests, so that what is none is not in it.
        minute.guard_blocks += i64::from(is_blocked);
        if let Some(latency) = latency {
            let latency = i64::try_from(latency.as_millis()).unwrap_or(i64::MAX);
            minute.latency_histogram[UsageMinute::bucket(latency)] += 1;
            minute.latency_ms = minute.latency_ms.saturating_add(latency);
        }
    }
    if trace.is_some() && end == RequestEnd::Failed {
        minute.last_failed_trace.clone_from(trace);
    }
    if trace.is_some() && injections > 0 {
        minute.last_injection_trace.clone_from(trace);
    }
    minute.unpriced += i64::from(is_unpriced);
    for (sum, more) in [
        (&mut minute.input_tokens, input_tokens),
        (&mut minute.output_tokens, output_tokens),
        (&mut minute.cost_micros, cost_micros),
        (&mut minute.pii, pii),
        (&mut minute.injections, injections),
        (&mut minute.violations, violations),
        (&mut minute.audited, audited),
        (&mut minute.retrieved, retrieved),
        (&mut minute.cited, cited),
    ] {
        *sum = sum.saturating_add_unsigned(more);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-11-21T{text}Z").parse().unwrap()
    }

    fn sample(milliseconds: u64) -> Sample {
        let latency = Some(Duration::from_millis(milliseconds));
        Sample { latency, input_tokens: 10, output_tokens: 3, cost_micros: 7, ..Sample::default() }
    }

    #[test]
    fn a_minute_is_given_out_once_it_is_over() {
        let usage = UsageByMinute::default();
        usage.record(at("10:00:00"), "openai", "a", &sample(80));
        usage.record(at("10:00:59.999"), "openai", "a", &Sample { end: RequestEnd::Failed, pii: 2, is_blocked: true, ..sample(80) });
        usage.record(at("10:00:30"), "openai", "b", &sample(1));
        usage.record(at("10:01:00"), "openai", "a", &sample(1));
        assert_eq!(usage.take_finished(at("10:00:59")), []);
        let taken = usage.take_finished(at("10:01:00"));
        let [a, b] = &taken[..] else { panic!("{taken:#?}") };
        let expected = UsageMinute {
            requests: 2,
            errors: 1,
            input_tokens: 20,
            output_tokens: 6,
            cost_micros: 14,
            latency_histogram: vec![0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            latency_ms: 160,
            guard_blocks: 1,
            pii: 2,
            ..UsageMinute::empty(at("10:00:00"), "openai", "a")
        };
        assert_eq!((a, a.minute, b.requests), (&expected, at("10:00:00"), 1));
        assert_eq!(usage.take_finished(at("10:01:30")), []);
        assert_eq!(usage.take_all().len(), 1);
        assert_eq!(usage.take_all(), []);
    }

    #[test]
    fn each_latency_falls_into_the_first_bucket_that_holds_it() {
        for (milliseconds, bucket) in [(0, 0), (10, 0), (11, 1), (100, 3), (101, 4), (120_000, 14), (120_001, 15), (u64::MAX, 15)] {
            let usage = UsageByMinute::default();
            usage.record(at("10:00:00"), "p", "m", &sample(milliseconds));
            let histogram = &usage.take_all()[0].latency_histogram;
            assert_eq!(histogram.iter().position(|count| *count == 1), Some(bucket), "{milliseconds} ms");
        }
    }

    #[test]
    fn what_was_cancelled_is_neither_an_error_nor_an_answer() {
        let usage = UsageByMinute::default();
        usage.record(at("10:00:00"), "p", "m", &Sample { end: RequestEnd::Cancelled, latency: None, ..sample(0) });
        usage.record(at("10:00:00"), "p", "m", &Sample { end: RequestEnd::Failed, is_unpriced: true, ..sample(80) });
        usage.record(at("10:00:00"), "p", "m", &Sample { behind_the_scenes: true, is_unpriced: true, ..Sample::default() });
        let taken = &usage.take_all()[0];
        assert_eq!((taken.requests, taken.errors, taken.cancelled, taken.unpriced), (2, 1, 1, 2));
        assert_eq!(taken.latency_histogram.iter().sum::<i64>(), 1);
    }

    #[test]
    fn a_minute_names_the_last_that_failed_and_the_last_attempt() {
        let usage = UsageByMinute::default();
        let of = |trace: &str| Sample { trace: Some(trace.to_owned()), ..sample(1) };
        for (end, injections, trace) in [
            (RequestEnd::Failed, 0, "tr_1"),
            (RequestEnd::Failed, 0, "tr_2"),
            (RequestEnd::Answered, 2, "tr_3"),
            (RequestEnd::Answered, 0, "tr_4"),
            (RequestEnd::Cancelled, 0, "tr_5"),
        ] {
            usage.record(at("10:00:00"), "p", "m", &Sample { end, injections, ..of(trace) });
        }
        // What belongs to no turn has none.
        usage.record(at("10:00:00"), "p", "m", &Sample { behind_the_scenes: true, injections: 1, ..Sample::default() });
        let unwritten = usage.take_finished(at("10:01:00"));
        usage.record(at("10:00:00"), "p", "m", &sample(1));
        usage.give_back(at("10:01:00"), unwritten);
        let taken = &usage.take_all()[0];
        let traces = (taken.last_failed_trace.as_deref(), taken.last_injection_trace.as_deref());
        assert_eq!((taken.requests, traces), (6, (Some("tr_2"), Some("tr_3"))));
    }

    #[test]
    fn a_request_without_a_duration_is_in_no_bucket() {
        let usage = UsageByMinute::default();
        usage.record(at("10:00:00"), "p", "m", &sample(80));
        usage.record(at("10:00:00"), "p", "m", &Sample { latency: None, is_blocked: true, ..sample(0) });
        // Work behind the scenes is no request, so that its block is in no share of requests.
        usage.record(at("10:00:00"), "p", "m", &Sample { behind_the_scenes: true, is_blocked: true, violations: 1, ..Sample::default() });
        let taken = &usage.take_all()[0];
        assert_eq!((taken.requests, taken.guard_blocks, taken.violations, taken.latency_ms), (2, 1, 1, 80));
        assert_eq!(taken.latency_histogram.iter().sum::<i64>(), 1);
    }

    #[test]
    fn what_could_not_be_written_is_added_to_what_came_since() {
        let usage = UsageByMinute::default();
        usage.record(at("10:00:00"), "p", "m", &sample(1));
        let unwritten = usage.take_finished(at("10:01:00"));
        // A clock that was set back brings another request of that minute.
        usage.record(at("10:00:10"), "p", "m", &sample(1));
        usage.give_back(at("10:01:00"), unwritten);
        let taken = usage.take_finished(at("10:01:00"));
        assert_eq!((taken.len(), taken[0].requests, taken[0].latency_histogram[0]), (1, 2, 2));
    }

    #[test]
    fn a_day_without_a_database_is_kept_and_no_more() {
        let usage = UsageByMinute::default();
        let start = at("00:00:00");
        let (mut now, mut lost) = (start, 0);
        for _ in 0..(MAX_MINUTES + 100) {
            usage.record(now, "p", "m", &sample(1));
            now += SignedDuration::from_mins(1);
            lost += usage.give_back(now, usage.take_finished(now));
        }
        let taken = usage.take_all();
        assert_eq!((i64::try_from(taken.len()), lost), (Ok(MAX_MINUTES), 100));
        assert_eq!(taken[0].minute, start + SignedDuration::from_mins(100));
    }

    #[test]
    fn models_beyond_the_bound_are_counted_together() {
        let usage = UsageByMinute::default();
        for number in 0..100 {
            usage.record(at("10:00:00"), "p", &format!("m{number}"), &sample(1));
        }
        let taken = usage.take_all();
        assert_eq!((taken.len(), taken[MAX_MODELS].requests), (17, 84));
        assert_eq!(taken[MAX_MODELS].model, OTHER);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_counted_twice(steps in prop::collection::vec((0_i64..300, 0_usize..3, any::<bool>()), 1..200)) {
            let usage = UsageByMinute::default();
            let (mut now, mut written, mut total) = (at("00:00:00"), 0, 0);
            for (seconds, model, fails) in steps {
                now += SignedDuration::from_secs(seconds);
                usage.record(now, "p", ["a", "b", "c"][model], &sample(1));
                total += 1;
                let taken = usage.take_finished(now);
                if fails {
                    written += i64::try_from(usage.give_back(now, taken)).unwrap();
                } else {
                    written += taken.iter().map(|usage| usage.requests).sum::<i64>();
                }
            }
            written += usage.take_all().iter().map(|usage| usage.requests).sum::<i64>();
            prop_assert_eq!(written, total);
        }
    }
}
