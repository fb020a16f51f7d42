//! Calls about a run to the control port of a pod.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use slipway_api::ids;
use slipway_evaluation::wire::{EvaluatorTarget, Report, RunRequest};

use super::plan::{Cause, Said, excerpt};
use crate::control_port::{self, Answer, Fault, PodCall, Sign};

/// A report has the results of all cases.
const MAX_REPORT_BYTES: usize = 16 * 1024 * 1024;
const MAX_ANSWER_BYTES: usize = 64 * 1024;
const MESSAGE_MAX: usize = 512;

/// The control ports of an agent's pods, or of those that evaluate it.
pub(super) struct Ports {
    sign: Arc<Sign>,
    /// The agent's id.
    pub agent: String,
    /// Whom tokens are for.
    audience: String,
}

/// What a pod says of a request to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Accepted {
    Yes,
    /// Another run is under way; in the pod's words.
    Busy(String),
    Never(Cause),
    Nothing(String),
}

impl Ports {
    pub(super) fn of(sign: Arc<Sign>, agent: String, is_evaluator: bool) -> Self {
        let audience = if is_evaluator { ids::evaluator(&agent) } else { agent.clone() };
        Self { sign, agent, audience }
    }

    /// Whether tokens are for those that evaluate the agent, and not for itself.
    pub(super) fn are_evaluators(&self) -> bool {
        self.audience != self.agent
    }

    /// How far a run is.
    pub(super) async fn ask(&self, address: SocketAddr, run_id: &str) -> Said {
        self.read(address, &format!("{}?results=0", path(run_id)), MAX_ANSWER_BYTES).await
    }

    /// What a run found.
    pub(super) async fn results(&self, address: SocketAddr, run_id: &str) -> Said {
        self.read(address, &path(run_id), MAX_REPORT_BYTES).await
    }

    async fn read(&self, address: SocketAddr, path: &str, most: usize) -> Said {
        let answer = match self.call(address, Method::GET, path, Bytes::new(), most).await {
            Ok(answer) => answer,
            Err(why) => return Said::Nothing(why),
        };
        match answer.status {
            StatusCode::OK => match serde_json::from_slice::<Report>(&answer.body) {
                Ok(report) => Said::Report(report),
                Err(error) => Said::Nothing(format!("its answer cannot be used: {error}")),
            },
            StatusCode::NOT_FOUND => Said::Unknown,
            status => Said::Nothing(format!("it answered with status {status}")),
        }
    }

    pub(super) async fn begin(&self, address: SocketAddr, request: &RunRequest) -> Accepted {
        let body = match serde_json::to_vec(request) {
            Ok(body) => Bytes::from(body),
            Err(error) => return Accepted::Nothing(error.to_string()),
        };
        let answer = match self.call(address, Method::POST, "/control/evaluate", body, MAX_ANSWER_BYTES).await {
            Ok(answer) => answer,
            Err(why) => return Accepted::Nothing(why),
        };
        let words = || excerpt(&String::from_utf8_lossy(&answer.body), MESSAGE_MAX);
        let never = |reason, message| Accepted::Never(Cause::new(reason, message));
        match answer.status {
            StatusCode::OK | StatusCode::ACCEPTED => Accepted::Yes,
            StatusCode::CONFLICT => Accepted::Busy(words()),
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                never("NotSupported", "the agent's pod runs a version of the runtime that has no evaluations; restart the agent".to_owned())
            }
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                never("RequestRefused", format!("the agent's runtime refused the run: {}", words()))
            }
            status => Accepted::Nothing(format!("it answered with status {status}")),
        }
    }

    /// Tells an evaluator where the agent is from now on; says whether it has heard.
    pub(super) async fn turn(&self, address: SocketAddr, run_id: &str, target: &str) -> bool {
        let body = serde_json::to_vec(&EvaluatorTarget { target: target.to_owned() }).map(Bytes::from).unwrap_or_default();
        let answer = self.call(address, Method::PUT, &path(run_id), body, MAX_ANSWER_BYTES).await;
        answer.is_ok_and(|answer| answer.status == StatusCode::OK)
    }

    /// Ends a run in a pod, if that has it.
    pub(super) async fn cancel(&self, address: SocketAddr, run_id: &str) {
        if let Err(why) = self.call(address, Method::DELETE, &path(run_id), Bytes::new(), MAX_ANSWER_BYTES).await {
            tracing::info!(run = run_id, why, "a pod could not be told that an evaluation was cancelled");
        }
    }

    async fn call(&self, address: SocketAddr, method: Method, path: &str, body: Bytes, most: usize) -> Result<Answer, String> {
        let Some(token) = (self.sign)(&self.audience) else { return Err("there is no token for it".to_owned()) };
        let call = PodCall { method, path, token: &token, body, max_answer_bytes: most };
        control_port::call(address, call).await.map_err(|fault: Fault| fault.to_string())
    }
}

fn path(run_id: &str) -> String {
    format!("/control/evaluations/{run_id}")
}
