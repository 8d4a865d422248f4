//! The CPFs of the simulated region: their links, and how they are lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_control::config::Config;
use whimbrel_control::{Checkpoint, Envelope, Payload, UeContext, UeId};
use whimbrel_ids::{Instant, PlmnId, SNssai, Tac, Tai};
use whimbrel_resilience::cta_replica::LinkEnd;
use whimbrel_resilience::link::{CpfCommand, CpfReport, PeerMessage, State, ToCpf, ToCta, ToPeer};
use whimbrel_resilience::region::{Areas, Canary, CanaryUes, CpfState, Region, Regions, Rings};
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{
    CodeVersion, CpfOutbox, Input, LogLimits, ReplaySandbox, ReplicatedCpf, ToReplaySandbox, Trial,
    TrialOutcome,
};

use crate::builder::rest_after_each_input;
use crate::partition::{Cut, Survivor};
use crate::{CtaLoss, InFlight, Sim};

/// Least and greatest latency of a link, in microseconds.
const LINK_LATENCY_MICROS: (u64, u64) = (10, 60);
/// The duration of a trial in the replay sandbox, and of one that ends the sandbox.
const TRIED_AFTER: Duration = Duration::from_micros(200);
const GIVEN_UP_AFTER: Duration = Duration::from_millis(500);
/// How long a poisoned input hangs before its CPF is ended; later messages wait there meanwhile.
const HANGS_FOR: Duration = Duration::from_millis(250);
/// From a loss to its detection by the CTA: a connection that closes.
const DETECTED_AFTER: Duration = Duration::from_micros(500);
/// From the end of a link between two CPFs to the next one.
const REACHED_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Until another replica of a UE replaces a lost one: the turn of the scan and a state in flight take some milliseconds, a takeover of the
/// CTA between them some more.
const BACKED_AFTER: Duration = Duration::from_millis(100);

/// A message on a link of the region.
#[derive(Debug)]
pub(crate) enum Link {
    /// With the number of its messages that need not be sent again.
    Down {
        to: CpfId,
        taken: u64,
        message: CpfCommand,
    },
    /// With the number of messages that it has received.
    Up {
        from: CpfId,
        has: u64,
        message: CpfReport,
    },
    Peer(CpfId, CpfId, PeerMessage),
    /// The CTA detects the loss of a CPF.
    Lost(CpfId),
    /// A CPF gets the outcome of a trial.
    Tried(CpfId, u64, TrialOutcome),
    /// A link between two CPFs has ended, and a new one is there.
    Reached(CpfId, CpfId),
    /// One has not answered the CTA for too long.
    Excluded(CpfId),
}

impl Link {
    /// The message as it arrives: decoded from its octets.
    fn through_octets(self) -> Self {
        let mut octets = Vec::new();
        match self {
            Self::Down { to, taken, message } => {
                ToCpf::Command(message).write(&mut octets);
                let Ok(ToCpf::Command(message)) = ToCpf::read(&octets) else {
                    unreachable!("it was written so")
                };
                Self::Down { to, taken, message }
            }
            Self::Up { from, has, message } => {
                ToCta::Report(message).write(&mut octets);
                let Ok(ToCta::Report(message)) = ToCta::read(&octets) else {
                    unreachable!("it was written so")
                };
                Self::Up { from, has, message }
            }
            Self::Peer(from, to, message) => {
                ToPeer { life: 0, from, message }.write(&mut octets);
                let ToPeer { from, message, .. } = ToPeer::read(&octets).expect("it was written so");
                Self::Peer(from, to, message)
            }
            inner @ (Self::Lost(_) | Self::Tried(..) | Self::Reached(..) | Self::Excluded(_)) => inner,
        }
    }

    /// Its kind, for the report.
    fn name(&self) -> &'static str {
        match self {
            Self::Down { message, .. } => match message {
                CpfCommand::Run(_) | CpfCommand::RunLogged(_) => "input",
                CpfCommand::RunAfterTrial { .. } => "inputs to try",
                CpfCommand::Serve { .. } => "assignment",
                CpfCommand::Outdated { .. } => "notice of an outdated state",
                CpfCommand::Released(_) => "notice of released outputs",
                CpfCommand::Forget { .. } => "notice that a UE is gone",
                CpfCommand::Configure(_) => "configuration",
                CpfCommand::Hold { .. } => "restored state",
                CpfCommand::Store { .. } => "order to store UEs",
            },
            Self::Peer(_, _, message) => match message {
                PeerMessage::State(_) => "state",
                PeerMessage::Delta { .. } => "delta",
                PeerMessage::Fetch { .. } => "request of a state",
            },
            Self::Tried(..) => "outcome of a trial",
            Self::Reached(..) => "new link to another",
            Self::Up { .. } | Self::Lost(_) | Self::Excluded(_) => "message to the CTA",
        }
    }

    /// The two ends: the CTA has no number.
    fn ends(&self) -> (Option<CpfId>, Option<CpfId>) {
        match *self {
            Self::Down { to, .. } => (None, Some(to)),
            Self::Up { from, .. } => (Some(from), None),
            Self::Peer(from, to, _) => (Some(from), Some(to)),
            Self::Lost(cpf) | Self::Excluded(cpf) => (Some(cpf), None),
            Self::Tried(cpf, ..) | Self::Reached(cpf, _) => (Some(cpf), Some(cpf)),
        }
    }
}

/// An input that ends every process that runs it.
#[derive(Debug)]
struct Poison {
    /// It is the n-th input that a CPF gets.
    nth: u64,
    handed: u64,
    input: Option<(UeId, u64)>,
    /// It is an INITIAL UE MESSAGE, which may be of another UE.
    first: bool,
}

impl Poison {
    fn handed(&mut self, input: &Envelope) {
        self.handed += 1;
        if self.handed == self.nth {
            self.input = Some((input.ue, input.clock));
            self.first = matches!(input.payload, Payload::InitialUeMessage { .. });
        }
    }
}

/// How a CPF is lost, at the n-th message that one takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpfLoss {
    /// It dies before it has taken the message.
    BeforeInput,
    /// It dies right after it has taken the message, and its output is lost.
    BeforeOutput,
    /// It dies right after; its output arrives.
    AfterOutput,
    /// It is alive and taken for dead. Nothing that it does from then on may have an effect.
    FalseAlarm,
}

/// What a CPF is cut off from, at the n-th message that one takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpfCut {
    /// From the CTA.
    FromCta,
    /// From all other CPFs.
    FromCpfs,
    /// From all of them.
    FromAll,
}

impl CpfCut {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::FromCta, Self::FromCpfs, Self::FromAll];
}

/// UEs that had to register again because no replica could take over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostUes {
    /// All holders of the UE's state were lost before another one could get it.
    pub lost_all_holders: u64,
    /// A replica should have been able to take over.
    pub unexplained: u64,
}

impl CpfLoss {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::BeforeInput, Self::BeforeOutput, Self::AfterOutput, Self::FalseAlarm];
}

/// More tracking areas than a list can name.
fn spoil(ue: &mut UeContext) {
    ue.amf.location.registration_area =
        vec![Tai { plmn: PlmnId::TEST, tac: Tac::new(1).expect("24 bits") }; 17].into();
}

/// A state that was changed on its way.
fn changed(state: State, change: fn(&mut UeContext)) -> State {
    let mut ue = state.state.context().expect("it came from a member");
    change(&mut ue);
    State { state: Checkpoint::of(&ue).expect("it rests"), ..state }
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
    areas: Areas,
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
        Self::spread(config, region, &places, Areas::default(), replicas)
    }

    /// A CPF in each of these regions, numbered from 1, of a CTA in `region`.
    pub(crate) fn spread(
        config: &Arc<Config>,
        region: Region,
        places: &[Region],
        areas: Areas,
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

/// A step of a canary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CanaryStep {
    /// So many CPFs of this code version join, for these UEs.
    Begin(u16, CodeVersion, CanaryUes),
    /// It serves other UEs from now on.
    Serve(CanaryUes),
    /// All UEs are its, and the CPFs of the version before are drained.
    Promote,
    /// Its CPFs are drained.
    RollBack,
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

    /// No process is lost or cut off any more.
    pub fn stop_losses(&mut self) {
        self.lose_cpfs_at(&[]);
        self.lose_cta_at(0, CtaLoss::BeforeInput);
        self.cut_cta_at(0, Survivor::Cta, Duration::ZERO);
        self.stop_upf_losses();
        self.end_partitions();
    }

    /// How many messages the region's CPFs have taken.
    pub fn links_taken(&self) -> u64 {
        self.control.cluster.as_ref().map_or(0, |c| c.taken)
    }

    /// The CPF that takes the n-th message from the beginning on is lost in this way.
    pub fn lose_cpf_at(&mut self, message: u64, how: CpfLoss) {
        self.lose_cpfs_at(&[(message, how)]);
    }

    /// The CPFs that take these messages are lost in these ways, one after the other.
    pub fn lose_cpfs_at(&mut self, losses: &[(u64, CpfLoss)]) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.losses = losses.to_vec();
        }
    }

    /// The CPF that takes the n-th message from the beginning on is cut off for a while.
    pub fn cut_cpfs_at(&mut self, cuts: &[(u64, CpfCut, Duration)]) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.cuts_at = cuts.to_vec();
        }
    }

    /// A CPF is cut off for a while.
    pub fn cut_off(&mut self, cpf: CpfId, what: CpfCut, time: Duration) {
        if what != CpfCut::FromCpfs {
            self.cut(Cut::CtaCpf(cpf), time);
        }
        if what != CpfCut::FromCta {
            for other in self.members().filter(|other| *other != cpf).collect::<Vec<_>>() {
                self.cut(Cut::CpfCpf(cpf, other), time);
            }
        }
    }

    /// A CPF dies now; what it has sent arrives.
    pub fn lose_cpf(&mut self, cpf: CpfId) {
        self.kill_cpf(cpf, true, Duration::ZERO);
    }

    /// A UE is to be served by another CPF.
    pub fn move_context(&mut self, ue: UeId, to: CpfId) {
        self.cta_input(Input::Move(ue, to));
    }

    /// All UEs are to move to another CPF each time that these have taken so many messages.
    pub fn move_contexts_every(&mut self, messages: u64) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.unrest = Some(messages);
        }
    }

    fn move_contexts(&mut self) {
        let Some(cluster) = &self.control.cluster else { return };
        let members: Vec<CpfId> = cluster.rings().members().collect();
        let ues: Vec<UeId> = self.contexts().map(|p| p.id).collect();
        for ue in ues {
            let at = members.iter().position(|id| self.cta().served_by(ue) == Some(*id));
            if let Some(to) = at.and_then(|at| members.iter().cycle().nth(at + 1)) {
                self.move_context(ue, *to);
            }
        }
    }

    /// A message from a CPF to the CTA, which it did not send by itself.
    pub fn inject_from_cpf(&mut self, from: CpfId, message: CpfReport) {
        self.cta_input(Input::Cpf(from, message));
    }

    /// CPFs may be faulty: their UEs may be in any state, and are not checked after each step.
    pub fn has_faulty_cpfs(&mut self) {
        self.observer.has_faulty_cpfs = true;
        self.recorder().has_faulty_cpfs = true;
    }

    /// A message from a CPF to another one, which it did not send by itself.
    pub fn inject_between_cpfs(&mut self, from: CpfId, to: CpfId, message: PeerMessage) {
        self.link(Link::Peer(from, to, message));
    }

    /// The n-th input from the beginning on that a CPF gets ends every process that runs it.
    pub fn poison(&mut self, nth: u64) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.poison = Some(Poison { nth, handed: 0, input: None, first: false });
        }
    }

    /// The states that arrive at this CPF from now on have the right UE and clock, and cannot be read.
    pub fn spoil_states_to(&mut self, cpf: CpfId) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.spoilt.push(cpf);
        }
    }

    /// A fault for tests of the simulation: states that CPFs send each other change in this way from now on.
    pub(crate) fn plant_in_states(&mut self, change: fn(&mut UeContext)) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.planted = Some(change);
        }
    }

    /// Messages of a CPF to another one are held from now on.
    pub fn hold_between_cpfs(&mut self, from: CpfId, to: CpfId) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.stuck.entry((from, to)).or_default();
        }
    }

    /// The next protected answer of a CPF uses the first COUNT again.
    pub fn repeat_a_count(&mut self, cpf: CpfId) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.forger = Some(cpf);
        }
    }

    /// So many in a thousand messages of CPFs to others are lost.
    pub fn lose_between_cpfs(&mut self, permille: u64) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.loses = permille;
        }
    }

    /// How many whole states CPFs have sent each other, how many deltas, and how often one asked for a state.
    pub fn exchanged(&self) -> [u64; 3] {
        self.control.cluster.as_ref().map_or([0; 3], |c| c.exchanged)
    }

    /// The messages that were held are delivered. Gives their number.
    pub fn release_between_cpfs(&mut self, from: CpfId, to: CpfId) -> usize {
        let Some(cluster) = &mut self.control.cluster else { return 0 };
        let late = cluster.stuck.remove(&(from, to)).unwrap_or_default();
        let number = late.len();
        late.into_iter().for_each(|message| self.link(Link::Peer(from, to, message)));
        number
    }

    /// How many inputs CPFs have got since [`Sim::poison`], replays included.
    pub fn handed(&self) -> u64 {
        self.control.cluster.as_ref().and_then(|c| c.poison.as_ref()).map_or(0, |p| p.handed)
    }

    /// Whether the poisoned input was an INITIAL UE MESSAGE, which may be of another UE than the one whose context is looked up.
    pub fn poison_is_initial_message(&self) -> bool {
        self.control.cluster.as_ref().and_then(|c| c.poison.as_ref()).is_some_and(|p| p.first)
    }

    /// CPFs run suspect inputs without a trial.
    pub fn without_replay_sandboxes(&mut self) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.sandbox = None;
        }
    }

    /// How many CPFs are alive and not taken for dead.
    pub fn cpfs(&self) -> usize {
        self.control
            .cluster
            .as_ref()
            .map_or(0, |c| c.rings().members().filter(|id| c.members.contains_key(id)).count())
    }

    /// A CPF is drained.
    pub fn drain_cpf(&mut self, cpf: CpfId) {
        let Some(cluster) = &mut self.control.cluster else { return };
        cluster.regions.set_state(cpf, CpfState::Draining);
        let rings = cluster.rings();
        self.cta_input(Input::Rings(rings));
    }

    /// Each time that CPFs have run so many inputs, one is drained and another joins.
    pub fn drain_cpfs_every(&mut self, inputs: u64) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.turnover = Some(inputs);
        }
    }

    /// A drained CPF has no UEs any more, and leaves.
    pub(crate) fn cpf_leaves(&mut self, cpf: CpfId) {
        let Some(cluster) = &mut self.control.cluster else { return };
        cluster.vacant.extend(cluster.regions.region_of(cpf).cloned());
        cluster.regions.leave(cpf);
        cluster.members.remove(&cpf);
        cluster.left.push(cpf);
        self.cta_input(Input::CpfLost(cpf));
    }

    /// Those that were drained and have left.
    pub fn left(&self) -> &[CpfId] {
        self.control.cluster.as_ref().map_or(&[], |c| &c.left)
    }

    /// Another CPF joins the region.
    pub fn add_cpf(&mut self) {
        if let Some(home) = self.control.cluster.as_ref().map(|c| c.region.clone()) {
            self.add_cpf_in(&home);
        }
    }

    /// Each CPF that was lost or has left is replaced, and those that were only taken for dead end.
    pub(crate) fn replace_cpfs(&mut self) {
        let Some(cluster) = &mut self.control.cluster else { return };
        let on_rings: BTreeSet<CpfId> = cluster.rings().members().collect();
        cluster.members.retain(|cpf, _| on_rings.contains(cpf));
        cluster.ends.retain(|cpf, _| on_rings.contains(cpf));
        for place in std::mem::take(&mut cluster.vacant) {
            self.add_cpf_in(&place);
        }
    }

    /// The CPFs that may serve UEs.
    pub(crate) fn members(&self) -> impl Iterator<Item = CpfId> {
        self.control.cluster.iter().flat_map(|c| c.rings().members().collect::<Vec<_>>())
    }

    /// Another CPF joins, which serves the UEs of this slice alone. Its number.
    pub fn add_cpf_of_slice(&mut self, slice: SNssai) -> Option<CpfId> {
        let cluster = self.control.cluster.as_mut()?;
        let id = CpfId(cluster.newest + 1);
        if !cluster.slices.contains(&slice) {
            cluster.slices.push(slice);
        }
        cluster.regions.serves_slice(id, Some(slice));
        self.add_cpf();
        Some(id)
    }

    /// Whether this CPF is there: it has joined, and its loss has not been detected.
    pub fn has_cpf(&self, cpf: CpfId) -> bool {
        self.control.cluster.as_ref().is_some_and(|c| c.is_there(cpf))
    }

    /// Another CPF joins in this region.
    pub fn add_cpf_in(&mut self, place: &Region) {
        let Some(cluster) = &mut self.control.cluster else { return };
        cluster.newest += 1;
        let id = CpfId(cluster.newest);
        cluster.regions.join(id, place).expect("it is new");
        let cpf = cluster.new_member(self.config.clone());
        cluster.members.insert(id, cpf);
        cluster.ends.insert(id, LinkEnd::default());
        cluster.came.insert(id, self.now);
        let rings = cluster.rings();
        self.cta_input(Input::Rings(rings));
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

    /// When CPFs have taken so many messages, each is replaced by one that runs this code version.
    pub fn upgrade_cpfs_at(&mut self, message: u64, code: CodeVersion) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.upgrade = Some((message, code));
        }
    }

    /// The new CPFs are on the rings from now on, and the former ones are drained.
    fn upgrade_cpfs(&mut self, code: CodeVersion) {
        let Some(cluster) = &mut self.control.cluster else { return };
        let former: Vec<CpfId> = cluster.rings().members().collect();
        for cpf in former {
            cluster.regions.set_state(cpf, CpfState::Draining);
            cluster.newest += 1;
            let id = CpfId(cluster.newest);
            cluster.regions.join(id, &cluster.region).expect("it is new");
            cluster.regions.runs(id, code);
            let cpf = cluster.new_member(self.config.clone()).of_code(code);
            cluster.members.insert(id, cpf);
            cluster.ends.insert(id, LinkEnd::default());
        }
        let rings = cluster.rings();
        self.cta_input(Input::Rings(rings));
    }

    /// When CPFs have taken so many messages, a canary takes this step.
    pub fn canary_at(&mut self, message: u64, step: CanaryStep) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.canary_steps.push((message, step));
        }
    }

    /// A canary takes this step.
    pub fn canary(&mut self, step: CanaryStep) {
        let Some(cluster) = &mut self.control.cluster else { return };
        if let CanaryStep::Begin(cpfs, code, ues) = &step {
            cluster.canary = Some(Canary { code: *code, ues: ues.clone() });
            for _ in 0..*cpfs {
                cluster.newest += 1;
                let id = CpfId(cluster.newest);
                cluster.regions.join(id, &cluster.region).expect("it is new");
                cluster.regions.runs(id, *code);
                let cpf = cluster.new_member(self.config.clone()).of_code(*code);
                cluster.members.insert(id, cpf);
                cluster.ends.insert(id, LinkEnd::default());
                cluster.came.insert(id, self.now);
            }
        }
        let Some(canary) = &mut cluster.canary else { return };
        let (code, promoted, rolled_back) =
            (canary.code, step == CanaryStep::Promote, step == CanaryStep::RollBack);
        canary.ues = match step {
            CanaryStep::Begin(_, _, ues) | CanaryStep::Serve(ues) => ues,
            CanaryStep::Promote => CanaryUes::Percent(100),
            CanaryStep::RollBack => CanaryUes::Percent(0),
        };
        let rings = cluster.rings();
        for cpf in rings.members() {
            let is_its = rings.code_of(cpf) == Some(code);
            if is_its && rolled_back || !is_its && promoted {
                cluster.regions.set_state(cpf, CpfState::Draining);
            }
        }
        let rings = cluster.rings();
        self.cta_input(Input::Rings(rings));
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

    pub(crate) fn link(&mut self, link: Link) {
        self.trace(|| format!("{:?} to {:?}: {}", link.ends().0, link.ends().1, link.name()));
        let (least, greatest) = LINK_LATENCY_MICROS;
        let latency = least + self.rng.below(greatest - least);
        let Some(cluster) = &mut self.control.cluster else { return };
        let link = match link {
            Link::Peer(from, to, message) => {
                cluster.exchanged[match message {
                    PeerMessage::State(_) => 0,
                    PeerMessage::Delta { .. } => 1,
                    PeerMessage::Fetch { .. } => 2,
                }] += 1;
                let cut = cluster.passes_at((Some(from), Some(to)), self.now) > self.now;
                if cut || cluster.loses > 0 && self.rng.chance(cluster.loses) {
                    if cluster.broken.insert((from, to)) {
                        self.link(Link::Reached(from, to));
                    }
                    return;
                }
                match cluster.stuck.get_mut(&(from, to)) {
                    Some(stuck) => return stuck.push(message),
                    None => Link::Peer(from, to, message),
                }
            }
            link => link,
        };
        if let (Some(poison), Link::Down { message: CpfCommand::RunLogged(input), .. }) =
            (&mut cluster.poison, &link)
        {
            poison.handed(&Envelope::from_flat(input.octets()).expect("it comes from a CTA"));
        }
        let passes_at = cluster.passes_at(link.ends(), self.now);
        let at = match link {
            Link::Lost(_) => self.now + DETECTED_AFTER,
            Link::Tried(_, _, TrialOutcome::Passed) => self.now + TRIED_AFTER,
            Link::Tried(_, _, TrialOutcome::CrashedAfter(_)) => self.now + GIVEN_UP_AFTER,
            Link::Reached(from, to) => {
                cluster.passes_at((Some(from), Some(to)), self.now).max(self.now + REACHED_AGAIN_AFTER)
            }
            _ => {
                let ordered = cluster.ordered.entry(link.ends()).or_insert(self.now);
                *ordered = (*ordered).max(passes_at + Duration::from_micros(latency));
                *ordered
            }
        };
        cluster.under_way += 1;
        self.send(at, InFlight::Link(link.through_octets()));
    }

    pub(crate) fn link_arrives(&mut self, link: Link) {
        let Some(cluster) = &mut self.control.cluster else { return };
        cluster.under_way -= 1;
        let to = match link {
            Link::Up { from, has, message } => {
                self.control.cta.confirmed(from, has);
                return self.cta_input(Input::Cpf(from, message));
            }
            Link::Excluded(cpf) => return self.exclude(cpf),
            Link::Lost(cpf) => {
                self.trace(|| format!("{cpf:?} is lost"));
                let Some(cluster) = &mut self.control.cluster else { return };
                cluster.vacant.extend(cluster.regions.region_of(cpf).cloned());
                cluster.gone.insert(cpf, self.now);
                let broken = cluster.broken.len();
                cluster.broken.retain(|(from, _)| *from != cpf);
                if cluster.broken.len() < broken {
                    cluster.reached = Some(self.now);
                }
                cluster.regions.leave(cpf);
                let rings = cluster.rings();
                self.cta_input(Input::Rings(rings));
                return self.cta_input(Input::CpfLost(cpf));
            }
            Link::Down { to, .. } | Link::Peer(_, to, _) | Link::Tried(to, ..) | Link::Reached(to, _) => to,
        };
        if !cluster.members.contains_key(&to) {
            return;
        }
        cluster.taken += 1;
        let loss = cluster.losses.iter().find(|(at, _)| *at == cluster.taken).map(|(_, how)| *how);
        let cut_off = cluster.cuts_at.iter().find(|(at, ..)| *at == cluster.taken).copied();
        let restless = cluster.unrest.is_some_and(|every| cluster.taken.is_multiple_of(every));
        let is_input = matches!(link, Link::Down { message: CpfCommand::Run(_), .. });
        cluster.ran += u64::from(is_input);
        let upgrade = cluster.upgrade.take_if(|(at, _)| *at == cluster.taken);
        let taken = cluster.taken;
        let canary: Vec<CanaryStep> =
            cluster.canary_steps.extract_if(.., |(at, _)| *at == taken).map(|(_, step)| step).collect();
        let turnover = cluster.turnover.is_some_and(|every| is_input && cluster.ran.is_multiple_of(every));
        if loss.is_some() {
            *cluster.lost_at.entry(link.name()).or_default() += 1;
        }
        let mut out = CpfOutbox::default();
        let changes = cluster.changes_to(to);
        let Some(member) = cluster.members.get_mut(&to) else { return };
        let end = cluster.ends.entry(to).or_default();
        if loss != Some(CpfLoss::BeforeInput) {
            match (link, changes) {
                (Link::Down { taken, message, .. }, _) => {
                    end.took();
                    end.confirmed(taken);
                    member.handle(message, &mut out);
                }
                (Link::Peer(from, _, PeerMessage::State(state)), Some(change)) => {
                    member.peer(from, PeerMessage::State(changed(state, change)), &mut out);
                }
                (Link::Peer(from, _, PeerMessage::Delta { delta, .. }), Some(_)) => {
                    let whole = PeerMessage::Fetch { ue: delta.ue_id(), clock: delta.clock() };
                    out.peers.push((from, whole));
                }
                (Link::Peer(from, _, message), _) => member.peer(from, message, &mut out),
                (Link::Tried(_, trial, became), _) => member.tried(trial, became, &mut out),
                (Link::Reached(from, to), _) => {
                    cluster.broken.remove(&(from, to));
                    cluster.reached = Some(self.now);
                    let mut last_sent = None;
                    while let Some(last) = member.peer_reconnected(to, last_sent, &mut out) {
                        last_sent = Some(last);
                    }
                }
                (Link::Up { .. } | Link::Lost(_) | Link::Excluded(_), _) => {}
            }
        }
        if cluster.forger == Some(to) {
            let ran = out.up.iter_mut().filter_map(|up| match up {
                CpfReport::Ran { batch, .. } => Some(batch),
                _ => None,
            });
            let mut counts = ran.flat_map(|b| &mut b.outputs).filter_map(|o| o.downlink_count.as_mut());
            if let Some(count) = counts.next() {
                (*count, cluster.forger) = (0, None);
            }
        }
        out.up.iter().for_each(|message| end.sent(message.clone()));
        let has = end.taken();
        if cluster.ran_poison(&out) {
            self.kill_cpf(to, false, HANGS_FOR);
            return;
        }
        let tried = std::mem::take(&mut out.trials).into_iter().map(|t| (t.id, cluster.try_inputs(t)));
        for (trial, became) in tried.collect::<Vec<_>>() {
            self.link(Link::Tried(to, trial, became));
        }
        if loss != Some(CpfLoss::BeforeOutput) {
            out.up.into_iter().for_each(|message| self.link(Link::Up { from: to, has, message }));
            out.peers.into_iter().for_each(|(peer, message)| self.link(Link::Peer(to, peer, message)));
        }
        match loss {
            Some(CpfLoss::FalseAlarm) => self.link(Link::Lost(to)),
            Some(how) => self.kill_cpf(to, how == CpfLoss::AfterOutput, Duration::ZERO),
            None => {}
        }
        if let Some((_, what, time)) = cut_off {
            self.cut_off(to, what, time);
        }
        if restless {
            self.move_contexts();
        }
        if let Some((_, code)) = upgrade {
            self.upgrade_cpfs(code);
        }
        canary.into_iter().for_each(|step| self.canary(step));
        if turnover {
            self.add_cpf();
            let oldest = self.control.cluster.as_ref().and_then(|c| c.rings().members().next());
            oldest.into_iter().for_each(|cpf| self.drain_cpf(cpf));
        }
    }

    /// A CPF stops, and its loss is detected after a while.
    fn kill_cpf(&mut self, cpf: CpfId, output_arrives: bool, after: Duration) {
        let Some(cluster) = &mut self.control.cluster else { return };
        cluster.members.remove(&cpf);
        cluster.ends.remove(&cpf);
        if !output_arrives {
            let of_it = |t: &InFlight| matches!(t, InFlight::Link(l) if l.ends().0 == Some(cpf));
            let before = self.queue.messages.len();
            self.queue.messages.retain(|_, t| !of_it(t));
            cluster.under_way -= before - self.queue.messages.len();
        }
        cluster.under_way += 1;
        self.send(self.now + after + DETECTED_AFTER, InFlight::Link(Link::Lost(cpf)));
    }
}
