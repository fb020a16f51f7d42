//! The DNS resolver of egress clients: it resolves and checks in one step, so that the connector gets checked addresses only.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::{Allowed, EgressProfile, address, check};

type Answer = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves names; tests replace it.
pub(super) trait Resolver: Send + Sync {
    fn addresses(&self, host: String) -> Answer;
}

/// The resolver of the operating system.
pub(super) struct SystemResolver;

impl Resolver for SystemResolver {
    fn addresses(&self, host: String) -> Answer {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect()) })
    }
}

pub(super) struct CheckedResolver {
    pub(super) profile: EgressProfile,
    pub(super) allow: Arc<[Allowed]>,
    pub(super) host_allowed: bool,
    pub(super) resolver: Arc<dyn Resolver>,
    /// Set once a name resolves to no address, or to one that is not public.
    pub(super) saw_non_public: Arc<AtomicBool>,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (profile, allow, host_allowed, resolver) = (self.profile, self.allow.clone(), self.host_allowed, self.resolver.clone());
        let saw_non_public = self.saw_non_public.clone();
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = resolver.addresses(host.clone()).await;
            let is_public =
                |addresses: &Vec<IpAddr>| !addresses.is_empty() && addresses.iter().all(|at| address::non_public(*at).is_none());
            if !found.as_ref().is_ok_and(is_public) {
                saw_non_public.store(true, Ordering::Relaxed);
            }
            let addresses = found?;
            if addresses.is_empty() {
                return Err(format!("{host} has no address").into());
            }
            // One refused address refuses the name: the connector may take any of them.
            for address in &addresses {
                check(&host, *address, &allow, host_allowed, profile)?;
            }
            let checked: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(checked)
        })
    }
}
