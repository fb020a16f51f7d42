//! Classifies addresses as public or not. All others are refused by default: loopback, private networks, the metadata
//! services of clouds, and the IPv6 forms of the same addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The names of metadata services, refused whatever they resolve to.
const METADATA_NAMES: [&str; 5] = ["metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"];

/// The category of an address that is not public.
pub(super) fn non_public(address: IpAddr) -> Option<&'static str> {
    match canonical(address) {
        IpAddr::V4(address) => non_public_v4(address),
        IpAddr::V6(address) => non_public_v6(address),
    }
}

/// Whether an address takes a network in the list of exceptions: an allowed host name does not suffice.
pub(super) fn needs_network_entry(address: IpAddr) -> bool {
    matches!(non_public(address), Some("link-local" | "metadata service" | "multicast" | "unspecified" | "reserved"))
}

/// Turns an IPv4-mapped IPv6 address into IPv4, as sockets do.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

pub(super) fn non_public_name(host: &str) -> Option<&'static str> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if METADATA_NAMES.contains(&host.as_str()) {
        return Some("metadata service");
    }
    (host == "localhost" || host.ends_with(".localhost")).then_some("loopback")
}

fn non_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    Some(match address.octets() {
        [0, 0, 0, 0] => "unspecified",
        [127, ..] => "loopback",
        [10, ..] | [192, 168, ..] => "private",
        [172, b, ..] if b & 0xf0 == 16 => "private",
        // Alibaba, Oracle and Azure.
        [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16] => "metadata service",
        [100, b, ..] if b & 0xc0 == 64 => "shared (CGNAT)",
        [169, 254, ..] => "link-local",
        [a, ..] if a & 0xf0 == 224 => "multicast",
        [0, ..] | [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => "reserved",
        [a, ..] if a >= 240 => "reserved",
        _ => return None,
    })
}

fn non_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    let four = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    Some(match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => "unspecified",
        [0, 0, 0, 0, 0, 0, 0, 1] => "loopback",
        // IPv4-compatible and IPv4-translated (SIIT) addresses: obsolete forms that embed an IPv4 address.
        [0, 0, 0, 0, 0 | 0xffff, 0, high, low] => return non_public_v4(four(high, low)).or(Some("reserved")),
        // NAT64 embeds an IPv4 address in the last bits (IPv6-only clusters reach the Internet by it), 6to4 in the second and
        // third group.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => return non_public_v4(four(high, low)),
        [0x64, 0xff9b, ..] => "private",
        [0xfd00, 0x0ec2, ..] => "metadata service",
        // Teredo, ORCHID, benchmarking; documentation.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => "reserved",
        [0x3fff, second, ..] if second < 0x1000 => "reserved",
        [first, ..] if first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfec0 => "private",
        [first, ..] if first & 0xffc0 == 0xfe80 => "link-local",
        [first, ..] if first & 0xff00 == 0xff00 => "multicast",
        [first, ..] if first & 0xe000 == 0x2000 => return None,
        _ => "reserved",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_classified() {
        for (address, expected) in [
            ("93.184.216.34", None),
            ("8.8.8.8", None),
            ("172.15.0.1", None),
            ("172.32.0.1", None),
            ("100.63.0.1", None),
            ("100.128.0.1", None),
            ("2606:4700:4700::1111", None),
            ("64:ff9b::808:808", None),
            ("::ffff:8.8.8.8", None),
            ("2002:0808:0808::1", None),
            ("0.0.0.0", Some("unspecified")),
            ("0.1.2.3", Some("reserved")),
            ("127.0.0.1", Some("loopback")),
            ("127.255.255.254", Some("loopback")),
            ("10.1.2.3", Some("private")),
            ("172.16.0.1", Some("private")),
            ("172.31.255.255", Some("private")),
            ("192.168.0.1", Some("private")),
            ("169.254.169.254", Some("link-local")),
            ("169.254.170.2", Some("link-local")),
            ("100.64.0.1", Some("shared (CGNAT)")),
            ("100.127.255.255", Some("shared (CGNAT)")),
            ("100.100.100.200", Some("metadata service")),
            ("168.63.129.16", Some("metadata service")),
            ("192.0.0.192", Some("metadata service")),
            ("192.0.2.1", Some("reserved")),
            ("198.18.0.1", Some("reserved")),
            ("198.51.100.7", Some("reserved")),
            ("203.0.113.7", Some("reserved")),
            ("192.88.99.1", Some("reserved")),
            ("224.0.0.1", Some("multicast")),
            ("239.255.255.255", Some("multicast")),
            ("240.0.0.1", Some("reserved")),
            ("255.255.255.255", Some("reserved")),
            ("::", Some("unspecified")),
            ("::1", Some("loopback")),
            ("::ffff:127.0.0.1", Some("loopback")),
            ("::ffff:10.0.0.1", Some("private")),
            ("::ffff:169.254.169.254", Some("link-local")),
            ("::127.0.0.1", Some("loopback")),
            ("::8.8.8.8", Some("reserved")),
            ("::ffff:0:127.0.0.1", Some("loopback")),
            ("64:ff9b::7f00:1", Some("loopback")),
            ("64:ff9b::a9fe:a9fe", Some("link-local")),
            ("64:ff9b:1::a00:1", Some("private")),
            ("2002:7f00:1::1", Some("loopback")),
            ("2002:a9fe:a9fe::1", Some("link-local")),
            ("2002:c0a8:1::", Some("private")),
            ("fd00:ec2::254", Some("metadata service")),
            ("fd12:3456::1", Some("private")),
            ("fc00::1", Some("private")),
            ("fe80::1", Some("link-local")),
            ("febf::1", Some("link-local")),
            ("fec0::1", Some("private")),
            ("ff02::1", Some("multicast")),
            ("2001::1", Some("reserved")),
            ("2001:20::1", Some("reserved")),
            ("2001:db8::1", Some("reserved")),
            ("3fff::1", Some("reserved")),
            ("5f00::1", Some("reserved")),
            ("100::1", Some("reserved")),
        ] {
            assert_eq!(non_public(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn loopback_and_metadata_names_are_recognised() {
        for (name, expected) in [
            ("localhost", Some("loopback")),
            ("LOCALHOST.", Some("loopback")),
            ("a.localhost", Some("loopback")),
            ("metadata.google.internal", Some("metadata service")),
            ("Metadata.Google.Internal.", Some("metadata service")),
            ("instance-data", Some("metadata service")),
            ("localhost.example.com", None),
            ("example.com", None),
        ] {
            assert_eq!(non_public_name(name), expected, "{name}");
        }
    }
}
