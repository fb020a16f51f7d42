//! Whether a release breaks a policy so much more often than the one before that it may be rolled back: Fisher's exact test, one-sided,
//! at a level that a look every minute does not wear out.
//!
//! The comparison leans towards keeping the release. Of the new one each conversation counts once, however often it broke the policy;
//! of the former every violation counts. A few conversations are never enough, nor is a caller who provokes many, where callers are
//! recorded; where they are not, it takes more conversations.

use crate::measurements::float;

/// How a policy was broken while one thing ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    pub requests: i64,
    /// Answers that broke the policy.
    pub violations: i64,
    /// Conversations with at least one of them.
    pub conversations: i64,
    /// Who had these conversations. None where that is not recorded.
    pub callers: Option<i64>,
}

/// What has to be there before a comparison is made, and what it has to show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demands {
    pub min_requests: i64,
    pub min_conversations: i64,
    pub min_callers: i64,
    /// How many conversations there have to be where nobody knows whose they are.
    pub min_unattributed: i64,
    /// How many times the former rate the new one has to be.
    pub min_ratio: f64,
    /// The probability of such a difference by chance has to be below.
    pub level: f64,
}

impl Default for Demands {
    fn default() -> Self {
        Self { min_requests: 100, min_conversations: 10, min_callers: 3, min_unattributed: 30, min_ratio: 2.0, level: 1e-6 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RollbackVerdict {
    /// What cannot be concluded from, in words.
    TooLittle(&'static str),
    /// A difference that may be chance, or that does not matter.
    AsBefore {
        p: f64,
    },
    Worse {
        p: f64,
    },
}

pub fn judge(new: &Evidence, former: &Evidence, demands: &Demands) -> RollbackVerdict {
    let requests = |evidence: &Evidence| evidence.requests.max(0).unsigned_abs();
    if new.conversations < demands.min_conversations {
        return RollbackVerdict::TooLittle("conversations of the release");
    }
    match new.callers {
        None if new.conversations < demands.min_unattributed => {
            return RollbackVerdict::TooLittle("conversations, as nobody knows whose they are");
        }
        Some(callers) if callers < demands.min_callers => return RollbackVerdict::TooLittle("callers of the release"),
        None | Some(_) => {}
    }
    if new.requests < demands.min_requests {
        return RollbackVerdict::TooLittle("requests to the release");
    }
    if former.requests < demands.min_requests {
        return RollbackVerdict::TooLittle("requests to the release before");
    }
    let bad = new.conversations.min(new.requests).unsigned_abs();
    let former_bad = former.violations.max(0).unsigned_abs().min(requests(former));
    let p = fisher(bad, requests(new), former_bad, requests(former));
    let rate = |bad: u64, of: u64| float(bad.cast_signed()) / float(of.cast_signed());
    let is_worse = rate(bad, requests(new)) >= demands.min_ratio * rate(former_bad, requests(former));
    if is_worse && p < demands.level { RollbackVerdict::Worse { p } } else { RollbackVerdict::AsBefore { p } }
}

/// The probability that, of `of + other_of` requests of which `bad + other_bad` are bad, the `of` have `bad` or more by chance.
pub(crate) fn fisher(bad: u64, of: u64, other_bad: u64, other_of: u64) -> f64 {
    let (all, all_bad) = (of.saturating_add(other_of), bad.saturating_add(other_bad));
    let is_below_mean = u128::from(bad) * u128::from(all) < u128::from(of) * u128::from(all_bad);
    let choose = |n: u64, k: u64| ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k);
    let number = |count: u64| float(count.cast_signed());
    // The probability of exactly `bad`. From there terms are summed away from the mean, where each is smaller than the one before.
    let mut term = (choose(of, bad) + choose(other_of, other_bad) - choose(all, all_bad)).exp();
    let (mut bad, mut others, mut sum) = (bad, other_bad, if is_below_mean { 0.0 } else { term });
    loop {
        if is_below_mean {
            if bad == 0 || others == other_of {
                break;
            }
            term *= number(bad) * number(other_of - others) / (number(of - bad + 1) * number(others + 1));
            (bad, others) = (bad - 1, others + 1);
        } else {
            if bad == of || others == 0 {
                break;
            }
            term *= number(of - bad) * number(others) / (number(bad + 1) * number(other_of - others + 1));
            (bad, others) = (bad + 1, others - 1);
        }
        sum += term;
        if term <= sum * 1e-17 {
            break;
        }
    }
    if is_below_mean { (1.0 - sum).max(0.0) } else { sum.min(1.0) }
}

/// The logarithm of n!, by Stirling's series where that is exact.
fn ln_factorial(n: u64) -> f64 {
    const SERIES_FROM: u64 = 64;
    if n < SERIES_FROM {
        return (2..=n).map(|factor| float(factor.cast_signed()).ln()).sum();
    }
    let x = float(n.cast_signed());
    let corrections = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    (x + 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + corrections
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn evidence(violations: i64, requests: i64) -> Evidence {
        Evidence { requests, violations, conversations: violations, callers: Some(violations) }
    }

    fn verdict(new: Evidence, former: Evidence) -> RollbackVerdict {
        judge(&new, &former, &Demands::default())
    }

    #[test]
    fn a_release_is_worse_beyond_doubt_or_not_at_all() {
        let is_worse = |new, former| matches!(verdict(new, former), RollbackVerdict::Worse { .. });
        for (new, former, expected) in [
            ((10, 100), (0, 1000), true),
            ((50, 1000), (0, 1000), true),
            ((10, 1000), (0, 1000), false),
            ((10, 100), (20, 1000), false),
            ((30, 100), (20, 1000), true),
            ((150, 1000), (100, 1000), false),
            ((100, 100), (100, 100), false),
            // A great many make a small difference certain, and not large.
            ((13_000, 100_000), (10_000, 100_000), false),
            ((9, 100), (0, 100_000), false),
        ] {
            assert_eq!(is_worse(evidence(new.0, new.1), evidence(former.0, former.1)), expected, "{new:?} {former:?}");
        }
    }

    #[test]
    fn little_evidence_says_nothing() {
        let (bad, good) = (evidence(50, 100), evidence(0, 1000));
        for (new, former) in [
            (Evidence { conversations: 9, ..bad }, good),
            (Evidence { callers: Some(2), ..bad }, good),
            (Evidence { callers: None, conversations: 29, ..bad }, good),
            (Evidence { requests: 99, ..bad }, good),
            (bad, Evidence { requests: 99, ..good }),
            (bad, Evidence::default()),
            (Evidence { violations: 1_000_000, conversations: 1, ..bad }, good),
        ] {
            assert!(matches!(verdict(new, former), RollbackVerdict::TooLittle(_)), "{new:?} {former:?}");
        }
        for callers in [Some(3), None] {
            assert!(matches!(verdict(Evidence { callers, ..bad }, good), RollbackVerdict::Worse { .. }), "{callers:?}");
        }
    }

    /// Binomial coefficients as whole numbers.
    fn exact(bad: u64, of: u64, other_bad: u64, other_of: u64) -> f64 {
        let choose = |n: u64, k: u64| (0..k).fold(1_u128, |product, i| product * u128::from(n - i) / u128::from(i + 1));
        let (all, all_bad) = (of + other_of, bad + other_bad);
        let ways: u128 = (bad..=of.min(all_bad))
            .map(|bad| choose(of, bad) * if all_bad - bad > other_of { 0 } else { choose(other_of, all_bad - bad) })
            .sum();
        #[expect(clippy::cast_precision_loss, reason = "a quotient of 15 digits is enough")]
        let quotient = ways as f64 / choose(all, all_bad) as f64;
        quotient
    }

    proptest! {
        #[test]
        fn the_test_is_exact((of, bad) in (1_u64..45).prop_flat_map(|of| (Just(of), 0..=of)), (other_of, other_bad) in (1_u64..45).prop_flat_map(|of| (Just(of), 0..=of))) {
            let (found, expected) = (fisher(bad, of, other_bad, other_of), exact(bad, of, other_bad, other_of));
            prop_assert!((found - expected).abs() <= 1e-9 * expected, "{found} {expected}");
        }

        #[test]
        fn no_numbers_break_the_test(numbers in prop::array::uniform8(prop_oneof![any::<i64>(), 0_i64..100_000])) {
            let [requests, violations, conversations, callers, other_requests, other_violations, other_conversations, _] = numbers;
            let callers = Some(callers);
            let new = Evidence { requests: requests % 1_000_000, violations, conversations, callers };
            let former = Evidence { requests: other_requests % 1_000_000, violations: other_violations, conversations: other_conversations, callers };
            if let RollbackVerdict::AsBefore { p } | RollbackVerdict::Worse { p } = verdict(new, former) {
                prop_assert!((0.0..=1.0).contains(&p), "{p}");
            }
        }
    }
}
