//! Errors of the store and the model, as callers get them.

use slipway_database::Fault as StoreFault;
use slipway_http::{Error, HeaderValue, StatusCode, header};
use slipway_models::{FaultKind, ModelFault};

/// When a database that is away is worth asking again, in seconds.
const RETRY: u64 = 2;

pub(crate) fn of_store(fault: StoreFault) -> Error {
    match fault {
        StoreFault::Unavailable(_) => later(Error::unavailable("the database is not available; try again").because(fault), RETRY),
        StoreFault::Busy => Error::new(StatusCode::CONFLICT, "an answer is already being made for this conversation"),
        StoreFault::Refused(words) => Error::bad_request(words),
        StoreFault::Full(words) => Error::new(StatusCode::CONFLICT, words),
        fault @ StoreFault::Broken(_) => Error::internal(fault),
    }
}

/// The fault's words are fit for the caller: they say what to do and hold no key.
pub(crate) fn of_model(fault: ModelFault) -> Error {
    let status = match fault.kind() {
        FaultKind::ContextOverflow => StatusCode::BAD_REQUEST,
        FaultKind::RateLimited { .. } | FaultKind::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        FaultKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    let wait = match fault.kind() {
        FaultKind::RateLimited { retry_after } => retry_after.map_or(RETRY, |wait| wait.as_secs().max(1)),
        FaultKind::Overloaded => RETRY,
        _ => 0,
    };
    let error = Error::new(status, fault.message()).because(fault);
    if wait > 0 { later(error, wait) } else { error }
}

pub(crate) fn later(error: Error, seconds: u64) -> Error {
    error.with_header(header::RETRY_AFTER, HeaderValue::from(seconds))
}
