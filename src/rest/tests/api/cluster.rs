//! A stand-in for the API server, as far as REST needs it: versioned objects that are created, listed, watched, patched and
//! deleted atomically. Every right is granted unless it is refused, and a token is its owner's name.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use serde_json::{Value, json};
use slipway_peers::merge_patch;
use tokio::sync::broadcast;

/// The latency of a response.
const PAUSE: Duration = Duration::from_millis(2);

type Body = UnsyncBoxBody<Bytes, Infallible>;
/// The event, path and object of a change, or status and reason of an error.
type Outcome = Result<(&'static str, String, Value), (u16, &'static str)>;

#[derive(Clone)]
pub(crate) struct Cluster(Arc<State>);

struct State {
    inner: Mutex<Inner>,
    events: broadcast::Sender<(String, Value)>,
    /// Whether watches stay open and report nothing.
    silent: AtomicBool,
    /// Whether nothing is answered any more.
    away: AtomicBool,
}

#[derive(Default)]
struct Inner {
    version: u64,
    objects: BTreeMap<String, Value>,
    /// Past states by version, for lists at an exact version.
    history: Vec<(u64, BTreeMap<String, Value>)>,
    /// Watch events by version.
    told: Vec<(u64, String, Value)>,
    /// The paths of reads of single objects.
    reads: Vec<String>,
    writes: Vec<(Method, String, HeaderMap)>,
    /// The number of TokenReviews.
    reviews: usize,
    /// Verbs and resources that are refused to everyone.
    refused: Vec<(&'static str, &'static str)>,
    /// Whether these are refused only where no namespace is named.
    refused_in_cluster: bool,
    /// The object on which they are not.
    granted: Option<&'static str>,
    /// Method and a part of the path of writes that fail, with status and message.
    failing: Option<(Method, &'static str, u16, &'static str)>,
}

impl Cluster {
    /// With team `a`, and with what the chart creates: roles and the platform's configuration.
    pub(crate) fn new() -> Self {
        let mut inner = Inner::default();
        for (role, verbs) in [("viewer", &["list"][..]), ("developer", &["list", "create"]), ("admin", &["list", "create", "delete"])] {
            let agents = json!({"apiGroups": ["agents.slipway.dev"], "resources": ["agents"], "verbs": verbs});
            let rules = if role == "admin" {
                json!([agents, {"apiGroups": ["x"], "resources": ["last"], "verbs": ["get"]}])
            } else {
                json!([agents])
            };
            let role = json!({"metadata": {"name": format!("slipway-{role}")}, "rules": rules});
            let _ = inner.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role);
        }
        for kind in ["configmaps", "secrets"] {
            let _ = inner.create(&format!("/api/v1/namespaces/slipway-system/{kind}"), json!({"metadata": {"name": "slipway-platform"}}));
        }
        let team = json!({"metadata": {"name": "a"}, "spec": {"name": "A"}});
        let _ = inner.create("/apis/agents.slipway.dev/v1/teams", team);
        Self(Arc::new(State {
            inner: Mutex::new(inner),
            events: broadcast::channel(1024).0,
            silent: AtomicBool::default(),
            away: AtomicBool::default(),
        }))
    }

    pub(crate) fn client(&self) -> Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let cluster = cluster.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                // Long enough for concurrent calls to see the same state.
                tokio::time::sleep(PAUSE).await;
                if cluster.0.away.load(Ordering::SeqCst) {
                    return Err(std::io::Error::other("the connection is closed"));
                }
                let answer = cluster.answer(&head.method, &head.uri, &head.headers, &body);
                Ok::<Response<Body>, std::io::Error>(answer)
            }
        });
        Client::new(service, "default")
    }

    /// The number of TokenReviews.
    pub(crate) fn reviews(&self) -> usize {
        self.0.inner.lock().unwrap().reviews
    }

    /// The number of reads of one object.
    pub(crate) fn reads(&self, path: &str) -> usize {
        self.0.inner.lock().unwrap().reads.iter().filter(|read| *read == path).count()
    }

    /// From now on watches report nothing.
    pub(crate) fn fall_silent(&self) {
        self.0.silent.store(true, Ordering::SeqCst);
    }

    /// From now on no request is answered.
    pub(crate) fn go_away(&self) {
        self.0.away.store(true, Ordering::SeqCst);
    }

    /// From now on these rights are refused.
    pub(crate) fn refuse(&self, rights: &[(&'static str, &'static str)]) {
        self.0.inner.lock().unwrap().refused = rights.to_vec();
    }

    /// The same, but not within a namespace.
    pub(crate) fn refuse_in_cluster(&self, rights: &[(&'static str, &'static str)]) {
        self.refuse(rights);
        self.0.inner.lock().unwrap().refused_in_cluster = true;
    }

    /// The same, but on objects of this name.
    pub(crate) fn refuse_but_on(&self, rights: &[(&'static str, &'static str)], name: &'static str) {
        self.refuse(rights);
        self.0.inner.lock().unwrap().granted = Some(name);
    }

    /// From now on writes of this method to paths with this part fail with this status and message.
    pub(crate) fn fail(&self, method: Method, part: &'static str, status: u16, message: &'static str) {
        self.0.inner.lock().unwrap().failing = Some((method, part, status, message));
    }

    /// From now on no write fails so.
    pub(crate) fn heal(&self) {
        self.0.inner.lock().unwrap().failing = None;
    }

    /// Method and path of each write to a path with this part, in order.
    pub(crate) fn lines(&self, part: &str) -> Vec<String> {
        let inner = self.0.inner.lock().unwrap();
        inner.writes.iter().filter(|(_, path, _)| path.contains(part)).map(|(method, path, _)| format!("{method} {path}")).collect()
    }

    /// Changes an object, as somebody else would.
    pub(crate) fn set(&self, path: &str, change: Value) {
        let outcome = self.0.inner.lock().unwrap().change(path, change);
        assert_eq!(self.changed(outcome).status(), 200, "{path}");
    }

    /// Makes an object, as somebody else would.
    pub(crate) fn make(&self, collection: &str, object: Value) -> Value {
        let outcome = self.0.inner.lock().unwrap().create(collection, object);
        let made = outcome.as_ref().map(|(_, _, object)| object.clone()).unwrap_or_default();
        assert_eq!(self.changed(outcome).status(), 201, "{collection}");
        made
    }

    /// The objects whose path contains `part`.
    pub(crate) fn objects(&self, part: &str) -> Vec<Value> {
        let inner = self.0.inner.lock().unwrap();
        inner.objects.iter().filter(|(path, _)| path.contains(part)).map(|(_, object)| object.clone()).collect()
    }

    /// The writers of objects whose path contains `part`: method and impersonated user and groups.
    pub(crate) fn writers(&self, part: &str) -> Vec<(String, Vec<String>)> {
        let inner = self.0.inner.lock().unwrap();
        let told = |headers: &HeaderMap| {
            let names = ["impersonate-user", "impersonate-group"];
            names.iter().flat_map(|name| headers.get_all(*name)).map(|value| value.to_str().unwrap().to_owned()).collect()
        };
        let writes = inner.writes.iter().filter(|(_, path, _)| path.contains(part));
        writes.map(|(method, _, headers)| (method.to_string(), told(headers))).collect()
    }

    /// The number of past states without an object whose path contains `part`, since the first.
    pub(crate) fn moments_without(&self, part: &str) -> usize {
        let inner = self.0.inner.lock().unwrap();
        let there = |objects: &BTreeMap<String, Value>| objects.keys().any(|path| path.contains(part));
        inner.history.iter().skip_while(|(_, objects)| !there(objects)).filter(|(_, objects)| !there(objects)).count()
    }

    /// The maximum number of such objects in any state.
    pub(crate) fn most_at_once(&self, part: &str) -> usize {
        let inner = self.0.inner.lock().unwrap();
        let many = |objects: &BTreeMap<String, Value>| objects.keys().filter(|path| path.contains(part)).count();
        inner.history.iter().map(|(_, objects)| many(objects)).max().unwrap_or_default()
    }

    fn answer(&self, method: &Method, uri: &http::Uri, headers: &HeaderMap, body: &[u8]) -> Response<Body> {
        let path = uri.path();
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        if path.ends_with("/tokenreviews") {
            self.0.inner.lock().unwrap().reviews += 1;
            if sent["spec"]["token"].as_str().is_some_and(|token| token.starts_with("bad")) {
                return whole(200, &json!({"status": {"authenticated": false}}));
            }
            let user = json!({"username": sent["spec"]["token"], "groups": ["engineers", "system:authenticated"]});
            return whole(200, &json!({"status": {"authenticated": true, "user": user}}));
        }
        if path.ends_with("/subjectaccessreviews") {
            let asked = &sent["spec"]["resourceAttributes"];
            let inner = self.0.inner.lock().unwrap();
            let is_refused = inner.refused.iter().any(|(verb, resource)| asked["verb"] == *verb && asked["resource"] == *resource);
            let is_refused = is_refused && !(inner.refused_in_cluster && asked["namespace"].is_string());
            let allowed = !is_refused || inner.granted.is_some_and(|name| asked["name"] == name);
            return whole(201, &json!({"status": {"allowed": allowed}}));
        }
        let query: BTreeMap<String, String> =
            url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let mut inner = self.0.inner.lock().unwrap();
        if method != Method::GET {
            inner.writes.push((method.clone(), path.to_owned(), headers.clone()));
        }
        if let Some((failing, part, status, message)) = &inner.failing
            && failing == method
            && path.contains(part)
        {
            return told(*status, "Forbidden", message);
        }
        match *method {
            Method::GET if query.get("watch").is_some_and(|watch| watch == "true") => self.watch(&inner, path, &query),
            Method::GET if inner.objects.contains_key(path) => {
                inner.reads.push(path.to_owned());
                whole(200, &inner.objects[path])
            }
            Method::GET if is_collection(path) => inner.list(path, &query),
            Method::POST => self.changed(inner.create(path, sent)),
            Method::PATCH => self.changed(inner.change(path, sent)),
            Method::PUT => self.changed(inner.replace(path, sent)),
            Method::DELETE => self.changed(inner.delete(path, &sent)),
            _ => refusal(404, "NotFound"),
        }
    }

    fn changed(&self, outcome: Outcome) -> Response<Body> {
        match outcome {
            Ok((kind, path, object)) => {
                let answer = whole(if kind == "ADDED" { 201 } else { 200 }, &object);
                if !self.0.silent.load(Ordering::SeqCst) {
                    let _ = self.0.events.send((path, json!({"type": kind, "object": object})));
                }
                answer
            }
            Err((status, reason)) => refusal(status, reason),
        }
    }

    /// The events since a version, and the following ones.
    fn watch(&self, inner: &Inner, collection: &str, query: &BTreeMap<String, String>) -> Response<Body> {
        let since = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
        let missed = inner.told.iter().filter(|(version, ..)| *version > since && !self.0.silent.load(Ordering::SeqCst));
        let missed: Vec<(String, Value)> = missed.map(|(_, path, event)| (path.clone(), event.clone())).collect();
        let (collection, events) = (collection.to_owned(), self.0.events.subscribe());
        let lines = stream::unfold(events, |mut events| async move { events.recv().await.ok().map(|event| (event, events)) });
        let lines = stream::iter(missed).chain(lines).filter_map(move |(path, event)| {
            let line = belongs(&path, &collection).then(|| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
            async move { line }
        });
        Response::new(StreamBody::new(lines).boxed_unsync())
    }
}

impl Inner {
    fn list(&self, collection: &str, query: &BTreeMap<String, String>) -> Response<Body> {
        let exact = query.get("resourceVersionMatch").is_some_and(|matching| matching == "Exact");
        let (version, objects) = match query.get("resourceVersion").and_then(|version| version.parse().ok()) {
            Some(version) if exact => (version, &self.history.iter().find(|(at, _)| *at == version).expect("a version that there was").1),
            _ => (self.version, &self.objects),
        };
        let selector = query.get("labelSelector").map(|selector| selector.split_once('=').unwrap_or((selector, "")));
        let fits = |object: &Value| {
            selector.is_none_or(|(label, value)| {
                let found = object["metadata"]["labels"][label].as_str();
                found.is_some_and(|found| value.is_empty() || found == value)
            })
        };
        let items: Vec<&Value> =
            objects.iter().filter(|(path, object)| belongs(path, collection) && fits(object)).map(|(_, object)| object).collect();
        whole(200, &json!({"kind": "List", "metadata": {"resourceVersion": version.to_string()}, "items": items}))
    }

    /// Stores an object under a new version.
    fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object.clone());
        self.history.push((self.version, self.objects.clone()));
        object
    }

    /// Records a watch event.
    fn tell(&mut self, kind: &'static str, path: &str, object: Value) -> (&'static str, String, Value) {
        self.told.push((self.version, path.to_owned(), json!({"type": kind, "object": object})));
        (kind, path.to_owned(), object)
    }

    fn create(&mut self, collection: &str, mut object: Value) -> Outcome {
        let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap());
        if self.objects.contains_key(&path) {
            return Err((409, "AlreadyExists"));
        }
        object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        object["metadata"]["generation"] = json!(1);
        object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        if let Some((_, rest)) = collection.split_once("/namespaces/") {
            object["metadata"]["namespace"] = json!(rest.split('/').next());
        }
        let made = self.put(&path, object);
        Ok(self.tell("ADDED", &path, made))
    }

    fn change(&mut self, path: &str, sent: Value) -> Outcome {
        let Some(mut object) = self.objects.get(path).cloned() else { return Err((404, "NotFound")) };
        let expected = &sent["metadata"]["resourceVersion"];
        if !expected.is_null() && *expected != object["metadata"]["resourceVersion"] {
            return Err((409, "Conflict"));
        }
        merge_patch(&mut object, sent);
        let changed = self.put(path, object);
        Ok(self.tell("MODIFIED", path, changed))
    }

    fn replace(&mut self, path: &str, mut sent: Value) -> Outcome {
        let Some(before) = self.objects.get(path).map(|object| object["metadata"].clone()) else { return Err((404, "NotFound")) };
        for kept in ["uid", "namespace", "generation", "creationTimestamp"] {
            sent["metadata"][kept] = before[kept].clone();
        }
        let changed = self.put(path, sent);
        Ok(self.tell("MODIFIED", path, changed))
    }

    fn delete(&mut self, path: &str, options: &Value) -> Outcome {
        let Some(mut object) = self.objects.get(path).cloned() else { return Err((404, "NotFound")) };
        for part in ["uid", "resourceVersion"] {
            let expected = &options["preconditions"][part];
            if !expected.is_null() && *expected != object["metadata"][part] {
                return Err((409, "Conflict"));
            }
        }
        self.version += 1;
        self.objects.remove(path);
        self.history.push((self.version, self.objects.clone()));
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        Ok(self.tell("DELETED", path, object))
    }
}

/// Whether an object is in a collection of a namespace or of the cluster.
fn belongs(object: &str, collection: &str) -> bool {
    let Some((inside, _)) = object.rsplit_once('/') else { return false };
    let (group, plural) = collection.rsplit_once('/').unwrap_or_default();
    inside == collection || (inside.starts_with(&format!("{group}/namespaces/")) && inside.rsplit('/').next() == Some(plural))
}

fn is_collection(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    [
        "agents",
        "tools",
        "skills",
        "datasets",
        "evaluationruns",
        "knowledgebases",
        "ingestions",
        "integrations",
        "guardrailpolicies",
        "teams",
        "rolebindings",
        "events",
        "configmaps",
    ]
    .contains(&last)
}

fn whole(status: u16, value: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(value.to_string())).boxed_unsync();
    Response::builder().status(status).header("content-type", "application/json").body(body).unwrap()
}

fn refusal(code: u16, reason: &str) -> Response<Body> {
    told(code, reason, reason)
}

fn told(code: u16, reason: &str, message: &str) -> Response<Body> {
    whole(code, &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}))
}
