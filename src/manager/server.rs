//! What the manager tells those who watch over it: alive, ready, and how it has been.

use slipway_http::{Error, Method, Reply, Request, StatusCode};
use slipway_operator::world::World;

pub(crate) fn answer(request: &Request, world: &World) -> Result<Reply, Error> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Error::method_not_allowed(&[Method::GET, Method::HEAD]));
    }
    match request.path() {
        "/healthz" => Ok(Reply::text("ok\n")),
        "/readyz" if world.is_ready() => Ok(Reply::text("ok\n")),
        "/readyz" => Err(Error::new(StatusCode::SERVICE_UNAVAILABLE, "the caches are still being filled")),
        "/metrics" => Ok(Reply::bytes("application/openmetrics-text; version=1.0.0; charset=utf-8", world.metrics.text())),
        _ => Err(Error::not_found("there are /healthz, /readyz and /metrics")),
    }
}
