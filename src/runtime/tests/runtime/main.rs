//! The real binary, spoken to over sockets.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test says what went wrong by panicking, and shows what the runtime said"
)]

mod access;
mod approval;
mod background;
mod budgets;
mod chat;
mod children;
mod completions;
mod contract;
mod control;
mod conversations;
mod database;
mod evaluation;
mod families;
mod guards;
mod integration;
mod knowledge;
mod library;
mod monitoring;
mod parity;
mod policies;
mod refusal;
mod remote;
mod sampling;
mod skills;
mod spending;
mod support;
mod tools;
