//! The control functions of the aggregator's phones: one within the program, called as a function; or those of a region, each
//! phone with one that serves it and others that hold its state, and with its log here (DESIGN §4; Neutrino §4.2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::config::Config;
use whimbrel_control::event::Deregistered;
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{
    Disposition, Envelope, Event, LogOf, OutputId, Packed, PhoneEvent, PhoneId, Subject, UpfId, amf, smf,
};
use whimbrel_ids::Instant;
use whimbrel_pfcp::message_type;

use super::drain::Draining;
use super::moves::Moving;
use super::recovery::Recovery;
use super::scan::{BETWEEN_ROUNDS, Round};
use super::{Cta, Entropy, Inspect, Outbox, TERM, send};
use crate::link::{Down, Up};
use crate::region::{Region, Rings};
use crate::replication::{BESIDE_INPUT, Bounds, CpfId, Failover, Lagging, Ledger, Verdict};
use crate::{CodeVersion, Cpf};

/// How long a log that is half full, and a phone that nobody else could go on with, waits for a backup before another one is asked: longer than two
/// control functions take to reach each other again after a link of theirs has ended.
pub(super) const HASTE: Duration = Duration::from_secs(2);
/// When a control function is lost or leaves, what nobody waits for is done in slices, with this between them: short ones, since whoever is
/// heard of meanwhile waits for the slice to end.
pub(super) const BETWEEN_SLICES: Duration = Duration::from_micros(125);
/// Phones of a slice that are looked at, at most: some ten microseconds.
const SLICE: usize = 256;
/// What a slice has each of the others do, at most, in messages: inputs to run again, phones to take over (which are two), backups to find. Each
/// takes up to ten microseconds there, so that they have half of their time and more for phones that are at something.
const SLICE_WORK: u64 = 8;
/// What it takes the aggregator itself to give a phone up that nobody can go on with, as so many of these messages.
const GIVEN_UP_WORK: u64 = 10;

/// Who runs the phones' machines.
pub(super) enum Service {
    /// A part of this program.
    Here(Box<Cpf>),
    /// The members of a region.
    Region(Box<Cpfs>),
}

/// The members of a region, and the phones' logs.
#[derive(Serialize, Deserialize)]
pub(super) struct Cpfs {
    pub(super) rings: Rings,
    pub(super) draining: Draining,
    pub(super) logs: Logs,
    pub(super) trusted: BTreeSet<CpfId>,
    /// What code each of these runs, and of those that phones are yet to be taken over from.
    pub(super) code: BTreeMap<CpfId, CodeVersion>,
    pub(super) ledgers: BTreeMap<PhoneId, Ledger<Packed>>,
    /// The phones of which inputs are kept or under way, and the octets that are kept of each.
    pub(super) logged: BTreeMap<PhoneId, usize>,
    /// The octets of all of them.
    kept: usize,
    /// The bounds that logs have met since it was told last.
    #[serde(skip)]
    full: Vec<&'static str>,
    /// The phones that would be lost with who serves them: there was no backup when they began, or what the log leads on from has not come to who
    /// took a lost backup's place, or was given up since the log was full.
    pub(super) unbacked: BTreeSet<PhoneId>,
    /// Batches that were taken from each link.
    pub(super) taken: BTreeMap<CpfId, u64>,
    pub(super) waiting: Waiting,
    /// When phones are looked at that somebody may be late with, and how far that has come.
    pub(super) scan: Instant,
    #[serde(skip)]
    pub(super) round: Option<Round>,
    /// After losses, and when somebody has come: from which phone on nobody has looked yet whether it is concerned, and when somebody does next.
    unseen: VecDeque<Option<PhoneId>>,
    look: Instant,
    /// Those of which it is known, and who wait for something that is yet to come.
    behind: VecDeque<PhoneId>,
    /// How long that takes: for the operator of who serves.
    #[serde(skip)]
    recovery: Recovery,
    /// Phones that are to be served by another.
    pub(super) moving: BTreeMap<PhoneId, Moving>,
    /// When these began to, oldest first, those too that have come about.
    pub(super) moves_begun: VecDeque<(Instant, PhoneId)>,
    /// Phones that are in other regions than the aggregator's own.
    pub(super) away: BTreeMap<PhoneId, Region>,
    /// Phones that have backups which are to go as soon as others have the state: where they came from, or that did not get it.
    pub(super) unsettled: BTreeSet<PhoneId>,
    /// The requests that would end the phones' sessions, by UPF: for those that nobody can go on with.
    deletions: BTreeMap<PhoneId, Vec<(UpfId, Vec<u8>)>>,
    pub(super) counts: Replicated,
    /// What each has been complained of: that is told once.
    complained: BTreeSet<(CpfId, Complaint)>,
}

/// Members that have states to send as soon as they hear how many of their batches were released: it is told to nobody else.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Waiting {
    pub(super) untold: BTreeSet<CpfId>,
    /// They were told to send a state, which may wait for batches that were under way then.
    asked: BTreeSet<CpfId>,
}

impl Waiting {
    /// A batch has come: a state of its phone waits for it if that is idle.
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

/// What is kept of phones' logs, and for how long.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Logs {
    /// How much of one phone's. Of phones that begin from now on.
    pub phone: Bounds,
    /// Octets of all phones' together.
    pub octets: usize,
    /// How long a log waits for a replica that does not say that it holds the phone's state, if another one does.
    pub outdated_after: Duration,
}

/// The time is Neutrino's (§4.2.4): a procedure takes seconds at most. The octets are those of a quarter of a million phones that attach at once.
impl Default for Logs {
    fn default() -> Self {
        Self { phone: Bounds::default(), octets: 512 << 20, outdated_after: Duration::from_secs(30) }
    }
}

/// What became of phones whose control functions were lost, and of their logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicated {
    /// Control functions that were lost.
    pub cpfs_lost: u64,
    /// Phones that another one took over.
    pub taken_over: u64,
    /// Inputs that were run again for that.
    pub replayed: u64,
    /// Of these, inputs that the lost one may have died of: they were tried before.
    pub tried: u64,
    /// Phones of which an input ended who tried it: they register anew.
    pub poisoned: u64,
    /// Phones whose state nobody held: they register anew.
    pub lost: u64,
    /// States from which a phone could not be served, since they were not what their senders said.
    pub unreadable: u64,
    /// Phones that moved to another control function in order.
    pub moved: u64,
    /// Of these, those that moved at once, since their state was there already.
    pub moved_fast: u64,
    /// Phones that were to move and stayed, since their state did not come there in time.
    pub moves_given_up: u64,
    /// Replicas that lagged until the log could not wait for them.
    pub lagging: u64,
    /// Batches of who does not serve the phone any more.
    pub fenced: u64,
    /// States that control functions said to hold, and that nobody can: no answer has left for their clocks yet, or their terms have not begun.
    pub claims_refused: u64,
    /// Replays that gave other outputs than had left.
    pub diverged: u64,
    /// Batches that used a downlink NAS COUNT again: nothing of them left.
    pub counts_again: u64,
}

/// What a control function does that it should not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Complaint {
    /// It speaks for a phone that it does not serve; it may have served it a moment ago.
    Fenced,
    /// It says to hold a state that nobody can hold yet.
    ClaimRefused,
    /// It cannot serve a phone from what it holds, or was sent, of it.
    Unreadable,
    /// What it says of an input is not what was said of it before.
    Diverged,
    /// It uses a downlink NAS COUNT again that its phone has had under the same keys.
    CountAgain,
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
            logs: Logs::default(),
            ledgers: BTreeMap::new(),
            logged: BTreeMap::new(),
            kept: 0,
            full: Vec::new(),
            unbacked: BTreeSet::new(),
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
            counts: Replicated::default(),
            complained: BTreeSet::new(),
        }
    }

    /// Whether two control functions run the same code.
    pub(super) fn alike(&self, one: CpfId, other: CpfId) -> bool {
        self.code.get(&one) == self.code.get(&other)
    }

    /// What all inputs of a phone have in common while this control function serves it.
    fn log_of(&self, phone: PhoneId, by: CpfId) -> LogOf {
        let code_version = self.code.get(&by).map_or(0, |code| code.0);
        LogOf { code_version, phone, cta_term: TERM }
    }

    fn complain(&mut self, of: CpfId, complaint: Complaint, out: &mut Outbox) {
        let counts = &mut self.counts;
        *match complaint {
            Complaint::Fenced => &mut counts.fenced,
            Complaint::ClaimRefused => &mut counts.claims_refused,
            Complaint::Unreadable => &mut counts.unreadable,
            Complaint::Diverged => &mut counts.diverged,
            Complaint::CountAgain => &mut counts.counts_again,
            Complaint::Lagging => &mut counts.lagging,
        } += 1;
        if self.complained.insert((of, complaint)) {
            out.complaints.push((of, complaint));
        }
    }

    /// Keeps an input and hands it to who serves its phone. Whether nobody can: its state was lost.
    fn submit(&mut self, envelope: Envelope, out: &mut Outbox) -> bool {
        let phone = envelope.phone;
        if !self.unseen.is_empty() {
            let before = self.counts.taken_over;
            if self.fail_over(phone, out) {
                return true;
            }
            if self.counts.taken_over > before {
                self.recovery.waits(phone, envelope.time);
            }
        }
        if let Some(envelope) = self.waits(envelope, out) {
            self.hand_over(envelope, out);
        }
        false
    }

    pub(super) fn hand_over(&mut self, mut envelope: Envelope, out: &mut Outbox) {
        let phone = envelope.phone;
        if !self.ledgers.contains_key(&phone) {
            let Some(placement) = self.rings.place(self.region(phone), phone) else { return };
            let ledger = Ledger::new(placement.primary, placement.backups, self.logs.phone);
            assign(phone, &ledger, out);
            if placement.missing > 0 && !ledger.is_backed() {
                self.unbacked.insert(phone);
            }
            self.ledgers.insert(phone, ledger);
        }
        let Some(ledger) = self.ledgers.get_mut(&phone) else { return };
        let ((by, term), marked) = (ledger.assignment(), ledger.mark());
        self.outdated(phone, marked, out);
        let log = self.log_of(phone, by);
        let Some(ledger) = self.ledgers.get_mut(&phone) else { return };
        let now = envelope.time;
        (envelope.owner_term, envelope.code_version) = (term, log.code_version);
        let input = envelope.to_flat();
        let (clock, full) = ledger.append(|_| {
            let kept = Packed::of(&input, log).expect("it was written as an input of the phone");
            (BESIDE_INPUT + kept.len(), kept)
        });
        debug_assert_eq!(clock, envelope.clock, "the log and the table of phones count the same inputs");
        out.cpfs.push((by, Down::Logged(input)));
        let mut full = full.map(|lagging| ("log", lagging));
        self.pruned(phone);
        if self.kept > self.logs.octets
            && let Some(ledger) = self.ledgers.get_mut(&phone)
        {
            full = Some(("logs", ledger.give_up_log()));
            self.pruned(phone);
        }
        if let Some((limit, lagging)) = full {
            self.full.push(limit);
            self.outdated(phone, lagging, out);
        } else if self.ledgers.get(&phone).is_some_and(Ledger::is_half_full) {
            self.scan(now, phone, HASTE.min(self.logs.outdated_after), out);
        }
    }

    /// Backups that have lacked a phone's state for so long are waited for no longer where others have it, and others take their places: who serves the
    /// phone may not reach them, and while the log waits it fills. Whether there is anybody.
    pub(super) fn scan(
        &mut self,
        now: Instant,
        phone: PhoneId,
        patience: Duration,
        out: &mut Outbox,
    ) -> bool {
        let Some(ledger) = self.ledgers.get_mut(&phone) else { return false };
        // Where nobody could take a place, who is late is nobody's matter.
        let late = if self.rings.has_more() { ledger.late(now, patience) } else { Vec::new() };
        let lagging = ledger.scan(now, patience);
        let mut told: Vec<CpfId> = lagging.iter().map(|l| l.replica).collect();
        self.outdated(phone, lagging, out);
        self.pruned(phone);
        let relieved = !late.is_empty() && self.relieve(phone, &late, out);
        if relieved {
            told.extend(late);
            told.sort();
            told.dedup();
        }
        told.into_iter().for_each(|cpf| self.complain(cpf, Complaint::Lagging, out));
        if self.unsettled.contains(&phone) {
            self.settle(phone, out);
        }
        relieved
    }

    /// Others back a phone in the places of those that are late, which go when these have its state ([`Self::settle`]): until then it is they from
    /// whose state the log leads on. Only who runs the same code can go on with the log. Whether there is anybody.
    fn relieve(&mut self, phone: PhoneId, late: &[CpfId], out: &mut Outbox) -> bool {
        let region = self.region(phone);
        let Some(ledger) = self.ledgers.get(&phone) else { return false };
        let (primary, _) = ledger.assignment();
        let present: Vec<CpfId> = ledger.backups().filter(|c| !late.contains(c)).collect();
        let mut further = self.rings.in_place_of(late, region, phone, primary, &present);
        further.retain(|c| self.trusted.contains(c) && !present.contains(c) && self.alike(*c, primary));
        let Some(ledger) = self.ledgers.get_mut(&phone) else { return false };
        further.iter().for_each(|c| ledger.add_backup(*c));
        if !further.is_empty() || self.unsettled.contains(&phone) {
            ledger.put_last(late);
        }
        if further.is_empty() {
            return false;
        }
        self.unsettled.insert(phone);
        serve(phone, ledger, &mut self.waiting, out);
        true
    }

    /// Replicas that the log cannot lead on are told so. They ask for the state of the other replicas that have it, and who serves the phone
    /// sends it anew: it knows itself when that may leave, and the others are there in case it does not get through.
    pub(super) fn outdated(&mut self, phone: PhoneId, lagging: Vec<Lagging>, out: &mut Outbox) {
        if lagging.is_empty() {
            return;
        }
        for Lagging { replica, clock, up_to_date } in lagging {
            out.cpfs.push((replica, Down::Outdated { phone, clock, up_to_date }));
        }
        if let Some(ledger) = self.ledgers.get(&phone) {
            if !ledger.is_backed() {
                self.unbacked.insert(phone);
            }
            serve(phone, ledger, &mut self.waiting, out);
        }
    }

    pub(super) fn pruned(&mut self, phone: PhoneId) {
        let ledger = self.ledgers.get(&phone).filter(|l| l.inputs() > 0 || l.released() < l.clock());
        let octets = ledger.map(Ledger::octets);
        let before = match octets {
            Some(octets) => self.logged.insert(phone, octets),
            None => self.logged.remove(&phone),
        };
        self.kept = self.kept + octets.unwrap_or(0) - before.unwrap_or(0);
    }

    /// A control function is lost: the phones that wait for its answer go on elsewhere now, the others bit by bit, or when they are heard of;
    /// first those that are at something. Gives the phones whose state nobody has.
    pub(super) fn given_up(&mut self, now: Instant, dead: CpfId, out: &mut Outbox) -> Vec<PhoneId> {
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
        let ledgers = self.logged.keys().filter_map(|phone| Some((*phone, self.ledgers.get(phone)?)));
        let served = ledgers.filter(|(_, l)| l.assignment().0 == dead);
        let (unanswered, behind): (Vec<_>, Vec<_>) = served.partition(|(_, l)| l.released() < l.clock());
        self.behind.extend(behind.into_iter().map(|(phone, _)| phone));
        let unanswered: Vec<PhoneId> = unanswered.into_iter().map(|(phone, _)| phone).collect();
        unanswered.iter().for_each(|&phone| self.recovery.waits(phone, now));
        unanswered.into_iter().filter(|&phone| self.fail_over(phone, out)).collect()
    }

    /// Has the next phones that may have been served or backed by somebody lost go on. Gives those whose state nobody has.
    fn fail_over_more(&mut self, now: Instant, out: &mut Outbox) -> Vec<PhoneId> {
        if now < self.look {
            return Vec::new();
        }
        self.look = now + BETWEEN_SLICES;
        let done =
            |counts: &Replicated, out: &Outbox| counts.replayed + counts.taken_over + out.cpfs.len() as u64;
        let enough = done(&self.counts, out) + SLICE_WORK * self.trusted.len().max(1) as u64;
        let mut lost = Vec::new();
        for _ in 0..SLICE {
            if done(&self.counts, out) + GIVEN_UP_WORK * lost.len() as u64 >= enough {
                break;
            }
            let Some(phone) = self.next_unseen() else { break };
            // Who is at something comes first, and again among all.
            if !lost.contains(&phone) && self.fail_over(phone, out) {
                lost.push(phone);
            }
        }
        out.recovered.extend(self.recovery.over(now));
        lost
    }

    /// The next phone that may be concerned by a loss.
    fn next_unseen(&mut self) -> Option<PhoneId> {
        if let Some(phone) = self.behind.pop_front() {
            return Some(phone);
        }
        loop {
            let after = self.unseen.front_mut()?;
            let next = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            if let Some((phone, _)) = self.ledgers.range(next).next() {
                *after = Some(*phone);
                return Some(*phone);
            }
            self.unseen.pop_front();
            self.recovery.looked();
        }
    }

    /// Who serves or backs the phone and was lost is replaced. Whether nobody has its state.
    fn fail_over(&mut self, phone: PhoneId, out: &mut Outbox) -> bool {
        let Some(ledger) = self.ledgers.get_mut(&phone) else { return false };
        let (primary, _) = ledger.assignment();
        let mut gone: Vec<CpfId> = ledger.backups().filter(|c| !self.trusted.contains(c)).collect();
        if !self.trusted.contains(&primary) {
            gone.push(primary); // last: nobody lost takes its place
        }
        if gone.is_empty() {
            self.back(phone, out);
            return false;
        }
        self.go_on_without(phone, gone, out)
    }

    /// A phone that has fewer backups than it should gets those that have come since.
    fn back(&mut self, phone: PhoneId, out: &mut Outbox) {
        let region = self.away.get(&phone).unwrap_or_else(|| self.rings.home());
        let Some(ledger) = self.ledgers.get_mut(&phone) else { return };
        let present: Vec<CpfId> = ledger.backups().collect();
        let mut further = self.rings.further_backups(region, phone, ledger.assignment().0, &present);
        further.retain(|cpf| self.trusted.contains(cpf) && !present.contains(cpf));
        if !further.is_empty() {
            further.into_iter().for_each(|cpf| ledger.add_backup(cpf));
            serve(phone, ledger, &mut self.waiting, out);
        }
    }

    /// A phone goes on without these, of which its control function is the last if it is among them. Whether nobody has its state.
    fn go_on_without(&mut self, phone: PhoneId, gone: Vec<CpfId>, out: &mut Outbox) -> bool {
        let Some(ledger) = self.ledgers.get_mut(&phone).filter(|_| !gone.is_empty()) else { return false };
        let mut replay = Vec::new();
        for cpf in gone {
            let runs = self.code.get(&cpf);
            match ledger.failed_among(cpf, |other| self.code.get(&other) == runs) {
                Failover::Lost => return true,
                Failover::Unaffected => {}
                Failover::Serve { replay: rest, .. } => {
                    self.counts.taken_over += 1;
                    self.counts.replayed += rest.len() as u64;
                    replay = rest;
                }
            }
        }
        let (by, _) = ledger.assignment();
        let present: Vec<CpfId> = ledger.backups().collect();
        let region = self.away.get(&phone).unwrap_or_else(|| self.rings.home());
        let further = self.rings.further_backups(region, phone, by, &present);
        further.into_iter().filter(|c| self.trusted.contains(c)).for_each(|c| ledger.add_backup(c));
        let is_backed = ledger.is_backed();
        serve(phone, ledger, &mut self.waiting, out);
        // The lost one has had each of these. What it answered did it no harm; of the others it may have died.
        let unanswered = replay.iter().filter(|(clock, _)| *clock > ledger.released()).count();
        self.counts.tried += unanswered as u64;
        let inputs = replay.into_iter().map(|(_, input)| input);
        let log = self.log_of(phone, by);
        match unanswered {
            0 => out.cpfs.extend(inputs.map(|input| (by, Down::Logged(input.to_flat(log))))),
            _ => {
                let read = inputs.map(|input| input.read(log));
                let Ok(inputs) = read.collect() else { return true }; // a log that came from who mirrored this
                out.cpfs.push((by, Down::Try { phone, inputs }));
            }
        }
        if !is_backed {
            self.unbacked.insert(phone);
        }
        self.stop_moving(phone, out);
        false
    }

    /// A phone is gone. Gives the requests that end what it has left at UPFs.
    fn forget(&mut self, phone: PhoneId, out: &mut Outbox) -> Vec<(UpfId, Vec<u8>)> {
        self.unbacked.remove(&phone);
        self.recovery.forget(phone);
        self.moving.remove(&phone);
        self.away.remove(&phone);
        self.unsettled.remove(&phone);
        if let Some(ledger) = self.ledgers.remove(&phone) {
            self.pruned(phone);
            let all = ledger.backups().chain([ledger.assignment().0]);
            out.cpfs.extend(all.map(|cpf| (cpf, Down::Forget { phone, term: u32::MAX })));
        }
        self.deletions.remove(&phone).unwrap_or_default()
    }

    /// Whether a control function serves a phone, or backs it.
    fn concerns(&self, phone: PhoneId, cpf: CpfId) -> bool {
        self.ledgers.get(&phone).is_some_and(|l| l.concerns(cpf))
    }

    /// Whether inputs of the phone have been handed over whose outputs have not left.
    fn is_at_work(&self, phone: PhoneId) -> bool {
        let held = self.moving.get(&phone).is_some_and(|m| !m.held.is_empty());
        held || self.ledgers.get(&phone).is_some_and(|l| l.released() < l.clock())
    }
}

/// Who serves a phone is told so, and sends its state to the phone's backups.
pub(super) fn serve(phone: PhoneId, ledger: &Ledger<Packed>, waiting: &mut Waiting, out: &mut Outbox) {
    let (by, _) = ledger.assignment();
    waiting.untold.insert(by);
    waiting.asked.insert(by);
    assign(phone, ledger, out);
}

/// Who serves a phone is told so.
fn assign(phone: PhoneId, ledger: &Ledger<Packed>, out: &mut Outbox) {
    let (by, term) = ledger.assignment();
    out.cpfs.push((by, Down::Serve { phone, term, backups: ledger.backups().collect() }));
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
                self.ran(now, (envelope.phone, envelope.clock), envelope.payload.association(), batch, out);
            }
            Service::Region(cpfs) => {
                let phone = envelope.phone;
                if !cpfs.rings.areas().is_empty() {
                    self.begins_at(phone, envelope.payload.association());
                }
                let Service::Region(cpfs) = &mut self.service else { return };
                if cpfs.submit(envelope, out) {
                    self.lose(now, phone, out);
                }
            }
        }
    }

    /// A control function of the region says something.
    pub(super) fn up(&mut self, now: Instant, from: CpfId, message: Up, out: &mut Outbox) {
        let Service::Region(cpfs) = &mut self.service else { return };
        if !cpfs.trusted.contains(&from) {
            return; // it was given up: whatever it has done since is nobody's
        }
        match message {
            Up::Ran { phone, term, clock, from: sender, batch } => {
                *cpfs.taken.entry(from).or_default() += 1;
                cpfs.waiting.ran(from, batch.idle);
                let Some(ledger) = cpfs.ledgers.get_mut(&phone) else { return };
                let verdict = ledger.batch(now, from, term, clock, batch.digest(), batch.idle);
                cpfs.progress(phone, out);
                match verdict {
                    Verdict::Release => {
                        out.recovered.extend(cpfs.recovery.went_on(phone, now));
                        if !self.ran(now, (phone, clock), sender, *batch, out)
                            && let Service::Region(cpfs) = &mut self.service
                        {
                            cpfs.complain(from, Complaint::CountAgain, out);
                        }
                    }
                    Verdict::Suppress => {}
                    Verdict::Fenced => cpfs.complain(from, Complaint::Fenced, out),
                    Verdict::Diverged => {
                        cpfs.complain(from, Complaint::Diverged, out);
                        self.lose(now, phone, out);
                    }
                }
            }
            Up::Poisoned { phone, term, inputs: inputs @ (first, last) } => match cpfs.ledgers.get(&phone) {
                Some(l) if l.assignment() == (from, term) && first <= last && last <= l.clock() => {
                    self.poisoned(now, phone, inputs, out);
                }
                _ => cpfs.complain(from, Complaint::Fenced, out),
            },
            Up::Unreadable { phone, term } => match cpfs.ledgers.get(&phone).map(Ledger::assignment) {
                Some(assignment) if assignment == (from, term) => {
                    cpfs.complain(from, Complaint::Unreadable, out);
                    if cpfs.go_on_without(phone, vec![from], out) {
                        self.lose(now, phone, out);
                    }
                }
                // It was sent such a state, which it does not hold: it counts as one that lags.
                Some((by, _)) if by != from && cpfs.concerns(phone, from) => {
                    cpfs.complain(from, Complaint::Unreadable, out);
                }
                _ => cpfs.complain(from, Complaint::Fenced, out),
            },
            // Whoever sent it that state lies about the term, or about the clock, for nobody can hold what was not released (rule 1); or it does. It may
            // have let go of what it had of the phone, and would take nothing under the term that is, or of the clocks that come: it is to forget
            // all, and the phone goes on without it. One that has confirmed nothing yet is no loss, and another takes its place when it is late: what is
            // sent to it now would be lied about again.
            Up::Holds { phone, term, clock }
                if (cpfs.ledgers.get(&phone))
                    .is_some_and(|l| term > l.assignment().1 || clock > l.released()) =>
            {
                cpfs.complain(from, Complaint::ClaimRefused, out);
                out.cpfs.push((from, Down::Forget { phone, term: u32::MAX }));
                let counts =
                    cpfs.ledgers.get(&phone).is_some_and(|l| l.concerns(from) && !l.is_joining(from));
                if counts && cpfs.go_on_without(phone, vec![from], out) {
                    self.lose(now, phone, out);
                }
            }
            Up::Holds { phone, term, clock } => match cpfs.ledgers.get_mut(&phone) {
                Some(ledger) => {
                    ledger.acknowledged(now, from, term, clock);
                    if !ledger.concerns(from) {
                        // The state came there after the word to forget the phone; or, if it is of the term that is, from who had no business to send it.
                        let term = ledger.assignment().1.max(term.saturating_add(1));
                        out.cpfs.push((from, Down::Forget { phone, term }));
                    }
                    cpfs.progress(phone, out);
                }
                None => out.cpfs.push((from, Down::Forget { phone, term: u32::MAX })),
            },
        }
    }

    /// A new version of the configuration is in force for the inputs to come.
    pub(super) fn configure_cpfs(&mut self, config: &Arc<Config>, out: &mut Outbox) {
        match &mut self.service {
            Service::Here(cpf) => cpf.configure(config.clone()),
            Service::Region(cpfs) => {
                let told = cpfs.trusted.iter().map(|&cpf| (cpf, Down::Configure(config.clone())));
                out.cpfs.extend(told);
            }
        }
    }

    /// What is kept of phones' logs. A region that keeps none is a baseline of experiments: what is lost with a control function then is what
    /// was under way there.
    pub fn keep_logs(&mut self, logs: Logs) {
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
                // Somebody has come: phones may have waited for a backup since the last loss, or since they began.
                cpfs.unseen.push_back(None);
                cpfs.look = now + BETWEEN_SLICES;
            }
        }
    }

    /// A control function of the region is lost: others take its phones over.
    pub(super) fn cpf_lost(&mut self, now: Instant, dead: CpfId, out: &mut Outbox) {
        let Service::Region(cpfs) = &mut self.service else { return };
        for phone in cpfs.given_up(now, dead, out) {
            self.lose(now, phone, out);
        }
    }

    /// An input of a phone, the one or one of these, ended who tried it, and will end whoever runs it.
    fn poisoned(&mut self, now: Instant, phone: PhoneId, inputs: (u64, u64), out: &mut Outbox) {
        // It may be a first message that others would be asked after next: they are not, and its phone tries anew. What else came for this
        // phone while it was waited for has done nothing, and may be somebody else's.
        self.let_go(phone, inputs, out);
        self.unanswered(now, phone, inputs, Disposition::Ended, out);
        self.give_up(now, phone, Deregistered::Fault, out);
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.counts.poisoned += 1;
        }
    }

    /// Nobody holds a phone's state.
    fn lose(&mut self, now: Instant, phone: PhoneId, out: &mut Outbox) {
        self.give_up(now, phone, Deregistered::StateLost, out);
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.counts.lost += 1;
        }
    }

    /// Nobody can go on with a phone: its gNBs let it go, and it registers anew.
    pub(super) fn give_up(&mut self, now: Instant, phone: PhoneId, why: Deregistered, out: &mut Outbox) {
        for names in self.slots.names(phone) {
            if self.path_switches.is_of(phone, &names) {
                continue; // it is refused what it waits for
            }
            let stream = self.stream(phone, names.association);
            let release = amf::release_of(names.amf_ue_ngap_id, names.ran_ue_ngap_id);
            send(names.association, stream, &release, out);
        }
        let event = Event::Deregistered { subject: Subject::default(), why };
        out.events.push(PhoneEvent { phone, on: None, event });
        self.vacate(now, phone, out);
    }

    /// A UPF has answered a phone: a session that stands there now would have to be ended, should nobody go on with the phone.
    pub(super) fn session_answered(&mut self, phone: PhoneId, upf: UpfId, octets: &[u8]) {
        if octets.get(1) == Some(&message_type::SESSION_ESTABLISHMENT_RESPONSE)
            && let Some(deletion) = smf::deletion_of_orphan(octets)
        {
            self.session_stands(phone, upf, deletion);
        }
    }

    /// A phone has a session at a UPF, which this would end.
    pub(super) fn session_stands(&mut self, phone: PhoneId, upf: UpfId, deletion: Vec<u8>) {
        if let Service::Region(cpfs) = &mut self.service {
            let sessions = cpfs.deletions.entry(phone).or_default();
            if !sessions.contains(&(upf, deletion.clone())) {
                sessions.push((upf, deletion));
            }
        }
    }

    /// A phone's request goes to a UPF: what it ends itself, or gives to another SMF, need not be ended.
    pub(super) fn session_asked(&mut self, phone: PhoneId, upf: UpfId, octets: &[u8]) {
        let ends = octets.get(1) == Some(&message_type::SESSION_DELETION_REQUEST);
        if let Service::Region(cpfs) = &mut self.service
            && (ends || smf::gives_away(octets))
            && let Some(sessions) = cpfs.deletions.get_mut(&phone)
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

    /// A phone is gone, and its slot is free again. Inputs of its that are under way still are answered for it: a session that stands
    /// at a UPF by then is ended, and a first message is asked after elsewhere.
    pub(super) fn vacate(&mut self, now: Instant, phone: PhoneId, out: &mut Outbox) {
        self.refuse_path_switch(phone, out);
        self.slots.release(phone, now);
        self.arrivals.remove(phone);
        if let Service::Region(cpfs) = &mut self.service {
            for (upf, deletion) in cpfs.forget(phone, out) {
                // Nobody is left to hear that there is no UPF.
                let _ =
                    self.ask_upf(now, upf, phone, OutputId { clock: 0, index: 0 }, deletion, &mut out.pfcp);
            }
            self.unanswered(now, phone, (0, u64::MAX), Disposition::Stranger, out);
        }
    }

    /// A phone will not say whose the first messages are that it was asked about: this is said for it.
    fn unanswered(
        &mut self,
        now: Instant,
        phone: PhoneId,
        (first, last): (u64, u64),
        answer: Disposition,
        out: &mut Outbox,
    ) {
        let clocks: Vec<u64> = self.asked.between(phone, first, last).map(|(clock, _)| clock).collect();
        for clock in clocks {
            if let Some(asked) = self.asked.remove(phone, clock) {
                self.answered(now, phone, asked, answer, out);
            }
        }
    }

    /// What is due in the region: phones of a control function that is lost, replicas that lag too long.
    pub(super) fn tick_cpfs(&mut self, now: Instant, out: &mut Outbox) {
        let Service::Region(cpfs) = &mut self.service else { return };
        for phone in cpfs.fail_over_more(now, out) {
            self.lose(now, phone, out);
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
                let unbacked = cpfs.rings.has_more() && !cpfs.unbacked.is_empty();
                let scan = (!cpfs.logged.is_empty() || unbacked).then_some(cpfs.scan);
                let look = (!cpfs.unseen.is_empty()).then_some(cpfs.look);
                let due = scan.into_iter().chain(look).chain(cpfs.draining.due()).chain(cpfs.moves_due());
                due.min().unwrap_or(Instant::FAR_FUTURE)
            }
        }
    }

    /// Members that wait for it learn how much of theirs was released, once for all that one input brought.
    pub(super) fn tell_released(&mut self, now: Instant, out: &mut Outbox) {
        if let Service::Region(cpfs) = &mut self.service {
            for limit in std::mem::take(&mut cpfs.full) {
                self.limited(now, None, limit, out);
            }
        }
        let Service::Region(cpfs) = &mut self.service else { return };
        for member in std::mem::take(&mut cpfs.waiting.untold) {
            let released = cpfs.taken.get(&member).copied().unwrap_or(0);
            out.cpfs.push((member, Down::Released(released)));
        }
        if !cpfs.unseen.is_empty() {
            out.cpfs.retain(|(to, _)| cpfs.trusted.contains(to));
        }
    }

    /// Whether a phone can be taken at all: somebody must serve it.
    pub(super) fn can_place(&self, phone: PhoneId) -> bool {
        match &self.service {
            Service::Here(_) => true,
            Service::Region(cpfs) => cpfs.rings.place(cpfs.rings.home(), phone).is_some(),
        }
    }

    /// Whether a phone's machine is at an input.
    pub(super) fn is_at_work(&self, phone: PhoneId) -> bool {
        matches!(&self.service, Service::Region(cpfs) if cpfs.is_at_work(phone))
    }

    /// Whether a control function of the region is listened to.
    pub(crate) fn trusts(&self, cpf: CpfId) -> bool {
        matches!(&self.service, Service::Region(cpfs) if cpfs.trusted.contains(&cpf))
    }

    /// The control functions of the region that are listened to.
    pub(crate) fn trusted(&self) -> impl Iterator<Item = CpfId> {
        let trusted = match &self.service {
            Service::Here(_) => None,
            Service::Region(cpfs) => Some(&cpfs.trusted),
        };
        trusted.into_iter().flatten().copied()
    }

    /// The control function of the region that serves a phone.
    pub fn served_by(&self, phone: PhoneId) -> Option<CpfId> {
        match &self.service {
            Service::Here(_) => None,
            Service::Region(cpfs) => cpfs.ledgers.get(&phone).map(|l| l.assignment().0),
        }
    }

    /// The control functions of the region that back a phone.
    pub fn backed_by(&self, phone: PhoneId) -> Vec<CpfId> {
        match &self.service {
            Service::Here(_) => Vec::new(),
            Service::Region(cpfs) => cpfs.ledgers.get(&phone).into_iter().flat_map(Ledger::backups).collect(),
        }
    }

    /// Phones that would be lost with who serves them, as far as it is known: more than none while somebody is being replaced.
    pub fn unbacked(&self) -> usize {
        match &self.service {
            Service::Here(_) => 0,
            Service::Region(c) => c.unbacked.len() + c.behind.len() + c.unseen.len(),
        }
    }

    /// Octets of inputs that are kept for phones, and the number of these. Nothing where there is but one control function.
    pub fn logged(&self) -> (usize, usize) {
        match &self.service {
            Service::Here(_) => (0, 0),
            Service::Region(cpfs) => (cpfs.kept, cpfs.logged.len()),
        }
    }

    /// Whether phones may have lost somebody, or wait for somebody who has come, and it has not been looked at yet.
    pub fn is_failing_over(&self) -> bool {
        matches!(&self.service, Service::Region(cpfs) if !cpfs.unseen.is_empty())
    }

    /// What replication had to do.
    pub fn replicated(&self) -> Replicated {
        match &self.service {
            Service::Here(_) => Replicated::default(),
            Service::Region(cpfs) => cpfs.counts,
        }
    }
}
