//! Experiments, by their names.

use serde::Deserialize;
use serde_json::json;

use crate::client::plain;
use crate::{Fault, Mlflow};

#[derive(Deserialize)]
struct ByName {
    experiment: Experiment,
}

#[derive(Deserialize)]
struct Experiment {
    experiment_id: String,
    lifecycle_stage: Option<String>,
}

#[derive(Deserialize)]
struct Created {
    experiment_id: String,
}

impl Mlflow {
    /// The id of the experiment of this name, which is made if there is none.
    pub async fn experiment(&self, name: &str) -> Result<String, Fault> {
        if let Some(id) = self.find_experiment(name).await? {
            return Ok(id);
        }
        match self.post::<Created>("2.0/mlflow/experiments/create", &json!({"name": name})).await {
            Ok(created) => plain(created.experiment_id),
            // A pod of the agent was quicker.
            Err(fault) if fault.has_code("RESOURCE_ALREADY_EXISTS") => self.find_experiment(name).await?.ok_or(fault),
            Err(fault) => Err(fault),
        }
    }

    pub(crate) async fn find_experiment(&self, name: &str) -> Result<Option<String>, Fault> {
        match self.get::<ByName>("2.0/mlflow/experiments/get-by-name", &[("experiment_name", name)]).await {
            Ok(found) if found.experiment.lifecycle_stage.as_deref() == Some("deleted") => Err(Fault::ExperimentDeleted(name.to_owned())),
            Ok(found) => plain(found.experiment.experiment_id).map(Some),
            Err(fault) if fault.has_code("RESOURCE_DOES_NOT_EXIST") => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}
