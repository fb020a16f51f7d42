//! Complete answers, in arbitrary fragments.

use serde_json::{Value, json};

use super::server::{ScriptedReply, Server};
use super::{answer, assert_discreet, limits, model};
use crate::answer::{Piece, Stop, Usage};
use crate::message::ToolCall;
use crate::provider::Provider;

pub(super) struct Recording {
    pub(super) name: &'static str,
    pub(super) provider: Provider,
    pub(super) bytes: &'static [u8],
    pub(super) text: &'static str,
    pub(super) calls: Vec<(&'static str, Value)>,
    /// Input, output and cached input tokens.
    pub(super) usage: Option<(u64, u64, u64)>,
    pub(super) stop: Stop,
    /// The bytes that complete the answer.
    pub(super) end: &'static str,
}

macro_rules! recording {
    ($provider:ident, $file:literal, $text:expr, $calls:expr, $usage:expr, $stop:expr, $end:expr) => {
        Recording {
            name: $file,
            provider: Provider::$provider,
            bytes: include_bytes!(concat!("../../testdata/", $file)),
            text: $text,
            calls: $calls,
            usage: $usage,
            stop: $stop,
            end: $end,
        }
    };
}

pub(super) fn recordings() -> Vec<Recording> {
    const ANTHROPIC: &str = "{\"type\":\"message_stop\"}";
    const GEMINI: &str = "\"finishReason\": \"STOP\"";
    let weather = || {
        vec![
            ("GetWeatherArgs", json!({"city": "Edinburgh", "country": "GB", "units": "c"})),
            ("get_stock_price", json!({"ticker": "AAPL", "exchange": "NASDAQ"})),
        ]
    };
    vec![
        recording!(Anthropic, "anthropic/text.sse", "Hello there!", vec![], Some((11, 6, 0)), Stop::EndTurn, ANTHROPIC),
        recording!(
            Anthropic,
            "anthropic/tool-use.sse",
            "I'll check the current weather in Paris for you.",
            vec![("get_weather", json!({"location": "Paris"}))],
            Some((377, 65, 0)),
            Stop::ToolUse,
            ANTHROPIC
        ),
        recording!(
            Anthropic,
            "anthropic/invalid-arguments.sse",
            "I'll check the current weather in Paris for you.",
            vec![("get_weather", json!("{\"location\": \"Paris\", \"unit\": celsius}"))],
            Some((377, 65, 0)),
            Stop::ToolUse,
            ANTHROPIC
        ),
        recording!(Anthropic, "anthropic/refusal.sse", "", vec![], Some((20, 0, 0)), Stop::Filtered, ANTHROPIC),
        recording!(Anthropic, "anthropic/cached.sse", "Hello there!", vec![], Some((40, 8, 5)), Stop::EndTurn, ANTHROPIC),
        recording!(Anthropic, "anthropic/unknown-events.sse", "Hello there!", vec![], Some((11, 6, 0)), Stop::EndTurn, ANTHROPIC),
        recording!(OpenAi, "openai/length.sse", "{\"", vec![], Some((79, 1, 0)), Stop::MaxTokens, "\"finish_reason\":\"length\"}]}"),
        recording!(
            OpenAi,
            "openai/tool-calls.sse",
            "",
            weather(),
            Some((149, 60, 0)),
            Stop::ToolUse,
            "\"finish_reason\":\"tool_calls\"}]}"
        ),
        recording!(
            GoogleAi,
            "gemini/text.sse",
            "The capital of Wyoming is **Cheyenne**.\n",
            vec![],
            Some((7, 10, 0)),
            Stop::EndTurn,
            GEMINI
        ),
        recording!(GoogleAi, "gemini/function-call.sse", "", vec![("now", json!({}))], Some((38, 174, 0)), Stop::ToolUse, GEMINI),
        recording!(
            GoogleAi,
            "gemini/blocked.sse",
            "text1text2text3",
            vec![],
            Some((7, 0, 0)),
            Stop::Filtered,
            "\"blockReason\": \"SAFETY\""
        ),
        recording!(VertexAi, "gemini/vertex-text.sse", "Cheyenne", vec![], Some((6, 4, 0)), Stop::EndTurn, GEMINI),
        recording!(
            Bedrock,
            "bedrock/tool-use.eventstream",
            "<thinking> To>\n",
            vec![("get_capital", json!({"country": "France"}))],
            Some((489, 59, 0)),
            Stop::ToolUse,
            "\"stopReason\":\"tool_use\"}"
        ),
        recording!(
            Ollama,
            "ollama/text.ndjson",
            "Why did the OpenTelemetry agent go to therapy?\n\n",
            vec![],
            Some((17, 50, 0)),
            Stop::EndTurn,
            "\"done\":true"
        ),
        recording!(
            Ollama,
            "ollama/tool-call.ndjson",
            "",
            vec![("get_current_weather", json!({"format": "celsius", "location": "Paris, FR"}))],
            Some((122, 33, 0)),
            Stop::ToolUse,
            "\"done\":true"
        ),
    ]
}

impl Recording {
    fn check(&self, pieces: Vec<Result<Piece, crate::fault::ModelFault>>) {
        assert_discreet(&pieces);
        let name = self.name;
        let pieces: Vec<_> = pieces.into_iter().map(|piece| piece.unwrap_or_else(|fault| panic!("{name}: {fault}"))).collect();
        let text: String =
            pieces.iter().filter_map(|piece| if let Piece::Text(text) = piece { Some(text.as_str()) } else { None }).collect();
        assert_eq!(text, self.text, "{name}");
        let calls: Vec<&ToolCall> =
            pieces.iter().filter_map(|piece| if let Piece::ToolCall(call) = piece { Some(call) } else { None }).collect();
        assert_eq!(calls.iter().map(|call| (call.name.as_str(), call.arguments.clone())).collect::<Vec<_>>(), self.calls, "{name}");
        assert!(calls.iter().all(|call| !call.id.is_empty()), "{name}");
        let counts: Vec<_> = pieces.iter().filter_map(|piece| if let Piece::Usage(usage) = piece { Some(*usage) } else { None }).collect();
        let expected =
            self.usage.map(|(input_tokens, output_tokens, cached_input_tokens)| Usage { input_tokens, output_tokens, cached_input_tokens });
        assert_eq!(counts, Vec::from_iter(expected), "{name}");
        let stops = pieces.iter().filter(|piece| matches!(piece, Piece::Stopped(_))).count();
        assert_eq!((stops, pieces.last()), (1, Some(&Piece::Stopped(self.stop.clone()))), "{name}");
    }
}

#[tokio::test]
async fn recorded_answers_are_read_in_any_fragments() {
    for recording in recordings() {
        let length = recording.bytes.len();
        let whole = ScriptedReply::ok(recording.bytes);
        let mut replies = vec![whole.clone(), ScriptedReply { chunked: true, ..whole.clone() }, whole.clone().split(0..length)];
        replies.push(ScriptedReply { chunked: true, ..whole.clone() }.split(0..length));
        for round in 1..12_usize {
            // Pseudo-random cuts, the same in each run.
            replies.push(whole.clone().split((0..20).map(|cut| (cut * 7919 + round * 104_729) * 31 % length)));
        }
        let count = replies.len();
        let server = Server::start(replies).await;
        let model = model(recording.provider, &server, limits(1));
        for _ in 0..count {
            recording.check(answer(&*model).await);
        }
    }
}

#[tokio::test]
async fn a_providers_signature_is_kept_with_the_call() {
    let server = Server::start(vec![ScriptedReply::ok(include_bytes!("../../testdata/gemini/function-call.sse"))]).await;
    let pieces = answer(&*model(Provider::GoogleAi, &server, limits(1))).await;
    let Some(Ok(Piece::ToolCall(call))) = pieces.first() else { panic!("{pieces:?}") };
    assert!(call.signature.as_ref().is_some_and(|signature| signature.starts_with("CiIBVKhc7vB+") && signature.len() == 1140), "{call:?}");
}

#[tokio::test]
async fn each_provider_is_asked_at_its_address_with_its_credentials() {
    for (provider, recording, parts) in [
        (Provider::OpenAi, "openai/length.sse", &["POST /v1/chat/completions ", "authorization: Bearer key-"][..]),
        (Provider::Anthropic, "anthropic/text.sse", &["POST /v1/messages ", "x-api-key: key-", "anthropic-version: 2023-06-01\r\n"]),
        (Provider::GoogleAi, "gemini/text.sse", &["POST /v1beta/models/some-model:streamGenerateContent?alt=sse ", "x-goog-api-key: key-"]),
        (
            Provider::VertexAi,
            "gemini/vertex-text.sse",
            &[
                "POST /v1/projects/my-project/locations/global/publishers/google/models/some-model:streamGenerateContent?alt=sse ",
                "authorization: Bearer key-",
            ],
        ),
        (
            Provider::Bedrock,
            "bedrock/tool-use.eventstream",
            &[
                "POST /model/some-model/converse-stream ",
                "authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/",
                "/us-east-1/bedrock/aws4_request",
                "x-amz-security-token: key-",
            ],
        ),
        (Provider::Ollama, "ollama/text.ndjson", &["POST /api/chat ", "\"num_ctx\":8192"]),
    ] {
        let recording = recordings().into_iter().find(|known| known.name == recording).unwrap();
        let server = Server::start(vec![ScriptedReply::ok(recording.bytes)]).await;
        recording.check(answer(&*model(provider, &server, limits(1))).await);
        let asked = server.asked().await;
        for part in parts.iter().chain(&["content-type: application/json\r\n", "What is the weather in Paris?"]) {
            assert!(asked[0].contains(part), "{part} in {}", asked[0]);
        }
    }
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let recording = recordings().into_iter().find(|recording| recording.name == "openai/tool-calls.sse").unwrap();
    let server = Server::start(vec![ScriptedReply { chunked: true, ..ScriptedReply::ok(recording.bytes) }]).await;
    let model = model(Provider::OpenAi, &server, limits(1));
    for _ in 0..5 {
        recording.check(answer(&*model).await);
        // The rest of the body is read in the background.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!((server.asked().await.len(), server.connections()), (5, 1));
}
