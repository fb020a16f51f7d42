//! The health of the API and of its dependencies.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use slipway_http::Error;

use crate::answer::Plain;
use crate::call::Call;

/// How the API is.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Health {
    /// The worst of what it depends on.
    pub status: Status,
    /// The version of the platform.
    pub version: &'static str,
    /// `cluster`, `lists`, and `oidc` where an issuer is set up.
    pub dependencies: BTreeMap<&'static str, Dependency>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Dependency {
    pub status: Status,
    /// What is wrong.
    pub message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "HealthStatus")]
pub(crate) enum Status {
    Ok,
    /// Some callers, or some endpoints, are refused.
    Degraded,
}

pub(crate) async fn get(call: Call) -> Result<Plain<Health>, Error> {
    let context = &call.context;
    let cluster = context.client.apiserver_version().await.err().map(|_| "the API server does not answer".to_owned());
    let lists = (!context.caches.is_ready()).then(|| "the lists are still being read".to_owned());
    let mut dependencies = BTreeMap::from([("cluster", Dependency::with(cluster)), ("lists", Dependency::with(lists))]);
    if let Some(issuer) = context.access.issuer() {
        dependencies.insert("oidc", Dependency::with(issuer.problem().await));
    }
    let well = dependencies.values().all(|dependency| dependency.status == Status::Ok);
    Ok(Plain(Health { status: if well { Status::Ok } else { Status::Degraded }, version: env!("CARGO_PKG_VERSION"), dependencies }))
}

impl Dependency {
    fn with(problem: Option<String>) -> Self {
        Self { status: if problem.is_some() { Status::Degraded } else { Status::Ok }, message: problem }
    }
}
