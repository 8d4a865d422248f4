//! UEs that rest after each input, and whose records move after each input: no UE, no replay and no replica notices.

use whimbrel_control::UeId;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{CpfLoss, Sim};

use crate::common::day::{live, of};
use crate::common::stage::session;
use crate::common::*;

#[test]
fn outputs_are_the_same_whether_ues_rest_or_not() {
    let digests = [false, true].map(|resting| {
        let builder = Sim::builder(4).recorded();
        let net = if resting { builder.resting().build() } else { builder.build() };
        let mut stage = of(net, 5);
        live(&mut stage, &|| format!("UEs rest: {resting}"));
        let counters = stage.net.cta().cpf().and_then(|cpf| cpf.rest_counters());
        if resting {
            let counters = counters.expect("UEs rest");
            assert!(counters.stored > 50 && counters.woken > 50, "{counters:?}");
            let left = (counters.at_rest, counters.record_octets, counters.damaged, counters.no_room);
            assert_eq!(left, (0, 0, 0, 0), "all UEs have deregistered");
        }
        (stage.net.recorder().digest(), stage.net.inputs())
    });
    assert_eq!(digests[0], digests[1]);
}

#[test] // the log of a UE that rested, run again by a shard whose UEs do not rest
fn inputs_of_ues_that_rest_replay_from_each_idle_point() {
    let mut stage = of(Sim::builder(5).recorded().resting().build(), 2);
    live(&mut stage, &|| "UEs rest".into());
    let config = stage.net.config();
    let ues: Vec<UeId> = stage.net.recorder().contexts().map(|(ue, _)| ue).collect();
    let runs: usize = ues.iter().map(|ue| stage.net.recorder().replay(*ue, &config)).sum();
    assert!(runs > 500, "{runs} inputs of {} UEs", ues.len());
}

#[test] // Neutrino §4.2.5, scenarios 1 and 2
fn a_cpf_whose_ues_rest_is_replaced_by_a_replica() {
    let mut taken_over = 0;
    for (message, how) in (3..90).step_by(6).zip(CpfLoss::ALL.into_iter().cycle()) {
        let mut stage = of(Sim::builder(2).cpfs(3, 1).resting().build(), 1);
        stage.net.lose_cpf_at(message, how);
        live(&mut stage, &|| format!("{how:?} at message {message}"));
        let replicated = stage.net.cta().replication_counters();
        assert_eq!((replicated.lost, replicated.diverged), (0, 0), "{how:?} at message {message}");
        taken_over += replicated.taken_over;
    }
    assert!(taken_over > 3, "{taken_over} takeovers");
}

#[test]
fn a_cta_replica_follows_a_cta_whose_ues_rest() {
    let mut stage = of(Sim::builder(3).cpfs(3, 1).cta_replica().resting().build(), 3);
    live(&mut stage, &|| "UEs rest".into());
    stage.net.advance(SECOND);
    assert!(stage.net.followed() > 100);
}

#[test] // a primary makes the base of the next delta of the record
fn a_primary_keeps_no_second_copy_of_a_ue_at_rest_and_its_backup_stays_up_to_date() {
    let mut stage = of(Sim::builder(6).cpfs(3, 1).resting().build(), 4);
    let ues = stage.ues.clone();
    for &ue in &ues {
        stage.net.command(ue, UeCommand::Register);
        stage.net.settle(SECOND);
        stage.net.command(ue, session());
        stage.net.settle(SECOND);
    }
    let idle = || Cause::RadioNetwork(CauseRadioNetwork::UserInactivity);
    for _ in 0..2 {
        for &ue in &ues {
            stage.net.release(ue, idle());
            stage.net.settle(SECOND * 4);
        }
        let kept = stage.net.checkpoints_of_primaries();
        assert!(kept <= 1, "{kept} checkpoints beside the records of 4 UEs");
        assert_eq!((stage.net.backed(), stage.net.cta().logged().1), (4, 0));
        for &ue in &ues {
            stage.net.command(ue, UeCommand::ServiceRequest);
            stage.net.settle(SECOND);
        }
    }
    assert_eq!((stage.net.backed(), stage.net.cta().logged().1), (4, 0));
    no_violations(&stage.net);
}
