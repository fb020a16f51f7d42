//! Egress (threat 11): every connection to a URL that a user named goes through a client of this crate, be it for an agent's
//! tool or for the platform in a user's name. The client resolves a name once, refuses it unless each of its addresses may be
//! reached, and connects to exactly these addresses, which defeats DNS rebinding. Redirects stay on the same scheme, host and
//! port.

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
pub use pinned::{ResolveError, pinned};
use resolver::{CheckedResolver, Resolver, SystemResolver};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_REDIRECTS: usize = 3;

/// The user of an egress client, for error messages and the User-Agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressProfile {
    /// In the plural: tools.
    pub name: &'static str,
    /// The setting that holds the exceptions.
    pub setting: &'static str,
    pub user_agent: &'static str,
}

/// Why a connection is refused. Models, users and operators read the message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Blocked {
    #[error("{host} is not reachable for {}: its address {address} is {what}. An operator can allow it in {}", profile.name, profile.setting)]
    Address { host: String, address: IpAddr, what: &'static str, profile: EgressProfile },
    #[error("{host} is not reachable for {}: it is a {what} name. An operator can allow it in {}", profile.name, profile.setting)]
    Name { host: String, what: &'static str, profile: EgressProfile },
    #[error("{0} is not an http or https URL with a host and without credentials")]
    Url(String),
    #[error("the server redirects to another place, {0}, which is not followed")]
    Elsewhere(String),
    #[error("the server redirects more than {MAX_REDIRECTS} times")]
    Redirects,
    #[error("no HTTP connection can be made: {0}")]
    Client(String),
}

/// Two HTTP clients: one for public addresses and allowed networks, one for hosts that the operator has allowed by name.
/// Each is built on first use, because that reads the certificates of the system.
#[derive(Clone)]
pub struct Egress(Arc<EgressState>);

struct EgressState {
    profile: EgressProfile,
    allow: Arc<[Allowed]>,
    proxy: Option<Url>,
    follows_redirects: bool,
    resolver: Arc<dyn Resolver>,
    /// A name has resolved to no address, or to one that is not public.
    saw_non_public: Arc<AtomicBool>,
    public: OnceLock<Client>,
    allowed_hosts: OnceLock<Client>,
}

impl Egress {
    /// With `proxy`, all requests go through an HTTP proxy.
    pub fn new(profile: EgressProfile, allow: &[Allowed], proxy: Option<Url>) -> Self {
        Self::with_resolver(profile, allow, proxy, Arc::new(SystemResolver))
    }

    /// Hands redirects back as answers. The caller follows one by asking for the client of its URL, which is checked like the
    /// first, and sends credentials to no other origin.
    pub fn without_redirects(profile: EgressProfile, allow: &[Allowed], proxy: Option<Url>) -> Self {
        Self::build_state(profile, allow, proxy, false, Arc::new(SystemResolver))
    }

    fn with_resolver(profile: EgressProfile, allow: &[Allowed], proxy: Option<Url>, resolver: Arc<dyn Resolver>) -> Self {
        Self::build_state(profile, allow, proxy, true, resolver)
    }

    fn build_state(
        profile: EgressProfile,
        allow: &[Allowed],
        proxy: Option<Url>,
        follows_redirects: bool,
        resolver: Arc<dyn Resolver>,
    ) -> Self {
        let (allow, saw_non_public, public, allowed_hosts) = (allow.into(), Arc::default(), OnceLock::new(), OnceLock::new());
        Self(Arc::new(EgressState { profile, allow, proxy, follows_redirects, resolver, saw_non_public, public, allowed_hosts }))
    }

    /// Refuses a URL that is forbidden as it is written. Names are checked once they are resolved.
    pub fn check(&self, url: &Url) -> Result<(), Blocked> {
        self.check_url(url).map(drop)
    }

    /// Whether an exception covers this host or address.
    pub fn is_allowed(&self, url: &Url) -> bool {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Some(address::canonical(IpAddr::V6(address))),
            _ => None,
        };
        let covered = address.is_some_and(|address| self.0.allow.iter().any(|allowed| allowed.covers_address(address)));
        covered || self.check_url(url) == Ok(true)
    }

    /// Whether the user may see why a request to this URL failed: if the operator has allowed the host by name, or if every
    /// name so far resolved to public addresses only. Otherwise errors would reveal names, addresses and open ports of the
    /// cluster.
    pub fn may_disclose(&self, url: &Url) -> bool {
        match (self.check_url(url), url.host()) {
            (Ok(true), _) => true,
            (_, Some(Host::Ipv4(address))) => address::non_public(IpAddr::V4(address)).is_none(),
            (_, Some(Host::Ipv6(address))) => address::non_public(IpAddr::V6(address)).is_none(),
            _ => !self.0.saw_non_public.load(Ordering::Relaxed),
        }
    }

    /// The client for this URL, or why the URL is refused.
    pub fn client(&self, url: &Url) -> Result<&Client, Blocked> {
        let host_allowed = self.check_url(url)?;
        let cell = if host_allowed { &self.0.allowed_hosts } else { &self.0.public };
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        let client = self.0.build(host_allowed).map_err(|error| {
            tracing::error!(%error, profile = self.0.profile.name, "no HTTP client can be made");
            Blocked::Client(root_cause(&error))
        })?;
        Ok(cell.get_or_init(|| client))
    }

    /// Whether an exception names this host; an error if the URL is refused.
    fn check_url(&self, url: &Url) -> Result<bool, Blocked> {
        let refused = || Blocked::Url(redacted(url));
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else { return Err(refused()) };
        if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
            return Err(refused());
        }
        let written = url.host_str().unwrap_or_default();
        let host_allowed = self.0.allow.iter().any(|allowed| allowed.covers_host(written, port));
        // The URL parser has normalised every spelling of an IPv4 address (decimal, octal, hexadecimal, short).
        let address = match host {
            Host::Ipv4(address) => IpAddr::V4(address),
            Host::Ipv6(address) => IpAddr::V6(address),
            Host::Domain(_) if host_allowed => return Ok(true),
            Host::Domain(name) => {
                return match address::non_public_name(name) {
                    Some(what) => Err(Blocked::Name { host: name.to_owned(), what, profile: self.0.profile }),
                    None => Ok(false),
                };
            }
        };
        check(written, address, &self.0.allow, host_allowed, self.0.profile).map(|()| host_allowed)
    }
}

impl EgressState {
    fn build(&self, host_allowed: bool) -> Result<Client, reqwest::Error> {
        // reqwest panics if the process has no crypto provider; an installed one stays.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            rustls::crypto::ring::default_provider().install_default().ok();
        }
        let builder = Client::builder()
            .user_agent(self.profile.user_agent)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(4)
            .referer(false);
        let builder = if self.follows_redirects {
            builder.redirect(Policy::custom(|attempt| match check_redirect(attempt.previous(), attempt.url()) {
                Ok(()) => attempt.follow(),
                Err(blocked) => attempt.error(blocked),
            }))
        } else {
            builder.redirect(Policy::none())
        };
        let (resolver, saw_non_public) = (self.resolver.clone(), self.saw_non_public.clone());
        let checked = CheckedResolver { profile: self.profile, allow: self.allow.clone(), host_allowed, resolver, saw_non_public };
        let builder = match &self.proxy {
            // A proxy resolves names itself and has to enforce its own rules.
            Some(proxy) => builder.proxy(reqwest::Proxy::all(proxy.clone())?),
            None => builder.no_proxy().dns_resolver(Arc::new(checked)),
        };
        builder.build()
    }
}

fn check(host: &str, address: IpAddr, allow: &[Allowed], host_allowed: bool, profile: EgressProfile) -> Result<(), Blocked> {
    let Some(what) = address::non_public(address) else { return Ok(()) };
    let plain = address::canonical(address);
    let allowed = allow.iter().any(|allowed| allowed.covers_address(plain)) || (host_allowed && !address::needs_network_entry(plain));
    if allowed { Ok(()) } else { Err(Blocked::Address { host: host.to_owned(), address, what, profile }) }
}

fn check_redirect(previous: &[Url], next: &Url) -> Result<(), Blocked> {
    let origin = |url: &Url| (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default());
    if previous.first().is_some_and(|first| origin(first) != origin(next)) || !next.username().is_empty() || next.password().is_some() {
        return Err(Blocked::Elsewhere(redacted(next)));
    }
    if previous.len() > MAX_REDIRECTS { Err(Blocked::Redirects) } else { Ok(()) }
}

/// Scheme, host and port: the part of a URL that contains no secrets.
pub fn redacted(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{}://{host}:{port}", url.scheme()),
        (Some(host), None) => format!("{}://{host}", url.scheme()),
        (None, _) => format!("{}:", url.scheme()),
    }
}

/// The message for a failed request. It names `host` and nothing else of the URL.
pub fn explain(error: &(dyn StdError + 'static), host: &str) -> String {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(blocked) = current.downcast_ref::<Blocked>() {
            return blocked.to_string();
        }
        cause = current.source();
    }
    format!("{host} could not be reached: {}", root_cause(error))
}

/// Whether a request failed because the egress rules refused it.
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

/// The message of the innermost cause; the outer ones only say that something failed.
pub fn root_cause(error: &(dyn StdError + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

#[cfg(test)]
mod tests;
