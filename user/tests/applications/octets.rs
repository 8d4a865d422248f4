//! Packets that say names, made of octets.

use std::net::Ipv4Addr;

/// A record of an answer: whose it is, and what it says.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Address(&'static str, Ipv4Addr, u32),
    Alias(&'static str, &'static str, u32),
}

fn labels(name: &str) -> Vec<u8> {
    let label = |l: &str| [&[l.len() as u8], l.as_bytes()].concat();
    [name.split('.').flat_map(label).collect(), vec![0]].concat()
}

fn message(id: u16, flags: u16, name: &str, records: usize) -> Vec<u8> {
    let words = [id, flags, 1, records as u16, 0, 0];
    let mut m: Vec<u8> = words.into_iter().flat_map(u16::to_be_bytes).collect();
    m.extend(labels(name));
    m.extend([0, 1, 0, 1]);
    m
}

/// A question about an address.
pub(crate) fn question(id: u16, name: &str) -> Vec<u8> {
    message(id, 0x0100, name, 0)
}

/// An answer to it.
pub(crate) fn answer(id: u16, name: &str, records: &[Record]) -> Vec<u8> {
    let mut m = message(id, 0x8180, name, records.len());
    for r in records {
        let (owner, kind, ttl, data) = match r {
            Record::Address(owner, a, ttl) => (owner, 1u16, ttl, a.octets().to_vec()),
            Record::Alias(owner, alias, ttl) => (owner, 5, ttl, labels(alias)),
        };
        m.extend(labels(owner));
        m.extend(kind.to_be_bytes());
        m.extend([0, 1]);
        m.extend(ttl.to_be_bytes());
        m.extend((data.len() as u16).to_be_bytes());
        m.extend(data);
    }
    m
}

/// The greeting of a TLS client.
pub(crate) fn hello(name: &str) -> Vec<u8> {
    let counted = |octets: &[u8]| [&(octets.len() as u16).to_be_bytes()[..], octets].concat();
    let entry = [&[0], &counted(name.as_bytes())[..]].concat();
    let extension = [&[0, 0], &counted(&counted(&entry))[..]].concat();
    let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], &counted(&extension)].concat();
    let handshake = [&[1, 0][..], &counted(&body)].concat();
    [&[22, 3, 1][..], &counted(&handshake)].concat()
}

/// An IPv4 packet.
pub(crate) fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0x45, 0];
    p.extend((20 + payload.len() as u16).to_be_bytes());
    p.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    p.extend(source.octets());
    p.extend(destination.octets());
    p.extend_from_slice(payload);
    p
}

/// A datagram, source port first.
pub(crate) fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let words = [ports.0, ports.1, 8 + payload.len() as u16, 0];
    [words.into_iter().flat_map(u16::to_be_bytes).collect(), payload.to_vec()].concat()
}

/// A segment, source port first.
pub(crate) fn tcp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut segment: Vec<u8> = [ports.0, ports.1].into_iter().flat_map(u16::to_be_bytes).collect();
    segment.extend([0; 8]);
    segment.extend([5 << 4, 0x18, 1, 0, 0, 0, 0, 0]);
    segment.extend_from_slice(payload);
    segment
}
