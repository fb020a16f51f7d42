//! Waiting: on what the API server says, as `kubectl get --watch` does, and on anything else, by asking again.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::net::{Shutdown, TcpStream};
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Deserializer, Value};

use crate::door;
use crate::kubectl::kubectl;

/// Waits until the objects of `kubectl get QUERY` are as `want` wants them; its error says what is still missing.
///
/// `want` is asked anew whenever one of the objects changes, and not before there is one:
/// for absence there is `kubectl wait --for=delete`.
#[track_caller]
pub fn until<T>(query: &str, seconds: u64, mut want: impl FnMut(&[Value]) -> Result<T, String>) -> T {
    let deadline = deadline(seconds);
    let mut missing = "no such object has been seen".to_owned();
    let mut objects = BTreeMap::new();
    while Instant::now() < deadline {
        let mut watch = Watch::start(query);
        objects.clear();
        loop {
            match watch.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) => match turn(&mut objects, event) {
                    Some(objects) => match want(&objects) {
                        Ok(answer) => return answer,
                        Err(problem) => missing = problem,
                    },
                    None => break,
                },
                Err(RecvTimeoutError::Timeout) => break,
                // The watch ended, as watches do; the next one begins with a list.
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(PAUSE);
                    break;
                }
            }
        }
        watch.stop();
    }
    let seen: Vec<_> = objects.into_values().map(|object| crate::compare::essence(&object)).collect();
    panic!("twice {seconds} s went by: {missing}\nkubectl get {query}\nlast seen: {:#}", Value::Array(seen));
}

/// Asks again and again, for what kubectl cannot watch. Asking is work, most often a process: what has taken long is asked less
/// often, and heard of a tenth of its time later.
#[track_caller]
pub fn poll<T>(seconds: u64, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let (begun, deadline) = (Instant::now(), deadline(seconds));
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(problem) if Instant::now() >= deadline => panic!("twice {seconds} s went by: {problem}"),
            Err(_) => thread::sleep((begun.elapsed() / 10).clamp(PAUSE, LONGEST_PAUSE)),
        }
    }
}

/// When a wait is given up. Tests say how long something may take on a machine that does nothing else; one that is busy has twice as
/// long, as what never comes is to be told from what comes late.
pub(crate) fn deadline(seconds: u64) -> Instant {
    Instant::now() + 2 * Duration::from_secs(seconds)
}

const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The objects after an event; none after an event that ends the watch.
fn turn(objects: &mut BTreeMap<String, Value>, mut event: Value) -> Option<Vec<Value>> {
    let object = event["object"].take();
    let key = format!("{}/{}", object["metadata"]["namespace"], object["metadata"]["name"]);
    match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") => drop(objects.insert(key, object)),
        Some("DELETED") => drop(objects.remove(&key)),
        _ => return None,
    }
    Some(objects.values().cloned().collect())
}

struct Watch {
    source: Source,
    events: Receiver<Value>,
}

/// Where the events come from.
enum Source {
    Connection(TcpStream),
    Process(Child),
}

impl Watch {
    fn start(query: &str) -> Self {
        // Says what to do where there is no cluster.
        let process = kubectl(format!("get {query} -o json --watch --output-watch-events"));
        if let Some((connection, events)) = door::watch(query) {
            return Self { source: Source::Connection(connection), events: heard(events) };
        }
        let mut child =
            process.command().stderr(std::process::Stdio::null()).spawn().unwrap_or_else(|e| panic!("kubectl cannot be run: {e}"));
        let stdout = child.stdout.take().into_iter();
        let events = stdout.flat_map(|stdout| Deserializer::from_reader(BufReader::new(stdout)).into_iter::<Value>().map_while(Result::ok));
        let events = heard(events);
        Self { source: Source::Process(child), events }
    }

    fn stop(&mut self) {
        match &mut self.source {
            Source::Connection(connection) => drop(connection.shutdown(Shutdown::Both)),
            Source::Process(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// The events as they come, until nobody wants them.
fn heard(events: impl Iterator<Item = Value> + Send + 'static) -> Receiver<Value> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for event in events {
            if sender.send(event).is_err() {
                break;
            }
        }
    });
    receiver
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}
