//! IAM roles for ServiceAccounts: the pod's ServiceAccount token, which the cluster rotates in a file, is exchanged at AWS's
//! token service (STS) for keys of a role.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use url::{Url, form_urlencoded};

use super::credentials::{half, issued, read};
use super::sign::AwsKeys;
use crate::fault::{FaultKind, ModelFault};
use crate::issuer::{CredentialResponse, CredentialService};
use crate::provider_settings::{self, Variables};

const FILE_VARIABLE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
const ROLE_VARIABLE: &str = "AWS_ROLE_ARN";
const SESSION_VARIABLE: &str = "AWS_ROLE_SESSION_NAME";
const ENDPOINT_VARIABLE: &str = "AWS_ENDPOINT_URL_STS";
const SERVICE_NAME: &str = "AWS's token service (STS)";
/// The longest quote of its message.
const MAX_QUOTE_CHARS: usize = 300;

pub(crate) struct WebIdentity {
    file: String,
    role: String,
    /// The session name in the account's audit log.
    session: String,
    url: Url,
    issuer: CredentialService,
}

impl WebIdentity {
    pub(super) fn of(variables: Variables<'_>) -> Result<Option<Self>, ModelFault> {
        let value = |name| provider_settings::first(variables, &[name]).map(|(_, value)| value);
        let (file, role) = match (value(FILE_VARIABLE), value(ROLE_VARIABLE)) {
            (Some(file), Some(role)) => (file, role),
            (Some(_), None) => return Err(half(FILE_VARIABLE, ROLE_VARIABLE)),
            // A role without a token file may be for another program in the pod.
            (None, _) => return Ok(None),
        };
        let default = match provider_settings::first(variables, &["AWS_REGION", "AWS_DEFAULT_REGION"]) {
            Some((_, region)) => format!("https://sts.{}.amazonaws.com", provider_settings::segment(&region)),
            None => "https://sts.amazonaws.com".to_owned(),
        };
        let url = provider_settings::base(variables, ENDPOINT_VARIABLE, &default)?;
        let session = value(SESSION_VARIABLE).unwrap_or_else(|| "slipway".to_owned());
        Ok(Some(Self { file, role, session, url, issuer: CredentialService::new(false) }))
    }

    pub(super) async fn keys(&self) -> Result<(AwsKeys, Timestamp), ModelFault> {
        // Read each time, because the cluster rotates it.
        let token = read(FILE_VARIABLE, &self.file)?;
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", "AssumeRoleWithWebIdentity")
            .append_pair("Version", "2011-06-15")
            .append_pair("RoleArn", &self.role)
            .append_pair("RoleSessionName", &self.session)
            .append_pair("WebIdentityToken", &token)
            .finish();
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"))]);
        let answer = self.issuer.post(&self.url, &headers, &form).await.map_err(|why| {
            let host = self.url.host_str().unwrap_or_default();
            ModelFault::new(FaultKind::Unreachable, format!("{SERVICE_NAME} cannot be reached at {host}: {why}"))
        })?;
        if answer.status.is_success() {
            return issued(SERVICE_NAME, |name| element(&answer.text, name).map(str::to_owned), "SessionToken");
        }
        Err(self.refused(&answer).without(&token))
    }

    fn refused(&self, answer: &CredentialResponse) -> ModelFault {
        let code = element(&answer.text, "Code").unwrap_or_default();
        let said: String =
            element(&answer.text, "Message").unwrap_or_default().chars().filter(|char| !char.is_control()).take(MAX_QUOTE_CHARS).collect();
        let status = answer.status.as_u16();
        if answer.status.is_server_error() || status == 429 || code == "IDPCommunicationError" {
            return ModelFault::new(FaultKind::Overloaded, format!("{SERVICE_NAME} is overloaded or failed ({status} {code}); try again"));
        }
        let message = format!(
            "{SERVICE_NAME} gives no keys of {ROLE_VARIABLE}, {}, for the token of {FILE_VARIABLE} ({status} {code}: {said}); see that the role trusts \
             the cluster's identity provider and this pod's service account",
            self.role
        );
        ModelFault::new(FaultKind::Unauthorized, message)
    }
}

/// The text of an XML element, without unescaping: the elements read here need none, or are only shown.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = xml.split_once(&format!("<{name}>"))?;
    Some(after.split_once(&format!("</{name}>"))?.0.trim())
}
