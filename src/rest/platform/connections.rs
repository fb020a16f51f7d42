//! `POST /platform/config/test`: connects to all that the platform is configured for, or would be after a change, at the same time.
//! Nothing is stored, and no message holds a password.

mod cluster;
mod servers;
mod stores;
mod workers;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use slipway_http::{Error, StatusCode};
use tokio::time::timeout;

use super::git::{self, TestedRemote};
use super::{Changes, after, mlflow as mlflow_uri, prometheus as prometheus_url, read};
use crate::answer::Data;
use crate::call::{Call, Maybe};

/// The time limit of a part.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The same of a part in which several things are asked one after the other. The state role limits that of the remote.
const LONG_PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The memory of a test: definitions of the cluster as they are parsed, connections, answers.
const TEST_BYTES: u64 = 2 * 1024 * 1024;

/// How each of the others is.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PlatformTest")]
pub(crate) struct Tested {
    /// The remote that the state repositories are mirrored to: whether it can be read and written.
    pub git: Finding,
    /// The MLflow server: whether it answers, and takes the platform's login.
    pub mlflow: Finding,
    /// The server that scrapes the agents.
    pub prometheus: Finding,
    /// The platform's database: its schema, and the rights of REST's login.
    pub database: Finding,
    /// The database of knowledge bases: whether it has been made, with a pgvector that is new enough.
    pub knowledge: Finding,
    /// The API server: whether it is ready, and its definitions are of this version.
    pub cluster: Finding,
    /// The state role, which keeps the releases.
    pub state: Finding,
    /// The workers of teams that have knowledge bases or integrations.
    pub workers: Finding,
}

#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "PlatformFinding")]
pub(crate) struct Finding {
    pub status: Status,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "FindingStatus")]
pub(crate) enum Status {
    Ok,
    Error,
    NotConfigured,
}

impl Finding {
    pub(super) fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    fn of(outcome: Result<String, String>) -> Self {
        outcome.map_or_else(|message| Self::new(Status::Error, message), |message| Self::new(Status::Ok, message))
    }
}

pub(crate) async fn test(call: Call<Maybe<Changes>>) -> Result<Data<Tested>, Error> {
    let (call, Maybe(changes)) = call.split();
    call.slot.charge(TEST_BYTES)?;
    let urls = changes.urls()?;
    // Without the cluster only the settings of the installation are known.
    let found = timeout(PROBE_TIMEOUT, read(&call.context)).await.ok().and_then(Result::ok).flatten();
    let remote = if changes.git == git::Changes::default() {
        TestedRemote::InForce
    } else {
        git::Writes::of(&call, changes.git, found.as_ref()).await?.wanted
    };
    let config = after(found, urls);
    let installed = &call.context.settings.platform;
    let (uri, prometheus_url) = (mlflow_uri(installed, Some(&config)), prometheus_url(installed, Some(&config)));
    let (git, mlflow, prometheus, database, knowledge, cluster, state, workers) = tokio::join!(
        git::test(&call, remote, &config),
        servers::mlflow(uri.as_deref(), installed),
        servers::prometheus(prometheus_url.as_deref()),
        stores::database(installed),
        stores::knowledge(installed),
        cluster::test(&call.context.client),
        state(&call),
        workers::test(&call),
    );
    Ok(Data::new(Tested { git, mlflow, prometheus, database, knowledge, cluster, state, workers }))
}

async fn state(call: &Call) -> Finding {
    let state = &call.context.state;
    if !state.is_configured() {
        return Finding::new(Status::NotConfigured, "there is no state role; agents run without releases");
    }
    Finding::of(match state.mirrors().await {
        Ok(_) => Ok("the state role answers".to_owned()),
        Err(error) if error.status() == StatusCode::INTERNAL_SERVER_ERROR => {
            Err("the state role answers, but does not take REST for who it is, or is of another version".to_owned())
        }
        Err(error) => Err(error.message().to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use schemars::{Schema, schema_for};

    use super::*;
    use crate::platform::Config;

    /// By which key of a test each field of the configuration is covered.
    const COVERS: [(&str, &str); 8] = [
        ("mlflow_uri", "mlflow"),
        ("prometheus_url", "prometheus"),
        ("state_repo", "git"),
        ("state_branch", "git"),
        ("state_known_hosts", "git"),
        ("state_ca", "git"),
        ("state_token", "git"),
        ("state_ssh_key", "git"),
    ];
    /// What the configuration says of how the mirror is, and nobody sets.
    const TOLD: [&str; 2] = ["git_status", "git_message"];

    fn fields(schema: &Schema) -> BTreeSet<String> {
        schema.as_value()["properties"].as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn every_field_of_the_configuration_is_covered_by_a_test() {
        let mut shown = fields(&schema_for!(Config));
        assert!(TOLD.iter().all(|told| shown.remove(*told)), "{shown:?}");
        let covered: BTreeSet<String> = COVERS.iter().map(|(field, _)| (*field).to_owned()).collect();
        assert_eq!(shown, covered, "what is shown");
        assert_eq!(fields(&schema_for!(Changes)), covered, "what can be set, and tested before it is");
        let keys = fields(&schema_for!(Tested));
        assert!(COVERS.iter().all(|(_, key)| keys.contains(*key)), "{keys:?}");
        assert_eq!(keys.len(), 8);
    }
}
