//! The few parts of the protobuf wire format that OTLP traces need, written straight into one buffer:
//! fields of a message may come in any order, so a span's attributes are appended as they become
//! known and nothing is kept beside the bytes that will be sent. Field numbers are those of
//! opentelemetry/proto/trace/v1/trace.proto; the tests read the bytes back with generated code.

/// Where an attribute list lies in its message.
pub(super) const RESOURCE_ATTRIBUTES: u32 = 1;
pub(super) const SPAN_ATTRIBUTES: u32 = 9;
pub(super) const EVENT_ATTRIBUTES: u32 = 3;

const LENGTH_DELIMITED: u32 = 2;
const FIXED32: u32 = 5;
const FIXED64: u32 = 1;
const VARINT: u32 = 0;

pub(super) enum Value<'a> {
    Text(&'a str),
    Count(u64),
    Number(f64),
    Flag(bool),
    Texts(&'a [&'a str]),
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn varint_length(value: u64) -> usize {
    let bits = (u64::BITS - (value | 1).leading_zeros()) as usize;
    bits.div_ceil(7)
}

/// OTLP's integers have a sign; nothing counted here is negative.
fn within(count: u64) -> u64 {
    count.min(i64::MAX.unsigned_abs())
}

fn tag(out: &mut Vec<u8>, field: u32, kind: u32) {
    varint(out, u64::from(field << 3 | kind));
}

/// The tag of a field that holds `length` bytes, and that length.
pub(super) fn head(out: &mut Vec<u8>, field: u32, length: usize) {
    tag(out, field, LENGTH_DELIMITED);
    varint(out, length as u64);
}

pub(super) fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    head(out, field, value.len());
    out.extend_from_slice(value);
}

pub(super) fn fixed32(out: &mut Vec<u8>, field: u32, value: u32) {
    tag(out, field, FIXED32);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, VARINT);
    varint(out, value);
}

/// A `KeyValue` in `field`.
pub(super) fn attribute(out: &mut Vec<u8>, field: u32, key: &str, value: &Value<'_>) {
    let any = any_length(value);
    head(out, field, delimited(key.len()) + delimited(any));
    bytes(out, 1, key.as_bytes());
    head(out, 2, any);
    any_value(out, value);
}

/// A field number under 16 takes one byte.
fn delimited(length: usize) -> usize {
    1 + varint_length(length as u64) + length
}

fn any_length(value: &Value<'_>) -> usize {
    match value {
        Value::Text(text) => delimited(text.len()),
        Value::Count(count) => 1 + varint_length(within(*count)),
        Value::Number(_) => 9,
        Value::Flag(_) => 2,
        Value::Texts(texts) => delimited(texts.iter().map(|text| delimited(delimited(text.len()))).sum()),
    }
}

fn any_value(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Text(text) => bytes(out, 1, text.as_bytes()),
        Value::Count(count) => number(out, 3, within(*count)),
        Value::Number(number) => fixed64(out, 4, number.to_bits()),
        Value::Flag(flag) => number(out, 2, u64::from(*flag)),
        Value::Texts(texts) => {
            head(out, 5, texts.iter().map(|text| delimited(delimited(text.len()))).sum());
            for text in *texts {
                head(out, 1, delimited(text.len()));
                bytes(out, 1, text.as_bytes());
            }
        }
    }
}

/// An `ExportTraceServiceRequest` around spans that already stand as fields of a `ScopeSpans`.
pub(super) fn request(resource: &[u8], scope: &[u8], spans: &[u8]) -> Vec<u8> {
    let scope_spans = delimited(scope.len()) + spans.len();
    let resource_spans = delimited(resource.len()) + delimited(scope_spans);
    let mut out = Vec::with_capacity(delimited(resource_spans));
    head(&mut out, 1, resource_spans);
    bytes(&mut out, 1, resource);
    head(&mut out, 2, scope_spans);
    bytes(&mut out, 1, scope);
    out.extend_from_slice(spans);
    out
}

/// Adds a span to the fields of a `ScopeSpans`.
pub(super) fn span(out: &mut Vec<u8>, span: &[u8]) {
    bytes(out, 2, span);
}

/// How many bytes the first `count` spans take in what [`span`] has written.
pub(super) fn prefix(spans: &[u8], count: usize) -> usize {
    let mut at = 0;
    for _ in 0..count {
        // The tag is one byte.
        let Some((length, taken)) = spans.get(at + 1..).and_then(read_varint) else { break };
        at += 1 + taken + usize::try_from(length).unwrap_or(usize::MAX);
    }
    at.min(spans.len())
}

fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (place, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((value, place + 1));
        }
    }
    None
}

/// How many spans a collector says that it refused, by its `ExportTraceServiceResponse`. An answer
/// that is not one refuses nothing.
pub(super) fn rejected(answer: &[u8]) -> u64 {
    let partial =
        field(answer, 1, LENGTH_DELIMITED).and_then(|(length, at)| answer.get(at..at.checked_add(usize::try_from(length).ok()?)?));
    partial.and_then(|partial| field(partial, 1, VARINT)).map_or(0, |(count, _)| count)
}

/// The value (or length) of a message's field, and where what follows begins.
fn field(message: &[u8], wanted: u32, kind: u32) -> Option<(u64, usize)> {
    let mut at = 0_usize;
    while at < message.len() {
        let (tag, taken) = read_varint(message.get(at..)?)?;
        at += taken;
        let (value, taken) = match tag & 7 {
            0 | 2 => read_varint(message.get(at..)?)?,
            1 => (8, 0),
            5 => (4, 0),
            _ => return None,
        };
        at += taken;
        if tag == u64::from(wanted << 3 | kind) {
            return Some((value, at));
        }
        if tag & 7 != 0 {
            at = at.checked_add(usize::try_from(value).ok()?)?;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
    };
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    #[test]
    fn generated_code_reads_back_every_kind_of_value() {
        for length in [0_u16, 1, 60, 127, 128, 300, 20_000] {
            let long = "é".repeat(usize::from(length));
            let mut out = Vec::new();
            for (key, value) in [
                ("text", Value::Text(&long)),
                ("count", Value::Count(u64::from(length) * 1_000_003)),
                ("number", Value::Number(-0.25)),
                ("texts", Value::Texts(&["stop", &long, ""])),
                ("none", Value::Texts(&[])),
            ] {
                attribute(&mut out, RESOURCE_ATTRIBUTES, key, &value);
            }
            let read = Resource::decode(&out[..]).unwrap().attributes;
            let values: Vec<_> = read.into_iter().map(|pair| (pair.key, pair.value.unwrap().value.unwrap())).collect();
            assert_eq!(values[0], ("text".into(), Any::StringValue(long.clone())));
            assert_eq!(values[1], ("count".into(), Any::IntValue(i64::from(length) * 1_000_003)));
            assert_eq!(values[2], ("number".into(), Any::DoubleValue(-0.25)));
            let Any::ArrayValue(texts) = &values[3].1 else { panic!("{:?}", values[3]) };
            let texts: Vec<_> = texts.values.iter().map(|text| text.value.clone().unwrap()).collect();
            assert_eq!(texts, ["stop", &long, ""].map(|text| Any::StringValue(text.into())));
            assert!(matches!(&values[4].1, Any::ArrayValue(none) if none.values.is_empty()));
        }
    }

    proptest! {
        #[test]
        fn batches_are_cut_between_spans(lengths in prop::collection::vec(0_usize..400, 0..40), count in 0_usize..50) {
            let mut spans = Vec::new();
            for length in &lengths {
                // A span whose only field is a name of that length.
                let mut one = Vec::new();
                bytes(&mut one, 5, "n".repeat(*length).as_bytes());
                span(&mut spans, &one);
            }
            let cut = prefix(&spans, count);
            let read = |spans: &[u8]| {
                let request = ExportTraceServiceRequest::decode(&request(&[], &[], spans)[..]).unwrap();
                request.resource_spans[0].scope_spans[0].spans.iter().map(|span| span.name.len()).collect::<Vec<_>>()
            };
            let taken = count.min(lengths.len());
            prop_assert_eq!(read(&spans[..cut]), &lengths[..taken]);
            prop_assert_eq!(read(&spans[cut..]), &lengths[taken..]);
        }

        #[test]
        fn any_answer_is_borne(answer in prop::collection::vec(any::<u8>(), 0..64)) {
            rejected(&answer);
            prefix(&answer, 3);
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
