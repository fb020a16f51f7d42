//! HTTP as the door speaks it: requests that are read whole, and answers that are written whole.

use std::io::{self, BufRead, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::json;

use crate::http::UnreadReply;

/// Headers of a connection and not of a request; and nobody here can read what was packed.
const OWN: [&str; 6] = ["host", "connection", "content-length", "transfer-encoding", "accept-encoding", "expect"];

#[derive(Debug, Clone)]
pub(super) struct Request {
    pub method: String,
    /// Path and query.
    pub target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// The next one of a connection; none once the client has hung up.
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(io::Error::other(format!("{line:?} is not how a request begins")));
        };
        let mut request = Self { method: method.to_owned(), target: target.to_owned(), headers: Vec::new(), body: Vec::new() };
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if request.header("transfer-encoding").is_some() {
            return Err(io::Error::other("a request in chunks, which nobody here sends"));
        }
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        request.body = vec![0; length];
        from.read_exact(&mut request.body)?;
        Ok(Some(request))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Sends the request to the server behind the door. The body of the reply has not been read.
    pub(super) fn send(&self, to: SocketAddr) -> io::Result<UnreadReply> {
        let headers = self.headers.iter().filter(|(name, _)| !OWN.contains(&name.as_str()));
        let headers: Vec<(&str, &str)> = headers.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        UnreadReply::ask(TcpStream::connect(to)?, &self.method, &self.target, &headers, &self.body)
    }

    pub(super) fn path(&self) -> &str {
        self.target.split_once('?').map_or(&self.target, |(path, _)| path)
    }

    pub(super) fn is_watch(&self) -> bool {
        self.target.split_once('?').is_some_and(|(_, query)| query.split('&').any(|pair| pair == "watch=true"))
    }

    pub(super) fn is_read(&self) -> bool {
        self.method == "GET" && !self.is_watch()
    }

    /// Whether it asks who somebody is, or what he may do.
    pub(super) fn is_review(&self) -> bool {
        self.path().contains("reviews")
    }

    /// Whether it changes something.
    pub(super) fn is_write(&self) -> bool {
        matches!(self.method.as_str(), "POST" | "PUT" | "PATCH" | "DELETE") && !self.is_review()
    }

    /// The kind that it is about, in the plural, with the subresource: `agents/status`.
    pub(super) fn resource(&self) -> String {
        let path: Vec<&str> = self.path().trim_matches('/').split('/').collect();
        let rest = match path.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            other => other,
        };
        let rest = match rest {
            ["namespaces", _, "status" | "finalize"] => &rest[..1],
            ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
            other => other,
        };
        match rest {
            [kind, _, part, ..] => format!("{kind}/{part}"),
            [kind, ..] => (*kind).to_owned(),
            [] => String::new(),
        }
    }
}

/// An answer that was read whole, or made here.
#[derive(Debug, Clone)]
pub(super) struct RelayedReply {
    pub status: u16,
    media: String,
    body: String,
    retry_after: Option<u64>,
}

impl RelayedReply {
    pub(super) fn of(answer: UnreadReply) -> io::Result<Self> {
        let whole = answer.whole()?;
        Ok(Self { status: whole.status, media: whole.header("content-type").to_owned(), body: whole.body, retry_after: None })
    }

    /// A refusal in the API server's form.
    pub(super) fn refusal(code: u16) -> Self {
        let reason = match code {
            409 => "Conflict",
            410 => "Expired",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            _ => "InternalError",
        };
        let message = "the door says so, and not the API server";
        let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code});
        Self { status: code, media: "application/json".to_owned(), body: body.to_string(), retry_after: (code == 429).then_some(1) }
    }

    pub(super) fn body(&self) -> &str {
        &self.body
    }

    pub(super) fn write(&self, mut client: &TcpStream) -> io::Result<()> {
        let Self { status, media, body, retry_after } = self;
        let wait = retry_after.map(|seconds| format!("Retry-After: {seconds}\r\n")).unwrap_or_default();
        let head = format!("HTTP/1.1 {status} -\r\nContent-Type: {media}\r\n{wait}Content-Length: {}\r\n\r\n", body.len());
        client.write_all(&[head.as_bytes(), body.as_bytes()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        Request::read(&mut text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn a_request_is_read_with_its_body_and_no_further() {
        let two =
            "PATCH /api/v1/namespaces/a/configmaps/b?force=true HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}GET / HTTP/1.1\r\n\r\n";
        let mut from = two.as_bytes();
        let first = Request::read(&mut from).unwrap().unwrap();
        assert_eq!((first.body.as_slice(), first.is_write(), first.is_watch()), (b"{}".as_slice(), true, false));
        assert_eq!(Request::read(&mut from).unwrap().unwrap().method, "GET");
        assert!(Request::read(&mut from).unwrap().is_none());
    }

    #[test]
    fn what_a_request_is_about() {
        for (path, resource) in [
            ("/api/v1/namespaces/team-a", "namespaces"),
            ("/api/v1/namespaces?labelSelector=x", "namespaces"),
            ("/api/v1/namespaces/a/configmaps/b", "configmaps"),
            ("/apis/apps/v1/namespaces/a/deployments", "deployments"),
            ("/apis/agents.slipway.dev/v1/namespaces/a/agents/b/status", "agents/status"),
            ("/apis/agents.slipway.dev/v1/teams/b/status?force=true", "teams/status"),
            ("/apis/agents.slipway.dev/v1/teams/b", "teams"),
            ("/version", "version"),
        ] {
            assert_eq!(request(&format!("GET {path} HTTP/1.1\r\n\r\n")).resource(), resource, "{path}");
        }
    }
}
