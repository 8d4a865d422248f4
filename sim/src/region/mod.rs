//! The CPFs of the simulated region: their links, and how they are lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_control::config::Config;
use whimbrel_control::{Envelope, UeContext, UeId};
use whimbrel_ids::{Instant, SNssai};
use whimbrel_resilience::cta_replica::LinkEnd;
use whimbrel_resilience::link::{CpfReport, PeerMessage};
use whimbrel_resilience::region::{Canary, GnbRegions, Region, Regions, Rings};
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{
    CodeVersion, CpfOutbox, LogLimits, ReplaySandbox, ReplicatedCpf, ToReplaySandbox, Trial, TrialOutcome,
};

use crate::Sim;
use crate::builder::rest_after_each_input;

mod faults;
mod link;
mod membership;

pub use faults::{CpfCut, CpfLoss};
use faults::{Poison, spoil};
pub(crate) use link::RegionMessage;
pub use membership::CanaryStep;

/// Until another replica of a UE replaces a lost one: the turn of the scan and a state in flight take some milliseconds, a takeover of the
/// CTA between them some more.
const BACKED_AFTER: Duration = Duration::from_millis(100);

/// UEs that had to register again because no replica could take over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostUes {
    /// All holders of the UE's state were lost before another one could get it.
    pub lost_all_holders: u64,
    /// A replica should have been able to take over.
    pub unexplained: u64,
}

fn sandbox(config: &Arc<Config>) -> ReplaySandbox {
    let mut sandbox = ReplaySandbox::default();
    let reported = sandbox.handle(ToReplaySandbox::Configure(config.clone()), |_, _| {});
    reported.expect("no UE's state is in it");
    sandbox
}

/// The CTAs and CPFs of a region, with the network between them.
pub(crate) struct Cluster {
    members: BTreeMap<CpfId, ReplicatedCpf>,
    /// The CPFs' ends of the links to the CTA.
    pub(crate) ends: BTreeMap<CpfId, LinkEnd<CpfReport>>,
    regions: Regions,
    region: Region,
    areas: GnbRegions,
    replicas: usize,
    /// What the CTA stores of UEs' logs.
    pub(crate) logs: LogLimits,
    /// UEs rest after each input.
    resting: bool,
    /// Links keep the order of messages: the next one arrives no earlier than this.
    ordered: BTreeMap<(Option<CpfId>, Option<CpfId>), Instant>,
    /// Messages that CPFs have taken.
    taken: u64,
    losses: Vec<(u64, CpfLoss)>,
    /// At which messages the CPF that takes them is cut off, and for how long.
    cuts_at: Vec<(u64, CpfCut, Duration)>,
    /// Links that pass nothing, and until when. The CTA has no number; the lower end first.
    cut_until: BTreeMap<(Option<CpfId>, Option<CpfId>), Instant>,
    /// Those that were drained and have left.
    left: Vec<CpfId>,
    /// When each joined, and when the CTA should have detected its loss.
    came: BTreeMap<CpfId, Instant>,
    gone: BTreeMap<CpfId, Instant>,
    /// Of those that were excluded because their link to the CTA was cut: since when it passed nothing.
    silent_since: BTreeMap<CpfId, Instant>,
    lost_ues: LostUes,
    /// The regions of those that were lost or have left and have not been replaced.
    vacant: Vec<Region>,
    /// At which messages CPFs were lost, and how often.
    pub(crate) lost_at: BTreeMap<&'static str, u64>,
    /// Each time that so many messages have been taken, all UEs move to another CPF.
    unrest: Option<u64>,
    poison: Option<Poison>,
    /// CPFs at which states arrive that cannot be read.
    spoilt: Vec<CpfId>,
    /// A fault that is planted in all states that CPFs send each other.
    planted: Option<fn(&mut UeContext)>,
    /// Pairs of CPFs whose messages are held, and these messages.
    stuck: BTreeMap<(CpfId, CpfId), Vec<PeerMessage>>,
    /// Of a thousand messages between CPFs so many are lost, which ends the link; the links that have ended, and when the last one was there again.
    loses: u64,
    broken: BTreeSet<(CpfId, CpfId)>,
    reached: Option<Instant>,
    /// Whole states, deltas and requests for states that CPFs have sent one another.
    exchanged: [u64; 3],
    /// The replay sandbox of the CPFs; `None` if they have none.
    sandbox: Option<ReplaySandbox>,
    /// Inputs that were run.
    ran: u64,
    /// Each time that so many inputs were run, one CPF is drained and another joins.
    turnover: Option<u64>,
    /// When CPFs have taken so many messages, others join that run this code version.
    upgrade: Option<(u64, CodeVersion)>,
    /// The canary under way, and what becomes of it when CPFs have taken so many messages.
    canary: Option<Canary>,
    canary_steps: Vec<(u64, CanaryStep)>,
    /// Slices whose UEs have CPFs of their own.
    slices: Vec<SNssai>,
    /// The CPF that reuses a NAS COUNT in its next protected answer.
    forger: Option<CpfId>,
    /// Messages in flight.
    pub(crate) under_way: usize,
    /// The number of the newest CPF.
    newest: u16,
}

impl Cluster {
    pub(crate) fn new(config: &Arc<Config>, cpfs: u16, replicas: usize) -> Self {
        let region: Region = "coast/home".parse().expect("a region's name");
        let places = vec![region.clone(); cpfs.into()];
        Self::spread(config, region, &places, GnbRegions::default(), replicas)
    }

    /// A CPF in each of these regions, numbered from 1, of a CTA in `region`.
    pub(crate) fn spread(
        config: &Arc<Config>,
        region: Region,
        places: &[Region],
        areas: GnbRegions,
        replicas: usize,
    ) -> Self {
        let cpfs = places.len() as u16;
        let mut known: Vec<Region> = places.iter().chain(areas.regions()).chain([&region]).cloned().collect();
        known.sort();
        known.dedup();
        let mut regions = Regions::new(known).expect("regions that may be beside each other");
        let members = (1..).map(CpfId).zip(places).map(|(id, at)| {
            regions.join(id, at).expect("each comes once");
            (id, ReplicatedCpf::new(config.clone()))
        });
        Self {
            members: members.collect(),
            areas,
            ends: (1..=cpfs).map(|id| (CpfId(id), LinkEnd::default())).collect(),
            regions,
            region,
            replicas,
            logs: LogLimits::default(),
            resting: false,
            ordered: BTreeMap::new(),
            taken: 0,
            losses: Vec::new(),
            cuts_at: Vec::new(),
            cut_until: BTreeMap::new(),
            left: Vec::new(),
            came: BTreeMap::new(),
            gone: BTreeMap::new(),
            silent_since: BTreeMap::new(),
            lost_ues: LostUes::default(),
            vacant: Vec::new(),
            lost_at: BTreeMap::new(),
            unrest: None,
            poison: None,
            spoilt: Vec::new(),
            planted: None,
            stuck: BTreeMap::new(),
            loses: 0,
            broken: BTreeSet::new(),
            reached: None,
            exchanged: [0; 3],
            sandbox: Some(sandbox(config)),
            turnover: None,
            upgrade: None,
            canary: None,
            canary_steps: Vec::new(),
            slices: Vec::new(),
            ran: 0,
            forger: None,
            under_way: 0,
            newest: cpfs,
        }
    }

    /// The same, whose CTA stores this of logs.
    pub(crate) fn with_logs(self, logs: LogLimits) -> Self {
        Self { logs, ..self }
    }

    /// As many CPFs, without UEs.
    pub(crate) fn restarted(self, config: &Arc<Config>) -> Self {
        Self { logs: self.logs, ..Self::new(config, self.newest, self.replicas) }.with_resting(self.resting)
    }

    /// None yet: others join with numbers that none has had.
    pub(crate) fn restarted_without_cpfs(self, config: &Arc<Config>) -> Self {
        Self { logs: self.logs, newest: self.newest, ..Self::new(config, 0, self.replicas) }
            .with_resting(self.resting)
    }

    /// No CPF has joined yet, or none is left.
    pub(crate) fn awaits_cpfs(&self) -> bool {
        self.members.is_empty()
    }

    /// The same, with UEs that rest after each input.
    pub(crate) fn with_resting(mut self, resting: bool) -> Self {
        self.resting = resting;
        self.members.values_mut().filter(|_| resting).for_each(|cpf| rest_after_each_input(cpf.cpf_mut()));
        self
    }

    /// A CPF without UEs.
    fn new_member(&self, config: Arc<Config>) -> ReplicatedCpf {
        let mut cpf = ReplicatedCpf::new(config);
        if self.resting {
            rest_after_each_input(cpf.cpf_mut());
        }
        cpf
    }

    /// Whether a CPF's output shows that it ran the poisoned input.
    fn ran_poison(&self, out: &CpfOutbox) -> bool {
        let ran = |up: &CpfReport| match up {
            CpfReport::Ran { ue, clock, .. } => Some((*ue, *clock)),
            _ => None,
        };
        let poison = self.poison.as_ref().and_then(|p| p.input);
        poison.is_some_and(|input| out.up.iter().any(|up| ran(up) == Some(input)))
    }

    /// Runs a trial in the replay sandbox.
    fn try_inputs(&mut self, trial: Trial) -> TrialOutcome {
        let Some(sandbox) = &mut self.sandbox else { return TrialOutcome::Passed };
        let poison = self.poison.as_ref().and_then(|p| p.input);
        let ends = |input: &Envelope| Some((input.ue, input.clock)) == poison;
        if let Some(before) = trial.inputs.iter().position(ends) {
            return TrialOutcome::CrashedAfter(before as u32);
        }
        let (id, mut octets) = (trial.id, Vec::new());
        ToReplaySandbox::Try(trial).write(&mut octets);
        let message = ToReplaySandbox::read(&octets).expect("it was written so");
        let mut survived = 0;
        match sandbox.handle(message, |_, inputs| survived = inputs) {
            Ok(Some(tried)) if tried == id => TrialOutcome::Passed,
            _ => TrialOutcome::CrashedAfter(survived),
        }
    }

    /// How states change on their way to a CPF.
    fn changes_to(&self, to: CpfId) -> Option<fn(&mut UeContext)> {
        if self.spoilt.contains(&to) { Some(spoil) } else { self.planted }
    }

    /// The link between two passes nothing until then.
    pub(crate) fn cut(&mut self, one: Option<CpfId>, other: Option<CpfId>, until: Instant) {
        self.cut_until.insert((one.min(other), one.max(other)), until);
    }

    /// A CPF that has been cut off for so long is excluded.
    pub(crate) fn excludes_silent(&mut self, cpf: CpfId, since: Instant) {
        self.silent_since.insert(cpf, since);
    }

    pub(crate) fn end_cuts(&mut self) {
        self.cut_until.clear();
        self.cuts_at.clear();
    }

    /// When the link between two passes messages: now, unless it is cut.
    fn passes_at(&self, (one, other): (Option<CpfId>, Option<CpfId>), now: Instant) -> Instant {
        self.cut_until.get(&(one.min(other), one.max(other))).map_or(now, |until| now.max(*until))
    }

    /// Whether the CTA hears nothing of a CPF.
    pub(crate) fn is_cut_off(&self, cpf: CpfId, now: Instant) -> bool {
        !self.members.contains_key(&cpf) || self.passes_at((None, Some(cpf)), now) > now
    }

    /// The clock of the state that a replica has of a UE.
    pub(crate) fn clock_held(&self, by: CpfId, ue: UeId) -> Option<u64> {
        self.members.get(&by)?.holds(ue)
    }

    /// Whether one has neither been lost nor left.
    pub(crate) fn is_there(&self, cpf: CpfId) -> bool {
        self.regions.region_of(cpf).is_some()
    }

    /// Whether a UE that is lost now could not be kept: another holder of its state was lost just before or cut off, or no other CPF has been there for
    /// long enough to have it, or a link has lost it and is not there again.
    fn lost_all_holders(&self) -> bool {
        let Some((id, last)) = self.gone.iter().max_by_key(|(_, at)| **at) else { return false };
        // A CPF that was cut off could not take over from another one that was lost before it was excluded.
        let last = self.silent_since.get(id).copied().unwrap_or(*last);
        let just_before = |at: Instant| last.since(at) < BACKED_AFTER;
        let broken = !self.broken.is_empty() || self.reached.is_some_and(just_before);
        let lost = self.gone.values().filter(|at| just_before(**at)).count();
        let has_come = |cpf: &CpfId| self.came.get(cpf).is_none_or(|at| !just_before(*at));
        let others =
            self.rings().members().filter(|cpf| self.members.contains_key(cpf) && has_come(cpf)).count();
        self.replicas == 0 || broken || lost > self.replicas || others == 0
    }

    pub(crate) fn rings(&self) -> Rings {
        let rings = self.regions.rings_with(&self.region, self.areas.clone(), self.replicas);
        rings
            .expect("the regions are known")
            .with_canary(self.canary.clone())
            .with_slices(self.slices.clone())
    }
}

impl Sim {
    /// The contexts of all UEs, at all CPFs.
    pub fn contexts(&self) -> impl Iterator<Item = &UeContext> {
        let region = self.control.cluster.iter().flat_map(|c| &c.members);
        let of = move |(id, member): (&CpfId, _)| {
            let (id, member): (CpfId, &ReplicatedCpf) = (*id, member);
            member.cpf().contexts().filter(move |p| self.cta().served_by(p.id) == Some(id))
        };
        self.cta().contexts().chain(region.flat_map(of))
    }

    /// The context of a UE, at all CPFs.
    pub fn context(&self, id: UeId) -> Option<&UeContext> {
        let member = self.cta().served_by(id).and_then(|by| self.control.cluster.as_ref()?.members.get(&by));
        self.cta().context(id).or_else(|| member?.cpf().context(id))
    }

    /// How many messages the region's CPFs have taken.
    pub fn links_taken(&self) -> u64 {
        self.control.cluster.as_ref().map_or(0, |c| c.taken)
    }

    /// How many CPFs are alive and not taken for dead.
    pub fn cpfs(&self) -> usize {
        self.control
            .cluster
            .as_ref()
            .map_or(0, |c| c.rings().members().filter(|id| c.members.contains_key(id)).count())
    }

    /// The CPFs that may serve UEs.
    pub(crate) fn members(&self) -> impl Iterator<Item = CpfId> {
        self.control.cluster.iter().flat_map(|c| c.rings().members().collect::<Vec<_>>())
    }

    /// Whether this CPF is there: it has joined, and its loss has not been detected.
    pub fn has_cpf(&self, cpf: CpfId) -> bool {
        self.control.cluster.as_ref().is_some_and(|c| c.is_there(cpf))
    }

    /// The CTA discards a UE for which no replica can take over.
    pub(crate) fn ue_is_lost(&mut self) {
        let Some(cluster) = &mut self.control.cluster else { return };
        match cluster.lost_all_holders() {
            true => cluster.lost_ues.lost_all_holders += 1,
            false => cluster.lost_ues.unexplained += 1,
        }
    }

    /// The UEs that had to register again because no replica could take over.
    pub fn lost_ues(&self) -> LostUes {
        self.control.cluster.as_ref().map_or(LostUes::default(), |c| c.lost_ues)
    }

    /// How many states are held by replicas; those at CPFs that are taken for dead do not count.
    pub fn backed(&self) -> usize {
        let Some(cluster) = &self.control.cluster else { return 0 };
        let members: Vec<CpfId> = cluster.rings().members().collect();
        members.iter().filter_map(|id| cluster.members.get(id)).map(ReplicatedCpf::backed).sum()
    }

    /// How many checkpoints primaries have in memory beside the contexts of their UEs.
    pub fn checkpoints_of_primaries(&self) -> usize {
        let members = self.control.cluster.iter().flat_map(|cluster| cluster.members.values());
        members.map(ReplicatedCpf::checkpoints_of_its_ues).sum()
    }

    /// Whether no message is in flight within the region.
    pub(crate) fn region_rests(&self) -> bool {
        self.control.cluster.as_ref().is_none_or(|c| c.under_way == 0) && !self.cta().is_failing_over()
    }
}
