//! The least HTTP that does, to this machine only: one request on a connection of its own, or one after the other on a connection that is
//! kept.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::bail;

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

/// A connection that is kept.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    /// The caller's.
    headers: String,
}

impl Connection {
    pub(crate) fn open(port: u16, headers: &str) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), headers: headers.to_owned() })
    }

    /// The seconds until a good answer was there.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> anyhow::Result<f64> {
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{}\r\n", self.headers);
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        let begun = Instant::now();
        self.stream.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?;
        let mut length = None;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("content-length")
            {
                length = Some(value.parse()?);
            }
        }
        let answer = match length {
            Some(length) => self.bytes(length)?,
            None => self.chunks()?,
        };
        let took = begun.elapsed().as_secs_f64();
        if !status.starts_with("HTTP/1.1 200") {
            bail!("{path}: {status}: {}", String::from_utf8_lossy(&answer));
        }
        Ok(took)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn chunks(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let length = usize::from_str_radix(&self.line()?, 16)?;
            all.extend(self.bytes(length)?);
            self.line()?;
            if length == 0 {
                return Ok(all);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_to_their_end() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let mut peer = listener.accept().unwrap().0;
            let answers = [
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\n\r\nslow",
            ];
            for answer in answers {
                let mut asked = [0; 4096];
                assert!(peer.read(&mut asked).unwrap() > 0);
                peer.write_all(answer.as_bytes()).unwrap();
            }
        });
        let mut connection = Connection::open(port, "x-team: a").unwrap();
        assert!(connection.post("/a", "{}").is_ok() && connection.post("/b", "{}").is_ok());
        assert_eq!(connection.post("/c", "{}").unwrap_err().to_string(), "/c: HTTP/1.1 429 Too Many Requests: slow");
        server.join().unwrap();
    }
}
