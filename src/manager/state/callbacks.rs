//! Callbacks of evaluations: a runtime reports that a run has ended, REST passes that on, and here the token is verified. What is
//! noted in the run's status makes the evaluation controller ask the pod for its results, from which it computes scores and verdict.
//! Nothing that a runtime claims about them is kept.

use std::time::SystemTime;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use slipway_api::condition::whole_seconds;
use slipway_api::evaluation_run::{EvaluationCallback, EvaluationPhase};
use slipway_api::{EvaluationRun, EvaluationRunStatus};
use slipway_evaluation::wire::{CallbackCall, Heard};
use slipway_http::callback::CallbackClaims;
use slipway_http::{Error, HeaderValue, StatusCode, header};
use slipway_release::gate::CALLBACK as MANAGER;

use crate::keys::callback::CallbackKeySource;

/// The longest request of REST, whose own bound is 64 KiB.
pub(super) const MAX_BODY_BYTES: usize = 128 * 1024;
/// The attempts to note a callback while others write the run's status.
const MAX_ATTEMPTS: usize = 8;
const RETRY_SECONDS: u64 = 2;

pub(super) struct Callbacks {
    client: Client,
    key: CallbackKeySource,
}

impl Callbacks {
    pub(super) fn new(client: Client, key: CallbackKeySource) -> Self {
        Self { client, key }
    }

    /// Verifies a callback, and notes it in the status of its run.
    pub(super) async fn hear(&self, call: CallbackCall, now: SystemTime) -> Result<Heard, Error> {
        let key = self.key.key().ok_or_else(|| later("the key of callbacks is not there yet"))?;
        let Some(claims) = key.verify(&call.token.0, now).filter(|claims| claims.path == call.path) else { return Ok(Heard::NotValid) };
        if call.body.run_id != claims.run_id {
            return Err(conflict("run_id: the token is for another run"));
        }
        if let Some(fault) = call.body.fault() {
            return Err(Error::bad_request(fault));
        }
        let api: Api<EvaluationRun> = Api::namespaced(self.client.clone(), &claims.namespace);
        for _ in 0..MAX_ATTEMPTS {
            let found = api.get_opt(&claims.run).await.map_err(|error| later("the run cannot be read").because(error))?;
            let run = found.filter(|run| run.uid().as_ref() == Some(&claims.uid)).ok_or_else(|| conflict("the run is gone"))?;
            let status = run.status.as_ref().ok_or_else(|| later("the run has not begun yet"))?;
            if let Some(why) = refusal(status, &claims) {
                return Err(conflict(why));
            }
            let received = Timestamp::try_from(now).ok().map(|now| Time(whole_seconds(now)));
            let callback = EvaluationCallback { attempt: claims.attempt, status: call.body.status.clone(), received_at: received };
            // By its version: of two calls with the same token one comes too late.
            let noted = json!({
                "apiVersion": EvaluationRun::api_version(&()),
                "kind": EvaluationRun::kind(&()),
                "metadata": {"name": claims.run, "uid": claims.uid, "resourceVersion": run.resource_version()},
                "status": {"callback": callback},
            });
            match api.patch_status(&claims.run, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&noted)).await {
                Ok(_) => {
                    tracing::info!(
                        namespace = claims.namespace,
                        run = claims.run,
                        attempt = claims.attempt,
                        "an evaluation has ended in its pod"
                    );
                    let phase = status.phase.unwrap_or_default().as_str().to_lowercase();
                    return Ok(Heard::Noted { status: phase });
                }
                Err(kube::Error::Api(refused)) if refused.code == 409 => {}
                Err(kube::Error::Api(refused)) if refused.code == 404 => return Err(conflict("the run is gone")),
                Err(error) => return Err(later("the run's status cannot be written").because(error)),
            }
        }
        Err(later("the run's status changes too often"))
    }
}

/// Why a valid token does nothing any more.
fn refusal(status: &EvaluationRunStatus, claims: &CallbackClaims) -> Option<&'static str> {
    let used = status.callback.as_ref().map_or(0, |callback| callback.attempt);
    if status.phase.is_some_and(EvaluationPhase::is_final) {
        Some("the run has ended")
    } else if used >= claims.attempt {
        Some("the token was used before")
    } else if status.attempt.is_some_and(|attempt| attempt > claims.attempt) {
        Some("the run was begun anew since")
    } else {
        None
    }
}

fn conflict(message: &str) -> Error {
    Error::new(StatusCode::CONFLICT, message)
}

fn later(message: &str) -> Error {
    Error::unavailable(message).with_header(header::RETRY_AFTER, HeaderValue::from(RETRY_SECONDS))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::Value;
    use slipway_evaluation::wire::{Callback, CallbackToken};
    use slipway_http::callback::CallbackKey;

    use super::*;

    const PATH: &str = "/api/v1/agents/ag_1/releases/2/eval-result";

    fn key(byte: u8) -> CallbackKey {
        CallbackKey::new(&[byte; 32]).unwrap()
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000)
    }

    fn claims(changes: &Value) -> CallbackClaims {
        let mut all = json!({"path": PATH, "namespace": "team-a", "run": "ev-1", "uid": "u", "run_id": "ev_1", "attempt": 1, "exp": 2_000});
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    fn body(changes: &Value) -> Callback {
        let mut all = json!({"run_id": "ev_1", "status": "completed", "scores": {"safety/mean": 1.0}, "passed": true, "verdict": "PASSED"});
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    /// One run, whose status is patched if the version is the present one. Each read is followed by a write of another client while the number is above zero.
    #[derive(Clone)]
    struct Cluster(Arc<Mutex<(Value, u32)>>);

    impl Cluster {
        fn with(status: &Value) -> Self {
            let metadata = json!({"name": "ev-1", "namespace": "team-a", "uid": "u", "resourceVersion": "7"});
            let run = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "EvaluationRun", "metadata": metadata, "spec": {"agent": "helper"},
                "status": status});
            Self(Arc::new(Mutex::new((run, 0))))
        }

        fn status(&self) -> Value {
            self.0.lock().unwrap().0["status"].clone()
        }

        fn callbacks(&self) -> Callbacks {
            let cluster = self.clone();
            let server = tower::service_fn(move |request: Request<Body>| {
                let cluster = cluster.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect_bytes().await.unwrap();
                    let (status, answer) = cluster.answer(&head, &body);
                    Ok::<_, std::io::Error>(Response::builder().status(status).body(Body::from(answer.to_string().into_bytes())).unwrap())
                }
            });
            Callbacks::new(Client::new(server, "default"), CallbackKeySource::Held(key(1)))
        }

        fn answer(&self, head: &http::request::Parts, body: &[u8]) -> (u16, Value) {
            let mut state = self.0.lock().unwrap();
            let (run, others) = &mut *state;
            let bump = |run: &mut Value| {
                let version: u64 = run["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
                run["metadata"]["resourceVersion"] = json!((version + 1).to_string());
            };
            let failure = |code: u16| {
                let reason = if code == 404 { "NotFound" } else { "Conflict" };
                (code, json!({"kind": "Status", "status": "Failure", "reason": reason, "message": "no", "code": code}))
            };
            let path = head.uri.path();
            if !path.ends_with("/namespaces/team-a/evaluationruns/ev-1") && !path.ends_with("/evaluationruns/ev-1/status") {
                return failure(404);
            }
            if head.method == http::Method::GET {
                let answer = run.clone();
                if *others > 0 {
                    *others -= 1;
                    bump(run);
                }
                return (200, answer);
            }
            assert!(head.uri.query().unwrap().contains("fieldManager=slipway%2Fcallback"), "{}", head.uri);
            let sent: Value = serde_json::from_slice(body).unwrap();
            if sent["metadata"]["resourceVersion"] != run["metadata"]["resourceVersion"] {
                return failure(409);
            }
            assert_eq!(sent["status"].as_object().unwrap().keys().collect::<Vec<_>>(), ["callback"], "nothing else is written");
            run["status"]["callback"] = sent["status"]["callback"].clone();
            bump(run);
            (200, run.clone())
        }
    }

    /// What came of a call: `noted`, `not valid`, or status and message.
    async fn heard(cluster: &Cluster, token: &str, path: &str, body: Callback) -> String {
        let call = CallbackCall { path: path.to_owned(), token: CallbackToken(token.to_owned()), body };
        match cluster.callbacks().hear(call, now()).await {
            Ok(Heard::Noted { status }) => format!("noted {status}"),
            Ok(Heard::NotValid) => "not valid".to_owned(),
            Err(error) => format!("{} {}", error.status().as_u16(), error.message()),
        }
    }

    fn token(changes: &Value) -> String {
        key(1).sign(&claims(changes)).unwrap()
    }

    #[tokio::test]
    async fn a_callback_is_noted_once_and_nothing_of_what_it_claims() {
        let cluster = Cluster::with(&json!({"phase": "Running", "attempt": 1}));
        let (good, lies) = (token(&json!({})), body(&json!({"verdict": "PASSED (avg=100 >= 1)"})));
        assert_eq!(heard(&cluster, &good, PATH, lies.clone()).await, "noted running");
        let expected = json!({"phase": "Running", "attempt": 1,
            "callback": {"attempt": 1, "status": "completed", "receivedAt": "1970-01-01T00:16:40Z"}});
        assert_eq!(cluster.status(), expected, "neither scores nor a verdict");
        assert_eq!(heard(&cluster, &good, PATH, lies).await, "409 the token was used before");
        assert_eq!(cluster.status(), expected);
    }

    #[tokio::test]
    async fn of_two_calls_at_once_one_is_heard() {
        let cluster = Cluster::with(&json!({"phase": "Running", "attempt": 1}));
        cluster.0.lock().unwrap().1 = 3;
        let token = token(&json!({}));
        let calls = (0..8).map(|_| heard(&cluster, &token, PATH, body(&json!({}))));
        let heard = futures::future::join_all(calls).await;
        assert_eq!(heard.iter().filter(|heard| *heard == "noted running").count(), 1, "{heard:?}");
        assert_eq!(heard.iter().filter(|heard| heard.starts_with("409 ")).count(), 7, "{heard:?}");
    }

    #[tokio::test]
    async fn tokens_that_are_wrong_all_sound_alike() {
        let cluster = Cluster::with(&json!({"phase": "Running", "attempt": 1}));
        for (what, token, path) in [
            ("another key", key(2).sign(&claims(&json!({}))).unwrap(), PATH),
            ("expired", token(&json!({"exp": 1_000})), PATH),
            ("another run's", token(&json!({"path": "/api/v1/agents/ag_1/evaluations/ev_2/result"})), PATH),
            ("another release's", token(&json!({})), "/api/v1/agents/ag_1/releases/3/eval-result"),
            ("another agent's", token(&json!({})), "/api/v1/agents/ag_2/releases/2/eval-result"),
            ("none", String::new(), PATH),
            ("nonsense", "a.b".to_owned(), PATH),
        ] {
            assert_eq!(heard(&cluster, &token, path, body(&json!({}))).await, "not valid", "{what}");
        }
        assert!(cluster.status().get("callback").is_none());
    }

    #[tokio::test]
    async fn a_callback_that_comes_too_late_or_says_what_cannot_be_changes_nothing() {
        for (what, status, changes, said, expected) in [
            ("ended", json!({"phase": "Completed", "attempt": 1}), json!({}), json!({}), "409 the run has ended"),
            ("cancelled", json!({"phase": "Cancelled"}), json!({}), json!({}), "409 the run has ended"),
            ("begun anew", json!({"phase": "Running", "attempt": 2}), json!({}), json!({}), "409 the run was begun anew since"),
            (
                "a later one was heard",
                json!({"phase": "Running", "callback": {"attempt": 2, "status": "failed"}}),
                json!({}),
                json!({}),
                "409 the token was used before",
            ),
            ("an object of the same name", json!({"phase": "Running"}), json!({"uid": "v"}), json!({}), "409 the run is gone"),
            ("deleted", json!({"phase": "Running"}), json!({"run": "ev-2"}), json!({}), "409 the run is gone"),
            ("not begun", Value::Null, json!({}), json!({}), "503 the run has not begun yet"),
            (
                "about another run",
                json!({"phase": "Running"}),
                json!({}),
                json!({"run_id": "ev_2"}),
                "409 run_id: the token is for another run",
            ),
            (
                "too high",
                json!({"phase": "Running"}),
                json!({}),
                json!({"scores": {"safety/mean": 7}}),
                "400 scores.safety/mean: must be between 0 and 1",
            ),
            (
                "unknown",
                json!({"phase": "Running"}),
                json!({}),
                json!({"scores": {"kind/mean": 1}}),
                "400 scores.kind/mean: must be the name of a scorer and /mean",
            ),
        ] {
            let cluster = Cluster::with(&status);
            assert_eq!(heard(&cluster, &token(&changes), PATH, body(&said)).await, expected, "{what}");
            assert_eq!(cluster.status(), status, "{what}");
        }
        // The controller may not have noted yet that the run began.
        let cluster = Cluster::with(&json!({"phase": "Pending"}));
        assert_eq!(heard(&cluster, &token(&json!({})), PATH, body(&json!({"status": "failed", "scores": {}}))).await, "noted pending");
    }
}
