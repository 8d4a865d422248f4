//! Many UEs at a region's CPFs, none of which is lost: they register and deregister all at once, so that slots, names
//! and messages of one cross those of another.

use std::time::Duration;

use crate::common::stage::session;
use crate::common::*;
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{Faults, Sim, UeIndex, ue_config};

#[test] // a former 5G-TMSI names a slot in which another UE registers
fn ues_that_register_at_once_are_all_served() {
    for seed in 1..4 {
        let mut net = Sim::builder(seed).cpfs(3, 1).build();
        let gnbs = [1, 2].map(|n| net.add_gnb(gnb_config(n)));
        net.advance(SECOND);
        let ues: Vec<UeIndex> = (0..20).map(|n| net.add_ue(gnbs[n as usize % 2], ue_config(n))).collect();
        for round in 0..12 {
            for act in [UeCommand::Register, session(), UeCommand::Deregister { switch_off: false }] {
                ues.iter().for_each(|&ue| net.command(ue, act.clone()));
                net.advance(Duration::from_millis(300));
                let leaves = matches!(act, UeCommand::Deregister { .. });
                for &ue in &ues {
                    assert_eq!(registered(&net, ue), !leaves, "seed {seed}, round {round}, {ue:?}, {act:?}");
                }
            }
            net.check_invariants();
            assert_eq!(net.contexts().count(), 0, "all have deregistered");
        }
        no_violations(&net);
    }
}

#[test] // the gNB's last message of a UE that leaves arrives when another UE has the slot, and does not affect that one
fn a_ue_that_registers_as_another_one_leaves_is_served() {
    let even =
        Faults { radio_latency_micros: (2000, 2000), n2_latency_micros: (150, 150), ..Faults::default() };
    for at in (0..100).map(|n| Duration::from_micros(5) * n) {
        let mut net = Sim::builder(1).faults(even).cpfs(3, 1).build();
        let gnbs = [1, 2].map(|n| net.add_gnb(gnb_config(n)));
        net.advance(SECOND);
        let [leaves, comes] = [1, 2].map(|n| net.add_ue(gnbs[n as usize - 1], ue_config(n)));
        // The old name of the one that comes leads to the slot of the one that leaves, which it gets.
        let leave = UeCommand::Deregister { switch_off: false };
        for (ue, act) in [
            (comes, UeCommand::Register),
            (comes, leave.clone()),
            (leaves, UeCommand::Register),
            (leaves, leave),
        ] {
            net.advance(SECOND);
            net.command(ue, act);
        }
        net.advance(at);
        net.command(comes, UeCommand::Register);
        net.advance(Duration::from_millis(300));
        assert_eq!([leaves, comes].map(|ue| registered(&net, ue)), [false, true], "{at:?} later");
        no_violations(&net);
    }
}

/// UEs that were here before come back, half of them over the slots of others, and while these are at something the other half comes: its
/// old identities are looked up there. The n-th input is then poisoned. Gives how many are not registered before their T3510 expires,
/// how many inputs there were, and whether it was the first message of a connection.
fn come_back_with_poison(seed: u64, nth: u64) -> (usize, u64, bool) {
    let mut net = Sim::builder(seed).cpfs(3, 1).build();
    let gnbs = [1, 2].map(|n| net.add_gnb(gnb_config(n)));
    net.advance(SECOND);
    let ues: Vec<UeIndex> = (0..12).map(|n| net.add_ue(gnbs[n as usize % 2], ue_config(n))).collect();
    let (late, early) = ues.split_at(6);
    for (group, act) in [
        (&ues[..], UeCommand::Register),
        (late, UeCommand::Deregister { switch_off: false }),
        (early, UeCommand::Deregister { switch_off: false }),
        (early, UeCommand::Register),
    ] {
        group.iter().for_each(|&ue| net.command(ue, act.clone()));
        net.advance(SECOND);
    }
    net.poison(nth);
    early.iter().for_each(|&ue| net.command(ue, session()));
    for &ue in late {
        net.advance(Duration::from_millis(1));
        net.command(ue, UeCommand::Register);
    }
    net.advance(SECOND * 10);
    let counts = net.cta().replication_counters();
    assert_eq!((counts.lost, counts.diverged), (0, 0), "seed {seed}, input {nth}");
    let missing = ues.iter().filter(|&&ue| !registered(&net, ue)).count();
    (missing, net.handed(), net.poison_is_initial_message())
}

#[test] // inputs of other UEs are not lost with a UE that is discarded
fn a_poisoned_input_costs_its_own_ue_only() {
    for seed in 1..3 {
        let (missing, inputs, _) = come_back_with_poison(seed, u64::MAX);
        assert_eq!(missing, 0);
        // Each input in one of the two interleavings.
        for nth in (seed..=inputs).step_by(2) {
            let (missing, _, first) = come_back_with_poison(seed, nth);
            // A first message costs the UE that was asked, and its own.
            let most = 1 + usize::from(first);
            assert!(missing <= most, "seed {seed}, input {nth} of {inputs}: {missing} UEs wait");
        }
    }
}

#[test] // TS 38.413 §8.6.1: a gNB repeats INITIAL UE MESSAGE before the UE is identified; there is one connection
fn first_messages_that_come_twice_at_once() {
    let faults = Faults { first_repeated_per_mille: 1000, ..Faults::default() };
    for seed in 1..4 {
        let mut net = Sim::builder(seed).faults(faults).cpfs(3, 1).build();
        let gnb = net.add_gnb(gnb_config(1));
        net.advance(SECOND);
        let ues: Vec<UeIndex> = (0..10).map(|n| net.add_ue(gnb, ue_config(n))).collect();
        for act in
            [UeCommand::Register, session(), UeCommand::Deregister { switch_off: false }, UeCommand::Register]
        {
            ues.iter().for_each(|&ue| net.command(ue, act.clone()));
            net.advance(Duration::from_millis(300));
        }
        assert!(ues.iter().all(|&ue| registered(&net, ue)), "seed {seed}");
        net.check_invariants();
        no_violations(&net);
    }
}
