//! Extended protocol configuration options (TS 24.501 §9.11.4.6, contents TS 24.008 §10.5.6.3).

use core::net::{Ipv4Addr, Ipv6Addr};

use whimbrel_ids::{DecodeError, Reader};

use super::Octets;
use crate::codec::Ie;

/// Protocol or container identifiers (TS 24.008 §10.5.6.3.1). From the UE the address containers are empty
/// requests; from the network they hold one address each.
pub mod container_id {
    /// Internet protocol control protocol, a PPP packet without its header.
    pub const IPCP: u16 = 0x8021;
    /// Password authentication protocol.
    pub const PAP: u16 = 0xc023;
    /// Challenge handshake authentication protocol.
    pub const CHAP: u16 = 0xc223;
    /// P-CSCF IPv6 address (request).
    pub const P_CSCF_IPV6: u16 = 0x0001;
    /// DNS server IPv6 address (request).
    pub const DNS_SERVER_IPV6: u16 = 0x0003;
    /// IP address allocation via NAS signalling (from the UE).
    pub const ADDRESS_VIA_NAS: u16 = 0x000a;
    /// IPv4 address allocation via DHCPv4 (from the UE).
    pub const ADDRESS_VIA_DHCPV4: u16 = 0x000b;
    /// P-CSCF IPv4 address (request).
    pub const P_CSCF_IPV4: u16 = 0x000c;
    /// DNS server IPv4 address (request).
    pub const DNS_SERVER_IPV4: u16 = 0x000d;
    /// IPv4 link MTU (request).
    pub const IPV4_LINK_MTU: u16 = 0x0010;
    /// P-CSCF re-selection support (from the UE).
    pub const P_CSCF_RESELECTION: u16 = 0x0012;
    /// PDU session identity (from the UE, over EPS).
    pub const PDU_SESSION_ID: u16 = 0x001a;
    /// PDU session address lifetime (from the network), in seconds.
    pub const PDU_SESSION_ADDRESS_LIFETIME: u16 = 0x001e;
}

/// The sender of the options: a few containers are coded by direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcoDirection {
    /// From the UE.
    FromUe,
    /// From the network.
    ToUe,
}

/// Containers that, from the network, have a length of two octets (TS 24.008 §10.5.6.3.1): QoS rules, QoS flow
/// descriptions, ATSSS response, DNS server security information, ECS address. From the UE the same identifiers are
/// requests with a length of one octet.
const TWO_OCTET_LENGTH_TO_UE: &[u16] = &[0x0023, 0x0024, 0x0030, 0x0031, 0x0032];
/// Service-level-AA container: a length of two octets from either side.
const SERVICE_LEVEL_AA: u16 = 0x0041;

/// One protocol or container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Which one (see [`container_id`]).
    pub id: u16,
    /// Contents of the container.
    pub contents: Box<[u8]>,
}

impl Container {
    /// A container of octets.
    pub fn new(id: u16, contents: impl Into<Box<[u8]>>) -> Self {
        Self { id, contents: contents.into() }
    }

    /// A container without contents: a request.
    pub fn request(id: u16) -> Self {
        Self { id, contents: Box::default() }
    }

    /// DNS server IPv4 address.
    pub fn dns_ipv4(address: Ipv4Addr) -> Self {
        Self::new(container_id::DNS_SERVER_IPV4, address.octets())
    }

    /// DNS server IPv6 address.
    pub fn dns_ipv6(address: Ipv6Addr) -> Self {
        Self::new(container_id::DNS_SERVER_IPV6, address.octets())
    }

    /// P-CSCF IPv4 address.
    pub fn p_cscf_ipv4(address: Ipv4Addr) -> Self {
        Self::new(container_id::P_CSCF_IPV4, address.octets())
    }

    /// P-CSCF IPv6 address.
    pub fn p_cscf_ipv6(address: Ipv6Addr) -> Self {
        Self::new(container_id::P_CSCF_IPV6, address.octets())
    }

    /// IPv4 link MTU in octets.
    pub fn ipv4_link_mtu(mtu: u16) -> Self {
        Self::new(container_id::IPV4_LINK_MTU, mtu.to_be_bytes())
    }

    /// PDU session address lifetime in seconds.
    pub fn address_lifetime(seconds: u16) -> Self {
        Self::new(container_id::PDU_SESSION_ADDRESS_LIFETIME, seconds.to_be_bytes())
    }

    /// An IPCP packet.
    pub fn ipcp(packet: &Ipcp) -> Self {
        Self::new(container_id::IPCP, packet.octets())
    }

    /// The contents as an IPv4 address, if they are one.
    pub fn as_ipv4(&self) -> Option<Ipv4Addr> {
        <[u8; 4]>::try_from(&*self.contents).ok().map(Ipv4Addr::from)
    }

    /// The contents as an IPv6 address, if they are one.
    pub fn as_ipv6(&self) -> Option<Ipv6Addr> {
        <[u8; 16]>::try_from(&*self.contents).ok().map(Ipv6Addr::from)
    }

    /// The contents as a number of 16 bits, if they are one.
    pub fn as_u16(&self) -> Option<u16> {
        <[u8; 2]>::try_from(&*self.contents).ok().map(u16::from_be_bytes)
    }
}

/// Extended protocol configuration options: octets as received, read container by container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendedPco(Octets<1, 65535>);

impl ExtendedPco {
    /// The first octet: no extension, PPP for use with IP PDU session type.
    const HEAD: u8 = 0x80;

    /// Of containers; `None` if they do not fit, or one exceeds its length field.
    pub fn new(direction: PcoDirection, containers: &[Container]) -> Option<Self> {
        let mut octets = vec![Self::HEAD];
        for container in containers {
            octets.extend_from_slice(&container.id.to_be_bytes());
            let len = container.contents.len();
            if wide(direction, container.id) {
                octets.extend_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
            } else {
                octets.push(u8::try_from(len).ok()?);
            }
            octets.extend_from_slice(&container.contents);
        }
        Octets::new(octets).map(Self)
    }

    /// The containers in their order, unknown ones too; reading ends before one that is truncated.
    pub fn containers(&self, direction: PcoDirection) -> impl Iterator<Item = Container> {
        let mut r = Reader::new(self.0.get(1..).unwrap_or_default());
        core::iter::from_fn(move || next_container(direction, &mut r).ok())
    }

    /// The octets as received or built.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }
}

fn wide(direction: PcoDirection, id: u16) -> bool {
    id == SERVICE_LEVEL_AA || direction == PcoDirection::ToUe && TWO_OCTET_LENGTH_TO_UE.contains(&id)
}

fn next_container(direction: PcoDirection, r: &mut Reader<'_>) -> Result<Container, DecodeError> {
    const IE: &str = "extended protocol configuration options";
    let id = r.u16(IE)?;
    let len = if wide(direction, id) { usize::from(r.u16(IE)?) } else { usize::from(r.u8(IE)?) };
    Ok(Container::new(id, r.take(len, IE)?))
}

impl Ie for ExtendedPco {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Octets::decode(r).map(Self)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}

/// An IPCP packet as UEs use it: to request the DNS servers and to get them (RFC 1332, options of RFC 1877).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipcp {
    /// Code: 1 Configure-Request, 2 Configure-Ack, 3 Configure-Nak, 4 Configure-Reject.
    pub code: u8,
    /// Identifier, repeated by the answer.
    pub identifier: u8,
    /// Options as type and value, in their order.
    pub options: Vec<(u8, Box<[u8]>)>,
}

impl Ipcp {
    /// The code Configure-Request (RFC 1661).
    pub const CONFIGURE_REQUEST: u8 = 1;
    /// Configure-Nak: the values that the network gives.
    pub const CONFIGURE_NAK: u8 = 3;
    /// Option: primary DNS server address.
    pub const PRIMARY_DNS: u8 = 129;
    /// Option: secondary DNS server address.
    pub const SECONDARY_DNS: u8 = 131;

    /// Reads a packet; `None` if its length or that of an option is wrong.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let mut r = Reader::new(octets);
        let [code, identifier] = r.array("IPCP").ok()?;
        let len = usize::from(r.u16("IPCP").ok()?);
        let mut r = r.sub(len.checked_sub(4)?, "IPCP").ok()?;
        let mut options = Vec::new();
        while !r.is_empty() {
            let [kind, len] = r.array("IPCP option").ok()?;
            let value = r.take(usize::from(len).checked_sub(2)?, "IPCP option").ok()?;
            options.push((kind, value.into()));
        }
        Some(Self { code, identifier, options })
    }

    /// The octets of the packet; an option that exceeds its length field is left out.
    pub fn octets(&self) -> Vec<u8> {
        let mut out = vec![self.code, self.identifier, 0, 0];
        for (kind, value) in &self.options {
            if let Ok(len) = u8::try_from(value.len() + 2) {
                out.extend_from_slice(&[*kind, len]);
                out.extend_from_slice(value);
            }
        }
        out.truncate(usize::from(u16::MAX));
        let len = out.len() as u16;
        out[2..4].copy_from_slice(&len.to_be_bytes());
        out
    }

    /// The address that an option holds.
    pub fn address(&self, kind: u8) -> Option<Ipv4Addr> {
        let (_, value) = self.options.iter().find(|(k, _)| *k == kind)?;
        <[u8; 4]>::try_from(&**value).ok().map(Ipv4Addr::from)
    }

    /// The answer to a Configure-Request that asks for DNS servers: a Configure-Nak with those that are known.
    /// `None` if it asks for none of them.
    pub fn nak_with_dns(&self, primary: Option<Ipv4Addr>, secondary: Option<Ipv4Addr>) -> Option<Self> {
        let answer = |kind: u8| match kind {
            Self::PRIMARY_DNS => primary,
            Self::SECONDARY_DNS => secondary,
            _ => None,
        };
        let options: Vec<(u8, Box<[u8]>)> = self
            .options
            .iter()
            .filter_map(|(kind, _)| Some((*kind, answer(*kind)?.octets().into())))
            .collect();
        let asked = self.code == Self::CONFIGURE_REQUEST && !options.is_empty();
        asked.then_some(Self { code: Self::CONFIGURE_NAK, identifier: self.identifier, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 24.008 §10.5.6.3.1
    fn length_is_of_two_octets_by_container_and_direction() {
        let both = [Container::request(0x0023), Container::new(0x0041, [7]), Container::request(0x000d)];
        let from_ue = ExtendedPco::new(PcoDirection::FromUe, &both).unwrap();
        assert_eq!(from_ue.octets(), [0x80, 0, 0x23, 0, 0, 0x41, 0, 1, 7, 0, 0x0d, 0]);
        let to_ue = ExtendedPco::new(PcoDirection::ToUe, &both).unwrap();
        assert_eq!(to_ue.octets(), [0x80, 0, 0x23, 0, 0, 0, 0x41, 0, 1, 7, 0, 0x0d, 0]);
        assert!(from_ue.containers(PcoDirection::FromUe).eq(both.iter().cloned()));
        assert!(to_ue.containers(PcoDirection::ToUe).eq(both.iter().cloned()));
        let long = Container::new(0x000d, vec![0; 256]);
        assert_eq!(
            ExtendedPco::new(PcoDirection::ToUe, &[long]),
            None,
            "longer than one octet of length can say"
        );
    }
}
