//! CPFs of a region that leave in order, whatever UEs are at.

use crate::common::day::{live, of, stage};
use crate::common::stage::session;
use crate::common::*;
use whimbrel_ran::ue::UeCommand;
use whimbrel_resilience::replication::CpfId;
use whimbrel_sim::Sim;

#[test]
fn a_drained_cpf_leaves_after_other_cpfs_have_taken_its_ues() {
    let mut stage = stage(1, 12);
    for &ue in &stage.ues {
        stage.net.command(ue, UeCommand::Register);
    }
    stage.net.settle(SECOND);
    for leaves in [CpfId(1), CpfId(2)] {
        stage.net.add_cpf();
        stage.net.drain_cpf(leaves);
        stage.net.advance(SECOND * 2);
        assert_eq!(stage.net.left().last(), Some(&leaves));
        for context in stage.net.contexts().map(|p| p.id).collect::<Vec<_>>() {
            assert_ne!(stage.net.cta().served_by(context), Some(leaves));
            let backs = stage.net.cta().backed_by(context);
            assert!(backs.len() == 1 && backs[0] != leaves, "{backs:?}");
        }
        for &ue in &stage.ues {
            stage.net.command(ue, session());
        }
        stage.net.settle(SECOND);
        assert_eq!(stage.net.backed(), 12, "what came of that is backed too");
    }
    let counts = stage.net.cta().replication_counters();
    assert_eq!(
        (counts.taken_over, counts.replayed, counts.lost),
        (0, 0, 0),
        "nothing was lost that had to be run again"
    );
    no_violations(&stage.net);
}

#[test] // without replicas too: the state goes over before its only holder does
fn ues_without_replicas_survive_the_drain_of_their_cpf() {
    let mut stage = of(Sim::builder(1).cpfs(2, 0).build(), 6);
    for &ue in &stage.ues {
        stage.net.command(ue, UeCommand::Register);
    }
    stage.net.settle(SECOND);
    stage.net.drain_cpf(CpfId(1));
    stage.net.advance(SECOND * 2);
    assert_eq!(stage.net.left(), [CpfId(1)]);
    assert_eq!((stage.net.contexts().count(), stage.net.cta().replication_counters().lost), (6, 0));
    for &ue in &stage.ues {
        stage.net.command(ue, session());
    }
    stage.net.settle(SECOND);
    stage.net.check_user_plane();
    no_violations(&stage.net);
}

#[test] // else its inputs would wait for a state that does not come, again and again
fn a_ue_of_a_drained_cpf_moves_to_the_replica_that_has_its_state() {
    let mut stage = of(Sim::builder(1).cpfs(3, 2).build(), 1);
    let ue = stage.ues[0];
    stage.net.command(ue, UeCommand::Register);
    stage.net.settle(SECOND);
    let context = stage.net.contexts().next().expect("it is registered").id;
    let serves = stage.net.cta().served_by(context).expect("a CPF serves it");
    let [cut_off, has] = stage.net.cta().backed_by(context).try_into().expect("two replicas");
    stage.net.hold_between_cpfs(serves, cut_off);
    stage.net.command(ue, session());
    stage.net.settle(SECOND);
    stage.net.drain_cpf(serves);
    stage.net.advance(SECOND / 2);
    assert_eq!((stage.net.cta().served_by(context), stage.net.left()), (Some(has), &[serves][..]));
    assert_eq!(stage.net.cta().replication_counters().moves_given_up, 0);
    stage.net.check_user_plane();
    no_violations(&stage.net);
}

#[test]
fn the_last_cpf_is_not_drained() {
    let mut stage = of(Sim::builder(1).cpfs(1, 0).build(), 1);
    let ue = stage.ues[0];
    stage.net.command(ue, UeCommand::Register);
    stage.net.settle(SECOND);
    stage.net.drain_cpf(CpfId(1));
    stage.net.advance(SECOND * 5);
    assert_eq!(stage.net.left(), [], "no CPF can take its UE");
    stage.net.command(ue, session());
    stage.net.settle(SECOND);
    no_violations(&stage.net);
}

#[test] // one leaves, and another comes, in the middle of anything
fn a_ue_runs_all_procedures_while_cpfs_are_drained() {
    for seed in 1..6 {
        let mut stage = stage(seed, 3);
        stage.net.drain_cpfs_every(19);
        live(&mut stage, &|| format!("seed {seed}"));
        let counts = stage.net.cta().replication_counters();
        assert_eq!((counts.lost, counts.diverged), (0, 0), "seed {seed}");
        assert!(stage.net.left().len() > 3, "seed {seed}: {:?}", stage.net.left());
    }
}
