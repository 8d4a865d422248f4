//! A network of hundreds of gNBs and thousands of UEs that move and run procedures while radio, gNBs, UPF and core fail.
//!
//! [`NetworkRun::run`] is the life of it, [`NetworkRun::heal_and_verify`] heals the network, has everyone register, sees that every path leads
//! where its UE is, and then has everyone leave: nothing may be left over. The invariants hold after every step.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use whimbrel_control::Command as CoreCommand;
use whimbrel_ids::{GlobalGnbId, Instant, PlmnId, SNssai, Tac};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::gnb::{self, GnbConfig, Via};
use whimbrel_ran::ue::{MmState, SessionRequest, UeCommand};

use crate::{CpfLoss, CtaLoss, Faults, GnbIndex, Rng, Sim, UeIndex, UpfState, default_config, ue_config};

/// The CPFs that run the UEs, and how often they are lost.
#[derive(Clone, Copy, Debug)]
pub struct Cpfs {
    /// How many; lost ones are replaced.
    pub number: u16,
    /// Replicas per UE.
    pub replicas: usize,
    /// The CTA has a CTA replica and is lost too; after a takeover it gets another replica.
    pub replicated: bool,
    /// Mean time between two losses; no losses if zero.
    pub losses: Duration,
}

/// The size of a network, and its faults.
#[derive(Clone, Copy, Debug)]
pub struct NetworkPlan {
    /// gNBs, in rows of [`NetworkPlan::WIDTH`].
    pub gnbs: u32,
    /// Number of emulated UEs.
    pub ues: u32,
    /// Tracking areas, with equally many gNBs each: more than a registration area holds, so that UEs have to update it.
    pub areas: u32,
    /// The faults of the radio.
    pub faults: Faults,
    /// Mean time between two procedures of a UE.
    pub pace: Duration,
    /// Mean time between two failures of a gNB, UPF, UE or core; no failures if zero.
    pub trouble: Duration,
    /// CPFs of a region; `None`: the CTA runs the UEs itself.
    pub cpfs: Option<Cpfs>,
}

impl NetworkPlan {
    /// gNBs of a row: those to the left and right and in the next rows are neighbours.
    const WIDTH: usize = 16;

    /// Two hundred gNBs and two thousand UEs.
    pub fn large() -> Self {
        let faults = Faults {
            lost_per_mille: 20,
            repeated_per_mille: 20,
            reordered_per_mille: 20,
            first_repeated_per_mille: 10,
            radio_latency_micros: (2_000, 80_000),
            ..Faults::default()
        };
        Self {
            gnbs: 200,
            ues: 2000,
            areas: 40,
            faults,
            pace: Duration::from_secs(20),
            trouble: Duration::from_secs(45),
            cpfs: None,
        }
    }

    /// Small enough for a build without optimisation, with the same faults.
    pub fn medium() -> Self {
        Self { gnbs: 24, ues: 80, areas: 24, ..Self::large() }
    }

    /// So small that all invariants are checked after every step, with the same faults.
    pub fn small() -> Self {
        Self { gnbs: 20, ues: 30, areas: 20, ..Self::large() }
    }

    /// The same at four CPFs, one of which is lost every ten seconds, with two replicas a UE. With a CTA replica the
    /// CTA is lost as often.
    pub fn with_cpfs(self, replicated: bool) -> Self {
        let cpfs = Cpfs { number: 4, replicas: 2, replicated, losses: Duration::from_secs(10) };
        Self { cpfs: Some(cpfs), ..self }
    }
}

/// A network, and the procedures that its UEs will run.
pub struct NetworkRun {
    /// The simulated network of the run.
    pub net: Sim,
    plan: NetworkPlan,
    rng: Rng,
    /// When each UE starts its next procedure.
    agenda: BTreeSet<(Instant, UeIndex)>,
    next_trouble: Instant,
    next_loss: Instant,
    /// The UPF's free addresses before any UE registered.
    free: Vec<Option<(u64, u64)>>,
}

impl NetworkRun {
    /// A network in which no UE is registered.
    pub fn new(seed: u64, plan: NetworkPlan) -> Self {
        let mut config = default_config();
        config.amf.tacs = (1..=plan.areas).map(tac).collect();
        let builder = Sim::builder(seed).config(config).faults(plan.faults);
        // In every other run UEs rest after each input.
        let builder = if seed % 2 == 1 { builder.resting() } else { builder };
        let mut net = match plan.cpfs {
            None => builder.build(),
            Some(c) if c.replicated => builder.cpfs(c.number, c.replicas).cta_replica().build(),
            Some(c) => builder.cpfs(c.number, c.replicas).build(),
        };
        net.discard_events();
        let mut rng = Rng::new(seed ^ 0xc0_0171);
        let gnbs: Vec<_> = (0..plan.gnbs).map(|n| net.add_gnb(gnb_config(n, &plan))).collect();
        net.advance(Duration::from_secs(1));
        let mut agenda = BTreeSet::new();
        for n in 0..plan.ues {
            let home = gnbs[rng.below(gnbs.len() as u64) as usize];
            let ue = net.add_ue(home, ue_config(n));
            agenda.insert((net.now() + wait(&mut rng, plan.pace), ue));
        }
        let after = |mean: Duration| if mean.is_zero() { Instant::FAR_FUTURE } else { net.now() + mean };
        let next_trouble = after(plan.trouble);
        let next_loss = after(plan.cpfs.map_or(Duration::ZERO, |c| c.losses));
        let free = free(&net);
        Self { net, plan, rng, agenda, next_trouble, next_loss, free }
    }

    /// Runs for so long.
    pub fn run(&mut self, time: Duration) {
        let until = self.net.now() + time;
        while let Some((at, ue)) = self.agenda.first().copied().filter(|(at, _)| *at <= until) {
            if self.next_trouble <= at {
                self.until(self.next_trouble);
                self.fail_node();
                self.next_trouble = self.net.now() + wait(&mut self.rng, self.plan.trouble);
                continue;
            }
            if let Some(cpfs) = self.plan.cpfs.filter(|_| self.next_loss <= at) {
                self.until(self.next_loss);
                self.loss(cpfs);
                self.next_loss = self.net.now() + wait(&mut self.rng, cpfs.losses);
                continue;
            }
            self.agenda.pop_first();
            self.until(at);
            self.start_procedure(ue);
            self.agenda.insert((at + wait(&mut self.rng, self.plan.pace), ue));
        }
        self.until(until);
    }

    fn until(&mut self, at: Instant) {
        self.net.advance(at.since(self.net.now()));
    }

    /// A UE starts a procedure that its state allows.
    fn start_procedure(&mut self, ue: UeIndex) {
        if self.net.is_away(ue) {
            self.net.switch_on(ue);
        }
        let context = self.net.ue_ref(ue);
        let sessions: Vec<_> = context.sessions().map(|s| s.id).collect();
        let some = sessions.get(self.rng.below(sessions.len() as u64) as usize).copied();
        match (context.state(), context.is_connected(), self.rng.below(100)) {
            (MmState::Deregistered, _, 0..85) => self.net.command(ue, UeCommand::Register),
            (_, _, 0..3) => self.net.command(ue, UeCommand::Deregister { switch_off: self.rng.chance(500) }),
            (_, false, 3..35) => self.move_on(ue),
            (_, true, 3..8) => self.move_on(ue), // out of reach, without handover
            (MmState::Registered, true, 8..30) => {
                let there = self.beside(ue);
                let via = if self.rng.chance(600) { Via::Xn } else { Via::N2 };
                self.net.hand_over(ue, there, via);
            }
            (MmState::Registered, false, 35..60) => self.net.command(ue, UeCommand::ServiceRequest),
            (MmState::Registered, true, 30..55) => {
                self.net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity));
            }
            (MmState::Registered, _, 60..75) if sessions.len() < 3 => {
                let request =
                    SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
                self.net.command(ue, UeCommand::EstablishSession(request));
            }
            (MmState::Registered, _, 75..80) => {
                if let Some(id) = some {
                    self.net.command(ue, UeCommand::ReleaseSession(id));
                }
            }
            (MmState::Registered, _, 80..95) => {
                if let Some(id) = some {
                    self.net.downlink(ue, id);
                }
            }
            (MmState::Registered, _, 95..98) => self.net.command(ue, UeCommand::PeriodicRegistration),
            (MmState::Registered, _, 98) => self.net.command(ue, UeCommand::Register),
            (MmState::Registered, _, 99) => {
                let supi = self.net.ue_ref(ue).config().supi;
                if let Some(id) = self.net.cta().find(supi) {
                    self.net.order(id, CoreCommand::Deregister);
                }
            }
            _ => {}
        }
    }

    /// It moves to a cell beside its own.
    fn move_on(&mut self, ue: UeIndex) {
        let there = self.beside(ue);
        self.net.move_ue(ue, there);
    }

    fn beside(&mut self, ue: UeIndex) -> GnbIndex {
        let here = self.net.gnb_of(ue).0;
        let step = [
            1,
            self.plan.gnbs as usize - 1,
            NetworkPlan::WIDTH,
            self.plan.gnbs as usize - NetworkPlan::WIDTH,
        ];
        GnbIndex((here + step[self.rng.below(4) as usize]) % self.plan.gnbs as usize)
    }

    /// A gNB, the UPF, the core or a UE fails.
    fn fail_node(&mut self) {
        let gnb = GnbIndex(self.rng.below(self.plan.gnbs.into()) as usize);
        match self.rng.below(100) {
            0..45 => self.net.restart_gnb(gnb),
            45..65 => self.net.gnb_input(gnb, gnb::Input::Reset),
            65..70 => self.net.restart_upf(),
            70..75 => self.outage(UpfState::Silent),
            75..80 => self.outage(UpfState::Mute),
            80 if self.plan.cpfs.is_none() => self.net.restart_core(),
            81..90 => self.net.lose_power(UeIndex(self.rng.below(self.plan.ues.into()) as usize)),
            _ => {}
        }
    }

    /// Lost processes are replaced; a CPF, or the CTA too, is lost at one of the next messages or inputs.
    fn loss(&mut self, cpfs: Cpfs) {
        while self.net.cpfs() < cpfs.number.into() {
            self.net.add_cpf();
        }
        if cpfs.replicated {
            self.net.add_cta_replica();
            let how = CtaLoss::ALL[self.rng.below(5) as usize];
            self.net.lose_cta_at(self.net.inputs_taken() + 1 + self.rng.below(300), how);
        }
        let how = CpfLoss::ALL[self.rng.below(4) as usize];
        self.net.lose_cpf_at(self.net.links_taken() + 1 + self.rng.below(150), how);
    }

    /// All faults stop.
    fn heal(&mut self) {
        self.net.set_faults(Faults::default());
        self.net.set_upf(UpfState::Answering);
        self.net.stop_losses();
        for ue in (0..self.net.ues()).map(UeIndex) {
            if self.net.is_away(ue) {
                self.net.switch_on(ue);
            }
        }
    }

    /// The UPF is unreachable for a while: shorter and longer than the SMF waits.
    fn outage(&mut self, state: UpfState) {
        self.net.set_upf(state);
        let time = Duration::from_millis(self.rng.below(30_000));
        self.net.advance(time);
        self.net.set_upf(UpfState::Answering);
    }

    /// The faults stop, all UEs register, have one session and become idle, and nothing is in flight. Then the faults go on.
    ///
    /// # Panics
    /// If a UE is not registered.
    pub fn rest(&mut self) {
        self.heal();
        self.register_all();
        for i in 0..self.net.ues() {
            let surplus: Vec<_> = self.net.ue_ref(UeIndex(i)).sessions().skip(1).map(|s| s.id).collect();
            for id in surplus {
                self.net.command(UeIndex(i), UeCommand::ReleaseSession(id));
            }
        }
        self.establish_a_session_each();
        self.release_all_connections();
        self.net.set_faults(self.plan.faults);
    }

    /// gNBs release all connections because of user inactivity.
    fn release_all_connections(&mut self) {
        for i in 0..self.net.ues() {
            self.net.release(UeIndex(i), Cause::RadioNetwork(CauseRadioNetwork::UserInactivity));
        }
        self.net.advance(Duration::from_secs(5));
    }

    /// The faults stop. All UEs register and get packets; when all have deregistered, nothing may be left over.
    ///
    /// # Panics
    /// If not.
    pub fn heal_and_verify(&mut self) {
        self.heal();
        self.register_all();
        self.establish_a_session_each();
        let sessions: Vec<_> = (0..self.net.ues())
            .map(UeIndex)
            .flat_map(|ue| self.net.ue_ref(ue).sessions().map(move |s| (ue, s.id)).collect::<Vec<_>>())
            .collect();
        self.release_all_connections();
        for &(ue, id) in &sessions {
            self.net.check_path(ue, id); // a UE that is idle is paged
        }
        self.net.advance(Duration::from_secs(5));
        for &(ue, id) in &sessions {
            assert!(self.net.ue_ref(ue).has_user_plane(id), "{ue:?} was not paged for its packets");
            self.net.check_path(ue, id);
        }
        self.agree();
        self.deregister_all();
        assert_eq!(self.net.tally().faults, 0, "no UE's machine panicked");
    }

    /// UEs whose registration was rejected try again by their own timers; the longest is T3502.
    fn register_all(&mut self) {
        for _ in 0..8 {
            let absent: Vec<_> =
                (0..self.net.ues()).map(UeIndex).filter(|&ue| !self.is_registered(ue)).collect();
            if absent.is_empty() {
                break;
            }
            for ue in absent {
                self.net.command(ue, UeCommand::Register);
            }
            self.net.advance(Duration::from_secs(400));
        }
        for i in 0..self.net.ues() {
            let ue = UeIndex(i);
            assert!(self.is_registered(ue), "{ue:?} is not registered: {:?}", self.net.ue_ref(ue).state());
        }
        // A UE that was idle while the UPF lost its sessions is informed by this.
        for i in 0..self.net.ues() {
            self.net.command(UeIndex(i), UeCommand::PeriodicRegistration);
        }
        self.net.advance(Duration::from_secs(60));
        self.agree();
    }

    fn agree(&self) {
        assert_eq!(self.net.agree(), Ok(()));
    }

    fn establish_a_session_each(&mut self) {
        let without = |net: &Sim| {
            (0..net.ues())
                .map(UeIndex)
                .filter(|&ue| net.ue_ref(ue).sessions().next().is_none())
                .collect::<Vec<_>>()
        };
        for ue in without(&self.net) {
            self.net.command(ue, establish());
        }
        self.net.advance(Duration::from_secs(60));
        let still = without(&self.net);
        assert!(still.is_empty(), "{still:?} get no session");
    }

    /// UE and core have the UE as registered, under the same identity.
    fn is_registered(&self, ue: UeIndex) -> bool {
        let context = self.net.ue_ref(ue);
        let id = self.net.cta().find(context.config().supi);
        let known = id.and_then(|id| self.net.context(id));
        let tmsi = context.s_tmsi().map(|t| t.tmsi);
        let named = |p: &whimbrel_control::UeContext| p.amf.tmsi == tmsi || p.amf.former_tmsi == tmsi;
        context.state() == MmState::Registered && known.is_some_and(|p| p.amf.registered && named(p))
    }

    fn deregister_all(&mut self) {
        for i in 0..self.net.ues() {
            self.net.command(UeIndex(i), UeCommand::Deregister { switch_off: i % 2 == 0 });
        }
        self.net.advance(Duration::from_secs(600));
        assert_eq!(self.net.contexts().count(), 0, "a UE that has deregistered has a context");
        assert_eq!(
            (self.net.backed(), self.net.cta().logged()),
            (0, (0, 0)),
            "a state or log of one is stored"
        );
        assert_eq!(self.net.cta().occupancy(), (0, 0), "a slot is taken");
        assert_eq!(self.net.upf_sessions(), 0, "a session is left over at the UPF");
        assert_eq!(free(&self.net), self.free, "an address is taken");
        self.net.check_nothing_held();
        for i in 0..self.net.gnbs() {
            assert_eq!(self.net.gnb_ref(GnbIndex(i)).contexts(), 0, "gNB {i} has a context");
        }
    }
}

fn establish() -> UeCommand {
    let pdu_session_type = PduSessionType::Ipv4;
    UeCommand::EstablishSession(SessionRequest { dnn: None, s_nssai: None, pdu_session_type })
}

/// From half to one and a half times the mean.
fn wait(rng: &mut Rng, mean: Duration) -> Duration {
    let micros = mean.as_micros() as u64;
    Duration::from_micros(micros / 2 + rng.below(micros + 1))
}

fn free(net: &Sim) -> Vec<Option<(u64, u64)>> {
    (0..2).map(|dn| net.free_addresses(dn)).collect()
}

fn tac(n: u32) -> Tac {
    Tac::new(n).expect("24 bits")
}

/// The `n`th gNB: so many in a row share a tracking area.
fn gnb_config(n: u32, plan: &NetworkPlan) -> GnbConfig {
    let id = GlobalGnbId::new(PlmnId::TEST, n, 28).expect("28 bits");
    let area = 1 + n * plan.areas / plan.gnbs.max(1);
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 200, 0, 1).to_bits() + n);
    GnbConfig::new(id, tac(area), vec![SNssai::sst(1)], address.into())
}
