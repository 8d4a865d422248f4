//! UEs that move from one CPF of a region to another (Neutrino §4.3): at a handover, and at any message at all.

use crate::common::day::{live, stage};
use crate::common::stage::session;
use crate::common::*;
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::UeCommand;
use whimbrel_resilience::replication::CpfId;
use whimbrel_sim::CpfLoss;

/// A UE with a session, its primary, its replica, and the third CPF.
fn settled() -> (crate::common::day::Stage, whimbrel_control::UeId, [CpfId; 3]) {
    let mut stage = stage(1, 1);
    let ue = stage.ues[0];
    stage.net.command(ue, UeCommand::Register);
    stage.net.settle(SECOND);
    stage.net.command(ue, session());
    stage.net.settle(SECOND);
    let context = stage.net.contexts().next().expect("it is registered").id;
    let serves = stage.net.cta().served_by(context).expect("a CPF serves it");
    let backs = stage.net.cta().backed_by(context)[0];
    let neither = [1, 2, 3].map(CpfId).into_iter().find(|id| *id != serves && *id != backs);
    (stage, context, [serves, backs, neither.expect("there are three")])
}

#[test] // Neutrino §4.3: fast handover
fn a_ue_moves_at_once_to_a_cpf_that_has_its_state() {
    let (mut stage, ue, [serves, backs, _]) = settled();
    let before = stage.net.links_taken();
    stage.net.move_context(ue, backs);
    assert_eq!(stage.net.cta().served_by(ue), Some(backs), "nothing had to travel first");
    assert_eq!(stage.net.cta().backed_by(ue), [serves]);
    stage.net.hand_over(stage.ues[0], stage.gnbs[1], Via::N2);
    stage.net.settle(SECOND * 3);
    assert_eq!(stage.net.gnb_of(stage.ues[0]), stage.gnbs[1]);
    assert!(stage.net.links_taken() > before);
    assert_eq!(
        (stage.net.backed(), stage.net.cta().logged().1),
        (1, 0),
        "the former primary has the new state"
    );
    no_violations(&stage.net);
}

#[test] // Neutrino §4.3: the default form
fn a_handover_waits_for_a_state_that_has_to_be_transferred() {
    let (mut stage, ue, [serves, backs, neither]) = settled();
    stage.net.move_context(ue, neither);
    assert_eq!(stage.net.cta().served_by(ue), Some(serves), "its state is on its way");
    stage.net.hand_over(stage.ues[0], stage.gnbs[1], Via::N2);
    stage.net.settle(SECOND * 3);
    assert_eq!(stage.net.cta().served_by(ue), Some(neither));
    assert_eq!(stage.net.cta().backed_by(ue), [backs], "the former primary is not needed any more");
    assert_eq!(stage.net.gnb_of(stage.ues[0]), stage.gnbs[1]);
    assert_eq!((stage.net.backed(), stage.net.cta().replication_counters().moved), (1, 1));
    no_violations(&stage.net);
}

#[test]
fn a_ue_is_not_moved_to_a_cpf_that_does_not_exist() {
    let (mut stage, ue, [serves, ..]) = settled();
    stage.net.move_context(ue, CpfId(77));
    stage.net.hand_over(stage.ues[0], stage.gnbs[1], Via::N2);
    stage.net.settle(SECOND * 3);
    assert_eq!(stage.net.cta().served_by(ue), Some(serves));
    assert_eq!(stage.net.gnb_of(stage.ues[0]), stage.gnbs[1]);
}

#[test] // whatever a UE is at, it goes on; what runs ends where it began
fn procedures_of_ues_that_move_between_cpfs_all_the_time() {
    for every in [7, 11, 13, 17, 19, 23] {
        let mut stage = stage(1, 1);
        stage.net.move_contexts_every(every);
        live(&mut stage, &|| format!("they move after each {every} messages"));
        let counts = stage.net.cta().replication_counters();
        assert_eq!((counts.lost, counts.diverged), (0, 0), "after each {every}");
        assert!(counts.moved > 3, "{} moves after each {every}", counts.moved);
    }
}

#[test] // the one that is moved from, moved to, or backs
fn a_cpf_lost_at_any_message_while_ues_move_between_cpfs() {
    let restless = || {
        let mut stage = stage(2, 1);
        stage.net.move_contexts_every(13);
        stage
    };
    let taken = {
        let mut stage = restless();
        live(&mut stage, &|| "no loss".into());
        stage.net.links_taken()
    };
    for (message, how) in (1..=taken).zip(CpfLoss::ALL.into_iter().cycle()) {
        let mut stage = restless();
        stage.net.lose_cpf_at(message, how);
        live(&mut stage, &|| format!("{how:?} at message {message} of {taken}"));
        let counts = stage.net.cta().replication_counters();
        assert_eq!((counts.lost, counts.diverged), (0, 0), "{how:?} at message {message}");
    }
}
