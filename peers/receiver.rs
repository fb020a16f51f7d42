//! A receiver of webhooks and of messages for Slack: it verifies signatures as the library of Standard Webhooks does.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::python::{QUIET, interpreter};
use crate::{Server, free_port, plain_http, repository};

/// A receiver that runs until this is dropped.
pub struct Receiver {
    server: Server,
    address: SocketAddr,
}

impl Receiver {
    /// One that verifies messages with this secret.
    pub fn start(secret: &str) -> Receiver {
        Receiver::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())), secret, None)
    }

    /// The same at this address. With a token, webhooks have to bring it as `Authorization: Bearer`.
    pub fn start_at(address: SocketAddr, secret: &str, token: Option<&str>) -> Receiver {
        let mut command = Command::new(interpreter());
        command.arg("-B").arg(Receiver::script()).args([address.ip().to_string(), address.port().to_string(), secret.to_owned()]);
        command.args(token).envs(QUIET);
        let server = Server::start(command, &format!("http://{address}/got"));
        Receiver { server, address }
    }

    /// The program, which verifies a single message, too: see its first lines.
    pub fn script() -> PathBuf {
        repository().join("peers/receiver.py")
    }

    /// Where signed messages go.
    pub fn hook(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Where messages for Slack go.
    pub fn slack(&self) -> String {
        format!("http://{}/services/T0/B0/good", self.address)
    }

    /// How the next messages are answered: `status`, `headers`, `delay` in seconds, and how many `times`.
    pub fn tell(&self, how: &Value) {
        let (status, answer) = plain_http("POST", &format!("http://{}/told", self.address), &[], &how.to_string());
        assert_eq!(status, 200, "the receiver is told {how}: {answer}");
    }

    /// The messages so far: `path`, `headers` in small letters, `body` as it came, what is wrong with it as `fault`, and the `status` of the
    /// answer.
    pub fn got(&self) -> Vec<Value> {
        let (status, answer) = plain_http("GET", &format!("http://{}/got", self.address), &[], "");
        assert_eq!(status, 200, "the receiver says what it got: {answer}");
        serde_json::from_str(&answer).expect("a list of messages")
    }

    pub fn log(&self) -> String {
        self.server.log()
    }
}
