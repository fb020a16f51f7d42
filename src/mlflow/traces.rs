//! Traces that agents have sent, and assessments of them. An assessment has an id of the caller's, by which it is known whether it is
//! there.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use ulid::Ulid;

use crate::client::plain;
use crate::{Fault, Mlflow};

/// The most traces of a request: MLflow links 100, and tells of each with all its assessments.
const BATCH: usize = 50;
/// The tag of a trace that says whose it is.
const AGENT_TAG: &str = "slipway.agent_id";

/// By trace: the ids of its assessments.
pub type Found = BTreeMap<String, BTreeSet<String>>;

/// What an answer was found to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Assessment {
    /// Up to 50 characters.
    pub id: String,
    pub trace: String,
    pub name: String,
    /// Or why there is none.
    pub value: Result<f64, String>,
    pub rationale: String,
    pub source: Source,
    /// The run that it belongs to.
    pub run: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A model, by its name.
    Judge(String),
    /// What computed it.
    Code(String),
}

#[derive(Deserialize)]
struct Infos {
    #[serde(default)]
    trace_infos: Vec<Info>,
}

#[derive(Deserialize)]
struct Info {
    trace_id: String,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    assessments: Vec<Known>,
}

#[derive(Deserialize)]
struct Known {
    assessment_id: String,
}

/// MLflow's id of the trace that an agent calls `tr_…`.
pub fn trace_id(own: &str) -> Option<String> {
    let ulid = Ulid::from_string(own.strip_prefix("tr_")?).ok()?;
    Some(format!("tr-{:032x}", u128::from(ulid)))
}

impl Mlflow {
    /// Those of the traces that there are and that are this agent's.
    pub async fn traces(&self, ids: &[String], agent_id: &str) -> Result<Found, Fault> {
        let mut found = Found::new();
        for ids in ids.chunks(BATCH) {
            let infos: Infos = self.post("3.0/mlflow/traces/batchGetInfos", &json!({"trace_ids": ids})).await?;
            for info in infos.trace_infos.into_iter().filter(|info| info.tags.get(AGENT_TAG).is_some_and(|own| own == agent_id)) {
                found.insert(info.trace_id, info.assessments.into_iter().map(|known| known.assessment_id).collect());
            }
        }
        Ok(found)
    }

    /// Says that the traces belong to the run.
    pub async fn link(&self, run: &str, traces: &[String]) -> Result<(), Fault> {
        for ids in traces.chunks(BATCH) {
            self.post::<IgnoredAny>("2.0/mlflow/traces/link-to-run", &json!({"run_id": run, "trace_ids": ids})).await?;
        }
        Ok(())
    }

    /// Adds an assessment, which must not be there yet.
    pub async fn assess(&self, assessment: &Assessment) -> Result<(), Fault> {
        let trace = plain(assessment.trace.clone())?;
        let body = body(assessment);
        self.post::<IgnoredAny>(&format!("3.0/mlflow/traces/{trace}/assessments"), &body).await.map(drop)
    }
}

fn body(assessment: &Assessment) -> Value {
    let Assessment { id, trace, name, value, rationale, source, run } = assessment;
    let (source_type, source_id) = match source {
        Source::Judge(model) => ("LLM_JUDGE", model),
        Source::Code(name) => ("CODE", name),
    };
    let feedback = match value {
        Ok(value) => json!({"value": value}),
        Err(why) => json!({"error": {"error_code": "NO_SCORE", "error_message": why}}),
    };
    json!({"assessment": {
        "assessment_id": id,
        "assessment_name": name,
        "trace_id": trace,
        "source": {"source_type": source_type, "source_id": source_id},
        "feedback": feedback,
        "rationale": rationale,
        "metadata": {"mlflow.assessment.sourceRunId": run},
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traces_id_is_that_of_its_spans() {
        let id = trace_id("tr_01ARZ3NDEKTSV4RRFFQ69G5FAV");
        assert_eq!(id.as_deref(), Some("tr-01563e3ab5d3d6764c61efb99302bd5b"));
        for none in ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "tr_x", "tr_../../../../../../../../..", ""] {
            assert_eq!(trace_id(none), None, "{none}");
        }
    }
}
