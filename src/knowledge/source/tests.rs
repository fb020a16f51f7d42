//! Sources against the file system, other people's servers, and a scripted server for what those do not do.

mod atlassian;
mod databricks;
mod faults;
mod google_drive;
mod local;
mod s3;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use serde_json::{Value, json};
use slipway_peers::scripted;

use super::*;

/// The mounted Secret and volume of a test.
struct Mounts(tempfile::TempDir);

impl Mounts {
    fn with(credentials: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["credentials", "volume"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        for (key, value) in credentials {
            std::fs::write(folder.path().join("credentials").join(key), format!("{value}\n")).unwrap();
        }
        Self(folder)
    }

    fn volume(&self) -> std::path::PathBuf {
        self.0.path().join("volume")
    }

    /// As a worker sees them, with the test's servers allowed.
    fn surroundings(&self) -> Surroundings {
        Surroundings {
            credentials: Some(Credentials::Folder(self.0.path().join("credentials"))),
            volume: Some(self.volume()),
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            proxy: None,
        }
    }

    fn open(&self, config: Value) -> Box<dyn Source> {
        open(&serde_json::from_value(config).unwrap(), &self.surroundings()).unwrap()
    }
}

/// A complete traversal: its items by key, what it skipped, and its end.
async fn traversed(source: &dyn Source) -> Result<(BTreeMap<String, Item>, Vec<Skipped>, Complete), SourceError> {
    let (mut items, mut skipped, mut traversal) = (BTreeMap::new(), Vec::new(), Traversal::begin(source, "t1"));
    loop {
        match traversal.next().await? {
            TraversalStep::Page { items: more, skipped: others, rest } => {
                for item in more {
                    assert!(items.insert(item.key.clone(), item).is_none(), "an item came twice");
                }
                skipped.extend(others);
                traversal = rest;
            }
            TraversalStep::Complete(complete) => return Ok((items, skipped, complete)),
        }
    }
}

async fn listed(source: &dyn Source) -> BTreeMap<String, Item> {
    traversed(source).await.unwrap().0
}

async fn content(source: &dyn Source, item: &Item) -> Result<Vec<u8>, SourceError> {
    let mut file = tempfile::tempfile().unwrap();
    let fetched = source.fetch(item, &mut file).await?;
    let content = read(&mut file);
    assert_eq!(fetched.bytes, content.len() as u64);
    Ok(content)
}

fn read(file: &mut File) -> Vec<u8> {
    let mut content = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut content).unwrap();
    content
}

fn keys(items: &BTreeMap<String, Item>) -> Vec<&str> {
    items.keys().map(String::as_str).collect()
}

fn write(folder: &Path, name: &str, content: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

#[test]
fn configurations_are_spelled_as_in_the_specification() {
    for config in [
        json!({"type": "local", "path": "/handbook"}),
        json!({"type": "s3", "bucket": "b", "prefix": "docs/", "endpoint": "http://minio:9000", "region": "eu-west-1", "credentials_secret": "s"}),
        json!({"type": "google-drive", "folder_id": "1AbC-_", "credentials_secret": "s"}),
        json!({"type": "confluence", "space_key": "ENG", "base_url": "https://example.atlassian.net", "credentials_secret": "s"}),
        json!({"type": "jira", "base_url": "https://example.atlassian.net", "jql": "project = A", "credentials_secret": "s"}),
        json!({"type": "databricks", "host": "x.cloud.databricks.com", "path": "/Volumes/a/b/c", "credentials_secret": "s"}),
    ] {
        let read: SourceConfig = serde_json::from_value(config.clone()).unwrap();
        read.validate().unwrap();
        assert_eq!(read.kind(), config["type"]);
        assert_eq!(serde_json::to_value(read).unwrap(), config);
    }
    let unknown = json!({"type": "local", "path": "a", "extra": 1});
    assert!(serde_json::from_value::<SourceConfig>(unknown).is_err());
}

#[test]
fn a_wrong_configuration_names_its_field() {
    let long = "x".repeat(5000);
    for (config, field) in [
        (json!({"type": "local", "path": "a/../b"}), "path"),
        (json!({"type": "local", "path": ""}), "path"),
        (json!({"type": "local", "path": long}), "path"),
        (json!({"type": "s3", "bucket": "a/b", "credentials_secret": "s"}), "bucket"),
        (json!({"type": "s3", "bucket": "..", "credentials_secret": "s"}), "bucket"),
        (json!({"type": "s3", "bucket": "b", "prefix": long, "credentials_secret": "s"}), "prefix"),
        (json!({"type": "s3", "bucket": "b", "region": "x.evil.example/", "credentials_secret": "s"}), "region"),
        (json!({"type": "s3", "bucket": "b", "endpoint": "ftp://x", "credentials_secret": "s"}), "endpoint"),
        (json!({"type": "s3", "bucket": "b", "endpoint": "http://u:p@x", "credentials_secret": "s"}), "endpoint"),
        (json!({"type": "s3", "bucket": "b", "credentials_secret": "../x"}), "credentials_secret"),
        (json!({"type": "google-drive", "folder_id": "a' or 'b", "credentials_secret": "s"}), "folder_id"),
        (json!({"type": "confluence", "space_key": "A&B", "base_url": "https://x", "credentials_secret": "s"}), "space_key"),
        (json!({"type": "confluence", "space_key": "A", "base_url": "https://x?y", "credentials_secret": "s"}), "base_url"),
        (json!({"type": "jira", "base_url": "https://x", "credentials_secret": "s"}), "project_key"),
        (json!({"type": "jira", "base_url": "https://x", "project_key": "A", "jql": "a", "credentials_secret": "s"}), "project_key"),
        (json!({"type": "jira", "base_url": "https://x", "jql": "a) or (b", "credentials_secret": "s"}), "jql"),
        (json!({"type": "jira", "base_url": "https://x", "jql": "(a", "credentials_secret": "s"}), "jql"),
        (json!({"type": "jira", "base_url": "https://x", "jql": "a Order\tBY b", "credentials_secret": "s"}), "jql"),
        (json!({"type": "databricks", "host": "http://", "path": "a.b.c", "credentials_secret": "s"}), "host"),
    ] {
        let read: SourceConfig = serde_json::from_value(config.clone()).unwrap();
        let error = read.validate().expect_err(&config.to_string());
        assert_eq!(error.wrong_field(), Some(field), "{config}: {error}");
        assert!(error.to_string().starts_with(&format!("{field}: ")) && error.to_string().len() < 200, "{error}");
    }
    let quoted = json!({"type": "jira", "base_url": "https://x", "jql": "summary ~ \"(order by\"", "credentials_secret": "s"});
    serde_json::from_value::<SourceConfig>(quoted).unwrap().validate().unwrap();
}
