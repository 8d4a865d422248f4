//! A chaos run: five UEs at two gNBs run procedures while everything fails at rates that the seed decides. Then [`heal_and_verify`] stops the
//! faults, and all UEs must be registered.

use std::fmt;
use std::time::Duration;

use whimbrel_ids::{GlobalGnbId, PlmnId, SNssai, Tac};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::gnb::{self, GnbConfig, Via};
use whimbrel_ran::ue::{MmState, SessionRequest, UeCommand};

use crate::{
    CpfCut, Cut, FaultProfile, Faults, GnbIndex, Rng, Sim, Survivor, UeIndex, UnitFault, UpfState, ue_config,
};

/// The `n`th gNB, of tracking area 1 and slice 1. Every second one speaks fastwire.
pub fn gnb_config(n: u8) -> GnbConfig {
    let id = GlobalGnbId::new(PlmnId::TEST, n.into(), 28).expect("28 bits");
    let tac = Tac::new(1).expect("24 bits");
    let mut config = GnbConfig::new(id, tac, vec![SNssai::sst(1)], [127, 0, 1, n].into());
    config.fastwire = n.is_multiple_of(2);
    config
}

/// Bursts of packets in one step.
const BURSTS: u32 = 8;
/// CPFs of which one may be lost.
const CPFS_MIN: usize = 3;

/// The processes of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployment {
    /// One CTA, which runs the UEs itself.
    Single,
    /// Three CPFs, with so many replicas per UE. Lost ones are replaced.
    Region(usize),
    /// Five CPFs, with so many replicas per UE, and a CTA replica. Lost ones are replaced.
    Replicated(usize),
}

impl Deployment {
    fn cpfs(self) -> u16 {
        match self {
            Self::Single => 0,
            Self::Region(_) => 3,
            Self::Replicated(_) => 5,
        }
    }
}

/// One run: its `Display` is the command that runs it again, and its faults.
#[derive(Clone, Debug)]
pub struct ChaosRun {
    /// Seed of the run.
    pub seed: u64,
    /// The processes of the core.
    pub deployment: Deployment,
    /// Faults that the run draws.
    pub profile: FaultProfile,
    /// The n-th input that a CPF gets ends every process that runs it.
    pub poison: Option<u64>,
    /// A fault that a test plants in the unit.
    pub planted: Option<UnitFault>,
}

impl ChaosRun {
    /// That of a seed, with the faults of that seed.
    pub fn new(seed: u64, deployment: Deployment) -> Self {
        Self { seed, deployment, profile: FaultProfile::draw(seed), poison: None, planted: None }
    }

    /// The same with [`FaultProfile::worst`].
    pub fn worst(seed: u64, deployment: Deployment) -> Self {
        Self { profile: FaultProfile::worst(), ..Self::new(seed, deployment) }
    }

    /// Runs it. What has been lost last is not replaced, and the faults go on.
    pub fn run(&self) -> Sim {
        let builder = Sim::builder(self.seed).faults(self.profile.faults);
        let cpfs = self.deployment.cpfs();
        let mut net = match self.deployment {
            Deployment::Single => builder.recorded(),
            Deployment::Region(replicas) => builder.cpfs(cpfs, replicas),
            Deployment::Replicated(replicas) => {
                let builder = builder.cpfs(cpfs, replicas).cta_replica();
                if self.is_unit() { builder.upf_replica(self.planted) } else { builder }
            }
        }
        .build();
        net.lose_between_cpfs(self.profile.lossy_links);
        if let Some(nth) = self.poison {
            net.poison(nth);
        }
        let mut rng = Rng::new(self.seed ^ 0x5eed);
        let gnbs = [net.add_gnb(gnb_config(1)), net.add_gnb(gnb_config(2))];
        let ues: Vec<UeIndex> = (0..5).map(|n| net.add_ue(gnbs[n as usize % 2], ue_config(n))).collect();
        let stores = self.profile.core_kills > 0 && !matches!(self.deployment, Deployment::Replicated(_));
        if stores {
            net.store_ues();
        }
        for _ in 0..12 {
            if stores {
                net.store_changed_ues();
            }
            self.lose_core_processes(&mut net, &mut rng);
            for &ue in &ues {
                start_procedure(&mut net, &mut rng, ue);
            }
            let time = Duration::from_millis(rng.below(20_000));
            if self.is_unit() {
                self.pass_traffic(&mut net, &mut rng, &ues, time);
            } else {
                net.advance(time);
            }
            self.fail_gnb_or_upf(&mut net, &mut rng, &ues);
        }
        net
    }

    /// Whether the UPF has a replica.
    fn is_unit(&self) -> bool {
        matches!(self.deployment, Deployment::Replicated(_)) && self.profile.upf_deaths > 0
    }

    /// Bursts of packets for UEs, at moments of this time and later. The UPF may die at one of its next inputs.
    fn pass_traffic(&self, net: &mut Sim, rng: &mut Rng, ues: &[UeIndex], time: Duration) {
        if rng.chance(self.profile.upf_deaths) {
            let how = *rng.pick(&self.profile.upf_death_kinds);
            net.lose_upf_at(net.upf_inputs_taken() + 1 + rng.below(8), how);
        }
        let one = *rng.pick(ues);
        for _ in 0..BURSTS {
            // Amid the procedures, while a UPF is dead, or at any later time.
            let time = time.as_micros() as u64 / u64::from(BURSTS);
            let at_most = *rng.pick(&[5_000, 5_000, 40_000, time]);
            net.advance(Duration::from_micros(rng.below(at_most)));
            let ue = if rng.chance(500) { one } else { *rng.pick(ues) };
            let session = net.ue_ref(ue).sessions().next().map(|s| s.id);
            session.into_iter().for_each(|id| net.send_numbered(ue, id, 1 + rng.below(8) as usize));
        }
        net.advance(time);
        net.judge_numbered();
    }

    /// Lost CPFs and CTA replicas are replaced; then one may be lost, or a link be cut, at one of the next messages.
    fn lose_core_processes(&self, net: &mut Sim, rng: &mut Rng) {
        let profile = &self.profile;
        if self.deployment == Deployment::Single {
            return;
        }
        if let Deployment::Replicated(_) = self.deployment {
            if profile.manager_losses > 0 && rng.chance(profile.manager_losses) {
                let absent = rng.below(profile.manager_absent_max.as_micros() as u64);
                net.lose_manager(Duration::from_micros(absent));
            }
            if net.has_manager() {
                net.add_cta_replica();
            }
            if profile.cta_losses > 0 && rng.chance(profile.cta_losses) {
                let how = *rng.pick(&profile.cta_loss_kinds);
                net.lose_cta_at(net.inputs_taken() + 1 + rng.below(100), how);
            }
        }
        while net.has_manager() && net.cpfs() < usize::from(self.deployment.cpfs()) {
            net.add_cpf();
        }
        if net.cpfs() < CPFS_MIN {
            return; // more of them than have replicas are lost without a manager
        }
        if profile.cpf_losses > 0 && rng.chance(profile.cpf_losses) {
            let how = *rng.pick(&profile.cpf_loss_kinds);
            net.lose_cpf_at(net.links_taken() + 1 + rng.below(80), how);
        }
        if profile.partitions > 0 && rng.chance(profile.partitions) {
            self.cut(net, rng);
        }
    }

    fn cut(&self, net: &mut Sim, rng: &mut Rng) {
        let time = Duration::from_micros(rng.below(self.profile.partition_max.as_micros() as u64));
        if matches!(self.deployment, Deployment::Replicated(_)) && rng.chance(300) {
            let survivor = *rng.pick(&Survivor::ALL);
            if rng.chance(500) {
                net.cut(Cut::CtaReplica(survivor), time);
            } else {
                net.cut_cta_at(net.inputs_taken() + 1 + rng.below(100), survivor, time);
            }
        } else {
            net.cut_cpfs_at(&[(net.links_taken() + 1 + rng.below(80), *rng.pick(&CpfCut::ALL), time)]);
        }
    }

    fn fail_gnb_or_upf(&self, net: &mut Sim, rng: &mut Rng, ues: &[UeIndex]) {
        let profile = &self.profile;
        let gnb = GnbIndex(rng.below(2) as usize);
        // One event at most, drawn in steps of 25 per mille.
        let drawn = rng.below(40) * 25;
        let mut end = 0;
        let mut is = |per_mille: u64| {
            end += per_mille;
            drawn < end
        };
        if is(profile.gnb_restarts) {
            net.restart_gnb(gnb);
        } else if is(profile.gnb_resets) {
            net.gnb_input(gnb, gnb::Input::Reset);
        } else if is(profile.an_releases) {
            let cause = Cause::RadioNetwork(CauseRadioNetwork::UserInactivity);
            net.release(*rng.pick(ues), cause);
        } else if is(profile.upf_restarts) {
            net.restart_upf();
        } else if is(profile.upf_outages / 2) {
            net.set_upf(UpfState::Silent);
        } else if is(profile.upf_outages / 2) {
            net.set_upf(UpfState::Mute);
        } else {
            net.set_upf(UpfState::Answering);
            let alone = !matches!(self.deployment, Deployment::Replicated(_));
            if alone && is(profile.core_restarts) {
                net.restart_core_in_order();
            } else if alone && is(profile.core_kills) {
                net.kill_and_restart_core();
            }
        }
    }
}

impl fmt::Display for ChaosRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deployment = match self.deployment {
            Deployment::Single => String::new(),
            Deployment::Region(replicas) => format!(" --region --replicas {replicas}"),
            Deployment::Replicated(replicas) => format!(" --cta-replica --replicas {replicas}"),
        };
        let worst = if self.profile == FaultProfile::worst() { " --worst" } else { "" };
        let seed = self.seed;
        write!(f, "./x sim --chaos-runs 1 --from {seed}{deployment}{worst} # {}", self.profile)?;
        self.poison.map_or(Ok(()), |nth| write!(f, "; with input {nth} poisoned, which only the test does"))
    }
}

/// A UE, its gNB or the data network starts a procedure, whether the UE is in a state for it or not.
fn start_procedure(net: &mut Sim, rng: &mut Rng, ue: UeIndex) {
    let session = net.ue_ref(ue).sessions().next().map(|s| s.id);
    match rng.below(13) {
        0..3 => net.command(ue, UeCommand::Register),
        3 => net.command(ue, UeCommand::ServiceRequest),
        4 => net.command(ue, UeCommand::PeriodicRegistration),
        5 => net.command(ue, UeCommand::Deregister { switch_off: rng.chance(500) }),
        6..8 => net.command(
            ue,
            UeCommand::EstablishSession(SessionRequest {
                dnn: None,
                s_nssai: None,
                pdu_session_type: PduSessionType::Ipv4,
            }),
        ),
        8..10 => {
            let there = GnbIndex(1 - net.gnb_of(ue).0);
            let via = if rng.chance(500) { Via::Xn } else { Via::N2 };
            net.hand_over(ue, there, via);
        }
        10 => net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity)),
        _ => {
            session.and_then(|id| net.downlink(ue, id));
        }
    }
}

/// The faults stop. Every UE registers, and UEs, gNBs, core, UPFs and replicas must agree.
///
/// # Panics
/// If not.
pub fn heal_and_verify(net: &mut Sim) {
    net.set_faults(Faults::default());
    net.set_upf(UpfState::Answering);
    net.end_partitions();
    for i in 0..net.ues() {
        net.command(UeIndex(i), UeCommand::Register);
    }
    net.advance(Duration::from_secs(1800));
    for i in 0..net.ues() {
        if !registered(net, UeIndex(i)) {
            net.command(UeIndex(i), UeCommand::Register);
        }
    }
    net.advance(Duration::from_secs(300));
    for i in 0..net.ues() {
        let ue = UeIndex(i);
        let last: Vec<_> = net.ue_events(ue).iter().rev().take(4).collect();
        assert!(registered(net, ue), "UE {i} is not registered: {:?} {last:?}", net.ue_ref(ue).state());
    }
    net.stop_losses();
    net.lose_between_cpfs(0);
    // A UE that was idle while the UPF lost its sessions is informed by this.
    for i in 0..net.ues() {
        net.command(UeIndex(i), UeCommand::PeriodicRegistration);
    }
    net.advance(Duration::from_secs(60));
    net.check_invariants();
    assert_eq!(net.agree(), Ok(()));
    if net.has_upf_replica() {
        deliver(net);
    }
}

/// Once nothing fails, the UPF of a unit delivers each packet.
fn deliver(net: &mut Sim) {
    let before = net.judge_numbered();
    for i in 0..net.ues() {
        let sessions: Vec<_> = net.ue_ref(UeIndex(i)).sessions().map(|s| s.id).collect();
        sessions.into_iter().for_each(|id| net.send_numbered(UeIndex(i), id, 3));
    }
    net.advance(Duration::from_secs(30));
    let after = net.judge_numbered();
    assert_eq!(after.1 - before.1, after.0 - before.0, "a packet is lost though nothing fails");
}

/// UE and core have the UE as registered.
pub fn registered(net: &Sim, ue: UeIndex) -> bool {
    let supi = net.ue_ref(ue).config().supi;
    net.ue_ref(ue).state() == MmState::Registered
        && net.contexts().any(|p| p.amf.supi == Some(supi) && p.amf.registered)
}
