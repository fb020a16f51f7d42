//! The real binary on a port of its own, against a real PostgreSQL with pgvector and the built-in embedding model.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "helpers of tests fail as tests do, and show what was said")]

mod changes;
mod content;
mod faulty;
mod ingesting;
mod integrations;
mod kills;
mod process;
mod refusals;
mod sources;
mod support;
mod uploads;
