//! Plain sessions offloaded to a fast path: a program in the driver that decides on their packets as [`super::plain`] does.
//!
//! The state that such a session's packets need is in memory shared with the program, one [`FastEntry`] a session. The program, or this
//! pipeline, holds the entry's lock while it decides on a packet, so both update the same counters and token buckets.
//! A session is reclaimed, for a change of rules or anything else but a packet that passes, by taking its lock for good: from then
//! on the program passes its packets up, and the pipeline has the program's counts to the octet.
//!
//! No packet of a session overtakes another. A session is offloaded only when none is still on its way up: for a moment its entry is watched
//! ([`state::WATCHED`]), and the program counts what it passes up, which this pipeline compares with what it has decided on. If a later
//! packet needs this pipeline, those after it go up too ([`state::BEHIND`]), until this pipeline has decided on it and watches again. For
//! a packet that the program has not read to its end (IPv6 extension headers, so later fragments) it sets [`FastEntry::missed`]. A packet
//! that it does not read (IPv4 options) goes up by itself.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use whimbrel_ids::Instant;

use super::drops::{Counters, DropReason};
use super::guard::DestinationFilter;
use super::plain::Hot;
use super::sessions::Blocks;
use crate::config::DnIndex;

/// How long a session is watched for a pause of [`FastPath::settles_in`]. By then the counts show how many packets were on their way when the
/// watch began, so that one whose packets leave no such pause is offloaded as soon as none is.
const WATCH_MAX: Duration = Duration::from_millis(50);
/// For so long nothing new may have gone up then: a packet may have been counted that the pipeline cannot see yet.
const COUNTED_PAUSE: Duration = Duration::from_micros(10);
/// How long packets that were counted there, and are not decided on here, keep a session from being offloaded: they are lost by then.
const ON_THE_WAY_MAX: Duration = Duration::from_millis(200);
/// Sessions that are looked at between two bursts: some microseconds.
const LOOKS: usize = 64;

/// The owner of an entry.
pub mod state {
    /// None: the session's packets go up.
    pub const NONE: u32 = 0;
    /// None, and packets that go up are counted ([`super::FastEntry::passed`]).
    pub const WATCHED: u32 = 1;
    /// Free: the first to set [`BUSY`] has the lock.
    pub const FREE: u32 = 2;
    /// The holder of the lock, until it restores the former state.
    pub const BUSY: u32 = 3;
    /// The pipeline: its rules are about to change.
    pub const RECALLED: u32 = 4;
    /// The pipeline: one of its packets has gone up, and those behind it do not overtake it.
    pub const BEHIND: u32 = 5;
}

/// What a fast path needs of a session: a cache line that packets read, and one that they write. *As sent* is in the order of the octets
/// in a packet.
#[allow(missing_docs, reason = "fields that are those of the session's rules and counters")]
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct FastEntry {
    pub teid: AtomicU32,
    /// The address in network order, as it is sent.
    pub ue_ipv4: AtomicU32,
    /// The address in network order, as it is sent.
    pub gnb_ipv4: AtomicU32,
    /// The TEID in network order, as it is sent.
    pub gnb_teid: AtomicU32,
    /// In kbit/s; [`FastEntry::UNPOLICED`] where there is no rate.
    pub ul_kbps: AtomicU32,
    pub dl_kbps: AtomicU32,
    /// The UE's prefix, as sent; zero for none.
    pub ue_ipv6: AtomicU64,
    /// Time in which the buckets fill; they hold [`FastEntry::DEPTH_MIN`] tokens at least, a thousandth of a bit each.
    pub window_us: AtomicU32,
    /// The extension header of packets to the gNB, as sent; zero for none.
    pub container: AtomicU32,
    /// [`FastEntry::UL_CLOSED`], [`FastEntry::DL_CLOSED`].
    pub gates: AtomicU16,
    /// The one QoS flow of packets from the UE, or [`FastEntry::ANY_FLOW`].
    pub ul_flow: AtomicU8,
    /// Type of service of packets to the gNB.
    pub tos: AtomicU8,
    /// Next hops, by the fast path's own numbers.
    pub gnb_hop: AtomicU16,
    pub network_hop: AtomicU16,
    /// Of the UE's IPv6 packets.
    pub network_ipv6_hop: AtomicU16,
    /// A packet went up because the lock was not to be had, or before it was asked for; the next one that has it stands behind that.
    pub missed: AtomicU16,
    /// Packets of the session that the UPF dropped.
    pub dropped: AtomicU32,
    /// Packets that went up while the entry was watched.
    pub passed: AtomicU32,
    /// Which time it is that the session is watched.
    pub watch: AtomicU32,
    /// [`state`].
    pub state: AtomicU32,
    /// Octets that may pass before something is due.
    pub room: AtomicU32,
    pub ul_tokens: AtomicU64,
    pub dl_tokens: AtomicU64,
    /// Times, in microseconds of the pipeline's clock.
    pub filled: AtomicU64,
    pub first_packet: AtomicU64,
    pub last_packet: AtomicU64,
    pub ul_octets: AtomicU32,
    pub dl_octets: AtomicU32,
    pub ul_packets: AtomicU32,
    pub dl_packets: AtomicU32,
}

const _: () = assert!(size_of::<FastEntry>() == 128 && std::mem::offset_of!(FastEntry, state) == 64);

impl FastEntry {
    /// No rate is policed.
    pub const UNPOLICED: u32 = super::plain::UNPOLICED;
    /// What a bucket holds at least.
    pub const DEPTH_MIN: u32 = super::meter::DEPTH_MIN as u32;
    /// Any QoS flow, or none.
    pub const ANY_FLOW: u8 = super::plain::ANY_FLOW;
    /// The gate for packets from the UE is closed.
    pub const UL_CLOSED: u16 = 1;
    /// The gate for packets to the UE is closed.
    pub const DL_CLOSED: u16 = 2;

    /// From now on packets go up, until the pipeline has handled the session. To be called before a change of rules is announced; waits
    /// for a program that is deciding on a packet.
    pub fn recall(&self) {
        let offloaded = |state| matches!(state, state::FREE | state::WATCHED | state::BEHIND);
        let mut now = self.state.load(Ordering::Relaxed);
        while offloaded(now) || now == state::BUSY {
            let from = if offloaded(now) { now } else { state::FREE };
            let changed =
                self.state.compare_exchange_weak(from, state::RECALLED, Ordering::AcqRel, Ordering::Relaxed);
            match changed {
                Ok(_) => return,
                Err(is) => now = is,
            }
            std::hint::spin_loop();
        }
    }

    /// No UE is looked for here any more.
    fn clear_addresses(&self) {
        self.ue_ipv4.store(0, Ordering::Relaxed);
        self.ue_ipv6.store(0, Ordering::Relaxed);
    }

    /// Takes the lock; what the entry was. Another holder has it for the time of one packet.
    fn lock(&self) -> u32 {
        loop {
            for from in [state::FREE, state::RECALLED, state::BEHIND] {
                let changed =
                    self.state.compare_exchange(from, state::BUSY, Ordering::Acquire, Ordering::Relaxed);
                if changed.is_ok() {
                    return from;
                }
            }
            std::hint::spin_loop();
        }
    }
}

/// What a fast path has decided on, all sessions together, since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastPathCounters {
    /// Packets forwarded that UEs sent.
    pub ul_packets: u64,
    /// Their octets, inner packets alone.
    pub ul_octets: u64,
    /// Packets forwarded to UEs.
    pub dl_packets: u64,
    /// Their octets, inner packets alone.
    pub dl_octets: u64,
    /// Dropped packets, by [`DropReason`].
    pub dropped: [u64; DropReason::COUNT],
}

impl Default for FastPathCounters {
    fn default() -> Self {
        Self { ul_packets: 0, ul_octets: 0, dl_packets: 0, dl_octets: 0, dropped: [0; DropReason::COUNT] }
    }
}

/// A fast path, as the pipeline sees it.
pub trait FastPath: Send {
    /// The sessions, by index; those beyond are not offloaded.
    fn entries(&self) -> &[FastEntry];

    /// The place that maps a UE's address to its session: the index plus one, or zero.
    fn ipv4(&self, dn: DnIndex, ue: Ipv4Addr) -> Option<&AtomicU64>;

    /// The same of a UE's prefix of 64 bits.
    fn prefix(&self, dn: DnIndex, ue: u64) -> Option<&AtomicU64>;

    /// The fast path's numbers of the next hops to a gNB and into a data network, by IPv4 and by IPv6, which may lead nowhere; `None` where
    /// it can never lead there.
    fn hops(&mut self, dn: DnIndex, gnb: Ipv4Addr) -> Option<(u16, u16, u16)>;

    /// Whether the first two are known now.
    fn leads(&self, hops: (u16, u16)) -> bool;

    /// The words of [`DestinationFilter`], to which packets go up.
    fn suspects(&self) -> &[AtomicU64; DestinationFilter::WORDS];

    /// What it has decided on.
    fn counted(&self) -> FastPathCounters;

    /// How long no packet of a session must have gone up for none to be on its way.
    fn settles_in(&self) -> Duration;
}

/// A session that is to be offloaded.
struct OffloadCandidate {
    index: u32,
    watch: u32,
    passed: u32,
    /// Packets that were decided on here beyond those, at most: they were on their way already when the watch began.
    early: i16,
    /// Since when that is so.
    since: Option<Instant>,
    /// When it was first looked at.
    first: Option<Instant>,
}

/// The fast path, and what waits for it.
pub(super) struct Offloader {
    path: Box<dyn FastPath>,
    watched: VecDeque<OffloadCandidate>,
    /// Sessions that are offloaded.
    offloaded: u64,
    collected: FastPathCounters,
}

impl Offloader {
    pub(super) fn new(path: Box<dyn FastPath>) -> Self {
        Self { path, watched: VecDeque::new(), offloaded: 0, collected: FastPathCounters::default() }
    }

    /// Begins to watch a session, if it can be offloaded.
    pub(super) fn start_offload(&mut self, index: u32, hot: &mut Hot) {
        let Some((dn, gnb)) = hot.offload_target() else { return };
        let Some(hops) = self.path.hops(dn, gnb) else { return };
        let Some(entry) = self.path.entries().get(index as usize) else { return };
        let (ue, prefix) = hot.addresses();
        let of_ipv4 = ue.and_then(|ue| self.path.ipv4(dn, ue));
        let of_prefix = prefix.and_then(|ue| self.path.prefix(dn, ue));
        if of_ipv4.is_some() != ue.is_some() || of_prefix.is_some() != prefix.is_some() {
            return; // of no pool
        }
        entry.gnb_hop.store(hops.0, Ordering::Relaxed);
        entry.network_hop.store(hops.1, Ordering::Relaxed);
        entry.network_ipv6_hop.store(hops.2, Ordering::Relaxed);
        let octets = ue.map_or([0; 4], |ue| ue.octets());
        entry.ue_ipv4.store(u32::from_ne_bytes(octets), Ordering::Relaxed);
        let octets = prefix.map_or([0; 8], u64::to_be_bytes);
        entry.ue_ipv6.store(u64::from_ne_bytes(octets), Ordering::Relaxed);
        entry.gnb_ipv4.store(u32::from_ne_bytes(gnb.octets()), Ordering::Relaxed);
        hot.write_rules(entry);
        let watch = entry.watch.load(Ordering::Relaxed).wrapping_add(1);
        entry.watch.store(watch, Ordering::Relaxed);
        entry.passed.store(0, Ordering::Relaxed);
        entry.missed.store(0, Ordering::Relaxed);
        entry.state.store(state::WATCHED, Ordering::Release);
        for place in [of_ipv4, of_prefix].into_iter().flatten() {
            place.store(u64::from(index) + 1, Ordering::Release);
        }
        hot.set_watched(true);
        self.watched.push_back(OffloadCandidate {
            index,
            watch,
            passed: 0,
            early: 0,
            since: None,
            first: None,
        });
    }

    /// Offloads what can be offloaded now. `drained`: all that had come up is decided on, and sent.
    pub(super) fn offload_ready(&mut self, now: Instant, drained: bool, sessions: &mut Blocks<Hot>) {
        for _ in 0..self.watched.len().min(LOOKS) {
            let Some(mut w) = self.watched.pop_front() else { return };
            let (Some(hot), Some(entry)) =
                (sessions.get_mut(w.index), self.path.entries().get(w.index as usize))
            else {
                continue;
            };
            if !hot.is_watched() || entry.watch.load(Ordering::Relaxed) != w.watch {
                continue; // it was taken back meanwhile
            }
            let passed = entry.passed.load(Ordering::Acquire);
            if passed != w.passed {
                (w.passed, w.since) = (passed, None);
            }
            let (first, since) = (*w.first.get_or_insert(now), *w.since.get_or_insert(now));
            let hops = (entry.gnb_hop.load(Ordering::Relaxed), entry.network_hop.load(Ordering::Relaxed));
            let long = now.since(first) >= WATCH_MAX;
            let settles_in = self.path.settles_in();
            let pause = if long { COUNTED_PAUSE.min(settles_in) } else { settles_in };
            let beyond = hot.decided().wrapping_sub(passed as u16).cast_signed();
            w.early = w.early.max(beyond);
            let none_on_the_way = beyond == w.early || now.since(first) >= ON_THE_WAY_MAX;
            let has_paused = drained && none_on_the_way && now.since(since) >= pause;
            if !has_paused || !(self.path.leads(hops) || long) {
                self.watched.push_back(w);
                continue;
            }
            // Another thread waits until this one has finished with it.
            let watched = state::WATCHED;
            let taken =
                entry.state.compare_exchange(watched, state::BUSY, Ordering::SeqCst, Ordering::Relaxed);
            if taken.is_err() {
                continue; // recalled
            }
            if entry.passed.load(Ordering::SeqCst) == w.passed {
                hot.set_watched(false);
                hot.write(entry);
                hot.set_offloaded(true);
                self.offloaded += 1;
                entry.state.store(state::FREE, Ordering::Release);
            } else {
                entry.state.store(state::WATCHED, Ordering::Release);
                self.watched.push_back(w);
            }
        }
    }

    /// Takes a session back, if it is offloaded or about to be.
    pub(super) fn reclaim(&mut self, index: u32, hot: &mut Hot) {
        let Some(entry) = self.path.entries().get(index as usize) else { return };
        // Its address may become that of a session elsewhere, which must not be found here.
        if hot.is_offloaded() {
            entry.lock();
            hot.read(entry);
            hot.set_offloaded(false);
            self.offloaded -= 1;
            entry.clear_addresses();
            entry.state.store(state::NONE, Ordering::Release);
        } else if hot.is_watched() {
            entry.clear_addresses();
            entry.state.store(state::NONE, Ordering::Release);
            hot.set_watched(false);
        } else {
            return;
        }
        if let Some((dn, _)) = hot.offload_target() {
            let (ue, prefix) = hot.addresses();
            let of_ipv4 = ue.and_then(|ue| self.path.ipv4(dn, ue));
            let of_prefix = prefix.and_then(|ue| self.path.prefix(dn, ue));
            of_ipv4.into_iter().chain(of_prefix).for_each(|place| place.store(0, Ordering::Release));
        }
    }

    /// Does something with a session that is offloaded, and leaves it offloaded, or has it watched again where packets stand behind this one.
    pub(super) fn with_reclaimed<T>(
        &mut self,
        index: u32,
        hot: &mut Hot,
        f: impl FnOnce(&mut Hot) -> T,
    ) -> Option<T> {
        let (was, result) = self.with(index, hot, f)?;
        let entry = &self.path.entries()[index as usize];
        if was == state::BEHIND || entry.missed.load(Ordering::Relaxed) != 0 && was == state::FREE {
            self.reclaim(index, hot);
            self.start_offload(index, hot);
        }
        Some(result)
    }

    /// The same, with what the entry was and is again.
    fn with<T>(&self, index: u32, hot: &mut Hot, f: impl FnOnce(&mut Hot) -> T) -> Option<(u32, T)> {
        let entry = self.path.entries().get(index as usize).filter(|_| hot.is_offloaded())?;
        let was = entry.lock();
        hot.read(entry);
        hot.set_offloaded(false);
        let result = f(hot);
        hot.set_offloaded(true);
        hot.write(entry);
        entry.state.store(was, Ordering::Release);
        Some((was, result))
    }

    /// Which destinations are to go up.
    pub(super) fn show(&self, suspects: &DestinationFilter) {
        suspects.merge_into(self.path.suspects());
    }

    /// Sessions that are offloaded now.
    pub(super) fn offloaded(&self) -> u64 {
        self.offloaded
    }

    /// A copy of a session that is offloaded, as it is now.
    pub(super) fn snapshot(&self, index: u32, hot: &Hot) -> Option<Hot> {
        let mut copy = hot.clone();
        self.with(index, &mut copy, |_| ())?;
        Some(copy)
    }

    /// When [`Self::offload_ready`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let w = self.watched.front()?;
        Some(w.since.map_or(Instant::ZERO, |since| since + self.path.settles_in()))
    }

    /// Adds what was counted there since the last call.
    pub(super) fn collect_counters(&mut self, to: &mut Counters) {
        let (now, before) = (self.path.counted(), self.collected);
        to.ul_packets += now.ul_packets - before.ul_packets;
        to.ul_octets += now.ul_octets - before.ul_octets;
        to.dl_packets += now.dl_packets - before.dl_packets;
        to.dl_octets += now.dl_octets - before.dl_octets;
        for (to, (now, before)) in to.dropped.iter_mut().zip(now.dropped.iter().zip(before.dropped)) {
            *to += now - before;
        }
        self.collected = now;
    }
}
