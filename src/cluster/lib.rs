//! Access to the cluster: watches that reconnect, the caches that they fill, and the controllers that reconcile cached
//! objects. The operator, the release controller and REST use it, each with its own caches.

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
