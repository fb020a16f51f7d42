//! Keeping up with the cluster: watches that are taken up again when they are lost, the caches that they fill, and the
//! controllers that reconcile what the caches hold.
//!
//! The operator, the release controller and REST stand on this, each with caches of its own that hold what it needs.

pub mod cache;
pub mod cached;
pub mod controller;
pub mod event;
pub mod json;
mod key;
pub mod list;
pub mod metrics;
pub mod page;
pub mod quota;
pub mod references;
pub mod tasks;
pub mod watch;
pub mod write;

pub use cache::Cache;
pub use key::Key;
pub use metrics::Metrics;
pub use tasks::Tasks;
