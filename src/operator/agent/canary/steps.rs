//! The weights that a canary goes through, and when analysis goes on to the next one, ends the canary, or finds no answer. Pure.
//!
//! The first weight is the spec's, the others are the steps of its analysis. A step lasts for its interval at least, and until there were
//! enough requests of both tracks; then it is judged until it passes, fails, or has lasted too long.

use jiff::Timestamp;
use slipway_api::canary::CanaryAnalysis;
use slipway_api::{Agent, Canary, CanaryStatus};
use slipway_database::LATENCY_BOUNDS_MS;
use slipway_governance::canary::{CanaryVerdict, Evidence, Gates, catastrophic, judge};

use super::gather::CanarySeen;

/// How many seconds a step lasts at least, unless its analysis says otherwise.
const INTERVAL_SECONDS: i64 = 600;
/// After how many intervals a step has found no answer.
const TIMEOUT_INTERVALS: i64 = 10;
/// How many requests a step needs.
const MIN_REQUESTS: i64 = 200;
/// By how many percentage points failed requests may be more frequent.
const ERROR_MARGIN: i32 = 2;
/// The 95th percentile in percent of the stable track's.
const LATENCY_RATIO: i32 = 150;

/// Reason of what cannot be measured at all, or is not now.
pub(super) const NOT_MEASURED: &str = "NotMeasured";
/// Reason of what was measured and shows nothing.
pub(super) const INCONCLUSIVE: &str = "Inconclusive";

/// What follows for a canary that serves at the weight that it should.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Move {
    Wait(String),
    /// To this weight.
    Advance(i32),
    Promote,
    RollBack(String),
    Inconclusive {
        reason: &'static str,
        why: String,
    },
}

/// The place of the step that was reached with this weight: the highest that is not above it.
pub(super) fn reached(weights: &[i32], weight: i32) -> usize {
    weights.iter().rposition(|step| *step <= weight).unwrap_or(0)
}

/// The weight that is wanted: the annotation's, else that of the step that was reached. A step below a higher weight of the spec rises
/// to it.
pub(super) fn wanted(agent: &Agent, canary: &Canary, before: Option<&CanaryStatus>) -> i32 {
    agent.canary_weight().unwrap_or_else(|| {
        let weights = canary.step_weights();
        let place = before.map_or(0, |before| {
            let place = reached(&weights, before.desired_weight);
            // A weight by annotation was no step.
            before.step.and_then(|step| usize::try_from(step - 1).ok()).map_or(place, |step| step.min(place))
        });
        weights.get(place).copied().unwrap_or(canary.weight)
    })
}

pub(super) fn next(canary: &Canary, analysis: &CanaryAnalysis, status: &CanaryStatus, seen: &CanarySeen, now: Timestamp) -> Move {
    if !seen.is_measurable {
        let why = "nothing is measured of an agent whose conversations are not in the platform's database; promote it or roll it back";
        return Move::Inconclusive { reason: NOT_MEASURED, why: why.to_owned() };
    }
    let interval = analysis.interval_seconds.unwrap_or(INTERVAL_SECONDS);
    let lasted = seconds_since(status, now);
    let unless_late = |reason, why| if is_late(analysis, status, now) { Move::Inconclusive { reason, why } } else { Move::Wait(why) };
    let Some(reading) = seen.evidence(status, now) else {
        return unless_late(NOT_MEASURED, "there are no figures of the last minutes".to_owned());
    };
    if let Some(why) = catastrophe(status, seen, now) {
        return Move::RollBack(why);
    }
    let (of_canary, stable) = (Evidence { score: seen.score(), ..reading.canary.evidence.clone() }, &reading.stable.evidence);
    let minimum = analysis.minimum_requests.unwrap_or(MIN_REQUESTS);
    let had = reading.canary.requests.saturating_sub(status.step_requests).max(0);
    if had < minimum || stable.ended < minimum {
        let why = format!("{had} of {minimum} requests to the canary in this step, {} to the stable track since it began", stable.ended);
        return unless_late(INCONCLUSIVE, why);
    }
    if lasted < interval {
        return Move::Wait(format!("this step lasts {interval} s at least"));
    }
    let weights = canary.step_weights();
    match judge(&of_canary, stable, &gates(analysis, minimum, weights.len()), &LATENCY_BOUNDS_MS) {
        CanaryVerdict::Pass => weights.get(reached(&weights, status.desired_weight) + 1).map_or(Move::Promote, |step| Move::Advance(*step)),
        CanaryVerdict::Fail(why) => Move::RollBack(why),
        CanaryVerdict::Undecided(why) => unless_late(INCONCLUSIVE, why),
        CanaryVerdict::TooLittle(what) => unless_late(INCONCLUSIVE, format!("too few {what}")),
    }
}

/// Whether the present step has lasted so long that somebody has to decide, be it that the canary does not serve.
pub(super) fn is_late(analysis: &CanaryAnalysis, status: &CanaryStatus, now: Timestamp) -> bool {
    let interval = analysis.interval_seconds.unwrap_or(INTERVAL_SECONDS);
    seconds_since(status, now) >= analysis.timeout_seconds.unwrap_or(interval.saturating_mul(TIMEOUT_INTERVALS))
}

/// What ends a canary at any minute, in words.
pub(super) fn catastrophe(status: &CanaryStatus, seen: &CanarySeen, now: Timestamp) -> Option<String> {
    let reading = seen.evidence(status, now)?;
    catastrophic(&reading.canary.evidence, &reading.stable.evidence)
}

fn gates(analysis: &CanaryAnalysis, minimum: i64, steps: usize) -> Gates {
    let gates = analysis.gates.clone().unwrap_or_default();
    Gates {
        error_margin: f64::from(gates.error_rate_increase.unwrap_or(ERROR_MARGIN)),
        latency_ratio: f64::from(gates.latency_ratio.unwrap_or(LATENCY_RATIO)),
        min_score: gates.score.map(f64::from),
        minimum,
        looks: i32::try_from(steps).unwrap_or(i32::MAX),
    }
}

/// For how long the present step, or the present phase, has lasted.
pub(super) fn seconds_since(status: &CanaryStatus, now: Timestamp) -> i64 {
    let begun = status.step_started_at.as_ref().map_or(0, |begun| begun.0.as_second());
    now.as_second().saturating_sub(begun)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::pin::tests::agent_of;

    #[test]
    fn a_weight_that_is_raised_takes_a_step_along_and_one_that_is_lowered_does_not() {
        for (canary, annotation, desired, expected) in [
            ("weight: 10", None, 0, 10),
            ("weight: 20", None, 10, 20),
            ("weight: 5", None, 10, 5),
            ("weight: 10, analysis: {steps: [25, 50]}", None, 0, 10),
            ("weight: 10, analysis: {steps: [25, 50]}", None, 25, 25),
            ("weight: 5, analysis: {steps: [25, 50]}", None, 25, 25),
            ("weight: 30, analysis: {steps: [35, 50]}", None, 25, 30),
            ("weight: 30, analysis: {steps: [35, 50]}", None, 50, 50),
            ("weight: 10, analysis: {steps: [25, 50]}", Some("0"), 25, 0),
            ("weight: 10, analysis: {steps: [25, 50]}", Some("70"), 25, 70),
            ("weight: 10, analysis: {steps: [25, 50]}", Some("170"), 25, 25),
        ] {
            let mut agent = agent_of(&format!("canary: {{enabled: true, {canary}}}"));
            agent.metadata.annotations =
                annotation.map(|word: &str| [(slipway_api::labels::CANARY_WEIGHT.to_owned(), word.to_owned())].into());
            let before = CanaryStatus { desired_weight: desired, ..CanaryStatus::default() };
            assert_eq!(wanted(&agent, agent.canary().unwrap(), Some(&before)), expected, "{canary} {annotation:?} {desired}");
            if desired == 50 {
                let first = CanaryStatus { step: Some(1), ..before };
                assert_eq!(wanted(&agent, agent.canary().unwrap(), Some(&first)), 30, "an annotation that is gone skips no step");
            }
        }
    }
}
