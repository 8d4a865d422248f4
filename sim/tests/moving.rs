//! Handovers of emulated UEs between emulated gNBs, which judge what the core does about them.

use crate::common::{SECOND, gnb_config, network, no_violations};
use whimbrel_control::smf::UpState;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::gnb::{self, Event as GnbEvent, Via};
use whimbrel_ran::ue::{Event, SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, ue_config};

/// Two gNBs, and a UE with two sessions at the first.
fn two_gnbs(seed: u64) -> (Sim, UeIndex, [GnbIndex; 2]) {
    let mut net = network(seed);
    let gnbs = [net.add_gnb(gnb_config(1)), net.add_gnb(gnb_config(2))];
    let ue = net.add_ue(gnbs[0], ue_config(1));
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    for dnn in ["internet", "ims"] {
        let request = SessionRequest { dnn: dnn.parse().ok(), ..SessionRequest::default() };
        net.command(ue, UeCommand::EstablishSession(request));
        net.settle(SECOND);
    }
    assert_eq!(net.ue_ref(ue).sessions().count(), 2);
    (net, ue, gnbs)
}

fn handed_over(net: &Sim) -> usize {
    net.events.gnbs.iter().filter(|(_, e)| matches!(e, GnbEvent::HandedOver { .. })).count()
}

#[test] // TS 23.502 §4.9.1.2.2; TS 33.501 §6.9.2.3.2: over the end of the three bits of NCC
fn xn_handover_there_and_back() {
    let (mut net, ue, gnbs) = two_gnbs(1);
    for n in 1..=11 {
        net.hand_over(ue, gnbs[n % 2], Via::Xn);
        net.settle(SECOND);
        assert_eq!((handed_over(&net), net.gnb_of(ue)), (n, gnbs[n % 2]));
        assert_eq!(net.gnb_ref(gnbs[(n + 1) % 2]).contexts(), 0);
    }
    assert!(net.ue_ref(ue).sessions().all(|s| net.ue_ref(ue).has_user_plane(s.id)));
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND);
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Deregistered { .. })));
    assert_eq!(net.upf_sessions(), 0);
    no_violations(&net);
}

#[test] // TS 23.502 §4.9.1.3.2, §4.9.1.3.3; TS 33.501 §6.9.2.3.3: keys, sessions and forwarding as the UE and both gNBs see them
fn n2_handover_there_and_back() {
    let (mut net, ue, gnbs) = two_gnbs(2);
    for n in 1..=11 {
        net.hand_over(ue, gnbs[n % 2], Via::N2);
        net.settle(SECOND * 3);
        assert_eq!((handed_over(&net), net.gnb_of(ue)), (n, gnbs[n % 2]));
        assert_eq!(net.gnb_ref(gnbs[(n + 1) % 2]).contexts(), 0);
    }
    assert!(net.ue_ref(ue).sessions().all(|s| net.ue_ref(ue).has_user_plane(s.id)));
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND);
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Deregistered { .. })));
    assert_eq!(net.upf_sessions(), 0);
    no_violations(&net);
}

#[test] // TS 38.412 §7: a UE returns over Xn to a gNB that has its former connection still: each is released on its own stream
fn back_before_the_former_connection_is_released() {
    let (mut net, ue, gnbs) = two_gnbs(7);
    for n in 1..=12 {
        net.hand_over(ue, gnbs[n % 2], if n % 2 == 0 { Via::Xn } else { Via::N2 });
        while handed_over(&net) < n {
            net.advance(SECOND / 10_000);
        }
    }
    net.settle(SECOND * 3);
    assert_eq!([0, 1].map(|n| net.gnb_ref(gnbs[n]).contexts()), [1, 0]);
    no_violations(&net);
}

/// An N2 handover that does not come to its end, of a gNB with these faults; the UE is at home again afterwards.
fn failing(seed: u64, at_source: bool, faults: gnb::Faults) -> Sim {
    let (mut net, ue, gnbs) = two_gnbs(seed);
    *net.gnb_mut(gnbs[usize::from(!at_source)]).faults_mut() = faults;
    net.hand_over(ue, gnbs[1], Via::N2);
    net.settle(SECOND * 60);
    let context = net.cta().contexts().next().expect("a UE");
    assert!(
        context.amf.registered
            && context.amf.mobility.target.is_none()
            && context.amf.mobility.forwarding_source.is_none()
    );
    assert_eq!(net.gnb_ref(gnbs[1]).contexts(), 0, "the target keeps nothing");
    assert_eq!(net.upf_sessions(), 2);
    net
}

fn failed_with(net: &Sim) -> Option<Cause> {
    net.events.gnbs.iter().find_map(|(_, e)| match e {
        GnbEvent::HandoverFailed { cause, .. } => Some(cause.clone()),
        _ => None,
    })
}

#[test] // TS 23.502 §4.9.1.3.2 failure: the target refuses
fn n2_handover_refused_by_the_target() {
    let cause: Cause = CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell.into();
    let faults = gnb::Faults { refuse_handover: Some(cause.clone()), ..Default::default() };
    let net = failing(3, false, faults);
    assert_eq!(failed_with(&net), Some(cause));
    no_violations(&net);
}

#[test] // TS 23.502 §4.9.1.3.2 silence: the target does not answer
fn n2_handover_to_a_silent_target() {
    let net = failing(4, false, gnb::Faults { ignore_handover_request: true, ..Default::default() });
    assert!(failed_with(&net).is_some());
}

#[test] // TS 23.502 §4.9.1.4: the source cancels when the command comes
fn n2_handover_cancelled_at_the_command() {
    let net = failing(5, true, gnb::Faults { cancel_at_command: true, ..Default::default() });
    assert!(net.events.gnbs.iter().any(|(_, e)| matches!(e, GnbEvent::HandoverCancelled(_))));
    no_violations(&net);
}

#[test] // TS 23.502 §4.9.1.3.2 step 10: one of two sessions comes along, the other waits
fn n2_handover_of_one_session_of_two() {
    let (mut net, ue, gnbs) = two_gnbs(6);
    let second = net.ue_ref(ue).sessions().nth(1).map(|s| s.id).expect("two sessions");
    net.gnb_mut(gnbs[1]).faults_mut().refuse_sessions = vec![second];
    net.hand_over(ue, gnbs[1], Via::N2);
    net.settle(SECOND * 3);
    assert_eq!(net.gnb_of(ue), gnbs[1]);
    let context = net.cta().contexts().next().expect("a UE");
    let up: Vec<UpState> = context.sessions.values().map(|s| s.up).collect();
    assert_eq!(up, [UpState::Active, UpState::Inactive]);
    // The UE asks for it again, and the gNB has room now.
    net.gnb_mut(gnbs[1]).faults_mut().refuse_sessions.clear();
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    let context = net.cta().contexts().next().expect("a UE");
    assert!(context.sessions.values().all(|s| s.up == UpState::Active));
    no_violations(&net);
}
