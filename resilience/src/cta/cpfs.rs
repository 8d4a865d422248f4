//! The CPFs of the CTA's UEs: one within the program, called as a function; or those of a region, where each UE has a primary and backups,
//! and its log is kept here (Neutrino §4.2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::config::Config;
use whimbrel_control::event::Deregistered;
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{
    Disposition, Envelope, Event, LogOf, OutputId, Packed, RESTORED_CLOCK, Subject, UeEvent, UeId, UpfId,
    amf, smf,
};
use whimbrel_ids::Instant;
use whimbrel_pfcp::message_type;

use super::drain::Draining;
use super::moves::Moving;
use super::recovery::Recovery;
use super::restart::ToStore;
use super::scan::{BETWEEN_ROUNDS, Round};
use super::versions::Kinds;
use super::{Cta, Entropy, Inspect, Outbox, TERM, send};
use crate::link::{CpfCommand, CpfReport};
use crate::region::{CpfLoads, Region, Rings};
use crate::replication::{BESIDE_INPUT, CpfId, Lagging, Ledger, TakeoverOutcome, UeLogLimits, Verdict};
use crate::{CodeVersion, Cpf};

/// How long to wait for a backup before another CPF is asked, where a log is half full or a UE has no usable backup. Longer than two CPFs
/// take to reconnect after their link has ended.
pub(super) const HASTE: Duration = Duration::from_secs(2);
/// Pause between slices of the work that follows the loss or the leaving of a CPF. UEs that wait for an answer are not part of slices.
/// Slices are short, since a UE that sends a message meanwhile waits for the end of one.
pub(super) const BETWEEN_SLICES: Duration = Duration::from_micros(125);
/// UEs that one slice examines at most, some ten microseconds.
const SLICE: usize = 256;
/// Work that one slice gives to each remaining CPF at most, in messages: inputs to replay, takeovers (two each), new backups. A message
/// takes up to ten microseconds there, so CPFs keep more than half of their time for UEs with running procedures.
const SLICE_WORK: u64 = 8;
/// Cost for the CTA of discarding a UE that no CPF can take over, in the same unit.
const GIVEN_UP_WORK: u64 = 10;

/// What runs the UEs' procedures.
pub(super) enum Service {
    /// A part of this program.
    Here(Box<Cpf>),
    /// The CPFs of a region.
    Region(Box<Cpfs>),
}

/// The CPFs of a region, and the UEs' logs.
#[derive(Serialize, Deserialize)]
pub(super) struct Cpfs {
    pub(super) rings: Rings,
    pub(super) draining: Draining,
    pub(super) logs: LogLimits,
    pub(super) trusted: BTreeSet<CpfId>,
    /// The code version of each of them, and of lost CPFs whose UEs have not all been taken over yet.
    pub(super) code: BTreeMap<CpfId, CodeVersion>,
    pub(super) ledgers: BTreeMap<UeId, Ledger<Packed>>,
    pub(super) logged: Logged,
    /// The UEs that would be lost with their primary: they began without a backup, their new backup has not confirmed the checkpoint at
    /// which the log begins, or a full log was discarded.
    pub(super) without_backup: BTreeSet<UeId>,
    /// Batches received from each CPF.
    pub(super) taken: BTreeMap<CpfId, u64>,
    pub(super) waiting: Waiting,
    pub(super) late_backups: LateBackups,
    after_loss: AfterLoss,
    pub(super) moves: Moves,
    /// UEs in a region other than the CTA's own.
    pub(super) away: BTreeMap<UeId, Region>,
    /// UEs with backups that are dismissed as soon as others have the checkpoint: late ones, and those of a region that the UE has left.
    pub(super) unsettled: BTreeSet<UeId>,
    /// PFCP Session Deletion Requests per UE and UPF, for UEs that are discarded.
    deletions: BTreeMap<UeId, Vec<(UpfId, Vec<u8>)>>,
    pub(super) counts: ReplicationCounters,
    /// The states of UEs that were restored and have had no input yet: they go to their CPFs with it.
    pub(super) restored: BTreeMap<UeId, Box<[u8]>>,
    /// Violations that have been reported: each is reported once per CPF.
    reported: BTreeSet<(CpfId, ProtocolViolation)>,
    /// UEs and recent work of each CPF.
    pub(super) loads: CpfLoads,
    /// UEs that are not for any CPF.
    pub(super) kinds: Kinds,
}

/// The UEs with inputs in the log or without an answer.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Logged {
    /// The octets in the log of each.
    pub(super) ues: BTreeMap<UeId, usize>,
    /// The sum of these octets.
    octets: usize,
    /// The log limits that were reached and have not been reported yet.
    #[serde(skip)]
    limits_reached: Vec<&'static str>,
}

/// The search for UEs whose backups are late.
#[derive(Serialize, Deserialize)]
pub(super) struct LateBackups {
    /// When it goes on.
    pub(super) next: Instant,
    /// How far the current round has come.
    #[serde(skip)]
    pub(super) round: Option<Round>,
}

/// The work that follows the loss or the joining of a CPF.
#[derive(Serialize, Deserialize)]
struct AfterLoss {
    /// Rounds over all UEs that are due: the last UE that each has examined.
    rounds: VecDeque<Option<UeId>>,
    /// When the next slice is due.
    next: Instant,
    /// UEs of a lost CPF that have a running procedure and wait for no answer: they come before the round.
    first: VecDeque<UeId>,
    /// How long takeovers take, for metrics. Not part of a snapshot.
    #[serde(skip)]
    recovery: Recovery,
}

/// UEs that are moving to another CPF.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Moves {
    pub(super) ues: BTreeMap<UeId, Moving>,
    /// When moves began, oldest first; completed moves are still listed.
    pub(super) begun: VecDeque<(Instant, UeId)>,
}

/// CPFs that hold checkpoints back until they learn how many of their batches were released. Only these get a report.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Waiting {
    pub(super) await_release: BTreeSet<CpfId>,
    /// CPFs that were asked for a checkpoint, which may wait for the release of earlier batches.
    asked: BTreeSet<CpfId>,
}

impl Waiting {
    /// A batch has come: if its UE is idle, a checkpoint waits for its release.
    fn ran(&mut self, cpf: CpfId, idle: bool) {
        if idle {
            self.asked.remove(&cpf);
        }
        if idle || self.asked.contains(&cpf) {
            self.await_release.insert(cpf);
        }
    }

    fn lost(&mut self, cpf: CpfId) {
        self.await_release.remove(&cpf);
        self.asked.remove(&cpf);
    }
}

/// Limits of the UEs' logs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LogLimits {
    /// Per UE, for UEs that begin from now on.
    pub ue: UeLogLimits,
    /// Octets over all UEs.
    pub octets: usize,
    /// How long a log is kept for a backup that does not acknowledge the UE's checkpoint while another one has.
    pub outdated_after: Duration,
}

/// The time is Neutrino's (§4.2.4): a procedure takes seconds at most. The octets are those of a quarter of a million UEs that attach at once.
impl Default for LogLimits {
    fn default() -> Self {
        Self { ue: UeLogLimits::default(), octets: 512 << 20, outdated_after: Duration::from_secs(30) }
    }
}

/// Counters of takeovers, moves, logs and checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicationCounters {
    /// CPFs that were lost.
    pub cpfs_lost: u64,
    /// UEs that another CPF took over.
    pub taken_over: u64,
    /// Inputs that were replayed for that.
    pub replayed: u64,
    /// Of these, inputs that may have ended the lost CPF and went through the replay sandbox first.
    pub tried: u64,
    /// UEs with an input that ended the replay sandbox: their contexts were discarded.
    pub poisoned: u64,
    /// UEs without a usable checkpoint: they register again.
    pub lost: u64,
    /// Checkpoints that could not be used: unreadable, or of another UE or clock than their sender claimed.
    pub unreadable: u64,
    /// UEs that moved to another CPF without a loss.
    pub moved: u64,
    /// Of these, moves that needed no transfer, since the checkpoint was there (Neutrino §4.3, fast handover).
    pub moved_fast: u64,
    /// Moves that were given up, since the checkpoint did not arrive in time.
    pub moves_given_up: u64,
    /// Backups for which a log was not kept any longer.
    pub lagging: u64,
    /// Batches of CPFs that are not the UE's primary, discarded.
    pub fenced: u64,
    /// Acknowledgements of checkpoints that cannot exist: their clock was not released yet, or their term has not begun.
    pub checkpoint_acks_refused: u64,
    /// Replays whose outputs differed from those that had left.
    pub diverged: u64,
    /// Batches that used a downlink NAS COUNT twice: none of their outputs left.
    pub nas_count_reuse: u64,
}

/// A rule of the replication protocol that a CPF breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProtocolViolation {
    /// It sends for a UE of which it is not the primary; it may have been until a moment ago.
    Fenced,
    /// It acknowledges a checkpoint that cannot exist yet.
    AckRefused,
    /// Its checkpoint of a UE is unusable, or the one that it was sent is.
    CheckpointUnusable,
    /// Its outputs for an input differ from those that have left.
    Diverged,
    /// It used a downlink NAS COUNT twice under the same keys (TS 33.501 §6.4.3.1).
    NasCountReuse,
    /// It does not acknowledge checkpoints, and a log is not kept for it any longer.
    Lagging,
}

impl Cpfs {
    pub(super) fn new(rings: Rings, now: Instant) -> Self {
        Self {
            trusted: rings.members().collect(),
            code: rings.members().filter_map(|cpf| Some((cpf, rings.code_of(cpf)?))).collect(),
            rings,
            draining: Draining::default(),
            logs: LogLimits::default(),
            ledgers: BTreeMap::new(),
            logged: Logged::default(),
            without_backup: BTreeSet::new(),
            taken: BTreeMap::new(),
            waiting: Waiting::default(),
            late_backups: LateBackups { next: now + BETWEEN_ROUNDS, round: None },
            after_loss: AfterLoss {
                rounds: VecDeque::new(),
                next: now,
                first: VecDeque::new(),
                recovery: Recovery::default(),
            },
            moves: Moves::default(),
            away: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            deletions: BTreeMap::new(),
            counts: ReplicationCounters::default(),
            restored: BTreeMap::new(),
            reported: BTreeSet::new(),
            loads: CpfLoads::default(),
            kinds: Kinds::default(),
        }
    }

    /// Whether two CPFs run the same code.
    pub(super) fn alike(&self, one: CpfId, other: CpfId) -> bool {
        self.code.get(&one) == self.code.get(&other)
    }

    /// The fields that all logged inputs of a UE share while this CPF is its primary.
    fn log_of(&self, ue: UeId, by: CpfId) -> LogOf {
        let code_version = self.code.get(&by).map_or(0, |code| code.0);
        LogOf { code_version, ue, cta_term: TERM }
    }

    fn report(&mut self, of: CpfId, violation: ProtocolViolation, out: &mut Outbox) {
        let counts = &mut self.counts;
        *match violation {
            ProtocolViolation::Fenced => &mut counts.fenced,
            ProtocolViolation::AckRefused => &mut counts.checkpoint_acks_refused,
            ProtocolViolation::CheckpointUnusable => &mut counts.unreadable,
            ProtocolViolation::Diverged => &mut counts.diverged,
            ProtocolViolation::NasCountReuse => &mut counts.nas_count_reuse,
            ProtocolViolation::Lagging => &mut counts.lagging,
        } += 1;
        if self.reported.insert((of, violation)) {
            out.cpf_violations.push((of, violation));
        }
    }

    /// Logs an input and sends it to the UE's primary. Returns whether the UE is lost: no CPF has a usable checkpoint.
    fn submit(&mut self, envelope: Envelope, out: &mut Outbox) -> bool {
        let ue = envelope.ue;
        if !self.after_loss.rounds.is_empty() {
            let before = self.counts.taken_over;
            if self.fail_over(ue, out) {
                return true;
            }
            if self.counts.taken_over > before {
                self.after_loss.recovery.ue_waits(ue, envelope.time);
            }
        }
        self.move_to_its_kind(envelope.time, ue, out);
        if let Some(envelope) = self.waits(envelope, out) {
            self.hand_over(envelope, out);
        }
        false
    }

    pub(super) fn hand_over(&mut self, mut envelope: Envelope, out: &mut Outbox) {
        let ue = envelope.ue;
        if !self.ledgers.contains_key(&ue) {
            let kind = self.kind(ue);
            let Some(placement) = self.rings.place(self.region(ue), ue, kind, &self.loads) else { return };
            self.loads.moved(None, Some(placement.primary));
            let mut ledger = Ledger::new(placement.primary, placement.backups, self.logs.ue);
            if let Some(state) = self.restored.remove(&ue) {
                ledger = ledger.restored(RESTORED_CLOCK);
                let (by, term) = ledger.assignment();
                let holds = |cpf| (cpf, CpfCommand::Hold { ue, term, state: state.clone() });
                out.cpfs.extend(ledger.backups().chain([by]).map(holds));
            }
            assign(ue, &ledger, out);
            if placement.missing > 0 && !ledger.is_backed() {
                self.without_backup.insert(ue);
            }
            self.ledgers.insert(ue, ledger);
        }
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return };
        let (by, term) = ledger.assignment();
        #[cfg(any(test, feature = "experiments"))]
        let marked = ledger.mark();
        #[cfg(any(test, feature = "experiments"))]
        self.outdated(ue, marked, out);
        let log = self.log_of(ue, by);
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return };
        let now = envelope.time;
        (envelope.owner_term, envelope.code_version) = (term, log.code_version);
        let input = envelope.to_flat();
        let (clock, full) = ledger.append(|_| {
            let kept = Packed::of(&input, log).expect("it was written as an input of the UE");
            (BESIDE_INPUT + kept.len(), kept)
        });
        debug_assert_eq!(clock, envelope.clock, "the log and the table of UEs count the same inputs");
        out.cpfs.push((by, CpfCommand::RunLogged(input)));
        self.loads.works(now, by);
        self.counts_asked(now, ue, clock);
        let mut full = full.map(|lagging| ("log", lagging));
        self.pruned(ue);
        if self.logged.octets > self.logs.octets
            && let Some(ledger) = self.ledgers.get_mut(&ue)
        {
            full = Some(("logs", ledger.give_up_log()));
            self.pruned(ue);
        }
        if let Some((limit, lagging)) = full {
            self.logged.limits_reached.push(limit);
            self.outdated(ue, lagging, out);
        } else if self.ledgers.get(&ue).is_some_and(Ledger::is_half_full) {
            self.scan(now, ue, HASTE.min(self.logs.outdated_after), out);
        }
    }

    /// Stops keeping the log for backups that have been late for `patience` where another one has the checkpoint, and adds CPFs in their
    /// places: the primary may not reach them, and the log fills meanwhile. Returns whether CPFs were added.
    pub(super) fn scan(&mut self, now: Instant, ue: UeId, patience: Duration, out: &mut Outbox) -> bool {
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return false };
        // Late backups do not matter where no CPF could replace them.
        let late = if self.rings.has_more() { ledger.late(now, patience) } else { Vec::new() };
        let lagging = ledger.scan(now, patience);
        let mut late_cpfs: Vec<CpfId> = lagging.iter().map(|l| l.replica).collect();
        self.outdated(ue, lagging, out);
        self.pruned(ue);
        let relieved = !late.is_empty() && self.relieve(ue, &late, out);
        if relieved {
            late_cpfs.extend(late);
            late_cpfs.sort();
            late_cpfs.dedup();
        }
        late_cpfs.into_iter().for_each(|cpf| self.report(cpf, ProtocolViolation::Lagging, out));
        if self.unsettled.contains(&ue) {
            self.settle(ue, out);
        }
        relieved
    }

    /// Adds backups in the places of late ones, which are dismissed when the new ones have the checkpoint ([`Self::settle`]); until then
    /// the log leads on from theirs. Only a CPF that runs the same code can run the log. Returns whether any were added.
    fn relieve(&mut self, ue: UeId, late: &[CpfId], out: &mut Outbox) -> bool {
        let region = self.region(ue);
        let Some(ledger) = self.ledgers.get(&ue) else { return false };
        let (primary, _) = ledger.assignment();
        let present: Vec<CpfId> = ledger.backups().filter(|c| !late.contains(c)).collect();
        let mut further = self.rings.in_place_of(late, region, ue, primary, &present);
        further.retain(|c| self.trusted.contains(c) && !present.contains(c) && self.alike(*c, primary));
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return false };
        further.iter().for_each(|c| ledger.add_backup(*c));
        if !further.is_empty() || self.unsettled.contains(&ue) {
            ledger.put_last(late);
        }
        if further.is_empty() {
            return false;
        }
        self.unsettled.insert(ue);
        serve(ue, ledger, &mut self.waiting, out);
        true
    }

    /// Sends lagging backups that their checkpoints are outdated. They ask the replicas that have a newer one; the primary also sends it
    /// again when it may leave, and the others serve if that does not arrive.
    pub(super) fn outdated(&mut self, ue: UeId, lagging: Vec<Lagging>, out: &mut Outbox) {
        if lagging.is_empty() {
            return;
        }
        for Lagging { replica, clock, up_to_date } in lagging {
            out.cpfs.push((replica, CpfCommand::Outdated { ue, clock, up_to_date }));
        }
        if let Some(ledger) = self.ledgers.get(&ue) {
            if !ledger.is_backed() {
                self.without_backup.insert(ue);
            }
            serve(ue, ledger, &mut self.waiting, out);
        }
    }

    pub(super) fn pruned(&mut self, ue: UeId) {
        let ledger = self.ledgers.get(&ue).filter(|l| l.inputs() > 0 || l.released() < l.clock());
        let octets = ledger.map(Ledger::octets);
        let before = match octets {
            Some(octets) => self.logged.ues.insert(ue, octets),
            None => self.logged.ues.remove(&ue),
        };
        self.logged.octets = self.logged.octets + octets.unwrap_or(0) - before.unwrap_or(0);
    }

    /// A CPF is lost. UEs that wait for its answer are taken over now, the others in slices or when they send a message, those with a
    /// running procedure first. Returns the UEs without a usable checkpoint.
    pub(super) fn cpf_lost(&mut self, now: Instant, dead: CpfId, out: &mut Outbox) -> Vec<UeId> {
        if !self.trusted.remove(&dead) {
            return Vec::new();
        }
        self.counts.cpfs_lost += 1;
        self.counts_lost(dead);
        self.loads.gone(dead);
        self.reported.retain(|(cpf, _)| *cpf != dead);
        self.taken.remove(&dead);
        self.waiting.lost(dead);
        self.draining.lost(dead);
        self.after_loss.rounds.push_back(None);
        self.after_loss.recovery.begins(now, self.after_loss.rounds.len());
        self.after_loss.next = now + BETWEEN_SLICES;
        let ledgers = self.logged.ues.keys().filter_map(|ue| Some((*ue, self.ledgers.get(ue)?)));
        let served = ledgers.filter(|(_, l)| l.assignment().0 == dead);
        let (unanswered, behind): (Vec<_>, Vec<_>) = served.partition(|(_, l)| l.released() < l.clock());
        self.after_loss.first.extend(behind.into_iter().map(|(ue, _)| ue));
        let unanswered: Vec<UeId> = unanswered.into_iter().map(|(ue, _)| ue).collect();
        unanswered.iter().for_each(|&ue| self.after_loss.recovery.ue_waits(ue, now));
        unanswered.into_iter().filter(|&ue| self.fail_over(ue, out)).collect()
    }

    /// The next slice of takeovers and new backups after a loss. Returns the UEs without a usable checkpoint.
    fn fail_over_more(&mut self, now: Instant, out: &mut Outbox) -> Vec<UeId> {
        if now < self.after_loss.next {
            return Vec::new();
        }
        self.after_loss.next = now + BETWEEN_SLICES;
        let done = |counts: &ReplicationCounters, out: &Outbox| {
            counts.replayed + counts.taken_over + out.cpfs.len() as u64
        };
        let enough = done(&self.counts, out) + SLICE_WORK * self.trusted.len().max(1) as u64;
        let mut lost = Vec::new();
        for _ in 0..SLICE {
            if done(&self.counts, out) + GIVEN_UP_WORK * lost.len() as u64 >= enough {
                break;
            }
            let Some(ue) = self.next_unexamined() else { break };
            // UEs with a running procedure come first, and once more in the round.
            if !lost.contains(&ue) && self.fail_over(ue, out) {
                lost.push(ue);
            }
        }
        out.takeover_times.extend(self.after_loss.recovery.completed(now));
        lost
    }

    /// The next UE that a loss may affect.
    fn next_unexamined(&mut self) -> Option<UeId> {
        if let Some(ue) = self.after_loss.first.pop_front() {
            return Some(ue);
        }
        loop {
            let after = self.after_loss.rounds.front_mut()?;
            let next = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            if let Some((ue, _)) = self.ledgers.range(next).next() {
                *after = Some(*ue);
                return Some(*ue);
            }
            self.after_loss.rounds.pop_front();
            self.after_loss.recovery.round_ended();
        }
    }

    /// Replaces the lost CPFs of a UE. Returns whether no CPF has a usable checkpoint.
    fn fail_over(&mut self, ue: UeId, out: &mut Outbox) -> bool {
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return false };
        let (primary, _) = ledger.assignment();
        let mut gone: Vec<CpfId> = ledger.backups().filter(|c| !self.trusted.contains(c)).collect();
        if !self.trusted.contains(&primary) {
            gone.push(primary); // last, so that no lost backup is promoted
        }
        if gone.is_empty() {
            self.back(ue, out);
            return false;
        }
        self.remove_cpfs(ue, gone, out)
    }

    /// Adds backups that have joined to a UE that lacks some.
    fn back(&mut self, ue: UeId, out: &mut Outbox) {
        let region = self.away.get(&ue).unwrap_or_else(|| self.rings.home());
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return };
        let present: Vec<CpfId> = ledger.backups().collect();
        let mut further = self.rings.further_backups(region, ue, ledger.assignment().0, &present);
        further.retain(|cpf| self.trusted.contains(cpf) && !present.contains(cpf));
        if !further.is_empty() {
            further.into_iter().for_each(|cpf| ledger.add_backup(cpf));
            serve(ue, ledger, &mut self.waiting, out);
            self.spare_unlike(ue);
        }
    }

    /// A UE that has more backups than it needs loses those that run other code than its primary, as soon as the others have its checkpoint.
    pub(super) fn spare_unlike(&mut self, ue: UeId) {
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return };
        let (primary, _) = ledger.assignment();
        let on_rings: Vec<CpfId> = ledger.backups().filter(|cpf| self.rings.serves(*cpf)).collect();
        let is_unlike = |cpf: &CpfId| self.code.get(cpf) != self.code.get(&primary);
        let unlike: Vec<CpfId> = on_rings.iter().copied().filter(is_unlike).collect();
        if !unlike.is_empty() && on_rings.len() > self.rings.backups() {
            ledger.put_last(&unlike);
            self.unsettled.insert(ue);
        }
    }

    /// Removes CPFs from a UE; the primary, if among them, stands last. Returns whether no CPF has a usable checkpoint.
    fn remove_cpfs(&mut self, ue: UeId, gone: Vec<CpfId>, out: &mut Outbox) -> bool {
        let Some(ledger) = self.ledgers.get_mut(&ue).filter(|_| !gone.is_empty()) else { return false };
        let mut replay = Vec::new();
        let (former, _) = ledger.assignment();
        for cpf in gone {
            let runs = self.code.get(&cpf);
            match ledger.failed_among(cpf, |other| self.code.get(&other) == runs) {
                TakeoverOutcome::Lost => return true,
                TakeoverOutcome::Unaffected => {}
                TakeoverOutcome::Serve { replay: rest, .. } => {
                    self.counts.taken_over += 1;
                    self.counts.replayed += rest.len() as u64;
                    replay = rest;
                }
            }
        }
        let (by, _) = ledger.assignment();
        self.loads.moved(Some(former), Some(by));
        let present: Vec<CpfId> = ledger.backups().collect();
        let region = self.away.get(&ue).unwrap_or_else(|| self.rings.home());
        let further = self.rings.further_backups(region, ue, by, &present);
        further.into_iter().filter(|c| self.trusted.contains(c)).for_each(|c| ledger.add_backup(c));
        let is_backed = ledger.is_backed();
        serve(ue, ledger, &mut self.waiting, out);
        // The lost CPF received all of these. Those that it answered are harmless; one of the others may have ended it.
        let unanswered = replay.iter().filter(|(clock, _)| *clock > ledger.released()).count();
        self.spare_unlike(ue);
        self.counts.tried += unanswered as u64;
        let inputs = replay.into_iter().map(|(_, input)| input);
        let log = self.log_of(ue, by);
        match unanswered {
            0 => out.cpfs.extend(inputs.map(|input| (by, CpfCommand::RunLogged(input.to_flat(log))))),
            _ => {
                let read = inputs.map(|input| input.read(log));
                let Ok(inputs) = read.collect() else { return true }; // the log came from another CTA's snapshot
                out.cpfs.push((by, CpfCommand::RunAfterTrial { ue, inputs }));
            }
        }
        if !is_backed {
            self.without_backup.insert(ue);
        }
        self.stop_moving(ue, out);
        false
    }

    /// A UE is gone. Returns the requests that delete its sessions at UPFs.
    fn forget(&mut self, ue: UeId, out: &mut Outbox) -> Vec<(UpfId, Vec<u8>)> {
        self.without_backup.remove(&ue);
        self.after_loss.recovery.forget(ue);
        self.moves.ues.remove(&ue);
        self.away.remove(&ue);
        self.unsettled.remove(&ue);
        self.restored.remove(&ue);
        self.kinds.forget(ue);
        if let Some(ledger) = self.ledgers.remove(&ue) {
            self.loads.moved(Some(ledger.assignment().0), None);
            self.pruned(ue);
            let all = ledger.backups().chain([ledger.assignment().0]);
            out.cpfs.extend(all.map(|cpf| (cpf, CpfCommand::Forget { ue, term: u32::MAX })));
        }
        self.deletions.remove(&ue).unwrap_or_default()
    }

    /// Whether a CPF is primary or backup of a UE.
    fn concerns(&self, ue: UeId, cpf: CpfId) -> bool {
        self.ledgers.get(&ue).is_some_and(|l| l.concerns(cpf))
    }

    /// Whether an input of the UE has been sent whose outputs have not left.
    fn is_at_work(&self, ue: UeId) -> bool {
        let held = self.moves.ues.get(&ue).is_some_and(|m| !m.held.is_empty());
        held || self.ledgers.get(&ue).is_some_and(|l| l.released() < l.clock())
    }
}

/// Sends the assignment to the UE's primary, which then sends its checkpoint to the backups.
pub(super) fn serve(ue: UeId, ledger: &Ledger<Packed>, waiting: &mut Waiting, out: &mut Outbox) {
    let (by, _) = ledger.assignment();
    waiting.await_release.insert(by);
    waiting.asked.insert(by);
    assign(ue, ledger, out);
}

/// Sends the assignment to the UE's primary.
fn assign(ue: UeId, ledger: &Ledger<Packed>, out: &mut Outbox) {
    let (by, term) = ledger.assignment();
    out.cpfs.push((by, CpfCommand::Serve { ue, term, backups: ledger.backups().collect() }));
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// Has an input run.
    pub(super) fn submit(&mut self, now: Instant, envelope: Envelope, out: &mut Outbox) {
        match &mut self.service {
            Service::Here(cpf) => {
                let batch = cpf.run(&envelope);
                if !batch.fault {
                    self.inspect.ran(&envelope, &batch);
                }
                self.ran(now, (envelope.ue, envelope.clock), envelope.payload.association(), batch, out);
            }
            Service::Region(cpfs) => {
                let ue = envelope.ue;
                if !cpfs.rings.areas().is_empty() {
                    self.begins_at(ue, envelope.payload.association());
                }
                let Service::Region(cpfs) = &mut self.service else { return };
                if cpfs.submit(envelope, out) {
                    self.state_lost(now, ue, out);
                }
            }
        }
    }

    /// Handles a report of a CPF.
    pub(super) fn up(&mut self, now: Instant, from: CpfId, message: CpfReport, out: &mut Outbox) {
        let Service::Region(cpfs) = &mut self.service else { return };
        if !cpfs.trusted.contains(&from) {
            return; // it was declared lost: what it did since has no effect
        }
        match message {
            CpfReport::Ran { ue, term, clock, from: sender, batch } => {
                *cpfs.taken.entry(from).or_default() += 1;
                cpfs.waiting.ran(from, batch.idle);
                let Some(ledger) = cpfs.ledgers.get_mut(&ue) else { return };
                let verdict = ledger.batch(now, from, term, clock, batch.digest(), batch.idle);
                cpfs.progress(ue, out);
                match verdict {
                    Verdict::Release => {
                        cpfs.counts_answered(now, from, (ue, clock), &batch);
                        out.takeover_times.extend(cpfs.after_loss.recovery.ue_answered(ue, now));
                        if !self.ran(now, (ue, clock), sender, *batch, out)
                            && let Service::Region(cpfs) = &mut self.service
                        {
                            cpfs.report(from, ProtocolViolation::NasCountReuse, out);
                        }
                    }
                    Verdict::Suppress => {}
                    Verdict::Fenced => cpfs.report(from, ProtocolViolation::Fenced, out),
                    Verdict::Diverged => {
                        cpfs.report(from, ProtocolViolation::Diverged, out);
                        self.state_lost(now, ue, out);
                    }
                }
            }
            CpfReport::Stored { term, state } => self.store_state(from, term, &state, out),
            CpfReport::AllStored => out.stored.push(ToStore::All(from)),
            CpfReport::Poisoned { ue, term, inputs: inputs @ (first, last) } => match cpfs.ledgers.get(&ue) {
                Some(l) if l.assignment() == (from, term) && first <= last && last <= l.clock() => {
                    self.poisoned(now, ue, inputs, out);
                }
                _ => cpfs.report(from, ProtocolViolation::Fenced, out),
            },
            CpfReport::CheckpointUnusable { ue, term } => match cpfs.ledgers.get(&ue).map(Ledger::assignment)
            {
                Some(assignment) if assignment == (from, term) => {
                    cpfs.report(from, ProtocolViolation::CheckpointUnusable, out);
                    if cpfs.remove_cpfs(ue, vec![from], out) {
                        self.state_lost(now, ue, out);
                    }
                }
                // It was sent an unusable checkpoint and has not stored it: it counts as lagging.
                Some((by, _)) if by != from && cpfs.concerns(ue, from) => {
                    cpfs.report(from, ProtocolViolation::CheckpointUnusable, out);
                }
                _ => cpfs.report(from, ProtocolViolation::Fenced, out),
            },
            // No checkpoint of this term or clock can exist (rule 1): this CPF or the sender of the checkpoint is faulty. The CPF may have
            // dropped its older checkpoint and would reject later ones, so it forgets all and is removed from the UE, unless it has
            // acknowledged nothing yet: then it is replaced as a late backup, since a new checkpoint would meet the same fault.
            CpfReport::CheckpointHeld { ue, term, clock }
                if (cpfs.ledgers.get(&ue))
                    .is_some_and(|l| term > l.assignment().1 || clock > l.released()) =>
            {
                cpfs.report(from, ProtocolViolation::AckRefused, out);
                out.cpfs.push((from, CpfCommand::Forget { ue, term: u32::MAX }));
                let counts = cpfs.ledgers.get(&ue).is_some_and(|l| l.concerns(from) && !l.is_joining(from));
                if counts && cpfs.remove_cpfs(ue, vec![from], out) {
                    self.state_lost(now, ue, out);
                }
            }
            CpfReport::CheckpointHeld { ue, term, clock } => match cpfs.ledgers.get_mut(&ue) {
                Some(ledger) => {
                    ledger.acknowledged(now, from, term, clock);
                    if !ledger.concerns(from) {
                        // The checkpoint arrived after the order to forget the UE; or, if it is of the current term, it came from a CPF
                        // that should not have sent it.
                        let term = ledger.assignment().1.max(term.saturating_add(1));
                        out.cpfs.push((from, CpfCommand::Forget { ue, term }));
                    }
                    cpfs.progress(ue, out);
                }
                None => out.cpfs.push((from, CpfCommand::Forget { ue, term: u32::MAX })),
            },
        }
    }

    /// A new version of the configuration is in force for the inputs to come.
    pub(super) fn configure_cpfs(&mut self, config: &Arc<Config>, out: &mut Outbox) {
        match &mut self.service {
            Service::Here(cpf) => cpf.configure(config.clone()),
            Service::Region(cpfs) => {
                let configure = cpfs.trusted.iter().map(|&cpf| (cpf, CpfCommand::Configure(config.clone())));
                out.cpfs.extend(configure);
            }
        }
    }

    /// Sets the log limits. With a limit of 0, a lost CPF costs the UEs whose inputs it had not answered: a baseline of experiments.
    pub fn set_log_limits(&mut self, logs: LogLimits) {
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.logs = logs;
        }
    }

    /// The CPFs of the region have changed.
    pub(super) fn rings(&mut self, now: Instant, rings: Rings) {
        if let Service::Region(cpfs) = &mut self.service {
            let before = cpfs.trusted.len();
            cpfs.trusted.extend(rings.members());
            if cpfs.after_loss.rounds.is_empty() {
                cpfs.code.retain(|cpf, _| cpfs.trusted.contains(cpf));
            }
            cpfs.code.extend(rings.members().filter_map(|cpf| Some((cpf, rings.code_of(cpf)?))));
            let canary = cpfs.rings.canary().map(|canary| canary.code);
            cpfs.rings = rings;
            cpfs.drain_unlisted(now);
            if cpfs.trusted.len() > before && !cpfs.ledgers.is_empty() {
                // A CPF has joined: UEs may lack a backup since the last loss, or since they began.
                cpfs.after_loss.rounds.push_back(None);
                cpfs.after_loss.next = now + BETWEEN_SLICES;
            }
            self.canary_changed(canary);
        }
        self.resume_restored(now);
    }

    /// A CPF of the region is lost: its UEs are taken over.
    pub(super) fn cpf_lost(&mut self, now: Instant, dead: CpfId, out: &mut Outbox) {
        let Service::Region(cpfs) = &mut self.service else { return };
        for ue in cpfs.cpf_lost(now, dead, out) {
            self.state_lost(now, ue, out);
        }
    }

    /// One of these inputs of a UE ended the replay sandbox, and would end any CPF that runs it.
    fn poisoned(&mut self, now: Instant, ue: UeId, inputs: (u64, u64), out: &mut Outbox) {
        // If it is a first message, no other UE is asked about it; the sender repeats it. Other messages that came for the UE meanwhile
        // have had no effect, and may be another UE's.
        self.release_first_messages(ue, inputs, out);
        self.unanswered(now, ue, inputs, Disposition::Ended, out);
        self.discard(now, ue, Deregistered::Fault, out);
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.counts.poisoned += 1;
        }
    }

    /// No CPF has a usable checkpoint of the UE.
    fn state_lost(&mut self, now: Instant, ue: UeId, out: &mut Outbox) {
        self.discard(now, ue, Deregistered::StateLost, out);
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.counts.lost += 1;
        }
    }

    /// Discards a UE: its gNBs release it, and it registers again.
    pub(super) fn discard(&mut self, now: Instant, ue: UeId, why: Deregistered, out: &mut Outbox) {
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.counts_discarded(ue);
        }
        for names in self.slots.names(ue) {
            if self.path_switches.is_of(ue, &names) {
                continue; // its path switch is answered with a failure
            }
            let stream = self.stream(ue, names.association);
            let release = amf::release_of(names.amf_ue_ngap_id, names.ran_ue_ngap_id);
            send(names.association, stream, &release, out);
        }
        let event = Event::Deregistered { subject: Subject::default(), why };
        out.events.push(UeEvent { ue, on: None, event });
        self.vacate(now, ue, out);
    }

    /// A UPF has answered a UE: a session that was established has to be deleted if the UE is discarded.
    pub(super) fn session_answered(&mut self, ue: UeId, upf: UpfId, octets: &[u8]) {
        if octets.get(1) == Some(&message_type::SESSION_ESTABLISHMENT_RESPONSE)
            && let Some(deletion) = smf::deletion_of_orphan(octets)
        {
            self.session_stands(ue, upf, deletion);
        }
    }

    /// Notes the request that deletes a UE's session at a UPF.
    pub(super) fn session_stands(&mut self, ue: UeId, upf: UpfId, deletion: Vec<u8>) {
        if let Service::Region(cpfs) = &mut self.service {
            let sessions = cpfs.deletions.entry(ue).or_default();
            if !sessions.contains(&(upf, deletion.clone())) {
                sessions.push((upf, deletion));
            }
        }
    }

    /// A UE's request goes to a UPF: a session that it deletes itself, or gives to another SMF, need not be deleted.
    pub(super) fn session_asked(&mut self, ue: UeId, upf: UpfId, octets: &[u8]) {
        let ends = octets.get(1) == Some(&message_type::SESSION_DELETION_REQUEST);
        if let Service::Region(cpfs) = &mut self.service
            && (ends || smf::changes_cp_f_seid(octets))
            && let Some(sessions) = cpfs.deletions.get_mut(&ue)
        {
            let seid = |octets: &[u8]| octets.get(4..12).map(<[u8]>::to_vec);
            sessions.retain(|(of, deletion)| *of != upf || seid(deletion) != seid(octets));
        }
    }

    /// A UPF has lost its sessions.
    pub(super) fn sessions_gone(&mut self, upf: UpfId) {
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.deletions.values_mut().for_each(|sessions| sessions.retain(|(of, _)| *of != upf));
        }
    }

    /// Frees the slot of a UE. Its inputs that are under way are answered in its place: a session that stands at a UPF by then is deleted,
    /// and other UEs are asked about a first message.
    pub(super) fn vacate(&mut self, now: Instant, ue: UeId, out: &mut Outbox) {
        self.refuse_path_switch(ue, out);
        self.slots.release(ue, now);
        if let Some(unstored) = &mut self.unstored {
            unstored.remove(&ue);
        }
        out.stored.push(ToStore::Gone(ue));
        self.arrivals.remove(ue);
        if let Service::Region(cpfs) = &mut self.service {
            for (upf, deletion) in cpfs.forget(ue, out) {
                // The UE is gone, so an unknown UPF matters no more.
                let _ = self.ask_upf(now, upf, ue, OutputId { clock: 0, index: 0 }, deletion, &mut out.pfcp);
            }
            self.unanswered(now, ue, (0, u64::MAX), Disposition::OtherUe, out);
        }
    }

    /// Answers in place of a UE that was asked about first messages and will not answer.
    fn unanswered(
        &mut self,
        now: Instant,
        ue: UeId,
        (first, last): (u64, u64),
        answer: Disposition,
        out: &mut Outbox,
    ) {
        let clocks: Vec<u64> = self.asked.between(ue, first, last).map(|(clock, _)| clock).collect();
        for clock in clocks {
            if let Some(asked) = self.asked.remove(ue, clock) {
                self.answered(now, ue, asked, answer, out);
            }
        }
    }

    /// Runs what is due in the region: takeovers, late backups, moves that take too long.
    pub(super) fn tick_cpfs(&mut self, now: Instant, out: &mut Outbox) {
        let Service::Region(cpfs) = &mut self.service else { return };
        for ue in cpfs.fail_over_more(now, out) {
            self.state_lost(now, ue, out);
        }
        let Service::Region(cpfs) = &mut self.service else { return };
        cpfs.drain(now, out);
        cpfs.give_up_moves(now, out);
        cpfs.scan_more(now, out);
    }

    /// When [`Self::tick_cpfs`] has something to do.
    pub(super) fn next_scan(&self) -> Instant {
        match &self.service {
            Service::Here(_) => Instant::FAR_FUTURE,
            Service::Region(cpfs) => {
                let without_backup = cpfs.rings.has_more() && !cpfs.without_backup.is_empty();
                let scan = (!cpfs.logged.ues.is_empty() || without_backup).then_some(cpfs.late_backups.next);
                let look = (!cpfs.after_loss.rounds.is_empty()).then_some(cpfs.after_loss.next);
                let due = scan.into_iter().chain(look).chain(cpfs.draining.due()).chain(cpfs.moves_due());
                due.min().unwrap_or(Instant::FAR_FUTURE)
            }
        }
    }

    /// Sends waiting CPFs how many of their batches were released, once per input.
    pub(super) fn report_released(&mut self, now: Instant, out: &mut Outbox) {
        if let Service::Region(cpfs) = &mut self.service {
            for limit in std::mem::take(&mut cpfs.logged.limits_reached) {
                self.limited(now, None, limit, out);
            }
        }
        let Service::Region(cpfs) = &mut self.service else { return };
        for member in std::mem::take(&mut cpfs.waiting.await_release) {
            let released = cpfs.taken.get(&member).copied().unwrap_or(0);
            out.cpfs.push((member, CpfCommand::Released(released)));
        }
        if !cpfs.after_loss.rounds.is_empty() {
            out.cpfs.retain(|(to, _)| cpfs.trusted.contains(to));
        }
    }

    /// Whether a CPF could serve a new UE.
    pub(super) fn can_place(&self, ue: UeId) -> bool {
        match &self.service {
            Service::Here(_) => true,
            Service::Region(cpfs) => {
                let (home, kind) = (cpfs.rings.home(), cpfs.kind(ue));
                cpfs.rings.place(home, ue, kind, &cpfs.loads).is_some()
            }
        }
    }

    /// Whether an input of the UE has no answer yet.
    pub(super) fn is_at_work(&self, ue: UeId) -> bool {
        matches!(&self.service, Service::Region(cpfs) if cpfs.is_at_work(ue))
    }

    /// Whether a CPF of the region is not lost.
    pub(crate) fn trusts(&self, cpf: CpfId) -> bool {
        matches!(&self.service, Service::Region(cpfs) if cpfs.trusted.contains(&cpf))
    }

    /// The CPFs of the region that are not lost.
    pub(crate) fn trusted(&self) -> impl Iterator<Item = CpfId> {
        let trusted = match &self.service {
            Service::Here(_) => None,
            Service::Region(cpfs) => Some(&cpfs.trusted),
        };
        trusted.into_iter().flatten().copied()
    }

    /// The primary of a UE.
    pub fn served_by(&self, ue: UeId) -> Option<CpfId> {
        match &self.service {
            Service::Here(_) => None,
            Service::Region(cpfs) => cpfs.ledgers.get(&ue).map(|l| l.assignment().0),
        }
    }

    /// The backups of a UE.
    pub fn backed_by(&self, ue: UeId) -> Vec<CpfId> {
        match &self.service {
            Service::Here(_) => Vec::new(),
            Service::Region(cpfs) => cpfs.ledgers.get(&ue).into_iter().flat_map(Ledger::backups).collect(),
        }
    }

    /// Of how many UEs each CPF is primary and backup; `None` if more than `ues_max` would have to be counted.
    pub fn ues_of_cpfs(&self, ues_max: usize) -> Option<BTreeMap<CpfId, (u64, u64)>> {
        let mut counts: BTreeMap<CpfId, (u64, u64)> = BTreeMap::new();
        let Service::Region(cpfs) = &self.service else { return Some(counts) };
        if cpfs.ledgers.len() > ues_max {
            return None;
        }
        for ledger in cpfs.ledgers.values() {
            counts.entry(ledger.assignment().0).or_default().0 += 1;
            ledger.backups().for_each(|backup| counts.entry(backup).or_default().1 += 1);
        }
        Some(counts)
    }

    /// UEs that would be lost with their primary, as far as known. Not zero while a lost CPF is being replaced.
    pub fn without_backup(&self) -> usize {
        match &self.service {
            Service::Here(_) => 0,
            Service::Region(c) => {
                c.without_backup.len() + c.after_loss.first.len() + c.after_loss.rounds.len()
            }
        }
    }

    /// Octets in all logs, and the number of UEs with a log. Zero with a single CPF.
    pub fn logged(&self) -> (usize, usize) {
        match &self.service {
            Service::Here(_) => (0, 0),
            Service::Region(cpfs) => (cpfs.logged.octets, cpfs.logged.ues.len()),
        }
    }

    /// Whether UEs remain to be examined after a CPF was lost or has joined.
    pub fn is_failing_over(&self) -> bool {
        matches!(&self.service, Service::Region(cpfs) if !cpfs.after_loss.rounds.is_empty())
    }

    /// Counters of replication.
    pub fn replication_counters(&self) -> ReplicationCounters {
        match &self.service {
            Service::Here(_) => ReplicationCounters::default(),
            Service::Region(cpfs) => cpfs.counts,
        }
    }
}
