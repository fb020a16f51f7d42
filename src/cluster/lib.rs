//! Keeping up with the cluster: watches that are taken up again when they are lost, and the caches that they fill.
//!
//! The operator and REST both stand on this, each with caches of its own that hold what it needs and no more.

pub mod cache;
mod key;
pub mod list;
pub mod page;
pub mod quota;
pub mod watch;

pub use cache::Cache;
pub use key::Key;
