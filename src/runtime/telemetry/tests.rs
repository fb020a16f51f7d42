//! The exporter against servers: one that behaves as a test tells it to, and real ones.

mod delivery;
mod mlflow;
mod monitoring;
mod receiver;
mod recording;

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{Answered, Identity, Inbound, Part, SpanMessage, Telemetry, TelemetrySettings, TurnSpan};

/// Telemetry of an agent named `helper` that has these variables, without waiting for batches.
fn telemetry(variables: &[(&str, &str)]) -> Telemetry {
    rustls::crypto::ring::default_provider().install_default().ok();
    let identity = Identity {
        agent_id: "ag_1".into(),
        agent_name: "helper".into(),
        agent_version: "7".into(),
        team: "blue".into(),
        track: "canary".into(),
        run_hash: "9f2c".into(),
    };
    let lookup = |name: &str| {
        let given = variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        given.or_else(|| (name == "OTEL_BSP_SCHEDULE_DELAY").then(|| "50".into()))
    };
    Telemetry::start(TelemetrySettings::read(identity, &lookup).unwrap()).unwrap()
}

/// Something of all that a turn can have: guards, two models, a tool that fails with a long result, memories.
fn whole_turn(telemetry: &Telemetry, inbound: Inbound<'_>, trace_id: &str) -> TurnSpan {
    let turn = telemetry.turn(inbound, "conv_1", trace_id);
    turn.input(|| vec![SpanMessage::text("user", "Weather in Paris?")]);
    turn.guard("pii-detection", "mask", "email");
    turn.guard("pii-detection", "mask", "phone");
    turn.memory_search().finish(Some(0), None);
    let model = turn.model_call("google-ai", "gemini-x");
    model.input(|| vec![SpanMessage::text("system", "Be brief."), SpanMessage::text("user", "Weather in Paris?")]);
    model.first_token();
    model.output(|| {
        let call = Part::ToolCall { id: "call_1".into(), name: "weather".into(), arguments: json!({"city": "Paris"}) };
        vec![SpanMessage { role: "assistant", parts: vec![call] }]
    });
    let (cost_usd, stop) = (Some(0.25), Some("tool_call"));
    model.finish(&Answered { input_tokens: 100, output_tokens: 20, cached_input_tokens: 30, cost_usd, stop, ..Answered::default() });
    let tool = turn.tool_call("weather", "call_1", "http");
    tool.arguments(|| json!({"city": "Paris"}).to_string());
    tool.result(|| "sunny ".repeat(20_000));
    tool.finish(Some("timeout"));
    let last = turn.model_call("openai", "gpt-4o");
    last.finish(&Answered { input_tokens: 7, output_tokens: 3, estimated: true, ..Answered::default() });
    turn.output(|| vec![SpanMessage::text("assistant", "Sunny.")]);
    turn
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}
