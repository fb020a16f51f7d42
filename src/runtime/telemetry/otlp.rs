//! OTLP messages, in OpenTelemetry's generated types: attributes, the request around a batch, and what an answer says.
//! A finished span is encoded at once, as its message takes several times the room of its bytes.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

pub(super) enum Value<'a> {
    Text(&'a str),
    Count(u64),
    Number(f64),
    Flag(bool),
    Texts(&'a [&'a str]),
}

/// An `ExportTraceServiceRequest` whose spans are encoded already: a message has the encoding of its bytes.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportRequest {
    #[prost(message, required, tag = "1")]
    resource_spans: ResourceSpans,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, required, tag = "1")]
    resource: Resource,
    #[prost(message, required, tag = "2")]
    scope_spans: ScopeSpans,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, required, tag = "1")]
    scope: InstrumentationScope,
    #[prost(bytes = "vec", repeated, tag = "2")]
    spans: Vec<Vec<u8>>,
}

impl ExportRequest {
    pub(super) fn new(resource: &Resource, spans: Vec<Vec<u8>>) -> Self {
        let scope = InstrumentationScope {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        Self { resource_spans: ResourceSpans { resource: resource.clone(), scope_spans: ScopeSpans { scope, spans } } }
    }
}

pub(super) fn attribute(key: &str, value: &Value<'_>) -> KeyValue {
    let text = |text: &str| Any::StringValue(text.to_owned());
    let value = match value {
        Value::Text(value) => text(value),
        Value::Count(count) => Any::IntValue(i64::try_from(*count).unwrap_or(i64::MAX)),
        Value::Number(number) => Any::DoubleValue(*number),
        Value::Flag(flag) => Any::BoolValue(*flag),
        Value::Texts(texts) => {
            Any::ArrayValue(ArrayValue { values: texts.iter().map(|one| AnyValue { value: Some(text(one)) }).collect() })
        }
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// How many spans a collector refused. An answer that is no `ExportTraceServiceResponse` refuses none.
pub(super) fn rejected(answer: &[u8]) -> u64 {
    let partial = ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    partial.and_then(|partial| u64::try_from(partial.rejected_spans).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::{ExportTracePartialSuccess, ExportTraceServiceRequest};
    use opentelemetry_proto::tonic::trace::v1::Span;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_request_of_encoded_spans_is_one_of_spans(names in prop::collection::vec("[a-zé]{0,300}", 0..40), value: f64, count: u64) {
            let attributes = vec![
                attribute("text", &Value::Text("é")),
                attribute("number", &Value::Number(if value.is_nan() { 0.0 } else { value })),
                attribute("count", &Value::Count(count)),
                attribute("flag", &Value::Flag(false)),
                attribute("texts", &Value::Texts(&["", "stop"])),
            ];
            let spans: Vec<_> = names.into_iter().map(|name| Span { name, attributes: attributes.clone(), ..Span::default() }).collect();
            let resource = Resource { attributes, ..Resource::default() };
            let encoded = ExportRequest::new(&resource, spans.iter().map(Message::encode_to_vec).collect()).encode_to_vec();
            let mut read = ExportTraceServiceRequest::decode(&encoded[..]).unwrap();
            let mut read = read.resource_spans.remove(0);
            prop_assert_eq!(read.resource, Some(resource));
            prop_assert_eq!(read.scope_spans.remove(0).spans, spans);
        }

        #[test]
        fn any_answer_is_accepted(answer in prop::collection::vec(any::<u8>(), 0..64)) {
            rejected(&answer);
        }
    }

    #[test]
    fn a_collector_may_refuse_some_spans() {
        let says = |count| {
            let partial = ExportTracePartialSuccess { rejected_spans: count, error_message: "too old".into() };
            ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec()
        };
        assert_eq!([rejected(&says(0)), rejected(&says(3)), rejected(&says(70_000)), rejected(b""), rejected(b"{}")], [0, 3, 70_000, 0, 0]);
    }
}
