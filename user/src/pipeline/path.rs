//! Supervision of the paths to gNBs and other UPFs: who does not answer echo requests is reported.
//!
//! Spec: TS 29.281 §7.2.1 (echo requests), TS 23.527 §5.2, §5.4 (what a restart and a
//! path failure mean), TS 29.244 §6.2.9 (node report).
//! A path is an address to which a session's packets go. It is asked once in an interval, and again after T3 without
//! an answer; after N3 requests it counts as failed, and is asked on, until it answers. Packets go on as they did: the CP
//! function decides what becomes of the sessions. The restart counter of an answer says nothing (TS 29.281 §7.2.2): a peer that
//! lost its tunnels says so by error indications.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use whimbrel_gtpu::PORT;
use whimbrel_gtpu::signalling::echo_request;
use whimbrel_ids::Instant;

use super::shared::Shared;
use super::{Destination, DropReason, UpfU, Verdict};
use crate::exchange::Report;
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

/// The paths that are supervised.
pub(super) struct Paths {
    /// Time between requests; without it nothing is supervised.
    interval: Option<Duration>,
    seed: u64,
    by_address: BTreeMap<IpAddr, Path>,
    by_due: BTreeSet<(Instant, IpAddr)>,
}

impl Paths {
    pub(super) fn new(interval: Option<Duration>, seed: u64) -> Self {
        Self { interval, seed: mix(seed ^ 0x4543_484f), by_address: BTreeMap::new(), by_due: BTreeSet::new() }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.by_due.first().map(|(at, _)| *at)
    }

    /// A tunnel leads there now.
    pub(super) fn begin(&mut self, now: Instant, peer: IpAddr, shared: &mut Shared) {
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

    pub(super) fn tick(&mut self, now: Instant, shared: &mut Shared) {
        let Some(interval) = self.interval else { return };
        for _ in 0..TIMERS_PER_TICK_MAX {
            let Some(&(at, peer)) = self.by_due.first().filter(|(at, _)| *at <= now) else { return };
            self.by_due.remove(&(at, peer));
            let Some(path) = self.by_address.get_mut(&peer) else { continue };
            if path.tunnels == 0 {
                shared.counters.paths -= 1;
                shared.counters.paths_failed -= u64::from(path.failed);
                self.by_address.remove(&peer);
                continue;
            }
            if path.sent < N3_REQUESTS {
                if path.sent == 0 {
                    // Not to be guessed, so that nobody answers in the peer's place.
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
                    shared.report(Report::Path { peer, failed: true });
                }
            }
            self.by_due.insert((path.due, peer));
        }
    }

    /// An echo response; false if nobody asked for it.
    fn answered(&mut self, now: Instant, peer: IpAddr, sequence: u16, shared: &mut Shared) -> bool {
        let (Some(interval), Some(path)) = (self.interval, self.by_address.get_mut(&peer)) else {
            return false;
        };
        if path.sent == 0 || path.sequence != sequence {
            return false;
        }
        self.by_due.remove(&(path.due, peer));
        (path.sent, path.due) = (0, now + interval);
        self.by_due.insert((path.due, peer));
        if std::mem::replace(&mut path.failed, false) {
            shared.counters.paths_failed -= 1;
            shared.report(Report::Path { peer, failed: false });
        }
        true
    }
}

impl UpfU {
    /// A tunnel begins, or ends, to lead to a peer: for the first shard, which supervises the paths of all.
    pub(super) fn lead_to(&mut self, now: Instant, peer: IpAddr, begins: bool) {
        if self.shard.is_first() {
            self.path_used(now, peer, begins);
        } else if self.paths.interval.is_some() {
            self.shared.path_uses.push((peer, begins));
        }
    }

    /// Tunnels that begin or end to lead to a peer, since the last call: for [`Self::path_used`] of the first shard, in order.
    pub fn take_path_uses(&mut self) -> Vec<(IpAddr, bool)> {
        std::mem::take(&mut self.shared.path_uses)
    }

    /// A tunnel of a session of any shard begins, or ends, to lead to a peer; for the first shard.
    pub fn path_used(&mut self, now: Instant, peer: IpAddr, begins: bool) {
        if begins {
            self.paths.begin(now, peer, &mut self.shared);
        } else {
            self.paths.end(peer);
        }
    }

    /// An echo response (TS 29.281 §7.2.2).
    pub(super) fn echo_response(&mut self, now: Instant, peer: IpAddr, sequence: Option<u16>) -> Verdict {
        if !self.shard.is_first() {
            return self.to_first(0);
        }
        let asked = sequence.is_some_and(|s| self.paths.answered(now, peer, s, &mut self.shared));
        if asked { Verdict::Taken } else { Verdict::Drop(DropReason::GtpuUnexpected) }
    }
}
