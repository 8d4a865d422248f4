//! Fast handover between two CTAs: the target has a replica of the UE, and N14 carries its clock in place of its state (Neutrino §4.3; TS 23.502 §4.9.1.3,
//! §4.2.2.2.2).

use crate::common::amfs::*;
use crate::common::*;
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{GnbIndex, N14Fault, Sim, two_amf_configs, ue_config};

/// UEs of which each core holds the other's at most.
const MOST: usize = 8;

/// The scene of two cores, which have exchanged what they have.
fn replicated(seed: u64) -> Sim {
    exchanged(scene(seed))
}

fn exchanged(mut net: Sim) -> Sim {
    net.exchange_replicas(MOST);
    replicate(&mut net);
    net
}

/// The cores exchange what has changed.
fn replicate(net: &mut Sim) {
    net.replicate_to_peer_amfs();
    net.settle(SECOND / 10);
}

fn go(net: &mut Sim, to: GnbIndex) {
    net.hand_over(UE, to, Via::N2);
    net.settle(SECOND * 6);
}

/// Messages that were completed from a replica, and those that had to be sent whole after all, at both cores.
fn outcome(net: &Sim) -> (u64, u64) {
    let all = net.replicas_of_peer_amfs();
    (all.iter().map(|c| c.completed).sum(), all.iter().map(|c| c.requested).sum())
}

/// Octets over N14 of what is done.
fn octets(net: &mut Sim, does: impl FnOnce(&mut Sim)) -> usize {
    let before = net.n14_octets();
    does(net);
    net.n14_octets() - before
}

#[test] // Neutrino §4.3: the clock in place of the state; and back, by the replica that the target has sent meanwhile
fn a_ue_whose_replica_is_there_is_handed_over_without_its_state() {
    let mut whole = scene(1);
    let of_whole = octets(&mut whole, |net| go(net, THERE));
    let mut net = replicated(1);
    assert_eq!(net.replicas_held(), [0, 1]);
    let of_fast = octets(&mut net, |net| go(net, THERE));
    served_by(&net, peer_amf(&net), at_home(&net), THERE);
    assert_eq!(outcome(&net), (1, 0));
    assert!(of_fast + 300 < of_whole, "{of_fast} octets, and {of_whole} with the state");
    replicate(&mut net);
    assert_eq!(net.replicas_held(), [1, 0], "the UE is the other core's now");
    go(&mut net, HERE);
    served_by(&net, at_home(&net), peer_amf(&net), HERE);
    assert_eq!(outcome(&net), (2, 0));
    no_violations(&net);
    assert_eq!(net.not_taken(), []);
}

#[test] // TS 23.502 §4.2.2.2.2 steps 4 and 5: the answer of the old AMF, too
fn an_idle_ue_whose_replica_is_there_registers_without_its_state() {
    let mut net = scene(2);
    go_idle(&mut net, UE);
    let mut net = exchanged(net);
    net.move_ue(UE, THERE);
    net.settle(SECOND * 20);
    assert_eq!(outcome(&net), (1, 0));
    assert!(at_home(&net).is_none() && peer_amf(&net).is_some_and(|p| p.sessions.len() == 2));
    no_violations(&net);
}

#[test]
fn a_stale_replica_is_refused_and_the_state_is_sent() {
    let mut net = replicated(3);
    go_idle(&mut net, UE);
    net.command(UE, UeCommand::ServiceRequest);
    net.settle(SECOND);
    net.inject_n14_fault(net.n14_messages() + 1, N14Fault::Lost); // what has changed
    replicate(&mut net);
    assert_eq!(net.replicas_held(), [0, 1], "the older one");
    go(&mut net, THERE);
    assert_eq!(outcome(&net), (0, 1));
    served_by(&net, peer_amf(&net), at_home(&net), THERE);
    no_violations(&net);
    assert_eq!(net.not_taken(), []);
}

#[test] // each process begins without replicas
fn a_target_that_has_restarted_is_sent_the_state() {
    let mut net = replicated(4);
    net.restart_peer_amf();
    net.settle(SECOND);
    assert_eq!(net.replicas_held(), [0, 0]);
    go(&mut net, THERE);
    assert_eq!(outcome(&net), (0, 1));
    served_by(&net, peer_amf(&net), at_home(&net), THERE);
}

#[test] // replicas are bounded, and those of UEs that are gone are dropped
fn a_core_holds_no_more_replicas_than_configured() {
    for (most, held) in [(1, 1), (MOST, 2)] {
        let mut net = scene(5);
        let other = net.add_ue(HERE, ue_config(2));
        net.command(other, UeCommand::Register);
        net.settle(SECOND);
        net.exchange_replicas(most);
        replicate(&mut net);
        assert_eq!(net.replicas_held(), [0, held]);
        for ue in [UE, other] {
            net.command(ue, UeCommand::Deregister { switch_off: false });
            net.settle(SECOND * 2);
        }
        assert_eq!(net.replicas_held(), [0, 0]);
    }
}

#[test] // every fault at each message: of the replica, of the offer, of its refusal, of the handover, of the registration
fn whatever_befalls_any_message_ue_and_cores_agree() {
    for stale in [false, true] {
        let way = |net: &mut Sim| {
            net.exchange_replicas(MOST);
            replicate(net);
            if stale {
                net.forget_replicas(true); // the source does not know
            }
            go(net, THERE);
            replicate(net);
            go_idle(net, UE);
            net.move_ue(UE, HERE);
            net.settle(SECOND * 20);
        };
        let mut net = scene(6);
        let from = net.n14_messages() + 1;
        way(&mut net);
        let to = net.n14_messages();
        for (fault, nth) in N14Fault::ALL.into_iter().flat_map(|f| (from..=to).map(move |n| (f, n))) {
            let mut net = scene(6);
            net.inject_n14_fault(nth, fault);
            way(&mut net);
            comes_to_rest(&mut net, &format!("{fault:?} at message {nth}, stale: {stale}"));
        }
    }
}

#[test] // the source, or the target, loses a CPF or its CTA at each input and each message of a handover whose state is there
fn a_cta_or_a_cpf_lost_at_any_message_of_the_procedure() {
    let home = || {
        let (home, peer_amf) = two_amf_configs();
        exchanged(with(Sim::builder(41).config(home).cpfs(3, 1).cta_replica().build(), peer_amf))
    };
    let goes_well = |net: &mut Sim| {
        served_by(net, peer_amf(net), at_home(net), THERE);
        assert_eq!(outcome(net), (1, 0));
    };
    with_each_loss(home, |net| go(net, THERE), goes_well, |_, _| {});
    let away = || {
        let mut net = home();
        go(&mut net, THERE);
        replicate(&mut net);
        net
    };
    let comes_back = |net: &mut Sim| {
        served_by(net, at_home(net), peer_amf(net), HERE);
        assert_eq!(outcome(net), (2, 0));
    };
    with_each_loss(away, |net| go(net, HERE), comes_back, |_, _| {});
}
