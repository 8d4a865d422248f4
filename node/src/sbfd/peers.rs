//! The nodes that the configuration names (`sbfd.peers`): UPFs and others.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use tracing::{info, warn};
use whimbrel_ids::Instant;
use whimbrel_resilience::sbfd::{SbfdChange, SbfdTarget};

use super::{DropLog, SbfdFigures, SbfdProber, SbfdVerdict};
use crate::config::{Sbfd, SbfdPeer};
use crate::observation::Condition;

/// What happened to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEvent {
    pub name: String,
    pub address: SocketAddr,
    pub change: SbfdChange,
}

/// How a peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerState {
    /// It has not answered yet.
    New,
    Answers,
    Failed(Instant),
    OutOfService,
}

/// The probed peers. There are two sockets if peers have addresses of both versions.
pub struct SbfdPeers {
    probers: Vec<SbfdProber<usize>>,
    peers: Vec<(SbfdPeer, PeerState)>,
    drops: DropLog,
}

impl SbfdPeers {
    /// Begins to probe them; `None`: there are none. Errors: one sentence.
    pub fn start(config: &Sbfd) -> Result<Option<Self>, String> {
        let Some(probing) = config.probing.filter(|_| !config.peers.is_empty()) else { return Ok(None) };
        let versions: BTreeSet<bool> = config.peers.iter().map(|peer| peer.address.is_ipv6()).collect();
        let mut probers = Vec::new();
        for is_ipv6 in versions {
            let from =
                if is_ipv6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
            let mut prober = SbfdProber::start(from, probing)?;
            for (n, peer) in
                config.peers.iter().enumerate().filter(|(_, peer)| peer.address.is_ipv6() == is_ipv6)
            {
                let SbfdPeer { address, discriminator, .. } = *peer;
                prober.watch(n, SbfdTarget { address, discriminator, among: false });
            }
            probers.push(prober);
        }
        let peers = config.peers.iter().map(|peer| (peer.clone(), PeerState::New)).collect();
        Ok(Some(Self { probers, peers, drops: DropLog::default() }))
    }

    /// What happened since the last call; it is logged.
    pub fn turn(&mut self, now: Instant) -> Vec<PeerEvent> {
        let verdicts: Vec<SbfdVerdict<usize>> = self.probers.iter_mut().flat_map(SbfdProber::take).collect();
        let mut events = Vec::new();
        for SbfdVerdict { peer, change } in verdicts {
            let Some((SbfdPeer { name, address, .. }, state)) = self.peers.get_mut(peer) else { continue };
            let (name, address) = (name.clone(), *address);
            match change {
                SbfdChange::Up => info!(peer = name, %address, "an S-BFD peer answers"),
                SbfdChange::Failed => {
                    warn!(peer = name, %address, "an S-BFD peer does not answer: the node, or the path to it, has failed");
                }
                SbfdChange::OutOfService => {
                    info!(peer = name, %address, "an S-BFD peer says that it is out of service")
                }
            }
            *state = match change {
                SbfdChange::Up => PeerState::Answers,
                SbfdChange::Failed => PeerState::Failed(now),
                SbfdChange::OutOfService => PeerState::OutOfService,
            };
            events.push(PeerEvent { name, address, change });
        }
        events
    }

    /// Logs drops that are new, and returns the condition of all peers.
    pub fn condition(&mut self, now: Instant) -> (Condition, String) {
        self.drops.log(now, self.figures().probing);
        let text = |(peer, state): &(SbfdPeer, PeerState)| {
            let SbfdPeer { name, address, .. } = peer;
            match state {
                PeerState::Answers => None,
                PeerState::New => Some(format!("{name} at {address} has not answered yet")),
                PeerState::Failed(since) => {
                    let seconds = now.since(*since).as_secs();
                    Some(format!(
                        "{name} at {address} has not answered for {seconds} s: the node, or the path to it, has failed"
                    ))
                }
                PeerState::OutOfService => {
                    Some(format!("{name} at {address} says that it is out of service"))
                }
            }
        };
        let wrong: Vec<String> = self.peers.iter().filter_map(text).collect();
        match wrong.is_empty() {
            true => (Condition::Up, format!("all {} S-BFD peers answer", self.peers.len())),
            false => (Condition::Limited, wrong.join("; ")),
        }
    }

    pub fn figures(&self) -> SbfdFigures {
        self.probers.iter().map(SbfdProber::figures).fold(SbfdFigures::default(), |a, b| a + b)
    }

    /// What to wait on.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.probers.iter().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::clock;
    use crate::config::ReflectorConfig;
    use crate::sbfd::ReflectorThread;

    /// A reflector at a free port, and the configuration that probes it.
    fn reflector() -> (ReflectorThread, Sbfd) {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let listen = probe.local_addr().unwrap();
        drop(probe);
        let text = format!(
            "sbfd: {{ interval: 100ms, real_time: false, peers: [{{ name: east, address: \"{listen}\" }}] }}"
        );
        let config = crate::config::parse(&text, Path::new("test")).unwrap().sbfd;
        let discriminator = config.peers[0].discriminator;
        let reflecting = ReflectorConfig { listen, discriminator, one_link: true, real_time: false };
        (ReflectorThread::start(reflecting).unwrap(), config)
    }

    /// Waits for the next event.
    fn next(peers: &mut SbfdPeers) -> SbfdChange {
        let until = clock::now() + Duration::from_secs(20);
        loop {
            if let Some(event) = peers.turn(clock::now()).pop() {
                assert_eq!(event.name, "east");
                return event.change;
            }
            assert!(clock::now() < until, "{:?}", peers.condition(clock::now()));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_peer_that_stops_answering_is_reported_and_shown_and_so_is_its_return() {
        let (reflector, config) = reflector();
        let mut peers = SbfdPeers::start(&config).unwrap().unwrap();
        assert_eq!(peers.condition(clock::now()).0, Condition::Limited);
        assert_eq!(next(&mut peers), SbfdChange::Up);
        assert_eq!(peers.condition(clock::now()), (Condition::Up, "all 1 S-BFD peers answer".into()));
        assert!(reflector.figures().reflecting.sent > 0);
        drop(reflector);
        // The port is closed: ICMP says so, which is no answer.
        assert_eq!(next(&mut peers), SbfdChange::Failed);
        let (condition, text) = peers.condition(clock::now());
        assert!(condition == Condition::Limited && text.starts_with("east at 127.0.0.1:"), "{text}");
        let SbfdPeer { address: listen, discriminator, .. } = config.peers[0];
        let _again = ReflectorThread::start(ReflectorConfig {
            listen,
            discriminator,
            one_link: true,
            real_time: false,
        })
        .unwrap();
        assert_eq!(next(&mut peers), SbfdChange::Up);
    }

    #[test]
    fn without_peers_or_interval_nothing_is_probed() {
        for text in ["", "sbfd: { interval: 5ms }"] {
            let config = crate::config::parse(text, Path::new("test")).unwrap().sbfd;
            assert!(SbfdPeers::start(&config).unwrap().is_none());
        }
    }
}
