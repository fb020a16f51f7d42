//! `/api/v1`: a thin layer over the cluster. Each endpoint is one write to a resource or one read; this process keeps no
//! state that could be lost.
//!
//! A request passes `route` (finds the endpoint), `access` (authenticates and authorizes), and a handler in the file of its
//! resource. The table `routes` names every route; routing, authorization and the OpenAPI document are derived from it.

mod access;
mod agents;
mod answer;
mod caches;
mod call;
mod canary_gate;
mod cluster_error;
mod context;
mod datasets;
mod evaluations;
mod events;
mod fast_map;
mod feedback;
mod fields;
mod gitops;
mod governance;
mod health;
mod http_client;
mod impersonate;
mod integrations;
mod knowledge;
mod list_cache;
mod members;
mod metrics;
mod openapi;
mod page;
mod permission;
mod platform;
mod radar;
mod random;
mod rate_limiter;
mod relay;
mod releases;
mod route;
mod routes;
mod scaffold;
mod skills;
mod state;
mod sync;
mod team_bindings;
mod teams;
mod tools;
mod validate;
mod write;

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use slipway_cluster::Tasks;
use slipway_http::{Error, Method, Reply, Request, StatusCode, header};

pub use access::{Authentication, Issuer, Oidc};
pub use context::{Context, RestSettings, Sign};
pub use platform::PlatformSettings;
pub use rate_limiter::{RateLimit, RateLimits};
use route::{RouteMatch, RouteTable};
pub use scaffold::ScaffoldSettings;
pub use state::StateSettings;

/// The base path of the API.
pub const BASE: &str = "/api/v1";
/// The part of a path behind which there is a credential, for `ServerLimits::secret_paths`.
pub const SECRET_PATHS: &[&str] = &["/webhooks/canary-gate/"];
/// The base path of the state repositories, for Git clients.
const REPOSITORIES: &str = "/state/";

/// The API.
#[derive(Clone)]
pub struct Rest {
    context: Arc<Context>,
    table: Arc<RouteTable>,
}

impl Rest {
    /// Starts the watches that fill the caches, as tasks of the process.
    pub fn open(context: Context, tasks: &Tasks) -> Self {
        let context = Arc::new(context);
        context.caches.watch(&context.client, tasks);
        Self { context, table: Arc::new(RouteTable::new(routes::all())) }
    }

    /// Whether every cache has its first list.
    pub fn is_ready(&self) -> bool {
        self.context.caches.is_ready()
    }

    /// The metrics in the text format of Prometheus, without `# EOF`.
    pub fn metrics(&self) -> String {
        self.context.metrics.text()
    }

    pub async fn answer(&self, request: Request) -> Result<Reply, Error> {
        let method = request.method().clone();
        let (route, answer) = self.answer_at(request).await;
        let status = answer.as_ref().map_or_else(Error::status, Reply::status);
        self.context.metrics.count(&method, route, status);
        answer
    }

    /// The reply, and the path of its route.
    async fn answer_at(&self, request: Request) -> (Option<&'static str>, Result<Reply, Error>) {
        if let Some(path) = request.path().strip_prefix(REPOSITORIES).map(str::to_owned) {
            return (Some("/state/{repository}"), Box::pin(state::git(&self.context, &path, request)).await);
        }
        let Some(path) = request.path().strip_prefix(BASE).filter(|path| path.starts_with('/')) else {
            let answer = match request.path() {
                "/healthz" => Ok(Reply::text("ok\n")),
                _ => Err(Error::not_found(format!("the API is at {BASE}; {BASE}/docs says what there is"))),
            };
            return (None, answer);
        };
        // A HEAD is a GET without its body.
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let answer = match self.table.find(method, path) {
            RouteMatch::Route(route, path) => return (Some(route.path), route.answer(self.context.clone(), path, request).await),
            RouteMatch::OtherMethods(methods) => allowed(request.method(), &methods),
            RouteMatch::None if percent_decode_str(path).decode_utf8().is_err() => {
                Err(Error::bad_request("the path is not percent-encoded UTF-8"))
            }
            RouteMatch::None => Err(Error::not_found(format!("there is no such endpoint; {BASE}/docs says what there is"))),
        };
        (None, answer)
    }
}

/// The reply to OPTIONS, or 405 for other methods.
fn allowed(method: &Method, methods: &[Method]) -> Result<Reply, Error> {
    let refusal = Error::method_not_allowed(methods);
    match refusal.header(&header::ALLOW) {
        Some(allowed) if method == Method::OPTIONS => {
            Ok(Reply::text("").with_status(StatusCode::NO_CONTENT).with_header(header::ALLOW, allowed.clone()))
        }
        _ => Err(refusal),
    }
}
