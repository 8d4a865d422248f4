//! Ways between two AMFs that come to nothing, or to something else, while one of the AMFs loses a CPF or its CTA: TS 23.502
//! §4.2.2.2.2, §4.9.1.3, §4.9.1.4. Those that come about are in `handover_between_amfs` and `moving_between_amfs`.

use std::time::Duration;

use crate::common::amfs::*;
use crate::common::*;
use whimbrel_control::config::Config;
use whimbrel_ngap::ie::CauseRadioNetwork;
use whimbrel_ran::UeId;
use whimbrel_ran::gnb::{Input, Via};
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{GnbIndex, Sim, two_amf_configs};

/// A home of several processes, and another AMF, both of such a configuration.
fn of_several(change: impl Fn(&mut Config)) -> Sim {
    let (mut home, mut peer_amf) = two_amf_configs();
    [&mut home, &mut peer_amf].into_iter().for_each(change);
    with(Sim::builder(41).config(home).cpfs(3, 1).cta_replica().build(), peer_amf)
}

/// The same with the UE at the other AMF, from where it is to come.
fn from_peer_amf(mut net: Sim) -> Sim {
    net.hand_over(UE, THERE, Via::N2);
    net.settle(SECOND * 6);
    served_by(&net, peer_amf(&net), at_home(&net), THERE);
    net
}

/// A home, as source or as target, loses one of its processes at each moment of this.
fn each_way(home: impl Fn() -> Sim, does: impl Fn(&mut Sim, GnbIndex, GnbIndex)) {
    let agreed = |net: &mut Sim| assert_eq!(net.agree(), Ok(()));
    with_each_loss(&home, |net| does(net, HERE, THERE), agreed, |_, _| {});
    with_each_loss(|| from_peer_amf(home()), |net| does(net, THERE, HERE), agreed, |_, _| {});
}

fn handed_over(net: &mut Sim, to: GnbIndex) {
    net.hand_over(UE, to, Via::N2);
    net.settle(SECOND * 20);
}

#[test] // TS 23.502 §4.9.1.3.2 inter-AMF failure: the target's gNB refuses
fn a_handover_that_is_refused() {
    each_way(
        || of_several(|_| {}),
        |net, _, to| {
            let cause = CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell;
            net.gnb_mut(to).faults_mut().refuse_handover = Some(cause.into());
            handed_over(net, to);
        },
    );
}

#[test] // TS 23.502 §4.9.1.4 inter-AMF: the source's gNB cancels, when it gets HANDOVER COMMAND, and before
fn a_handover_that_is_cancelled() {
    each_way(
        || of_several(|_| {}),
        |net, from, to| {
            net.gnb_mut(from).faults_mut().cancel_at_command = true;
            handed_over(net, to);
        },
    );
    each_way(
        || of_several(|_| {}),
        |net, from, to| {
            net.hand_over(UE, to, Via::N2);
            let cause = CauseRadioNetwork::HandoverCancelled.into();
            net.gnb_input(from, Input::CancelHandover(UeId(0), cause));
            net.settle(SECOND * 20);
        },
    );
}

#[test] // TS 24.501 §5.5.1.2.4: an initial registration at the other AMF ends the sessions
fn an_initial_registration() {
    each_way(
        || of_several(|_| {}),
        |net, _, to| {
            go_idle(net, UE);
            net.command(UE, UeCommand::Deregister { switch_off: true });
            net.move_ue(UE, to); // before the network has heard it
            net.command(UE, UeCommand::Register);
            net.settle(SECOND * 20);
        },
    );
}

#[test] // TS 23.502 §4.2.2.2.2 step 9: the target AMF authenticates the UE
fn a_registration_with_a_challenge() {
    each_way(
        || of_several(|c| c.amf.access.authentication.after = Some(Duration::ZERO)),
        |net, _, to| {
            go_idle(net, UE);
            net.move_ue(UE, to);
            net.settle(SECOND * 20);
        },
    );
}

/// Longer than the context of a silent UE is stored (T3512, TS 24.501 §5.3.7).
const HOURS: Duration = Duration::from_secs(2 * 60 * 60);

/// It is so, at the latest when the context of a silent UE is deleted.
fn is_in_one_place_in_the_end(net: &mut Sim, what: &str) {
    if net.agree().is_err() {
        net.advance(HOURS);
    }
    is_in_one_place(net, what);
}

#[test] // TS 24.501 §5.3.7: the UE returns before it has heard that it is registered there: where it is not, nothing of it stays for ever
fn a_ue_that_turns_round() {
    let turns = |net: &mut Sim, from, to| {
        go_idle(net, UE);
        net.move_ue(UE, to);
        net.settle(Duration::from_millis(9)); // it is registered there, and has not heard so
        net.move_ue(UE, from);
        net.settle(SECOND * 40);
    };
    let home = || of_several(|_| {});
    let ends = |net: &mut Sim, what: &str, _| is_in_one_place_in_the_end(net, what);
    each_loss(home, |net| turns(net, HERE, THERE), ends);
    each_loss(|| from_peer_amf(home()), |net| turns(net, THERE, HERE), ends);
}

/// From its beginning on a way takes so many milliseconds.
const WAY: u64 = 40;

/// Something befalls the network at each moment of a way: out by handover, and out from idle.
fn at_each_moment(befalls: impl Fn(&mut Sim), what: &str) {
    for (idle, moment) in [false, true].into_iter().flat_map(|idle| (0..WAY).map(move |at| (idle, at))) {
        let mut net = of_several(|_| {});
        if idle {
            go_idle(&mut net, UE);
            net.move_ue(UE, THERE);
        } else {
            net.hand_over(UE, THERE, Via::N2);
        }
        net.settle(Duration::from_millis(moment));
        befalls(&mut net);
        net.settle(SECOND * 40);
        let what = format!("{what} after {moment} ms, from idle: {idle}");
        is_in_one_place_in_the_end(&mut net, &what);
        comes_to_rest(&mut net, &what);
    }
}

#[test] // TS 38.413 §8.7.4: a gNB that restarts, or that the operator has reset, in the middle
fn a_gnb_that_is_reset() {
    at_each_moment(|net| net.restart_gnb(HERE), "the source's gNB");
    at_each_moment(|net| net.restart_gnb(THERE), "the target's gNB");
    let reset = |net: &mut Sim| assert!(net.reset_gnb(gnb_config(1).id));
    at_each_moment(reset, "the source's gNB, by the operator");
}

#[test] // an input that ends the CPF that runs it costs its UE a registration; each input out and in is tried
fn a_poisoned_input() {
    let out_and_in = |net: &mut Sim| {
        net.hand_over(UE, THERE, Via::N2);
        net.settle(SECOND * 20);
        go_idle(net, UE);
        net.move_ue(UE, HERE);
        net.settle(SECOND * 40);
    };
    let mut net = of_several(|_| {});
    net.poison(u64::MAX);
    out_and_in(&mut net);
    let inputs = net.handed();
    assert!(inputs > 10, "{inputs}");
    for nth in 1..=inputs {
        let mut net = of_several(|_| {});
        net.poison(nth);
        out_and_in(&mut net);
        let what = format!("input {nth} of {inputs}");
        let counts = net.cta().replication_counters();
        assert_eq!((counts.poisoned, counts.lost), (1, 0), "{what}");
        assert!(net.gnb_ref(HERE).contexts() <= 1, "{what}: its gNB was ordered to release it");
        is_in_one_place_in_the_end(&mut net, &what);
        comes_to_rest(&mut net, &what);
    }
}

#[test] // TS 23.502 §4.9.1.3.2 inter-AMF failure, §4.2.2.2.2 inter-AMF: an AMF that has no place for the UE
fn an_amf_that_is_full() {
    let (home, mut full) = two_amf_configs();
    full.limits.ues = 0;
    let begin = || with(Sim::builder(42).config(home.clone()).cpfs(3, 1).cta_replica().build(), full.clone());
    let mut net = begin();
    handed_over(&mut net, THERE);
    served_by(&net, at_home(&net), peer_amf(&net), HERE);
    let mut net = begin();
    go_idle(&mut net, UE);
    net.move_ue(UE, THERE);
    net.settle(SECOND * 40);
    assert!(at_home(&net).is_some() && net.peer_amf().occupancy().0 == 0);
    net.move_ue(UE, HERE);
    net.settle(SECOND * 40);
    is_in_one_place(&mut net, "it is back");
    assert_eq!(net.ue_ref(UE).sessions().count(), 2);
}
