//! `slipway-worker serve`: a table of routes, each request counted and with a time limit, and an end that lets running requests
//! finish.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use slipway_api::worker::{DELIVER_PATH, TEST_PATH};
use slipway_http::access::Access;
use slipway_http::memory::{MIB, for_clients, limit as memory_limit};
use slipway_http::routes::{self, MatchedRoute, Route};
use slipway_http::{Drained, Error, Method, Reply, Request, ServerLimits, StatusCode, listen, request_metrics, serve};
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::embedders::Embedders;
use crate::integrations::{INTEGRATIONS_BUDGET_BYTES, Integrations};
use crate::metrics::Metrics;
use crate::settings::{Database, Settings};
use crate::store::KnowledgeStore;
use crate::uploads::{self, UPLOADS_BUDGET_BYTES, Uploads};
use crate::{documents, search};

/// REST's replicas keep connections open.
const MAX_CONNECTIONS: usize = 512;
/// Of the pod's memory, for the built-in embedding model and its computations.
const MODEL_BYTES: u64 = 128 * MIB;
/// The time limit of every request but an upload.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(25);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Alive,
    Ready,
    Metrics,
    Search,
    Documents,
    DeleteDocument,
    DeleteSource,
    Upload,
    Test,
    Deliver,
}

/// Method, path and what is there; `*` stands for an id.
const ROUTES: [Route<Endpoint>; 13] = [
    (Method::GET, "/healthz", Endpoint::Alive),
    (Method::HEAD, "/healthz", Endpoint::Alive),
    (Method::GET, "/readyz", Endpoint::Ready),
    (Method::HEAD, "/readyz", Endpoint::Ready),
    (Method::GET, "/metrics", Endpoint::Metrics),
    (Method::HEAD, "/metrics", Endpoint::Metrics),
    (Method::POST, "/knowledge-bases/*/search", Endpoint::Search),
    (Method::GET, "/knowledge-bases/*/documents", Endpoint::Documents),
    (Method::DELETE, "/knowledge-bases/*/documents", Endpoint::DeleteSource),
    (Method::DELETE, "/knowledge-bases/*/documents/*", Endpoint::DeleteDocument),
    (Method::POST, "/knowledge-bases/*/uploads", Endpoint::Upload),
    (Method::POST, TEST_PATH, Endpoint::Test),
    (Method::POST, DELIVER_PATH, Endpoint::Deliver),
];

/// The longest id in a path: `kb_` and a name.
const ID_LEN_MAX: usize = 66;

pub(crate) struct Server {
    store: Option<KnowledgeStore>,
    pub(crate) embedders: Embedders,
    pub(crate) uploads: Uploads,
    pub(crate) metrics: Arc<Metrics>,
    integrations: Integrations,
    access: Access,
    draining: AtomicBool,
}

/// Serves until SIGTERM or SIGINT, then drains.
pub(crate) async fn main(settings: Settings) -> anyhow::Result<()> {
    let Settings { port, team, database, access_key, control_key, grace, .. } = settings;
    let listener = listen((Ipv6Addr::UNSPECIFIED, port).into()).with_context(|| format!("cannot listen on port {port} (RUNTIME_PORT)"))?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let open =
        |database: Database| KnowledgeStore::open(&database, &team).map_err(|fault| anyhow::anyhow!("SLIPWAY_KNOWLEDGE_URL: {fault}"));
    let store = database.map(open).transpose()?;
    let integrations = Integrations::new(&team, control_key)?;
    let metrics = Arc::new(Metrics::new());
    let is_restricted = access_key.is_some();
    let server = Arc::new(Server {
        store,
        embedders: Embedders::default(),
        uploads: Uploads::new(Arc::clone(&metrics)),
        metrics,
        integrations,
        access: Access::new(team.clone(), access_key, true),
        draining: AtomicBool::new(false),
    });
    info!(worker = env!("CARGO_PKG_VERSION"), team, port = listener.local_addr()?.port(), is_restricted, "listening");
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
    let memory = for_clients(memory_limit(), MODEL_BYTES + UPLOADS_BUDGET_BYTES + INTEGRATIONS_BUDGET_BYTES);
    let limits = ServerLimits { memory, connections: MAX_CONNECTIONS, grace, ..ServerLimits::default() };
    match serve(listener, limits, handler, shutdown).await {
        Drained { cut: 0 } => info!("every request was answered"),
        Drained { cut: connections } => warn!(connections, "requests were still under way at the end of the grace period"),
    }
    Ok(())
}

impl Server {
    /// The knowledge bases.
    pub(crate) fn store(&self) -> Result<&KnowledgeStore, Error> {
        self.store.as_ref().ok_or_else(|| Error::unavailable("the platform has no database, and so there are no knowledge bases"))
    }

    async fn answer(self: &Arc<Self>, request: Request) -> Result<Reply, Error> {
        let path = request.path().to_owned();
        let found = routes::find(&ROUTES, is_id, request.method(), &path);
        let watch = self.metrics.watch(found.as_ref().map_or("other", |found| found.path));
        let result = match found {
            None => Err(Error::not_found("there is nothing at this path")),
            Some(MatchedRoute { endpoint: None, path, .. }) => Err(routes::method_not_allowed(&ROUTES, path)),
            Some(MatchedRoute { endpoint: Some(endpoint), ids, .. }) => self.reply(endpoint, &ids, request).await,
        };
        watch.answered(result.as_ref().map_or_else(Error::status, Reply::status).as_u16());
        result
    }

    async fn reply(self: &Arc<Self>, endpoint: Endpoint, ids: &[&str], request: Request) -> Result<Reply, Error> {
        // Neither the kubelet nor Prometheus has a token, and they learn nothing of documents.
        match endpoint {
            Endpoint::Ready if self.draining.load(Ordering::Relaxed) => return Err(Error::unavailable("draining")),
            Endpoint::Alive | Endpoint::Ready => return Ok(Reply::text("ok\n")),
            Endpoint::Metrics => return Ok(Reply::bytes(request_metrics::CONTENT_TYPE, self.metrics.text().map_err(Error::internal)?)),
            // Guarded by a key of their own, which REST has not.
            Endpoint::Test => return self.integrations.test(request).await,
            Endpoint::Deliver => return self.integrations.deliver(request).await,
            Endpoint::Search | Endpoint::Documents | Endpoint::DeleteDocument | Endpoint::DeleteSource | Endpoint::Upload => {}
        }
        if let Err(refused) = self.access.check(request.headers(), SystemTime::now()) {
            return Err(request.refuse(refused).await);
        }
        let [base, more @ ..] = ids else { return Err(Error::not_found("there is nothing at this path")) };
        let document = more.first().copied().unwrap_or_default();
        let work = async {
            match endpoint {
                Endpoint::Search => search::search(self, base, request).await,
                Endpoint::Documents => documents::list(self, base, request.query()?).await,
                Endpoint::DeleteDocument => documents::delete(self, base, document).await,
                Endpoint::DeleteSource => documents::delete_source(self, base, request.query()?).await,
                _ => uploads::receive(self, base, request).await,
            }
        };
        if endpoint == Endpoint::Upload {
            return work.await;
        }
        let late = || Error::new(StatusCode::GATEWAY_TIMEOUT, "the answer took too long");
        timeout(REQUEST_TIMEOUT, work).await.unwrap_or_else(|_| Err(late()))
    }
}

fn is_id(text: &str) -> bool {
    (1..=ID_LEN_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_its_endpoint() {
        for (method, path, endpoint, ids) in [
            (Method::GET, "/healthz", Some(Endpoint::Alive), &[][..]),
            (Method::POST, "/healthz", None, &[]),
            (Method::POST, "/knowledge-bases/kb_docs/search", Some(Endpoint::Search), &["kb_docs"]),
            (Method::GET, "/knowledge-bases/kb_docs/search", None, &["kb_docs"]),
            (Method::POST, "/integrations/test", Some(Endpoint::Test), &[]),
            (Method::GET, "/integrations/deliver", None, &[]),
            (Method::DELETE, "/knowledge-bases/kb_docs/documents/doc_1", Some(Endpoint::DeleteDocument), &["kb_docs", "doc_1"]),
            (Method::DELETE, "/knowledge-bases/kb_docs/documents", Some(Endpoint::DeleteSource), &["kb_docs"]),
        ] {
            let found = routes::find(&ROUTES, is_id, &method, path).unwrap();
            assert_eq!((found.endpoint, found.ids), (endpoint, ids.to_vec()), "{method} {path}");
        }
        let long = format!("/knowledge-bases/{}/search", "x".repeat(ID_LEN_MAX + 1));
        for path in ["/", "/knowledge-bases//search", "/knowledge-bases/../search", "/knowledge-bases/a/documents/b/c", "/*", &long] {
            assert!(routes::find(&ROUTES, is_id, &Method::POST, path).is_none(), "{path}");
        }
    }
}
