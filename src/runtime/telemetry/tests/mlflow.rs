//! Spans as a real MLflow server understands them, read back through its REST API.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{telemetry, whole_turn};
use crate::telemetry::{Answered, Inbound, Telemetry};

/// The agent's own name is the experiment's where nothing else is said.
const EXPERIMENT: &str = "helper";

fn late() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

struct Mlflow {
    client: reqwest::Client,
    url: String,
    _server: slipway_peers::Server,
}

impl Mlflow {
    fn start() -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        let server = slipway_peers::mlflow();
        Self { client: reqwest::Client::new(), url: server.url().trim_end_matches('/').to_owned(), _server: server }
    }

    fn telemetry(&self) -> Telemetry {
        self.named(EXPERIMENT)
    }

    fn named(&self, experiment: &str) -> Telemetry {
        telemetry(&[
            ("RUNTIME_MLFLOW_URI", &self.url),
            ("RUNTIME_MLFLOW_EXPERIMENT", experiment),
            ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"),
            // MLflow answers its first request late.
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "60000"),
        ])
    }

    async fn ask(&self, method: reqwest::Method, path: &str, body: &Value) -> (u16, Value) {
        let request = self.client.request(method, format!("{}/api/{path}", self.url));
        let answer = request.header("content-type", "application/json").body(body.to_string()).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default())
    }

    async fn experiment(&self, name: &str) -> Option<Value> {
        let path = format!("2.0/mlflow/experiments/get-by-name?experiment_name={name}");
        let (status, answer) = self.ask(reqwest::Method::GET, &path, &Value::Null).await;
        assert!(matches!(status, 200 | 404), "{status} {answer}");
        (status == 200).then(|| answer["experiment"].clone())
    }

    /// Traces of an experiment by a filter, as MLflow's search finds them.
    async fn traces(&self, experiment: &str, filter: &str) -> Vec<Value> {
        let id =
            self.experiment(experiment).await.unwrap_or_else(|| panic!("there is no experiment {experiment}"))["experiment_id"].clone();
        let location = json!({"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": id}});
        let search = json!({"locations": [location], "filter": filter, "max_results": 100});
        let (status, answer) = self.ask(reqwest::Method::POST, "3.0/mlflow/traces/search", &search).await;
        assert_eq!(status, 200, "{answer}");
        answer["traces"].as_array().cloned().unwrap_or_default()
    }

    /// The spans of a trace with their attributes as MLflow keeps them.
    async fn spans(&self, trace_id: &str) -> Vec<Value> {
        let path = format!("3.0/mlflow/traces/get?trace_id={trace_id}");
        let (status, answer) = self.ask(reqwest::Method::GET, &path, &Value::Null).await;
        assert_eq!(status, 200, "{answer}");
        answer["trace"]["spans"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
    }
}

/// An attribute of a span.
fn attribute(span: &Value, key: &str) -> Option<Value> {
    let pair = span["attributes"].as_array()?.iter().find(|pair| pair["key"] == key)?;
    Some(plain(&pair["value"]))
}

/// What OTLP's JSON wraps at every level by its type.
fn plain(value: &Value) -> Value {
    let Some((kind, value)) = value.as_object().and_then(|value| value.iter().next()) else { return Value::Null };
    let elements = || value["values"].as_array().into_iter().flatten();
    match kind.as_str() {
        "array_value" => elements().map(plain).collect(),
        "kvlist_value" => elements().map(|pair| (pair["key"].as_str().unwrap(), plain(&pair["value"]))).collect(),
        _ => value.clone(),
    }
}

fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("no span is named {name}: {spans:#?}"))
}

fn turn(telemetry: &Telemetry, inbound: Inbound<'_>, trace_id: &str) {
    whole_turn(telemetry, inbound, trace_id).finish(Ok(()));
}

#[tokio::test]
async fn mlflow_understands_what_an_agent_did() {
    let mlflow = Mlflow::start();
    let telemetry = mlflow.telemetry();
    turn(&telemetry, Inbound::default(), "tr_01ARZ3NDEKTSV4RRFFQ69G5FAV");
    assert_eq!(telemetry.flush(late()).await, 0);
    assert_eq!(super::delivery::counts(&telemetry, "mlflow"), [5, 0, 0]);

    // A trace is found by the id that people are shown.
    let traces = mlflow.traces(EXPERIMENT, "tags.`slipway.trace_id` = 'tr_01ARZ3NDEKTSV4RRFFQ69G5FAV'").await;
    let [trace] = &traces[..] else { panic!("{traces:#?}") };
    assert_eq!((&trace["trace_id"], &trace["state"]), (&json!("tr-01563e3ab5d3d6764c61efb99302bd5b"), &json!("OK")), "{trace:#}");
    let metadata = &trace["trace_metadata"];
    assert_eq!(metadata["mlflow.trace.session"], "conv_1", "{trace:#}");
    let usage: Value = serde_json::from_str(metadata["mlflow.trace.tokenUsage"].as_str().unwrap_or_else(|| panic!("{trace:#}"))).unwrap();
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"], &usage["total_tokens"]), (&json!(107), &json!(23), &json!(130)));
    let preview = |field: &str| trace[field].as_str().unwrap_or_default().to_owned();
    assert!(preview("request_preview").contains("Weather in Paris?") && preview("response_preview").contains("Sunny."), "{trace:#}");

    let spans = mlflow.spans(trace["trace_id"].as_str().unwrap()).await;
    assert_eq!(spans.len(), 5, "{spans:#?}");
    let root = named(&spans, "invoke_agent helper");
    assert!(root["parent_span_id"].as_str().unwrap_or_default().is_empty(), "{root:#}");
    for (name, kind) in [("invoke_agent helper", "AGENT"), ("chat gemini-x", "CHAT_MODEL"), ("execute_tool weather", "TOOL")] {
        let span = named(&spans, name);
        assert_eq!(attribute(span, "mlflow.spanType"), Some(json!(kind)), "{span:#}");
        if name != "invoke_agent helper" {
            assert_eq!(span["parent_span_id"], root["span_id"], "{span:#}");
        }
    }
    assert_eq!(attribute(root, "slipway.team"), Some(json!("blue")));
    assert_eq!(root["events"][0]["name"], "slipway.guard", "{root:#}");
    let chat = named(&spans, "chat gemini-x");
    let expected = json!({"input_tokens": 100, "output_tokens": 20, "total_tokens": 120, "cache_read_input_tokens": 30});
    assert_eq!(attribute(chat, "mlflow.chat.tokenUsage"), Some(expected), "{chat:#}");
    assert_eq!(attribute(chat, "mlflow.llm.model"), Some(json!("gemini-x")));
    let said = attribute(chat, "mlflow.spanInputs").unwrap_or_else(|| panic!("{chat:#}"));
    assert_eq!(said[1]["parts"][0]["content"], "Weather in Paris?", "{said}");
    let tool = named(&spans, "execute_tool weather");
    assert_eq!(attribute(tool, "mlflow.spanInputs"), Some(json!({"city": "Paris"})), "{tool:#}");

    // The experiment is made once: a second pod finds it.
    let again = mlflow.telemetry();
    turn(&again, Inbound::default(), "tr_01ARZ3NDEKTSV4RRFFQ69G5FAW");
    assert_eq!(again.flush(late()).await, 0);
    assert_eq!(mlflow.traces(EXPERIMENT, "").await.len(), 2);

    a_callers_span_that_mlflow_never_sees_leaves_no_trace_open(&mlflow).await;
    spans_of_one_trace_may_come_apart(&mlflow).await;
    many_pods_at_once_make_one_experiment(&mlflow).await;
    a_deleted_experiment_is_refused(&mlflow).await;
}

/// A trace that came with a `traceparent` of, say, an ingress is finished when the agent's turn is.
async fn a_callers_span_that_mlflow_never_sees_leaves_no_trace_open(mlflow: &Mlflow) {
    let telemetry = mlflow.telemetry();
    let traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    turn(&telemetry, Inbound { traceparent, tracestate: None }, "tr_01ARZ3NDEKTSV4RRFFQ69G5FAX");
    // Another agent, called by the first one, is a branch of the same tree.
    let outer =
        telemetry.turn(Inbound { traceparent: Some("00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), tracestate: None }, "c", "");
    let call = outer.tool_call("other-agent", "", "http");
    let (onward, state) = (call.traceparent(), call.tracestate().map(str::to_owned));
    let inbound = Inbound { traceparent: onward.as_deref(), tracestate: state.as_deref() };
    turn(&telemetry, inbound, "tr_01ARZ3NDEKTSV4RRFFQ69G5FAY");
    call.finish(None);
    outer.finish(Ok(()));
    telemetry.flush(late()).await;

    let traces = mlflow.traces(EXPERIMENT, "tags.`slipway.trace_id` = 'tr_01ARZ3NDEKTSV4RRFFQ69G5FAX'").await;
    assert_eq!(
        (traces.len(), &traces[0]["state"], &traces[0]["trace_id"]),
        (1, &json!("OK"), &json!("tr-4bf92f3577b34da6a3ce929d0e0e4736"))
    );
    let spans = mlflow.spans("tr-5bf92f3577b34da6a3ce929d0e0e4736").await;
    let roots = spans.iter().filter(|span| span["parent_span_id"].as_str().unwrap_or_default().is_empty()).count();
    assert_eq!((roots, spans.len()), (1, 7), "{spans:#?}");
}

/// A long turn's spans are sent while it goes on; the root comes last.
async fn spans_of_one_trace_may_come_apart(mlflow: &Mlflow) {
    let telemetry = mlflow.telemetry();
    let turn = telemetry.turn(Inbound::default(), "conv_2", "tr_01ARZ3NDEKTSV4RRFFQ69G5FAZ");
    turn.model_call("openai", "gpt-4o").finish(&Answered { input_tokens: 5, output_tokens: 1, ..Answered::default() });
    telemetry.flush(late()).await;
    turn.model_call("openai", "gpt-4o").finish(&Answered { input_tokens: 6, output_tokens: 2, ..Answered::default() });
    turn.finish(Err("model_timeout"));
    telemetry.flush(late()).await;
    let traces = mlflow.traces(EXPERIMENT, "tags.`slipway.trace_id` = 'tr_01ARZ3NDEKTSV4RRFFQ69G5FAZ'").await;
    assert_eq!((traces.len(), &traces[0]["state"]), (1, &json!("ERROR")), "{traces:#?}");
    let usage: Value = serde_json::from_str(traces[0]["trace_metadata"]["mlflow.trace.tokenUsage"].as_str().unwrap()).unwrap();
    assert_eq!(usage["total_tokens"], 14, "{traces:#?}");
}

async fn many_pods_at_once_make_one_experiment(mlflow: &Mlflow) {
    let pods: Vec<_> = (0..5).map(|_| mlflow.named("crowd & co/é")).collect();
    for pod in &pods {
        turn(pod, Inbound::default(), "");
    }
    for pod in &pods {
        assert_eq!(pod.flush(late()).await, 0);
    }
    assert_eq!(mlflow.traces("crowd%20%26%20co%2F%C3%A9", "").await.len(), 5);
}

async fn a_deleted_experiment_is_refused(mlflow: &Mlflow) {
    let pod = mlflow.named("gone");
    turn(&pod, Inbound::default(), "");
    assert_eq!(pod.flush(late()).await, 0);
    let id = mlflow.experiment("gone").await.unwrap()["experiment_id"].clone();
    let (status, answer) = mlflow.ask(reqwest::Method::POST, "2.0/mlflow/experiments/delete", &json!({"experiment_id": id})).await;
    assert_eq!(status, 200, "{answer}");
    let pod = mlflow.named("gone");
    turn(&pod, Inbound::default(), "");
    assert_eq!(pod.flush(late()).await, 0, "nothing waits for ever");
    assert_eq!(super::delivery::counts(&pod, "mlflow"), [0, 0, 5]);
}
