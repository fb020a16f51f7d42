//! The headers that are passed to agents: an allow list, without hop-by-hop headers, credentials of the caller, and headers
//! that proxies are trusted with.

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
/// Names the agent that the call is meant for.
const TOKEN: HeaderName = HeaderName::from_static("x-slipway-token");

/// The headers of a call to an agent.
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

/// Whether the body has this media type.
pub(super) fn is(headers: &HeaderMap, media: &str) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(media)
}

/// Whether the body has no content encoding. None was asked for.
pub(super) fn is_plain(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_ENCODING).is_none_or(|encoding| encoding == "identity")
}
