//! The radar as REST shows it. What was not measured is null.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use slipway_api::Track;
use slipway_database::{AgentUsage, Used};
use slipway_governance::radar::{self, Figures, Health, RadarInput};
use slipway_governance::{Estimate, MeasuredUsage, Share, rounded};

use super::alerts::{AlertView, is_told_in_trouble};
use super::fleet::{Origin, Reading, Snapshot};
use crate::agents::{AgentState, Status};
use crate::list_cache::ListEntry;

/// All agents of the team, or of all teams.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Radar")]
pub(crate) struct Overview {
    pub total_agents: usize,
    pub healthy: usize,
    /// Agents that lack a pod, or have too many errors or too slow answers.
    pub degraded: usize,
    /// Agents that should run and have no pod that is ready.
    pub down: usize,
    /// Of those agents of which it is known. Null if it is known of none.
    pub total_requests_24h: Option<i64>,
    pub total_cost_24h_usd: Option<f64>,
    /// One page of them, the newest first.
    pub agents: Vec<AgentRadar>,
    /// Where figures come from.
    pub data_source: DataSource,
    /// Why figures are missing, if they could not be read.
    pub message: Option<String>,
    /// The moment of which the figures are, at most a minute ago.
    pub updated_at: String,
}

/// What an agent did within the last 24 hours, and how it is.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AgentRadar")]
pub(crate) struct AgentRadar {
    pub agent_id: String,
    pub agent_name: String,
    pub status: RadarStatus,
    /// How often of all samples, one a minute, it was ready.
    pub uptime_pct: Option<f64>,
    /// When it was last ready.
    pub last_seen: Option<String>,
    pub metrics: Metrics,
    /// The same by track: `stable`, `canary` and `candidate`, and `other` where a runtime was not told. Only of one agent by itself;
    /// null in the overview, and where it is not known.
    pub tracks: Option<BTreeMap<&'static str, TrackRadar>>,
    /// Open alerts, the newest first, at most 20.
    pub alerts: Vec<AlertView>,
    /// The fields that are null because they were not measured.
    pub not_measured: Vec<&'static str>,
    pub data_source: DataSource,
    /// The moment of which the figures are, at most a minute ago.
    pub updated_at: String,
}

/// How an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RadarStatus {
    Healthy,
    /// It lacks a pod, or has too many errors or too slow answers.
    Degraded,
    /// No pod is ready.
    Down,
    /// Nobody wants it to run.
    Stopped,
    /// The operator has not looked at it yet.
    Unknown,
}

/// Where figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RadarSource")]
pub(crate) enum DataSource {
    /// The platform's database.
    Slipway,
    Prometheus,
    /// The cluster alone, which knows no figures.
    Cluster,
}

impl From<Origin> for DataSource {
    fn from(origin: Origin) -> Self {
        match origin {
            Origin::Database => Self::Slipway,
            Origin::Prometheus => Self::Prometheus,
            Origin::Cluster => Self::Cluster,
        }
    }
}

/// What was measured of an agent within the last 24 hours.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RadarMetrics")]
pub(crate) struct Metrics {
    #[serde(flatten)]
    pub used: TrackMetrics,
    /// Conversations with a message in the last 15 minutes.
    pub active_conversations: Option<i64>,
}

/// A track, and what it did within the last 24 hours.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RadarTrack")]
pub(crate) struct TrackRadar {
    #[serde(flatten)]
    pub used: TrackMetrics,
    /// The percentage of conversations that go to it, while there is a canary. Null of other tracks.
    pub weight: Option<i32>,
    /// The author's label for what it runs now, while there is a canary.
    pub version: Option<String>,
}

/// What was measured of a track.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RadarTrackMetrics")]
pub(crate) struct TrackMetrics {
    pub requests_24h: Option<i64>,
    pub errors_24h: Option<i64>,
    /// Requests of which nobody knows how they ended: neither errors nor answers.
    pub unknown_24h: Option<i64>,
    pub avg_latency_ms: Option<f64>,
    pub p95_latency_ms: Option<f64>,
    /// Of requests whose end is known.
    pub error_rate_pct: Option<f64>,
    pub tokens_24h: Option<i64>,
    pub estimated_cost_usd: Option<f64>,
    /// The fields whose value is a lower bound.
    pub at_least: Vec<&'static str>,
}

/// What is known of an agent for its figures.
fn seen<'a>(snapshot: &'a Snapshot, item: &ListEntry<AgentState>, reading: Option<&'a Reading>) -> RadarInput<'a> {
    let state = &item.data;
    let ready = state.ready_replicas.map(|ready| Share { count: i64::from(ready), of: i64::from(state.replicas) });
    RadarInput {
        is_suspended: is_suspended(state.status),
        replicas: ready,
        readiness: reading.and_then(|reading| reading.readiness),
        usage: reading.and_then(|reading| reading.usage.as_ref()),
        latency_bounds: &snapshot.bounds,
        is_in_trouble: reading.and_then(Reading::is_in_trouble).unwrap_or_else(|| is_told_in_trouble(state)),
    }
}

fn is_suspended(status: Status) -> bool {
    matches!(status, Status::Created | Status::Stopped | Status::Archived)
}

pub(super) fn figures(snapshot: &Snapshot, item: &ListEntry<AgentState>) -> Figures {
    radar::figures(&seen(snapshot, item, snapshot.reading(&item.id, &item.data.uid)))
}

impl Overview {
    pub(super) fn of(snapshot: &Snapshot, all: &[Figures], agents: Vec<AgentRadar>) -> Self {
        let fleet = radar::fleet(all);
        Self {
            total_agents: fleet.total,
            healthy: fleet.healthy,
            degraded: fleet.degraded,
            down: fleet.down,
            total_requests_24h: fleet.requests,
            total_cost_24h_usd: fleet.cost_usd,
            agents,
            data_source: snapshot.origin.into(),
            message: snapshot.trouble.clone(),
            updated_at: snapshot.taken_at.to_string(),
        }
    }
}

impl AgentRadar {
    pub(super) fn of(snapshot: &Snapshot, item: &ListEntry<AgentState>) -> Self {
        let reading = snapshot.reading(&item.id, &item.data.uid);
        let figures = radar::figures(&seen(snapshot, item, reading));
        let is_partial = reading.is_some_and(|reading| reading.is_partial);
        let status = match figures.health {
            Some(Health::Healthy) => RadarStatus::Healthy,
            Some(Health::Degraded) => RadarStatus::Degraded,
            Some(Health::Down) => RadarStatus::Down,
            None if is_suspended(item.data.status) => RadarStatus::Stopped,
            None => RadarStatus::Unknown,
        };
        let metrics = Metrics {
            used: TrackMetrics::of(&figures, is_partial),
            active_conversations: reading.and_then(|reading| reading.active_conversations),
        };
        let alerts = match reading.and_then(|reading| reading.alerts.as_ref()) {
            Some(alerts) => alerts.iter().map(AlertView::of).collect(),
            None => AlertView::told(item).into_iter().collect(),
        };
        let mut shown = Self {
            agent_id: item.id.clone(),
            agent_name: item.data.name.to_string(),
            status,
            uptime_pct: figures.uptime_pct,
            last_seen: last_seen(snapshot, &item.data, reading).map(|time| time.to_string()),
            metrics,
            tracks: None,
            alerts,
            not_measured: Vec::new(),
            data_source: snapshot.origin.into(),
            updated_at: snapshot.taken_at.to_string(),
        };
        shown.not_measured = shown.missing();
        shown
    }

    pub(super) fn has_usage(&self) -> bool {
        self.metrics.used.requests_24h.is_some()
    }

    /// Adds what was measured by track and run, by track. Both tracks are there while there is a canary, asked or not.
    pub(super) fn set_tracks(&mut self, used: Vec<AgentUsage>, state: &AgentState) {
        let is_partial = used.iter().any(|row| row.partial);
        let canary = state.canary_run.as_deref();
        let both: &[Track] = if canary.is_some() { &[Track::Stable, Track::Canary] } else { &[] };
        let mut tracks: BTreeMap<&'static str, Used> = both.iter().map(|track| (track.as_str(), Used::default())).collect();
        for AgentUsage { track, used, .. } in used {
            // What a runtime writes there is a name, but nobody makes it one.
            let track = Track::named(&track).map_or("other", Track::as_str);
            tracks.entry(track).or_default().add(&used);
        }
        let bounds = &slipway_database::LATENCY_BOUNDS_MS;
        let figures = |used: &Used| {
            radar::figures(&RadarInput { usage: Some(&MeasuredUsage::from(used)), latency_bounds: bounds, ..RadarInput::default() })
        };
        let shown = |(track, used): (&'static str, Used)| {
            let (weight, version) = match (canary, Track::named(track)) {
                (Some(canary), Some(Track::Stable)) => (Some(100 - i32::from(canary.share)), canary.stable_version.as_deref()),
                (Some(canary), Some(Track::Canary)) => (Some(i32::from(canary.share)), canary.version.as_deref()),
                _ => (None, None),
            };
            (track, TrackRadar { used: TrackMetrics::of(&figures(&used), is_partial), weight, version: version.map(str::to_owned) })
        };
        self.tracks = Some(tracks.into_iter().map(shown).collect());
    }

    fn missing(&self) -> Vec<&'static str> {
        let Self { uptime_pct, last_seen, metrics: Metrics { used, active_conversations }, .. } = self;
        [
            ("uptime_pct", uptime_pct.is_some()),
            ("last_seen", last_seen.is_some()),
            ("requests_24h", used.requests_24h.is_some()),
            ("errors_24h", used.errors_24h.is_some()),
            ("unknown_24h", used.unknown_24h.is_some()),
            ("avg_latency_ms", used.avg_latency_ms.is_some()),
            ("p95_latency_ms", used.p95_latency_ms.is_some()),
            ("error_rate_pct", used.error_rate_pct.is_some()),
            ("tokens_24h", used.tokens_24h.is_some()),
            ("estimated_cost_usd", used.estimated_cost_usd.is_some()),
            ("active_conversations", active_conversations.is_some()),
        ]
        .into_iter()
        .filter(|(_, is_there)| !is_there)
        .map(|(name, _)| name)
        .collect()
    }
}

/// An agent that serves is seen now. Of another the cluster knows since when it does not serve, and the samples when it last did.
fn last_seen(snapshot: &Snapshot, state: &AgentState, reading: Option<&Reading>) -> Option<Timestamp> {
    let sampled = reading.and_then(|reading| reading.last_ready);
    match state.serves {
        Some((true, since)) => Some(snapshot.taken_at.max(since)),
        _ => sampled,
    }
}

impl TrackMetrics {
    /// `is_partial`: more was recorded than was counted.
    fn of(figures: &Figures, is_partial: bool) -> Self {
        let estimates = [("avg_latency_ms", figures.avg_latency_ms), ("p95_latency_ms", figures.p95_latency_ms)];
        let estimates = estimates.into_iter().filter(|(_, found)| found.is_some_and(|found| found.at_least)).map(|(name, _)| name);
        let counts = [
            ("requests_24h", figures.requests.is_some()),
            ("errors_24h", figures.errors.is_some()),
            ("unknown_24h", figures.unknown.is_some()),
            ("tokens_24h", figures.tokens.is_some()),
            ("estimated_cost_usd", figures.cost_usd.is_some()),
        ];
        let counts = counts.into_iter().filter(|(_, is_known)| is_partial && *is_known).map(|(name, _)| name);
        let value = |estimate: Option<Estimate>| estimate.map(|estimate| rounded(estimate.value));
        Self {
            requests_24h: figures.requests,
            errors_24h: figures.errors,
            unknown_24h: figures.unknown,
            avg_latency_ms: value(figures.avg_latency_ms),
            p95_latency_ms: value(figures.p95_latency_ms),
            error_rate_pct: figures.error_rate_pct.map(rounded),
            tokens_24h: figures.tokens,
            estimated_cost_usd: figures.cost_usd,
            at_least: counts.chain(estimates).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_were_cut_off_are_lower_bounds() {
        let used = MeasuredUsage { requests: 5, cost_micros: Some(1), ..MeasuredUsage::default() };
        let figures = radar::figures(&RadarInput { usage: Some(&used), ..RadarInput::default() });
        let partial = TrackMetrics::of(&figures, true);
        assert_eq!(partial.at_least, ["requests_24h", "errors_24h", "tokens_24h", "estimated_cost_usd"], "nobody knows of unknown ends");
        assert!(TrackMetrics::of(&figures, false).at_least.is_empty());
        let unmeasured = radar::figures(&RadarInput::default());
        assert!(TrackMetrics::of(&unmeasured, true).at_least.is_empty());
    }
}
