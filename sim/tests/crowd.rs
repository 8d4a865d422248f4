//! A crowd at a region's control functions, none of which is lost: phones come, go and come back all at once, so that slots, names
//! and messages of one cross those of another.

mod common;

use std::time::Duration;

use common::stage::session;
use common::*;
use whimbrel_ran::ue::Command;
use whimbrel_sim::{Faults, Sim, UeIndex, default_config, phone_config};

#[test] // a 5G-TMSI of before names a slot in which somebody else registers
fn all_that_come_at_once_are_served_each_time() {
    for seed in 1..4 {
        let mut net = Sim::in_region(seed, default_config(), Faults::default(), 3, 1);
        let gnbs = [1, 2].map(|n| net.add_gnb(gnb_config(n)));
        net.advance(SECOND);
        let ues: Vec<UeIndex> = (0..20).map(|n| net.add_ue(gnbs[n as usize % 2], phone_config(n))).collect();
        for round in 0..12 {
            for act in [Command::Register, session(), Command::Deregister { switch_off: false }] {
                ues.iter().for_each(|&ue| net.command(ue, act.clone()));
                net.advance(Duration::from_millis(300));
                let leaves = matches!(act, Command::Deregister { .. });
                for &ue in &ues {
                    assert_eq!(registered(&net, ue), !leaves, "seed {seed}, round {round}, {ue:?}, {act:?}");
                }
            }
            net.check_invariants();
            assert_eq!(net.phones().count(), 0, "everyone has left");
        }
        no_violations(&net);
    }
}
