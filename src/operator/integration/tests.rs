//! The controller against an API server that is played in the process. There is a worker, whose Service is not.

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde_json::json;
use slipway_cluster::Guarded;
use tokio::time::advance;

use super::*;
use crate::caches::child::Child;
use crate::caches::secret::SecretState;
use crate::testing::context_of;

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// The cluster, as far as the controller asks for it.
#[derive(Default)]
struct Cluster {
    /// Method and path.
    asked: Mutex<Vec<String>>,
    statuses: Mutex<Vec<Value>>,
    events: Mutex<Vec<String>>,
    /// What the Secret says by now of the host that it is for.
    origin: Mutex<Option<&'static str>>,
}

impl Cluster {
    fn answer(&self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let path = path.rsplit_once("/namespaces/team-a/").map_or(path, |(_, rest)| rest);
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        if path != "events" {
            self.asked.lock().unwrap().push(format!("{method} {path}"));
        }
        match (method, path.split('/').collect::<Vec<_>>().as_slice()) {
            ("PATCH", ["integrations", _, "status"]) => {
                self.statuses.lock().unwrap().push(sent()["status"].clone());
                (200, sent())
            }
            ("GET", ["secrets", "in-metrics"]) => {
                let annotations = self.origin.lock().unwrap().as_ref().map(|origin| json!({"agents.slipway.dev/origin": origin}));
                let metadata = json!({"name": "in-metrics", "annotations": annotations});
                (200, json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"token": "aHVudGVyMg=="}}))
            }
            ("PATCH", ["jobs", _]) => {
                let mut job = sent();
                (job["metadata"]["uid"], job["metadata"]["resourceVersion"]) = (json!("j"), json!("7"));
                (201, job)
            }
            ("GET", ["pods"]) => (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod()]})),
            ("DELETE", _) => (200, json!({"kind": "Status", "status": "Success"})),
            ("POST", ["events"]) => {
                self.events.lock().unwrap().push(sent()["reason"].as_str().unwrap().to_owned());
                (201, sent())
            }
            _ => (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "no", "code": 404})),
        }
    }
}

/// The pod of a Job that has looked at a folder.
fn pod() -> Value {
    let said = r#"{"succeeded": true, "reason": "Connected", "message": "3 files", "latency_ms": 2}"#;
    let image = "slipway.dev/slipway-worker:1";
    json!({
        "metadata": {"name": "p", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]},
        "spec": {"containers": [{"name": "probe", "image": image}]},
        "status": {"containerStatuses": [{"name": "probe", "image": image, "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "message": said}}}]},
    })
}

struct Home {
    controller: Controller,
    cluster: Arc<Cluster>,
    integration: Value,
}

impl Home {
    /// A team with this Integration, and no Secret.
    fn new(spec: &Value) -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        let cluster = Arc::new(Cluster::default());
        let answering = cluster.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            let cluster = answering.clone();
            async move {
                let (head, body) = request.into_parts();
                let body: Bytes = body.collect().await.unwrap().to_bytes();
                let (status, answer) = cluster.answer(head.method.as_str(), head.uri.path(), &body);
                let answer = http::Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            }
        });
        let context = context_of(Client::new(server, "default"));
        let caches = &context.caches;
        let namespace: Object = object(json!({"metadata": {"name": "team-a", "labels": {"agents.slipway.dev/team": "a"}}}));
        caches.children(ChildKind::Namespace).insert(Key::new("", "team-a"), Child::look(&namespace, None, || None, ""));
        let team = json!({"metadata": {"name": "a"}, "spec": {"name": "A", "knowledgeVolume": "files"}});
        caches.teams.insert(Key::new("", "a"), Guarded(Ok(object(team))));
        caches.know_secrets_of("team-a");
        let metadata = json!({"name": "metrics", "namespace": "team-a", "uid": "u", "generation": 1, "resourceVersion": "1"});
        let sign: Sign = Box::new(|_| Some("token".to_owned()));
        let controller = Controller::new(context, Some(Arc::new(sign)));
        let home = Self { controller, cluster, integration: json!({"metadata": metadata, "spec": spec}) };
        home.put();
        home
    }

    fn key() -> Key {
        Key::new("team-a", "metrics")
    }

    fn put(&self) {
        self.controller.context.caches.integrations.insert(Self::key(), Guarded(Ok(object(self.integration.clone()))));
    }

    /// The watch tells of the status that was written last.
    fn hear(&mut self) {
        self.integration["status"] = self.status();
        self.put();
    }

    fn give_secret(&self, byte: u8) {
        let secret = SecretState { readable: false, keys: vec!["token".to_owned()], origin: None, hash: [byte; 32] };
        self.controller.context.caches.secrets.insert(Key::new("team-a", "in-metrics"), secret);
    }

    fn give_worker(&self) {
        let worker = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "slipway-worker"},
            "spec": {"replicas": 1}, "status": {"readyReplicas": 1}});
        let child = Child::look(&object(worker), None, || None, "");
        self.controller.context.caches.children(ChildKind::Deployment).insert(Key::new("team-a", "slipway-worker"), child);
    }

    async fn reconcile(&self) -> Duration {
        let next = reconcile(&self.controller, &Self::key()).await.unwrap().unwrap();
        self.controller.context.events_sent().await;
        next
    }

    fn status(&self) -> Value {
        self.cluster.statuses.lock().unwrap().last().unwrap().clone()
    }

    fn stands(&self) -> String {
        let status = self.status();
        format!("{} {}", status["phase"].as_str().unwrap(), status["conditions"][0]["reason"].as_str().unwrap())
    }

    fn writes(&self) -> usize {
        self.cluster.statuses.lock().unwrap().len()
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.cluster.asked.lock().unwrap())
    }
}

fn prometheus() -> Value {
    json!({"name": "Metrics", "prometheus": {"url": "https://p.example"}, "credentialsSecret": "in-metrics"})
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_tested_is_written_once() {
    let mut home = Home::new(&prometheus());
    assert!(home.reconcile().await <= crate::pending_warnings::GRACE);
    assert_eq!((home.stands().as_str(), home.writes()), ("Disconnected SecretMissing", 1));
    home.reconcile().await;
    assert_eq!(home.writes(), 1, "the cache has not heard of it yet");
    home.hear();
    advance(crate::pending_warnings::GRACE).await;
    assert_eq!(home.reconcile().await, RESYNC);
    assert_eq!(*home.cluster.events.lock().unwrap(), ["IntegrationFailed"]);
    for _ in 0..3 {
        advance(RESYNC).await;
        home.reconcile().await;
    }
    assert_eq!((home.writes(), home.cluster.events.lock().unwrap().len()), (1, 1));
    home.give_secret(1);
    home.reconcile().await;
    home.hear();
    advance(Duration::from_secs(3)).await;
    home.reconcile().await;
    assert_eq!(home.stands(), "Disconnected WorkerUnavailable");
    home.integration["metadata"]["annotations"] = json!({"agents.slipway.dev/test": "01J"});
    home.put();
    home.reconcile().await;
    assert_eq!(home.status()["lastTest"]["id"], "01J", "a request for a test is answered");
    assert!(!home.asked().iter().any(|asked| asked.contains("secrets")), "no login is read that is not sent");
}

#[tokio::test(start_paused = true)]
async fn where_a_login_may_go_is_written_before_it_is_read() {
    let mut home = Home::new(&prometheus());
    home.give_secret(1);
    home.give_worker();
    home.integration["metadata"]["annotations"] = json!({"agents.slipway.dev/test": "01J"});
    home.put();
    home.reconcile().await;
    let status = "PATCH integrations/metrics/status";
    assert_eq!(home.asked(), [status, "GET secrets/in-metrics", "GET services/slipway-worker", status]);
    let first = home.cluster.statuses.lock().unwrap()[0].clone();
    assert_eq!((&first["origin"], &first["credentials"]), (&json!("https://p.example"), &json!("0101010101010101")));
    assert_eq!((&first["credentialKeys"], &first["observedGeneration"]), (&json!(["token"]), &json!(1)));
    assert!(first["lastTest"].is_null());
    home.hear();
    // Somebody names another host for the same login.
    home.integration["spec"]["prometheus"]["url"] = json!("https://evil.example");
    (home.integration["metadata"]["generation"], home.integration["metadata"]["annotations"]) =
        (json!(2), json!({"agents.slipway.dev/test": "02J"}));
    home.put();
    home.reconcile().await;
    assert_eq!(home.stands(), "Error CredentialsForAnotherHost");
    assert_eq!((home.status()["origin"].clone(), home.status()["lastTest"]["id"].clone()), (json!("https://p.example"), json!("02J")));
    assert_eq!(home.asked(), [status], "neither is it read nor is anybody called");
}

/// The caches still have the Secret that was for the host before.
#[tokio::test(start_paused = true)]
async fn a_login_that_is_read_for_another_host_is_not_sent() {
    let mut home = Home::new(&prometheus());
    home.give_secret(1);
    home.give_worker();
    *home.cluster.origin.lock().unwrap() = Some("https://new.example");
    home.integration["metadata"]["annotations"] = json!({"agents.slipway.dev/test": "01J"});
    home.put();
    home.reconcile().await;
    assert_eq!(home.stands(), "Error CredentialsForAnotherHost");
    assert!(!home.asked().contains(&"GET services/slipway-worker".to_owned()), "no worker is called");
    *home.cluster.origin.lock().unwrap() = Some("https://p.example");
    home.hear();
    home.integration["metadata"]["annotations"] = json!({"agents.slipway.dev/test": "02J"});
    home.put();
    advance(BETWEEN_TESTS).await;
    home.reconcile().await;
    assert!(home.asked().contains(&"GET services/slipway-worker".to_owned()), "it is for this one");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_not_there_is_asked_with_pauses() {
    let mut home = Home::new(&prometheus());
    home.give_secret(1);
    home.give_worker();
    home.reconcile().await;
    assert_eq!(home.stands(), "Disconnected NotTested");
    let tries = |home: &Home| home.asked().iter().filter(|asked| asked.ends_with("services/slipway-worker")).count();
    let mut count = 0;
    for _ in 0..120 {
        home.hear();
        home.reconcile().await;
        advance(Duration::from_secs(1)).await;
        count += tries(&home);
    }
    // After 2, 7, 17, 37 and 77 seconds.
    assert_eq!((count, home.stands().as_str()), (5, "Disconnected WorkerUnavailable"));
    assert_eq!(home.writes(), 2, "the same again is not written");
}

#[tokio::test(start_paused = true)]
async fn files_are_looked_at_by_a_job() {
    let mut home = Home::new(&json!({"name": "Files", "local": {"path": "docs"}}));
    home.reconcile().await;
    home.hear();
    advance(Duration::from_secs(3)).await;
    assert_eq!(home.reconcile().await, JOB_INTERVAL);
    assert_eq!(home.stands(), "Disconnected Testing");
    let asked = home.asked();
    assert!(asked.contains(&"PATCH jobs/test-metrics".to_owned()) && !asked.iter().any(|asked| asked.contains("secrets")), "{asked:?}");
    home.reconcile().await;
    assert!(home.asked().is_empty(), "it is waited for");
    let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Integration", "name": "metrics", "uid": "u", "controller": true});
    let done = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {},
        "metadata": {"name": "test-metrics", "namespace": "team-a", "uid": "j", "resourceVersion": "9", "ownerReferences": [owner]},
        "status": {"conditions": [{"type": "Complete", "status": "True"}]}});
    let child = Child::look(&object(done), None, || None, "");
    home.controller.context.caches.children(ChildKind::Job).insert(Key::new("team-a", "test-metrics"), child);
    home.reconcile().await;
    assert_eq!((home.stands().as_str(), &home.status()["lastTest"]["message"]), ("Connected Connected", &json!("3 files")));
    assert_eq!(*home.cluster.events.lock().unwrap(), ["IntegrationConnected"]);
    home.hear();
    let writes = home.writes();
    assert_eq!((home.reconcile().await, home.writes()), (RESYNC, writes), "at rest nothing is written");
    // The Job of the test before goes first.
    home.integration["metadata"]["annotations"] = json!({"agents.slipway.dev/test": "01J"});
    home.put();
    home.asked();
    advance(BETWEEN_TESTS).await;
    home.reconcile().await;
    assert_eq!(home.asked(), ["DELETE jobs/test-metrics"]);
    home.controller.context.caches.children(ChildKind::Job).remove(&Key::new("team-a", "test-metrics"));
    home.reconcile().await;
    assert_eq!(home.asked(), ["PATCH jobs/test-metrics"]);
}

const BETWEEN_TESTS: Duration = Duration::from_secs(2);
