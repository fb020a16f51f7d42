//! Access to the cluster: watches that reconnect, the caches that they fill, and the controllers that reconcile cached
//! objects. The operator, the release controller and REST use it, each with its own caches.

pub mod cache;
pub mod cached;
pub mod controller;
pub mod event;
mod guarded;
pub mod json;
mod key;
pub mod list;
pub mod metrics;
mod object;
pub mod page;
pub mod quota;
pub mod references;
pub mod tasks;
pub mod watch;
pub mod write;

pub use cache::Cache;
pub use guarded::Guarded;
pub use key::Key;
pub use metrics::Metrics;
pub use object::Object;
pub use tasks::Tasks;
