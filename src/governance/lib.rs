//! Governance, without a database, a cluster or a clock: from what was measured of an agent to its scorecard and its figures on the
//! radar, when an alert begins and ends, whether a release is so much worse than the one before that it is rolled back, and whether a
//! canary keeps its gates.
//!
//! Callers read measurements, pass `now`, and write what comes out. What was not measured stays `None` all the way.

pub mod alert;
pub mod canary;
mod latency;
mod measurements;
mod metric;
pub mod radar;
pub mod rollback;
mod scorecard;

pub use latency::{Estimate, mean, quantile};
pub use measurements::{MeasuredUsage, Measurements, Score, ScoreSource, Share, rounded};
pub use metric::{Metric, MetricStatus, Unit};
pub use scorecard::{Dimension, DimensionName, Grade, Scorecard, scorecard};

/// The span of time that scorecards and the radar speak of.
pub const WINDOW: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);
