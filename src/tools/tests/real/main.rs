//! Tools with real servers and programs. One binary, as each is linked with everything below it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod builtin;
mod cli;
mod echo;
mod http;
mod mcp;
