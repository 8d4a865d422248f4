//! A gNB and a UE's sessions and context, in order and out of it: TS 38.413 §8.2, §8.3, and messages that the gNB starts.

use whimbrel_ids::{PduSessionId, Qfi, Teid, Tmsi};
use whimbrel_nas::ie::{MobileIdentity, NgKsi, PayloadContainer, PayloadContainerType, ServiceType};
use whimbrel_nas::mm::{ServiceRequest, UlNasTransport};
use whimbrel_nas::sm::{self, Pti};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::*;
use whimbrel_ngap::msg::*;
use whimbrel_ngap::transfer::*;

use crate::envelope::{Batch, Command, Payload};
use crate::event::{Event, MessageDropReason};
use crate::state::UpState;
use crate::ue_harness::{CIPHERED, INTEGRITY, RAN_ID, UeHarness, config, n2, psi};

/// An idle UE with so many sessions, whose packets wait.
fn idle(sessions: u8) -> UeHarness {
    let mut harness = UeHarness::registered();
    let mut ue = Box::new(harness.context().unwrap().clone());
    for n in 2..=sessions {
        let mut another = ue.sessions[&psi(1)].clone();
        another.psi = psi(n);
        another.up_seid = Some(whimbrel_ids::Seid(4 + u64::from(n)));
        ue.sessions.insert(psi(n), another);
    }
    harness.shard.restore(ue);
    let association = harness.association();
    let batch = harness.input(Payload::Command(Command::ConnectionLost(association)));
    harness.settle(batch);
    assert!(harness.context().unwrap().is_idle() && active(&harness).is_empty());
    harness
}

fn active(harness: &UeHarness) -> Vec<u8> {
    let sessions = harness.context().unwrap().sessions.iter();
    sessions.filter(|(_, s)| s.up == UpState::Active).map(|(psi, _)| psi.value()).collect()
}

/// The UE comes with packets for these sessions: what its gNB is asked.
fn serve(harness: &mut UeHarness, sessions: &[u8]) -> (Batch, Box<InitialContextSetupRequest>) {
    let s_tmsi = whimbrel_ids::STmsi { set: 1, pointer: 0, tmsi: Tmsi(0x1234) };
    let ksi = NgKsi::native(0).unwrap();
    let mut request = ServiceRequest::new(ksi, ServiceType::Data, MobileIdentity::STmsi(s_tmsi));
    request.uplink_data_status = Some(sessions.iter().map(|n| psi(*n)).collect());
    let pdu = harness.protect(INTEGRITY, request);
    let batch = harness.first(pdu, Some(Tmsi(0x1234)));
    let asked = n2(&batch).into_iter().find_map(|m| match m {
        Message::InitialContextSetupRequest(m) => Some(Box::new(m)),
        _ => None,
    });
    let asked = asked.expect("its sessions need a context");
    let named: Vec<PduSessionId> =
        asked.pdu_session_resource_setup_list_cxt_req.iter().map(|i| i.pdu_session_id).collect();
    assert_eq!(named, sessions.iter().map(|n| psi(*n)).collect::<Vec<_>>());
    (batch, asked)
}

fn done(n: u8) -> PduSessionResourceItem {
    let end = GtpTunnel::new(TransportLayerAddress::V4([127, 0, 1, 1].into()), Teid(0x70 + u32::from(n)));
    let flow = AssociatedQosFlowItem::new(Qfi::new(1).unwrap());
    let tunnel = QosFlowPerTnlInformation::new(UpTransportLayerInformation::GtpTunnel(end), vec![flow]);
    PduSessionResourceItem::new(psi(n), PduSessionResourceSetupResponseTransfer::new(tunnel).to_vec())
}

fn refused(n: u8) -> PduSessionResourceItem {
    let cause = CauseRadioNetwork::RadioResourcesNotAvailable.into();
    PduSessionResourceItem::new(psi(n), PduSessionResourceSetupUnsuccessfulTransfer::new(cause).to_vec())
}

/// The gNB answers with these sessions.
fn answer(
    harness: &mut UeHarness,
    set_up: Vec<PduSessionResourceItem>,
    failed: Vec<PduSessionResourceItem>,
) -> Vec<Batch> {
    let mut m = InitialContextSetupResponse::new(harness.connection(), RAN_ID);
    m.pdu_session_resource_setup_list_cxt_res = set_up;
    m.pdu_session_resource_failed_to_setup_list_cxt_res = failed;
    let batch = harness.ngap(m);
    harness.settle(batch)
}

fn dropped(batch: &Batch) -> Option<MessageDropReason> {
    batch.events.iter().find_map(|e| if let Event::Dropped { why, .. } = e { Some(*why) } else { None })
}

#[test] // TS 38.413 §8.2.1.2, §8.3.1.2; TS 23.502 §4.2.3.2 step 12, step 14: some sessions are set up, others not: each goes its own way
fn some_sessions_are_set_up() {
    let mut harness = idle(3);
    serve(&mut harness, &[1, 2, 3]);
    answer(&mut harness, vec![done(1), done(3)], vec![refused(2)]);
    assert_eq!(active(&harness), [1, 3]);
    let ue = harness.context().unwrap();
    assert!(ue.is_connected() && ue.is_idle() && ue.sessions.len() == 3);
}

#[test] // TS 38.413 §8.2.1.3, §8.3.1.2: none is set up: the UE stays, and so do its sessions, whose packets wait on
fn no_session_is_set_up() {
    let mut harness = idle(2);
    serve(&mut harness, &[1, 2]);
    answer(&mut harness, vec![], vec![refused(1), refused(2)]);
    assert!(active(&harness).is_empty());
    let ue = harness.context().unwrap();
    assert!(ue.is_connected() && ue.is_idle() && ue.sessions.len() == 2);
}

#[test] // TS 38.413 §8.2.1.4, §8.3.1.4: an answer that names a session twice, in both lists, an unknown session, or an invalid transfer; and a repeated answer
fn a_malformed_answer() {
    let mut harness = idle(3);
    serve(&mut harness, &[1, 2, 3]);
    let rubbish = PduSessionResourceItem::new(psi(3), vec![0xff; 3]);
    answer(
        &mut harness,
        vec![done(1), done(1), done(2), done(9), rubbish.clone()],
        vec![refused(2), refused(9)],
    );
    assert!(active(&harness).contains(&1) && !active(&harness).contains(&9));
    answer(&mut harness, vec![done(9), rubbish], vec![]);
    let ue = harness.context().unwrap();
    assert!(ue.is_connected() && ue.amf.registered && !ue.sessions.contains_key(&psi(9)));
}

#[test] // TS 38.413 §8.3.1.3: the gNB cannot take the context: its connection ends, the registration stands
fn the_gnb_cannot_take_the_context() {
    let mut harness = idle(1);
    serve(&mut harness, &[1]);
    let cause = CauseRadioNetwork::RadioConnectionWithUeLost.into();
    let batch = harness.ngap(InitialContextSetupFailure::new(harness.connection(), RAN_ID, cause));
    assert!(n2(&batch).iter().any(|m| matches!(m, Message::UeContextReleaseCommand(_))), "{batch:?}");
    harness.ngap(UeContextReleaseComplete::new(harness.connection(), RAN_ID));
    let ue = harness.context().unwrap();
    assert!(!ue.is_connected() && ue.amf.registered && ue.sessions.len() == 1);
}

#[test] // TS 38.413 §8.3.1.4: the gNB does not answer: the same
fn the_gnb_does_not_answer() {
    let mut harness = idle(1);
    let (batch, _) = serve(&mut harness, &[1]);
    let batch = harness.expire(&batch);
    assert!(n2(&batch).iter().any(|m| matches!(m, Message::UeContextReleaseCommand(_))), "{batch:?}");
    assert!(harness.context().unwrap().amf.registered);
}

/// The UE requests the release of its session: the command for its gNB.
fn release(harness: &mut UeHarness) -> (Batch, Box<PduSessionResourceReleaseCommand>) {
    let ask = sm::Message::new(psi(1), Pti(7), sm::ReleaseRequest::new()).to_octets();
    let container = PayloadContainer::new(ask).unwrap();
    let mut m = UlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, container);
    m.pdu_session_id = Some(psi(1));
    let batch = harness.nas(CIPHERED, m);
    let command = n2(&batch).into_iter().find_map(|m| match m {
        Message::PduSessionResourceReleaseCommand(m) => Some(Box::new(m)),
        _ => None,
    });
    (batch, command.expect("the gNB has the session"))
}

fn released(harness: &mut UeHarness, sessions: &[u8]) -> Batch {
    let transfer = PduSessionResourceReleaseResponseTransfer::new().to_vec();
    let items = sessions.iter().map(|n| PduSessionResourceItem::new(psi(*n), transfer.clone())).collect();
    let mut m = PduSessionResourceReleaseResponse::new(harness.connection(), RAN_ID);
    m.pdu_session_resource_released_list_rel_res = items;
    harness.ngap(m)
}

#[test] // TS 38.413 §8.2.2.2: the gNB releases the resources and delivers the command to the UE, whose completion ends the session
fn a_session_is_released_at_its_gnb() {
    let mut harness = UeHarness::registered();
    let (_, command) = release(&mut harness);
    assert_eq!(command.pdu_session_resource_to_release_list_rel_cmd[0].pdu_session_id, psi(1));
    assert!(command.nas_pdu.is_some());
    released(&mut harness, &[1]);
    let complete = sm::Message::new(psi(1), Pti(7), sm::ReleaseComplete::new()).to_octets();
    let mut m = UlNasTransport::new(
        PayloadContainerType::N1_SM_INFORMATION,
        PayloadContainer::new(complete).unwrap(),
    );
    m.pdu_session_id = Some(psi(1));
    let batch = harness.nas(CIPHERED, m);
    harness.settle(batch);
    assert!(harness.context().unwrap().sessions.is_empty());
}

#[test] // TS 38.413 §8.2.2.4: an answer about an unknown session, or without a command, changes nothing
fn an_unexpected_release_response_changes_nothing() {
    let mut harness = UeHarness::registered();
    for sessions in [&[1][..], &[9], &[1, 9, 1]] {
        let batch = released(&mut harness, sessions);
        assert!(batch.outputs.is_empty());
    }
    assert_eq!(active(&harness), [1]);
}

#[test] // TS 38.413 §8.2.3.4: the same for modifications
fn an_unexpected_modify_response_changes_nothing() {
    let mut harness = UeHarness::registered();
    let done = PduSessionResourceModifyResponseTransfer::new().to_vec();
    for transfer in [done, vec![0xff; 5], Vec::new()] {
        for n in [1, 9] {
            let item = PduSessionResourceItem::new(psi(n), transfer.clone());
            let mut m = PduSessionResourceModifyResponse::new(harness.connection(), RAN_ID);
            m.pdu_session_resource_modify_list_mod_res = vec![item.clone(), item.clone()];
            m.pdu_session_resource_failed_to_modify_list_mod_res = vec![item];
            let batch = harness.ngap(m);
            assert!(batch.outputs.is_empty() && batch.idle);
        }
    }
    assert_eq!(active(&harness), [1]);
}

#[test] // TS 38.413 §8.2.4.3: a notification about an unknown session or flow, or with an invalid transfer
fn a_notify_of_an_unknown_session_or_flow_changes_nothing() {
    let mut harness = UeHarness::registered();
    let mut transfer = PduSessionResourceNotifyTransfer::new();
    transfer.qos_flow_notify_list =
        vec![QosFlowNotifyItem::new(Qfi::new(44).unwrap(), NotificationCause::NotFulfilled)];
    let released = QosFlowWithCauseItem::new(Qfi::new(45).unwrap(), CauseRadioNetwork::Unspecified.into());
    transfer.qos_flow_released_list = vec![released];
    for (n, octets) in [(9, transfer.to_vec()), (1, transfer.to_vec()), (1, vec![0xff]), (9, Vec::new())] {
        let mut m = PduSessionResourceNotify::new(harness.connection(), RAN_ID);
        m.pdu_session_resource_notify_list = vec![PduSessionResourceItem::new(psi(n), octets.clone())];
        let batch = harness.ngap(m);
        assert!(batch.outputs.is_empty(), "{batch:?}");
        let mut m = PduSessionResourceNotify::new(harness.connection(), RAN_ID);
        m.pdu_session_resource_released_list_not = vec![PduSessionResourceItem::new(psi(9), octets)];
        let batch = harness.ngap(m);
        assert!(batch.outputs.is_empty(), "{batch:?}");
    }
    assert_eq!(active(&harness), [1]);
}

#[test] // TS 38.413 §8.3.3.4: the gNB does not answer, or answers with unknown sessions: the UE is idle all the same
fn a_release_that_is_not_completed() {
    for completed in [false, true] {
        let mut harness = UeHarness::registered();
        let cause = CauseRadioNetwork::UserInactivity.into();
        let batch = harness.ngap(UeContextReleaseRequest::new(harness.connection(), RAN_ID, cause));
        assert!(n2(&batch).iter().any(|m| matches!(m, Message::UeContextReleaseCommand(_))));
        let deadline = Batch { next_deadline: batch.next_deadline, ..Batch::default() };
        harness.settle(batch);
        if completed {
            let mut m = UeContextReleaseComplete::new(harness.connection(), RAN_ID);
            m.pdu_session_resource_list_cxt_rel_cpl =
                [9, 9, 1].map(|n| PduSessionResourceItemCxtRelCpl::new(psi(n))).into();
            harness.ngap(m);
        } else {
            harness.expire(&deadline);
        }
        let ue = harness.context().unwrap();
        assert!(!ue.is_connected() && ue.amf.registered && ue.sessions.len() == 1, "{completed}");
    }
}

#[test] // TS 38.413 §8.6.3.3: a NAS message that is none, and none at all: dropped, counted, and the UE stays
fn an_uplink_message_without_nas() {
    let mut harness = UeHarness::registered();
    for pdu in [vec![], vec![0], vec![0x7e], vec![0xff; 40]] {
        let batch = harness.ngap(UplinkNasTransport::new(harness.connection(), RAN_ID, pdu));
        assert!(dropped(&batch).is_some() && batch.outputs.is_empty(), "{batch:?}");
    }
    assert!(harness.context().unwrap().is_connected());
}

fn usage(n: u8, whole: bool, octets: &[(u64, u64)]) -> PduSessionResourceItem {
    let period = |&(ul, dl): &(u64, u64)| VolumeTimedReportItem::new([1; 4], [2; 4], ul, dl);
    let periods: Vec<_> = octets.iter().map(period).collect();
    let mut information = SecondaryRatUsageInformation::new();
    if whole {
        information.pdu_session_usage_report =
            Some(PduSessionUsageReport::new(PduSessionUsageReportRatType::Nr, periods));
    } else {
        let flow = |q| {
            let qfi = Qfi::new(q).unwrap();
            QosFlowsUsageReportItem::new(qfi, QosFlowsUsageReportItemRatType::Eutra, periods.clone())
        };
        information.qos_flows_usage_report_list = vec![flow(1), flow(2)];
    }
    let mut transfer = SecondaryRatDataUsageReportTransfer::new();
    transfer.secondary_rat_usage_information = Some(information);
    PduSessionResourceItem::new(psi(n), transfer.to_vec())
}

#[test] // TS 38.413 §8.15.1.2: what went over a secondary radio is counted by session, and never runs over
fn usage_of_a_secondary_radio() {
    let mut harness = UeHarness::registered();
    let mut says = |items: Vec<PduSessionResourceItem>| {
        let mut m = SecondaryRatDataUsageReport::new(harness.connection(), RAN_ID);
        m.pdu_session_resource_secondary_rat_usage_list = items;
        let batch = harness.ngap(m);
        assert!(batch.outputs.is_empty());
        (dropped(&batch), harness.context().unwrap().sessions[&psi(1)].usage.secondary.as_deref().copied())
    };
    assert_eq!(says(vec![usage(1, true, &[(5, 70), (1, 2)])]), (None, Some((6, 72))));
    assert_eq!(says(vec![usage(1, false, &[(10, 100)])]), (None, Some((26, 272))));
    let stray = vec![usage(9, true, &[(1, 1)]), PduSessionResourceItem::new(psi(1), vec![0xff])];
    assert_eq!(says(stray), (Some(MessageDropReason::OutOfState), Some((26, 272))));
    assert_eq!(says(vec![usage(1, true, &[(u64::MAX, u64::MAX)])]).1, Some((u64::MAX, u64::MAX)));
}

#[test] // TS 38.413 §8.10: NRPPa about a UE: there is no LMF: dropped and counted, without an answer
fn nrppa_of_a_ue_is_dropped_and_counted() {
    let mut harness = UeHarness::registered();
    let batch =
        harness.ngap(UplinkUeAssociatedNrppaTransport::new(harness.connection(), RAN_ID, vec![1], vec![2]));
    assert_eq!((dropped(&batch), batch.outputs.len()), (Some(MessageDropReason::UnservedPayload), 0));
}

#[test] // TS 38.413 §8.11.4.2: a trace of a cell's traffic names the UE's connection: the operator learns whose it is
fn a_cell_traffic_trace_is_an_event() {
    let mut harness = UeHarness::registered();
    let cell =
        NgranCgi::NrCgi(NrCgi::new(whimbrel_ids::PlmnId::TEST, whimbrel_ids::NrCellId::new(5).unwrap()));
    let collector = TransportLayerAddress::V4([127, 0, 0, 1].into());
    let batch =
        harness.ngap(CellTrafficTrace::new(harness.connection(), RAN_ID, [7; 8], cell.clone(), collector));
    let subject = harness.context().unwrap().subject();
    assert_eq!(batch.events, [Event::CellTraffic { subject, trace: [7; 8], cell }]);
    assert!(batch.outputs.is_empty());
}

#[test] // TS 38.413 §9.2.2.17 to §9.2.2.19: suspend is not supported: the gNB is refused, and the UE's state stays
fn suspension_is_refused() {
    let mut harness = UeHarness::registered();
    let mut m = UeContextSuspendRequest::new(harness.connection(), RAN_ID);
    m.pdu_session_resource_suspend_list_sus_req = vec![PduSessionResourceItem::new(psi(1), vec![0])];
    let batch = harness.ngap(m);
    assert!(matches!(n2(&batch).as_slice(), [Message::UeContextSuspendFailure(_)]));
    let cause = RrcEstablishmentCause::MoData;
    let batch = harness.ngap(UeContextResumeRequest::new(harness.connection(), RAN_ID, cause));
    assert!(matches!(n2(&batch).as_slice(), [Message::UeContextResumeFailure(_)]));
    assert_eq!(active(&harness), [1]);
}

#[test] // TS 38.413 §8.14.2.2, §8.14.1.2; TS 23.502 §4.2.8a: the gNB is asked whether the radio carries voice, once for each radio; the next registration accept has the result
fn a_radio_without_voice_support() {
    let mut config = config();
    (config.amf.ims_vops, config.amf.access.voice_match) = (true, true);
    let mut harness = UeHarness::registered_with(config);
    let tell = |harness: &mut UeHarness, capability: u8| {
        let mut m = UeRadioCapabilityInfoIndication::new(harness.connection(), RAN_ID);
        m.ue_radio_capability = vec![capability; 9];
        harness.ngap(m)
    };
    let says = |harness: &mut UeHarness, indicator| {
        harness.ngap(UeRadioCapabilityCheckResponse::new(harness.connection(), RAN_ID, indicator))
    };
    let vops = |harness: &mut UeHarness| {
        let request =
            crate::ue_harness::registration_request(whimbrel_nas::ie::RegistrationKind::MobilityUpdating);
        let batch = harness.nas(CIPHERED, request);
        let features = harness.downlink(&batch).into_iter().find_map(|m| match m {
            whimbrel_nas::mm::Message::RegistrationAccept(m) => m.network_feature_support,
            _ => None,
        });
        harness.nas(CIPHERED, whimbrel_nas::mm::RegistrationComplete::new());
        features.expect("each accept has it").ims_vops_3gpp()
    };
    let batch = says(&mut harness, ImsVoiceSupportIndicator::NotSupported);
    assert_eq!(dropped(&batch), Some(MessageDropReason::OutOfState), "not requested");
    let batch = tell(&mut harness, 1);
    let asked = n2(&batch);
    let [Message::UeRadioCapabilityCheckRequest(m)] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(m.ue_radio_capability, Some(vec![1; 9]));
    assert!(vops(&mut harness), "until it is known");
    says(&mut harness, ImsVoiceSupportIndicator::NotSupported);
    assert!(!vops(&mut harness));
    let batch = tell(&mut harness, 2);
    assert_eq!(n2(&batch).len(), 1, "another radio");
    says(&mut harness, ImsVoiceSupportIndicator::Supported);
    assert!(vops(&mut harness));
}

/// The UE asks for the second session in this transaction; the UPF gives it this tunnel.
fn ask_for_session(harness: &mut UeHarness, pti: u8, teid: u32) -> Vec<Message> {
    use whimbrel_nas::ie::{IntegrityDataRate, IntegrityMaxDataRate, RequestType};
    use whimbrel_pfcp::ie::{Cause, Choice, FSeid, FTeid, PdrId, UeIpAddress};
    let rate = IntegrityMaxDataRate { uplink: IntegrityDataRate::Full, downlink: IntegrityDataRate::Full };
    let mut request = sm::EstablishmentRequest::new(rate);
    request.pdu_session_type = Some(whimbrel_nas::ie::PduSessionType::Ipv4);
    let ask = sm::Message::new(psi(2), Pti(pti), request).to_octets();
    let container = PayloadContainer::new(ask).unwrap();
    let mut m = UlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, container);
    (m.pdu_session_id, m.request_type) = (Some(psi(2)), Some(RequestType::InitialRequest));
    let batch = harness.nas(CIPHERED, m);
    let establishes = |o: &crate::envelope::Output| match &o.effect {
        crate::envelope::Effect::N4 { octets, .. } => octets[1] == 50, // TS 29.244 §7.3
        _ => false,
    };
    let index = batch.outputs.iter().position(establishes).expect("the UPF is asked") as u16;
    let upf = std::net::IpAddr::from([127, 0, 0, 8]);
    let mut answer =
        whimbrel_pfcp::msg::SessionEstablishmentResponse::new(upf.into(), Cause::RequestAccepted);
    answer.up_f_seid = Some(FSeid::new(whimbrel_ids::Seid(teid.into()), upf));
    let address = Some(Choice::Given([10, 45, 0, 9].into()));
    answer.created_pdrs = vec![whimbrel_pfcp::rule::CreatedPdr {
        pdr_id: PdrId(1),
        local_f_teid: Some(FTeid::given(Teid(teid), upf)),
        ue_ip_addresses: vec![UeIpAddress { ipv4: address, ..UeIpAddress::default() }],
    }];
    let octets = whimbrel_pfcp::Message::from(answer).to_octets(Some(whimbrel_ids::Seid(1)), 0);
    let to = crate::envelope::OutputId { clock: harness.clock(), index };
    let answered =
        harness.input(Payload::PfcpAnswer { to, upf: crate::upf::UpfId(0), octets: Some(octets.into()) });
    [n2(&batch), n2(&answered)].concat()
}

/// The tunnel of the UPF that a gNB is given for the second session.
fn given(messages: &[Message]) -> Vec<Teid> {
    let of = |transfer: &[u8]| {
        let t = PduSessionResourceSetupRequestTransfer::decode(transfer).unwrap();
        let UpTransportLayerInformation::GtpTunnel(t) = t.ul_ngu_up_tnl_information;
        t.gtp_teid
    };
    let all = messages.iter().flat_map(|m| match m {
        Message::PduSessionResourceSetupRequest(m) => {
            let items = m.pdu_session_resource_setup_list_su_req.iter();
            items.map(|i| of(&i.pdu_session_resource_setup_request_transfer)).collect::<Vec<_>>()
        }
        Message::InitialContextSetupRequest(m) => {
            let items = m.pdu_session_resource_setup_list_cxt_req.iter();
            items.map(|i| of(&i.pdu_session_resource_setup_request_transfer)).collect()
        }
        _ => Vec::new(),
    });
    all.collect()
}

fn releases(messages: &[Message]) -> usize {
    messages.iter().filter(|m| matches!(m, Message::PduSessionResourceReleaseCommand(_))).count()
}

/// The gNB answers a setup of the second session.
fn set_up_answer(harness: &mut UeHarness, success: bool) -> Vec<Message> {
    let mut m = PduSessionResourceSetupResponse::new(harness.connection(), RAN_ID);
    match success {
        true => m.pdu_session_resource_setup_list_su_res = vec![done(2)],
        false => m.pdu_session_resource_failed_to_setup_list_su_res = vec![refused(2)],
    }
    let batch = harness.ngap(m);
    harness.settle(batch).iter().flat_map(n2).collect()
}

#[test] // TS 24.501 §6.4.1.7 a; TS 38.413 §8.2.1.2 late: an answer to a setup that the UE has replaced by a new request is not the new one's
fn a_late_answer_to_a_replaced_setup_belongs_to_that_setup() {
    for late in [true, false] {
        let mut harness = UeHarness::registered();
        let asked = ask_for_session(&mut harness, 1, 0x21);
        assert_eq!(given(&asked), [Teid(0x21)]);
        let again = ask_for_session(&mut harness, 2, 0x22);
        assert_eq!((releases(&again), given(&again)), (1, vec![]), "one setup at a time: {again:?}");
        // What the gNB has set up it releases by the command that is behind the request; a refusal is no refusal of the new request.
        let then = set_up_answer(&mut harness, late);
        assert_eq!((releases(&then), given(&then)), (0, vec![Teid(0x22)]), "{then:?}");
        assert_eq!(active(&harness), [1]);
        set_up_answer(&mut harness, true);
        assert_eq!(active(&harness), [1, 2]);
        assert!(harness.context().unwrap().is_idle());
    }
}

#[test] // TS 38.413 §8.3.1.2 late: the same where the first request was INITIAL CONTEXT SETUP REQUEST: what it set up is released
fn a_late_context_with_a_replaced_session() {
    let mut harness = UeHarness::registered();
    let mut ue = Box::new(harness.context().unwrap().clone());
    ue.amf.connection.as_mut().unwrap().context_set_up = false;
    harness.shard.restore(ue);
    let asked = ask_for_session(&mut harness, 1, 0x21);
    assert!(matches!(asked[0], Message::InitialContextSetupRequest(_)));
    assert_eq!(given(&asked), [Teid(0x21)]);
    let again = ask_for_session(&mut harness, 2, 0x22);
    assert_eq!((releases(&again), given(&again)), (0, vec![]), "{again:?}");
    let then: Vec<Message> = answer(&mut harness, vec![done(2)], vec![]).iter().flat_map(n2).collect();
    assert_eq!((releases(&then), given(&then)), (1, vec![Teid(0x22)]), "{then:?}");
    set_up_answer(&mut harness, true);
    assert_eq!(active(&harness), [1, 2]);
}

#[test] // TS 38.413 §8.2.1.2 late: a gNB that sets up a session which has ended, or an unknown one, is commanded to release it
fn an_unknown_session_is_released_at_the_gnb() {
    let mut harness = UeHarness::registered();
    ask_for_session(&mut harness, 1, 0x21);
    let association = harness.association();
    let batch = harness.input(Payload::Command(Command::LeaveUpf(crate::upf::UpfId(0))));
    assert!(releases(&n2(&batch)) > 0);
    harness.settle(batch);
    assert_eq!(releases(&set_up_answer(&mut harness, true)), 0, "the command is behind the request");
    assert_eq!(releases(&set_up_answer(&mut harness, true)), 0, "the UE has yet to hear of its release");
    let batch = harness.input(Payload::Command(Command::ConnectionLost(association)));
    harness.settle(batch);
    let mut harness = UeHarness::registered();
    assert_eq!(releases(&set_up_answer(&mut harness, true)), 1);
    assert_eq!(releases(&set_up_answer(&mut harness, false)), 0);
}
