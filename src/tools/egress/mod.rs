//! The way out (threat 11): every connection that a tool makes goes through a client of this module. It resolves a name
//! once, refuses it unless each of its addresses may be reached, and connects to exactly these addresses, so that a name
//! which changes its mind between check and connection gains nothing. Redirects stay on the same scheme, host and port.

mod address;
mod resolver;

use std::error::Error as StdError;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;
use thiserror::Error;
use url::{Host, Url};

pub(crate) use resolver::{Lookup, System};

use crate::settings::{Allowed, Settings};
use resolver::Checked;

const CONNECT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(30);
const REDIRECTS: usize = 3;

/// Why a tool may not go there. The model reads this, and so may whoever operates the platform.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Blocked {
    #[error("{host} is not reachable for tools: its address {address} is {what}. An operator can allow it in RUNTIME_EGRESS_ALLOW")]
    Address { host: String, address: IpAddr, what: &'static str },
    #[error("{host} is not reachable for tools: it is a {what} name. An operator can allow it in RUNTIME_EGRESS_ALLOW")]
    Name { host: String, what: &'static str },
    #[error("{0} is not an http or https URL with a host and without credentials")]
    Url(String),
    #[error("the server redirects to another place, {0}, where this tool may not follow")]
    Elsewhere(String),
    #[error("the server redirects more than {REDIRECTS} times")]
    Redirects,
    #[error("the agent cannot make HTTP connections: {0}")]
    Client(String),
}

/// Two clients: one for the open Internet and allowed networks, one for the hosts that the operator has allowed by name.
/// Each is made when it is first needed: an agent whose tools stay at home reads no certificates.
#[derive(Clone)]
pub(crate) struct Egress(Arc<Ways>);

struct Ways {
    allow: Arc<[Allowed]>,
    proxy: Option<Url>,
    lookup: Arc<dyn Lookup>,
    public: OnceLock<Client>,
    named: OnceLock<Client>,
}

impl Egress {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self::with_lookup(settings, Arc::new(System))
    }

    /// `lookup` answers for names; tests bring one of their own.
    pub(crate) fn with_lookup(settings: &Settings, lookup: Arc<dyn Lookup>) -> Self {
        let (allow, proxy) = (settings.allow.clone().into(), settings.proxy.clone());
        Self(Arc::new(Ways { allow, proxy, lookup, public: OnceLock::new(), named: OnceLock::new() }))
    }

    /// Whether the URL itself already shows that it leads where tools may not go. Names are checked once they are resolved.
    pub(crate) fn check(&self, url: &Url) -> Result<(), Blocked> {
        self.by_name(url).map(drop)
    }

    /// The client for this URL, unless the URL is refused.
    pub(crate) fn client(&self, url: &Url) -> Result<&Client, Blocked> {
        let by_name = self.by_name(url)?;
        let place = if by_name { &self.0.named } else { &self.0.public };
        if let Some(client) = place.get() {
            return Ok(client);
        }
        let client = self.0.build(by_name).map_err(|error| {
            tracing::error!(%error, "no HTTP client for tools can be made");
            Blocked::Client(innermost(&error))
        })?;
        Ok(place.get_or_init(|| client))
    }

    /// True when the operator has allowed just this host.
    fn by_name(&self, url: &Url) -> Result<bool, Blocked> {
        let refused = || Blocked::Url(redacted(url));
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else { return Err(refused()) };
        if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
            return Err(refused());
        }
        let written = url.host_str().unwrap_or_default();
        if self.0.allow.iter().any(|allowed| allowed.covers_host(written, port)) {
            return Ok(true);
        }
        // The URL parser has turned every spelling of an IPv4 address (decimal, octal, hexadecimal, short) into this form.
        let address = match host {
            Host::Ipv4(address) => IpAddr::V4(address),
            Host::Ipv6(address) => IpAddr::V6(address),
            Host::Domain(name) => {
                return match address::name_fault(name) {
                    Some(what) => Err(Blocked::Name { host: name.to_owned(), what }),
                    None => Ok(false),
                };
            }
        };
        check(written, address, &self.0.allow, false).map(|()| false)
    }
}

impl Ways {
    fn build(&self, by_name: bool) -> Result<Client, reqwest::Error> {
        // Without a provider of the process reqwest would panic; a provider that is already there stays.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            rustls::crypto::ring::default_provider().install_default().ok();
        }
        let builder = Client::builder()
            .user_agent(concat!("slipway-runtime/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(4)
            .referer(false)
            .redirect(Policy::custom(|attempt| match onward(attempt.previous(), attempt.url()) {
                Ok(()) => attempt.follow(),
                Err(blocked) => attempt.error(blocked),
            }));
        let checked = Checked { allow: self.allow.clone(), by_name, lookup: self.lookup.clone() };
        let builder = match &self.proxy {
            // A proxy resolves the names itself; only its operator can guard that.
            Some(proxy) => builder.proxy(reqwest::Proxy::all(proxy.clone())?),
            None => builder.no_proxy().dns_resolver(Arc::new(checked)),
        };
        builder.build()
    }
}

fn check(host: &str, address: IpAddr, allow: &[Allowed], by_name: bool) -> Result<(), Blocked> {
    let Some(what) = address::fault(address) else { return Ok(()) };
    let plain = address::canonical(address);
    let allowed = allow.iter().any(|allowed| allowed.covers_address(plain)) || (by_name && !address::never_by_name(plain));
    if allowed { Ok(()) } else { Err(Blocked::Address { host: host.to_owned(), address, what }) }
}

fn onward(previous: &[Url], next: &Url) -> Result<(), Blocked> {
    let origin = |url: &Url| (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default());
    if previous.first().is_some_and(|first| origin(first) != origin(next)) || !next.username().is_empty() || next.password().is_some() {
        return Err(Blocked::Elsewhere(redacted(next)));
    }
    if previous.len() > REDIRECTS { Err(Blocked::Redirects) } else { Ok(()) }
}

/// Scheme, host and port: what a message may say of a URL that could hold secrets.
pub(crate) fn redacted(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{}://{host}:{port}", url.scheme()),
        (Some(host), None) => format!("{}://{host}", url.scheme()),
        (None, _) => format!("{}:", url.scheme()),
    }
}

/// What the model is told when a request came to nothing. `host` is all of the URL that is named.
pub(crate) fn explain(error: &(dyn StdError + 'static), host: &str) -> String {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(blocked) = current.downcast_ref::<Blocked>() {
            return blocked.to_string();
        }
        cause = current.source();
    }
    format!("{host} could not be reached: {}", innermost(error))
}

/// The cause of all: what lies above it only says that something went wrong.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

#[cfg(test)]
mod tests;
