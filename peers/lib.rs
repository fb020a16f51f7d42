//! Other people's servers and clients, for our tests: where `hack/peers` put them, how they are started and stopped.
//!
//! Beside them is `Cgroup`, which limits the memory of a process as a container's limit does.
//!
//! Every server gets a process group, a temporary folder and a loopback port of its own, so that tests run beside
//! each other; it is gone when its value is dropped, and also when the test's process is killed. What goes wrong
//! panics with the end of the server's log: a test has nothing better to do.
#![expect(clippy::expect_used, clippy::panic, reason = "used by tests alone, where a panic is how a failure is told")]
#![expect(clippy::missing_panics_doc, reason = "everything here panics when a peer does not do what it should")]

mod cgroup;
mod git;
mod git_http;
mod issuer;
mod monitoring;
mod node;
mod patch;
mod pgbouncer;
mod plain;
mod port;
mod postgres;
mod process;
mod prometheus;
mod python;
mod receiver;
mod saas;
pub mod scripted;
mod server;
mod skip;
mod sshd;
mod unpacked;
mod vectors;

use std::path::PathBuf;

pub use cgroup::{Cgroup, peak_memory};
pub use git::Git;
pub use git_http::GitHttp;
pub use issuer::Issuer;
pub use monitoring::{Panel, dashboards, has_metrics, monitoring, panels};
pub use node::{conformance, everything, everything_sse, everything_stdio, mock_llm, mock_llm_at};
pub use patch::merge_patch;
pub use pgbouncer::PgBouncer;
pub use plain::plain_http;
pub use port::free_port;
pub use postgres::Postgres;
pub use process::is_root;
pub use prometheus::{Prometheus, Target, promtool};
pub use python::{
    changing_server, changing_server_at, changing_server_with_token, mcp_time, mlflow, mlflow_with_login, moto, openapi_validator, python,
    schemathesis,
};
pub use receiver::Receiver;
pub use saas::{backlot, confluence_client, google_drive, minilake};
pub use server::Server;
pub use skip::skip;
pub use sshd::Sshd;
pub use vectors::{Clusters, Dice, nearest};

/// The repository's root, as an absolute path.
pub fn repository() -> PathBuf {
    let here = std::env::current_dir().expect("a current folder");
    // Not CARGO_MANIFEST_DIR: clones of the repository share what they compile.
    here.ancestors().find(|folder| folder.join("Cargo.lock").exists()).expect("tests run within the workspace").to_owned()
}

/// The folder that `hack/peers` fills.
pub fn root() -> PathBuf {
    let link = repository().join(".local/peers");
    link.canonicalize().unwrap_or_else(|_| panic!("{} does not exist: run hack/peers", link.display()))
}

/// The documents that `hack/peers` unpacked: `debian` has those of Debian's packages, `tika` those that Apache Tika is tested with.
pub fn documents() -> PathBuf {
    let folder = repository().join(".local/documents");
    assert!(folder.join("debian").exists(), "{} is not complete: run hack/peers", folder.display());
    folder
}

/// Git over https, at a server that takes pushes.
pub fn git_http() -> GitHttp {
    GitHttp::start()
}

/// Git over ssh, at a server that takes pushes.
pub fn sshd() -> Sshd {
    Sshd::start()
}

/// The embedding model all-MiniLM-L6-v2: safetensors, tokenizer, configuration.
pub fn minilm() -> PathBuf {
    root().join("minilm")
}
