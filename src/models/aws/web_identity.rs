//! IAM roles for service accounts: the token of the pod's service account, which the cluster replaces
//! in a file, is exchanged at AWS's token service (STS) for keys of a role.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use url::{Url, form_urlencoded};

use super::credentials::{half, issued, read};
use super::sign::Keys;
use crate::fault::{Fault, FaultKind};
use crate::issuer::{Answer, Issuer};
use crate::settings::{self, Variables};

const FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
const ROLE: &str = "AWS_ROLE_ARN";
const SESSION: &str = "AWS_ROLE_SESSION_NAME";
const ENDPOINT: &str = "AWS_ENDPOINT_URL_STS";
const SERVICE: &str = "AWS's token service (STS)";
/// Its message is cut to this in ours.
const MAX_QUOTE_CHARS: usize = 300;

pub(crate) struct WebIdentity {
    file: String,
    role: String,
    /// What the calls are named after in the account's records.
    session: String,
    url: Url,
    issuer: Issuer,
}

impl WebIdentity {
    pub(super) fn of(variables: Variables<'_>) -> Result<Option<Self>, Fault> {
        let value = |name| settings::first(variables, &[name]).map(|(_, value)| value);
        let (file, role) = match (value(FILE), value(ROLE)) {
            (Some(file), Some(role)) => (file, role),
            (Some(_), None) => return Err(half(FILE, ROLE)),
            // A role alone may be meant for others in the pod.
            (None, _) => return Ok(None),
        };
        let default = match settings::first(variables, &["AWS_REGION", "AWS_DEFAULT_REGION"]) {
            Some((_, region)) => format!("https://sts.{}.amazonaws.com", settings::segment(&region)),
            None => "https://sts.amazonaws.com".to_owned(),
        };
        let url = settings::base(variables, ENDPOINT, &default)?;
        let session = value(SESSION).unwrap_or_else(|| "slipway".to_owned());
        Ok(Some(Self { file, role, session, url, issuer: Issuer::new(false) }))
    }

    pub(super) async fn keys(&self) -> Result<(Keys, Timestamp), Fault> {
        // Read anew each time: the cluster replaces it before it expires.
        let token = read(FILE, &self.file)?;
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
            Fault::new(FaultKind::Unreachable, format!("{SERVICE} cannot be reached at {host}: {why}"))
        })?;
        if answer.status.is_success() {
            return issued(SERVICE, |name| element(&answer.text, name).map(str::to_owned), "SessionToken");
        }
        Err(self.refused(&answer).without(&token))
    }

    fn refused(&self, answer: &Answer) -> Fault {
        let code = element(&answer.text, "Code").unwrap_or_default();
        let said: String =
            element(&answer.text, "Message").unwrap_or_default().chars().filter(|char| !char.is_control()).take(MAX_QUOTE_CHARS).collect();
        let status = answer.status.as_u16();
        if answer.status.is_server_error() || status == 429 || code == "IDPCommunicationError" {
            return Fault::new(FaultKind::Overloaded, format!("{SERVICE} is overloaded or failed ({status} {code}); try again"));
        }
        let message = format!(
            "{SERVICE} gives no keys of {ROLE}, {}, for the token of {FILE} ({status} {code}: {said}); see that the role trusts \
             the cluster's identity provider and this pod's service account",
            self.role
        );
        Fault::new(FaultKind::Unauthorized, message)
    }
}

/// The text of an element of XML. Those that are read have no character that would be escaped, or are only shown.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = xml.split_once(&format!("<{name}>"))?;
    Some(after.split_once(&format!("</{name}>"))?.0.trim())
}
