//! Attacks, each by somebody who has what its test says and no more. docs/security.md lists them beside what defends.
//!
//! `hack/test attack` runs this, on an API server without a node that it starts itself; it takes root where a process'
//! memory is limited. A test looks at what is left, never only at an answer.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod adopt;
mod bombs;
mod canary;
mod contract;
mod errors;
mod force;
mod imports;
mod installed;
mod largest;
mod matrix;
mod memory;
mod namespace;
mod platform_admin;
mod pods;
mod role;
mod secret;
mod service;
mod tokens;
mod uploads;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by who writes the platform's configuration, and by who says that nobody does.
fn platform_configuration() -> MutexGuard<'static, ()> {
    static HELD: Mutex<()> = Mutex::new(());
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}
