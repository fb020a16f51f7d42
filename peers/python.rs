//! Servers and clients that run on Python: MLflow, Moto, an MCP server, the SDKs of model providers, and Schemathesis.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::process::folder;
use crate::{Server, free_port, repository, root};

/// Runs a script where the packages openai, anthropic, mcp, mlflow, botocore and google.auth can be imported. Of the environment it sees
/// what is given here and what the test sees.
pub fn python(script: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(interpreter());
    command.arg("-B").arg(script).args(arguments).envs(QUIET).envs(environment.iter().copied());
    command.output().unwrap_or_else(|error| panic!("{} could not be run: {error}", script.display()))
}

/// The command line of `mcp-server-time`, which speaks MCP over standard input and output.
pub fn mcp_time() -> Vec<String> {
    let words = ["-B", "-m", "mcp_server_time", "--local-timezone", "UTC"].map(str::to_owned);
    [vec![interpreter().display().to_string()], words.to_vec()].concat()
}

/// The command line of an MCP server whose tools change when they are told to, over standard input and output.
pub fn changing_server() -> Vec<String> {
    let script = repository().join("peers/changing_server.py");
    [interpreter().display().to_string(), "-B".to_owned(), script.display().to_string()].to_vec()
}

/// The same server over streamable HTTP, at `/mcp` of an address.
pub fn changing_server_at(address: SocketAddr) -> Server {
    serve_changing(address, &[])
}

/// The same, where a token is asked for as `Authorization: Bearer`.
pub fn changing_server_with_token(address: SocketAddr, token: &str) -> Server {
    serve_changing(address, &[token])
}

fn serve_changing(address: SocketAddr, more: &[&str]) -> Server {
    let argv = changing_server();
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).args([address.ip().to_string(), address.port().to_string()]).args(more);
    Server::start(command, &format!("http://{address}/mcp"))
}

/// MLflow's tracking server with an empty database and artifacts in its folder; it takes spans at `/v1/traces`.
pub fn mlflow() -> Server {
    serve_mlflow(folder(), &[])
}

/// The same, where `admin` logs in with this password of 12 characters at least.
pub fn mlflow_with_login(password: &str) -> Server {
    let folder = folder();
    let (config, database) = (folder.path().join("auth.ini"), folder.path().join("auth.db"));
    let text = format!(
        "[mlflow]\ndefault_permission = READ\ndatabase_uri = sqlite:///{}\nadmin_username = admin\nadmin_password = {password}\n\
         authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n",
        database.display()
    );
    fs::write(&config, text).expect("a file in a folder of ours");
    let config = config.display().to_string();
    serve_mlflow(folder, &[("MLFLOW_AUTH_CONFIG_PATH", &config), ("MLFLOW_FLASK_SERVER_SECRET_KEY", "of a test")])
}

/// With variables, it has a login.
fn serve_mlflow(folder: TempDir, login: &[(&str, &str)]) -> Server {
    let database = folder.path().join("mlflow.db");
    fs::copy(root().join("mlflow.db"), &database).expect("hack/peers has made a database for MLflow");
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let mut command = Command::new(interpreter());
    command.args(["-B", "-m", "mlflow", "server", "--host", "127.0.0.1", "--workers", "1", "--port", &port.to_string()]);
    command.arg(format!("--backend-store-uri=sqlite:///{}", database.display()));
    command.arg(format!("--artifacts-destination={}", folder.path().join("artifacts").display()));
    if !login.is_empty() {
        command.args(["--app-name", "basic-auth"]);
    }
    command.envs(QUIET).env("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false").envs(login.iter().copied());
    // What serves the API loads most of MLflow with the first call, long after /health answers.
    Server::start_in(folder, &command, &format!("{url}/api/2.0/mlflow/experiments/search?max_results=1")).with_url(url)
}

/// Moto, which plays Amazon's cloud: every service at one address. What a service answers is made up, as AWS's are formed.
pub fn moto() -> Server {
    let port = free_port();
    let mut command = Command::new(interpreter());
    command.args(["-B", "-m", "moto.server", "--host", "127.0.0.1", "--port", &port.to_string()]).envs(QUIET);
    let url = format!("http://127.0.0.1:{port}");
    Server::start(command, &format!("{url}/moto-api/data.json")).with_url(url)
}

/// Schemathesis: calls every operation of the OpenAPI document at `url` with what should do and what should not, and
/// tells by a failure what the answers broke. It reads `schemathesis.toml` in `folder`, and writes its findings there.
pub fn schemathesis(folder: &Path, url: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(interpreter());
    command.args(["-B", "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run", url, "--no-color"]);
    command.args(arguments).current_dir(folder).envs(QUIET);
    command.output().unwrap_or_else(|error| panic!("schemathesis could not be run: {error}"))
}

/// Whether this OpenAPI document is one, in the words of openapi-spec-validator.
pub fn openapi_validator(document: &Path) -> Output {
    let mut command = Command::new(interpreter());
    command.args(["-B", "-m", "openapi_spec_validator"]).arg(document).envs(QUIET);
    command.output().unwrap_or_else(|error| panic!("openapi-spec-validator could not be run: {error}"))
}

/// Nobody's usage is reported from our tests, nothing is asked of the internet, and a script's output is its own.
pub(crate) const QUIET: [(&str, &str); 5] = [
    ("MLFLOW_DISABLE_TELEMETRY", "true"),
    ("MLFLOW_MODEL_CATALOG_URI", ""),
    ("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true"),
    ("DO_NOT_TRACK", "true"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
];

pub(crate) fn interpreter() -> PathBuf {
    root().join("python/bin/python")
}
