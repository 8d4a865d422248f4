//! IEs of forwarding: interfaces, Apply Action, outer header creation and removal.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_ids::{DecodeErrorKind, Reader, Teid};

use crate::codec::{Ie, code, flags};
use crate::error::Error;
use crate::ie::identity::text;

code! {
    /// The side that packets come from (TS 29.244 §8.2.2).
    pub enum SourceInterface(mask 0xf): "Source Interface" {
        /// The radio side (N3, N9 towards the access).
        Access = 0,
        /// The core side (N6, N9 towards the anchor).
        Core = 1,
        /// SGi-LAN or N6-LAN.
        N6Lan = 2,
        /// The CP function.
        CpFunction = 3,
        /// Inside a 5G virtual network group.
        VnInternal = 4,
    }
    /// The side that packets go to (TS 29.244 §8.2.24).
    pub enum DestinationInterface(mask 0xf): "Destination Interface" {
        /// The radio side.
        Access = 0,
        /// The core side.
        Core = 1,
        /// SGi-LAN or N6-LAN.
        N6Lan = 2,
        /// The CP function.
        CpFunction = 3,
        /// The lawful interception function.
        LiFunction = 4,
        /// Inside a 5G virtual network group.
        VnInternal = 5,
    }
    /// Type of a PDN connection or PDU session (TS 29.244 §8.2.79).
    pub enum PdnType(mask 0x7): "PDN Type" {
        /// A session of type IPv4.
        Ipv4 = 1,
        /// A session of type IPv6.
        Ipv6 = 2,
        /// A session of both IP types.
        Ipv4v6 = 3,
        /// A session of unstructured data.
        NonIp = 4,
        /// A session of Ethernet frames.
        Ethernet = 5,
    }
}

flags! {
    /// What to do with packets (TS 29.244 §8.2.26).
    pub struct ApplyAction(u16, 2): "Apply Action" {
        /// The packet is dropped.
        DROP = 5 / 1,
        /// The packet is forwarded.
        FORW = 5 / 2,
        /// The packet is buffered.
        BUFF = 5 / 3,
        /// Notify the CP function of the first buffered packet.
        NOCP = 5 / 4,
        /// The packet is duplicated.
        DUPL = 5 / 5,
        /// Accept IP multicast.
        IPMA = 5 / 6,
        /// Deny IP multicast.
        IPMD = 5 / 7,
        /// Duplicate for redundant transmission.
        DFRT = 5 / 8,
        /// Eliminate duplicates of redundant transmission.
        EDRT = 6 / 1,
        /// Notify of the first buffered packet of each flow.
        BDPN = 6 / 2,
        /// Notify of the first discarded packet.
        DDPN = 6 / 3,
    }
    /// Flags of a Session Establishment Request (TS 29.244 §8.2.136).
    pub struct SessionEstablishmentFlags(u8, 1): "PFCPSEReq-Flags" {
        /// Restoration Indication: a session is re-established with its former F-TEIDs and UE IP addresses.
        RESTI = 5 / 1,
        /// Stop of Usage Measurement to Pause Charging: the UP function stops usage measurement of the URRs
        /// to which pausing applies.
        SUMPC = 5 / 2,
    }
    /// Flags of a Session Modification Request (TS 29.244 §8.2.31).
    pub struct SessionModificationFlags(u8, 1): "PFCPSMReq-Flags" {
        /// Drop the packets buffered for the session.
        DROBU = 5 / 1,
        /// Send end markers to the old tunnel before switching.
        SNDEM = 5 / 2,
        /// Report all URRs at once.
        QAURR = 5 / 3,
    }
    /// Flags of a Session Report Response (TS 29.244 §8.2.32).
    pub struct SessionReportResponseFlags(u8, 1): "PFCPSRRsp-Flags" {
        /// Drop the packets buffered for the session.
        DROBU = 5 / 1,
    }
    /// Flags of a Session Report Request (TS 29.244 §8.2.119).
    pub struct SessionReportRequestFlags(u8, 1): "PFCPSRReq-Flags" {
        /// The UP function has deleted the session.
        PSDBU = 5 / 1,
    }
}

/// Which 3GPP interface a source or destination is (TS 29.244 §8.2.118).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceType(pub u8);

impl InterfaceType {
    /// N3, 3GPP access.
    pub const N3: Self = Self(11);
    /// N3 for data forwarding.
    pub const N3_FORWARDING: Self = Self(14);
    /// The interface N9, between UPFs.
    pub const N9: Self = Self(15);
    /// The interface N6, to data networks.
    pub const N6: Self = Self(17);
}

impl Ie for InterfaceType {
    const NAME: &'static str = "3GPP Interface Type";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(r.u8(Self::NAME)? & 0x3f))
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }
}

/// Names a forwarding policy of the UP function (TS 29.244 §8.2.23).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardingPolicy(pub Box<str>);

impl Ie for ForwardingPolicy {
    const NAME: &'static str = "Forwarding Policy";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let len = r.u8(Self::NAME)?;
        let at = r.offset();
        Ok(Self(text(r.take(len.into(), Self::NAME)?, Self::NAME, at)?.into()))
    }
    fn write(&self, out: &mut Vec<u8>) {
        let name = &self.0.as_bytes()[..self.0.len().min(255)];
        out.push(name.len() as u8);
        out.extend_from_slice(name);
    }
}

/// Type of service or traffic class to set in outgoing outer headers, and the mask of the bits to set (TS
/// 29.244 §8.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportLevelMarking {
    /// The octet's value (a DSCP is its upper six bits).
    pub value: u8,
    /// Which bits of it count.
    pub mask: u8,
}

impl Ie for TransportLevelMarking {
    const NAME: &'static str = "Transport Level Marking";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self { value: r.u8(Self::NAME)?, mask: r.u8(Self::NAME)? })
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.value, self.mask]);
    }
}

/// The outer header that forwarded packets get (TS 29.244 §8.2.56).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OuterHeaderCreation {
    /// GTP-U over UDP.
    Gtpu {
        /// The tunnel at the peer.
        teid: Teid,
        /// The peer's IPv4 address.
        ipv4: Option<Ipv4Addr>,
        /// The peer's IPv6 address; where both are there, the UP function takes either.
        ipv6: Option<Ipv6Addr>,
    },
    /// A header of UDP.
    Udp {
        /// The peer's address.
        address: IpAddr,
        /// The peer's port.
        port: u16,
    },
    /// An IP header alone.
    Ip {
        /// The peer's address.
        address: IpAddr,
    },
}

impl OuterHeaderCreation {
    /// A GTP-U tunnel to one address.
    pub const fn gtpu(teid: Teid, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(a) => Self::Gtpu { teid, ipv4: Some(a), ipv6: None },
            IpAddr::V6(a) => Self::Gtpu { teid, ipv4: None, ipv6: Some(a) },
        }
    }
}

impl Ie for OuterHeaderCreation {
    const NAME: &'static str = "Outer Header Creation";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let at = r.offset();
        let bad = Error::new(DecodeErrorKind::InvalidValue, Self::NAME, at);
        let d = r.u8(Self::NAME)?;
        r.u8(Self::NAME)?; // N6, N19 and low-layer SSM indications: not used here
        let teid = if d & 0x03 != 0 { Some(Teid(r.u32(Self::NAME)?)) } else { None };
        let ipv4: Option<Ipv4Addr> =
            if d & 0b1_0101 != 0 { Some(r.array::<4>(Self::NAME)?.into()) } else { None };
        let ipv6: Option<Ipv6Addr> =
            if d & 0b10_1010 != 0 { Some(r.array::<16>(Self::NAME)?.into()) } else { None };
        if let Some(teid) = teid {
            return Ok(Self::Gtpu { teid, ipv4, ipv6 });
        }
        let address = ipv4.map(IpAddr::V4).or(ipv6.map(IpAddr::V6)).ok_or(bad)?;
        Ok(if d & 0x0c != 0 { Self::Udp { address, port: r.u16(Self::NAME)? } } else { Self::Ip { address } })
    }
    fn write(&self, out: &mut Vec<u8>) {
        let put = |out: &mut Vec<u8>, address: &IpAddr| match address {
            IpAddr::V4(a) => out.extend_from_slice(&a.octets()),
            IpAddr::V6(a) => out.extend_from_slice(&a.octets()),
        };
        match self {
            Self::Gtpu { teid, ipv4, ipv6 } => {
                out.extend_from_slice(&[u8::from(ipv4.is_some()) | u8::from(ipv6.is_some()) << 1, 0]);
                out.extend_from_slice(&teid.0.to_be_bytes());
                for a in ipv4.map(IpAddr::V4).iter().chain(ipv6.map(IpAddr::V6).iter()) {
                    put(out, a);
                }
            }
            Self::Udp { address, port } => {
                out.extend_from_slice(&[if address.is_ipv4() { 0x04 } else { 0x08 }, 0]);
                put(out, address);
                out.extend_from_slice(&port.to_be_bytes());
            }
            Self::Ip { address } => {
                out.extend_from_slice(&[if address.is_ipv4() { 0x10 } else { 0x20 }, 0]);
                put(out, address);
            }
        }
    }
}

code! {
    /// The outer header to remove from received packets (TS 29.244 §8.2.64).
    pub enum OuterHeaderRemovalDescription(mask 0xff): "Outer Header Removal" {
        /// Removal of GTP-U, UDP and IPv4.
        GtpuUdpIpv4 = 0,
        /// Removal of GTP-U, UDP and IPv6.
        GtpuUdpIpv6 = 1,
        /// Removal of UDP and IPv4.
        UdpIpv4 = 2,
        /// Removal of UDP and IPv6.
        UdpIpv6 = 3,
        /// Removal of IPv4 alone.
        Ipv4 = 4,
        /// Removal of IPv6 alone.
        Ipv6 = 5,
        /// GTP-U/UDP/IP, either version.
        GtpuUdpIp = 6,
        /// A VLAN S-TAG.
        VlanSTag = 7,
        /// S-TAG and C-TAG.
        STagAndCTag = 8,
    }
}

/// Outer Header Removal (TS 29.244 §8.2.64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterHeaderRemoval {
    /// The header that is removed.
    pub description: OuterHeaderRemovalDescription,
    /// Also delete the GTP-U PDU Session Container extension header.
    pub delete_pdu_session_container: bool,
}

impl From<OuterHeaderRemovalDescription> for OuterHeaderRemoval {
    fn from(description: OuterHeaderRemovalDescription) -> Self {
        Self { description, delete_pdu_session_container: false }
    }
}

impl Ie for OuterHeaderRemoval {
    const NAME: &'static str = "Outer Header Removal";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let description = OuterHeaderRemovalDescription::read(r)?;
        let delete_pdu_session_container = !r.is_empty() && r.u8(Self::NAME)? & 1 != 0;
        Ok(Self { description, delete_pdu_session_container })
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.description as u8);
        if self.delete_pdu_session_container {
            out.push(1);
        }
    }
}
