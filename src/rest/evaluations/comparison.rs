//! Two runs of an agent side by side.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use slipway_api::EvaluationRun;
use slipway_evaluation as evaluation;
use slipway_http::{Error, StatusCode};

use super::view::{Status, Summary};
use super::{agent_of, named};
use crate::answer::Data;
use crate::call::Call;
use crate::route::Parameter;

pub(crate) const BOTH: &[Parameter] = &[
    Parameter { name: "a", about: "The id of one evaluation (ev_…).", kind: "string" },
    Parameter { name: "b", about: "The id of the other.", kind: "string" },
];

/// Two evaluations side by side.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EvaluationComparison")]
pub(crate) struct Comparison {
    run_a: Summary,
    run_b: Summary,
    /// By metric, such as `safety/mean`.
    metrics: BTreeMap<String, Metric>,
    winner: Winner,
}

/// One metric of both. Null where a run lacks it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EvaluationMetric")]
pub(crate) struct Metric {
    a: Option<f64>,
    b: Option<f64>,
    diff: Option<f64>,
    winner: Winner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "EvaluationWinner")]
pub(crate) enum Winner {
    A,
    B,
    Tie,
}

impl From<evaluation::Winner> for Winner {
    fn from(winner: evaluation::Winner) -> Self {
        match winner {
            evaluation::Winner::A => Self::A,
            evaluation::Winner::B => Self::B,
            evaluation::Winner::Tie => Self::Tie,
        }
    }
}

impl From<evaluation::Metric> for Metric {
    fn from(evaluation::Metric { a, b, diff, winner }: evaluation::Metric) -> Self {
        Self { a, b, diff, winner: winner.into() }
    }
}

pub(crate) async fn compare(mut call: Call) -> Result<Data<Comparison>, Error> {
    let mut query = std::mem::take(&mut call.query);
    let mut wanted = |name: &str| {
        let given = query.text(name).filter(|id| !id.is_empty());
        given.ok_or_else(|| Error::bad_request(format!("`{name}` is required: the id of an evaluation")))
    };
    let (a, b) = (wanted("a")?, wanted("b")?);
    query.end()?;
    let agent = agent_of(&call).await?;
    let (run_a, run_b) = tokio::try_join!(completed(&call, &agent, "a", &a), completed(&call, &agent, "b", &b))?;
    Ok(Data::new(of(&run_a, &run_b)))
}

fn of(a: &EvaluationRun, b: &EvaluationRun) -> Comparison {
    let (run_a, run_b) = (Summary::of(a), Summary::of(b));
    let evaluation::Comparison { metrics, winner } = evaluation::compare(&run_a.aggregate_scores, &run_b.aggregate_scores);
    let metrics = metrics.into_iter().map(|(name, metric)| (name, metric.into())).collect();
    Comparison { run_a, run_b, metrics, winner: winner.into() }
}

/// The run that the parameter names, which must have scores.
async fn completed(call: &Call, agent: &str, parameter: &str, id: &str) -> Result<EvaluationRun, Error> {
    let run = named(call, agent, id).await.map_err(|error| match error.status() {
        StatusCode::NOT_FOUND => Error::not_found(format!("{parameter}: {}", error.message())),
        _ => error,
    })?;
    match Status::of(&run) {
        Status::Completed => Ok(run),
        status => {
            let message = format!("{parameter}: evaluation {id} is {}; only completed ones can be compared", status.as_str());
            Err(Error::new(StatusCode::CONFLICT, message))
        }
    }
}
