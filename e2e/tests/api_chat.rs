//! Talking to agents through REST: chats, streams, conversations and memories are passed on, whole and at once, and
//! nothing that should not be is passed with them.

mod stranger;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Team, poll};
use slipway_peers::free_port;

use stranger::{Stranger, hangs_up, json as answer};

const CHAT: &str = "/agents/helper/chat";
const ODD: &[u8] = b"data: {\"type\":\"token\"}\r\n\r\n:c\n\xff\x00data:x\n\n\n";
const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\
                    Connection: close\r\nSet-Cookie: a=b\r\n\r\n";

/// An Agent whose place is taken by the server at `SLIPWAY_AGENT_ADDRESS`.
fn stand_in(team: &Team) -> Agent<'_> {
    let agent = team.agent("helper", &json!({}));
    agent.until("there", 30, |agent| agent["status"]["observedGeneration"].is_i64());
    // A status may come before the Service: while the namespace's Secrets are not read yet. REST asks nobody without it.
    poll(30, || {
        let service = agent.service();
        if service["spec"]["clusterIP"].is_string() { Ok(()) } else { Err(format!("the agent should have a Service: {service}")) }
    });
    agent
}

/// The token of a developer who may talk to agents, whatever the installed chart's role says of that.
fn developer(team: &Team) -> String {
    let metadata = json!({"name": "e2e-chat"});
    let rules = json!([{"apiGroups": ["agents.slipway.dev"], "resources": ["agents/chat"], "verbs": ["create"]}]);
    team.apply(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules}));
    let token = team.token("developer");
    team.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "e2e-chat"},
        "subjects": [{"kind": "ServiceAccount", "name": "e2e-developer", "namespace": team.namespace}],
    }));
    token
}

/// REST that takes whatever is at `url` for the team's agents.
fn api(team: &Team, url: &str, more: &[(&str, &str)]) -> Api {
    let mut environment = vec![("AUTH_ENABLED", "false"), ("SLIPWAY_DEFAULT_NAMESPACE", &*team.namespace), ("SLIPWAY_AGENT_ADDRESS", url)];
    environment.extend(more);
    Api::start(&environment)
}

fn hello() -> Value {
    json!({"message": "hello"})
}

/// Sends these very bytes and reads until the end, or for five seconds.
fn raw(api: &Api, bytes: &str) -> String {
    let mut stream = TcpStream::connect(api.url().strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// By way of the API server, as from a laptop, with tokens.
#[test]
fn an_agent_is_talked_to_through_rest() {
    let team = Team::new("chat");
    let agent = team.agent("helper", &json!({"modelId": "stub-script", "storage": "memory", "strategy": "agent-react"}));
    agent.ready();
    let api = Api::start(&[]);
    let (developer, viewer) = (developer(&team), team.token("viewer"));
    let call = |method: &str, path: &str| api.call(method, &format!("/agents/helper{path}")).token(&developer);

    let said = poll(20, || {
        let reply = call("POST", "/chat").json(&json!({"message": "text good day", "conversation_id": "conv_1"})).send();
        if reply.status == 200 { Ok(reply.json()) } else { Err(format!("an answer should come: {reply:?}")) }
    });
    assert_eq!((&said["data"]["output"], &said["data"]["conversation_id"]), (&json!("good day"), &json!("conv_1")), "{said}");
    let list = call("GET", "/conversations?limit=1&search=day").expect(200);
    assert_eq!((&list["data"][0]["id"], list["data"].as_array().map(Vec::len)), (&json!("conv_1"), Some(1)), "{list}");
    let detail = call("GET", "/conversations/conv_1").expect(200);
    assert_eq!(detail["data"]["messages"][1]["content"], "good day", "{detail}");
    assert_eq!(call("GET", "/conversations/conv_1/status").expect(200), json!({"data": {"generating": false, "partial": null}}));
    assert!(call("GET", "/suggestions?conversation_id=conv_1").expect(200)["data"]["suggestions"].is_array());

    let kept = call("POST", "/memory").json(&json!({"content": "Ada likes green tea", "category": "preference"})).send();
    assert!(kept.status == 201, "{kept:?}");
    let id = kept.json()["data"]["id"].as_str().unwrap().to_owned();
    assert_eq!(call("GET", "/memory").expect(200)["data"][0]["id"], json!(id));
    assert_eq!(call("GET", "/memory/status").expect(200)["data"]["count"], 1);
    let found = call("POST", "/memory/search").json(&json!({"query": "green tea"})).expect(200);
    assert_eq!(found["data"]["results"][0]["content"], "Ada likes green tea", "{found}");
    assert_eq!(call("DELETE", &format!("/memory/{id}")).expect(200)["data"], json!({"id": id, "deleted": true}));
    assert_eq!(call("GET", "/memory").expect(200)["data"], json!([]), "it is forgotten");
    assert_eq!(call("DELETE", "/conversations/conv_1").expect(200)["data"], json!({"id": "conv_1", "deleted": true}));
    assert_eq!(call("GET", "/conversations").expect(200)["data"], json!([]), "nothing is left of it");

    // What the agent refuses is refused in REST's words, at REST's path.
    let gone = call("GET", "/conversations/conv_1").expect(404);
    assert_eq!(gone["path"], "/api/v1/agents/helper/conversations/conv_1");
    assert!(gone["message"].as_str().unwrap().contains("conv_1"), "{gone}");
    assert!(call("POST", "/chat").json(&json!({})).expect(400)["message"].as_str().unwrap().contains("`message`"));
    call("POST", "/chat").body("text/plain", "hello").expect(415);
    call("POST", "/chat").body("application/json", vec![b' '; 1024 * 1024 + 1]).expect(413);
    call("GET", "/conversations?limti=1").expect(400);

    for (method, path) in [("POST", "/chat"), ("POST", "/chat/stream"), ("GET", "/conversations"), ("DELETE", "/memory/mem_1")] {
        let refused = api.call(method, &format!("/agents/helper{path}")).token(&viewer).json(&hello()).expect(403);
        assert!(refused["message"].as_str().unwrap().contains("create agents/chat"), "{refused}");
    }

    // A stream by way of the API server comes word by word as well.
    comes_bit_by_bit(&call("POST", "/chat/stream"));

    agent.patch(&json!({"suspend": true}));
    let stopped = poll(30, || {
        let reply = call("POST", "/chat").json(&hello()).send();
        if reply.status == 503 { Ok(reply.json()) } else { Err(format!("a stopped agent should be a 503: {reply:?}")) }
    });
    assert!(stopped["message"].as_str().unwrap().contains("is stopped"), "{stopped}");
    api.call("POST", "/agents/nobody/chat").token(&developer).json(&hello()).expect(404);
}

/// Ten words, one every 200 ms, are heard as they are said.
#[track_caller]
fn comes_bit_by_bit(call: &slipway_e2e::Call) {
    // A machine that holds its breath makes one long gap, and none before the next words.
    let mut last = Vec::new();
    let is_even = (0..3).any(|_| {
        last = tokens(call);
        let gaps = last.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        gaps.filter(|gap| (Duration::from_millis(100)..Duration::from_millis(400)).contains(gap)).count() >= 7
    });
    assert!(is_even, "words should come one by one, 200 ms apart: {last:?}");
}

/// When each of ten words was heard.
#[track_caller]
fn tokens(call: &slipway_e2e::Call) -> Vec<Duration> {
    let begun = Instant::now();
    let mut stream = call.clone().json(&json!({"message": "sleep 200\ntokens 10"})).stream();
    assert_eq!(stream.status, 200);
    let mut heard = Vec::new();
    while let Some(event) = stream.event(10) {
        heard.push((begun.elapsed(), serde_json::from_str::<Value>(&event.data).unwrap()));
    }
    let tokens: Vec<Duration> = heard.iter().filter(|(_, data)| data["type"] == "token").map(|(at, _)| *at).collect();
    assert_eq!(tokens.len(), 10, "{heard:?}");
    assert_eq!(heard.last().unwrap().1["type"], "done", "{heard:?}");
    tokens
}

/// By its Service's address, as from within the cluster.
#[test]
fn a_warm_chat_asks_nothing_of_the_api_server() {
    let team = Team::new("chat-warm");
    let agent = team.agent("helper", &json!({"modelId": "stub-script", "storage": "memory"}));
    agent.ready();
    let address = format!("http://{}:8000", agent.service()["spec"]["clusterIP"].as_str().unwrap());
    let api = Api::start(&[("SLIPWAY_AGENT_ADDRESS", &address)]);
    let token = developer(&team);
    let call = api.call("POST", CHAT).token(&token).json(&json!({"message": "text hello"}));
    let chat = || call.clone().expect(200);
    poll(20, || {
        let first = call.clone().send();
        if first.status != 200 {
            return Err(format!("the address of the Service leads to the agent: {first:?}"));
        }
        // All that a first call asks, and then twenty calls within the seconds for which that is believed.
        let (before, begun) = (requests(&api), Instant::now());
        (0..20).for_each(|_| drop(chat()));
        let asked = requests(&api) - before;
        if asked == 0 && begun.elapsed() < Duration::from_secs(5) {
            Ok(())
        } else {
            Err(format!("{asked} requests in {:?}", begun.elapsed()))
        }
    });
    comes_bit_by_bit(&api.call("POST", "/agents/helper/chat/stream").token(&token));

    // Who leaves takes the call to the agent along, whose turn ends with it where that was asked for.
    let order = json!({"message": "sleep 100\ntokens 300", "conversation_id": "conv_left", "cancel_on_disconnect": true});
    let mut stream = api.call("POST", "/agents/helper/chat/stream").token(&token).json(&order).stream();
    while stream.line(10).is_some_and(|line| !line.contains("token")) {}
    let status = || api.call("GET", "/agents/helper/conversations/conv_left/status").token(&token).expect(200)["data"].clone();
    assert_eq!(status()["generating"], true);
    drop(stream);
    poll(5, || {
        let status = status();
        if status["generating"] == false { Ok(()) } else { Err(format!("the turn should have ended with its client: {status}")) }
    });
}

/// Requests to the API server so far, but for watches.
fn requests(api: &Api) -> u64 {
    let metrics = api.metrics();
    let lines = metrics.lines().filter(|line| line.starts_with("slipway_api_requests_total{") && !line.contains("WATCH"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn an_agent_that_does_not_answer_is_told_from_one_that_is_not_there() {
    let team = Team::new("chat-faults");
    let agent = stand_in(&team);
    let nobody = api(&team, &format!("http://127.0.0.1:{}", free_port()), &[]);
    let unreachable = nobody.call("POST", CHAT).json(&hello()).expect(502);
    assert!(unreachable["message"].as_str().unwrap().contains("cannot be reached"), "{unreachable}");

    let silent = Stranger::who(|_, stream| assert!(hangs_up(stream, 30)));
    let waiting = api(&team, &silent.url, &[("SLIPWAY_CHAT_SECONDS", "1")]);
    for path in [CHAT, "/agents/helper/chat/stream"] {
        let late = waiting.call("POST", path).json(&hello()).expect(504);
        assert!(late["message"].as_str().unwrap().contains("too long"), "{late}");
    }
    poll(5, || if silent.left() == 2 { Ok(()) } else { Err("both calls to the agent should be given up".to_owned()) });

    let json = |status: &str, body: &str| answer(status, body);
    for (says, status, message) in [
        (String::new(), 502, "closed the connection"),
        ("no HTTP at all\r\n\r\n".to_owned(), 502, "closed the connection"),
        (json("200 OK", "{\"output\": "), 502, "not with JSON"),
        ("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p/>".to_owned(), 502, "not with JSON"),
        ("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n{}".to_owned(), 502, "closed the connection"),
        ("HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n".to_owned(), 502, "302"),
        (json("401 Unauthorized", "{\"message\": \"who are you?\"}"), 502, "who are you?"),
        (json("500 Internal Server Error", "{\"message\": \"oh\"}"), 502, "failed: oh"),
        (json("503 Service Unavailable", "{\"message\": \"the database is away\"}"), 503, "the database is away"),
        (json("409 Conflict", "{\"message\": \"one at a time\"}"), 409, "one at a time"),
        (json("404 Not Found", "nothing"), 404, "does not offer this"),
        (json("405 Method Not Allowed", ""), 404, "does not offer this"),
    ] {
        let stranger = Stranger::saying(says.clone());
        let told = api(&team, &stranger.url, &[]).call("POST", CHAT).json(&hello()).expect(status);
        assert!(told["message"].as_str().unwrap().contains(message), "{says:?} should be told as {message:?}: {told}");
        assert_eq!(told["path"], "/api/v1/agents/helper/chat");
    }

    agent.patch(&json!({"suspend": true}));
    poll(20, || {
        let reply = nobody.call("POST", CHAT).json(&hello()).send();
        if reply.status == 503 && reply.body.contains("/deploy starts it") { Ok(()) } else { Err(format!("{reply:?}")) }
    });
    assert!(nobody.call("GET", "/agents/helper/conversations").expect(503)["message"].as_str().unwrap().contains("deploy"));
}

#[test]
fn nothing_is_smuggled_to_an_agent_and_nothing_of_the_caller() {
    let team = Team::new("chat-heads");
    stand_in(&team);
    let stranger = Stranger::saying(answer("200 OK", "{\"output\":\"ok\"}"));
    let api = api(&team, &stranger.url, &[]);
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let said = api
        .call("POST", CHAT)
        .header("Authorization", "Bearer secret-of-the-caller")
        .header("Cookie", "session=secret-of-the-caller")
        .header("X-Forwarded-For", "10.0.0.1")
        .header("X-Forwarded-User", "root")
        .header("X-Remote-User", "root")
        .header("Forwarded", "for=10.0.0.1")
        .header("Connection", "close, X-Request-Id")
        .header("Keep-Alive", "timeout=9")
        .header("Proxy-Authorization", "Basic secret-of-the-caller")
        .header("Upgrade", "websocket")
        .header("TE", "trailers")
        .header("traceparent", trace)
        .header("tracestate", "a=1")
        .header("tracestate", "b=2")
        .header("baggage", "k=v")
        .header("X-Request-Id", "req-of-the-caller")
        .json(&hello())
        .send();
    assert_eq!(
        (said.status, said.body.as_str(), said.header("x-request-id")),
        (200, "{\"data\":{\"output\":\"ok\"}}", "req-of-the-caller")
    );
    let request = stranger.heard().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<String> = head.to_ascii_lowercase().lines().map(str::to_owned).collect();
    assert_eq!((lines.remove(0).as_str(), body), ("post /chat http/1.1", "{\"message\":\"hello\"}"));
    lines.sort();
    let host = format!("host: {}", stranger.url.strip_prefix("http://").unwrap());
    let expected = [
        "baggage: k=v",
        "content-length: 19",
        "content-type: application/json",
        &host,
        &format!("traceparent: {trace}"),
        "tracestate: a=1",
        "tracestate: b=2",
        "x-request-id: req-of-the-caller",
    ];
    assert_eq!(lines, expected);

    // Two lengths, or a length and chunks: whatever is made of it, the agent hears one request or none.
    let before = stranger.heard().len();
    for framing in [
        "Content-Length: 19\r\nContent-Length: 5",
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
    ] {
        let body = "13\r\n{\"message\":\"hello\"}\r\n0\r\n\r\nPOST /memory HTTP/1.1\r\nHost: agent\r\nContent-Length: 0\r\n\r\n";
        let head =
            format!("POST /api/v1{CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n{framing}\r\n\r\n");
        raw(&api, &format!("{head}{body}"));
    }
    for heard in &stranger.heard()[before..] {
        assert!(heard.starts_with("POST /chat HTTP/1.1\r\n") && heard.ends_with("\r\n\r\n{\"message\":\"hello\"}"), "{heard}");
    }

    // No id leads anywhere but to where ids lead.
    let before = stranger.heard().len();
    for path in [
        "/agents/helper/conversations/..%2f..%2fmetrics",
        "/agents/helper/conversations/../../metrics",
        "/agents/helper/conversations/%2e%2e",
        "/agents/helper/conversations/a%2fb",
        "/agents/helper/conversations/a%3fb=c",
        "/agents/helper/conversations/a%0d%0aX:%20y",
        "/agents/helper/conversations/a%00",
        "/agents/helper/conversations/a%23b",
        "/agents/helper/memory/..%2fchat",
        "/agents/..%2f..%2fteam-other%2fhelper/conversations",
        "/agents/HELPER/conversations",
        "/agents/helper%2fchat/conversations",
    ] {
        let reply = api.call("GET", path).send();
        assert!(matches!(reply.status, 404 | 405), "{path}: {reply:?}");
        let reply = api.call("DELETE", path).send();
        assert!(matches!(reply.status, 404 | 405), "{path}: {reply:?}");
    }
    assert_eq!(stranger.heard().len(), before, "{:?}", &stranger.heard()[before..]);
    // What goes along in a query is one value, whatever is in it.
    api.call("GET", "/agents/helper/conversations?search=a%26limit%3D1%20%23%0d%0a").send();
    assert!(stranger.heard().last().unwrap().starts_with("GET /conversations?search=a%26limit%3D1%20%23%0D%0A HTTP/1.1\r\n"));
}

#[test]
fn a_stream_is_passed_on_byte_by_byte_and_ends_on_both_sides() {
    let team = Team::new("chat-bytes");
    stand_in(&team);
    let (tell, told) = mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let stranger = Stranger::who(move |request, stream| {
        let chunk = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        stream.write_all(HEAD.as_bytes()).unwrap();
        stream.write_all(&chunk(ODD)).unwrap();
        match request {
            whole if whole.contains("whole") => stream.write_all(b"0\r\nX-Trailer: y\r\n\r\n").unwrap(),
            cut if cut.contains("cut") => {}
            _ => tell.lock().unwrap().send(hangs_up(stream, 10)).unwrap(),
        }
    });
    let api = api(&team, &stranger.url, &[]);
    let ask = |message: &str| {
        let body = json!({"message": message}).to_string();
        let head = "POST /api/v1/agents/helper/chat/stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json";
        raw(&api, &format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    };
    let whole = ask("whole");
    let (head, body) = whole.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-type: text/event-stream") && head.contains("no-cache"), "{head}");
    assert!(!head.contains("cookie") && !whole.contains("x-trailer"), "{whole}");
    let odd = String::from_utf8_lossy(ODD);
    assert_eq!(body, format!("{:x}\r\n{odd}\r\n0\r\n\r\n", ODD.len()));
    // An agent that goes away in the middle leaves a stream without an end, not one that looks whole.
    let cut = ask("cut");
    assert!(cut.contains(&*odd) && !cut.ends_with("0\r\n\r\n"), "{cut:?}");
    // And a client that goes away is followed by REST at once.
    let mut stream = api.call("POST", "/agents/helper/chat/stream").json(&json!({"message": "on and on"})).stream();
    stream.line(5);
    let begun = Instant::now();
    drop(stream);
    assert!(told.recv_timeout(Duration::from_secs(10)).unwrap(), "the call to the agent should end");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[test]
fn limits_are_kept_to_the_last_call_and_say_when_to_come_back() {
    let team = Team::new("chat-limits");
    stand_in(&team);
    let slow = Stranger::who(|_, stream| assert!(hangs_up(stream, 10)));
    let few = api(
        &team,
        &slow.url,
        &[("SLIPWAY_LIMITS", r#"{"agent": {"atOnce": 3, "perSecond": 0, "burst": 0}}"#), ("SLIPWAY_CHAT_SECONDS", "5")],
    );
    let statuses = |api: &Api, calls: usize| -> Vec<(u16, String)> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..calls)
                .map(|_| {
                    scope.spawn(|| {
                        let reply = api.call("POST", CHAT).json(&hello()).send();
                        (reply.status, reply.header("retry-after").to_owned())
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    };
    let told = statuses(&few, 12);
    assert_eq!(told.iter().filter(|(status, _)| *status == 429).count(), 9, "{told:?}");
    assert!(told.iter().all(|(status, wait)| *status != 429 || wait == "1"), "{told:?}");
    // Places come back when calls end, well or not.
    assert_eq!(statuses(&few, 3).iter().filter(|(status, _)| *status == 429).count(), 0);

    let stranger = Stranger::saying(answer("200 OK", "{\"output\":\"ok\"}"));
    let rate = r#"{"team": {"atOnce": 0, "perSecond": 1, "burst": 4}}"#;
    let seldom = api(&team, &stranger.url, &[("SLIPWAY_LIMITS", rate)]);
    let begun = Instant::now();
    let told = statuses(&seldom, 12);
    let through = u64::try_from(told.iter().filter(|(status, _)| *status == 200).count()).unwrap();
    assert!((4..=4 + begun.elapsed().as_secs()).contains(&through), "{told:?} in {:?}", begun.elapsed());
    let wait: u64 = told.iter().find(|(status, _)| *status == 429).unwrap().1.parse().unwrap();
    std::thread::sleep(Duration::from_secs(wait));
    seldom.call("POST", CHAT).json(&hello()).expect(200);
}
