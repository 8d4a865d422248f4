//! N2 handover between two AMFs of one network: TS 23.502 §4.9.1.3, §4.9.1.4, TS 29.518 §5.2.2.2, TS 33.501 §6.9.2.3.3.

use crate::common::amfs::*;
use crate::common::stage::session;
use crate::common::*;
use whimbrel_control::amf::{N14, N14Body, Relation};
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::gnb::{Event as GnbEvent, GnbConfig, Via};
use whimbrel_ran::ue::{MmState, UeCommand};
use whimbrel_resilience::N14Error;
use whimbrel_sim::{GnbIndex, N14Fault, Sim, two_amf_configs, ue_config};

fn go(net: &mut Sim, to: GnbIndex) {
    net.hand_over(UE, to, Via::N2);
    net.settle(SECOND * 6);
}

/// How the source's gNB was refused.
fn refused(net: &Sim) -> Option<&Cause> {
    net.events.gnbs.iter().find_map(|(_, e)| match e {
        GnbEvent::HandoverFailed { cause, .. } => Some(cause),
        _ => None,
    })
}

#[test] // TS 23.502 §4.9.1.3 inter-AMF, TS 33.501 §6.9.2.3.3: the UE goes over with its keys and sessions, registers there, and its former AMF forgets it; and back
fn a_ue_goes_to_another_amf_and_comes_back() {
    let mut net = scene(1);
    let addresses: Vec<_> =
        at_home(&net).expect("it is here").sessions.values().map(|s| s.address.ipv4).collect();
    for (to, gnb) in [("peer_amf", THERE), ("home", HERE), ("peer_amf", THERE)] {
        go(&mut net, gnb);
        match to {
            "peer_amf" => served_by(&net, peer_amf(&net), at_home(&net), gnb),
            _ => served_by(&net, at_home(&net), peer_amf(&net), gnb),
        }
        let left = if gnb == THERE { HERE } else { THERE };
        assert_eq!(net.gnb_ref(left).tunnels(), 0, "the gNB that it has left holds nothing");
        let slots = net.cta().occupancy().0 + net.peer_amf().occupancy().0;
        assert_eq!(slots, 1, "one of the cores knows it");
    }
    let now: Vec<_> =
        peer_amf(&net).expect("it is there").sessions.values().map(|s| s.address.ipv4).collect();
    assert_eq!(now, addresses, "the UPF stays, and with it the addresses");
    no_violations(&net);
    assert_eq!(net.not_taken(), []);
}

#[test] // TS 23.502 §4.9.1.3.2 inter-AMF step 11: forwarded by the UPF where gNBs do not reach each other; its rules go with the rest
fn packets_are_forwarded_by_the_upf() {
    let mut net = scene(2);
    let indirect =
        |n, tac| GnbConfig { supported_tas: vec![area(tac)], direct_forwarding: false, ..gnb_config(n) };
    let here = net.add_gnb(indirect(3, 1));
    let there = net.add_gnb_of_peer_amf(indirect(4, 2));
    go(&mut net, here);
    go(&mut net, there);
    served_by(&net, peer_amf(&net), at_home(&net), there);
    no_violations(&net);
}

#[test] // the UE lives on there: idle, paged, deregistered
fn a_ue_that_came_is_like_any_other() {
    let mut net = scene(3);
    go(&mut net, THERE);
    go_idle(&mut net, UE);
    net.command(UE, UeCommand::ServiceRequest);
    net.settle(SECOND);
    served_by(&net, peer_amf(&net), at_home(&net), THERE);
    net.command(UE, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND * 2);
    assert_eq!((net.upf_sessions(), net.peer_amf().occupancy().0), (0, 0));
    no_violations(&net);
}

#[test] // TS 23.502 §4.9.1.3.2 inter-AMF failure: the gNB's cause goes to the source's, and the UE stays
fn a_gnb_there_that_refuses() {
    let mut net = scene(4);
    let cause = Cause::from(CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell);
    net.gnb_mut(THERE).faults_mut().refuse_handover = Some(cause.clone());
    go(&mut net, THERE);
    assert_eq!(refused(&net), Some(&cause));
    served_by(&net, at_home(&net), peer_amf(&net), HERE);
    assert_eq!(net.peer_amf().occupancy().0, 0);
}

#[test] // TS 23.502 §4.9.1.4 inter-AMF: HANDOVER CANCEL ends it on both sides
fn a_handover_that_its_source_cancels() {
    let mut net = scene(5);
    net.gnb_mut(HERE).faults_mut().cancel_at_command = true;
    go(&mut net, THERE);
    served_by(&net, at_home(&net), peer_amf(&net), HERE);
    assert_eq!((net.peer_amf().occupancy().0, net.gnb_ref(THERE).tunnels()), (0, 0));
    assert!(net.events.gnbs.iter().any(|(_, e)| matches!(e, GnbEvent::HandoverCancelled(_))));
}

#[test] // TS 23.502 §4.9.1.3.2 inter-AMF failure: a gNB there that does not answer, and one that is not there
fn the_peer_amf_does_not_answer() {
    let mut net = scene(6);
    net.gnb_mut(THERE).faults_mut().ignore_handover_request = true;
    go(&mut net, THERE);
    assert!(refused(&net).is_some());
    net.settle(SECOND * 20);
    served_by(&net, at_home(&net), peer_amf(&net), HERE);
    net.events.gnbs.clear();
    net.disconnect(THERE);
    go(&mut net, THERE);
    assert_eq!(refused(&net), Some(&CauseRadioNetwork::UnknownTargetId.into()));
    served_by(&net, at_home(&net), peer_amf(&net), HERE);
    assert_eq!(net.peer_amf().occupancy().0, 0);
}

#[test] // TS 23.502 §4.9.1.3.2 inter-AMF failure: the other core does not know the subscriber: the UE stays where it is known
fn a_ue_without_subscription_at_the_peer_amf_is_not_handed_over() {
    let mut net = scene(7);
    let supi = net.ue_ref(UE).config().supi;
    net.peer_amf_subscribers().unknown.push(supi);
    go(&mut net, THERE);
    assert_eq!(refused(&net), Some(&CauseRadioNetwork::HoTargetNotAllowed.into()));
    served_by(&net, at_home(&net), peer_amf(&net), HERE);
}

#[test] // TS 23.502 §4.9.1.3.2 inter-AMF step 4: a session whose UPF the other core does not have cannot go along, and a UE without any stays
fn the_other_core_has_another_upf() {
    let (home, mut there) = two_amf_configs();
    there.smf.upfs[0].address = Some([127, 0, 0, 99].into());
    let mut net = Sim::builder(8).config(home).build();
    net.add_peer_amf(there);
    net.add_gnb(gnb_config(1));
    net.add_gnb_of_peer_amf(GnbConfig { supported_tas: vec![area(2)], ..gnb_config(2) });
    net.add_ue(HERE, ue_config(1));
    net.settle(SECOND / 10);
    net.command(UE, UeCommand::Register);
    net.settle(SECOND);
    net.command(UE, session());
    net.settle(SECOND);
    go(&mut net, THERE);
    assert!(refused(&net).is_some());
    assert!(at_home(&net).is_some_and(|p| p.is_connected()) && peer_amf(&net).is_none());
    net.check_user_plane();
}

#[test] // TS 23.502 §4.9.1.3 inter-AMF loss: each message between the two is lost, or comes twice, or is the last, or a core dies as it comes: both ways
fn whatever_befalls_any_message_ue_and_cores_agree() {
    let sent = {
        let mut net = scene(9);
        go(&mut net, THERE);
        net.n14_messages()
    };
    assert!(sent >= 4, "context, its answer, the UE's coming, its answer");
    for nth in 1..=sent {
        for fate in N14Fault::ALL {
            let mut net = scene(9);
            net.inject_n14_fault(nth, fate);
            go(&mut net, THERE);
            comes_to_rest(&mut net, &format!("message {nth} {fate:?}"));
        }
    }
}

#[test] // a handover that fails before its command costs the UE nothing
fn what_fails_before_the_command_leaves_the_ue_as_it_was() {
    for (nth, fate) in [
        (1, N14Fault::Lost),
        (1, N14Fault::Cut),
        (1, N14Fault::PeerRestarts),
        (2, N14Fault::Lost),
        (2, N14Fault::Cut),
    ] {
        let mut net = scene(10);
        net.inject_n14_fault(nth, fate);
        net.hand_over(UE, THERE, Via::N2);
        net.settle(SECOND * 20);
        if fate == N14Fault::PeerRestarts {
            assert!(refused(&net).is_some());
        }
        served_by(&net, at_home(&net), peer_amf(&net), HERE);
        net.restore_n14();
        go(&mut net, THERE);
        served_by(&net, peer_amf(&net), at_home(&net), THERE);
    }
}

#[test] // TS 23.502 §4.9.1.3.1 inter-AMF: a NAS COUNT that was used here is not reused there
fn a_message_to_the_ue_waits_for_where_it_is() {
    let mut net = scene(11);
    net.gnb_mut(THERE).faults_mut().ignore_handover_request = true;
    net.hand_over(UE, THERE, Via::N2);
    net.settle(SECOND / 10);
    let count = |net: &Sim| {
        at_home(net).and_then(|p| p.amf.security.current.as_ref().map(|s| s.counts().downlink_next))
    };
    let before = count(&net);
    let id = at_home(&net).expect("it is here").id;
    net.order(id, whimbrel_control::Command::Deregister);
    net.settle(SECOND / 10);
    assert_eq!(count(&net), before, "nothing was sent while its state is in flight");
    net.settle(SECOND * 30);
    assert_eq!(net.ue_ref(UE).state(), MmState::Deregistered, "it was sent when the handover was cancelled");
}

#[test] // TS 23.502 §4.9.1.3 inter-AMF fault: a wrong or repeated message of a peer AMF is refused and counted, and affects no UE
fn a_faulty_peer_amf_is_refused_and_counted() {
    let mut net = scene(12);
    let ue = at_home(&net).expect("it is here").id;
    let relation = Relation { source: ue, token: [7; 16] };
    let sent = |body| N14 { relation, body }.to_flat();
    // Of a handover that it has no part in.
    for body in [N14Body::HandoverComplete, N14Body::not_created(CauseRadioNetwork::Unspecified, None)] {
        net.inject_n14(sent(body).octets());
    }
    for body in [N14Body::ReleaseUeContext, N14Body::RanStatus(vec![1, 2, 3])] {
        net.inject_n14(sent(body).octets());
    }
    assert_eq!(net.not_taken(), [N14Error::Unknown; 2]);
    // No message at all, and a changed one.
    let mut changed = sent(N14Body::HandoverComplete).octets().to_vec();
    changed[5] ^= 1;
    for octets in [b"GET / HTTP/1.1".as_slice(), &changed] {
        net.inject_n14(octets);
    }
    assert_eq!(net.not_taken()[2..], [N14Error::Malformed; 2]);
    net.settle(SECOND);
    served_by(&net, at_home(&net), peer_amf(&net), HERE);
    assert_eq!(
        net.not_taken()[4..],
        [N14Error::Unknown],
        "the peer AMF is informed that there is no such handover"
    );
    // A UE context that comes twice makes one UE.
    net.inject_n14_fault(net.n14_messages() + 1, N14Fault::Repeated);
    go(&mut net, THERE);
    served_by(&net, peer_amf(&net), at_home(&net), THERE);
    assert_eq!(net.not_taken()[5..], [N14Error::Repeated]);
}

/// There and back, whatever happens meanwhile.
fn there_and_back(net: &mut Sim) {
    for gnb in [THERE, HERE] {
        go(net, gnb);
    }
}

#[test] // TS 23.502 §4.9.1.3 inter-AMF loss: a home of several processes loses one of them at each message of a handover out and in
fn a_cta_or_a_cpf_lost_at_any_message_of_the_procedure() {
    let home = || {
        let (home, peer_amf) = two_amf_configs();
        with(Sim::builder(13).config(home).cpfs(3, 1).cta_replica().build(), peer_amf)
    };
    with_each_loss(
        home,
        there_and_back,
        |net| served_by(net, at_home(net), peer_amf(net), HERE),
        |net, what| {
            let there = peer_amf(net).map(|p| p.id);
            assert_eq!((net.gnb_of(UE), there), (HERE, None), "{what}");
            comes_to_rest(net, what);
        },
    );
}
