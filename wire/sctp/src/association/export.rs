//! An association as its head and its journal have it: what a successor needs.
//!
//! Timers, measurements in progress and answers that wait for the flush are not kept: the successor starts its timers again, and what the peer
//! does not get an answer to it sends again (RFC 9260 §6.3, §5.1.6, §8.3).

use std::collections::VecDeque;

use core::time::Duration;
use whimbrel_ids::{Instant, Reader};

use super::timers::schedule_heartbeat;
use super::{Association, SHUTDOWN_GUARD_RTOS, State};
use crate::config::Config;
use crate::cookie::{PEER_ADDRESSES_MAX, read_ip, write_ip};
use crate::endpoint::UserNotes;
use crate::export::record::ExportRecord;
use crate::export::{Defect, HEAD_PREFIX_OCTETS, Layout, Progress, SavedStore, Store};
use crate::outbox::{AssociationId, Path};
use crate::path::{PathMeasurements, PathState};
use crate::receive::{self, DataReceiver};
use crate::send::{self, DataSender};

const BAD_HEAD: Defect = Defect::Contradiction("head");

/// Most entries of a list in a head that are taken: more than a layout has room for.
const GAPS_MAX: u16 = 4096;

/// The states that a successor continues; before them the peer is not set up, and tries again.
fn state_octet(state: State) -> Option<u8> {
    match state {
        State::CookieWait | State::CookieEchoed => None,
        State::Established => Some(1),
        State::ShutdownPending => Some(2),
        State::ShutdownSent => Some(3),
        State::ShutdownReceived => Some(4),
        State::ShutdownAckSent => Some(5),
    }
}

fn state_of(octet: u8) -> Option<State> {
    [
        State::Established,
        State::ShutdownPending,
        State::ShutdownSent,
        State::ShutdownReceived,
        State::ShutdownAckSent,
    ]
    .get(usize::from(octet).checked_sub(1)?)
    .copied()
}

impl Association {
    /// Writes what changed since the last export and publishes it. `scratch` is reused memory.
    pub(crate) fn export(
        &mut self,
        progress: &mut Progress,
        layout: &Layout,
        scratch: &mut Vec<u8>,
        store: &mut impl Store,
    ) {
        let Some(state) = state_octet(self.state) else {
            self.rx.fresh.clear();
            return;
        };
        let slot = self.id.slot;
        if core::mem::take(&mut self.export_void) {
            progress.forget();
        }
        let (queued, acknowledged) = self.tx.chunks();
        scratch.clear();
        scratch.append(&mut self.rx.fresh);
        self.tx.write_chunks(progress.next_chunk, scratch);
        let live = self.rx.live_octets_max() + self.tx.live_octets_max();
        if progress.is_rewrite_due(scratch.len(), live, layout) {
            progress.begin_journal();
            progress.first_chunk = acknowledged;
            scratch.clear();
            self.tx.write_begun(scratch);
            self.tx.write_chunks(acknowledged, scratch);
            self.rx.write_live(scratch);
        }
        progress.append(slot, scratch, layout, store);
        progress.next_chunk = queued;
        scratch.clear();
        scratch.resize(HEAD_PREFIX_OCTETS, 0);
        let of_journal = u32::try_from(acknowledged - progress.first_chunk).unwrap_or(u32::MAX);
        self.write_head(state, of_journal, progress, scratch);
        progress.publish(slot, scratch, layout, store);
    }

    fn write_head(&self, state: u8, acknowledged: u32, progress: &Progress, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.generation.to_be_bytes());
        out.extend_from_slice(&[state, progress.journal]);
        for field in [progress.journal_octets as u32, progress.journal_sum] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        for field in [self.local_port, self.peer_port, self.inbound_streams, self.outbound_streams] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        for field in [self.local_tag, self.peer_tag, self.local_initial_tsn] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.push(self.adaptation.is_some().into());
        out.extend_from_slice(&self.adaptation.unwrap_or_default().to_be_bytes());
        for field in [self.notes.label, self.notes.mark] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(&[self.primary as u8, self.paths.len() as u8]);
        for p in &self.paths {
            write_ip(out, p.path.local);
            write_ip(out, p.path.remote);
            out.extend_from_slice(&p.path.udp_port.to_be_bytes());
            out.push(u8::from(p.active) | u8::from(p.confirmed) << 1);
            let PathMeasurements { srtt, rttvar, rto, cwnd, ssthresh } = p.export_measurements();
            let micros = |d: Duration| d.as_micros() as u64;
            for field in
                [srtt.map_or(u64::MAX, micros), micros(rttvar), micros(rto), cwnd as u64, ssthresh as u64]
            {
                out.extend_from_slice(&field.to_be_bytes());
            }
        }
        self.tx.write_numbers(acknowledged, out);
        self.rx.write_numbers(out);
    }

    /// Continues an association from the body of its head and its journal.
    pub(crate) fn restore(
        slot: u32,
        head: &[u8],
        saved: &impl SavedStore,
        now: Instant,
        config: &Config,
    ) -> Result<Self, Defect> {
        let head = ImportedHead::read(head, now, config).ok_or(BAD_HEAD)?;
        let (octets, layout) = (head.journal_octets as usize, saved.layout());
        if octets > layout.journal_octets {
            return Err(BAD_HEAD);
        }
        let journal = saved.read(slot, layout.journal_at(head.journal), octets).ok_or(Defect::Checksum)?;
        if crc32c::crc32c(&journal) != head.journal_sum {
            return Err(Defect::Checksum);
        }
        let mut records = Vec::new();
        let mut r = Reader::new(&journal);
        while !r.is_empty() {
            records.push(ExportRecord::read(&mut r).ok_or(Defect::Contradiction("journal"))?);
        }
        let tx = DataSender::restore(head.tx, records.iter().copied())?;
        let rx = DataReceiver::restore(head.rx, records.iter().copied(), config)?;
        let mut a = Self { tx, rx, ..head.association };
        a.id.slot = slot;
        a.export_void = true;
        let rto = a.paths.get(a.primary).map_or(config.rto_initial, |p| p.rto);
        a.t2 = matches!(a.state, State::ShutdownSent | State::ShutdownAckSent).then_some(now + rto);
        a.t5 = (a.state != State::Established).then_some(now + config.rto_max * SHUTDOWN_GUARD_RTOS);
        for p in &mut a.paths {
            schedule_heartbeat(p, now, config);
        }
        Ok(a)
    }
}

/// A head that was read: its association, without the halves that carry data.
struct ImportedHead {
    association: Association,
    journal: u8,
    journal_octets: u32,
    journal_sum: u32,
    tx: send::ContinuedSender,
    rx: receive::ContinuedReceiver,
}

impl ImportedHead {
    fn read(octets: &[u8], now: Instant, config: &Config) -> Option<Self> {
        const IE: &str = "head";
        let mut r = Reader::new(octets);
        let id = AssociationId { slot: 0, generation: r.u32(IE).ok()? };
        let (state, journal) = (state_of(r.u8(IE).ok()?)?, r.u8(IE).ok()?);
        let (journal_octets, journal_sum) = (r.u32(IE).ok()?, r.u32(IE).ok()?);
        let (local_port, peer_port) = (r.u16(IE).ok()?, r.u16(IE).ok()?);
        let (inbound_streams, outbound_streams) = (r.u16(IE).ok()?, r.u16(IE).ok()?);
        let (local_tag, peer_tag, local_tsn) = (r.u32(IE).ok()?, r.u32(IE).ok()?, r.u32(IE).ok()?);
        let indicated = r.u8(IE).ok()? != 0;
        let adaptation = Some(r.u32(IE).ok()?).filter(|_| indicated);
        let notes = UserNotes { label: r.u64(IE).ok()?, mark: r.u64(IE).ok()? };
        let (primary, paths) = (usize::from(r.u8(IE).ok()?), usize::from(r.u8(IE).ok()?));
        let usable = journal <= 1 && local_tag != 0 && peer_tag != 0 && local_port != 0 && peer_port != 0;
        let streams = inbound_streams > 0 && outbound_streams > 0;
        if !usable || !streams || primary >= paths || paths > PEER_ADDRESSES_MAX {
            return None;
        }
        let identity = super::AssociationIdentity { id, local_port, peer_port, local_tag, local_tsn };
        let mut a = Association::new(identity, config);
        for _ in 0..paths {
            let path = read_path(&mut r, now, config)?;
            if a.path_to(path.path.remote).is_some() {
                return None;
            }
            a.paths.push(path);
        }
        let ssns = |r: &mut Reader<'_>, streams: u16| -> Option<Vec<u16>> {
            (0..streams).map(|_| r.u16(IE).ok()).collect()
        };
        let tx = send::ContinuedSender {
            next_tsn: r.u32(IE).ok()?,
            cum_acked: r.u32(IE).ok()?,
            peer_rwnd: r.u32(IE).ok()?,
            acknowledged: r.u32(IE).ok()?,
            next_ssn: ssns(&mut r, outbound_streams)?,
        };
        let (cum, messages, released) = (r.u64(IE).ok()?, r.u64(IE).ok()?, r.u64(IE).ok()?);
        let next_ssn = ssns(&mut r, inbound_streams)?;
        let gaps = r.u16(IE).ok().filter(|gaps| *gaps <= GAPS_MAX)?;
        let run = |_| Some((r.u64(IE).ok()?, r.u64(IE).ok()?));
        let runs: VecDeque<(u64, u64)> = (0..gaps).map(run).collect::<Option<_>>()?;
        if !r.is_empty() {
            return None;
        }
        let association = Association {
            state,
            peer_tag,
            inbound_streams,
            outbound_streams,
            adaptation,
            notes,
            primary,
            control_path: primary,
            sack_path: primary,
            ..a
        };
        let rx = receive::ContinuedReceiver { cum, runs, messages, released, next_ssn };
        Some(Self { association, journal, journal_octets, journal_sum, tx, rx })
    }
}

fn read_path(r: &mut Reader<'_>, now: Instant, config: &Config) -> Option<PathState> {
    const IE: &str = "path";
    let (local, remote) = (read_ip(r)?, read_ip(r)?);
    let path = Path { local, remote, udp_port: r.u16(IE).ok()? };
    let flags = r.u8(IE).ok()?;
    let micros = |value: u64| Duration::from_micros(value);
    let (srtt, rttvar, rto) = (r.u64(IE).ok()?, r.u64(IE).ok()?, r.u64(IE).ok()?);
    let (cwnd, ssthresh) = (r.u64(IE).ok()?, r.u64(IE).ok()?);
    let mut p = PathState::new(path, flags & 2 != 0, now, config);
    p.active = flags & 1 != 0;
    p.restore_measurements(
        PathMeasurements {
            srtt: (srtt != u64::MAX).then(|| micros(srtt)),
            rttvar: micros(rttvar),
            rto: micros(rto),
            cwnd: usize::try_from(cwnd).ok()?,
            ssthresh: usize::try_from(ssthresh).ok()?,
        },
        config,
    );
    Some(p)
}
