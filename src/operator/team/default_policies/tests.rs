//! A manager that is killed before each of its writes, and a person who deletes a policy in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use super::*;
use crate::caches::child::Child;
use crate::testing::context_of;

/// What the API server has.
#[derive(Default)]
struct Cluster {
    policies: BTreeMap<String, Value>,
    made: Value,
    /// How many more writes it takes before the manager is killed.
    writes_left: usize,
    /// Which policies it has no room for.
    refuses: Option<&'static str>,
}

impl Cluster {
    fn delete(&mut self, name: &str) {
        let Some(policy) = self.policies.get_mut(name) else { return };
        policy["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        self.sweep();
    }

    /// What is on its way out and is held by nobody goes.
    fn sweep(&mut self) {
        self.policies.retain(|_, policy| {
            let metadata = &policy["metadata"];
            metadata["deletionTimestamp"].is_null() || metadata["finalizers"].as_array().is_some_and(|all| !all.is_empty())
        });
    }

    fn team(&self) -> Value {
        json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Team", "metadata": {"name": "a", "uid": "u", "resourceVersion": "1"},
            "spec": {"name": "A"}, "status": {"defaultPolicies": self.made}})
    }

    fn answer(&mut self, method: &Method, path: &str, body: Value) -> (StatusCode, Value) {
        let failure = |code: u16, reason: &str| {
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code});
            (StatusCode::from_u16(code).unwrap(), status)
        };
        let name = path.rsplit('/').next().unwrap_or_default();
        if path.ends_with("/events") {
            return (StatusCode::CREATED, body);
        }
        if method != Method::GET {
            if self.writes_left == 0 {
                return failure(500, "Killed");
            }
            self.writes_left -= 1;
        }
        match (method, path) {
            (&Method::GET, "/apis/agents.slipway.dev/v1/teams/a") => (StatusCode::OK, self.team()),
            (&Method::PATCH, "/apis/agents.slipway.dev/v1/teams/a/status") => {
                self.made = body["status"]["defaultPolicies"].clone();
                (StatusCode::OK, self.team())
            }
            (&Method::GET, _) => self.policies.get(name).map_or_else(|| failure(404, "NotFound"), |found| (StatusCode::OK, found.clone())),
            (&Method::POST, "/apis/agents.slipway.dev/v1/namespaces/team-a/guardrailpolicies") => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                if self.policies.contains_key(&name) {
                    return failure(409, "AlreadyExists");
                }
                if self.refuses == Some(&*name) {
                    return failure(403, "Forbidden");
                }
                self.policies.insert(name, body.clone());
                (StatusCode::CREATED, body)
            }
            (&Method::PATCH, _) => {
                let Some(policy) = self.policies.get_mut(name) else { return failure(404, "NotFound") };
                policy["metadata"]["finalizers"] = body["metadata"]["finalizers"].clone();
                let answer = policy.clone();
                self.sweep();
                (StatusCode::OK, answer)
            }
            other => panic!("nobody asks for {other:?}"),
        }
    }
}

/// A manager that begins to lead, knows what the cluster has, and works until nothing is left to do or it is killed.
async fn lead(cluster: &Arc<Mutex<Cluster>>) -> Result<(), write::Error> {
    let served = cluster.clone();
    let answers = tower::service_fn(move |request: Request<Body>| {
        let served = served.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap_or_default();
            let (status, answer) = served.lock().unwrap().answer(&parts.method, parts.uri.path(), body);
            Ok::<_, std::io::Error>(Response::builder().status(status).body(Body::from(answer.to_string().into_bytes())).unwrap())
        }
    });
    let (context, recorded) = (context_of(Client::new(answers, "default")), Recorded::default());
    let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Team", "name": "a", "uid": "u", "controller": true});
    let home = json!({"metadata": {"name": "team-a", "ownerReferences": [owner]}});
    let home = Child::look(&serde_json::from_value(home).unwrap(), None, || None, "");
    context.caches.children(ChildKind::Namespace).insert(Key::new("", "team-a"), home);
    for _ in 0..3 {
        let team = {
            let cluster = cluster.lock().unwrap();
            context.caches.guardrail_policies.retain(None, &HashSet::new());
            for (name, policy) in &cluster.policies {
                let policy: Guarded<GuardrailPolicy> = serde_json::from_value(policy.clone()).unwrap();
                context.caches.guardrail_policies.insert(Key::new("team-a", name), CachedPolicy::from(policy));
            }
            serde_json::from_value(cluster.team()).unwrap()
        };
        let made = make(&context, &team, &recorded).await;
        record(&context, &team, made, &recorded).await?;
    }
    Ok(())
}

fn names(cluster: &Cluster) -> Vec<&str> {
    cluster.policies.keys().map(String::as_str).collect()
}

#[tokio::test]
async fn whenever_it_is_killed_each_is_made_once() {
    let all = ["default-cost", "default-latency", "default-tokens", "default-topics"];
    for kill in 0..10 {
        for deleted in all {
            let cluster = Arc::new(Mutex::new(Cluster { writes_left: kill, ..Cluster::default() }));
            let killed = lead(&cluster).await.is_err();
            assert_eq!(killed, kill < 9, "four policies, the status, and four finalizers");
            let was_there = {
                let mut cluster = cluster.lock().unwrap();
                cluster.writes_left = usize::MAX;
                let was_there = cluster.policies.contains_key(deleted);
                cluster.delete(deleted);
                was_there
            };
            lead(&cluster).await.unwrap();
            let mut cluster = cluster.lock().unwrap();
            let expected: Vec<_> = all.into_iter().filter(|name| !(was_there && *name == deleted)).collect();
            assert_eq!(names(&cluster), expected, "killed before write {kill}, {deleted} deleted");
            assert_eq!(cluster.made.as_array().map(Vec::len), Some(4));
            let held = |policy: &Value| policy["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
            assert!(!cluster.policies.values().any(held), "nothing keeps them from being deleted");
            cluster.policies.clear();
            cluster.writes_left = 0;
        }
    }
}

#[tokio::test]
async fn what_is_deleted_or_changed_stays_so() {
    let cluster = Arc::new(Mutex::new(Cluster { writes_left: usize::MAX, ..Cluster::default() }));
    lead(&cluster).await.unwrap();
    {
        let mut cluster = cluster.lock().unwrap();
        cluster.policies.get_mut("default-cost").unwrap()["spec"]["enabled"] = json!(false);
        cluster.delete("default-topics");
        cluster.writes_left = 0;
    }
    lead(&cluster).await.unwrap();
    let cluster = cluster.lock().unwrap();
    assert_eq!(names(&cluster), ["default-cost", "default-latency", "default-tokens"]);
    assert_eq!(cluster.policies["default-cost"]["spec"]["enabled"], false);
}

#[tokio::test]
async fn one_that_is_refused_is_made_later_and_the_others_are_not_made_again() {
    let refuses = Some("default-latency");
    let cluster = Arc::new(Mutex::new(Cluster { writes_left: usize::MAX, refuses, ..Cluster::default() }));
    // The Event is a write that this cluster does not know.
    cluster.lock().unwrap().policies.insert(
        "default-tokens".to_owned(),
        json!({"metadata": {"name": "default-tokens", "namespace": "team-a"},
        "spec": {"name": "Mine", "severity": "warning", "rules": [{"type": "max_tokens", "operator": "lt", "value": "7"}]}}),
    );
    lead(&cluster).await.unwrap();
    assert_eq!(cluster.lock().unwrap().made, json!(["default-tokens", "default-topics", "default-cost"]));
    cluster.lock().unwrap().delete("default-topics");
    cluster.lock().unwrap().refuses = None;
    lead(&cluster).await.unwrap();
    let cluster = cluster.lock().unwrap();
    assert_eq!(names(&cluster), ["default-cost", "default-latency", "default-tokens"]);
    assert_eq!(cluster.policies["default-tokens"]["spec"]["name"], "Mine", "what was there is somebody's");
    assert_eq!(cluster.made.as_array().map(Vec::len), Some(4));
}
