//! Sites of homes in virtual time: the shipped CTA, CPF, SMF and N14 replicas of each home, the shipped UPF of each site, emulated gNBs and UEs that
//! move by the trips of a city. A home is one AMF of an AMF set; a site has one set, to whose homes each of its gNBs is connected.
//!
//! Each message between two nodes takes [`HOP`], so that a latency is a number of messages one after the other. Each message carries what has caused it:
//! the work and the messages of a procedure are counted under its name wherever they fall.

mod figures;
mod flow;
mod homes;
mod judge;
mod lives;
mod trips;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use whimbrel_control::UpfId;
use whimbrel_ids::Instant;
use whimbrel_ran::Outbox as RanOutbox;
use whimbrel_ran::cells::{Cells, GnbId, Input as RanInput, Output as RanOutput};
use whimbrel_resilience::{CtaOrder, Input};
use whimbrel_user::Upf;

use crate::{EPOCH, Rng};
use homes::SimHome;
use judge::SitesJudge;
use lives::UeLife;
use trips::Trips;

pub use figures::{Activity, SiteFigures, SiteLink};

/// The time of each message between two nodes: a latency in milliseconds is a number of messages.
pub const HOP: Duration = Duration::from_millis(1);
/// How often homes look at their timers.
const SLICE: Duration = Duration::from_millis(10);
/// How often homes send replicas, UEs rest, and gNBs, UEs and UPFs look at their timers; as often as the product sends replicas.
const SLICES_BETWEEN_ROUNDS: u32 = 10;
/// UEs and records that rest in a round of a home: all that can, at any load of these runs.
const REST_MAX: usize = 1 << 16;
/// Time that the last UEs that come take to be registered.
const LAST_COME: Duration = Duration::from_secs(30);
/// Between the coming of a home and the going of another.
const BETWEEN_CHANGES: Duration = Duration::from_secs(30);
/// How long a drain may take after the usual time.
const DRAIN_MAX: Duration = Duration::from_secs(120);
/// Streams of an association.
const STREAMS: u16 = 16;

/// The planted fault of a run that has to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SitesFault {
    /// A home forgets its UEs.
    HomeForgets,
    /// The UPFs of two sites have the same addresses.
    OverlappingPools,
    /// Each input of a home looks at each of its UEs.
    Scan,
}

/// How large a network is, and what happens in it.
#[derive(Clone, Copy, Debug)]
pub struct SitesPlan {
    /// Sites, 2 to 8.
    pub sites: u8,
    /// Homes of a site, 2 to 8.
    pub homes: u8,
    /// Districts of a site, of 50 gNBs each.
    pub districts: u16,
    /// UEs that register and move.
    pub ues: u32,
    /// UEs beside them that are registered and idle all the time; their sessions are in SMFs only. With some, no home is added and none removed.
    pub at_rest: u64,
    /// Homes send the states of their UEs to another one of their set.
    pub replicas: bool,
    /// Within this time the UEs come.
    pub arrival: Duration,
    /// The time in which figures of a UE and an hour are counted.
    pub measured: Duration,
    /// Mean time between two activities of a UE.
    pub pause: Duration,
    /// All random draws follow from it.
    pub seed: u64,
    /// The planted fault, if there is one.
    pub fault: Option<SitesFault>,
}

impl SitesPlan {
    /// gNBs of all sites.
    pub fn gnbs(&self) -> u32 {
        u32::from(self.sites) * u32::from(self.districts) * trips::CELLS as u32
    }
}

/// The caller's instruments: this crate reads no clock.
#[derive(Clone, Copy)]
pub struct SitesMeter {
    /// A clock, in nanoseconds.
    pub nanos: fn() -> u64,
    /// Octets that the allocator has given out.
    pub octets: fn() -> usize,
    /// Work that is always the same, done all along: its time shows how fast the machine is meanwhile.
    pub reference: fn(),
}

/// Octets that the parts of a network have taken in the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct SitesMemory {
    /// Homes without their replicas: CTAs with CPFs, contexts, records, directories, gNBs.
    pub homes: usize,
    /// Replicas: what is held of other homes' UEs, and what other homes were sent.
    pub replicas: usize,
    /// UPFs of each site.
    pub upfs: usize,
    /// Emulated gNBs and UEs.
    pub ran: usize,
}

/// A message between two nodes.
enum SiteMessage {
    ToHome { home: usize, gnb: GnbId, stream: u16, octets: Vec<u8> },
    ToGnb { home: usize, gnb: GnbId, stream: u16, octets: Vec<u8> },
    ToUpf { home: usize, upf: UpfId, octets: Vec<u8> },
    FromUpf { home: usize, upf: UpfId, octets: Vec<u8> },
    N14 { from: usize, to: usize, octets: Vec<u8>, by_replica: bool },
}

/// A network of sites that runs.
pub struct SitesRun {
    plan: SitesPlan,
    meter: SitesMeter,
    now: Instant,
    rng: Rng,
    slices: u32,
    homes: Vec<SimHome>,
    by_smf: BTreeMap<SocketAddr, usize>,
    upfs: Vec<Upf>,
    ran: Cells,
    ran_out: RanOutbox<RanOutput>,
    /// Inputs that come of outputs of the emulated RAN, until they are handled.
    happened: VecDeque<(Activity, RanOutput)>,
    messages: VecDeque<(Instant, Activity, SiteMessage)>,
    trips: Trips,
    lives: Vec<UeLife>,
    wishes: BinaryHeap<Reverse<(Instant, u32)>>,
    /// UEs begin nothing more.
    is_over: bool,
    figures: SiteFigures,
    judge: SitesJudge,
}

impl SitesRun {
    /// A network whose gNBs are connected, and whose UEs come within [`SitesPlan::arrival`]. One home of the first site is not there yet.
    pub fn new(plan: SitesPlan, meter: SitesMeter) -> Self {
        let rng = Rng::new(plan.seed);
        let homes = homes::all(&plan);
        let by_smf = homes.iter().enumerate().map(|(i, home)| (home.n4(), i)).collect();
        let upfs = (0..plan.sites).map(|site| homes::upf(&plan, site)).collect();
        let trips = Trips::new(plan.seed);
        let (ran, lives) = lives::ran(&plan, &trips);
        let mut run = Self {
            plan,
            meter,
            now: EPOCH,
            rng,
            slices: 0,
            homes,
            by_smf,
            upfs,
            ran,
            ran_out: RanOutbox::new(),
            happened: VecDeque::new(),
            messages: VecDeque::new(),
            trips,
            lives,
            wishes: BinaryHeap::new(),
            is_over: false,
            figures: SiteFigures::default(),
            judge: SitesJudge::default(),
        };
        (0..run.homes.len()).for_each(|home| run.core(home, Activity::Setup, Input::Tick));
        run.run_for(Duration::from_secs(1));
        let later = (plan.at_rest == 0).then(|| run.home_to_add());
        (0..run.homes.len()).filter(|home| Some(*home) != later).for_each(|home| run.connect(home));
        run.run_for(Duration::from_secs(1));
        run.figures = SiteFigures::default();
        run
    }

    /// The home that is added.
    pub fn home_to_add(&self) -> usize {
        usize::from(self.plan.homes) - 1
    }

    /// The home that is drained and removed: the last one of the last site.
    pub fn home_to_remove(&self) -> usize {
        self.homes.len() - 1
    }

    /// UEs come, move and do what UEs do. After the measured time a home is added, and then another one is drained and removed.
    pub fn live(&mut self) {
        let arrival_micros = self.plan.arrival.as_micros() as u64;
        let late = self.plan.arrival + LAST_COME + self.plan.measured + BETWEEN_CHANGES;
        for ue in 0..self.plan.ues {
            // One in twenty comes when a home was added, which gets such UEs.
            let after = if ue % 20 == 19 { late } else { Duration::ZERO };
            let within = Duration::from_micros(self.rng.below(arrival_micros));
            self.wish(ue, within + after);
        }
        self.run_for(self.plan.arrival + LAST_COME);
        if self.plan.at_rest > 0 {
            self.add_ues_at_rest();
        }
        self.figures.begin_measured(self.now);
        self.run_for(self.plan.measured);
        self.figures.end_measured(self.now);
        self.connect_and_remove();
        self.come_to_rest();
        // Longer than the longest time that a UE is active.
        self.run_for(Duration::from_secs(90));
    }

    fn connect_and_remove(&mut self) {
        let removed = self.home_to_remove();
        if self.plan.at_rest == 0 {
            self.connect(self.home_to_add());
        }
        self.run_for(BETWEEN_CHANGES);
        if self.plan.fault == Some(SitesFault::HomeForgets) {
            self.forget(removed);
        } else if self.plan.at_rest == 0 {
            self.drain(removed);
        }
        self.run_for(self.plan.arrival);
        // `whimbrel drain` waits likewise.
        let until = self.now + DRAIN_MAX;
        while self.homes[removed].cta.removal().is_some_and(|r| r.left > 0) && self.now < until {
            self.run_for(Duration::from_secs(1));
        }
        if self.plan.at_rest == 0 {
            self.remove(removed);
        }
        self.run_for(BETWEEN_CHANGES);
    }

    /// The counts until now.
    pub fn figures(&self) -> &SiteFigures {
        &self.figures
    }

    /// Details for the search of a fault.
    pub fn noted(&self) -> &[String] {
        self.judge.noted()
    }

    /// UEs that are registered at each home.
    pub fn registered(&self) -> Vec<usize> {
        self.homes.iter().map(|home| home.cta.registered()).collect()
    }

    /// Of how many UEs another home has a replica.
    pub fn replicas_held(&self) -> usize {
        self.homes.iter().map(|home| home.replicas.held()).sum()
    }

    /// Octets that the parts take: each is counted as it is dropped.
    pub fn take_apart(self) -> SitesMemory {
        let octets = self.meter.octets;
        let of = |drops: &mut dyn FnMut()| {
            let before = octets();
            drops();
            before.saturating_sub(octets())
        };
        let (mut homes, mut replicas): (Vec<_>, Vec<_>) =
            self.homes.into_iter().map(|home| (home.cta, home.replicas)).unzip();
        let (mut upfs, mut ran) = (self.upfs, Some((self.ran, self.lives)));
        SitesMemory {
            replicas: of(&mut || replicas.clear()),
            homes: of(&mut || homes.clear()),
            upfs: of(&mut || upfs.clear()),
            ran: of(&mut || ran = None),
        }
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        self.run_until(until);
    }

    fn run_until(&mut self, until: Instant) {
        loop {
            let slice = EPOCH + SLICE * (self.slices + 1);
            let message = self.messages.front().map_or(Instant::FAR_FUTURE, |(at, ..)| *at);
            let wish = self.wishes.peek().map_or(Instant::FAR_FUTURE, |Reverse((at, _))| *at);
            let next = slice.min(message).min(wish);
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            if next == message {
                if let Some((_, cause, message)) = self.messages.pop_front() {
                    self.arrives(cause, message);
                }
            } else if next == wish {
                if let Some(Reverse((_, ue))) = self.wishes.pop() {
                    self.act(ue);
                }
            } else {
                self.slices += 1;
                self.slice();
            }
            self.handle_happened();
        }
    }

    /// Timers of all parts.
    fn slice(&mut self) {
        for home in 0..self.homes.len() {
            if self.homes[home].is_there && self.homes[home].cta.next_deadline() <= self.now {
                let cause = if self.homes[home].cta.removal().is_some() {
                    Activity::Removal
                } else {
                    Activity::Timers
                };
                self.core(home, cause, Input::Tick);
            }
        }
        if !self.slices.is_multiple_of(SLICES_BETWEEN_ROUNDS) {
            return;
        }
        let began = (self.meter.nanos)();
        (self.meter.reference)();
        self.figures.reference.0 += (self.meter.nanos)().saturating_sub(began);
        self.figures.reference.1 += 1;
        for home in 0..self.homes.len() {
            if self.plan.replicas {
                let all = std::mem::take(&mut self.homes[home].replicates_all);
                self.does(home, Activity::Replication, false, |home, now, out| {
                    home.cta.order(now, CtaOrder::StoreUes { all }, out);
                });
            }
            self.does(home, Activity::Timers, false, |home, now, _| {
                if let Some(cpf) = home.cta.cpf_mut() {
                    cpf.rest(now, REST_MAX, 0);
                }
            });
        }
        self.ran(Activity::Timers, RanInput::Tick);
        for upf in 0..self.upfs.len() {
            if self.upfs[upf].next_deadline().is_some_and(|at| at <= self.now) {
                self.upf(Activity::Timers, upf, |upf, now, out| upf.tick(now, out));
            }
        }
    }
}
