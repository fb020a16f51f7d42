//! A receiver of webhooks that answers at once, and remembers when each message came.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What the ids of messages begin with that are counted.
pub(super) const MARK: &str = "msg_bench_";

pub(super) struct Receiver {
    pub port: u16,
    heard: Arc<Mutex<Vec<Instant>>>,
}

impl Receiver {
    /// It listens until the process ends.
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let heard: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let shared = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let heard = Arc::clone(&shared);
                std::thread::spawn(move || answer(stream, &heard));
            }
        });
        Ok(Self { port, heard })
    }

    /// When messages came, in that order.
    pub(super) fn heard(&self) -> Vec<Instant> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Answers a connection's requests until it ends.
fn answer(stream: TcpStream, heard: &Mutex<Vec<Instant>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut is_message, mut ends) = (0, false, false);
        let mut line = String::new();
        loop {
            line.clear();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let header = line.trim_end().to_ascii_lowercase();
            match header.split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap_or_default(),
                Some(("webhook-id", value)) => is_message = value.starts_with(MARK),
                Some(("connection", value)) => ends = value == "close",
                _ if header.is_empty() => break,
                _ => {}
            }
        }
        io::copy(&mut stream.by_ref().take(length), &mut io::sink())?;
        if is_message {
            heard.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        }
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
        if ends {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;

    #[test]
    fn messages_are_counted_and_other_requests_answered() {
        let receiver = Receiver::start().unwrap();
        http::post(receiver.port, "/hook", "{}").unwrap();
        assert!(receiver.heard().is_empty());
        let mut connection = http::Connection::open(receiver.port, "webhook-id: msg_bench_1_1").unwrap();
        for _ in 0..2 {
            connection.post("/hook", "{\"type\": \"alert.raised\"}").unwrap();
        }
        assert_eq!(receiver.heard().len(), 2);
    }
}
