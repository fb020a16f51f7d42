//! The types that sources of knowledge bases read from: each source's own first request, with the login that came.

use std::path::Path;
use std::sync::Arc;

use slipway_api::IntegrationSpec;
use slipway_api::integration::{IntegrationType, LocalIntegration};
use slipway_egress::Allowed;
use slipway_knowledge::source::config::{ConfluenceConfig, DatabricksConfig, GoogleDriveConfig, JiraConfig, LocalConfig, S3Config};
use slipway_knowledge::source::{self, Contact, Credentials, SourceConfig, SourceError, SourceErrorKind, Surroundings};

use crate::exchange::{self, Line};
use crate::login::IntegrationLogin;
use crate::outcome::{ConnectionFault, Reason};

pub(crate) async fn ask(
    spec: &IntegrationSpec,
    login: &IntegrationLogin<'_>,
    line: &Line<'_>,
    allow: &[Allowed],
) -> Result<String, ConnectionFault> {
    let config = config(spec).ok_or_else(|| ConnectionFault::new(Reason::Invalid, "the integration is not as its type is"))?;
    let url = spec.server().and_then(|server| exchange::url(&server));
    let place = url.ok_or_else(|| ConnectionFault::new(Reason::Invalid, "the server's URL is none"))?;
    let place = slipway_egress::redacted(&place);
    let credentials = Credentials::Map(Arc::new(login.data().clone()));
    let surroundings = Surroundings { credentials: Some(credentials), volume: None, allow: allow.to_vec(), proxy: None };
    line.begin(&place);
    let checked = Box::pin(source::check(&config, &surroundings)).await;
    let is_answered = match &checked {
        Ok(_) => true,
        Err(error) => error.contact() == Contact::Answered,
    };
    if is_answered {
        line.hear();
    }
    let bucket = spec.s3.as_ref().and_then(|s3| s3.bucket.as_deref());
    checked.map_err(|error| fault(&error, &place, bucket))
}

/// A folder of the volume that is mounted there.
pub(crate) async fn local(config: &LocalIntegration, volume: &Path) -> Result<String, ConnectionFault> {
    let config = SourceConfig::Local(LocalConfig { path: config.path.clone().unwrap_or_default() });
    let surroundings = Surroundings { volume: Some(volume.to_owned()), ..Surroundings::default() };
    source::check(&config, &surroundings).await.map_err(|error| match error.kind() {
        SourceErrorKind::Misconfigured => ConnectionFault::new(Reason::NotFound, format!("path: {}", error.message())),
        _ => ConnectionFault::new(Reason::Unreachable, error.message()),
    })
}

/// The server's part of a source. None of a type that no source reads from.
fn config(spec: &IntegrationSpec) -> Option<SourceConfig> {
    let credentials_secret = String::new();
    Some(match spec.kind()? {
        IntegrationType::GoogleDrive => {
            let endpoint = spec.google_drive.as_ref()?.endpoint.clone();
            SourceConfig::GoogleDrive(GoogleDriveConfig { folder_id: String::new(), endpoint, credentials_secret })
        }
        IntegrationType::S3 => {
            let s3 = spec.s3.as_ref()?;
            SourceConfig::S3(S3Config {
                bucket: s3.bucket.clone().unwrap_or_default(),
                prefix: String::new(),
                endpoint: s3.endpoint.clone(),
                region: s3.region.clone(),
                credentials_secret,
            })
        }
        IntegrationType::Confluence => {
            let base_url = spec.confluence.as_ref()?.base_url.clone();
            SourceConfig::Confluence(ConfluenceConfig { space_key: String::new(), base_url, credentials_secret })
        }
        IntegrationType::Jira => {
            let base_url = spec.jira.as_ref()?.base_url.clone();
            SourceConfig::Jira(JiraConfig { base_url, project_key: None, jql: None, credentials_secret })
        }
        IntegrationType::Databricks => {
            let host = spec.databricks.as_ref()?.host.clone();
            SourceConfig::Databricks(DatabricksConfig { host, path: String::new(), warehouse_id: None, credentials_secret })
        }
        // Files of the volume are looked at by `local`.
        IntegrationType::Local
        | IntegrationType::Mlflow
        | IntegrationType::Prometheus
        | IntegrationType::Webhook
        | IntegrationType::Slack
        | IntegrationType::Openai
        | IntegrationType::Anthropic
        | IntegrationType::Mcp => return None,
    })
}

fn fault(error: &SourceError, place: &str, bucket: Option<&str>) -> ConnectionFault {
    let words = error.message();
    let (reason, message) = match (error.contact(), error.kind(), error.wrong_field()) {
        (Contact::Blocked, ..) => (Reason::AddressNotAllowed, words.to_owned()),
        (Contact::Late, ..) => (Reason::TimedOut, words.to_owned()),
        (Contact::Failed, ..) | (Contact::Answered, SourceErrorKind::Unavailable, _) => (Reason::Unreachable, words.to_owned()),
        // Nothing was sent: what is written cannot be used.
        (Contact::Untold, _, field) => (Reason::Invalid, field.map_or_else(|| words.to_owned(), |field| format!("{field}: {words}"))),
        (Contact::Answered, SourceErrorKind::Unauthorized, _) => (Reason::Unauthorized, words.to_owned()),
        (Contact::Answered, SourceErrorKind::Broken, _) | (Contact::Answered, _, None) => (Reason::Unexpected, words.to_owned()),
        (Contact::Answered, SourceErrorKind::Misconfigured, Some("bucket")) => match bucket {
            Some(bucket) => (Reason::NotFound, format!("there is no bucket {bucket}")),
            None => (Reason::Unexpected, format!("{place} answers, but not as S3 does")),
        },
        (Contact::Answered, SourceErrorKind::Misconfigured, Some("endpoint" | "base_url" | "host")) => {
            (Reason::Unexpected, format!("{place} {words}"))
        }
        (Contact::Answered, _, Some(field)) => (Reason::Unexpected, format!("{place} answers: {field} {words}")),
    };
    ConnectionFault::new(reason, message)
}
