//! N4 towards UPFs outside this program: the UDP socket of the SMF (`n4.node_id`, port 8805).

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use whimbrel_control::UpfId;
use whimbrel_user::Config as UpfConfig;

use crate::config::Config;
use crate::console::{Metric, Sample};

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

/// The socket, and where the UPFs are.
pub(crate) struct SmfN4 {
    socket: UdpSocket,
    at: SocketAddr,
    /// By [`UpfId`]; `None` is the UPF of this program.
    upfs: Vec<Option<SocketAddr>>,
    buffer: Vec<u8>,
    pub(super) counters: SmfN4Counters,
}

impl SmfN4 {
    fn bind(at: SocketAddr, upfs: Vec<Option<SocketAddr>>) -> std::io::Result<Self> {
        Self::over(UdpSocket::bind(at)?, upfs)
    }

    fn over(socket: UdpSocket, upfs: Vec<Option<SocketAddr>>) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        let at = socket.local_addr()?;
        let buffer = vec![0; DATAGRAM_OCTETS_MAX];
        Ok(Self { socket, at, upfs, buffer, counters: SmfN4Counters::default() })
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

    /// The next datagram that waits, whose UPF it is and where it came from. A UPF may ask from any port, and is known by its
    /// address (TS 29.244 §6.5.2).
    pub(super) fn receive(&mut self) -> Option<(UpfId, SocketAddr, Vec<u8>)> {
        for _ in 0..PER_TURN_MAX {
            match self.socket.recv_from(&mut self.buffer) {
                Ok((octets, peer)) => {
                    self.counters.received += 1;
                    let of_upf =
                        |a: &Option<SocketAddr>| a.is_some_and(|a| a.ip() == peer.ip().to_canonical());
                    let Some(upf) = self.upfs.iter().position(of_upf).and_then(|i| u8::try_from(i).ok())
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

    /// Sends; a datagram that the kernel does not accept is counted, and PFCP repeats it.
    pub(super) fn send(&mut self, to: SocketAddr, octets: &[u8]) {
        match self.socket.send_to(octets, to) {
            Ok(_) => self.counters.sent += 1,
            Err(_) => self.counters.unsent += 1,
        }
    }
}

impl SmfN4 {
    /// Its counters, for the metrics.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let c = self.counters;
        let one = |metric, value| Sample { metric, label: None, value };
        vec![
            one(Metric::SmfN4Received, c.received),
            one(Metric::SmfN4Sent, c.sent),
            one(Metric::SmfN4Unsent, c.unsent),
            one(Metric::SmfN4UnknownUpf, c.unknown_upf),
        ]
    }
}

impl AsFd for SmfN4 {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Opens N4 towards UPFs elsewhere, if there are such. `former`: the socket of the CTA of this unit that this one replaces, with the datagrams
/// that wait in it. Errors: those of `bind`, with the address.
pub(crate) fn open_smf_n4(
    config: &Config,
    former: Option<OwnedFd>,
) -> Result<Option<SmfN4>, (SocketAddr, std::io::Error)> {
    let upfs: Vec<Option<SocketAddr>> = config.upfs.iter().map(|u| u.address).collect();
    if upfs.iter().all(Option::is_none) {
        return Ok(None);
    }
    let at = SocketAddr::new(config.n4.node_id, UpfConfig::PFCP_PORT);
    let opened = match former {
        Some(socket) => SmfN4::over(socket.into(), upfs),
        None => SmfN4::bind(at, upfs),
    };
    opened.map(Some).map_err(|e| (at, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 29.244 §6.5.2: a UPF is known by its address, whatever port it asks from; datagrams from other addresses are dropped
    fn upfs_are_known_by_their_addresses() {
        let socket = |a: [u8; 4]| UdpSocket::bind(SocketAddr::from((a, 0))).unwrap();
        let (one, other) = (socket([127, 0, 0, 41]), socket([127, 0, 0, 42]));
        let upfs = vec![None, Some(one.local_addr().unwrap())];
        let mut n4 = SmfN4::bind("127.0.0.1:0".parse().unwrap(), upfs).unwrap();
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
        n4.send(one.local_addr().unwrap(), b"z");
        let mut buffer = [0; 4];
        one.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        assert_eq!(one.recv_from(&mut buffer).unwrap(), (1, n4.at()));
    }
}
