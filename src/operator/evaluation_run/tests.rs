//! The controller against a pod and an API server that are played over sockets and in the process.

mod canary;
mod evaluator;
mod feedback;
mod kept;
mod killed;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod as ClusterPod;
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slipway_cluster::{Guarded, Object};
use slipway_peers::Postgres;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::*;
use crate::caches::ChildKind;
use crate::caches::child::Child;
use crate::caches::evaluation_run::shortened;
use crate::database::DatabaseUrl;
use crate::tenancy::{Tenancy, Wanted};
use crate::testing::context_with;

pub(super) const RUN: &str = "ev-01jabcdefghjkmnpqrstvwxyz0";
pub(super) const ID: &str = "ev_01jabcdefghjkmnpqrstvwxyz0";

pub(super) fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// A pod's control port. It takes one run, and says what the test lets it say.
#[derive(Default)]
pub(super) struct FakePod {
    asked: Mutex<Vec<String>>,
    requests: Mutex<Vec<Value>>,
    /// By run: the answer to GET.
    reports: Mutex<HashMap<String, Value>>,
    /// The answer to POST, if it is not 202.
    refuses: Mutex<Option<u16>>,
    /// The bodies of PUT, and all tokens.
    turned: Mutex<Vec<Value>>,
    tokens: Mutex<Vec<String>>,
}

impl FakePod {
    pub(super) async fn open(address: &str) -> Arc<Self> {
        let listener = TcpListener::bind((address, 8001)).await.unwrap();
        let pod = Arc::new(Self::default());
        let serving = pod.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut read = Vec::new();
                let head = loop {
                    assert!(stream.read_buf(&mut read).await.unwrap() > 0);
                    if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                        break at + 4;
                    }
                };
                let text = String::from_utf8(read[..head].to_vec()).unwrap().to_ascii_lowercase();
                assert!(text.contains("authorization: bearer token-for-ag_"), "{text}");
                let token = text.lines().find_map(|line| line.strip_prefix("authorization: bearer "));
                serving.tokens.lock().unwrap().extend(token.map(str::to_owned));
                let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0_usize);
                while read.len() < head + length {
                    assert!(stream.read_buf(&mut read).await.unwrap() > 0);
                }
                let (status, body) = serving.answer(text.lines().next().unwrap(), &read[head..]);
                let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        pod
    }

    fn answer(&self, line: &str, body: &[u8]) -> (u16, String) {
        let line = line.trim_end_matches(" http/1.1");
        self.asked.lock().unwrap().push(line.to_owned());
        let mut reports = self.reports.lock().unwrap();
        match line.split_once(' ').unwrap() {
            ("post", "/control/evaluate") => {
                if let Some(status) = *self.refuses.lock().unwrap() {
                    return (status, json!({"error": {"message": "not now"}}).to_string());
                }
                let request: Value = serde_json::from_slice(body).unwrap();
                let id = request["run_id"].as_str().unwrap().to_owned();
                reports.entry(id.clone()).or_insert_with(|| report(&id, "running", &[]));
                self.requests.lock().unwrap().push(request);
                (202, json!({"run_id": id, "status": "running"}).to_string())
            }
            ("put", path) => {
                self.turned.lock().unwrap().push(serde_json::from_slice(body).unwrap());
                (if reports.contains_key(path.trim_start_matches("/control/evaluations/")) { 200 } else { 404 }, "{}".to_owned())
            }
            ("delete", path) => {
                reports.remove(path.trim_start_matches("/control/evaluations/"));
                (200, "{}".to_owned())
            }
            (_, path) => {
                let (path, is_full) = path.strip_suffix("?results=0").map_or((path, true), |path| (path, false));
                match reports.get(path.trim_start_matches("/control/evaluations/")).cloned() {
                    Some(report) if is_full => (200, report.to_string()),
                    Some(mut report) => {
                        report["results"] = json!([]);
                        (200, report.to_string())
                    }
                    None => (404, "{}".to_owned()),
                }
            }
        }
    }

    pub(super) fn say(&self, id: &str, report: Value) {
        self.reports.lock().unwrap().insert(id.to_owned(), report);
    }

    fn restart(&self) {
        self.reports.lock().unwrap().clear();
    }

    fn asked(&self, verb: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|line| line.starts_with(verb)).count()
    }
}

pub(super) fn report(id: &str, status: &str, results: &[Value]) -> Value {
    json!({"run_id": id, "status": status, "total": 2, "finished": results.len(), "results": results})
}

fn result(case: usize, state: &str, value: Option<f64>) -> Value {
    let scores = ["safety", "relevance_to_query"].map(|scorer| json!({"scorer": scorer, "state": state, "value": value, "reason": "so"}));
    json!({"case": case, "output": "an answer", "scores": scores, "agent_tokens": 5})
}

fn failure(reason: &str, code: u16) -> Value {
    json!({"kind": "Status", "status": "Failure", "reason": reason, "message": "no", "code": code})
}

/// The cluster, as far as the controller asks for it.
#[derive(Default)]
struct Cluster {
    statuses: Mutex<Vec<Value>>,
    events: Mutex<Vec<String>>,
    event_names: Mutex<BTreeSet<String>>,
    /// Statuses are answered with an error, and whether they are written all the same.
    broken: Mutex<Option<bool>>,
    objects: Mutex<HashMap<String, Value>>,
    deleted: Mutex<Vec<String>>,
    /// The write at which the manager is killed, counted from 1, and on which side of it.
    fate: Mutex<Option<(usize, When)>>,
    killed: Notify,
}

/// On which side of a write the manager is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// The API server never hears of it.
    Before,
    /// It is done, and the manager does not hear of that.
    After,
}

impl Cluster {
    /// Whether the manager is killed at this request.
    fn strikes(&self, method: &http::Method) -> Option<When> {
        let mut fate = self.fate.lock().unwrap();
        let (left, when) = fate.as_mut().filter(|_| method != http::Method::GET)?;
        *left -= 1;
        if *left > 0 { None } else { Some(*when) }
    }

    /// Nobody hears of a request any more.
    async fn kill(&self) {
        *self.fate.lock().unwrap() = None;
        self.killed.notify_one();
        std::future::pending::<()>().await;
    }

    fn answer(&self, method: &str, uri: &http::Uri, body: &[u8]) -> (u16, Value) {
        let path = uri.path().rsplit_once("/namespaces/team-a/").map_or(uri.path(), |(_, rest)| rest);
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        match (method, path.split('/').collect::<Vec<_>>().as_slice()) {
            ("PATCH", ["evaluationruns", _, "status"]) => {
                let (sent, broken) = (sent(), *self.broken.lock().unwrap());
                if broken != Some(false) {
                    self.statuses.lock().unwrap().push(sent["status"].clone());
                }
                if broken.is_some() { (500, failure("InternalError", 500)) } else { (200, sent) }
            }
            ("POST", ["events"]) => {
                let sent = sent();
                if !self.event_names.lock().unwrap().insert(sent["metadata"]["name"].as_str().unwrap().to_owned()) {
                    return (409, failure("AlreadyExists", 409));
                }
                self.events.lock().unwrap().push(sent["reason"].as_str().unwrap().to_owned());
                (201, sent)
            }
            ("POST", ["datasets"]) => {
                let sent = sent();
                let name = format!("datasets/{}", sent["metadata"]["name"].as_str().unwrap());
                self.objects.lock().unwrap().insert(name, sent.clone());
                (201, sent)
            }
            ("PATCH", ["jobs", _]) => {
                let mut sent = sent();
                let metadata = sent["metadata"].as_object_mut().unwrap();
                metadata.extend([("uid".to_owned(), json!("j")), ("resourceVersion".to_owned(), json!("9"))]);
                self.objects.lock().unwrap().insert(path.to_owned(), sent.clone());
                (201, sent)
            }
            ("DELETE", _) => {
                self.deleted.lock().unwrap().push(path.to_owned());
                (200, json!({"kind": "Status", "status": "Success"}))
            }
            ("GET", ["datasets"]) => {
                let objects = self.objects.lock().unwrap();
                let is_protected = uri.query().is_some_and(|query| query.contains("spec.protected"));
                let is_chosen = |object: &&Value| !is_protected || object["spec"]["protected"] == true;
                let datasets = objects.iter().filter(|(path, _)| path.starts_with("datasets/")).map(|(_, object)| object);
                let items: Vec<_> = datasets.filter(is_chosen).collect();
                (200, json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": items}))
            }
            ("GET", _) if let Some(found) = self.objects.lock().unwrap().get(path) => (200, found.clone()),
            _ => (404, failure("NotFound", 404)),
        }
    }
}

pub(super) struct Home {
    pub(super) controller: Controller,
    cluster: Arc<Cluster>,
    pub(super) key: Key,
    pub(super) run: Value,
}

impl Home {
    /// A team with a stub agent that has one ready pod at `address`, a dataset of two cases, and a run with this spec.
    pub(super) fn new(address: &str, spec: &Value) -> Self {
        Self::within(address, spec, None)
    }

    /// The same, with a database.
    pub(super) fn within(address: &str, spec: &Value, tenancy: Option<Tenancy>) -> Self {
        let cluster = Arc::new(Cluster::default());
        let answering = cluster.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            let cluster = answering.clone();
            async move {
                let (head, body) = request.into_parts();
                let body: Bytes = body.collect().await.unwrap().to_bytes();
                let strikes = cluster.strikes(&head.method);
                if strikes == Some(When::Before) {
                    cluster.kill().await;
                }
                let (status, answer) = cluster.answer(head.method.as_str(), &head.uri, &body);
                if strikes == Some(When::After) {
                    cluster.kill().await;
                }
                let answer = http::Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            }
        });
        let context = context_with(Client::new(server, "default"), tenancy);
        let namespace: Object = object(json!({"metadata": {"name": "team-a", "labels": {"agents.slipway.dev/team": "a"}}}));
        context.caches.children(ChildKind::Namespace).insert(Key::new("", "team-a"), Child::look(&namespace, None, || None, ""));
        context
            .caches
            .teams
            .insert(Key::new("", "a"), Guarded(Ok(object(json!({"metadata": {"name": "a", "uid": "t"}, "spec": {"name": "A"}})))));
        context.caches.know_secrets_of("team-a");
        let dataset = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Dataset", "metadata": {"name": "golden", "namespace": "team-a"},
            "spec": {"cases": [{"input": "one"}, {"input": "two"}]}});
        cluster.objects.lock().unwrap().insert("datasets/golden".to_owned(), dataset);
        let key = Key::new("team-a", RUN);
        let mut run = json!({"metadata": {"name": RUN, "namespace": "team-a", "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": {"agent": "helper", "dataset": "golden", "riskProfile": "low"}});
        run["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let controller = Controller::new(context, Some(Arc::new(sign())));
        let mut home = Self { controller, cluster, key, run };
        home.agent(&json!({}));
        home.pod(address, "h1");
        home.apply(&json!({}));
        home
    }

    pub(super) fn context(&self) -> &Context {
        &self.controller.context
    }

    fn agent(&self, spec: &Value) {
        let mut whole =
            json!({"metadata": {"name": "helper", "namespace": "team-a", "uid": "a"}, "spec": {"name": "helper", "framework": "custom"}});
        whole["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.context().caches.agents.insert(Key::new("team-a", "helper"), Guarded(Ok(object(whole))).into());
    }

    pub(super) fn agent_pod(&self, address: &str) -> ClusterPod {
        let agent = self.context().caches.agents.get(&Key::new("team-a", "helper")).unwrap().agent().unwrap();
        let (_, config) = crate::agent::on_track(self.context(), &agent, slipway_api::Track::Stable).unwrap();
        object(json!({
            "metadata": {"name": "helper-1", "namespace": "team-a", "labels": {"agents.slipway.dev/agent": "helper"},
                "annotations": {"agents.slipway.dev/config-hash": format!("{config:016x}")}},
            "status": {"podIP": address, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
    }

    fn pod(&self, address: &str, hash: &str) {
        self.context().caches.pods.seen(&self.agent_pod(address));
        let metadata = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"name": "helper-1", "namespace": "team-a", "annotations": {"agents.slipway.dev/run-hash": hash}}});
        self.cluster.objects.lock().unwrap().insert("pods/helper-1".to_owned(), metadata);
    }

    /// The cache hears of a change of the spec, and of the status that was written last, and the API server has the run as a whole.
    pub(super) fn apply(&mut self, spec: &Value) {
        self.run["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        if let Some(status) = self.cluster.statuses.lock().unwrap().last() {
            self.run["status"] = status.clone();
        }
        self.cluster.objects.lock().unwrap().insert(format!("evaluationruns/{RUN}"), self.run.clone());
        let cached = shortened(Guarded(Ok(object(self.run.clone()))));
        self.context().caches.evaluation_runs.insert(self.key.clone(), cached);
    }

    pub(super) async fn reconcile(&self) {
        reconcile(&self.controller, &self.key).await.unwrap();
    }

    pub(super) fn status(&self) -> Value {
        self.cluster.statuses.lock().unwrap().last().cloned().unwrap_or_default()
    }

    pub(super) fn writes(&self) -> usize {
        self.cluster.statuses.lock().unwrap().len()
    }

    fn reason(&self) -> String {
        self.status()["conditions"][0]["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// The manager is killed at the write of a status, of which it does not hear whether it was done. Another one leads.
    async fn dies(&mut self, is_written: bool) {
        *self.cluster.broken.lock().unwrap() = Some(is_written);
        assert!(reconcile(&self.controller, &self.key).await.is_err(), "it would write nothing");
        *self.cluster.broken.lock().unwrap() = None;
        self.take_over();
    }

    /// Another manager leads, which remembers nothing.
    fn take_over(&mut self) {
        self.apply(&json!({}));
        self.controller.under_way.lock().unwrap().clear();
    }
}

pub(super) async fn tenancy(postgres: &Postgres) -> Tenancy {
    rustls::crypto::ring::default_provider().install_default().ok();
    let tenancy = Tenancy::open(&DatabaseUrl::parse(&postgres.url()).unwrap(), Wanted::Shared, b"a key").unwrap();
    tenancy.migrate().await.unwrap();
    tenancy
}

pub(super) fn sign() -> Sign {
    Box::new(|id| Some(format!("token-for-{id}")))
}

#[tokio::test]
async fn a_run_goes_to_its_pod_and_comes_back_with_a_score() {
    let pod = FakePod::open("127.77.19.1").await;
    let mut home = Home::new("127.77.19.1", &json!({}));
    home.reconcile().await;
    let status = home.status();
    assert_eq!((status["phase"].as_str(), status["provider"].as_str()), (Some("Running"), Some("heuristic")), "{status:#}");
    assert_eq!((&status["totalCases"], &status["runHash"], &status["dataset"]), (&json!(2), &json!("h1"), &json!("golden")));
    let request = pod.requests.lock().unwrap()[0].clone();
    assert_eq!((&request["run_id"], &request["risk_profile"], &request["min_quality_score"]), (&json!(ID), &json!("low"), &json!(60.0)));
    assert_eq!(request["dataset"]["cases"][1]["input"], "two");

    pod.say(ID, report(ID, "running", &[result(0, "scored", Some(1.0))]));
    home.reconcile().await;
    assert_eq!((&home.status()["finishedCases"], &home.status()["startedAt"]), (&json!(1), &status["startedAt"]));
    let writes = home.writes();
    pod.say(ID, report(ID, "running", &[result(0, "scored", Some(1.0)), result(1, "scored", Some(0.5))]));
    home.reconcile().await;
    assert_eq!(home.writes(), writes, "progress is not written again at once");

    // Another manager takes over and knows where to go on.
    home.take_over();
    let lie = json!({"case": 77, "scores": [{"scorer": "safety", "state": "scored", "value": 7.0}]});
    pod.say(
        ID,
        report(ID, "completed", &[result(0, "scored", Some(1.0)), result(1, "scored", Some(0.5)), result(1, "scored", Some(0.0)), lie]),
    );
    home.reconcile().await;
    let status = home.status();
    assert_eq!((&status["phase"], &status["passed"], &status["score"]), (&json!("Completed"), &json!(true), &json!(75.0)), "{status:#}");
    assert_eq!(status["aggregateScores"], json!({"safety/mean": 0.75, "relevance_to_query/mean": 0.75}));
    assert_eq!((&status["passedCases"], &status["finishedCases"], &status["usage"]["agentTokens"]), (&json!(1), &json!(2), &json!(10)));
    assert_eq!((&status["worstCases"][0]["case"], &status["worstCases"][0]["input"]), (&json!(1), &json!("two")));
    assert_eq!(pod.asked("post"), 1, "it was begun once");
    assert_eq!(*home.cluster.events.lock().unwrap(), ["EvaluationStarted", "EvaluationProgressed", "EvaluationCompleted"]);
    home.apply(&json!({"ttlSecondsAfterFinished": 0}));
    home.reconcile().await;
    assert_eq!(*home.cluster.deleted.lock().unwrap(), [format!("evaluationruns/{RUN}")]);
}

#[tokio::test]
async fn a_pod_is_sent_the_guidelines_that_the_cache_has_not() {
    let pod = FakePod::open("127.77.19.57").await;
    let home = Home::new("127.77.19.57", &json!({"guidelines": ["Be kind.", "Be brief."]}));
    home.reconcile().await;
    let request = pod.requests.lock().unwrap()[0].clone();
    assert_eq!(request["dataset"]["guidelines"], json!(["Be kind.", "Be brief."]), "{request:#}");
}

#[tokio::test]
async fn a_callback_makes_the_pod_be_asked_and_is_not_believed() {
    let pod = FakePod::open("127.77.19.41").await;
    let mut home = Home::new("127.77.19.41", &json!({}));
    home.reconcile().await;
    let request = pod.requests.lock().unwrap()[0].clone();
    assert!(request.get("callback_url").is_none() && request.get("callback_token").is_none(), "the platform has no address: {request}");
    let heard = |home: &mut Home, callback: Value| {
        home.apply(&json!({}));
        home.run["status"]["callback"] = callback;
        home.context().caches.evaluation_runs.insert(home.key.clone(), Guarded(Ok(object(home.run.clone()))));
    };
    // The pod says that the run has ended well, and does not know of an end when it is asked.
    let lie = json!({"attempt": 1, "status": "completed", "receivedAt": "2026-01-01T00:00:00Z"});
    heard(&mut home, lie.clone());
    let writes = home.writes();
    home.reconcile().await;
    assert_eq!((home.status()["phase"].as_str(), home.writes()), (Some("Running"), writes));
    // Nor does a failure that is reported end a run whose results can be read, and these decide.
    pod.say(ID, report(ID, "completed", &[result(0, "scored", Some(0.5)), result(1, "scored", Some(0.1))]));
    heard(&mut home, json!({"attempt": 1, "status": "failed"}));
    home.reconcile().await;
    let status = home.status();
    assert_eq!((&status["phase"], &status["passed"], &status["score"]), (&json!("Completed"), &json!(false), &json!(30.0)), "{status:#}");
    assert!(status.get("callback").is_none(), "it stays the field of who wrote it: {status:#}");
}

#[tokio::test]
async fn a_run_that_decides_on_a_release_finds_no_results_of_another_of_its_name() {
    let pod = FakePod::open("127.77.19.31").await;
    let home = Home::new("127.77.19.31", &json!({"release": "helper-v2"}));
    pod.say(ID, report(ID, "completed", &[result(0, "scored", Some(1.0)), result(1, "scored", Some(1.0))]));
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], pod.asked("post")), (&json!("Running"), 1));
    let id = pod.requests.lock().unwrap()[0]["run_id"].clone();
    assert!(id != json!(ID) && id.as_str().unwrap().len() == ID.len(), "{id}");
}

#[tokio::test]
async fn a_candidate_that_is_not_known_is_not_evaluated() {
    let pod = FakePod::open("127.77.19.32").await;
    let home = Home::new("127.77.19.32", &json!({"track": "candidate"}));
    let mut stray = home.agent_pod("127.77.19.32");
    stray.metadata.labels.as_mut().unwrap().insert(labels::TRACK.to_owned(), "candidate".to_owned());
    home.context().caches.pods.seen(&stray);
    let waiting = json!({"metadata": {"name": "helper", "namespace": "team-a", "uid": "a"}, "spec": {"name": "helper", "framework": "custom"},
        "status": {"pendingRelease": 2, "pendingEvaluation": RUN}});
    home.context().caches.agents.insert(Key::new("team-a", "helper"), Guarded(Ok(object(waiting))).into());
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], home.reason().as_str()), (&json!("Pending"), "NoPod"));
    assert_eq!(pod.asked("post"), 0);
}

#[tokio::test]
async fn a_pod_that_restarts_is_sent_the_run_again_unless_the_agent_has_changed() {
    let pod = FakePod::open("127.77.19.2").await;
    let home = Home::new("127.77.19.2", &json!({}));
    home.reconcile().await;
    pod.restart();
    home.reconcile().await;
    assert_eq!((pod.asked("post"), &home.status()["attempt"], &home.status()["phase"]), (2, &json!(2), &json!("Running")));
    home.pod("127.77.19.2", "h2");
    pod.restart();
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], home.reason().as_str()), (&json!("Failed"), "AgentChanged"));
}

#[tokio::test]
async fn a_manager_that_was_killed_before_it_wrote_finds_the_run_under_way() {
    let pod = FakePod::open("127.77.19.3").await;
    let home = Home::new("127.77.19.3", &json!({}));
    pod.say(ID, report(ID, "completed", &[]));
    home.reconcile().await;
    assert_eq!((pod.asked("post"), &home.status()["phase"], &home.status()["attempt"]), (0, &json!("Running"), &json!(1)));
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], home.reason().as_str()), (&json!("Failed"), "Incomplete"), "a run without its cases");
}

#[tokio::test]
async fn each_event_is_there_once_though_a_manager_is_killed_at_its_write() {
    let pod = FakePod::open("127.77.19.21").await;
    for is_written in [false, true] {
        let mut home = Home::new("127.77.19.21", &json!({}));
        let told = |home: &Home| home.cluster.events.lock().unwrap().clone();
        pod.restart();
        home.dies(is_written).await;
        home.reconcile().await;
        assert_eq!(home.status()["phase"], "Running");
        assert_eq!(told(&home), ["EvaluationStarted"], "{is_written}");
        pod.say(ID, report(ID, "running", &[result(0, "scored", Some(1.0))]));
        home.take_over();
        home.dies(is_written).await;
        home.reconcile().await;
        assert_eq!(home.status()["finishedCases"], 1);
        assert_eq!(told(&home), ["EvaluationStarted", "EvaluationProgressed"], "{is_written}");
        pod.say(ID, report(ID, "completed", &[result(0, "scored", Some(1.0)), result(1, "scored", Some(1.0))]));
        home.take_over();
        home.dies(is_written).await;
        home.reconcile().await;
        assert_eq!(home.status()["phase"], "Completed");
        assert_eq!(told(&home), ["EvaluationStarted", "EvaluationProgressed", "EvaluationCompleted"], "{is_written}");
    }
}

#[tokio::test]
async fn a_judge_that_fails_is_given_a_second_run_and_no_third() {
    let pod = FakePod::open("127.77.19.4").await;
    let mut home = Home::new("127.77.19.4", &json!({"judgeModel": "stub:/stub-echo"}));
    let failed = |id: &str| report(id, "completed", &[result(0, "error", None), result(1, "error", None)]);
    home.reconcile().await;
    pod.say(ID, failed(ID));
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], home.reason().as_str()), (&json!("Running"), "Repeating"));
    home.take_over();
    home.reconcile().await;
    let second = ids::evaluation_results(RUN, "u", true);
    assert_eq!((pod.requests.lock().unwrap()[1]["run_id"].as_str(), pod.asked("post")), (Some(&*second), 2));
    let mut again = failed(&second);
    again["prompts"] = json!(["safety@1", "fluency@1"]);
    pod.say(&second, again);
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], home.reason().as_str()), (&json!("Failed"), "JudgeFailed"));
    let status = home.status();
    assert_eq!((&status["score"], &status["passed"], &status["prompts"]), (&Value::Null, &Value::Null, &json!(["safety@1"])));
    assert_eq!((&status["usage"]["agentTokens"], status["worstCases"].as_array().map(Vec::len)), (&json!(10), Some(2)), "{status:#}");
}

#[tokio::test]
async fn an_agent_that_gives_no_answer_is_told_so_and_not_asked_again() {
    let pod = FakePod::open("127.77.19.20").await;
    let home = Home::new("127.77.19.20", &json!({"judgeModel": "stub:/stub-echo"}));
    home.reconcile().await;
    let silent = |case: usize, is_final: bool| {
        let mut silent = result(case, "error", None);
        silent["error"] = json!("the model helper-9 does not exist");
        silent["is_final"] = json!(is_final);
        silent.as_object_mut().unwrap().remove("output");
        silent
    };
    pod.say(ID, report(ID, "completed", &[silent(0, true), silent(1, true)]));
    home.reconcile().await;
    let status = home.status();
    assert_eq!((&status["phase"], home.reason().as_str(), pod.asked("post")), (&json!("Failed"), "NoAnswer", 1), "{status:#}");
    let words = "the agent gave no answer to 2 of 2 cases; the first time: the model helper-9 does not exist";
    assert_eq!(status["verdict"], json!(format!("FAILED ({words})")));
    assert_eq!(status["worstCases"][0]["reason"], "no answer: the model helper-9 does not exist");
    assert_eq!((&status["finishedCases"], &status["usage"]["agentTokens"]), (&json!(2), &json!(10)));
    assert_eq!(*home.cluster.events.lock().unwrap(), ["EvaluationStarted", "EvaluationFailed"]);
    // What is away may be back, and an agent that answers half of its cases may answer more.
    for results in [[silent(0, false), silent(1, false)], [result(0, "scored", Some(1.0)), silent(1, true)]] {
        pod.restart();
        let home = Home::new("127.77.19.20", &json!({"judgeModel": "stub:/stub-echo"}));
        home.reconcile().await;
        pod.say(ID, report(ID, "completed", &results));
        home.reconcile().await;
        assert_eq!((&home.status()["phase"], home.reason().as_str()), (&json!("Failed"), "AgentUnavailable"), "{results:?}");
    }
}

#[tokio::test]
async fn a_run_is_cancelled_in_its_pod_and_so_is_one_that_is_deleted() {
    let pod = FakePod::open("127.77.19.5").await;
    let mut home = Home::new("127.77.19.5", &json!({}));
    home.reconcile().await;
    home.take_over();
    home.apply(&json!({"cancel": true}));
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], pod.asked("delete")), (&json!("Cancelled"), 1));

    let deleted = Home::new("127.77.19.5", &json!({}));
    deleted.reconcile().await;
    deleted.context().caches.evaluation_runs.remove(&deleted.key);
    deleted.reconcile().await;
    assert_eq!(pod.asked("delete"), 2);
}

#[tokio::test]
async fn an_agent_that_cannot_be_reached_gives_a_run_without_scores() {
    let home = Home::new("127.77.19.6", &json!({}));
    home.context().caches.pods.gone(&home.agent_pod("127.77.19.6"));
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], home.reason().as_str()), (&json!("Pending"), "NoPod"));
    let writes = home.writes();
    home.reconcile().await;
    assert_eq!(home.writes(), writes, "nothing is written while nothing changes");
    home.controller.remember(&home.key, |under_way| under_way.waits_since(NO_POD_TIMEOUT));
    home.reconcile().await;
    let status = home.status();
    assert_eq!((&status["phase"], &status["provider"], &status["score"]), (&json!("Failed"), &json!("mock"), &Value::Null));
    assert!(status["verdict"].as_str().unwrap().contains("could not be reached"), "{status:#}");
}

#[tokio::test]
async fn a_run_that_waits_now_for_this_and_now_for_that_ends() {
    let pod = FakePod::open("127.77.19.13").await;
    *pod.refuses.lock().unwrap() = Some(503);
    let home = Home::new("127.77.19.13", &json!({}));
    let its = home.agent_pod("127.77.19.13");
    let waits_for = |reason: &'static str, ended: bool| {
        let phase = if ended { "Failed" } else { "Pending" };
        assert_eq!((&home.status()["phase"], home.reason().as_str()), (&json!(phase), reason), "{:#}", home.status());
        home.controller.remember(&home.key, |under_way| under_way.waits_since(NO_POD_TIMEOUT / 4));
    };
    for _ in 0..4 {
        home.context().caches.pods.gone(&its);
        home.reconcile().await;
        waits_for("NoPod", false);
        home.context().caches.pods.seen(&its);
        home.reconcile().await;
        waits_for("Unreachable", false);
    }
    home.context().caches.pods.gone(&its);
    home.reconcile().await;
    waits_for("NoPod", true);
}

#[tokio::test]
async fn what_cannot_be_evaluated_says_why() {
    let pod = FakePod::open("127.77.19.7").await;
    for (spec, agent, refuses, phase, reason) in [
        (json!({"agent": "nobody"}), json!({}), None, "Pending", "AgentNotFound"),
        (json!({"dataset": "none"}), json!({}), None, "Pending", "DatasetNotFound"),
        (json!({}), json!({"suspend": true}), None, "Failed", "AgentStopped"),
        (json!({}), json!({"image": "example.com/own:1"}), None, "Pending", "NoPod"),
        (json!({}), json!({}), Some(409), "Pending", "Busy"),
        (json!({}), json!({}), Some(503), "Pending", "Unreachable"),
        (json!({}), json!({}), Some(404), "Failed", "NotSupported"),
        (json!({}), json!({}), Some(400), "Failed", "RequestRefused"),
    ] {
        *pod.refuses.lock().unwrap() = refuses;
        let home = Home::new("127.77.19.7", &spec);
        home.agent(&agent);
        home.reconcile().await;
        let status = home.status();
        assert_eq!((&status["phase"], home.reason().as_str()), (&json!(phase), reason), "{spec} {agent} {refuses:?}: {status:#}");
    }
}

#[tokio::test]
async fn an_agent_without_a_dataset_gets_one_that_is_never_written_again() {
    let pod = FakePod::open("127.77.19.8").await;
    let mut home = Home::new("127.77.19.8", &json!({}));
    home.cluster.objects.lock().unwrap().remove("datasets/golden");
    home.run["spec"].as_object_mut().unwrap().remove("dataset");
    home.apply(&json!({}));
    home.reconcile().await;
    let seeded = home.cluster.objects.lock().unwrap()["datasets/helper-seed"].clone();
    assert_eq!((&seeded["spec"]["agent"], seeded["spec"]["cases"].as_array().map(Vec::len)), (&json!("helper"), Some(5)));
    assert_eq!((&home.status()["dataset"], &home.status()["totalCases"]), (&json!("helper-seed"), &json!(5)));
    assert_eq!(pod.asked("post"), 1);
}

#[tokio::test]
async fn a_protected_dataset_is_the_default_before_older_ones() {
    let _pod = FakePod::open("127.77.19.18").await;
    let mut home = Home::new("127.77.19.18", &json!({}));
    let dataset = |name: &str, day: u32, protected: bool| {
        json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Dataset",
            "metadata": {"name": name, "namespace": "team-a", "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z")},
            "spec": {"agent": "helper", "protected": protected, "cases": [{"input": name}]}})
    };
    for (name, day, protected) in [("easy", 1, false), ("hard", 2, true), ("harder", 3, true)] {
        home.cluster.objects.lock().unwrap().insert(format!("datasets/{name}"), dataset(name, day, protected));
    }
    home.cluster.objects.lock().unwrap().remove("datasets/golden");
    home.run["spec"].as_object_mut().unwrap().remove("dataset");
    home.apply(&json!({}));
    home.reconcile().await;
    assert_eq!((&home.status()["dataset"], &home.status()["totalCases"]), (&json!("hard"), &json!(1)));
}

#[test]
fn pods_are_asked_at_the_control_port() {
    assert_eq!(address([10, 0, 0, 7].into()), SocketAddr::from(([10, 0, 0, 7], 8001)));
}
