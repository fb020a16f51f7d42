//! Servers that play the document stores of other companies: Backlot (Google Drive, Jira, Confluence), a mock of Google Drive that
//! takes changes, and MiniLake (Databricks).

use std::fs;
use std::process::Command;

use crate::process::folder;
use crate::python::{QUIET, interpreter};
use crate::{Server, free_port, node};

/// Backlot with a corpus of its own kind, one JSON document a line. Drive is at `/drive/v3`, Jira at `/atlassian/rest/api`,
/// Confluence at `/atlassian/wiki/rest/api`; the token `admin-service-token` sees all; `/_meta/credentials` has a service account.
pub fn backlot(corpus: &str) -> Server {
    let folder = folder();
    let (file, data) = (folder.path().join("corpus.jsonl"), folder.path().join("data"));
    fs::write(&file, corpus).expect("a file in a folder of ours");
    let command = || {
        let mut command = Command::new(interpreter());
        command.args(["-B", "-m", "backlot"]).envs(QUIET).env("BACKLOT_DATA_DIR", &data).current_dir(folder.path());
        command
    };
    let output = command().arg("import").arg(&file).output().expect("hack/peers has installed Backlot");
    assert!(output.status.success(), "Backlot does not take the corpus: {}", String::from_utf8_lossy(&output.stderr));
    let port = free_port();
    let mut serve = command();
    serve.args(["serve", "--port", &port.to_string()]);
    let url = format!("http://127.0.0.1:{port}");
    Server::start_in(folder, &serve, &format!("{url}/health")).with_url(url)
}

/// `google-drive-mock`: Drive's API v3 with an empty drive, which takes new files, changes and deletions. It checks no token.
pub fn google_drive() -> Server {
    let port = free_port();
    let command = node::evaluated(&format!("require('google-drive-mock').startServer({port}, '127.0.0.1')"));
    let url = format!("http://127.0.0.1:{port}");
    Server::start(command, &format!("{url}/")).with_url(url)
}

/// MiniLake: Databricks' files, warehouses and SQL statements, these over DuckDB. It checks no token.
pub fn minilake() -> Server {
    let folder = folder();
    let port = free_port();
    let mut command = Command::new(interpreter());
    command.args(["-B", "-m", "minilake"]).envs(QUIET).env("MINILAKE_PORT", port.to_string());
    command.env("MINILAKE_DATA_DIR", folder.path().join("data")).env("MINILAKE_NOTEBOOK", "false").env("HOME", folder.path());
    let url = format!("http://127.0.0.1:{port}");
    Server::start_in(folder, &command, &format!("{url}/api/2.0/sql/warehouses")).with_url(url)
}
