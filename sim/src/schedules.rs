//! Procedures with a loss or a partition at a message that the seed chooses, thousands a second: `./x sim --schedules N`.
//!
//! A schedule is one procedure, in the state in which the former ones have left a small network; a process that is lost in the middle of
//! it, or a link that is cut; and at which of its messages, and how. At the end UEs, gNBs, core, UPF and replicas agree ([`Sim::agree`]), the
//! procedure has had its outcome, nothing else has changed, and no UE has registered again. Then lost processes are replaced, and the next
//! schedule begins. [`SCHEDULES_PER_NETWORK`] schedules in a row share a network, so a schedule is run again with those before it.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_resilience::ReplicationCounters;
use whimbrel_resilience::region::{GnbRegions, Region};

use crate::{
    CpfCut, CpfLoss, CtaLoss, Faults, ProcedureCase, Rng, Sim, Survivor, UeIndex, UeSnapshot, gnb_config,
};
use crate::{procedures_config, ue_config};

/// Schedules that share a network.
pub const SCHEDULES_PER_NETWORK: u64 = 32;
/// One network of so many has partitions in place of losses.
const PARTITIONED_OF: u64 = 7;
/// Twice as long as a CPF that does not answer is a member.
const PARTITION_MAX_MS: u64 = 3_000;
/// If so many schedules are run, a failure prints what UEs, gNBs and core did in all of them.
const TRACED: u64 = 8;
/// A procedure has ended by then, whatever was lost in it: the longest waits are those of gNBs for an answer that does not come.
const PATIENCE: Duration = Duration::from_secs(90);
/// The UE that runs the procedure, and another one, which it must not affect.
const SUBJECT: UeIndex = UeIndex(0);
const BYSTANDER: UeIndex = UeIndex(1);

/// The processes of the core, and which of them are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum World {
    /// One CPF; each UE has one replica.
    One,
    /// Two, one soon after the other; two replicas.
    Two,
    /// The CTA, which has a CTA replica.
    Cta,
    /// A CPF and the CTA.
    Both,
    /// Either, where the second gNB is in another region than the first.
    Regions,
}

impl World {
    const ALL: [Self; 5] = [Self::One, Self::Two, Self::Cta, Self::Both, Self::Regions];

    /// Two gNBs and two UEs, of which the second has a session.
    fn begin(self, seed: u64) -> Sim {
        let (config, faults) = (procedures_config(), Faults::default());
        let mut net = match self {
            Self::One => Sim::builder(seed).config(config).faults(faults).cpfs(4, 1).build(),
            Self::Two => Sim::builder(seed).config(config).faults(faults).cpfs(5, 2).build(),
            Self::Cta => Sim::builder(seed).config(config).faults(faults).cpfs(4, 1).cta_replica().build(),
            Self::Both => Sim::builder(seed).config(config).faults(faults).cpfs(5, 2).cta_replica().build(),
            Self::Regions => {
                let [here, there]: [Region; 2] = ["1220", "1221"].map(|at| at.parse().expect("a region"));
                let mut areas = GnbRegions::default();
                areas.add(&there, [2], []).expect("named once");
                let places = [&here, &here, &here, &there, &there, &there].map(Region::clone);
                let mut net = Sim::builder(seed).config(config).regions(&places, areas, 1).build();
                net.add_cta_replica();
                net
            }
        };
        net.discard_events();
        let gnbs = [1, 2].map(|n| net.add_gnb(gnb_config(n)));
        net.settle(Duration::from_secs(1));
        for n in 0..2 {
            net.add_ue(gnbs[n as usize], ue_config(n));
        }
        net
    }

    fn is_replicated(self) -> bool {
        !matches!(self, Self::One | Self::Two)
    }

    /// Whether CPFs are lost alone, so that gNBs and UEs hear nothing twice.
    fn is_silent(self) -> bool {
        !self.is_replicated()
    }
}

/// The losses of a schedule: at which of its messages to CPFs, or of the CTA's inputs, counted from 1, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Losses {
    cpfs: Vec<(u64, CpfLoss)>,
    cta: Option<(u64, CtaLoss)>,
    /// So many of the CTA's last inputs gNBs send again.
    sacks: usize,
    /// A CPF is cut off at one of its messages, for so long.
    cpf_cut: Option<(u64, CpfCut, Duration)>,
    /// CTA and CTA replica are cut off from one another at one of the CTA's inputs; which goes on if it lasts, and for how long it does.
    cta_cut: Option<(u64, Survivor, Duration)>,
}

/// How many messages a procedure has, and how many inputs the CTA.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    messages: u64,
    inputs: u64,
}

/// The process that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostNode {
    /// A CPF of several, with one replica a UE.
    Cpf,
    /// The CTA, which has a CTA replica.
    Cta,
}

/// What was run, and what came of it.
#[derive(Clone, Debug, Default)]
pub struct ScheduleReport {
    /// The schedule that is being run: its number, and what it is.
    pub at: (u64, String),
    /// Schedules that are over.
    pub schedules: u64,
    /// Of these, those in which no process was lost.
    pub quiet: u64,
    /// Schedules by procedure.
    pub procedures: BTreeMap<&'static str, u64>,
    /// Losses of CPFs, by the message at which they were lost, and of CTAs, by the input.
    pub losses: [BTreeMap<&'static str, u64>; 2],
    /// How often a process was lost at each boundary: world, procedure, whether it was the CTA, the message's number, how.
    boundaries: BTreeMap<(World, usize, bool, u64, usize), u64>,
    /// What replication did.
    pub replicated: ReplicationCounters,
    /// CTAs that were lost.
    pub takeovers: u64,
    /// Schedules after which a UE had registered again without need: each has failed.
    pub registered_again: u64,
}

impl ScheduleReport {
    /// Adds what another one counted.
    pub fn add(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.quiet += other.quiet;
        self.takeovers += other.takeovers;
        self.registered_again += other.registered_again;
        for (name, times) in other.procedures {
            *self.procedures.entry(name).or_default() += times;
        }
        for (mine, theirs) in self.losses.iter_mut().zip(other.losses) {
            theirs.into_iter().for_each(|(name, times)| *mine.entry(name).or_default() += times);
        }
        for (boundary, times) in other.boundaries {
            *self.boundaries.entry(boundary).or_default() += times;
        }
        let (mine, theirs) = (&mut self.replicated, other.replicated);
        mine.cpfs_lost += theirs.cpfs_lost;
        mine.taken_over += theirs.taken_over;
        mine.replayed += theirs.replayed;
        mine.moved += theirs.moved;
        mine.fenced += theirs.fenced;
    }

    /// At how many boundaries a process was lost, and how often at the one with the fewest losses.
    pub fn boundaries(&self) -> (usize, u64) {
        (self.boundaries.len(), self.boundaries.values().copied().min().unwrap_or(0))
    }
}

/// Runs random schedules and keeps their counts.
#[derive(Debug)]
pub struct Schedules {
    procedures: Vec<&'static ProcedureCase>,
    /// Of each world, and in it of each procedure.
    spans: Vec<Vec<Span>>,
}

impl Default for Schedules {
    /// Each procedure is run once in each world without losses, to count its messages.
    fn default() -> Self {
        let procedures: Vec<&'static ProcedureCase> = ProcedureCase::all().collect();
        let spans = World::ALL.map(|world| {
            let mut stage = ScheduleStage::new(world, 0);
            procedures.iter().map(|procedure| stage.judge(procedure, &Losses::default())).collect()
        });
        Self { procedures, spans: spans.into() }
    }
}

impl Schedules {
    /// Runs the schedules from the first of their history on, through the last one; `report` gets those from `from` on.
    ///
    /// Errors: why a schedule did not come to what it should; `report` says which.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn history(&self, from: u64, through: u64, report: &mut ScheduleReport) -> Result<(), String> {
        let history = from / SCHEDULES_PER_NETWORK;
        let world = World::ALL[history as usize % World::ALL.len()];
        let partitioned = (history / World::ALL.len() as u64).is_multiple_of(PARTITIONED_OF);
        let mut stage = ScheduleStage::new(world, history);
        for schedule in history * SCHEDULES_PER_NETWORK..=through {
            let mut rng = Rng::new(schedule ^ 0x5ced);
            let nth = rng.below(self.procedures.len() as u64) as usize;
            let procedure = self.procedures[nth];
            let losses = self.draw(world, nth, partitioned, &mut rng);
            report.at = (schedule, format!("{} in {world:?}, {losses:?}", procedure.name));
            let before = stage.counts();
            let few = through - from < TRACED && schedule >= from;
            if few {
                stage.net.trace_all();
            }
            let ran = stage.run(procedure, &losses);
            report.registered_again += u64::from(stage.registered_again);
            ran.map_err(|why| if few { why + &stage.net.trace_text() } else { why })?;
            if schedule >= from {
                report.count(world, nth, procedure, &losses, before, stage.counts());
            }
            stage.restore(&mut rng).map_err(|why| if few { why + &stage.net.trace_text() } else { why })?;
        }
        for (all, own) in report.losses.iter_mut().zip(stage.net.lost_at()) {
            own.iter().for_each(|(name, times)| *all.entry(name).or_default() += times);
        }
        Ok(())
    }

    /// Runs each procedure with a loss at each of its messages, or of the CTA's inputs while it runs, in each way. How often it was
    /// run, and how often a process was lost.
    ///
    /// # Panics
    /// Where one does not come to what it should.
    pub fn at_each_boundary(&self, of: LostNode) -> (u64, u64) {
        let world = match of {
            LostNode::Cpf => World::One,
            LostNode::Cta => World::Cta,
        };
        let mut counted = (0, 0);
        for (nth, procedure) in self.procedures.iter().enumerate() {
            let span = self.spans[world as usize][nth];
            let mut stage = ScheduleStage::new(world, nth as u64);
            let losses: Vec<Losses> = match of {
                LostNode::Cpf => {
                    let at = (1..=span.messages).flat_map(|at| CpfLoss::ALL.map(|how| (at, how)));
                    at.map(|loss| Losses { cpfs: vec![loss], ..Losses::default() }).collect()
                }
                LostNode::Cta => {
                    let at = (1..=span.inputs).flat_map(|at| CtaLoss::ALL.map(|how| (at, how)));
                    let is_allowed = at.filter(|(at, how)| *at >= procedure.first_loss(*how));
                    is_allowed.map(|loss| Losses { cta: Some(loss), ..Losses::default() }).collect()
                }
            };
            for losses in losses {
                let before = stage.counts();
                stage.judge(procedure, &losses);
                let after = stage.counts();
                counted.0 += 1;
                counted.1 += after.0.cpfs_lost - before.0.cpfs_lost + after.1 - before.1;
            }
        }
        counted
    }

    /// Runs a procedure with two losses of CPFs, the second at each message that follows the first.
    ///
    /// # Panics
    /// Where one does not come to what it should, or no procedure has that name.
    pub fn at_each_two_boundaries(&self, name: &str) -> u64 {
        let (mut stage, mut lost) = (ScheduleStage::new(World::Two, 0), 0);
        let named = |p: &&&ProcedureCase| p.name == name;
        let procedure = self.procedures.iter().find(named).expect("a procedure has that name");
        let span = stage.judge(procedure, &Losses::default());
        for first in 1..=span.messages {
            for second in first + 1..=span.messages + 6 {
                let before = stage.counts().0.cpfs_lost;
                let cpfs = vec![(first, CpfLoss::BeforeOutput), (second, CpfLoss::BeforeInput)];
                stage.judge(procedure, &Losses { cpfs, ..Losses::default() });
                lost += stage.counts().0.cpfs_lost - before;
            }
        }
        lost
    }

    fn draw(&self, world: World, procedure: usize, partitioned: bool, rng: &mut Rng) -> Losses {
        let span = self.spans[world as usize][procedure];
        let mut losses = Losses::default();
        if rng.chance(20) {
            return losses;
        }
        if partitioned {
            let time = Duration::from_millis(rng.below(PARTITION_MAX_MS));
            if world.is_replicated() && rng.chance(500) {
                let (at, survivor) = (rng.below(span.inputs + 2), *rng.pick(&Survivor::ALL));
                // What the CTA has not replicated is lost with it: an operator's order, too.
                let first = match survivor {
                    Survivor::Cta => 1,
                    Survivor::Replica => self.procedures[procedure].first_loss(CtaLoss::BeforeReplication),
                };
                losses.cta_cut = Some((first + at, survivor, time));
            } else {
                losses.cpf_cut = Some((1 + rng.below(span.messages + 2), *rng.pick(&CpfCut::ALL), time));
            }
            return losses;
        }
        let (of_cpf, of_cta) = match world {
            World::One | World::Two => (true, false),
            World::Cta => (false, true),
            World::Both => (true, true),
            World::Regions => {
                let either = rng.chance(500);
                (either, !either)
            }
        };
        if of_cpf {
            // What follows of a loss has messages of its own.
            let first = 1 + rng.below(span.messages + 2);
            losses.cpfs.push((first, CpfLoss::ALL[rng.below(4) as usize]));
            if world == World::Two {
                losses.cpfs.push((first + 1 + rng.below(12), CpfLoss::ALL[rng.below(4) as usize]));
            }
        }
        if of_cta {
            let how = CtaLoss::ALL[rng.below(5) as usize];
            let first = self.procedures[procedure].first_loss(how);
            losses.cta = Some((first + rng.below(span.inputs + 2), how));
            losses.sacks = if rng.chance(250) { 1 + rng.below(3) as usize } else { 0 };
        }
        losses
    }
}

impl ScheduleReport {
    fn count(
        &mut self,
        world: World,
        nth: usize,
        procedure: &ProcedureCase,
        losses: &Losses,
        before: (ReplicationCounters, u64),
        after: (ReplicationCounters, u64),
    ) {
        self.schedules += 1;
        *self.procedures.entry(procedure.name).or_default() += 1;
        let (was, is) = (before.0, after.0);
        let cpfs_lost = is.cpfs_lost - was.cpfs_lost;
        let takeovers = after.1 - before.1;
        self.quiet += u64::from(cpfs_lost + takeovers == 0);
        self.replicated.cpfs_lost += cpfs_lost;
        self.replicated.taken_over += is.taken_over - was.taken_over;
        self.replicated.replayed += is.replayed - was.replayed;
        self.replicated.moved += is.moved - was.moved;
        self.replicated.fenced += is.fenced - was.fenced;
        self.takeovers += takeovers;
        if let Some((at, how)) = losses.cpfs.first().filter(|_| cpfs_lost > 0) {
            let how = CpfLoss::ALL.iter().position(|h| h == how).unwrap_or(0);
            *self.boundaries.entry((world, nth, false, *at, how)).or_default() += 1;
        }
        if let Some((at, how)) = losses.cta.filter(|_| takeovers > 0) {
            let how = CtaLoss::ALL.iter().position(|h| *h == how).unwrap_or(0);
            *self.boundaries.entry((world, nth, true, at, how)).or_default() += 1;
        }
    }
}

/// A network and its two UEs.
struct ScheduleStage {
    world: World,
    net: Sim,
    /// A UE has registered again without need.
    registered_again: bool,
}

impl ScheduleStage {
    fn new(world: World, history: u64) -> Self {
        let mut stage = Self { world, net: world.begin(history), registered_again: false };
        let bystander = stage.bystander();
        bystander.before(&mut stage.net, BYSTANDER);
        stage
    }

    /// What the bystander is brought to is where this procedure would begin.
    fn bystander(&self) -> &'static ProcedureCase {
        ProcedureCase::all().find(|p| p.name == "AN release").expect("it is one of them")
    }

    fn counts(&self) -> (ReplicationCounters, u64) {
        (self.net.cta().replication_counters(), self.net.takeovers())
    }

    /// Runs a procedure with these losses, and replaces what was lost. Gives how long it was.
    fn judge(&mut self, procedure: &ProcedureCase, losses: &Losses) -> Span {
        let ran = self.run(procedure, losses).and_then(|span| {
            self.restore(&mut Rng::new(0))?;
            Ok(span)
        });
        match ran {
            Ok(span) => span,
            Err(why) => panic!("{} in {:?}, {losses:?}: {why}", procedure.name, self.world),
        }
    }

    /// Runs a procedure with these losses. Gives how long it was. Errors: the first check that failed.
    fn run(&mut self, procedure: &ProcedureCase, losses: &Losses) -> Result<Span, String> {
        let net = &mut self.net;
        procedure.before(net, SUBJECT);
        let (was, others) = (UeSnapshot::of(net, SUBJECT), UeSnapshot::of(net, BYSTANDER));
        let (messages, inputs) = (net.links_taken(), net.inputs_taken());
        let (reported, violations) = (net.cta().replication_counters(), net.violations().0);
        let at: Vec<(u64, CpfLoss)> = losses.cpfs.iter().map(|(nth, how)| (messages + nth, *how)).collect();
        net.lose_cpfs_at(&at);
        if let Some((nth, how)) = losses.cta {
            net.lose_sacks(losses.sacks);
            net.lose_cta_at(inputs + nth, how);
        }
        if let Some((nth, what, time)) = losses.cpf_cut {
            net.cut_cpfs_at(&[(messages + nth, what, time)]);
        }
        if let Some((nth, survivor, time)) = losses.cta_cut {
            net.cut_cta_at(inputs + nth, survivor, time);
        }
        procedure.act(net, SUBJECT);
        let spared = |net: &Sim| !procedure.spares_others() || UeSnapshot::of(net, BYSTANDER) == others;
        let comes = net.settle_until(PATIENCE, |net| {
            procedure.is_done(net, SUBJECT, &was) && spared(net) && net.agree().is_ok()
        });
        net.stop_losses();
        net.lose_sacks(0);
        let (now, is) = (net.cta().replication_counters(), UeSnapshot::of(net, SUBJECT));
        self.registered_again = now.lost > reported.lost || procedure.keeps_registration() && is.ue != was.ue;
        if !comes {
            net.agree()?;
            return Err(match spared(net) {
                true => format!("not the expected outcome: from {was:?} to {is:?}"),
                false => format!("another UE has changed; it was {others:?}"),
            });
        }
        if now.lost + now.poisoned > reported.lost + reported.poisoned {
            return Err("a UE was lost".into());
        }
        if now.diverged + now.nas_count_reuse + now.unreadable + now.checkpoint_acks_refused > 0 {
            return Err(format!("a replay gave other octets: {now:?}"));
        }
        if self.world.is_silent() && !procedure.astonishes && net.violations().0 > violations {
            return Err(net.violations().1.into());
        }
        procedure.after(net, SUBJECT);
        Ok(Span { messages: net.links_taken() - messages, inputs: net.inputs_taken() - inputs })
    }

    /// Lost processes are replaced; in some schedules time passes. Errors: a UE has no replica again.
    fn restore(&mut self, rng: &mut Rng) -> Result<(), String> {
        let (bystander, net) = (self.bystander(), &mut self.net);
        net.replace_cpfs();
        if self.world.is_replicated() {
            net.add_cta_replica();
        }
        if !net.settle_until(PATIENCE, |net| net.cta().without_backup() == 0 && net.agree().is_ok()) {
            net.agree()?;
            return Err("a UE has no replica again".into());
        }
        bystander.before(net, BYSTANDER);
        if rng.chance(100) {
            net.advance(Duration::from_millis(rng.below(45_000)));
        }
        net.events.cpf_violations.clear();
        Ok(())
    }
}
