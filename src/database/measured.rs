//! What the database has of an agent's usage, as scorecards, radar and alerts are made of it.

use slipway_governance::{Share, Usage};

use crate::Used;

impl From<&Used> for Usage {
    fn from(used: &Used) -> Self {
        let measured = |count| (used.measured > 0).then_some(Share { count, of: used.measured });
        // Runtimes of earlier versions have buckets, and no sum.
        let is_measured_whole = used.measured == used.requests;
        let timed = used.latency.iter().fold(0_i64, |sum, count| sum.saturating_add(*count));
        Self {
            requests: used.requests,
            errors: used.errors,
            unknown: None,
            input_tokens: used.input_tokens,
            output_tokens: used.output_tokens,
            cost_micros: Some(used.cost_micros),
            guard_blocks: used.guard_blocks,
            pii: used.pii,
            injections: used.injections,
            violations: used.violations,
            latency: used.latency.to_vec(),
            took: (is_measured_whole && timed > 0).then_some(Share { count: used.latency_ms, of: timed }),
            audited: measured(used.audited),
            cited: (used.retrieved > 0).then_some(Share { count: used.cited, of: used.retrieved }),
        }
    }
}
