//! Keeping up with the cluster: watches that are taken up again when they are lost, the caches that they fill, and the
//! controllers that reconcile what the caches hold.
//!
//! The operator, the release controller and REST stand on this, each with caches of its own that hold what it needs.

pub mod cache;
pub mod controller;
mod key;
pub mod list;
pub mod metrics;
pub mod page;
pub mod quota;
pub mod tasks;
pub mod watch;

pub use cache::Cache;
pub use key::Key;
pub use metrics::Metrics;
pub use tasks::Tasks;
