//! N4 towards UPFs that are other processes: the UDP socket of the SMF (`n4.node_id`, port 8805), and a Unix socket towards the UPF of its unit.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use whimbrel_control::UpfId;
use whimbrel_ids::Instant;
use whimbrel_user::Config as UpfConfig;

use super::unit_n4::{UnitN4, UnitN4End};
use crate::config::Config;
use crate::function::descriptors;
use crate::observation::{Metric, MetricSample};

/// Datagrams taken in one turn of the control thread, so that a flood on N4 does not keep UEs waiting.
const PER_TURN_MAX: usize = 64;
/// The largest datagram of UDP.
const DATAGRAM_OCTETS_MAX: usize = 65_535;

/// What went over the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SmfN4Counters {
    pub(super) received: u64,
    pub(super) sent: u64,
    /// Datagrams from addresses of no configured UPF.
    pub(super) unknown_upf: u64,
    /// Datagrams that the kernel did not take, and messages for which a link has no room.
    pub(super) unsent: u64,
}

/// The sockets, and where the UPFs are.
pub struct SmfN4 {
    /// Towards UPFs on other hosts, if any are configured.
    socket: Option<UdpSocket>,
    /// Towards the UPF of this unit. Nothing that comes over UDP is of that one.
    unit: Option<(UpfId, UnitN4)>,
    at: SocketAddr,
    /// By [`UpfId`]; `None` is the UPF of this program.
    upfs: Vec<Option<SocketAddr>>,
    buffer: Vec<u8>,
    pub(super) counters: SmfN4Counters,
}

impl SmfN4 {
    fn over(
        socket: Option<UdpSocket>,
        at: SocketAddr,
        upfs: Vec<Option<SocketAddr>>,
    ) -> std::io::Result<Self> {
        if let Some(socket) = &socket {
            socket.set_nonblocking(true)?;
        }
        let buffer = vec![0; DATAGRAM_OCTETS_MAX];
        Ok(Self { socket, unit: None, at, upfs, buffer, counters: SmfN4Counters::default() })
    }

    /// Where it sends from.
    pub(super) fn at(&self) -> SocketAddr {
        self.at
    }

    /// Where a UPF is.
    pub(super) fn address(&self, upf: UpfId) -> Option<SocketAddr> {
        self.upfs.get(usize::from(upf.0)).copied().flatten()
    }

    /// The UPFs outside this program.
    pub(super) fn outside(&self) -> impl Iterator<Item = UpfId> + use<> {
        let ids: Vec<UpfId> =
            (0u8..).zip(&self.upfs).filter(|(_, a)| a.is_some()).map(|(i, _)| UpfId(i)).collect();
        ids.into_iter()
    }

    /// The next datagram that waits, whose UPF it is and where it came from.
    pub(super) fn receive(&mut self) -> Option<(UpfId, SocketAddr, Vec<u8>)> {
        if let Some((upf, unit)) = &mut self.unit
            && let Some(octets) = unit.receive()
        {
            self.counters.received += 1;
            let from = self.upfs.get(usize::from(upf.0)).copied().flatten()?;
            return Some((*upf, from, octets.to_vec()));
        }
        self.receive_from_outside()
    }

    /// A UPF may ask from any port, and is known by its address (TS 29.244 §6.5.2).
    fn receive_from_outside(&mut self) -> Option<(UpfId, SocketAddr, Vec<u8>)> {
        let socket = self.socket.as_ref()?;
        let own = self.unit.as_ref().map(|(upf, _)| usize::from(upf.0));
        for _ in 0..PER_TURN_MAX {
            match socket.recv_from(&mut self.buffer) {
                Ok((octets, peer)) => {
                    self.counters.received += 1;
                    let of_upf = |(i, a): (usize, &Option<SocketAddr>)| {
                        own != Some(i) && a.is_some_and(|a| a.ip() == peer.ip().to_canonical())
                    };
                    let Some(upf) =
                        self.upfs.iter().enumerate().position(of_upf).and_then(|i| u8::try_from(i).ok())
                    else {
                        self.counters.unknown_upf += 1;
                        continue;
                    };
                    let octets = self.buffer.get(..octets).unwrap_or_default().to_vec();
                    return Some((UpfId(upf), peer, octets));
                }
                // An ICMP error of an earlier datagram is reported here; the next call continues.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::Interrupted) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Sends to a UPF; a datagram that the kernel does not accept is counted, and PFCP repeats it.
    pub(super) fn send(&mut self, upf: UpfId, to: SocketAddr, octets: &[u8]) {
        let is_sent = match (&mut self.unit, &self.socket) {
            (Some((own, unit)), _) if *own == upf => unit.send(octets),
            (_, Some(socket)) => socket.send_to(octets, to).is_ok(),
            (_, None) => false,
        };
        match is_sent {
            true => self.counters.sent += 1,
            false => self.counters.unsent += 1,
        }
    }

    /// Sends what waits for the UPF of this unit.
    pub(super) fn flush(&mut self) {
        self.unit.iter_mut().for_each(|(_, unit)| unit.flush());
    }

    /// When [`Self::flush`] is due.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        self.unit.as_ref().and_then(|(_, unit)| unit.next_deadline(now))
    }

    /// Readable when [`Self::receive`] has something to take.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let unit = self.unit.as_ref().map(|(_, unit)| unit.as_fd());
        self.socket.as_ref().map(AsFd::as_fd).into_iter().chain(unit)
    }

    /// Keeps the sockets for the CTA of this unit that replaces this one.
    fn keep(&self) {
        if let Some(socket) = &self.socket {
            descriptors::keep(descriptors::N4, socket.as_fd());
        }
        if let Some((_, unit)) = &self.unit {
            descriptors::keep(descriptors::UNIT_N4, unit.as_fd());
        }
    }
}

impl SmfN4 {
    /// Its counters, for the metrics.
    pub(super) fn samples(&self) -> Vec<MetricSample> {
        let c = self.counters;
        let one = |metric, value| MetricSample { metric, label: None, value };
        vec![
            one(Metric::SmfN4Received, c.received),
            one(Metric::SmfN4Sent, c.sent),
            one(Metric::SmfN4Unsent, c.unsent),
            one(Metric::SmfN4UnknownUpf, c.unknown_upf),
        ]
    }
}

/// Opens N4 towards UPFs that are other processes, if there are such: a UDP socket for those elsewhere, and a Unix socket for that of this unit.
/// In a unit the sockets of the CTA before are taken over, with the datagrams that wait in them. Errors: a sentence.
pub fn open_smf_n4(config: &Config) -> Result<Option<SmfN4>, String> {
    let upfs: Vec<Option<SocketAddr>> = config.upfs.iter().map(|u| u.address).collect();
    if upfs.iter().all(Option::is_none) {
        return Ok(None);
    }
    let at = SocketAddr::new(config.n4.node_id, UpfConfig::PFCP_PORT);
    let cannot_listen = |e: std::io::Error| crate::port_owner::cannot_listen("n4.node_id", "UDP", at, &e);
    let of_unit = config.deployment.unit_function().zip(config.cluster.host().and_then(|host| host.upf));
    let own = of_unit.map(|(_, upf)| usize::from(upf));
    let has_others = upfs.iter().enumerate().any(|(i, address)| address.is_some() && own != Some(i));
    let former = descriptors::take(descriptors::N4).filter(|_| has_others);
    let socket = match former {
        Some(socket) => Some(socket.into()),
        None if has_others => Some(UdpSocket::bind(at).map_err(cannot_listen)?),
        None => None,
    };
    let mut n4 = SmfN4::over(socket, at, upfs).map_err(cannot_listen)?;
    if let Some((function, upf)) = of_unit {
        let former = descriptors::take(descriptors::UNIT_N4);
        let unit = UnitN4::open(&function.directory, UnitN4End::Smf, former)
            .map_err(|e| format!("no socket for N4 can be opened in `unit.directory`: {e}"))?;
        n4.unit = Some((UpfId(upf), unit));
    }
    n4.keep();
    Ok(Some(n4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 29.244 §6.5.2: a UPF is known by its address, whatever port it asks from; datagrams from other addresses are dropped
    fn upfs_are_known_by_their_addresses() {
        let socket = |a: [u8; 4]| UdpSocket::bind(SocketAddr::from((a, 0))).unwrap();
        let (one, other) = (socket([127, 0, 0, 41]), socket([127, 0, 0, 42]));
        let upfs = vec![None, Some(one.local_addr().unwrap())];
        let own = socket([127, 0, 0, 1]);
        let at = own.local_addr().unwrap();
        let mut n4 = SmfN4::over(Some(own), at, upfs).unwrap();
        other.send_to(b"x", n4.at()).unwrap();
        let again = socket([127, 0, 0, 41]);
        again.send_to(b"y", n4.at()).unwrap();
        let received = (0..100).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            n4.receive()
        });
        assert_eq!(received, Some((UpfId(1), again.local_addr().unwrap(), b"y".to_vec())));
        assert_eq!((n4.counters.received, n4.counters.unknown_upf), (2, 1));
        assert_eq!(n4.outside().collect::<Vec<_>>(), [UpfId(1)]);
        n4.send(UpfId(1), one.local_addr().unwrap(), b"z");
        let mut buffer = [0; 4];
        one.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        assert_eq!(one.recv_from(&mut buffer).unwrap(), (1, n4.at()));
    }
    #[test] // the UPF of a unit binds no address, so any program of the host could bind it and be the UPF
    fn nothing_over_udp_is_of_the_upf_of_the_unit() {
        let folder = tempfile::tempdir().unwrap();
        let directory = crate::function::UnitDirectory::of(folder.path());
        let impostor = UdpSocket::bind("127.0.0.88:0").unwrap();
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (at, upf) = (own.local_addr().unwrap(), impostor.local_addr().unwrap());
        let mut n4 = SmfN4::over(Some(own), at, vec![Some(upf)]).unwrap();
        n4.unit = Some((UpfId(0), UnitN4::open(&directory, UnitN4End::Smf, None).unwrap()));
        let mut of_unit = UnitN4::open(&directory, UnitN4End::Upf, None).unwrap();
        impostor.send_to(b"forged", at).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(n4.receive(), None);
        assert_eq!(n4.counters.unknown_upf, 1);
        assert!(of_unit.send(b"own"));
        assert_eq!(n4.receive(), Some((UpfId(0), upf, b"own".to_vec())));
        n4.send(UpfId(0), upf, b"answer");
        assert_eq!(of_unit.receive(), Some(&b"answer"[..]));
    }
}
