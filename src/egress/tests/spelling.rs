//! Property tests: the rules do not depend on how an address or a name is written.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use proptest::sample::{Index, select};
use url::Url;

use super::super::*;
use super::egress;

/// The networks of IANA's special-purpose registry that are not public, and the metadata addresses of clouds.
const SPECIAL4: [(&str, u32); 18] = [
    ("0.0.0.0", 8),
    ("10.0.0.0", 8),
    ("100.64.0.0", 10),
    ("127.0.0.0", 8),
    ("169.254.0.0", 16),
    ("172.16.0.0", 12),
    ("192.0.0.0", 24),
    ("192.0.2.0", 24),
    ("192.88.99.0", 24),
    ("192.168.0.0", 16),
    ("198.18.0.0", 15),
    ("198.51.100.0", 24),
    ("203.0.113.0", 24),
    ("224.0.0.0", 4),
    ("240.0.0.0", 4),
    ("168.63.129.16", 32),
    ("169.254.169.254", 32),
    ("100.100.100.200", 32),
];
/// The forbidden IPv6 networks.
const SPECIAL6: [(&str, u32); 12] = [
    ("::", 128),
    ("::1", 128),
    ("fc00::", 7),
    ("fe80::", 10),
    ("fec0::", 10),
    ("ff00::", 8),
    ("100::", 8),
    ("2001::", 23),
    ("2001:db8::", 32),
    ("3fff::", 20),
    ("5f00::", 16),
    ("64:ff9b:1::", 48),
];
/// The networks that embed an IPv4 address, with the bit at which it begins.
const EMBEDS_V4: [(&str, u32); 5] = [("::", 96), ("::ffff:0:0", 96), ("::ffff:0:0:0", 96), ("64:ff9b::", 96), ("2002::", 16)];
const NAMES: [&str; 8] = [
    "localhost",
    "a.localhost",
    "x.y.localhost",
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
];

fn special4(address: u32) -> bool {
    let within = |(network, prefix): &(&str, u32)| {
        let network: Ipv4Addr = network.parse().unwrap();
        (network.to_bits() ^ address).checked_shr(32 - prefix).unwrap_or(0) == 0
    };
    SPECIAL4.iter().any(within)
}

/// Any address, often one at the edge of a special network.
fn any4() -> impl Strategy<Value = u32> {
    let edge = (select(&SPECIAL4), -2_i64..3, any::<bool>()).prop_map(|((network, prefix), by, end)| {
        let first = i64::from(network.parse::<Ipv4Addr>().unwrap().to_bits());
        let size = 1_i64 << (32 - prefix);
        u32::try_from((first + by + if end { size } else { 0 }).rem_euclid(1 << 32)).unwrap()
    });
    prop_oneof![any::<u32>(), edge]
}

fn forbidden4() -> impl Strategy<Value = u32> {
    let within = (select(&SPECIAL4), any::<u32>())
        .prop_map(|((network, prefix), rest)| network.parse::<Ipv4Addr>().unwrap().to_bits() | rest.checked_shr(prefix).unwrap_or(0));
    prop_oneof![within, any4().prop_filter("public", |address| special4(*address))]
}

fn forbidden6() -> impl Strategy<Value = Ipv6Addr> {
    let special = (select(&SPECIAL6), any::<u128>()).prop_map(|((network, prefix), rest)| {
        Ipv6Addr::from_bits(network.parse::<Ipv6Addr>().unwrap().to_bits() | rest.checked_shr(prefix).unwrap_or(0))
    });
    let holding = (select(&EMBEDS_V4), forbidden4(), any::<u128>()).prop_map(|((network, at), four, rest)| {
        let below = 96 - at;
        let rest = rest & ((1_u128 << below) - 1);
        Ipv6Addr::from_bits(network.parse::<Ipv6Addr>().unwrap().to_bits() | u128::from(four) << below | rest)
    });
    prop_oneof![special, holding]
}

/// One number of an IPv4 address, in one of the bases that URLs accept.
fn number(value: u32, base: usize) -> String {
    match base % 4 {
        0 => value.to_string(),
        1 => format!("0x{value:x}"),
        2 => format!("0X{value:08X}"),
        _ => format!("0{value:o}"),
    }
}

/// An IPv4 address as one to four numbers, the last of which has all remaining bits.
fn spelled4(address: u32, parts: usize, bases: [usize; 4]) -> String {
    let [a, b, c, d] = address.to_be_bytes().map(u32::from);
    let numbers = match parts % 4 {
        0 => vec![address],
        1 => vec![a, address & 0x00ff_ffff],
        2 => vec![a, b, address & 0xffff],
        _ => vec![a, b, c, d],
    };
    numbers.into_iter().zip(bases).map(|(value, base)| number(value, base)).collect::<Vec<_>>().join(".")
}

/// A host that normalises to the same: other cases, percent encoding, wide letters, invisible characters, dots of other
/// scripts.
fn disguised(host: &str, how: &[Index]) -> String {
    let mut out = String::new();
    for (at, letter) in host.chars().enumerate() {
        match how.get(at).map_or(0, |index| index.index(9)) {
            1 => out.extend(letter.to_uppercase()),
            2 => write!(out, "%{:02x}", u32::from(letter)).unwrap(),
            3 if letter.is_ascii_graphic() => out.extend(char::from_u32(u32::from(letter) + 0xfee0)),
            4 => out.extend(['\u{ad}', letter]),
            5 if letter == '.' => out.push('。'),
            6 => out.extend([letter, '\t']),
            7 => out.extend([letter, '\u{200b}']),
            _ => out.push(letter),
        }
    }
    out
}

/// The URL with this host, if it parses and passes the check.
fn reached(host: &str) -> Option<Url> {
    let url = Url::parse(&format!("http://{host}:8080/latest/meta-data")).ok()?;
    egress(&[], Arc::new(SystemResolver)).check(&url).is_ok().then_some(url)
}

proptest! {
    #[test]
    fn an_ipv4_address_is_public_or_in_the_registry(address in any4()) {
        let four = Ipv4Addr::from_bits(address);
        let found = address::non_public(IpAddr::V4(four));
        prop_assert_eq!(found.is_some(), special4(address), "{} is {:?}", four, found);
        // The standard library has some of the same rules.
        let known = four.is_private() || four.is_loopback() || four.is_link_local() || four.is_multicast() || four.is_broadcast()
            || four.is_documentation() || four.is_unspecified();
        prop_assert!(!known || found.is_some());
        // Embedded in IPv6 it is not public either.
        for (network, at) in EMBEDS_V4 {
            let six = Ipv6Addr::from_bits(network.parse::<Ipv6Addr>().unwrap().to_bits() | u128::from(address) << (96 - at));
            prop_assert!(found.is_none() || address::non_public(IpAddr::V6(six)).is_some(), "{four} as {six}");
        }
    }

    #[test]
    fn an_ipv6_address_is_public_only_in_assigned_space(address in prop_oneof![any::<u128>(), any::<u128>().prop_map(|rest| rest >> 3 | 1 << 125)]) {
        let six = Ipv6Addr::from_bits(address);
        if address::non_public(IpAddr::V6(six)).is_none() {
            prop_assert!(address >> 125 == 1 || six.to_ipv4_mapped().is_some() || address >> 32 == 0x0064_ff9b << 64, "{six}");
            prop_assert!(!six.is_loopback() && !six.is_multicast() && !six.is_unique_local() && !six.is_unicast_link_local(), "{six}");
        }
    }

    #[test]
    fn no_spelling_of_a_forbidden_address_is_reached(
        address in forbidden4(), parts in 0_usize..4, bases: [usize; 4], dots in 0_usize..2,
        how in prop::collection::vec(any::<Index>(), 0..16),
    ) {
        let host = format!("{}{}", spelled4(address, parts, bases), ".".repeat(dots));
        prop_assert_eq!(reached(&host), None, "{} for {}", host, Ipv4Addr::from_bits(address));
        let host = disguised(&host, &how);
        prop_assert_eq!(reached(&host), None, "{:?} for {}", host, Ipv4Addr::from_bits(address));
    }

    #[test]
    fn no_spelling_of_a_forbidden_ipv6_address_is_reached(address in forbidden6(), upper: bool, long: bool, tail: bool) {
        let mut host = address.to_string();
        if long {
            host = address.segments().map(|segment| format!("{segment:04x}")).join(":");
        }
        if tail {
            let [.., a, b, c, d] = address.octets();
            host = format!("{}:{a}.{b}.{c}.{d}", address.segments()[..6].iter().map(|segment| format!("{segment:x}")).collect::<Vec<_>>().join(":"));
        }
        let host = if upper { host.to_uppercase() } else { host };
        prop_assert_eq!(reached(&format!("[{host}]")), None, "{}", host);
    }

    #[test]
    fn no_spelling_of_a_forbidden_name_is_reached(name in select(&NAMES), dots in 0_usize..3, how in prop::collection::vec(any::<Index>(), 0..30)) {
        let host = format!("{}{}", disguised(name, &how), ".".repeat(dots));
        prop_assert_eq!(reached(&host), None, "{:?}", host);
    }

    #[test]
    fn an_exception_names_one_host_and_port_or_one_network(text in "[a-zA-Z0-9.:/@\\[\\]%?#\\\\ \t-]{0,24}|\\PC{0,12}:[0-9]{1,5}|[0-9a-f:.]{1,20}/[0-9]{1,3}") {
        match text.parse::<Allowed>() {
            Ok(Allowed::Host { host, port }) => {
                let (name, number) = text.rsplit_once(':').unwrap();
                prop_assert_eq!(number.parse::<u16>().ok(), Some(port));
                prop_assert!(!name.contains(':') || name.starts_with('[') && name.ends_with(']'), "{text}: which port is meant?");
                prop_assert!(!name.contains(['/', '?', '#', '@', '\\']), "{text}");
                let url = Url::parse(&format!("http://{host}:{port}/")).unwrap();
                prop_assert_eq!((url.host_str(), url.port_or_known_default()), (Some(&*host), Some(port)), "{}", text);
            }
            Ok(Allowed::Network { address, prefix }) => {
                prop_assert_eq!(text.split_once('/').map(|(address, prefix)| (address.parse().ok(), prefix.parse().ok())), Some((Some(address), Some(prefix))));
            }
            Err(fault) => {
                let quoted = format!("'{text}'");
                prop_assert!(fault.contains(&quoted), "{}", fault);
            }
        }
    }

    #[test]
    fn a_network_covers_addresses_with_its_prefix(network: u128, six: bool, prefix in 0_u32..129, flipped in 0_u32..128) {
        let bits = if six { 128 } else { 32 };
        let (prefix, flipped) = (prefix.min(bits), flipped % bits);
        let address = |bits: u128| if six { IpAddr::V6(Ipv6Addr::from_bits(bits)) } else { IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits & 0xffff_ffff).unwrap())) };
        let allowed = Allowed::Network { address: address(network), prefix: u8::try_from(prefix).unwrap() };
        prop_assert!(allowed.covers_address(address(network)));
        // The bit of that number, counted from the left.
        let other = address(network ^ 1 << (bits - 1 - flipped));
        prop_assert_eq!(allowed.covers_address(other), flipped >= prefix, "{:?} {}", allowed, other);
    }
}
