//! Faults of the database and of embedding models, as callers get them.

use slipway_database::Fault as StoreFault;
use slipway_http::{Error, HeaderValue, StatusCode, header};
use slipway_models::{FaultKind, ModelFault};

/// When a database or a model that is away is worth asking again, in seconds.
const RETRY_SECONDS: u64 = 2;

pub(crate) fn of_store(fault: StoreFault) -> Error {
    match fault {
        StoreFault::Unavailable(_) => later(Error::unavailable("the database is not available; try again").because(fault), RETRY_SECONDS),
        StoreFault::Refused(words) => Error::bad_request(words),
        StoreFault::Full(words) => Error::new(StatusCode::CONFLICT, words),
        fault => Error::internal(fault),
    }
}

/// The fault's words are fit for the caller: they say what to do and hold no key.
pub(crate) fn of_model(fault: ModelFault) -> Error {
    let (status, wait) = match fault.kind() {
        FaultKind::RateLimited { retry_after } => {
            (StatusCode::SERVICE_UNAVAILABLE, retry_after.map_or(RETRY_SECONDS, |wait| wait.as_secs().max(1)))
        }
        FaultKind::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, RETRY_SECONDS),
        FaultKind::Timeout => (StatusCode::GATEWAY_TIMEOUT, 0),
        _ => (StatusCode::BAD_GATEWAY, 0),
    };
    let error = Error::new(status, fault.message()).because(fault);
    if wait > 0 { later(error, wait) } else { error }
}

pub(crate) fn later(error: Error, seconds: u64) -> Error {
    error.with_header(header::RETRY_AFTER, HeaderValue::from(seconds))
}
