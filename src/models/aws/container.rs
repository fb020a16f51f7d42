//! EKS Pod Identity: an agent on the node issues keys of the role of the pod's ServiceAccount. The pod authenticates with a
//! token in a file, which the cluster rotates.

use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use serde_json::Value;
use url::{Host, Url};

use super::credentials::{issued, read};
use super::sign::AwsKeys;
use crate::fault::{FaultKind, ModelFault};
use crate::issuer::CredentialService;
use crate::provider_settings::{self, Variables};

const ADDRESS_VARIABLE: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const FILE_VARIABLE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
const TOKEN_VARIABLE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
const SERVICE_NAME: &str = "EKS Pod Identity";
/// The addresses of such agents in every network.
const AGENT_ADDRESSES: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

pub(crate) struct Container {
    url: Url,
    /// The token's file, if the token is not in the environment.
    file: Option<String>,
    token: Option<HeaderValue>,
    issuer: CredentialService,
}

impl Container {
    pub(super) fn of(variables: Variables<'_>) -> Result<Option<Self>, ModelFault> {
        let Some((_, address)) = provider_settings::first(variables, &[ADDRESS_VARIABLE]) else { return Ok(None) };
        let url = Url::parse(&address).ok().filter(is_agent).ok_or_else(|| {
            let places = AGENT_ADDRESSES.join(", ");
            let message = format!(
                "{ADDRESS_VARIABLE} is not the URL of a credentials agent: it takes https://, or http:// on this machine or at {places}"
            );
            ModelFault::new(FaultKind::Misconfigured, message)
        })?;
        let file = provider_settings::first(variables, &[FILE_VARIABLE]).map(|(_, file)| file);
        Ok(Some(Self { url, file, token: provider_settings::key(variables, &[TOKEN_VARIABLE], "")?, issuer: CredentialService::new(true) }))
    }

    pub(super) async fn keys(&self) -> Result<(AwsKeys, Timestamp), ModelFault> {
        let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        // Read each time, because the cluster rotates it.
        let token = match &self.file {
            Some(file) => Some(provider_settings::secret(&read(FILE_VARIABLE, file)?, FILE_VARIABLE)?),
            None => self.token.clone(),
        };
        headers.extend(token.map(|token| (AUTHORIZATION, token)));
        let answer = self.issuer.get(&self.url, &headers).await.map_err(|why| {
            let host = self.url.host_str().unwrap_or_default();
            let message =
                format!("{SERVICE_NAME} does not answer at {host} of {ADDRESS_VARIABLE}: {why}; see that its agent runs on this node");
            ModelFault::new(FaultKind::Unreachable, message)
        })?;
        let status = answer.status.as_u16();
        if answer.status.is_success() {
            let fields: Value = serde_json::from_str(&answer.text)
                .map_err(|_| ModelFault::new(FaultKind::Broken, format!("{SERVICE_NAME} answered with something that is not JSON")))?;
            return issued(SERVICE_NAME, |name| fields[name].as_str().map(str::to_owned), "Token");
        }
        if answer.status.is_server_error() || status == 429 {
            return Err(ModelFault::new(FaultKind::Overloaded, format!("{SERVICE_NAME} is overloaded or failed ({status}); try again")));
        }
        let message = format!("{SERVICE_NAME} gives no keys ({status}); see that the pod's service account is associated with a role");
        Err(ModelFault::new(FaultKind::Unauthorized, message))
    }
}

/// Whether the URL is on the node: keys and token are sent unencrypted.
fn is_agent(url: &Url) -> bool {
    let near = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback() || AGENT_ADDRESSES.contains(&address.to_string().as_str()),
        Some(Host::Ipv6(address)) => address.is_loopback() || AGENT_ADDRESSES.contains(&address.to_string().as_str()),
        None => false,
    };
    url.scheme() == "https" || url.scheme() == "http" && near
}
