//! The receiving half: which TSNs came, reassembly, order within streams, SACK (RFC 9260 §6.2, §6.5-6.7, §6.9).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_ids::Instant;

use crate::config::Config;
use crate::export::Defect;
use crate::export::record::{ExportRecord, RecordKind};
use crate::outbox::{AssociationId, Events};
use crate::packet::{be16, be32, data_flag, kind, write_chunk};
use crate::tsns::Tsns;

/// Most separate runs of TSNs above the cumulative one that are remembered. A SACK for an MTU of 1500 reports 360;
/// 256 losses at once on one association is beyond use.
pub(crate) const RANGES_MAX: usize = 256;
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
struct WaitingFragment {
    /// Its TSN, or those of the first and the last fragment.
    first: u64,
    tsn: u64,
    flags: u8,
    stream: u16,
    ssn: u16,
    ppid: u32,
    user: Vec<u8>,
}

/// The outcome of a DATA chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataOutcome {
    /// Accepted, a duplicate, or dropped for lack of room.
    Fine,
    /// Accepted, but for a stream that does not exist.
    InvalidStream,
    /// The association's memory is exhausted, and no chunk that may still arrive would free any.
    OutOfResource,
}

/// A message that was delivered to the user.
#[derive(Clone, Debug)]
struct DeliveredMessage {
    /// Its last TSN.
    last: u64,
    /// The octets it takes from the window until it is released.
    octets: usize,
    stream: u16,
    ppid: u32,
    /// The message itself, if a successor may have to deliver it again.
    user: Vec<u8>,
}

/// The numbers of a receiving half that is continued.
#[derive(Clone, Debug)]
pub(crate) struct ContinuedReceiver {
    pub(crate) cum: u64,
    pub(crate) runs: VecDeque<(u64, u64)>,
    pub(crate) messages: u64,
    pub(crate) released: u64,
    pub(crate) next_ssn: Vec<u16>,
}

/// What the user has not released yet, and what is acknowledged meanwhile.
#[derive(Clone, Debug)]
struct Hold {
    /// What was released, and fragments before the last one of their message, which need no release: they are sent again
    /// if the last one is not acknowledged.
    acknowledged: Tsns,
    /// The newest messages.
    delivered: VecDeque<DeliveredMessage>,
    octets: usize,
}

impl Hold {
    fn over(received: &Tsns) -> Self {
        Self { acknowledged: received.clone(), delivered: VecDeque::new(), octets: 0 }
    }

    /// Bounded by the window, of which each gap takes a part.
    fn acknowledge(&mut self, tsn: u64) {
        self.acknowledged.add(tsn, usize::MAX);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct DataReceiver {
    received: Tsns,
    /// Messages that were delivered.
    messages: u64,
    /// Acknowledgements wait for the user's release.
    hold: Option<Hold>,
    /// Fragments by TSN.
    fragments: BTreeMap<u64, WaitingFragment>,
    /// Whole messages ahead of their turn, by stream and SSN.
    waiting: BTreeMap<(u16, u16), WaitingFragment>,
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
    /// Whether a successor may continue, and the journal's records since the last export.
    exports: bool,
    pub(crate) fresh: Vec<u8>,
}

impl DataReceiver {
    /// `messages`: how many were delivered before, in a former life of the peer.
    pub(crate) fn new(peer_initial_tsn: u32, streams: u16, messages: u64, config: &Config) -> Self {
        let received = Tsns::up_to((1 << 32) + u64::from(peer_initial_tsn) - 1);
        Self {
            hold: config.hold_acknowledgements.then(|| Hold::over(&received)),
            received,
            messages,
            fragments: BTreeMap::new(),
            waiting: BTreeMap::new(),
            held_octets: 0,
            window: config.receive_window_octets as usize,
            next_ssn: vec![0; usize::from(streams)],
            duplicates: Vec::new(),
            sack_due: false,
            sack_by: None,
            packets_unsacked: 0,
            data_in_packet: false,
            exports: config.export,
            fresh: Vec::new(),
        }
    }

    /// The cumulative TSN, as SACK and SHUTDOWN carry it.
    pub(crate) fn cumulative_tsn(&self) -> u32 {
        self.acknowledged().cum as u32
    }

    /// How many messages were delivered.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    fn acknowledged(&self) -> &Tsns {
        self.hold.as_ref().map_or(&self.received, |h| &h.acknowledged)
    }

    /// Whether acknowledgements wait for the user's release from now on.
    pub(crate) fn hold(&mut self, hold: bool) {
        match (hold, &self.hold) {
            (true, None) => self.hold = Some(Hold::over(&self.received)),
            (false, Some(_)) => {
                self.hold = None;
                self.sack_due = true;
            }
            _ => {}
        }
    }

    /// The user has released the first `messages` messages.
    pub(crate) fn release(&mut self, messages: u64) {
        let Some(hold) = &mut self.hold else { return };
        let rest = self.messages.saturating_sub(messages);
        while hold.delivered.len() as u64 > rest
            && let Some(message) = hold.delivered.pop_front()
        {
            hold.octets -= message.octets;
            hold.acknowledge(message.last);
            self.sack_due = true;
        }
    }

    /// Octets that count against the window.
    fn used(&self) -> usize {
        self.held_octets + self.hold.as_ref().map_or(0, |h| h.octets)
    }

    /// Whether delivered messages are kept for a successor.
    fn keeps_delivered(&self) -> bool {
        self.exports && self.hold.is_some()
    }

    /// A message of `octets` went to the user; `held_from`: the first of its chunks, if they were held.
    fn passed_on(&mut self, mut message: DeliveredMessage, held_from: Option<u64>) {
        self.messages += 1;
        if self.exports {
            let number = self.messages;
            match held_from {
                Some(first) => taken(first, message.last, number).write(&mut self.fresh),
                None if self.hold.is_some() => delivered(&message, number).write(&mut self.fresh),
                None => {}
            }
        }
        if let Some(hold) = &mut self.hold {
            message.octets += HELD_OVERHEAD_OCTETS;
            hold.octets += message.octets;
            hold.delivered.push_back(message);
        }
    }

    /// Takes a DATA chunk; whole messages in order become events.
    pub(crate) fn take(&mut self, data: Data<'_>, id: AssociationId, events: &mut Events) -> DataOutcome {
        self.data_in_packet = true;
        let cum = self.received.cum;
        let ahead = i64::from(data.tsn.wrapping_sub(cum as u32) as i32);
        let tsn = cum.wrapping_add_signed(ahead);
        if ahead <= 0 || self.received.has(tsn) {
            self.sack_due = true; // a duplicate: the SACK was lost (RFC 9260 §6.2)
            if self.duplicates.len() < DUPLICATES_MAX {
                self.duplicates.push(data.tsn);
            }
            return DataOutcome::Fine;
        }
        if data.flags & data_flag::IMMEDIATE != 0 {
            self.sack_due = true;
        }
        let next = tsn == cum + 1;
        let whole =
            data.flags & (data_flag::BEGINNING | data_flag::END) == data_flag::BEGINNING | data_flag::END;
        let deliverable = whole && (data.flags & data_flag::UNORDERED != 0 || self.is_turn(&data));
        let passes = deliverable && self.hold.is_none();
        let cost = if passes { 0 } else { data.user.len() + HELD_OVERHEAD_OCTETS };
        if next {
            // What fills the gap is always taken, up to twice the window: it is what frees the rest.
            if self.held_octets + cost > 2 * self.window {
                return DataOutcome::OutOfResource;
            }
            if self.used() + cost > 2 * self.window {
                return DataOutcome::Fine; // the user will make room, and it comes again
            }
        } else if self.used() + cost > self.window || u64::from(ahead.unsigned_abs() as u32) > TSN_AHEAD_MAX {
            self.sack_due = true;
            return DataOutcome::Fine; // not acknowledged: it comes again
        }
        if !self.note(tsn) {
            self.sack_due = true;
            return DataOutcome::Fine;
        }
        if let Some(hold) = &mut self.hold
            && (data.flags & data_flag::END == 0 || usize::from(data.stream) >= self.next_ssn.len())
        {
            let before = hold.acknowledged.cum;
            hold.acknowledge(tsn);
            self.sack_due |= hold.acknowledged.cum != before;
        }
        if usize::from(data.stream) >= self.next_ssn.len() {
            return DataOutcome::InvalidStream;
        }
        if deliverable {
            events.push_data(id, data.stream, data.ppid, core::iter::once(data.user));
            let user = if self.keeps_delivered() { data.user.to_vec() } else { Vec::new() };
            let (octets, stream, ppid) = (data.user.len(), data.stream, data.ppid);
            self.passed_on(DeliveredMessage { last: tsn, octets, stream, ppid, user }, None);
            self.delivered(&data, id, events);
        } else {
            let held = WaitingFragment {
                first: tsn,
                tsn,
                flags: data.flags,
                stream: data.stream,
                ssn: data.ssn,
                ppid: data.ppid,
                user: data.user.to_vec(),
            };
            if self.exports {
                chunk(&held).write(&mut self.fresh);
            }
            self.keep(tsn, held, whole, id, events);
        }
        DataOutcome::Fine
    }

    fn is_turn(&self, data: &Data<'_>) -> bool {
        self.next_ssn.get(usize::from(data.stream)) == Some(&data.ssn)
    }

    /// Remembers a TSN as received; false if there is no room for another gap.
    fn note(&mut self, tsn: u64) -> bool {
        let next = tsn == self.received.cum + 1;
        let noted = self.received.add(tsn, RANGES_MAX);
        // A gap is reported at once, and so is what fills one (RFC 9260 §6.7).
        self.sack_due |= !next || !self.received.runs.is_empty();
        noted
    }

    /// After an ordered message was delivered: those that waited for it follow.
    fn delivered(&mut self, data: &Data<'_>, id: AssociationId, events: &mut Events) {
        if data.flags & data_flag::UNORDERED == 0 {
            self.advance(data.stream, id, events);
        }
    }

    fn advance(&mut self, stream: u16, id: AssociationId, events: &mut Events) {
        while let Some(ssn) = self.next_ssn.get_mut(usize::from(stream)) {
            *ssn = ssn.wrapping_add(1);
            let Some(held) = self.waiting.remove(&(stream, *ssn)) else { return };
            self.held_octets -= held.user.len() + HELD_OVERHEAD_OCTETS;
            events.push_data(id, held.stream, held.ppid, core::iter::once(held.user.as_slice()));
            let WaitingFragment { first, tsn: last, stream, ppid, user, .. } = held;
            self.passed_on(DeliveredMessage { last, octets: user.len(), stream, ppid, user }, Some(first));
        }
    }

    /// Keeps what cannot be delivered yet, and assembles the message around it if that is now whole.
    fn keep(&mut self, tsn: u64, held: WaitingFragment, whole: bool, id: AssociationId, events: &mut Events) {
        let cost = held.user.len() + HELD_OVERHEAD_OCTETS;
        if whole {
            // A second message under one SSN breaks the protocol; the first one stands.
            if let std::collections::btree_map::Entry::Vacant(e) = self.waiting.entry((held.stream, held.ssn))
            {
                e.insert(held);
                self.held_octets += cost;
            } else {
                if self.exports {
                    taken(held.first, held.tsn, 0).write(&mut self.fresh);
                }
                if let Some(hold) = &mut self.hold {
                    hold.acknowledge(held.tsn);
                }
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
        let of = |tsn: u64, f: &WaitingFragment| -> Option<(bool, bool)> {
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
        let keeps = !in_turn || self.keeps_delivered();
        let (mut user, mut octets) = (Vec::new(), 0);
        for tsn in first..=last {
            if let Some(f) = self.fragments.remove(&tsn) {
                self.held_octets -= f.user.len() + HELD_OVERHEAD_OCTETS;
                octets += f.user.len();
                if keeps {
                    user.extend_from_slice(&f.user);
                }
            }
        }
        if !in_turn {
            let held = WaitingFragment { first, tsn: last, flags, stream, ssn, ppid, user };
            return self.keep(first, held, true, id, events);
        }
        self.passed_on(DeliveredMessage { last, octets, stream, ppid, user }, Some(first));
        if !unordered {
            self.advance(stream, id, events);
        }
    }

    /// A whole packet was handled: decides when its DATA is acknowledged (RFC 9260 §6.2).
    pub(crate) fn packet_done(&mut self, now: Instant, delay: core::time::Duration) {
        if !core::mem::take(&mut self.data_in_packet) {
            return;
        }
        if self.hold.is_some() {
            return; // releasing it is what sends the SACK
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
        let a_rwnd = u32::try_from(self.window.saturating_sub(self.used())).unwrap_or(u32::MAX);
        let room = room.saturating_sub(16) / 4;
        let Tsns { cum, runs } = self.hold.as_ref().map_or(&self.received, |h| &h.acknowledged);
        // What the user has not released is not missing: it is no gap. A gap ack block has 16 bits; what is further ahead is reported
        // when there is less between.
        let room_for = if self.received.runs.is_empty() { 0 } else { room };
        let gaps = runs.iter().take(room_for).take_while(|r| r.1 - cum <= TSN_AHEAD_MAX).count();
        let duplicates = self.duplicates.len().min(room - gaps);
        write_chunk(out, kind::SACK, 0, |o| {
            o.extend_from_slice(&(*cum as u32).to_be_bytes());
            o.extend_from_slice(&a_rwnd.to_be_bytes());
            o.extend_from_slice(&(gaps as u16).to_be_bytes());
            o.extend_from_slice(&(duplicates as u16).to_be_bytes());
            for (start, end) in runs.iter().take(gaps) {
                o.extend_from_slice(&((start - cum) as u16).to_be_bytes());
                o.extend_from_slice(&((end - cum) as u16).to_be_bytes());
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

    /// Most octets that [`Self::write_live`] writes.
    pub(crate) fn live_octets_max(&self) -> usize {
        self.used()
    }

    /// The records of all that a successor needs.
    pub(crate) fn write_live(&self, out: &mut Vec<u8>) {
        self.fragments.values().for_each(|held| chunk(held).write(out));
        for held in self.waiting.values() {
            let whole = data_flag::BEGINNING | data_flag::END;
            ExportRecord { flags: held.flags | whole, ..chunk(held) }.write(out);
        }
        for (message, number) in self.hold.iter().flat_map(|h| &h.delivered).zip(self.released() + 1..) {
            delivered(message, number).write(out);
        }
    }

    /// How many messages the user has released; without a hold, all that were delivered.
    pub(crate) fn released(&self) -> u64 {
        self.messages - self.hold.as_ref().map_or(0, |h| h.delivered.len() as u64)
    }

    /// The numbers for a successor.
    pub(crate) fn write_numbers(&self, out: &mut Vec<u8>) {
        for number in [self.received.cum, self.messages, self.released()] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        self.next_ssn.iter().for_each(|ssn| out.extend_from_slice(&ssn.to_be_bytes()));
        out.extend_from_slice(&(self.received.runs.len() as u16).to_be_bytes());
        for (start, end) in &self.received.runs {
            out.extend_from_slice(&start.to_be_bytes());
            out.extend_from_slice(&end.to_be_bytes());
        }
    }

    /// Continues from the numbers and records of a former receiver. What it had delivered and the user had not released waits for
    /// [`Self::resume`].
    pub(crate) fn restore<'a>(
        numbers: ContinuedReceiver,
        records: impl Iterator<Item = ExportRecord<'a>>,
        config: &Config,
    ) -> Result<Self, Defect> {
        let ContinuedReceiver { cum, runs, messages, released, next_ssn } = numbers;
        let received = Tsns { cum, runs };
        if !received.is_sound() || released > messages {
            return Err(Defect::Contradiction("received TSNs"));
        }
        let journal = Journal::read(records, &received, released)?;
        let numbered = journal.delivered.keys().copied().eq(released + 1..=messages);
        if !numbered {
            return Err(Defect::Contradiction("delivered messages"));
        }
        let mut receiver = Self::new(1, 0, messages, config);
        receiver.next_ssn = next_ssn;
        receiver.keep_restored(journal.held)?;
        let unacknowledged = receiver.unacknowledged(journal.delivered.values());
        let delivered: VecDeque<DeliveredMessage> = journal.delivered.into_values().collect();
        let octets = delivered.iter().map(|m| m.octets).sum();
        let acknowledged = received.without(&unacknowledged);
        receiver.received = received;
        receiver.hold = Some(Hold { acknowledged, delivered, octets });
        receiver.sack_due = true;
        Ok(receiver)
    }

    /// Takes the chunks that a former receiver held.
    fn keep_restored(&mut self, chunks: BTreeMap<u64, WaitingFragment>) -> Result<(), Defect> {
        let whole = data_flag::BEGINNING | data_flag::END;
        let mut ends = Vec::new();
        for (tsn, held) in chunks {
            self.held_octets += held.user.len() + HELD_OVERHEAD_OCTETS;
            if held.flags & whole == whole {
                self.wait_restored(held)?;
            } else {
                ends.extend((held.flags & data_flag::END != 0).then_some(tsn));
                self.fragments.insert(tsn, held);
            }
        }
        for end in ends {
            let Some((first, last)) = self.whole_around(end) else { continue };
            let Some(mut message) = self.fragments.remove(&first) else { continue };
            for tsn in first + 1..=last {
                let part = self.fragments.remove(&tsn);
                message.user.extend(part.into_iter().flat_map(|part| part.user));
                self.held_octets -= HELD_OVERHEAD_OCTETS;
            }
            message.tsn = last;
            self.wait_restored(message)?;
        }
        Ok(())
    }

    /// A whole message of a former receiver waits for its turn.
    fn wait_restored(&mut self, message: WaitingFragment) -> Result<(), Defect> {
        let next = self.next_ssn.get(usize::from(message.stream));
        let waits = message.flags & data_flag::UNORDERED == 0 && next != Some(&message.ssn);
        match self.waiting.insert((message.stream, message.ssn), message) {
            None if waits => Ok(()),
            _ => Err(Defect::Contradiction("messages that wait")),
        }
    }

    /// The TSNs that were received and may not be acknowledged: those that stand for a message that the user has not released.
    fn unacknowledged<'a>(&self, delivered: impl Iterator<Item = &'a DeliveredMessage>) -> BTreeSet<u64> {
        let ends = self.fragments.values().filter(|held| held.flags & data_flag::END != 0);
        let held = ends.chain(self.waiting.values()).map(|held| held.tsn);
        held.chain(delivered.map(|message| message.last)).collect()
    }

    /// The user has the first so many messages of those that a former receiver delivered, and gets the others.
    pub(crate) fn resume(&mut self, processed: u64, hold: bool, id: AssociationId, events: &mut Events) {
        self.release(processed);
        for message in self.hold.iter().flat_map(|h| &h.delivered) {
            events.push_data(id, message.stream, message.ppid, core::iter::once(message.user.as_slice()));
        }
        self.hold(hold);
    }
}

/// What the records of a journal leave.
struct Journal {
    held: BTreeMap<u64, WaitingFragment>,
    /// Delivered messages, by number.
    delivered: BTreeMap<u64, DeliveredMessage>,
}

impl Journal {
    fn read<'a>(
        records: impl Iterator<Item = ExportRecord<'a>>,
        received: &Tsns,
        released: u64,
    ) -> Result<Self, Defect> {
        let mut journal = Self { held: BTreeMap::new(), delivered: BTreeMap::new() };
        for r in records {
            let (flags, stream, ssn, ppid) = (r.flags, r.stream, r.ssn, r.ppid);
            let message = match r.kind {
                RecordKind::Begun | RecordKind::Queued => continue,
                RecordKind::Held => {
                    let held = WaitingFragment {
                        first: r.tsn,
                        tsn: r.tsn,
                        flags,
                        stream,
                        ssn,
                        ppid,
                        user: r.octets.to_vec(),
                    };
                    let new = r.tsn > 0 && received.has(r.tsn) && !r.octets.is_empty();
                    if !new || journal.held.insert(r.tsn, held).is_some() {
                        return Err(Defect::Contradiction("held chunks"));
                    }
                    continue;
                }
                RecordKind::Delivered => {
                    let user = r.octets.to_vec();
                    DeliveredMessage {
                        last: r.tsn,
                        octets: user.len() + HELD_OVERHEAD_OCTETS,
                        stream,
                        ppid,
                        user,
                    }
                }
                RecordKind::Taken => journal.take(r.tsn.saturating_sub(r.ppid.into()), r.tsn)?,
            };
            if r.tsn == 0 || !received.has(r.tsn) {
                return Err(Defect::Contradiction("delivered messages"));
            }
            if r.number > released && journal.delivered.insert(r.number, message).is_some() {
                return Err(Defect::Contradiction("delivered messages"));
            }
        }
        Ok(journal)
    }

    /// Held chunks become a message.
    fn take(&mut self, first: u64, last: u64) -> Result<DeliveredMessage, Defect> {
        let mut message: Option<DeliveredMessage> = None;
        while let Some((&tsn, _)) = self.held.range(first..=last).next()
            && let Some(part) = self.held.remove(&tsn)
        {
            let WaitingFragment { stream, ppid, .. } = part;
            let empty =
                DeliveredMessage { last, octets: HELD_OVERHEAD_OCTETS, stream, ppid, user: Vec::new() };
            let message = message.get_or_insert(empty);
            message.octets += part.user.len();
            message.user.extend_from_slice(&part.user);
        }
        message.ok_or(Defect::Contradiction("messages of held chunks"))
    }
}

/// The record of a chunk that cannot be delivered yet.
fn chunk(held: &WaitingFragment) -> ExportRecord<'_> {
    let WaitingFragment { tsn, flags, stream, ssn, ppid, user, .. } = held;
    ExportRecord {
        kind: RecordKind::Held,
        flags: *flags,
        stream: *stream,
        ssn: *ssn,
        ppid: *ppid,
        number: 0,
        tsn: *tsn,
        octets: user,
    }
}

/// The record of a message that was delivered without having been held.
fn delivered(message: &DeliveredMessage, number: u64) -> ExportRecord<'_> {
    let DeliveredMessage { last, stream, ppid, user, .. } = message;
    ExportRecord {
        stream: *stream,
        ppid: *ppid,
        number,
        tsn: *last,
        ..ExportRecord::of(RecordKind::Delivered, user)
    }
}

/// The record of a message, or of none, that held chunks became.
fn taken(first: u64, last: u64, number: u64) -> ExportRecord<'static> {
    let before = u32::try_from(last.saturating_sub(first)).unwrap_or(u32::MAX);
    ExportRecord { ppid: before, number, tsn: last, ..ExportRecord::of(RecordKind::Taken, &[]) }
}
