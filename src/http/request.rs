//! A request as a handler sees it: its head, its id, and a body that is read once, with a size limit and a timeout.

use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::body::{BodyLimits, BodyReader};
use crate::budget::{FREE_BYTES, VALUE_BYTES};
use crate::error::Error;
use crate::id::RequestId;
use crate::query::Query;
use crate::slots::RequestSlot;

/// A larger JSON body is refused.
pub const MAX_JSON_BYTES: usize = 1024 * 1024;
/// The most that is read of a refused body before the answer, so that a client that is still sending sees the answer instead
/// of a reset connection.
const MAX_DISCARDED_BYTES: usize = 8 * 1024 * 1024;
pub(crate) const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest message that quotes a body.
const MAX_MESSAGE_BYTES: usize = 300;

#[derive(Debug)]
pub struct Request {
    head: Parts,
    body: Incoming,
    id: RequestId,
    slot: RequestSlot,
    body_timeout: Duration,
}

impl Request {
    pub(crate) fn new(request: http::Request<Incoming>, id: RequestId, slot: RequestSlot, body_timeout: Duration) -> Self {
        let (head, body) = request.into_parts();
        Self { head, body, id, slot, body_timeout }
    }

    pub fn method(&self) -> &Method {
        &self.head.method
    }

    pub fn path(&self) -> &str {
        self.head.uri.path()
    }

    pub fn query(&self) -> Result<Query, Error> {
        Query::parse(self.head.uri.query())
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// The request's slot, to which its memory is charged.
    pub fn slot(&self) -> &RequestSlot {
        &self.slot
    }

    /// The client's address, behind trusted proxies.
    pub fn address(&self) -> IpAddr {
        self.slot.address(&self.head.headers)
    }

    /// The body as JSON of at most 1 MiB. Errors have line and column.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        self.json_up_to(MAX_JSON_BYTES).await
    }

    /// The body as JSON of at most `limit` bytes.
    pub async fn json_up_to<T: DeserializeOwned>(self, limit: usize) -> Result<T, Error> {
        let slot = self.slot.clone();
        let bytes = self.json_bytes_up_to(limit).await?;
        let parsed = parsed_bytes(&bytes);
        if parsed > FREE_BYTES as u64 {
            slot.charge(parsed)?;
        }
        decoded(&bytes)
    }

    /// The unparsed body, of at most 1 MiB, if its type is JSON: for callers that relay it.
    pub async fn json_bytes(self) -> Result<Bytes, Error> {
        self.json_bytes_up_to(MAX_JSON_BYTES).await
    }

    async fn json_bytes_up_to(self, limit: usize) -> Result<Bytes, Error> {
        if !is_json(self.headers()) {
            return Err(Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be JSON, sent with Content-Type: application/json"));
        }
        self.bytes(limit).await
    }

    /// The body, if it is no longer than `limit`.
    pub async fn bytes(mut self, limit: usize) -> Result<Bytes, Error> {
        let declared = self.body.size_hint().lower();
        let read = async {
            if usize::try_from(declared).is_ok_and(|length| length <= limit) {
                collected(&mut self.body, limit, &self.slot).await
            } else {
                Ok(None)
            }
        };
        match timeout(self.body_timeout, read).await {
            Ok(Ok(Some(bytes))) => Ok(bytes),
            Ok(Ok(None)) => Err(self.too_large(limit).await),
            Ok(Err(error)) => Err(self.refused(error).await),
            Err(_) => Err(slow()),
        }
    }

    /// Sends the body to `into` as it arrives, if it is no longer than `limit`. For bodies too large for memory.
    pub async fn pass(mut self, limit: u64, into: mpsc::Sender<Bytes>) -> Result<(), Error> {
        if self.body.size_hint().lower() > limit {
            return Err(self.too_large(limit).await);
        }
        match timeout(self.body_timeout, passed(&mut self.body, limit, into)).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(self.too_large(limit).await),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(slow()),
        }
    }

    /// The body, to be read piece by piece.
    pub fn into_body(self, limits: BodyLimits) -> BodyReader {
        BodyReader::new(self.body, &self.head.headers, limits)
    }

    async fn too_large(&mut self, limit: impl Display) -> Error {
        self.refused(Error::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body may have at most {limit} bytes"))).await
    }

    /// Refuses a request whose body was not read, so that its client sees the error.
    pub async fn refuse(mut self, error: Error) -> Error {
        self.refused(error).await
    }

    async fn refused(&mut self, error: Error) -> Error {
        if !waits_to_continue(&self.head.headers) {
            let _ = timeout(DISCARD_TIMEOUT, discarded(&mut self.body)).await;
        }
        error
    }
}

/// A client that waits for `100 Continue` has not sent the body.
pub(crate) fn waits_to_continue(headers: &HeaderMap) -> bool {
    headers.contains_key(header::EXPECT)
}

fn slow() -> Error {
    Error::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive")
}

/// Sends the body to `into`, or returns `false` as soon as it is longer than `limit`.
async fn passed(body: &mut Incoming, limit: u64, into: mpsc::Sender<Bytes>) -> Result<bool, Error> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(early)?;
        let Ok(piece) = frame.into_data() else { continue };
        length += piece.len() as u64;
        if length > limit {
            return Ok(false);
        }
        into.send(piece).await.map_err(|_| Error::internal("the receiver of the body is gone"))?;
    }
    Ok(true)
}

fn early(cause: hyper::Error) -> Error {
    Error::bad_request("the body ended early").because(cause)
}

/// The whole body, or `None` as soon as it is longer than `limit`. Its bytes are charged before they are stored.
async fn collected(body: &mut Incoming, limit: usize, slot: &RequestSlot) -> Result<Option<Bytes>, Error> {
    let mut whole = BytesMut::new();
    let mut room = FREE_BYTES;
    while let Some(frame) = body.frame().await.transpose().map_err(early)? {
        let Ok(data) = frame.into_data() else { continue };
        let length = whole.len() + data.len();
        if length > limit {
            return Ok(None);
        }
        if length > room {
            let left = usize::try_from(body.size_hint().upper().unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
            let wanted = length.saturating_add(left).min(limit).min(2 * length);
            slot.charge((wanted - room) as u64)?;
            whole.reserve(wanted - whole.len());
            room = wanted;
        }
        if whole.is_empty() && body.is_end_stream() {
            return Ok(Some(data));
        }
        whole.extend_from_slice(&data);
    }
    Ok(Some(whole.freeze()))
}

/// An upper estimate of the memory for a JSON body once it is parsed and serialised again.
fn parsed_bytes(json: &[u8]) -> u64 {
    let (mut values, mut quoted, mut escaped) = (0_u64, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => values += 1,
            _ => {}
        }
    }
    2 * json.len() as u64 + values * VALUE_BYTES
}

pub(crate) async fn discarded(body: &mut Incoming) {
    let mut seen = 0;
    while seen < MAX_DISCARDED_BYTES {
        match body.frame().await {
            Some(Ok(frame)) => seen += frame.data_ref().map_or(0, Bytes::len),
            Some(Err(_)) | None => return,
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| {
        let what = match error.classify() {
            Category::Data => "the body does not fit",
            _ => "the body is not valid JSON",
        };
        Error::bad_request(cut(format!("{what}: {error}"), &error))
    })
}

/// Cuts a long message, and keeps the line and column of the error.
fn cut(message: String, error: &serde_json::Error) -> String {
    if message.len() <= MAX_MESSAGE_BYTES {
        return message;
    }
    let start = &message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)];
    format!("{start}… at line {} column {}", error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Order {
        #[expect(dead_code, reason = "only the refusals matter here")]
        count: u32,
    }

    #[test]
    fn a_refusal_has_the_reason_and_its_position() {
        for (body, message) in [
            ("", "the body is not valid JSON: EOF while parsing a value at line 1 column 0"),
            ("{\n  \"count\": }", "the body is not valid JSON: expected value at line 2 column 12"),
            ("{} x", "the body does not fit: missing field `count` at line 1 column 2"),
            ("{\"cuont\": 1}", "the body does not fit: unknown field `cuont`, expected `count` at line 1 column 8"),
        ] {
            let error = decoded::<Order>(body.as_bytes()).unwrap_err();
            assert_eq!(error.status(), StatusCode::BAD_REQUEST);
            assert_eq!(error.message(), message, "{body:?}");
        }
    }

    #[test]
    fn a_long_quote_is_cut_and_the_position_is_kept() {
        let body = format!("{{\"count\": \"{}\"}}", "é".repeat(10_000));
        let error = decoded::<Order>(body.as_bytes()).unwrap_err();
        assert!(error.message().len() < 400, "{}", error.message());
        assert!(error.message().contains("… at line 1 column "), "{}", error.message());
    }

    #[test]
    fn values_are_charged_by_number_and_commas_in_strings_are_not() {
        for (json, values) in [("[0,0,0]", 3), (r#"{"a": {"b": [1, 2]}, "c": "x"}"#, 5), (r#""a,b[c{d""#, 0), (r#"["a\",b", "\\", 1]"#, 3)]
        {
            assert_eq!(parsed_bytes(json.as_bytes()), 2 * json.len() as u64 + values * VALUE_BYTES, "{json}");
        }
    }

    #[test]
    fn json_is_known_by_its_content_type() {
        for (content_type, json) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("text/plain", false),
            ("application/jsonl", false),
            ("application/x-www-form-urlencoded", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            assert_eq!(is_json(&headers), json, "{content_type}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
