//! An OpenID Connect issuer that signs whatever a test wants signed.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::node::script;
use crate::process::folder;
use crate::{Server, free_port};

/// `oauth2-mock-server` with one RSA key, and tokens made by it.
pub struct Issuer {
    server: Server,
    control: u16,
}

impl Issuer {
    pub fn start() -> Issuer {
        let (port, control) = (free_port(), free_port());
        let folder = folder();
        let file = folder.path().join("issuer.mjs");
        fs::write(&file, include_str!("issuer.mjs")).expect("a file in a folder of ours");
        let mut command = script(&file);
        command.arg(crate::root().join("node/node_modules/oauth2-mock-server/dist/index.mjs"));
        command.args([port.to_string(), control.to_string()]);
        let server = Server::start_in(folder, &command, &format!("127.0.0.1:{control}"));
        Issuer { server: server.with_url(format!("http://127.0.0.1:{port}")), control }
    }

    /// What tokens call it.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// A token by the RSA key: issued now, for an hour, with these claims (a JSON object) besides or instead.
    pub fn token(&self, claims: &str) -> String {
        self.sign("RS256", claims)
    }

    /// The same by the key for another algorithm.
    pub fn sign(&self, algorithm: &str, claims: &str) -> String {
        self.ask(&format!("/sign?{algorithm}"), claims)
    }

    /// Fresh keys for these algorithms; the ones before are not the issuer's any more.
    pub fn rotate(&self, algorithms: &[&str]) {
        self.ask("/keys", &algorithms.join(" "));
    }

    fn ask(&self, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.control)).expect("the issuer's control listens");
        let length = body.len();
        write!(stream, "POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, text) = answer.split_once("\r\n\r\n").expect("an answer of HTTP");
        assert!(head.contains(" 200 "), "the issuer was asked {path} with {body} and said: {text}");
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_signs_what_it_is_told_and_gets_other_keys() {
        let issuer = Issuer::start();
        let keys = || {
            let address = issuer.url().strip_prefix("http://").expect("a plain address");
            let mut stream = TcpStream::connect(address).expect("it listens");
            write!(stream, "GET /jwks HTTP/1.0\r\n\r\n").expect("it reads");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("it answers");
            answer.split_once("\r\n\r\n").expect("an answer of HTTP").1.to_owned()
        };
        let first = keys();
        assert_eq!(issuer.token("{\"sub\": \"me\"}").split('.').count(), 3);
        issuer.rotate(&["RS256", "ES256"]);
        assert_ne!(first, keys());
        assert!(keys().contains("P-256"), "{}", keys());
        issuer.sign("ES256", "{}");
    }
}
