//! What agents did in the last day, by the figures of the Prometheus server that scrapes them: for a platform without a database.
//!
//! A few instant queries, one after the other, each for all agents at once. The scraper sets the labels `namespace` and `agent`
//! (docs/monitoring.md), so that no agent can speak for another. The server is one that platform admins name; what it answers is
//! bounded in bytes and in time all the same, and a redirect is not followed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use slipway_egress::{Allowed, Egress, EgressProfile};
use slipway_governance::MeasuredUsage;
use url::Url;

/// For one query; Prometheus is told to give up as well.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Of one answer. The longest, that of latencies, takes some 2 KiB an agent.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
const AGENTS_MAX: usize = 10_000;
/// More are not of our runtimes.
const BOUNDS_MAX: usize = 64;

const PROFILE: EgressProfile =
    EgressProfile { name: "the platform", setting: "prometheus_url", user_agent: concat!("slipway/", env!("CARGO_PKG_VERSION")) };

const TURNS: &str = "sum by (namespace, agent, outcome) (increase(slipway_runtime_turns_total{agent!=\"\"}[24h]))";
const TOKENS: &str =
    "sum by (namespace, agent, direction) (increase(slipway_runtime_tokens_total{agent!=\"\", direction=~\"input|output\"}[24h]))";
const COST: &str = "sum by (namespace, agent) (increase(slipway_runtime_cost_usd_total{agent!=\"\"}[24h]))";
const LATENCY: &str = "sum by (namespace, agent, le) (increase(slipway_runtime_turn_seconds_bucket{agent!=\"\"}[24h]))";
const PII: &str = "sum by (namespace, agent) (increase(slipway_runtime_pii_detections_total{agent!=\"\"}[24h]))";
const INJECTIONS: &str = "sum by (namespace, agent) (increase(slipway_runtime_injection_attempts_total{agent!=\"\"}[24h]))";
const VIOLATIONS: &str = "sum by (namespace, agent) (increase(slipway_runtime_policy_violations_total{agent!=\"\"}[24h]))";

/// A Prometheus server.
pub(crate) struct Prometheus {
    base: Url,
    /// Its URL without what may be secret.
    place: String,
    client: reqwest::Client,
}

/// A day of all agents.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Day {
    /// By namespace and name. Who was not scraped is not in it; who was and did nothing has zeros.
    pub agents: BTreeMap<(String, String), MeasuredUsage>,
    /// The upper bounds of the buckets of latency, in milliseconds.
    pub latency_bounds: Vec<i64>,
}

#[derive(Deserialize)]
struct Answer {
    status: String,
    data: Vector,
}

#[derive(Deserialize)]
struct Vector {
    result: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    metric: Labels,
    value: (f64, String),
}

/// Others are passed over.
#[derive(Deserialize)]
struct Labels {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    agent: String,
    #[serde(default)]
    outcome: String,
    #[serde(default)]
    direction: String,
    #[serde(default)]
    le: String,
}

/// A count of a day's usage.
type Field = fn(&mut MeasuredUsage) -> &mut i64;

impl Prometheus {
    /// Connects to nothing yet. Only platform admins can name the server, so that private addresses are allowed, but no metadata
    /// services.
    pub(crate) fn new(url: &str) -> Result<Self, String> {
        let base = Url::parse(&format!("{}/", url.trim_end_matches('/'))).map_err(|_| "prometheus_url is no URL".to_owned())?;
        let host = base.host_str().zip(base.port_or_known_default()).map(|(host, port)| Allowed::Host { host: host.to_owned(), port });
        let client =
            Egress::without_redirects(PROFILE, host.as_slice(), None).client(&base).map_err(|blocked| blocked.to_string())?.clone();
        Ok(Self { place: slipway_egress::redacted(&base), base, client })
    }

    /// How many of its targets the server reaches.
    pub(crate) async fn targets(&self) -> Result<i64, String> {
        Ok(self.query("sum(up)").await?.first().map_or(0, whole))
    }

    /// The last 24 hours. Prometheus estimates: what a counter counted before its first scrape is not seen.
    pub(crate) async fn day(&self) -> Result<Day, String> {
        let mut day = Day::default();
        for sample in self.query(TURNS).await? {
            let count = whole(&sample);
            let usage = day.usage(&sample)?;
            usage.requests = usage.requests.saturating_add(count);
            let unknown = usage.unknown.get_or_insert(0);
            match sample.metric.outcome.as_str() {
                "cancelled" => *unknown = unknown.saturating_add(count),
                "error" => usage.errors = usage.errors.saturating_add(count),
                // Guards act many times in one turn: what they did is no share of requests.
                "blocked" => usage.guard_blocks = usage.guard_blocks.saturating_add(count),
                _ => {}
            }
        }
        for sample in self.query(TOKENS).await? {
            let (count, is_input) = (whole(&sample), sample.metric.direction == "input");
            let usage = day.usage(&sample)?;
            if is_input { usage.input_tokens = count } else { usage.output_tokens = count }
        }
        for sample in self.query(COST).await? {
            // A model without a known price costs nothing here, which is not known to be so.
            let micros = rounded(number(&sample) * 1e6);
            day.usage(&sample)?.cost_micros = Some(micros).filter(|micros| *micros > 0);
        }
        let counts: [(&str, Field); 3] =
            [(PII, |usage| &mut usage.pii), (INJECTIONS, |usage| &mut usage.injections), (VIOLATIONS, |usage| &mut usage.violations)];
        for (query, field) in counts {
            for sample in self.query(query).await? {
                *field(day.usage(&sample)?) = whole(&sample);
            }
        }
        let buckets = self.query(LATENCY).await?;
        day.latencies(&buckets)?;
        Ok(day)
    }

    async fn query(&self, query: &str) -> Result<Vec<Sample>, String> {
        let Self { base, place, client } = self;
        let mut url = base.join("api/v1/query").map_err(|_| "prometheus_url is no URL".to_owned())?;
        url.query_pairs_mut().append_pair("query", query).append_pair("timeout", &format!("{}s", QUERY_TIMEOUT.as_secs()));
        let failed = |error: reqwest::Error| slipway_egress::explain(&error, place);
        let mut answer = client.get(url).timeout(QUERY_TIMEOUT).send().await.map_err(failed)?;
        if answer.status() != 200 {
            return Err(format!("{place} answers a query with status {}", answer.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(format!("{place} answers a query with more than {ANSWER_BYTES_MAX} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        // The page of another server is not passed on.
        let answer = serde_json::from_slice::<Answer>(&body).ok().filter(|answer| answer.status == "success");
        answer.map(|answer| answer.data.result).ok_or_else(|| format!("{place} answers, but not as a Prometheus server does"))
    }
}

impl Day {
    fn usage(&mut self, sample: &Sample) -> Result<&mut MeasuredUsage, String> {
        let agents = self.agents.len();
        let entry = self.agents.entry((sample.metric.namespace.clone(), sample.metric.agent.clone()));
        if agents >= AGENTS_MAX && matches!(entry, std::collections::btree_map::Entry::Vacant(_)) {
            return Err(format!("prometheus_url has more than {AGENTS_MAX} agents"));
        }
        Ok(entry.or_default())
    }

    /// Runtimes of several versions may have different buckets. An agent that lacks one has none in it, and as many more in the next.
    fn latencies(&mut self, buckets: &[Sample]) -> Result<(), String> {
        let mut bounds: Vec<i64> = buckets.iter().filter_map(bound).collect();
        bounds.sort_unstable();
        bounds.dedup();
        if bounds.len() > BOUNDS_MAX {
            return Err(format!("prometheus_url has more than {BOUNDS_MAX} buckets of latency"));
        }
        let mut cumulative: BTreeMap<(&str, &str), Vec<Option<i64>>> = BTreeMap::new();
        for sample in buckets {
            let place = bound(sample).map_or(bounds.len(), |bound| bounds.partition_point(|other| *other < bound));
            let key = (sample.metric.namespace.as_str(), sample.metric.agent.as_str());
            cumulative.entry(key).or_insert_with(|| vec![None; bounds.len() + 1])[place] = Some(whole(sample));
        }
        for ((namespace, agent), counts) in cumulative {
            let Some(usage) = self.agents.get_mut(&(namespace.to_owned(), agent.to_owned())) else { continue };
            let mut below = 0;
            let apart = |count: Option<i64>| {
                let count = count.unwrap_or(below).max(below);
                count - std::mem::replace(&mut below, count)
            };
            usage.latency = counts.into_iter().map(apart).collect();
        }
        self.latency_bounds = bounds;
        Ok(())
    }
}

/// The upper bound of a bucket in milliseconds; none of the last.
fn bound(sample: &Sample) -> Option<i64> {
    sample.metric.le.parse::<f64>().ok().filter(|seconds| seconds.is_finite()).map(|seconds| rounded(seconds * 1000.0))
}

fn number(sample: &Sample) -> f64 {
    sample.value.1.parse().unwrap_or(f64::NAN)
}

fn whole(sample: &Sample) -> i64 {
    rounded(number(sample))
}

/// Zero for what is no number, or below.
#[expect(clippy::cast_possible_truncation, reason = "a cast of a float stops at the ends of the range")]
fn rounded(value: f64) -> i64 {
    value.round().max(0.0) as i64
}

#[cfg(test)]
mod tests;
