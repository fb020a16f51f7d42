//! The real binary on a port of its own, against a real PostgreSQL with pgvector and the built-in embedding model.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod content;
mod process;
mod support;
mod uploads;
