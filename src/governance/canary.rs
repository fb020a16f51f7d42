//! Whether a canary keeps its gates: its rate of failed requests and its latency beside those of the stable track, and its score.
//!
//! A gate passes and fails by tests of its own, and what neither shows is undecided, however long it has been looked at. Nothing is
//! concluded from few requests. Runtimes of teams write the numbers, so that none is trusted to make sense.

use crate::latency::quantile;
use crate::measurements::{float, percent};
use crate::rollback::fisher;

/// The probability that a canary that is as good as the stable track fails, over all of its looks, is below this.
const FAIL_LEVEL: f64 = 0.01;
/// Two gates are tested, and an undecided canary is judged again each minute. Simulated, this raises the probability by less than this
/// factor.
const REPEATED: f64 = 10.0;
/// The same of a look before the end of a step, of which there are many.
const CATASTROPHE_LEVEL: f64 = 1e-6;
/// The fewest failed or slow requests by which a gate fails.
const MIN_BAD: u64 = 5;
const MIN_CATASTROPHE: u64 = 10;
/// The fewest answers of each track by which latency is judged.
const MIN_ANSWERS: u64 = 20;
/// The quantiles of the normal distribution at 95 and 99 percent, one-sided.
const Z_PASS: f64 = 1.645;
const Z_FAIL: f64 = 2.326;
/// What may be above the bound of latency: of one in twenty it is the 95th percentile, and one in ten is shown to be enough.
const SLOW_FAIL: f64 = 0.05;
const SLOW_PASS: f64 = 0.10;
/// Larger counts are scaled down to this number of requests: the exact test takes time, and says no more of them.
const MAX_REQUESTS: i64 = 1_000_000;

/// What was measured of a track.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evidence {
    /// Requests that ended, which those that callers gave up did not.
    pub ended: i64,
    /// Those of them that failed.
    pub errors: i64,
    /// A histogram of the milliseconds to an answer, of those that were answered.
    pub latency: Vec<i64>,
    /// The score of the evaluation of what the track runs, 0 to 100.
    pub score: Option<f64>,
}

impl Evidence {
    /// Of the requests that ended, the percentage that failed. None of none.
    pub fn error_percent(&self) -> Option<f64> {
        percent(self.errors, self.ended)
    }
}

/// What a canary has to keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gates {
    /// By how many percentage points its error rate may be above the stable track's.
    pub error_margin: f64,
    /// How long its 95th percentile may be, in percent of the stable track's.
    pub latency_ratio: f64,
    pub min_score: Option<f64>,
    /// How many requests each track needs before anything is concluded.
    pub minimum: i64,
    /// How many steps one canary has, by which the level of each test is divided.
    pub looks: i32,
}

#[derive(Debug, Clone, PartialEq)]
pub enum CanaryVerdict {
    /// What cannot be concluded from, in words.
    TooLittle(&'static str),
    /// Neither kept nor broken, in words.
    Undecided(String),
    Pass,
    /// What was broken, in words.
    Fail(String),
}

/// Judges a canary. `bounds` are those of the histograms.
pub fn judge(canary: &Evidence, stable: &Evidence, gates: &Gates, bounds: &[i64]) -> CanaryVerdict {
    if canary.ended < gates.minimum {
        return CanaryVerdict::TooLittle("requests to the canary");
    }
    if stable.ended < gates.minimum {
        return CanaryVerdict::TooLittle("requests to the stable track");
    }
    let level = FAIL_LEVEL / REPEATED / f64::from(gates.looks.max(1));
    let found = [errors(canary, stable, gates, level), latency(canary, stable, gates, level, bounds), score(canary, gates)];
    let mut undecided: Vec<String> = Vec::new();
    for verdict in found {
        match verdict {
            CanaryVerdict::Fail(why) => return CanaryVerdict::Fail(why),
            CanaryVerdict::Undecided(why) => undecided.push(why),
            CanaryVerdict::TooLittle(_) | CanaryVerdict::Pass => {}
        }
    }
    if undecided.is_empty() { CanaryVerdict::Pass } else { CanaryVerdict::Undecided(undecided.join("; ")) }
}

/// What is so bad that a canary ends at once, in words, whatever its minimum.
pub fn catastrophic(canary: &Evidence, stable: &Evidence) -> Option<String> {
    let (new, former) = (Part::failed(canary), Part::failed(stable));
    let p = fisher(new.bad, new.of, former.bad, former.of);
    (new.bad >= MIN_CATASTROPHE && p < CATASTROPHE_LEVEL).then(|| worse("failed", new, former, p))
}

/// Requests, and those of them that are bad.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    bad: u64,
    of: u64,
}

impl Part {
    fn new(bad: i64, of: i64) -> Self {
        let of = of.max(0);
        let bad = bad.clamp(0, of);
        let divisor = of.saturating_sub(1) / MAX_REQUESTS + 1;
        Self { bad: (bad / divisor).unsigned_abs(), of: (of / divisor).unsigned_abs() }
    }

    fn failed(evidence: &Evidence) -> Self {
        Self::new(evidence.errors, evidence.ended)
    }

    /// The answers that took longer than the bound at this place.
    fn slow(evidence: &Evidence, place: usize, buckets: usize) -> Self {
        let sum = |counts: &[i64]| counts.iter().fold(0_i64, |sum, count| sum.saturating_add((*count).max(0)));
        let counts = evidence.latency.get(..buckets).unwrap_or(&evidence.latency);
        Self::new(sum(counts.get(place.saturating_add(1)..).unwrap_or_default()), sum(counts))
    }

    fn rate(self) -> f64 {
        number(self.bad) / number(self.of.max(1))
    }

    /// Wilson's score interval. Of nothing it is everything.
    fn interval(self, z: f64) -> (f64, f64) {
        if self.of == 0 {
            return (0.0, 1.0);
        }
        let (n, rate) = (number(self.of), self.rate());
        let centre = rate + z * z / (2.0 * n);
        let half = z * (rate * (1.0 - rate) / n + z * z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + z * z / n;
        (((centre - half) / scale).max(0.0), ((centre + half) / scale).min(1.0))
    }
}

fn number(count: u64) -> f64 {
    float(count.cast_signed())
}

/// A canary passes that is shown to be within the margin, by Newcombe's interval for a difference of two rates. It fails where it is
/// certain to be worse, and was found beyond the margin.
fn errors(canary: &Evidence, stable: &Evidence, gates: &Gates, level: f64) -> CanaryVerdict {
    let (new, former) = (Part::failed(canary), Part::failed(stable));
    let margin = gates.error_margin / 100.0;
    let difference = new.rate() - former.rate();
    let (upper, lower) = (new.interval(Z_PASS).1, former.interval(Z_PASS).0);
    let most = difference + (upper - new.rate()).hypot(former.rate() - lower);
    if most <= margin {
        return CanaryVerdict::Pass;
    }
    let p = fisher(new.bad, new.of, former.bad, former.of);
    if difference > margin.max(0.0) && new.bad >= MIN_BAD && p < level {
        return CanaryVerdict::Fail(worse("failed", new, former, p));
    }
    let [rate, other, most] = [new.rate(), former.rate(), most].map(|rate| 100.0 * rate);
    let margin = gates.error_margin;
    CanaryVerdict::Undecided(format!(
        "{rate:.2} % of requests failed, of the stable track's {other:.2} %; up to {most:.2} points more are possible, {margin} are allowed"
    ))
}

/// The share of answers beyond what the stable track's 95th percentile allows: of the canary's, and beside the stable track's own.
fn latency(canary: &Evidence, stable: &Evidence, gates: &Gates, level: f64, bounds: &[i64]) -> CanaryVerdict {
    let buckets = bounds.len().saturating_add(1);
    let all = |evidence: &Evidence| Part::slow(evidence, buckets, buckets).of;
    if all(canary) < MIN_ANSWERS || all(stable) < MIN_ANSWERS {
        return CanaryVerdict::Undecided(format!("fewer than {MIN_ANSWERS} answers were timed of a track"));
    }
    // Of what lies beyond the last bound nothing can be said, so that nothing is broken either.
    let Some(p95) = quantile(bounds, &stable.latency, 0.95).filter(|p95| !p95.at_least) else { return CanaryVerdict::Pass };
    let allowed = p95.value * gates.latency_ratio / 100.0;
    let Some((place, bound)) = bounds.iter().enumerate().find(|(_, bound)| float(**bound) >= allowed) else { return CanaryVerdict::Pass };
    let (new, former) = (Part::slow(canary, place, buckets), Part::slow(stable, place, buckets));
    let p = fisher(new.bad, new.of, former.bad, former.of);
    if new.bad >= MIN_BAD && new.interval(Z_FAIL).0 > SLOW_FAIL && p < level {
        return CanaryVerdict::Fail(worse(&format!("took over {bound} ms"), new, former, p));
    }
    let most = new.interval(Z_PASS).1;
    if most <= SLOW_PASS {
        return CanaryVerdict::Pass;
    }
    let [rate, most] = [new.rate(), most].map(|rate| 100.0 * rate);
    CanaryVerdict::Undecided(format!("{rate:.2} % of answers took over {bound} ms, and {most:.2} % may be such"))
}

fn score(canary: &Evidence, gates: &Gates) -> CanaryVerdict {
    match (gates.min_score, canary.score) {
        (None, _) => CanaryVerdict::Pass,
        (Some(_), None) => CanaryVerdict::Undecided("it has no score yet".to_owned()),
        (Some(least), Some(score)) if score >= least => CanaryVerdict::Pass,
        (Some(least), Some(score)) => CanaryVerdict::Fail(format!("its score is {score:.1}, and {least} is asked for")),
    }
}

fn worse(how: &str, new: Part, former: Part, p: f64) -> String {
    let [rate, other] = [new, former].map(|part| 100.0 * part.rate());
    format!("{rate:.1} % of {} requests {how}, of the stable track's {} {other:.1} % (Fisher's exact test, p = {p:.1e})", new.of, former.of)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: [i64; 15] = [10, 25, 50, 100, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000];
    const GATES: Gates = Gates { error_margin: 2.0, latency_ratio: 150.0, min_score: None, minimum: 200, looks: 3 };

    /// The figures of a track whose answers took one to two seconds, but for `slow` that took over two minutes.
    fn track(ended: i64, errors: i64, slow: i64) -> Evidence {
        let mut latency = vec![0; 16];
        (latency[7], latency[15]) = (ended - slow, slow);
        Evidence { ended, errors, latency, score: None }
    }

    fn word(verdict: &CanaryVerdict) -> &'static str {
        match verdict {
            CanaryVerdict::TooLittle(_) => "too little",
            CanaryVerdict::Undecided(_) => "undecided",
            CanaryVerdict::Pass => "pass",
            CanaryVerdict::Fail(_) => "fail",
        }
    }

    fn verdict(canary: &Evidence, stable: &Evidence) -> &'static str {
        word(&judge(canary, stable, &GATES, &BOUNDS))
    }

    #[test]
    fn a_rate_of_errors_is_held_against_its_margin() {
        for (canary, stable, expected) in [
            ((199, 199), (2000, 0), "too little"),
            ((200, 0), (199, 0), "too little"),
            ((200, 0), (2000, 20), "pass"),
            ((200, 2), (2000, 20), "undecided"),
            ((400, 4), (2000, 20), "pass"),
            ((400, 20), (2000, 20), "fail"),
            ((200, 20), (2000, 20), "fail"),
            // Few bad requests are a bad hour.
            ((200, 4), (200_000, 0), "undecided"),
            // A great many show a small difference, which the margin allows.
            ((100_000, 2_000), (100_000, 1_000), "pass"),
            ((100_000, 2_850), (100_000, 1_000), "pass"),
            ((100_000, 3_100), (100_000, 1_000), "fail"),
            ((100_000, 3_000), (100_000, 1_000), "undecided"),
            // Who is as bad as stable is no worse.
            ((1_000, 1_000), (1_000, 1_000), "pass"),
        ] {
            let found = verdict(&track(canary.0, canary.1, 0), &track(stable.0, stable.1, 0));
            assert_eq!(found, expected, "{canary:?} {stable:?}");
        }
    }

    #[test]
    fn the_slowest_are_held_against_the_ratio() {
        // The stable track's 95th percentile is 1.95 s, so that 3 s are allowed.
        let stable = track(2_000, 0, 0);
        for (slow, expected) in [(0, "pass"), (6, "pass"), (11, "pass"), (14, "undecided"), (21, "fail"), (200, "fail")] {
            assert_eq!(verdict(&track(200, 0, slow), &stable), expected, "{slow}");
        }
        let timed = |count: i64| Evidence { latency: vec![count], ..track(200, 0, 0) };
        assert_eq!(verdict(&timed(19), &stable), "undecided");
        assert_eq!(verdict(&timed(60), &stable), "pass");
        assert_eq!(verdict(&track(200, 0, 0), &timed(19)), "undecided");
        // Beyond the last bound nothing is known.
        assert_eq!(verdict(&track(200, 0, 200), &track(2_000, 0, 2_000)), "pass");
        let lenient = Gates { latency_ratio: 10_000.0, ..GATES };
        assert_eq!(word(&judge(&track(200, 0, 200), &stable, &lenient, &BOUNDS)), "pass");
        assert_eq!(word(&judge(&timed(200), &timed(200), &GATES, &[])), "pass", "a histogram without bounds");
    }

    #[test]
    fn a_score_is_waited_for_and_then_held_against_its_gate() {
        let gates = Gates { min_score: Some(80.0), ..GATES };
        for (score, expected) in [(None, "undecided"), (Some(79.9), "fail"), (Some(80.0), "pass"), (Some(f64::NAN), "fail")] {
            let canary = Evidence { score, ..track(1_000, 0, 0) };
            assert_eq!(word(&judge(&canary, &track(1_000, 0, 0), &gates, &BOUNDS)), expected, "{score:?}");
            assert_eq!(verdict(&canary, &track(1_000, 0, 0)), "pass", "nobody asks for a score");
        }
    }

    #[test]
    fn nothing_moves_on_three_requests() {
        for errors in 0..=3 {
            let canary = Evidence { score: Some(0.0), ..track(3, errors, 3) };
            for stable in [track(0, 0, 0), track(3, 0, 0), track(1_000_000, 0, 0)] {
                assert_eq!((verdict(&canary, &stable), catastrophic(&canary, &stable)), ("too little", None), "{errors}");
            }
        }
    }

    #[test]
    fn a_catastrophe_waits_for_no_minimum() {
        let is_one =
            |canary: (i64, i64), stable: (i64, i64)| catastrophic(&track(canary.0, canary.1, 0), &track(stable.0, stable.1, 0)).is_some();
        assert!(is_one((10, 10), (100, 1)));
        assert!(is_one((50, 20), (500, 5)));
        assert!(!is_one((9, 9), (100_000, 0)), "nine");
        assert!(!is_one((100, 100), (100, 100)), "the model's provider is away");
        assert!(!is_one((100, 100), (0, 0)), "there is nothing beside it");
        assert!(!is_one((100, 12), (1_000, 50)), "an open question");
    }

    #[test]
    fn what_was_found_is_said_in_figures() {
        let (canary, stable) = (track(200, 20, 0), track(1_800, 18, 0));
        let CanaryVerdict::Fail(why) = judge(&canary, &stable, &GATES, &BOUNDS) else { panic!("it fails") };
        assert!(why.starts_with("10.0 % of 200 requests failed, of the stable track's 1800 1.0 % (Fisher's exact test, p = "), "{why}");
        let CanaryVerdict::Fail(why) = judge(&track(200, 0, 100), &stable, &GATES, &BOUNDS) else { panic!("it fails") };
        assert!(why.starts_with("50.0 % of 200 requests took over 3000 ms, of the stable track's 1800 0.0 %"), "{why}");
        let gates = Gates { min_score: Some(80.0), ..GATES };
        let CanaryVerdict::Undecided(why) = judge(&track(200, 2, 14), &stable, &gates, &BOUNDS) else { panic!("it is open") };
        let parts: Vec<&str> = why.split("; ").collect();
        let [errors, possible, latency, score] = parts[..] else { panic!("{why}") };
        assert_eq!(errors, "1.00 % of requests failed, of the stable track's 1.00 %");
        assert!(possible.ends_with("points more are possible, 2 are allowed"), "{possible}");
        assert!(latency.starts_with("7.00 % of answers took over 3000 ms, and ") && score == "it has no score yet", "{why}");
    }

    /// Of which the same canaries come each time: splitmix64.
    struct Chance(u64);

    impl Chance {
        fn happens(&mut self, probability: f64) -> bool {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = self.0;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let bits = (bits ^ (bits >> 31)) >> 11;
            number(bits) / number(1 << 53) < probability
        }
    }

    /// A canary of an agent of whose requests one in a hundred fails.
    struct Ladder {
        /// Requests a minute, to both.
        traffic: u32,
        /// How many of the canary's requests fail.
        errors: f64,
        /// How many of the stable track's answers, and of the canary's, take three to five seconds.
        slow: [f64; 2],
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum End {
        Promoted,
        /// After this number of requests to the canary.
        RolledBack(i64),
        Inconclusive,
    }

    impl Ladder {
        /// Three steps of ten minutes at least, as the controller takes them: a look each minute from the end of a step on, and in each
        /// minute one for a catastrophe.
        fn climb(&self, chance: &mut Chance) -> End {
            let (mut canary, mut stable) = (track(0, 0, 0), track(0, 0, 0));
            for weight in [0.1, 0.25, 0.5] {
                let before = canary.ended;
                let mut minute = 0;
                loop {
                    minute += 1;
                    for _ in 0..self.traffic {
                        let is_canary = chance.happens(weight);
                        let (of, errors) = if is_canary { (&mut canary, self.errors) } else { (&mut stable, 0.01) };
                        let slow = self.slow[usize::from(is_canary)];
                        of.ended += 1;
                        of.errors += i64::from(chance.happens(errors));
                        of.latency[if chance.happens(slow) { 9 } else { 7 }] += 1;
                    }
                    if catastrophic(&canary, &stable).is_some() {
                        return End::RolledBack(canary.ended);
                    }
                    if minute < 10 || canary.ended - before < GATES.minimum {
                        continue;
                    }
                    match judge(&canary, &stable, &GATES, &BOUNDS) {
                        CanaryVerdict::Fail(_) => return End::RolledBack(canary.ended),
                        CanaryVerdict::Pass => break,
                        CanaryVerdict::TooLittle(_) | CanaryVerdict::Undecided(_) if minute >= 100 => return End::Inconclusive,
                        CanaryVerdict::TooLittle(_) | CanaryVerdict::Undecided(_) => {}
                    }
                }
            }
            End::Promoted
        }

        /// How two thousand canaries end.
        fn ends(&self) -> Vec<End> {
            let mut chance = Chance(22);
            (0..2_000).map(|_| self.climb(&mut chance)).collect()
        }
    }

    fn share(ends: &[End], wanted: impl Fn(&End) -> bool) -> f64 {
        number(ends.iter().filter(|end| wanted(end)).count() as u64) / number(ends.len() as u64)
    }

    #[test]
    fn a_canary_that_is_as_good_is_hardly_ever_rolled_back() {
        for traffic in [50, 200] {
            let ends = Ladder { traffic, errors: 0.01, slow: [0.05, 0.05] }.ends();
            let rolled_back = share(&ends, |end| matches!(end, End::RolledBack(_)));
            assert!(rolled_back < 0.01, "{traffic} requests a minute: {rolled_back}");
            // The rest finds no answer in time.
            let promoted = share(&ends, |end| *end == End::Promoted);
            assert!(promoted > 0.95, "{traffic} requests a minute: {promoted}");
        }
    }

    #[test]
    fn a_canary_with_ten_times_the_errors_fails_within_its_first_look() {
        let ends = Ladder { traffic: 50, errors: 0.1, slow: [0.04, 0.04] }.ends();
        let soon = share(&ends, |end| matches!(end, End::RolledBack(requests) if *requests <= 220));
        assert!(soon > 0.99, "{soon}");
        assert!(!ends.contains(&End::Promoted));
    }

    #[test]
    fn a_canary_passes_with_some_four_hundred_requests() {
        let mut chance = Chance(7);
        let mut needed: Vec<i64> = (0..2_000)
            .map(|_| {
                let (mut canary, mut stable) = (track(0, 0, 0), track(0, 0, 0));
                loop {
                    for place in 0..100 {
                        let of = if place % 10 == 0 { &mut canary } else { &mut stable };
                        of.ended += 1;
                        of.errors += i64::from(chance.happens(0.01));
                        of.latency[7] += 1;
                    }
                    if canary.ended >= 5_000 || verdict(&canary, &stable) == "pass" {
                        return canary.ended;
                    }
                }
            })
            .collect();
        needed.sort_unstable();
        let (median, nine_tenths) = (needed[1_000], needed[1_800]);
        assert!((200..=500).contains(&median), "{median}");
        assert!(nine_tenths <= 1_000, "{nine_tenths}");
    }

    #[test]
    fn a_canary_of_slow_answers_is_not_promoted() {
        let ends = Ladder { traffic: 50, errors: 0.01, slow: [0.02, 0.2] }.ends();
        let rolled_back = share(&ends, |end| matches!(end, End::RolledBack(_)));
        assert!(rolled_back > 0.99 && !ends.contains(&End::Promoted), "{rolled_back}");
    }

    proptest! {
        #[test]
        fn no_numbers_break_the_judge(
            numbers in prop::array::uniform4(prop_oneof![any::<i64>(), 0_i64..100_000]),
            latency in prop::collection::vec(prop_oneof![any::<i64>(), 0_i64..100_000], 0..20),
            gates in prop::array::uniform3(prop_oneof![any::<f64>(), 0.0_f64..1_000.0]),
            looks in any::<i32>(),
        ) {
            let [ended, errors, other_ended, other_errors] = numbers;
            let canary = Evidence { ended, errors, latency: latency.clone(), score: Some(gates[2]) };
            let stable = Evidence { ended: other_ended, errors: other_errors, latency: latency.into_iter().rev().collect(), score: None };
            let gates = Gates { error_margin: gates[0], latency_ratio: gates[1], min_score: Some(gates[2]), minimum: 20, looks };
            let verdict = judge(&canary, &stable, &gates, &BOUNDS);
            if ended < 20 || other_ended < 20 {
                prop_assert!(matches!(verdict, CanaryVerdict::TooLittle(_)), "{verdict:?}");
            }
            catastrophic(&canary, &stable);
        }

        #[test]
        fn one_more_error_makes_no_canary_better(ended in 200_i64..2_000, errors in 0_i64..199, other in 0_i64..200) {
            let rank = |errors| match verdict(&track(ended, errors, 0), &track(2_000, other, 0)) {
                "pass" => 0,
                "undecided" => 1,
                _ => 2,
            };
            prop_assert!(rank(errors) <= rank(errors + 1), "{errors} of {ended} beside {other} of 2000");
        }
    }
}
