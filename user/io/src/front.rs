//! The packet logger's sockets and devices: those of N3 and N6, of which the UPFs behind it have none, and the socket towards these UPFs.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use whimbrel_user::logger::datagram::{DatagramHead, HEAD_OCTETS};
use whimbrel_user::{
    BurstPacket, Destination, DnIndex, HostAddresses, Origin, Packet, PacketVerdict, packet_room,
};

use crate::config::Config;
use crate::error::{HostReport, Notice, StartError};
use crate::handle::{HostSetup, open_front};
use crate::ports::system::System;
use crate::ports::{BURST, Ports};
use crate::sys::datagrams::{BATCH, Datagrams};
use crate::sys::poll;
use crate::thread::IoCounters;

/// Sockets and devices of a packet logger.
pub struct Front {
    outside: System,
    inside: Datagrams,
    io: IoCounters,
    slots: Vec<BurstPacket>,
    addresses: HostAddresses,
    /// Datagrams for UPFs that are being written.
    batch: Vec<(SocketAddr, Vec<u8>)>,
    waiting: usize,
    /// What is set on the host; taken back last.
    host: HostSetup,
}

impl Front {
    /// Opens them on this host, and listens there for the UPFs' packets. Errors: a sentence for the operator each.
    pub fn open(config: Config, inside: SocketAddr) -> Result<Self, StartError> {
        let mtu = config.user.data_networks.iter().map(|d| d.mtu).max().unwrap_or(1500);
        // Behind the head, a packet of a UPF is as long as one from a gNB.
        let room = packet_room(mtu) + HEAD_OCTETS;
        let bind = |error| StartError::Bind { address: inside, error };
        let socket = UdpSocket::bind(inside).map_err(bind)?;
        let inside = Datagrams::of(socket, inside, false).map_err(bind)?;
        let (outside, host, addresses) = open_front(config)?;
        let slot = |_| BurstPacket {
            origin: Origin::N6 { dn: DnIndex(0) },
            packet: Packet::with_room(room),
            verdict: PacketVerdict::Pending,
        };
        Ok(Self {
            outside,
            inside,
            io: IoCounters::default(),
            slots: (0..BURST.max(BATCH)).map(slot).collect(),
            addresses,
            batch: vec![(SocketAddr::from(([0; 4], 0)), Vec::new()); BATCH],
            waiting: 0,
            host,
        })
    }

    /// What the sockets and devices did.
    pub fn io_counters(&self) -> IoCounters {
        IoCounters { receive_full: self.outside.lost() + self.inside.lost(), ..self.io }
    }

    /// The addresses that the host takes packets for.
    pub fn host_addresses(&self) -> &HostAddresses {
        &self.addresses
    }

    /// What was set on the host, in words for the log. It is taken back when this is dropped.
    pub fn host_changes(&self) -> &[String] {
        self.host.changes()
    }

    /// Problems on the host that exist now, and what was put back since the last call.
    pub fn host_report(&self) -> HostReport {
        self.host.report()
    }

    /// What was asked for and could not be had.
    pub fn notices(&self) -> &[Notice] {
        self.host.notices()
    }

    /// Receives a burst of gNBs and data networks; how many packets. `each` gets where one came from, and its packet, for which it leaves another.
    pub fn receive_outside(&mut self, mut each: impl FnMut(Origin, &mut Packet)) -> usize {
        let n = self.outside.receive(&mut self.slots[..BURST], &mut self.io);
        self.slots[..n].iter_mut().for_each(|slot| each(slot.origin, &mut slot.packet));
        n
    }

    /// Receives a burst of UPFs' datagrams; how many. `each` gets their sender, head, and what is behind it.
    pub fn receive_inside(&mut self, mut each: impl FnMut(SocketAddr, DatagramHead, &mut Packet)) -> usize {
        let mut from: [Option<(SocketAddr, usize)>; BATCH] = [None; BATCH];
        let packets = self.slots[..BATCH].iter_mut().map(|s| &mut s.packet);
        let received = self.inside.receive(packets, |i, peer, octets| from[i] = Some((peer, octets)));
        let Ok(n) = received else {
            self.io.receive_errors += 1;
            return 0;
        };
        for (slot, from) in self.slots.iter_mut().zip(from).take(n) {
            let Some((peer, octets)) = from else { continue };
            slot.packet.received(octets);
            match DatagramHead::read(slot.packet.octets()) {
                Some(head) => {
                    slot.packet.came_logged(head.counter, HEAD_OCTETS);
                    each(peer, head, &mut slot.packet);
                }
                None => self.io.malformed += 1,
            }
        }
        n
    }

    /// Sends packets to gNBs and data networks.
    pub fn send_outside<'p>(&mut self, packets: impl Iterator<Item = &'p (Destination, Packet)>) {
        self.outside.send(&mut packets.map(|(to, packet)| (*to, packet)), &mut self.io);
    }

    /// Sends a datagram to a UPF, at the latest with [`Self::flush_inside`].
    pub fn send_inside(&mut self, to: SocketAddr, head: DatagramHead, behind: &[u8]) {
        let (peer, octets) = &mut self.batch[self.waiting];
        *peer = to;
        octets.clear();
        octets.extend_from_slice(&head.to_octets());
        octets.extend_from_slice(behind);
        self.waiting += 1;
        if self.waiting == BATCH {
            self.flush_inside();
        }
    }

    /// Sends what waits.
    pub fn flush_inside(&mut self) {
        let count = std::mem::take(&mut self.waiting);
        let mut done = 0;
        while done < count {
            let rest = self.batch[done..count].iter().map(|(to, octets)| (*to, 0, &octets[..]));
            match self.inside.send(rest) {
                // Full: the logger gives these packets again after a takeover, or gives them up.
                Ok(0) => {
                    self.io.send_full += (count - done) as u64;
                    return;
                }
                Ok(n) => done += n,
                Err(_) => {
                    self.io.send_errors += 1;
                    done += 1;
                }
            }
        }
    }

    /// Waits until something can be received, by one of these descriptors, too, or the time is over. Errors: those of ppoll(2).
    pub fn wait(&self, others: &[BorrowedFd<'_>], within: Duration) -> io::Result<()> {
        let mut fds = self.outside.descriptors();
        fds.push(self.inside.as_fd());
        fds.extend_from_slice(others);
        poll::readable(&fds, within)
    }
}
