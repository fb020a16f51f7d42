//! Checked addresses for programs that connect by themselves, such as git and ssh, and are given the addresses to connect to.

use std::net::IpAddr;

use thiserror::Error;
use url::{Host, Url};

use super::resolver::{Resolver, SystemResolver};
use super::{Allowed, Blocked, EgressProfile, address};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResolveError {
    #[error(transparent)]
    Blocked(#[from] Blocked),
    #[error("{host} has no address: {cause}")]
    NoAddress { host: String, cause: String },
}

/// The addresses of a host that the operator has configured. Private addresses are allowed; loopback, link-local and metadata
/// addresses still take an entry in `allow`.
pub async fn pinned(url: &Url, allow: &[Allowed], profile: EgressProfile) -> Result<Vec<IpAddr>, ResolveError> {
    resolved(url, allow, profile, &SystemResolver).await
}

async fn resolved(url: &Url, allow: &[Allowed], profile: EgressProfile, resolver: &dyn Resolver) -> Result<Vec<IpAddr>, ResolveError> {
    let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
        return Err(Blocked::Url(super::redacted(url)).into());
    };
    let written = url.host_str().unwrap_or_default();
    let host_allowed = allow.iter().any(|allowed| allowed.covers_host(written, port));
    let addresses = match host {
        Host::Ipv4(address) => vec![IpAddr::V4(address)],
        Host::Ipv6(address) => vec![IpAddr::V6(address)],
        Host::Domain(name) => {
            if let Some(what) = address::non_public_name(name).filter(|_| !host_allowed) {
                return Err(Blocked::Name { host: name.to_owned(), what, profile }.into());
            }
            resolver.addresses(name.to_owned()).await.map_err(|error| no_address(written, &error.to_string()))?
        }
    };
    if addresses.is_empty() {
        return Err(no_address(written, "the resolver names none"));
    }
    for address in &addresses {
        check(written, *address, allow, host_allowed, profile)?;
    }
    Ok(addresses.into_iter().map(address::canonical).collect())
}

fn check(host: &str, address: IpAddr, allow: &[Allowed], host_allowed: bool, profile: EgressProfile) -> Result<(), Blocked> {
    match address::non_public(address) {
        Some("private" | "shared (CGNAT)") => Ok(()),
        _ => super::check(host, address, allow, host_allowed, profile),
    }
}

fn no_address(host: &str, cause: &str) -> ResolveError {
    ResolveError::NoAddress { host: host.to_owned(), cause: cause.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::pin::Pin;

    use super::*;

    struct FixedResolver(&'static [&'static str]);

    impl Resolver for FixedResolver {
        fn addresses(&self, _: String) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send>> {
            Box::pin(ready(Ok(self.0.iter().map(|address| address.parse().unwrap()).collect())))
        }
    }

    #[tokio::test]
    async fn private_addresses_are_allowed_but_not_loopback_or_metadata() {
        let profile = EgressProfile { name: "the mirror", setting: "mirror.allow", user_agent: "slipway-tests" };
        for (url, addresses, allow, expected) in [
            ("https://git.example.com/a", &["93.184.216.34"][..], "", Ok(1)),
            ("https://git.internal/a", &["10.0.0.7", "fd00::7"], "", Ok(2)),
            ("https://10.0.0.7/a", &[], "", Ok(1)),
            ("https://100.64.1.1/a", &[], "", Ok(1)),
            ("https://git.internal/a", &["10.0.0.7", "127.0.0.1"], "", Err("127.0.0.1 is loopback")),
            ("https://git.internal/a", &["127.0.0.1"], "git.internal:443", Ok(1)),
            ("https://git.internal/a", &["127.0.0.1"], "git.internal:80", Err("127.0.0.1 is loopback")),
            ("https://git.internal/a", &["127.0.0.1"], "127.0.0.0/8", Ok(1)),
            ("https://git.internal/a", &["169.254.169.254"], "git.internal:443", Err("link-local")),
            ("https://git.internal/a", &["169.254.169.254"], "169.254.169.254/32", Ok(1)),
            ("https://git.internal/a", &["100.100.100.200"], "", Err("metadata service")),
            ("https://[fd00:ec2::254]/a", &[], "", Err("metadata service")),
            ("https://[::ffff:127.0.0.1]/a", &[], "", Err("loopback")),
            ("https://[64:ff9b::7f00:1]/a", &[], "", Err("loopback")),
            ("https://2130706433/a", &[], "", Err("loopback")),
            ("https://localhost/a", &["127.0.0.1"], "", Err("loopback name")),
            ("https://metadata.google.internal/a", &["10.0.0.7"], "", Err("metadata service name")),
            ("https://git.internal/a", &["0.0.0.0"], "git.internal:443", Err("unspecified")),
            ("https://git.internal/a", &[], "", Err("has no address")),
        ] {
            let allow: Vec<Allowed> = allow.split_whitespace().map(|item| item.parse().unwrap()).collect();
            let outcome = resolved(&Url::parse(url).unwrap(), &allow, profile, &FixedResolver(addresses)).await;
            match (expected, outcome) {
                (Ok(count), Ok(addresses)) => assert_eq!(addresses.len(), count, "{url}"),
                (Err(says), Err(fault)) => assert!(fault.to_string().contains(says), "{url} {addresses:?}: {fault}"),
                (expected, outcome) => panic!("{url} {addresses:?}: expected {expected:?}, got {outcome:?}"),
            }
        }
    }
}
