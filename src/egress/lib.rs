//! The way out (threat 11): every connection to a place that a user named goes through a client of this crate: those of
//! agents' tools, and those of the platform in a user's name. It resolves a name
//! once, refuses it unless each of its addresses may be reached, and connects to exactly these addresses, so that a name
//! which changes its mind between check and connection gains nothing. Redirects stay on the same scheme, host and port.

mod address;
mod allowed;
mod pinned;
mod resolver;

use std::error::Error as StdError;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;
use thiserror::Error;
use url::{Host, Url};

pub use allowed::Allowed;
pub use pinned::{Unpinned, pinned};
use resolver::{Checked, Lookup, System};

const CONNECT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(30);
const REDIRECTS: usize = 3;

/// For whom a way out is, and where its exceptions are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whose {
    /// In the plural: tools.
    pub name: &'static str,
    pub setting: &'static str,
    pub user_agent: &'static str,
}

/// Why nobody may go there. A model or a user reads this, and so may whoever operates the platform.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Blocked {
    #[error("{host} is not reachable for {}: its address {address} is {what}. An operator can allow it in {}", whose.name, whose.setting)]
    Address { host: String, address: IpAddr, what: &'static str, whose: Whose },
    #[error("{host} is not reachable for {}: it is a {what} name. An operator can allow it in {}", whose.name, whose.setting)]
    Name { host: String, what: &'static str, whose: Whose },
    #[error("{0} is not an http or https URL with a host and without credentials")]
    Url(String),
    #[error("the server redirects to another place, {0}, which is not followed")]
    Elsewhere(String),
    #[error("the server redirects more than {REDIRECTS} times")]
    Redirects,
    #[error("no HTTP connection can be made: {0}")]
    Client(String),
}

/// Two clients: one for the open Internet and allowed networks, one for the hosts that the operator has allowed by name.
/// Each is made when it is first needed: an agent whose tools stay at home reads no certificates.
#[derive(Clone)]
pub struct Egress(Arc<Ways>);

struct Ways {
    whose: Whose,
    allow: Arc<[Allowed]>,
    proxy: Option<Url>,
    lookup: Arc<dyn Lookup>,
    /// A name led nowhere, or to an address that is not public.
    strayed: Arc<AtomicBool>,
    public: OnceLock<Client>,
    named: OnceLock<Client>,
}

impl Egress {
    /// With `proxy`, all of it goes through an HTTP proxy.
    pub fn new(whose: Whose, allow: &[Allowed], proxy: Option<Url>) -> Self {
        Self::with_lookup(whose, allow, proxy, Arc::new(System))
    }

    /// `lookup` answers for names; tests bring one of their own.
    fn with_lookup(whose: Whose, allow: &[Allowed], proxy: Option<Url>, lookup: Arc<dyn Lookup>) -> Self {
        let (allow, strayed, public, named) = (allow.into(), Arc::default(), OnceLock::new(), OnceLock::new());
        Self(Arc::new(Ways { whose, allow, proxy, lookup, strayed, public, named }))
    }

    /// Whether the URL itself already shows that it leads where nobody may go. Names are checked once they are resolved.
    pub fn check(&self, url: &Url) -> Result<(), Blocked> {
        self.by_name(url).map(drop)
    }

    /// Whether the operator has allowed just this host, or this address.
    pub fn is_allowed(&self, url: &Url) -> bool {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Some(address::canonical(IpAddr::V6(address))),
            _ => None,
        };
        let covered = address.is_some_and(|address| self.0.allow.iter().any(|allowed| allowed.covers_address(address)));
        covered || self.by_name(url) == Ok(true)
    }

    /// Whether what happened on the way to this URL may be told to whoever named it: where every name so far led to public
    /// addresses alone, and where the operator has allowed the host by name. Else the words would tell which names are known
    /// within the cluster, what they stand for, and which ports are open there.
    pub fn is_tellable(&self, url: &Url) -> bool {
        match (self.by_name(url), url.host()) {
            (Ok(true), _) => true,
            (_, Some(Host::Ipv4(address))) => address::fault(IpAddr::V4(address)).is_none(),
            (_, Some(Host::Ipv6(address))) => address::fault(IpAddr::V6(address)).is_none(),
            _ => !self.0.strayed.load(Ordering::Relaxed),
        }
    }

    /// The client for this URL, unless the URL is refused.
    pub fn client(&self, url: &Url) -> Result<&Client, Blocked> {
        let by_name = self.by_name(url)?;
        let place = if by_name { &self.0.named } else { &self.0.public };
        if let Some(client) = place.get() {
            return Ok(client);
        }
        let client = self.0.build(by_name).map_err(|error| {
            tracing::error!(%error, whose = self.0.whose.name, "no HTTP client can be made");
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
        let named = self.0.allow.iter().any(|allowed| allowed.covers_host(written, port));
        // The URL parser has turned every spelling of an IPv4 address (decimal, octal, hexadecimal, short) into this form.
        let address = match host {
            Host::Ipv4(address) => IpAddr::V4(address),
            Host::Ipv6(address) => IpAddr::V6(address),
            Host::Domain(_) if named => return Ok(true),
            Host::Domain(name) => {
                return match address::name_fault(name) {
                    Some(what) => Err(Blocked::Name { host: name.to_owned(), what, whose: self.0.whose }),
                    None => Ok(false),
                };
            }
        };
        check(written, address, &self.0.allow, named, self.0.whose).map(|()| named)
    }
}

impl Ways {
    fn build(&self, by_name: bool) -> Result<Client, reqwest::Error> {
        // Without a provider of the process reqwest would panic; a provider that is already there stays.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            rustls::crypto::ring::default_provider().install_default().ok();
        }
        let builder = Client::builder()
            .user_agent(self.whose.user_agent)
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(4)
            .referer(false)
            .redirect(Policy::custom(|attempt| match onward(attempt.previous(), attempt.url()) {
                Ok(()) => attempt.follow(),
                Err(blocked) => attempt.error(blocked),
            }));
        let (lookup, strayed) = (self.lookup.clone(), self.strayed.clone());
        let checked = Checked { whose: self.whose, allow: self.allow.clone(), by_name, lookup, strayed };
        let builder = match &self.proxy {
            // A proxy resolves the names itself; only its operator can guard that.
            Some(proxy) => builder.proxy(reqwest::Proxy::all(proxy.clone())?),
            None => builder.no_proxy().dns_resolver(Arc::new(checked)),
        };
        builder.build()
    }
}

fn check(host: &str, address: IpAddr, allow: &[Allowed], by_name: bool, whose: Whose) -> Result<(), Blocked> {
    let Some(what) = address::fault(address) else { return Ok(()) };
    let plain = address::canonical(address);
    let allowed = allow.iter().any(|allowed| allowed.covers_address(plain)) || (by_name && !address::never_by_name(plain));
    if allowed { Ok(()) } else { Err(Blocked::Address { host: host.to_owned(), address, what, whose }) }
}

fn onward(previous: &[Url], next: &Url) -> Result<(), Blocked> {
    let origin = |url: &Url| (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default());
    if previous.first().is_some_and(|first| origin(first) != origin(next)) || !next.username().is_empty() || next.password().is_some() {
        return Err(Blocked::Elsewhere(redacted(next)));
    }
    if previous.len() > REDIRECTS { Err(Blocked::Redirects) } else { Ok(()) }
}

/// Scheme, host and port: what a message may say of a URL that could hold secrets.
pub fn redacted(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{}://{host}:{port}", url.scheme()),
        (Some(host), None) => format!("{}://{host}", url.scheme()),
        (None, _) => format!("{}:", url.scheme()),
    }
}

/// What the model is told when a request came to nothing. `host` is all of the URL that is named.
pub fn explain(error: &(dyn StdError + 'static), host: &str) -> String {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(blocked) = current.downcast_ref::<Blocked>() {
            return blocked.to_string();
        }
        cause = current.source();
    }
    format!("{host} could not be reached: {}", innermost(error))
}

/// Whether a request came to nothing because it may not go where it would have gone.
pub fn is_blocked(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if current.is::<Blocked>() {
            return true;
        }
        cause = current.source();
    }
    false
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
mod strange;
#[cfg(test)]
mod tests;
