//! The receiving half: which TSNs came, reassembly, order within streams, SACK (RFC 9260 §6.2, §6.5-6.7, §6.9).

use std::collections::{BTreeMap, VecDeque};

use whimbrel_ids::Instant;

use crate::outbox::{AssociationId, Events};
use crate::packet::{be16, be32, data_flag, kind, write_chunk};

/// Most separate runs of TSNs above the cumulative one that are remembered. A SACK for an MTU of 1500 reports 360;
/// 256 losses at once on one association is beyond use.
const RANGES_MAX: usize = 256;
/// Most duplicate TSNs reported in one SACK: they only serve the sender's statistics.
const DUPLICATES_MAX: usize = 16;
/// How far above the cumulative TSN one is taken: gap ack blocks have 16 bits (RFC 9260 §3.3.4).
const TSN_AHEAD_MAX: u64 = 0xffff;
/// What a held chunk costs us beside its user data, counted against the window.
const HELD_OVERHEAD_OCTETS: usize = 64;
/// DATA packets after which a delayed SACK waits no longer (RFC 9260 §6.2).
const PACKETS_PER_SACK: u8 = 2;

/// A DATA chunk's value, checked (RFC 9260 §3.3.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data<'a> {
    pub(crate) flags: u8,
    pub(crate) tsn: u32,
    pub(crate) stream: u16,
    pub(crate) ssn: u16,
    pub(crate) ppid: u32,
    pub(crate) user: &'a [u8],
}

impl<'a> Data<'a> {
    pub(crate) fn parse(flags: u8, value: &'a [u8]) -> Option<Self> {
        Some(Self {
            flags,
            tsn: be32(value, 0)?,
            stream: be16(value, 4)?,
            ssn: be16(value, 6)?,
            ppid: be32(value, 8)?,
            user: value.get(12..)?,
        })
    }
}

/// A fragment, or a whole message, that waits.
#[derive(Clone, Debug)]
struct Held {
    flags: u8,
    stream: u16,
    ssn: u16,
    ppid: u32,
    user: Vec<u8>,
}

/// What became of a DATA chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Taken, or a duplicate, or dropped for lack of room.
    Fine,
    /// Taken, but for a stream that does not exist.
    InvalidStream,
    /// The memory of the association is exhausted and nothing that may still come would free it.
    OutOfResource,
}

#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    /// Cumulative TSN, extended to 64 bits so that order is plain.
    cum: u64,
    /// Inclusive runs of TSNs received above `cum`, in order, not touching.
    ranges: VecDeque<(u64, u64)>,
    /// Fragments by TSN.
    fragments: BTreeMap<u64, Held>,
    /// Whole messages ahead of their turn, by stream and SSN.
    waiting: BTreeMap<(u16, u16), Held>,
    held_octets: usize,
    window: usize,
    next_ssn: Vec<u16>,
    duplicates: Vec<u32>,
    /// A SACK should leave at the next flush.
    pub(crate) sack_due: bool,
    /// A SACK should leave by then.
    pub(crate) sack_by: Option<Instant>,
    packets_unsacked: u8,
    data_in_packet: bool,
}

impl Receiver {
    pub(crate) fn new(peer_initial_tsn: u32, streams: u16, window: u32) -> Self {
        Self {
            cum: (1 << 32) + u64::from(peer_initial_tsn) - 1,
            ranges: VecDeque::new(),
            fragments: BTreeMap::new(),
            waiting: BTreeMap::new(),
            held_octets: 0,
            window: window as usize,
            next_ssn: vec![0; usize::from(streams)],
            duplicates: Vec::new(),
            sack_due: false,
            sack_by: None,
            packets_unsacked: 0,
            data_in_packet: false,
        }
    }

    /// The cumulative TSN, as SACK and SHUTDOWN carry it.
    pub(crate) fn cumulative_tsn(&self) -> u32 {
        self.cum as u32
    }

    /// Takes a DATA chunk; whole messages in order become events.
    pub(crate) fn take(&mut self, data: Data<'_>, id: AssociationId, events: &mut Events) -> Taken {
        self.data_in_packet = true;
        let ahead = i64::from(data.tsn.wrapping_sub(self.cum as u32) as i32);
        let tsn = self.cum.wrapping_add_signed(ahead);
        if ahead <= 0 || self.has(tsn) {
            self.sack_due = true; // a duplicate: the SACK was lost (RFC 9260 §6.2)
            if self.duplicates.len() < DUPLICATES_MAX {
                self.duplicates.push(data.tsn);
            }
            return Taken::Fine;
        }
        if data.flags & data_flag::IMMEDIATE != 0 {
            self.sack_due = true;
        }
        let next = tsn == self.cum + 1;
        let whole =
            data.flags & (data_flag::BEGINNING | data_flag::END) == data_flag::BEGINNING | data_flag::END;
        let deliverable = whole && (data.flags & data_flag::UNORDERED != 0 || self.is_turn(&data));
        let cost = if deliverable { 0 } else { data.user.len() + HELD_OVERHEAD_OCTETS };
        if next {
            // What fills the gap is always taken, up to twice the window: it is what frees the rest.
            if self.held_octets + cost > 2 * self.window {
                return Taken::OutOfResource;
            }
        } else if self.held_octets + cost > self.window
            || u64::from(ahead.unsigned_abs() as u32) > TSN_AHEAD_MAX
        {
            self.sack_due = true;
            return Taken::Fine; // not acknowledged: it comes again
        }
        if !self.note(tsn) {
            self.sack_due = true;
            return Taken::Fine;
        }
        if usize::from(data.stream) >= self.next_ssn.len() {
            return Taken::InvalidStream;
        }
        if deliverable {
            events.push_data(id, data.stream, data.ppid, core::iter::once(data.user));
            self.delivered(&data, id, events);
        } else {
            let held = Held {
                flags: data.flags,
                stream: data.stream,
                ssn: data.ssn,
                ppid: data.ppid,
                user: data.user.to_vec(),
            };
            self.hold(tsn, held, whole, id, events);
        }
        Taken::Fine
    }

    /// Whether a TSN above the cumulative one was received.
    fn has(&self, tsn: u64) -> bool {
        let at = self.ranges.partition_point(|r| r.1 < tsn);
        self.ranges.get(at).is_some_and(|r| r.0 <= tsn)
    }

    fn is_turn(&self, data: &Data<'_>) -> bool {
        self.next_ssn.get(usize::from(data.stream)) == Some(&data.ssn)
    }

    /// Remembers a TSN as received; false if there is no room for another gap.
    fn note(&mut self, tsn: u64) -> bool {
        if tsn == self.cum + 1 {
            self.cum = tsn;
            if let Some(&(start, end)) = self.ranges.front()
                && start == tsn + 1
            {
                self.cum = end;
                self.ranges.pop_front();
            }
            self.sack_due |= !self.ranges.is_empty();
            return true;
        }
        self.sack_due = true; // a gap is reported at once (RFC 9260 §6.7)
        let at = self.ranges.partition_point(|r| r.1 < tsn);
        let joins_left = at > 0 && self.ranges.get(at - 1).is_some_and(|r| r.1 + 1 == tsn);
        let joins_right = self.ranges.get(at).is_some_and(|r| r.0 == tsn + 1);
        match (joins_left, joins_right) {
            (true, true) => {
                if let Some((_, end)) = self.ranges.remove(at) {
                    self.ranges[at - 1].1 = end;
                }
            }
            (true, false) => self.ranges[at - 1].1 = tsn,
            (false, true) => self.ranges[at].0 = tsn,
            (false, false) => {
                if self.ranges.len() >= RANGES_MAX {
                    return false;
                }
                self.ranges.insert(at, (tsn, tsn));
            }
        }
        true
    }

    /// After an ordered message was delivered: those that waited for it follow.
    fn delivered(&mut self, data: &Data<'_>, id: AssociationId, events: &mut Events) {
        if data.flags & data_flag::UNORDERED == 0 {
            self.advance(data.stream, id, events);
        }
    }

    fn advance(&mut self, stream: u16, id: AssociationId, events: &mut Events) {
        let Some(ssn) = self.next_ssn.get_mut(usize::from(stream)) else { return };
        *ssn = ssn.wrapping_add(1);
        while let Some(held) = self.waiting.remove(&(stream, *ssn)) {
            self.held_octets -= held.user.len() + HELD_OVERHEAD_OCTETS;
            events.push_data(id, held.stream, held.ppid, core::iter::once(held.user.as_slice()));
            *ssn = ssn.wrapping_add(1);
        }
    }

    /// Keeps what cannot be delivered yet, and assembles the message around it if that is now whole.
    fn hold(&mut self, tsn: u64, held: Held, whole: bool, id: AssociationId, events: &mut Events) {
        let cost = held.user.len() + HELD_OVERHEAD_OCTETS;
        if whole {
            // A second message under one SSN breaks the protocol; the first one stands.
            if let std::collections::btree_map::Entry::Vacant(e) = self.waiting.entry((held.stream, held.ssn))
            {
                e.insert(held);
                self.held_octets += cost;
            }
            return;
        }
        // Only the last missing fragment can make a message whole: an end, or one whose successor is there already.
        let try_now = held.flags & data_flag::END != 0 || self.fragments.contains_key(&(tsn + 1));
        self.fragments.insert(tsn, held);
        self.held_octets += cost;
        if try_now && let Some((first, last)) = self.whole_around(tsn) {
            self.assemble(first, last, id, events);
        }
    }

    /// The TSNs of the whole message that contains `tsn`, if all of it is here.
    fn whole_around(&self, tsn: u64) -> Option<(u64, u64)> {
        let of = |tsn: u64, f: &Held| -> Option<(bool, bool)> {
            let same = self.fragments.get(&tsn)?;
            let unordered = data_flag::UNORDERED;
            (same.stream == f.stream && same.ssn == f.ssn && same.flags & unordered == f.flags & unordered)
                .then_some((same.flags & data_flag::BEGINNING != 0, same.flags & data_flag::END != 0))
        };
        let this = self.fragments.get(&tsn)?;
        let mut last = tsn;
        while !of(last, this)?.1 {
            last += 1;
        }
        let mut first = tsn;
        while !of(first, this)?.0 {
            first -= 1;
        }
        Some((first, last))
    }

    fn assemble(&mut self, first: u64, last: u64, id: AssociationId, events: &mut Events) {
        let Some(head) = self.fragments.get(&first) else { return };
        let (flags, stream, ssn, ppid) = (head.flags, head.stream, head.ssn, head.ppid);
        let unordered = flags & data_flag::UNORDERED != 0;
        let in_turn = unordered || self.next_ssn.get(usize::from(stream)) == Some(&ssn);
        if in_turn {
            let parts = self.fragments.range(first..=last).map(|(_, f)| f.user.as_slice());
            events.push_data(id, stream, ppid, parts);
        }
        let mut user = Vec::new();
        for tsn in first..=last {
            if let Some(f) = self.fragments.remove(&tsn) {
                self.held_octets -= f.user.len() + HELD_OVERHEAD_OCTETS;
                if !in_turn {
                    user.extend_from_slice(&f.user);
                }
            }
        }
        if !in_turn {
            self.hold(first, Held { flags, stream, ssn, ppid, user }, true, id, events);
        } else if !unordered {
            self.advance(stream, id, events);
        }
    }

    /// A whole packet was handled: decides when its DATA is acknowledged (RFC 9260 §6.2).
    pub(crate) fn packet_done(&mut self, now: Instant, delay: core::time::Duration) {
        if !core::mem::take(&mut self.data_in_packet) {
            return;
        }
        self.packets_unsacked += 1;
        if delay.is_zero() || self.packets_unsacked >= PACKETS_PER_SACK {
            self.sack_due = true;
        } else if self.sack_by.is_none() {
            self.sack_by = Some(now + delay);
        }
    }

    /// Appends the SACK, in at most `room` octets.
    pub(crate) fn write_sack(&mut self, out: &mut Vec<u8>, room: usize) {
        let a_rwnd = u32::try_from(self.window.saturating_sub(self.held_octets)).unwrap_or(u32::MAX);
        let room = room.saturating_sub(16) / 4;
        let gaps = self.ranges.len().min(room);
        let duplicates = self.duplicates.len().min(room - gaps);
        write_chunk(out, kind::SACK, 0, |o| {
            o.extend_from_slice(&(self.cum as u32).to_be_bytes());
            o.extend_from_slice(&a_rwnd.to_be_bytes());
            o.extend_from_slice(&(gaps as u16).to_be_bytes());
            o.extend_from_slice(&(duplicates as u16).to_be_bytes());
            for (start, end) in self.ranges.iter().take(gaps) {
                // Both fit 16 bits: no TSN further ahead was taken.
                o.extend_from_slice(&((start - self.cum) as u16).to_be_bytes());
                o.extend_from_slice(&((end - self.cum) as u16).to_be_bytes());
            }
            for tsn in self.duplicates.iter().take(duplicates) {
                o.extend_from_slice(&tsn.to_be_bytes());
            }
        });
        self.duplicates.clear();
        self.sack_due = false;
        self.sack_by = None;
        self.packets_unsacked = 0;
    }
}
