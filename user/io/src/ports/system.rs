//! GTP-U sockets and TUN devices.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use whimbrel_user::{BurstPacket, Destination, DnIndex, Origin, Packet};

use super::descriptors::Descriptors;
use super::segments::Segments;
use super::{BURST, Ports};
use crate::config::Config;
use crate::error::StartError;
use crate::host::upkeep::DeviceQueues;
use crate::sys::datagrams::{BATCH, Datagrams};
use crate::sys::tun::{DeviceKind, Tun};
use crate::thread::IoCounters;

/// Octets of a packet that is to be cut, at most: what IP can say.
const BEYOND_OCTETS: usize = 64 << 10;

pub(crate) struct System {
    n3: Vec<Datagrams>,
    n6: Vec<Tun>,
    /// TAP devices of data networks that have one.
    frames: Vec<(DnIndex, Tun)>,
    /// Which source is asked first; turns, so that a flood on one does not starve the others.
    first: usize,
    /// Where what is received goes that is longer than a packet.
    beyond: Box<[u8]>,
    /// What is being cut.
    segments: Segments,
}

impl System {
    /// For each packet thread its own sockets and queues of devices, of `given` descriptors or of new ones; and why the kernel does not steer
    /// packets to them, where it does not.
    ///
    /// Errors: the first that fails; what was made before is gone then.
    pub(crate) fn open(
        config: &Config,
        given: Option<Descriptors>,
    ) -> Result<(Vec<Self>, Option<io::Error>), StartError> {
        let Descriptors { n3, packets, frames, unsteered } = match given {
            Some(given) => given,
            None => Descriptors::open(config)?,
        };
        let own = |n3| Self {
            n3,
            n6: Vec::new(),
            frames: Vec::new(),
            first: 0,
            beyond: vec![0; BEYOND_OCTETS].into(),
            segments: Segments::default(),
        };
        let mut all: Vec<Self> = Descriptors::n3(n3, config)?.into_iter().map(own).collect();
        let threads = all.len();
        for (n, queue) in packets.into_iter().enumerate() {
            all[n % threads].n6.push(Tun::from(queue));
        }
        let with_frames = config.devices.iter().enumerate().filter(|(_, d)| d.frames.is_some());
        let taps = with_frames.zip(frames).map(|((i, _), tap)| (DnIndex(i as u8), Tun::from(tap)));
        all[0].frames.extend(taps);
        Ok((all, unsteered))
    }

    /// Duplicates of the queues of all devices of these threads: TUN devices in their order, then TAP devices. Errors: those of dup(2).
    pub(crate) fn device_queues(all: &[Self]) -> io::Result<Vec<DeviceQueues>> {
        let of = |kind, queues: Vec<BorrowedFd<'_>>| {
            let queues = queues.iter().map(BorrowedFd::try_clone_to_owned).collect::<io::Result<_>>()?;
            Ok(DeviceQueues { kind, queues })
        };
        let networks = all.first().map_or(0, |first| first.n6.len());
        let packets = (0..networks).map(|n| {
            of(DeviceKind::Packets, all.iter().filter_map(|s| s.n6.get(n)).map(Tun::as_fd).collect())
        });
        let taps =
            all.iter().flat_map(|s| &s.frames).map(|(_, tap)| of(DeviceKind::Frames, vec![tap.as_fd()]));
        packets.chain(taps).collect()
    }

    fn receive_n3(&mut self, which: usize, slots: &mut [BurstPacket], counters: &mut IoCounters) -> usize {
        let Some(socket) = self.n3.get_mut(which) else { return 0 };
        let local = socket.local();
        let mut from: [Option<(SocketAddr, usize)>; BATCH] = [None; BATCH];
        let packets = slots.iter_mut().map(|s| &mut s.packet);
        let received = socket.receive(packets, |i, peer, octets| from[i] = Some((peer, octets)));
        let n = match received {
            Ok(n) => n,
            Err(_) => {
                counters.receive_errors += 1;
                0
            }
        };
        for (slot, from) in slots.iter_mut().zip(from).take(n) {
            let (peer, octets) = from.unwrap_or((SocketAddr::new(local, 0), 0));
            slot.packet.received(octets);
            slot.origin = Origin::N3 { peer, local };
        }
        counters.n3_received += n as u64;
        n
    }

    /// From the TUN devices, then from the TAP devices.
    fn receive_n6(&mut self, which: usize, slots: &mut [BurstPacket], counters: &mut IoCounters) -> usize {
        let received = match which.checked_sub(self.n6.len()) {
            None => self.receive_packets(which, slots, counters),
            Some(i) => self.receive_frames(i, slots),
        };
        counters.n6_received += received.0 as u64;
        counters.receive_errors += u64::from(received.1.is_err());
        received.0
    }

    /// Packets, and whether all was well.
    fn receive_packets(
        &mut self,
        which: usize,
        slots: &mut [BurstPacket],
        counters: &mut IoCounters,
    ) -> (usize, io::Result<()>) {
        let dn = DnIndex(which as u8);
        let mut n = 0;
        while let Some(slot) = slots.get_mut(n) {
            let (offload, octets) = match self.n6[which].receive_long(slot.packet.room(), &mut self.beyond) {
                Ok(Some(received)) => received,
                Ok(None) => break,
                Err(e) => return (n, Err(e)),
            };
            let room = slot.packet.room();
            let here = octets.min(room.len());
            if offload.is_long() {
                let beyond = self.beyond.get(..octets - here).unwrap_or_default();
                if self.segments.put(dn, offload, [&room[..here], beyond]) {
                    counters.n6_long += 1;
                    n += self.segments.take(&mut slots[n..]);
                } else {
                    counters.malformed += 1;
                }
            } else if offload.finish(&mut room[..here]) {
                slot.packet.received(octets);
                slot.origin = Origin::N6 { dn };
                n += 1;
            } else {
                counters.malformed += 1;
            }
        }
        (n, Ok(()))
    }

    /// Frames, and whether all was well.
    fn receive_frames(&mut self, which: usize, slots: &mut [BurstPacket]) -> (usize, io::Result<()>) {
        let Some((dn, tap)) = self.frames.get_mut(which) else { return (0, Ok(())) };
        for (n, slot) in slots.iter_mut().enumerate() {
            match tap.receive(slot.packet.room()) {
                Ok(0) => return (n, Ok(())),
                Ok(octets) => {
                    slot.packet.received(octets);
                    slot.origin = Origin::Frames { dn: *dn };
                }
                Err(e) => return (n, Err(e)),
            }
        }
        (slots.len(), Ok(()))
    }

    fn send_n3(&mut self, batch: &[(SocketAddr, u8, &[u8])], counters: &mut IoCounters) {
        for ipv4 in [true, false] {
            let of_family = |(to, ..): &&(SocketAddr, u8, &[u8])| to.is_ipv4() == ipv4;
            let total = batch.iter().filter(of_family).count();
            let Some(socket) = self.n3.iter_mut().find(|s| s.local().is_ipv4() == ipv4) else {
                counters.send_errors += total as u64;
                continue;
            };
            let mut done = 0;
            while done < total {
                let rest = batch.iter().filter(of_family).skip(done).copied();
                match socket.send(rest) {
                    Ok(0) => {
                        counters.send_full += (total - done) as u64;
                        break;
                    }
                    Ok(n) => {
                        counters.n3_sent += n as u64;
                        done += n;
                    }
                    Err(_) => {
                        // The first of the rest could not be sent (no route, too long); the others still may.
                        counters.send_errors += 1;
                        done += 1;
                    }
                }
            }
        }
    }

    fn send_n6(&mut self, dn: DnIndex, packet: &Packet, counters: &mut IoCounters) {
        let device = self.n6.get_mut(usize::from(dn.0));
        sent(device.map(|d| d.send_whole(packet.octets())), counters);
    }

    /// Ethernet sessions' frames.
    fn send_frame(&mut self, dn: DnIndex, packet: &Packet, counters: &mut IoCounters) {
        let device = self.frames.iter_mut().find(|(of, _)| *of == dn);
        sent(device.map(|(_, d)| d.send(packet.octets())), counters);
    }
}

/// Counts what became of a packet; there may be no device for it.
fn sent(result: Option<io::Result<()>>, counters: &mut IoCounters) {
    match result {
        Some(Ok(())) => counters.n6_sent += 1,
        Some(Err(e)) if e.kind() == io::ErrorKind::WouldBlock => counters.send_full += 1,
        Some(Err(_)) | None => counters.send_errors += 1,
    }
}

impl Ports for System {
    fn receive(&mut self, slots: &mut [BurstPacket], counters: &mut IoCounters) -> usize {
        let sources = self.n3.len() + self.n6.len() + self.frames.len();
        let mut n = self.segments.take(slots);
        counters.n6_received += n as u64;
        for i in 0..sources {
            let which = (self.first + i) % sources;
            let room = slots.get_mut(n..).unwrap_or_default();
            if room.is_empty() {
                break;
            }
            n += match which.checked_sub(self.n3.len()) {
                None => self.receive_n3(which, room, counters),
                Some(dn) => self.receive_n6(dn, room, counters),
            };
        }
        self.first = (self.first + 1) % sources.max(1);
        n
    }

    fn send(&mut self, packets: &mut dyn Iterator<Item = (Destination, &Packet)>, counters: &mut IoCounters) {
        let empty: (SocketAddr, u8, &[u8]) = (SocketAddr::new(IpAddr::V4([0, 0, 0, 0].into()), 0), 0, &[]);
        let mut batch = [empty; BURST];
        let mut n = 0;
        for (to, packet) in packets {
            match to {
                Destination::N6 { dn } => self.send_n6(dn, packet, counters),
                Destination::Frames { dn } => self.send_frame(dn, packet, counters),
                Destination::N3 { peer, tos } => {
                    batch[n] = (peer, tos, packet.octets());
                    n += 1;
                    if n == BURST {
                        self.send_n3(&batch, counters);
                        n = 0;
                    }
                }
            }
        }
        self.send_n3(&batch[..n], counters);
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let n6 = self.n6.iter().chain(self.frames.iter().map(|(_, tap)| tap));
        self.n3.iter().map(Datagrams::as_fd).chain(n6.map(Tun::as_fd)).collect()
    }

    fn lost(&self) -> u64 {
        self.n3.iter().map(Datagrams::lost).sum()
    }
}
