//! Network triggered service request: TS 23.502 §4.2.3.3, TS 24.501 §5.6.2, TS 33.501 §6.12.3.

use std::time::Duration;

use crate::common::by_hand::{connection, octets};
use crate::common::*;
use whimbrel_control::smf::UpState;
use whimbrel_ids::{GlobalGnbId, NrCellId, PlmnId};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    AmfPagingTarget, CauseRadioNetwork, GlobalRanNodeId, InfoOnRecommendedCellsAndRanNodesForPaging,
    NextPagingAreaScope, NgranCgi, NrCgi, PagingPriority, RecommendedCellItem, UeRadioCapabilityForPaging,
};
use whimbrel_ngap::msg::{
    Paging, UeContextReleaseComplete, UeContextReleaseRequest, UeRadioCapabilityInfoIndication,
};
use whimbrel_pfcp::Frame;
use whimbrel_pfcp::ie::{Cause, PdrId, ReportType};
use whimbrel_pfcp::msg::{DownlinkDataReport, SessionModificationResponse, SessionReportRequest};
use whimbrel_ran::ue::{Event, SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, UpfState};

/// A registered UE with one session, idle.
fn idle_with_session(seed: u64) -> (Sim, UeIndex) {
    let (mut net, ue) = one_ue(seed);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(
        ue,
        UeCommand::EstablishSession(SessionRequest {
            dnn: None,
            s_nssai: None,
            pdu_session_type: PduSessionType::Ipv4,
        }),
    );
    net.settle(SECOND);
    go_idle(&mut net, ue);
    assert_eq!(up_state(&net), Some(UpState::Inactive));
    (net, ue)
}

fn up_state(net: &Sim) -> Option<UpState> {
    net.cta().contexts().next().and_then(|p| p.sessions.values().next().map(|s| s.up))
}

/// The UPF reports a buffered downlink packet.
fn downlink_data(net: &mut Sim, sequence: u32) {
    let session = net.cta().contexts().next().and_then(|p| p.sessions.values().next());
    let seid = session.expect("a session").cp_seid;
    let mut m = SessionReportRequest::new(ReportType::DLDR);
    m.downlink_data_report = Some(DownlinkDataReport {
        pdr_ids: vec![PdrId(2)],
        downlink_data_service_information: Vec::new(),
        dl_data_packets_size: None,
        data_status: None,
    });
    let octets = whimbrel_pfcp::Message::from(m).to_octets(Some(seid), sequence);
    net.inject_pfcp(&octets);
}

#[test] // TS 23.502 §4.2.3.3; TS 24.501 §5.6.2.2.1, §5.4.4.2, §5.4.4.4; TS 38.413 §8.5.1.2; TS 33.512 §4.2.2.5.1; TS 33.501 §6.12.3; TS 29.244 §6.3.5.3: a downlink packet brings an idle UE back, and it gets a new 5G-GUTI
fn downlink_data_pages_an_idle_ue() {
    let (mut net, ue) = idle_with_session(1);
    let guti = net.ue_ref(ue).guti();
    downlink_data(&mut net, 77);
    net.settle(SECOND);
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Paged)));
    assert_eq!(
        up_state(&net),
        Some(UpState::Active),
        "its session carries packets, though it did not name it"
    );
    assert!(
        net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::ConfigurationUpdated { new_guti: true }))
    );
    assert_ne!(net.ue_ref(ue).guti(), guti);
    no_violations(&net);
}

#[test] // TS 23.502 §4.2.3.3 step 2a: a packet that comes before the UPF is led to the gNB leaves with that; the gNB is asked once
fn downlink_data_while_the_user_plane_comes_up() {
    let (mut net, ue) = idle_with_session(1);
    net.set_upf(UpfState::ByHand);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND / 10);
    let requests = net.take_pfcp();
    let [led] = requests.as_slice() else { panic!("{} requests", requests.len()) };
    downlink_data(&mut net, 77);
    net.settle(SECOND / 10);
    let sequence = Frame::parse(led).expect("a request of ours").header.sequence;
    let ours = net.cta().contexts().next().and_then(|p| p.sessions.values().next().map(|s| s.cp_seid));
    let accepted = SessionModificationResponse::new(Cause::RequestAccepted);
    net.inject_pfcp(&whimbrel_pfcp::Message::from(accepted).to_octets(ours, sequence));
    net.settle(SECOND / 10);
    assert_eq!(up_state(&net), Some(UpState::Active));
    no_violations(&net);
}

/// The UE of [`idle_with_session`], with two more gNBs in its area, under this policy of where it is paged first.
fn among_three_gnbs(seed: u64, near: Duration) -> (Sim, UeIndex) {
    let mut config = whimbrel_sim::default_config();
    config.amf.access.paging_near = near;
    let mut net = Sim::builder(seed).config(config).build();
    for n in 1..=3 {
        net.add_gnb(gnb_config(n));
    }
    let ue = net.add_ue(GnbIndex(0), whimbrel_sim::ue_config(1));
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let request = SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
    net.command(ue, UeCommand::EstablishSession(request));
    net.settle(SECOND);
    go_idle(&mut net, ue);
    (net, ue)
}

const MINUTE: Duration = Duration::from_secs(60);

#[test] // TS 23.501 §5.4.3.2; DESIGN §4 rule 11: one output, fanned out to the gNBs of the registration area, where the operator wants it so
fn paging_reaches_every_gnb_of_the_area() {
    let (mut net, _) = among_three_gnbs(3, Duration::ZERO);
    net.tap();
    downlink_data(&mut net, 79);
    assert_eq!(pagings(&mut net), 3);
    net.settle(SECOND);
    assert_eq!(up_state(&net), Some(UpState::Active));
    no_violations(&net);
}

#[test] // TS 23.501 §5.4.3.2; TS 23.502 §4.2.3.3 step 4b; TS 38.413 §8.5.1.2: first where it was seen, then, if it does not answer, in the whole registration area
fn a_ue_is_paged_first_where_it_was_seen() {
    let (mut net, ue) = among_three_gnbs(13, MINUTE);
    net.tap();
    downlink_data(&mut net, 90);
    let messages = net.tapped();
    let [Message::Paging(first)] = messages.as_slice() else { panic!("{messages:?}") };
    let attempts =
        first.assistance_data_for_paging.as_ref().and_then(|a| a.paging_attempt_information.clone());
    assert_eq!(attempts.and_then(|a| a.next_paging_area_scope), Some(NextPagingAreaScope::Changed));
    net.settle(SECOND);
    assert_eq!(up_state(&net), Some(UpState::Active), "it is still there");
    go_idle(&mut net, ue);
    net.move_ue(ue, GnbIndex(2));
    net.tapped();
    downlink_data(&mut net, 91);
    net.settle(SECOND);
    assert_eq!(
        (pagings(&mut net), up_state(&net)),
        (1, Some(UpState::Inactive)),
        "it has moved without an update"
    );
    net.settle(SECOND * 3);
    assert_eq!((pagings(&mut net), up_state(&net)), (3, Some(UpState::Active)));
    no_violations(&net);
}

#[test] // TS 23.501 §5.4.3.2, §5.4.6.2: a gNB that its last one recommends is asked, too; what was seen too long ago says nothing; nor does a gNB that is gone
fn where_a_ue_is_likely_to_be() {
    let (mut net, ue) = among_three_gnbs(14, MINUTE);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    net.take_over(GnbIndex(0));
    let other = GlobalGnbId::new(PlmnId::TEST, 2, 28).expect("28 bits");
    let node = AmfPagingTarget::GlobalRanNodeId(GlobalRanNodeId::GlobalGnbId(other));
    let cell = NrCgi::new(PlmnId::TEST, NrCellId::new(0x1_0001).expect("36 bits"));
    release_recommending(&mut net, vec![RecommendedCellItem::new(NgranCgi::NrCgi(cell))], node);
    net.tap();
    downlink_data(&mut net, 92);
    assert_eq!(pagings(&mut net), 2, "the gNB of its last cell, and the one that is recommended");
    net.advance(Duration::from_secs(90));
    net.tapped();
    downlink_data(&mut net, 93);
    assert_eq!(pagings(&mut net), 3, "it was seen too long ago");
    let (mut net, _) = among_three_gnbs(15, MINUTE);
    net.disconnect(GnbIndex(0));
    net.tap();
    downlink_data(&mut net, 94);
    assert_eq!(pagings(&mut net), 2, "no gNB is near");
}

#[test] // TS 29.244 §6.4: a report that is repeated is answered from memory and pages no UE twice
fn a_repeated_report_pages_once() {
    let (mut net, _) = idle_with_session(4);
    net.tap();
    downlink_data(&mut net, 80);
    downlink_data(&mut net, 80);
    assert_eq!(net.tapped().iter().filter(|m| matches!(m, Message::Paging(_))).count(), 1);
}

#[test] // TS 24.501 §5.6.2.3; TS 23.502 §4.2.3.3 step 4, step 5: T3513 expires, the UE is given up, its registration stands, a later packet pages again
fn paging_ends() {
    let (mut net, ue) = idle_with_session(5);
    net.tap();
    net.leave_coverage(ue);
    downlink_data(&mut net, 81);
    net.advance(Duration::from_secs(30));
    assert_eq!(net.tapped().iter().filter(|m| matches!(m, Message::Paging(_))).count(), 4);
    assert!(net.cta().contexts().next().is_some_and(|p| p.amf.registered && p.is_idle()));
    downlink_data(&mut net, 82);
    assert!(net.tapped().iter().any(|m| matches!(m, Message::Paging(_))), "a later packet pages again");
}

#[test] // TS 24.501 §5.4.4.6 b: T3555
fn configuration_update_command_lost_once() {
    let (mut net, ue) = idle_with_session(6);
    net.ue_mut(ue).faults_mut().ignore.push((whimbrel_nas::mm::MessageType::ConfigurationUpdateCommand, 1));
    downlink_data(&mut net, 83);
    net.settle(Duration::from_secs(10));
    let again = core_events(&net)
        .filter(|e| matches!(e, whimbrel_control::Event::Repeated("CONFIGURATION UPDATE COMMAND")))
        .count();
    assert_eq!(again, 1);
    assert!(
        net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::ConfigurationUpdated { new_guti: true }))
    );
}

#[test] // TS 23.502 §4.2.3.3 step 4b, TS 24.501 §5.3.4: a UE is paged in its own registration area, wherever that is
fn paging_goes_to_the_registration_area() {
    let mut config = whimbrel_sim::default_config();
    config.amf.tacs = (1..=40).map(|n| whimbrel_ids::Tac::new(n).expect("24 bits")).collect();
    let mut net = Sim::builder(7).config(config).build();
    let mut cell = gnb_config(1);
    cell.supported_tas = vec![area(33)];
    let gnb = net.add_gnb(cell);
    let ue = net.add_ue(gnb, whimbrel_sim::ue_config(1));
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let request = SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
    net.command(ue, UeCommand::EstablishSession(request));
    net.settle(SECOND);
    go_idle(&mut net, ue);
    downlink_data(&mut net, 84);
    net.settle(SECOND);
    assert_eq!(up_state(&net), Some(UpState::Active));
}

/// The operator deregisters the UE, which is idle.
fn deregister(net: &mut Sim) {
    let id = net.cta().contexts().next().expect("it is registered").id;
    net.order(id, whimbrel_control::Command::Deregister);
}

fn pagings(net: &mut Sim) -> usize {
    net.tapped().iter().filter(|m| matches!(m, Message::Paging(_))).count()
}

#[test] // TS 23.502 §4.2.2.3.3 idle, §4.2.3.3; TS 24.501 §5.5.2.3.1, §5.5.2.3.2: an idle UE is paged, and gets DEREGISTRATION REQUEST
fn an_idle_ue_is_paged_to_be_deregistered() {
    let (mut net, ue) = idle_with_session(8);
    net.tap();
    deregister(&mut net);
    assert_eq!(pagings(&mut net), 1);
    assert!(
        net.cta().contexts().next().is_some_and(|p| p.amf.registered),
        "it stays until the message has been delivered"
    );
    deregister(&mut net);
    assert_eq!(pagings(&mut net), 0, "it is paged already");
    net.settle(SECOND);
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Deregistered { .. })));
    assert_eq!((net.cta().contexts().count(), net.upf_sessions()), (0, 0));
    no_violations(&net);
}

#[test] // TS 23.502 §4.2.3.3 step 5, TS 24.501 §5.6.2.3 b: it does not answer to paging: its context ends all the same
fn a_ue_that_cannot_be_paged_is_deregistered() {
    let (mut net, ue) = idle_with_session(9);
    net.tap();
    net.leave_coverage(ue);
    deregister(&mut net);
    net.advance(Duration::from_secs(30));
    assert_eq!(pagings(&mut net), 4);
    assert_eq!((net.cta().contexts().count(), net.upf_sessions()), (0, 0));
}

#[test] // TS 24.501 §5.5.2.3.5 e: it comes with a mobility update instead: it gets its accept, and DEREGISTRATION REQUEST
fn a_ue_paged_to_be_deregistered_comes_with_something_else() {
    let (mut net, ue) = idle_with_session(10);
    deregister(&mut net);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Deregistered { .. })));
    assert_eq!((net.cta().contexts().count(), net.upf_sessions()), (0, 0));
    no_violations(&net);
}

#[test] // TS 24.501 §5.3.7: after the mobile reachable timer the UE is not paged
fn a_ue_that_is_overdue_is_not_paged() {
    let (mut net, ue) = idle_with_session(11);
    net.leave_coverage(ue);
    let timers = whimbrel_sim::default_config().timers;
    net.advance(timers.t3512 + timers.implicit_deregistration + SECOND);
    net.tap();
    downlink_data(&mut net, 85);
    assert_eq!(pagings(&mut net), 0);
    deregister(&mut net);
    net.settle(SECOND);
    assert_eq!((pagings(&mut net), net.cta().contexts().count()), (0, 0));
}

/// The pagings that the UE's gNB has heard.
fn heard(net: &mut Sim) -> Vec<Paging> {
    let paging = |m| if let Message::Paging(m) = m { Some(m) } else { None };
    net.take_ngap(GnbIndex(0)).into_iter().filter_map(paging).collect()
}

/// Its gNB lets a UE go, and recommends a cell to page it in.
fn release_by_hand(net: &mut Sim, recommended: Vec<RecommendedCellItem>) {
    let tai = net.cta().contexts().next().and_then(|p| p.amf.location.tai).expect("an area");
    release_recommending(net, recommended, AmfPagingTarget::Tai(tai));
}

fn release_recommending(net: &mut Sim, recommended: Vec<RecommendedCellItem>, node: AmfPagingTarget) {
    let gnb = GnbIndex(0);
    let c = connection(net).clone();
    let request = UeContextReleaseRequest::new(
        c.amf_ue_ngap_id,
        c.ran_ue_ngap_id,
        CauseRadioNetwork::UserInactivity.into(),
    );
    net.inject(gnb, &octets(request));
    let mut complete = UeContextReleaseComplete::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id);
    if !recommended.is_empty() {
        complete.info_on_recommended_cells_and_ran_nodes_for_paging =
            Some(InfoOnRecommendedCellsAndRanNodesForPaging::new(recommended, vec![node]));
    }
    net.inject(gnb, &octets(complete));
    net.settle(SECOND);
    assert_eq!(up_state(net), Some(UpState::Inactive));
}

#[test] // TS 38.413 §8.5.1.2, §8.3.3.2, §8.14.1.2; TS 23.501 §5.4.4.2, §5.4.6.2; TS 23.502 §4.2.3.3 step 3a: what gNBs reported of the UE comes back when it is paged, with the priority of what waits and the number of the attempt
fn paging_is_assisted() {
    let (mut net, ue) = one_ue(12);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let request = SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
    net.command(ue, UeCommand::EstablishSession(request));
    net.settle(SECOND);
    net.take_over(GnbIndex(0));
    let c = connection(&net).clone();
    let mut capability = UeRadioCapabilityForPaging::new();
    capability.ue_radio_capability_for_paging_of_nr = Some(vec![4, 0, 78]);
    for (of_paging, of_ue) in [(capability.clone(), 1), (too_long(), 2)] {
        let mut reported = UeRadioCapabilityInfoIndication::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id);
        reported.ue_radio_capability = vec![of_ue];
        reported.ue_radio_capability_for_paging = Some(of_paging);
        net.inject(GnbIndex(0), &octets(reported));
    }
    let cell = NrCgi::new(PlmnId::TEST, NrCellId::new(0x1234).expect("36 bits"));
    let mut recommended = RecommendedCellItem::new(NgranCgi::NrCgi(cell));
    recommended.time_stayed_in_cell = Some(600);
    release_by_hand(&mut net, vec![recommended.clone()]);
    net.take_ngap(GnbIndex(0));
    downlink_data(&mut net, 86);
    net.advance(Duration::from_secs(30));
    let pagings = heard(&mut net);
    assert_eq!(pagings.len(), 4);
    for (m, attempt) in pagings.into_iter().zip(1..) {
        assert_eq!(m.paging_priority, Some(PagingPriority::Priolevel8), "of the session's ARP");
        assert_eq!(m.ue_radio_capability_for_paging.as_ref(), Some(&capability));
        let assistance = m.assistance_data_for_paging.expect("assistance data");
        assert_eq!(assistance.assistance_data_for_recommended_cells, vec![recommended.clone()]);
        let attempts = assistance.paging_attempt_information.expect("the attempt");
        assert_eq!(
            (attempts.paging_attempt_count, attempts.intended_number_of_paging_attempts),
            (attempt, 4)
        );
        assert_eq!(attempts.next_paging_area_scope.is_some(), attempt < 4);
    }
}

/// A capability for paging that no UE has.
fn too_long() -> UeRadioCapabilityForPaging {
    let mut capability = UeRadioCapabilityForPaging::new();
    capability.ue_radio_capability_for_paging_of_nr = Some(vec![0; 513]);
    capability
}
