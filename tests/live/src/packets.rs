//! SCTP below the messages: packets of a client of its own, altered, repeated, made up, with checksums that are right.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_ran::edge::Clock;
use whimbrel_sctp::{AssociationId, Config, Connect, Endpoint, Event, Input, Outbox, Path, Send};

use crate::mutate;
use crate::program::CORE;
use crate::rng::Rng;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 2, 200);
/// The UDP port of SCTP (RFC 6951 §4.1).
const UDP_PORT: u16 = 9899;
/// Packets that are remembered to be sent again.
const KEPT_MAX: usize = 32;

/// The client that sends packets.
pub(crate) struct Packets {
    clock: Clock,
    endpoint: Endpoint,
    socket: UdpSocket,
    out: Outbox,
    association: Option<AssociationId>,
    sent: Vec<Vec<u8>>,
    pub(crate) packets: u64,
}

impl Packets {
    pub(crate) fn open() -> Result<Self, String> {
        let cannot = |e: std::io::Error| format!("SCTP packets at {ADDRESS}: {e}");
        let socket = UdpSocket::bind((ADDRESS, UDP_PORT)).map_err(cannot)?;
        socket.set_read_timeout(Some(Duration::from_millis(2))).map_err(cannot)?;
        let clock = Clock::default();
        let mut config = Config::new(50_000);
        config.local_addresses = vec![ADDRESS.into()];
        config.accept_inbound = false;
        let mut secret = [7; 32];
        secret[..8].copy_from_slice(&clock.now().0.to_be_bytes());
        let endpoint = Endpoint::new(config, secret, clock.now());
        Ok(Self {
            clock,
            endpoint,
            socket,
            out: Outbox::default(),
            association: None,
            sent: Vec::new(),
            packets: 0,
        })
    }

    /// Does one thing.
    pub(crate) fn perform(&mut self, seed: u64) {
        let rng = &mut Rng::new(seed);
        let now = self.clock.now();
        match rng.below(10) {
            0..=2 => self.connect(now),
            3 | 4 => {
                if let Some(association) = self.association {
                    let n = 1 + rng.below(3000);
                    let octets = rng.octets(n);
                    let stream = rng.below(40) as u16;
                    let _ = self.endpoint.send(Send {
                        association,
                        stream,
                        ppid: whimbrel_ngap::PPID,
                        unordered: rng.once_in(2),
                        octets: &octets,
                    });
                }
            }
            5 => {
                if let Some(association) = self.association.take() {
                    let end = match rng.once_in(2) {
                        true => Input::Shutdown { association },
                        false => Input::Abort { association },
                    };
                    self.endpoint.handle(now, end, &mut self.out);
                }
            }
            6 => {
                // The handshake begun and left: many half-open associations, from ports of their own.
                for port in 0..50u16 {
                    let tag = rng.number() as u32 | 1;
                    let mut m = [&(1000 + port).to_be_bytes()[..], &38412u16.to_be_bytes(), &[0; 8]].concat();
                    m.extend_from_slice(&[1, 0, 0, 20]);
                    m.extend_from_slice(&tag.to_be_bytes());
                    m.extend_from_slice(&[0, 1, 0, 0, 0, 10, 0, 10, 0, 0, 0, 1]);
                    self.emit(&mut m);
                }
            }
            7 => {
                let kept = self.sent.get(rng.below(self.sent.len())).cloned();
                kept.into_iter().for_each(|mut m| self.emit(&mut m));
            }
            8 => {
                // Chunks made up, under the association's own tag where there is one.
                let head = self
                    .sent
                    .first()
                    .and_then(|m| m.get(..8))
                    .unwrap_or(&[0xc3, 0x50, 0x96, 0x0c, 0, 0, 0, 0])
                    .to_vec();
                let mut m = [&head[..], &[0; 4]].concat();
                for _ in 0..=rng.below(6) {
                    let n = rng.below(40);
                    let value = rng.octets(n);
                    let length = if rng.once_in(4) { rng.number() as u16 } else { (n + 4) as u16 };
                    m.extend_from_slice(&[
                        [0, 1, 2, 3, 4, 6, 7, 9, 10, 11, 14, 130, 192, 193][rng.below(14)],
                        rng.number() as u8,
                    ]);
                    m.extend_from_slice(&length.to_be_bytes());
                    m.extend_from_slice(&value);
                    m.resize(m.len().next_multiple_of(4), 0);
                }
                self.emit(&mut m);
            }
            _ => {
                let kept = self.sent.get(rng.below(self.sent.len())).cloned();
                if let Some(mut m) = kept {
                    mutate::octets(rng, &mut m);
                    match rng.once_in(8) {
                        true => drop(self.socket.send_to(&m, (CORE, UDP_PORT))),
                        false => self.emit(&mut m),
                    }
                }
            }
        }
        self.pump();
    }

    fn connect(&mut self, now: Instant) {
        if self.association.is_none() {
            let to = Connect { addresses: &[IpAddr::V4(CORE)], port: 38412, udp_port: UDP_PORT };
            self.association = self.endpoint.connect(now, to, &mut self.out).ok();
        }
    }

    /// Puts the checksum in and sends.
    fn emit(&mut self, m: &mut [u8]) {
        self.packets += 1;
        if m.len() >= 12 {
            m[8..12].copy_from_slice(&[0; 4]);
            let sum = crc32c(m).to_le_bytes();
            m[8..12].copy_from_slice(&sum);
        }
        let _ = self.socket.send_to(m, (CORE, UDP_PORT));
    }

    fn pump(&mut self) {
        let mut buffer = [0; 4000];
        for _ in 0..16 {
            let now = self.clock.now();
            self.endpoint.handle(now, Input::Tick, &mut self.out);
            self.endpoint.flush(now, &mut self.out);
            for (_, octets) in self.out.packets.iter() {
                self.packets += 1;
                let _ = self.socket.send_to(octets, (CORE, UDP_PORT));
                self.sent.insert(0, octets.to_vec());
            }
            self.sent.truncate(KEPT_MAX);
            self.out.packets.clear();
            if self.out.events.iter().any(|e| matches!(e, Event::Down { .. })) {
                self.association = None;
            }
            self.out.events.clear();
            let Ok((n, from)) = self.socket.recv_from(&mut buffer) else { return };
            let path = Path { local: ADDRESS.into(), remote: from.ip(), udp_port: from.port() };
            let octets = buffer.get(..n).unwrap_or_default();
            self.endpoint.handle(self.clock.now(), Input::Packet { path, octets }, &mut self.out);
        }
    }
}

/// CRC32c (RFC 9260 appendix A), bit by bit: a fuzzer's packets are few.
fn crc32c(m: &[u8]) -> u32 {
    !m.iter().fold(!0u32, |mut crc, &octet| {
        crc ^= u32::from(octet);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
        crc
    })
}

#[cfg(test)]
mod tests {
    #[test] // RFC 3720 appendix B.4
    fn checksum_of_a_known_text() {
        assert_eq!(super::crc32c(&[0; 32]), 0x8a91_36aa);
    }
}
