//! Each type of integrations against a server that others wrote, in one test binary to link once; `hosts` has what holds for all types.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod atlassian;
mod databricks;
mod google_drive;
mod hosts;
mod local;
mod mcp;
mod mlflow;
mod models;
mod prometheus;
mod s3;
mod slack;
mod support;
mod webhook;
