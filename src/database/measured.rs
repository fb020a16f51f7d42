//! What the database has of an agent's usage, as scorecards, radar and alerts are made of it.

use slipway_governance::{MeasuredUsage, Share};

use crate::Used;

impl From<&Used> for MeasuredUsage {
    fn from(used: &Used) -> Self {
        let measured = |count| (used.measured > 0).then_some(Share { count, of: used.measured });
        // Runtimes of earlier versions have buckets and no sum, and do not tell what was cancelled.
        let is_measured_whole = used.measured == used.requests;
        let usage = Self {
            requests: used.requests,
            errors: used.errors,
            unknown: is_measured_whole.then_some(used.cancelled),
            input_tokens: used.input_tokens,
            output_tokens: used.output_tokens,
            cost_micros: (used.unpriced == 0).then_some(used.cost_micros),
            guard_blocks: used.guard_blocks,
            pii: used.pii,
            injections: used.injections,
            violations: used.violations,
            latency: used.latency.to_vec(),
            took: None,
            audited: measured(used.audited),
            cited: (used.retrieved > 0).then_some(Share { count: used.cited, of: used.retrieved }),
        };
        let timed = usage.timed();
        Self { took: (is_measured_whole && timed > 0).then_some(Share { count: used.latency_ms, of: timed }), ..usage }
    }
}

impl Used {
    /// What is known to have been spent, in US dollars: without what has no known price.
    #[expect(clippy::cast_precision_loss, reason = "beyond 2^53 millionths the last digits do not matter")]
    pub fn spent_usd(&self) -> f64 {
        self.cost_micros.max(0) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 requests: one was refused and took no time, two were cancelled.
    fn used() -> Used {
        let mut used =
            Used { requests: 10, errors: 1, cost_micros: 7, measured: 10, latency_ms: 700, audited: 9, cancelled: 2, ..Used::default() };
        used.latency[3] = 7;
        used
    }

    #[test]
    fn what_was_not_measured_is_not_made_up() {
        let whole = MeasuredUsage::from(&used());
        assert_eq!((whole.unknown, whole.cost_micros), (Some(2), Some(7)));
        assert_eq!((whole.took, whole.audited), (Some(Share { count: 700, of: 7 }), Some(Share { count: 9, of: 10 })));
        assert_eq!(whole.error_percent(), Some(12.5), "of 8 the end is known");

        let unpriced = Used { unpriced: 1, ..used() };
        assert_eq!(MeasuredUsage::from(&unpriced).cost_micros, None, "a part of a cost is none");
        assert!((unpriced.spent_usd() - 7e-6).abs() < 1e-12, "{}", unpriced.spent_usd());

        let older = MeasuredUsage::from(&Used { measured: 6, ..used() });
        assert_eq!((older.unknown, older.took, older.audited), (None, None, Some(Share { count: 9, of: 6 })));

        let nothing = MeasuredUsage::from(&Used::default());
        assert_eq!((nothing.unknown, nothing.cost_micros, nothing.took), (Some(0), Some(0), None), "that nobody asked is known");
    }
}
