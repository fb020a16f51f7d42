//! Most tests run together; one that disturbs others, or is disturbed by them, runs alone.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static CLUSTER: RwLock<()> = RwLock::new(());

/// A test's place in the crowd, kept while it runs.
pub enum Turn {
    Together(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

pub fn together() -> Turn {
    Turn::Together(CLUSTER.read().unwrap_or_else(PoisonError::into_inner))
}

/// Waits for the others to end and keeps new ones waiting.
pub fn alone() -> Turn {
    Turn::Alone(CLUSTER.write().unwrap_or_else(PoisonError::into_inner))
}
