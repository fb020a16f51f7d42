//! The configurations of sources, as the REST API and the resources spell them. Bounds are in bytes.

use serde::{Deserialize, Serialize};
use url::Url;

use super::SourceError;

const MAX_URL_BYTES: usize = 2048;
const MAX_PATH_BYTES: usize = 1024;
const MAX_NAME_BYTES: usize = 253;
const MAX_JQL_BYTES: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum SourceConfig {
    Local(LocalConfig),
    S3(S3Config),
    GoogleDrive(GoogleDriveConfig),
    Confluence(ConfluenceConfig),
    Jira(JiraConfig),
    Databricks(DatabricksConfig),
}

/// A folder of the team's volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalConfig {
    /// Relative to the volume; a leading slash means the volume's root.
    pub path: String,
}

/// The Secret has `access_key_id`, `secret_access_key` and, of temporary credentials, `session_token`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S3Config {
    pub bucket: String,
    #[serde(default)]
    pub prefix: String,
    /// The URL of a server other than Amazon's, which gets the bucket's name in the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Default us-east-1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    pub credentials_secret: String,
}

/// The Secret has `service_account.json`: the JSON key of a service account with which the folder is shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoogleDriveConfig {
    pub folder_id: String,
    /// A private endpoint of Google's APIs. Default https://www.googleapis.com.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    pub credentials_secret: String,
}

/// The Secret has `email` and `api_token`, or `token` for a bearer token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfluenceConfig {
    pub space_key: String,
    /// As in https://example.atlassian.net, without /wiki.
    pub base_url: String,
    pub credentials_secret: String,
}

/// The Secret has `email` and `api_token`, or `token` for a bearer token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JiraConfig {
    pub base_url: String,
    /// Either this or `jql`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_key: Option<String>,
    /// A query without ORDER BY.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jql: Option<String>,
    pub credentials_secret: String,
}

/// The Secret has `token`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabricksConfig {
    /// As in https://example.cloud.databricks.com; https:// may be left out.
    pub host: String,
    /// A folder of a volume, as in /Volumes/catalog/schema/volume/folder, or a table, as in catalog.schema.table.
    pub path: String,
    /// The SQL warehouse that reads a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warehouse_id: Option<String>,
    pub credentials_secret: String,
}

impl SourceConfig {
    /// The value of `type`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::S3(_) => "s3",
            Self::GoogleDrive(_) => "google-drive",
            Self::Confluence(_) => "confluence",
            Self::Jira(_) => "jira",
            Self::Databricks(_) => "databricks",
        }
    }

    /// The name of the Secret that the source needs.
    pub fn credentials_secret(&self) -> Option<&str> {
        match self {
            Self::Local(_) => None,
            Self::S3(config) => Some(&config.credentials_secret),
            Self::GoogleDrive(config) => Some(&config.credentials_secret),
            Self::Confluence(config) => Some(&config.credentials_secret),
            Self::Jira(config) => Some(&config.credentials_secret),
            Self::Databricks(config) => Some(&config.credentials_secret),
        }
    }

    /// Names the first field that is wrong.
    pub fn validate(&self) -> Result<(), SourceError> {
        if let Some(secret) = self.credentials_secret() {
            name("credentials_secret", secret, b"-.")?;
        }
        self.validate_server()?;
        match self {
            Self::Local(config) => local_path(&config.path),
            Self::S3(config) => {
                name("bucket", &config.bucket, b"-._")?;
                bounded("prefix", &config.prefix, 0, MAX_PATH_BYTES)
            }
            Self::GoogleDrive(config) => name("folder_id", &config.folder_id, b"-_"),
            Self::Confluence(config) => name("space_key", &config.space_key, b"~-_."),
            Self::Jira(config) => match (&config.project_key, &config.jql) {
                (Some(key), None) => name("project_key", key, b"_-"),
                (None, Some(query)) => jql(query),
                _ => Err(SourceError::field("project_key", "exactly one of project_key and jql has to be given")),
            },
            Self::Databricks(config) => {
                bounded("path", &config.path, 1, MAX_PATH_BYTES)?;
                config.warehouse_id.as_deref().map_or(Ok(()), |id| name("warehouse_id", id, b"-_"))
            }
        }
    }

    /// The part of it that says where the server is. What is read there may be empty.
    pub(super) fn validate_server(&self) -> Result<(), SourceError> {
        let optional = |endpoint: Option<&str>| endpoint.map_or(Ok(()), |endpoint| url("endpoint", endpoint).map(drop));
        match self {
            Self::Local(config) if config.path.is_empty() => Ok(()),
            Self::Local(config) => local_path(&config.path),
            Self::S3(config) => {
                if !config.bucket.is_empty() {
                    name("bucket", &config.bucket, b"-._")?;
                }
                config.region.as_deref().map_or(Ok(()), |region| name("region", region, b"-"))?;
                optional(config.endpoint.as_deref())
            }
            Self::GoogleDrive(config) => optional(config.endpoint.as_deref()),
            Self::Confluence(config) => url("base_url", &config.base_url).map(drop),
            Self::Jira(config) => url("base_url", &config.base_url).map(drop),
            Self::Databricks(config) => config.url().map(drop),
        }
    }
}

impl DatabricksConfig {
    pub(super) fn url(&self) -> Result<Url, SourceError> {
        if self.host.contains("://") { url("host", &self.host) } else { url("host", &format!("https://{}", self.host)) }
    }
}

/// A URL of a server, with or without a path; it ends with a slash.
pub(super) fn url(field: &'static str, text: &str) -> Result<Url, SourceError> {
    bounded(field, text, 1, MAX_URL_BYTES)?;
    let fault = || SourceError::field(field, "has to be an http or https URL with a host, without credentials, query and fragment");
    let mut url = Url::parse(text).map_err(|_| fault())?;
    let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    if !is_plain || !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(fault());
    }
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

fn bounded(field: &'static str, text: &str, least: usize, most: usize) -> Result<(), SourceError> {
    if !(least..=most).contains(&text.len()) {
        return Err(SourceError::field(field, format!("has to have {least} to {most} bytes")));
    }
    if text.chars().any(char::is_control) {
        return Err(SourceError::field(field, "has control characters"));
    }
    Ok(())
}

fn name(field: &'static str, text: &str, others: &[u8]) -> Result<(), SourceError> {
    bounded(field, text, 1, MAX_NAME_BYTES)?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte));
    // Names become parts of paths.
    if !is_plain || text.bytes().all(|byte| byte == b'.') {
        let others: Vec<String> = others.iter().map(|byte| format!("'{}'", char::from(*byte))).collect();
        return Err(SourceError::field(field, format!("may have letters, digits and {} only", others.join(" "))));
    }
    Ok(())
}

fn local_path(path: &str) -> Result<(), SourceError> {
    bounded("path", path, 1, MAX_PATH_BYTES)?;
    if path.split('/').any(|part| part == "..") {
        return Err(SourceError::field("path", "must not have .. in it"));
    }
    Ok(())
}

/// A query becomes a part of a longer one, in parentheses.
fn jql(query: &str) -> Result<(), SourceError> {
    bounded("jql", query, 1, MAX_JQL_BYTES)?;
    let (mut depth, mut quote, mut escaped, mut plain) = (0_i32, None, false, String::new());
    for character in query.chars() {
        match (quote, character) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '(') => depth += 1,
            (None, ')') if depth == 0 => return Err(SourceError::field("jql", "has a closing parenthesis too many")),
            (None, ')') => depth -= 1,
            (None, other) => plain.push(other.to_ascii_lowercase()),
        }
    }
    if depth != 0 || quote.is_some() {
        return Err(SourceError::field("jql", "has a parenthesis or a quote that is not closed"));
    }
    let words: Vec<&str> = plain.split_whitespace().collect();
    if words.windows(2).any(|pair| pair == ["order", "by"]) {
        return Err(SourceError::field("jql", "must not have ORDER BY: issues are listed in the order of their ids"));
    }
    Ok(())
}
