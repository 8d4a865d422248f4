//! Xn handover: TS 23.502 §4.9.1.2.2, TS 38.413 §8.4.4, TS 33.501 §6.7.3.1, §6.9.2.3.2.

use crate::common::by_hand::*;
use crate::common::*;
use whimbrel_control::smf::UpState;
use whimbrel_control::{Event as CoreEvent, Procedure};
use whimbrel_ids::{AmfUeNgapId, Qfi};
use whimbrel_nas::mm::MessageType;
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    Cause, CauseRadioNetwork, PduSessionResourceItem, QosFlowAcceptedItem, SecurityKey,
    UeSecurityCapabilities,
};
use whimbrel_ngap::msg::{
    ErrorIndication, PathSwitchRequest, PathSwitchRequestAcknowledge, PathSwitchRequestFailure,
    UplinkNasTransport,
};
use whimbrel_ngap::transfer::{
    PathSwitchRequestAcknowledgeTransfer, PathSwitchRequestSetupFailedTransfer, PathSwitchRequestTransfer,
    PathSwitchRequestUnsuccessfulTransfer,
};
use whimbrel_pfcp::ie::{FTeid, ReportType};
use whimbrel_pfcp::msg::{ErrorIndicationReport, SessionReportRequest};
use whimbrel_ran::ue::UeCommand;
use whimbrel_ran::{UeId, gnb};
use whimbrel_sim::{Sim, UpfState, ue_config};

fn ask(net: &mut Sim, m: PathSwitchRequest) {
    net.inject(TARGET, &octets(m));
    net.settle(SECOND / 10);
}

fn acknowledge(net: &mut Sim) -> Box<PathSwitchRequestAcknowledge> {
    let heard = net.take_ngap(TARGET);
    match heard.as_slice() {
        [Message::PathSwitchRequestAcknowledge(m), ..] => m.clone().into(),
        other => panic!("{other:?}"),
    }
}

fn failure(net: &mut Sim) -> PathSwitchRequestFailure {
    let heard = net.take_ngap(TARGET);
    match heard.as_slice() {
        [Message::PathSwitchRequestFailure(m)] => m.clone(),
        other => panic!("{other:?}"),
    }
}

fn psis(list: &[PduSessionResourceItem]) -> Vec<u8> {
    list.iter().map(|i| i.pdu_session_id.value()).collect()
}

/// Everything of the UE that a refused request must leave alone.
fn state(net: &Sim) -> String {
    let p = context(net);
    format!(
        "{:?} {:?} {:?} {:?}",
        p.amf.connection,
        p.amf.location.tai,
        p.amf.mobility.target.is_some(),
        p.sessions
    )
}

#[test] // TS 23.502 §4.9.1.2.2, step 5, step 7; TS 38.413 §8.4.4.2: every session moves, the old tunnel hears an end marker
fn all_sessions_are_switched() {
    let (mut net, ue) = two_gnbs(1, 2);
    let before = [an(&net, 1), an(&net, 2)];
    assert_eq!(downlink(&mut net, 1).0, before[0]);
    let m = path_switch_request(&net, &[1, 2]);
    ask(&mut net, m);
    let answer = acknowledge(&mut net);
    assert_eq!((answer.amf_ue_ngap_id, answer.ran_ue_ngap_id), (connection(&net).amf_ue_ngap_id, RAN_ID));
    assert_eq!(psis(&answer.pdu_session_resource_switched_list), [1, 2]);
    assert!(answer.pdu_session_resource_released_list_ps_ack.is_empty());
    assert_eq!(answer.ue_security_capabilities, None, "the target has the right ones");
    for item in &answer.pdu_session_resource_switched_list {
        PathSwitchRequestAcknowledgeTransfer::decode(&item.transfer).expect("a transfer");
    }
    let (to, earlier) = downlink(&mut net, 1);
    assert_eq!(to, at_target(1));
    let ended: Vec<_> = earlier.into_iter().filter(|s| s.1 == END_MARKER).map(|s| Some(s.0)).collect();
    assert_eq!(ended, before, "one end marker into each tunnel that was left");
    assert_eq!([an(&net, 1), an(&net, 2)], [at_target(1), at_target(2)]);
    assert_eq!(connection(&net).ran_ue_ngap_id, RAN_ID);
    let completed =
        |e: &CoreEvent| matches!(e, CoreEvent::Completed { procedure: Procedure::PathSwitch, .. });
    assert!(core_events(&net).any(completed));
    assert!(registered(&net, ue));
}

#[test] // TS 29.281 §5.1, TS 38.413 §8.2.4: the source had released one session, which is set up at the target: its former tunnel gets no end marker
fn a_session_that_the_source_gnb_has_released() {
    let (mut net, _) = two_gnbs(21, 2);
    let before = an(&net, 1).expect("a tunnel");
    net.gnb_input(SOURCE, gnb::Input::LetSessionGo(UeId(0), psi(2)));
    net.settle(SECOND / 10);
    let m = path_switch_request(&net, &[1, 2]);
    ask(&mut net, m);
    assert_eq!(psis(&acknowledge(&mut net).pdu_session_resource_switched_list), [1, 2]);
    assert_eq!(downlink(&mut net, 2), (at_target(2), vec![(before, END_MARKER)]));
}

#[test] // TS 33.501 §6.9.2.1, §6.9.2.3.2: each path switch brings the next NH and its count
fn each_path_switch_brings_a_fresh_next_hop() {
    let (mut net, _) = two_gnbs(2, 1);
    let mut keys: Vec<SecurityKey> = Vec::new();
    for step in 2..12u8 {
        let mut m = path_switch_request(&net, &[1]);
        m.ran_ue_ngap_id = whimbrel_ids::RanUeNgapId(u32::from(step)); // another connection each time
        ask(&mut net, m);
        let context = acknowledge(&mut net).security_context;
        assert_eq!(context.next_hop_chaining_count, step & 7);
        assert!(!keys.contains(&context.next_hop_nh));
        keys.push(context.next_hop_nh);
    }
}

#[test] // TS 23.502 §4.9.1.2.2 step 2: what the target could not take waits; what it may not protect ends; the rest moves
fn sessions_that_the_target_did_not_admit() {
    let (mut net, ue) = two_gnbs(3, 3);
    let mut m = path_switch_request(&net, &[1]);
    let failed = |n, cause: CauseRadioNetwork| {
        let transfer = PathSwitchRequestSetupFailedTransfer::new(cause.into()).to_vec();
        PduSessionResourceItem::new(psi(n), transfer)
    };
    m.pdu_session_resource_failed_to_setup_list_ps_req = vec![
        failed(2, CauseRadioNetwork::RadioResourcesNotAvailable),
        failed(3, CauseRadioNetwork::UpIntegrityProtectionNotPossible),
    ];
    ask(&mut net, m);
    assert_eq!(psis(&acknowledge(&mut net).pdu_session_resource_switched_list), [1]);
    let up = |n| context(&net).sessions.get(&psi(n)).map(|s| s.up);
    assert_eq!((up(1), up(2)), (Some(UpState::Active), Some(UpState::Inactive)));
    assert_eq!(downlink(&mut net, 2).0, None, "its packets wait");
    net.advance(SECOND * 90);
    assert!(!context(&net).sessions.contains_key(&psi(3)), "released, though the UE was not reached");
    assert_eq!(net.upf_sessions(), 2);
    assert!(registered(&net, ue));
}

#[test] // TS 38.413 §8.4.4.2: a session of which the target says nothing has no user plane any more
fn a_session_that_is_not_named_waits() {
    let (mut net, _) = two_gnbs(4, 2);
    let m = path_switch_request(&net, &[2]);
    ask(&mut net, m);
    acknowledge(&mut net);
    assert_eq!(context(&net).sessions[&psi(1)].up, UpState::Inactive);
    assert_eq!(an(&net, 2), at_target(2));
}

#[test] // TS 38.413 §8.4.4.2: what cannot be switched is in the released list, with its cause
fn unknown_and_unreadable_sessions_are_released_at_the_target() {
    let (mut net, _) = two_gnbs(5, 2);
    let mut m = path_switch_request(&net, &[1, 9]);
    m.pdu_session_resource_to_be_switched_dl_list.push(PduSessionResourceItem::new(psi(2), vec![0xff; 3]));
    ask(&mut net, m);
    let answer = acknowledge(&mut net);
    assert_eq!(psis(&answer.pdu_session_resource_switched_list), [1]);
    assert_eq!(psis(&answer.pdu_session_resource_released_list_ps_ack), [9, 2]);
    let transfer = &answer.pdu_session_resource_released_list_ps_ack[0].transfer;
    let cause = PathSwitchRequestUnsuccessfulTransfer::decode(transfer).expect("a transfer").cause;
    assert_eq!(cause, CauseRadioNetwork::UnknownPduSessionId.into());
    assert_eq!(context(&net).sessions[&psi(2)].up, UpState::Inactive, "it is the UE's still");
}

#[test] // TS 38.413 §8.4.4.2: a session without its default flow is none
fn a_session_needs_its_default_flow() {
    let (mut net, _) = two_gnbs(6, 2);
    let mut m = path_switch_request(&net, &[1]);
    let flow = QosFlowAcceptedItem::new(Qfi::new(44).expect("a QFI"));
    let transfer = PathSwitchRequestTransfer::new(tunnel(2), vec![flow]).to_vec();
    m.pdu_session_resource_to_be_switched_dl_list.push(PduSessionResourceItem::new(psi(2), transfer));
    ask(&mut net, m);
    assert_eq!(psis(&acknowledge(&mut net).pdu_session_resource_released_list_ps_ack), [2]);
}

#[test] // TS 23.502 §4.9.1.2.2 none; TS 38.413 §8.4.4.3: no session can be switched: failure, and the state stands
fn no_session_can_be_switched() {
    let (mut net, _) = two_gnbs(7, 1);
    let before = state(&net);
    let m = path_switch_request(&net, &[8, 9]);
    ask(&mut net, m);
    assert_eq!(psis(&failure(&mut net).pdu_session_resource_released_list_ps_fail), [8, 9]);
    assert_eq!(state(&net), before);
    assert_ne!(downlink(&mut net, 1).0, at_target(1));
}

#[test] // TS 38.413 §8.4.4.4: one session named twice: failure, and the state stands
fn a_session_named_twice() {
    let (mut net, _) = two_gnbs(8, 2);
    let before = state(&net);
    let m = path_switch_request(&net, &[1, 2, 1]);
    ask(&mut net, m);
    assert_eq!(psis(&failure(&mut net).pdu_session_resource_released_list_ps_fail), [1, 2]);
    assert_eq!(state(&net), before);
    let m = path_switch_request(&net, &[1, 2]);
    ask(&mut net, m);
    assert_eq!(psis(&acknowledge(&mut net).pdu_session_resource_switched_list), [1, 2]);
}

#[test] // TS 38.413 §8.4.4.4, §10.6: an unknown UE, and one that is not connected
fn a_ue_that_is_unknown_or_idle() {
    let (mut net, ue) = two_gnbs(9, 1);
    for id in [123_456, connection(&net).amf_ue_ngap_id.value() + (1 << 24)] {
        let mut m = path_switch_request(&net, &[1]);
        m.source_amf_ue_ngap_id = AmfUeNgapId::new(id).expect("40 bits");
        let before = state(&net);
        ask(&mut net, m);
        let heard = net.take_ngap(TARGET);
        let [Message::ErrorIndication(e)] = heard.as_slice() else { panic!("{heard:?}") };
        assert_eq!(e.cause, Some(CauseRadioNetwork::UnknownLocalUeNgapId.into()));
        assert_eq!(state(&net), before);
    }
    let m = path_switch_request(&net, &[1]);
    go_idle(&mut net, ue);
    ask(&mut net, m);
    assert!(matches!(net.take_ngap(TARGET).as_slice(), [Message::ErrorIndication(_)]));
    assert!(context(&net).amf.connection.is_none());
}

#[test] // TS 38.413 §8.7.1: a gNB that did not set up gets no UE
fn an_association_without_ng_setup_gets_no_ue() {
    let (mut net, _) = two_gnbs(10, 1);
    let mut config = gnb_config(3);
    config.supported_tas[0].tac = whimbrel_ids::Tac::new(77).expect("24 bits");
    let other = net.add_gnb(config);
    net.settle(SECOND / 10);
    net.take_over(other);
    let before = state(&net);
    let m = path_switch_request(&net, &[1]);
    net.inject(other, &octets(m));
    net.settle(SECOND / 10);
    assert!(matches!(net.take_ngap(other).as_slice(), [Message::ErrorIndication(_)]));
    assert_eq!(state(&net), before);
}

#[test] // TS 33.501 §6.7.3.1: changed, empty or absent capabilities are answered with the UE's own, and reported
fn security_capabilities_that_differ() {
    let none = UeSecurityCapabilities::new(0, 0, 0, 0);
    for reported in [Some(none), Some(UeSecurityCapabilities::new(0xffff, 0xffff, 0, 0)), None] {
        let (mut net, _) = two_gnbs(11, 1);
        let mut m = path_switch_request(&net, &[1]);
        m.ue_security_capabilities = reported;
        ask(&mut net, m);
        assert_eq!(acknowledge(&mut net).ue_security_capabilities, Some(capabilities(&net)));
        assert!(core_events(&net).any(|e| matches!(e, CoreEvent::SecurityCapabilitiesDiffer { .. })));
    }
}

#[test] // TS 38.413 §8.4.4.3: a tracking area that is not served
fn a_tracking_area_that_is_not_served() {
    let (mut net, _) = two_gnbs(12, 1);
    let before = state(&net);
    let mut m = path_switch_request(&net, &[1]);
    m.user_location_information = Some(location(55));
    ask(&mut net, m);
    failure(&mut net);
    assert_eq!(state(&net), before);
}

#[test] // TS 38.413 §8.4.4.2, TS 24.501 §5.5.1.3.2: what runs with the UE goes on at the target
fn a_registration_goes_on_at_the_target() {
    let (mut net, ue) = two_gnbs(13, 1);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::RegistrationAccept, 99));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND / 10);
    let m = path_switch_request(&net, &[1]);
    ask(&mut net, m);
    acknowledge(&mut net);
    assert!(!context(&net).is_idle(), "REGISTRATION ACCEPT awaits its completion");
    net.advance(SECOND * 7);
    let again = net.take_ngap(TARGET);
    assert!(matches!(again.as_slice(), [Message::DownlinkNasTransport(_)]), "{again:?}");
}

#[test] // TS 29.244 §6.4: the UPF is silent: the target is refused, and the UE stays where it was
fn a_silent_upf_fails_the_path_switch() {
    let (mut net, _) = two_gnbs(14, 1);
    net.set_upf(UpfState::Silent);
    let before = connection(&net).clone();
    let m = path_switch_request(&net, &[1]);
    ask(&mut net, m);
    assert!(net.take_ngap(TARGET).is_empty());
    net.settle(SECOND * 6);
    failure(&mut net);
    assert_eq!(*connection(&net), before);
    assert!(context(&net).amf.mobility.target.is_none());
}

/// A path switch that waits for a silent UPF.
fn waiting(seed: u64) -> (Sim, whimbrel_sim::UeIndex) {
    let (mut net, ue) = two_gnbs(seed, 1);
    net.set_upf(UpfState::Silent);
    let m = path_switch_request(&net, &[1]);
    ask(&mut net, m);
    assert!(context(&net).amf.mobility.target.is_some());
    (net, ue)
}

#[test] // TS 38.413 §8.4.4.4: the target's association is lost before the answer: the UE stays where it was
fn the_target_is_lost_on_the_way() {
    let (mut net, _) = waiting(15);
    let before = connection(&net).clone();
    net.disconnect(TARGET);
    assert!(context(&net).amf.mobility.target.is_none());
    assert_eq!(*connection(&net), before);
    net.set_upf(UpfState::Answering);
    net.settle(SECOND * 10);
    assert!(context(&net).is_idle());
}

#[test] // TS 23.502 §4.9.1.2.2: the source's association is lost on the way: the UE has left it already
fn the_source_is_lost_on_the_way() {
    let (mut net, _) = waiting(16);
    net.disconnect(SOURCE);
    assert!(context(&net).is_connected());
    net.set_upf(UpfState::Answering);
    net.settle(SECOND * 10);
    acknowledge(&mut net);
    assert_eq!(connection(&net).ran_ue_ngap_id, RAN_ID);
    // And where the switch fails, there is no gNB left.
    let (mut net, _) = waiting(17);
    net.disconnect(SOURCE);
    net.settle(SECOND * 6);
    failure(&mut net);
    assert!(!context(&net).is_connected());
    assert!(context(&net).amf.implicit_deregistration_at.is_some());
}

#[test] // TS 38.413 §8.4.4.4: the same request again is worked on once; another gNB's takes its place
fn a_request_that_is_repeated_and_one_that_overtakes() {
    let (mut net, _) = waiting(18);
    let m = path_switch_request(&net, &[1]);
    ask(&mut net, m);
    let third = net.add_gnb(gnb_config(3));
    net.settle(SECOND / 10);
    net.take_over(third);
    let m = path_switch_request(&net, &[1]);
    net.inject(third, &octets(m));
    net.settle(SECOND / 10);
    failure(&mut net);
    net.set_upf(UpfState::Answering);
    net.settle(SECOND * 10);
    let heard = net.take_ngap(third);
    assert!(matches!(heard.as_slice(), [Message::PathSwitchRequestAcknowledge(_)]), "{heard:?}");
    assert!(net.take_ngap(TARGET).is_empty());
}

#[test] // TS 23.502 §4.2.6: a UE whose release is under way, and one that is deregistered meanwhile
fn a_connection_that_ends() {
    let (mut net, _) = two_gnbs(19, 1);
    let m = path_switch_request(&net, &[1]);
    net.take_over(SOURCE); // it does not complete the release
    let c = connection(&net).clone();
    let cause = Cause::RadioNetwork(CauseRadioNetwork::UserInactivity);
    let release = whimbrel_ngap::msg::UeContextReleaseRequest::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause);
    net.inject(SOURCE, &octets(release));
    ask(&mut net, m);
    failure(&mut net);
    net.settle(SECOND * 10);
    assert!(!context(&net).is_connected() && context(&net).amf.registered);
    let (mut net, _) = waiting(20);
    let id = context(&net).id;
    net.order(id, whimbrel_control::Command::Superseded);
    net.settle(SECOND / 10);
    failure(&mut net);
    assert_eq!(net.cta().contexts().count(), 0);
}

#[test] // TS 38.413 §10.6: the source's messages are ignored; the target's are not
fn names_after_the_path_switch() {
    let (mut net, _) = two_gnbs(21, 1);
    let source = connection(&net).clone();
    let m = path_switch_request(&net, &[1]);
    ask(&mut net, m);
    acknowledge(&mut net);
    net.take_over(SOURCE);
    let late = UplinkNasTransport::new(source.amf_ue_ngap_id, source.ran_ue_ngap_id, vec![0x7e, 0, 0x43]);
    net.inject(SOURCE, &octets(late.clone()));
    net.advance(SECOND * 3);
    assert_eq!(net.take_ngap(SOURCE), [], "the target has yet to release it");
    net.inject(SOURCE, &octets(late));
    net.settle(SECOND / 10);
    assert!(matches!(net.take_ngap(SOURCE).as_slice(), [Message::ErrorIndication(_)]));
    assert!(context(&net).is_connected());
    let mut e = ErrorIndication::new();
    (e.amf_ue_ngap_id, e.ran_ue_ngap_id) = (Some(source.amf_ue_ngap_id), Some(RAN_ID));
    e.cause = Some(CauseRadioNetwork::UnknownLocalUeNgapId.into());
    net.inject(TARGET, &octets(e));
    assert!(!context(&net).is_connected(), "the target releases it");
}

#[test] // TS 38.413 §8.4.4.2: the UE is the target's from the acknowledgement on: it goes with the target's association
fn the_target_is_lost_right_after_the_path_switch() {
    let (mut net, ue) = two_gnbs(22, 1);
    let m = path_switch_request(&net, &[1]);
    ask(&mut net, m);
    acknowledge(&mut net);
    net.disconnect(TARGET);
    assert!(!context(&net).is_connected());
    assert!(registered(&net, ue));
    assert_eq!(context(&net).sessions[&psi(1)].up, UpState::Inactive);
}

#[test] // TS 23.527 §5.3: the source's tunnel, of which packets were still on their way, belongs to no session
fn an_error_indication_of_the_former_tunnel() {
    let (mut net, _) = two_gnbs(23, 1);
    let former = an(&net, 1).expect("a tunnel");
    let seid = context(&net).sessions[&psi(1)].cp_seid;
    let m = path_switch_request(&net, &[1]);
    ask(&mut net, m);
    acknowledge(&mut net);
    for (n, (address, teid), up) in
        [(1, former, UpState::Active), (2, at_target(1).expect("a tunnel"), UpState::Inactive)]
    {
        let std::net::IpAddr::V4(v4) = address else { panic!("IPv4") };
        let mut report = SessionReportRequest::new(ReportType::ERIR);
        let f_teid = FTeid::Given { teid, ipv4: Some(v4), ipv6: None };
        report.error_indication_report = Some(ErrorIndicationReport { remote_f_teids: vec![f_teid] });
        net.inject_pfcp(&whimbrel_pfcp::Message::from(report).to_octets(Some(seid), 70 + n));
        assert_eq!(context(&net).sessions[&psi(1)].up, up);
    }
}

#[test] // TS 38.413 §8.4.4: a UE of one gNB is not touched by what another gNB's UE does
fn another_ue_is_not_touched() {
    let (mut net, _) = two_gnbs(24, 1);
    let other = net.add_ue(SOURCE, ue_config(2));
    net.command(other, UeCommand::Register);
    net.settle(SECOND);
    let supi = net.ue_ref(other).config().supi;
    let look = |net: &Sim| {
        let p = net.cta().contexts().find(|p| p.amf.supi == Some(supi)).expect("registered");
        format!("{p:?}")
    };
    let before = look(&net);
    for sessions in [&[1][..], &[1, 1], &[9]] {
        let m = path_switch_request(&net, sessions);
        ask(&mut net, m);
    }
    assert_eq!(look(&net), before);
}

#[test] // DESIGN: a path switch replays to the same octets from every point where the UE was idle
fn a_path_switch_replays() {
    let (mut net, _) = two_gnbs(25, 2);
    for sessions in [&[1, 2][..], &[2], &[1, 1], &[7]] {
        let m = path_switch_request(&net, sessions);
        ask(&mut net, m);
    }
    let config = std::sync::Arc::new(whimbrel_sim::default_config());
    let id = context(&net).id;
    assert!(net.recorder().replay(id, &config) > 20);
}
