//! Knowledge bases: documents, their chunks with vectors, ingestions and uploads, in a sibling database of the same server.
//!
//! The manager makes and migrates the sibling, and makes and drops bases, with [`KnowledgeAdmin`]. Ingestions, workers and
//! agents open a [`KnowledgeBase`] with their team's login, which may call the functions of `migrations/knowledge` and has no
//! right on any table. REST has a [`KnowledgeReader`].

mod admin;
mod attempts;
mod base;
mod changes;
mod draft;
mod ingestion;
mod migrate;
mod reader;
mod search;
mod teams;
mod types;
mod uploads;
mod vectors;

pub use admin::KnowledgeAdmin;
pub use base::{KnowledgeBase, KnowledgeOptions};
pub use changes::{ChangesCursor, MAX_PLACE_BYTES};
pub use draft::Draft;
pub use ingestion::{Begun, Changed, Ingestion, LEASE_DURATION, Listed, MAX_NAME_BYTES, Removal};
pub use migrate::{KnowledgeMigrated, sibling};
pub use reader::KnowledgeReader;
pub use search::{Filter, Hit, MAX_RESULTS, SearchQuery};
pub use types::{
    BaseInfo, BaseSpec, Counts, DocumentError, DocumentMeta, DocumentStatus, Ending, INDEX_THRESHOLD, IngestionState, MAX_REPORTED_ERRORS,
    NewChunk, Quota, Report, StoredDocument, Unembedded,
};
pub use uploads::{MAX_PART_BYTES, Upload};
pub use vectors::ModelUse;
