//! The headers of a UE's packet, read once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::rules::Flow;

/// IPv6 extension headers followed at most: RFC 8200 §4.1 lists seven, one of which may stand twice.
const EXTENSION_HEADERS_MAX: usize = 8;

/// Protocol numbers (IANA).
pub(crate) mod protocol {
    pub(crate) const ICMP: u8 = 1;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const ESP: u8 = 50;
    pub(crate) const AH: u8 = 51;
    pub(crate) const ICMPV6: u8 = 58;
    pub(crate) const SCTP: u8 = 132;
    pub(crate) const HOP_BY_HOP: u8 = 0;
    pub(crate) const ROUTING: u8 = 43;
    pub(crate) const FRAGMENT: u8 = 44;
    pub(crate) const DESTINATION_OPTIONS: u8 = 60;
}

/// The bits of ECN in a type of service or traffic class; both: congestion was met.
const ECN: u8 = 3;

/// Marks an IP packet: congestion was met (RFC 3168 §5). The header's checksum follows (RFC 1624).
pub(crate) fn mark_congestion(p: &mut [u8]) {
    match p {
        [first, tos, _, _, _, _, _, _, _, _, sum_high, sum_low, ..] if *first >> 4 == 4 => {
            let marked = *tos | ECN;
            let sum = !u16::from_be_bytes([*sum_high, *sum_low]);
            let (sum, carried) = sum.overflowing_add(u16::from(marked - *tos));
            [*sum_high, *sum_low] = (!(sum + u16::from(carried))).to_be_bytes();
            *tos = marked;
        }
        [first, second, ..] if *first >> 4 == 6 => *second |= ECN << 4,
        _ => {}
    }
}

/// What the pipeline needs of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InnerPacket {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// Source and destination port.
    ports: Option<(u16, u16)>,
    pub(crate) protocol: u8,
    pub(crate) tos: u8,
    flow_label: u32,
    spi: Option<u32>,
    /// Octets of the packet by its own header.
    pub(crate) octets: usize,
    /// Where the payload behind all IP headers begins.
    pub(crate) payload_at: usize,
}

impl InnerPacket {
    /// Whether its ends understand a mark for congestion, or it has one (RFC 3168 §5).
    pub(crate) fn knows_ecn(&self) -> bool {
        self.tos & ECN != 0
    }

    /// Reads the headers; `None` for what is not an IP packet, whole.
    #[inline]
    pub(crate) fn parse(p: &[u8]) -> Option<Self> {
        match p.first()? >> 4 {
            4 => Self::parse_ipv4::<true>(p),
            6 => Self::parse_ipv6::<true>(p),
            _ => None,
        }
    }

    /// Reads the headers of a packet whose end may be missing: one that an ICMP error is about.
    pub(crate) fn parse_cut(p: &[u8]) -> Option<Self> {
        match p.first()? >> 4 {
            4 => Self::parse_ipv4::<false>(p),
            6 => Self::parse_ipv6::<false>(p),
            _ => None,
        }
    }

    #[inline]
    fn parse_ipv4<const WHOLE: bool>(p: &[u8]) -> Option<Self> {
        let header: &[u8; 20] = p.first_chunk()?;
        let payload_at = usize::from(header[0] & 0xf) * 4;
        let octets = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if payload_at < 20 || octets < payload_at || (WHOLE && octets > p.len()) {
            return None;
        }
        let octets = octets.min(p.len());
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
        let later_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
        let mut inner = Self {
            source: Ipv4Addr::new(s0, s1, s2, s3).into(),
            destination: Ipv4Addr::new(d0, d1, d2, d3).into(),
            ports: None,
            protocol: header[9],
            tos: header[1],
            flow_label: 0,
            spi: None,
            octets,
            payload_at,
        };
        if !later_fragment {
            inner.read_transport(p.get(payload_at..octets)?);
        }
        Some(inner)
    }

    fn parse_ipv6<const WHOLE: bool>(p: &[u8]) -> Option<Self> {
        let header: &[u8; 40] = p.first_chunk()?;
        let octets = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        if WHOLE && octets > p.len() {
            return None;
        }
        let octets = octets.min(p.len());
        let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let address = |at: usize| header.get(at..at + 16).and_then(|a| <[u8; 16]>::try_from(a).ok());
        let mut inner = Self {
            source: Ipv6Addr::from(address(8)?).into(),
            destination: Ipv6Addr::from(address(24)?).into(),
            ports: None,
            protocol: header[6],
            tos: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            spi: None,
            octets,
            payload_at: 40,
        };
        for _ in 0..EXTENSION_HEADERS_MAX {
            let rest = p.get(inner.payload_at..octets)?;
            let length = match inner.protocol {
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                    rest.get(1).map(|n| (usize::from(*n) + 1) * 8)
                }
                protocol::FRAGMENT => {
                    let field = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]);
                    if field >> 3 != 0 {
                        inner.protocol = rest[0];
                        inner.payload_at += 8;
                        return Some(inner); // a later fragment: no transport header
                    }
                    Some(8)
                }
                _ => {
                    inner.read_transport(rest);
                    return Some(inner);
                }
            };
            inner.protocol = *rest.first()?;
            inner.payload_at += length?;
        }
        None
    }

    #[inline]
    fn read_transport(&mut self, payload: &[u8]) {
        let word =
            |at: usize| payload.get(at..at + 4).and_then(|w| w.try_into().ok()).map(u32::from_be_bytes);
        match self.protocol {
            protocol::TCP | protocol::UDP | protocol::SCTP => {
                self.ports = word(0).map(|w| ((w >> 16) as u16, w as u16));
            }
            protocol::ESP => self.spi = word(0),
            protocol::AH => self.spi = word(4),
            _ => {}
        }
    }

    /// A later fragment with the ports of its first, and no payload of its own to be read.
    pub(super) fn joined(self, ports: (u16, u16)) -> Self {
        Self { ports: Some(ports), payload_at: self.octets, ..self }
    }

    pub(crate) fn ports(&self) -> Option<(u16, u16)> {
        self.ports
    }

    /// The flow, seen from the UE that sent it.
    pub(crate) fn uplink(&self) -> Flow {
        Flow {
            remote: self.destination,
            local: self.source,
            ports: self.ports.map(|(s, d)| (d, s)),
            ..self.downlink()
        }
    }

    /// The flow, seen from the UE that receives it.
    pub(crate) fn downlink(&self) -> Flow {
        Flow {
            remote: self.source,
            local: self.destination,
            ports: self.ports,
            protocol: self.protocol,
            tos: self.tos,
            flow_label: self.flow_label,
            spi: self.spi,
        }
    }
}
