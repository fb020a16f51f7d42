//! What an agent did, as OpenTelemetry traces in the conventions for generative AI, sent over OTLP to a collector, to MLflow,
//! or to both. Beside it stand the counters of `/metrics` and the usage per minute.
//!
//! The messages are OpenTelemetry's generated types, the exporter is ours and not the SDK's: the SDK sends batches from a
//! thread of its own without tokio, where the asynchronous HTTP client that everything else here uses panics.
//! docs/decisions/013-telemetry-exporter.md has the figures.

mod call;
mod content;
mod context;
mod export_queue;
pub(crate) mod metrics;
mod mlflow;
mod otlp;
mod post;
mod sampler;
mod settings;
mod span;
#[cfg(test)]
mod tests;
mod turn;
pub(crate) mod usage;
pub(crate) mod violations;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::join_all;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{self as proto, span::SpanKind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::{info, warn};

pub(crate) use self::call::{Answered, ModelSpan, RetrievalSpan, StepSpan, ToolSpan};
pub(crate) use self::content::{Part, SpanMessage};
pub(crate) use self::settings::{Identity, TelemetrySettings};
pub(crate) use self::turn::TurnSpan;

use self::context::{SpanId, TraceId};
use self::export_queue::ExportQueue;
use self::otlp::{Value, attribute};
use self::sampler::Sampler;
use self::span::{Span, SpanParent, Trace};
use self::turn::Passed;

/// Records turns, or does nothing. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Telemetry(Option<Arc<Inner>>);

struct Inner {
    identity: Identity,
    sampler: Sampler,
    capture: bool,
    queues: Vec<Arc<ExportQueue>>,
    to_mlflow: bool,
}

/// The headers of W3C trace context that came with a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Inbound<'a> {
    pub(crate) traceparent: Option<&'a str>,
    pub(crate) tracestate: Option<&'a str>,
}

impl Telemetry {
    pub(crate) fn off() -> Self {
        Self(None)
    }

    /// Begins to send where there is somewhere to send to. Must be called within the tokio runtime.
    pub(crate) fn start(settings: TelemetrySettings) -> Result<Self, String> {
        for warning in &settings.warnings {
            warn!("{warning}");
        }
        if settings.destinations.is_empty() {
            return Ok(Self::off());
        }
        if Handle::try_current().is_err() {
            return Err("telemetry can only start within the tokio runtime".into());
        }
        info!(destinations = ?settings.destinations, content = settings.capture, "spans are recorded");
        let attributes = settings.resource.iter().map(|(key, value)| attribute(key, &Value::Text(value))).collect();
        let resource = Arc::new(Resource { attributes, ..Resource::default() });
        let open = |destination| ExportQueue::open(destination, settings.batching, Arc::clone(&resource));
        let queues: Vec<_> = settings.destinations.into_iter().map(open).collect();
        let to_mlflow = queues.iter().any(|queue| queue.name() == mlflow::NAME);
        let TelemetrySettings { identity, sampler, capture, .. } = settings;
        Ok(Self(Some(Arc::new(Inner { identity, sampler, capture, queues, to_mlflow }))))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Shows how many spans were exported, dropped and failed.
    pub(crate) fn register(&self, registry: &mut Registry) {
        if self.is_on() {
            registry.register_collector(Box::new(self.clone()));
        }
    }

    /// Begins the root span of a turn. `trace_id` is the one that people are shown; without a caller's
    /// trace, its bits are those of the trace.
    pub(crate) fn turn(&self, inbound: Inbound<'_>, conversation_id: &str, trace_id: &str) -> TurnSpan {
        let parent = inbound.traceparent.and_then(context::parent);
        // Without a sound traceparent a tracestate means nothing.
        let state = || parent.and_then(|_| context::state(inbound.tracestate?));
        let Some(telemetry) = &self.0 else {
            let passed = parent.map(|parent| {
                let traceparent = context::traceparent(parent.trace, parent.span, parent.sampled);
                Arc::new(Passed { traceparent, tracestate: state() })
            });
            return TurnSpan { span: None, passed };
        };
        let id = parent.map(|parent| parent.trace).or_else(|| TraceId::of_ulid(trace_id)).or_else(TraceId::random);
        let Some(id) = id else { return TurnSpan { span: None, passed: None } };
        let sampled = telemetry.sampler.samples(id, parent);
        let (parent, state) = telemetry.parent(parent, state(), sampled);
        let conversation = conversation_id.to_owned();
        let trace = Arc::new(Trace { telemetry: Arc::clone(telemetry), id, sampled, state, conversation });
        let span = Span::begin(&trace, &parent, SpanKind::Internal, ["invoke_agent", &telemetry.identity.agent_name]);
        if let Some(span) = &span {
            telemetry.describe(span, trace_id);
        }
        TurnSpan { span, passed: None }
    }

    /// How many turns were accepted since this was asked last that nothing but their spans tells of.
    pub(crate) fn take_audited(&self) -> u64 {
        let queues = self.0.iter().flat_map(|telemetry| &telemetry.queues);
        queues.map(|queue| queue.counts.audited.swap(0, Ordering::Relaxed)).sum()
    }

    /// Sends what is queued, now. Returns how many spans were not delivered by the deadline.
    pub(crate) async fn flush(&self, deadline: Instant) -> u64 {
        let queues = self.0.iter().flat_map(|telemetry| &telemetry.queues);
        join_all(queues.map(|queue| queue.flush(deadline))).await.into_iter().sum()
    }
}

impl Inner {
    /// MLflow takes a trace for finished when a span without a parent has come. A caller's span will
    /// not, unless it is another agent that sends to MLflow, which says so in `tracestate`.
    fn parent(&self, parent: Option<context::Parent>, state: Option<String>, sampled: bool) -> (SpanParent, Option<String>) {
        let mark = format!("{}={}", mlflow::STATE_KEY, mlflow::STATE_VALUE);
        let known = state.as_deref().is_some_and(|state| state.split(',').any(|member| member == mark));
        let parent = match parent {
            None => SpanParent::None,
            Some(parent) if known => SpanParent::Shared(parent.span),
            Some(parent) => SpanParent::Remote(parent.span),
        };
        if !(self.to_mlflow && sampled) {
            return (parent, state);
        }
        let others = state.iter().flat_map(|state| state.split(',')).filter(|member| !member.starts_with("slipway="));
        let members: Vec<_> = std::iter::once(&*mark).chain(others).take(32).collect();
        (parent, Some(members.join(",")))
    }

    fn describe(&self, span: &Span, trace_id: &str) {
        let Identity { agent_id, agent_name, agent_version, team, track, run_hash } = &self.identity;
        span.with(|record| {
            record.text("gen_ai.agent.id", agent_id);
            record.text("gen_ai.agent.name", agent_name);
            record.text("gen_ai.agent.version", agent_version);
            record.text("gen_ai.conversation.id", &span.trace.conversation);
            record.text("slipway.trace.id", trace_id);
            record.text("slipway.team", team);
            record.text("slipway.agent.track", track);
            record.text("slipway.run.hash", run_hash);
            if self.to_mlflow {
                let tags = [
                    ("slipway.trace_id", trace_id),
                    ("slipway.agent_id", agent_id),
                    ("slipway.track", track),
                    ("slipway.run_hash", run_hash),
                ];
                for (tag, value) in tags {
                    record.text(&format!("{}{tag}", mlflow::TAG), value);
                }
            }
        });
    }

    /// Queues a finished span. MLflow does not learn of a remote parent, see [`Self::parent`].
    /// One destination is enough for a turn to count as audited.
    fn deliver(&self, mut span: proto::Span, remote_parent: Option<SpanId>, audits: bool) {
        for (place, queue) in self.queues.iter().enumerate() {
            if let Some(parent) = remote_parent {
                span.parent_span_id = if queue.name() == mlflow::NAME { Vec::new() } else { parent.0.to_vec() };
            }
            queue.push(&span, audits && place == 0);
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().flat_map(|telemetry| &telemetry.queues).map(|queue| queue.name());
        f.debug_tuple("Telemetry").field(&names.collect::<Vec<_>>()).finish()
    }
}

impl Collector for Telemetry {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Spans exported, dropped for lack of room, and refused or not accepted in time, by destination";
        let mut metric = encoder.encode_descriptor("telemetry_spans", help, None, MetricType::Counter)?;
        for queue in self.0.iter().flat_map(|telemetry| &telemetry.queues) {
            let counts = &queue.counts;
            for (outcome, count) in [("exported", &counts.exported), ("dropped", &counts.dropped), ("failed", &counts.failed)] {
                let labels = [("destination", queue.name()), ("outcome", outcome)];
                ConstCounter::new(count.load(Ordering::Relaxed)).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
