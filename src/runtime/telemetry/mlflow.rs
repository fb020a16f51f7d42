//! MLflow takes OTLP at `/v1/traces` when a header names the experiment. The number of an
//! experiment is found by its name, once; where there is none of that name it is made.

use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use serde_json::json;

use super::post::{self, Sent};
use super::settings::below;

/// How this destination is called in logs and metrics.
pub(super) const NAME: &str = "mlflow";
pub(super) const EXPERIMENT_HEADER: &str = "x-mlflow-experiment-id";

/// Attributes of a root span with this prefix become tags of MLflow's trace.
pub(super) const TAG: &str = "mlflow.traceTag.";

/// By this member of `tracestate` an agent knows that a caller's spans are sent to MLflow, too.
pub(super) const STATE_KEY: &str = "slipway";
pub(super) const STATE_VALUE: &str = "mlflow";

pub(super) struct Experiment {
    base: Url,
    name: String,
    id: Option<String>,
}

#[derive(Deserialize)]
struct Found {
    experiment: Described,
}

#[derive(Deserialize)]
struct Described {
    experiment_id: String,
    lifecycle_stage: Option<String>,
}

#[derive(Deserialize)]
struct Created {
    experiment_id: String,
}

#[derive(Deserialize)]
struct Complaint {
    error_code: String,
}

type Answer<T> = reqwest::Result<Result<T, Sent>>;

impl Experiment {
    pub(super) fn new(base: Url, name: String) -> Self {
        Self { base, name, id: None }
    }

    pub(super) fn forget(&mut self) {
        self.id = None;
    }

    pub(super) async fn id(&mut self, client: &Client) -> Answer<&str> {
        let id = match self.id.take() {
            Some(id) => id,
            None => match self.look_up_or_make(client).await? {
                Ok(id) => id,
                Err(sent) => return Ok(Err(sent)),
            },
        };
        Ok(Ok(self.id.insert(id)))
    }

    async fn look_up_or_make(&self, client: &Client) -> Answer<String> {
        if let Some(found) = self.look_up(client).await? {
            return Ok(found);
        }
        let created = client.post(self.url("create")).json_body(&json!({"name": self.name})).send().await?;
        let status = created.status();
        if !status.is_success() {
            let refusal = judged(&created, "will not make the experiment and answered");
            // Another pod was quicker.
            if code(created).await?.as_deref() == Some("RESOURCE_ALREADY_EXISTS")
                && let Some(found) = self.look_up(client).await?
            {
                return Ok(found);
            }
            return Ok(Err(refusal));
        }
        Ok(read::<Created>(&post::start(created).await?).map(|created| created.experiment_id))
    }

    /// None where there is no experiment of that name.
    async fn look_up(&self, client: &Client) -> reqwest::Result<Option<Result<String, Sent>>> {
        let mut url = self.url("get-by-name");
        url.query_pairs_mut().append_pair("experiment_name", &self.name);
        let answer = client.get(url).send().await?;
        if answer.status().is_success() {
            let found = read::<Found>(&post::start(answer).await?).and_then(|found| self.usable(found.experiment));
            return Ok(Some(found));
        }
        let missing = answer.status() == StatusCode::NOT_FOUND;
        let refusal = judged(&answer, "was asked for the experiment and answered");
        let nothing = missing && code(answer).await?.as_deref() == Some("RESOURCE_DOES_NOT_EXIST");
        Ok(if nothing { None } else { Some(Err(refusal)) })
    }

    fn usable(&self, experiment: Described) -> Result<String, Sent> {
        if experiment.lifecycle_stage.as_deref() == Some("deleted") {
            let why = format!("its experiment {:?} is deleted; restore it or set RUNTIME_MLFLOW_EXPERIMENT", self.name);
            return Err(Sent::Refused { why });
        }
        Ok(experiment.experiment_id)
    }

    fn url(&self, call: &str) -> Url {
        below(self.base.clone(), &format!("api/2.0/mlflow/experiments/{call}"))
    }
}

/// OTLP does not repeat what failed with a plain 500; MLflow answers it while its own database is busy.
fn judged(answer: &Response, what: &str) -> Sent {
    match post::judged(answer, what) {
        Sent::Refused { why } if answer.status().is_server_error() => Sent::Later { why, after: None },
        sent => sent,
    }
}

fn read<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, Sent> {
    let why = "it answered something else than MLflow would; is RUNTIME_MLFLOW_URI right?";
    serde_json::from_slice(body).map_err(|_| Sent::Refused { why: why.into() })
}

async fn code(answer: Response) -> reqwest::Result<Option<String>> {
    let body = post::start(answer).await?;
    Ok(serde_json::from_slice::<Complaint>(&body).ok().map(|complaint| complaint.error_code))
}

trait JsonBody {
    fn json_body(self, value: &serde_json::Value) -> Self;
}

impl JsonBody for reqwest::RequestBuilder {
    /// What reqwest's own feature would do, which nothing else here needs.
    fn json_body(self, value: &serde_json::Value) -> Self {
        self.header(reqwest::header::CONTENT_TYPE, "application/json").body(value.to_string())
    }
}
