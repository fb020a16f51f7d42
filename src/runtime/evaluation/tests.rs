//! Judges of another party's make, good and bad.

use std::fmt::Write;

use serde_json::json;
use slipway_api::evaluation_run::Scorer;
use slipway_evaluation::Question;
use slipway_guards::Guards;
use slipway_models::Provider;
use slipway_peers::{Server, mock_llm};

use super::judge::{Asked, Judge};
use super::*;
use crate::metrics::Metrics;
use crate::policies::Policies;
use crate::record::Recorder;
use crate::settings::ModelId;
use crate::telemetry::Telemetry;

const LIMITS: EvaluationLimits =
    EvaluationLimits { cases: 1, judge_calls: 2, judge_timeout: Duration::from_secs(2), case_timeout: Duration::from_secs(20) };

/// A model server that answers by the judge's instructions, with a pause in milliseconds after each ten characters. Asked once more,
/// it has thought better of it.
fn server(pause: u32) -> Server {
    let answers = [
        ("@", "The weather is fine."),
        ("contains(body.messages[0].content, 'nothing')", ""),
        ("contains(body.messages[0].content, 'half')", r#"{"verdict": "ye"#),
        ("contains(body.messages[0].content, 'good')", r#"{"verdict": "yes", "reason": "It is to the point."}"#),
        (
            "contains(body.messages[0].content, 'mends') && length(body.messages) == `4`",
            r#"{"verdict": "no", "reason": "On second thought."}"#,
        ),
    ];
    let mut config = format!("streaming: {{chunkSize: 10, chunkIntervalMs: {pause}}}\nrules:\n");
    for (rule, answer) in answers {
        let choice = json!({"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"});
        let whole = json!({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}).to_string();
        writeln!(config, "  - {}", json!({"path": "/v1/chat/completions", "match": rule, "response": {"status": 200, "content": whole}}))
            .unwrap();
    }
    mock_llm(&config)
}

fn judge(server: &Server, limits: EvaluationLimits) -> Judge {
    judge_under(Guards::none(), server, limits)
}

fn judge_under(guards: Guards, server: &Server, limits: EvaluationLimits) -> Judge {
    rustls::crypto::ring::default_provider().install_default().ok();
    let telemetry = Telemetry::off();
    let model = ModelId { provider: Provider::Stub, id: "stub-echo".into() };
    let recorder = Recorder::new(telemetry.clone(), Metrics::new(&telemetry).meters, model, Policies::fixed(guards));
    let base = format!("{}/v1", server.url());
    let variables = |name: &str| match name {
        "OPENAI_BASE_URL" => Some(base.clone()),
        "OPENAI_API_KEY" => Some("none".to_owned()),
        _ => None,
    };
    Judge::open("openai:/gpt-4o", &variables, limits, recorder.rehearsing("ev_1"), recorder).unwrap()
}

async fn ask(judge: &Judge, system: &str) -> Asked {
    let question = Question { system: system.to_owned(), user: "{}".to_owned() };
    judge.ask(Scorer::RelevanceToQuery, question, Instant::now() + LIMITS.case_timeout).await
}

#[tokio::test]
async fn what_a_judge_says_is_a_score_or_the_reason_why_there_is_none() {
    let server = server(1);
    let judge = judge(&server, LIMITS);
    for (system, value) in [("good", Some(1.0)), ("mends", Some(0.0)), ("nonsense", None), ("nothing", None), ("half", None)] {
        let Asked { judged, used } = ask(&judge, system).await;
        assert!(used.input_tokens + used.output_tokens > 0, "{system}: {used:?}");
        match (value, judged) {
            (Some(value), Ok(judged)) => assert!((judged.value - value).abs() < 1e-9 && !judged.reason.is_empty(), "{system}: {judged:?}"),
            (None, Err(fault)) => assert!(fault.starts_with("the judge's answer cannot be used: "), "{system}: {fault}"),
            (_, other) => panic!("{system}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_judge_that_a_policy_does_not_allow_is_not_asked() {
    let server = server(1);
    for (severity, allowed, is_asked) in [("critical", "stub:*", false), ("warning", "stub:*", true), ("critical", "openai:*", true)] {
        let rules = json!([{"type": "allowed_models", "operator": "in", "value": allowed}]);
        let policies = json!([{"id": "gp_a", "severity": severity, "rules": rules}]).to_string();
        let Asked { judged, used } = ask(&judge_under(Guards::read("", &policies).unwrap(), &server, LIMITS), "good").await;
        assert_eq!((judged.is_ok(), used.input_tokens > 0), (is_asked, is_asked), "{severity}, {allowed}: {judged:?}");
        if let Err(fault) = judged {
            assert!(
                fault.starts_with("the judge was not asked: refused by allowed-models (policy gp_a): the model openai:gpt-4o"),
                "{fault}"
            );
        }
    }
}

#[tokio::test]
async fn a_judge_has_so_long_for_a_call_and_for_a_case() {
    let server = server(400);
    let slow = judge(&server, EvaluationLimits { judge_timeout: Duration::from_millis(600), ..LIMITS });
    let Asked { judged, used } = ask(&slow, "good").await;
    assert_eq!(judged, Err("the judge took too long to answer".to_owned()));
    assert!(used.input_tokens > 0, "what was cut off is paid for: {used:?}");
    // Nobody waits for a place longer than a case may take.
    let none = judge(&server, EvaluationLimits { judge_calls: 0, ..LIMITS });
    let question = Question { system: "good".into(), user: String::new() };
    let asked = none.ask(Scorer::Safety, question, Instant::now() + Duration::from_millis(100)).await;
    assert_eq!(asked.judged, Err("the time for judging this case ran out".to_owned()));
}

#[test]
fn a_run_id_is_that_of_an_evaluation_run() {
    for (id, fits) in [
        ("ev_01jd8x3k5v9m2n4p6q7r8s0tvw", true),
        ("ev_01JD8X3K5V9M2N4P6Q7R8S0TVW", false),
        ("ev_01jd8x3k5v9m2n4p6q7r8s0tv", false),
        ("ev_01jd8x3k5v9m2n4p6q7r8s0tvi", false),
        ("ev-01jd8x3k5v9m2n4p6q7r8s0tvw", false),
        ("01jd8x3k5v9m2n4p6q7r8s0tvw", false),
    ] {
        assert_eq!(is_run_id(id), fits, "{id}");
    }
}

#[test]
fn finished_runs_are_kept_for_an_hour_and_no_more_than_two() {
    let mut known = Known::default();
    for number in 0..5 {
        let results = Results::new(1, Vec::new());
        if number != 1 {
            results.end(Progress::Completed, None);
        }
        known.runs.push_back(Run { id: number.to_string(), results: Arc::new(results), task: None, target: None });
    }
    let ids = |known: &Known| known.runs.iter().map(|run| run.id.clone()).collect::<Vec<_>>();
    known.prune(Instant::now());
    assert_eq!(ids(&known), ["1", "3", "4"]);
    known.prune(Instant::now() + FINISHED_TTL);
    assert_eq!(ids(&known), ["1"]);
}
