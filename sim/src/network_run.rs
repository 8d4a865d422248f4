//! A country: hundreds of gNBs, thousands of UEs that move and do what UEs do, and everything that can go wrong.
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
use whimbrel_ran::ue::{Command, MmState, SessionRequest};

use crate::{CpfLoss, CtaLoss, Faults, GnbIndex, Rng, Sim, UeIndex, UpfState, default_config, ue_config};

/// The CPFs that run a country's UEs, and how many are lost.
#[derive(Clone, Copy, Debug)]
pub struct Cpfs {
    /// How many: who is lost is replaced.
    pub number: u16,
    /// Backups of a UE.
    pub backups: usize,
    /// The CTA has a CTA replica, is lost too, and has another one after that.
    pub replicated: bool,
    /// Mean time between two losses; none at all if zero.
    pub losses: Duration,
}

/// How large a country is, and how bad its days.
#[derive(Clone, Copy, Debug)]
pub struct NetworkPlan {
    /// gNBs, in rows of [`NetworkPlan::WIDTH`].
    pub gnbs: u32,
    /// UEs.
    pub ues: u32,
    /// Tracking areas: as many gNBs each. More than a registration area holds, or nobody would ever have to tell.
    pub areas: u32,
    /// What the radio loses, repeats and reorders.
    pub faults: Faults,
    /// Mean time between two wishes of a UE.
    pub pace: Duration,
    /// Mean time between two failures of a node; none at all if zero.
    pub trouble: Duration,
    /// CPFs of a region; `None`: the CTA runs the UEs itself.
    pub cpfs: Option<Cpfs>,
}

impl NetworkPlan {
    /// gNBs of a row: those to the left and right and in the next rows are neighbours.
    const WIDTH: usize = 16;

    /// Two hundred gNBs and two thousand UEs on bad days.
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

    /// As bad, and small enough for a build without optimisation.
    pub fn medium() -> Self {
        Self { gnbs: 24, ues: 80, areas: 24, ..Self::large() }
    }

    /// As bad, and so small that all invariants are looked at after every step.
    pub fn small() -> Self {
        Self { gnbs: 20, ues: 30, areas: 20, ..Self::large() }
    }

    /// The same at four CPFs, one of which is lost every ten seconds, with two backups a UE. With a CTA replica the
    /// CTA is lost as often.
    pub fn with_cpfs(self, replicated: bool) -> Self {
        let cpfs = Cpfs { number: 4, backups: 2, replicated, losses: Duration::from_secs(10) };
        Self { cpfs: Some(cpfs), ..self }
    }
}

/// A country and its agenda.
pub struct NetworkRun {
    /// The network.
    pub net: Sim,
    plan: NetworkPlan,
    rng: Rng,
    /// When which UE wants something.
    agenda: BTreeSet<(Instant, UeIndex)>,
    next_trouble: Instant,
    next_loss: Instant,
    /// What the UPF gave away of its addresses before anyone came.
    free: Vec<Option<(u64, u64)>>,
}

impl NetworkRun {
    /// A country in which everyone is switched off.
    pub fn new(seed: u64, plan: NetworkPlan) -> Self {
        let mut config = default_config();
        config.amf.tacs = (1..=plan.areas).map(tac).collect();
        let mut net = match plan.cpfs {
            None => Sim::builder(seed).config(config).faults(plan.faults).build(),
            Some(c) if c.replicated => Sim::builder(seed)
                .config(config)
                .faults(plan.faults)
                .cpfs(c.number, c.backups)
                .cta_replica()
                .build(),
            Some(c) => {
                Sim::builder(seed).config(config).faults(plan.faults).cpfs(c.number, c.backups).build()
            }
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

    /// Lives for so long.
    pub fn run(&mut self, time: Duration) {
        let until = self.net.now() + time;
        while let Some((at, ue)) = self.agenda.first().copied().filter(|(at, _)| *at <= until) {
            if self.next_trouble <= at {
                self.until(self.next_trouble);
                self.trouble();
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
            self.wish(ue);
            self.agenda.insert((at + wait(&mut self.rng, self.plan.pace), ue));
        }
        self.until(until);
    }

    fn until(&mut self, at: Instant) {
        self.net.advance(at.since(self.net.now()));
    }

    /// A UE does something that it can do as it is.
    fn wish(&mut self, ue: UeIndex) {
        if self.net.is_away(ue) {
            self.net.switch_on(ue);
        }
        let context = self.net.ue_ref(ue);
        let sessions: Vec<_> = context.sessions().map(|s| s.id).collect();
        let some = sessions.get(self.rng.below(sessions.len() as u64) as usize).copied();
        match (context.state(), context.is_connected(), self.rng.below(100)) {
            (MmState::Deregistered, _, 0..85) => self.net.command(ue, Command::Register),
            (_, _, 0..3) => self.net.command(ue, Command::Deregister { switch_off: self.rng.chance(500) }),
            (_, false, 3..35) => self.move_on(ue),
            (_, true, 3..8) => self.move_on(ue), // out of reach, without handover
            (MmState::Registered, true, 8..30) => {
                let there = self.beside(ue);
                let via = if self.rng.chance(600) { Via::Xn } else { Via::N2 };
                self.net.hand_over(ue, there, via);
            }
            (MmState::Registered, false, 35..60) => self.net.command(ue, Command::ServiceRequest),
            (MmState::Registered, true, 30..55) => {
                self.net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity));
            }
            (MmState::Registered, _, 60..75) if sessions.len() < 3 => {
                let request =
                    SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
                self.net.command(ue, Command::EstablishSession(request));
            }
            (MmState::Registered, _, 75..80) => {
                if let Some(id) = some {
                    self.net.command(ue, Command::ReleaseSession(id));
                }
            }
            (MmState::Registered, _, 80..95) => {
                if let Some(id) = some {
                    self.net.downlink(ue, id);
                }
            }
            (MmState::Registered, _, 95..98) => self.net.command(ue, Command::PeriodicRegistration),
            (MmState::Registered, _, 98) => self.net.command(ue, Command::Register),
            (MmState::Registered, _, 99) => {
                let supi = self.net.ue_ref(ue).config().supi;
                if let Some(id) = self.net.cta().find(supi) {
                    self.net.order(id, CoreCommand::Deregister);
                }
            }
            _ => {}
        }
    }

    /// To a cell beside its own.
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

    /// A node fails, or the UPF gets better.
    fn trouble(&mut self) {
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

    /// Who was lost is replaced, and some message or input from now on is the last of a CPF, or of the CTA.
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

    /// Nothing goes wrong any more.
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

    /// The UPF is away for a while: shorter and longer than the SMF's patience.
    fn outage(&mut self, state: UpfState) {
        self.net.set_upf(state);
        let time = Duration::from_millis(self.rng.below(30_000));
        self.net.advance(time);
        self.net.set_upf(UpfState::Answering);
    }

    /// A while in a network in order: everyone is there, has one session, sleeps, and nothing is under way. Then the faults go on.
    ///
    /// # Panics
    /// If somebody is not there.
    pub fn rest(&mut self) {
        self.heal();
        self.everyone_registers();
        for i in 0..self.net.ues() {
            let surplus: Vec<_> = self.net.ue_ref(UeIndex(i)).sessions().skip(1).map(|s| s.id).collect();
            for id in surplus {
                self.net.command(UeIndex(i), Command::ReleaseSession(id));
            }
        }
        self.everyone_has_a_session();
        self.everyone_sleeps();
        self.net.set_faults(self.plan.faults);
    }

    /// gNBs find everyone inactive.
    fn everyone_sleeps(&mut self) {
        for i in 0..self.net.ues() {
            self.net.release(UeIndex(i), Cause::RadioNetwork(CauseRadioNetwork::UserInactivity));
        }
        self.net.advance(Duration::from_secs(5));
    }

    /// The network heals; everyone is there, everyone's packets arrive, and when everyone has left nothing is left over.
    ///
    /// # Panics
    /// If not.
    pub fn heal_and_verify(&mut self) {
        self.heal();
        self.everyone_registers();
        self.everyone_has_a_session();
        let sessions: Vec<_> = (0..self.net.ues())
            .map(UeIndex)
            .flat_map(|ue| self.net.ue_ref(ue).sessions().map(move |s| (ue, s.id)).collect::<Vec<_>>())
            .collect();
        self.everyone_sleeps();
        for &(ue, id) in &sessions {
            self.net.check_path(ue, id); // a UE that is idle is paged
        }
        self.net.advance(Duration::from_secs(5));
        for &(ue, id) in &sessions {
            assert!(self.net.ue_ref(ue).has_user_plane(id), "{ue:?} did not hear that packets wait");
            self.net.check_path(ue, id);
        }
        self.agree();
        self.everyone_leaves();
        assert_eq!(self.net.tally().faults, 0, "no UE's machine panicked");
    }

    /// UEs that were refused service for a while come again by their own timers; the longest is T3502.
    fn everyone_registers(&mut self) {
        for _ in 0..8 {
            let absent: Vec<_> = (0..self.net.ues()).map(UeIndex).filter(|&ue| !self.is_there(ue)).collect();
            if absent.is_empty() {
                break;
            }
            for ue in absent {
                self.net.command(ue, Command::Register);
            }
            self.net.advance(Duration::from_secs(400));
        }
        for i in 0..self.net.ues() {
            let ue = UeIndex(i);
            assert!(self.is_there(ue), "{ue:?} does not come back: {:?}", self.net.ue_ref(ue).state());
        }
        // A UE that slept while the UPF lost its sessions learns so now.
        for i in 0..self.net.ues() {
            self.net.command(UeIndex(i), Command::PeriodicRegistration);
        }
        self.net.advance(Duration::from_secs(60));
        self.agree();
    }

    fn agree(&self) {
        assert_eq!(self.net.agree(), Ok(()));
    }

    fn everyone_has_a_session(&mut self) {
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

    /// Both sides hold the UE registered, under the same identity.
    fn is_there(&self, ue: UeIndex) -> bool {
        let context = self.net.ue_ref(ue);
        let id = self.net.cta().find(context.config().supi);
        let known = id.and_then(|id| self.net.context(id));
        let tmsi = context.s_tmsi().map(|t| t.tmsi);
        let named = |p: &whimbrel_control::UeContext| p.amf.tmsi == tmsi || p.amf.former_tmsi == tmsi;
        context.state() == MmState::Registered && known.is_some_and(|p| p.amf.registered && named(p))
    }

    fn everyone_leaves(&mut self) {
        for i in 0..self.net.ues() {
            self.net.command(UeIndex(i), Command::Deregister { switch_off: i % 2 == 0 });
        }
        self.net.advance(Duration::from_secs(600));
        assert_eq!(self.net.contexts().count(), 0, "a UE that has left is known still");
        assert_eq!(
            (self.net.backed(), self.net.cta().logged()),
            (0, (0, 0)),
            "a state or log of one is held still"
        );
        assert_eq!(self.net.cta().occupancy(), (0, 0), "a slot is taken still");
        assert_eq!(self.net.upf_sessions(), 0, "a session is left over at the UPF");
        assert_eq!(free(&self.net), self.free, "an address is taken still");
        self.net.check_nothing_held();
        for i in 0..self.net.gnbs() {
            assert_eq!(self.net.gnb_ref(GnbIndex(i)).contexts(), 0, "gNB {i} has a context still");
        }
    }
}

fn establish() -> Command {
    let pdu_session_type = PduSessionType::Ipv4;
    Command::EstablishSession(SessionRequest { dnn: None, s_nssai: None, pdu_session_type })
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
