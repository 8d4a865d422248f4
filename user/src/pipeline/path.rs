//! Supervision of the paths to gNBs and other UPFs: a peer that does not answer echo requests is reported.
//!
//! Spec: TS 29.281 §7.2.1 (echo requests), TS 23.527 §5.2, §5.4 (what a restart and a
//! path failure mean), TS 29.244 §6.2.9 (node report).
//! A path is an address to which a session's packets go. It is asked once in an interval, and again after T3 without
//! an answer; after N3 requests it counts as failed, and is asked on. Both end with a sign of life of the peer: its echo response, or a
//! G-PDU of it that the rules of a session let pass, for some peers answer no echo request. Packets go on as they did: the CP
//! function decides what becomes of the sessions. The restart counter of an answer says nothing (TS 29.281 §7.2.2): a peer that
//! lost its tunnels says so by error indications.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use whimbrel_gtpu::PORT;
use whimbrel_gtpu::signalling::echo_request;
use whimbrel_ids::Instant;

use super::shared::PipelineContext;
use super::{BurstPacket, Destination, DropReason, Origin, PacketVerdict, UpfU};
use crate::exchange::UserPlaneReport;
use crate::limits::{PATHS_MAX, TIMERS_PER_TICK_MAX};
use crate::session_id::mix;

/// T3-RESPONSE (TS 29.281 §11): how long to wait for an answer. The clause leaves it to the operator; 3 s is usual.
const T3_RESPONSE: Duration = Duration::from_secs(3);
/// N3-REQUESTS (TS 29.281 §11): how often to ask in all.
const N3_REQUESTS: u8 = 3;

struct Path {
    /// Tunnels of sessions that lead there.
    tunnels: u32,
    due: Instant,
    sequence: u16,
    /// How often this request was sent; zero while none is under way.
    sent: u8,
    failed: bool,
}

impl Path {
    /// Whether it is not known that the peer is alive.
    fn is_in_doubt(&self) -> bool {
        self.failed || self.sent > 0
    }
}

/// A shard's use of a path, for the first shard, which supervises paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathUse {
    /// A tunnel leads there from now on.
    Begins,
    /// A tunnel led there.
    Ends,
    /// A G-PDU came from there and passed.
    Alive,
}

/// The paths that are supervised.
pub(super) struct Paths {
    /// Time between requests; without it nothing is supervised.
    interval: Option<Duration>,
    seed: u64,
    by_address: BTreeMap<IpAddr, Path>,
    by_due: BTreeSet<(Instant, IpAddr)>,
    /// Paths of which it is not known that the peer is alive.
    in_doubt: usize,
}

impl Paths {
    pub(super) fn new(interval: Option<Duration>, seed: u64) -> Self {
        Self {
            interval,
            seed: mix(seed ^ 0x4543_484f),
            by_address: BTreeMap::new(),
            by_due: BTreeSet::new(),
            in_doubt: 0,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.by_due.first().map(|(at, _)| *at)
    }

    /// A tunnel leads there now.
    pub(super) fn begin(&mut self, now: Instant, peer: IpAddr, shared: &mut PipelineContext) {
        let Some(interval) = self.interval else { return };
        if let Some(path) = self.by_address.get_mut(&peer) {
            path.tunnels += 1;
        } else if self.by_address.len() < PATHS_MAX {
            let path = Path { tunnels: 1, due: now + interval, sequence: 0, sent: 0, failed: false };
            self.by_due.insert((path.due, peer));
            self.by_address.insert(peer, path);
            shared.counters.paths += 1;
        } else {
            shared.counters.paths_unsupervised += 1;
        }
    }

    /// A tunnel led there. The path is forgotten when it is next due, for a session that only changes comes back at once.
    pub(super) fn end(&mut self, peer: IpAddr) {
        if let Some(path) = self.by_address.get_mut(&peer) {
            path.tunnels = path.tunnels.saturating_sub(1);
        }
    }

    pub(super) fn tick(&mut self, now: Instant, shared: &mut PipelineContext) {
        let Some(interval) = self.interval else { return };
        for _ in 0..TIMERS_PER_TICK_MAX {
            let Some(&(at, peer)) = self.by_due.first().filter(|(at, _)| *at <= now) else { return };
            self.by_due.remove(&(at, peer));
            let Some(path) = self.by_address.get_mut(&peer) else { continue };
            let in_doubt = path.is_in_doubt();
            if path.tunnels == 0 {
                shared.counters.paths -= 1;
                shared.counters.paths_failed -= u64::from(path.failed);
                self.by_address.remove(&peer);
                self.note_doubt(in_doubt, false, shared);
                continue;
            }
            if path.sent < N3_REQUESTS {
                if path.sent == 0 {
                    // Unpredictable, so that no other host can answer for the peer.
                    self.seed = mix(self.seed);
                    path.sequence = self.seed as u16;
                }
                path.sent += 1;
                path.due = now + T3_RESPONSE;
                let to = Destination::N3 { peer: SocketAddr::new(peer, PORT), tos: 0 };
                shared.send_octets(to, echo_request(path.sequence).as_ref());
                shared.counters.echo_requests_sent += 1;
            } else {
                path.sent = 0;
                path.due = now + interval;
                if !std::mem::replace(&mut path.failed, true) {
                    shared.counters.paths_failed += 1;
                    shared.report(UserPlaneReport::Path { peer, failed: true });
                }
            }
            self.by_due.insert((path.due, peer));
            self.note_doubt(in_doubt, true, shared);
        }
    }

    /// A path was in doubt, and is. All shards look for signs of life while one is.
    fn note_doubt(&mut self, was: bool, is: bool, shared: &PipelineContext) {
        self.in_doubt = (self.in_doubt + usize::from(is)).saturating_sub(usize::from(was));
        shared.common.set_paths_in_doubt(self.in_doubt > 0);
    }

    /// An echo response; false if there was no request.
    fn answered(&mut self, now: Instant, peer: IpAddr, sequence: u16, shared: &mut PipelineContext) -> bool {
        let asked = self.by_address.get(&peer).is_some_and(|p| p.sent > 0 && p.sequence == sequence);
        if asked {
            self.is_alive(now, peer, shared);
        }
        asked
    }

    /// The peer gave a sign of life. It is asked again after an interval.
    fn is_alive(&mut self, now: Instant, peer: IpAddr, shared: &mut PipelineContext) {
        let (Some(interval), Some(path)) = (self.interval, self.by_address.get_mut(&peer)) else { return };
        if !path.is_in_doubt() {
            return;
        }
        self.by_due.remove(&(path.due, peer));
        (path.sent, path.due) = (0, now + interval);
        self.by_due.insert((path.due, peer));
        if std::mem::replace(&mut path.failed, false) {
            shared.counters.paths_failed -= 1;
            shared.report(UserPlaneReport::Path { peer, failed: false });
        }
        self.note_doubt(true, false, shared);
    }
}

/// Most path uses that may wait for the first shard when a sign of life is added; a peer beyond them gives another sign with its next packet.
const SIGNS_MAX: usize = 64;

impl UpfU {
    /// A tunnel begins, or ends, to lead to a peer: for the first shard, which supervises the paths of all.
    pub(super) fn lead_to(&mut self, now: Instant, peer: IpAddr, begins: bool) {
        if self.shared.common.peers.lead(now, peer, begins) {
            self.shared.common.suspects.set(peer);
            self.show_suspects();
        }
        let what = if begins { PathUse::Begins } else { PathUse::Ends };
        if self.shard.is_first() {
            self.path_used(now, peer, what);
        } else if self.paths.interval.is_some() {
            self.shared.path_uses.push((peer, what));
        }
    }

    /// What this shard has to tell of peers since the last call: for [`Self::path_used`] of the first shard, in order.
    pub fn take_path_uses(&mut self) -> Vec<(IpAddr, PathUse)> {
        std::mem::take(&mut self.shared.path_uses)
    }

    /// What a shard has to tell of a peer; for the first shard.
    pub fn path_used(&mut self, now: Instant, peer: IpAddr, what: PathUse) {
        match what {
            PathUse::Begins => self.paths.begin(now, peer, &mut self.shared),
            PathUse::Ends => self.paths.end(peer),
            PathUse::Alive => self.paths.is_alive(now, peer, &mut self.shared),
        }
    }

    /// While some path is in doubt: the peers of a burst whose G-PDUs passed are alive.
    #[cold]
    pub(super) fn look_for_signs_of_life(&mut self, now: Instant, slots: &[BurstPacket]) {
        for slot in slots {
            let (Origin::N3 { peer, .. }, PacketVerdict::Send(_)) = (slot.origin, slot.verdict) else {
                continue;
            };
            let sign = (peer.ip(), PathUse::Alive);
            if self.shard.is_first() {
                self.path_used(now, sign.0, sign.1);
            } else if self.shared.path_uses.len() < SIGNS_MAX && !self.shared.path_uses.contains(&sign) {
                self.shared.path_uses.push(sign);
            }
        }
    }

    /// An echo response (TS 29.281 §7.2.2).
    pub(super) fn echo_response(
        &mut self,
        now: Instant,
        peer: IpAddr,
        sequence: Option<u16>,
    ) -> PacketVerdict {
        if !self.shard.is_first() {
            return self.to_first(0);
        }
        let asked = sequence.is_some_and(|s| self.paths.answered(now, peer, s, &mut self.shared));
        if asked { PacketVerdict::Taken } else { PacketVerdict::Drop(DropReason::GtpuUnexpected) }
    }
}
