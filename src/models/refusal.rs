//! Classifies errors of providers by status, by code or type, and a prompt that is too long by its text, because only OpenAI
//! has a code for it.

use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;
use serde_json::Value;

use crate::fault::{FaultKind, ModelFault};

/// The longest quote of a provider's message.
const MAX_QUOTE_BYTES: usize = 300;

/// The HTTP statuses of error names, for errors within a stream, which have no status.
const ERROR_STATUSES: [(&str, u16); 27] = [
    ("overloaded_error", 529),
    ("rate_limit_error", 429),
    ("rate_limit_exceeded", 429),
    ("insufficient_quota", 429),
    ("api_error", 500),
    ("server_error", 500),
    ("timeout_error", 504),
    ("invalid_request_error", 400),
    ("request_too_large", 413),
    ("authentication_error", 401),
    ("invalid_api_key", 401),
    ("permission_error", 403),
    ("not_found_error", 404),
    ("model_not_found", 404),
    ("throttlingException", 429),
    ("internalServerException", 500),
    ("modelStreamErrorException", 500),
    ("serviceUnavailableException", 503),
    ("modelTimeoutException", 408),
    ("validationException", 400),
    ("RESOURCE_EXHAUSTED", 429),
    ("UNAVAILABLE", 503),
    ("INTERNAL", 500),
    ("DEADLINE_EXCEEDED", 504),
    ("INVALID_ARGUMENT", 400),
    ("UNAUTHENTICATED", 401),
    ("PERMISSION_DENIED", 403),
];

const TOO_LONG_PHRASES: [&str; 8] = [
    "context_length_exceeded",
    "maximum context length",
    "prompt is too long",
    "input is too long",
    "input token count",
    "exceeds the maximum number of tokens",
    "exceed context limit",
    "exceeds the available context size",
];
const BAD_KEY_CODES: [&str; 6] = [
    "api_key_invalid",
    "api key not valid",
    "unrecognizedclientexception",
    "invalidsignatureexception",
    "expiredtokenexception",
    "security token included in the request is invalid",
];
const NO_SUCH_MODEL_CODES: [&str; 4] =
    ["model_not_found", "model identifier is invalid", "invalid model", "does not exist or you do not have access"];
/// The account has no credit left or has reached its spend limit, so that a retry does not help.
const EXHAUSTED_CODES: [&str; 4] = ["insufficient_quota", "enforced_spend_limit_reached", "credit balance is too low", "billing_error"];

pub(crate) struct ErrorResponse<'a> {
    pub(crate) name: &'a str,
    pub(crate) model: &'a str,
    pub(crate) status: u16,
    pub(crate) body: &'a Value,
    pub(crate) headers: Option<&'a HeaderMap>,
}

impl ErrorResponse<'_> {
    pub(crate) fn fault(&self) -> ModelFault {
        let Self { name, model, .. } = self;
        let said = self.body.to_string().to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
        let quote = self.quote();
        let retry_after = self.retry_after();
        let status = if self.status == 200 { self.status_of_word() } else { self.status };
        let (kind, message) = match status {
            _ if matches!(status, 400 | 413 | 422 | 500) && says(&TOO_LONG_PHRASES) => (
                FaultKind::ContextOverflow,
                format!("the conversation is too long for {name}:{model}; shorten the message, or begin a new conversation{quote}"),
            ),
            _ if status == 401 || matches!(status, 400 | 403) && says(&BAD_KEY_CODES) => {
                (FaultKind::Unauthorized, format!("{name} does not accept the credentials; see that its key is right and still valid"))
            }
            403 => (
                FaultKind::Unauthorized,
                format!("{name} does not let these credentials use the model `{model}`; see what the account may use{}", self.code()),
            ),
            _ if says(&EXHAUSTED_CODES) => {
                (FaultKind::Refused, format!("the account at {name} has no credit left, or has reached its limit of spending{quote}"))
            }
            404 => (FaultKind::UnknownModel, format!("{name} has no model `{model}`, or its address is wrong{quote}")),
            400 | 422 if says(&NO_SUCH_MODEL_CODES) => (FaultKind::UnknownModel, format!("{name} has no model `{model}`{quote}")),
            429 => (FaultKind::RateLimited { retry_after }, format!("{name} is asked too often; try again{}", later(retry_after))),
            408 | 504 => (FaultKind::Timeout, format!("{name} took too long; try again{quote}")),
            500 | 502 | 503 | 529 => {
                (FaultKind::Overloaded, format!("{name} is overloaded or failed ({status}); try again{}", later(retry_after)))
            }
            300..=399 => (
                FaultKind::Misconfigured,
                format!("{name} is elsewhere: its address answers with a redirect ({status}), which is not followed"),
            ),
            _ => (FaultKind::Refused, format!("{name} refused the request ({status}){quote}")),
        };
        ModelFault::new(kind, message).after(retry_after)
    }

    /// The status of an error within a stream. An unknown error counts as the provider's failure.
    fn status_of_word(&self) -> u16 {
        let error = self.error();
        if let Some(status) = error["code"].as_u64().and_then(|status| u16::try_from(status).ok()) {
            return status;
        }
        let known = |field: &str| {
            let word = error[field].as_str()?;
            ERROR_STATUSES.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, status)| *status)
        };
        known("code").or_else(|| known("type")).or_else(|| known("status")).unwrap_or(500)
    }

    /// The object that describes the error, whose position differs between providers.
    fn error(&self) -> &Value {
        let body = self.body.get(0).unwrap_or(self.body);
        body.get("error").filter(|error| error.is_object()).unwrap_or(body)
    }

    fn quote(&self) -> String {
        let error = self.error();
        let message =
            ["message", "Message", "error"].iter().find_map(|field| error[*field].as_str()).or(self.body.as_str()).unwrap_or_default();
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        let end = message.floor_char_boundary(MAX_QUOTE_BYTES);
        if message.is_empty() { String::new() } else { format!(" (it says: {})", &message[..end]) }
    }

    /// The error's code without its text, which may contain details of the account.
    fn code(&self) -> String {
        let header = self.headers.and_then(|headers| headers.get("x-amzn-errortype")).and_then(|value| value.to_str().ok());
        let error = self.error();
        let named = header.or_else(|| ["code", "type", "status", "__type"].iter().find_map(|field| error[*field].as_str()));
        named.map_or(String::new(), |code| format!(" ({})", &code[..code.floor_char_boundary(60)]))
    }

    fn retry_after(&self) -> Option<Duration> {
        let header = |name: &str| self.headers?.get(name)?.to_str().ok();
        if let Some(milliseconds) = header("retry-after-ms").and_then(|text| text.trim().parse::<f64>().ok()) {
            return Duration::try_from_secs_f64(milliseconds / 1000.0).ok();
        }
        header("retry-after").and_then(|text| pause(text.trim(), Timestamp::now())).or_else(|| {
            let details = self.error()["details"].as_array()?;
            let delay = details.iter().find_map(|detail| detail["retryDelay"].as_str())?;
            Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
        })
    }
}

fn later(pause: Option<Duration>) -> String {
    pause.map_or_else(|| " a little later".to_owned(), |pause| format!(" in {} s", pause.as_secs().max(1)))
}

/// The pause in `Retry-After`: seconds, or a date.
fn pause(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

/// The fault without the secrets of the request, which a provider may repeat in its message.
pub(crate) fn redacted(fault: ModelFault, sent: &HeaderMap) -> ModelFault {
    let secrets = sent.values().filter(|value| value.is_sensitive()).filter_map(|value| value.to_str().ok());
    let parts = secrets.flat_map(|secret| [secret, secret.strip_prefix("Bearer ").unwrap_or(secret)]);
    parts.filter(|secret| secret.len() >= 4).fold(fault, ModelFault::without)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(status: u16, body: &Value) -> ModelFault {
        ErrorResponse { name: "p", model: "m", status, body, headers: None }.fault()
    }

    #[test]
    fn the_same_things_are_recognised_in_each_providers_words() {
        use FaultKind as Kind;
        let limited = Kind::RateLimited { retry_after: None };
        for (status, body, kind) in [
            (400, json!({"error": {"message": "m", "code": "context_length_exceeded"}}), Kind::ContextOverflow),
            (
                400,
                json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 2 tokens > 1 maximum"}}),
                Kind::ContextOverflow,
            ),
            (
                400,
                json!({"error": {"code": 400, "message": "The input token count (2) exceeds the maximum number of tokens allowed (1).", "status": "INVALID_ARGUMENT"}}),
                Kind::ContextOverflow,
            ),
            (400, json!({"message": "Input is too long for requested model."}), Kind::ContextOverflow),
            (401, json!({"error": {"message": "Incorrect API key provided: sk-12*4"}}), Kind::Unauthorized),
            (400, json!({"error": {"message": "API key not valid. Please pass a valid API key."}}), Kind::Unauthorized),
            (403, json!({"message": "The security token included in the request is invalid."}), Kind::Unauthorized),
            (404, json!({"error": "model 'x' not found"}), Kind::UnknownModel),
            (400, json!({"message": "The provided model identifier is invalid."}), Kind::UnknownModel),
            (429, json!({"error": {"type": "insufficient_quota"}}), Kind::Refused),
            (429, json!({"message": "Rate exceeded", "__type": "ThrottlingException"}), limited.clone()),
            (500, json!("<html>"), Kind::Overloaded),
            (529, json!({}), Kind::Overloaded),
            (504, json!(null), Kind::Timeout),
            (307, json!(null), Kind::Misconfigured),
            (418, json!({"error": {"message": "no"}}), Kind::Refused),
            // Within a stream.
            (200, json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), Kind::Overloaded),
            (200, json!({"error": {"code": 503, "status": "UNAVAILABLE"}}), Kind::Overloaded),
            (200, json!({"error": {"code": "rate_limit_exceeded"}}), limited),
            (200, json!({"error": "an error was encountered while running the model"}), Kind::Overloaded),
            (
                200,
                json!({"error": {"type": "validationException", "message": "Input is too long for requested model."}}),
                Kind::ContextOverflow,
            ),
        ] {
            assert_eq!(*refused(status, &body).kind(), kind, "{status} {body}");
        }
    }

    #[test]
    fn what_a_provider_says_about_keys_is_not_repeated() {
        let fault = refused(401, &json!({"error": {"message": "Incorrect API key provided: sk-12*4"}}));
        assert!(!fault.message().contains("sk-12"), "{fault}");
        let mut key = http::HeaderValue::from_static("Bearer hunter2");
        key.set_sensitive(true);
        let sent = HeaderMap::from_iter([(http::header::AUTHORIZATION, key)]);
        let fault = redacted(refused(400, &json!({"error": {"message": "bad header: hunter2"}})), &sent);
        assert!(fault.message().contains("bad header") && !fault.message().contains("hunter2"), "{fault}");
    }

    #[test]
    fn a_pause_is_asked_for_in_many_ways() {
        let now: Timestamp = "2015-10-21T07:28:00Z".parse().unwrap();
        for (text, seconds) in [
            ("7", Some(7.0)),
            ("0.5", Some(0.5)),
            ("Wed, 21 Oct 2015 07:28:30 GMT", Some(30.0)),
            ("Wed, 21 Oct 2015 07:27:30 GMT", Some(0.0)),
            ("soon", None),
            ("-1", None),
            ("1e300", None),
        ] {
            assert_eq!(pause(text, now).map(|pause| pause.as_secs_f64()), seconds, "{text}");
        }
        let hinted = refused(429, &json!({"error": {"details": [{"retryDelay": "34.5s"}]}}));
        assert_eq!(hinted.retry_after(), Some(Duration::from_millis(34_500)));
        let headers = HeaderMap::from_iter([(http::HeaderName::from_static("retry-after-ms"), http::HeaderValue::from_static("250"))]);
        let body = json!({});
        let hinted = ErrorResponse { name: "p", model: "m", status: 429, body: &body, headers: Some(&headers) }.fault();
        assert_eq!(hinted.retry_after(), Some(Duration::from_millis(250)));
    }
}
