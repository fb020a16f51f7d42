//! What the API server's refusals mean to those who ask us.

use kube::core::Status;
use slipway_http::{Error, HeaderValue, StatusCode, header};

/// `what` names the thing in the caller's words: `agent helper`.
pub(crate) fn of_cluster(error: kube::Error, what: &str) -> Error {
    match error {
        kube::Error::Api(status) => of_status(&status, what),
        error => away().because(error),
    }
}

/// 503: the API server does not answer. It may be back in a moment.
pub(crate) fn away() -> Error {
    Error::unavailable("the cluster does not answer").with_header(header::RETRY_AFTER, HeaderValue::from_static("5"))
}

fn of_status(status: &Status, what: &str) -> Error {
    let message = words(status);
    match status.code {
        // Of an object, or of the namespace that it should go into.
        404 if status.details.as_ref().is_some_and(|details| details.kind == "namespaces") => {
            Error::not_found("the team has no namespace; it is being made, or is going")
        }
        404 => Error::not_found(format!("there is no {what}")),
        409 if status.reason == "AlreadyExists" => Error::new(StatusCode::CONFLICT, format!("there is already a {what}")),
        409 => Error::new(StatusCode::CONFLICT, format!("{what} was changed by somebody else at the same time: {message}")),
        400 | 422 => Error::bad_request(message),
        // The caller's right was asked for before: what is missing then is the server's own. Policies and quotas
        // say something else.
        403 if !message.contains(" cannot ") => Error::new(StatusCode::FORBIDDEN, message),
        413 => Error::new(StatusCode::PAYLOAD_TOO_LARGE, message),
        429 | 500..=599 => away().because(message),
        _ => Error::internal(message),
    }
}

/// The API server's words, without the names of resources that callers of REST never used: what is at fault with a
/// field of `spec` stands there as the field.
fn words(status: &Status) -> String {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    if causes.is_empty() {
        return status.message.clone();
    }
    let cause = |cause: &kube::core::response::StatusCause| {
        let field = cause.field.strip_prefix("spec.").unwrap_or(&cause.field);
        if field.is_empty() { cause.message.clone() } else { format!("{field}: {}", cause.message) }
    };
    causes.iter().map(cause).collect::<Vec<_>>().join("; ")
}
