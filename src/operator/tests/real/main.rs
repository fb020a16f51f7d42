//! Teams' logins and rows in a real PostgreSQL. One binary, as each is linked with everything below it.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod knowledge;
mod rows;
mod tenancy;
