//! The UPF of a unit dies and its replica goes on, and the manager is absent: UEs keep their sessions and get their packets, once and in order.

use std::time::Duration;

use whimbrel_ids::PduSessionId;
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{
    ChaosRun, CpfLoss, CtaLoss, Deployment, FaultProfile, Faults, Sim, UeIndex, UnitFault, UpfLoss,
    heal_and_verify, ue_config,
};

use crate::common::day::{live, of};
use crate::common::stage::session;
use crate::common::*;

/// A unit: CTAs, CPFs, a UPF with its replica.
fn unit(seed: u64) -> Sim {
    Sim::builder(seed).cpfs(3, 1).cta_replica().upf_replica(None).build()
}

/// One with a UE that has a session.
fn with_session(mut net: Sim) -> (Sim, UeIndex, PduSessionId) {
    let gnbs = [1, 2].map(|n| net.add_gnb(gnb_config(n)));
    net.settle(SECOND / 10);
    let ue = net.add_ue(gnbs[0], ue_config(1));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, session());
    net.settle(SECOND);
    let session = net.ue_ref(ue).sessions().next().expect("a session").id;
    (net, ue, session)
}

#[test] // docs/design/upf-replica.md: no UE, gNB or SMF notices a takeover
fn no_procedure_fails_when_the_upf_dies_at_any_of_its_inputs() {
    let day = |loss: Option<(u64, UpfLoss)>| {
        let mut stage = of(unit(2), 1);
        if let Some((input, how)) = loss {
            stage.net.lose_upf_at(input, how);
        }
        live(&mut stage, &|| format!("{loss:?}"));
        stage.net
    };
    let inputs = day(None).upf_inputs_taken();
    assert!(inputs > 15, "{inputs}");
    for (input, how) in (2..=inputs).zip(UpfLoss::ALL.into_iter().cycle()) {
        let counts = day(Some((input, how))).unit_counts();
        assert_eq!((counts.deaths, counts.by_replica), (1, 1), "{how:?} at input {input} of {inputs}");
    }
}

#[test] // docs/design/upf-replica.md, "What is lost": nothing that waits, and what a thread had read and not yet sent
fn only_packets_that_the_upf_had_read_are_lost_with_it() {
    for how in UpfLoss::ALL {
        let (mut net, ue, session) = with_session(unit(3));
        for n in 0..40 {
            if n % 10 == 5 {
                net.lose_upf_at(net.upf_inputs_taken() + 1, how);
            }
            match n {
                12 => go_idle(&mut net, ue),
                24 => net.hand_over(ue, whimbrel_sim::GnbIndex(1), Via::N2),
                32 => net.hand_over(ue, whimbrel_sim::GnbIndex(0), Via::Xn),
                _ => {}
            }
            net.send_numbered(ue, session, 5);
            net.advance(if n % 10 == 9 { SECOND } else { Duration::from_millis(2) });
        }
        net.settle(SECOND * 5);
        let ((sent, received), counts) = (net.judge_numbered(), net.unit_counts());
        assert_eq!((sent, counts.deaths), (200, 4), "{how:?}");
        let lost = sent - received;
        let reads = matches!(how, UpfLoss::BeforeRecord | UpfLoss::BeforeOutput);
        assert!(lost <= counts.in_hand && (lost > 0) == reads, "{how:?}: {lost} are lost, {counts:?}");
        no_violations(&net);
    }
}

#[test] // TS 29.244 §5.2.4: packets that wait for an idle UE page it although the UPF dies before it can report them
fn packets_that_wait_for_an_idle_ue_reach_it_through_the_successor() {
    let (mut net, ue, session) = with_session(unit(4));
    go_idle(&mut net, ue);
    net.lose_upf_at(net.upf_inputs_taken() + 1, UpfLoss::BeforeOutput);
    net.send_numbered(ue, session, 7);
    assert_eq!(net.judge_numbered(), (7, 0));
    net.settle(SECOND * 2);
    assert_eq!((net.judge_numbered(), net.unit_counts().held), ((7, 7), 7));
}

#[test] // docs/unit.md, "Bad input": without a manager the UPF's replica goes on; what dies then waits for the next manager, and so do its packets
fn a_second_upf_that_dies_without_a_manager_is_started_by_the_next_one() {
    let (mut net, ue, session) = with_session(unit(5));
    net.lose_manager(SECOND * 4);
    for _ in 0..2 {
        net.lose_upf_at(net.upf_inputs_taken() + 1, UpfLoss::BeforeInput);
        net.send_numbered(ue, session, 3);
        net.advance(SECOND);
    }
    assert_eq!(net.judge_numbered(), (6, 3), "the replica has sent the first ones");
    net.advance(SECOND * 3);
    let counts = net.unit_counts();
    assert_eq!((net.judge_numbered(), counts.deaths, counts.by_replica), ((6, 6), 2, 1));
    no_violations(&net);
}

#[test] // docs/unit.md, "Bad input": the UEs of a CTA that dies without a manager wait, and none is lost
fn a_cta_that_dies_without_a_manager_is_replaced_when_there_is_one() {
    let (mut net, ue, session) = with_session(unit(6));
    net.lose_manager(SECOND * 2);
    net.lose_cta_at(net.inputs_taken() + 1, CtaLoss::BeforeInput);
    go_idle_soon(&mut net, ue);
    net.advance(SECOND);
    assert_eq!(net.takeovers(), 0);
    net.send_numbered(ue, session, 2);
    net.advance(SECOND * 4);
    assert_eq!(net.takeovers(), 1);
    net.send_numbered(ue, session, 2);
    net.advance(SECOND * 4);
    assert!(registered(&net, ue));
    assert_eq!(net.judge_numbered(), (4, 4));
}

/// Its gNB asks for the release of its connection.
fn go_idle_soon(net: &mut Sim, ue: UeIndex) {
    use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
    net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity));
}

/// A good radio and gNBs that do not fail: UPF, CTAs, CPFs and manager do.
fn unit_alone() -> FaultProfile {
    FaultProfile {
        faults: Faults::default(),
        gnb_restarts: 0,
        gnb_resets: 0,
        an_releases: 300,
        upf_restarts: 0,
        upf_outages: 0,
        cpf_losses: 300,
        cpf_loss_kinds: CpfLoss::ALL.to_vec(),
        cta_losses: 300,
        upf_deaths: 900,
        manager_losses: 500,
        manager_absent_max: SECOND * 40,
        ..FaultProfile::worst()
    }
}

fn run(seed: u64, profile: FaultProfile, planted: Option<UnitFault>) -> Sim {
    let run = ChaosRun { profile, planted, ..ChaosRun::new(seed, Deployment::Replicated(2)) };
    println!("{run}");
    let mut net = run.run();
    heal_and_verify(&mut net);
    net
}

#[test]
fn no_ue_is_lost_in_runs_in_which_only_the_processes_of_the_unit_fail() {
    let (mut deaths, mut by_replica, mut held, mut takeovers) = (0, 0, 0, 0);
    for seed in 0..6 {
        let net = run(seed, unit_alone(), None);
        let (counts, replicated) = (net.unit_counts(), net.cta().replication_counters());
        assert_eq!((replicated.lost, replicated.diverged), (0, 0), "seed {seed}");
        (deaths, by_replica) = (deaths + counts.deaths, by_replica + counts.by_replica);
        (held, takeovers) = (held + counts.held, takeovers + net.takeovers());
    }
    println!(
        "{deaths} UPFs died, of {by_replica} a replica went on, {held} packets waited; {takeovers} CTAs took over"
    );
    let happened = [by_replica, deaths - by_replica, held, takeovers];
    assert!(happened.iter().all(|times| *times > 0), "each kind is in one of the runs: {happened:?}");
}

/// The fault is planted in runs in which it shows, and found.
fn finds(planted: UnitFault, profile: FaultProfile) {
    for seed in 0..8 {
        run(seed, profile.clone(), Some(planted));
    }
}

fn upf_alone(kinds: &[UpfLoss]) -> FaultProfile {
    FaultProfile {
        cpf_losses: 0,
        cta_losses: 0,
        manager_losses: 0,
        upf_death_kinds: kinds.to_vec(),
        ..unit_alone()
    }
}

#[test]
#[should_panic(expected = "packets that waited in the UPF that died")]
fn a_upf_that_keeps_packets_which_have_left_is_found() {
    finds(UnitFault::KeepsSentPackets, upf_alone(&UpfLoss::ALL));
}

#[test]
#[should_panic(expected = "the UPF that goes on has other sessions")]
fn a_replica_that_takes_over_without_a_last_look_is_found() {
    finds(UnitFault::TakesOverUnseen, upf_alone(&[UpfLoss::AfterOutput]));
}

#[test]
#[should_panic(expected = "came after packet")]
fn a_upf_that_reads_what_waits_after_what_comes_later_is_found() {
    finds(UnitFault::ReadsOutOfOrder, upf_alone(&[UpfLoss::Hangs]));
}

#[test]
#[should_panic(expected = "is not registered")]
fn a_manager_that_forgets_what_ended_before_it_began_is_found() {
    finds(
        UnitFault::ForgetsEnds,
        FaultProfile { upf_deaths: 1, cta_losses: 900, manager_losses: 900, ..unit_alone() },
    );
}
