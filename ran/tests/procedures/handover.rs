//! Handovers between two gNBs against a scripted core.

use whimbrel_gtpu::{Gtpu, message_type};
use whimbrel_ids::{PduSessionId, Qfi, Tac, Teid};
use whimbrel_nas::mm::MessageType;
use whimbrel_ngap::{Cause, CauseRadioNetwork, UeSecurityCapabilities};
use whimbrel_ran::gnb::{self, Event as GnbEvent, Via};
use whimbrel_ran::ue::{Event, MmState, UeCommand};

use crate::fake_core::{Net, UE, capabilities, gnb_config, gpdu};
use crate::session::internet;

fn id(n: u8) -> PduSessionId {
    PduSessionId::new(n).unwrap()
}

fn flow() -> Qfi {
    Qfi::new(1).unwrap()
}

/// A UE with so many sessions at the first of two gNBs.
fn with_sessions(sessions: usize) -> Net {
    let mut net = Net::new();
    net.add_target(gnb_config(1));
    net.core.knobs.keep_connection = true;
    net.command(UeCommand::Register);
    (0..sessions).for_each(|_| net.command(internet()));
    net.take_events();
    net
}

fn hand_over(net: &mut Net, via: Via) {
    let from = net.serving;
    let to = net.gnb_mut(1 - from).as_neighbour();
    net.gnb_at(from, gnb::Input::HandOver { ue: UE, to, via });
}

fn handed_over(net: &Net) -> usize {
    net.gnb_events.iter().filter(|e| matches!(e, GnbEvent::HandedOver { .. })).count()
}

fn failed_for(net: &Net) -> Option<CauseRadioNetwork> {
    net.gnb_events.iter().rev().find_map(|e| match e {
        GnbEvent::HandoverFailed { cause: Cause::RadioNetwork(cause), .. } => Some(*cause),
        _ => None,
    })
}

/// The UE is at this gNB alone, and can use its sessions and speak NAS there.
fn is_at(net: &mut Net, which: usize) {
    assert_eq!((net.serving, net.gnb_mut(1 - which).contexts()), (which, 0));
    assert_eq!(net.gnb_mut(which).contexts(), 1);
    let before = net.core.uplink.len();
    net.core(|core, out| core.update_configuration(out));
    assert_eq!(net.core.uplink.len(), before + 1, "NAS goes through the new gNB");
    net.take_events();
}

#[test] // TS 23.502 §4.9.1.2.2
fn xn_handover_there_and_back() {
    let mut net = with_sessions(2);
    for n in 1..=9 {
        hand_over(&mut net, Via::Xn);
        assert_eq!(handed_over(&net), n);
        is_at(&mut net, n % 2);
    }
    assert_eq!(net.core.mobility.tunnels.len(), 2);
    assert!(net.ue.has_user_plane(id(1)) && net.ue.has_user_plane(id(2)));
}

#[test] // TS 23.502 §4.9.1.3.2, §4.9.1.3.3
fn n2_handover_there_and_back() {
    let mut net = with_sessions(2);
    for n in 1..=9 {
        hand_over(&mut net, Via::N2);
        assert_eq!(handed_over(&net), n);
        is_at(&mut net, n % 2);
    }
    assert!(net.core.ngap.contains(&"UplinkRanStatusTransfer"));
    assert_eq!(net.core.mobility.tunnels.len(), 2);
}

#[test] // TS 33.501 §6.9.2.3: both ways in turn, over the end of the three bits of NCC
fn both_ways_in_turn() {
    let mut net = with_sessions(1);
    for n in 1..=20 {
        hand_over(&mut net, if n % 3 == 0 { Via::N2 } else { Via::Xn });
        is_at(&mut net, n % 2);
    }
    assert_eq!(handed_over(&net), 20);
}

#[test] // TS 33.501 §6.9.2.3.2: a false NH shows at once by Xn, and by N2 in the key of the target
fn a_false_next_hop_is_a_violation() {
    for (via, sentence) in [
        (Via::Xn, "the next hop that the gNB was given is not the one of its chaining count"),
        (Via::N2, "the key after the handover is not the one that the UE derives"),
    ] {
        let mut net = with_sessions(1);
        net.core.knobs.wrong_next_hop = true;
        hand_over(&mut net, via);
        assert_eq!(net.violations(), [sentence]);
    }
}

#[test] // TS 33.501 §6.7.3.1: capabilities that a gNB bids down
fn bidding_down_is_corrected_or_a_violation() {
    let altered = UeSecurityCapabilities::new(0, 0x8000, 0, 0);
    let mut net = with_sessions(1);
    net.gnb_mut(1).faults_mut().altered_capabilities = Some(altered.clone());
    hand_over(&mut net, Via::Xn);
    assert_eq!(
        net.core.mobility.path_switch.as_ref().unwrap().ue_security_capabilities,
        Some(altered.clone())
    );
    net.take_events();
    net.gnb_mut(1).faults_mut().altered_capabilities = None;
    hand_over(&mut net, Via::Xn);
    let returned = &net.core.mobility.path_switch.as_ref().unwrap().ue_security_capabilities;
    assert_eq!(*returned, Some(capabilities()));
    net.take_events();
    let mut net = with_sessions(1);
    net.core.knobs.believe_capabilities = true;
    net.gnb_mut(1).faults_mut().altered_capabilities = Some(altered);
    hand_over(&mut net, Via::Xn);
    assert_eq!(net.violations(), ["the gNB named false UE security capabilities, and the core took them"]);
}

#[test] // TS 38.413 §8.4.4.2: the target takes one session of two, the core switches none or one of the others
fn sessions_that_do_not_move_by_xn() {
    let mut net = with_sessions(3);
    net.gnb_mut(1).faults_mut().refuse_sessions = vec![id(2)];
    net.core.knobs.release_in_handover = vec![id(3)];
    hand_over(&mut net, Via::Xn);
    let failed = &net.core.mobility.path_switch.as_ref().unwrap();
    let failed = &failed.pdu_session_resource_failed_to_setup_list_ps_req;
    assert_eq!(failed.iter().map(|i| i.pdu_session_id).collect::<Vec<_>>(), [id(2)]);
    assert!(net.ue.has_user_plane(id(1)));
    assert!(!net.ue.has_user_plane(id(2)) && !net.ue.has_user_plane(id(3)));
    assert!(
        net.gnb_events
            .iter()
            .any(|e| matches!(e, GnbEvent::HandedOver { released, .. } if released.as_slice() == [id(3)]))
    );
    is_at(&mut net, 1);
}

#[test] // TS 38.413 §8.4.2.2, §8.4.1.2
fn sessions_that_do_not_move_by_n2() {
    let mut net = with_sessions(3);
    net.gnb_mut(1).faults_mut().refuse_sessions = vec![id(2)];
    net.core.knobs.release_in_handover = vec![id(3)];
    hand_over(&mut net, Via::N2);
    assert!(net.ue.has_user_plane(id(1)));
    assert!(!net.ue.has_user_plane(id(2)) && !net.ue.has_user_plane(id(3)));
    is_at(&mut net, 1);
}

#[test] // TS 38.423 §8.2.1.3, TS 38.413 §8.4.2.3, §8.4.1.3
fn a_target_that_refuses() {
    let full = CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell;
    for via in [Via::Xn, Via::N2] {
        let mut net = with_sessions(1);
        net.gnb_mut(1).faults_mut().refuse_handover = Some(Cause::RadioNetwork(full));
        hand_over(&mut net, via);
        assert_eq!(failed_for(&net), Some(full));
        is_at(&mut net, 0);
        let mut net = with_sessions(1);
        net.gnb_mut(1).faults_mut().refuse_sessions = vec![id(1)];
        hand_over(&mut net, via);
        assert_eq!(failed_for(&net), Some(full), "no session can be had");
        is_at(&mut net, 0);
        assert_eq!(net.gnb_mut(1).tunnels(), 0);
        // It may be tried again.
        net.gnb_mut(1).faults_mut().refuse_sessions.clear();
        hand_over(&mut net, via);
        is_at(&mut net, 1);
    }
}

#[test] // TS 38.413 §8.4.4.3
fn a_path_switch_that_fails() {
    let mut net = with_sessions(1);
    net.core.knobs.refuse_path_switch = true;
    hand_over(&mut net, Via::Xn);
    assert!(!net.ue.is_connected());
    assert_eq!(net.gnb_mut(1).contexts(), 0);
    net.until_gnbs_rest();
    assert_eq!(net.gnb_mut(0).contexts(), 0, "the source asked for the release of its connection");
    assert_eq!(net.ue.state(), MmState::Registered);
    net.take_events();
}

#[test] // TS 38.413 §8.4.1.2, §8.4.5: TNGRELOCprep
fn a_target_that_never_answers() {
    let mut net = with_sessions(1);
    net.gnb_mut(1).faults_mut().ignore_handover_request = true;
    hand_over(&mut net, Via::N2);
    net.until_gnbs_rest();
    assert_eq!(net.core.mobility.cancelled, Some(Cause::RadioNetwork(CauseRadioNetwork::TngrelocprepExpiry)));
    assert!(net.gnb_events.contains(&GnbEvent::HandoverCancelled(UE)));
    is_at(&mut net, 0);
}

#[test] // TS 38.413 §8.4.5: after the target was prepared
fn cancelled_late() {
    let mut net = with_sessions(1);
    net.gnb_mut(0).faults_mut().cancel_at_command = true;
    hand_over(&mut net, Via::N2);
    assert!(net.gnb_events.contains(&GnbEvent::HandoverCancelled(UE)));
    is_at(&mut net, 0);
    assert_eq!(net.gnb_mut(1).tunnels(), 0);
    net.gnb_mut(0).faults_mut().cancel_at_command = false;
    hand_over(&mut net, Via::N2);
    is_at(&mut net, 1);
}

#[test] // TS 38.413 §8.3.2, §8.4.1: TNGRELOCoverall
fn a_ue_that_never_arrives() {
    for lost_by_radio in [true, false] {
        let mut net = with_sessions(1);
        net.gnb_mut(0).faults_mut().lose_command = lost_by_radio;
        net.ue.faults_mut().ignore_handovers = 1;
        hand_over(&mut net, Via::N2);
        assert_eq!((handed_over(&net), net.gnb_mut(0).contexts()), (0, 1));
        net.until_gnbs_rest();
        assert_eq!(failed_for(&net), Some(CauseRadioNetwork::TngrelocoverallExpiry));
        assert_eq!(net.gnb_mut(0).contexts(), 0);
        net.take_events();
    }
}

#[test] // TS 38.413 §9.3.1.20, §9.3.1.21, §9.3.1.108: what the core must not read it must not change
fn spoilt_containers_are_violations() {
    let mut net = with_sessions(1);
    net.core.knobs.spoil_containers = true;
    hand_over(&mut net, Via::N2);
    assert!(!net.violations().is_empty());
    assert!(net.violations().iter().all(|v| v.contains("transparent container")), "{:?}", net.violations());
}

#[test] // TS 23.502 §4.9.1.3.3 step 12: a cell outside of the registration area
fn to_another_tracking_area() {
    let mut net = Net::new();
    let mut config = gnb_config(1);
    config.supported_tas[0].tac = Tac::new(2).unwrap();
    net.add_target(config);
    net.core.knobs.keep_connection = true;
    net.command(UeCommand::Register);
    net.command(internet());
    net.take_events();
    net.core.uplink.clear();
    hand_over(&mut net, Via::N2);
    assert!(net.core.uplink.contains(&MessageType::RegistrationRequest));
}

/// The tunnel of the only session at the gNB that the core knows.
fn new_tunnel(net: &Net) -> Teid {
    net.core.mobility.tunnels[0].1
}

fn end_marker(teid: Teid) -> Vec<u8> {
    let header = whimbrel_gtpu::GpduHeader::new(teid, None);
    header.end_marker()[..header.octets_len()].to_vec()
}

#[test] // TS 38.300 §9.2.3.2.3, TS 23.502 §4.9.1.2.2: no packet overtakes another
fn forwarded_packets_first_then_those_of_the_new_path() {
    for via in [Via::Xn, Via::N2] {
        let mut net = with_sessions(1);
        net.hold_gtpu = Some(Vec::new());
        let old = Teid(1);
        net.gtpu_at(0, &gpdu(old, flow(), b"0"));
        hand_over(&mut net, via);
        net.gtpu_at(0, &gpdu(old, flow(), b"1"));
        net.gtpu_at(0, &gpdu(old, flow(), b"2"));
        let new = new_tunnel(&net);
        net.gtpu_at(1, &gpdu(new, flow(), b"4"));
        net.gtpu_at(0, &gpdu(old, flow(), b"3"));
        net.gtpu_at(1, &gpdu(new, flow(), b"5"));
        net.gtpu_at(0, &end_marker(old));
        let got = |net: &mut Net| -> Vec<u8> { net.take_packets().iter().map(|(_, p)| p[0]).collect() };
        assert_eq!(got(&mut net), b"0");
        net.release_gtpu();
        net.gtpu_at(1, &gpdu(new, flow(), b"6"));
        assert_eq!(got(&mut net), b"123456", "{via:?}");
        assert_eq!((net.gnb_mut(0).tunnels(), net.gnb_mut(1).tunnels()), (0, 1));
        net.take_events();
    }
}

#[test] // TS 23.502 §4.9.1.2.2 step 7
fn a_missing_end_marker_is_a_violation_and_holds_nothing_up_for_ever() {
    let mut net = with_sessions(1);
    hand_over(&mut net, Via::Xn);
    let new = new_tunnel(&net);
    net.gtpu_at(1, &gpdu(new, flow(), b"4"));
    assert!(net.take_packets().is_empty());
    net.until_gnbs_rest();
    assert_eq!(net.take_packets().len(), 1);
    assert_eq!(
        net.violations(),
        ["PDU session 1 moved to a new path, and no end marker came over the old one"]
    );
    // The source does not forward for ever.
    assert_eq!(net.gnb_mut(0).tunnels(), 0);
}

#[test] // TS 23.502 §4.9.1.3.3 step 3b
fn indirect_forwarding_goes_by_the_upf() {
    let mut net = with_sessions(1);
    net.gnb.handle(net.now, gnb::Input::Reconfigure(indirect()), &mut whimbrel_ran::Outbox::new());
    net.core.knobs.indirect = true;
    hand_over(&mut net, Via::N2);
    assert_eq!(net.core.mobility.required.as_ref().unwrap().direct_forwarding_path_availability, None);
    net.gtpu_at(0, &gpdu(Teid(1), flow(), b"1"));
    net.gtpu_at(0, &end_marker(Teid(1)));
    let sent = net.take_gtpu();
    assert!(sent.iter().all(|(to, _)| *to == "127.0.0.9:2152".parse().unwrap()));
    let sent: Vec<_> = sent.iter().map(|(_, d)| Gtpu::parse(d).unwrap()).collect();
    assert!(sent.iter().all(|m| m.teid == Teid(0x99)));
    assert_eq!((sent[0].message_type, sent[0].payload), (message_type::G_PDU, &b"1"[..]));
    assert_eq!(sent[1].message_type, message_type::END_MARKER);
}

fn indirect() -> gnb::GnbConfig {
    let mut config = gnb_config(0);
    config.direct_forwarding = false;
    config
}

#[test]
fn nothing_to_hand_over() {
    let mut net = with_sessions(0);
    hand_over(&mut net, Via::Xn);
    assert!(failed_for(&net).is_some());
    assert!(!net.events.iter().any(|e| matches!(e, Event::HandedOver { .. })));
}
