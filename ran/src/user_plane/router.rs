//! IPv6 prefix discovery of a UE: router solicitation and advertisement (RFC 4861 §4.1, §4.2; TS 23.501 §5.8.2.2).

use core::net::Ipv6Addr;
use core::time::Duration;

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

const NEXT_HEADER_ICMPV6: u8 = 58;
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const OPTION_PREFIX: u8 = 3;
const OPTION_MTU: u8 = 5;
const OPTION_RDNSS: u8 = 25;
/// Octets of an IPv6 header.
const IPV6_OCTETS: usize = 40;
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// A router advertisement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterAdvertisement {
    /// The prefix of 64 bits, the rest zero.
    pub prefix: Ipv6Addr,
    /// Its preferred lifetime.
    pub preferred: Duration,
    /// DNS servers (RFC 8106).
    pub dns: Vec<Ipv6Addr>,
    /// Link MTU in octets.
    pub mtu: Option<u32>,
}

/// The link-local address of an interface identifier.
pub(crate) fn link_local(interface_id: [u8; 8]) -> Ipv6Addr {
    with_interface_id(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), interface_id)
}

/// The address of an interface identifier within a prefix of 64 bits.
pub(crate) fn with_interface_id(prefix: Ipv6Addr, interface_id: [u8; 8]) -> Ipv6Addr {
    let mut octets = prefix.octets();
    octets[8..].copy_from_slice(&interface_id);
    octets.into()
}

/// A router solicitation from a link-local address.
pub(crate) fn solicitation(from: Ipv6Addr) -> Vec<u8> {
    let mut message = [ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    let sum = checksum(from, ALL_ROUTERS, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0, 0, message.len() as u8, NEXT_HEADER_ICMPV6, 255];
    packet.extend_from_slice(&from.octets());
    packet.extend_from_slice(&ALL_ROUTERS.octets());
    packet.extend_from_slice(&message);
    packet
}

/// Whether a packet is a router advertisement, and its contents if valid (RFC 4861 §6.1.2).
pub(crate) fn advertisement(packet: &[u8]) -> Option<Result<RouterAdvertisement, DecodeError>> {
    let is_icmpv6 = packet.first().is_some_and(|o| o >> 4 == 6) && packet.get(6) == Some(&NEXT_HEADER_ICMPV6);
    (is_icmpv6 && packet.get(IPV6_OCTETS) == Some(&ROUTER_ADVERTISEMENT)).then(|| read(packet))
}

fn read(packet: &[u8]) -> Result<RouterAdvertisement, DecodeError> {
    let mut r = Reader::new(packet);
    let invalid = |r: &Reader<'_>, ie| r.error(DecodeErrorKind::InvalidValue, ie);
    r.u32("version, traffic class, flow label")?;
    let len = r.u16("payload length")?;
    r.u8("next header")?;
    if r.u8("hop limit")? != 255 {
        return Err(invalid(&r, "hop limit"));
    }
    let from = Ipv6Addr::from(r.array::<16>("source")?);
    let to = Ipv6Addr::from(r.array::<16>("destination")?);
    let mut r = r.sub(usize::from(len), "payload")?;
    if !from.is_unicast_link_local() {
        return Err(invalid(&r, "source"));
    }
    if checksum(from, to, r.rest()) != 0 {
        return Err(invalid(&r, "checksum"));
    }
    r.take(16, "router advertisement")?;
    let (mut prefix, mut dns, mut mtu) = (None, Vec::new(), None);
    while !r.is_empty() {
        let kind = r.u8("option")?;
        let units = usize::from(r.u8("option length")?);
        if units == 0 {
            return Err(invalid(&r, "option length"));
        }
        let mut option = r.sub(units * 8 - 2, "option")?;
        match kind {
            OPTION_PREFIX => prefix = prefix.or(read_prefix(&mut option)?),
            OPTION_MTU => {
                option.u16("reserved")?;
                mtu = Some(option.u32("MTU")?);
            }
            OPTION_RDNSS => {
                option.take(6, "lifetime")?;
                while option.remaining() >= 16 {
                    dns.push(option.array::<16>("RDNSS")?.into());
                }
            }
            _ => {}
        }
    }
    let missing = r.error(DecodeErrorKind::MissingMandatory, "prefix information");
    let (prefix, preferred) = prefix.ok_or(missing)?;
    Ok(RouterAdvertisement { prefix, preferred, dns, mtu })
}

/// A prefix of 64 bits for stateless configuration (RFC 4861 §4.6.2).
fn read_prefix(option: &mut Reader<'_>) -> Result<Option<(Ipv6Addr, Duration)>, DecodeError> {
    let len = option.u8("prefix length")?;
    let autonomous = option.u8("flags")? & 0x40 != 0;
    option.u32("valid lifetime")?;
    let preferred = Duration::from_secs(u64::from(option.u32("preferred lifetime")?));
    option.u32("reserved")?;
    let prefix = with_interface_id(option.array::<16>("prefix")?.into(), [0; 8]);
    Ok((len == 64 && autonomous).then_some((prefix, preferred)))
}

/// The checksum of an ICMPv6 message (RFC 4443 §2.3): zero over one that holds the right sum.
fn checksum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let mut sum = message.len() as u64 + u64::from(NEXT_HEADER_ICMPV6);
    let mut add = |octets: &[u8]| {
        for pair in octets.chunks(2) {
            sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
    };
    add(&from.octets());
    add(&to.octets());
    add(message);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// An advertisement of 2001:db8:0:7::/64.
    pub(in crate::user_plane) fn advertisement() -> Vec<u8> {
        advertise(prefix_option())
    }

    pub(in crate::user_plane) fn advertise(mut options: Vec<u8>) -> Vec<u8> {
        let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        let to = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let mut message = vec![134, 0, 0, 0, 255, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
        message.append(&mut options);
        let sum = checksum(from, to, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut packet = vec![0x60, 0, 0, 0, 0, message.len() as u8, 58, 255];
        packet.extend_from_slice(&from.octets());
        packet.extend_from_slice(&to.octets());
        packet.extend_from_slice(&message);
        packet
    }

    pub(in crate::user_plane) fn prefix_option() -> Vec<u8> {
        let mut option = vec![3, 4, 64, 0x40, 0, 0, 0x0e, 0x10, 0, 0, 0x07, 0x08, 0, 0, 0, 0];
        option.extend_from_slice(&Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 0).octets());
        option
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{advertise, prefix_option};
    use super::*;

    #[test] // RFC 4861 §4.2, §4.6.2; RFC 8106 §5.1
    fn advertisement_with_prefix_mtu_and_dns() {
        let dns = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x53);
        let mut options = prefix_option();
        options.extend_from_slice(&[5, 1, 0, 0, 0, 0, 5, 120]);
        options.extend_from_slice(&[25, 3, 0, 0, 0, 0, 0, 60]);
        options.extend_from_slice(&dns.octets());
        let m = advertisement(&advertise(options)).unwrap().unwrap();
        assert_eq!(m.prefix, Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 0));
        assert_eq!((m.mtu, m.dns, m.preferred), (Some(1400), vec![dns], Duration::from_secs(1800)));
    }

    #[test] // RFC 4861 §6.1.2
    fn advertisements_that_are_not_believed() {
        let right = advertise(prefix_option());
        for (at, octet) in [(7, 64), (8, 0x20), (43, 0xaa)] {
            let mut wrong = right.clone();
            wrong[at] = octet;
            assert!(advertisement(&wrong).unwrap().is_err(), "octet {at}");
        }
        assert!(advertisement(&advertise(Vec::new())).unwrap().is_err());
        assert!(advertisement(&solicitation(link_local([1; 8]))).is_none());
        assert!(advertisement(&[]).is_none());
    }

    #[test] // RFC 4443 §2.3
    fn solicitation_has_a_right_checksum() {
        let from = link_local([0, 0, 0, 0, 0, 0, 0, 9]);
        let packet = solicitation(from);
        assert_eq!(checksum(from, ALL_ROUTERS, &packet[IPV6_OCTETS..]), 0);
    }
}
