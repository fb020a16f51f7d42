//! Any server that answers on a port: started with a command, ready when its address answers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, folder};

/// Long, for a machine that compiles meanwhile: a server that ends is told at once in any case.
const LIMIT: Duration = Duration::from_mins(4);

/// A server that runs until this is dropped.
pub struct Server {
    // Before the folder: it is removed once nobody writes to it.
    process: Process,
    folder: TempDir,
    url: String,
}

impl Server {
    /// Starts the command; `ready` is a `http://` URL that is asked until a server answers whatever it be, or
    /// `host:port` that is connected to.
    #[expect(clippy::needless_pass_by_value, reason = "a command is made for one server")]
    pub fn start(command: Command, ready: &str) -> Server {
        Server::start_in(folder(), &command, ready)
    }

    /// The same with a folder that holds the server's files already.
    pub(crate) fn start_in(folder: TempDir, command: &Command, ready: &str) -> Server {
        let mut process = Process::start(command, folder.path(), None, Signal::TERM);
        process.wait(LIMIT, &format!("an answer of {ready}"), || answers(ready));
        Server { process, folder, url: ready.to_owned() }
    }

    pub(crate) fn with_url(self, url: String) -> Server {
        Server { url, ..self }
    }

    /// What was given as `ready`, unless the server says otherwise.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What the server has written to its output so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The server's folder of this run, removed at the end.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}

fn answers(ready: &str) -> bool {
    let Some(rest) = ready.strip_prefix("http://") else { return TcpStream::connect(ready).is_ok() };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let ask = || {
        let mut stream = TcpStream::connect(authority)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n")?;
        let mut start = [0; 12];
        stream.read_exact(&mut start)?;
        Ok::<_, std::io::Error>(start)
    };
    // A server error is what some say while they start; any other answer shows that the server is there.
    ask().is_ok_and(|start| start.starts_with(b"HTTP/1.") && start[9] != b'5')
}

#[cfg(test)]
mod tests;
