//! Which headers go along. A list of those that do, so that nothing of how one connection works (lengths, encodings,
//! `Connection`), nothing of who calls and nothing that a proxy would be believed reaches the other side.

use http::{HeaderMap, HeaderName, header};
use slipway_http::{HeaderValue, RequestId};

const PASSED: [HeaderName; 5] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("baggage"),
];
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Says for which agent a call is meant.
const TOKEN: HeaderName = HeaderName::from_static("x-slipway-token");

/// What an agent is told of a call.
pub(super) fn to_agent(headers: &HeaderMap, id: &RequestId, token: Option<&HeaderValue>) -> HeaderMap {
    let mut passed = HeaderMap::with_capacity(PASSED.len() + 4);
    for name in PASSED {
        for value in headers.get_all(&name) {
            passed.append(name.clone(), value.clone());
        }
    }
    if let Ok(id) = HeaderValue::from_str(id.as_str()) {
        passed.insert(REQUEST_ID, id);
    }
    if let Some(token) = token {
        passed.insert(TOKEN, token.clone());
    }
    passed
}

/// Whether a body is of this media type.
pub(super) fn is(headers: &HeaderMap, media: &str) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(media)
}

/// Whether a body comes as it is. Nobody asked for anything else.
pub(super) fn is_plain(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_ENCODING).is_none_or(|encoding| encoding == "identity")
}
