//! Tokens of the metadata server. In a GKE pod they are those of the Google service account to which the pod's ServiceAccount
//! is bound (workload identity).

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use url::Url;

use super::nonsense;
use crate::fault::{FaultKind, ModelFault};
use crate::issuer::CredentialService;
use crate::provider_settings::{self, Variables};

const HOST_VARIABLE: &str = "GCE_METADATA_HOST";

pub(super) struct Metadata {
    host: String,
    issuer: CredentialService,
}

impl Metadata {
    pub(super) fn of(variables: Variables<'_>) -> Result<Self, ModelFault> {
        let host =
            provider_settings::first(variables, &[HOST_VARIABLE]).map_or_else(|| "metadata.google.internal".to_owned(), |(_, host)| host);
        if host.contains(['/', '@', ' ']) {
            let message = format!("{HOST_VARIABLE} is `{host}`; it takes a host, and a port if need be");
            return Err(ModelFault::new(FaultKind::Misconfigured, message));
        }
        Ok(Self { host, issuer: CredentialService::new(true) })
    }

    pub(super) async fn token(&self) -> Result<Value, ModelFault> {
        let text = self.get("instance/service-accounts/default/token").await?;
        serde_json::from_str(&text).map_err(|_| nonsense("no JSON"))
    }

    pub(super) async fn project(&self) -> Result<String, ModelFault> {
        Ok(self.get("project/project-id").await?.trim().to_owned())
    }

    async fn get(&self, what: &str) -> Result<String, ModelFault> {
        let host = &self.host;
        let absent = |why: &str| {
            let message = format!(
                "there are no Google credentials: {} is not set, and no metadata server gives any at {host} ({why}); in GKE, see that \
                 the pod's service account is bound to one of Google's",
                super::FILE_VARIABLE
            );
            ModelFault::new(FaultKind::MissingKey, message)
        };
        let url = Url::parse(&format!("http://{host}/computeMetadata/v1/{what}")).map_err(|error| absent(&error.to_string()))?;
        let headers = HeaderMap::from_iter([(HeaderName::from_static("metadata-flavor"), HeaderValue::from_static("Google"))]);
        let answer = self.issuer.get(&url, &headers).await.map_err(|why| absent(&why))?;
        match answer.status {
            status if status.is_success() => Ok(answer.text),
            status if status.is_server_error() => {
                Err(ModelFault::new(FaultKind::Overloaded, format!("Google's metadata server failed ({}); try again", status.as_u16())))
            }
            status => Err(absent(&status.as_u16().to_string())),
        }
    }
}
