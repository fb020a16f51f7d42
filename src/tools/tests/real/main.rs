//! Tools with real servers and programs, in one test binary to link once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod builtin;
mod cli;
mod echo;
mod http;
mod mcp;
