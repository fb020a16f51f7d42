//! One request to a server of a test, over HTTP and without TLS: to fill it, or to ask what it got.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// The status and the body of the answer; 0 while nobody answers. The URL begins with `http://`.
pub fn plain_http(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let rest = url.strip_prefix("http://").expect("a URL without TLS");
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // Of an answer to HTTP/1.0 the end is that of the connection.
    let mut head = format!("{method} /{path} HTTP/1.0\r\nHost: {authority}\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let ask = || {
        let mut stream = TcpStream::connect(authority)?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = ask().unwrap_or_default();
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_default();
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}
