//! gNBs of several regions under one CTA (Neutrino §4.3): a UE's primary is in the region of its gNB, and a handover to another
//! region takes the UE's state along, at once where a replica has it.

use std::collections::BTreeSet;

use crate::common::day::{Stage, live, of};
use crate::common::stage::session;
use crate::common::*;
use whimbrel_control::UeId;
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::UeCommand;
use whimbrel_resilience::region::{GnbRegions, Region};
use whimbrel_resilience::replication::CpfId;
use whimbrel_sim::{CpfLoss, CtaLoss, Sim, ue_config};

const HOME: &str = "1220";
/// Of the same larger region.
const NEXT: &str = "1221";
/// Of another one.
const FAR: &str = "3000";

fn region(text: &str) -> Region {
    text.parse().expect("a region")
}

/// The second gNB is elsewhere; CPFs are where it says, numbered from 1.
fn network(elsewhere: &str, places: &[&str], replicas: usize) -> Sim {
    let mut areas = GnbRegions::default();
    areas.add(&region(elsewhere), [2], []).expect("named once");
    let places: Vec<Region> = places.iter().map(|at| region(at)).collect();
    Sim::builder(7).regions(&places, areas, replicas).build()
}

/// A UE with a session at the first gNB.
fn settled(net: Sim) -> (Stage, UeId) {
    let mut stage = of(net, 1);
    stage.net.command(stage.ues[0], UeCommand::Register);
    stage.net.settle(SECOND);
    stage.net.command(stage.ues[0], session());
    stage.net.settle(SECOND);
    let ue = stage.net.contexts().next().expect("it is registered").id;
    (stage, ue)
}

/// The UE's primary and its replicas.
fn served(stage: &Stage, ue: UeId) -> (Option<CpfId>, Vec<CpfId>) {
    let mut backed = stage.net.cta().backed_by(ue);
    backed.sort();
    (stage.net.cta().served_by(ue), backed)
}

/// How many UEs moved, and how many of these at once.
fn moved(stage: &Stage) -> (u64, u64) {
    let counts = stage.net.cta().replication_counters();
    assert_eq!((counts.moves_given_up, counts.lost, counts.diverged), (0, 0, 0));
    (counts.moved, counts.moved_fast)
}

#[test] // the proactive replica is there: the fast form, both ways
fn a_handover_to_a_neighbouring_region_finds_the_state_there() {
    for via in [Via::Xn, Via::N2] {
        let (mut stage, ue) = settled(network(NEXT, &[HOME, NEXT], 1));
        assert_eq!(served(&stage, ue), (Some(CpfId(1)), vec![CpfId(2)]));
        for (to, serves, backs, moves) in [(1, 2, 1, 1), (0, 1, 2, 2)] {
            stage.net.hand_over(stage.ues[0], stage.gnbs[to], via);
            stage.net.settle(SECOND * 3);
            assert_eq!(stage.net.gnb_of(stage.ues[0]), stage.gnbs[to]);
            assert_eq!(served(&stage, ue), (Some(CpfId(serves)), vec![CpfId(backs)]), "{via:?}");
            assert_eq!(moved(&stage), (moves, moves), "{via:?}");
        }
        assert_eq!(stage.net.backed(), 1);
        stage.net.check_user_plane();
        no_violations(&stage.net);
    }
}

#[test] // TS 23.502 §4.9.1.3.3 step 14: what is still forwarded from the gNB before does not keep it
fn a_ue_that_is_handed_back_is_served_where_it_is() {
    for (via, replicas) in [(Via::Xn, 0), (Via::Xn, 1), (Via::N2, 0), (Via::N2, 1)] {
        let (mut stage, ue) = settled(network(NEXT, &[HOME, NEXT], replicas));
        for (moves, to) in (1..).zip([1, 0, 1, 0, 1]) {
            stage.net.hand_over(stage.ues[0], stage.gnbs[to], via);
            stage.net.settle(SECOND / 5);
            assert_eq!(stage.net.gnb_of(stage.ues[0]), stage.gnbs[to]);
            assert_eq!(served(&stage, ue).0, Some(CpfId(to as u16 + 1)), "{via:?}, {replicas} replicas");
            assert_eq!(moved(&stage), (moves, if replicas == 0 { 0 } else { moves }), "{via:?}");
        }
        stage.net.settle(SECOND * 3);
        stage.net.check_user_plane();
        no_violations(&stage.net);
    }
}

#[test] // the default form: the handover waits for the state, and the former primary deletes it
fn a_handover_to_a_region_without_the_state_transfers_it() {
    for via in [Via::Xn, Via::N2] {
        let (mut stage, ue) = settled(network(NEXT, &[HOME, "1222", HOME, NEXT], 1));
        let (serves, backs) = served(&stage, ue);
        assert_ne!(backs, [CpfId(4)], "the ring has another: else this shows nothing");
        stage.net.hand_over(stage.ues[0], stage.gnbs[1], via);
        stage.net.settle(SECOND * 3);
        assert_eq!(stage.net.gnb_of(stage.ues[0]), stage.gnbs[1]);
        assert_eq!(served(&stage, ue), (Some(CpfId(4)), backs), "{via:?}");
        assert_ne!(serves, Some(CpfId(4)));
        assert_eq!(moved(&stage), (1, 0), "{via:?}");
        no_violations(&stage.net);
    }
}

#[test] // without a replica anywhere the state is still there when its UE comes
fn without_backups_every_handover_to_another_region_takes_the_state_along() {
    let (mut stage, ue) = settled(network(NEXT, &[HOME, NEXT], 0));
    stage.net.hand_over(stage.ues[0], stage.gnbs[1], Via::N2);
    stage.net.settle(SECOND * 3);
    assert_eq!((served(&stage, ue), moved(&stage)), ((Some(CpfId(2)), vec![]), (1, 0)));
    assert_eq!(stage.net.backed(), 0, "the former primary has deleted it");
    no_violations(&stage.net);
}

#[test] // Neutrino §4.3: within a region the CPF stays
fn a_handover_within_a_region_keeps_the_cpf() {
    let mut areas = GnbRegions::default();
    areas.add(&region(NEXT), [3], []).expect("named once");
    let places = [HOME, HOME, NEXT].map(region);
    let (mut stage, ue) = settled(Sim::builder(7).regions(&places, areas, 1).build());
    let before = served(&stage, ue);
    for via in [Via::N2, Via::Xn] {
        for to in [1, 0] {
            stage.net.hand_over(stage.ues[0], stage.gnbs[to], via);
            stage.net.settle(SECOND * 3);
            assert_eq!(stage.net.gnb_of(stage.ues[0]), stage.gnbs[to]);
        }
    }
    assert_eq!((served(&stage, ue), moved(&stage)), (before, (0, 0)));
}

#[test]
fn a_ue_that_connects_in_another_region_is_served_there() {
    let (mut stage, context) = settled(network(NEXT, &[HOME, NEXT], 1));
    let ue = stage.ues[0];
    go_idle(&mut stage.net, ue);
    stage.net.move_ue(ue, stage.gnbs[1]);
    stage.net.command(ue, UeCommand::ServiceRequest);
    stage.net.settle(SECOND * 3);
    assert_eq!(served(&stage, context), (Some(CpfId(2)), vec![CpfId(1)]));
    no_violations(&stage.net);
}

#[test]
fn a_ue_is_assigned_in_the_region_of_its_gnb() {
    let mut stage = of(network(NEXT, &[HOME, NEXT], 1), 0);
    let ue = stage.net.add_ue(stage.gnbs[1], ue_config(1));
    stage.net.command(ue, UeCommand::Register);
    stage.net.settle(SECOND);
    let context = stage.net.contexts().next().expect("it is registered").id;
    assert_eq!(served(&stage, context), (Some(CpfId(2)), vec![CpfId(1)]));
    assert_eq!(moved(&stage), (0, 0));
}

#[test] // served from further away, until its own region has a CPF
fn a_ue_in_a_region_without_cpfs_is_served_in_another_one() {
    let mut stage = of(network(FAR, &[HOME, NEXT], 1), 0);
    let ue = stage.net.add_ue(stage.gnbs[1], ue_config(1));
    stage.net.command(ue, UeCommand::Register);
    stage.net.settle(SECOND);
    assert!(registered(&stage.net, ue));
    let context = stage.net.contexts().next().expect("it is registered").id;
    let (serves, backs) = served(&stage, context);
    let both = BTreeSet::from_iter(backs.into_iter().chain(serves));
    assert_eq!((both, stage.net.cta().without_backup()), (BTreeSet::from([CpfId(1), CpfId(2)]), 0));
    stage.net.add_cpf_in(&region(FAR));
    let comes = CpfId(3);
    stage.net.command(ue, session());
    stage.net.settle(SECOND);
    go_idle(&mut stage.net, ue);
    stage.net.settle(SECOND);
    assert_eq!(served(&stage, context).0, Some(comes));
    stage.net.lose_cpf(comes);
    stage.net.command(ue, UeCommand::ServiceRequest);
    stage.net.settle(SECOND * 3);
    assert!(registered(&stage.net, ue));
    no_violations(&stage.net);
}

#[test] // TS 38.413 §8.4.1.3: the target does not answer
fn a_failed_handover_moves_the_ue_back() {
    let (mut stage, ue) = settled(network(NEXT, &[HOME, NEXT], 1));
    let before = served(&stage, ue);
    stage.net.take_over(stage.gnbs[1]);
    stage.net.hand_over(stage.ues[0], stage.gnbs[1], Via::N2);
    stage.net.settle(SECOND * 30);
    assert_eq!(stage.net.gnb_of(stage.ues[0]), stage.gnbs[0]);
    assert_eq!(served(&stage, ue), before);
    assert_eq!(moved(&stage), (2, 1), "there at once, and back with what came of it");
}

#[test] // its replicas are of the larger region that it is in, as many as before
fn a_ue_in_another_larger_region_has_its_replicas_there() {
    let (mut stage, ue) = settled(network(FAR, &[HOME, NEXT, FAR, "3001"], 1));
    assert_eq!(served(&stage, ue), (Some(CpfId(1)), vec![CpfId(2)]));
    for (to, serves, backs, moves) in [(1, 3, 4, 1), (0, 1, 2, 2)] {
        stage.net.hand_over(stage.ues[0], stage.gnbs[to], Via::N2);
        stage.net.settle(SECOND * 3);
        assert_eq!(served(&stage, ue), (Some(CpfId(serves)), vec![CpfId(backs)]));
        assert_eq!(moved(&stage), (moves, 0));
        assert_eq!(stage.net.backed(), 1, "no CPF has a state that is not needed");
    }
    no_violations(&stage.net);
}

#[test] // Neutrino §4.2 after §4.3
fn a_ue_that_moved_survives_the_loss_of_its_cpf() {
    let (mut stage, ue) = settled(network(FAR, &[HOME, NEXT, FAR, "3001"], 1));
    stage.net.hand_over(stage.ues[0], stage.gnbs[1], Via::Xn);
    stage.net.settle(SECOND * 3);
    let next = stage.net.links_taken() + 1;
    stage.net.lose_cpf_at(next, CpfLoss::BeforeInput);
    go_idle(&mut stage.net, stage.ues[0]);
    stage.net.command(stage.ues[0], UeCommand::ServiceRequest);
    stage.net.settle(SECOND * 3);
    assert!(registered(&stage.net, stage.ues[0]));
    assert_eq!(served(&stage, ue).0, Some(CpfId(4)), "the next best is of the same larger region");
    no_violations(&stage.net);
}

#[test] // of the former primary, the new one, or a replica
fn a_cpf_lost_at_any_message_in_two_regions_affects_no_ue() {
    for (elsewhere, places) in [(NEXT, [HOME, NEXT, HOME, NEXT]), (FAR, [HOME, HOME, FAR, FAR])] {
        let day = || of(network(elsewhere, &places, 1), 1);
        let taken = {
            let mut stage = day();
            live(&mut stage, &|| "no loss".into());
            assert!(moved(&stage).0 >= 2, "{:?}", moved(&stage));
            stage.net.links_taken()
        };
        // One way at each message; `./x sim --schedules` draws the others.
        for (message, how) in (1..=taken).zip(CpfLoss::ALL.into_iter().cycle()) {
            let mut stage = day();
            stage.net.lose_cpf_at(message, how);
            live(&mut stage, &|| format!("{elsewhere}: {how:?} at message {message} of {taken}"));
            let counts = stage.net.cta().replication_counters();
            assert_eq!((counts.lost, counts.diverged), (0, 0), "{elsewhere}: {how:?} at message {message}");
        }
    }
}

#[test]
fn the_cta_replica_has_the_regions_of_ues() {
    let day = || {
        let mut net = network(FAR, &[HOME, HOME, FAR, FAR], 1);
        net.add_cta_replica();
        of(net, 1)
    };
    let mut stage = day();
    let first = stage.net.inputs_taken() + 1;
    live(&mut stage, &|| "no loss".into());
    for input in (first..=stage.net.inputs_taken()).step_by(3) {
        let mut stage = day();
        stage.net.lose_cta_at(input, CtaLoss::BeforeInput);
        live(&mut stage, &|| format!("at input {input}"));
        let counts = stage.net.cta().replication_counters();
        assert_eq!((stage.net.takeovers(), counts.lost, counts.moved_fast), (1, 0, 0), "at input {input}");
        assert!(counts.moved >= 2, "at input {input}: {counts:?}");
    }
}
