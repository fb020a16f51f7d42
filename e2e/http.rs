//! A small HTTP client: to a Service's cluster address from the machine itself, else by way of the API server.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::kubectl::{kubectl, program};

/// How long an answer may keep us waiting for its next byte.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Makes `kubectl proxy` take our calls, which are made to a host named agent.
pub(crate) const PROXIED: &str = "--accept-hosts=^(agent|127[.]0[.]0[.]1)$";

/// What a server answered.
pub struct Reply {
    pub status: u16,
    pub headers: Headers,
    pub body: String,
    /// The body as it came, which need not be text.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, headers, body, bytes: _ } = self;
        f.debug_struct("Reply").field("status", status).field("headers", headers).field("body", body).finish_non_exhaustive()
    }
}

impl Reply {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("expected JSON ({e}), got {self:?}"))
    }

    /// The value of a header; empty when it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name)
    }
}

/// The headers of an answer, in its order.
#[derive(Debug, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
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

fn exchange(stream: TcpStream, path: &str, body: Option<&Value>) -> io::Result<Reply> {
    let text = body.map(ToString::to_string).unwrap_or_default();
    let method = if body.is_some() { "POST" } else { "GET" };
    UnreadReply::ask(stream, method, path, &[("Content-Type", "application/json")], text.as_bytes())?.whole()
}

/// An answer whose body has not been read.
pub(crate) struct UnreadReply {
    pub status: u16,
    pub headers: Headers,
    pub body: BufReader<TcpStream>,
}

impl UnreadReply {
    /// HTTP/1.0, so that the answer is neither in chunks nor kept open.
    pub(crate) fn ask(mut stream: TcpStream, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<Self> {
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        let mut head = Vec::new();
        write!(head, "{method} {path} HTTP/1.0\r\n")?;
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.extend(b"Host: agent\r\n");
        }
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n")?;
        }
        if !body.is_empty() || method != "GET" {
            write!(head, "Content-Length: {}\r\n", body.len())?;
        }
        head.extend(b"\r\n");
        stream.write_all(&head)?;
        // Who is refused may be told before everything was read.
        let sent = stream.write_all(body);
        let mut body = BufReader::new(stream);
        let first = line(&mut body)?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let Some(status) = status else { return Err(sent.err().unwrap_or_else(|| io::Error::other(format!("not HTTP: {first:?}")))) };
        let mut headers = Headers::default();
        loop {
            let line = line(&mut body)?;
            match line.split_once(':') {
                Some((name, value)) => headers.0.push((name.to_owned(), value.trim().to_owned())),
                None => return Ok(Self { status, headers, body }),
            }
        }
    }

    pub(crate) fn whole(mut self) -> io::Result<Reply> {
        let mut bytes = Vec::new();
        self.body.read_to_end(&mut bytes)?;
        Ok(Reply { status: self.status, headers: self.headers, body: String::from_utf8_lossy(&bytes).into_owned(), bytes })
    }
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// `kubectl proxy` on a port of its own choice, for one exchange.
fn by_proxy(path: &str, body: Option<&Value>) -> io::Result<Reply> {
    let mut proxy = Command::new(program()).args(["proxy", "--port=0", PROXIED]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let reply = greeting(&mut proxy).and_then(TcpStream::connect).and_then(|stream| exchange(stream, path, body));
    proxy.kill()?;
    proxy.wait()?;
    // As the Service's own address says that nobody is there.
    reply.and_then(|reply| match reply.status {
        503 if reply.body.contains("no endpoints available") => Err(io::Error::other(reply.body)),
        _ => Ok(reply),
    })
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
