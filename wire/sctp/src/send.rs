//! The sending half: fragmentation, the queue, the data in flight, and SACK processing (RFC 9260 §6.1-6.3, §7.2).

use std::collections::VecDeque;

use whimbrel_ids::Instant;

use crate::config::Config;
use crate::export::Defect;
use crate::export::record::{ExportRecord, RecordKind};
use crate::outbox::{AssociationId, Event, Events, RequestRefusal};
use crate::packet::{DATA_HEADER_LEN, be16, be32, data_flag, kind, pad, tsn_after};
use crate::path::PathState;

/// How often a TSN is reported missing before it is sent again (RFC 9260 §7.2.4).
const MISSING_REPORTS: u8 = 3;
/// Chunk buffers kept for reuse.
const SPARE_BUFFERS_MAX: usize = 256;
/// What a queued chunk costs us beside its user data, counted against the send buffer.
const CHUNK_OVERHEAD_OCTETS: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The chunk is under way.
    InFlight,
    /// Reported received by a gap ack block; the peer may still take that back.
    GapAcked,
    /// To be sent again.
    Lost,
}

/// A DATA chunk, whole and padded, ready to be copied into a packet.
#[derive(Clone, Debug)]
struct OutgoingData {
    octets: Vec<u8>,
    user_octets: usize,
    fate: Fate,
    path: usize,
    sent: Instant,
    transmissions: u32,
    missing: u8,
    /// Already sent again by fast retransmit; once is all it gets (RFC 9260 §7.2.4 rule 5).
    fast: bool,
}

impl OutgoingData {
    fn new(octets: Vec<u8>, user_octets: usize) -> Self {
        Self {
            octets,
            user_octets,
            fate: Fate::InFlight,
            path: 0,
            sent: Instant::ZERO,
            transmissions: 0,
            missing: 0,
            fast: false,
        }
    }

    fn is_end(&self) -> bool {
        self.octets.get(1).is_some_and(|flags| flags & data_flag::END != 0)
    }

    fn user(&self) -> &[u8] {
        self.octets.get(DATA_HEADER_LEN..DATA_HEADER_LEN + self.user_octets).unwrap_or_default()
    }
}

/// What a SACK brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SackOutcome {
    /// It acknowledged something new.
    pub(crate) progress: bool,
    /// It acknowledged what was never sent.
    pub(crate) violation: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct DataSender {
    /// TSN of the next chunk sent for the first time.
    next_tsn: u32,
    /// Everything up to this TSN was acknowledged; `flight[0]` is the one after it.
    cum_acked: u32,
    flight: VecDeque<OutgoingData>,
    pending: VecDeque<OutgoingData>,
    queued_octets: usize,
    /// User octets under way on all paths.
    outstanding: usize,
    lost: usize,
    gap_acked: usize,
    /// What the peer still has room for.
    pub(crate) peer_rwnd: usize,
    next_ssn: Vec<u16>,
    /// A loss was just found: its first packet leaves whatever the window (RFC 9260 §7.2.4 rule 3).
    pub(crate) urgent: bool,
    /// In fast recovery until this TSN is acknowledged.
    recovery: Option<u32>,
    spare: Vec<Vec<u8>>,
    /// The acknowledged part of a message whose end is not acknowledged.
    begun: Vec<u8>,
    /// Chunks that were ever queued.
    chunks: u64,
}

/// The numbers of a sending half that is continued.
#[derive(Clone, Debug)]
pub(crate) struct ContinuedSender {
    pub(crate) next_tsn: u32,
    pub(crate) cum_acked: u32,
    pub(crate) peer_rwnd: u32,
    pub(crate) next_ssn: Vec<u16>,
    /// How many of the chunks that the journal has are acknowledged.
    pub(crate) acknowledged: u32,
}

impl DataSender {
    pub(crate) fn new(initial_tsn: u32) -> Self {
        Self {
            next_tsn: initial_tsn,
            cum_acked: initial_tsn.wrapping_sub(1),
            flight: VecDeque::new(),
            pending: VecDeque::new(),
            queued_octets: 0,
            outstanding: 0,
            lost: 0,
            gap_acked: 0,
            peer_rwnd: 0,
            next_ssn: Vec::new(),
            urgent: false,
            recovery: None,
            spare: Vec::new(),
            begun: Vec::new(),
            chunks: 0,
        }
    }

    /// Chunks that were ever queued, and how many of them are acknowledged.
    pub(crate) fn chunks(&self) -> (u64, u64) {
        (self.chunks, self.chunks - (self.flight.len() + self.pending.len()) as u64)
    }

    /// The records of the chunks from the `from`th one on that were queued and are not acknowledged.
    pub(crate) fn write_chunks(&self, from: u64, out: &mut Vec<u8>) {
        let (_, acknowledged) = self.chunks();
        let skipped = usize::try_from(from.saturating_sub(acknowledged)).unwrap_or(usize::MAX);
        // Skipping is what the two queues' indices are for: a walk would cost each packet the whole queue.
        let pending = skipped.saturating_sub(self.flight.len());
        let flight = self.flight.range(skipped.min(self.flight.len())..);
        for chunk in flight.chain(self.pending.range(pending.min(self.pending.len())..)) {
            ExportRecord::of(RecordKind::Queued, &chunk.octets).write(out);
        }
    }

    /// The record of the acknowledged part of a message whose end is not acknowledged.
    pub(crate) fn write_begun(&self, out: &mut Vec<u8>) {
        if !self.begun.is_empty() {
            ExportRecord::of(RecordKind::Begun, &self.begun).write(out);
        }
    }

    /// Most octets that [`Self::write_begun`] and [`Self::write_chunks`] write.
    pub(crate) fn live_octets_max(&self) -> usize {
        self.queued_octets + self.begun.len()
    }

    /// The numbers for a successor.
    pub(crate) fn write_numbers(&self, acknowledged: u32, out: &mut Vec<u8>) {
        let peer_rwnd = u32::try_from(self.peer_rwnd + self.outstanding).unwrap_or(u32::MAX);
        for number in [self.next_tsn, self.cum_acked, peer_rwnd, acknowledged] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        self.next_ssn.iter().for_each(|ssn| out.extend_from_slice(&ssn.to_be_bytes()));
    }

    /// Continues from the numbers and records of a former sender. All that was under way counts as lost, so that the peer reports at once
    /// what it has.
    pub(crate) fn restore<'a>(
        numbers: ContinuedSender,
        records: impl Iterator<Item = ExportRecord<'a>>,
    ) -> Result<Self, Defect> {
        let ContinuedSender { next_tsn, cum_acked, peer_rwnd, next_ssn, acknowledged } = numbers;
        let mut sender =
            Self { next_tsn, cum_acked, peer_rwnd: peer_rwnd as usize, next_ssn, ..Self::new(0) };
        let under_way = next_tsn.wrapping_sub(cum_acked).wrapping_sub(1);
        let mut read = 0;
        for record in records {
            match record.kind {
                RecordKind::Begun => sender.begun = record.octets.to_vec(),
                RecordKind::Queued => {
                    let chunk = queued(record.octets).ok_or(Defect::Contradiction("queued chunks"))?;
                    sender.take_restored(chunk, read, acknowledged, under_way);
                    read += 1;
                }
                _ => {}
            }
        }
        if u64::from(read) < u64::from(acknowledged) + u64::from(under_way) {
            return Err(Defect::Contradiction("chunks under way"));
        }
        Ok(sender)
    }

    /// Takes the `nth` chunk of a journal.
    fn take_restored(&mut self, mut chunk: OutgoingData, nth: u32, acknowledged: u32, under_way: u32) {
        let Some(ahead) = nth.checked_sub(acknowledged) else {
            return self.forget_begun(&chunk);
        };
        self.queued_octets += chunk.user_octets + CHUNK_OVERHEAD_OCTETS;
        self.chunks += 1;
        if ahead >= under_way {
            return self.pending.push_back(chunk);
        }
        let tsn = self.cum_acked.wrapping_add(1).wrapping_add(ahead);
        chunk.octets[4..8].copy_from_slice(&tsn.to_be_bytes());
        // The former endpoint has sent it, at an unknown time: it does not measure the round trip (RFC 9260 §6.3.1 C5).
        (chunk.fate, chunk.transmissions) = (Fate::Lost, 1);
        self.lost += 1;
        self.flight.push_back(chunk);
    }

    /// A chunk was acknowledged: what is kept of its message, until that is acknowledged to its end.
    fn forget_begun(&mut self, chunk: &OutgoingData) {
        match chunk.is_end() {
            true => self.begun.clear(),
            false => self.begun.extend_from_slice(chunk.user()),
        }
    }

    /// Sets the outbound streams that were agreed.
    pub(crate) fn set_streams(&mut self, n: u16) {
        self.next_ssn.resize(usize::from(n), 0);
    }

    /// Whether nothing is queued or under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.flight.is_empty() && self.pending.is_empty()
    }

    /// Whether DATA is queued that was never sent.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// User octets queued or under way, with their overhead.
    pub(crate) fn queued_octets(&self) -> usize {
        self.queued_octets
    }

    /// Queues a message in fragments that fit packets of `packet_max` octets.
    pub(crate) fn queue(
        &mut self,
        message: (u16, u32, bool),
        octets: &[u8],
        packet_max: usize,
        config: &Config,
    ) -> Result<(), RequestRefusal> {
        let (stream, ppid, unordered) = message;
        if octets.is_empty() {
            return Err(RequestRefusal::EmptyMessage);
        }
        // Before the peer has answered, the agreed number of streams is not known; the configured number applies.
        let Some(ssn) = self.next_ssn.get_mut(usize::from(stream)) else {
            return Err(RequestRefusal::InvalidStream);
        };
        let room = packet_max - crate::packet::HEADER_LEN - DATA_HEADER_LEN;
        let cost = octets.len() + octets.len().div_ceil(room) * CHUNK_OVERHEAD_OCTETS;
        if self.queued_octets + cost > config.send_buffer_octets {
            return Err(RequestRefusal::SendBufferFull);
        }
        let this_ssn = if unordered { 0 } else { *ssn };
        if !unordered {
            *ssn = ssn.wrapping_add(1);
        }
        let last = octets.len().div_ceil(room) - 1;
        for (i, part) in octets.chunks(room).enumerate() {
            let mut flags = if unordered { data_flag::UNORDERED } else { 0 };
            flags |= if i == 0 { data_flag::BEGINNING } else { 0 };
            flags |= if i == last { data_flag::END } else { 0 };
            let mut chunk = self.spare.pop().unwrap_or_default();
            write_data(&mut chunk, flags, stream, this_ssn, ppid, part);
            self.pending.push_back(OutgoingData::new(chunk, part.len()));
            self.chunks += 1;
        }
        self.queued_octets += cost;
        Ok(())
    }

    /// Hands back the messages that were not acknowledged to their end.
    pub(crate) fn unacknowledged(&mut self, association: AssociationId, events: &mut Events) {
        let mut message = core::mem::take(&mut self.begun);
        for chunk in self.flight.iter().chain(&self.pending) {
            message.extend_from_slice(chunk.user());
            let (Some(stream), Some(ppid)) = (be16(&chunk.octets, 8), be32(&chunk.octets, 12)) else {
                continue;
            };
            if chunk.is_end() {
                events.push(Event::Unacknowledged { association, stream, ppid, octets: &message });
                message.clear();
            }
        }
    }

    /// The next chunk to send again; it is then under way on `path`.
    pub(crate) fn retransmit(&mut self, now: Instant, paths: &mut [PathState], path: usize) -> Option<&[u8]> {
        let chunk = self.flight.iter_mut().find(|c| c.fate == Fate::Lost)?;
        let p = paths.get_mut(path)?;
        chunk.fate = Fate::InFlight;
        self.lost -= 1;
        begin_transit(chunk, p, path, now);
        self.outstanding += chunk.user_octets;
        self.peer_rwnd = self.peer_rwnd.saturating_sub(chunk.user_octets);
        Some(&chunk.octets)
    }

    /// The next chunk to send again: its size, and the path that lost it.
    pub(crate) fn next_lost(&self) -> Option<(usize, usize)> {
        if self.lost == 0 {
            return None;
        }
        self.flight.iter().find(|c| c.fate == Fate::Lost).map(|c| (c.octets.len(), c.path))
    }

    /// Size of the next new chunk, whole, if the peer's window has room for it (RFC 9260 §6.1 A).
    pub(crate) fn next_pending_len(&self) -> Option<usize> {
        let chunk = self.pending.front()?;
        let fits = chunk.user_octets <= self.peer_rwnd || (self.outstanding == 0 && self.flight.is_empty());
        fits.then_some(chunk.octets.len())
    }

    /// The next new chunk gets its TSN and is under way on `path`.
    pub(crate) fn transmit(&mut self, now: Instant, paths: &mut [PathState], path: usize) -> Option<&[u8]> {
        let p = paths.get_mut(path)?;
        let mut chunk = self.pending.pop_front()?;
        chunk.octets[4..8].copy_from_slice(&self.next_tsn.to_be_bytes());
        self.next_tsn = self.next_tsn.wrapping_add(1);
        begin_transit(&mut chunk, p, path, now);
        self.outstanding += chunk.user_octets;
        self.peer_rwnd = self.peer_rwnd.saturating_sub(chunk.user_octets);
        self.flight.push_back(chunk);
        self.flight.back().map(|c| c.octets.as_slice())
    }

    /// T3-rtx of a path ran out: all that was under way there is lost (RFC 9260 §6.3.3).
    pub(crate) fn path_timed_out(&mut self, path: usize, paths: &mut [PathState]) {
        for chunk in self.flight.iter_mut().filter(|c| c.fate == Fate::InFlight && c.path == path) {
            chunk.fate = Fate::Lost;
            chunk.missing = 0;
            chunk.fast = false;
            self.outstanding -= chunk.user_octets;
            self.lost += 1;
        }
        if let Some(p) = paths.get_mut(path) {
            p.flight = 0;
            p.handle_t3_rtx_expiry();
        }
        self.recovery = None;
    }

    /// A cumulative acknowledgement alone, as SHUTDOWN carries it.
    pub(crate) fn cumulative_ack(
        &mut self,
        cum: u32,
        now: Instant,
        paths: &mut [PathState],
        config: &Config,
    ) -> SackOutcome {
        let rwnd = self.peer_rwnd + self.outstanding;
        self.acknowledge(cum, rwnd, &[], now, paths, config)
    }

    /// A SACK's value (RFC 9260 §3.3.4, §6.2.1).
    pub(crate) fn sack(
        &mut self,
        value: &[u8],
        now: Instant,
        paths: &mut [PathState],
        config: &Config,
    ) -> Option<SackOutcome> {
        let (cum, a_rwnd, gaps) = (be32(value, 0)?, be32(value, 4)?, usize::from(be16(value, 8)?));
        let blocks = value.get(12..12 + 4 * gaps)?;
        Some(self.acknowledge(cum, a_rwnd as usize, blocks, now, paths, config))
    }

    fn acknowledge(
        &mut self,
        cum: u32,
        a_rwnd: usize,
        gap_blocks: &[u8],
        now: Instant,
        paths: &mut [PathState],
        config: &Config,
    ) -> SackOutcome {
        if tsn_after(self.cum_acked, cum) {
            return SackOutcome::default(); // an old one, overtaken
        }
        let last_sent = self.next_tsn.wrapping_sub(1);
        if tsn_after(cum, last_sent) {
            return SackOutcome { progress: false, violation: true };
        }
        for p in paths.iter_mut() {
            (p.flight_before, p.acked_now, p.lost_now) = (p.flight, 0, false);
        }
        let mut round = Round { newest: None, rtt: None };
        let advanced = cum != self.cum_acked;
        while self.cum_acked != cum {
            self.cum_acked = self.cum_acked.wrapping_add(1);
            let Some(chunk) = self.flight.pop_front() else { break };
            self.settle(chunk, self.cum_acked, &mut round, paths);
        }
        if !gap_blocks.is_empty() || self.gap_acked > 0 {
            self.gap_ack(gap_blocks, &mut round, paths);
        }
        if let Some((path, sent)) = round.rtt
            && let Some(p) = paths.get_mut(path)
        {
            p.update_rto(now.since(sent), config);
        }
        if self.recovery.is_some_and(|exit| !tsn_after(exit, cum)) {
            self.recovery = None;
        }
        if !gap_blocks.is_empty() {
            self.count_missing(round.newest, advanced, paths);
        }
        for p in paths.iter_mut() {
            if p.acked_now > 0 {
                p.errors = 0;
                if advanced {
                    p.t3 = Some(now + p.rto);
                }
                if advanced && self.recovery.is_none() {
                    p.open_window();
                }
            }
            if p.flight == 0 {
                p.t3 = None;
            }
        }
        self.peer_rwnd = a_rwnd.saturating_sub(self.outstanding);
        SackOutcome { progress: round.newest.is_some(), violation: false }
    }

    /// A chunk was acknowledged cumulatively: forget it.
    fn settle(&mut self, mut chunk: OutgoingData, tsn: u32, round: &mut Round, paths: &mut [PathState]) {
        match chunk.fate {
            Fate::InFlight => {
                self.outstanding -= chunk.user_octets;
                round.note(&chunk, tsn, paths);
            }
            Fate::Lost => {
                self.lost -= 1;
                round.note_late(&chunk, tsn, paths);
            }
            Fate::GapAcked => {
                self.gap_acked -= 1;
                if let Some(p) = paths.get_mut(chunk.path) {
                    p.acked_now += chunk.user_octets;
                }
            }
        }
        self.queued_octets = self.queued_octets.saturating_sub(chunk.user_octets + CHUNK_OVERHEAD_OCTETS);
        self.forget_begun(&chunk);
        if self.spare.len() < SPARE_BUFFERS_MAX {
            chunk.octets.clear();
            self.spare.push(chunk.octets);
        }
    }

    /// Applies gap ack blocks, and revokes those of an earlier SACK that this one lacks (RFC 9260 §6.2.1 D ii).
    fn gap_ack(&mut self, blocks: &[u8], round: &mut Round, paths: &mut [PathState]) {
        let mut blocks = blocks.chunks_exact(4).filter_map(|b| {
            let (start, end) = (be16(b, 0)?, be16(b, 2)?);
            (start > 0 && end >= start).then(|| (usize::from(start) - 1, usize::from(end) - 1))
        });
        let mut block = blocks.next();
        for (i, chunk) in self.flight.iter_mut().enumerate() {
            while block.is_some_and(|(_, end)| end < i) {
                block = blocks.next();
            }
            // The chunk after cum_acked has offset 1 on the wire, index 0 here.
            let covered = block.is_some_and(|(start, _)| start <= i);
            let tsn = self.cum_acked.wrapping_add(1).wrapping_add(i as u32);
            match (covered, chunk.fate) {
                (true, Fate::InFlight) => {
                    self.outstanding -= chunk.user_octets;
                    round.note(chunk, tsn, paths);
                    chunk.fate = Fate::GapAcked;
                    self.gap_acked += 1;
                }
                (true, Fate::Lost) => {
                    self.lost -= 1;
                    round.note_late(chunk, tsn, paths);
                    chunk.fate = Fate::GapAcked;
                    self.gap_acked += 1;
                }
                (false, Fate::GapAcked) => {
                    self.gap_acked -= 1;
                    chunk.fate = Fate::Lost;
                    chunk.missing = 0;
                    self.lost += 1;
                }
                _ => {}
            }
        }
    }

    /// Counts missing reports below the newest TSN acknowledged, and declares losses (RFC 9260 §7.2.4).
    fn count_missing(&mut self, newest: Option<u32>, advanced: bool, paths: &mut [PathState]) {
        let in_recovery = self.recovery.is_some();
        // In fast recovery an advancing SACK counts for all that it reports missing, else only below the newest.
        let limit = if in_recovery && advanced { Some(self.highest_gap_acked()) } else { newest };
        let Some(limit) = limit else { return };
        for (i, chunk) in self.flight.iter_mut().enumerate() {
            let tsn = self.cum_acked.wrapping_add(1).wrapping_add(i as u32);
            if !tsn_after(limit, tsn) {
                break;
            }
            if chunk.fate != Fate::InFlight || chunk.fast {
                continue;
            }
            chunk.missing += 1;
            if chunk.missing < MISSING_REPORTS {
                continue;
            }
            chunk.fate = Fate::Lost;
            chunk.fast = true;
            chunk.missing = 0;
            self.lost += 1;
            self.outstanding -= chunk.user_octets;
            if let Some(p) = paths.get_mut(chunk.path) {
                p.flight = p.flight.saturating_sub(chunk.user_octets);
                p.lost_now = true;
            }
        }
        if !in_recovery && paths.iter().any(|p| p.lost_now) {
            for p in paths.iter_mut().filter(|p| p.lost_now) {
                p.halve_window();
            }
            self.recovery = Some(self.next_tsn.wrapping_sub(1));
            self.urgent = true;
        }
    }

    fn highest_gap_acked(&self) -> u32 {
        let at = self.flight.iter().rposition(|c| c.fate == Fate::GapAcked).unwrap_or(0);
        self.cum_acked.wrapping_add(1).wrapping_add(at as u32)
    }
}

/// What one SACK acknowledged over all paths; each path keeps its own share.
struct Round {
    newest: Option<u32>,
    rtt: Option<(usize, Instant)>,
}

impl Round {
    fn note(&mut self, chunk: &OutgoingData, tsn: u32, paths: &mut [PathState]) {
        if let Some(p) = paths.get_mut(chunk.path) {
            p.flight = p.flight.saturating_sub(chunk.user_octets);
        }
        self.note_late(chunk, tsn, paths);
        if chunk.transmissions == 1 {
            self.rtt = Some((chunk.path, chunk.sent)); // Karn: never from a chunk sent twice
        }
    }

    /// As `note`, for a chunk that was already taken out of the flight.
    fn note_late(&mut self, chunk: &OutgoingData, tsn: u32, paths: &mut [PathState]) {
        if let Some(p) = paths.get_mut(chunk.path) {
            p.acked_now += chunk.user_octets;
        }
        if self.newest.is_none_or(|n| tsn_after(tsn, n)) {
            self.newest = Some(tsn);
        }
    }
}

fn begin_transit(chunk: &mut OutgoingData, p: &mut PathState, path: usize, now: Instant) {
    p.decay_idle_window(now);
    p.flight += chunk.user_octets;
    if p.t3.is_none() {
        p.t3 = Some(now + p.rto);
    }
    chunk.path = path;
    chunk.sent = now;
    chunk.transmissions += 1;
}

/// Writes a DATA chunk with a TSN of zero, to be set when it first leaves.
fn write_data(out: &mut Vec<u8>, flags: u8, stream: u16, ssn: u16, ppid: u32, user: &[u8]) {
    out.clear();
    let len = u16::try_from(DATA_HEADER_LEN + user.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&[kind::DATA, flags]);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(&ssn.to_be_bytes());
    out.extend_from_slice(&ppid.to_be_bytes());
    out.extend_from_slice(user);
    pad(out, 0);
}

/// A DATA chunk as a journal has it; `None` if it is none.
fn queued(octets: &[u8]) -> Option<OutgoingData> {
    let len = usize::from(be16(octets, 2)?);
    let user_octets = len.checked_sub(DATA_HEADER_LEN).filter(|user| *user > 0)?;
    let is_data = octets.first() == Some(&kind::DATA) && octets.len() == len.next_multiple_of(4);
    is_data.then(|| OutgoingData::new(octets.to_vec(), user_octets))
}
