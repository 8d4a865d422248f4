//! Sockets and devices as descriptors, which another process can hold while the UPF's is restarted: what comes meanwhile waits in them.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::config::Config;
use crate::error::StartError;
use crate::sys::bpf::Program;
use crate::sys::datagrams::Datagrams;
use crate::sys::tun::{DeviceKind, Tun};
use crate::xdp::chooser::by_ue;

/// Has the kernel choose the queue of each packet for a UE, by the packet thread that has it. Errors: those of bpf(2).
pub(crate) fn steer(queue: BorrowedFd<'_>, threads: usize) -> io::Result<()> {
    Program::load_chooser(&by_ue(threads as u32)).and_then(|program| Tun::steer(queue, &program))
}

/// The GTP-U sockets and the queues of TUN and TAP devices of a user plane, open.
#[derive(Debug)]
pub struct Descriptors {
    /// For each address of N3, one for each packet thread.
    pub(super) n3: Vec<OwnedFd>,
    /// For each data network, one for each packet thread.
    pub(super) packets: Vec<OwnedFd>,
    /// For each data network that has Ethernet sessions.
    pub(super) frames: Vec<OwnedFd>,
    /// Why the kernel does not steer packets to the threads, where it does not.
    pub(super) unsteered: Option<io::Error>,
}

impl Descriptors {
    /// Binds the sockets and makes the devices. Errors: the first that fails; what was made before is gone then.
    pub fn open(config: &Config) -> Result<Self, StartError> {
        let threads = config.user.shards.into();
        let mut it = Self { n3: Vec::new(), packets: Vec::new(), frames: Vec::new(), unsteered: None };
        for address in config.n3_addresses() {
            let sockets =
                Datagrams::sockets(address, threads).map_err(|error| StartError::Bind { address, error })?;
            it.n3.extend(sockets.into_iter().map(OwnedFd::from));
        }
        for d in &config.devices {
            let of = |error| StartError::Tun { device: d.device.clone(), error };
            let queues =
                Tun::open(&d.device, DeviceKind::Packets, threads, config.keeps_state).map_err(of)?;
            if threads > 1 {
                it.unsteered = steer(queues[0].as_fd(), threads).err().or(it.unsteered);
            }
            it.packets.extend(queues.into_iter().map(OwnedFd::from));
        }
        // Ethernet sessions are the first thread's.
        for f in config.devices.iter().filter_map(|d| d.frames.as_ref()) {
            let of = |error| StartError::Tun { device: f.device.clone(), error };
            let taps = Tun::open(&f.device, DeviceKind::Frames, 1, config.keeps_state).map_err(of)?;
            it.frames.extend(taps.into_iter().map(OwnedFd::from));
        }
        Ok(it)
    }

    /// Duplicates, which name the same sockets and devices. Errors: those of dup(2).
    pub fn try_clone(&self) -> io::Result<Self> {
        let all = |of: &[OwnedFd]| of.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>();
        let (n3, packets, frames) = (all(&self.n3)?, all(&self.packets)?, all(&self.frames)?);
        Ok(Self { n3, packets, frames, unsteered: None })
    }

    /// All of them in one order, to be handed to another process.
    pub fn into_list(self) -> Vec<OwnedFd> {
        [self.n3, self.packets, self.frames].into_iter().flatten().collect()
    }

    /// Those of a list, as [`into_list`](Self::into_list) has them, for a user plane of the same configuration. `None` if they are not as many.
    pub fn from_list(list: Vec<OwnedFd>, config: &Config) -> Option<Self> {
        let threads = usize::from(config.user.shards);
        let [n3, packets] = [config.n3_addresses().count(), config.devices.len()].map(|n| n * threads);
        let frames = config.devices.iter().filter(|d| d.frames.is_some()).count();
        if list.len() != n3 + packets + frames {
            return None;
        }
        let mut list = list.into_iter();
        let mut take = |n| list.by_ref().take(n).collect();
        let (n3, packets) = (take(n3), take(packets));
        Some(Self { n3, packets, frames: take(frames), unsteered: None })
    }

    /// What packet threads make of their sockets, among which the kernel spreads datagrams as is configured. The configuration's seed is that of the UPF's
    /// state, for it decides which thread has a tunnel. Errors: `Bind` where a socket is none of that address.
    pub(super) fn n3(list: Vec<OwnedFd>, config: &Config) -> Result<Vec<Vec<Datagrams>>, StartError> {
        let threads = usize::from(config.user.shards);
        let mut by_thread: Vec<Vec<Datagrams>> = (0..threads).map(|_| Vec::new()).collect();
        let mut list = list.into_iter();
        for address in config.n3_addresses() {
            let of = |error| StartError::Bind { address, error };
            for (thread, fd) in by_thread.iter_mut().zip(list.by_ref().take(threads)) {
                thread.push(Datagrams::of(UdpSocket::from(fd), address, threads == 1).map_err(of)?);
            }
            let first = by_thread[0].last().filter(|_| threads > 1);
            let spread = first.map(|socket| socket.spread(config.spread_by, threads, &config.user.teids()));
            spread.transpose().map_err(of)?;
        }
        Ok(by_thread)
    }
}
