//! A small HTTP client: to a Service's cluster address from the machine itself, else by way of the API server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::kubectl::kubectl;

/// What a server answered.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub body: String,
}

impl Reply {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("expected JSON ({e}), got {self:?}"))
    }
}

/// Sends `body` by POST, or asks by GET, to a Service: `path` on `port` of `service` in `namespace`.
pub fn http(namespace: &str, service: &str, port: u16, path: &str, body: Option<&Value>) -> io::Result<Reply> {
    let address = kubectl(format!("get service {service} -n {namespace} -o jsonpath={{.spec.clusterIP}}")).ok();
    let direct = address.trim().parse().map(|ip| SocketAddr::new(ip, port)).map_err(io::Error::other)?;
    match TcpStream::connect_timeout(&direct, Duration::from_secs(2)) {
        Ok(stream) => exchange(stream, path, body),
        Err(_) => by_proxy(&format!("/api/v1/namespaces/{namespace}/services/{service}:{port}/proxy{path}"), body),
    }
}

/// HTTP/1.0, so that the answer is neither in chunks nor kept open.
fn exchange(mut stream: TcpStream, path: &str, body: Option<&Value>) -> io::Result<Reply> {
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let (method, text) = body.map_or(("GET", String::new()), |value| ("POST", value.to_string()));
    let length = text.len();
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: agent\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{text}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| io::Error::other(format!("not HTTP: {answer:?}")))?;
    let status =
        head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| io::Error::other(format!("not HTTP: {head:?}")))?;
    Ok(Reply { status, body: body.to_owned() })
}

/// `kubectl proxy` on a port of its own choice, for one exchange.
fn by_proxy(path: &str, body: Option<&Value>) -> io::Result<Reply> {
    let program = std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into());
    let mut proxy = Command::new(program).args(["proxy", "--port=0"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let reply = greeting(&mut proxy).and_then(TcpStream::connect).and_then(|stream| exchange(stream, path, body));
    proxy.kill()?;
    proxy.wait()?;
    reply
}

/// The address in "Starting to serve on 127.0.0.1:40001".
fn greeting(proxy: &mut std::process::Child) -> io::Result<SocketAddr> {
    let mut line = String::new();
    if let Some(stdout) = proxy.stdout.as_mut() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    line.split_whitespace()
        .last()
        .and_then(|address| address.parse().ok())
        .ok_or_else(|| io::Error::other(format!("kubectl proxy said {line:?}")))
}
