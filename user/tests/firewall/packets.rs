//! Packets from their fields: written whole, with every checksum computed.

use std::net::IpAddr;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;
pub(crate) const FIN: u8 = 1;

/// A part of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    First(u16),
    Later(u16),
}

impl Part {
    /// With an identification that no other port has.
    pub(crate) fn of_port(self, port: u16) -> Self {
        match self {
            Self::Whole => self,
            Self::First(id) => Self::First(id ^ port << 2),
            Self::Later(id) => Self::Later(id ^ port << 2),
        }
    }
}

/// A packet without options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    /// Of an ICMP query, type (for IPv4) and identifier.
    pub(crate) ports: (u16, u16),
    pub(crate) flags: u8,
    pub(crate) payload: usize,
    pub(crate) part: Part,
    /// UDP without a checksum, as IPv4 allows.
    pub(crate) unsummed: bool,
}

/// An ICMP error about a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) about: Plain,
    /// Octets of it that are shown.
    pub(crate) shown: usize,
}

fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for w in part.chunks(2) {
            sum += u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn octets(a: IpAddr) -> Vec<u8> {
    match a {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// The headers of IP before a payload.
fn ip(source: IpAddr, destination: IpAddr, protocol: u8, part: Part, payload: &[u8]) -> Vec<u8> {
    let (id, field) = match part {
        Part::Whole => (0, 0),
        Part::First(id) => (id, 1),
        Part::Later(id) => (id, 8 << 3),
    };
    let ends = [octets(source), octets(destination)].concat();
    let mut p = match source {
        IpAddr::V4(_) => {
            let [a, b] = (20 + payload.len() as u16).to_be_bytes();
            let flags: u16 = if field & 1 != 0 { 0x2000 } else { field >> 3 };
            let ([c, d], [e, f]) = (id.to_be_bytes(), flags.to_be_bytes());
            let mut h = [&[0x45, 0, a, b, c, d, e, f, 64, protocol, 0, 0][..], &ends].concat();
            let s = sum(&[&h]);
            h[10..12].copy_from_slice(&s.to_be_bytes());
            h
        }
        IpAddr::V6(_) => {
            let extension = match part {
                Part::Whole => vec![],
                _ => [&[protocol, 0][..], &field.to_be_bytes(), &[0, 0], &id.to_be_bytes()].concat(),
            };
            let [a, b] = ((extension.len() + payload.len()) as u16).to_be_bytes();
            let next = if extension.is_empty() { protocol } else { 44 };
            [&[0x60, 0, 0, 0, a, b, next, 64][..], &ends, &extension].concat()
        }
    };
    p.extend_from_slice(payload);
    p
}

impl Plain {
    pub(crate) fn octets(&self) -> Vec<u8> {
        let Self { source, destination, protocol, ports, payload, .. } = *self;
        let body = vec![0xa5; payload];
        if let Part::Later(_) = self.part {
            return ip(source, destination, protocol, self.part, &body);
        }
        let ([a, b], [c, d]) = (ports.0.to_be_bytes(), ports.1.to_be_bytes());
        let (mut t, at) = match protocol {
            TCP => (vec![a, b, c, d, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, self.flags, 1, 0, 0, 0, 0, 0], Some(16)),
            UDP => {
                let [e, f] = (8 + payload as u16).to_be_bytes();
                (vec![a, b, c, d, e, f, 0, 0], (!self.unsummed).then_some(6))
            }
            ICMP | ICMPV6 => (vec![a, 0, 0, 0, c, d, 0, 1], Some(2)),
            _ => (vec![], None),
        };
        t.extend_from_slice(&body);
        if let Some(at) = at {
            let ends = [octets(source), octets(destination)].concat();
            let pseudo = [&ends[..], &[0, protocol], &(t.len() as u16).to_be_bytes()].concat();
            let s = sum(&[if protocol == ICMP { &[] } else { &pseudo }, &t]);
            let s = if protocol == UDP && s == 0 { 0xffff } else { s };
            t[at..at + 2].copy_from_slice(&s.to_be_bytes());
        }
        ip(source, destination, protocol, self.part, &t)
    }
}

impl Error {
    pub(crate) fn octets(&self) -> Vec<u8> {
        let about = self.about.octets();
        let (protocol, kind) = if self.source.is_ipv4() { (ICMP, 3) } else { (ICMPV6, 1) };
        let mut m = [&[kind, 1, 0, 0, 0, 0, 0, 0][..], &about[..self.shown.min(about.len())]].concat();
        let ends = [octets(self.source), octets(self.destination)].concat();
        let pseudo = [&ends[..], &[0, protocol], &(m.len() as u16).to_be_bytes()].concat();
        let s = sum(&[if protocol == ICMP { &[] } else { &pseudo }, &m]);
        m[2..4].copy_from_slice(&s.to_be_bytes());
        ip(self.source, self.destination, protocol, Part::Whole, &m)
    }
}
