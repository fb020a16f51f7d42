//! What an agent did, as OpenTelemetry traces in the conventions for generative AI, sent over OTLP to
//! a collector, to MLflow, or to both. Beside it stand the counters of `/metrics` and the usage per
//! minute.
//!
//! The exporter is our own, not the OpenTelemetry SDK's. A span is written as the very bytes that
//! will be sent while it is open: there is no tree of objects to be kept and converted, and the task
//! that sends lives on the runtime's only thread. The SDK's batches are sent by a thread of its own
//! without tokio, where the asynchronous HTTP client that everything else here uses panics; and it
//! would bring 21 crates to say what `wire.rs` says in two hundred lines. Measured with two spans a
//! turn: about 3 µs of CPU, sending included; 0.1 to 0.2 µs where telemetry is off. What is sent is
//! read back in the tests by OpenTelemetry's generated code and by MLflow.

mod call;
mod content;
mod context;
mod lane;
pub(crate) mod metrics;
mod mlflow;
mod post;
mod sampler;
mod settings;
mod span;
#[cfg(test)]
mod tests;
mod turn;
pub(crate) mod usage;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::join_all;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::{info, warn};

pub(crate) use self::call::{Answered, ModelSpan, StepSpan, ToolSpan};
pub(crate) use self::content::{Message, Part};
pub(crate) use self::settings::{Identity, Settings};
pub(crate) use self::turn::TurnSpan;

use self::context::TraceId;
use self::lane::Lane;
use self::sampler::Sampler;
use self::span::{Above, Kind, Span, Trace};
use self::turn::Passed;
use self::wire::Value;

/// Records turns, or does nothing. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Telemetry(Option<Arc<Inner>>);

struct Inner {
    identity: Identity,
    sampler: Sampler,
    capture: bool,
    lanes: Vec<Arc<Lane>>,
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
    pub(crate) fn start(settings: Settings) -> Result<Self, String> {
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
        let mut resource = Vec::new();
        for (key, value) in &settings.resource {
            wire::attribute(&mut resource, wire::RESOURCE_ATTRIBUTES, key, &Value::Text(value));
        }
        let mut scope = Vec::new();
        wire::bytes(&mut scope, 1, env!("CARGO_PKG_NAME").as_bytes());
        wire::bytes(&mut scope, 2, env!("CARGO_PKG_VERSION").as_bytes());
        let (resource, scope): (Arc<[u8]>, Arc<[u8]>) = (resource.into(), scope.into());
        let open = |destination| Lane::open(destination, settings.batching, Arc::clone(&resource), Arc::clone(&scope));
        let lanes: Vec<_> = settings.destinations.into_iter().map(open).collect();
        let to_mlflow = lanes.iter().any(|lane| lane.name() == mlflow::NAME);
        let Settings { identity, sampler, capture, .. } = settings;
        Ok(Self(Some(Arc::new(Inner { identity, sampler, capture, lanes, to_mlflow }))))
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
        let (above, state) = telemetry.above(parent, state(), sampled);
        let conversation = conversation_id.to_owned();
        let trace = Arc::new(Trace { telemetry: Arc::clone(telemetry), id, sampled, state, conversation });
        let span = Span::begin(&trace, &above, Kind::Internal, ["invoke_agent", &telemetry.identity.agent_name]);
        if let Some(span) = &span {
            telemetry.describe(span, trace_id);
        }
        TurnSpan { span, passed: None }
    }

    /// Sends what there is, now. How many spans could not be delivered by the deadline.
    pub(crate) async fn flush(&self, deadline: Instant) -> u64 {
        let lanes = self.0.iter().flat_map(|telemetry| &telemetry.lanes);
        join_all(lanes.map(|lane| lane.flush(deadline))).await.into_iter().sum()
    }
}

impl Inner {
    /// MLflow takes a trace for finished when a span without a parent has come. A caller's span will
    /// not, unless it is another agent that sends to MLflow, which says so in `tracestate`.
    fn above(&self, parent: Option<context::Parent>, state: Option<String>, sampled: bool) -> (Above, Option<String>) {
        let mark = format!("{}={}", mlflow::STATE_KEY, mlflow::STATE_VALUE);
        let known = state.as_deref().is_some_and(|state| state.split(',').any(|member| member == mark));
        let above = match parent {
            None => Above::Nothing,
            Some(parent) if known => Above::Shared(parent.span),
            Some(parent) => Above::Remote(parent.span),
        };
        if !(self.to_mlflow && sampled) {
            return (above, state);
        }
        let others = state.iter().flat_map(|state| state.split(',')).filter(|member| !member.starts_with("slipway="));
        let members: Vec<_> = std::iter::once(&*mark).chain(others).take(32).collect();
        (above, Some(members.join(",")))
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

    /// A finished span. The bytes after `orphan` name its remote parent.
    fn deliver(&self, span: &[u8], orphan: usize) {
        for lane in &self.lanes {
            lane.push(if lane.name() == mlflow::NAME { &span[..orphan] } else { span });
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().flat_map(|telemetry| &telemetry.lanes).map(|lane| lane.name());
        f.debug_tuple("Telemetry").field(&names.collect::<Vec<_>>()).finish()
    }
}

impl Collector for Telemetry {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Spans exported, dropped for lack of room, and refused or not accepted in time, by destination";
        let mut metric = encoder.encode_descriptor("telemetry_spans", help, None, MetricType::Counter)?;
        for lane in self.0.iter().flat_map(|telemetry| &telemetry.lanes) {
            let counts = &lane.counts;
            for (outcome, count) in [("exported", &counts.exported), ("dropped", &counts.dropped), ("failed", &counts.failed)] {
                let labels = [("destination", lane.name()), ("outcome", outcome)];
                ConstCounter::new(count.load(Ordering::Relaxed)).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
