//! The measurements of a track as users see them, rounded.

use slipway_api::canary::TrackFigures;
use slipway_database::LATENCY_BOUNDS_MS;
use slipway_governance::{quantile, rounded};

use crate::caches::canary::Measured;

/// Rounded, so that what says the same writes nothing.
pub(super) fn figures(measured: &Measured, score: Option<f64>) -> TrackFigures {
    let evidence = &measured.evidence;
    TrackFigures {
        requests: measured.requests.max(0),
        error_rate_pct: evidence.error_percent().map(rounded),
        p95_latency_ms: quantile(&LATENCY_BOUNDS_MS, &evidence.latency, 0.95).map(|estimate| estimate.value.round()),
        score: score.map(rounded),
    }
}
