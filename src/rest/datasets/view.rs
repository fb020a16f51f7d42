//! A dataset as REST shows it.

use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use slipway_api::dataset::{self, DatasetPhase};
use slipway_api::{Dataset, condition, ids};

use crate::list_cache::{self, ListEntry};

/// A dataset as a list shows it: without its cases.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DatasetSummary")]
pub(crate) struct Summary {
    pub id: String,
    /// By which agents, evaluations and paths name it.
    pub name: String,
    /// The one agent that it is for. Null: all agents of the team.
    pub agent_id: Option<String>,
    pub description: Option<String>,
    /// Rules that every answer has to keep.
    pub guidelines: Vec<String>,
    /// Only those who may update agents/governance write it.
    pub protected: bool,
    /// Null while it is not known, where the cases stand in a ConfigMap.
    pub case_count: Option<i64>,
    /// Where the cases stand, if that is a ConfigMap.
    pub cases_from: Option<CasesFrom>,
    pub status: Status,
    /// Why it cannot be used, if that is so.
    pub message: Option<String>,
    pub resource_version: Option<String>,
    pub created_at: String,
}

/// A dataset, with its cases.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Dataset")]
pub(crate) struct View {
    #[serde(flatten)]
    pub summary: Summary,
    /// Empty where the cases stand in a ConfigMap.
    pub cases: Vec<Case>,
}

/// A ConfigMap of the team's namespace, and the key in it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DatasetSource")]
pub(crate) struct CasesFrom {
    pub config_map: String,
    pub key: String,
}

/// A question, and what is expected of the answer.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DatasetCase")]
pub(crate) struct Case {
    pub input: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "DatasetStatus")]
pub(crate) enum Status {
    Pending,
    Available,
    Error,
}

impl Summary {
    fn of(dataset: &Dataset) -> Self {
        let (spec, name) = (&dataset.spec, dataset.name_any());
        let namespace = dataset.namespace().unwrap_or_default();
        let status = dataset.status.as_ref();
        let current = status.filter(|status| status.observed_generation == dataset.metadata.generation);
        let ready = current.into_iter().flat_map(|status| &status.conditions).find(|found| found.type_ == condition::READY);
        let counted = current.and_then(|status| status.cases).map(i64::from);
        let own = spec.cases_from.is_none().then(|| i64::try_from(spec.cases.len()).unwrap_or(i64::MAX));
        Self {
            id: ids::dataset(&name),
            agent_id: spec.agent.as_deref().map(|agent| ids::agent(&namespace, agent)),
            description: spec.description.clone(),
            guidelines: spec.guidelines.clone(),
            protected: spec.protected,
            case_count: own.or(counted),
            cases_from: spec.cases_from.clone().map(|from| CasesFrom { config_map: from.config_map, key: from.key }),
            status: match current.and_then(|status| status.phase) {
                Some(DatasetPhase::Available) => Status::Available,
                Some(DatasetPhase::Error) => Status::Error,
                None => Status::Pending,
            },
            message: ready.filter(|ready| ready.status != "True").map(|ready| ready.message.clone()),
            resource_version: dataset.resource_version(),
            created_at: crate::agents::time(dataset.creation_timestamp().map(|time| time.0)),
            name,
        }
    }
}

impl View {
    pub(super) fn of(dataset: &Dataset) -> Self {
        let shown = |case: &dataset::Case| {
            let dataset::Case { input, expected_output, context, metadata } = case.clone();
            Case { input, expected_output, context, metadata }
        };
        Self { summary: Summary::of(dataset), cases: dataset.spec.cases.iter().map(shown).collect() }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Purpose {
    /// The one agent that the dataset is for.
    pub agent: Option<Box<str>>,
    pub is_protected: bool,
}

pub(crate) fn item(dataset: &Dataset) -> Option<ListEntry<Purpose>> {
    let mut summary = Summary::of(dataset);
    summary.message = list_cache::truncate(summary.message);
    let description = summary.description.as_deref().unwrap_or_default();
    Some(ListEntry {
        created: dataset.creation_timestamp().map_or(0, |time| time.0.as_second()),
        search: format!("{} {description}", summary.name).to_lowercase().into(),
        json: serde_json::to_string(&summary).ok()?.into(),
        id: summary.id,
        version: 0,
        omitted: None,
        data: Purpose { agent: dataset.spec.agent.as_deref().map(Into::into), is_protected: dataset.spec.protected },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dataset(spec: &Value, status: &Value) -> Dataset {
        let metadata = json!({"name": "hard-cases", "namespace": "team-a", "generation": 2});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn a_list_has_no_cases_and_says_how_many_there_are() {
        let cases = json!([{"input": "1 + 1?", "expectedOutput": "2", "metadata": {"myKey": null}}, {"input": "Hello!"}]);
        let dataset =
            dataset(&json!({"agent": "helper", "cases": cases}), &json!({"phase": "Available", "observedGeneration": 2, "cases": 2}));
        let item = item(&dataset).unwrap();
        let listed: Value = serde_json::from_str(&item.json).unwrap();
        assert_eq!((&listed["case_count"], listed.get("cases"), &listed["status"]), (&json!(2), None, &json!("available")));
        assert_eq!((&*item.id, item.data.agent.as_deref()), ("ds_hard_cases", Some("helper")));
        let single = serde_json::to_value(View::of(&dataset)).unwrap();
        assert_eq!(single["cases"], json!([{"input": "1 + 1?", "expected_output": "2", "metadata": {"myKey": null}}, {"input": "Hello!"}]));
    }

    #[test]
    fn what_stands_elsewhere_is_counted_by_the_status() {
        let from = json!({"casesFrom": {"configMap": "cases", "key": "cases.yaml"}});
        for (status, count, expected) in [
            (json!({}), Value::Null, "pending"),
            (json!({"phase": "Available", "observedGeneration": 2, "cases": 900}), json!(900), "available"),
            (json!({"phase": "Available", "observedGeneration": 1, "cases": 900}), Value::Null, "pending"),
        ] {
            let view = serde_json::to_value(View::of(&dataset(&from, &status))).unwrap();
            assert_eq!((&view["case_count"], &view["status"], &view["cases"]), (&count, &json!(expected), &json!([])));
            assert_eq!(view["cases_from"]["config_map"], "cases");
        }
    }
}
