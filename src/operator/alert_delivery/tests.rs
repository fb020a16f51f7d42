//! Messages to integrations through a worker that answers by script, from a real PostgreSQL and from memory.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slipway_api::{Integration, Team, worker};
use slipway_cluster::{Guarded, Key, Object};
use slipway_database::{AgentKey, AlertStage, NewDelivery, RaisedAlert};
use slipway_peers::Postgres;
use tokio::net::TcpListener;

use super::*;
use crate::caches::ChildKind;
use crate::caches::child::Child;
use crate::caches::secret::SecretState;
use crate::database::DatabaseUrl;
use crate::tenancy::{Tenancy, Wanted};
use crate::testing::context_with;

use AlertStage::{Raised, Resolved, Risen};

const TEAM_UID: &str = "uid-of-a";
const SECRETS: &str = "/api/v1/namespaces/team-a/secrets/";

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// What the worker has been sent, and what it is yet to answer; without words of the script it delivers.
#[derive(Default)]
struct Script {
    sent: Vec<Value>,
    answers: VecDeque<(u16, Value)>,
    /// Events, by name.
    events: Vec<Value>,
    /// Secrets that there are not.
    missing: Vec<&'static str>,
    /// The host that each Secret says it is for.
    origin: Option<&'static str>,
}

type Shared = Arc<Mutex<Script>>;

fn reply(outcome: &str, message: &str) -> (u16, Value) {
    (200, json!({"outcome": outcome, "message": message, "retry_after_seconds": null}))
}

/// A worker at an address of its own: its port is always the same.
async fn worker_at(address: Ipv4Addr, script: Shared) {
    let listener = TcpListener::bind(SocketAddr::new(IpAddr::V4(address), worker::PORT)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let script = script.clone();
            let answer = service_fn(move |request: Request<Incoming>| {
                let script = script.clone();
                async move {
                    let is_meant =
                        request.uri().path() == worker::DELIVER_PATH && request.headers()["authorization"] == "Bearer token of tk_a";
                    let sent = request.into_body().collect().await.unwrap().to_bytes();
                    let mut script = script.lock().unwrap();
                    script.sent.push(serde_json::from_slice(&sent).unwrap());
                    let (status, words) = if is_meant {
                        script.answers.pop_front().unwrap_or_else(|| reply("delivered", "200"))
                    } else {
                        (404, json!({"error": "not here"}))
                    };
                    let body = Full::new(Bytes::from(words.to_string()));
                    Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
                }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
}

/// The API server, as far as deliveries ask it.
fn cluster(address: Ipv4Addr, script: &Shared) -> Client {
    let script = script.clone();
    let answer = move |method: &Method, path: &str, sent: &Value| -> (StatusCode, Value) {
        let mut script = script.lock().unwrap();
        let missing = (StatusCode::NOT_FOUND, json!({"kind": "Status", "code": 404, "status": "Failure", "reason": "NotFound"}));
        match (method, path) {
            (&Method::GET, "/api/v1/namespaces/team-a/services/slipway-worker") => {
                let owner =
                    json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Team", "name": "a", "uid": TEAM_UID, "controller": true});
                let spec = json!({"clusterIP": address.to_string(), "selector": {"app.kubernetes.io/name": worker::NAME}});
                (StatusCode::OK, json!({"metadata": {"name": worker::NAME, "ownerReferences": [owner]}, "spec": spec}))
            }
            (&Method::GET, path) if path.starts_with(SECRETS) && !script.missing.iter().any(|name| path.ends_with(name)) => {
                let data = json!({"signing_secret": "aHVudGVyMg==", "other": "eA=="});
                let annotations = script.origin.map(|origin| json!({"agents.slipway.dev/origin": origin}));
                let metadata = json!({"name": path.trim_start_matches(SECRETS), "annotations": annotations});
                (StatusCode::OK, json!({"metadata": metadata, "data": data}))
            }
            (&Method::POST, path) if path.ends_with("/events") => {
                let is_there = script.events.iter().any(|event| event["metadata"]["name"] == sent["metadata"]["name"]);
                if is_there {
                    return (StatusCode::CONFLICT, json!({"kind": "Status", "code": 409}));
                }
                script.events.push(sent.clone());
                (StatusCode::CREATED, sent.clone())
            }
            _ => missing,
        }
    };
    let answer = Arc::new(answer);
    let server = tower::service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (head, body) = request.into_parts();
            let sent: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap_or_default();
            let (status, words) = answer(&head.method, head.uri.path(), &sent);
            Ok::<_, Infallible>(Response::builder().status(status).body(Body::from(words.to_string().into_bytes())).unwrap())
        }
    });
    Client::new(server, "default")
}

struct World {
    postgres: Option<Postgres>,
    script: Shared,
    address: Ipv4Addr,
    delivery: AlertDelivery,
    course: Course,
}

impl World {
    /// `number` tells the workers of tests that run at once apart, and the process those of programs that do.
    async fn new(number: u8, postgres: Option<Postgres>) -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let (script, address) = (Shared::default(), Ipv4Addr::new(127, high, low, 100 + number));
        worker_at(address, script.clone()).await;
        let delivery = Self::manager(postgres.as_ref(), address, &script).await;
        let world = Self { postgres, script, address, delivery, course: Course::new(Instant::now()) };
        world.integration(1, "hook", &json!({}));
        world
    }

    async fn manager(postgres: Option<&Postgres>, address: Ipv4Addr, script: &Shared) -> AlertDelivery {
        let url = postgres.map(|postgres| DatabaseUrl::parse(&postgres.url()).unwrap());
        let tenancy = url.map(|url| Tenancy::open(&url, Wanted::Shared, b"a key").unwrap());
        if let Some(tenancy) = &tenancy {
            tenancy.migrate().await.unwrap();
        }
        let context = context_with(cluster(address, script), tenancy);
        let team: Team = object(json!({"metadata": {"name": "a", "uid": TEAM_UID}, "spec": {"name": "A"}}));
        context.caches.teams.insert(Key::new("", "a"), Guarded(Ok(team)));
        let namespace: Object = object(json!({"metadata": {"name": "team-a", "labels": {"agents.slipway.dev/team": "a"}}}));
        context.caches.children(ChildKind::Namespace).insert(Key::new("", "team-a"), Child::look(&namespace, None, || None, ""));
        let sign: Sign = Box::new(|audience| Some(format!("token of {audience}")));
        AlertDelivery::new(context, Some(Arc::new(sign)))
    }

    /// Another manager begins to lead: what it knows is in the database and in its caches.
    async fn takes_over(&mut self) {
        self.delivery = Self::manager(self.postgres.as_ref(), self.address, &self.script).await;
        self.course = Course::new(Instant::now());
        self.integration(1, "hook", &json!({}));
    }

    fn integration(&self, generation: i64, name: &str, more: &Value) {
        let mut whole = json!({"metadata": {"name": name, "namespace": "team-a", "uid": format!("uid-of-{name}"), "generation": generation},
            "spec": {"name": "Hook", "webhook": {"url": "https://hook.example/in"}, "alerts": {}},
            "status": {"observedGeneration": 1, "origin": "https://hook.example", "credentials": "hash", "credentialKeys": ["signing_secret"]}});
        slipway_peers::merge_patch(&mut whole, more.clone());
        let integration: Integration = object(whole);
        self.caches().integrations.insert(Key::new("team-a", name), Guarded(Ok(integration)));
    }

    fn caches(&self) -> &crate::caches::Caches {
        &self.delivery.context.caches
    }

    fn message(alert: &str, stage: AlertStage) -> NewDelivery {
        let raised = RaisedAlert {
            agent: AgentKey { team: "tk_a".to_owned(), agent_id: "ag_1".to_owned(), uid: "u".to_owned() },
            metric: "minutes_down".to_owned(),
            policy: String::new(),
            severity: "critical".to_owned(),
            message: "m".to_owned(),
            value: None,
            threshold: None,
            traces: Vec::new(),
        };
        let now = Timestamp::now();
        NewDelivery {
            team: "tk_a".to_owned(),
            agent_id: "ag_1".to_owned(),
            integration: "uid-of-hook".to_owned(),
            alert_id: alert.to_owned(),
            stage,
            message_id: id("uid-of-hook", alert, stage),
            payload: payload(&Key::new("team-a", "helper"), &AlertTurn { stage, id: alert, alert: &raised, created_at: now, now }).into(),
            most: 1_000,
        }
    }

    async fn queue(&self, messages: &[NewDelivery]) {
        let context = &self.delivery.context;
        let dropped = match &context.tenancy {
            Some(tenancy) => tenancy.enqueue_deliveries(messages).await.unwrap(),
            None => context.alert_queue.hold(messages, Timestamp::now()),
        };
        assert_eq!(dropped, []);
    }

    fn answers(&self, answers: &[(u16, Value)]) {
        self.script.lock().unwrap().answers.extend(answers.iter().cloned());
    }

    /// Looks once, and sends what is due.
    async fn round(&mut self) {
        let store = DeliveryStore::of(&self.delivery.context);
        for batch in self.delivery.look(&store, &mut self.course).await.unwrap() {
            let report = self.delivery.deliver(&store, batch).await;
            self.delivery.note_report(&store, &mut self.course, report).await;
        }
    }

    /// The same, as if everybody had waited for long enough.
    async fn later(&mut self) {
        self.course.end_pauses(Instant::now());
        DeliveryStore::of(&self.delivery.context).hasten(&["uid-of-hook".to_owned()], schedule::LONGEST).await.unwrap();
        self.round().await;
    }

    /// Alert and type of what was sent.
    fn sent(&self) -> Vec<(String, String)> {
        let script = self.script.lock().unwrap();
        let word = |sent: &Value, path: &str| sent.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        script.sent.iter().map(|sent| (word(sent, "/body/data/id"), word(sent, "/body/type"))).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.script.lock().unwrap().sent.iter().map(|sent| sent["message_id"].as_str().unwrap().to_owned()).collect()
    }

    /// Reasons of Events, and what they say.
    fn events(&self) -> Vec<(String, String)> {
        let script = self.script.lock().unwrap();
        let word = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        script.events.iter().map(|event| (word(event, "reason"), word(event, "note"))).collect()
    }

    fn told(&self) -> Delivered {
        self.caches().delivered.of(&Key::new("team-a", "hook")).flatten().unwrap()
    }

    fn counted(&self, outcome: &'static str) -> u64 {
        self.delivery.context.metrics.alert_deliveries.get_or_create(&ByDelivery { r#type: "webhook", outcome }).get()
    }
}

fn named(sent: &[(String, String)]) -> Vec<(&str, &str)> {
    sent.iter().map(|(alert, kind)| (alert.as_str(), kind.as_str())).collect()
}

#[tokio::test]
async fn what_is_queued_arrives_with_the_login_of_the_integration() {
    let mut world = World::new(1, Some(Postgres::start())).await;
    world.queue(&[World::message("al_1", Raised)]).await;
    world.round().await;
    let sent = world.script.lock().unwrap().sent.remove(0);
    assert_eq!((&sent["type"], &sent["config"]), (&json!("webhook"), &json!({"url": "https://hook.example/in"})));
    assert_eq!(sent["credentials"], json!({"signing_secret": "hunter2"}), "the keys of the type alone");
    assert_eq!((&sent["body"]["type"], &sent["body"]["data"]["agent"]), (&json!("alert.raised"), &json!("helper")));
    assert_eq!(sent["message_id"], json!(id("uid-of-hook", "al_1", Raised)));
    world.round().await;
    assert_eq!((world.sent(), world.counted("delivered")), (Vec::new(), 1), "once");
    let told = world.told();
    assert_eq!((told.waiting, told.has_arrived, told.gave_up, told.failing_since), (0, true, false, None));
    assert_eq!(world.events(), []);
}

/// In either kind of queue.
async fn a_receiver_is_away(number: u8, postgres: Option<Postgres>) {
    let mut world = World::new(number, postgres).await;
    world.queue(&[World::message("al_1", Raised)]).await;
    world.queue(&[World::message("al_1", Risen), World::message("al_1", Resolved)]).await;
    world.answers(&[reply("again", "it answers with status 503"), reply("again", "it does not answer")]);
    world.round().await;
    world.round().await;
    assert_eq!(world.sent().len(), 1, "it is left alone for a while");
    assert_eq!(world.events(), [], "once may be bad luck");
    let told = world.told();
    assert_eq!((told.waiting, told.last_error.as_deref()), (1, Some("it answers with status 503")));
    assert!(told.failing_since.is_some());
    world.later().await;
    let events = world.events();
    let [(reason, note)] = &events[..] else { panic!("{events:?}") };
    assert!(reason == "AlertDeliveryFailed" && note.ends_with("it does not answer"), "{note}");
    if world.postgres.is_some() {
        world.takes_over().await;
    }
    for _ in 0..3 {
        world.later().await;
    }
    let (sent, ids) = (world.sent(), world.ids());
    let again = ("al_1", "alert.raised");
    assert_eq!(named(&sent), [again, again, again, ("al_1", "alert.risen"), ("al_1", "alert.resolved")]);
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3], "{ids:?}");
    world.round().await;
    let told = world.told();
    assert_eq!((told.waiting, told.failing_since, told.last_error, told.has_arrived), (0, None, None, true));
    assert_eq!(world.events().len(), 1, "once a day");
}

#[tokio::test]
async fn a_message_is_the_same_in_each_attempt_and_in_its_order() {
    a_receiver_is_away(2, Some(Postgres::start())).await;
}

#[tokio::test]
async fn without_a_database_messages_wait_in_memory() {
    a_receiver_is_away(3, None).await;
}

#[tokio::test]
async fn what_is_refused_waits_for_another_integration() {
    let mut world = World::new(4, Some(Postgres::start())).await;
    world.queue(&[World::message("al_1", Raised)]).await;
    world.answers(&[reply("permanent", "it refuses the message (status 400)")]);
    world.round().await;
    let events = world.events();
    assert!(events[0].1.contains("before the Integration or its Secret changes"), "{events:?}");
    world.course.end_pauses(Instant::now());
    world.round().await;
    assert_eq!(world.sent().len(), 1, "nothing has changed");
    // That others arrive is none.
    world.queue(&[World::message("al_0", Raised)]).await;
    world.round().await;
    world.round().await;
    assert_eq!(named(&world.sent())[1..], [("al_0", "alert.raised")]);
    // A status that was written is no change.
    world.integration(1, "hook", &json!({"status": {"phase": "Error"}}));
    world.round().await;
    assert_eq!(world.sent().len(), 2);
    world.integration(2, "hook", &json!({"spec": {"webhook": {"url": "https://hook.example/other"}}}));
    world.round().await;
    assert_eq!(world.script.lock().unwrap().sent[2]["config"]["url"], "https://hook.example/other");
    // Nor does another login leave it waiting.
    world.queue(&[World::message("al_2", Raised)]).await;
    world.answers(&[reply("permanent", "it refuses the login (status 401)")]);
    world.round().await;
    let secret = SecretState { readable: false, keys: Vec::new(), origin: None, hash: [7; 32] };
    world.caches().secrets.insert(Key::new("team-a", "in-hook"), secret);
    world.round().await;
    assert_eq!(named(&world.sent())[3..], [("al_2", "alert.raised"), ("al_2", "alert.raised")]);
}

#[tokio::test]
async fn what_cannot_be_noted_is_not_sent_again() {
    let mut world = World::new(10, Some(Postgres::start())).await;
    world.queue(&[World::message("al_1", Raised), World::message("al_2", Raised)]).await;
    let sql = |world: &World, sql: &str| drop(world.postgres.as_ref().unwrap().psql(sql));
    sql(&world, "CREATE FUNCTION slipway.no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM 1 / 0; RETURN new; END'");
    sql(&world, "CREATE TRIGGER no BEFORE UPDATE ON slipway.alert_deliveries FOR EACH ROW EXECUTE FUNCTION slipway.no()");
    world.round().await;
    for _ in 0..2 {
        let store = DeliveryStore::of(&world.delivery.context);
        assert!(world.delivery.look(&store, &mut world.course).await.is_err());
    }
    assert_eq!(named(&world.sent()), [("al_1", "alert.raised")]);
    sql(&world, "DROP TRIGGER no ON slipway.alert_deliveries");
    world.round().await;
    world.round().await;
    assert_eq!(named(&world.sent()), [("al_1", "alert.raised"), ("al_2", "alert.raised")], "once each");
}

#[tokio::test]
async fn what_is_of_another_team_is_not_sent() {
    let mut world = World::new(11, Some(Postgres::start())).await;
    world.queue(&[NewDelivery { team: "tk_b".to_owned(), ..World::message("al_1", Raised) }, World::message("al_2", Raised)]).await;
    world.round().await;
    world.later().await;
    assert_eq!(named(&world.sent()), [("al_2", "alert.raised")]);
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_sent_nothing_again() {
    let mut world = World::new(5, Some(Postgres::start())).await;
    world.queue(&[World::message("al_1", Raised)]).await;
    world.answers(&[reply("gone", "status 410")]);
    world.round().await;
    world.later().await;
    assert_eq!((world.sent().len(), world.counted("given_up")), (1, 1));
    assert_eq!(world.events()[0].0, "AlertDeliveryGivenUp");
    assert!(world.told().gave_up);
    world.queue(&[World::message("al_2", Raised)]).await;
    world.later().await;
    world.round().await;
    assert!(!world.told().gave_up, "another has arrived");
}

#[tokio::test]
async fn after_a_day_messages_are_given_up() {
    let mut world = World::new(6, Some(Postgres::start())).await;
    world.queue(&[World::message("al_1", Raised), World::message("al_2", Raised)]).await;
    world.answers(&[reply("again", "status 503")]);
    world.round().await;
    world.postgres.as_ref().unwrap().psql("UPDATE slipway.alert_deliveries SET created_at = now() - interval '25 h'");
    world.takes_over().await;
    world.round().await;
    assert_eq!((world.sent().len(), world.counted("given_up")), (1, 2));
    let events = world.events();
    let [(reason, note)] = &events[..] else { panic!("{events:?}") };
    assert!(reason == "AlertDeliveryGivenUp" && note.contains("and 1 more"), "{note}");
    assert!(world.told().gave_up && world.told().waiting == 0);
}

#[tokio::test]
async fn what_cannot_be_sent_is_no_attempt() {
    let mut world = World::new(7, Some(Postgres::start())).await;
    world.queue(&[World::message("al_1", Raised)]).await;
    let held = |world: &World| world.told().last_error.unwrap_or_default();
    world.script.lock().unwrap().missing.push("in-hook");
    world.round().await;
    world.round().await;
    assert!(held(&world).contains("Secret in-hook does not exist"), "{}", held(&world));
    world.script.lock().unwrap().missing.clear();
    // Nor is one that says by now that it is for another host, of which the status has yet to hear.
    world.script.lock().unwrap().origin = Some("https://new.example");
    world.integration(2, "hook", &json!({"spec": {"description": "d"}}));
    world.round().await;
    world.round().await;
    assert!(held(&world).contains("written for https://new.example"), "{}", held(&world));
    world.script.lock().unwrap().origin = None;
    // A login that was written for one host goes to no other.
    world.integration(3, "hook", &json!({"spec": {"webhook": {"url": "https://evil.example/"}}}));
    world.round().await;
    world.round().await;
    assert!(held(&world).contains("written for https://hook.example"), "{}", held(&world));
    assert_eq!(world.sent(), []);
    world.integration(4, "hook", &json!({}));
    world.answers(&[(401, json!({"error": "no"})), (429, json!({"error": "busy"}))]);
    world.round().await;
    world.later().await;
    assert!(held(&world).contains("answered with status"), "{}", held(&world));
    let attempts = world.postgres.as_ref().unwrap().psql("SELECT sum(attempts) FROM slipway.alert_deliveries");
    assert_eq!((attempts.trim(), world.counted("retried")), ("0", 0));
    world.later().await;
    assert_eq!((world.counted("delivered"), world.ids().len()), (1, 3));
}

#[tokio::test]
async fn one_that_is_away_holds_up_no_other() {
    let mut world = World::new(8, Some(Postgres::start())).await;
    world.script.lock().unwrap().missing.push("in-hook");
    world.integration(1, "other", &json!({}));
    let other = |alert: &str| NewDelivery {
        integration: "uid-of-other".to_owned(),
        message_id: id("uid-of-other", alert, Raised),
        ..World::message(alert, Raised)
    };
    let first: Vec<_> = (0..30).map(|n| World::message(&format!("al_{n}"), Raised)).collect();
    world.queue(&first).await;
    world.queue(&[other("al_1"), other("al_2")]).await;
    world.round().await;
    assert_eq!(named(&world.sent()), [("al_1", "alert.raised"), ("al_2", "alert.raised")]);
    world.round().await;
    assert_eq!(world.told().waiting, 10, "thirty, in steps");
}

#[tokio::test]
async fn nothing_is_asked_while_nobody_wants_alerts() {
    let mut world = World::new(9, Some(Postgres::start())).await;
    world.queue(&[World::message("al_1", Raised)]).await;
    world.integration(1, "hook", &json!({"spec": {"alerts": null}}));
    world.postgres.as_ref().unwrap().stop();
    world.round().await;
    assert_eq!(world.caches().delivered.of(&Key::new("team-a", "hook")), Some(None));
    world.postgres.as_ref().unwrap().restart();
    // What waits for one that is gone is deleted.
    world.integration(1, "hook", &json!({}));
    world.answers(&[reply("again", "status 503")]);
    world.round().await;
    world.caches().integrations.remove(&Key::new("team-a", "hook"));
    world.round().await;
    assert_eq!(world.postgres.as_ref().unwrap().psql("SELECT count(*) FROM slipway.alert_deliveries").trim(), "0");
}
