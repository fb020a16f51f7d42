//! Providers that refuse, close the connection, or do not answer.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::Value;

use super::answers::recordings;
use super::server::{ScriptedReply, Server};
use super::{KEY, answer, assert_discreet, limits, model};
use crate::answer::{Piece, Stop};
use crate::fault::{FaultKind, ModelFault};
use crate::message::{Message, ModelRequest};
use crate::provider::Provider;
use crate::transport::TransportLimits;

const ANSWER: &[u8] = include_bytes!("../../testdata/anthropic/text.sse");
const OVERLOADED: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":null}"#;

/// The number of pieces before the fault of an answer, and the fault.
fn fault(mut pieces: Vec<Result<Piece, ModelFault>>) -> (usize, ModelFault) {
    assert_discreet(&pieces);
    let last = pieces.pop().expect("something should come");
    let fault = last.expect_err("the answer should fail");
    assert!(pieces.iter().all(|piece| matches!(piece, Ok(piece) if !matches!(piece, Piece::Stopped(_)))), "{pieces:?}");
    (pieces.len(), fault)
}

fn succeeded(pieces: &[Result<Piece, ModelFault>]) -> bool {
    pieces.last() == Some(&Ok(Piece::Stopped(Stop::EndTurn)))
}

#[tokio::test]
async fn a_truncated_answer_is_never_complete() {
    for recording in recordings() {
        let end = recording.bytes.windows(recording.end.len()).rposition(|bytes| bytes == recording.end.as_bytes()).unwrap()
            + recording.end.len();
        // At every byte of one recording of each framing, at some bytes of the others.
        let step =
            if ["anthropic/tool-use.sse", "openai/length.sse", "gemini/text.sse", "bedrock/tool-use.eventstream", "ollama/text.ndjson"]
                .contains(&recording.name)
            {
                1
            } else {
                23
            };
        let cuts = || (0..recording.bytes.len()).step_by(step);
        let server = Server::start(cuts().map(|cut| ScriptedReply::ok(&recording.bytes[..cut])).collect()).await;
        let model = model(recording.provider, &server, limits(1));
        for cut in cuts() {
            let pieces = answer(&*model).await;
            let stopped = pieces.iter().any(|piece| matches!(piece, Ok(Piece::Stopped(_))));
            if cut < end || !stopped {
                let (_, fault) = fault(pieces);
                assert_eq!(*fault.kind(), FaultKind::Broken, "{} cut at {cut}: {fault}", recording.name);
            }
        }
    }
}

#[tokio::test]
async fn a_stream_without_its_end_is_broken_even_after_a_whole_call() {
    let server = Server::start(vec![ScriptedReply::ok(include_bytes!("../../testdata/ollama/tool-call-begun.ndjson"))]).await;
    let (before, fault) = fault(answer(&*model(Provider::Ollama, &server, limits(3))).await);
    assert_eq!((before, fault.kind()), (3, &FaultKind::Broken));
}

#[tokio::test]
async fn published_errors_are_classified() {
    let errors: Vec<Value> = serde_json::from_str(include_str!("../../testdata/errors.json")).unwrap();
    for error in errors {
        let provider: Provider = error["provider"].as_str().unwrap().parse().unwrap();
        let status = u16::try_from(error["status"].as_u64().unwrap()).unwrap();
        let server = Server::start(vec![ScriptedReply::error(status, error["body"].as_str().unwrap())]).await;
        let (before, fault) = fault(answer(&*model(provider, &server, limits(1))).await);
        assert_eq!((before, fault.kind().name()), (0, error["kind"].as_str().unwrap()), "{error}: {fault}");
        assert!(fault.message().contains(provider.as_str()), "{fault}");
    }
}

#[tokio::test]
async fn a_refused_key_is_not_quoted_and_not_retried() {
    let body = format!(
        r#"{{"error":{{"message":"Incorrect API key provided: {KEY}. You can find your API key elsewhere.","type":"invalid_request_error","code":"invalid_api_key"}}}}"#
    );
    for status in [400, 401, 403, 422] {
        let server = Server::start(vec![ScriptedReply::error(status, &body)]).await;
        let (_, fault) = fault(answer(&*model(Provider::OpenAi, &server, limits(4))).await);
        assert!(!fault.message().contains(KEY), "{fault}");
        assert_eq!(server.asked().await.len(), 1);
    }
    // Some servers answer with 200 and send the error as an event.
    let event = format!("data: {}\n\n", body.replace("invalid_api_key", "no_such_code"));
    let server = Server::start(vec![ScriptedReply::ok(event.as_bytes())]).await;
    let (_, fault) = fault(answer(&*model(Provider::OpenAi, &server, limits(4))).await);
    assert!(fault.message().contains("Incorrect API key provided: ***"), "{fault}");
}

#[tokio::test]
async fn retry_after_is_respected() {
    let busy =
        ScriptedReply { headers: "retry-after: 1\r\n".into(), ..ScriptedReply::error(429, r#"{"error":{"type":"rate_limit_error"}}"#) };
    let server = Server::start(vec![busy, ScriptedReply::ok(ANSWER)]).await;
    let started = Instant::now();
    assert!(succeeded(&answer(&*model(Provider::Anthropic, &server, limits(4))).await));
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(server.asked().await.len(), 2);
}

#[tokio::test]
async fn a_retry_after_above_the_limit_is_a_fault() {
    let busy = ScriptedReply { headers: "retry-after: 3600\r\n".into(), ..ScriptedReply::error(429, "{}") };
    let server = Server::start(vec![busy]).await;
    let (_, fault) = fault(answer(&*model(Provider::Anthropic, &server, limits(4))).await);
    assert_eq!(*fault.kind(), FaultKind::RateLimited { retry_after: Some(Duration::from_hours(1)) });
    assert!(fault.message().contains("3600 s"), "{fault}");
    assert_eq!(server.asked().await.len(), 1);
}

#[tokio::test]
async fn overload_is_retried_up_to_the_limit() {
    for status in [500, 502, 503, 529] {
        let server = Server::start(vec![ScriptedReply::error(status, OVERLOADED)]).await;
        let (_, fault) = fault(answer(&*model(Provider::Anthropic, &server, limits(3))).await);
        assert_eq!((fault.kind(), server.asked().await.len()), (&FaultKind::Overloaded, 3), "{status}");
        let server = Server::start(vec![
            ScriptedReply::error(status, OVERLOADED),
            ScriptedReply::error(status, OVERLOADED),
            ScriptedReply::ok(ANSWER),
        ])
        .await;
        assert!(succeeded(&answer(&*model(Provider::Anthropic, &server, limits(3))).await));
    }
}

#[tokio::test]
async fn an_answer_is_retried_only_before_its_first_piece() {
    let text = ANSWER.windows(5).position(|bytes| bytes == b"there").unwrap();
    let nothing = ANSWER.windows(19).position(|bytes| bytes == b"content_block_delta").unwrap();
    let server = Server::start(vec![ScriptedReply::ok(&ANSWER[..nothing]), ScriptedReply::ok(ANSWER)]).await;
    assert!(succeeded(&answer(&*model(Provider::Anthropic, &server, limits(3))).await));
    assert_eq!(server.asked().await.len(), 2);

    let server = Server::start(vec![ScriptedReply::ok(&ANSWER[..text]), ScriptedReply::ok(ANSWER)]).await;
    let (before, fault) = fault(answer(&*model(Provider::Anthropic, &server, limits(3))).await);
    assert_eq!((before, fault.kind(), server.asked().await.len()), (1, &FaultKind::Broken, 1));
}

#[tokio::test]
async fn errors_within_a_stream_are_faults() {
    // The event in the Messages API's documentation of streaming, after a recorded beginning.
    let begun = ANSWER.windows(24).position(|bytes| bytes == b"event: content_block_sto").unwrap();
    let error = b"event: error\ndata: {\"type\": \"error\", \"error\": {\"type\": \"overloaded_error\", \"message\": \"Overloaded\"}}\n\n";
    let server = Server::start(vec![ScriptedReply::ok(&[&ANSWER[..begun], error].concat())]).await;
    let (before, overloaded) = fault(answer(&*model(Provider::Anthropic, &server, limits(3))).await);
    assert_eq!((before, overloaded.kind()), (3, &FaultKind::Overloaded));

    // From docs.ollama.com/api/errors.
    let begun = include_str!("../../testdata/ollama/text.ndjson").lines().next().unwrap();
    let bytes = format!("{begun}\n{{\"error\":\"an error was encountered while running the model\"}}\n");
    let server = Server::start(vec![ScriptedReply::ok(bytes.as_bytes())]).await;
    let (before, failed) = fault(answer(&*model(Provider::Ollama, &server, limits(3))).await);
    assert_eq!((before, failed.kind()), (1, &FaultKind::Overloaded));
    assert_eq!(server.asked().await.len(), 1);

    // The message in aws-samples/bedrock-chat, issue 95, in a frame of the event stream's specification.
    let frame = crate::wire::tests::frame(
        &[(":exception-type", "validationException"), (":content-type", "application/json"), (":message-type", "exception")],
        br#"{"message":"Input is too long for requested model."}"#,
    );
    let server = Server::start(vec![ScriptedReply::ok(&frame)]).await;
    let (before, too_long) = fault(answer(&*model(Provider::Bedrock, &server, limits(3))).await);
    assert_eq!((before, too_long.kind()), (0, &FaultKind::ContextOverflow));
}

#[tokio::test]
async fn silence_ends_in_a_timeout() {
    let brief = TransportLimits { first_byte: Duration::from_millis(200), idle: Duration::from_millis(200), ..limits(1) };
    let server = Server::start(vec![ScriptedReply { late: Duration::from_secs(20), ..ScriptedReply::ok(ANSWER) }]).await;
    let (_, slow) = fault(answer(&*model(Provider::Anthropic, &server, brief)).await);
    assert_eq!(*slow.kind(), FaultKind::Timeout);
    let text = ANSWER.windows(5).position(|bytes| bytes == b"there").unwrap();
    let server = Server::start(vec![ScriptedReply { hangs: true, ..ScriptedReply::ok(&ANSWER[..text]) }]).await;
    let (before, stuck) = fault(answer(&*model(Provider::Anthropic, &server, brief)).await);
    assert_eq!((before, stuck.kind()), (1, &FaultKind::Timeout));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let server = Server::start(vec![ScriptedReply::ok(ANSWER)]).await;
    let gone = model(Provider::Anthropic, &server, limits(2));
    let host = server.host();
    drop(server);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (_, fault) = fault(answer(&*gone).await);
    assert_eq!(*fault.kind(), FaultKind::Unreachable);
    assert!(fault.message().contains(&host) && fault.message().contains("refused"), "{fault}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Server::start(vec![ScriptedReply::ok(ANSWER)]).await;
    let away = ScriptedReply { headers: format!("location: {}/v1/messages\r\n", elsewhere.url()), ..ScriptedReply::error(307, "") };
    let server = Server::start(vec![away]).await;
    let (_, fault) = fault(answer(&*model(Provider::Anthropic, &server, limits(3))).await);
    assert_eq!((fault.kind(), elsewhere.connections()), (&FaultKind::Misconfigured, 0));
}

#[tokio::test]
async fn dropping_an_answer_ends_the_call() {
    let text = ANSWER.windows(5).position(|bytes| bytes == b"there").unwrap();
    let server = Server::start(vec![ScriptedReply { hangs: true, ..ScriptedReply::ok(&ANSWER[..text]) }]).await;
    let model = model(Provider::Anthropic, &server, limits(1));
    let mut pieces = model.answer(ModelRequest { messages: vec![Message::user("hi")], ..ModelRequest::default() });
    assert_eq!(pieces.next().await, Some(Ok(Piece::Text("Hello".into()))));
    assert_eq!(server.left.load(Ordering::SeqCst), 0);
    drop(pieces);
    let deadline = Instant::now() + Duration::from_secs(5);
    while server.left.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < deadline, "the connection should be closed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
