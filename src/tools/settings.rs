//! What the operator of the platform decides for all tools of an agent: private addresses that may be reached, the
//! search endpoint, how much text goes back to the model, and which lists of tools are approved.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use slipway_api::contract::TOOL_DIGESTS;
use url::Url;

use crate::egress::redacted;

/// 32 KiB, some 8,000 tokens.
pub const OUTPUT_LIMIT: usize = 32 * 1024;

pub(crate) const EGRESS_ALLOW: &str = "RUNTIME_EGRESS_ALLOW";
pub(crate) const EGRESS_PROXY: &str = "RUNTIME_EGRESS_PROXY";
pub(crate) const SEARCH_URL: &str = "RUNTIME_SEARCH_URL";

#[derive(Clone)]
pub struct Settings {
    /// Networks and hosts that http and mcp tools may reach although they are not public. `RUNTIME_EGRESS_ALLOW`.
    pub allow: Vec<Allowed>,
    /// Bytes of a call's output given back to the model.
    pub output_limit: usize,
    /// The search page of a SearXNG-compatible server, for the builtin `search`. `RUNTIME_SEARCH_URL`.
    pub search: Option<Url>,
    /// An HTTP proxy for all of it. The variables that other programs take proxies from are not heeded. `RUNTIME_EGRESS_PROXY`.
    pub proxy: Option<Url>,
    /// For servers that speak mcp, by tool: the digest of the list that was approved. A server that is not in it is held
    /// to the first list that it offers. Without all of it, servers may change their tools. `RUNTIME_TOOL_DIGESTS`.
    pub approved: Option<BTreeMap<String, String>>,
}

/// The URLs may hold passwords; of them only the places are shown.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("allow", &self.allow)
            .field("output_limit", &self.output_limit)
            .field("search", &self.search.as_ref().map(redacted))
            .field("proxy", &self.proxy.as_ref().map(redacted))
            .field("approved", &self.approved)
            .finish()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { allow: Vec::new(), output_limit: OUTPUT_LIMIT, search: None, proxy: None, approved: None }
    }
}

impl Settings {
    /// From the environment; every faulty variable gives a line naming it.
    pub fn read(variables: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<String>> {
        let mut settings = Self::default();
        let mut faults = Vec::new();
        let set = |name: &str| variables(name).filter(|value| !value.trim().is_empty());
        for item in set(EGRESS_ALLOW).iter().flat_map(|list| list.split(',')).map(str::trim).filter(|item| !item.is_empty()) {
            match item.parse() {
                Ok(allowed) => settings.allow.push(allowed),
                Err(fault) => faults.push(format!("{EGRESS_ALLOW}: {fault}")),
            }
        }
        for (name, url) in [(SEARCH_URL, &mut settings.search), (EGRESS_PROXY, &mut settings.proxy)] {
            let Some(value) = set(name) else { continue };
            match Url::parse(value.trim()) {
                Ok(value) if matches!(value.scheme(), "http" | "https") && value.host().is_some() => *url = Some(value),
                // The value may hold a password and is not quoted.
                _ => faults.push(format!("{name}: must be an http or https URL, as in http://search.internal:8080/search")),
            }
        }
        if let Some(value) = set(TOOL_DIGESTS) {
            match serde_json::from_str(&value) {
                Ok(approved) => settings.approved = Some(approved),
                Err(error) => faults.push(format!(r#"{TOOL_DIGESTS}: must be a JSON object such as {{"tool": "sha256:…"}}: {error}"#)),
            }
        }
        if faults.is_empty() { Ok(settings) } else { Err(faults) }
    }
}

/// One exception from the rule that tools reach public addresses only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// Addresses that begin with the same bits, on any port.
    Network { address: IpAddr, prefix: u8 },
    /// One host, by name or address as the URL has it, on one port.
    Host { host: String, port: u16 },
}

impl Allowed {
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
        // The URL parser brings the host into the form in which URLs are compared later.
        let url = Url::parse(&format!("http://{host}/")).map_err(|_| fault())?;
        let plain =
            url.username().is_empty() && url.password().is_none() && url.port().is_none() && url.path() == "/" && url.query().is_none();
        match url.host_str() {
            Some(host) if plain && url.fragment().is_none() => Ok(Self::Host { host: host.to_owned(), port }),
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

    #[test]
    fn every_faulty_variable_is_named_and_no_password_is_quoted() {
        let faults = Settings::read(&|name| match name {
            EGRESS_ALLOW => Some("10.0.0.0/8, nonsense, wiki.internal:443".into()),
            SEARCH_URL => Some("user:hunter2@search".into()),
            TOOL_DIGESTS => Some("[]".into()),
            _ => None,
        })
        .unwrap_err();
        assert_eq!(faults.len(), 3);
        assert!(faults[2].starts_with("RUNTIME_TOOL_DIGESTS: must be a JSON object"), "{faults:?}");
        assert!(faults[0].starts_with("RUNTIME_EGRESS_ALLOW: 'nonsense'"), "{faults:?}");
        assert!(faults[1].starts_with("RUNTIME_SEARCH_URL: ") && !faults[1].contains("hunter2"), "{faults:?}");
        let proxied = Settings::read(&|name| (name == EGRESS_PROXY).then(|| "http://me:hunter2@proxy:3128".into())).unwrap();
        assert!(format!("{proxied:?}").contains("http://proxy:3128") && !format!("{proxied:?}").contains("hunter2"));
        assert_eq!(Settings::read(&|_| Some(" ".into())).unwrap().output_limit, 32 * 1024);
    }
}
