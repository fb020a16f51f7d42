//! `Source`: where documents of a knowledge base come from. A `KnowledgeBase` names those that are read again and again, an
//! `Ingestion` one that is read once.

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Where documents are. Exactly one of its parts besides credentialsSecret and integration says what kind of source it is.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("[has(self.local), has(self.s3), has(self.googleDrive), has(self.confluence), has(self.jira), has(self.databricks)].filter(is, is).size() == 1")
        .message("exactly one of local, s3, googleDrive, confluence, jira and databricks is required"),
    validation = kube::core::Rule::new("has(self.integration) || has(self.local) != has(self.credentialsSecret)")
        .message("credentialsSecret: is required with every source but local, which has none; or an integration, which gives the login"),
    validation = kube::core::Rule::new("!has(self.integration) || !has(self.credentialsSecret)")
        .message("credentialsSecret: the integration gives the login; leave one of them out"),
    validation = kube::core::Rule::new("has(self.integration) || ((!has(self.confluence) || has(self.confluence.baseUrl)) && (!has(self.jira) || has(self.jira.baseUrl)))")
        .message("baseUrl: is required without an integration, which gives the server"),
    validation = kube::core::Rule::new("has(self.integration) || !has(self.databricks) || has(self.databricks.host)")
        .message("host: is required without an integration, which gives the server"),
    validation = kube::core::Rule::new("!has(self.integration) || ((!has(self.confluence) || !has(self.confluence.baseUrl)) && (!has(self.jira) || !has(self.jira.baseUrl)) && (!has(self.databricks) || !has(self.databricks.host)) && (!has(self.s3) || (!has(self.s3.endpoint) && !has(self.s3.region))) && (!has(self.googleDrive) || !has(self.googleDrive.endpoint)))")
        .message("integration: gives the server, so that baseUrl, host, endpoint and region are left out"),
)]
pub struct Source {
    /// Files on the volume that the Team names in spec.knowledgeVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalSource>,
    /// Objects in a bucket of S3, or of a server that speaks its protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Source>,
    /// A folder of Google Drive, with those in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub google_drive: Option<GoogleDriveSource>,
    /// Pages of a space of Confluence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confluence: Option<ConfluenceSource>,
    /// Issues of Jira.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jira: Option<JiraSource>,
    /// A table, or files of a volume, of Databricks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub databricks: Option<DatabricksSource>,
    /// A Secret of the same namespace with the login there, labelled agents.slipway.dev/agent-readable=true. docs/knowledge.md says which keys each kind of source looks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub credentials_secret: Option<String>,
    /// An Integration of the same namespace, by name or by id (in_...), of the type that the source has: it gives the server and the login, and of local files the folder that path is within.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 66), regex(pattern = r"^[a-z]([-_a-z0-9]*[a-z0-9])?$"))]
    pub integration: Option<String>,
}

/// Files on the team's volume.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalSource {
    /// A folder within the volume, for example handbook/2026. A slash is all of the volume. At most 1024 bytes.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(
        validation = kube::core::Rule::new("!self.matches('(^|/)[.][.](/|$)')").message("must be within the volume: no part of it is .."),
        validation = kube::core::Rule::new("bytes(self).size() <= 1024").message("must have at most 1024 bytes"),
    )]
    pub path: String,
}

/// Objects in a bucket.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Source {
    /// The bucket.
    #[schemars(length(min = 3, max = 63), regex(pattern = r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$"))]
    pub bucket: String,
    /// How the keys begin of those objects that are read. Default is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = kube::core::Rule::new("bytes(self).size() <= 1024").message("must have at most 1024 bytes, as keys of objects have"))]
    pub prefix: Option<String>,
    /// The server's URL, if it is not Amazon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^https?://[^/?#@\s]+/?$"))]
    pub endpoint: Option<String>,
    /// The region. Default us-east-1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-z0-9-]+$"))]
    pub region: Option<String>,
}

/// A folder of Google Drive.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GoogleDriveSource {
    /// The folder's id, which is the last part of its address.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9_-]+$"))]
    pub folder_id: String,
    /// A private endpoint of Google's APIs. Default https://www.googleapis.com.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^https?://[^/?#@\s]+/?$"))]
    pub endpoint: Option<String>,
}

/// A space of Confluence.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfluenceSource {
    /// The server's URL, for example https://company.atlassian.net, without /wiki. An integration gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^https?://[^/?#@\s]+(/[^?#\s]*)?$"))]
    pub base_url: Option<String>,
    /// The key of the space.
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[A-Za-z0-9~_.-]+$"))]
    pub space_key: String,
}

/// Issues of Jira.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("has(self.projectKey) != has(self.jql)")
    .message("projectKey: either projectKey or jql is required, and not both"))]
pub struct JiraSource {
    /// The server's URL, for example https://company.atlassian.net. An integration gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^https?://[^/?#@\s]+(/[^?#\s]*)?$"))]
    pub base_url: Option<String>,
    /// The key of a project, all issues of which are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[A-Za-z][A-Za-z0-9_]*$"))]
    pub project_key: Option<String>,
    /// A search in Jira's language, the issues of which are read; without ORDER BY. At most 4096 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    #[x_kube(validation = kube::core::Rule::new("bytes(self).size() <= 4096").message("must have at most 4096 bytes"))]
    pub jql: Option<String>,
}

/// A table or files of Databricks.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabricksSource {
    /// The workspace's host or URL, for example https://dbc-1234.cloud.databricks.com. An integration gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^(https?://)?[^/?#@\s]+/?$"))]
    pub host: Option<String>,
    /// A folder of files, /Volumes/catalog/schema/volume/folder, or a table, catalog.schema.table. At most 1024 bytes.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = kube::core::Rule::new("bytes(self).size() <= 1024").message("must have at most 1024 bytes"))]
    pub path: String,
    /// The SQL warehouse that reads a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9]+$"))]
    pub warehouse_id: Option<String>,
}

impl Source {
    /// What kind of source it is, as the REST API spells it.
    pub fn kind(&self) -> Option<&'static str> {
        let Self { local, s3, google_drive, confluence, jira, databricks, credentials_secret: _, integration: _ } = self;
        let parts = [
            (local.is_some(), "local"),
            (s3.is_some(), "s3"),
            (google_drive.is_some(), "google-drive"),
            (confluence.is_some(), "confluence"),
            (jira.is_some(), "jira"),
            (databricks.is_some(), "databricks"),
        ];
        parts.into_iter().find_map(|(is, kind)| is.then_some(kind))
    }

    /// As an ingestion's pod reads it, with the field `type`, and as the REST API has it. None where nothing says what kind of
    /// source it is.
    pub fn config(&self) -> Option<Value> {
        let Self { local, s3, google_drive, confluence, jira, databricks, credentials_secret, integration } = self;
        let parts = [
            ("local", local.as_ref().map(|of| json!({"path": of.path}))),
            ("s3", s3.as_ref().map(|of| json!({"bucket": of.bucket, "prefix": of.prefix, "endpoint": of.endpoint, "region": of.region}))),
            ("google-drive", google_drive.as_ref().map(|of| json!({"folder_id": of.folder_id, "endpoint": of.endpoint}))),
            ("confluence", confluence.as_ref().map(|of| json!({"base_url": of.base_url, "space_key": of.space_key}))),
            ("jira", jira.as_ref().map(|of| json!({"base_url": of.base_url, "project_key": of.project_key, "jql": of.jql}))),
            ("databricks", databricks.as_ref().map(|of| json!({"host": of.host, "path": of.path, "warehouse_id": of.warehouse_id}))),
        ];
        let (kind, part) = parts.into_iter().find_map(|(kind, part)| Some((kind, part?)))?;
        let fields = part.as_object()?.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.clone(), value.clone()));
        let own = [("type", Some(kind)), ("credentials_secret", credentials_secret.as_deref()), ("integration", integration.as_deref())];
        let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?))));
        Some(own.chain(fields).collect::<Map<_, _>>().into())
    }

    /// The name of the source that documents of an ingestion belong to which reads this and names none: two that read the same
    /// are one source, so that what has gone there is noticed. By what login it is read, and by which warehouse, does not matter.
    pub fn name(&self) -> Option<String> {
        self.name_by(|field| !matches!(field, "credentials_secret" | "warehouse_id"))
    }

    /// What former versions called it, if that is another name: by its login and warehouse too.
    pub fn former_name(&self) -> Option<String> {
        let former = self.name_by(|_| true);
        former.filter(|former| self.name().as_ref() != Some(former))
    }

    fn name_by(&self, counts: impl Fn(&str) -> bool) -> Option<String> {
        let config = self.config()?;
        // Sorted, whatever order a map of JSON keeps.
        let fields: BTreeMap<&String, &Value> = config.as_object()?.iter().filter(|(field, _)| counts(field)).collect();
        let digest = hex::encode(Sha256::digest(serde_json::to_string(&fields).ok()?));
        Some(format!("{}-{}", config["type"].as_str()?, digest.get(..10)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_told_as_its_reader_reads_it() {
        let config = |source: &str| serde_yaml::from_str::<Source>(source).unwrap().config();
        for (source, expected) in [
            ("{local: {path: handbook}}", json!({"type": "local", "path": "handbook"})),
            ("{s3: {bucket: docs}, credentialsSecret: login}", json!({"type": "s3", "bucket": "docs", "credentials_secret": "login"})),
            (
                "{s3: {bucket: docs, prefix: a/, endpoint: 'http://s3', region: eu-1}, credentialsSecret: login}",
                json!({"type": "s3", "bucket": "docs", "prefix": "a/", "endpoint": "http://s3", "region": "eu-1", "credentials_secret": "login"}),
            ),
            (
                "{googleDrive: {folderId: x}, credentialsSecret: login}",
                json!({"type": "google-drive", "folder_id": "x", "credentials_secret": "login"}),
            ),
            (
                "{confluence: {baseUrl: 'https://c', spaceKey: K}, credentialsSecret: login}",
                json!({"type": "confluence", "base_url": "https://c", "space_key": "K", "credentials_secret": "login"}),
            ),
            (
                "{jira: {baseUrl: 'https://j', jql: status = Done}, credentialsSecret: login}",
                json!({"type": "jira", "base_url": "https://j", "jql": "status = Done", "credentials_secret": "login"}),
            ),
            (
                "{databricks: {host: d, path: a.b.c, warehouseId: w}, credentialsSecret: login}",
                json!({"type": "databricks", "host": "d", "path": "a.b.c", "warehouse_id": "w", "credentials_secret": "login"}),
            ),
        ] {
            assert_eq!(config(source), Some(expected), "{source}");
        }
        assert_eq!(config("{credentialsSecret: login}"), None);
    }

    #[test]
    fn what_reads_the_same_has_the_same_name() {
        let name = |source: &str| serde_yaml::from_str::<Source>(source).unwrap().name().unwrap();
        let one = name("{local: {path: a}}");
        assert_eq!(one, name("{local: {path: a}}"));
        assert_ne!(one, name("{local: {path: b}}"));
        assert!(one.starts_with("local-") && one.len() == 16, "{one}");
        let former = |text: &str| serde_yaml::from_str::<Source>(text).unwrap().former_name();
        assert_eq!(former("{local: {path: a}}"), None);
        // As the version before called it.
        assert_eq!(former("{s3: {bucket: docs}, credentialsSecret: login}").as_deref(), Some("s3-140fefbcee"));
        for (one, other, is_same) in [
            ("{s3: {bucket: docs}, credentialsSecret: login}", "{s3: {bucket: docs}, credentialsSecret: new-login}", true),
            ("{s3: {bucket: docs}, credentialsSecret: login}", "{s3: {bucket: docs, prefix: a/}, credentialsSecret: login}", false),
            ("{s3: {bucket: docs}, integration: in_a}", "{s3: {bucket: docs}, integration: in_b}", false),
            (
                "{databricks: {host: d, path: a.b.c, warehouseId: w}, credentialsSecret: login}",
                "{databricks: {host: d, path: a.b.c, warehouseId: x}, credentialsSecret: login}",
                true,
            ),
        ] {
            assert_eq!(name(one) == name(other), is_same, "{one} and {other}");
        }
    }
}
