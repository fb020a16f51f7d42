//! What the database has of an agent's usage, as scorecards, radar and alerts are made of it.

use slipway_governance::{Share, Usage};

use crate::Used;

impl From<&Used> for Usage {
    fn from(used: &Used) -> Self {
        let measured = |count| (used.measured > 0).then_some(Share { count, of: used.measured });
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
            took: measured(used.latency_ms),
            audited: measured(used.audited),
            cited: (used.retrieved > 0).then_some(Share { count: used.cited, of: used.retrieved }),
        }
    }
}
