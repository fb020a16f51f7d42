//! Waiting until the state role has done what a resource asks of it. It is another process: it may be busy, or away, and
//! then the wish stays where it is and is granted later.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::runtime::wait::await_condition;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use slipway_api::{AgentRelease, ReleasePhase, condition};
use slipway_http::{Error, HeaderValue, StatusCode, header};
use tokio::time::timeout;

use crate::call::Call;
use crate::fault;

/// How long a call waits, and how long it still does after it was told that something is missing: that may be there
/// in a moment.
const PATIENCE: Duration = Duration::from_secs(10);
const SECOND_LOOK: Duration = Duration::from_secs(3);
/// How many seconds until it is worth asking again.
const RETRY: u64 = 5;

/// The object once it is as wanted, or as it was last seen before the time was over.
pub(super) async fn until<K>(api: &Api<K>, name: &str, patience: Duration, want: impl Fn(&K) -> bool) -> Result<Option<K>, Error>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let settled = |object: Option<&K>| object.is_none_or(&want);
    match timeout(patience, await_condition(api.clone(), name, settled)).await {
        Ok(Ok(object)) => Ok(object),
        Ok(Err(error)) => Err(fault::away().because(error)),
        Err(_) => api.get_opt(name).await.map_err(|error| fault::of_cluster(error, name)),
    }
}

/// 503: the state role has not come to it. The wish stays.
pub(super) fn later(message: String) -> Error {
    Error::unavailable(message).with_header(header::RETRY_AFTER, HeaderValue::from(RETRY))
}

fn ready(release: &AgentRelease) -> Option<&Condition> {
    release.status.as_ref()?.conditions.iter().find(|found| found.type_ == condition::READY)
}

fn version(release: &AgentRelease) -> Option<u64> {
    release.status.as_ref()?.version.and_then(|version| u64::try_from(version).ok())
}

/// The version that a release got, or that stands because nothing had changed.
pub(super) struct Released {
    pub version: u64,
    pub is_new: bool,
}

/// The version that a release got. One that cannot be made now is taken back, and why is told.
pub(super) async fn released(call: &Call, api: &Api<AgentRelease>, wanted: &AgentRelease, what: &str) -> Result<Released, Error> {
    let name = wanted.name_any();
    let refused = |release: &AgentRelease| ready(release).is_some_and(|ready| ready.status == "False");
    let mut seen = until(api, &name, PATIENCE, |release| version(release).is_some() || refused(release)).await?;
    if seen.as_ref().is_some_and(|release| version(release).is_none() && refused(release)) {
        seen = until(api, &name, SECOND_LOOK, |release| version(release).is_some()).await?;
    }
    let Some(release) = seen else {
        return Err(Error::new(StatusCode::CONFLICT, format!("the release of {what} was deleted before it was made")));
    };
    if let Some(version) = version(&release) {
        let is_new = release.status.as_ref().is_none_or(|status| status.phase != Some(ReleasePhase::Skipped));
        return Ok(Released { version, is_new });
    }
    match ready(&release).filter(|ready| ready.status == "False") {
        Some(ready) if ready.reason != UNAVAILABLE => {
            withdraw(call, api, &release).await;
            Err(Error::new(StatusCode::CONFLICT, format!("{what} cannot be released as it stands: {}", ready.message)))
        }
        ready => {
            let why = ready.map_or_else(|| "the state role has not come to it yet".to_owned(), |ready| ready.message.clone());
            Err(later(format!(
                "{why}; AgentRelease {name} stays and gets its version later. With the same Idempotency-Key this call waits for it again"
            )))
        }
    }
}

/// The reason of what waits for the state repositories.
const UNAVAILABLE: &str = "StateUnavailable";

/// Takes back a wish that was refused, if it is still as it was: nothing is left of a call that failed.
async fn withdraw(call: &Call, api: &Api<AgentRelease>, release: &AgentRelease) {
    let preconditions = Preconditions { uid: release.uid(), resource_version: release.resource_version() };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    if let Err(error) = api.delete(&release.name_any(), &parameters).await {
        tracing::debug!(%error, request = call.id.as_str(), release = release.name_any(), "a refused release stays");
    }
}
