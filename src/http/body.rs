//! The body of a request, read piece by piece: for bodies too large for memory. It has a limit of bytes, of the time
//! without a byte, and of the whole time.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::Error;
use crate::request::{DISCARD_TIMEOUT, discarded, waits_to_continue};

/// What a client may take to send a body.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    pub bytes: u64,
    /// The longest time without a byte.
    pub pause: Duration,
    /// The longest time from the first read to the last byte.
    pub total: Duration,
}

#[derive(Debug)]
pub struct BodyReader {
    body: Incoming,
    limits: BodyLimits,
    read: u64,
    deadline: Option<Instant>,
    /// Whether its client sends it only when asked.
    is_held_back: bool,
}

impl BodyReader {
    pub(crate) fn new(body: Incoming, headers: &HeaderMap, limits: BodyLimits) -> Self {
        Self { body, limits, read: 0, deadline: None, is_held_back: waits_to_continue(headers) }
    }

    /// Whether the body is known to be longer than its limit.
    pub fn is_too_large(&self) -> bool {
        self.read + self.body.size_hint().lower() > self.limits.bytes
    }

    /// The next bytes; `None` at the end of a whole body.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if self.is_too_large() {
            return Err(self.too_large());
        }
        let total = self.limits.total;
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + total);
        loop {
            let next = timeout(self.limits.pause, self.body.frame());
            let Ok(Ok(next)) = timeout_at(deadline, next).await else { return Err(slow()) };
            self.is_held_back = false;
            let Some(frame) = next else { return Ok(None) };
            let frame = frame.map_err(|cause| Error::bad_request("the body ended early").because(cause))?;
            let Ok(piece) = frame.into_data() else { continue };
            self.read += piece.len() as u64;
            return if self.read > self.limits.bytes { Err(self.too_large()) } else { Ok(Some(piece)) };
        }
    }

    /// Reads on for a moment, so that a client that is still sending sees an error instead of a reset connection.
    pub async fn discard(&mut self) {
        if !self.is_held_back {
            let _ = timeout(DISCARD_TIMEOUT, discarded(&mut self.body)).await;
        }
    }

    fn too_large(&self) -> Error {
        Error::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body may have at most {} bytes", self.limits.bytes))
    }
}

fn slow() -> Error {
    Error::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive")
}
