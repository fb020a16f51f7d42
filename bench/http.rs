//! The least HTTP that does: one request on a connection of its own, to this machine only.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

/// A port that nobody listens on.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The body of a 200; anything else is an error.
pub(crate) fn get(port: u16, path: &str) -> io::Result<String> {
    send(port, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))
}

pub(crate) fn post(port: u16, path: &str, json: &str) -> io::Result<String> {
    let length = json.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n");
    send(port, &format!("{head}content-length: {length}\r\n\r\n{json}"))
}

/// A request with a further header, whose answer has this status.
pub(crate) fn call(port: u16, method: &str, path: &str, header: &str, json: Option<&str>, status: u16) -> io::Result<String> {
    let body = json.unwrap_or_default();
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n{header}\r\n");
    exchange(port, &format!("{head}content-length: {}\r\n\r\n{body}", body.len()), status)
}

fn send(port: u16, request: &str) -> io::Result<String> {
    exchange(port, request, 200)
}

fn exchange(port: u16, request: &str, status: u16) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with(&format!("HTTP/1.1 {status}")) => Ok(body.to_owned()),
        _ => Err(io::Error::other(answer.lines().next().unwrap_or("an empty answer").to_owned())),
    }
}
