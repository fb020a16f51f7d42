//! The error of a handler. Status and message go to the client in the body {`error`, `message`, `path`}; the cause goes to
//! the log, with the request id.

use std::error::Error as StdError;

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use serde::Serialize;

use crate::reply::Reply;

type Cause = Box<dyn StdError + Send + Sync>;

#[derive(Debug)]
pub struct Error {
    status: StatusCode,
    message: String,
    cause: Option<Cause>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

#[derive(Serialize)]
struct Body<'a> {
    error: &'a str,
    message: &'a str,
    path: &'a str,
}

impl Error {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), cause: None, headers: Vec::new() }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// 405, with the allowed methods in the message and in the `Allow` header.
    pub fn method_not_allowed(allowed: &[Method]) -> Self {
        let names = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        let error = Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("allowed here: {names}"));
        match HeaderValue::try_from(names) {
            Ok(value) => error.with_header(header::ALLOW, value),
            Err(_) => error,
        }
    }

    /// 500. The cause goes to the log only.
    pub fn internal(cause: impl Into<Cause>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "something went wrong on the server; its log says what, under this X-Request-Id")
            .because(cause)
    }

    #[must_use]
    pub fn because(mut self, cause: impl Into<Cause>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn cause(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.cause.as_deref()
    }

    pub fn header(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(crate) fn into_reply(self, path: &str) -> Reply {
        let error = self.status.canonical_reason().unwrap_or("Unknown");
        let message = self.message.clone();
        self.with_body(&Body { error, message: &message, path })
    }

    /// Status and headers of the error, with a body in the form of another protocol.
    pub fn with_body(self, body: &impl Serialize) -> Reply {
        // Plain strings always serialise.
        let bytes = serde_json::to_vec(body).unwrap_or_default();
        let reply = Reply::bytes("application/json", bytes).with_status(self.status);
        self.headers.into_iter().fold(reply, |reply, (name, value)| reply.with_header(name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_not_part_of_the_message() {
        let error = Error::internal("password=hunter2");
        assert_eq!(error.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!error.message().contains("hunter2"));
        assert_eq!(error.cause().map(ToString::to_string).as_deref(), Some("password=hunter2"));
    }

    #[test]
    fn allowed_methods_are_listed() {
        let error = Error::method_not_allowed(&[Method::GET, Method::HEAD]);
        assert_eq!(error.message(), "allowed here: GET, HEAD");
        assert_eq!(error.headers, [(header::ALLOW, HeaderValue::from_static("GET, HEAD"))]);
    }
}
