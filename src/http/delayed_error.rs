//! A body whose error is delayed until all earlier frames are sent. hyper closes the connection at an error at once, and
//! drops what it has buffered.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// The error of a body. The client sees a closed connection, and so knows that the body is incomplete.
pub(crate) type BodyError = Box<dyn StdError + Send + Sync>;

pub(crate) struct DelayedError<B> {
    body: Pin<Box<B>>,
    broken: Option<BodyError>,
}

impl<B> DelayedError<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body: Box::pin(body), broken: None }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BodyError>>> Body for DelayedError<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(broken) = self.broken.take() {
            return Poll::Ready(Some(Err(broken)));
        }
        match self.body.as_mut().poll_frame(context) {
            Poll::Ready(Some(Err(error))) => {
                self.broken = Some(error.into());
                // A connection flushes its buffer when the body is pending.
                context.waker().wake_by_ref();
                Poll::Pending
            }
            other => other.map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.broken.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
