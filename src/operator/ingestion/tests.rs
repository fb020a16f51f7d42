//! The controller against an API server that is played in the process, and a database that is away.

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde_json::json;
use slipway_cluster::event::Events;
use slipway_cluster::{Guarded, Tasks};

use super::*;
use crate::caches::child::Child;
use crate::database::DatabaseUrl;
use crate::metrics::Metrics;
use crate::tenancy::{Tenancy, Wanted};
use crate::testing::settings;

const URL: &str = "postgres://u:hunter2@127.0.0.1:1/app";

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// The cluster, as far as the controller asks for it.
#[derive(Default)]
struct Cluster {
    /// Method and path, but for Events.
    asked: Mutex<Vec<String>>,
    statuses: Mutex<Vec<Value>>,
    jobs: Mutex<Vec<Value>>,
    events: Mutex<Vec<String>>,
    /// What the API server says of a new Job in place of taking it.
    refuses: Mutex<Option<&'static str>>,
}

impl Cluster {
    fn answer(&self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let path = path.rsplit_once("/namespaces/team-a/").map_or(path, |(_, rest)| rest);
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        if (method, path) != ("POST", "events") {
            self.asked.lock().unwrap().push(format!("{method} {path}"));
        }
        match (method, path.split('/').collect::<Vec<_>>().as_slice()) {
            ("PATCH", ["ingestions", _, "status"]) => {
                self.statuses.lock().unwrap().push(sent()["status"].clone());
                (200, sent())
            }
            ("PATCH", ["jobs", _]) => {
                if let Some(why) = *self.refuses.lock().unwrap() {
                    (403, json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": why, "code": 403}))
                } else {
                    let mut job = sent();
                    (job["metadata"]["uid"], job["metadata"]["resourceVersion"]) = (json!("j"), json!("7"));
                    self.jobs.lock().unwrap().push(job.clone());
                    (201, job)
                }
            }
            ("POST", ["events"]) => {
                self.events.lock().unwrap().push(sent()["reason"].as_str().unwrap().to_owned());
                (201, sent())
            }
            ("DELETE", _) => (200, json!({"kind": "Status", "status": "Success"})),
            ("GET", ["pods"]) => (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []})),
            _ => (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "no", "code": 404})),
        }
    }
}

struct Home {
    controller: Controller,
    cluster: Arc<Cluster>,
    ingestion: Value,
}

impl Home {
    /// A team with a knowledge base, and an Ingestion of an uploaded file into it.
    fn new() -> Self {
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
        let client = Client::new(server, "default");
        let tenancy = Tenancy::open(&DatabaseUrl::parse(URL).unwrap(), Wanted::Shared, b"key").unwrap();
        let events = Events::new(client.clone(), None);
        let context = Arc::new(Context::new(client, settings(Some(URL)), Some(tenancy), Metrics::default(), events, Tasks::default()));
        let caches = &context.caches;
        let namespace: Object = object(json!({"metadata": {"name": "team-a", "labels": {"agents.slipway.dev/team": "a"}}}));
        caches.children(ChildKind::Namespace).insert(Key::new("", "team-a"), Child::look(&namespace, None, || None, ""));
        let team = json!({"metadata": {"name": "a"}, "spec": {"name": "A"}});
        caches.teams.insert(Key::new("", "a"), Guarded(Ok(object(team))));
        caches.know_secrets_of("team-a");
        let base = json!({"metadata": {"name": "docs", "namespace": "team-a", "uid": "b"}, "spec": {"name": "Docs"}});
        caches.knowledge_bases.insert(Key::new("team-a", "docs"), Guarded(Ok(object(base))));
        let metadata = json!({"name": "first", "namespace": "team-a", "uid": "u", "generation": 1, "resourceVersion": "1"});
        let ingestion = json!({"metadata": metadata, "spec": {"knowledgeBase": "docs", "upload": "up_1"}});
        let home = Self { controller: Controller::new(context), cluster, ingestion };
        home.put(&home.ingestion);
        home
    }

    fn put(&self, ingestion: &Value) {
        let key = Key::of(&object::<Ingestion>(ingestion.clone()));
        self.controller.context.caches.ingestions.insert(key, Guarded(Ok(object(ingestion.clone()))));
    }

    async fn reconcile(&self) {
        reconcile(&self.controller, &Key::new("team-a", "first")).await.unwrap();
        self.controller.context.events_sent().await;
    }

    /// The process ends, and another one begins with what the cluster has.
    fn restart(&mut self) {
        self.controller = Controller::new(self.controller.context.clone());
    }

    fn status(&self) -> (String, String) {
        let statuses = self.cluster.statuses.lock().unwrap();
        let last = statuses.last().unwrap();
        (last["phase"].as_str().unwrap().to_owned(), last["conditions"][0]["reason"].as_str().unwrap().to_owned())
    }

    /// The watch tells of the Job.
    fn job(&self, status: &Value) {
        let mut job = self.cluster.jobs.lock().unwrap().last().unwrap().clone();
        (job["status"], job["metadata"]["resourceVersion"]) = (status.clone(), json!("9"));
        let child = Child::look(&object(job), None, || None, "");
        self.controller.context.caches.children(ChildKind::Job).insert(Key::new("team-a", "ingest-first"), child);
    }

    fn asked(&self, what: &str) -> usize {
        self.cluster.asked.lock().unwrap().iter().filter(|asked| *asked == what).count()
    }
}

#[tokio::test]
async fn an_ingestion_has_one_job_however_often_it_begins() {
    let mut home = Home::new();
    home.reconcile().await;
    assert_eq!(home.status(), ("Running".to_owned(), "Starting".to_owned()));
    assert_eq!(*home.cluster.events.lock().unwrap(), ["IngestionStarted"]);
    let job = home.cluster.jobs.lock().unwrap()[0].clone();
    assert_eq!(
        (job["metadata"]["name"].as_str(), job["metadata"]["ownerReferences"][0]["uid"].as_str()),
        (Some("ingest-first"), Some("u"))
    );
    // The status was not written before the process ended.
    home.restart();
    home.reconcile().await;
    assert_eq!(home.asked("PATCH jobs/ingest-first"), 1);
    assert_eq!(home.status().0, "Running");

    home.job(&json!({"conditions": [{"type": "Complete", "status": "True"}]}));
    home.reconcile().await;
    assert_eq!(home.status(), ("Running".to_owned(), "DatabaseUnavailable".to_owned()), "the Job does not say what was read");
    home.job(&json!({"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}));
    home.reconcile().await;
    assert_eq!(home.status(), ("Failed".to_owned(), "DeadlineExceeded".to_owned()));
}

#[tokio::test]
async fn what_is_cancelled_loses_its_job() {
    let mut home = Home::new();
    home.reconcile().await;
    home.ingestion["spec"]["cancel"] = json!(true);
    home.put(&home.ingestion);
    home.reconcile().await;
    assert_eq!(home.asked("DELETE jobs/ingest-first"), 1);
    assert_eq!(home.status(), ("Cancelled".to_owned(), "Cancelled".to_owned()));
    let (asked, events) = (home.cluster.asked.lock().unwrap().len(), home.cluster.events.lock().unwrap().clone());
    assert_eq!(events, ["IngestionStarted", "IngestionCancelled"]);
    home.reconcile().await;
    assert_eq!(home.cluster.asked.lock().unwrap().len(), asked, "it waits for the watch, and then for its end");
}

#[tokio::test]
async fn one_whose_base_is_gone_ends() {
    let home = Home::new();
    home.reconcile().await;
    home.controller.context.caches.knowledge_bases.remove(&Key::new("team-a", "docs"));
    home.reconcile().await;
    assert_eq!(home.asked("DELETE jobs/ingest-first"), 1);
    assert_eq!(home.status(), ("Failed".to_owned(), "KnowledgeBaseNotFound".to_owned()));
}

#[tokio::test]
async fn a_refused_job_is_a_reason_to_wait() {
    let home = Home::new();
    *home.cluster.refuses.lock().unwrap() = Some("jobs.batch \"ingest-first\" is forbidden: exceeded quota: slipway");
    home.reconcile().await;
    assert_eq!(home.status(), ("Pending".to_owned(), "QuotaExceeded".to_owned()));
    *home.cluster.refuses.lock().unwrap() = None;
    home.reconcile().await;
    assert_eq!(home.status(), ("Running".to_owned(), "Starting".to_owned()));
}

#[tokio::test]
async fn files_of_one_base_are_read_one_after_the_other() {
    let home = Home::new();
    let mut earlier = home.ingestion.clone();
    (earlier["metadata"]["name"], earlier["metadata"]["uid"]) = (json!("earlier"), json!("e"));
    earlier["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut own = home.ingestion.clone();
    own["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:01Z");
    home.put(&earlier);
    home.put(&own);
    home.reconcile().await;
    assert_eq!(home.status(), ("Pending".to_owned(), "Queued".to_owned()));
    earlier["status"] = json!({"phase": "Completed"});
    home.put(&earlier);
    home.reconcile().await;
    assert_eq!(home.status().0, "Running");
}
