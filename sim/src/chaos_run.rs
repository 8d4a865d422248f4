//! A night at five UEs and two gNBs: everything that can go wrong does, and in the morning everyone is there.

use std::time::Duration;

use whimbrel_ids::{GlobalGnbId, PlmnId, SNssai, Tac};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::gnb::{self, GnbConfig, Via};
use whimbrel_ran::ue::{Command, MmState, SessionRequest};

use crate::{CpfLoss, CtaLoss, Faults, GnbIndex, Rng, Sim, UeIndex, UpfState, ue_config};

/// The `n`th gNB, of tracking area 1 and slice 1. Every second one speaks fastwire.
pub fn gnb_config(n: u8) -> GnbConfig {
    let id = GlobalGnbId::new(PlmnId::TEST, n.into(), 28).expect("28 bits");
    let tac = Tac::new(1).expect("24 bits");
    let mut config = GnbConfig::new(id, tac, vec![SNssai::sst(1)], [127, 0, 1, n].into());
    config.fastwire = n.is_multiple_of(2);
    config
}

/// Five UEs at two gNBs do what UEs do, in a network of this quality; gNBs lose their associations and reset, and the
/// UPF falls silent and restarts.
pub fn chaos_run(seed: u64, faults: Faults) -> Sim {
    let net = Sim::builder(seed).faults(faults).recorded().build();
    live(net, seed, |_, _| {})
}

/// The same at the CPFs of a region, of which one after the other is lost in the middle of something, and others
/// come. With one backup, who loses both has to register anew.
pub fn chaos_run_in_region(seed: u64, faults: Faults, backups: usize) -> Sim {
    let net = Sim::builder(seed).faults(faults).cpfs(3, backups).build();
    live(net, seed, |net, rng| lose_and_replace(3, net, rng))
}

/// The same, and so many in a thousand messages between CPFs are lost.
pub fn chaos_run_with_lossy_links(seed: u64, faults: Faults, backups: usize, permille: u64) -> Sim {
    let mut net = Sim::builder(seed).faults(faults).cpfs(3, backups).build();
    net.lose_between_cpfs(permille);
    live(net, seed, |net, rng| lose_and_replace(3, net, rng))
}

/// The same with two backups, and the n-th input that a CPF is handed ends whoever runs it.
pub fn chaos_run_with_poison(seed: u64, faults: Faults, nth: u64) -> Sim {
    let mut net = Sim::builder(seed).faults(faults).cpfs(3, 2).build();
    net.poison(nth);
    live(net, seed, |net, rng| lose_and_replace(3, net, rng))
}

/// A night in a region whose CTA has a CTA replica. If it is lost so, now and then, and has another CTA replica when that took over,
/// then CPFs are lost too.
pub fn chaos_run_with_cta_replica(seed: u64, faults: Faults, backups: usize, loss: Option<CtaLoss>) -> Sim {
    let net = Sim::builder(seed).faults(faults).cpfs(5, backups).cta_replica().build();
    let Some(how) = loss else { return live(net, seed, |_, _| {}) };
    live(net, seed, |net, rng| {
        net.add_cta_replica();
        if rng.chance(400) {
            net.lose_cta_at(net.inputs_taken() + 1 + rng.below(100), how);
        }
        lose_and_replace(5, net, rng);
    })
}

fn lose_and_replace(cpfs: usize, net: &mut Sim, rng: &mut Rng) {
    while net.cpfs() < cpfs {
        net.add_cpf();
    }
    if rng.chance(700) {
        let how = CpfLoss::ALL[rng.below(4) as usize];
        net.lose_cpf_at(net.links_taken() + 1 + rng.below(80), how);
    }
}

fn live(mut net: Sim, seed: u64, mut misfortune: impl FnMut(&mut Sim, &mut Rng)) -> Sim {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let gnbs = [net.add_gnb(gnb_config(1)), net.add_gnb(gnb_config(2))];
    let ues: Vec<UeIndex> = (0..5).map(|n| net.add_ue(gnbs[n as usize % 2], ue_config(n))).collect();
    for _ in 0..12 {
        misfortune(&mut net, &mut rng);
        for &ue in &ues {
            wish(&mut net, &mut rng, ue);
        }
        net.advance(Duration::from_millis(rng.below(20_000)));
        let gnb = GnbIndex(rng.below(2) as usize);
        match rng.below(40) {
            0..4 => net.restart_gnb(gnb),
            4..6 => net.gnb_input(gnb, gnb::Input::Reset),
            6..8 => {
                let cause = Cause::RadioNetwork(CauseRadioNetwork::UserInactivity);
                net.release(ues[rng.below(5) as usize], cause);
            }
            8 => net.restart_upf(),
            9 => net.set_upf(UpfState::Silent),
            10 => net.set_upf(UpfState::Mute),
            _ => net.set_upf(UpfState::Answering),
        }
    }
    net
}

/// A UE, its gNB or somebody who sends to it does something, whether it can be done or not.
fn wish(net: &mut Sim, rng: &mut Rng, ue: UeIndex) {
    let session = net.ue_ref(ue).sessions().next().map(|s| s.id);
    match rng.below(13) {
        0..3 => net.command(ue, Command::Register),
        3 => net.command(ue, Command::ServiceRequest),
        4 => net.command(ue, Command::PeriodicRegistration),
        5 => net.command(ue, Command::Deregister { switch_off: rng.chance(500) }),
        6..8 => net.command(
            ue,
            Command::EstablishSession(SessionRequest {
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

/// Once the network is in order again, every UE registers, and all agree on everyone.
///
/// # Panics
/// If not.
pub fn heal_and_verify(net: &mut Sim) {
    net.set_faults(Faults::default());
    net.set_upf(UpfState::Answering);
    for i in 0..net.ues() {
        net.command(UeIndex(i), Command::Register);
    }
    net.advance(Duration::from_secs(1800));
    for i in 0..net.ues() {
        if !registered(net, UeIndex(i)) {
            net.command(UeIndex(i), Command::Register);
        }
    }
    net.advance(Duration::from_secs(300));
    for i in 0..net.ues() {
        let ue = UeIndex(i);
        let last: Vec<_> = net.ue_events(ue).iter().rev().take(4).collect();
        assert!(registered(net, ue), "UE {i} does not come back: {:?} {last:?}", net.ue_ref(ue).state());
    }
    net.stop_losses();
    net.lose_between_cpfs(0);
    // A UE that slept while the UPF lost its sessions learns so now.
    for i in 0..net.ues() {
        net.command(UeIndex(i), Command::PeriodicRegistration);
    }
    net.advance(Duration::from_secs(60));
    net.check_invariants();
    assert_eq!(net.agree(), Ok(()));
}

/// Both sides hold the UE registered.
pub fn registered(net: &Sim, ue: UeIndex) -> bool {
    let supi = net.ue_ref(ue).config().supi;
    net.ue_ref(ue).state() == MmState::Registered
        && net.contexts().any(|p| p.amf.supi == Some(supi) && p.amf.registered)
}
