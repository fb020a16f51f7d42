//! Evaluation datasets and their records. MLflow only adds to one, and takes records with the same inputs for one, so a name stands
//! for one content: it is written once, and a tag says that it is whole.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::client::{plain, quoted};
use crate::{Fault, Mlflow};

const COMPLETE_TAG: &str = "slipway.complete";
/// The most records of a request, and about the most bytes. MLflow takes 2 ms a record.
const BATCH_RECORDS: usize = 200;
const BATCH_BYTES: usize = 512 * 1024;

#[derive(Deserialize)]
struct FoundDatasets {
    #[serde(default)]
    datasets: Vec<Dataset>,
}

#[derive(Deserialize)]
struct CreatedDataset {
    dataset: Dataset,
}

#[derive(Deserialize)]
struct Dataset {
    #[serde(rename = "dataset_id")]
    id: String,
    #[serde(default)]
    created_time: i64,
    /// An object, as text.
    #[serde(default)]
    tags: String,
}

impl Dataset {
    fn is_complete(&self) -> bool {
        serde_json::from_str::<Map<String, Value>>(&self.tags).is_ok_and(|tags| tags.contains_key(COMPLETE_TAG))
    }
}

impl Mlflow {
    /// The id of the dataset of this name, which is made with these records if there is none, and belongs to the experiment. A record
    /// has `inputs` and may have `expectations` and `tags`.
    pub async fn dataset(&self, experiment: &str, name: &str, tags: &Map<String, Value>, records: &[Value]) -> Result<String, Fault> {
        let body = json!({"filter_string": format!("name = {}", quoted(name)?), "max_results": 10});
        let found: FoundDatasets = self.post("3.0/mlflow/datasets/search", &body).await?;
        let oldest = found.datasets.into_iter().min_by(|a, b| (a.created_time, &a.id).cmp(&(b.created_time, &b.id)));
        let dataset = if let Some(dataset) = oldest {
            dataset
        } else {
            let body = json!({"name": name, "experiment_ids": [experiment], "tags": Value::from(tags.clone()).to_string()});
            self.post::<CreatedDataset>("3.0/mlflow/datasets/create", &body).await?.dataset
        };
        let is_complete = dataset.is_complete();
        let id = plain(dataset.id)?;
        let body = json!({"experiment_ids": [experiment]});
        self.post::<IgnoredAny>(&format!("3.0/mlflow/datasets/{id}/add-experiments"), &body).await?;
        if !is_complete {
            for batch in batches(records) {
                let body = json!({"records": format!("[{}]", batch.join(","))});
                self.post::<IgnoredAny>(&format!("3.0/mlflow/datasets/{id}/records"), &body).await?;
            }
            let body = json!({"tags": json!({COMPLETE_TAG: "true"}).to_string()});
            self.patch::<IgnoredAny>(&format!("3.0/mlflow/datasets/{id}/tags"), &body).await?;
        }
        Ok(id)
    }
}

fn batches(records: &[Value]) -> Vec<Vec<String>> {
    let mut batches: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0;
    for record in records {
        let text = record.to_string();
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH_RECORDS && bytes + text.len() <= BATCH_BYTES => {
                bytes += text.len();
                batch.push(text);
            }
            _ => {
                bytes = text.len();
                batches.push(vec![text]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_every_record_once_and_are_bounded() {
        let records: Vec<Value> = (0..450).map(|at| json!({"inputs": at})).chain([json!("x".repeat(BATCH_BYTES)), json!("y")]).collect();
        let batches = batches(&records);
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [200, 200, 50, 1, 1]);
        assert_eq!(batches.concat(), records.iter().map(Value::to_string).collect::<Vec<_>>());
    }
}
