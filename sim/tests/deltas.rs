//! UEs' states go to their replicas as what differs from the one before (DESIGN §4 rule 6): a delta on its exact base, else the whole.

use crate::common::day::of;
use crate::common::stage::session;
use crate::common::*;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::ue::UeCommand;
use whimbrel_resilience::replication::CpfId;
use whimbrel_sim::{
    ChaosRun, CpfLoss, Deployment, FaultProfile, Sim, UeIndex, heal_and_verify, registered as is_registered,
};

/// A registered UE with two replicas.
fn scene() -> (Sim, UeIndex) {
    let stage = of(Sim::builder(1).cpfs(3, 2).build(), 1);
    let (mut net, ue) = (stage.net, stage.ues[0]);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    (net, ue)
}

/// The primary dies, and then the replica that took over: the UE is not affected.
fn outlives_two(mut net: Sim, ue: UeIndex) {
    for next in [UeCommand::ServiceRequest, UeCommand::PeriodicRegistration] {
        net.lose_cpf_at(net.links_taken() + 1, CpfLoss::BeforeInput);
        net.command(ue, next);
        net.settle(SECOND * 3);
    }
    let counts = net.cta().replication_counters();
    assert_eq!((counts.cpfs_lost, counts.taken_over, counts.lost, counts.diverged), (2, 2, 0, 0));
    assert!(is_registered(&net, ue));
    net.check_user_plane();
    no_violations(&net);
}

#[test]
fn after_the_first_state_replicas_get_deltas() {
    let (mut net, ue) = scene();
    let [whole, _, asked] = net.exchanged();
    assert_eq!((whole, asked), (2, 0), "to each of two");
    net.command(ue, session());
    net.settle(SECOND);
    go_idle(&mut net, ue);
    let [still, deltas, asked] = net.exchanged();
    assert_eq!((still, asked), (whole, 0));
    assert!(deltas >= 4, "{deltas} for a session and for idleness");
    assert_eq!(net.cta().logged(), (0, 0), "they were acknowledged");
    outlives_two(net, ue);
}

#[test]
fn a_replica_without_the_base_of_a_delta_fetches_the_whole_state() {
    let (mut net, ue) = scene();
    net.lose_between_cpfs(1000);
    net.command(ue, session());
    net.advance(SECOND / 2);
    net.lose_between_cpfs(0);
    let [whole, ..] = net.exchanged();
    assert_eq!(net.cta().logged().1, 1, "no replica has the session's state");
    net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity));
    net.advance(SECOND / 4);
    assert_eq!(net.exchanged()[0], whole + 2);
    assert_eq!(net.exchanged()[2], 2, "each asked once");
    assert_eq!(
        (net.cta().logged(), net.cta().replication_counters().lagging),
        ((0, 0), 0),
        "long before they lag"
    );
    net.advance(SECOND);
    assert_eq!(net.exchanged()[0], whole + 4, "once more, since a link had ended");
    outlives_two(net, ue);
}

#[test] // nothing else would have its replica get the state before the UE does something
fn what_a_link_lost_of_a_ue_that_rests_is_sent_on_the_next() {
    let stage = of(Sim::builder(1).cpfs(2, 1).build(), 1);
    let (mut net, ue) = (stage.net, stage.ues[0]);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    go_idle(&mut net, ue);
    let serves = net.contexts().next().and_then(|p| net.cta().served_by(p.id)).expect("a CPF");
    let backs = CpfId(3 - serves.0);
    net.add_cpf();
    net.lose_between_cpfs(1000);
    net.lose_cpf(backs);
    net.advance(SECOND * 3);
    assert_eq!(net.backed(), 0, "the third one was to have the state, and did not get it");
    net.lose_between_cpfs(0);
    net.advance(SECOND * 2);
    assert_eq!((net.backed(), net.cta().replication_counters().lagging), (1, 0));
    net.lose_cpf(serves);
    net.settle(SECOND);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert_eq!((net.cta().replication_counters().lost, net.cta().replication_counters().taken_over), (0, 1));
    assert!(is_registered(&net, ue));
    no_violations(&net);
}

#[test] // with radio, gNBs, UPF and CPFs at their worst too
fn every_ue_registers_after_chaos_runs_with_lossy_links() {
    for (replicas, permille) in [(1, 200), (2, 50)] {
        let (mut taken_over, mut exchanged) = (0, [0; 3]);
        for seed in 0..20 {
            let profile = FaultProfile { lossy_links: permille, ..FaultProfile::worst() };
            let run = ChaosRun { profile, ..ChaosRun::new(seed, Deployment::Region(replicas)) };
            let mut net = run.run();
            heal_and_verify(&mut net);
            let (counts, lost) = (net.cta().replication_counters(), net.lost_ues());
            let which = format!("seed {seed}, {replicas} replicas, {permille} permille");
            assert_eq!((counts.diverged, counts.unreadable), (0, 0), "{which}");
            assert_eq!((lost.unexplained, lost.lost_all_holders), (0, counts.lost), "{which}");
            taken_over += counts.taken_over;
            exchanged = std::array::from_fn(|i| exchanged[i] + net.exchanged()[i]);
        }
        let [whole, deltas, asked] = exchanged;
        assert!(taken_over > 100 && asked > permille / 12, "{taken_over} taken over, {exchanged:?}");
        assert!(whole > 300 && deltas > 600, "{exchanged:?}");
    }
}
