//! `POST /integrations/test` and `/integrations/deliver`: connections that the manager asks for, under this pod's network policy. The
//! login comes with the request. Only the control key opens these routes, and each of its tokens once: who takes REST over gets no
//! connections of their choice.

use std::time::SystemTime;

use anyhow::{Context, anyhow};
use serde::de::DeserializeOwned;
use slipway_api::contract::EGRESS_PROXY;
use slipway_http::single_use::SingleUseAccess;
use slipway_http::token::Verifier;
use slipway_http::{Error, Reply, Request, StatusCode};
use slipway_integrations::{Outbound, deliver, probe};
use tokio::sync::{Semaphore, SemaphorePermit};
use url::Url;

use crate::embedders::variable;
use crate::{failure, ingest};

const MAX_BODY_BYTES: usize = 256 * 1024;
const CONNECTIONS_MAX: usize = 16;
/// What one of them holds at most: an answer of 1 MiB, and what the connection has of it.
const CONNECTION_BYTES: u64 = 2 * 1024 * 1024;
/// Set apart, so that slow servers take nothing from searches.
pub(crate) const INTEGRATIONS_BUDGET_BYTES: u64 = CONNECTIONS_MAX as u64 * CONNECTION_BYTES;

pub(crate) struct Integrations {
    access: Option<SingleUseAccess>,
    turns: Semaphore,
    outbound: Outbound,
}

impl Integrations {
    pub(crate) fn new(team: &str, key: Option<Verifier>) -> anyhow::Result<Self> {
        let access = key.map(|key| SingleUseAccess::new(team.to_owned(), key));
        let outbound = Outbound::new(ingest::allowed()?, proxy()?);
        Ok(Self { access, turns: Semaphore::new(CONNECTIONS_MAX), outbound })
    }

    pub(crate) async fn test(&self, request: Request) -> Result<Reply, Error> {
        let (_turn, asked) = self.admitted(request).await?;
        Reply::json(&probe(&asked, &self.outbound).await)
    }

    pub(crate) async fn deliver(&self, request: Request) -> Result<Reply, Error> {
        let (_turn, asked) = self.admitted(request).await?;
        Reply::json(&deliver(&asked, &self.outbound).await)
    }

    /// The body of a request that may be carried out, and its turn.
    async fn admitted<T: DeserializeOwned>(&self, request: Request) -> Result<(SemaphorePermit<'_>, T), Error> {
        match self.turn(&request) {
            // The parser's words could quote a login.
            Ok(turn) => request.json_up_to(MAX_BODY_BYTES).await.map(|asked| (turn, asked)).map_err(unquoted),
            Err(refused) => Err(request.refuse(refused).await),
        }
    }

    /// A token is used up only where there is room.
    fn turn(&self, request: &Request) -> Result<SemaphorePermit<'_>, Error> {
        let Some(access) = &self.access else { return Err(Error::not_found("there is nothing at this path")) };
        let now = SystemTime::now();
        let claims = access.check(request.headers(), now)?;
        let turn = self.turns.try_acquire().map_err(|_| {
            let message = format!("{CONNECTIONS_MAX} integrations are connected to, which is the most at once; try again in a moment");
            failure::later(Error::new(StatusCode::TOO_MANY_REQUESTS, message), 1)
        })?;
        access.use_up(claims, now)?;
        Ok(turn)
    }
}

fn unquoted(error: Error) -> Error {
    if error.status() == StatusCode::BAD_REQUEST { Error::bad_request("the body is not what this path takes") } else { error }
}

/// The proxy that Tools go through, too.
fn proxy() -> anyhow::Result<Option<Url>> {
    let Some(text) = variable(EGRESS_PROXY) else { return Ok(None) };
    // The value is not quoted, because it may hold a password.
    let url = Url::parse(text.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some());
    url.map(Some).ok_or_else(|| anyhow!("must be an http or https URL, as in http://proxy.internal:3128")).context(EGRESS_PROXY)
}
