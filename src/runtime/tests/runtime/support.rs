//! The real binary on a loopback port of its own, and a client that shows bytes as they come.

pub(crate) mod scripted;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_peers::{Postgres, Server, mock_llm};

pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipway-runtime"));
    command.env_clear();
    command
}

/// Another party's model server, which answers by the instructions it is given: the last rule with words of them
/// wins. `fragments` are the characters of a fragment, and the milliseconds between two.
pub(crate) fn model(fragments: (u32, u32), rules: &[(&str, &str)]) -> Server {
    let mut config = format!("streaming: {{chunkSize: {}, chunkIntervalMs: {}}}\nrules:\n", fragments.0, fragments.1);
    for (words, answer) in rules {
        let message = json!({"role": "assistant", "content": answer});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        let whole = json!({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}).to_string();
        let rule = json!({
            "path": "/v1/chat/completions",
            "match": if words.is_empty() { "@".to_owned() } else { format!("contains(body.messages[0].content, '{words}')") },
            "response": {"status": 200, "content": whole},
        });
        // JSON is YAML, too.
        writeln!(config, "  - {rule}").unwrap();
    }
    mock_llm(&config)
}

/// A model server of our own, which passes on what it is asked, and says the same to all.
pub(crate) fn recorded_model(answer: &str) -> (String, mpsc::Receiver<Value>) {
    let (asked, questions) = mpsc::channel();
    (recording(answer, move |_, body| _ = asked.send(body)), questions)
}

/// The same, which answers a question when the test has taken it, and all at once when the test wants no more of them.
pub(crate) fn held_model(answer: &str) -> (String, mpsc::Receiver<Value>) {
    let (asked, questions) = mpsc::sync_channel(0);
    (recording(answer, move |_, body| _ = asked.send(body)), questions)
}

/// The same, which passes on whom it was asked by, too: the value of `Authorization` in small letters, and the model.
pub(crate) fn guarded_model(answer: &str) -> (String, mpsc::Receiver<(String, String)>) {
    let (asked, questions) = mpsc::channel();
    let told = move |login, body: Value| _ = asked.send((login, body["model"].as_str().unwrap_or_default().to_owned()));
    (recording(answer, told), questions)
}

/// Its URL. Tells the login and the body of each question before it answers; a test that has ended wants none.
fn recording(answer: &str, told: impl Fn(String, Value) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let delta = json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": answer}}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let events = format!("data: {delta}\n\ndata: {end}\n\ndata: [DONE]\n\n");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut length, mut login) = (0, String::new());
            for line in reader.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()) {
                let line = line.to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                } else if let Some(value) = line.strip_prefix("authorization:") {
                    value.trim().clone_into(&mut login);
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            told(login, serde_json::from_slice(&body).unwrap());
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";
            write!(reader.into_inner(), "{head}content-length: {}\r\n\r\n{events}", events.len()).unwrap();
        }
    });
    url
}

pub(crate) struct Runtime {
    child: Child,
    port: u16,
    control_port: Option<u16>,
}

impl Runtime {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Ports are chosen by the system and read from the log.
    pub(crate) fn with(variables: &[(&str, &str)]) -> Self {
        Self::from(binary(), variables)
    }

    pub(crate) fn from(mut command: Command, variables: &[(&str, &str)]) -> Self {
        command.envs([("RUNTIME_PORT", "0"), ("RUNTIME_CONTROL_PORT", "0")]).envs(variables.iter().copied());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = Vec::new();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.by_ref().inspect(|line| said.push(line.clone())).find(|line| line.contains("listening"));
        let line: Value = serde_json::from_str(&line.unwrap_or_else(|| panic!("it did not listen: {said:#?}"))).unwrap();
        let port = |name: &str| line[name].as_u64().map(|port| u16::try_from(port).unwrap());
        // Whatever it says later is shown by a test that fails.
        thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
        Self { child, port: port("port").unwrap(), control_port: port("control_port") }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn control_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.control_port.unwrap()))
    }

    /// Sends one request to the control port.
    pub(crate) fn control(&self, line: &str, headers: &str) -> (String, String) {
        exchange(TcpStream::connect(self.control_address()).unwrap(), line, headers, "")
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends one request on a connection of its own; the answer's head and body.
    pub(crate) fn send(&self, line: &str, headers: &str, body: &str) -> (String, String) {
        exchange(self.connect(), line, headers, body)
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (head, body) = self.send(&format!("GET {path}"), "", "");
        assert!(head.starts_with("http/1.1 200"), "GET {path}: {head}\n{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Chats, and once more where the database is late with a budget, as it may be while many of them start.
    pub(crate) fn ask(&self, body: &Value) -> (String, String) {
        let body = body.to_string();
        let mut told = self.post("/chat", &body);
        for _ in 0..40 {
            if !(told.0.starts_with("http/1.1 503") && told.1.contains("while the database is away")) {
                break;
            }
            thread::sleep(Duration::from_millis(500));
            told = self.post("/chat", &body);
        }
        told
    }

    /// Asks and takes the whole answer.
    pub(crate) fn chat(&self, body: &Value) -> Value {
        let (head, answer) = self.ask(body);
        assert!(head.starts_with("http/1.1 200"), "{body}: {head}\n{answer}");
        serde_json::from_str(&answer).unwrap()
    }

    /// Asks and takes the answer event by event.
    pub(crate) fn stream(&self, body: &Value) -> Vec<Value> {
        let (head, answer) = self.post("/chat/stream", &body.to_string());
        assert!(head.contains("content-type: text/event-stream"), "{body}: {head}\n{answer}");
        events(&answer)
    }

    /// The value of a line of `/metrics`, none where there is no such line.
    pub(crate) fn metric(&self, line: &str) -> Option<f64> {
        let (_, metrics) = self.send("GET /metrics", "", "");
        let line = metrics.lines().find_map(|found| found.strip_prefix("slipway_runtime_")?.strip_prefix(line));
        line.map(|value| value.trim().parse().unwrap())
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> (String, String) {
        self.send(&format!("POST {path}"), "content-type: application/json\r\n", body)
    }

    /// Of its resident memory, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
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

pub(crate) fn exchange(mut stream: TcpStream, line: &str, headers: &str, body: &str) -> (String, String) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request(line, headers, body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    (head.to_lowercase(), body.to_owned())
}

/// The JSON of each event; chunk sizes lie between events and are passed over.
pub(crate) fn events(body: &str) -> Vec<Value> {
    let lines = body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|json| *json != "[DONE]");
    lines.map(|json| serde_json::from_str(json).unwrap()).collect()
}

/// Waits for what is bound to happen soon.
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(Duration::from_secs(20), what, look)
}

/// Waits until no runtime has a session: what one that was killed had sent is in the database then, or never comes there.
pub(crate) fn sessions_end(postgres: &Postgres) {
    let sessions = "select count(*) from pg_stat_activity where application_name = 'slipway'";
    eventually("the end of all sessions", || (postgres.psql(sessions).trim() == "0").then_some(()));
}

pub(crate) fn within<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn request(line: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("{line} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}")
}
