//! Taking REST's memory, with little and from one address: connections that say half of what they want, bodies and streams
//! by somebody who may chat and no more. Each was enough to have the kernel end a pod of 256 MiB.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use slipway_e2e::attack::{Installation, MEMORY, Person};
use slipway_e2e::{Api, Reply, poll};
use slipway_peers::{Cgroup, peak_memory};

const UNLIMITED: &str = r#"{"team":{"atOnce":0,"perSecond":0,"burst":0},"agent":{"atOnce":0,"perSecond":0,"burst":0},"listeners":0}"#;
/// What a healthy REST may take to say that it is, on a machine that does other things besides.
const SOON: Duration = Duration::from_secs(5);
/// All of an attack, in time.
const ATTACK: Duration = Duration::from_mins(2);

struct Attacked {
    team: &'static str,
    rest: Api,
    attacker: Person,
    somebody: Person,
    until: Instant,
    // After the process.
    _group: Cgroup,
}

impl Attacked {
    /// REST in a pod's memory, with a team that has an agent and an attacker in this role.
    #[track_caller]
    fn begin(team: &'static str, role: &str) -> (Self, Arc<Installation>) {
        let slipway = Installation::shared();
        let namespace = slipway.team(team);
        let attacker = slipway.member(&format!("{team}-attacker"), role, &namespace);
        let somebody = slipway.member(&format!("{team}-somebody"), "slipway-viewer", &namespace);
        slipway.apply(&serde_json::json!({
            "apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": {"name": "helper", "namespace": namespace},
            "spec": {"name": "Helper", "framework": "custom"},
        }));
        let group = Cgroup::with_memory(MEMORY);
        // What is left to refuse is memory's.
        let rest = slipway.rest_within(&group, &[("SLIPWAY_LIMITS", UNLIMITED)]);
        let mut this = Self { team, rest, attacker, somebody, until: Instant::now(), _group: group };
        poll(30, || if this.ask("/agents").body.contains("helper") { Ok(()) } else { Err("the agent should be listed".to_owned()) });
        // A body is read only for an agent that has its Service.
        poll(60, || {
            let service = slipway.kubectl(format!("get service helper -n {namespace}")).run();
            if service.code == Some(0) { Ok(()) } else { Err(service.stderr) }
        });
        // What was waited for is no part of the attack.
        this.until = Instant::now() + ATTACK;
        (this, slipway)
    }

    fn connect(&self) -> TcpStream {
        assert!(Instant::now() < self.until, "the attack takes too long");
        let stream = TcpStream::connect(self.rest.address()).unwrap_or_else(|e| panic!("REST should listen: {e}"));
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap_or_else(|e| panic!("{e}"));
        stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap_or_else(|e| panic!("{e}"));
        stream
    }

    /// A connection on which this was sent, as far as REST took it.
    fn sent(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        let _ = stream.write_all(bytes);
        stream
    }

    /// A chat of 1 MiB by this one of the team, but for its last byte.
    fn unfinished(&self, person: &Person) -> Vec<u8> {
        let mut chat = self.head(person, "POST", "/chat").into_bytes();
        chat.extend_from_slice(b"content-type: application/json\r\ncontent-length: 1048576\r\n\r\n");
        chat.resize(chat.len() + 1_048_575, b' ');
        chat
    }

    /// The beginning of a request by this one of the team.
    fn head(&self, person: &Person, method: &str, path: &str) -> String {
        let (team, token) = (self.team, &person.token);
        format!("{method} /api/v1/agents/helper{path} HTTP/1.1\r\nhost: a\r\nx-team: {team}\r\nauthorization: Bearer {token}\r\n")
    }

    /// A call by somebody else of the team.
    fn ask(&self, path: &str) -> Reply {
        self.rest.call("GET", path).token(&self.somebody.token).header("X-Team", self.team).send()
    }

    /// Health, on both ports; the process is there, and within its memory.
    #[track_caller]
    fn is_well(&self) {
        for address in [self.rest.address(), self.rest.health()] {
            let begun = Instant::now();
            let answer = Api::at(address).whole("GET", "/healthz").send();
            assert!(answer.status == 200 && begun.elapsed() < SOON, "{address}: {} after {:?}", answer.status, begun.elapsed());
        }
        let peak = peak_memory(self.rest.id());
        assert!(peak < MEMORY, "{} MiB", peak >> 20);
    }

    /// Somebody else is served meanwhile.
    #[track_caller]
    fn serves(&self) {
        let answer = self.ask("/agents");
        assert!(answer.status == 200, "somebody else should get a list: {} {}", answer.status, answer.body);
    }
}

/// The status of an answer, or 0 where the connection was closed.
fn status(stream: &mut TcpStream) -> u16 {
    let mut head = [0; 12];
    match stream.read_exact(&mut head) {
        Ok(()) => String::from_utf8_lossy(&head)[9..].trim().parse().unwrap_or(0),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => panic!("neither an answer nor an end came"),
        Err(_) => 0,
    }
}

/// The attacker has no token: 3,600 connections with 60 KiB of a head each, and as many with a few bytes.
#[test]
fn thousands_of_half_heads_take_no_more_than_their_share() {
    let (attacked, _slipway) = Attacked::begin("half-heads", "slipway-viewer");
    for head in [60 * 1024, 16] {
        let half = format!("GET /api/v1/agents HTTP/1.1\r\nhost: a\r\nx: {}", "x".repeat(head));
        let mut held = Vec::new();
        for at in 1..=3600 {
            held.push(attacked.sent(half.as_bytes()));
            if at % 600 == 0 {
                attacked.is_well();
                attacked.serves();
            }
        }
    }
    attacked.is_well();
}

/// The attacker may chat: 200 bodies of 1 MiB, each sent but for its last byte.
#[test]
fn bodies_of_a_mebibyte_take_no_more_than_a_share() {
    let (attacked, _slipway) = Attacked::begin("bodies", "slipway-chat");
    let body = attacked.unfinished(&attacked.attacker);
    let mut held: Vec<TcpStream> = thread::scope(|scope| {
        let senders: Vec<_> = (0..8).map(|_| scope.spawn(|| (0..25).map(|_| attacked.sent(&body)).collect::<Vec<_>>())).collect();
        senders.into_iter().flat_map(|sender| sender.join().unwrap_or_else(|_| panic!("a sender failed"))).collect()
    });
    attacked.is_well();
    attacked.serves();
    for stream in &mut held {
        let _ = stream.write_all(b" ");
    }
    let answers: Vec<u16> = held.iter_mut().map(status).collect();
    assert!(!answers.contains(&200) && answers.contains(&429), "{answers:?}");
    drop(held);
    attacked.serves();
    attacked.is_well();
}

/// The attacker may look: 2,400 streams of events, which nobody reads.
#[test]
fn thousands_of_event_streams_take_no_more_than_a_share() {
    let (attacked, _slipway) = Attacked::begin("streams", "slipway-viewer");
    let listen = attacked.head(&attacked.attacker, "GET", "/events") + "\r\n";
    let mut held: Vec<TcpStream> = (0..2400).map(|_| attacked.sent(listen.as_bytes())).collect();
    attacked.is_well();
    let answers: Vec<u16> = held.iter_mut().map(status).collect();
    let (open, refused) =
        (answers.iter().filter(|answer| **answer == 200).count(), answers.iter().filter(|answer| **answer == 429).count());
    let others: Vec<u16> = answers.iter().copied().filter(|answer| !matches!(answer, 200 | 429)).collect();
    assert!(open > 50 && open < 1000 && refused > 0, "{open} are open, {refused} refused; the others: {others:?}");
    attacked.serves();
    drop(held);
    attacked.serves();
    attacked.is_well();
}

#[test]
fn all_of_it_by_many_at_once_takes_no_more_than_there_is() {
    a_crowd("crowd");
}

/// Five developers of one team do all of it together, and strangers besides: there is no share left, and health still answers.
#[track_caller]
pub(crate) fn a_crowd(team: &'static str) {
    let (attacked, slipway) = Attacked::begin(team, "slipway-developer");
    let member = |at| slipway.member(&format!("{team}-{at}"), "slipway-developer", &format!("team-{team}"));
    let crowd: Vec<Person> = (0..5).map(member).collect();
    let half = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}", "x".repeat(40 * 1024));
    // Large when it is read, though it is small: each comma is a value.
    let values = format!("{{\"name\": \"x\", \"tools\": [{}\"\"]}}", "\"\",".repeat(20_000));
    let mut held = Vec::new();
    for _ in 0..20 {
        for person in &crowd {
            held.push(attacked.sent(&attacked.unfinished(person)));
            let listen = attacked.head(person, "GET", "/events") + "\r\n";
            held.extend((0..10).map(|_| attacked.sent(listen.as_bytes())));
            let begin = attacked.head(person, "POST", "").replace("/agents/helper", "/agents");
            let length = values.len();
            let create = format!("{begin}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{values}");
            held.push(attacked.sent(create.as_bytes()));
            held.extend((0..10).map(|_| attacked.sent(half.as_bytes())));
        }
        attacked.is_well();
    }
    drop(held);
    // There was no share left. What the crowd held is given back once REST has seen that two thousand connections were closed.
    poll(10, || match attacked.ask("/agents") {
        answer if answer.status == 200 => Ok(()),
        answer => Err(format!("somebody else should get a list: {} {}", answer.status, answer.body)),
    });
    attacked.is_well();
}

/// The attacker has no token that is any good, and tries 300. Other tests have tokens reviewed meanwhile: those that this REST sends
/// it counts itself, and the API server has had all of them.
#[test]
fn three_hundred_bad_tokens_are_not_as_many_reviews() {
    let (attacked, slipway) = Attacked::begin("tokens", "slipway-viewer");
    let reviews = || -> u64 {
        let metrics = slipway.kubectl("get --raw /metrics").ok();
        let counted =
            metrics.lines().filter(|line| line.starts_with("apiserver_request_total{") && line.contains("resource=\"tokenreviews\""));
        counted.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    let sent = || -> u64 {
        let metrics = attacked.rest.metrics();
        let counted = metrics.lines().filter(|line| line.starts_with("slipway_api_requests_total{") && line.contains("\"tokenreviews\""));
        counted.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    let before = (sent(), reviews());
    let answers: Vec<u16> =
        (0..300).map(|at| attacked.rest.call("GET", "/agents").token(&format!("bad.{at}.token")).send().status).collect();
    assert!(answers.iter().all(|answer| [401, 429].contains(answer)) && answers.contains(&429), "{answers:?}");
    let (asked, had) = (sent() - before.0, reviews() - before.1);
    let refused = answers.iter().filter(|answer| **answer == 401).count() as u64;
    assert!((refused..250).contains(&asked) && asked <= had, "{asked} reviews of {refused} tokens; the API server had {had}");
    attacked.serves();
}
