//! Sources of documents: a source lists what it has in pages, and fetches one document into a file. One file per kind.
//!
//! A document that the source no longer has leaves the index in two cases only: the source tells so ([`Incremental`]), or a
//! [`Traversal`] came to its end and gave a [`Complete`]. A fault consumes the traversal, so that what follows it can claim
//! nothing; the [`ResumePoint`] from before it goes on where the last page ended.

pub mod config;
mod confluence;
mod credentials;
mod databricks;
mod error;
mod google_drive;
mod http;
mod jira;
mod local;
mod markup;
mod s3;
mod since;
mod traversal;

use std::fs::File;
use std::path::PathBuf;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use slipway_egress::Allowed;
use url::Url;

pub use config::SourceConfig;
pub use credentials::Credentials;
pub use error::{Contact, SourceError, SourceErrorKind};
pub use http::retry_after;
pub use traversal::{Complete, ResumePoint, Traversal, TraversalStep};

/// The largest document that is fetched, in bytes.
pub const MAX_DOCUMENT_BYTES: u64 = 100 * 1024 * 1024;
/// The most documents of one source.
pub const MAX_ITEMS: u64 = 1_000_000;

pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, SourceError>> + Send + 'a>>;

/// A document at its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Names the document within its source for as long as it exists: an object's key, a file's or a page's id. Where sources
    /// have ids, a rename keeps the key, and often the version too; elsewhere a rename is a deletion and an addition.
    pub key: String,
    /// Where people find the document: a URL, or a path.
    pub uri: String,
    /// With the extension of what `fetch` writes.
    pub filename: String,
    /// What `fetch` writes, where the source says so in its list.
    pub content_type: Option<String>,
    /// Changes when the document does. None if the source tells no version: then the document is fetched to see.
    pub version: Option<String>,
    /// In bytes, where the source tells it.
    pub size: Option<u64>,
}

/// Something that the source has and that is no document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub name: String,
    pub why: String,
}

/// Where a list goes on: opaque, made and read by one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageToken(String);

/// A part of a source's list. Not the last one if it has a `next`.
#[derive(Debug, Default)]
pub struct SourcePage {
    pub items: Vec<Item>,
    pub skipped: Vec<Skipped>,
    pub next: Option<PageToken>,
}

/// What is known of a document once it is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    pub bytes: u64,
    pub content_type: Option<String>,
}

/// One place with documents.
pub trait Source: Send + Sync {
    /// The page after `after`, or the first one. The order is the same each time, by what does not change about a document.
    /// [`Traversal`] calls this.
    fn page<'a>(&'a self, after: Option<&'a PageToken>) -> Pending<'a, SourcePage>;

    /// Writes the document to an empty file. A document over [`MAX_DOCUMENT_BYTES`] is refused.
    fn fetch<'a>(&'a self, item: &'a Item, file: &'a mut File) -> Pending<'a, Fetched>;

    /// The list of changes, at sources that have one.
    fn incremental(&self) -> Option<&dyn Incremental> {
        None
    }
}

/// A place in a source's list of changes, to be kept in the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangeCursor(pub String);

/// What has changed at a source since a cursor.
#[derive(Debug)]
pub struct Changes {
    /// New or changed documents. The same one may come more than once, and unchanged ones may come too.
    pub changed: Vec<Item>,
    /// The keys of documents that are gone, or that no longer belong to the source. Keys that were never listed may be among
    /// them.
    pub removed: Vec<String>,
    pub skipped: Vec<Skipped>,
    /// Whether a complete traversal is due: something has changed that a list of changes does not tell in full, such as a
    /// folder that was moved with all that is in it.
    pub traverse: bool,
    /// Where to go on, after the changes are stored.
    pub next: ChangeCursor,
    /// Whether there are more changes now.
    pub more: bool,
}

/// A source that tells its changes.
pub trait Incremental: Send + Sync {
    /// The present place. It has to be taken before a traversal begins: what moves while one is under way comes as a change.
    fn now(&self) -> Pending<'_, ChangeCursor>;

    fn changes<'a>(&'a self, since: &'a ChangeCursor) -> Pending<'a, Changes>;

    /// Whether `changes` tells deletions, or asks for a traversal where it does not. Without it, deletions are found by complete
    /// traversals only, which have to be made now and then.
    fn tells_deletions(&self) -> bool;
}

/// What a source needs besides its configuration.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The Secret that `credentials_secret` names.
    pub credentials: Option<Credentials>,
    /// The folder where the volume is mounted that `local` reads.
    pub volume: Option<PathBuf>,
    /// The operator's exceptions from the rule that only public addresses may be reached.
    pub allow: Vec<Allowed>,
    pub proxy: Option<Url>,
}

/// Checks the configuration and the presence of credentials. Connects to nothing yet.
pub fn open(config: &SourceConfig, surroundings: &Surroundings) -> Result<Box<dyn Source>, SourceError> {
    config.validate()?;
    Ok(match config {
        SourceConfig::Local(config) => Box::new(local::Local::new(config, surroundings)?),
        SourceConfig::S3(config) => Box::new(s3::S3::new(config, surroundings)?),
        SourceConfig::GoogleDrive(config) => Box::new(google_drive::GoogleDrive::new(config, surroundings)?),
        SourceConfig::Confluence(config) => Box::new(confluence::Confluence::new(config, surroundings)?),
        SourceConfig::Jira(config) => Box::new(jira::Jira::new(config, surroundings)?),
        SourceConfig::Databricks(config) => Box::new(databricks::Databricks::new(config, surroundings)?),
    })
}

/// Asks the server of a source for as little as shows that it takes the credentials, once, and says what it did. What a source
/// reads there may be empty: of an S3 without a bucket, the buckets are listed.
pub async fn check(config: &SourceConfig, surroundings: &Surroundings) -> Result<String, SourceError> {
    config.validate_server()?;
    match config {
        SourceConfig::Local(config) => local::Local::new(config, surroundings)?.check_server().await,
        SourceConfig::S3(config) => s3::S3::new(config, surroundings)?.check_server().await,
        SourceConfig::GoogleDrive(config) => google_drive::GoogleDrive::new(config, surroundings)?.check_server().await,
        SourceConfig::Confluence(config) => confluence::Confluence::new(config, surroundings)?.check_server().await,
        SourceConfig::Jira(config) => jira::Jira::new(config, surroundings)?.check_server().await,
        SourceConfig::Databricks(config) => databricks::check_server(config, surroundings).await,
    }
}

#[cfg(test)]
mod tests;
