//! A body that breaks off has its client hear all that came before. The connection is closed by the error as soon as it
//! is told, with whatever it holds unsent, so the error waits until that was sent.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// Why a body cannot go on. The client finds its connection cut off, which tells it that there was more to come.
pub(crate) type Broken = Box<dyn StdError + Send + Sync>;

pub(crate) struct Breaking<B> {
    body: Pin<Box<B>>,
    broken: Option<Broken>,
}

impl<B> Breaking<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body: Box::pin(body), broken: None }
    }
}

impl<B: Body<Data = Bytes, Error: Into<Broken>>> Body for Breaking<B> {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(broken) = self.broken.take() {
            return Poll::Ready(Some(Err(broken)));
        }
        match self.body.as_mut().poll_frame(context) {
            Poll::Ready(Some(Err(error))) => {
                self.broken = Some(error.into());
                // A connection sends what it holds whenever its body has nothing ready.
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
