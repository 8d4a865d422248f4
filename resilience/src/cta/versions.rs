//! CPFs of several kinds: those of a canary beside the others, and those of a slice. A UE that is to be served by another kind than it is
//! moves when its next input comes while no procedure of it runs, before that input.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::udm::{Subscribers, UdmAnswer};
use whimbrel_control::{Batch, Event, UeId};
use whimbrel_ids::{Instant, SNssai, Supi};

use super::cpfs::{Cpfs, Service};
use super::{Cta, Entropy, Inspect, Outbox};
use crate::CodeVersion;
use crate::region::{CpfLoad, UeKind};
use crate::replication::CpfId;

/// Of an answer time, each power of two has so many steps: percentiles are exact to an eighth.
const STEPS: usize = 8;
/// After a move that was given up, the UE's inputs do not wait for another one for so long.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Steps up to a minute; what takes longer counts as that.
const STEPS_MAX: usize = 26 * STEPS;

/// The UEs that are not for any CPF, and what CPFs have done since the canary began.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Kinds {
    /// UEs that the canary lists.
    listed: BTreeSet<UeId>,
    /// UEs of slices that have CPFs of their own.
    slices: BTreeMap<UeId, SNssai>,
    figures: BTreeMap<CodeVersion, VersionFigures>,
    /// When CPFs were sent the inputs that they have not answered.
    asked: BTreeMap<(UeId, u64), Instant>,
    /// UEs whose move was given up, and when.
    given_up: BTreeMap<UeId, Instant>,
}

/// What the CPFs of one code version have done since the canary began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionFigures {
    /// UEs of which they are primaries.
    pub ues: u64,
    /// Procedures that were completed.
    pub completed: u64,
    /// Procedures that were refused or failed, and UEs that were discarded after a fault or lost with their CPF.
    pub failed: u64,
    /// CPFs that were lost.
    pub cpfs_lost: u64,
    /// How long they took to answer inputs.
    pub answers: AnswerTimes,
}

/// A distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerTimes {
    /// Inputs by the step of their time; shorter than [`STEPS_MAX`] where longer times have not come.
    steps: Vec<u64>,
}

impl AnswerTimes {
    fn add(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let octave = micros.ilog2() as usize;
        let within = ((micros << 3 >> octave) & 7) as usize;
        let step = (octave * STEPS + within).min(STEPS_MAX - 1);
        if self.steps.len() <= step {
            self.steps.resize(step + 1, 0);
        }
        self.steps[step] += 1;
    }

    /// The time within which this share of a thousand of all inputs was answered; `None` without any.
    pub fn permille(&self, share: u64) -> Option<Duration> {
        let all: u64 = self.steps.iter().sum();
        let needed = (all * share).div_ceil(1000).max(1);
        let mut sum = 0;
        let step = self.steps.iter().position(|n| {
            sum += n;
            sum >= needed
        })?;
        let (octave, within) = (step / STEPS, (step % STEPS) as u64);
        // The end of the step.
        Some(Duration::from_micros(((8 + within + 1) << octave).div_ceil(8)))
    }

    /// Inputs that were answered.
    pub fn count(&self) -> u64 {
        self.steps.iter().sum()
    }
}

impl Kinds {
    /// A UE is gone.
    pub(super) fn forget(&mut self, ue: UeId) {
        self.listed.remove(&ue);
        self.slices.remove(&ue);
        self.given_up.remove(&ue);
        while let Some((key, _)) = self.asked.range((ue, 0)..=(ue, u64::MAX)).next() {
            let key = *key;
            self.asked.remove(&key);
        }
    }

    /// The move of a UE was given up.
    pub(super) fn gives_up(&mut self, now: Instant, ue: UeId) {
        self.given_up.insert(ue, now);
    }

    /// Forgets the figures: another canary begins, or there is none.
    fn begin(&mut self) {
        self.figures.clear();
        self.asked.clear();
    }
}

impl Cpfs {
    /// By which CPFs a UE is to be served.
    pub(super) fn kind(&self, ue: UeId) -> UeKind {
        let takes = self.rings.canary().is_some_and(|canary| canary.takes(ue));
        let slice = self.kinds.slices.get(&ue).filter(|slice| self.rings.slices().contains(slice));
        UeKind { canary: takes || self.kinds.listed.contains(&ue), slice: slice.copied() }
    }

    /// Before an input: a UE without a running procedure moves to a CPF that fits it better.
    pub(super) fn move_to_its_kind(&mut self, now: Instant, ue: UeId, out: &mut Outbox) {
        if !self.rings.has_kinds() || self.moves.ues.contains_key(&ue) {
            return;
        }
        if let Some(since) = self.kinds.given_up.get(&ue) {
            if now.since(*since) < TRIED_AGAIN_AFTER {
                return;
            }
            self.kinds.given_up.remove(&ue);
        }
        let Some(ledger) = self.ledgers.get(&ue).filter(|ledger| ledger.rests()) else { return };
        let (primary, _) = ledger.assignment();
        let holders = ledger.backups().filter(|cpf| ledger.holds(*cpf));
        let (region, kind) = (self.region(ue), self.kind(ue));
        if let Some(to) = self.rings.better(region, ue, kind, primary, holders, &self.loads) {
            self.begin_to_move(now, ue, to, out);
        }
    }

    /// A CPF is sent an input.
    pub(super) fn counts_asked(&mut self, now: Instant, ue: UeId, clock: u64) {
        if self.rings.canary().is_some() {
            self.kinds.asked.entry((ue, clock)).or_insert(now);
        }
    }

    /// A CPF has answered an input, and its outputs leave.
    pub(super) fn counts_answered(
        &mut self,
        now: Instant,
        by: CpfId,
        (ue, clock): (UeId, u64),
        batch: &Batch,
    ) {
        if self.rings.canary().is_none() {
            return;
        }
        let Some(code) = self.code.get(&by) else { return };
        let asked = self.kinds.asked.remove(&(ue, clock));
        let figures = self.kinds.figures.entry(*code).or_default();
        asked.into_iter().for_each(|asked| figures.answers.add(now.since(asked)));
        for event in &batch.events {
            match event {
                Event::Completed { .. } => figures.completed += 1,
                Event::Refused { .. } => figures.failed += 1,
                _ => {}
            }
        }
    }

    /// A UE is discarded: its CPF has failed it.
    pub(super) fn counts_discarded(&mut self, ue: UeId) {
        let by = self.ledgers.get(&ue).map(|ledger| ledger.assignment().0);
        self.counts_failure(by, |figures| figures.failed += 1);
    }

    /// A CPF is lost.
    pub(super) fn counts_lost(&mut self, cpf: CpfId) {
        self.counts_failure(Some(cpf), |figures| figures.cpfs_lost += 1);
    }

    fn counts_failure(&mut self, by: Option<CpfId>, add: impl FnOnce(&mut VersionFigures)) {
        if self.rings.canary().is_some()
            && let Some(code) = by.and_then(|cpf| self.code.get(&cpf))
        {
            add(self.kinds.figures.entry(*code).or_default());
        }
    }

    /// What CPFs have done since the canary began, by their code versions.
    fn version_figures(&self) -> BTreeMap<CodeVersion, VersionFigures> {
        let mut figures = self.kinds.figures.clone();
        for (cpf, code) in self.code.iter().filter(|(cpf, _)| self.trusted.contains(cpf)) {
            figures.entry(*code).or_default().ues += self.loads.of(*cpf).ues;
        }
        figures
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// The rings have changed: other UEs may be listed, and another canary begins with new figures. `before`: the former canary's code.
    pub(super) fn canary_changed(&mut self, before: Option<CodeVersion>) {
        let Service::Region(cpfs) = &mut self.service else { return };
        let canary = cpfs.rings.canary();
        if canary.map(|canary| canary.code) != before {
            cpfs.kinds.begin();
        }
        let listed = cpfs.rings.canary().into_iter().flat_map(|canary| canary.listed());
        cpfs.kinds.listed = listed.filter_map(|supi| self.directory.registered(supi)).collect();
    }

    /// The UDM has answered a UE that registers as this subscriber's.
    pub(super) fn subscriber_known(&mut self, ue: UeId, registers: Option<Supi>, answer: &UdmAnswer) {
        let (Service::Region(cpfs), Some(supi), UdmAnswer::Registered(Ok(subscription))) =
            (&mut self.service, registers, answer)
        else {
            return;
        };
        if cpfs.rings.canary().is_some_and(|canary| canary.lists(supi)) {
            cpfs.kinds.listed.insert(ue);
        }
        let own = cpfs.rings.slices().iter().find(|slice| subscription.slice(**slice).is_some());
        match own.copied() {
            Some(slice) => drop(cpfs.kinds.slices.insert(ue, slice)),
            None => drop(cpfs.kinds.slices.remove(&ue)),
        }
    }

    /// What the CPFs of each code version have done since the canary began; nothing without one.
    pub fn version_figures(&self) -> BTreeMap<CodeVersion, VersionFigures> {
        match &self.service {
            Service::Region(cpfs) if cpfs.rings.canary().is_some() => cpfs.version_figures(),
            _ => BTreeMap::new(),
        }
    }

    /// The code version of the canary.
    pub fn canary_code(&self) -> Option<CodeVersion> {
        match &self.service {
            Service::Region(cpfs) => cpfs.rings.canary().map(|canary| canary.code),
            Service::Here(_) => None,
        }
    }

    /// The load of a CPF.
    pub fn load_of(&self, cpf: CpfId) -> CpfLoad {
        match &self.service {
            Service::Region(cpfs) => cpfs.loads.of(cpf),
            Service::Here(_) => CpfLoad::default(),
        }
    }

    /// Whether a UE is one of the canary's.
    pub fn is_of_canary(&self, ue: UeId) -> bool {
        matches!(&self.service, Service::Region(cpfs) if cpfs.kind(ue).canary)
    }

    /// The code version of a CPF.
    pub fn code_of(&self, cpf: CpfId) -> Option<CodeVersion> {
        match &self.service {
            Service::Region(cpfs) => cpfs.code.get(&cpf).copied(),
            Service::Here(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_an_eighth() {
        let mut times = AnswerTimes::default();
        assert_eq!((times.permille(500), times.count()), (None, 0));
        (1..=1000).for_each(|us| times.add(Duration::from_micros(us)));
        for share in [1u64, 10, 100, 500, 990, 1000] {
            let got = times.permille(share).unwrap().as_micros() as u64;
            assert!(got >= share && got * 8 <= share * 9 + 8, "{share}: {got}");
        }
        times.add(Duration::from_secs(100_000));
        assert_eq!(times.count(), 1001);
        assert!(times.steps.len() <= STEPS_MAX);
    }
}
