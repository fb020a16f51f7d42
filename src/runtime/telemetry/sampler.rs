//! Which traces are recorded: `OTEL_TRACES_SAMPLER` and its argument. A ratio is decided by the trace
//! id alone, in the way of the OpenTelemetry SDKs, so that all services on a request's way decide
//! alike.

use super::context::{Parent, TraceId};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    /// Does what the caller decided hold?
    follows_parent: bool,
    rate: Rate,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Rate {
    All,
    None,
    /// Ids whose random part, as a number under 2^63, lies below this.
    Below(u64),
}

impl Default for Sampler {
    fn default() -> Self {
        Self { follows_parent: true, rate: Rate::All }
    }
}

pub(super) const NAMES: [&str; 6] =
    ["parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio", "always_on", "always_off", "traceidratio"];

impl Sampler {
    /// None where the name is not one of [`NAMES`]. A ratio is held within 0 and 1; by default it is 1.
    pub(super) fn new(name: &str, ratio: Option<f64>) -> Option<Self> {
        let (follows_parent, rate) = name.strip_prefix("parentbased_").map_or((false, name), |rate| (true, rate));
        let rate = match rate {
            "always_on" => Rate::All,
            "always_off" => Rate::None,
            "traceidratio" => below(ratio.unwrap_or(1.0)),
            _ => return None,
        };
        Some(Self { follows_parent, rate })
    }

    pub(super) fn samples(self, trace: TraceId, parent: Option<Parent>) -> bool {
        if let Some(parent) = parent.filter(|_| self.follows_parent) {
            return parent.sampled;
        }
        match self.rate {
            Rate::All => true,
            Rate::None => false,
            Rate::Below(bound) => {
                // The lower half of the id.
                let random = u128::from_be_bytes(trace.0) & u128::from(u64::MAX);
                random >> 1 < u128::from(bound)
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "0 to 2^63, rounded as other SDKs do"
)]
fn below(ratio: f64) -> Rate {
    if ratio >= 1.0 { Rate::All } else { Rate::Below((ratio.max(0.0) * (1_u64 << 63) as f64) as u64) }
}

#[cfg(test)]
mod tests {
    use super::super::context::SpanId;
    use super::*;

    #[test]
    fn the_caller_decides_where_the_sampler_follows_it() {
        for (name, alone, caller_samples, caller_does_not) in [
            ("parentbased_always_on", true, true, false),
            ("parentbased_always_off", false, true, false),
            ("always_on", true, true, true),
            ("always_off", false, false, false),
        ] {
            let sampler = Sampler::new(name, None).unwrap();
            let trace = TraceId::random().unwrap();
            let by = |sampled| Some(Parent { trace, span: SpanId::random().unwrap(), sampled });
            let decided = [None, by(true), by(false)].map(|parent| sampler.samples(trace, parent));
            assert_eq!(decided, [alone, caller_samples, caller_does_not], "{name}");
        }
        assert!(NAMES.iter().all(|name| Sampler::new(name, None).is_some()));
        assert_eq!(Sampler::new("jaeger_remote", None), None);
        assert_eq!(Sampler::new("parentbased_", None), None);
        assert_eq!(Sampler::new(NAMES[0], None), Some(Sampler::default()));
    }

    #[test]
    fn a_ratio_samples_that_share_of_the_traces() {
        for ratio in [-1.0, 0.0, 0.1, 0.5, 1.0, 7.0] {
            let sampler = Sampler::new("traceidratio", Some(ratio)).unwrap();
            let kept: u32 = (0..20_000).map(|_| u32::from(sampler.samples(TraceId::random().unwrap(), None))).sum();
            let expected = ratio.clamp(0.0, 1.0) * 20_000.0;
            assert!((f64::from(kept) - expected).abs() <= 500.0, "{ratio}: {kept} of 20,000");
        }
        // The id alone decides: the ends of the range fall on known sides.
        let half = Sampler::new("traceidratio", Some(0.5)).unwrap();
        let id = |first| TraceId([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, first, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!([0x00, 0x7f, 0x80, 0xff].map(|first| half.samples(id(first), None)), [true, true, false, false]);
    }
}
