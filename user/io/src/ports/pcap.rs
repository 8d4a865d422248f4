//! Packets of a capture: for tests and measurements with what a network has carried.
//!
//! Frames of Ethernet are read from one file and written to another, both in the form of libpcap with microseconds or nanoseconds, as
//! AF_XDP would see and write them: those to N3's address and port are datagrams of gNBs, those to UEs are of their data network,
//! the others are counted (`malformed`). As fast as the pipeline takes them; times in the file are not kept.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use whimbrel_user::{BurstPacket, Destination, DnIndex, Packet};

use super::Ports;
use super::af_xdp::frame::{DatagramRoute, OutgoingDatagram};
use super::af_xdp::packet::{self, FrameAddresses};
use super::af_xdp::{arrived, pools};
use crate::config::{Clock, Config};
use crate::sys::event::Event;
use crate::thread::IoCounters;
use crate::xdp::steer::UeAddressPool;

/// What files begin with that have times in microseconds, or in nanoseconds, written by a host of our order of octets.
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Frames of Ethernet, as the sort of a file's packets.
const ETHERNET: u32 = 1;
/// Octets of a frame at most: what is longer is no frame, and the rest of the file is not looked at.
const FRAME_OCTETS_MAX: usize = 256 << 10;
/// Source and destination of written frames: two addresses that no device has (locally administered).
const LINK: FrameAddresses = FrameAddresses { to: [2, 0, 0, 0, 0, 2], from: [2, 0, 0, 0, 0, 1], vlan: None };

/// Starts the reading of a file, and reports its progress.
#[derive(Clone, Debug)]
pub struct Replay(Arc<Progress>);

#[derive(Debug)]
struct Progress {
    begun: AtomicBool,
    ended: AtomicBool,
    event: Event,
}

impl Replay {
    /// From now on frames are read: when the sessions stand.
    pub fn begin(&self) {
        self.0.begun.store(true, Ordering::Release);
        self.0.event.raise();
    }

    /// Whether all frames were read, and what came of them is in the other file.
    pub fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }
}

pub(crate) struct Pcap {
    from: BufReader<File>,
    /// Numbers in it are in the other order of octets.
    swapped: bool,
    to: BufWriter<File>,
    progress: Arc<Progress>,
    clock: Clock,
    own: Vec<SocketAddr>,
    pools: Vec<(UeAddressPool, DnIndex)>,
    frame: Vec<u8>,
    identification: u32,
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Pcap {
    /// Errors: of the files; `InvalidData` where the first has no frames of Ethernet in the form of libpcap.
    pub(crate) fn open(config: &Config, from: &Path, to: &Path) -> io::Result<(Self, Replay)> {
        let mut from = BufReader::new(File::open(from)?);
        let mut header = [0; 24];
        from.read_exact(&mut header)?;
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let swapped = match word(0) {
            MICROSECONDS | NANOSECONDS => false,
            magic if [MICROSECONDS, NANOSECONDS].contains(&magic.swap_bytes()) => true,
            _ => return Err(invalid("it is no capture in the form of libpcap")),
        };
        let sort = if swapped { word(20).swap_bytes() } else { word(20) };
        if sort & 0xffff != ETHERNET {
            return Err(invalid("its packets are no frames of Ethernet"));
        }
        let mut to = BufWriter::new(File::create(to)?);
        // Version 2.4, no offset of times, frames as long as they are.
        let words = [
            MICROSECONDS.to_ne_bytes(),
            [0; 4],
            [0; 4],
            [0; 4],
            0x4_0000u32.to_ne_bytes(),
            ETHERNET.to_ne_bytes(),
        ];
        let mut header = words.concat();
        header[4..6].copy_from_slice(&2u16.to_ne_bytes());
        header[6..8].copy_from_slice(&4u16.to_ne_bytes());
        to.write_all(&header)?;
        let progress = Arc::new(Progress {
            begun: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            event: Event::new()?,
        });
        let networks = config.user.data_networks.iter().zip(0..);
        let it = Self {
            from,
            swapped,
            to,
            progress: Arc::clone(&progress),
            clock: Arc::clone(&config.clock),
            own: config.n3_addresses().collect(),
            pools: networks.flat_map(|(dn, i)| pools(dn).map(move |p| (p, DnIndex(i)))).collect(),
            frame: Vec::new(),
            identification: 0,
        };
        Ok((it, Replay(progress)))
    }

    /// Reads the next frame; false at the end of the file, or of what of it is whole.
    fn next(&mut self) -> bool {
        let mut header = [0; 16];
        if self.from.read_exact(&mut header).is_err() {
            return false;
        }
        let octets = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        let octets = if self.swapped { octets.swap_bytes() } else { octets } as usize;
        if octets > FRAME_OCTETS_MAX {
            return false;
        }
        self.frame.resize(octets, 0);
        self.from.read_exact(&mut self.frame).is_ok()
    }

    /// Writes a frame.
    fn write(&mut self, octets: usize) -> io::Result<()> {
        let at = (self.clock)().0;
        let words =
            [at / 1_000_000, at % 1_000_000, octets as u64, octets as u64].map(|w| (w as u32).to_ne_bytes());
        self.to.write_all(words.as_flattened())?;
        self.to.write_all(&self.frame[..octets])
    }

    fn send_n3(&mut self, to: SocketAddr, tos: u8, packet: &Packet) -> io::Result<()> {
        let own = self.own.iter().find(|own| own.is_ipv4() == to.is_ipv4()).copied();
        let from = own.ok_or(io::ErrorKind::NetworkUnreachable)?;
        self.identification = self.identification.wrapping_add(1);
        let identification = self.identification;
        let way = DatagramRoute { link: LINK, from, to, tos, mtu: u16::MAX.into(), identification };
        let outgoing = OutgoingDatagram::new(way, packet.octets()).ok_or(io::ErrorKind::InvalidInput)?;
        self.frame.resize(FRAME_OCTETS_MAX, 0);
        let octets = outgoing.write(0, &mut self.frame);
        self.write(octets)
    }

    fn send_n6(&mut self, packet: &Packet) -> io::Result<()> {
        self.frame.resize(FRAME_OCTETS_MAX, 0);
        let octets = packet::write(&mut self.frame, LINK, None, packet.octets());
        self.write(octets)
    }

    fn send_frame(&mut self, packet: &Packet) -> io::Result<()> {
        self.frame.clear();
        self.frame.extend_from_slice(packet.octets());
        self.write(packet.len())
    }
}

impl Ports for Pcap {
    fn receive(&mut self, slots: &mut [BurstPacket], counters: &mut IoCounters) -> usize {
        let mut n = 0;
        if !self.progress.begun.load(Ordering::Acquire) || self.progress.ended.load(Ordering::Relaxed) {
            return n;
        }
        self.progress.event.lower();
        while let Some(slot) = slots.get_mut(n) {
            if !self.next() {
                break;
            }
            n += usize::from(arrived(&self.frame, &self.own, &self.pools, &[], slot, counters));
        }
        if n == 0 {
            // What came before is written: this is asked again only then.
            counters.send_errors += u64::from(self.to.flush().is_err());
            self.progress.ended.store(true, Ordering::Release);
        }
        n
    }

    fn send(&mut self, packets: &mut dyn Iterator<Item = (Destination, &Packet)>, counters: &mut IoCounters) {
        for (to, packet) in packets {
            let (written, counter) = match to {
                Destination::N3 { peer, tos } => (self.send_n3(peer, tos, packet), &mut counters.n3_sent),
                Destination::N6 { .. } => (self.send_n6(packet), &mut counters.n6_sent),
                Destination::Frames { .. } => (self.send_frame(packet), &mut counters.n6_sent),
            };
            *counter += u64::from(written.is_ok());
            counters.send_errors += u64::from(written.is_err());
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.progress.event.as_fd()]
    }

    fn lost(&self) -> u64 {
        0 // a file waits
    }
}
