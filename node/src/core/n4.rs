//! N4 towards SMFs outside this program: a UDP socket of the UPF's PFCP endpoint (`n4.listen`).

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tracing::warn;
use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::{AlternativeSmfIpAddress, NodeId};
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::IpNetwork;

use crate::config::{Config, Deployment};
use crate::log_limiter::LogLimiter;

/// Datagrams taken in one turn of the control thread, so that a flood on N4 does not keep UEs waiting.
const PER_TURN_MAX: usize = 64;
/// The largest datagram of UDP.
const DATAGRAM_OCTETS_MAX: usize = 65_535;
/// Messages of one datagram that are looked at: as many as the UPF takes out of it (TS 29.244 §6.4A).
const BUNDLE_MAX: usize = 64;

/// An address that no SMF has.
pub(super) const UNSPECIFIED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

/// From where a UPF takes PFCP: `n4.peers` and `n4.smfs`.
pub struct N4Peers {
    /// Empty: from everywhere.
    networks: Vec<IpNetwork>,
    log: LogLimiter<IpAddr>,
}

impl N4Peers {
    pub fn of(c: &Config) -> Self {
        let listed = c.n4.peers.iter().map(|network| network.0);
        let smfs = c.n4.smfs.iter().map(|smf| IpNetwork::host(smf.ip()));
        let networks = if c.n4.peers.is_empty() { Vec::new() } else { listed.chain(smfs).collect() };
        Self { networks, log: LogLimiter::new("PFCP of hosts that are not in `n4.peers`") }
    }

    /// True if `n4.peers` is empty, so that every host may set up an association.
    pub fn is_open(&self) -> bool {
        self.networks.is_empty()
    }

    /// Checks the source of a datagram against `n4.peers`; a refusal is logged.
    pub fn permits(&mut self, now: Instant, from: SocketAddr) -> bool {
        let address = from.ip().to_canonical();
        let permits = self.is_open() || self.networks.iter().any(|network| network.contains(address));
        if !permits && self.log.allows(now, address) {
            warn!(
                "N4: PFCP from {from} is dropped, because `n4.peers` does not list {address}; further datagrams of it are only counted"
            );
        }
        permits
    }
}

/// Counters of the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct N4Counters {
    pub(super) received: u64,
    pub(super) sent: u64,
    /// Datagrams that claimed to be from the SMF of this program.
    pub(super) impostors: u64,
    /// Datagrams from addresses that `n4.peers` does not list.
    pub(super) unknown_peers: u64,
    /// Datagrams that the kernel did not accept.
    pub(super) unsent: u64,
}

/// The UDP socket of N4.
pub struct N4Socket {
    socket: UdpSocket,
    at: SocketAddr,
    /// The address of the SMF of this program or unit, which does not use the socket.
    within: Option<IpAddr>,
    peers: N4Peers,
    log: LogLimiter<IpAddr>,
    buffer: Vec<u8>,
    pub(super) counters: N4Counters,
}

impl N4Socket {
    /// Of a socket that is bound. Errors: those of fcntl(2) and getsockname(2).
    fn of(socket: UdpSocket, within: Option<IpAddr>, peers: N4Peers) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            at: socket.local_addr()?,
            socket,
            within,
            peers,
            log: LogLimiter::new("PFCP in the name of this core's SMF"),
            buffer: vec![0; DATAGRAM_OCTETS_MAX],
            counters: N4Counters::default(),
        })
    }

    /// Where it listens.
    pub(super) fn at(&self) -> SocketAddr {
        self.at
    }

    /// Hands each waiting datagram to `each`, up to a bound. Returns how many there were.
    pub(super) fn receive(&mut self, now: Instant, mut each: impl FnMut(SocketAddr, &[u8])) -> usize {
        for n in 0..PER_TURN_MAX {
            match self.socket.recv_from(&mut self.buffer) {
                Ok((octets, peer)) => {
                    let octets = self.buffer.get(..octets).unwrap_or_default();
                    self.counters.received += 1;
                    if !self.peers.permits(now, peer) {
                        self.counters.unknown_peers += 1;
                    } else if let Some(own) = self.within.filter(|own| is_in_name_of(*own, peer, octets)) {
                        self.counters.impostors += 1;
                        if self.log.allows(now, peer.ip()) {
                            warn!(
                                "N4: PFCP from {peer} in the name of this core's SMF {own} is dropped, because that SMF does not use this \
                                 socket; further datagrams of this address are only counted"
                            );
                        }
                    } else {
                        each(peer, octets);
                    }
                }
                // An ICMP error of an earlier datagram is reported here; the next call continues.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::Interrupted) => {}
                Err(_) => return n,
            }
        }
        PER_TURN_MAX
    }

    /// Sends; a datagram that the kernel does not accept is counted, and PFCP repeats it.
    pub(super) fn send(&mut self, to: SocketAddr, octets: &[u8]) {
        match self.socket.send_to(octets, to) {
            Ok(_) => self.counters.sent += 1,
            Err(_) => self.counters.unsent += 1,
        }
    }
}

impl AsFd for N4Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Opens N4 for external SMFs, if configured, on a socket that another process has held if there is one. The
/// filter for the name of the own SMF is on in a unit, too; a UPF without an SMF of its own has none to
/// filter. Errors: those of `bind`, with the address.
pub fn open_n4(
    config: &Config,
    given: Option<OwnedFd>,
) -> Result<Option<N4Socket>, (SocketAddr, std::io::Error)> {
    let Some(at) = config.n4.listen else { return Ok(None) };
    let has_own_smf = match config.deployment {
        Deployment::UpfOnly { .. } | Deployment::UpfBehindLogger => false,
        Deployment::Single
        | Deployment::ClusterCta
        | Deployment::PairedCta
        | Deployment::UnitManager
        | Deployment::UnitCta(_)
        | Deployment::UnitUpf(_)
        | Deployment::UnitUpfReplica(_) => true,
    };
    let within = has_own_smf.then_some(config.n4.node_id);
    let peers = N4Peers::of(config);
    if peers.is_open() {
        warn!(
            "N4: every host that reaches {at} may set up an association with this UPF: list the SMFs in `n4.peers`"
        );
    }
    let socket = given.map_or_else(|| UdpSocket::bind(at), |given| Ok(given.into()));
    socket.and_then(|socket| N4Socket::of(socket, within, peers)).map(Some).map_err(|e| (at, e))
}

/// True if a datagram comes from the address of the SMF `own`, or a message in it claims to.
fn is_in_name_of(own: IpAddr, peer: SocketAddr, octets: &[u8]) -> bool {
    peer.ip().to_canonical() == own || claims(octets, &own.into())
}

/// True if a message of the datagram names `node` as its sender, or as another address of its sender. Such a
/// message could end that node's association and sessions, or redirect them.
fn claims(octets: &[u8], node: &NodeId) -> bool {
    let mut rest = octets;
    for _ in 0..BUNDLE_MAX {
        let Ok(frame) = Frame::parse(rest) else { return false };
        let claims = match Message::parse(&frame) {
            Ok(Message::AssociationSetupRequest(m)) => {
                m.node_id == *node || lists(&m.alternative_smf_ip_addresses, node)
            }
            Ok(Message::AssociationSetupResponse(m)) => m.node_id == *node,
            Ok(Message::AssociationUpdateRequest(m)) => {
                m.node_id == *node || lists(&m.alternative_smf_ip_addresses, node)
            }
            Ok(Message::AssociationReleaseRequest(m)) => m.node_id == *node,
            Ok(Message::SessionEstablishmentRequest(m)) => m.node_id == *node,
            _ => false,
        };
        if claims || !frame.header.follow_on || frame.rest.is_empty() {
            return claims;
        }
        rest = frame.rest;
    }
    false
}

fn lists(addresses: &[AlternativeSmfIpAddress], node: &NodeId) -> bool {
    let is_node = |a: IpAddr| NodeId::from(a) == *node;
    addresses.iter().any(|a| {
        a.0.ipv4.is_some_and(|ipv4| is_node(ipv4.into())) || a.0.ipv6.is_some_and(|ipv6| is_node(ipv6.into()))
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use whimbrel_ids::Instant;
    use whimbrel_pfcp::ie::{Cause, RecoveryTimeStamp};
    use whimbrel_pfcp::msg::{AssociationReleaseRequest, AssociationSetupRequest, HeartbeatRequest};
    use whimbrel_user::{Input, Outbox, UpfC};

    use super::*;

    const STARTED: RecoveryTimeStamp = RecoveryTimeStamp(1000);

    struct Net {
        upf: UpfC,
        n4: N4Socket,
        out: Outbox,
    }

    impl Net {
        fn new() -> Self {
            Self::with("n4: { listen: \"127.0.0.1:8805\" }")
        }

        fn with(yaml: &str) -> Self {
            let config = crate::config::parse(yaml, std::path::Path::new("test")).unwrap();
            let upf = UpfC::new(super::super::upf::user_plane_config(&config, 7), Instant(1 << 50)).unwrap();
            // No test can send from the address of the program's SMF.
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let n4 = N4Socket::of(socket, Some(config.n4.node_id), N4Peers::of(&config)).unwrap();
            Self { upf, n4, out: Outbox::default() }
        }

        /// Sends a client's request. Returns the UPF's answer, if any.
        fn ask(&mut self, client: &UdpSocket, m: Message, sequence: u32) -> Option<Message> {
            client.send_to(&m.to_octets(None, sequence), self.n4.at()).unwrap();
            let (upf, out) = (&mut self.upf, &mut self.out);
            let pfcp = |peer, octets: &[u8]| upf.handle(Instant(1 << 50), Input::Pfcp { peer, octets }, out);
            assert_eq!(self.n4.receive(Instant(1 << 50), pfcp), 1);
            for (to, octets) in self.out.datagrams.drain(..) {
                self.n4.send(to, &octets);
            }
            client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let mut buffer = [0; 2048];
            let (n, _) = client.recv_from(&mut buffer).ok()?;
            let frame = Frame::parse(&buffer[..n]).unwrap();
            assert_eq!(frame.header.sequence, sequence);
            Some(Message::parse(&frame).unwrap())
        }
    }

    fn smf(address: [u8; 4]) -> UdpSocket {
        UdpSocket::bind(SocketAddr::from((address, 0))).unwrap()
    }

    fn set_up(node: [u8; 4]) -> Message {
        AssociationSetupRequest {
            announced_pools: None,
            smf_set_id: None,
            node_id: NodeId::Ipv4(Ipv4Addr::from(node)),
            recovery_time_stamp: STARTED,
            up_function_features: None,
            cp_function_features: None,
            user_plane_ip_resource_information: Vec::new(),
            session_retention_information: None,
            alternative_smf_ip_addresses: Vec::new(),
        }
        .into()
    }

    #[test] // TS 29.244 §6.2.2, §6.2.6: an UP function serves several CP functions
    fn several_smfs_have_heartbeats_and_associations() {
        let mut net = Net::new();
        for (i, address) in [[127, 0, 0, 2], [127, 0, 0, 3], [127, 0, 0, 4]].into_iter().enumerate() {
            let client = smf(address);
            let heartbeat = HeartbeatRequest { recovery_time_stamp: STARTED };
            assert!(matches!(net.ask(&client, heartbeat.into(), 5), Some(Message::HeartbeatResponse(_))));
            let Some(Message::AssociationSetupResponse(m)) = net.ask(&client, set_up(address), 6) else {
                panic!("no association")
            };
            assert_eq!(m.cause, Cause::RequestAccepted);
            assert_eq!(net.upf.associations().count(), i + 1);
        }
        assert_eq!((net.n4.counters.received, net.n4.counters.sent), (6, 6));
    }

    #[test] // TS 29.244 §6.2.2.2: either end may ask whether the other is there
    fn requests_of_the_upf_reach_the_smf_that_they_are_for() {
        let mut net = Net::new();
        let (one, other) = (smf([127, 0, 0, 2]), smf([127, 0, 0, 3]));
        net.ask(&one, set_up([127, 0, 0, 2]), 1).unwrap();
        net.ask(&other, set_up([127, 0, 0, 3]), 1).unwrap();
        let due = net.upf.next_deadline().unwrap();
        net.upf.handle(due, Input::Tick, &mut net.out);
        for (to, octets) in net.out.datagrams.drain(..) {
            net.n4.send(to, &octets);
        }
        for client in [one, other] {
            let mut buffer = [0; 2048];
            let (n, from) = client.recv_from(&mut buffer).unwrap();
            let heartbeat = Message::parse(&Frame::parse(&buffer[..n]).unwrap()).unwrap();
            assert!(matches!(heartbeat, Message::HeartbeatRequest(_)));
            assert_eq!(from, net.n4.at());
        }
    }

    #[test]
    fn no_external_message_can_claim_to_be_from_the_programs_smf() {
        let mut net = Net::new();
        let own = [127, 0, 0, 1];
        // By its name from elsewhere, and by its address.
        let node_id = NodeId::Ipv4(Ipv4Addr::from(own));
        assert_eq!(net.ask(&smf([127, 0, 0, 2]), set_up(own), 1), None);
        assert_eq!(net.ask(&smf([127, 0, 0, 2]), AssociationReleaseRequest { node_id }.into(), 2), None);
        assert_eq!(net.ask(&smf(own), set_up([127, 0, 0, 2]), 3), None);
        let Message::AssociationSetupRequest(mut member) = set_up([127, 0, 0, 2]) else { panic!() };
        member.alternative_smf_ip_addresses = vec![IpAddr::from(own).into()];
        assert_eq!(net.ask(&smf([127, 0, 0, 2]), (*member).into(), 4), None, "as another address of its set");
        assert_eq!((net.n4.counters.impostors, net.n4.counters.sent), (4, 0));
        assert_eq!(net.upf.associations().count(), 0);
        // Arbitrary octets claim nothing.
        assert!(!claims(&[], &NodeId::Ipv4(Ipv4Addr::from(own))));
        assert!(!claims(&[0x20; 40], &NodeId::Ipv4(Ipv4Addr::from(own))));
    }

    #[test]
    fn a_flood_is_received_over_several_turns() {
        let mut net = Net::new();
        let client = smf([127, 0, 0, 2]);
        for _ in 0..PER_TURN_MAX + 6 {
            client.send_to(&[1, 2, 3], net.n4.at()).unwrap();
        }
        assert_eq!(net.n4.receive(Instant(1), |_, _| ()), PER_TURN_MAX);
        assert_eq!(net.n4.receive(Instant(1), |_, _| ()), 6);
        assert_eq!(net.n4.receive(Instant(1), |_, _| ()), 0);
    }
    #[test]
    fn only_listed_peers_are_heard() {
        let mut net = Net::with(
            "n4: { listen: \"127.0.0.1:8805\", smfs: [\"127.0.0.4:8805\"], peers: [127.0.0.2, 127.0.3.0/24] }",
        );
        for address in [[127, 0, 0, 2], [127, 0, 3, 7], [127, 0, 0, 4]] {
            assert!(net.ask(&smf(address), set_up(address), 1).is_some(), "{address:?}");
        }
        for address in [[127, 0, 0, 3], [127, 0, 4, 1]] {
            assert_eq!(net.ask(&smf(address), set_up(address), 1), None, "{address:?}");
        }
        assert_eq!((net.n4.counters.unknown_peers, net.upf.associations().count()), (2, 3));
    }
}
