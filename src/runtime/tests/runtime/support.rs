//! The real binary on a loopback port of its own, and a client that shows bytes as they come.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipway-runtime"));
    command.env_clear();
    command
}

pub(crate) struct Runtime {
    child: Child,
    port: u16,
}

impl Runtime {
    pub(crate) fn start() -> Self {
        let mut child = binary().env("RUNTIME_PORT", "0").stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find(|line| line.contains("listening")).expect("a line that says listening");
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let port = line["port"].as_u64().unwrap().try_into().unwrap();
        thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends one request on a connection of its own; the answer's head and body.
    pub(crate) fn send(&self, line: &str, headers: &str, body: &str) -> (String, String) {
        let mut stream = self.connect();
        stream.write_all(request(line, headers, body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
        (head.to_lowercase(), body.to_owned())
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> (String, String) {
        self.send(&format!("POST {path}"), "content-type: application/json\r\n", body)
    }

    pub(crate) fn terminate(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn request(line: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("{line} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}")
}
