//! An OTLP receiver that keeps what it is sent, decoded by OpenTelemetry's generated code, and answers
//! as it is told: what no real collector does on demand.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{ArrayValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// How one request is answered; when there are no more of these, with 200.
#[derive(Clone)]
pub(super) enum ReceiverAnswer {
    Status(u16, &'static str),
    Body(Vec<u8>),
    Silence(Duration),
    Hangup,
}

#[derive(Default)]
struct Kept {
    answers: VecDeque<ReceiverAnswer>,
    requests: Vec<Got>,
}

#[derive(Clone)]
pub(super) struct Got {
    pub(super) head: String,
    pub(super) request: ExportTraceServiceRequest,
    pub(super) bytes: usize,
}

#[derive(Clone)]
pub(super) struct SpanReceiver {
    pub(super) url: String,
    kept: Arc<Mutex<Kept>>,
}

impl SpanReceiver {
    pub(super) async fn start(answers: impl IntoIterator<Item = ReceiverAnswer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let kept = Arc::new(Mutex::new(Kept { answers: answers.into_iter().collect(), ..Kept::default() }));
        let receiver = Self { url, kept };
        let serving = receiver.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let serving = serving.clone();
                tokio::spawn(async move { serving.serve(stream).await });
            }
        });
        receiver
    }

    pub(super) fn requests(&self) -> Vec<Got> {
        self.kept.lock().unwrap().requests.clone()
    }

    /// All spans so far, in the order in which they came.
    pub(super) fn spans(&self) -> Vec<Span> {
        let requests = self.requests().into_iter();
        requests.flat_map(|got| got.request.resource_spans).flat_map(|of| of.scope_spans).flat_map(|of| of.spans).collect()
    }

    pub(super) fn span(&self, name: &str) -> Span {
        let spans = self.spans();
        let found = spans.iter().find(|span| span.name == name);
        let names: Vec<_> = spans.iter().map(|span| &span.name).collect();
        found.unwrap_or_else(|| panic!("no span is named {name:?}, but {names:?}")).clone()
    }

    async fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let mut read = Vec::new();
        loop {
            let end = loop {
                if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                    break end + 4;
                }
                if stream.read_buf(&mut read).await.ok()? == 0 {
                    return None;
                }
            };
            let head = String::from_utf8(read.drain(..end).collect()).unwrap().to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |text| text.parse().unwrap());
            while read.len() < length {
                if stream.read_buf(&mut read).await.ok()? == 0 {
                    return None;
                }
            }
            let body: Vec<u8> = read.drain(..length).collect();
            let answer = self.kept.lock().unwrap().answers.pop_front().unwrap_or(ReceiverAnswer::Status(200, ""));
            let (status, headers, answer) = match answer {
                ReceiverAnswer::Status(status, headers) => (status, headers, Vec::new()),
                ReceiverAnswer::Body(body) => (200, "", body),
                ReceiverAnswer::Silence(time) => {
                    sleep(time).await;
                    return None;
                }
                ReceiverAnswer::Hangup => return None,
            };
            if status == 200 {
                let request = ExportTraceServiceRequest::decode(&body[..]).unwrap();
                self.kept.lock().unwrap().requests.push(Got { head, request, bytes: length });
            }
            let said = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n{headers}\r\n", answer.len());
            stream.write_all(said.as_bytes()).await.ok()?;
            stream.write_all(&answer).await.ok()?;
        }
    }
}

/// Attributes as text: `key` to value.
pub(super) fn shown(attributes: &[KeyValue]) -> Vec<(&str, String)> {
    attributes.iter().map(|pair| (pair.key.as_str(), text(pair.value.as_ref().unwrap().value.as_ref().unwrap()))).collect()
}

pub(super) fn attribute<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Any> {
    attributes.iter().find(|pair| pair.key == key)?.value.as_ref()?.value.as_ref()
}

fn text(value: &Any) -> String {
    match value {
        Any::StringValue(text) => text.clone(),
        Any::IntValue(number) => number.to_string(),
        Any::DoubleValue(number) => number.to_string(),
        Any::BoolValue(flag) => flag.to_string(),
        Any::ArrayValue(ArrayValue { values }) => {
            let texts: Vec<_> = values.iter().map(|value| text(value.value.as_ref().unwrap())).collect();
            format!("[{}]", texts.join(", "))
        }
        other => panic!("{other:?} is no kind of value that is sent"),
    }
}
