//! Prometheus, as Debian has it: scrapes what a test serves, evaluates rules, and answers queries; and promtool, its companion.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::folder;
use crate::{Server, free_port, plain_http, unpacked};

/// A server that runs until this is dropped. It keeps 30 days, or 512 MB.
pub struct Prometheus {
    server: Server,
    port: u16,
}

const WEB_CONFIG: &str = "web.yml";
/// Of the password, by bcrypt.
const HASH: &str = "$2b$04$jd4ARzqyiSc6UuPazKpGo.GkvcftaFI8UTiWJniEchLY343s1lKLG";
/// The same login as browsers send it.
const LOGIN: &str = "Basic cmVhZGVyOmh1bnRlcjItaXMtcmlnaHQ=";

/// What is scraped: `host:port`, and the labels that a scrape adds, as those that a pod's discovery brings.
pub struct Target<'a> {
    pub address: &'a str,
    pub labels: &'a [(&'a str, &'a str)],
}

impl Prometheus {
    pub const USER: &str = "reader";
    pub const PASSWORD: &str = "hunter2-is-right";

    /// Scrapes these each second, and evaluates the rules of these files as often.
    pub fn start(targets: &[Target<'_>], rules: &[&Path]) -> Prometheus {
        Prometheus::start_in(folder(), targets, rules)
    }

    /// One that has these samples, in OpenMetrics text with a timestamp in seconds each, as if it had scraped them.
    pub fn with_history(samples: &str) -> Prometheus {
        let folder = folder();
        let file = folder.path().join("samples");
        fs::write(&file, samples).expect("a file in a folder of ours");
        let made = promtool(&["tsdb", "create-blocks-from", "openmetrics", &file.to_string_lossy(), &data(&folder)]);
        assert!(made.status.success(), "promtool takes no samples: {}", String::from_utf8_lossy(&made.stderr));
        Prometheus::start_in(folder, &[], &[])
    }

    /// One that answers `USER` with `PASSWORD` alone, and has nothing.
    pub fn with_login() -> Prometheus {
        let folder = folder();
        fs::write(folder.path().join(WEB_CONFIG), format!("basic_auth_users: {{{}: '{HASH}'}}\n", Self::USER))
            .expect("a file in a folder of ours");
        let prometheus = Prometheus::start_in(folder, &[], &[]);
        let deadline = Instant::now() + Duration::from_mins(1);
        // Until it is ready, it answers with 503.
        let url = format!("{}/-/ready", prometheus.url());
        while plain_http("GET", &url, &[("Authorization", LOGIN)], "").0 != 200 {
            assert!(Instant::now() < deadline, "Prometheus is not ready; the server said:\n{}", prometheus.log());
            std::thread::sleep(Duration::from_millis(100));
        }
        prometheus
    }

    fn start_in(folder: TempDir, targets: &[Target<'_>], rules: &[&Path]) -> Prometheus {
        let port = free_port();
        let config = folder.path().join("prometheus.yml");
        fs::write(&config, configuration(targets, rules)).expect("a file in a folder of ours");
        let mut command = unpacked::program("usr/bin/prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data(&folder)))
            .args(["--storage.tsdb.retention.time=30d", "--storage.tsdb.retention.size=512MB", "--log.level=warn"])
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let web = folder.path().join(WEB_CONFIG);
        if web.exists() {
            command.arg(format!("--web.config.file={}", web.display()));
        }
        let server = Server::start_in(folder, &command, &format!("http://127.0.0.1:{port}/-/ready"));
        Prometheus { server, port }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The result of an instant query: what of it there is, or Prometheus's words about what is wrong with it.
    pub fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        match self.get(&format!("/api/v1/query?query={}", percent_encoded(expression))) {
            Ok(data) => Ok(data["result"].as_array().cloned().unwrap_or_default()),
            Err(why) => Err(format!("{expression}: {why}")),
        }
    }

    /// The `data` of an answer of its API.
    pub fn get(&self, path: &str) -> Result<Value, String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(Duration::from_mins(1))).map_err(|error| error.to_string())?;
        // Of an answer to HTTP/1.0 the end is that of the connection.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("no answer but {answer:?}"))?;
        let mut body: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {head}\n{body}"))?;
        match body["status"].as_str() {
            Some("success") => Ok(body["data"].take()),
            _ => Err(body["error"].to_string()),
        }
    }

    /// Asks until there is a result that holds.
    pub fn until(&self, expression: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let found = self.query(expression).unwrap_or_else(|why| panic!("{why}"));
            if holds(&found) {
                return found;
            }
            assert!(Instant::now() < deadline, "{expression} comes to {found:?}; the server said:\n{}", self.server.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub fn log(&self) -> String {
        self.server.log()
    }
}

/// Runs promtool in the repository's root.
pub fn promtool(arguments: &[&str]) -> Output {
    let mut command: Command = unpacked::program("usr/bin/promtool");
    command.args(arguments).current_dir(crate::repository());
    command.output().unwrap_or_else(|error| panic!("promtool could not be started: {error}"))
}

fn data(folder: &TempDir) -> String {
    folder.path().join("data").display().to_string()
}

fn configuration(targets: &[Target<'_>], rules: &[&Path]) -> String {
    let mut text = "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files:\n".to_owned();
    for file in rules {
        let _ = writeln!(text, "  - {}", Value::from(file.display().to_string()));
    }
    text.push_str("scrape_configs:\n  - job_name: test\n    static_configs:\n");
    for target in targets {
        let labels: serde_json::Map<_, _> = target.labels.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
        // JSON is YAML, too.
        let _ = writeln!(text, "      - {}", serde_json::json!({"targets": [target.address], "labels": labels}));
    }
    text
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_scrapes_itself_and_says_what_is_no_query() {
        let port = free_port();
        // Nobody listens there, which Prometheus says, too.
        let address = format!("127.0.0.1:{port}");
        let prometheus = Prometheus::start(&[Target { address: &address, labels: &[("agent", "a-\"b\"")] }], &[]);
        let found = prometheus.until("up", |found| !found.is_empty());
        assert_eq!((&found[0]["metric"]["agent"], &found[0]["value"][1]), (&"a-\"b\"".into(), &"0".into()));
        prometheus.query("sum by (").expect_err("it is no query");
    }

    #[test]
    fn a_history_is_there_as_if_it_had_been_scraped() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
        let mut samples = "# TYPE turns counter\n".to_owned();
        for minute in (0..=180).rev() {
            let _ = writeln!(samples, "turns_total{{agent=\"a\"}} {} {}", 10 * (180 - minute), now - minute * 60);
        }
        samples.push_str("# EOF\n");
        let prometheus = Prometheus::with_history(&samples);
        let found = prometheus.until("increase(turns_total[1h])", |found| !found.is_empty());
        let value: f64 = found[0]["value"][1].as_str().and_then(|value| value.parse().ok()).expect("a number");
        assert!((value - 600.0).abs() < 15.0, "{value}");
    }
}
