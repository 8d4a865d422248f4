//! Ways to a UPF and from it.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use whimbrel_user::{Destination, DnIndex, Origin};
use whimbrel_user_io::{MemoryOuterEnd, Replay};

use super::common::{GNB, UPF};
use super::host::checksum;
use super::live::Wire;

/// Queues in memory; a burst comes to one thread, each in turn.
pub(crate) struct InMemory {
    memory: MemoryOuterEnd,
    threads: u8,
    next: u8,
}

impl InMemory {
    pub(crate) fn new(memory: MemoryOuterEnd, threads: u8) -> Self {
        Self { memory, threads, next: 0 }
    }
}

impl Wire for InMemory {
    fn hops(&self) -> u8 {
        0
    }

    fn put(&mut self, packets: &[(Origin, Vec<u8>)]) {
        self.next = (self.next + 1) % self.threads;
        for (origin, octets) in packets {
            assert!(self.memory.put_at(self.next.into(), *origin, octets), "room");
        }
    }

    fn take(&mut self) -> Vec<(Destination, Vec<u8>)> {
        self.memory.take()
    }
}

/// Frames of one file into another.
pub(crate) struct Captures {
    replay: Replay,
    to: PathBuf,
    /// How far it is read.
    at: usize,
}

impl Captures {
    pub(crate) fn new(replay: Replay, to: PathBuf) -> Self {
        Self { replay, to, at: 24 }
    }
}

/// A file of frames that bring packets.
pub(crate) fn capture(packets: &[(Origin, Vec<u8>)]) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_ne_bytes).concat();
    for (origin, octets) in packets {
        let to_ue = !matches!(origin, Origin::N3 { .. });
        let six = to_ue && octets.first().is_some_and(|o| o >> 4 == 6);
        let mut frame = [&[2; 12][..], if six { &[0x86, 0xdd] } else { &[8, 0] }].concat();
        if let Origin::N3 { peer, local } = origin {
            let (IpAddr::V4(from), IpAddr::V4(to)) = (peer.ip(), local) else { panic!() };
            frame.extend(datagram(from, *to, octets));
        } else {
            frame.extend_from_slice(octets);
        }
        let length = frame.len() as u32;
        file.extend([0, 0, length, length].map(u32::to_ne_bytes).concat());
        file.extend(frame);
    }
    file
}

impl Wire for Captures {
    fn hops(&self) -> u8 {
        1
    }

    fn put(&mut self, _packets: &[(Origin, Vec<u8>)]) {
        self.replay.begin(); // they are in the file
    }

    fn take(&mut self) -> Vec<(Destination, Vec<u8>)> {
        if !self.replay.has_ended() {
            return Vec::new();
        }
        let file = std::fs::read(&self.to).unwrap();
        let (mut all, mut at) = (Vec::new(), self.at);
        while at < file.len() {
            let octets = u32::from_ne_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
            let packet = &file[at + 16 + 14..at + 16 + octets];
            all.push(match packet[0] >> 4 == 4 && packet[12..16] == UPF.octets() {
                true => (Destination::N3 { peer: GNB, tos: 0 }, packet[28..].to_vec()),
                false => (Destination::N6 { dn: DnIndex(0) }, packet.to_vec()),
            });
            at += 16 + octets;
        }
        self.at = at;
        all
    }
}

/// A gNB's socket, and one behind a data network's device or interface: a kernel is between them and the UPF.
pub(crate) struct Sockets {
    gnb: UdpSocket,
    network: OwnedFd,
    /// The interface's number there, and the Ethernet address that packets for UEs go to, if it has any.
    to: (i32, Option<[u8; 6]>),
}

/// Room for a whole burst and more, as much as a program without rights may have.
const ROOM: libc::c_int = 400 << 10;

impl Sockets {
    pub(crate) fn new(gnb: UdpSocket, (network, index): (OwnedFd, i32), to: Option<[u8; 6]>) -> Self {
        gnb.set_nonblocking(true).unwrap();
        set(&gnb, libc::SOL_SOCKET, libc::SO_RCVBUF, ROOM);
        Self { gnb, network, to: (index, to) }
    }
}

fn set(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    // SAFETY: the option's value is a plain integer, which lives through the call.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size_of_val(&value) as _)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// A socket of an interface's packets, without what is before them, and the interface's number.
pub(crate) fn network_socket(interface: &str) -> (OwnedFd, i32) {
    let name = std::ffi::CString::new(interface).unwrap();
    // SAFETY: a string that ends with a zero, which lives through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
    assert!(index > 0, "{interface}");
    // SAFETY: plain values in, a descriptor or -1 out, which nothing else has.
    let socket = unsafe {
        let flags = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = libc::socket(libc::AF_PACKET, flags, 0);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    };
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, ROOM);
    set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
    let address = link_address(index, libc::ETH_P_ALL as u16, None);
    // SAFETY: the address has the form that sockets of this family want, and lives through the call.
    let bound =
        unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as _) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    (socket, index)
}

fn link_address(index: i32, kind: u16, to: Option<[u8; 6]>) -> libc::sockaddr_ll {
    // SAFETY: for this plain C struct all zeroes are a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = kind.to_be();
    address.sll_ifindex = index;
    if let Some(to) = to {
        address.sll_halen = 6;
        address.sll_addr[..6].copy_from_slice(&to);
    }
    address
}

impl Wire for Sockets {
    fn hops(&self) -> u8 {
        u8::from(self.to.1.is_some()) // routers take one off, devices do not
    }

    fn put(&mut self, packets: &[(Origin, Vec<u8>)]) {
        for (origin, octets) in packets {
            if let Origin::N3 { .. } = origin {
                self.gnb.send_to(octets, (UPF, 2152)).unwrap();
                continue;
            }
            let six = octets[0] >> 4 == 6;
            let kind = if six { libc::ETH_P_IPV6 } else { libc::ETH_P_IP } as u16;
            let address = link_address(self.to.0, kind, self.to.1);
            // SAFETY: the octets and the address, of the form that sockets of this family want, live through the call.
            let sent = unsafe {
                let to = (&raw const address).cast();
                let fd = self.network.as_raw_fd();
                libc::sendto(fd, octets.as_ptr().cast(), octets.len(), 0, to, size_of_val(&address) as _)
            };
            assert_eq!(sent, octets.len() as isize, "{}", std::io::Error::last_os_error());
        }
    }

    fn take(&mut self) -> Vec<(Destination, Vec<u8>)> {
        let (mut all, mut room) = (Vec::new(), [0; 4096]);
        while let Ok((octets, from)) = self.gnb.recv_from(&mut room) {
            assert_eq!(from, (UPF, 2152).into());
            all.push((Destination::N3 { peer: GNB, tos: 0 }, room[..octets].to_vec()));
        }
        loop {
            // SAFETY: the room lives through the call and is as long as given.
            let octets = unsafe {
                libc::recv(self.network.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), libc::MSG_TRUNC)
            };
            let Ok(octets) = usize::try_from(octets) else { return all };
            if is_of_a_ue(&room[..octets]) {
                all.push((Destination::N6 { dn: DnIndex(0) }, room[..octets].to_vec()));
            }
        }
    }
}

/// Not what the kernels have to say to each other.
fn is_of_a_ue(packet: &[u8]) -> bool {
    let prefix = [0x20, 1, 0xd, 0xb8, 0, 0x45];
    match packet.first().map(|o| o >> 4) {
        Some(4) => packet.get(12..14) == Some(&[10, 45]),
        Some(6) => packet.get(8..14) == Some(&prefix),
        _ => false,
    }
}

/// A datagram over IPv4, without a checksum of its own.
fn datagram(from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let octets = (28 + payload.len()) as u16;
    let [high, low] = octets.to_be_bytes();
    let mut p = vec![0x45, 0, high, low, 0, 1, 0, 0, 64, 17, 0, 0];
    p.extend([from.octets(), to.octets()].concat());
    let sum = checksum(&p, 0);
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    p.extend([2152u16, 2152, octets - 20, 0].map(u16::to_be_bytes).concat());
    p.extend_from_slice(payload);
    p
}
