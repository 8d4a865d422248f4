//! The CPFs of the CTA's UEs: one within the program, called as a function; or those of a region, where each UE has a primary and backups,
//! and its log is kept here (Neutrino §4.2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::{Envelope, LogOf, PackedInput, RESTORED_CLOCK, UeId, UpfId};
use whimbrel_ids::Instant;

use super::drain::DrainingCpfs;
use super::moves::UeMove;
use super::recovery::Recovery;
use super::scan::{BETWEEN_ROUNDS, Round};
use super::versions::Kinds;
use super::{Outbox, TERM};
use crate::CodeVersion;
use crate::link::CpfCommand;
use crate::region::{CpfLoads, Region, Rings};
use crate::replication::{BESIDE_INPUT, CpfId, LaggingBackup, UeLog, UeLogLimits};

mod counters;
mod failover;
mod service;

pub use counters::{ProtocolViolation, ReplicationCounters};
use failover::AfterLoss;
pub(super) use failover::BETWEEN_SLICES;
pub(super) use service::Service;

/// How long to wait for a backup before another CPF is asked, where a log is half full or a UE has no usable backup. Longer than two CPFs
/// take to reconnect after their link has ended.
pub(super) const LATE_BACKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// The CPFs of a region, and the UEs' logs.
#[derive(Serialize, Deserialize)]
pub(super) struct Cpfs {
    pub(super) rings: Rings,
    pub(super) draining: DrainingCpfs,
    pub(super) logs: LogLimits,
    pub(super) trusted: BTreeSet<CpfId>,
    /// The code version of each of them, and of lost CPFs whose UEs have not all been taken over yet.
    pub(super) code: BTreeMap<CpfId, CodeVersion>,
    pub(super) ledgers: BTreeMap<UeId, UeLog<PackedInput>>,
    pub(super) logged: LoggedUes,
    /// The UEs that would be lost with their primary: they began without a backup, their new backup has not confirmed the checkpoint at
    /// which the log begins, or a full log was discarded.
    pub(super) without_backup: BTreeSet<UeId>,
    /// Batches received from each CPF.
    pub(super) taken: BTreeMap<CpfId, u64>,
    pub(super) waiting: CpfsAwaitingRelease,
    pub(super) late_backups: LateBackups,
    after_loss: AfterLoss,
    pub(super) moves: Moves,
    /// UEs in a region other than the CTA's own.
    pub(super) away: BTreeMap<UeId, Region>,
    /// UEs with backups that are dismissed as soon as others have the checkpoint: late ones, and those of a region that the UE has left.
    pub(super) pending_reassignments: BTreeSet<UeId>,
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
pub(super) struct LoggedUes {
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

/// UEs that are moving to another CPF.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Moves {
    pub(super) ues: BTreeMap<UeId, UeMove>,
    /// When moves began, oldest first; completed moves are still listed.
    pub(super) begun: VecDeque<(Instant, UeId)>,
}

/// CPFs that hold checkpoints back until they learn how many of their batches were released. Only these get a report.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct CpfsAwaitingRelease {
    pub(super) await_release: BTreeSet<CpfId>,
    /// CPFs that were asked for a checkpoint, which may wait for the release of earlier batches.
    asked: BTreeSet<CpfId>,
}

impl CpfsAwaitingRelease {
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

impl Cpfs {
    pub(super) fn new(rings: Rings, now: Instant) -> Self {
        Self {
            trusted: rings.members().collect(),
            code: rings.members().filter_map(|cpf| Some((cpf, rings.code_of(cpf)?))).collect(),
            rings,
            draining: DrainingCpfs::default(),
            logs: LogLimits::default(),
            ledgers: BTreeMap::new(),
            logged: LoggedUes::default(),
            without_backup: BTreeSet::new(),
            taken: BTreeMap::new(),
            waiting: CpfsAwaitingRelease::default(),
            late_backups: LateBackups { next: now + BETWEEN_ROUNDS, round: None },
            after_loss: AfterLoss {
                rounds: VecDeque::new(),
                next: now,
                first: VecDeque::new(),
                recovery: Recovery::default(),
            },
            moves: Moves::default(),
            away: BTreeMap::new(),
            pending_reassignments: BTreeSet::new(),
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
        if let Some(envelope) = self.hold_if_moving(envelope, out) {
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
            let mut ledger = UeLog::new(placement.primary, placement.backups, self.logs.ue);
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
            let kept = PackedInput::of(&input, log).expect("it was written as an input of the UE");
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
        } else if self.ledgers.get(&ue).is_some_and(UeLog::is_half_full) {
            self.scan(now, ue, LATE_BACKUP_TIMEOUT.min(self.logs.outdated_after), out);
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
        if self.pending_reassignments.contains(&ue) {
            self.reassign_backups(ue, out);
        }
        relieved
    }

    /// Adds backups in the places of late ones, which are dismissed when the new ones have the checkpoint ([`Self::reassign_backups`]); until then
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
        if !further.is_empty() || self.pending_reassignments.contains(&ue) {
            ledger.put_last(late);
        }
        if further.is_empty() {
            return false;
        }
        self.pending_reassignments.insert(ue);
        serve(ue, ledger, &mut self.waiting, out);
        true
    }

    /// Sends lagging backups that their checkpoints are outdated. They ask the replicas that have a newer one; the primary also sends it
    /// again when it may leave, and the others serve if that does not arrive.
    pub(super) fn outdated(&mut self, ue: UeId, lagging: Vec<LaggingBackup>, out: &mut Outbox) {
        if lagging.is_empty() {
            return;
        }
        for LaggingBackup { replica, clock, up_to_date } in lagging {
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
        let octets = ledger.map(UeLog::octets);
        let before = match octets {
            Some(octets) => self.logged.ues.insert(ue, octets),
            None => self.logged.ues.remove(&ue),
        };
        self.logged.octets = self.logged.octets + octets.unwrap_or(0) - before.unwrap_or(0);
    }

    /// A UE is gone. Returns the requests that delete its sessions at UPFs.
    fn forget(&mut self, ue: UeId, out: &mut Outbox) -> Vec<(UpfId, Vec<u8>)> {
        self.without_backup.remove(&ue);
        self.after_loss.recovery.forget(ue);
        self.moves.ues.remove(&ue);
        self.away.remove(&ue);
        self.pending_reassignments.remove(&ue);
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
pub(super) fn serve(
    ue: UeId,
    ledger: &UeLog<PackedInput>,
    waiting: &mut CpfsAwaitingRelease,
    out: &mut Outbox,
) {
    let (by, _) = ledger.assignment();
    waiting.await_release.insert(by);
    waiting.asked.insert(by);
    assign(ue, ledger, out);
}

/// Sends the assignment to the UE's primary.
fn assign(ue: UeId, ledger: &UeLog<PackedInput>, out: &mut Outbox) {
    let (by, term) = ledger.assignment();
    out.cpfs.push((by, CpfCommand::Serve { ue, term, backups: ledger.backups().collect() }));
}
