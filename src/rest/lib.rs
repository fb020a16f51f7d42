//! `/api/v1`: a thin skin over the cluster. Each endpoint is one write to a resource or one read of what is there;
//! nothing is kept here that could be lost.
//!
//! A request goes through `route` (which endpoint), `access` (who asks, and may they), and a handler named after
//! what it is about. All routes stand in one table, `routes`, out of which come routing, authorisation and the
//! OpenAPI document.

mod access;
mod agents;
mod answer;
mod call;
mod context;
mod events;
mod fault;
mod fields;
mod health;
mod gitops;
mod members;
mod limits;
mod page;
mod platform;
mod relay;
mod right;
mod route;
mod routes;
mod seen;
mod shelf;
mod skills;
mod team;
mod teams;
mod tools;
mod write;

use std::sync::Arc;

use slipway_http::{Error, Method, Reply, Request};

pub use access::{Authentication, Issuer, Oidc};
pub use context::{Context, Settings};
pub use limits::{Limit, Limits};
pub use platform::PlatformSettings;
pub use slipway_egress::Allowed;
use route::{Found, Table};

/// Where the API begins.
pub const BASE: &str = "/api/v1";

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

    pub async fn answer(&self, request: Request) -> Result<Reply, Error> {
        let Some(path) = request.path().strip_prefix(BASE).filter(|path| path.starts_with('/')) else {
            return match request.path() {
                "/healthz" => Ok(Reply::text("ok\n")),
                _ => Err(Error::not_found(format!("the API is at {BASE}; {BASE}/docs says what there is"))),
            };
        };
        // A HEAD is a GET whose body stays at home.
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        match self.table.find(method, path) {
            Found::Route(route, path) => route.answer(self.context.clone(), path, request).await,
            Found::OtherMethods(methods) => Err(Error::method_not_allowed(&methods)),
            Found::Nothing => Err(Error::not_found(format!("there is no such endpoint; {BASE}/docs says what there is"))),
        }
    }
}
