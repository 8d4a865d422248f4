//! The CPFs of the CTA's UEs: one within the program, called as a function; or those of a region, each
//! UE with one that serves it and others that hold its state, and with its log here (DESIGN §4; Neutrino §4.2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::config::Config;
use whimbrel_control::event::Deregistered;
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{
    Disposition, Envelope, Event, LogOf, OutputId, Packed, Subject, UeEvent, UeId, UpfId, amf, smf,
};
use whimbrel_ids::Instant;
use whimbrel_pfcp::message_type;

use super::drain::Draining;
use super::moves::Moving;
use super::recovery::Recovery;
use super::scan::{BETWEEN_ROUNDS, Round};
use super::{Cta, Entropy, Inspect, Outbox, TERM, send};
use crate::link::{CpfCommand, CpfReport};
use crate::region::{Region, Rings};
use crate::replication::{BESIDE_INPUT, CpfId, Lagging, Ledger, TakeoverOutcome, UeLogLimits, Verdict};
use crate::{CodeVersion, Cpf};

/// How long a log that is half full, and a UE that nobody else could go on with, waits for a backup before another one is asked: longer than two
/// CPFs take to reach each other again after a link of theirs has ended.
pub(super) const HASTE: Duration = Duration::from_secs(2);
/// When a CPF is lost or leaves, what nobody waits for is done in slices, with this between them: short ones, since whoever is
/// heard of meanwhile waits for the slice to end.
pub(super) const BETWEEN_SLICES: Duration = Duration::from_micros(125);
/// UEs of a slice that are looked at, at most: some ten microseconds.
const SLICE: usize = 256;
/// What a slice has each of the others do, at most, in messages: inputs to run again, UEs to take over (which are two), backups to find. Each
/// takes up to ten microseconds there, so that they have half of their time and more for UEs that are at something.
const SLICE_WORK: u64 = 8;
/// What it takes the CTA itself to give a UE up that nobody can go on with, as so many of these messages.
const GIVEN_UP_WORK: u64 = 10;

/// Who runs the UEs' machines.
pub(super) enum Service {
    /// A part of this program.
    Here(Box<Cpf>),
    /// The members of a region.
    Region(Box<Cpfs>),
}

/// The members of a region, and the UEs' logs.
#[derive(Serialize, Deserialize)]
pub(super) struct Cpfs {
    pub(super) rings: Rings,
    pub(super) draining: Draining,
    pub(super) logs: LogLimits,
    pub(super) trusted: BTreeSet<CpfId>,
    /// What code each of these runs, and of those that UEs are yet to be taken over from.
    pub(super) code: BTreeMap<CpfId, CodeVersion>,
    pub(super) ledgers: BTreeMap<UeId, Ledger<Packed>>,
    /// The UEs of which inputs are kept or under way, and the octets that are kept of each.
    pub(super) logged: BTreeMap<UeId, usize>,
    /// The octets of all of them.
    kept: usize,
    /// The bounds that logs have met since it was told last.
    #[serde(skip)]
    full: Vec<&'static str>,
    /// The UEs that would be lost with who serves them: there was no backup when they began, or what the log leads on from has not come to who
    /// took a lost backup's place, or was given up since the log was full.
    pub(super) without_backup: BTreeSet<UeId>,
    /// Batches that were taken from each link.
    pub(super) taken: BTreeMap<CpfId, u64>,
    pub(super) waiting: Waiting,
    /// When UEs are looked at that somebody may be late with, and how far that has come.
    pub(super) scan: Instant,
    #[serde(skip)]
    pub(super) round: Option<Round>,
    /// After losses, and when somebody has come: from which UE on nobody has looked yet whether it is concerned, and when somebody does next.
    unseen: VecDeque<Option<UeId>>,
    look: Instant,
    /// Those of which it is known, and who wait for something that is yet to come.
    behind: VecDeque<UeId>,
    /// How long that takes: for the operator of who serves.
    #[serde(skip)]
    recovery: Recovery,
    /// UEs that are to be served by another.
    pub(super) moving: BTreeMap<UeId, Moving>,
    /// When these began to, oldest first, those too that have come about.
    pub(super) moves_begun: VecDeque<(Instant, UeId)>,
    /// UEs that are in other regions than the CTA's own.
    pub(super) away: BTreeMap<UeId, Region>,
    /// UEs that have backups which are to go as soon as others have the state: where they came from, or that did not get it.
    pub(super) unsettled: BTreeSet<UeId>,
    /// The requests that would end the UEs' sessions, by UPF: for those that nobody can go on with.
    deletions: BTreeMap<UeId, Vec<(UpfId, Vec<u8>)>>,
    pub(super) counts: ReplicationCounters,
    /// What each has been complained of: that is told once.
    complained: BTreeSet<(CpfId, ProtocolViolation)>,
}

/// CpfTable that have states to send as soon as they hear how many of their batches were released: it is told to nobody else.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Waiting {
    pub(super) untold: BTreeSet<CpfId>,
    /// They were told to send a state, which may wait for batches that were under way then.
    asked: BTreeSet<CpfId>,
}

impl Waiting {
    /// A batch has come: a state of its UE waits for it if that is idle.
    fn ran(&mut self, cpf: CpfId, idle: bool) {
        if idle {
            self.asked.remove(&cpf);
        }
        if idle || self.asked.contains(&cpf) {
            self.untold.insert(cpf);
        }
    }

    fn lost(&mut self, cpf: CpfId) {
        self.untold.remove(&cpf);
        self.asked.remove(&cpf);
    }
}

/// What is kept of UEs' logs, and for how long.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LogLimits {
    /// How much of one UE's. Of UEs that begin from now on.
    pub ue: UeLogLimits,
    /// Octets of all UEs' together.
    pub octets: usize,
    /// How long a log waits for a replica that does not say that it holds the UE's state, if another one does.
    pub outdated_after: Duration,
}

/// The time is Neutrino's (§4.2.4): a procedure takes seconds at most. The octets are those of a quarter of a million UEs that attach at once.
impl Default for LogLimits {
    fn default() -> Self {
        Self { ue: UeLogLimits::default(), octets: 512 << 20, outdated_after: Duration::from_secs(30) }
    }
}

/// What became of UEs whose CPFs were lost, and of their logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicationCounters {
    /// CPFs that were lost.
    pub cpfs_lost: u64,
    /// UEs that another one took over.
    pub taken_over: u64,
    /// Inputs that were run again for that.
    pub replayed: u64,
    /// Of these, inputs that the lost one may have died of: they were tried before.
    pub tried: u64,
    /// UEs of which an input ended who tried it: they register anew.
    pub poisoned: u64,
    /// UEs whose state nobody held: they register anew.
    pub lost: u64,
    /// States from which a UE could not be served, since they were not what their senders said.
    pub unreadable: u64,
    /// UEs that moved to another CPF in order.
    pub moved: u64,
    /// Of these, those that moved at once, since their state was there already.
    pub moved_fast: u64,
    /// UEs that were to move and stayed, since their state did not come there in time.
    pub moves_given_up: u64,
    /// Replicas that lagged until the log could not wait for them.
    pub lagging: u64,
    /// Batches of who does not serve the UE any more.
    pub fenced: u64,
    /// States that CPFs said to hold, and that nobody can: no answer has left for their clocks yet, or their terms have not begun.
    pub checkpoint_acks_refused: u64,
    /// Replays that gave other outputs than had left.
    pub diverged: u64,
    /// Batches that used a downlink NAS COUNT again: nothing of them left.
    pub nas_count_reuse: u64,
}

/// What a CPF does that it should not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProtocolViolation {
    /// It speaks for a UE that it does not serve; it may have served it a moment ago.
    Fenced,
    /// It says to hold a state that nobody can hold yet.
    AckRefused,
    /// It cannot serve a UE from what it holds, or was sent, of it.
    CheckpointUnusable,
    /// What it says of an input is not what was said of it before.
    Diverged,
    /// It uses a downlink NAS COUNT again that its UE has had under the same keys.
    NasCountReuse,
    /// It does not say that it holds states, and a log waits for it no longer.
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
            logged: BTreeMap::new(),
            kept: 0,
            full: Vec::new(),
            without_backup: BTreeSet::new(),
            taken: BTreeMap::new(),
            waiting: Waiting::default(),
            scan: now + BETWEEN_ROUNDS,
            round: None,
            unseen: VecDeque::new(),
            look: now,
            behind: VecDeque::new(),
            recovery: Recovery::default(),
            moving: BTreeMap::new(),
            moves_begun: VecDeque::new(),
            away: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            deletions: BTreeMap::new(),
            counts: ReplicationCounters::default(),
            complained: BTreeSet::new(),
        }
    }

    /// Whether two CPFs run the same code.
    pub(super) fn alike(&self, one: CpfId, other: CpfId) -> bool {
        self.code.get(&one) == self.code.get(&other)
    }

    /// What all inputs of a UE have in common while this CPF serves it.
    fn log_of(&self, ue: UeId, by: CpfId) -> LogOf {
        let code_version = self.code.get(&by).map_or(0, |code| code.0);
        LogOf { code_version, ue, cta_term: TERM }
    }

    fn complain(&mut self, of: CpfId, complaint: ProtocolViolation, out: &mut Outbox) {
        let counts = &mut self.counts;
        *match complaint {
            ProtocolViolation::Fenced => &mut counts.fenced,
            ProtocolViolation::AckRefused => &mut counts.checkpoint_acks_refused,
            ProtocolViolation::CheckpointUnusable => &mut counts.unreadable,
            ProtocolViolation::Diverged => &mut counts.diverged,
            ProtocolViolation::NasCountReuse => &mut counts.nas_count_reuse,
            ProtocolViolation::Lagging => &mut counts.lagging,
        } += 1;
        if self.complained.insert((of, complaint)) {
            out.cpf_violations.push((of, complaint));
        }
    }

    /// Keeps an input and hands it to who serves its UE. Whether nobody can: its state was lost.
    fn submit(&mut self, envelope: Envelope, out: &mut Outbox) -> bool {
        let ue = envelope.ue;
        if !self.unseen.is_empty() {
            let before = self.counts.taken_over;
            if self.fail_over(ue, out) {
                return true;
            }
            if self.counts.taken_over > before {
                self.recovery.waits(ue, envelope.time);
            }
        }
        if let Some(envelope) = self.waits(envelope, out) {
            self.hand_over(envelope, out);
        }
        false
    }

    pub(super) fn hand_over(&mut self, mut envelope: Envelope, out: &mut Outbox) {
        let ue = envelope.ue;
        if !self.ledgers.contains_key(&ue) {
            let Some(placement) = self.rings.place(self.region(ue), ue) else { return };
            let ledger = Ledger::new(placement.primary, placement.backups, self.logs.ue);
            assign(ue, &ledger, out);
            if placement.missing > 0 && !ledger.is_backed() {
                self.without_backup.insert(ue);
            }
            self.ledgers.insert(ue, ledger);
        }
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return };
        let ((by, term), marked) = (ledger.assignment(), ledger.mark());
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
        let mut full = full.map(|lagging| ("log", lagging));
        self.pruned(ue);
        if self.kept > self.logs.octets
            && let Some(ledger) = self.ledgers.get_mut(&ue)
        {
            full = Some(("logs", ledger.give_up_log()));
            self.pruned(ue);
        }
        if let Some((limit, lagging)) = full {
            self.full.push(limit);
            self.outdated(ue, lagging, out);
        } else if self.ledgers.get(&ue).is_some_and(Ledger::is_half_full) {
            self.scan(now, ue, HASTE.min(self.logs.outdated_after), out);
        }
    }

    /// Backups that have lacked a UE's state for so long are waited for no longer where others have it, and others take their places: who serves the
    /// UE may not reach them, and while the log waits it fills. Whether there is anybody.
    pub(super) fn scan(&mut self, now: Instant, ue: UeId, patience: Duration, out: &mut Outbox) -> bool {
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return false };
        // Where nobody could take a place, who is late is nobody's matter.
        let late = if self.rings.has_more() { ledger.late(now, patience) } else { Vec::new() };
        let lagging = ledger.scan(now, patience);
        let mut told: Vec<CpfId> = lagging.iter().map(|l| l.replica).collect();
        self.outdated(ue, lagging, out);
        self.pruned(ue);
        let relieved = !late.is_empty() && self.relieve(ue, &late, out);
        if relieved {
            told.extend(late);
            told.sort();
            told.dedup();
        }
        told.into_iter().for_each(|cpf| self.complain(cpf, ProtocolViolation::Lagging, out));
        if self.unsettled.contains(&ue) {
            self.settle(ue, out);
        }
        relieved
    }

    /// Others back a UE in the places of those that are late, which go when these have its state ([`Self::settle`]): until then it is they from
    /// whose state the log leads on. Only who runs the same code can go on with the log. Whether there is anybody.
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

    /// Replicas that the log cannot lead on are told so. They ask for the state of the other replicas that have it, and who serves the UE
    /// sends it anew: it knows itself when that may leave, and the others are there in case it does not get through.
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
            Some(octets) => self.logged.insert(ue, octets),
            None => self.logged.remove(&ue),
        };
        self.kept = self.kept + octets.unwrap_or(0) - before.unwrap_or(0);
    }

    /// A CPF is lost: the UEs that wait for its answer go on elsewhere now, the others bit by bit, or when they are heard of;
    /// first those that are at something. Gives the UEs whose state nobody has.
    pub(super) fn given_up(&mut self, now: Instant, dead: CpfId, out: &mut Outbox) -> Vec<UeId> {
        if !self.trusted.remove(&dead) {
            return Vec::new();
        }
        self.counts.cpfs_lost += 1;
        self.complained.retain(|(cpf, _)| *cpf != dead);
        self.taken.remove(&dead);
        self.waiting.lost(dead);
        self.draining.lost(dead);
        self.unseen.push_back(None);
        self.recovery.begins(now, self.unseen.len());
        self.look = now + BETWEEN_SLICES;
        let ledgers = self.logged.keys().filter_map(|ue| Some((*ue, self.ledgers.get(ue)?)));
        let served = ledgers.filter(|(_, l)| l.assignment().0 == dead);
        let (unanswered, behind): (Vec<_>, Vec<_>) = served.partition(|(_, l)| l.released() < l.clock());
        self.behind.extend(behind.into_iter().map(|(ue, _)| ue));
        let unanswered: Vec<UeId> = unanswered.into_iter().map(|(ue, _)| ue).collect();
        unanswered.iter().for_each(|&ue| self.recovery.waits(ue, now));
        unanswered.into_iter().filter(|&ue| self.fail_over(ue, out)).collect()
    }

    /// Has the next UEs that may have been served or backed by somebody lost go on. Gives those whose state nobody has.
    fn fail_over_more(&mut self, now: Instant, out: &mut Outbox) -> Vec<UeId> {
        if now < self.look {
            return Vec::new();
        }
        self.look = now + BETWEEN_SLICES;
        let done = |counts: &ReplicationCounters, out: &Outbox| {
            counts.replayed + counts.taken_over + out.cpfs.len() as u64
        };
        let enough = done(&self.counts, out) + SLICE_WORK * self.trusted.len().max(1) as u64;
        let mut lost = Vec::new();
        for _ in 0..SLICE {
            if done(&self.counts, out) + GIVEN_UP_WORK * lost.len() as u64 >= enough {
                break;
            }
            let Some(ue) = self.next_unseen() else { break };
            // Who is at something comes first, and again among all.
            if !lost.contains(&ue) && self.fail_over(ue, out) {
                lost.push(ue);
            }
        }
        out.takeover_times.extend(self.recovery.over(now));
        lost
    }

    /// The next UE that may be concerned by a loss.
    fn next_unseen(&mut self) -> Option<UeId> {
        if let Some(ue) = self.behind.pop_front() {
            return Some(ue);
        }
        loop {
            let after = self.unseen.front_mut()?;
            let next = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            if let Some((ue, _)) = self.ledgers.range(next).next() {
                *after = Some(*ue);
                return Some(*ue);
            }
            self.unseen.pop_front();
            self.recovery.looked();
        }
    }

    /// Who serves or backs the UE and was lost is replaced. Whether nobody has its state.
    fn fail_over(&mut self, ue: UeId, out: &mut Outbox) -> bool {
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return false };
        let (primary, _) = ledger.assignment();
        let mut gone: Vec<CpfId> = ledger.backups().filter(|c| !self.trusted.contains(c)).collect();
        if !self.trusted.contains(&primary) {
            gone.push(primary); // last: nobody lost takes its place
        }
        if gone.is_empty() {
            self.back(ue, out);
            return false;
        }
        self.go_on_without(ue, gone, out)
    }

    /// A UE that has fewer backups than it should gets those that have come since.
    fn back(&mut self, ue: UeId, out: &mut Outbox) {
        let region = self.away.get(&ue).unwrap_or_else(|| self.rings.home());
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return };
        let present: Vec<CpfId> = ledger.backups().collect();
        let mut further = self.rings.further_backups(region, ue, ledger.assignment().0, &present);
        further.retain(|cpf| self.trusted.contains(cpf) && !present.contains(cpf));
        if !further.is_empty() {
            further.into_iter().for_each(|cpf| ledger.add_backup(cpf));
            serve(ue, ledger, &mut self.waiting, out);
        }
    }

    /// A UE goes on without these, of which its CPF is the last if it is among them. Whether nobody has its state.
    fn go_on_without(&mut self, ue: UeId, gone: Vec<CpfId>, out: &mut Outbox) -> bool {
        let Some(ledger) = self.ledgers.get_mut(&ue).filter(|_| !gone.is_empty()) else { return false };
        let mut replay = Vec::new();
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
        let present: Vec<CpfId> = ledger.backups().collect();
        let region = self.away.get(&ue).unwrap_or_else(|| self.rings.home());
        let further = self.rings.further_backups(region, ue, by, &present);
        further.into_iter().filter(|c| self.trusted.contains(c)).for_each(|c| ledger.add_backup(c));
        let is_backed = ledger.is_backed();
        serve(ue, ledger, &mut self.waiting, out);
        // The lost one has had each of these. What it answered did it no harm; of the others it may have died.
        let unanswered = replay.iter().filter(|(clock, _)| *clock > ledger.released()).count();
        self.counts.tried += unanswered as u64;
        let inputs = replay.into_iter().map(|(_, input)| input);
        let log = self.log_of(ue, by);
        match unanswered {
            0 => out.cpfs.extend(inputs.map(|input| (by, CpfCommand::RunLogged(input.to_flat(log))))),
            _ => {
                let read = inputs.map(|input| input.read(log));
                let Ok(inputs) = read.collect() else { return true }; // a log that came from who replicated this
                out.cpfs.push((by, CpfCommand::RunAfterTrial { ue, inputs }));
            }
        }
        if !is_backed {
            self.without_backup.insert(ue);
        }
        self.stop_moving(ue, out);
        false
    }

    /// A UE is gone. Gives the requests that end what it has left at UPFs.
    fn forget(&mut self, ue: UeId, out: &mut Outbox) -> Vec<(UpfId, Vec<u8>)> {
        self.without_backup.remove(&ue);
        self.recovery.forget(ue);
        self.moving.remove(&ue);
        self.away.remove(&ue);
        self.unsettled.remove(&ue);
        if let Some(ledger) = self.ledgers.remove(&ue) {
            self.pruned(ue);
            let all = ledger.backups().chain([ledger.assignment().0]);
            out.cpfs.extend(all.map(|cpf| (cpf, CpfCommand::Forget { ue, term: u32::MAX })));
        }
        self.deletions.remove(&ue).unwrap_or_default()
    }

    /// Whether a CPF serves a UE, or backs it.
    fn concerns(&self, ue: UeId, cpf: CpfId) -> bool {
        self.ledgers.get(&ue).is_some_and(|l| l.concerns(cpf))
    }

    /// Whether inputs of the UE have been handed over whose outputs have not left.
    fn is_at_work(&self, ue: UeId) -> bool {
        let held = self.moving.get(&ue).is_some_and(|m| !m.held.is_empty());
        held || self.ledgers.get(&ue).is_some_and(|l| l.released() < l.clock())
    }
}

/// Who serves a UE is told so, and sends its state to the UE's backups.
pub(super) fn serve(ue: UeId, ledger: &Ledger<Packed>, waiting: &mut Waiting, out: &mut Outbox) {
    let (by, _) = ledger.assignment();
    waiting.untold.insert(by);
    waiting.asked.insert(by);
    assign(ue, ledger, out);
}

/// Who serves a UE is told so.
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
                    self.lose(now, ue, out);
                }
            }
        }
    }

    /// A CPF of the region says something.
    pub(super) fn up(&mut self, now: Instant, from: CpfId, message: CpfReport, out: &mut Outbox) {
        let Service::Region(cpfs) = &mut self.service else { return };
        if !cpfs.trusted.contains(&from) {
            return; // it was given up: whatever it has done since is nobody's
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
                        out.takeover_times.extend(cpfs.recovery.went_on(ue, now));
                        if !self.ran(now, (ue, clock), sender, *batch, out)
                            && let Service::Region(cpfs) = &mut self.service
                        {
                            cpfs.complain(from, ProtocolViolation::NasCountReuse, out);
                        }
                    }
                    Verdict::Suppress => {}
                    Verdict::Fenced => cpfs.complain(from, ProtocolViolation::Fenced, out),
                    Verdict::Diverged => {
                        cpfs.complain(from, ProtocolViolation::Diverged, out);
                        self.lose(now, ue, out);
                    }
                }
            }
            CpfReport::Poisoned { ue, term, inputs: inputs @ (first, last) } => match cpfs.ledgers.get(&ue) {
                Some(l) if l.assignment() == (from, term) && first <= last && last <= l.clock() => {
                    self.poisoned(now, ue, inputs, out);
                }
                _ => cpfs.complain(from, ProtocolViolation::Fenced, out),
            },
            CpfReport::CheckpointUnusable { ue, term } => match cpfs.ledgers.get(&ue).map(Ledger::assignment)
            {
                Some(assignment) if assignment == (from, term) => {
                    cpfs.complain(from, ProtocolViolation::CheckpointUnusable, out);
                    if cpfs.go_on_without(ue, vec![from], out) {
                        self.lose(now, ue, out);
                    }
                }
                // It was sent such a state, which it does not hold: it counts as one that lags.
                Some((by, _)) if by != from && cpfs.concerns(ue, from) => {
                    cpfs.complain(from, ProtocolViolation::CheckpointUnusable, out);
                }
                _ => cpfs.complain(from, ProtocolViolation::Fenced, out),
            },
            // Whoever sent it that state lies about the term, or about the clock, for nobody can hold what was not released (rule 1); or it does. It may
            // have let go of what it had of the UE, and would take nothing under the term that is, or of the clocks that come: it is to forget
            // all, and the UE goes on without it. One that has confirmed nothing yet is no loss, and another takes its place when it is late: what is
            // sent to it now would be lied about again.
            CpfReport::CheckpointHeld { ue, term, clock }
                if (cpfs.ledgers.get(&ue))
                    .is_some_and(|l| term > l.assignment().1 || clock > l.released()) =>
            {
                cpfs.complain(from, ProtocolViolation::AckRefused, out);
                out.cpfs.push((from, CpfCommand::Forget { ue, term: u32::MAX }));
                let counts = cpfs.ledgers.get(&ue).is_some_and(|l| l.concerns(from) && !l.is_joining(from));
                if counts && cpfs.go_on_without(ue, vec![from], out) {
                    self.lose(now, ue, out);
                }
            }
            CpfReport::CheckpointHeld { ue, term, clock } => match cpfs.ledgers.get_mut(&ue) {
                Some(ledger) => {
                    ledger.acknowledged(now, from, term, clock);
                    if !ledger.concerns(from) {
                        // The state came there after the word to forget the UE; or, if it is of the term that is, from who had no business to send it.
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
                let told = cpfs.trusted.iter().map(|&cpf| (cpf, CpfCommand::Configure(config.clone())));
                out.cpfs.extend(told);
            }
        }
    }

    /// What is kept of UEs' logs. A region that keeps none is a baseline of experiments: what is lost with a CPF then is what
    /// was under way there.
    pub fn set_log_limits(&mut self, logs: LogLimits) {
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.logs = logs;
        }
    }

    /// The region's members have changed.
    pub(super) fn rings(&mut self, now: Instant, rings: Rings) {
        if let Service::Region(cpfs) = &mut self.service {
            let before = cpfs.trusted.len();
            cpfs.trusted.extend(rings.members());
            if cpfs.unseen.is_empty() {
                cpfs.code.retain(|cpf, _| cpfs.trusted.contains(cpf));
            }
            cpfs.code.extend(rings.members().filter_map(|cpf| Some((cpf, rings.code_of(cpf)?))));
            cpfs.rings = rings;
            cpfs.who_leaves(now);
            if cpfs.trusted.len() > before && !cpfs.ledgers.is_empty() {
                // Somebody has come: UEs may have waited for a backup since the last loss, or since they began.
                cpfs.unseen.push_back(None);
                cpfs.look = now + BETWEEN_SLICES;
            }
        }
    }

    /// A CPF of the region is lost: others take its UEs over.
    pub(super) fn cpf_lost(&mut self, now: Instant, dead: CpfId, out: &mut Outbox) {
        let Service::Region(cpfs) = &mut self.service else { return };
        for ue in cpfs.given_up(now, dead, out) {
            self.lose(now, ue, out);
        }
    }

    /// An input of a UE, the one or one of these, ended who tried it, and will end whoever runs it.
    fn poisoned(&mut self, now: Instant, ue: UeId, inputs: (u64, u64), out: &mut Outbox) {
        // It may be a first message that others would be asked after next: they are not, and its UE tries anew. What else came for this
        // UE while it was waited for has done nothing, and may be somebody else's.
        self.let_go(ue, inputs, out);
        self.unanswered(now, ue, inputs, Disposition::Ended, out);
        self.give_up(now, ue, Deregistered::Fault, out);
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.counts.poisoned += 1;
        }
    }

    /// Nobody holds a UE's state.
    fn lose(&mut self, now: Instant, ue: UeId, out: &mut Outbox) {
        self.give_up(now, ue, Deregistered::StateLost, out);
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.counts.lost += 1;
        }
    }

    /// Nobody can go on with a UE: its gNBs let it go, and it registers anew.
    pub(super) fn give_up(&mut self, now: Instant, ue: UeId, why: Deregistered, out: &mut Outbox) {
        for names in self.slots.names(ue) {
            if self.path_switches.is_of(ue, &names) {
                continue; // it is refused what it waits for
            }
            let stream = self.stream(ue, names.association);
            let release = amf::release_of(names.amf_ue_ngap_id, names.ran_ue_ngap_id);
            send(names.association, stream, &release, out);
        }
        let event = Event::Deregistered { subject: Subject::default(), why };
        out.events.push(UeEvent { ue, on: None, event });
        self.vacate(now, ue, out);
    }

    /// A UPF has answered a UE: a session that stands there now would have to be ended, should nobody go on with the UE.
    pub(super) fn session_answered(&mut self, ue: UeId, upf: UpfId, octets: &[u8]) {
        if octets.get(1) == Some(&message_type::SESSION_ESTABLISHMENT_RESPONSE)
            && let Some(deletion) = smf::deletion_of_orphan(octets)
        {
            self.session_stands(ue, upf, deletion);
        }
    }

    /// A UE has a session at a UPF, which this would end.
    pub(super) fn session_stands(&mut self, ue: UeId, upf: UpfId, deletion: Vec<u8>) {
        if let Service::Region(cpfs) = &mut self.service {
            let sessions = cpfs.deletions.entry(ue).or_default();
            if !sessions.contains(&(upf, deletion.clone())) {
                sessions.push((upf, deletion));
            }
        }
    }

    /// A UE's request goes to a UPF: what it ends itself, or gives to another SMF, need not be ended.
    pub(super) fn session_asked(&mut self, ue: UeId, upf: UpfId, octets: &[u8]) {
        let ends = octets.get(1) == Some(&message_type::SESSION_DELETION_REQUEST);
        if let Service::Region(cpfs) = &mut self.service
            && (ends || smf::gives_away(octets))
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

    /// A UE is gone, and its slot is free again. Inputs of its that are under way still are answered for it: a session that stands
    /// at a UPF by then is ended, and a first message is asked after elsewhere.
    pub(super) fn vacate(&mut self, now: Instant, ue: UeId, out: &mut Outbox) {
        self.refuse_path_switch(ue, out);
        self.slots.release(ue, now);
        self.arrivals.remove(ue);
        if let Service::Region(cpfs) = &mut self.service {
            for (upf, deletion) in cpfs.forget(ue, out) {
                // Nobody is left to hear that there is no UPF.
                let _ = self.ask_upf(now, upf, ue, OutputId { clock: 0, index: 0 }, deletion, &mut out.pfcp);
            }
            self.unanswered(now, ue, (0, u64::MAX), Disposition::Stranger, out);
        }
    }

    /// A UE will not say whose the first messages are that it was asked about: this is said for it.
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

    /// What is due in the region: UEs of a CPF that is lost, replicas that lag too long.
    pub(super) fn tick_cpfs(&mut self, now: Instant, out: &mut Outbox) {
        let Service::Region(cpfs) = &mut self.service else { return };
        for ue in cpfs.fail_over_more(now, out) {
            self.lose(now, ue, out);
        }
        let Service::Region(cpfs) = &mut self.service else { return };
        cpfs.drain(now, out);
        cpfs.give_up_moves(now, out);
        cpfs.scan_more(now, out);
    }

    /// When that is next.
    pub(super) fn next_scan(&self) -> Instant {
        match &self.service {
            Service::Here(_) => Instant::FAR_FUTURE,
            Service::Region(cpfs) => {
                let without_backup = cpfs.rings.has_more() && !cpfs.without_backup.is_empty();
                let scan = (!cpfs.logged.is_empty() || without_backup).then_some(cpfs.scan);
                let look = (!cpfs.unseen.is_empty()).then_some(cpfs.look);
                let due = scan.into_iter().chain(look).chain(cpfs.draining.due()).chain(cpfs.moves_due());
                due.min().unwrap_or(Instant::FAR_FUTURE)
            }
        }
    }

    /// CpfTable that wait for it learn how much of theirs was released, once for all that one input brought.
    pub(super) fn tell_released(&mut self, now: Instant, out: &mut Outbox) {
        if let Service::Region(cpfs) = &mut self.service {
            for limit in std::mem::take(&mut cpfs.full) {
                self.limited(now, None, limit, out);
            }
        }
        let Service::Region(cpfs) = &mut self.service else { return };
        for member in std::mem::take(&mut cpfs.waiting.untold) {
            let released = cpfs.taken.get(&member).copied().unwrap_or(0);
            out.cpfs.push((member, CpfCommand::Released(released)));
        }
        if !cpfs.unseen.is_empty() {
            out.cpfs.retain(|(to, _)| cpfs.trusted.contains(to));
        }
    }

    /// Whether a UE can be taken at all: somebody must serve it.
    pub(super) fn can_place(&self, ue: UeId) -> bool {
        match &self.service {
            Service::Here(_) => true,
            Service::Region(cpfs) => cpfs.rings.place(cpfs.rings.home(), ue).is_some(),
        }
    }

    /// Whether a UE's machine is at an input.
    pub(super) fn is_at_work(&self, ue: UeId) -> bool {
        matches!(&self.service, Service::Region(cpfs) if cpfs.is_at_work(ue))
    }

    /// Whether a CPF of the region is listened to.
    pub(crate) fn trusts(&self, cpf: CpfId) -> bool {
        matches!(&self.service, Service::Region(cpfs) if cpfs.trusted.contains(&cpf))
    }

    /// The CPFs of the region that are listened to.
    pub(crate) fn trusted(&self) -> impl Iterator<Item = CpfId> {
        let trusted = match &self.service {
            Service::Here(_) => None,
            Service::Region(cpfs) => Some(&cpfs.trusted),
        };
        trusted.into_iter().flatten().copied()
    }

    /// The CPF of the region that serves a UE.
    pub fn served_by(&self, ue: UeId) -> Option<CpfId> {
        match &self.service {
            Service::Here(_) => None,
            Service::Region(cpfs) => cpfs.ledgers.get(&ue).map(|l| l.assignment().0),
        }
    }

    /// The CPFs of the region that back a UE.
    pub fn backed_by(&self, ue: UeId) -> Vec<CpfId> {
        match &self.service {
            Service::Here(_) => Vec::new(),
            Service::Region(cpfs) => cpfs.ledgers.get(&ue).into_iter().flat_map(Ledger::backups).collect(),
        }
    }

    /// UEs that would be lost with who serves them, as far as it is known: more than none while somebody is being replaced.
    pub fn without_backup(&self) -> usize {
        match &self.service {
            Service::Here(_) => 0,
            Service::Region(c) => c.without_backup.len() + c.behind.len() + c.unseen.len(),
        }
    }

    /// Octets of inputs that are kept for UEs, and the number of these. Nothing where there is but one CPF.
    pub fn logged(&self) -> (usize, usize) {
        match &self.service {
            Service::Here(_) => (0, 0),
            Service::Region(cpfs) => (cpfs.kept, cpfs.logged.len()),
        }
    }

    /// Whether UEs may have lost somebody, or wait for somebody who has come, and it has not been looked at yet.
    pub fn is_failing_over(&self) -> bool {
        matches!(&self.service, Service::Region(cpfs) if !cpfs.unseen.is_empty())
    }

    /// What replication had to do.
    pub fn replication_counters(&self) -> ReplicationCounters {
        match &self.service {
            Service::Here(_) => ReplicationCounters::default(),
            Service::Region(cpfs) => cpfs.counts,
        }
    }
}
