//! The operator's exceptions from the rule that only public addresses may be reached.

use std::net::IpAddr;
use std::str::FromStr;

use url::Url;

/// One exception from the rule that only public addresses may be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// A network, on any port.
    Network { address: IpAddr, prefix: u8 },
    /// One host, by name or address as in the URL, on one port.
    Host { host: String, port: u16 },
}

impl Allowed {
    /// The entries of a list such as `10.0.0.0/8, wiki.internal:443`, each read, or what is wrong with it.
    pub fn entries(list: &str) -> impl Iterator<Item = Result<Self, String>> {
        list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(str::parse)
    }

    pub(crate) fn covers_address(&self, asked: IpAddr) -> bool {
        match (self, asked) {
            (Self::Network { address: IpAddr::V4(network), prefix }, IpAddr::V4(asked)) => {
                first_bits(u128::from(network.to_bits()) << 96, *prefix) == first_bits(u128::from(asked.to_bits()) << 96, *prefix)
            }
            (Self::Network { address: IpAddr::V6(network), prefix }, IpAddr::V6(asked)) => {
                first_bits(network.to_bits(), *prefix) == first_bits(asked.to_bits(), *prefix)
            }
            _ => false,
        }
    }

    pub(crate) fn covers_host(&self, asked: &str, asked_port: u16) -> bool {
        matches!(self, Self::Host { host, port } if host.eq_ignore_ascii_case(asked) && *port == asked_port)
    }
}

fn first_bits(bits: u128, count: u8) -> u128 {
    bits.checked_shr(128 - u32::from(count)).unwrap_or(0)
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || format!("'{text}' is neither a network such as 10.0.0.0/8 nor a host with a port such as wiki.internal:443");
        if let Some((address, prefix)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| fault())?;
            let prefix: u8 = prefix.parse().map_err(|_| fault())?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            if prefix > most {
                return Err(format!("'{text}' has a prefix over {most} bits"));
            }
            return Ok(Self::Network { address, prefix });
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(fault)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(fault)?;
        // The URL parser ignores a second port that is the default one, slashes before a host, and an empty user name.
        let more = host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) || host.contains(['/', '\\', '@', '?', '#']);
        // The URL parser normalises the host, so that later comparisons match.
        let url = Url::parse(&format!("http://{host}/")).map_err(|_| fault())?;
        let plain =
            url.username().is_empty() && url.password().is_none() && url.port().is_none() && url.path() == "/" && url.query().is_none();
        match url.host_str() {
            Some(host) if plain && url.fragment().is_none() && !more => Ok(Self::Host { host: host.to_owned(), port }),
            _ => Err(fault()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_exception_is_a_network_or_a_host_with_a_port() {
        let host = |host: &str, port| Ok(Allowed::Host { host: host.into(), port });
        for (text, expected) in [
            ("10.0.0.0/8", Ok(Allowed::Network { address: Ipv4Addr::new(10, 0, 0, 0).into(), prefix: 8 })),
            ("fd00::/8", Ok(Allowed::Network { address: "fd00::".parse().unwrap(), prefix: 8 })),
            ("wiki.internal:443", host("wiki.internal", 443)),
            ("Wiki.Internal:443", host("wiki.internal", 443)),
            ("127.0.0.1:80", host("127.0.0.1", 80)),
            ("[::1]:8080", host("[::1]", 8080)),
            ("10.0.0.0/33", Err(())),
            ("wiki.internal", Err(())),
            ("wiki.internal:0", Err(())),
            ("wiki.internal:https", Err(())),
            ("me@wiki:80", Err(())),
            ("wiki:80:443", Err(())),
            ("\\wiki:443", Err(())),
            ("@wiki:443", Err(())),
            ("[::1]:80:443", Err(())),
            ("10.0.0.1", Err(())),
            ("*", Err(())),
        ] {
            assert_eq!(text.parse::<Allowed>().map_err(drop), expected, "{text}");
        }
    }

    #[test]
    fn a_network_covers_the_addresses_with_its_bits() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "127.0.0.1", true),
            ("0.0.0.0/0", "::1", false),
            ("192.168.7.9/32", "192.168.7.9", true),
            ("192.168.7.9/32", "192.168.7.8", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "fe80::1", true),
        ] {
            let network: Allowed = network.parse().unwrap();
            assert_eq!(network.covers_address(address.parse().unwrap()), expected, "{network:?} {address}");
        }
    }
}
