//! The Secret of an integration: `in-` and its name, which belongs to it and goes with it. It is created, or replaced whole, by REST's
//! own account, which has no right to read one: the answer to either has what was sent and no more.
//!
//! A Secret that is not the integration's own is left as it is: an admission policy refuses to replace it. No error of the API server
//! is passed on in its own words, as these might quote what was sent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::core::Status;
use kube::{Resource, ResourceExt};
use slipway_api::integration::secret_name;
use slipway_api::names::TeamSlug;
use slipway_api::{Integration, labels};
use slipway_cluster::quota;
use slipway_http::{Error, HeaderValue, StatusCode, header};
use tokio::time::sleep;

use crate::call::Call;
use crate::{cluster_error, random};

/// How long a missing right is waited for: the manager gives it to REST in each team's namespace, a moment after that is there.
const RIGHT_TIMEOUT: Duration = Duration::from_secs(3);
const RIGHT_PAUSE: Duration = Duration::from_millis(200);
const OPAQUE: &str = "Opaque";

/// Writes the login of an integration that was just written, with the host that it is for: the manager sends it to no other, whichever
/// it sees first. If the host was changed by somebody else meanwhile, the login is taken back.
pub(super) async fn store(call: &Call, integration: &Integration, values: &BTreeMap<String, String>) -> Result<(), Error> {
    write(call, integration, values).await?;
    let (name, what) = (integration.name_any(), super::what(&integration.name_any()));
    let now = super::api(call).get(&name).await.map_err(|error| cluster_error::from_kube(error, &what))?;
    let is_same = now.uid() == integration.uid() && now.spec.kind() == integration.spec.kind();
    if is_same && now.spec.origin() == integration.spec.origin() {
        return Ok(());
    }
    if now.uid() == integration.uid() {
        write(call, integration, &BTreeMap::new()).await?;
    }
    let message = format!("{what} was changed by somebody else at the same time; its credentials were taken back, give them again");
    Err(Error::new(StatusCode::CONFLICT, message))
}

async fn write(call: &Call, integration: &Integration, values: &BTreeMap<String, String>) -> Result<(), Error> {
    // As REST itself: people have no right to Secrets.
    let api: Api<Secret> = Api::namespaced(call.context.client.clone(), &call.namespace());
    let secret = secret(call, integration, values)?;
    let begun = Instant::now();
    loop {
        match put(&api, &secret).await {
            Ok(()) => return Ok(()),
            Err(refusal) if refusal.may_pass() && begun.elapsed() < RIGHT_TIMEOUT => sleep(RIGHT_PAUSE).await,
            Err(refusal) => return Err(refusal.told(call, &integration.name_any())),
        }
    }
}

fn secret(call: &Call, integration: &Integration, values: &BTreeMap<String, String>) -> Result<Secret, Error> {
    // Also the same login is given anew, for the host that the integration has by now.
    let written = (labels::WRITTEN.to_owned(), format!("{:032x}", random::bits()?));
    let changed_by = (labels::CHANGED_BY.to_owned(), call.caller.name.clone());
    // Of a type whose URL is the login there is none.
    let origin = integration.spec.origin().map(|origin| (labels::ORIGIN.to_owned(), origin));
    let data = values.iter().map(|(key, value)| (key.clone(), ByteString(value.clone().into_bytes()))).collect();
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(&integration.name_any())),
            labels: Some([(labels::MANAGED_BY.to_owned(), labels::REST.to_owned())].into()),
            annotations: Some([changed_by, written].into_iter().chain(origin).collect()),
            owner_references: integration.owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some(OPAQUE.to_owned()),
        data: Some(data),
        ..Secret::default()
    })
}

/// Creates the Secret, or takes the place of the one that is there.
async fn put(api: &Api<Secret>, secret: &Secret) -> Result<(), Refusal> {
    let parameters = PostParams { field_manager: Some(labels::REST.to_owned()), ..PostParams::default() };
    match quota::retry_on_quota_conflict(|| api.create(&parameters, secret)).await {
        Err(error) if cluster_error::already_exists(&error) => {
            let replaced = api.replace(&secret.name_any(), &parameters, secret).await;
            replaced.map(drop).map_err(|error| Refusal::of(error, true))
        }
        created => created.map(drop).map_err(|error| Refusal::of(error, false)),
    }
}

/// Why a Secret was not written. None stands for no answer.
struct Refusal {
    status: Option<Status>,
    /// There is one already.
    is_replacement: bool,
}

impl Refusal {
    fn of(error: kube::Error, is_replacement: bool) -> Self {
        let status = match error {
            kube::Error::Api(status) => Some(*status),
            _ => None,
        };
        Self { status, is_replacement }
    }

    /// Whether REST's role lacks the right, or is not bound in the namespace.
    fn is_without_right(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.code == 403 && status.message.contains(" cannot "))
    }

    /// Whether it may be otherwise in a moment: the right was not given yet, or the Secret before was just deleted.
    fn may_pass(&self) -> bool {
        self.is_without_right() || self.status.as_ref().is_some_and(|status| status.code == 404)
    }

    /// The error for the caller, in words of our own. The integration was written before, and stays.
    fn told(&self, call: &Call, integration: &str) -> Error {
        let Some(status) = &self.status else { return cluster_error::unavailable() };
        let team = call.team.as_ref().map_or("", TeamSlug::as_str);
        let (what, name) = (super::what(integration), secret_name(integration));
        let without = |why: String| format!("{what} is there, but without these credentials: {why}");
        match status.code {
            _ if self.is_without_right() => {
                let message = format!(
                    "{what} is there, but its credentials cannot be stored: REST may not write Secrets in team {team} (chart value policies.confineRest); create Secret {name} by kubectl"
                );
                Error::unavailable(message).with_header(header::RETRY_AFTER, HeaderValue::from_static("5"))
            }
            403 if status.message.contains("exceeded quota") => Error::new(
                StatusCode::FORBIDDEN,
                without(format!("the team's quota has no room for Secret {name}; delete another one, or raise count/secrets")),
            ),
            403 if status.message.contains("is being terminated") => Error::new(StatusCode::CONFLICT, "the team is being deleted"),
            404 => cluster_error::unavailable(),
            400..=422 if self.is_replacement => Error::new(
                StatusCode::CONFLICT,
                without(format!(
                    "Secret {name} is somebody else's and stays as it is: it does not belong to the integration; delete it, or name it as credentials_secret"
                )),
            ),
            400..=422 => Error::new(StatusCode::FORBIDDEN, without(format!("a policy of the cluster refuses Secret {name}"))),
            code => cluster_error::unavailable().because(format!("a Secret was not written: status {code}")),
        }
    }
}
