//! What the receiver of spans sees of a turn.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::{Value, json};

use super::receiver::{SpanReceiver, attribute, shown};
use super::{soon, telemetry, whole_turn};
use crate::telemetry::{Inbound, Telemetry};

/// The id of a trace, as people are shown it.
const SHOWN: &str = "tr_01ARZ3NDEKTSV4RRFFQ69G5FAV";
const CAPTURE: (&str, &str) = ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true");

#[tokio::test]
async fn a_case_of_an_evaluation_says_of_which_run_it_is() {
    let receiver = SpanReceiver::start([]).await;
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)]);
    let span = telemetry.turn(Inbound::default(), "", SHOWN);
    span.evaluation("ev_1");
    span.finish(Ok(()));
    assert_eq!(telemetry.flush(soon()).await, 0);
    let span = receiver.span("invoke_agent helper");
    let root = shown(&span.attributes);
    assert!(root.contains(&("slipway.evaluation.run", "ev_1".to_owned())), "{root:?}");
}

#[tokio::test]
async fn a_turn_is_one_tree_in_the_words_of_the_conventions() {
    let receiver = SpanReceiver::start([]).await;
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url), ("OTEL_RESOURCE_ATTRIBUTES", "k=v")]);
    whole_turn(&telemetry, Inbound::default(), SHOWN).finish(Ok(()));
    assert_eq!(telemetry.flush(soon()).await, 0);

    let root = receiver.span("invoke_agent helper");
    let expected = [
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.agent.id", "ag_1"),
        ("gen_ai.agent.name", "helper"),
        ("gen_ai.agent.version", "7"),
        ("gen_ai.conversation.id", "conv_1"),
        ("slipway.trace.id", SHOWN),
        ("slipway.team", "blue"),
        ("slipway.agent.track", "canary"),
        ("slipway.run.hash", "9f2c"),
        ("slipway.guard.actions", "[pii-detection:mask]"),
    ];
    assert_eq!(shown(&root.attributes), expected.map(|(key, value)| (key, value.to_owned())));
    assert!(root.parent_span_id.is_empty() && root.status.is_none() && root.flags == 1, "{root:?}");
    assert_eq!(root.trace_id, 0x0156_3e3a_b5d3_d676_4c61_efb9_9302_bd5b_u128.to_be_bytes(), "the ULID's bits");
    let events: Vec<_> = root.events.iter().map(|event| (event.name.as_str(), shown(&event.attributes)[2].1.clone())).collect();
    assert_eq!(events, [("slipway.guard", "email".to_owned()), ("slipway.guard", "phone".to_owned())]);

    for (name, kind, expected) in [
        (
            "chat gemini-x",
            SpanKind::Client,
            &[
                ("gen_ai.operation.name", "chat"),
                ("gen_ai.provider.name", "gcp.gemini"),
                ("gen_ai.request.model", "gemini-x"),
                ("gen_ai.conversation.id", "conv_1"),
                ("gen_ai.usage.input_tokens", "100"),
                ("gen_ai.usage.output_tokens", "20"),
                ("gen_ai.usage.cache_read.input_tokens", "30"),
                ("slipway.cost.usd", "0.25"),
                ("gen_ai.response.finish_reasons", "[tool_call]"),
            ][..],
        ),
        ("chat gpt-4o", SpanKind::Client, &[("gen_ai.usage.input_tokens", "7"), ("slipway.usage.estimated", "true")]),
        (
            "execute_tool weather",
            SpanKind::Internal,
            &[
                ("gen_ai.operation.name", "execute_tool"),
                ("gen_ai.tool.name", "weather"),
                ("gen_ai.tool.call.id", "call_1"),
                ("gen_ai.tool.type", "function"),
                ("slipway.tool.kind", "http"),
                ("error.type", "timeout"),
            ],
        ),
        ("search_memory", SpanKind::Client, &[("gen_ai.operation.name", "search_memory"), ("slipway.result.count", "0")]),
    ] {
        let span = receiver.span(name);
        assert_eq!((&span.trace_id, &span.parent_span_id, span.kind()), (&root.trace_id, &root.span_id, kind), "{name}");
        let attributes = shown(&span.attributes);
        for (key, value) in expected {
            assert!(attributes.contains(&(key, (*value).to_owned())), "{name} has no {key}={value}: {attributes:?}");
        }
        let within =
            root.start_time_unix_nano <= span.start_time_unix_nano && span.end_time_unix_nano <= root.end_time_unix_nano + 1_000_000;
        assert!(within && span.start_time_unix_nano <= span.end_time_unix_nano, "{name}: {span:?}");
    }
    let chat = receiver.span("chat gemini-x");
    assert!(attribute(&chat.attributes, "gen_ai.response.time_to_first_chunk").is_some());
    assert_eq!(receiver.span("execute_tool weather").status.unwrap().code(), StatusCode::Error);

    let resource = receiver.requests()[0].request.resource_spans[0].resource.clone().unwrap();
    let resource = shown(&resource.attributes);
    for pair in [("service.name", "helper"), ("service.namespace", "blue"), ("k", "v"), ("telemetry.sdk.language", "rust")] {
        assert!(resource.contains(&(pair.0, pair.1.to_owned())), "{pair:?} is not in {resource:?}");
    }
}

#[tokio::test]
async fn a_search_tells_what_it_found_and_stands_within_its_tool() {
    for (capture, told) in [(("UNRELATED", ""), None), (CAPTURE, Some("days of leave"))] {
        let receiver = SpanReceiver::start([]).await;
        let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url), capture]);
        let turn = telemetry.turn(Inbound::default(), "", SHOWN);
        let tool = turn.tool_call("search_docs", "call_1", "builtin");
        let search = tool.retrieval("kb_docs", 5);
        search.query(|| "days of leave".to_owned());
        search.finish(Some(r#"[{"id":"doc_1","score":0.9}]"#), None);
        tool.finish(None);
        turn.retrieval("kb_away", 8).finish(None, Some("unavailable"));
        turn.finish(Ok(()));
        assert_eq!(telemetry.flush(soon()).await, 0);
        let (root, tool) = (receiver.span("invoke_agent helper"), receiver.span("execute_tool search_docs"));
        let (within, beside) = (receiver.span("retrieval kb_docs"), receiver.span("retrieval kb_away"));
        assert_eq!((&within.parent_span_id, &beside.parent_span_id), (&tool.span_id, &root.span_id));
        assert_eq!((within.kind(), beside.status.unwrap().code()), (SpanKind::Client, StatusCode::Error));
        let expected = [
            ("gen_ai.operation.name", "retrieval"),
            ("gen_ai.data_source.id", "kb_docs"),
            ("gen_ai.retrieval.top_k", "5"),
            ("gen_ai.retrieval.documents", r#"[{"id":"doc_1","score":0.9}]"#),
        ];
        let mut found = shown(&within.attributes);
        found.retain(|(key, _)| *key != "gen_ai.retrieval.query.text");
        assert_eq!(found, expected.map(|(key, value)| (key, value.to_owned())));
        let all = shown(&within.attributes);
        let query = all.iter().find(|(key, _)| *key == "gen_ai.retrieval.query.text").map(|(_, value)| value.as_str());
        assert_eq!(query, told);
    }
}

#[tokio::test]
async fn what_was_said_is_told_only_to_those_who_ask_for_it() {
    for (capture, told) in [(("UNRELATED", ""), false), (CAPTURE, true)] {
        let receiver = SpanReceiver::start([]).await;
        let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url), capture]);
        whole_turn(&telemetry, Inbound::default(), SHOWN).finish(Ok(()));
        telemetry.flush(soon()).await;
        let everything = format!("{:?}", receiver.spans());
        assert_eq!(["Weather in Paris?", "Be brief.", "sunny", "Sunny."].map(|said| everything.contains(said)), [told; 4]);
        if told {
            let chat = receiver.span("chat gemini-x").attributes;
            let messages = shown(&chat).into_iter().find(|(key, _)| *key == "gen_ai.input.messages").unwrap().1;
            let messages: Value = serde_json::from_str(&messages).unwrap();
            assert_eq!(messages[1], json!({"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]}));
            assert!(receiver.requests()[0].bytes < 20_000, "a long result is cut");
        }
    }
}

#[tokio::test]
async fn a_callers_trace_is_gone_on_with() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let receiver = SpanReceiver::start([]).await;
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)]);
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let turn = whole_turn(&telemetry, Inbound { traceparent: Some(&traceparent), tracestate: Some("vendor=1") }, SHOWN);
    let tool = turn.tool_call("next", "call_2", "http");
    let (onward, state) = (tool.traceparent().unwrap(), tool.tracestate().map(str::to_owned));
    tool.finish(None);
    turn.finish(Err("model_timeout"));
    telemetry.flush(soon()).await;

    let root = receiver.span("invoke_agent helper");
    assert_eq!(
        (root.trace_id, root.parent_span_id),
        (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes().into(), 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes().into())
    );
    assert_eq!((root.trace_state.as_str(), state.as_deref(), root.flags), ("vendor=1", Some("vendor=1"), 0x301));
    assert_eq!(root.status.unwrap().code(), StatusCode::Error);
    let next = receiver.span("execute_tool next");
    assert_eq!(next.flags, 0x101);
    let span = u64::from_be_bytes(next.span_id.try_into().unwrap());
    assert_eq!(onward, format!("00-{TRACE}-{span:016x}-01"), "a tool is told the span of its own call");
}

#[tokio::test]
async fn a_malformed_caller_begins_a_new_trace() {
    let receiver = SpanReceiver::start([]).await;
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)]);
    let inbound = Inbound { traceparent: Some("00-zz-zz-01"), tracestate: Some("vendor=1") };
    telemetry.turn(inbound, "c", "not a ulid").finish(Ok(()));
    telemetry.turn(inbound, "c", "not a ulid").finish(Ok(()));
    telemetry.flush(soon()).await;
    let spans = receiver.spans();
    assert!(spans.iter().all(|span| span.parent_span_id.is_empty() && span.trace_state.is_empty() && span.trace_id.len() == 16));
    assert_ne!(spans[0].trace_id, spans[1].trace_id);
}

#[tokio::test]
async fn what_is_not_sampled_is_not_sent_but_passed_on() {
    let receiver = SpanReceiver::start([]).await;
    let url = ("OTEL_EXPORTER_OTLP_ENDPOINT", &*receiver.url);
    let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    for (telemetry, traceparent) in [
        (telemetry(&[url]), Some(unsampled)),
        (telemetry(&[url, ("OTEL_TRACES_SAMPLER", "always_off")]), None),
        (telemetry(&[url, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0")]), None),
    ] {
        let turn = whole_turn(&telemetry, Inbound { traceparent, tracestate: None }, SHOWN);
        assert!(!turn.is_recording());
        let onward = turn.tool_call("next", "", "http").traceparent().unwrap();
        assert!(onward.ends_with("-00") && Some(&*onward) != traceparent, "{onward}");
        assert!(traceparent.is_none_or(|traceparent| onward[..35] == traceparent[..35]), "{onward}");
        turn.finish(Ok(()));
        telemetry.flush(soon()).await;
    }
    assert!(receiver.spans().is_empty());
}

#[tokio::test]
async fn without_telemetry_the_callers_headers_go_on_untouched() {
    let telemetry = Telemetry::off();
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let turn = whole_turn(&telemetry, Inbound { traceparent: Some(traceparent), tracestate: Some("vendor=1") }, SHOWN);
    let tool = turn.tool_call("next", "", "http");
    assert_eq!((tool.traceparent().as_deref(), tool.tracestate()), (Some(traceparent), Some("vendor=1")));
    assert_eq!(whole_turn(&telemetry, Inbound::default(), SHOWN).traceparent(), None);
    assert_eq!(telemetry.flush(soon()).await, 0);
}

#[tokio::test]
async fn what_is_dropped_on_the_way_was_cancelled() {
    let receiver = SpanReceiver::start([]).await;
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)]);
    let turn = telemetry.turn(Inbound::default(), "c", "");
    let model = turn.model_call("stub", "stub-echo");
    drop(turn);
    drop(model);
    telemetry.flush(soon()).await;
    for name in ["invoke_agent helper", "chat stub-echo"] {
        let span = receiver.span(name);
        assert!(shown(&span.attributes).contains(&("error.type", "cancelled".into())), "{span:?}");
    }
    let model = receiver.span("chat stub-echo");
    assert_eq!(attribute(&model.attributes, "gen_ai.usage.input_tokens"), None, "nothing is known of its usage");
}

#[tokio::test]
async fn names_from_outside_and_events_are_bounded() {
    let receiver = SpanReceiver::start([]).await;
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)]);
    let turn = telemetry.turn(Inbound::default(), &"é".repeat(10_000), &"t".repeat(10_000));
    for number in 0..1000 {
        turn.guard("pii-detection", "mask", &format!("kind-{number}"));
    }
    turn.tool_call(&"n".repeat(10_000), &"i".repeat(10_000), "mcp").finish(None);
    turn.finish(Ok(()));
    telemetry.flush(soon()).await;
    let root = receiver.span("invoke_agent helper");
    assert_eq!((root.events.len(), root.dropped_events_count), (64, 936));
    assert!(receiver.requests().iter().map(|got| got.bytes).sum::<usize>() < 15_000);
}

#[tokio::test]
async fn agents_that_share_an_mlflow_know_each_other() {
    let receiver = SpanReceiver::start([]).await;
    // Both destinations are the same receiver here; MLflow is first asked for the experiment.
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url), ("RUNTIME_MLFLOW_URI", "http://127.0.0.1:1")]);
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (tracestate, onward) in [
        (None, "slipway=mlflow"),
        (Some("vendor=1"), "slipway=mlflow,vendor=1"),
        (Some("vendor=1,slipway=mlflow"), "slipway=mlflow,vendor=1"),
        (Some("vendor=1,slipway=other"), "slipway=mlflow,vendor=1"),
    ] {
        let turn = telemetry.turn(Inbound { traceparent: Some(traceparent), tracestate }, "c", "");
        assert_eq!(turn.tracestate(), Some(onward), "{tracestate:?}");
    }
}
