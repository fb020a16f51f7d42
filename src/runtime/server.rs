//! The agent's port: a table of routes, each request counted, and an end that lets live streams
//! finish.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use anyhow::Context;
use slipway_http::{Error, Limits, Method, Reply, Request, serve};
use tokio::net::TcpListener;
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use crate::chat::{self, Turn};
use crate::metrics::{self, Metrics};
use crate::model::{Echo, Model};
use crate::settings::Settings;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Alive,
    Ready,
    Metrics,
    Chat,
    Stream,
}

const ROUTES: [(&str, &[Method], Endpoint); 5] = [
    ("/healthz", &[Method::GET, Method::HEAD], Endpoint::Alive),
    ("/readyz", &[Method::GET, Method::HEAD], Endpoint::Ready),
    ("/metrics", &[Method::GET, Method::HEAD], Endpoint::Metrics),
    ("/chat", &[Method::POST], Endpoint::Chat),
    ("/chat/stream", &[Method::POST], Endpoint::Stream),
];

struct Server {
    model: Box<dyn Model>,
    metrics: Metrics,
    draining: AtomicBool,
}

/// Serves until SIGTERM or SIGINT, then drains.
pub(crate) async fn run(settings: Settings) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, settings.port))
        .await
        .with_context(|| format!("cannot listen on port {} (RUNTIME_PORT)", settings.port))?;
    info!(port = listener.local_addr()?.port(), "listening");

    let server = Arc::new(Server { model: Box::new(Echo), metrics: Metrics::new(), draining: AtomicBool::new(false) });
    let asked = Arc::clone(&server);
    let shutdown = async move {
        select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        asked.draining.store(true, Ordering::Relaxed);
        info!("draining");
    };
    let handler = move |request| {
        let server = Arc::clone(&server);
        async move { server.answer(request).await }
    };
    match serve(listener, Limits::default(), handler, shutdown).await.cut {
        0 => info!("every request was finished"),
        cut => warn!(cut, "connections were still busy at the end of the grace period"),
    }
    Ok(())
}

impl Server {
    async fn answer(&self, request: Request) -> Result<Reply, Error> {
        let route = ROUTES.iter().find(|(path, ..)| *path == request.path());
        let watch = self.metrics.watch(route.map_or("other", |(path, ..)| path));
        let result = match route {
            None => Err(Error::not_found("this agent has /chat, /chat/stream, /healthz, /readyz and /metrics")),
            Some((_, allowed, _)) if !allowed.contains(request.method()) => Err(Error::method_not_allowed(allowed)),
            Some((.., endpoint)) => self.reply(*endpoint, request).await,
        };
        watch.answered(result.as_ref().map_or_else(Error::status, Reply::status).as_u16());
        result
    }

    async fn reply(&self, endpoint: Endpoint, request: Request) -> Result<Reply, Error> {
        match endpoint {
            Endpoint::Ready if self.draining.load(Ordering::Relaxed) => Err(Error::unavailable("draining")),
            Endpoint::Alive | Endpoint::Ready => Ok(Reply::text("ok\n")),
            Endpoint::Metrics => Ok(Reply::bytes(metrics::CONTENT_TYPE, self.metrics.text().map_err(Error::internal)?)),
            Endpoint::Chat | Endpoint::Stream => {
                let turn: Turn = request.json().await?;
                let turn = turn.accept(SystemTime::now(), [random()?, random()?])?;
                if endpoint == Endpoint::Stream {
                    return Ok(chat::streamed(turn, &*self.model));
                }
                chat::whole(turn, &*self.model).await
            }
        }
    }
}

/// Ids name conversations, so they must not be guessed.
fn random() -> Result<u128, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(Error::internal)?;
    Ok(u128::from_ne_bytes(bytes))
}
