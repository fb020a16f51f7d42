//! Chats with an agent that has a canary. Three servers stand for its Services, each at an address of its own on the port of agents.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{StreamExt, stream};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use slipway_api::Track;
use slipway_http::{Error, Reply, Request, ServerLimits, serve};
use slipway_rest::{Authentication, RateLimit, RateLimits, RestSettings};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::AGENT;
use crate::{Api, ApiAnswer, settings};

const SERVICES: &str = "/api/v1/namespaces/team-a/services";
const PORT: u16 = 8000;
const OWN: &str = "helper";
const PRIMARY: &str = "helper-primary";
const CANARY: &str = "helper-canary";

/// What a Service was asked.
struct Heard {
    service: &'static str,
    host: String,
    body: Bytes,
}

type Log = Arc<Mutex<Vec<Heard>>>;

/// An agent with three Services, which answer with their names.
struct Ground {
    api: Api,
    /// The UID of the agent.
    uid: String,
    log: Log,
    network: [u8; 2],
}

fn address(network: [u8; 2], service: &str) -> Ipv4Addr {
    let host = match service {
        OWN => 1,
        PRIMARY => 2,
        _ => 3,
    };
    Ipv4Addr::new(127, network[0], network[1], host)
}

/// A server that answers with the Service's name.
async fn listen(network: [u8; 2], service: &'static str, log: Log) {
    let listener = TcpListener::bind((address(network, service), PORT)).await.expect("the port of agents is free");
    let handler = move |request: Request| answer(service, log.clone(), request);
    tokio::spawn(async move { serve(listener, ServerLimits::default(), handler, std::future::pending()).await });
}

async fn answer(service: &'static str, log: Log, request: Request) -> Result<Reply, Error> {
    let host = request.headers()["host"].to_str().unwrap().to_owned();
    let is_stream = request.path().ends_with("/stream");
    let body = if request.method() == Method::POST { request.bytes(1024 * 1024).await? } else { Bytes::new() };
    let id = serde_json::from_slice::<Value>(&body).unwrap_or_default()["conversation_id"].clone();
    log.lock().unwrap().push(Heard { service, host, body });
    let said = json!({"service": service, "conversation_id": id, "data": []});
    if is_stream { Ok(Reply::bytes("text/event-stream", format!("data: {said}\n\n"))) } else { Reply::json(&said) }
}

impl Ground {
    /// Where only some of the Services have a server.
    async fn new(listening: &[&'static str]) -> Self {
        Self::limited(RateLimit { at_once: 0, per_second: 0, burst: 0 }, listening).await
    }

    /// The same with a limit of calls to the agent.
    async fn limited(agent: RateLimit, listening: &[&'static str]) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        // Tests run at once, in one process or in many.
        let process = u8::try_from(std::process::id() % 200).unwrap() + 1;
        let network = [process, NEXT.fetch_add(1, Ordering::SeqCst)];
        let without = RateLimit { at_once: 0, per_second: 0, burst: 0 };
        let limits = RateLimits { team: without, agent, ..RateLimits::default() };
        let settings = RestSettings { in_cluster: true, agent_address: None, limits, ..settings() };
        let api = Api::start(settings, Authentication::Off).await;
        assert_eq!(api.agent("Helper", &[]).await.status, 201);
        assert_eq!(api.call(Method::POST, "/agents/helper/deploy", &[], None).await.status, 200);
        let uid = api.cluster.objects("/agents/helper")[0]["metadata"]["uid"].as_str().unwrap().to_owned();
        let ground = Self { api, uid, log: Log::default(), network };
        for &service in listening {
            listen(network, service, ground.log.clone()).await;
        }
        ground
    }

    async fn whole() -> Self {
        let ground = Self::new(&[OWN, PRIMARY, CANARY]).await;
        for (service, track) in [(OWN, "stable"), (PRIMARY, "stable"), (CANARY, "canary")] {
            ground.service(service, track, &ground.uid);
        }
        ground
    }

    /// Makes a Service, as the operator would for the agent with this UID.
    fn service(&self, name: &str, track: &str, uid: &str) {
        let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "name": "helper", "uid": uid, "controller": true});
        let selector = json!({"agents.slipway.dev/agent": "helper", "agents.slipway.dev/track": track});
        let spec = json!({"type": "ClusterIP", "clusterIP": address(self.network, name), "selector": selector});
        self.api.cluster.make(SERVICES, json!({"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}));
    }

    /// Writes how the canary stands, and waits until REST has heard of it.
    async fn stands(&self, phase: &str, weight: u8) {
        self.api.cluster.set(AGENT, json!({"status": {"canary": {"phase": phase, "weight": weight}}}));
        let agent = self.api.cluster.objects("/agents/helper").remove(0);
        let version = agent["metadata"]["resourceVersion"].as_str().unwrap();
        let heard = self.api.call(Method::GET, "/agents", &[("x-resource-version", version)], None).await;
        assert_eq!(heard.status, 200, "{}", heard.body);
    }

    async fn chat(&self, body: Value) -> (String, String) {
        let said = self.api.call(Method::POST, "/agents/helper/chat", &[], Some(body)).await;
        assert_eq!(said.status, 200, "{}", said.body);
        let word = |name: &str| said.body["data"][name].as_str().unwrap_or_default().to_owned();
        (word("conversation_id"), word("service"))
    }

    /// A chat whose body has these very bytes.
    async fn chat_raw(&self, body: &'static str) -> StatusCode {
        let url = format!("http://{}/api/v1/agents/helper/chat", self.api.address);
        let sent = self.api.http.post(url).header("content-type", "application/json").body(body).send().await.unwrap();
        sent.status()
    }

    /// The Service that was asked last, its host, and what it was asked.
    fn last(&self) -> (&'static str, String, Bytes) {
        let log = self.log.lock().unwrap();
        let Heard { service, host, body } = log.last().unwrap();
        (service, host.clone(), body.clone())
    }

    /// Ids of conversations that a canary of this weight has, or has not.
    fn ids(&self, track: Track, weight: u8) -> impl Iterator<Item = String> {
        let uid = self.uid.clone();
        (0..).map(|at| format!("conv_{at}")).filter(move |id| Track::of_conversation(&uid, id, weight) == track)
    }

    fn fallbacks(&self, track: &str) -> u32 {
        let page = self.api.rest.metrics();
        let name = format!("slipway_rest_canary_fallbacks_total{{track=\"{track}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or_default()
    }
}

#[tokio::test]
async fn ten_thousand_chats_are_shared_out_by_weight() {
    const MANY: u32 = 10_000;
    let ground = Ground::whole().await;
    ground.stands("Serving", 30).await;
    let chats = stream::iter(0..MANY).map(|_| ground.chat(json!({"message": "Hi"})));
    let said: HashMap<String, String> = chats.buffer_unordered(32).collect().await;
    assert_eq!(said.len(), MANY as usize, "each has a conversation of its own");
    let of = |name: &str| u32::try_from(said.values().filter(|service| *service == name).count()).unwrap();
    let (stable, canary) = (of(PRIMARY), of(CANARY));
    assert_eq!((stable + canary, of(OWN)), (MANY, 0));
    let sigma = (f64::from(MANY) * 0.3 * 0.7).sqrt();
    assert!((f64::from(canary) - 3_000.0).abs() <= 4.0 * sigma, "{canary} of {MANY} went to the canary");

    // They go on where they began, until the weight passes them.
    let some: Vec<(&String, &String)> = said.iter().take(500).collect();
    for (id, service) in &some {
        assert_eq!(&ground.chat(json!({"message": "And?", "conversation_id": id})).await.1, *service, "{id}");
    }
    for weight in [60, 10] {
        ground.stands("Serving", weight).await;
        let mut moved = 0;
        for (id, service) in &some {
            let now = ground.chat(json!({"message": "And?", "conversation_id": id})).await.1;
            let can_move = if weight > 30 { PRIMARY } else { CANARY };
            assert!(now == **service || *service == can_move, "{id} left {service} for {now} at {weight} %");
            moved += usize::from(now != **service);
        }
        assert!((50..250).contains(&moved), "{moved} of 500 moved at {weight} %");
    }
}

#[tokio::test]
async fn calls_about_a_conversation_go_to_its_track() {
    let ground = Ground::whole().await;
    ground.stands("Paused", 40).await;
    let message = || Some(json!({"message": "Hi"}));
    for (track, service) in [(Track::Stable, PRIMARY), (Track::Canary, CANARY)] {
        let id = ground.ids(track, 40).next().unwrap();
        let said = Some(json!({"message": "Hi", "conversation_id": id}));
        for (method, path, body) in [
            (Method::POST, "chat".to_owned(), said.clone()),
            (Method::POST, "chat/stream".to_owned(), said),
            (Method::GET, format!("conversations/{id}"), None),
            (Method::GET, format!("conversations/{id}/status"), None),
            (Method::GET, format!("suggestions?conversation_id={id}"), None),
            (Method::DELETE, format!("conversations/{id}"), None),
        ] {
            let answer = ground.api.call(method.clone(), &format!("/agents/helper/{path}"), &[], body).await;
            assert_eq!(answer.status, 200, "{method} {path}: {}", answer.body);
            let (asked, host, _) = ground.last();
            assert_eq!((asked, host), (service, format!("{service}.team-a.svc.cluster.local:8000")), "{method} {path}");
        }
    }
    for (method, path, body) in [
        (Method::GET, "conversations", None),
        (Method::GET, "suggestions", None),
        (Method::GET, "memory", None),
        (Method::GET, "memory/status", None),
        (Method::POST, "memory", message()),
        (Method::POST, "memory/search", message()),
        (Method::DELETE, "memory/mem_1", None),
    ] {
        let answer = ground.api.call(method.clone(), &format!("/agents/helper/{path}"), &[], body).await;
        assert!(answer.status.is_success(), "{method} {path}: {}", answer.body);
        assert_eq!(ground.last().0, PRIMARY, "{method} {path}");
    }
}

#[tokio::test]
async fn a_chat_without_an_id_is_given_one_and_no_other_changes() {
    let ground = Ground::whole().await;
    ground.stands("Serving", 100).await;
    for body in [
        r#"{ "conversation_id" : "conv_1","message":"Hi" }"#,
        r#"{"message":"Hi","conversation_id":"not an id"}"#,
        r#"{"message":"#,
        "[]",
        r#"{"conversation_id":5}"#,
        "",
    ] {
        assert_eq!(ground.chat_raw(body).await, 200);
        let is_chat = body.contains("conv_1") || body.contains("not an id");
        let (service, _, sent) = ground.last();
        assert_eq!((service, sent), (if is_chat { CANARY } else { PRIMARY }, Bytes::from(body)), "{body}");
    }
    for (body, rest) in
        [(r#"{"message":"Hi","cancel_on_disconnect":true}"#, r#","message":"Hi","cancel_on_disconnect":true}"#), (" { } ", " } ")]
    {
        assert_eq!(ground.chat_raw(body).await, 200);
        let (service, _, sent) = ground.last();
        let sent = String::from_utf8(sent.to_vec()).unwrap();
        let id = sent.trim_start().strip_prefix(r#"{"conversation_id":""#).and_then(|from| from.strip_suffix(rest)).unwrap_or_default();
        let id = id.strip_suffix('"').unwrap_or_default();
        assert!(service == CANARY && id.len() == 31 && id.starts_with("conv_"), "{body} became {sent}");
    }
    assert_eq!(ground.chat_raw(r#"{"message":"Hi","conversation_id":null}"#).await, 200);
    let (service, _, sent) = ground.last();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!((service, &sent["message"], sent["conversation_id"].as_str().map(str::len)), (CANARY, &json!("Hi"), Some(31)));
}

#[tokio::test]
async fn without_a_share_nothing_is_chosen() {
    let ground = Ground::whole().await;
    let shares = [("Progressing", 50), ("Serving", 0), ("Draining", 50), ("RolledBack", 50), ("Unheard", 50)];
    for (phase, weight) in [("", 0)].into_iter().chain(shares) {
        if !phase.is_empty() {
            ground.stands(phase, weight).await;
        }
        for body in [r#"{"message": "Hi"}"#, r#"{"conversation_id":"conv_1"}"#, "[]"] {
            assert_eq!(ground.chat_raw(body).await, 200);
            let (service, host, sent) = ground.last();
            assert_eq!((service, sent), (OWN, Bytes::from(body)), "{phase} {weight}");
            assert_eq!(host, "helper.team-a.svc.cluster.local:8000");
        }
        let read = ground.api.call(Method::GET, "/agents/helper/conversations/conv_1", &[], None).await;
        assert_eq!(read.body["data"]["service"], OWN);
    }
    let reads = |service: &str| ground.api.cluster.reads(&format!("{SERVICES}/{service}"));
    assert_eq!((reads(OWN), reads(PRIMARY), reads(CANARY)), (1, 0, 0));
    ground.stands("Promoting", 50).await;
    ground.chat(json!({"message": "Hi"})).await;
    assert_eq!(reads(PRIMARY) + reads(CANARY), 1, "until stable has what the canary ran, the canary serves");
}

#[tokio::test]
async fn a_track_that_cannot_be_reached_is_stood_in_for() {
    for (case, reads) in [("no Service", 0), ("nobody listens", 1), ("somebody else's", 1), ("of the other track", 1)] {
        let listening: &[&str] = if case == "nobody listens" { &[OWN, PRIMARY] } else { &[OWN, PRIMARY, CANARY] };
        let ground = Ground::new(listening).await;
        ground.service(OWN, "stable", &ground.uid);
        ground.service(PRIMARY, "stable", &ground.uid);
        match case {
            "no Service" => {}
            "somebody else's" => ground.service(CANARY, "canary", "uid-of-another"),
            "of the other track" => ground.service(CANARY, "stable", &ground.uid),
            _ => ground.service(CANARY, "canary", &ground.uid),
        }
        ground.stands("Serving", 50).await;
        let chat = |id: String| ground.chat(json!({"message": "Hi", "conversation_id": id}));
        for id in ground.ids(Track::Canary, 50).take(10) {
            assert_eq!(chat(id.clone()).await, (id, OWN.to_owned()), "{case}");
        }
        for id in ground.ids(Track::Stable, 50).take(10) {
            assert_eq!(chat(id.clone()).await, (id, PRIMARY.to_owned()), "{case}");
        }
        assert_eq!((ground.fallbacks("canary"), ground.fallbacks("stable")), (10, 0), "{case}");
        let read = |service: &str| ground.api.cluster.reads(&format!("{SERVICES}/{service}"));
        assert_eq!((read(CANARY), read(OWN)), (reads, 1), "{case}: it is left alone for a while");
        assert_eq!(ground.log.lock().unwrap().len(), 20, "{case}: no chat was sent twice");
    }
}

#[tokio::test]
async fn what_stands_in_for_a_track_is_found_before_it_is_needed() {
    let ground = Ground::whole().await;
    ground.stands("Serving", 50).await;
    let chat = |track| ground.chat(json!({"message": "Hi", "conversation_id": ground.ids(track, 50).next().unwrap()}));
    assert_eq!(chat(Track::Stable).await.1, PRIMARY);
    // As when a chart of other rights is installed, and pods of the former one serve on for a moment.
    ground.api.cluster.fail(Method::GET, SERVICES, 403, "services is forbidden: REST cannot get resource \"services\"");
    assert_eq!(chat(Track::Canary).await.1, OWN);
}

#[tokio::test]
async fn the_next_canary_is_reached_by_its_own_service() {
    let ground = Ground::whole().await;
    let begins = async |at: &str| {
        ground.api.cluster.set(AGENT, json!({"status": {"canary": {"startedAt": at}}}));
        ground.stands("Serving", 100).await;
        ground.chat(json!({"message": "Hi"})).await.1
    };
    assert_eq!(begins("2026-01-01T00:00:00Z").await, CANARY);
    // The address of the first one's Service is anybody's by now.
    let address = address(ground.network, PRIMARY);
    ground.api.cluster.set(&format!("{SERVICES}/{CANARY}"), json!({"spec": {"clusterIP": address}}));
    assert_eq!(begins("2026-01-01T00:10:00Z").await, PRIMARY);
}

#[tokio::test]
async fn a_chat_that_may_have_been_heard_is_not_repeated() {
    let ground = Ground::new(&[OWN, PRIMARY]).await;
    for (service, track) in [(OWN, "stable"), (PRIMARY, "stable"), (CANARY, "canary")] {
        ground.service(service, track, &ground.uid);
    }
    // Reads, and closes without an answer.
    let listener = TcpListener::bind((address(ground.network, CANARY), PORT)).await.unwrap();
    let closes = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.read(&mut [0; 64]).await.unwrap()
    });
    ground.stands("Serving", 100).await;
    let said: ApiAnswer = ground.api.call(Method::POST, "/agents/helper/chat", &[], Some(json!({"message": "Hi"}))).await;
    assert_eq!(said.status, 502, "{}", said.body);
    assert!(said.body["message"].as_str().unwrap().contains("closed the connection"), "{}", said.body);
    assert!(closes.await.unwrap() > 0);
    assert_eq!((ground.log.lock().unwrap().len(), ground.fallbacks("canary")), (0, 0));
}

#[tokio::test]
async fn a_limit_counts_a_call_once_whatever_its_track() {
    let ground = Ground::limited(RateLimit { at_once: 1, per_second: 1, burst: 5 }, &[OWN]).await;
    ground.service(OWN, "stable", &ground.uid);
    ground.stands("Serving", 50).await;
    for _ in 0..5 {
        ground.chat(json!({"message": "Hi"})).await;
    }
    assert_eq!(ground.fallbacks("canary") + ground.fallbacks("stable"), 5);
    let beyond = ground.api.call(Method::POST, "/agents/helper/chat", &[], Some(json!({"message": "Hi"}))).await;
    assert_eq!((beyond.status.as_u16(), ground.log.lock().unwrap().len()), (429, 5), "{}", beyond.body);
    assert!(ground.api.rest.metrics().contains("slipway_rest_relays_in_flight 0"));
}
