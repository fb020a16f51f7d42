//! What people see of what was measured of a track.

use slipway_api::canary::TrackFigures;
use slipway_database::LATENCY_BOUNDS_MS;
use slipway_governance::quantile;

use crate::governance::canary::Measured;

/// Rounded, so that what says the same writes nothing.
pub(super) fn figures(measured: &Measured, score: Option<f64>) -> TrackFigures {
    let evidence = &measured.evidence;
    let rate = |errors: i64| 100.0 * float(errors) / float(evidence.ended);
    TrackFigures {
        requests: measured.requests.max(0),
        error_rate_pct: (evidence.ended > 0).then(|| hundredths(rate(evidence.errors))),
        p95_latency_ms: quantile(&LATENCY_BOUNDS_MS, &evidence.latency, 0.95).map(|estimate| estimate.value.round()),
        score: score.map(hundredths),
    }
}

fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[expect(clippy::cast_precision_loss, reason = "beyond 2^53 requests the last digits do not matter")]
fn float(count: i64) -> f64 {
    count as f64
}
