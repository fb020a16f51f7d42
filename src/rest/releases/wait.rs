//! Waits until the state role has processed a resource. It may be busy or unavailable; the request then stays, and is
//! processed later.

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
use crate::cluster_error;

/// How long a call waits for a release, and how much longer once it failed for something that may appear in a moment.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);
/// Retry-After while the state role is unavailable.
const RETRY_SECONDS: u64 = 5;

/// The object once it is as wanted, or as it is at the timeout.
pub(crate) async fn until<K>(api: &Api<K>, name: &str, limit: Duration, want: impl Fn(&K) -> bool) -> Result<Option<K>, Error>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let settled = |object: Option<&K>| object.is_none_or(&want);
    match timeout(limit, await_condition(api.clone(), name, settled)).await {
        Ok(Ok(object)) => Ok(object),
        Ok(Err(error)) => Err(cluster_error::unavailable().because(error)),
        Err(_) => api.get_opt(name).await.map_err(|error| cluster_error::from_kube(error, name)),
    }
}

/// 503: the state role has not processed the request yet. The request stays.
pub(super) fn later(message: String) -> Error {
    Error::unavailable(message).with_header(header::RETRY_AFTER, HeaderValue::from(RETRY_SECONDS))
}

fn ready(release: &AgentRelease) -> Option<&Condition> {
    release.status.as_ref()?.conditions.iter().find(|found| found.type_ == condition::READY)
}

fn version(release: &AgentRelease) -> Option<u64> {
    release.status.as_ref()?.version.and_then(|version| u64::try_from(version).ok())
}

/// The version of a new release, or of the existing one if nothing had changed.
pub(super) struct Released {
    pub version: u64,
    pub is_new: bool,
}

/// The version of a requested release. A request that cannot be granted is withdrawn, and the error says why.
pub(super) async fn released(call: &Call, api: &Api<AgentRelease>, wanted: &AgentRelease, what: &str) -> Result<Released, Error> {
    let name = wanted.name_any();
    let refused = |release: &AgentRelease| ready(release).is_some_and(|ready| ready.status == "False");
    let mut seen = until(api, &name, RELEASE_TIMEOUT, |release| version(release).is_some() || refused(release)).await?;
    if seen.as_ref().is_some_and(|release| version(release).is_none() && refused(release)) {
        seen = until(api, &name, SETTLE_TIMEOUT, |release| version(release).is_some()).await?;
    }
    let Some(release) = seen else {
        return Err(Error::new(StatusCode::CONFLICT, format!("the release of {what} was deleted before it was made")));
    };
    if let Some(version) = version(&release) {
        let is_new = release.status.as_ref().is_none_or(|status| status.phase != Some(ReleasePhase::Skipped));
        return Ok(Released { version, is_new });
    }
    match ready(&release).filter(|ready| ready.status == "False") {
        Some(ready) if ready.reason != STATE_UNAVAILABLE => {
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

/// The reason of requests that wait for the state repositories.
const STATE_UNAVAILABLE: &str = "StateUnavailable";

/// Withdraws a refused request if it is unchanged, so that a failed call leaves nothing.
async fn withdraw(call: &Call, api: &Api<AgentRelease>, release: &AgentRelease) {
    let preconditions = Preconditions { uid: release.uid(), resource_version: release.resource_version() };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    if let Err(error) = api.delete(&release.name_any(), &parameters).await {
        tracing::debug!(%error, request = call.id.as_str(), release = release.name_any(), "a refused release stays");
    }
}
