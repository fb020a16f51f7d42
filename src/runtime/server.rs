//! The agent's ports: a table of routes, each request counted, and an end that lets live streams and
//! turns whose clients have left finish.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use slipway_http::access::Access;
use slipway_http::memory::{MIB, for_clients, limit as memory_limit};
use slipway_http::routes::{self, MatchedRoute, Route};
use slipway_http::{Drained, Error, LINGER, Method, Reply, Request, ServerLimits, listen, request_metrics, serve};
use tokio::net::TcpListener;
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{info, warn};

use crate::agent::Agent;
use crate::chat::{self, ChatBody};
use crate::control::Control;
use crate::metrics::Metrics;
use crate::turn::CallerTrace;
use crate::{completions, conversations, failure, memory};

/// Most connections of an agent are streams.
const MAX_CONNECTIONS: usize = 4096;
/// Of the pod's memory, for turns, tools and the embedding model; the rest is for connections.
const TURN_BYTES: u64 = 128 * MIB;
/// This long before the end of the grace period, or in its last quarter, running turns end: clients get an event, and the
/// partial answers are stored.
const DRAIN_TIME: Duration = Duration::from_secs(3);
/// For the request that came last on a kept connection to be read and to become a turn.
const LAST_TURN_MARGIN: Duration = Duration::from_millis(250);
/// Of the control port: an evaluation's cases, and what was found in them. They are among what turns may take.
const CONTROL_BYTES: u64 = 96 * MIB;
/// For the last spans and usage.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Alive,
    Ready,
    Metrics,
    Chat,
    Stream,
    Completions,
    Models,
    Conversations,
    Conversation,
    DeleteConversation,
    ConversationStatus,
    Memories,
    Remember,
    MemoryStatus,
    SearchMemories,
    Forget,
    Suggestions,
}

/// Method, path and what is there; `*` stands for an id.
const ROUTES: [Route<Endpoint>; 20] = [
    (Method::GET, "/healthz", Endpoint::Alive),
    (Method::HEAD, "/healthz", Endpoint::Alive),
    (Method::GET, "/readyz", Endpoint::Ready),
    (Method::HEAD, "/readyz", Endpoint::Ready),
    (Method::GET, "/metrics", Endpoint::Metrics),
    (Method::HEAD, "/metrics", Endpoint::Metrics),
    (Method::POST, "/chat", Endpoint::Chat),
    (Method::POST, "/chat/stream", Endpoint::Stream),
    (Method::POST, "/v1/chat/completions", Endpoint::Completions),
    (Method::GET, "/v1/models", Endpoint::Models),
    (Method::GET, "/conversations", Endpoint::Conversations),
    (Method::GET, "/conversations/*", Endpoint::Conversation),
    (Method::DELETE, "/conversations/*", Endpoint::DeleteConversation),
    (Method::GET, "/conversations/*/status", Endpoint::ConversationStatus),
    (Method::GET, "/memory", Endpoint::Memories),
    (Method::POST, "/memory", Endpoint::Remember),
    (Method::GET, "/memory/status", Endpoint::MemoryStatus),
    (Method::POST, "/memory/search", Endpoint::SearchMemories),
    (Method::DELETE, "/memory/*", Endpoint::Forget),
    (Method::GET, "/suggestions", Endpoint::Suggestions),
];

struct Server {
    agent: Arc<Agent>,
    access: Access,
    metrics: Arc<Metrics>,
    draining: AtomicBool,
}

/// The ports, bound before anything else, so that a port in use is an error at once.
pub(crate) struct Ports {
    agent: TcpListener,
    control: Option<TcpListener>,
}

impl Ports {
    pub(crate) fn bind(port: u16, control: Option<u16>) -> anyhow::Result<Self> {
        let agent = bind(port, "RUNTIME_PORT")?;
        let control = match control {
            Some(port) => Some(bind(port, "RUNTIME_CONTROL_PORT")?),
            None => None,
        };
        let control_port = control.as_ref().and_then(|control| control.local_addr().ok()).map(|address| address.port());
        info!(port = agent.local_addr()?.port(), control_port, "listening");
        Ok(Self { agent, control })
    }
}

fn bind(port: u16, variable: &str) -> anyhow::Result<TcpListener> {
    listen((Ipv6Addr::UNSPECIFIED, port).into()).with_context(|| format!("cannot listen on port {port} ({variable})"))
}

/// Serves until SIGTERM or SIGINT, then drains.
pub(crate) async fn run(
    ports: Ports,
    agent: Arc<Agent>,
    access: Access,
    control: Option<Control>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let server = Arc::new(Server { agent: Arc::clone(&agent), access, metrics, draining: AtomicBool::new(false) });
    let (closing, mut closed) = watch::channel(false);
    let grace = agent.grace;
    let bytes = for_clients(memory_limit(), TURN_BYTES);
    let limits = ServerLimits { memory: bytes, connections: MAX_CONNECTIONS, grace, ..ServerLimits::default() };
    let controlled = control.zip(ports.control).map(|(control, listener)| {
        let control = Arc::new(control);
        let closing = Arc::clone(&control);
        let handler = move |request| {
            let control = Arc::clone(&control);
            async move { control.answer(request).await }
        };
        let shutdown = async move {
            let _ = closed.wait_for(|closing| *closing).await;
            closing.close();
        };
        let limits = ServerLimits { memory: CONTROL_BYTES, connections: 16, ..ServerLimits::small() };
        tokio::spawn(serve(listener, limits, handler, shutdown))
    });

    let asked = Arc::clone(&server);
    let (draining, mut drains) = watch::channel(None);
    let shutdown = async move {
        select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        asked.draining.store(true, Ordering::Relaxed);
        closing.send_replace(true);
        draining.send_replace(Some(Instant::now()));
        info!("draining");
    };
    let handler = move |request| {
        let server = Arc::clone(&server);
        async move { server.answer(request).await }
    };
    // Turns whose clients have left are not among the connections.
    let turns = async {
        let Ok(Some(began)) = drains.wait_for(Option::is_some).await.map(|began| *began) else { return 0 };
        let end = began + grace;
        // Connections that are kept may bring one more turn each.
        sleep((LINGER + LAST_TURN_MARGIN).min(grace / 2)).await;
        agent.turns.close();
        if timeout_at(end - DRAIN_TIME.min(grace / 4), agent.turns.ended()).await.is_ok() {
            return 0;
        }
        let cut = agent.turns.cut_off();
        let _ = timeout_at(end, agent.turns.ended()).await;
        cut
    };
    match tokio::join!(serve(ports.agent, limits, handler, shutdown), turns) {
        (Drained { cut: 0 }, 0) => info!("every turn was finished"),
        (Drained { cut: connections }, turns) => {
            warn!(turns, connections, "what was still under way at the end of the grace period was cut off");
        }
    }
    if let Some(controlled) = controlled {
        controlled.abort();
    }
    agent.budgets.give_back().await;
    agent.recorder.finish(&agent.store, FLUSH_TIMEOUT).await;
    Ok(())
}

impl Server {
    async fn answer(&self, request: Request) -> Result<Reply, Error> {
        let path = request.path().to_owned();
        let found = routes::find(&ROUTES, chat::is_id, request.method(), &path);
        let watch = self.metrics.watch(found.as_ref().map_or("other", |found| found.path));
        let is_probe = matches!(found, Some(MatchedRoute { endpoint: Some(Endpoint::Alive | Endpoint::Ready), .. }));
        // Probes come from the kubelet, which has no token.
        let meant = if is_probe { Ok(()) } else { self.access.check(request.headers(), SystemTime::now()) };
        let result = match (meant, found) {
            (Err(refused), _) => Err(refused),
            (Ok(()), None) => Err(Error::not_found("there is nothing at this path; docs/runtime-contract.md lists what an agent serves")),
            (Ok(()), Some(MatchedRoute { endpoint: None, path, .. })) => Err(routes::method_not_allowed(&ROUTES, path)),
            (Ok(()), Some(MatchedRoute { endpoint: Some(endpoint), ids, .. })) => {
                self.reply(endpoint, ids.first().copied().unwrap_or_default(), request).await
            }
        };
        watch.answered(result.as_ref().map_or_else(Error::status, Reply::status).as_u16());
        result
    }

    async fn reply(&self, endpoint: Endpoint, id: &str, request: Request) -> Result<Reply, Error> {
        let agent = &self.agent;
        match endpoint {
            Endpoint::Ready if self.draining.load(Ordering::Relaxed) => Err(Error::unavailable("draining")),
            Endpoint::Ready => agent.policies.check().map(|()| Reply::text("ok\n")),
            Endpoint::Alive => Ok(Reply::text("ok\n")),
            Endpoint::Metrics => Ok(Reply::bytes(request_metrics::CONTENT_TYPE, self.metrics.text().map_err(Error::internal)?)),
            _ if agent.evaluator.is_some() => {
                Err(Error::not_found("this pod evaluates an agent and is none; it answers probes and /metrics"))
            }
            Endpoint::Chat => {
                let caller = CallerTrace::read(request.headers());
                let turn: ChatBody = request.json().await?;
                chat::whole(agent, turn, caller).await
            }
            Endpoint::Stream => {
                let caller = CallerTrace::read(request.headers());
                let turn: ChatBody = request.json().await?;
                chat::streamed(agent, turn, caller).await
            }
            Endpoint::Completions => {
                let caller = CallerTrace::read(request.headers());
                completions::answer(agent, request, caller).await
            }
            Endpoint::Models => completions::models(agent),
            Endpoint::Conversations => conversations::list(agent, request.query()?).await,
            Endpoint::Conversation => conversations::detail(agent, id).await,
            Endpoint::DeleteConversation => conversations::delete(agent, id).await,
            Endpoint::ConversationStatus => conversations::status(agent, id).await,
            Endpoint::Memories => conversations::memories(agent, request.query()?).await,
            Endpoint::Remember => {
                let note: memory::Note = request.json().await?;
                Reply::json(&note.keep(&agent.memory).await?.entry)
            }
            Endpoint::MemoryStatus => Reply::json(&agent.memory.status().await.map_err(failure::of_store)?),
            Endpoint::SearchMemories => {
                let question: memory::Question = request.json().await?;
                Reply::json(&serde_json::json!({"results": question.ask(&agent.memory).await?}))
            }
            Endpoint::Forget if agent.memory.forget(id).await.map_err(failure::of_store)? => {
                Reply::json(&serde_json::json!({"id": id, "deleted": true}))
            }
            Endpoint::Forget => Err(Error::not_found(format!("there is no memory {id}"))),
            Endpoint::Suggestions => {
                let mut query = request.query()?;
                let conversation = query.text("conversation_id");
                query.end()?;
                let suggestions = agent.suggestions_for(conversation.as_deref()).await.map_err(failure::of_store)?;
                Reply::json(&serde_json::json!({"suggestions": suggestions}))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_its_endpoint() {
        for (method, path, endpoint, id) in [
            (Method::GET, "/healthz", Some(Endpoint::Alive), ""),
            (Method::POST, "/healthz", None, ""),
            (Method::GET, "/conversations/conv_1", Some(Endpoint::Conversation), "conv_1"),
            (Method::DELETE, "/conversations/conv_1", Some(Endpoint::DeleteConversation), "conv_1"),
            (Method::GET, "/conversations/conv_1/status", Some(Endpoint::ConversationStatus), "conv_1"),
            (Method::GET, "/memory/status", Some(Endpoint::MemoryStatus), ""),
            (Method::DELETE, "/memory/mem_1", Some(Endpoint::Forget), "mem_1"),
            (Method::GET, "/memory/search", None, ""),
        ] {
            let found = routes::find(&ROUTES, chat::is_id, &method, path).unwrap();
            assert_eq!((found.endpoint, found.ids.join(" ").as_str()), (endpoint, id), "{method} {path}");
        }
        for path in ["/", "/conversations/", "/conversations/a/b", "/conversations/../x", "/chat/", "/memory/%2e"] {
            assert!(routes::find(&ROUTES, chat::is_id, &Method::GET, path).is_none(), "{path}");
        }
    }
}
