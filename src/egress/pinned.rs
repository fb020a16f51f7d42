//! For programs that connect by themselves, such as git and ssh: the addresses that a name has now, each of them checked,
//! so that the program can be told to connect to exactly these.

use std::net::IpAddr;

use thiserror::Error;
use url::{Host, Url};

use super::resolver::{Lookup, System};
use super::{Allowed, Blocked, Whose, address};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unpinned {
    #[error(transparent)]
    Blocked(#[from] Blocked),
    #[error("{host} has no address: {cause}")]
    Nameless { host: String, cause: String },
}

/// Where a place that the platform's operator has named lies. So private addresses are as good as public ones; this
/// machine, its neighbours by link and the metadata services of clouds still take an entry in `allow`.
pub async fn pinned(url: &Url, allow: &[Allowed], whose: Whose) -> Result<Vec<IpAddr>, Unpinned> {
    resolved(url, allow, whose, &System).await
}

async fn resolved(url: &Url, allow: &[Allowed], whose: Whose, lookup: &dyn Lookup) -> Result<Vec<IpAddr>, Unpinned> {
    let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
        return Err(Blocked::Url(super::redacted(url)).into());
    };
    let written = url.host_str().unwrap_or_default();
    let named = allow.iter().any(|allowed| allowed.covers_host(written, port));
    let addresses = match host {
        Host::Ipv4(address) => vec![IpAddr::V4(address)],
        Host::Ipv6(address) => vec![IpAddr::V6(address)],
        Host::Domain(name) => {
            if let Some(what) = address::name_fault(name).filter(|_| !named) {
                return Err(Blocked::Name { host: name.to_owned(), what, whose }.into());
            }
            lookup.addresses(name.to_owned()).await.map_err(|error| nameless(written, &error.to_string()))?
        }
    };
    if addresses.is_empty() {
        return Err(nameless(written, "the resolver names none"));
    }
    for address in &addresses {
        check(written, *address, allow, named, whose)?;
    }
    Ok(addresses.into_iter().map(address::canonical).collect())
}

fn check(host: &str, address: IpAddr, allow: &[Allowed], named: bool, whose: Whose) -> Result<(), Blocked> {
    match address::fault(address) {
        Some("private" | "shared (CGNAT)") => Ok(()),
        _ => super::check(host, address, allow, named, whose),
    }
}

fn nameless(host: &str, cause: &str) -> Unpinned {
    Unpinned::Nameless { host: host.to_owned(), cause: cause.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::pin::Pin;

    use super::*;

    struct Fixed(&'static [&'static str]);

    impl Lookup for Fixed {
        fn addresses(&self, _: String) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send>> {
            Box::pin(ready(Ok(self.0.iter().map(|address| address.parse().unwrap()).collect())))
        }
    }

    #[tokio::test]
    async fn private_places_are_reached_and_this_machine_and_the_cloud_are_not() {
        let whose = Whose { name: "the mirror", setting: "mirror.allow", user_agent: "slipway-tests" };
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
            let outcome = resolved(&Url::parse(url).unwrap(), &allow, whose, &Fixed(addresses)).await;
            match (expected, outcome) {
                (Ok(count), Ok(addresses)) => assert_eq!(addresses.len(), count, "{url}"),
                (Err(says), Err(fault)) => assert!(fault.to_string().contains(says), "{url} {addresses:?}: {fault}"),
                (expected, outcome) => panic!("{url} {addresses:?}: expected {expected:?}, got {outcome:?}"),
            }
        }
    }
}
