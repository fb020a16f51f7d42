//! The judge: a model that is asked about an answer and says in a JSON object what it thinks of it. An answer that cannot be read
//! is asked for once more; a judge that fails or takes too long gives no score, and the reason why.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use slipway_api::evaluation_run::Scorer;
use slipway_evaluation::{Judged, Question, read_answer, repair};
use slipway_models::{Message, Model, ModelRequest, Piece, Usage};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::EvaluationLimits;
use crate::record::Recorder;

/// An answer is short; models that think before it need more.
const MAX_OUTPUT_TOKENS: u32 = 4096;
const MAX_ANSWER_BYTES: usize = 64 * 1024;

pub(super) struct Judge {
    pub(super) model: Arc<dyn Model>,
    places: Semaphore,
    timeout: Duration,
    /// That of the run, for what the judge takes.
    recorder: Recorder,
    /// That of the agent, for metrics and for what its policies say about the judge.
    meters: Recorder,
}

/// What a judge said, and what it took.
pub(super) struct Asked {
    pub(super) judged: Result<Judged, String>,
    pub(super) used: Usage,
}

impl Judge {
    /// `uri` is `provider:/model`. Server and key are those of the agent's Secrets: an integration that gives the agent's own models
    /// theirs has no say in how they are judged.
    pub(super) fn open(
        uri: &str,
        variables: &dyn Fn(&str) -> Option<String>,
        limits: EvaluationLimits,
        recorder: Recorder,
        meters: Recorder,
    ) -> Result<Self, String> {
        let named = uri.split_once(":/").filter(|(provider, id)| !provider.is_empty() && !id.is_empty());
        let (provider, id) = named.ok_or("must be provider:/model")?;
        let opened = provider.parse().and_then(|provider| slipway_models::open(provider, id, variables));
        let model = opened.map_err(|fault| fault.message().to_owned())?;
        let places = Semaphore::new(limits.judge_calls);
        Ok(Self { model: Arc::from(model), places, timeout: limits.judge_timeout, recorder, meters })
    }

    /// Asks, and once more where the answer cannot be read.
    pub(super) async fn ask(&self, scorer: Scorer, question: Question, deadline: Instant) -> Asked {
        let mut used = Usage::default();
        let mut request = ModelRequest {
            system: Some(question.system),
            messages: vec![Message::user(question.user)],
            max_output_tokens: Some(MAX_OUTPUT_TOKENS),
            temperature: Some(0.0),
            ..ModelRequest::default()
        };
        let mut fault = String::new();
        for _ in 0..2 {
            let Ok(Ok(_place)) = timeout_at(deadline, self.places.acquire()).await else {
                return Asked { judged: Err("the time for judging this case ran out".to_owned()), used };
            };
            let began = Instant::now();
            let answered = self.answer(request.clone(), deadline, &mut used).await;
            let judged = answered.map(|text| (read_answer(scorer, &text), text));
            let outcome = match &judged {
                Ok((Ok(_), _)) => "ok",
                Ok((Err(_), _)) => "invalid",
                Err((outcome, _)) => outcome,
            };
            self.meters.judge_call(outcome, began.elapsed());
            match judged {
                Ok((Ok(judged), _)) => return Asked { judged: Ok(judged), used },
                Ok((Err(why), text)) => {
                    // Providers refuse empty messages.
                    let text = if text.trim().is_empty() { "(nothing)".to_owned() } else { text };
                    request.messages.extend([Message::assistant(text), Message::user(repair(&why))]);
                    fault = why;
                }
                Err((_, why)) => return Asked { judged: Err(why), used },
            }
        }
        Asked { judged: Err(format!("the judge's answer cannot be used: {fault}")), used }
    }

    /// One call. An error has the outcome for metrics and the reason.
    async fn answer(&self, request: ModelRequest, deadline: Instant, used: &mut Usage) -> Result<String, (&'static str, String)> {
        let allowed = self.meters.may_ask(&*self.model);
        allowed.map_err(|fault| ("refused", format!("the judge was not asked: {}", fault.message())))?;
        let mut record = self.recorder.background(&*self.model, &request);
        let mut pieces = self.model.answer(request);
        let answering = async {
            let mut text = String::new();
            while let Some(piece) = pieces.next().await {
                record.hear(&piece);
                match piece {
                    Ok(Piece::Text(more)) => text.push_str(&more),
                    Ok(_) => {}
                    Err(fault) => return Err(("error", format!("the judge failed: {}", fault.message()))),
                }
                if text.len() > MAX_ANSWER_BYTES {
                    break;
                }
            }
            Ok(text)
        };
        let until = deadline.min(Instant::now() + self.timeout);
        let answered = timeout_at(until, answering).await;
        let took = record.used();
        self.meters.judge_tokens(&took);
        used.input_tokens += took.input_tokens;
        used.output_tokens += took.output_tokens;
        used.cached_input_tokens += took.cached_input_tokens;
        answered.unwrap_or_else(|_| Err(("timeout", "the judge took too long to answer".to_owned())))
    }
}
