//! What goes in and out of a call: the tool as the model sees it, the limits of one call, and what comes back.

use std::future::Future;
use std::pin::Pin;

use http::{HeaderName, HeaderValue};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

/// A tool as the model is shown it.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments; its `type` is `object`.
    pub schema: Value,
}

/// The result of a call, as the model gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub content: String,
    /// The call did not do what was asked; `content` says why and what would.
    pub is_error: bool,
    /// There was more than the output limit lets through; `content` says so too.
    pub truncated: bool,
}

impl Outcome {
    pub fn ok(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: false, truncated: false }
    }

    pub fn error(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: true, truncated: false }
    }
}

/// The headers of W3C trace context, `traceparent` and `tracestate`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    pub parent: Option<String>,
    /// Means nothing without a parent.
    pub state: Option<String>,
}

impl Trace {
    /// What there is, by the names of its headers.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        const NAMES: [HeaderName; 2] = [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate")];
        let state = self.state.as_ref().filter(|_| self.parent.is_some());
        let values = NAMES.into_iter().zip([self.parent.as_ref(), state]);
        values.filter_map(|(name, value)| Some((name, HeaderValue::from_str(value?).ok()?)))
    }
}

/// The limits of one call, and the trace that it belongs to.
#[derive(Debug, Clone)]
pub struct Context {
    /// W3C trace context, passed on to HTTP and MCP servers.
    pub trace: Trace,
    /// No call outlives this, whatever its tool's own timeout.
    pub deadline: Instant,
    /// True once the answer is cancelled. A dropped sender cancels nothing.
    pub cancelled: watch::Receiver<bool>,
}

impl Context {
    /// A context that only the clock ends.
    pub fn until(deadline: Instant) -> Self {
        Self { trace: Trace::default(), deadline, cancelled: watch::channel(false).1 }
    }

    #[must_use]
    pub fn with_trace(self, trace: Trace) -> Self {
        Self { trace, ..self }
    }

    #[must_use]
    pub fn with_cancelled(self, cancelled: watch::Receiver<bool>) -> Self {
        Self { cancelled, ..self }
    }

    /// Returns once the call is cancelled, and never otherwise.
    pub(crate) async fn cancellation(&self) {
        let mut cancelled = self.cancelled.clone();
        if cancelled.wait_for(|is| *is).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A tool that the runtime itself brings along, such as `memory`. It is offered under its spec's name and its arguments are
/// validated against its schema like those of any other.
pub trait Builtin: Send + Sync {
    fn spec(&self) -> Spec;
    fn call<'a>(&'a self, arguments: Value) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;
}

pub type Builtins = Vec<Box<dyn Builtin>>;
