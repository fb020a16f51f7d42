//! An agent's figures on the radar, and a fleet's sums. What was not measured is None, and in a sum it is left out and said so.

use crate::{Estimate, MeasuredUsage, Share, latency};

/// From this share of errors on, an agent that is ready is degraded.
const DEGRADED_ERROR_PERCENT: f64 = 5.0;
/// With fewer requests a share of errors says little.
const MIN_REQUESTS: i64 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    Healthy,
    Degraded,
    Down,
}

impl Health {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Down => "down",
        }
    }
}

/// What is known of an agent.
#[derive(Debug, Clone, Copy, Default)]
pub struct RadarInput<'a> {
    /// Nobody wants it to run.
    pub is_suspended: bool,
    /// Replicas that take requests, and replicas that are wanted. None while nobody knows.
    pub replicas: Option<Share>,
    /// Samples in which the agent was ready, of all within the window. None where none are kept.
    pub readiness: Option<Share>,
    /// None where usage is not kept, or cannot be read now.
    pub usage: Option<&'a MeasuredUsage>,
    /// The upper bounds of the buckets of `MeasuredUsage::latency`, in milliseconds.
    pub latency_bounds: &'a [i64],
    /// An alert about errors or latency is open.
    pub is_in_trouble: bool,
}

/// Within the window.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// None of an agent that is suspended, or of which nothing is known yet.
    pub health: Option<Health>,
    pub uptime_pct: Option<f64>,
    pub requests: Option<i64>,
    pub errors: Option<i64>,
    /// Requests of which nobody knows how they ended: neither errors nor answers.
    pub unknown: Option<i64>,
    /// Errors among requests whose end is known.
    pub error_rate_pct: Option<f64>,
    pub avg_latency_ms: Option<Estimate>,
    pub p95_latency_ms: Option<Estimate>,
    pub tokens: Option<i64>,
    pub cost_usd: Option<f64>,
}

pub fn figures(seen: &RadarInput) -> Figures {
    let RadarInput { usage, latency_bounds, .. } = *seen;
    Figures {
        health: health(seen),
        uptime_pct: seen.readiness.and_then(Share::percent),
        requests: usage.map(|usage| usage.requests.max(0)),
        errors: usage.map(|usage| usage.errors.max(0)),
        unknown: usage.and_then(|usage| usage.unknown).map(|unknown| unknown.max(0)),
        error_rate_pct: usage.and_then(MeasuredUsage::error_percent),
        avg_latency_ms: usage.and_then(|usage| usage.average_latency(latency_bounds)),
        p95_latency_ms: usage.and_then(|usage| latency::quantile(latency_bounds, &usage.latency, 0.95)),
        tokens: usage.map(MeasuredUsage::tokens),
        cost_usd: usage.and_then(MeasuredUsage::cost_usd),
    }
}

fn health(seen: &RadarInput) -> Option<Health> {
    let replicas = seen.replicas.filter(|replicas| !seen.is_suspended && replicas.of > 0)?;
    let fails = seen.usage.is_some_and(|usage| {
        usage.ended() >= MIN_REQUESTS && usage.error_percent().is_some_and(|percent| percent >= DEGRADED_ERROR_PERCENT)
    });
    Some(match replicas.count {
        ..=0 => Health::Down,
        ready if ready < replicas.of || fails || seen.is_in_trouble => Health::Degraded,
        _ => Health::Healthy,
    })
}

/// Agents by health, and sums of what is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fleet {
    pub total: usize,
    pub healthy: usize,
    pub degraded: usize,
    pub down: usize,
    /// None if of no agent it is known.
    pub requests: Option<i64>,
    pub cost_usd: Option<f64>,
}

pub fn fleet<'a>(agents: impl IntoIterator<Item = &'a Figures>) -> Fleet {
    let (mut fleet, mut cost_micros) = (Fleet::default(), None::<f64>);
    for figures in agents {
        fleet.total += 1;
        match figures.health {
            Some(Health::Healthy) => fleet.healthy += 1,
            Some(Health::Degraded) => fleet.degraded += 1,
            Some(Health::Down) => fleet.down += 1,
            None => {}
        }
        if let Some(requests) = figures.requests {
            fleet.requests = Some(fleet.requests.unwrap_or(0).saturating_add(requests));
        }
        if let Some(cost) = figures.cost_usd {
            // Summed in millionths, so that the order of agents does not change the sum.
            cost_micros = Some(cost_micros.unwrap_or(0.0) + (cost * 1e6).round());
        }
    }
    fleet.cost_usd = cost_micros.map(|micros| micros / 1e6);
    fleet
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: [i64; 2] = [100, 1000];

    fn usage(requests: i64, errors: i64) -> MeasuredUsage {
        MeasuredUsage {
            requests,
            errors,
            input_tokens: 7,
            output_tokens: 3,
            cost_micros: Some(1_500_000),
            latency: vec![requests, 0, 0],
            ..MeasuredUsage::default()
        }
    }

    fn seen(ready: i64, of: i64, usage: Option<&MeasuredUsage>) -> RadarInput<'_> {
        RadarInput {
            replicas: Some(Share { count: ready, of }),
            readiness: Some(Share { count: 9, of: 10 }),
            usage,
            latency_bounds: &BOUNDS,
            ..RadarInput::default()
        }
    }

    #[test]
    fn health_follows_from_readiness_and_errors() {
        let (few, fails, serves) = (usage(19, 19), usage(20, 1), usage(21, 1));
        let left = MeasuredUsage { unknown: Some(2), ..usage(21, 19) };
        for (seen, expected) in [
            (RadarInput::default(), None),
            (seen(0, 2, None), Some(Health::Down)),
            (seen(1, 2, None), Some(Health::Degraded)),
            (seen(2, 2, None), Some(Health::Healthy)),
            (seen(0, 0, None), None),
            (RadarInput { is_suspended: true, ..seen(0, 2, None) }, None),
            (RadarInput { is_in_trouble: true, ..seen(2, 2, None) }, Some(Health::Degraded)),
            (seen(1, 1, Some(&few)), Some(Health::Healthy)),
            (seen(1, 1, Some(&left)), Some(Health::Healthy)),
            (seen(1, 1, Some(&fails)), Some(Health::Degraded)),
            (seen(1, 1, Some(&serves)), Some(Health::Healthy)),
        ] {
            assert_eq!(figures(&seen).health, expected, "{seen:?}");
        }
    }

    #[test]
    fn what_was_not_measured_is_none() {
        let unmeasured = figures(&RadarInput::default());
        let nothing = Figures {
            health: None,
            uptime_pct: None,
            requests: None,
            errors: None,
            unknown: None,
            error_rate_pct: None,
            avg_latency_ms: None,
            p95_latency_ms: None,
            tokens: None,
            cost_usd: None,
        };
        assert_eq!(unmeasured, nothing);
        let idle = usage(0, 0);
        let idle = figures(&seen(1, 1, Some(&idle)));
        assert_eq!((idle.requests, idle.error_rate_pct, idle.p95_latency_ms), (Some(0), None, None), "nobody asked: there is no rate");
    }

    #[test]
    fn unknown_ends_are_neither_errors_nor_answers() {
        let usage = MeasuredUsage { unknown: Some(10), ..usage(30, 5) };
        let figures = figures(&seen(1, 1, Some(&usage)));
        assert_eq!((figures.errors, figures.unknown, figures.error_rate_pct), (Some(5), Some(10), Some(25.0)));
    }

    #[test]
    fn a_fleet_is_the_sum_of_what_is_known() {
        let (one, two) = (usage(10, 0), usage(5, 0));
        let all = [figures(&seen(1, 1, Some(&one))), figures(&seen(0, 1, Some(&two))), figures(&RadarInput::default())];
        let expected = Fleet { total: 3, healthy: 1, degraded: 0, down: 1, requests: Some(15), cost_usd: Some(3.0) };
        assert_eq!(fleet(&all), expected);
        assert_eq!(fleet(&all[2..]).requests, None);
    }
}
