//! CPFs of another code version that serve some of the UEs beside the others, whatever UEs are at: no UE notices, and no log is run by both.

use std::time::Duration;

use whimbrel_control::UeId;
use whimbrel_ran::ue::UeCommand;
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::region::CanaryUes;
use whimbrel_resilience::replication::CpfId;
use whimbrel_sim::{CanaryStep, CpfLoss, Sim};

use crate::common::day::{Stage, live, of, stage};
use crate::common::stage::session;
use crate::common::*;

const NEW: CodeVersion = CodeVersion(2);

/// Two CPFs of the new version come, for a share of the UEs.
fn begin(percent: u8) -> CanaryStep {
    CanaryStep::Begin(2, NEW, CanaryUes::Percent(percent))
}

/// Messages of a day of UEs in which nothing happens.
fn messages() -> u64 {
    let mut stage = stage(2, 2);
    live(&mut stage, &|| "no canary".into());
    stage.net.links_taken()
}

fn is_new(net: &Sim, cpf: CpfId) -> bool {
    net.cta().code_of(cpf) == Some(NEW)
}

/// The UEs of the core, and whether a CPF of the new version serves each.
fn sides(net: &Sim) -> Vec<(UeId, bool)> {
    let of = |ue| (ue, net.cta().served_by(ue).is_some_and(|cpf| is_new(net, cpf)));
    net.contexts().map(|p| of(p.id)).collect()
}

/// All UEs live a day, none of them is refused or registers again, and none is lost.
fn unnoticed(stage: &mut Stage, what: &str) {
    live(stage, &|| what.into());
    let counts = stage.net.cta().replication_counters();
    assert_eq!((counts.lost, counts.diverged, counts.unreadable), (0, 0, 0), "{what}");
    assert_eq!(counts.moves_given_up, 0, "{what}");
}

/// Registered UEs, each with a session, idle.
fn settled(ues: u32) -> Stage {
    let mut stage = of(Sim::builder(3).cpfs(3, 1).build(), ues);
    for ue in stage.ues.clone() {
        stage.net.command(ue, UeCommand::Register);
        stage.net.command(ue, session());
    }
    stage.net.settle(SECOND * 2);
    for ue in stage.ues.clone() {
        go_idle(&mut stage.net, ue);
    }
    stage
}

#[test]
fn a_canary_that_begins_at_any_message_and_is_rolled_back_or_promoted_at_another() {
    let taken = messages();
    for message in (1..=taken).step_by(11) {
        for (after, end) in [(3, CanaryStep::RollBack), (29, CanaryStep::Promote), (61, CanaryStep::RollBack)]
        {
            let mut stage = stage(2, 2);
            stage.net.canary_at(message, begin(50));
            stage.net.canary_at(message + after, end.clone());
            let what = format!("begun at message {message} of {taken}, {end:?} {after} later");
            unnoticed(&mut stage, &what);
        }
    }
}

#[test] // its UEs go on at the other CPF of their version
fn a_cpf_lost_at_any_message_during_a_canary() {
    let taken = messages();
    for (message, how) in (1..=taken).step_by(13).zip(CpfLoss::ALL.into_iter().cycle()) {
        let mut stage = stage(2, 2);
        stage.net.canary_at(1, begin(50));
        stage.net.lose_cpf_at(message, how);
        live(&mut stage, &|| format!("{how:?} at message {message} of {taken}"));
        let counts = stage.net.cta().replication_counters();
        assert_eq!((counts.lost, counts.diverged), (0, 0), "{how:?} at message {message}");
    }
}

#[test]
fn idle_ues_move_to_the_canary_when_they_next_become_active_and_others_stay() {
    let mut stage = settled(20);
    stage.net.canary(begin(30));
    stage.net.settle(SECOND);
    assert!(sides(&stage.net).iter().all(|(_, new)| !new), "no UE has become active");
    for ue in stage.ues.clone() {
        stage.net.command(ue, UeCommand::ServiceRequest);
    }
    stage.net.settle(SECOND * 2);
    let sides = sides(&stage.net);
    for (ue, new) in &sides {
        assert_eq!(*new, stage.net.cta().is_of_canary(*ue));
        let backs = stage.net.cta().backed_by(*ue);
        let alike = backs.iter().filter(|cpf| is_new(&stage.net, **cpf) == *new).count();
        assert_eq!((backs.len(), alike), (1, 1), "its replica runs the same code");
    }
    let moved = sides.iter().filter(|(_, new)| *new).count();
    assert!((2..12).contains(&moved), "{moved}");
    assert_eq!(stage.net.cta().replication_counters().moved, moved as u64);
    let figures = stage.net.cta().version_figures();
    let of_new = &figures[&NEW];
    assert_eq!((of_new.ues, of_new.completed, of_new.failed), (moved as u64, moved as u64, 0));
    assert!(of_new.answers.permille(500) > Some(Duration::ZERO));
    let all: u64 = figures.values().map(|figures| figures.completed).sum();
    assert_eq!(all, 20, "one service request of each UE");
    stage.net.check_user_plane();
    no_violations(&stage.net);
}

#[test]
fn a_rolled_back_canary_gives_all_ues_back_and_its_cpfs_leave() {
    let mut stage = settled(12);
    stage.net.canary(begin(100));
    for ue in stage.ues.clone() {
        stage.net.command(ue, UeCommand::ServiceRequest);
    }
    stage.net.settle(SECOND * 2);
    assert!(sides(&stage.net).iter().all(|(_, new)| *new));
    stage.net.canary(CanaryStep::RollBack);
    stage.net.advance(SECOND * 3);
    assert!(sides(&stage.net).iter().all(|(_, new)| !new), "though no UE has sent anything");
    assert_eq!(stage.net.left(), [CpfId(4), CpfId(5)]);
    for context in stage.net.contexts().map(|p| p.id).collect::<Vec<_>>() {
        assert_eq!(stage.net.cta().backed_by(context).len(), 1);
    }
    assert_eq!(stage.net.backed(), 12);
    stage.net.check_user_plane();
    no_violations(&stage.net);
}

#[test] // the subscriber is known when the UE has authenticated
fn a_listed_ue_moves_after_its_registration_and_only_this_one() {
    let mut stage = stage(1, 3);
    let supi = stage.net.ue_ref(stage.ues[1]).config().supi;
    stage.net.canary(CanaryStep::Begin(2, NEW, CanaryUes::Listed([supi].into())));
    for ue in stage.ues.clone() {
        stage.net.command(ue, UeCommand::Register);
    }
    stage.net.settle(SECOND);
    for ue in stage.ues.clone() {
        stage.net.command(ue, session());
    }
    stage.net.settle(SECOND);
    let listed = stage.net.cta().find(supi);
    for (ue, new) in sides(&stage.net) {
        assert_eq!(new, Some(ue) == listed);
    }
    // Another list: it goes back.
    stage.net.canary(CanaryStep::Serve(CanaryUes::Listed([].into())));
    go_idle(&mut stage.net, stage.ues[1]);
    stage.net.command(stage.ues[1], UeCommand::ServiceRequest);
    stage.net.settle(SECOND);
    assert!(sides(&stage.net).iter().all(|(_, new)| !new));
    no_violations(&stage.net);
}

#[test]
fn procedures_that_fail_are_counted_for_the_version_that_ran_them() {
    let mut stage = stage(1, 6);
    stage.net.canary(begin(100));
    for ue in stage.ues.clone() {
        stage.net.command(ue, UeCommand::Register);
    }
    stage.net.settle(SECOND);
    let wrong = whimbrel_ran::ue::SessionRequest {
        dnn: Some("nowhere".parse().expect("a DNN")),
        s_nssai: None,
        pdu_session_type: whimbrel_nas::ie::PduSessionType::Ipv4,
    };
    stage.net.command(stage.ues[0], UeCommand::EstablishSession(wrong));
    stage.net.settle(SECOND * 3);
    let figures = stage.net.cta().version_figures();
    assert!(figures[&NEW].completed >= 6 && figures[&NEW].failed >= 1, "{:?}", figures[&NEW]);
    stage.net.canary(CanaryStep::RollBack);
    stage.net.canary(CanaryStep::Begin(1, CodeVersion(3), CanaryUes::Percent(1)));
    let figures = stage.net.cta().version_figures();
    assert!(figures.values().all(|of| of.completed == 0), "another canary begins with new figures");
}

#[test] // its UEs are as many as those of the others, whatever its ring has
fn new_ues_are_spread_over_cpfs_by_their_load() {
    let mut stage = of(Sim::builder(5).cpfs(4, 1).build(), 240);
    for ue in stage.ues.clone() {
        stage.net.command(ue, UeCommand::Register);
    }
    stage.net.settle(SECOND * 5);
    let of = |n| stage.net.cta().load_of(CpfId(n)).ues;
    let ues: Vec<u64> = (1..=4).map(of).collect();
    assert_eq!(ues.iter().sum::<u64>(), 240);
    // A quarter more than the mean, and sixteen.
    assert!(ues.iter().all(|n| *n <= 60 * 5 / 4 + 17), "{ues:?}");
    let counted = stage.net.cta().ues_of_cpfs(1000).expect("they are few");
    assert!((1..=4).all(|n| counted[&CpfId(n)].0 == of(n)), "{counted:?} {ues:?}");
}
