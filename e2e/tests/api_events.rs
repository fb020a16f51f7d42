//! What happens to an agent, as its listeners are told.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_e2e::{Api, Sent, Team, poll};

const EVENTS: &str = "/agents/helper/events";

fn data(sent: &Sent) -> Value {
    serde_json::from_str(&sent.data).unwrap()
}

/// An Event of our own making.
fn event(team: &Team, name: &str, kind: &str, note: &str) -> Value {
    let version = if kind == "Agent" { "agents.slipway.dev/v1" } else { "apps/v1" };
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": name, "namespace": team.namespace, "annotations": {"agents.slipway.dev/payload": json!({"at": name}).to_string()}},
        "eventTime": "2026-11-21T10:00:00.000000Z", "type": "Normal", "reason": "Tested", "note": note, "action": "Test",
        "reportingController": "slipway-test", "reportingInstance": "test",
        "regarding": {"apiVersion": version, "kind": kind, "name": "helper", "namespace": team.namespace},
    })
}

fn publish(team: &Team, events: impl IntoIterator<Item = Value>) {
    let items: Vec<Value> = events.into_iter().collect();
    team.kubectl("create -f -").input(json!({"apiVersion": "v1", "kind": "List", "items": items})).ok();
}

/// The agent, of which the operator has told all that it has to tell.
fn suspended(team: &Team) {
    team.agent("helper", &json!({"suspend": true}));
    poll(30, || {
        let told = team.kubectl("get events --field-selector reason=Suspended,involvedObject.name=helper").json();
        if told["items"] == json!([]) { Err("it should be told that it is suspended".to_owned()) } else { Ok(()) }
    });
}

/// `curl -N` in a process of its own, as anybody would listen.
struct Curl(Child, BufReader<std::process::ChildStdout>);

impl Curl {
    fn listen(url: &str) -> Self {
        let mut child = Command::new("curl").args(["-sN", url]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self(child, lines)
    }

    /// Reads events until one has this reason.
    fn until(&mut self, reason: &str) -> Vec<Value> {
        let mut heard = Vec::new();
        let mut line = String::new();
        while self.1.read_line(&mut line).unwrap() > 0 {
            if let Some(data) = line.strip_prefix("data: ") {
                let data: Value = serde_json::from_str(data).unwrap();
                let found = data["reason"] == reason;
                heard.push(data);
                if found {
                    return heard;
                }
            }
            line.clear();
        }
        panic!("the stream ended before {reason} came: {heard:?}");
    }
}

impl Drop for Curl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_listener_hears_of_a_restart_and_of_the_end() {
    let team = Team::new("events");
    let agent = team.agent("helper", &json!({}));
    let api = Api::of(&team);
    let mut curl = Curl::listen(&format!("{}/api/v1{EVENTS}", api.url()));
    let begin = curl.until("DeploymentReady");
    assert!(
        begin.iter().any(|event| event["reason"] == "Created" && event["object"] == json!({"kind": "Agent", "name": "helper"})),
        "{begin:?}"
    );
    assert!(begin.iter().any(|event| event["object"] == json!({"kind": "Deployment", "name": "helper"})), "{begin:?}");
    assert!(
        begin.iter().all(|event| event["agent_id"].as_str().unwrap().starts_with("ag_") && event["timestamp"].is_string()),
        "{begin:?}"
    );

    // New pods: the Deployment says so.
    agent.patch(&json!({"systemPrompt": "Another."}));
    let restarted = curl.until("ScalingReplicaSet");
    assert_eq!(restarted.last().unwrap()["object"]["kind"], "Deployment");
    agent.kubectl("delete").arg("--wait=false").ok();
    let end = curl.until("Deleted");
    assert!(end.last().unwrap()["message"].as_str().unwrap().contains("was deleted"), "{end:?}");
    let mut rest = String::new();
    curl.1.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.trim(), "", "nothing comes after the end");
    poll(20, || {
        let status = api.call("GET", EVENTS).send().status;
        if status == 404 { Ok(()) } else { Err(format!("the agent should be gone: {status}")) }
    });
}

#[test]
fn the_last_fifty_are_told_again_and_what_was_missed_by_any_replica() {
    let team = Team::new("events-replay");
    suspended(&team);
    team.agent("other", &json!({"suspend": true}));
    let (one, two) = (Api::of(&team), Api::of(&team));
    publish(
        &team,
        (0..60).map(|at| event(&team, &format!("e-{at:02}"), if at % 2 == 0 { "Agent" } else { "Deployment" }, &format!("note {at}"))),
    );
    let mut stream = one.call("GET", EVENTS).stream();
    let told: Vec<Sent> = (0..50).map(|_| stream.event(10).unwrap()).collect();
    let notes: Vec<String> = told.iter().map(|sent| data(sent)["message"].as_str().unwrap().to_owned()).collect();
    assert_eq!(notes, (10..60).map(|at| format!("note {at}")).collect::<Vec<_>>());
    let ids: Vec<u64> = told.iter().map(|sent| sent.id.parse().unwrap()).collect();
    assert!(ids.is_sorted() && told.iter().all(|sent| sent.event == "Normal"), "{ids:?}");
    assert_eq!(data(&told[0])["payload"], json!({"at": "e-10"}), "ours carry more");

    // Live, and of this agent alone.
    let mut foreign = event(&team, "f-1", "Agent", "another agent's");
    foreign["regarding"]["name"] = json!("other");
    let mut stranger = event(&team, "s-1", "Agent", "a stranger's");
    stranger["reportingController"] = json!("stranger");
    publish(&team, [foreign, stranger]);
    let next = stream.event(10).unwrap();
    assert_eq!((&data(&next)["message"], &data(&next)["payload"]), (&json!("a stranger's"), &Value::Null), "{next:?}");

    // It repeats, and is told again under a new id.
    team.kubectl("patch events.events.k8s.io e-00 --type=merge -p")
        .arg(json!({"series": {"count": 2, "lastObservedTime": "2026-11-21T11:00:00.000000Z"}}))
        .ok();
    let again = stream.event(10).unwrap();
    assert_eq!((&data(&again)["message"], &data(&again)["timestamp"]), (&json!("note 0"), &json!("2026-11-21T11:00:00Z")));
    assert!(again.id.parse::<u64>().unwrap() > next.id.parse().unwrap(), "{again:?}");

    // Another replica goes on where this one left off.
    drop(stream);
    publish(&team, [event(&team, "late", "Deployment", "while nobody listened")]);
    let mut stream = two.call("GET", EVENTS).header("Last-Event-ID", &*told[49].id).stream();
    for note in ["a stranger's", "note 0", "while nobody listened"] {
        assert_eq!(data(&stream.event(10).unwrap())["message"], note);
    }
    two.call("GET", EVENTS).header("Last-Event-ID", "yesterday").expect(400);
    two.call("GET", "/agents/nobody/events").expect(404);
}

#[test]
fn silence_is_filled_every_fifteen_seconds() {
    let team = Team::new("events-silence");
    suspended(&team);
    let api = Api::of(&team);
    let mut stream = api.call("GET", EVENTS).stream();
    let mut heard = Instant::now();
    for _ in 0..2 {
        while stream.line(20).unwrap() != ": keep-alive" {
            heard = Instant::now();
        }
        // A busy machine tells it late, and none too early.
        assert!((14..20).contains(&heard.elapsed().as_secs()), "{:?}", heard.elapsed());
        heard = Instant::now();
    }
}

/// How many watches of Events were begun.
fn watches(api: &Api) -> u64 {
    let metrics = api.metrics();
    let lines =
        metrics.lines().filter(|line| line.starts_with("slipway_api_requests_total{") && line.contains("WATCH") && line.contains("events"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

fn resident(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Two thousand who listen share two watches; one who does not read loses what it did not read and is told so, and
/// nobody else notices.
#[test]
fn thousands_listen_to_one_watch_and_a_slow_one_holds_up_nobody() {
    const LISTENERS: usize = 2000;
    let team = Team::new("events-many");
    suspended(&team);
    let api = Api::of(&team);
    let address = api.url().strip_prefix("http://").unwrap().to_owned();
    let listen = || {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(stream, "GET /api/v1{EVENTS} HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
        stream
    };
    drop(noted_after(listen(), &team, "first"));
    let before = resident(api.id());
    let mut crowd: Vec<TcpStream> = (0..LISTENERS).map(|_| listen()).collect();
    publish(&team, [event(&team, "to-all", "Agent", "to all")]);
    let begun = Instant::now();
    for stream in &mut crowd {
        let mut heard = Vec::new();
        let mut chunk = [0; 4096];
        while !String::from_utf8_lossy(&heard).contains("to all") {
            let read = stream.read(&mut chunk).unwrap();
            assert!(read > 0, "a listener was dropped");
            heard.extend_from_slice(&chunk[..read]);
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let grown = resident(api.id()) - before;
    assert!(grown / LISTENERS as u64 <= 32, "{grown} KiB for {LISTENERS} listeners");
    assert_eq!(watches(&api), 3, "one for each kind");

    // One stops reading while more happens than a log and all buffers hold: for less than the minute after which the connection of
    // who takes nothing is reset, whatever was still to be told. A process for each call would take longer on a busy machine.
    let cluster = Api::kubernetes(None);
    let mut slow = crowd.pop().unwrap();
    let mut quick = crowd.pop().unwrap();
    drop(crowd);
    let stopped = Instant::now();
    let payload = json!("x".repeat(15_000)).to_string();
    let create = format!("/apis/events.k8s.io/v1/namespaces/{}/events", team.namespace);
    for round in 0..12 {
        for at in 0..60 {
            let mut event = event(&team, &format!("m-{round}-{at}"), "Agent", &format!("round {round} {at}."));
            event["metadata"]["annotations"]["agents.slipway.dev/payload"] = json!(payload);
            cluster.whole("POST", &create).json(&event).expect(201);
        }
        // The quick one is never further behind than a round, however busy the machine is.
        let (mut heard, mut chunk, last) = (Vec::new(), vec![0; 65536], format!("round {round} 59."));
        while !String::from_utf8_lossy(&heard).contains(&last) {
            let read = quick.read(&mut chunk).unwrap();
            assert!(read > 0, "the quick one was dropped");
            heard.drain(..heard.len().saturating_sub(last.len()));
            heard.extend_from_slice(&chunk[..read]);
        }
    }
    let stopped = stopped.elapsed();
    let (heard, end) = until_the_end(&mut slow);
    assert!(
        heard.contains("event: Warning\ndata: {\"type\":\"Warning\",\"reason\":\"TooSlow\""),
        "nothing was read for {stopped:?}, and the stream came to {end:?} after: {}",
        String::from_utf8_lossy(&heard.as_bytes()[heard.len().saturating_sub(2000)..])
    );

    // When the last one has left, the watches end; the next one begins them again.
    drop((slow, quick));
    poll(30, || if api.metrics().contains("\nslipway_rest_listeners 0\n") { Ok(()) } else { Err("nobody listens".to_owned()) });
    std::thread::sleep(Duration::from_secs(7));
    let mut stream = api.call("GET", EVENTS).stream();
    stream.event(10);
    poll(10, || match watches(&api) {
        6 => Ok(()),
        begun => Err(format!("{begun} watches were begun, and each kind's should be for the second time")),
    });
}

/// All that is still to be read, and how it ended: a stream that is closed or reset has ended, one that stays open has not.
fn until_the_end(stream: &mut TcpStream) -> (String, Result<(), ErrorKind>) {
    let (mut heard, mut chunk) = (Vec::new(), vec![0; 65536]);
    let end = loop {
        match stream.read(&mut chunk) {
            Ok(0) => break Ok(()),
            Ok(read) => heard.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break Err(error.kind()),
            Err(error) => panic!("the stream should end: {error}"),
        }
    };
    (String::from_utf8_lossy(&heard).into_owned(), end)
}

fn noted_after(mut stream: TcpStream, team: &Team, note: &str) -> TcpStream {
    publish(team, [event(team, note, "Agent", note)]);
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains(note) {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).unwrap();
        assert!(read > 0, "the listener was dropped");
        heard.extend_from_slice(&chunk[..read]);
    }
    stream
}
