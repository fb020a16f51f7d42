//! Scorecards: what agents have reached within the last day. The measurements are those of the radar, the marks are computed for each
//! call.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use slipway_api::Track;
use slipway_governance::{Dimension, DimensionName, Grade, Measurements, Metric, MetricStatus, Scorecard, rounded};
use slipway_http::Error;

use crate::agents::AgentState;
use crate::answer::Data;
use crate::call::Call;
use crate::list_cache::ListEntry;
use crate::page::{self, Page, page_of};
use crate::radar::{self, Fleet, Reading, Snapshot};

/// What an agent has reached within the last 24 hours.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Scorecard")]
pub(crate) struct View {
    pub agent_id: String,
    pub agent_name: String,
    #[serde(flatten)]
    pub card: CardView,
    /// While there is a canary, the marks of what the tracks `stable` and `canary` run now. Only of one agent by itself; null in lists,
    /// and where they are not known.
    pub tracks: Option<BTreeMap<&'static str, CardView>>,
    /// The moment of which this is, at most a minute ago.
    pub updated_at: String,
}

/// The marks of an agent, or of one of its tracks.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ScorecardMarks")]
pub(crate) struct CardView {
    /// The weighted mean of the dimensions, 0 to 100. Null where nothing was measured. A dimension of which nothing was measured leaves
    /// its weight to the others.
    pub overall: Option<f64>,
    pub grade: Option<&'static str>,
    pub quality: DimensionView,
    pub safety: DimensionView,
    pub cost: DimensionView,
    pub compliance: DimensionView,
    /// How much of all was measured, by weight, 0 to 1.
    pub coverage: f64,
    /// The metrics that have no value.
    pub not_measured: Vec<&'static str>,
    /// `mlflow` if scores that MLflow has are among the metrics, else `slipway`.
    #[schemars(extend("enum" = ["slipway", "mlflow"]))]
    pub data_source: &'static str,
}

/// One of the four dimensions.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ScorecardDimension")]
pub(crate) struct DimensionView {
    /// The mean of its metrics' scores, 0 to 100. Null where none was measured.
    pub score: Option<f64>,
    /// A from 90 on, B from 80, C from 70, D from 60, else F.
    pub grade: Option<&'static str>,
    /// Its share of the whole.
    pub weight: f64,
    pub metrics: Vec<MetricView>,
}

/// A metric of a dimension.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ScorecardMetric")]
pub(crate) struct MetricView {
    pub name: &'static str,
    /// Null where it was not measured.
    pub value: Option<f64>,
    #[schemars(extend("enum" = ["percent", "count", "tokens", "ms", "usd"]))]
    pub unit: &'static str,
    /// Null where only the score says how good the value is.
    pub threshold: Option<f64>,
    /// 0 to 100.
    pub score: Option<f64>,
    /// `ok`, `warning` or `critical`; null where it was not measured.
    pub status: Option<&'static str>,
    /// The value is a lower bound.
    pub at_least: bool,
    /// Who has computed it.
    #[schemars(extend("enum" = ["slipway", "mlflow"]))]
    pub source: &'static str,
}

pub(crate) async fn list(mut call: Call) -> Result<Page<View>, Error> {
    /// Memory charged for the scorecards of a page that is being written.
    const PAGE_BYTES: u64 = 2 * 1024 * 1024;
    let namespace = page::scope(&mut call)?;
    call.slot.charge(PAGE_BYTES)?;
    let context = call.context.clone();
    let snapshot = Fleet::snapshot(&context).await;
    page_of(
        call,
        &context.caches.agents,
        namespace.as_deref(),
        |_, _| true,
        |item| serde_json::to_string(&View::of(&snapshot, item)).map(Cow::Owned).map_err(Error::internal),
    )
    .await
}

pub(crate) async fn get(call: Call) -> Result<Data<View>, Error> {
    let (key, item) = radar::find(&call).await?;
    let snapshot = Fleet::snapshot(&call.context).await;
    let mut shown = View::of(&snapshot, &item);
    if let Some(readings) = radar::track_readings(&call.context, &key, &item, &snapshot).await {
        let card = |(track, reading): &(Track, Reading)| (track.as_str(), CardView::of(&snapshot, &item, Some(reading)));
        shown.tracks = Some(readings.iter().map(card).collect());
    }
    Ok(Data::new(shown))
}

fn measurements(snapshot: &Snapshot, item: &ListEntry<AgentState>, reading: Option<&Reading>) -> Measurements {
    let score = |of: fn(&Reading) -> Option<slipway_governance::Score>| reading.and_then(of);
    Measurements {
        usage: reading.and_then(|reading| reading.usage.clone()),
        latency_bounds: snapshot.bounds.clone(),
        correctness: score(|reading| reading.correctness),
        relevance_to_query: score(|reading| reading.relevance_to_query),
        safety: score(|reading| reading.safety),
        factual_accuracy: score(|reading| reading.correctness),
        min_score: Some(item.data.min_score),
        safety_floor: item.data.safety_floor,
    }
}

impl View {
    fn of(snapshot: &Snapshot, item: &ListEntry<AgentState>) -> Self {
        Self {
            agent_id: item.id.clone(),
            agent_name: item.data.name.to_string(),
            card: CardView::of(snapshot, item, snapshot.reading(&item.id, &item.data.uid)),
            tracks: None,
            updated_at: snapshot.taken_at.to_string(),
        }
    }
}

impl CardView {
    fn of(snapshot: &Snapshot, item: &ListEntry<AgentState>, reading: Option<&Reading>) -> Self {
        let card = slipway_governance::scorecard(&measurements(snapshot, item, reading), snapshot.taken_at);
        let dimension = |name: DimensionName| DimensionView::of(card.dimension(name), name.weight());
        let [quality, safety, cost, compliance] = DimensionName::ALL.map(dimension);
        let Scorecard { overall, grade, coverage, not_measured, source, .. } = card;
        Self {
            overall,
            grade: grade.map(Grade::as_str),
            quality,
            safety,
            cost,
            compliance,
            coverage,
            not_measured,
            data_source: source.as_str(),
        }
    }
}

impl DimensionView {
    fn of(dimension: &Dimension, weight: f64) -> Self {
        Self {
            score: dimension.score,
            grade: dimension.grade.map(Grade::as_str),
            weight,
            metrics: dimension.metrics.iter().map(MetricView::of).collect(),
        }
    }
}

impl MetricView {
    fn of(metric: &Metric) -> Self {
        let Metric { name, value, unit, threshold, score, status, at_least, source } = metric;
        Self {
            name,
            // Costs are counted in millionths.
            value: value.map(|value| if *name == "estimated_daily_cost_usd" { value } else { rounded(value) }),
            unit: unit.as_str(),
            threshold: *threshold,
            score: score.map(rounded),
            status: status.map(MetricStatus::as_str),
            at_least: *at_least,
            source: source.as_str(),
        }
    }
}
