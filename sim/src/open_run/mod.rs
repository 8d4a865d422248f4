//! Several operators, each a whole core, serve the users of several brokers while processes and links of every party fail (CellBricks,
//! chapter 3).
//!
//! [`OpenRun::run`] is the life of it; [`OpenRun::heal_and_verify`] stops the faults and has every UE attach again. After each event:
//!
//! | invariant | of |
//! | --- | --- |
//! | no session without a grant | each context that is registered or has a session, and its broker's database |
//! | no grant is used twice: by one UE context, at the operator that it names, for its credit once | all contexts; what UPFs forwarded |
//! | read your writes: a UE with REGISTRATION ACCEPT is registered under the same name and grant | UE, operator and broker |
//! | a signed refusal is final | the broker's database; the UE's next registration |
//! | when the faults stop, each UE attaches again | the end of the run |
//!
//! Each has a fault that is planted for it ([`PlantedFault`]), which the run must find.

mod brokers;
mod check;
mod profile;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use whimbrel_control::config::Config;
use whimbrel_ids::{GlobalGnbId, Instant, PlmnId, SNssai, Supi, Tac};
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_open::id::{Domain, OperatorId, Pseudonym, UserId};
use whimbrel_open::msg::{Price, RefusalCause};
use whimbrel_ran::gnb::{GnbConfig, Via};
use whimbrel_ran::ue::{MmState, SessionRequest, SuciSource, UeCommand, UeConfig};

use crate::open::{home_subscriber, home_user, key, sap_user};
use crate::{
    CpfCut, CtaLoss, Cut, Faults, GnbIndex, Rng, Sim, Survivor, UeIndex, default_config, open_config,
    ue_config,
};
use brokers::{Market, OperatorIndex};

pub use brokers::BrokerCrash;
pub use profile::{OpenFaults, SapLinks};

/// How large a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenPlan {
    /// Its name in commands.
    pub name: &'static str,
    /// Number of operators.
    pub operators: u8,
    /// Number of brokers.
    pub brokers: u8,
    /// gNBs of each operator.
    pub gnbs: u8,
    /// Number of SAP UEs.
    pub sap_ues: u32,
    /// Ordinary UEs of brokers.
    pub ordinary_ues: u32,
}

impl OpenPlan {
    /// Two operators and six UEs: for a build without optimisation.
    pub const SMALL: Self =
        Self { name: "small", operators: 2, brokers: 2, gnbs: 2, sap_ues: 4, ordinary_ues: 2 };
    /// Three operators and sixteen UEs.
    pub const MEDIUM: Self =
        Self { name: "medium", operators: 3, brokers: 2, gnbs: 3, sap_ues: 12, ordinary_ues: 4 };
    /// Four operators, three brokers and fifty UEs.
    pub const LARGE: Self =
        Self { name: "large", operators: 4, brokers: 3, gnbs: 5, sap_ues: 40, ordinary_ues: 10 };

    /// That of a name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::SMALL, Self::MEDIUM, Self::LARGE].into_iter().find(|plan| plan.name == name)
    }
}

/// A fault that a test plants, to see that the run finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedFault {
    /// Backups get states of UEs without the grant.
    GrantMissingAtBackup,
    /// Backups get states of UEs whose grant looks unused.
    UsageMissingAtBackup,
    /// A broker draws the same random numbers again after it was lost.
    EntropyRepeats,
    /// Answers of a broker leave before they are durable.
    AnswersBeforeCommit,
    /// Backups get states of UEs as if they were not registered.
    RegistrationMissingAtBackup,
    /// A broker does not make refusals durable.
    RefusalNotDurable,
    /// The SIM of a UE that loses its power, or goes to another operator, has another key then.
    KeyLostWithPower,
}

impl PlantedFault {
    /// All of them, with words of the invariant that each breaks.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::GrantMissingAtBackup, "no session without a grant"),
        (Self::UsageMissingAtBackup, "no grant is used twice"),
        (Self::EntropyRepeats, "no grant is used twice"),
        (Self::AnswersBeforeCommit, "read your writes: the broker"),
        (Self::RegistrationMissingAtBackup, "read your writes: UE"),
        (Self::RefusalNotDurable, "a signed refusal is final"),
        (Self::KeyLostWithPower, "when the faults stop, each UE attaches again"),
    ];
}

/// CPFs of each operator; lost ones are replaced.
const CPFS: u16 = 3;
/// Replicas per UE.
const REPLICAS: usize = 1;
/// Mean time between two actions of a UE.
const PACE: Duration = Duration::from_secs(6);
/// Mean time between two steps in each of which something may fail.
const TROUBLE: Duration = Duration::from_millis(1_500);
/// After a loss is planned another process of the same operator is not lost for so long: two losses at once may take all holders of a UE's state.
/// The first comes up to 60 messages later, so that both may be closer.
const LOSSES_APART: Duration = Duration::from_secs(4);
/// Bursts of packets to a UE, each so long after the one before, of fewer packets than this.
const BURSTS: u8 = 4;
const BURSTS_APART: Duration = Duration::from_millis(200);
const PACKETS_MAX: u64 = 100;
/// Without faults nothing is in flight after so long: a message takes some milliseconds, and what it causes some more.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);
/// How long a user is suspected, and operators are found too dear.
const REFUSES_FOR: Duration = Duration::from_secs(20);

struct Operator {
    net: Sim,
    id: OperatorId,
    gnbs: Vec<GnbIndex>,
    /// Before this no process is lost.
    spared_until: Instant,
}

/// The registration that a UE has by REGISTRATION ACCEPT.
#[derive(Clone, Copy, Debug)]
struct AcceptedRegistration {
    supi: Supi,
    /// The network has ended the registration since, or refused to continue it.
    ended: bool,
}

struct BrokerSubscriber {
    broker: usize,
    /// Its identity at the broker, if it is a SAP UE.
    user: Option<UserId>,
    at: OperatorIndex,
    accepted: Option<AcceptedRegistration>,
    /// The counter of the last request that its broker has refused, and why.
    refused: Option<(u64, RefusalCause)>,
}

/// What UPFs have forwarded under a grant.
#[derive(Clone, Debug, Default)]
struct ForwardedTraffic {
    octets: u64,
    /// When, and how many, the latest last.
    bursts: VecDeque<(Instant, u64)>,
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenCounts {
    /// REGISTRATION ACCEPTs at UEs.
    pub registrations: u64,
    /// Grants of brokers.
    pub grants: u64,
    /// Refusals that brokers signed.
    pub refusals: u64,
    /// Questions that got a stored answer.
    pub repeated: u64,
    /// Refusals that UEs verified.
    pub refused_ues: u64,
    /// Brokers that were killed.
    pub brokers_lost: u64,
    /// CPFs that were killed.
    pub cpfs_lost: u64,
    /// CTAs whose replicas took over.
    pub ctas_lost: u64,
    /// UEs that went to another operator.
    pub moves: u64,
    /// Grants whose credit or validity was over.
    pub grants_over: u64,
    /// UEs that lost all holders of their state.
    pub lost_all_holders: u64,
    /// Looks at all invariants of an operator.
    pub checks: u64,
}

impl OpenCounts {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.registrations += other.registrations;
        self.grants += other.grants;
        self.refusals += other.refusals;
        self.repeated += other.repeated;
        self.refused_ues += other.refused_ues;
        self.brokers_lost += other.brokers_lost;
        self.cpfs_lost += other.cpfs_lost;
        self.ctas_lost += other.ctas_lost;
        self.moves += other.moves;
        self.grants_over += other.grants_over;
        self.lost_all_holders += other.lost_all_holders;
        self.checks += other.checks;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RunTurn {
    Ue(usize),
    /// The data network sends to a UE, and so often again.
    Traffic(usize, u8),
    Trouble,
    /// A broker's suspicion of a UE ends.
    Clears(usize),
    /// A broker's price cap ends.
    Uncaps(usize),
}

/// A run. Its `Display` is the command that runs it again, and its faults.
pub struct OpenRun {
    seed: u64,
    plan: OpenPlan,
    minutes: u64,
    faults: OpenFaults,
    planted: Option<PlantedFault>,
    operators: Vec<Operator>,
    market: Market,
    subscribers: Vec<BrokerSubscriber>,
    agenda: BTreeSet<(Instant, RunTurn)>,
    now: Instant,
    rng: Rng,
    /// What UPFs have forwarded to UEs under each grant, in octets.
    forwarded: BTreeMap<Pseudonym, ForwardedTraffic>,
    counts: OpenCounts,
}

impl OpenRun {
    /// The run of a seed, with the faults of that seed.
    pub fn new(seed: u64, plan: OpenPlan, minutes: u64) -> Self {
        Self::with_faults(seed, plan, minutes, OpenFaults::draw(seed), None)
    }

    /// A run with these faults.
    pub fn with_faults(
        seed: u64,
        plan: OpenPlan,
        minutes: u64,
        faults: OpenFaults,
        planted: Option<PlantedFault>,
    ) -> Self {
        let mut rng = Rng::new(seed ^ 0x09e_4a11);
        let homes: Vec<(Domain, PlmnId)> = (0..plan.brokers)
            .map(|n| {
                let domain = format!("broker-{n}.example").parse().expect("a domain");
                (domain, format!("999/{}", 80 + n).parse().expect("a PLMN"))
            })
            .collect();
        let market = Market::new(&homes, &faults, planted, rng.draw());
        let operators: Vec<Operator> = (0..plan.operators)
            .map(|n| operator(seed ^ (u64::from(n) << 32), n, &plan, &homes, (&faults, planted)))
            .collect();
        let now = operators[0].net.now();
        let mut run = Self {
            seed,
            plan,
            minutes,
            faults,
            planted,
            operators,
            market,
            subscribers: Vec::new(),
            agenda: BTreeSet::new(),
            now,
            rng,
            forwarded: BTreeMap::new(),
            counts: OpenCounts::default(),
        };
        for n in 0..plan.sap_ues + plan.ordinary_ues {
            run.add_subscriber(n, &homes);
        }
        let first = now + Duration::from_secs(1);
        run.advance_to(first);
        for n in 0..run.subscribers.len() {
            let at = run.soon(PACE);
            run.agenda.insert((at, RunTurn::Ue(n)));
        }
        let at = run.soon(TROUBLE);
        run.agenda.insert((at, RunTurn::Trouble));
        run
    }

    fn add_subscriber(&mut self, n: u32, homes: &[(Domain, PlmnId)]) {
        let broker = n as usize % homes.len();
        let (domain, home) = &homes[broker];
        let at = self.rng.below(self.operators.len() as u64) as usize;
        let (config, user) = if n < self.plan.sap_ues {
            let (user, record, card) = sap_user(n, domain, self.market.epoch(broker));
            self.market.add_user(broker, user, record);
            let mut config = ue_config(n);
            config.suci = SuciSource::Sap(Box::new(card));
            (config, Some(user))
        } else {
            let config = home_subscriber(n, *home);
            self.market.add_home_user(broker, config.supi, home_user(n, &config));
            (config, None)
        };
        for (index, operator) in self.operators.iter_mut().enumerate() {
            let ue = operator.net.add_ue(operator.gnbs[0], served_by(&config, operator.id));
            if index != at {
                operator.net.lose_power(ue);
            }
        }
        self.subscribers.push(BrokerSubscriber { broker, user, at, accepted: None, refused: None });
    }

    /// From half to one and a half times `mean` after now.
    fn soon(&mut self, mean: Duration) -> Instant {
        let micros = mean.as_micros() as u64;
        self.now + Duration::from_micros(micros / 2 + self.rng.below(micros + 1))
    }

    /// Keeps a trace of all messages from now on.
    pub fn trace_all(&mut self) {
        self.operators.iter_mut().for_each(|o| o.net.trace_all());
    }

    /// The last `lines` of the trace of the operator at which something happened last.
    pub fn trace_tail(&self, lines: usize) -> String {
        let last = self.operators.iter().max_by_key(|o| o.net.now());
        let text = last.map(|o| o.net.trace_text()).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// What came of it so far.
    pub fn counts(&self) -> OpenCounts {
        let of = |count: fn(&Sim) -> u64| self.operators.iter().map(|o| count(&o.net)).sum();
        let brokers = &self.market.counts;
        OpenCounts {
            grants: brokers.grants,
            refusals: brokers.refusals,
            repeated: brokers.repeated,
            brokers_lost: brokers.lost,
            cpfs_lost: of(|net| net.cta().replication_counters().cpfs_lost),
            ctas_lost: of(Sim::takeovers),
            lost_all_holders: of(|net| net.lost_ues().lost_all_holders),
            ..self.counts.clone()
        }
    }

    /// Runs for the minutes of the run.
    pub fn run(&mut self) {
        let until = self.now + Duration::from_secs(60 * self.minutes);
        while let Some((at, turn)) = self.agenda.first().copied().filter(|(at, _)| *at <= until) {
            self.agenda.pop_first();
            self.advance_to(at);
            match turn {
                RunTurn::Ue(n) => {
                    self.act(n);
                    let next = self.soon(PACE);
                    self.agenda.insert((next, turn));
                }
                RunTurn::Traffic(n, again) => self.traffic(n, again),
                RunTurn::Trouble => {
                    self.trouble();
                    let next = self.soon(TROUBLE);
                    self.agenda.insert((next, turn));
                }
                RunTurn::Clears(n) => {
                    let BrokerSubscriber { broker, user, .. } = self.subscribers[n];
                    user.into_iter().for_each(|user| self.market.suspect(broker, user, false));
                }
                RunTurn::Uncaps(broker) => self.market.cap_price(broker, 1_000),
            }
        }
        self.advance_to(until);
    }

    fn ue(&self, n: usize) -> UeIndex {
        UeIndex(n)
    }

    /// A UE does something that its state allows.
    fn act(&mut self, n: usize) {
        let (at, ue) = (self.subscribers[n].at, self.ue(n));
        let drawn = self.rng.below(100);
        let operator = &mut self.operators[at];
        let net = &mut operator.net;
        if net.is_away(ue) {
            net.switch_on(ue);
        }
        let context = net.ue_ref(ue);
        let session = context.sessions().next().map(|s| s.id);
        match (context.state(), context.is_connected(), drawn) {
            (_, _, 0..12) => self.change_operator(n),
            (MmState::Deregistered, ..) => net.command(ue, UeCommand::Register),
            (_, _, 12..17) => {
                net.command(ue, UeCommand::Deregister { switch_off: self.rng.chance(500) });
            }
            (MmState::Registered, true, 17..25) => {
                let here = net.gnb_of(ue).0;
                let there = GnbIndex((here + 1) % operator.gnbs.len());
                let via = if self.rng.chance(500) { Via::Xn } else { Via::N2 };
                net.hand_over(ue, there, via);
            }
            (MmState::Registered, false, 17..25) => {
                let there = GnbIndex((net.gnb_of(ue).0 + 1) % operator.gnbs.len());
                net.move_ue(ue, there);
            }
            (MmState::Registered, true, 25..35) => {
                net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity));
            }
            (MmState::Registered, false, 25..45) => net.command(ue, UeCommand::ServiceRequest),
            (MmState::Registered, _, 45..52) => net.command(ue, UeCommand::PeriodicRegistration),
            (MmState::Registered, _, 52..56) => net.command(ue, UeCommand::Register),
            (MmState::Registered, ..) if session.is_none() => {
                net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
            }
            (MmState::Registered, true, _) => self.traffic(n, BURSTS),
            _ => {}
        }
        self.observe(at);
    }

    /// Packets from the data network, and more of them soon.
    fn traffic(&mut self, n: usize, again: u8) {
        let (at, ue) = (self.subscribers[n].at, self.ue(n));
        let net = &mut self.operators[at].net;
        let Some(session) = net.ue_ref(ue).sessions().next().map(|s| s.id) else { return };
        let packets = self.rng.below(PACKETS_MAX) as usize;
        let served = crate::agree::served_as(net.ue_ref(ue));
        let grant = net.contexts().find(|c| c.amf.supi == served && c.amf.registered);
        let grant = grant.and_then(|c| c.grant.as_ref()).map(|g| g.grant.grant.clone());
        let sent = net.burst_down(ue, session, packets);
        if again > 0 {
            self.agenda.insert((self.now + BURSTS_APART, RunTurn::Traffic(n, again - 1)));
        }
        let Some(grant) = grant else { return };
        let forwarded = self.forwarded.entry(grant.pseudonym).or_default();
        forwarded.octets += sent;
        forwarded.bursts.push_back((self.now, sent));
        check::budget(&grant, forwarded, self.now);
    }

    /// A UE goes to another operator, with or without a word to the one that it leaves.
    fn change_operator(&mut self, n: usize) {
        let others = self.operators.len() as u64 - 1;
        if others == 0 {
            return;
        }
        self.counts.moves += 1;
        let from = self.subscribers[n].at;
        let to = (from + 1 + self.rng.below(others) as usize) % self.operators.len();
        let ue = self.ue(n);
        if self.rng.chance(500) {
            self.operators[from].net.command(ue, UeCommand::Deregister { switch_off: true });
        }
        self.observe(from);
        let mut config = self.operators[from].net.ue_ref(ue).without_power();
        self.operators[from].net.lose_power_at_gnb(ue);
        if self.planted == Some(PlantedFault::KeyLostWithPower) {
            lose_key(&mut config);
        }
        let operator = &mut self.operators[to];
        operator.net.replace_ue(ue, served_by(&config, operator.id));
        let gnb = *self.rng.pick(&operator.gnbs);
        operator.net.carry_to(ue, gnb);
        operator.net.switch_on(ue);
        operator.net.command(ue, UeCommand::Register);
        let subscriber = &mut self.subscribers[n];
        (subscriber.at, subscriber.accepted) = (to, None);
        self.observe(to);
    }

    /// One step, in which each kind of fault may occur.
    fn trouble(&mut self) {
        let faults = self.faults.clone();
        let n = self.rng.below(self.subscribers.len() as u64) as usize;
        let at = self.rng.below(self.operators.len() as u64) as usize;
        let broker = self.rng.below(u64::from(self.plan.brokers)) as usize;
        let cut = Duration::from_micros(self.rng.below(faults.cut_max.as_micros() as u64 + 1));
        if self.rng.chance(faults.radio_cuts) {
            let ue = self.ue(n);
            self.operators[self.subscribers[n].at].net.cut_radio(ue, cut);
        }
        if self.rng.chance(faults.n2_cuts) {
            let gnb = *self.rng.pick(&self.operators[at].gnbs);
            self.operators[at].net.cut_n2(gnb, cut);
        }
        if self.rng.chance(faults.sap_cuts) {
            let loses = self.rng.chance(500);
            self.market.cut(at, broker, self.now + cut, loses);
        }
        self.lose_core_processes(at, cut);
        if self.rng.chance(faults.broker_losses) {
            let how = *self.rng.pick(&faults.broker_loss_kinds);
            self.market.lose_at(broker, 1 + self.rng.below(3), how);
        }
        if self.rng.chance(faults.power_losses) {
            self.lose_power(n);
        }
        if self.rng.chance(faults.suspicions)
            && let Some(user) = self.subscribers[n].user
        {
            self.market.suspect(self.subscribers[n].broker, user, true);
            self.agenda.insert((self.now + REFUSES_FOR, RunTurn::Clears(n)));
        }
        if self.rng.chance(faults.price_caps) {
            self.market.cap_price(broker, 1);
            self.agenda.insert((self.now + REFUSES_FOR, RunTurn::Uncaps(broker)));
        }
        if self.rng.chance(faults.epochs) {
            self.market.begin_epoch(broker);
        }
        self.observe(at);
    }

    /// Lost processes of an operator are replaced; then one may be lost, or a link be cut.
    fn lose_core_processes(&mut self, at: OperatorIndex, cut: Duration) {
        let (faults, rng) = (&self.faults, &mut self.rng);
        let Operator { net, spared_until, .. } = &mut self.operators[at];
        if self.now < *spared_until {
            return;
        }
        net.lose_cpfs_at(&[]);
        net.cut_cpfs_at(&[]);
        net.lose_cta_at(0, CtaLoss::BeforeInput);
        net.add_cta_replica();
        while net.cpfs() < usize::from(CPFS) {
            net.add_cpf();
        }
        if rng.chance(faults.cta_losses) {
            let how = *rng.pick(&faults.cta_loss_kinds);
            net.lose_cta_at(net.inputs_taken() + 1 + rng.below(60), how);
        } else if rng.chance(faults.cpf_losses) {
            let how = *rng.pick(&faults.cpf_loss_kinds);
            net.lose_cpf_at(net.links_taken() + 1 + rng.below(60), how);
        } else if rng.chance(faults.core_cuts) {
            if rng.chance(300) {
                net.cut(Cut::CtaReplica(*rng.pick(&Survivor::ALL)), cut);
            } else {
                net.cut_cpfs_at(&[(net.links_taken() + 1 + rng.below(60), *rng.pick(&CpfCut::ALL), cut)]);
            }
        } else {
            return;
        }
        *spared_until = self.now + LOSSES_APART + cut;
    }

    fn lose_power(&mut self, n: usize) {
        let (at, ue) = (self.subscribers[n].at, self.ue(n));
        let net = &mut self.operators[at].net;
        net.lose_power_at_gnb(ue);
        if self.planted == Some(PlantedFault::KeyLostWithPower) {
            let mut config = net.ue_ref(ue).without_power();
            lose_key(&mut config);
            net.replace_ue(ue, config);
        }
        self.subscribers[n].accepted = None;
    }

    /// All parties run until then.
    fn advance_to(&mut self, until: Instant) {
        loop {
            let operators = self.operators.iter().enumerate();
            let next = operators.filter_map(|(n, o)| Some((o.net.next_event()?, n))).min();
            let market = self.market.next().filter(|at| *at <= until);
            match (market, next.filter(|(at, _)| *at <= until)) {
                (Some(at), next) if next.is_none_or(|(then, _)| at <= then) => {
                    self.now = at;
                    for arrival in self.market.step(at) {
                        let net = &mut self.operators[arrival.operator].net;
                        net.now = at;
                        net.sap_answered(arrival.to, arrival.answer);
                        self.observe(arrival.operator);
                    }
                }
                (_, Some((at, n))) => {
                    self.now = at;
                    self.operators[n].net.step(at);
                    self.observe(n);
                }
                (_, None) => break,
            }
        }
        self.now = until;
        self.operators.iter_mut().for_each(|o| o.net.now = until);
    }

    /// All faults stop.
    fn heal(&mut self) {
        self.agenda.clear();
        self.market.heal();
        for operator in &mut self.operators {
            operator.net.set_faults(Faults::default());
            operator.net.stop_losses();
            operator.net.lose_between_cpfs(0);
        }
        for n in 0..self.subscribers.len() {
            let (at, ue) = (self.subscribers[n].at, self.ue(n));
            let net = &mut self.operators[at].net;
            net.cut_radio(ue, Duration::ZERO);
            if net.is_away(ue) {
                net.switch_on(ue);
            }
        }
    }

    /// The faults stop. Every UE attaches again, all nodes agree, and when all have left nothing is left over.
    ///
    /// # Panics
    /// If not.
    pub fn heal_and_verify(&mut self) {
        self.heal();
        if self.faults.validity_s < OpenFaults::VALIDITY_LONG_S {
            // What was granted before ends first: an idle UE learns that when it comes.
            self.advance_to(self.now + Duration::from_secs(self.faults.validity_s + 60));
        }
        for _ in 0..8 {
            let absent: Vec<usize> = (0..self.subscribers.len()).filter(|&n| !self.is_served(n)).collect();
            if absent.is_empty() {
                break;
            }
            for n in absent {
                let ue = self.ue(n);
                self.operators[self.subscribers[n].at].net.command(ue, UeCommand::Register);
            }
            // The longest timer after which a UE tries again is T3502, 12 min.
            self.advance_to(self.now + Duration::from_secs(400));
        }
        for n in 0..self.subscribers.len() {
            let ue = self.operators[self.subscribers[n].at].net.ue_ref(self.ue(n));
            assert!(
                self.is_served(n),
                "when the faults stop, each UE attaches again: UE {n} does not, {:?}",
                ue.state()
            );
        }
        for n in 0..self.subscribers.len() {
            let ue = self.ue(n);
            self.operators[self.subscribers[n].at].net.command(ue, UeCommand::PeriodicRegistration);
        }
        // T3580 repeats a request about a session five times.
        self.advance_to(self.now + Duration::from_secs(120));
        self.verify_agreement();
    }

    /// Registers all users and stops while the checkpoint of an input is on its way, for some microseconds in which a primary is ahead of its
    /// backup. False if there was no such moment.
    pub fn advance_until_a_checkpoint_is_in_flight(&mut self) -> bool {
        for n in 0..self.subscribers.len() {
            let ue = self.ue(n);
            self.operators[self.subscribers[n].at].net.command(ue, UeCommand::Register);
        }
        self.advance_to(self.now + Duration::from_secs(10));
        let (at, ue) = (self.subscribers[0].at, self.ue(0));
        self.operators[at].net.command(ue, UeCommand::PeriodicRegistration);
        for _ in 0..1_000 {
            let Some(next) = self.operators[at].net.next_event() else { break };
            self.advance_to(next);
            if self.operators[at].net.agree().is_err_and(|e| e.starts_with("clock of")) {
                return true;
            }
        }
        false
    }

    /// All nodes of each operator agree, as soon as nothing is in flight: a UPF reports usage at any time, and the checkpoint behind that
    /// input is a moment on its way.
    pub fn verify_agreement(&mut self) {
        let until = self.now + SETTLED_WITHIN;
        while !self.operators.iter().all(|o| o.net.is_quiet())
            && let Some(next) = self.operators.iter().filter_map(|o| o.net.next_event()).min()
            && next <= until
        {
            self.advance_to(next);
        }
        for operator in &self.operators {
            operator.net.check_invariants();
            assert_eq!(operator.net.agree(), Ok(()), "operator {}", operator.id);
            assert_eq!(operator.net.tally().faults, 0, "no UE's machine panicked");
            let replicated = operator.net.cta().replication_counters();
            assert_eq!(replicated.diverged, 0, "a replay gave other octets");
            assert_eq!(replicated.checkpoint_acks_refused, 0, "a correct CPF was reported as faulty");
        }
    }

    fn is_served(&self, n: usize) -> bool {
        let subscriber = &self.subscribers[n];
        let net = &self.operators[subscriber.at].net;
        let served = crate::agree::served_as(net.ue_ref(self.ue(n)));
        net.ue_ref(self.ue(n)).state() == MmState::Registered
            && subscriber.accepted.is_some_and(|accepted| !accepted.ended && Some(accepted.supi) == served)
            && net.contexts().any(|c| c.amf.registered && c.amf.supi == served)
    }
}

impl fmt::Display for OpenRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, minutes, plan, faults, .. } = self;
        write!(
            f,
            "./x sim --open --seeds 1 --from {seed} --minutes {minutes} --size {} # {faults}",
            plan.name
        )?;
        self.planted.map_or(Ok(()), |planted| write!(f, "; {planted:?} is planted, which only tests do"))
    }
}

/// An operator, whose brokers are elsewhere.
fn operator(
    seed: u64,
    n: u8,
    plan: &OpenPlan,
    homes: &[(Domain, PlmnId)],
    (faults, planted): (&OpenFaults, Option<PlantedFault>),
) -> Operator {
    let plmn: PlmnId = format!("999/{}", 70 + n).parse().expect("a PLMN");
    let mut net = Sim::builder(seed)
        .config(config(plmn, homes, faults))
        .faults(faults.faults)
        .cpfs(CPFS, REPLICAS)
        .cta_replica()
        .build();
    net.ask_elsewhere();
    net.lose_between_cpfs(faults.lossy_links);
    match planted {
        Some(PlantedFault::GrantMissingAtBackup) => net.plant_in_states(|ue| ue.grant = None),
        Some(PlantedFault::UsageMissingAtBackup) => net.plant_in_states(|ue| {
            if let Some(grant) = &mut ue.grant {
                grant.used = (0, 0);
            }
        }),
        Some(PlantedFault::RegistrationMissingAtBackup) => {
            net.has_faulty_cpfs();
            net.plant_in_states(|ue| ue.amf.registered = false);
        }
        _ => {}
    }
    let gnbs = (1..=plan.gnbs).map(|gnb| net.add_gnb(gnb_config(plmn, gnb))).collect();
    let id = OperatorId { plmn, nid: None };
    Operator { spared_until: net.now(), net, id, gnbs }
}

fn config(plmn: PlmnId, homes: &[(Domain, PlmnId)], faults: &OpenFaults) -> Config {
    let mut config = default_config();
    config.amf.plmn = plmn;
    config.amf.access.authentication.every_registrations = faults.authenticated_every;
    open_config(&mut config);
    let open = config.open.as_mut().expect("users of brokers are served");
    open.homes = homes.iter().map(|(domain, home)| (*home, domain.clone())).collect();
    open.terms.price = Price::new(*b"EUR", 100, 200).expect("a currency");
    config
}

/// The `n`th gNB of an operator. Every second one speaks fastwire.
fn gnb_config(plmn: PlmnId, n: u8) -> GnbConfig {
    let id = GlobalGnbId::new(plmn, n.into(), 28).expect("28 bits");
    let address = Ipv4Addr::new(127, 0, 1, n).into();
    let mut config = GnbConfig::new(id, Tac::new(1).expect("24 bits"), vec![SNssai::sst(1)], address);
    config.fastwire = n.is_multiple_of(2);
    config
}

/// A UE that has selected the network of an operator.
fn served_by(config: &UeConfig, operator: OperatorId) -> UeConfig {
    let mut config = config.clone();
    let mut profile = (*config.profile).clone();
    profile.plmn = operator.plmn;
    config.profile = std::sync::Arc::new(profile);
    config
}

fn lose_key(config: &mut UeConfig) {
    if let SuciSource::Sap(card) = &mut config.suci {
        card.sim.signing = key("another");
    }
}
