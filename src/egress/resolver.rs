//! Resolution and check in one step, at the moment of connecting: the connector gets checked addresses or none.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::{Allowed, Whose, address, check};

type Answer = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Who knows the addresses of a name.
pub(super) trait Lookup: Send + Sync {
    fn addresses(&self, host: String) -> Answer;
}

/// The machine's own resolver.
pub(super) struct System;

impl Lookup for System {
    fn addresses(&self, host: String) -> Answer {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect()) })
    }
}

pub(super) struct Checked {
    pub(super) whose: Whose,
    pub(super) allow: Arc<[Allowed]>,
    pub(super) by_name: bool,
    pub(super) lookup: Arc<dyn Lookup>,
    /// Set where a name leads nowhere, or to an address that is not public.
    pub(super) strayed: Arc<AtomicBool>,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let (whose, allow, by_name, lookup) = (self.whose, self.allow.clone(), self.by_name, self.lookup.clone());
        let strayed = self.strayed.clone();
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = lookup.addresses(host.clone()).await;
            let is_public = |addresses: &Vec<IpAddr>| !addresses.is_empty() && addresses.iter().all(|at| address::fault(*at).is_none());
            if !found.as_ref().is_ok_and(is_public) {
                strayed.store(true, Ordering::Relaxed);
            }
            let addresses = found?;
            if addresses.is_empty() {
                return Err(format!("{host} has no address").into());
            }
            // One bad address spoils the name: which of them is taken would be a matter of luck.
            for address in &addresses {
                check(&host, *address, &allow, by_name, whose)?;
            }
            let checked: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(checked)
        })
    }
}
