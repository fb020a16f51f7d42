//! The interface of a call: the tool as the model sees it, the limits of one call, and its result.

use std::future::Future;
use std::pin::Pin;

use http::{HeaderName, HeaderValue};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments; its `type` is `object`.
    pub schema: Value,
}

/// The result of a call, as the model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    pub content: String,
    /// The call failed; `content` has the reason.
    pub is_error: bool,
    /// The output was cut at the limit; `content` ends with a note.
    pub truncated: bool,
}

impl ToolOutcome {
    pub fn ok(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: false, truncated: false }
    }

    pub fn error(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: true, truncated: false }
    }
}

/// The headers of W3C trace context, `traceparent` and `tracestate`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceContext {
    pub parent: Option<String>,
    /// Ignored without a parent.
    pub state: Option<String>,
}

impl TraceContext {
    /// The headers that are set.
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
    /// The W3C trace context, sent to HTTP and MCP servers.
    pub trace: TraceContext,
    /// The deadline of the call, if the timeout of its tool is not earlier.
    pub deadline: Instant,
    /// True once the turn is cancelled. A dropped sender cancels nothing.
    pub cancelled: watch::Receiver<bool>,
}

impl Context {
    /// A context without trace and cancellation.
    pub fn until(deadline: Instant) -> Self {
        Self { trace: TraceContext::default(), deadline, cancelled: watch::channel(false).1 }
    }

    #[must_use]
    pub fn with_trace(self, trace: TraceContext) -> Self {
        Self { trace, ..self }
    }

    #[must_use]
    pub fn with_cancelled(self, cancelled: watch::Receiver<bool>) -> Self {
        Self { cancelled, ..self }
    }

    /// Resolves once the call is cancelled, and never otherwise.
    pub(crate) async fn cancellation(&self) {
        let mut cancelled = self.cancelled.clone();
        if cancelled.wait_for(|is| *is).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A tool of the runtime itself, such as `memory`. It is offered under the name in its spec, and its arguments are validated
/// against its schema like those of any other tool.
pub trait Builtin: Send + Sync {
    fn spec(&self) -> Spec;
    /// Whether a call changes nothing and shows nothing of what people said.
    fn only_reads(&self) -> bool {
        false
    }
    fn call<'a>(&'a self, arguments: Value) -> Pin<Box<dyn Future<Output = ToolOutcome> + Send + 'a>>;
}

pub type Builtins = Vec<Box<dyn Builtin>>;
