//! Phones' states go to their backups as what differs from the one before (DESIGN §4 rule 6): a delta on its exact base, else the whole.

mod common;

use common::day::of;
use common::stage::session;
use common::*;
use whimbrel_ran::ue::Command;
use whimbrel_sim::{
    Faults, Loss, Sim, UeIndex, default_config, morning, night_of_broken_links, registered as is_registered,
};

/// A registered phone with two backups.
fn scene() -> (Sim, UeIndex) {
    let stage = of(Sim::in_region(1, default_config(), Faults::default(), 3, 2), 1);
    let (mut net, ue) = (stage.net, stage.ues[0]);
    net.command(ue, Command::Register);
    net.settle(SECOND);
    (net, ue)
}

/// Who serves the phone dies, and then who does so next: the phone notices neither.
fn outlives_two(mut net: Sim, ue: UeIndex) {
    for next in [Command::ServiceRequest, Command::PeriodicRegistration] {
        net.lose_cpf_at(net.links_taken() + 1, Loss::Before);
        net.command(ue, next);
        net.settle(SECOND * 3);
    }
    let told = net.cta().replicated();
    assert_eq!((told.cpfs_lost, told.taken_over, told.lost, told.diverged), (2, 2, 0, 0));
    assert!(is_registered(&net, ue));
    net.check_user_plane();
    no_violations(&net);
}

#[test]
fn after_the_first_state_what_differs_goes_to_the_backups() {
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
fn who_lacks_the_base_of_a_delta_asks_for_the_whole() {
    let (mut net, ue) = scene();
    net.lose_between_cpfs(1000);
    net.command(ue, session());
    net.settle(SECOND);
    net.lose_between_cpfs(0);
    let [whole, ..] = net.exchanged();
    assert_eq!(net.cta().logged().1, 1, "nobody has the session's state");
    go_idle(&mut net, ue);
    assert_eq!(net.exchanged()[0], whole + 2);
    assert_eq!(net.exchanged()[2], 2, "each asked once");
    assert_eq!((net.cta().logged(), net.cta().replicated().lagging), ((0, 0), 0), "long before they lag");
    outlives_two(net, ue);
}

#[test] // with radio, gNBs, UPF and control functions at their worst too
fn a_night_in_which_links_between_control_functions_break() {
    let (mut taken_over, mut exchanged) = (0, [0; 3]);
    for seed in 0..30 {
        let mut net = night_of_broken_links(seed, Faults::worst(), 2, 200);
        morning(&mut net);
        let told = net.cta().replicated();
        assert_eq!((told.diverged, told.unreadable), (0, 0), "seed {seed}");
        taken_over += told.taken_over;
        exchanged = std::array::from_fn(|i| exchanged[i] + net.exchanged()[i]);
    }
    let [whole, deltas, asked] = exchanged;
    assert!(taken_over > 150 && asked > 100 && deltas > whole, "{taken_over} taken over, {exchanged:?}");
}
