//! What becomes of spans when the destination is slow, refuses, or is gone.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{ExportTracePartialSuccess, ExportTraceServiceResponse};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use prost::Message;
use tokio::time::{Instant, sleep, timeout};

use super::receiver::{ReceiverAnswer, SpanReceiver};
use super::{soon, telemetry};
use crate::telemetry::{Inbound, Telemetry};

fn turn(telemetry: &Telemetry) {
    telemetry.turn(Inbound::default(), "c", "").finish(Ok(()));
}

/// Exported, dropped and failed spans, as a scrape sees them.
pub(super) fn counts(telemetry: &Telemetry, destination: &str) -> [u64; 3] {
    let mut registry = Registry::with_prefix("slipway_runtime");
    telemetry.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    ["exported", "dropped", "failed"].map(|outcome| {
        let start = format!(r#"slipway_runtime_telemetry_spans_total{{destination="{destination}",outcome="{outcome}"}} "#);
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start} is not in\n{text}")).parse().unwrap()
    })
}

#[tokio::test]
async fn spans_wait_for_company() {
    let receiver = SpanReceiver::start([]).await;
    let telemetry = telemetry(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url),
        ("OTEL_BSP_SCHEDULE_DELAY", "60000"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10"),
    ]);
    for _ in 0..25 {
        turn(&telemetry);
    }
    while counts(&telemetry, "otlp")[0] < 20 {
        sleep(Duration::from_millis(5)).await;
    }
    sleep(Duration::from_millis(50)).await;
    let sizes = || receiver.requests().iter().map(|got| got.request.resource_spans[0].scope_spans[0].spans.len()).collect::<Vec<_>>();
    assert_eq!(sizes(), [10, 10], "two batches are full, the rest waits");
    assert_eq!(telemetry.flush(soon()).await, 0);
    assert_eq!((sizes(), counts(&telemetry, "otlp")), (vec![10, 10, 5], [25, 0, 0]));
}

#[tokio::test]
async fn spans_do_not_wait_for_ever() {
    let receiver = SpanReceiver::start([]).await;
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)]);
    turn(&telemetry);
    timeout(Duration::from_secs(5), async {
        while receiver.spans().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn what_may_be_tried_again_is_and_nothing_else() {
    for (answer, arrives) in [
        (ReceiverAnswer::Status(429, "retry-after: 0\r\n"), true),
        (ReceiverAnswer::Status(502, ""), true),
        (ReceiverAnswer::Status(503, "retry-after: 1\r\n"), true),
        (ReceiverAnswer::Status(504, ""), true),
        (ReceiverAnswer::Hangup, true),
        (ReceiverAnswer::Silence(Duration::from_secs(30)), true),
        (ReceiverAnswer::Status(400, ""), false),
        (ReceiverAnswer::Status(401, ""), false),
        (ReceiverAnswer::Status(404, ""), false),
        (ReceiverAnswer::Status(500, ""), false),
        (ReceiverAnswer::Status(307, "location: http://127.0.0.1:9/\r\n"), false),
    ] {
        let told = if let ReceiverAnswer::Status(status, _) = answer { status } else { 0 };
        let time = if matches!(answer, ReceiverAnswer::Silence(_)) { "300" } else { "10000" };
        let receiver = SpanReceiver::start([answer]).await;
        let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url), ("OTEL_EXPORTER_OTLP_TIMEOUT", time)]);
        turn(&telemetry);
        assert_eq!(telemetry.flush(soon()).await, 0, "{told}");
        let expected = if arrives { ([1, 0, 0], 1) } else { ([0, 0, 1], 0) };
        assert_eq!((counts(&telemetry, "otlp"), receiver.spans().len()), expected, "{told}");
    }
}

#[tokio::test]
async fn spans_that_were_refused_one_by_one_are_counted() {
    let partial = ExportTracePartialSuccess { rejected_spans: 2, error_message: "too old".into() };
    let body = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let receiver = SpanReceiver::start([ReceiverAnswer::Body(body)]).await;
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)]);
    for _ in 0..5 {
        turn(&telemetry);
    }
    telemetry.flush(soon()).await;
    assert_eq!(counts(&telemetry, "otlp"), [3, 0, 2]);
}

#[tokio::test]
async fn a_dead_collector_costs_a_bounded_queue_and_no_time() {
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"), ("OTEL_BSP_MAX_QUEUE_SIZE", "100")]);
    let began = Instant::now();
    for _ in 0..5000 {
        turn(&telemetry);
        // The task that sends gets its turns, too.
        tokio::task::yield_now().await;
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let left = telemetry.flush(Instant::now() + Duration::from_millis(300)).await;
    let [exported, dropped, failed] = counts(&telemetry, "otlp");
    assert!(exported == 0 && failed == 0 && (100..=200).contains(&left), "{left} left");
    assert_eq!(dropped + left, 5000, "each span is accounted for");
}

#[tokio::test]
async fn large_spans_are_bounded_in_bytes() {
    let capture = ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true");
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"), capture]);
    for _ in 0..1500 {
        let turn = telemetry.turn(Inbound::default(), "c", "");
        let tool = turn.tool_call("t", "", "http");
        tool.result(|| "x".repeat(100_000));
    }
    let dropped = counts(&telemetry, "otlp")[1];
    assert!((1900..2600).contains(&dropped), "{dropped} of 3000 spans were dropped; 4 MiB hold 500 results of 8 KiB, and their turns");
}

#[tokio::test]
async fn a_flush_ends_at_its_deadline() {
    let receiver = SpanReceiver::start(vec![ReceiverAnswer::Silence(Duration::from_mins(1)); 100]).await;
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)]);
    turn(&telemetry);
    let began = Instant::now();
    assert_eq!(telemetry.flush(began + Duration::from_millis(200)).await, 1);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_slow_destination_holds_up_no_other() {
    let receiver = SpanReceiver::start([]).await;
    let silent = SpanReceiver::start(vec![ReceiverAnswer::Silence(Duration::from_mins(1)); 100]).await;
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url), ("RUNTIME_MLFLOW_URI", &silent.url)]);
    turn(&telemetry);
    let left = telemetry.flush(Instant::now() + Duration::from_secs(3)).await;
    assert_eq!((left, counts(&telemetry, "otlp")), (1, [1, 0, 0]));
}

#[tokio::test]
async fn headers_and_userinfo_are_sent_where_they_belong() {
    let receiver = SpanReceiver::start([]).await;
    let endpoint = receiver.url.replace("http://", "http://user:pass@");
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint), ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=s%20e")]);
    turn(&telemetry);
    telemetry.flush(soon()).await;
    let head = &receiver.requests()[0].head;
    for line in ["post /v1/traces http/1.1", "content-type: application/x-protobuf", "x-key: s e", "authorization: basic dxnlcjpwyxnz"] {
        assert!(head.contains(line), "{line} is not in\n{head}");
    }
}

#[tokio::test]
async fn telemetry_without_a_destination_shows_no_counters() {
    let mut registry = Registry::default();
    telemetry(&[]).register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert_eq!(text, "# EOF\n");
}
