//! Where a broker whose domain a UE chose may be reached: at public addresses that are not this operator's own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is one of the Internet (IANA's registries of special-purpose addresses, RFC 6890).
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => is_public_v4(a),
        IpAddr::V6(a) => is_public_v6(a),
    }
}

fn is_public_v4(a: Ipv4Addr) -> bool {
    let [first, second, third, _] = a.octets();
    let special = a.is_private()
        || a.is_loopback()
        || a.is_link_local()
        || a.is_multicast()
        || a.is_documentation()
        || first == 0
        || first >= 240
        // Between a carrier and its customers (RFC 6598).
        || (first == 100 && second & 0xc0 == 64)
        // IETF protocol assignments, and benchmarks (RFC 2544).
        || (first, second, third) == (192, 0, 0)
        || (first == 198 && second & 0xfe == 18);
    !special
}

fn is_public_v6(a: Ipv6Addr) -> bool {
    let segments = a.segments();
    // Global unicast is 2000::/3; in it, 2001::/23 is for protocols, 2001:db8::/32 and 3fff::/20 for documentation, and 6to4 (2002::/16)
    // leads to any IPv4 address.
    let global = segments[0] & 0xe000 == 0x2000;
    let protocols = segments[0] == 0x2001 && segments[1] < 0x0200;
    let documentation =
        (segments[0] == 0x2001 && segments[1] == 0x0db8) || (segments[0] == 0x3fff && segments[1] < 0x1000);
    global && !protocols && !documentation && segments[0] != 0x2002
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for public in ["8.8.8.8", "193.0.6.139", "2a00:1450::1", "2001:4860:4860::8888"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for special in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "192.0.0.8",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "2001:db8::1",
            "2002:7f00:1::1",
            "64:ff9b::7f00:1",
        ] {
            assert!(!is_public(special.parse().unwrap()), "{special}");
        }
    }
}
