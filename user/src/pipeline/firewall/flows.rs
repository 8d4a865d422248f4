//! The table of flows: looked up by endpoints, ordered by last packet, bounded in total and for each UE.
//!
//! A full table takes the room for a new flow from the UE with most flows, so that no number of UEs takes it from those with few. Counts in order would cost
//! each flow's begin and end; instead the UE is sought among the owners of some flows that are spread over the table, of which one with many owns many.
//!
//! All memory is reserved at the start and touched when it is used. Flows of one kind have one timeout, so that in a list by last
//! packet the first expires first.

use std::time::Duration;

use whimbrel_ids::Instant;

use super::mappings::{KINDS, MappedProtocol};
use super::tcp::Tcp;
use crate::firewall::Timeouts;

/// No flow, no mapping.
pub(super) const NIL: u32 = u32::MAX;

/// Both endpoints of a flow, as the UE sees them. Ports are zero if the protocol has none; an ICMP query's identifier is the UE's
/// port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowEndpoints {
    /// IPv4 addresses as mapped ones.
    pub(super) ue: u128,
    pub(super) remote: u128,
    pub(super) ue_port: u16,
    pub(super) remote_port: u16,
    pub(super) protocol: u8,
}

/// Flows of one timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FlowClass {
    Udp,
    Tcp,
    TcpTransitory,
    Icmp,
    Other,
}

const CLASSES: usize = 5;

/// Lists of a session's flows: those with an outside port by [`MappedProtocol`], then those without.
const LISTS: usize = KINDS + 1;
/// Flows of a full table whose owners are compared. UEs that own half of all flows are missed once in 65,536 searches, and the one that was found last is
/// compared each time.
const LOOKS: usize = 16;

/// A keyed hash, since UEs and their servers choose its input.
#[derive(Clone, Copy)]
pub(super) struct Hash([u64; 2]);

impl Hash {
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        };
        Self([next(), next() | 1])
    }

    /// The hash of some words.
    #[inline]
    pub(super) fn of(self, words: &[u64]) -> u64 {
        let Self([mut h, factor]) = self;
        for w in words {
            let product = u128::from(h ^ w) * u128::from(factor);
            h = (product as u64 ^ (product >> 64) as u64).rotate_left(23).wrapping_add(factor);
        }
        h
    }

    fn of_key(self, k: &FlowEndpoints) -> u64 {
        let ends = u64::from(k.ue_port) << 32 | u64::from(k.remote_port) << 16 | u64::from(k.protocol);
        self.of(&[k.ue as u64, (k.ue >> 64) as u64, k.remote as u64, (k.remote >> 64) as u64, ends])
    }
}

/// Links of a list.
#[derive(Clone, Copy)]
struct FlowLinks {
    before: u32,
    behind: u32,
}

const ALONE: FlowLinks = FlowLinks { before: NIL, behind: NIL };

/// The two lists of a flow.
#[derive(Clone, Copy)]
enum FlowList {
    Class,
    Ue,
}

/// The ends of a list; the first has the oldest last packet.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List { first: NIL, last: NIL };

/// A flow through the firewall.
pub(super) struct Flow {
    pub(super) key: FlowEndpoints,
    last_packet: Instant,
    /// The index of its mapping, or [`NIL`] if it is not translated.
    pub(super) mapping: u32,
    /// The index of its list: [`LISTS`] for each session.
    list: u32,
    next_in_bucket: u32,
    links: [FlowLinks; 2],
    class: FlowClass,
    pub(super) tcp: Tcp,
}

const _: () = assert!(size_of::<Flow>() <= 96);

impl Flow {
    pub(super) fn session(&self) -> u32 {
        self.list / LISTS as u32
    }
}

/// The flows of a session.
#[derive(Clone, Copy)]
struct SessionShare {
    lists: [List; LISTS],
    flows: u32,
}

const NO_FLOWS: SessionShare = SessionShare { lists: [EMPTY; LISTS], flows: 0 };

/// The flows of a data network.
pub(super) struct Flows {
    hash: Hash,
    buckets: Box<[u32]>,
    flows: Vec<Flow>,
    max: usize,
    /// Free entries of `flows`, linked by `next_in_bucket`.
    free: u32,
    standing: usize,
    classes: [List; CLASSES],
    timeouts: [Duration; CLASSES],
    /// Shares of the sessions, by their places.
    shares: Vec<SessionShare>,
    /// The session that had most flows when room was needed last.
    largest: u32,
    /// Searches for it.
    searches: u64,
}

impl Flows {
    pub(super) fn new(max: u32, timeouts: &Timeouts, hash: Hash) -> Self {
        let max = max as usize;
        let Timeouts { udp, tcp, tcp_transitory, icmp, other } = *timeouts;
        Self {
            hash,
            // Index zero is no flow, so that an empty table is untouched memory.
            buckets: vec![0; max.next_power_of_two()].into(),
            flows: Vec::with_capacity(max),
            max,
            free: NIL,
            standing: 0,
            classes: [EMPTY; CLASSES],
            timeouts: [udp, tcp, tcp_transitory, icmp, other],
            shares: Vec::new(),
            largest: 0,
            searches: 0,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.standing
    }

    pub(super) fn is_full(&self) -> bool {
        self.standing == self.max
    }

    /// Allocates the tables of a session, not while a packet is processed.
    pub(super) fn welcome(&mut self, session: u32) {
        let needed = session as usize + 1;
        if self.shares.len() < needed {
            self.shares.resize(needed, NO_FLOWS);
        }
    }

    pub(super) fn get(&self, at: u32) -> Option<&Flow> {
        self.flows.get(at as usize)
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Flow> {
        self.flows.get_mut(at as usize)
    }

    fn bucket(&self, key: &FlowEndpoints) -> usize {
        self.hash.of_key(key) as usize & (self.buckets.len() - 1)
    }

    pub(super) fn find(&self, key: &FlowEndpoints) -> Option<u32> {
        let mut at = self.buckets[self.bucket(key)].checked_sub(1)?;
        loop {
            let flow = self.get(at)?;
            if flow.key == *key {
                return Some(at);
            }
            at = flow.next_in_bucket;
        }
    }

    /// When a flow expires.
    fn end(&self, flow: &Flow) -> Instant {
        flow.last_packet + self.timeouts[flow.class as usize]
    }

    pub(super) fn is_over(&self, at: u32, now: Instant) -> bool {
        self.get(at).is_none_or(|f| self.end(f) <= now)
    }

    /// An expired flow, if any.
    pub(super) fn over(&self, now: Instant) -> Option<u32> {
        self.classes.iter().map(|l| l.first).find(|first| *first != NIL && self.is_over(*first, now))
    }

    /// How many a session has.
    pub(super) fn of_session(&self, session: u32) -> u32 {
        self.shares.get(session as usize).map_or(0, |s| s.flows)
    }

    /// The flow with the oldest last packet in some lists of a session.
    fn oldest_in(&self, session: u32, lists: std::ops::Range<usize>) -> Option<u32> {
        let first = |list: &List| self.get(list.first).map(|f| (f.last_packet, list.first));
        let lists = self.shares.get(session as usize)?.lists.get(lists)?;
        lists.iter().filter_map(first).min_by_key(|(last, _)| *last).map(|(_, at)| at)
    }

    /// The session's flow with the oldest last packet.
    pub(super) fn oldest_of(&self, session: u32) -> Option<u32> {
        self.oldest_in(session, 0..LISTS)
    }

    /// The session's flow with the oldest last packet that has an outside port, of one protocol if that is given.
    pub(super) fn oldest_with_port(&self, session: u32, kind: Option<MappedProtocol>) -> Option<u32> {
        let lists = kind.map_or(0..KINDS, |k| k as usize..k as usize + 1);
        self.oldest_in(session, lists)
    }

    /// The session that gives up a flow so that another one begins in a full table: that with most flows, `beginner`'s own if none is found with more.
    pub(super) fn largest(&mut self, beginner: u32) -> u32 {
        self.searches += 1;
        let all = self.flows.len().max(1);
        let (from, step) = (self.hash.of(&[self.searches]) as usize % all, all.div_ceil(LOOKS));
        // From there to the end, and from the beginning to there.
        let (front, back) = self.flows.split_at(from);
        let rest = (step - (all - from) % step) % step;
        let seen = back.iter().step_by(step).chain(front.iter().skip(rest).step_by(step));
        let mut most = (beginner, self.of_session(beginner));
        for session in seen.map(Flow::session).chain([self.largest]) {
            let flows = self.of_session(session);
            // Of several the first one, so that the choice does not depend on where the search began.
            if flows > most.1 || flows == most.1 && most.0 != beginner && session < most.0 {
                most = (session, flows);
            }
        }
        self.largest = most.0;
        most.0
    }

    /// Adds a new flow. `None` if there is no room, or the session is unknown.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        key: FlowEndpoints,
        class: FlowClass,
        session: u32,
        mapping: u32,
        tcp: Tcp,
    ) -> Option<u32> {
        if self.is_full() || session as usize >= self.shares.len() {
            return None;
        }
        let bucket = self.bucket(&key);
        let next_in_bucket = self.buckets[bucket].checked_sub(1).unwrap_or(NIL);
        let kind = if mapping == NIL { None } else { MappedProtocol::of(key.protocol) };
        let list = session * LISTS as u32 + kind.map_or(KINDS, |k| k as usize) as u32;
        let flow =
            Flow { key, last_packet: now, mapping, list, next_in_bucket, links: [ALONE; 2], class, tcp };
        let at = match self.flows.get_mut(self.free as usize) {
            Some(place) => {
                let at = std::mem::replace(&mut self.free, place.next_in_bucket);
                *place = flow;
                at
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as u32 - 1
            }
        };
        self.buckets[bucket] = at + 1;
        self.standing += 1;
        self.shares[session as usize].flows += 1;
        self.append(FlowList::Class, at);
        self.append(FlowList::Ue, at);
        Some(at)
    }

    /// Notes a packet of the flow.
    pub(super) fn touch(&mut self, now: Instant, at: u32, class: FlowClass) {
        self.unlink(FlowList::Class, at);
        self.unlink(FlowList::Ue, at);
        if let Some(flow) = self.get_mut(at) {
            (flow.last_packet, flow.class) = (now, class);
        }
        self.append(FlowList::Class, at);
        self.append(FlowList::Ue, at);
    }

    /// Removes a flow; returns its mapping.
    pub(super) fn remove(&mut self, at: u32) -> u32 {
        let Some(flow) = self.get(at) else { return NIL };
        let (bucket, next, list, mapping) =
            (self.bucket(&flow.key), flow.next_in_bucket, flow.list, flow.mapping);
        self.unlink(FlowList::Class, at);
        self.unlink(FlowList::Ue, at);
        let mut before = self.buckets[bucket].wrapping_sub(1);
        if before == at {
            self.buckets[bucket] = next.wrapping_add(1);
        } else {
            while let Some(flow) = self.get_mut(before) {
                if flow.next_in_bucket == at {
                    flow.next_in_bucket = next;
                    break;
                }
                before = flow.next_in_bucket;
            }
        }
        if let Some(share) = self.shares.get_mut(list as usize / LISTS) {
            share.flows -= 1;
        }
        self.standing -= 1;
        let free = self.free;
        if let Some(flow) = self.get_mut(at) {
            flow.next_in_bucket = free;
        }
        self.free = at;
        mapping
    }

    fn list(&mut self, by: FlowList, at: u32) -> Option<&mut List> {
        let flow = self.flows.get(at as usize)?;
        match by {
            FlowList::Class => self.classes.get_mut(flow.class as usize),
            FlowList::Ue => {
                let (session, list) = (flow.list as usize / LISTS, flow.list as usize % LISTS);
                self.shares.get_mut(session).map(|share| &mut share.lists[list])
            }
        }
    }

    fn append(&mut self, by: FlowList, at: u32) {
        let Some(list) = self.list(by, at) else { return };
        let before = std::mem::replace(&mut list.last, at);
        match self.flows.get_mut(before as usize) {
            Some(f) => f.links[by as usize].behind = at,
            None => {
                if let Some(list) = self.list(by, at) {
                    list.first = at;
                }
            }
        }
        if let Some(f) = self.get_mut(at) {
            f.links[by as usize] = FlowLinks { before, behind: NIL };
        }
    }

    fn unlink(&mut self, by: FlowList, at: u32) {
        let Some(flow) = self.get(at) else { return };
        let FlowLinks { before, behind } = flow.links[by as usize];
        match self.flows.get_mut(before as usize) {
            Some(f) => f.links[by as usize].behind = behind,
            None => {
                if let Some(list) = self.list(by, at) {
                    list.first = behind;
                }
            }
        }
        match self.flows.get_mut(behind as usize) {
            Some(f) => f.links[by as usize].before = before,
            None => {
                if let Some(list) = self.list(by, at) {
                    list.last = before;
                }
            }
        }
    }
}
