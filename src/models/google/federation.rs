//! Workload identity federation: the pod's ServiceAccount token, which the cluster rotates in a file, is exchanged for a
//! token of Google (RFC 8693), and that for one of a service account if the configuration says so.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{FILE_VARIABLE, SCOPE, form, nonsense, unusable};
use crate::fault::{FaultKind, ModelFault};
use crate::provider_settings;
use crate::transport::{ProviderCall, Transport};

const IAM_SCOPE: &str = "https://www.googleapis.com/auth/iam";

/// A configuration of type `external_account`, which contains no secret.
#[derive(Deserialize)]
pub(super) struct Federation {
    audience: String,
    subject_token_type: String,
    token_url: String,
    service_account_impersonation_url: Option<String>,
    #[serde(default)]
    service_account_impersonation: Impersonation,
    credential_source: TokenSource,
}

#[derive(Deserialize)]
#[serde(default)]
struct Impersonation {
    token_lifetime_seconds: u32,
}

impl Default for Impersonation {
    fn default() -> Self {
        Self { token_lifetime_seconds: 3600 }
    }
}

#[derive(Deserialize)]
struct TokenSource {
    file: Option<String>,
    #[serde(default)]
    format: Format,
}

#[derive(Deserialize, Default)]
struct Format {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    subject_token_field_name: String,
}

impl Federation {
    pub(super) async fn token(&self, transport: &Transport) -> Result<Value, ModelFault> {
        let subject = self.credential_source.token()?;
        // A token for impersonation only gets the narrowest scope.
        let scope = if self.service_account_impersonation_url.is_some() { IAM_SCOPE } else { SCOPE };
        let fields = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("audience", &self.audience),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("scope", scope),
            ("subject_token", &subject),
            ("subject_token_type", &self.subject_token_type),
        ];
        let call = form("token_url", &self.token_url, &fields)?;
        let advice = "see that the workload identity pool trusts this cluster, and its provider this service account";
        let federated = transport.json(&call).await.map_err(|fault| refused(fault, &subject, advice))?;
        let Some(url) = &self.service_account_impersonation_url else { return Ok(federated) };

        let token = federated["access_token"].as_str().ok_or_else(|| nonsense("no access_token"))?;
        let url = Url::parse(url).map_err(|_| unusable("its service_account_impersonation_url is not a URL"))?;
        let lifetime = format!("{}s", self.service_account_impersonation.token_lifetime_seconds);
        let call = ProviderCall::json(url, &json!({"scope": [SCOPE], "lifetime": lifetime}));
        let call = call.header("authorization", provider_settings::secret(&format!("Bearer {token}"), "Google's token")?);
        let advice = "see that the identity may act as the service account (roles/iam.workloadIdentityUser)";
        let answer = transport.json(&call).await.map_err(|fault| refused(fault, token, advice))?;
        let expires: Timestamp =
            answer["expireTime"].as_str().and_then(|time| time.parse().ok()).ok_or_else(|| nonsense("no expireTime"))?;
        let seconds = expires.as_second() - Timestamp::now().as_second();
        Ok(json!({"access_token": answer["accessToken"], "expires_in": seconds}))
    }
}

impl TokenSource {
    /// Reads the file each time, because the cluster rotates the token.
    fn token(&self) -> Result<String, ModelFault> {
        let path = self.file.as_deref().ok_or_else(|| unusable("its credential_source has no file, and no other source is supported"))?;
        let unreadable = |why: &str| {
            ModelFault::new(FaultKind::MissingKey, format!("the token's file that the file of {FILE_VARIABLE} names, {path}, {why}"))
        };
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(&format!("cannot be read: {error}")))?;
        let token = if self.format.kind == "json" {
            let fields: Value = serde_json::from_str(&text).unwrap_or_default();
            fields[&self.format.subject_token_field_name].as_str().unwrap_or_default().to_owned()
        } else {
            text.trim().to_owned()
        };
        if token.is_empty() { Err(unreadable("holds no token")) } else { Ok(token) }
    }
}

fn refused(fault: ModelFault, token: &str, advice: &str) -> ModelFault {
    if fault.retryable() {
        return fault.without(token);
    }
    let message = format!("Google takes no token by the file of {FILE_VARIABLE}: {}; {advice}", fault.message());
    ModelFault::new(FaultKind::Unauthorized, message).without(token)
}
