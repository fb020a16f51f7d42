//! The webhook by which a progressive-delivery controller, such as Flagger, asks whether a rollout goes on. Answers are 200 and 412
//! alone, as Flagger takes every status above 202 for a failure, and say no more than they have to: the caller is known by the
//! credential of a namespace, which the state role verifies.
//!
//! The state role answers by the agent's own evaluations. Where they say nothing, MLflow is asked (`tracked`); where that says
//! nothing either, an evaluation is begun; and where neither can be read, the gate opens, unless the installation shuts it for the
//! agent's risk profile.

mod tracked;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{Api, ObjectMeta, PostParams};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use slipway_api::agent::RiskProfile;
use slipway_api::{EvaluationRun, EvaluationRunSpec, ids, labels};
use slipway_cluster::quota;
use slipway_evaluation::wire::{GateAnswer, GateCall, GateCredential, GateDecision, GateNext, GateOutcome, GateScore, GateSubject};
use slipway_evaluation::{Profile, canary_gate};
use slipway_http::{Error, Reply, Request, RequestId, StatusCode};
use tokio::time::timeout;

use crate::answer::Answer;
use crate::call::{Body, Call};
use crate::context::Context;
use crate::{access, cluster_error, validate};
use tracked::Tracked;

const MAX_BODY_BYTES: usize = 64 * 1024;
/// How long an evaluation may take to be made.
const MAKE_TIMEOUT: Duration = Duration::from_secs(2);

const NOT_VALID: &str = "The credential is not this namespace's";
const UNVERIFIED: &str = "The credential cannot be verified at the moment";

/// A question about a rollout. Further fields are passed over.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "CanaryGate", extend("additionalProperties" = true))]
struct Question {
    /// The rollout, which has the name of its agent, unless `metadata.agent` names one.
    name: String,
    /// The namespace of rollout and agent, which the credential is for.
    namespace: String,
    /// The phase of the rollout, for example Progressing.
    phase: String,
    metadata: Option<Metadata>,
}

/// What the controller was told to send along.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "CanaryGateMetadata", extend("additionalProperties" = true))]
struct Metadata {
    /// The agent's slug.
    agent: Option<String>,
    /// The type of the hook. None of `confirm-…` begins an evaluation, and `rollback` asks for the opposite: 200 rolls back.
    hook: Option<String>,
    /// With an event nothing is decided.
    event_type: Option<String>,
}

/// The body, or why it cannot be read, and the address it came from.
pub(crate) struct GateRequest {
    address: IpAddr,
    question: Result<Question, String>,
}

impl Body for GateRequest {
    fn form(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some(("application/json", generator.subschema_for::<Question>()))
    }

    async fn read(request: Request) -> Result<Self, Error> {
        let address = request.address();
        let read = request.json_up_to(MAX_BODY_BYTES).await;
        Ok(Self { address, question: read.map_err(|error| error.message().to_owned()) })
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CanaryGateAnswer")]
struct View {
    #[schemars(extend("enum" = ["ok", "failed"]))]
    status: &'static str,
    message: String,
}

/// 200 if the rollout goes on, else 412.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GateVerdict {
    is_open: bool,
    message: String,
}

impl Answer for GateVerdict {
    fn form(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<View>()
    }

    fn reply(self) -> Result<Reply, Error> {
        let (code, status) = if self.is_open { (StatusCode::OK, "ok") } else { (StatusCode::PRECONDITION_FAILED, "failed") };
        Ok(Reply::json(&View { status, message: self.message })?.with_status(code))
    }
}

/// A verdict, and how it is counted.
#[derive(Debug, PartialEq, Eq)]
struct Answered {
    outcome: &'static str,
    is_scored: bool,
    verdict: GateVerdict,
}

impl Answered {
    fn open(outcome: &'static str, message: impl Into<String>) -> Self {
        Self { outcome, is_scored: false, verdict: GateVerdict { is_open: true, message: message.into() } }
    }

    fn shut(outcome: &'static str, message: impl Into<String>) -> Self {
        Self { outcome, is_scored: false, verdict: GateVerdict { is_open: false, message: message.into() } }
    }

    fn scored(score: GateScore) -> Self {
        let outcome = if score.passed { "passed" } else { "failed" };
        Self { outcome, is_scored: true, verdict: GateVerdict { is_open: score.passed, message: canary_gate::said(score) } }
    }

    /// For a hook whose 200 rolls back: only a score that failed does.
    fn turned(self) -> Self {
        let is_open = self.is_scored && !self.verdict.is_open;
        Self { verdict: GateVerdict { is_open, ..self.verdict }, ..self }
    }
}

pub(crate) async fn answer(call: Call<GateRequest>) -> Result<GateVerdict, Error> {
    let (call, GateRequest { address, question }) = call.split();
    let is_rollback = question.as_ref().is_ok_and(|question| question.hook() == "rollback");
    let told = decide(&call, address, question).await;
    call.context.metrics.gate(told.outcome);
    let told = if is_rollback { told.turned() } else { told };
    Ok(told.verdict)
}

/// The answer to a call that has failed, whatever the reason: the gate stays shut.
pub(crate) fn shut(context: &Context, id: &RequestId, error: &Error) -> Result<Reply, Error> {
    context.metrics.gate("refused");
    log(id, error);
    GateVerdict { is_open: false, message: error.message().to_owned() }.reply()
}

/// As the server logs the errors that callers are told.
fn log(id: &RequestId, error: &Error) {
    if let Some(cause) = error.cause().filter(|_| error.status().is_server_error()) {
        tracing::error!(request_id = %id, %cause, "a quality gate stays shut");
    }
}

impl Question {
    fn hook(&self) -> &str {
        self.metadata.as_ref().and_then(|metadata| metadata.hook.as_deref()).unwrap_or_default()
    }

    fn passed_on(self, credential: String) -> GateCall {
        let may_evaluate = !self.hook().starts_with("confirm-") && self.hook() != "rollback";
        let Metadata { agent, hook: _, event_type } = self.metadata.unwrap_or_default();
        let agent = agent.filter(|agent| !agent.is_empty()).unwrap_or(self.name);
        let credential = GateCredential(credential);
        GateCall { credential, namespace: self.namespace, agent, phase: self.phase, is_event: event_type.is_some(), may_evaluate }
    }
}

async fn decide(call: &Call, address: IpAddr, question: Result<Question, String>) -> Answered {
    let Some(credential) = access::gate_credential(&call.path, &call.headers) else { return Answered::shut("not_valid", NOT_VALID) };
    let question = match question {
        Ok(question) => question,
        Err(why) => return Answered::shut("refused", why),
    };
    let asked = question.passed_on(credential);
    let answer = call.context.state.gate(&asked).await;
    let is_valid = answer.as_ref().ok().map(|answer| *answer != GateAnswer::NotValid);
    call.context.access.gate_verified(&asked.credential.0, address, is_valid, Instant::now());
    match answer {
        Err(error) => {
            log(&call.id, &error);
            Answered::shut("unverified", UNVERIFIED)
        }
        Ok(GateAnswer::NotValid) => Answered::shut("not_valid", NOT_VALID),
        Ok(GateAnswer::Noted) => Answered::open("noted", "Noted"),
        Ok(GateAnswer::Scored(score)) => Answered::scored(score),
        Ok(GateAnswer::Refused { why }) => Answered::shut("refused", format!("Quality gate failed: {why}")),
        Ok(GateAnswer::NoScore { subject, next }) => {
            let tracked = tracked::ask(&call.context, &asked, Some(&subject)).await;
            match tracked {
                Tracked::Scored(score) => by_mlflow(call, asked, score),
                Tracked::Nothing | Tracked::Away(_) => without_score(call, asked, &subject, next).await,
            }
        }
        Ok(GateAnswer::Unknown { subject }) => {
            let tracked = tracked::ask(&call.context, &asked, subject.as_ref()).await;
            match tracked {
                Tracked::Scored(score) => by_mlflow(call, asked, score),
                Tracked::Nothing => Answered::shut("no_score", "No score yet"),
                Tracked::Away(why) => by_default(call, asked, subject.as_ref(), &why),
            }
        }
    }
}

fn by_mlflow(call: &Call, asked: GateCall, score: GateScore) -> Answered {
    tell(call, asked, GateDecision::Scored(score));
    Answered::scored(score)
}

/// Waits for an evaluation, and begins one if that is how a score comes about.
async fn without_score(call: &Call, asked: GateCall, subject: &GateSubject, next: GateNext) -> Answered {
    let waits = |message: String| Answered::shut("no_score", message);
    match next {
        GateNext::Nothing => waits("No score yet".to_owned()),
        GateNext::Unanswered(run) => {
            let run = ids::evaluation_run(&run);
            waits(format!("No score yet; the agent gave evaluation {run} no answers, and it is not repeated"))
        }
        GateNext::Runs(run) => waits(format!("No score yet; evaluation {} is under way", ids::evaluation_run(&run))),
        GateNext::Make(run) => match begin(&call.context, &asked, subject, &run).await {
            Ok(()) => {
                tell(call, asked, GateDecision::Started(run.clone()));
                waits(format!("No score yet; evaluation {} was started", ids::evaluation_run(&run)))
            }
            Err(error) => {
                log(&call.id, &error);
                waits(format!("No score yet; an evaluation could not be started: {}", error.message()))
            }
        },
    }
}

fn by_default(call: &Call, asked: GateCall, subject: Option<&GateSubject>, why: &str) -> Answered {
    let is_shut = is_shut(&call.context.settings.gate_fail_closed, subject.map(|subject| subject.profile));
    let GateCall { namespace, agent, .. } = &asked;
    tracing::warn!(namespace, agent, why, is_shut, "a quality gate without a score: neither the cluster nor MLflow can be read");
    let (decision, told) = if is_shut {
        (GateDecision::DefaultRefused, Answered::shut("default_refused", "Quality gate failed (MLflow unavailable)"))
    } else {
        let message = "Quality gate passed (MLflow unavailable, default approve)";
        (GateDecision::DefaultApproved, Answered::open("default_approved", message))
    };
    tell(call, asked, decision);
    told
}

/// Whether the gate of this risk profile opens for nobody who has no score. A profile that is not known may be any.
fn is_shut(shut: &[RiskProfile], profile: Option<RiskProfile>) -> bool {
    let id = |profile: RiskProfile| Profile::of(profile).id;
    profile.map_or(!shut.is_empty(), |profile| shut.iter().any(|shut| id(*shut) == id(profile)))
}

/// Makes an EvaluationRun. One of its name is as good: it follows from what is evaluated.
async fn begin(context: &Context, asked: &GateCall, subject: &GateSubject, name: &str) -> Result<(), Error> {
    let run = EvaluationRun {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(asked.namespace.clone()),
            labels: Some([(labels::AGENT.to_owned(), asked.agent.clone())].into()),
            ..ObjectMeta::default()
        },
        // Every user who may chat could add a case, and so decide with it.
        spec: EvaluationRunSpec {
            agent: asked.agent.clone(),
            track: subject.track,
            exclude_feedback: true,
            ..EvaluationRunSpec::default()
        },
        status: None,
    };
    validate::object(&run)?;
    let api: Api<EvaluationRun> = Api::namespaced(context.client.clone(), &asked.namespace);
    let parameters = PostParams { field_manager: Some(labels::REST.to_owned()), ..PostParams::default() };
    let making = quota::retry_on_quota_conflict(|| api.create(&parameters, &run));
    match timeout(MAKE_TIMEOUT, making).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) if cluster_error::already_exists(&error) => Ok(()),
        Ok(Err(error)) => Err(cluster_error::from_kube(error, &format!("evaluation of agent {}", asked.agent))),
        Err(_) => Err(cluster_error::unavailable()),
    }
}

/// Has the state role write an Event, while the answer is on its way.
fn tell(call: &Call, asked: GateCall, decision: GateDecision) {
    let context: Arc<Context> = call.context.clone();
    let GateCall { credential, namespace, agent, phase, .. } = asked;
    let outcome = GateOutcome { credential, namespace, agent, phase, decision };
    tokio::spawn(async move {
        if let Err(error) = context.state.gate_outcome(&outcome).await {
            tracing::warn!(
                namespace = outcome.namespace,
                agent = outcome.agent,
                error = error.message(),
                "no Event tells of a quality gate"
            );
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(body: Value) -> GateCall {
        serde_json::from_value::<Question>(body).unwrap().passed_on("c".to_owned())
    }

    #[test]
    fn a_question_is_read_whatever_else_it_says() {
        let flaggers = json!({"name": "helper", "namespace": "team-a", "phase": "Progressing", "checksum": "85d557f47b", "metadata": {"agent": "other", "test": "all", "token": "x"}});
        let call = read(flaggers);
        assert_eq!((call.namespace.as_str(), call.agent.as_str(), call.phase.as_str()), ("team-a", "other", "Progressing"));
        assert!(call.may_evaluate && !call.is_event);
        for (body, agent) in [
            (json!({"name": "helper"}), "helper"),
            (json!({"name": "helper", "metadata": null}), "helper"),
            (json!({"name": "helper", "metadata": {}}), "helper"),
            (json!({"name": "helper", "metadata": {"agent": ""}}), "helper"),
            (json!({"metadata": {"agent": "other"}}), "other"),
            (json!({}), ""),
        ] {
            assert_eq!(read(body.clone()).agent, agent, "{body}");
        }
        for (hook, may_evaluate) in
            [("pre-rollout", true), ("rollout", true), ("confirm-rollout", false), ("confirm-promotion", false), ("rollback", false)]
        {
            assert_eq!(read(json!({"metadata": {"hook": hook}})).may_evaluate, may_evaluate, "{hook}");
        }
        assert!(read(json!({"metadata": {"eventType": "Warning", "eventMessage": "m"}})).is_event);
        for wrong in [json!("x"), json!(5), json!({"name": 5}), json!({"metadata": "x"}), json!({"metadata": {"hook": 5}})] {
            assert!(serde_json::from_value::<Question>(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rollback_hook_is_answered_the_other_way_round() {
        let score = |score, passed| Answered::scored(GateScore { score, passed });
        for (told, is_open) in [
            (score(0.9, true), false),
            (score(0.1, false), true),
            (Answered::open("noted", "Noted"), false),
            (Answered::open("default_approved", "x"), false),
            (Answered::shut("no_score", "x"), false),
            (Answered::shut("not_valid", "x"), false),
        ] {
            assert_eq!(told.turned().verdict.is_open, is_open);
        }
        assert_eq!(score(0.1, false).turned().verdict.message, "Quality gate failed (score=0.10)");
    }

    #[test]
    fn a_gate_is_shut_for_the_profiles_that_are_named() {
        use RiskProfile::{High, Low, Medium, Standard};
        for (shut, profile, expected) in [
            (&[][..], Some(High), false),
            (&[], None, false),
            (&[High], Some(High), true),
            (&[High], Some(Standard), false),
            (&[High], None, true),
            (&[Medium], Some(Standard), true),
            (&[Standard, High], Some(Low), false),
        ] {
            assert_eq!(is_shut(shut, profile), expected, "{shut:?} {profile:?}");
        }
    }
}
