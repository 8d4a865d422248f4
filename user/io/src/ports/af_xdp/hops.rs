//! The next hop to each gNB, from the kernel's routes and neighbour table, cached for a second.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::host::route::{Interface, Routes};

/// Peers that are remembered, more than gNBs that one UPF has paths to. Echo requests of unknown peers may fill it; then all are
/// forgotten and learnt again.
const PEERS_MAX: usize = 16_384;
/// How long an answer is good: a neighbour that gets another Ethernet address misses packets for this long.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// How long until a neighbour that is not known yet is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// Time between questions to the kernel: each takes some 20 µs, so that they take a tenth of the thread's time at most,
/// no matter which packet makes us ask. A peer that is not resolved goes by the socket, or as before.
const BETWEEN_QUESTIONS: Duration = Duration::from_micros(200);

/// Where frames for a peer go, and how long their packets may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u32,
}

/// Where packets for a peer go.
#[derive(Clone, Copy)]
enum PeerHop {
    /// By the interface, to a neighbour that is known.
    Neighbour(Hop),
    /// By the interface, to a neighbour that the kernel is looking for.
    Unknown,
    /// Another way, or none.
    Elsewhere,
}

struct KnownHop {
    next: PeerHop,
    until: Instant,
}

/// The next hops out of one interface.
pub(super) struct Hops {
    routes: Routes,
    interface: u32,
    mtu: u32,
    peers: HashMap<IpAddr, KnownHop>,
    /// When the kernel may be asked again.
    ask_at: Instant,
}

impl Hops {
    pub(super) fn new(routes: Routes, interface: &Interface) -> Self {
        let Interface { index, mtu, .. } = *interface;
        Self { routes, interface: index, mtu, peers: HashMap::new(), ask_at: Instant::now() }
    }

    /// Where frames (from our address, if it matters) to a peer go; `None` where the kernel is to see to that: the peer is elsewhere, or
    /// its Ethernet address is not known yet.
    pub(super) fn of(&mut self, now: Instant, from: Option<IpAddr>, peer: IpAddr) -> Option<Hop> {
        let known = self.peers.get(&peer);
        let next = match known {
            Some(known) if now < known.until || now < self.ask_at => known.next,
            None if now < self.ask_at => PeerHop::Unknown,
            _ => {
                if known.is_none() && self.peers.len() >= PEERS_MAX {
                    self.peers.clear();
                }
                self.ask_at = now + BETWEEN_QUESTIONS;
                // A failure is an answer: the socket then meets it too, and it is counted there.
                let next = self.ask(from, peer).unwrap_or(PeerHop::Elsewhere);
                let good_for = if let PeerHop::Unknown = next { ASK_AGAIN } else { GOOD_FOR };
                self.peers.insert(peer, KnownHop { next, until: now + good_for });
                next
            }
        };
        if let PeerHop::Neighbour(hop) = next { Some(hop) } else { None }
    }

    fn ask(&mut self, from: Option<IpAddr>, peer: IpAddr) -> io::Result<PeerHop> {
        let next = match self.routes.next_hop(from, peer)? {
            Some(next) if next.interface == self.interface => next,
            _ => return Ok(PeerHop::Elsewhere),
        };
        let neighbour = self.routes.neighbour(&next)?;
        // It also starts the search for one that is not known. One that was set by hand would become one that is resolved.
        if !neighbour.is_some_and(|n| n.is_set) {
            self.routes.uses(&next)?;
        }
        let mtu = next.mtu.map_or(self.mtu, |m| m.min(self.mtu));
        Ok(neighbour.map_or(PeerHop::Unknown, |n| PeerHop::Neighbour(Hop { mac: n.mac, mtu })))
    }
}
