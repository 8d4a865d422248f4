//! AMFs of one set: a registered UE is served by another one than its own (TS 23.501 §5.19, §5.21.2), and an AMF that is to be removed gives its UEs to another.

use std::time::Duration;

use crate::common::amfs::*;
use crate::common::by_hand::psi;
use crate::common::*;
use whimbrel_control::amf::{N14, N14Body, PeerAmfId, Relation, UeProof};
use whimbrel_control::event::Event;
use whimbrel_control::{Procedure, UeContext, UeId};
use whimbrel_nas::ie::NgKsi;
use whimbrel_ran::ue::{MmState, UeCommand};
use whimbrel_sim::{GnbIndex, N14Fault, Sim, two_amf_configs_of_a_set};

/// A UE with two sessions at the one AMF; a gNB of the same tracking area is connected to the other AMF of the set.
fn set(seed: u64) -> Sim {
    let (home, peer_amf) = two_amf_configs_of_a_set();
    with(Sim::builder(seed).config(home).recorded().build(), peer_amf)
}

/// The UE is idle and comes in a cell of that gNB, which does not reach its AMF.
fn requests_service_at(net: &mut Sim, gnb: GnbIndex) {
    if net.ue_ref(UE).is_connected() {
        go_idle(net, UE);
    }
    net.move_ue(UE, gnb);
    net.command(UE, UeCommand::ServiceRequest);
    net.settle(SECOND * 6);
}

fn addresses(ue: &UeContext) -> Vec<Option<std::net::Ipv4Addr>> {
    ue.sessions.values().map(|s| s.address.ipv4).collect()
}

fn keys(net: &Sim) -> Option<NgKsi> {
    net.ue_ref(UE).security().map(|(ksi, _)| ksi)
}

/// How often the UE has registered.
fn registrations(net: &Sim) -> usize {
    let is = |e: &Event| matches!(e, Event::Completed { procedure: Procedure::Registration, .. });
    let there = net.peer_amf_events().iter().filter(|(_, e)| is(&e.event)).count();
    net.events.ues.iter().filter(|(_, e)| is(&e.event)).count() + there
}

fn of(net: &Sim, gnb: GnbIndex) -> (Option<&UeContext>, Option<&UeContext>) {
    match gnb {
        HERE => (at_home(net), peer_amf(net)),
        _ => (peer_amf(net), at_home(net)),
    }
}

fn lives(net: &mut Sim, gnb: GnbIndex) {
    let (ue, other) = of(net, gnb);
    served_by(net, ue, other, gnb);
    let slots = net.cta().occupancy().0 + net.peer_amf().occupancy().0;
    assert_eq!(slots, 1, "one of the AMFs has it");
    for n in [1, 2] {
        net.check_path(UE, psi(n));
    }
}

#[test] // TS 23.501 §5.21.2.2.2, TS 24.501 §5.6.1: no registration, no authentication, the sessions come along, and it gets a 5G-GUTI of the AMF that serves it
fn a_service_request_is_served_by_another_amf_of_the_set() {
    let mut net = set(1);
    let (sessions, proved) = (addresses(at_home(&net).unwrap()), keys(&net));
    for gnb in [THERE, HERE, THERE] {
        requests_service_at(&mut net, gnb);
        lives(&mut net, gnb);
        assert_eq!(addresses(of(&net, gnb).0.unwrap()), sessions);
    }
    assert_eq!((keys(&net), registrations(&net)), (proved, 1));
    assert_eq!(net.not_taken(), []);
    no_violations(&net);
}

#[test] // TS 24.501 §5.6.1.5: no AMF of the set has the UE, so it registers
fn a_ue_that_no_amf_of_the_set_has_gets_service_reject() {
    let mut net = set(2);
    go_idle(&mut net, UE);
    net.restart_core();
    requests_service_at(&mut net, THERE);
    net.settle(SECOND * 6);
    assert_eq!(net.ue_ref(UE).state(), MmState::Registered);
    assert_eq!((registrations(&net), peer_amf(&net).is_some()), (2, true));
    no_violations(&net);
}

#[test] // each message between the two is lost, or comes twice, or is the last, or an AMF dies as it comes
fn whatever_befalls_any_message_of_a_service_request_ue_and_amfs_agree() {
    let (before, sent) = {
        let mut net = set(3);
        let before = net.n14_messages();
        requests_service_at(&mut net, THERE);
        (before, net.n14_messages())
    };
    assert_eq!(sent - before, 4, "a question, the context, the UE's arrival, its sessions");
    for nth in before + 1..=sent {
        for fate in N14Fault::ALL {
            let mut net = set(3);
            let what = format!("message {nth} {fate:?}");
            net.inject_n14_fault(nth, fate);
            requests_service_at(&mut net, THERE);
            if matches!(fate, N14Fault::Lost | N14Fault::Repeated) {
                is_in_one_place(&mut net, &what);
                assert_eq!(net.ue_ref(UE).sessions().count(), 2, "{what}");
            }
            comes_to_rest(&mut net, &what);
        }
    }
}

#[test] // a home of several processes loses one of them at each message of the way out and in
fn a_cta_or_a_cpf_lost_at_any_message_of_a_service_request_at_another_amf() {
    let home = || {
        let (home, peer_amf) = two_amf_configs_of_a_set();
        let mut net = with(Sim::builder(4).config(home).cpfs(3, 1).cta_replica().build(), peer_amf);
        go_idle(&mut net, UE);
        net
    };
    let there_and_back =
        |net: &mut Sim| [THERE, HERE].into_iter().for_each(|gnb| requests_service_at(net, gnb));
    with_each_loss(home, there_and_back, |net| lives(net, HERE), |net, _| lives(net, HERE));
}

// Planned removal.

fn remove(net: &mut Sim, to: Option<PeerAmfId>) {
    net.remove_amf(to);
}

#[test] // TS 23.501 §5.21.2.2.1: an idle UE notices nothing: it keeps its 5G-GUTI, is paged under it by the other AMF, and is served there
fn an_idle_ue_of_an_amf_that_is_removed_is_given_to_another_of_the_set() {
    let mut net = set(5);
    let (sessions, proved, former) = (addresses(at_home(&net).unwrap()), keys(&net), net.ue_ref(UE).s_tmsi());
    go_idle(&mut net, UE);
    remove(&mut net, Some(PeerAmfId(0)));
    net.settle(SECOND * 6);
    assert_eq!(net.cta().removal().map(|r| (r.left, r.announced)), Some((0, true)));
    assert_eq!(peer_amf(&net).map(addresses), Some(sessions.clone()));
    assert_eq!(net.ue_ref(UE).s_tmsi(), former, "it has heard nothing");
    net.move_ue(UE, THERE); // a cell of a gNB that is connected to the AMF that stays
    [1, 2].into_iter().for_each(|n| net.check_path(UE, psi(n))); // it is paged
    net.settle(SECOND * 3);
    lives(&mut net, THERE);
    assert_ne!(net.ue_ref(UE).s_tmsi(), former);
    assert_eq!((keys(&net), registrations(&net), net.not_taken().len()), (proved, 1, 0));
    no_violations(&net);
}

#[test] // a connected UE is released when gNBs know that its AMF is not available, and goes too
fn a_connected_ue_of_an_amf_that_is_removed_is_released_and_given() {
    let mut net = set(6);
    assert!(at_home(&net).is_some_and(UeContext::is_connected));
    remove(&mut net, Some(PeerAmfId(0)));
    net.settle(SECOND * 6);
    assert_eq!(net.cta().removal().map(|r| (r.left, r.announced)), Some((0, true)));
    assert!(peer_amf(&net).is_some_and(|ue| !ue.is_connected()));
    requests_service_at(&mut net, THERE);
    lives(&mut net, THERE);
    assert_eq!(registrations(&net), 1);
    no_violations(&net);
}

#[test] // TS 24.501 §5.5.1.3: its periodic registration goes to the other AMF, too
fn a_ue_that_was_given_registers_where_it_is() {
    let mut net = set(7);
    let (sessions, proved) = (addresses(at_home(&net).unwrap()), keys(&net));
    go_idle(&mut net, UE);
    remove(&mut net, Some(PeerAmfId(0)));
    net.settle(SECOND);
    net.move_ue(UE, THERE);
    net.command(UE, UeCommand::Register);
    net.settle(SECOND * 6);
    net.command(UE, UeCommand::ServiceRequest);
    net.settle(SECOND);
    lives(&mut net, THERE);
    assert_eq!((addresses(peer_amf(&net).unwrap()), keys(&net)), (sessions, proved));
    no_violations(&net);
}

#[test] // a gNB that does not know of the removal sends the UE to its former AMF, which gets it back, and gives it again
fn a_ue_that_comes_to_its_former_amf_is_served_there() {
    let mut net = set(8);
    go_idle(&mut net, UE);
    remove(&mut net, Some(PeerAmfId(0)));
    net.settle(SECOND);
    remove(&mut net, None);
    requests_service_at(&mut net, HERE);
    lives(&mut net, HERE);
    assert_eq!(registrations(&net), 1);
    no_violations(&net);
}

#[test] // at any moment of it: its request waits until one of the two AMFs has it
fn a_ue_that_requests_service_while_it_is_given_is_served() {
    for micros in (0..40_000).step_by(500) {
        let mut net = set(9);
        let sessions = addresses(at_home(&net).unwrap());
        go_idle(&mut net, UE);
        remove(&mut net, Some(PeerAmfId(0)));
        net.settle(Duration::from_micros(micros));
        net.move_ue(UE, THERE);
        net.command(UE, UeCommand::ServiceRequest);
        net.settle(SECOND * 6);
        assert_eq!(net.ue_ref(UE).state(), MmState::Registered, "after {micros} µs");
        lives(&mut net, THERE);
        assert_eq!(
            (addresses(peer_amf(&net).unwrap()), registrations(&net)),
            (sessions, 1),
            "after {micros} µs"
        );
        no_violations(&net);
    }
}

#[test] // the other AMF, from which it has just been fetched back, still has its context for a moment
fn a_ue_that_comes_to_its_former_amf_during_the_removal_is_given_again() {
    let mut net = set(16);
    let sessions = addresses(at_home(&net).unwrap());
    go_idle(&mut net, UE);
    remove(&mut net, Some(PeerAmfId(0)));
    net.settle(SECOND);
    requests_service_at(&mut net, HERE);
    net.settle(SECOND * 6);
    assert_eq!(peer_amf(&net).map(addresses), Some(sessions));
    requests_service_at(&mut net, THERE);
    lives(&mut net, THERE);
    assert_eq!(registrations(&net), 1);
    // No `no_violations`: the gNB, which knows the drained AMF alone, is served by its GUAMI after AMF STATUS INDICATION.
}

#[test] // each message of it is lost, or comes twice, or is the last, or an AMF dies as it comes
fn whatever_befalls_any_message_of_a_removal_ue_and_amfs_agree() {
    let begin = || {
        let mut net = set(9);
        go_idle(&mut net, UE);
        net
    };
    let remove = |net: &mut Sim| {
        remove(net, Some(PeerAmfId(0)));
        net.settle(SECOND * 6);
    };
    let (before, sent) = {
        let mut net = begin();
        let before = net.n14_messages();
        remove(&mut net);
        (before, net.n14_messages())
    };
    assert_eq!(sent - before, 3, "the context, the other AMF has it, its sessions");
    for nth in before + 1..=sent {
        for fate in N14Fault::ALL {
            let mut net = begin();
            let what = format!("message {nth} {fate:?}");
            net.inject_n14_fault(nth, fate);
            remove(&mut net);
            net.move_ue(UE, THERE);
            net.command(UE, UeCommand::ServiceRequest);
            if matches!(fate, N14Fault::Lost | N14Fault::Repeated) {
                is_in_one_place(&mut net, &what);
                assert_eq!(net.ue_ref(UE).sessions().count(), 2, "{what}");
            }
            comes_to_rest(&mut net, &what);
        }
    }
}

#[test] // a home of several processes that is being removed loses one of them at each message
fn a_cta_or_a_cpf_lost_at_any_message_of_a_removal() {
    let home = || {
        let (home, peer_amf) = two_amf_configs_of_a_set();
        let mut net = with(Sim::builder(10).config(home).cpfs(3, 1).cta_replica().build(), peer_amf);
        go_idle(&mut net, UE);
        net
    };
    let removed = |net: &mut Sim| {
        remove(net, Some(PeerAmfId(0)));
        net.settle(SECOND * 2); // a message that was lost with a CTA is repeated after one
        requests_service_at(net, THERE);
    };
    with_each_loss(home, removed, |net| lives(net, THERE), |net, _| lives(net, THERE));
}

// Loss of an AMF.

/// The AMFs have exchanged replicas, and then the UE's one is dead.
fn dead(net: &mut Sim) {
    net.exchange_replicas(8);
    net.replicate_to_peer_amfs();
    net.settle(SECOND);
    net.cut_n14();
    net.settle(SECOND * 2);
}

#[test] // TS 23.501 §5.21.2.3: the UE is authenticated, as NAS COUNTs may have been used that the replica does not show, and goes on with its sessions
fn a_ue_of_a_dead_amf_is_served_from_its_replica() {
    for registers in [false, true] {
        let mut net = set(11);
        let sessions = addresses(at_home(&net).unwrap());
        let proved = keys(&net);
        go_idle(&mut net, UE);
        dead(&mut net);
        net.move_ue(UE, THERE);
        net.command(UE, if registers { UeCommand::Register } else { UeCommand::ServiceRequest });
        net.settle(SECOND * 6);
        net.command(UE, UeCommand::ServiceRequest);
        net.settle(SECOND);
        let there = peer_amf(&net).expect("it is served");
        assert_eq!(addresses(there), sessions);
        assert_ne!(keys(&net), proved, "it was authenticated");
        assert_eq!(registrations(&net), 1 + usize::from(registers));
        for n in [1, 2] {
            net.check_path(UE, psi(n));
        }
        no_violations(&net);
    }
}

#[test] // TS 29.244 §5.22.3: the UPF reports to the set what the SMF leaves unanswered for three seconds; the UE's context comes from the replica
fn an_idle_ue_of_a_dead_amf_is_paged_and_authenticated() {
    let mut net = set(13);
    let sessions = addresses(at_home(&net).unwrap());
    let proved = keys(&net);
    go_idle(&mut net, UE);
    dead(&mut net);
    net.cut_n4();
    net.move_ue(UE, THERE);
    net.downlink(UE, psi(1));
    net.settle(SECOND * 10);
    let there = peer_amf(&net).expect("it is served");
    assert!(there.is_connected() && addresses(there) == sessions);
    assert_ne!(keys(&net), proved, "it was authenticated");
    assert_eq!((registrations(&net), net.replicas_of_peer_amfs()[1].promoted), (1, 1));
    for n in [1, 2] {
        net.check_path(UE, psi(n));
    }
    no_violations(&net);
}

#[test] // an AMF that fetches a UE asks the living ones of the set before a replica: two contexts would both go on with its sessions
fn a_ue_that_is_being_fetched_is_not_forwarded_from_a_replica() {
    let mut net = set(13);
    let sessions = addresses(at_home(&net).unwrap());
    go_idle(&mut net, UE);
    dead(&mut net);
    net.cut_n4();
    net.move_ue(UE, THERE);
    net.downlink(UE, psi(1));
    net.advance(Duration::from_millis(2_500));
    let (home, _) = two_amf_configs_of_a_set();
    let tmsi = net.ue_ref(UE).guti().expect("it is registered").tmsi;
    let shown = UeProof { amf_id: home.amf.amf_id, tmsi, nas: vec![0x7e], by_replica: false };
    let relation = Relation { source: UeId { slot: 7, generation: 1 }, token: [7; 16] };
    let asks = N14 { relation, body: N14Body::TransferUeContext(shown) };
    net.inject_n14_at_peer_amf(asks.to_flat().octets());
    net.advance(Duration::from_millis(1_500));
    assert!(peer_amf(&net).is_none(), "another AMF fetches it");
    net.settle(SECOND * 6);
    let there = peer_amf(&net).expect("it is not fetched any more when the report is repeated");
    assert_eq!((addresses(there), registrations(&net)), (sessions, 1));
}

#[test] // its AMF is reached by the other one
fn a_report_of_a_living_amfs_ue_moves_nothing() {
    let mut net = set(14);
    go_idle(&mut net, UE);
    net.cut_n4();
    net.downlink(UE, psi(1));
    net.settle(SECOND * 4);
    net.restore_n14();
    net.settle(SECOND * 10);
    assert!(peer_amf(&net).is_none() && at_home(&net).is_some());
    assert_eq!(net.not_taken(), []);
}

#[test] // no UE waits for a dead AMF of which there is no replica: it registers
fn a_ue_of_a_dead_amf_without_a_replica_registers() {
    let mut net = set(12);
    go_idle(&mut net, UE);
    net.cut_n14();
    net.settle(SECOND * 2);
    let began = net.now();
    requests_service_at(&mut net, THERE);
    assert!(registrations(&net) == 2 && peer_amf(&net).is_some());
    let is = |e: &Event| matches!(e, Event::Completed { procedure: Procedure::Registration, .. });
    let registered = net.peer_amf_events().iter().find(|(_, e)| is(&e.event)).map(|(at, _)| at.since(began));
    assert!(registered.is_some_and(|took| took < SECOND * 2), "{registered:?}");
    no_violations(&net);
}
