//! The health port: liveness, readiness and metrics.

use std::sync::Arc;

use slipway_cluster::{Metrics, Tasks};
use slipway_http::{Error, Method, Reply, Request, StatusCode, request_metrics};
use slipway_operator::Context;
use slipway_rest::Rest;

use crate::state::StateReadiness;

pub(crate) struct HealthPort {
    pub metrics: Metrics,
    pub tasks: Tasks,
    pub operator: Option<Arc<Context>>,
    pub api: Option<Rest>,
    pub state: Option<StateReadiness>,
}

impl HealthPort {
    pub(crate) fn answer(&self, request: &Request) -> Result<Reply, Error> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(Error::method_not_allowed(&[Method::GET, Method::HEAD]));
        }
        match request.path() {
            "/healthz" => match self.tasks.failure() {
                None => Ok(Reply::text("ok\n")),
                Some(failure) => Err(Error::new(StatusCode::SERVICE_UNAVAILABLE, failure)),
            },
            "/readyz" if self.is_ready() => Ok(Reply::text("ok\n")),
            "/readyz" => Err(Error::new(StatusCode::SERVICE_UNAVAILABLE, "the caches are still being filled")),
            "/metrics" => Ok(Reply::bytes(request_metrics::CONTENT_TYPE, self.metrics())),
            _ => Err(Error::not_found("there are /healthz, /readyz and /metrics")),
        }
    }

    /// The metrics of all roles. Only the last part ends with the marker `# EOF`.
    fn metrics(&self) -> String {
        self.api.as_ref().map(Rest::metrics).unwrap_or_default() + &self.metrics.text()
    }

    fn is_ready(&self) -> bool {
        self.operator.as_ref().is_none_or(|operator| operator.is_ready())
            && self.api.as_ref().is_none_or(Rest::is_ready)
            && self.state.as_ref().is_none_or(StateReadiness::is_ready)
    }
}
