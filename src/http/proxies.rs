//! The address of a client behind proxies, from `X-Forwarded-For` as far as it was written by trusted proxies.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A network in CIDR notation, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    fn contains(self, other: IpAddr) -> bool {
        let bits = u32::from(self.bits);
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros() >= bits,
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros() >= bits,
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no network such as 10.0.0.0/8, and no address");
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most { Err(wrong()) } else { Ok(Self { address: address.to_canonical(), bits }) }
    }
}

/// The proxies whose `X-Forwarded-For` is trusted.
#[derive(Debug, Clone, Default)]
pub struct Proxies(Arc<[Network]>);

impl Proxies {
    pub fn new(networks: impl IntoIterator<Item = Network>) -> Self {
        Self(networks.into_iter().collect())
    }

    pub(crate) fn trust(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// The last address that is no trusted proxy: each proxy appends the address of its own client.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if !self.trust(peer) {
            return peer;
        }
        let lines: Vec<&str> = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok()).collect();
        let mut client = peer;
        for named in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
            let Some(address) = address(named.trim()) else { break };
            client = address;
            if !self.trust(address) {
                break;
            }
        }
        client
    }
}

/// Parses an address with or without a port.
fn address(named: &str) -> Option<IpAddr> {
    let whole = named.trim_start_matches('[').split(']').next()?;
    let found = whole.parse().ok().or_else(|| named.rsplit_once(':')?.0.parse().ok())?;
    Some(IpAddr::to_canonical(&found))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client(trusted: &[&str], peer: &str, forwarded: &[&str]) -> String {
        let proxies = Proxies::new(trusted.iter().map(|network| network.parse().unwrap()));
        let headers = forwarded.iter().map(|value| (FORWARDED_FOR, HeaderValue::from_str(value).unwrap())).collect();
        proxies.client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn an_address_counts_only_if_a_trusted_proxy_forwarded_it() {
        for (trusted, peer, forwarded, expected) in [
            (&[][..], "10.0.0.1", &["1.2.3.4"][..], "10.0.0.1"),
            (&["10.0.0.0/8"], "11.0.0.1", &["1.2.3.4"], "11.0.0.1"),
            (&["10.0.0.0/8"], "10.0.0.1", &["1.2.3.4"], "1.2.3.4"),
            (&["10.0.0.0/8"], "10.0.0.1", &["6.6.6.6, 1.2.3.4"], "1.2.3.4"),
            (&["10.0.0.0/8"], "10.0.0.1", &["6.6.6.6, 1.2.3.4, 10.9.9.9"], "1.2.3.4"),
            (&["10.0.0.0/8"], "10.0.0.1", &["6.6.6.6", "1.2.3.4:5678"], "1.2.3.4"),
            (&["10.0.0.0/8"], "10.0.0.1", &["1.2.3.4, nonsense"], "10.0.0.1"),
            (&["10.0.0.0/8"], "10.0.0.1", &[], "10.0.0.1"),
            (&["fd00::/8"], "fd00::1", &["[2001:db8::1]:443"], "2001:db8::1"),
            (&["10.0.0.1"], "10.0.0.2", &["1.2.3.4"], "10.0.0.2"),
        ] {
            assert_eq!(client(trusted, peer, forwarded), expected, "{trusted:?} {peer} {forwarded:?}");
        }
    }

    #[test]
    fn invalid_networks_are_refused() {
        for wrong in ["", "x", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/x"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
