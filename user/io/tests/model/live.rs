//! A UPF with packet threads, and what takes packets to it and from it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_user::*;
use whimbrel_user_io::{Clock, Handle};

use super::common::{Net, Plane, SMF, START};
use super::host::{SURELY, checksum};
use super::model::Fate;
use super::pair::{Judged, Pair, Scope, is_of_a_session};

/// Sessions from here on there are none, in no table.
const NO_SESSIONS_FROM: u32 = 1 << 24;

/// A way to a UPF and from it.
pub(crate) trait Wire {
    /// Hops that a packet has fewer on its other side.
    fn hops(&self) -> u8;

    /// Has packets come to it, in their order.
    fn put(&mut self, packets: &[(Origin, Vec<u8>)]);

    /// What it has sent since the last call.
    fn take(&mut self) -> Vec<(Destination, Vec<u8>)>;
}

/// The UPF with its devices.
pub(crate) struct Live {
    c: UpfC,
    pub(crate) handle: Handle,
    /// What the threads take for the time, if it is not the host's.
    time: Option<Arc<AtomicU64>>,
    wire: Box<dyn Wire>,
    came: Vec<(Destination, Vec<u8>)>,
    /// What was counted before.
    before: Counters,
}

/// A clock that the test sets.
pub(crate) fn clock() -> (Arc<AtomicU64>, Clock) {
    let time = Arc::new(AtomicU64::new(START.0));
    let own = Arc::clone(&time);
    (time, Arc::new(move || Instant(own.load(Ordering::SeqCst))))
}

impl Live {
    pub(crate) fn new(
        config: Config,
        handle: Handle,
        time: Option<Arc<AtomicU64>>,
        wire: Box<dyn Wire>,
    ) -> Self {
        let config = Config { shards: handle.threads(), ..config };
        let c = UpfC::new(config, START).unwrap();
        Self { c, handle, time, wire, came: Vec::new(), before: Counters::default() }
    }

    /// With an association; what is counted before that is no packet of ours.
    pub(crate) fn pair(self, scope: Scope) -> Pair<Self> {
        let mut net = Net::on(self);
        net.associate();
        Pair::of(net, scope, Box::new(|live, _, judged| live.decide(judged))).of_both_families()
    }

    /// Counts from now on.
    pub(crate) fn begin(&mut self) {
        let shown = |live: &Self| live.handle.counters();
        // The threads are at rest, so their last counters are complete.
        self.rest();
        let mut last = shown(self);
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let now = shown(self);
            if now == last {
                break;
            }
            last = now;
        }
        self.before = last;
        self.outputs(0);
    }

    /// Waits until each thread has done and reported all that it was asked for; its other reports.
    fn rest(&mut self) -> Vec<UserPlaneReport> {
        let threads = self.handle.threads();
        for thread in 0..threads {
            let session = SessionId { index: NO_SESSIONS_FROM + u32::from(thread), generation: 0 };
            self.handle
                .apply(UserPlaneChange::Remove { session, token: Some(UsageToken(u32::MAX)) })
                .expect("room");
        }
        let (mut reports, mut answers, begun) = (Vec::new(), 0, std::time::Instant::now());
        while answers < threads {
            for report in self.handle.take_reports() {
                match report {
                    UserPlaneReport::Usage { session, .. } if session.index >= NO_SESSIONS_FROM => {
                        answers += 1
                    }
                    other => reports.push(other),
                }
            }
            assert!(begun.elapsed() < SURELY, "a packet thread does not answer");
            std::thread::sleep(Duration::from_micros(20));
        }
        reports
    }

    /// Has packets come.
    pub(crate) fn put(&mut self, judged: &[Judged]) {
        self.wire.put(&judged.iter().map(|(o, p, _)| carried(*o, p)).collect::<Vec<_>>());
    }

    /// Has packets decided on; what comes of them is what the model says, those of each UE in their order.
    fn decide(&mut self, judged: &[Judged]) {
        self.put(judged);
        let sent = judged.iter().filter_map(|(_, _, fate)| match fate {
            Fate::Sent(to, octets) | Fate::Relayed(to, octets) => {
                Some((*to, self.as_sent(*to, octets.clone())))
            }
            Fate::Held | Fate::Dropped(_) => None,
        });
        let sent: Vec<_> = sent.collect();
        let (mut came, sent) = (by_ue(self.outputs(sent.len())), by_ue(sent));
        for (ue, sent) in sent {
            let came = came.remove(&ue).unwrap_or_default();
            let differ = came.iter().zip(&sent).position(|(came, sent)| came != sent);
            assert_eq!(
                differ.map(|n| (n, &came[n], &sent[n])),
                None,
                "{ue:?}, {} of {}",
                came.len(),
                sent.len()
            );
            assert_eq!(came.len(), sent.len(), "{ue:?}");
        }
        assert!(came.is_empty(), "{came:?}");
    }
}

impl Plane for Live {
    fn pfcp(&mut self, now: Instant, octets: &[u8], out: &mut Outbox) {
        self.c.handle(now, Input::Pfcp { peer: SMF, octets }, out);
        self.settle(now, out);
    }

    fn settle(&mut self, now: Instant, out: &mut Outbox) {
        loop {
            let changes = out.changes.len();
            for change in out.changes.drain(..) {
                self.handle.apply(change).expect("room");
            }
            let reports = self.rest();
            if changes == 0 && reports.is_empty() {
                return;
            }
            reports.into_iter().for_each(|report| self.c.handle(now, Input::Report(report), out));
        }
    }

    fn tick(&mut self, now: Instant, out: &mut Outbox) {
        self.reach(now, out);
        self.c.handle(now, Input::Tick, out);
        self.settle(now, out);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.c.next_deadline()
    }

    fn reach(&mut self, now: Instant, out: &mut Outbox) {
        match &self.time {
            Some(time) => time.store(now.0, Ordering::SeqCst),
            None => std::thread::sleep(Duration::from_millis(2)), // long enough for a session to be offloaded
        }
        // In the first turn a thread may have looked at the clock before; what is due in the second is reported at its end.
        for _ in 0..3 {
            let reports = self.rest();
            reports.into_iter().for_each(|report| self.c.handle(now, Input::Report(report), out));
        }
        self.settle(now, out);
    }

    fn outputs(&mut self, at_least: usize) -> Vec<(Destination, Vec<u8>)> {
        let begun = std::time::Instant::now();
        loop {
            let came = self.wire.take();
            self.came.extend(came.into_iter().filter(is_of_a_session));
            if self.came.len() >= at_least || begun.elapsed() > SURELY {
                return std::mem::take(&mut self.came);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn as_sent(&self, to: Destination, octets: Vec<u8>) -> Vec<u8> {
        let at = inner_at(matches!(to, Destination::N3 { .. }), &octets);
        with_checksum(octets, at, self.wire.hops())
    }

    fn counters(&mut self, expected: &dyn Fn(&Counters) -> bool) -> Counters {
        let begun = std::time::Instant::now();
        loop {
            let mut counters = self.handle.counters();
            counters.ul_packets -= self.before.ul_packets;
            counters.dl_packets -= self.before.dl_packets;
            for (now, before) in counters.dropped.iter_mut().zip(self.before.dropped) {
                *now -= before;
            }
            if expected(&counters) || begun.elapsed() > SURELY {
                return counters;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn session_counters(&mut self, id: SessionId) -> Option<SessionCounters> {
        let begun = std::time::Instant::now();
        std::iter::from_fn(|| (begun.elapsed() < SURELY).then(|| self.handle.session_counters(id)))
            .find_map(|counters| counters)
    }
}

/// Where a UE's packet begins in what a gNB is sent, or sends: behind the usual headers.
fn inner_at(n3: bool, octets: &[u8]) -> usize {
    match octets.first() {
        Some(0x34) if n3 => 16,
        _ if n3 => 8,
        _ => 0,
    }
}

/// A packet as hosts send it, with some hops fewer: an IPv4 header has a checksum.
fn with_checksum(mut octets: Vec<u8>, at: usize, hops: u8) -> Vec<u8> {
    match octets.get(at).map(|first| first >> 4) {
        Some(4) if octets.len() >= at + 20 => {
            octets[at + 8] -= hops;
            octets[at + 10..at + 12].fill(0);
            let sum = checksum(&octets[at..at + 20], 0);
            octets[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        }
        Some(6) if octets.len() >= at + 40 => octets[at + 7] -= hops,
        _ => {}
    }
    octets
}

/// A packet as it comes to the UPF.
pub(crate) fn carried(origin: Origin, octets: &[u8]) -> (Origin, Vec<u8>) {
    let at = inner_at(matches!(origin, Origin::N3 { .. }), octets);
    (origin, with_checksum(octets.to_vec(), at, 0))
}

/// Packets of each UE each way, in their order.
fn by_ue(all: Vec<(Destination, Vec<u8>)>) -> BTreeMap<(bool, IpAddr), Vec<Vec<u8>>> {
    let mut sorted = BTreeMap::<_, Vec<_>>::new();
    for (to, octets) in all {
        let n3 = matches!(to, Destination::N3 { .. });
        let at = inner_at(n3, &octets);
        let inner = &octets[at..];
        let v4 = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&inner[at..at + 4]).unwrap());
        let v6 = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&inner[at..at + 16]).unwrap());
        let ue = match (inner.first().map(|o| o >> 4), n3) {
            (Some(4), false) => v4(12),
            (Some(4), true) => v4(16),
            (Some(6), false) => v6(8),
            (Some(6), true) => v6(24),
            // What gNBs forward, and end markers: by tunnel.
            _ => IpAddr::from(<[u8; 4]>::try_from(&octets[4..8]).unwrap()),
        };
        // Of a prefix any address is the UE's.
        let ue = match ue {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            v4 => v4,
        };
        sorted.entry((n3, ue)).or_default().push(octets);
    }
    sorted
}
