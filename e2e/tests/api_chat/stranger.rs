//! An agent of somebody's own on loopback, which does as it is told: it keeps what it hears, byte by byte, and
//! answers bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What it does with a request, of which it gets head and body.
type Manner = dyn Fn(&str, &mut TcpStream) + Send + Sync;

pub(super) struct Stranger {
    pub url: String,
    heard: Arc<Mutex<Vec<String>>>,
    left: Arc<Mutex<usize>>,
}

impl Stranger {
    /// Each connection is one request; the thread ends with the test's process.
    pub(super) fn who(manner: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (heard, left) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let (manner, keeps, leaves): (Arc<Manner>, _, _) = (Arc::new(manner), heard.clone(), left.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (manner, keeps, leaves) = (manner.clone(), keeps.clone(), leaves.clone());
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let request = request(&mut stream);
                    keeps.lock().unwrap().push(request.clone());
                    manner(&request, &mut stream);
                    // A client that still listens is waited for; one that has left is noticed.
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                    while !matches!(stream.read(&mut [0; 1024]), Ok(0) | Err(_)) {}
                    *leaves.lock().unwrap() += 1;
                });
            }
        });
        Self { url, heard, left }
    }

    /// Who answers every request with these bytes.
    pub(super) fn saying(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::who(move |_, stream| drop(stream.write_all(&answer)))
    }

    /// Every request so far, head and body as they came.
    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// How many of those it talked to are gone.
    pub(super) fn left(&self) -> usize {
        *self.left.lock().unwrap()
    }
}

/// Whether the other side hangs up within `seconds`, sending nothing more.
pub(super) fn hangs_up(stream: &mut TcpStream, seconds: u64) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(seconds))).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(read) => read == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

pub(super) fn json(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// A request whose body is as long as its head says.
fn request(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        read.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&read).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    read.extend(body);
    String::from_utf8(read).unwrap()
}
