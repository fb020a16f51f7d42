//! Shared components: errors, headers, header parameters.

use serde_json::{Map, Value, json};
use slipway_http::StatusCode;

/// The errors of operations, with their description and headers.
const REFUSALS: [(StatusCode, &str, &[&str]); 13] = [
    (StatusCode::BAD_REQUEST, "The request is not as it should be: its JSON, a field, a header, a parameter.", &[]),
    (StatusCode::UNAUTHORIZED, "There is no token, or none that is valid.", &["WWW-Authenticate"]),
    (StatusCode::FORBIDDEN, "The caller's role does not allow it, or a policy or quota of the cluster does not.", &[]),
    (StatusCode::NOT_FOUND, "There is no such thing, or none in the caller's team.", &[]),
    (StatusCode::REQUEST_TIMEOUT, "The body took too long to arrive.", &[]),
    (
        StatusCode::CONFLICT,
        "It exists already, is not as If-Match says, is being deleted, belongs to GitOps, or is in no state for this.",
        &[],
    ),
    (StatusCode::PAYLOAD_TOO_LARGE, "The body is larger than it may be.", &[]),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is of another type than is taken.", &[]),
    (StatusCode::TOO_MANY_REQUESTS, "The team, its agent or its worker is asked too much, or for what is under way.", &["Retry-After"]),
    (StatusCode::INTERNAL_SERVER_ERROR, "The server's own fault. Its log says more, under the X-Request-Id.", &[]),
    (
        StatusCode::BAD_GATEWAY,
        "The agent or the team's worker cannot be reached, or its answer makes no sense; or a release is not as it was written.",
        &[],
    ),
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "The cluster does not answer, the agent or the team's worker does not run, or the state role, which keeps the releases, is away.",
        &["Retry-After"],
    ),
    (StatusCode::GATEWAY_TIMEOUT, "The agent, the team's worker or the manager took too long.", &[]),
];

pub(super) const REQUEST_ID: &str = "X-Request-Id";

/// The body of every error.
pub(super) fn error() -> Value {
    json!({
        "type": "object",
        "properties": {
            "error": {"type": "string", "description": "The status in words."},
            "message": {"type": "string", "description": "What is wrong, where, and what would be right."},
            "path": {"type": "string", "description": "The path that was asked for."},
        },
        "required": ["error", "message", "path"],
        "additionalProperties": false,
    })
}

pub(super) fn refusals() -> Value {
    let all = REFUSALS.iter().map(|(status, about, names)| {
        let response = json!({
            "description": about,
            "headers": headers_of(names),
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        });
        (name(*status), response)
    });
    Value::Object(all.collect())
}

/// The reference to an error response.
pub(super) fn refusal(status: StatusCode) -> Value {
    json!({"$ref": format!("#/components/responses/{}", name(status))})
}

fn name(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or_default().replace(' ', "")
}

pub(super) fn headers() -> Value {
    let header = |about: &str| json!({"description": about, "schema": {"type": "string"}});
    json!({
        REQUEST_ID: header("Under which the server's log speaks of this request."),
        "X-Resource-Version": header("The version of the cluster that the answer speaks of. Sent along with a list or the read of an agent, it makes the answer at least as new."),
        "ETag": header("The version of the thing, for If-Match."),
        "WWW-Authenticate": header("How to prove who one is."),
        "Retry-After": header("After how many seconds to try again, where that is known."),
    })
}

/// References to response headers; X-Request-Id is always among them.
pub(super) fn headers_of(names: &[&str]) -> Value {
    let all = names.iter().copied().chain([REQUEST_ID]);
    Value::Object(all.map(|name| (name.to_owned(), json!({"$ref": format!("#/components/headers/{name}")}))).collect::<Map<_, _>>())
}

pub(super) fn parameters() -> Value {
    let header = |name: &str, about: &str, schema: Value| json!({"name": name, "in": "header", "description": about, "schema": schema});
    json!({
        "Team": header("X-Team", "The team by its slug, for those who have a role in several.", json!({"type": "string", "minLength": 1, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"})),
        "TeamId": header("X-Team-Id", "The same by its id.", json!({"type": "string", "minLength": 1, "pattern": "^tk_[a-z]([-a-z0-9]*[a-z0-9])?$"})),
        "ResourceVersion": header("X-Resource-Version", "What an earlier answer had: this one is at least as new. A list waits for that; an agent is shown from the cache where that is as new.", json!({"type": "string", "minLength": 1, "pattern": "^[0-9]{1,18}$"})),
        "IfMatch": header("If-Match", "The ETag of an earlier answer: in another version the thing is left as it is, and the answer is 409.", json!({"type": "string", "minLength": 1, "pattern": "^(\\*|\"[0-9]{1,18}\")$"})),
        "IdempotencyKey": header("Idempotency-Key", "Any text of one's own. The same call with the same key again gives what was made the first time.", json!({"type": "string", "minLength": 1, "pattern": "^[!-~]{1,255}$"})),
        "LastEventId": header("Last-Event-ID", "The id of the last event that was received: the stream goes on after it.", json!({"type": "string", "minLength": 1, "pattern": "^[0-9]{1,18}$"})),
    })
}

pub(super) fn parameter(name: &str) -> Value {
    json!({"$ref": format!("#/components/parameters/{name}")})
}
