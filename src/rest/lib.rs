//! `/api/v1`: a thin skin over the cluster. Each endpoint is one write to a resource or one read of what is there;
//! nothing is kept here that could be lost.
//!
//! A request goes through `route` (which endpoint), `access` (who asks, and may they), and a handler named after
//! what it is about. All routes stand in one table, `routes`, out of which come routing, authorisation and the
//! OpenAPI document.

mod access;
mod agents;
mod answer;
mod bound;
mod call;
mod context;
mod events;
mod fault;
mod fields;
mod gitops;
mod health;
mod impersonate;
mod judge;
mod limits;
mod line;
mod map;
mod members;
mod metrics;
mod openapi;
mod page;
mod platform;
mod relay;
mod releases;
mod right;
mod route;
mod routes;
mod seen;
mod shelf;
mod skills;
mod state;
mod sync;
mod teams;
mod tools;
mod write;

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use slipway_http::{Error, Method, Reply, Request, StatusCode, header};

pub use access::{Authentication, Issuer, Oidc};
pub use context::{Context, Settings, Sign};
pub use limits::{Limit, Limits};
pub use platform::PlatformSettings;
use route::{Found, Table};
pub use state::StateSettings;

/// Where the API begins.
pub const BASE: &str = "/api/v1";
/// Where the state repositories are, for clients of Git.
const REPOSITORIES: &str = "/state/";

/// The API, ready to answer.
#[derive(Clone)]
pub struct Rest {
    context: Arc<Context>,
    table: Arc<Table>,
}

impl Rest {
    /// Begins to watch what lists are made of.
    pub fn open(context: Context) -> Self {
        let context = Arc::new(context);
        context.seen.watch(&context.client);
        Self { context, table: Arc::new(Table::new(routes::all())) }
    }

    /// Whether every list is known.
    pub fn is_ready(&self) -> bool {
        self.context.seen.is_ready()
    }

    /// What it has counted, in the text format of Prometheus, to be followed by `# EOF`.
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

    /// The answer, and the route that it is of.
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
        // A HEAD is a GET whose body stays at home.
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let answer = match self.table.find(method, path) {
            Found::Route(route, path) => return (Some(route.path), route.answer(self.context.clone(), path, request).await),
            Found::OtherMethods(methods) => allowed(request.method(), &methods),
            Found::Nothing if percent_decode_str(path).decode_utf8().is_err() => {
                Err(Error::bad_request("the path is not percent-encoded UTF-8"))
            }
            Found::Nothing => Err(Error::not_found(format!("there is no such endpoint; {BASE}/docs says what there is"))),
        };
        (None, answer)
    }
}

/// What may be asked of a path, to who asks that, and to who asked something else.
fn allowed(method: &Method, methods: &[Method]) -> Result<Reply, Error> {
    let refusal = Error::method_not_allowed(methods);
    match refusal.header(&header::ALLOW) {
        Some(allowed) if method == Method::OPTIONS => {
            Ok(Reply::text("").with_status(StatusCode::NO_CONTENT).with_header(header::ALLOW, allowed.clone()))
        }
        _ => Err(refusal),
    }
}
