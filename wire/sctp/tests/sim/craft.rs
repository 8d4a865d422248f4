//! Packets made by hand, and a peer made of them: what no honest endpoint would send.

use std::net::IpAddr;

use whimbrel_sctp::{Input, Path};

use super::{Net, PORT, address};

pub const DATA: u8 = 0;
pub const INIT: u8 = 1;
pub const INIT_ACK: u8 = 2;
pub const SACK: u8 = 3;
pub const HEARTBEAT: u8 = 4;
pub const HEARTBEAT_ACK: u8 = 5;
pub const ABORT: u8 = 6;
pub const SHUTDOWN: u8 = 7;
pub const SHUTDOWN_ACK: u8 = 8;
pub const ERROR: u8 = 9;
pub const COOKIE_ECHO: u8 = 10;
pub const COOKIE_ACK: u8 = 11;
pub const SHUTDOWN_COMPLETE: u8 = 14;

/// A type-length-value item, padded.
pub fn tlv(kind: [u8; 2], value: &[u8]) -> Vec<u8> {
    let mut o = kind.to_vec();
    o.extend_from_slice(&(4 + value.len() as u16).to_be_bytes());
    o.extend_from_slice(value);
    o.resize(o.len().next_multiple_of(4), 0);
    o
}

pub fn chunk(kind: u8, flags: u8, value: &[u8]) -> Vec<u8> {
    tlv([kind, flags], value)
}

pub fn parameter(kind: u16, value: &[u8]) -> Vec<u8> {
    tlv(kind.to_be_bytes(), value)
}

pub fn init_value(tag: u32, rwnd: u32, streams: (u16, u16), tsn: u32, parameters: &[u8]) -> Vec<u8> {
    let mut o = tag.to_be_bytes().to_vec();
    o.extend_from_slice(&rwnd.to_be_bytes());
    o.extend_from_slice(&streams.0.to_be_bytes());
    o.extend_from_slice(&streams.1.to_be_bytes());
    o.extend_from_slice(&tsn.to_be_bytes());
    o.extend_from_slice(parameters);
    o
}

pub fn data(flags: u8, tsn: u32, stream: u16, ssn: u16, user: &[u8]) -> Vec<u8> {
    let mut v = tsn.to_be_bytes().to_vec();
    v.extend_from_slice(&stream.to_be_bytes());
    v.extend_from_slice(&ssn.to_be_bytes());
    v.extend_from_slice(&60u32.to_be_bytes());
    v.extend_from_slice(user);
    chunk(DATA, flags, &v)
}

pub fn sack(cum: u32, rwnd: u32) -> Vec<u8> {
    let mut v = cum.to_be_bytes().to_vec();
    v.extend_from_slice(&rwnd.to_be_bytes());
    v.extend_from_slice(&[0; 4]);
    chunk(SACK, 0, &v)
}

/// A packet with a right checksum.
pub fn packet(source: u16, tag: u32, chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut o = source.to_be_bytes().to_vec();
    o.extend_from_slice(&PORT.to_be_bytes());
    o.extend_from_slice(&tag.to_be_bytes());
    o.extend_from_slice(&[0; 4]);
    o.extend(chunks.iter().flatten());
    seal(&mut o);
    o
}

/// Sets the checksum, computed bit by bit: not the code under test.
pub fn seal(packet: &mut [u8]) {
    if packet.len() < 12 {
        return;
    }
    packet[8..12].fill(0);
    let mut crc = u32::MAX;
    for octet in packet.iter() {
        crc ^= u32::from(*octet);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    packet[8..12].copy_from_slice(&(!crc).to_le_bytes());
}

pub fn word(o: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(o[at..at + 4].try_into().unwrap())
}

/// The chunks of a packet: type, flags, value.
pub fn chunks(packet: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
    let mut rest = &packet[12..];
    let mut all = Vec::new();
    while rest.len() >= 4 {
        let len = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        all.push((rest[0], rest[1], rest[4..len].to_vec()));
        rest = &rest[len.next_multiple_of(4).min(rest.len())..];
    }
    all
}

pub fn kinds(packet: &[u8]) -> Vec<u8> {
    chunks(packet).iter().map(|c| c.0).collect()
}

/// The first error cause of the last chunk of a packet.
pub fn cause(packet: &[u8]) -> u16 {
    let all = chunks(packet);
    let value = &all.last().unwrap().2;
    u16::from_be_bytes([value[0], value[1]])
}

/// A peer whose every packet is made by hand, at an address that no node has.
pub struct Hand {
    pub at: IpAddr,
    pub port: u16,
    /// Tag that the node gave out, and ours.
    pub tag: u32,
    pub own_tag: u32,
    /// Our next TSN, and the node's first.
    pub tsn: u32,
    pub peer_tsn: u32,
}

impl Hand {
    /// Hands a packet to node 0 and flushes; what left because of it.
    pub fn give(&self, net: &mut Net, octets: &[u8]) -> Vec<Vec<u8>> {
        give_from(net, self.at, octets)
    }

    pub fn send(&self, net: &mut Net, chunks: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.give(net, &packet(self.port, self.tag, chunks))
    }

    /// Goes through the handshake with node 0.
    pub fn open(net: &mut Net, port: u16, rwnd: u32) -> Hand {
        let at = address(99, 0);
        let (own_tag, tsn) = (0x1234_0000 + u32::from(port), 1000);
        let init = chunk(INIT, 0, &init_value(own_tag, rwnd, (10, 10), tsn, &[]));
        let answer = give_from(net, at, &packet(port, 0, &[init]));
        let ack = &chunks(&answer[0])[0];
        assert_eq!(ack.0, INIT_ACK);
        let hand = Hand { at, port, tag: word(&ack.2, 0), own_tag, tsn, peer_tsn: word(&ack.2, 12) };
        let echo = chunk(COOKIE_ECHO, 0, &cookie(&ack.2));
        let answer = hand.send(net, &[echo]);
        assert_eq!(kinds(&answer[0]), [COOKIE_ACK]);
        hand
    }
}

/// The state cookie in an INIT ACK's value.
pub fn cookie(init_ack: &[u8]) -> Vec<u8> {
    let mut rest = &init_ack[16..];
    loop {
        let len = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        if rest[..2] == [0, 7] {
            return rest[4..len].to_vec();
        }
        rest = &rest[len.next_multiple_of(4)..];
    }
}

/// Hands a packet from anywhere to node 0 and flushes; what left because of it.
pub fn give_from(net: &mut Net, from: IpAddr, octets: &[u8]) -> Vec<Vec<u8>> {
    let before = net.sent.len();
    let path = Path { local: net.nodes[0].addresses[0], remote: from, udp_port: 0 };
    net.input_and_flush(0, Input::Packet { path, octets });
    net.sent[before..].iter().map(|s| s.2.clone()).collect()
}
