//! Servers and clients that run on Node.js: an OpenAI-compatible server and those of the MCP project.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use crate::process::folder;
use crate::{Server, free_port, root};

/// `@dwmkerr/mock-llm`, which answers the OpenAI API by the rules in its configuration (`{}`: it repeats what it was
/// told). `url()` has no path; the API is at `/v1`.
pub fn mock_llm(config_yaml: &str) -> Server {
    mock_llm_at(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())), config_yaml)
}

/// The same at this address.
pub fn mock_llm_at(address: SocketAddr, config_yaml: &str) -> Server {
    let folder = folder();
    let config = folder.path().join("config.yaml");
    fs::write(&config, config_yaml).expect("a file in a folder of ours");
    let mut command = run(&["@dwmkerr/mock-llm/dist/main.js", "--config"]);
    // It is an issuer of tokens as well, whether or not anybody asks it for one, and would be none without TLS but on the loopback.
    command.env("MCP_DANGEROUSLY_ALLOW_INSECURE_ISSUER_URL", "true");
    command.arg(config).env("HOST", address.ip().to_string()).env("PORT", address.port().to_string());
    let url = format!("http://{address}");
    Server::start_in(folder, &command, &format!("{url}/health")).with_url(url)
}

/// `@modelcontextprotocol/server-everything` over streamable HTTP; `url()` ends with `/mcp`.
pub fn everything() -> Server {
    serve_everything("streamableHttp", "mcp")
}

/// The same over the older SSE transport; `url()` ends with `/sse`.
pub fn everything_sse() -> Server {
    serve_everything("sse", "sse")
}

fn serve_everything(transport: &str, path: &str) -> Server {
    let port = free_port();
    let mut command = run(&[EVERYTHING, transport]);
    command.env("PORT", port.to_string());
    Server::start(command, &format!("http://127.0.0.1:{port}/{path}"))
}

/// The command line of the same that speaks over standard input and output.
pub fn everything_stdio() -> Vec<String> {
    words(&[EVERYTHING, "stdio"])
}

/// The command line of `@modelcontextprotocol/conformance`, to which its own arguments are added.
pub fn conformance() -> Vec<String> {
    words(&["@modelcontextprotocol/conformance/dist/index.js"])
}

const EVERYTHING: &str = "@modelcontextprotocol/server-everything/dist/index.js";

fn words(script: &[&str]) -> Vec<String> {
    let folder = root().join("node");
    let mut words = vec![folder.join("bin/node").display().to_string()];
    words.push(folder.join("node_modules").join(script[0]).display().to_string());
    words.extend(script[1..].iter().map(|&argument| argument.to_owned()));
    words
}

/// Node.js with a script of our own.
pub(crate) fn script(file: &std::path::Path) -> Command {
    let mut command = Command::new(root().join("node/bin/node"));
    command.arg(file);
    command
}

/// Node.js with a line of ours, which can require what is installed.
pub(crate) fn evaluated(line: &str) -> Command {
    let folder = root().join("node");
    let mut command = Command::new(folder.join("bin/node"));
    command.args(["--eval", line]).env("NODE_PATH", folder.join("node_modules"));
    command
}

fn run(script: &[&str]) -> Command {
    let words = words(script);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}
