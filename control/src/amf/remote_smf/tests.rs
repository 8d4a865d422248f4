//! Sessions of another vendor's SMF: establishment, service request, paging, handovers and release, and an SMF that refuses, fails, or answers late.

use whimbrel_ids::{PduSessionId, Qfi, Teid, Tmsi};
use whimbrel_nas::ie::{
    MmCause, MobileIdentity, NgKsi, PayloadContainer, PayloadContainerType, RequestType, ServiceType,
};
use whimbrel_nas::mm::{self, ServiceRequest, UlNasTransport};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::*;
use whimbrel_ngap::msg::*;
use whimbrel_ngap::transfer::*;

use crate::envelope::{Batch, Command, Effect, OutputId, Payload};
use crate::event::Event;
use crate::procedure::Procedure;
use crate::refusal::Refusal;
use crate::services::sm_contexts::*;
use crate::services::{NfType, ServiceFault};
use crate::state::UpState;
use crate::ue_harness::{CIPHERED, INTEGRITY, RAN_ID, UeHarness, config, n2, psi};

const REFERENCE: &str = "urn:uuid:7";
const ACCEPT: [u8; 5] = [0x2e, 1, 1, 0xc2, 0x11];
const REJECT: [u8; 5] = [0x2e, 1, 1, 0xc3, 31];
const REQUEST: [u8; 6] = [0x2e, 1, 1, 0xc1, 0xff, 0xff];
const URI: &str = "http://192.0.2.5:7777/failure";

/// A registered UE without a session, at an AMF whose SMF is another vendor's.
fn registered() -> UeHarness {
    let mut config = config();
    config.amf.uses_remote_smf = true;
    let mut harness = UeHarness::registered_with(config);
    let mut ue = Box::new(harness.context().unwrap().clone());
    ue.sessions.clear();
    harness.shard.restore(ue);
    harness
}

/// The requests to the SMF in a batch, with the outputs that their answers name.
fn requests(harness: &UeHarness, batch: &Batch) -> Vec<(OutputId, SmfRequest)> {
    let named = (0u16..).zip(&batch.outputs).filter_map(|(index, output)| match &output.effect {
        Effect::SmContext(request) => Some((OutputId { clock: harness.clock(), index }, (**request).clone())),
        _ => None,
    });
    named.collect()
}

/// The one request to the SMF in a batch.
fn request(harness: &UeHarness, batch: &Batch) -> (OutputId, SmfRequest) {
    let all = requests(harness, batch);
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().unwrap()
}

/// The change that is sent to the SMF.
fn change(harness: &UeHarness, batch: &Batch) -> (OutputId, SmContextChange) {
    match request(harness, batch) {
        (to, SmfRequest { operation: SmfOperation::Update { reference, change }, .. }) => {
            assert_eq!(&*reference, REFERENCE);
            (to, *change)
        }
        other => panic!("{other:?}"),
    }
}

fn answer(harness: &mut UeHarness, to: OutputId, answer: SmfAnswer) -> Batch {
    harness.input(Payload::SmContext { to, psi: psi(1), answer: answer.into() })
}

fn done(harness: &mut UeHarness, to: OutputId, n2: Option<N2Part>) -> Batch {
    answer(harness, to, SmfAnswer::Done(SmfMessage { n2, ..SmfMessage::default() }.into()))
}

fn order(harness: &mut UeHarness, order: SmfOrder) -> Batch {
    harness.input(Payload::SmfOrdered { psi: psi(1), order: order.into() })
}

fn transfer(n1: Option<&[u8]>, n2: Option<N2Part>) -> SmfOrder {
    let n1 = n1.map(<[u8]>::to_vec);
    let failure_uri = Some(URI.into());
    SmfOrder::Transfer(SmfMessage { n1, n2, failure_uri, ..SmfMessage::default() })
}

fn ask_for_session(harness: &mut UeHarness) -> Batch {
    let payload = PayloadContainer::new(REQUEST.to_vec()).unwrap();
    let mut m = UlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, payload);
    m.pdu_session_id = Some(psi(1));
    m.request_type = Some(RequestType::InitialRequest);
    harness.nas(CIPHERED, m)
}

fn session_message(harness: &mut UeHarness, octets: &[u8]) -> Batch {
    let payload = PayloadContainer::new(octets.to_vec()).unwrap();
    let mut m = UlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, payload);
    m.pdu_session_id = Some(psi(1));
    harness.nas(CIPHERED, m)
}

fn setup() -> N2Part {
    (N2SmKind::PduResSetupReq, vec![1, 2, 3])
}

/// The session's setup in PDU SESSION RESOURCE SETUP REQUEST, and the 5GSM message beside it.
fn setup_at_gnb(harness: &mut UeHarness, batch: &Batch) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let m = n2(batch).into_iter().find_map(|m| match m {
        Message::PduSessionResourceSetupRequest(m) => Some(m),
        _ => None,
    })?;
    let item = m.pdu_session_resource_setup_list_su_req.into_iter().next().unwrap();
    let n1 = item.pdu_session_nas_pdu.and_then(|pdu| harness.open(pdu)).map(|m| match m {
        mm::Message::DlNasTransport(m) => m.payload_container.to_vec(),
        other => panic!("{other:?}"),
    });
    Some((item.pdu_session_resource_setup_request_transfer, n1))
}

fn tunnel() -> UpTransportLayerInformation {
    UpTransportLayerInformation::GtpTunnel(GtpTunnel::new(
        TransportLayerAddress::V4([127, 0, 1, 1].into()),
        Teid(0x71),
    ))
}

fn set_up(harness: &mut UeHarness) -> (Vec<u8>, Batch) {
    let flow = AssociatedQosFlowItem::new(Qfi::new(1).unwrap());
    let tunnel = QosFlowPerTnlInformation::new(tunnel(), vec![flow]);
    let octets = PduSessionResourceSetupResponseTransfer::new(tunnel).to_vec();
    let mut m = PduSessionResourceSetupResponse::new(harness.connection(), RAN_ID);
    m.pdu_session_resource_setup_list_su_res = vec![PduSessionResourceItem::new(psi(1), octets.clone())];
    (octets, harness.ngap(m))
}

fn up(harness: &UeHarness) -> Option<UpState> {
    harness.context().unwrap().remote_sessions.get(psi(1)).map(|s| s.up)
}

/// A UE with an active session.
fn with_session() -> UeHarness {
    let mut harness = registered();
    let batch = ask_for_session(&mut harness);
    let (to, _) = request(&harness, &batch);
    answer(&mut harness, to, SmfAnswer::Created { reference: REFERENCE.into() });
    order(&mut harness, transfer(Some(&ACCEPT), Some(setup())));
    let (_, batch) = set_up(&mut harness);
    let (to, _) = change(&harness, &batch);
    done(&mut harness, to, None);
    assert_eq!(up(&harness), Some(UpState::Active));
    assert!(harness.context().unwrap().is_idle());
    harness
}

/// The same, and the UE is idle.
fn idle() -> UeHarness {
    let mut harness = with_session();
    let association = harness.association();
    let batch = harness.input(Payload::Command(Command::ConnectionLost(association)));
    let (to, change) = change(&harness, &batch);
    assert_eq!(change.user_plane, Some(UserPlaneChange::Deactivated));
    done(&mut harness, to, None);
    assert_eq!(up(&harness), Some(UpState::Inactive));
    harness
}

fn return_of(harness: &mut UeHarness, sessions: &[u8]) -> Batch {
    let s_tmsi = whimbrel_ids::STmsi { set: 1, pointer: 0, tmsi: Tmsi(0x1234) };
    let ksi = NgKsi::native(0).unwrap();
    let mut request = ServiceRequest::new(ksi, ServiceType::Data, MobileIdentity::STmsi(s_tmsi));
    request.uplink_data_status = Some(sessions.iter().map(|n| psi(*n)).collect());
    let pdu = harness.protect(INTEGRITY, request);
    harness.first(pdu, Some(Tmsi(0x1234)))
}

fn is_paged(batch: &Batch) -> bool {
    batch.outputs.iter().any(|output| matches!(output.effect, Effect::Page { .. }))
}

fn refusal(batch: &Batch) -> Option<Refusal> {
    batch.events.iter().find_map(|event| match event {
        Event::Refused { refusal, .. } => Some(refusal.clone()),
        _ => None,
    })
}

#[test] // TS 23.502 §4.3.2.2.1
fn a_session_is_established_at_the_smf() {
    let mut harness = registered();
    let batch = ask_for_session(&mut harness);
    let (to, asked) = request(&harness, &batch);
    let SmfOperation::Create(new) = asked.operation else { panic!("{asked:?}") };
    assert_eq!((new.dnn.to_string().as_str(), new.n1.as_slice()), ("internet", &REQUEST[..]));
    assert!(new.place.tai.is_some() && !new.existing && !new.emergency);
    answer(&mut harness, to, SmfAnswer::Created { reference: REFERENCE.into() });
    let batch = order(&mut harness, transfer(Some(&ACCEPT), Some(setup())));
    assert_eq!(setup_at_gnb(&mut harness, &batch), Some((setup().1, Some(ACCEPT.to_vec()))));
    let (octets, batch) = set_up(&mut harness);
    let (to, change) = change(&harness, &batch);
    assert_eq!(change.n2, Some((N2SmKind::PduResSetupRsp, octets)));
    let batch = done(&mut harness, to, None);
    let established =
        |e: &Event| matches!(e, Event::Completed { procedure: Procedure::PduSessionEstablishment, .. });
    assert!(batch.events.iter().any(established));
    assert_eq!(up(&harness), Some(UpState::Active));
}

#[test] // free5GC's SMF sends its message while its answer to the creation is on the way
fn a_message_that_overtakes_the_answer_to_the_creation_waits_for_it() {
    let mut harness = registered();
    let batch = ask_for_session(&mut harness);
    let (to, _) = request(&harness, &batch);
    let batch = order(&mut harness, transfer(Some(&ACCEPT), Some(setup())));
    assert_eq!(setup_at_gnb(&mut harness, &batch), None);
    let batch = answer(&mut harness, to, SmfAnswer::Created { reference: REFERENCE.into() });
    assert_eq!(setup_at_gnb(&mut harness, &batch), Some((setup().1, Some(ACCEPT.to_vec()))));
}

#[test] // TS 24.501 §6.4.1.4; a rejection after the creation ends the session, too
fn a_session_that_the_smf_rejects_is_rejected_by_its_message() {
    let rejected = |harness: &mut UeHarness, batch: &Batch| {
        let payloads = harness.downlink(batch).into_iter().filter_map(|m| match m {
            mm::Message::DlNasTransport(m) => Some((m.payload_container.to_vec(), m.cause)),
            _ => None,
        });
        assert_eq!(payloads.collect::<Vec<_>>(), [(REJECT.to_vec(), None)]);
        assert_eq!(up(harness), None);
    };
    let mut harness = registered();
    let batch = ask_for_session(&mut harness);
    let (to, _) = request(&harness, &batch);
    let message = SmfMessage { n1: Some(REJECT.to_vec()), ..SmfMessage::default() };
    let batch = answer(&mut harness, to, SmfAnswer::Refused { status: 403, message: message.into() });
    rejected(&mut harness, &batch);

    let batch = ask_for_session(&mut harness);
    let (to, _) = request(&harness, &batch);
    answer(&mut harness, to, SmfAnswer::Created { reference: REFERENCE.into() });
    let batch = order(&mut harness, transfer(Some(&REJECT), None));
    rejected(&mut harness, &batch);
}

#[test] // TS 24.501 §5.4.5.3.1 e, cause #90
fn a_session_is_returned_to_the_ue_while_no_smf_answers() {
    let mut harness = registered();
    let batch = ask_for_session(&mut harness);
    let (to, _) = request(&harness, &batch);
    let batch = answer(&mut harness, to, SmfAnswer::Failed(ServiceFault::NotConnected));
    let returned = harness.downlink(&batch).into_iter().find_map(|m| match m {
        mm::Message::DlNasTransport(m) => Some((m.payload_container.to_vec(), m.cause)),
        _ => None,
    });
    assert_eq!(returned, Some((REQUEST.to_vec(), Some(MmCause::PayloadWasNotForwarded))));
    assert_eq!(refusal(&batch), Some(Refusal::NetworkFunction(NfType::Smf, ServiceFault::NotConnected)));
    assert_eq!(up(&harness), None);
}

#[test] // a takeover between request and answer loses the answer: the request is repeated, and a second SM context released
fn a_lost_answer_is_asked_for_again() {
    let mut harness = registered();
    let batch = ask_for_session(&mut harness);
    let (first, asked) = request(&harness, &batch);
    let batch = harness.expire(&batch);
    let (second, again) = request(&harness, &batch);
    assert_eq!(asked, again);
    answer(&mut harness, second, SmfAnswer::Created { reference: REFERENCE.into() });
    let batch = answer(&mut harness, first, SmfAnswer::Created { reference: "urn:uuid:6".into() });
    let (_, SmfRequest { operation, .. }) = request(&harness, &batch);
    assert!(matches!(operation, SmfOperation::Release { reference, .. } if &*reference == "urn:uuid:6"));
    // The same context, as of an SMF that knows the session, is kept.
    let batch = answer(&mut harness, first, SmfAnswer::Created { reference: REFERENCE.into() });
    assert!(batch.outputs.is_empty() && batch.no_effect);
    assert!(up(&harness).is_some());
}

#[test] // Open5GS's SMF answers the setup when its UDM has answered, and the UE can be idle by then
fn a_ue_that_becomes_idle_before_the_answer_to_the_setup_has_no_user_plane() {
    let mut harness = registered();
    let batch = ask_for_session(&mut harness);
    let (to, _) = request(&harness, &batch);
    answer(&mut harness, to, SmfAnswer::Created { reference: REFERENCE.into() });
    order(&mut harness, transfer(Some(&ACCEPT), Some(setup())));
    let (_, batch) = set_up(&mut harness);
    let (to, _) = change(&harness, &batch);
    let association = harness.association();
    harness.input(Payload::Command(Command::ConnectionLost(association)));
    let batch = done(&mut harness, to, None);
    let (to, asked) = change(&harness, &batch);
    assert_eq!(asked.user_plane, Some(UserPlaneChange::Deactivated));
    done(&mut harness, to, None);
    assert_eq!(up(&harness), Some(UpState::Inactive));
}

#[test] // TS 23.502 §4.2.3.2 steps 4, 11, 14 and 15
fn a_user_plane_returns_with_the_ue() {
    let mut harness = idle();
    let batch = return_of(&mut harness, &[1]);
    assert!(n2(&batch).iter().any(|m| matches!(m, Message::InitialContextSetupRequest(_))));
    let (to, asked) = change(&harness, &batch);
    assert_eq!(asked.user_plane, Some(UserPlaneChange::Activating));
    let set_up_context = InitialContextSetupResponse::new(harness.connection(), RAN_ID);
    harness.ngap(set_up_context);
    let batch = done(&mut harness, to, Some(setup()));
    assert_eq!(setup_at_gnb(&mut harness, &batch), Some((setup().1, None)));
    let (_, batch) = set_up(&mut harness);
    let (to, _) = change(&harness, &batch);
    done(&mut harness, to, None);
    assert_eq!(up(&harness), Some(UpState::Active));
}

#[test] // TS 23.502 §4.2.3.3
fn an_idle_ue_is_paged_for_packets() {
    let mut harness = idle();
    let batch = order(&mut harness, transfer(None, Some(setup())));
    assert!(is_paged(&batch));
    let batch = return_of(&mut harness, &[]);
    let (_, asked) = change(&harness, &batch);
    assert_eq!(asked.user_plane, Some(UserPlaneChange::Activating));
}

#[test] // TS 29.518 §5.2.2.3.2
fn the_smf_learns_that_the_ue_does_not_answer() {
    let mut harness = idle();
    let mut batch = order(&mut harness, transfer(None, Some(setup())));
    for _ in 0..4 {
        batch = harness.expire(&batch);
    }
    let (_, SmfRequest { operation, .. }) = request(&harness, &batch);
    assert_eq!(operation, SmfOperation::ReportFailure { uri: URI.into() });
    assert!(harness.context().unwrap().is_idle());
}

#[test] // TS 29.518 §5.2.2.3.1.2, skipInd
fn a_message_that_is_not_to_page_is_dropped_for_an_idle_ue() {
    let mut harness = idle();
    let message = SmfMessage { n1: Some(ACCEPT.to_vec()), skip: true, ..SmfMessage::default() };
    let batch = order(&mut harness, SmfOrder::Transfer(message));
    assert!(batch.outputs.is_empty());
}

#[test] // TS 23.502 §4.3.4.2
fn a_session_ends_with_the_notification_of_the_smf() {
    let mut harness = with_session();
    let batch = session_message(&mut harness, &[0x2e, 1, 2, 0xd1]);
    let (to, asked) = change(&harness, &batch);
    assert_eq!(asked.n1, Some(vec![0x2e, 1, 2, 0xd1]));
    let command = [0x2e, 1, 2, 0xd3, 36];
    let n2_part = Some((N2SmKind::PduResRelCmd, vec![9]));
    let message = SmfMessage { n1: Some(command.to_vec()), n2: n2_part, ..SmfMessage::default() };
    let batch = answer(&mut harness, to, SmfAnswer::Done(message.into()));
    let released = n2(&batch).into_iter().find_map(|m| match m {
        Message::PduSessionResourceReleaseCommand(m) => Some(m),
        _ => None,
    });
    let released = released.expect("the gNB is asked");
    assert_eq!(released.pdu_session_resource_to_release_list_rel_cmd[0].transfer, [9]);
    let mut m = PduSessionResourceReleaseResponse::new(harness.connection(), RAN_ID);
    m.pdu_session_resource_released_list_rel_res = vec![PduSessionResourceItem::new(psi(1), vec![7])];
    let batch = harness.ngap(m);
    let (to, asked) = change(&harness, &batch);
    assert_eq!(asked.n2, Some((N2SmKind::PduResRelRsp, vec![7])));
    done(&mut harness, to, None);
    let batch = order(&mut harness, SmfOrder::Released);
    assert_eq!((up(&harness), requests(&harness, &batch).len(), n2(&batch).len()), (None, 0, 0));
}

#[test] // TS 23.502 §4.2.2.3.2 step 2
fn a_deregistration_releases_the_sm_context() {
    let mut harness = with_session();
    let batch = harness.input(Payload::Command(Command::Superseded));
    let release = requests(&harness, &batch).into_iter().map(|(_, request)| request.operation);
    let release: Vec<_> = release.collect();
    assert!(matches!(&release[..], [SmfOperation::Release { reference, .. }] if &**reference == REFERENCE));
}

#[test] // TS 29.502 §5.2.2.3.1: 404 CONTEXT_NOT_FOUND
fn a_session_that_the_smf_has_lost_ends() {
    let mut harness = with_session();
    let batch = session_message(&mut harness, &[0x2e, 1, 2, 0xc9]);
    let (to, _) = change(&harness, &batch);
    let batch = answer(&mut harness, to, SmfAnswer::Refused { status: 404, message: Box::default() });
    assert!(n2(&batch).iter().any(|m| matches!(m, Message::PduSessionResourceReleaseCommand(_))));
    assert_eq!((up(&harness), requests(&harness, &batch).len()), (None, 0));
}

#[test] // TS 23.502 §4.9.1.2.2
fn an_xn_handover_switches_the_path_at_the_smf() {
    let mut harness = with_next_hop();
    let transfer = vec![4, 4];
    let m = path_switch_request(&harness, transfer.clone());
    let batch = harness.ngap(m);
    let (to, asked) = change(&harness, &batch);
    assert_eq!(asked.n2, Some((N2SmKind::PathSwitchReq, transfer)));
    assert_eq!(asked.path_switch, Some(true));
    let batch = done(&mut harness, to, Some((N2SmKind::PathSwitchReqAck, vec![5])));
    let acknowledged = n2(&batch).into_iter().find_map(|m| match m {
        Message::PathSwitchRequestAcknowledge(m) => Some(m),
        _ => None,
    });
    let switched = acknowledged.expect("the target is answered").pdu_session_resource_switched_list;
    assert_eq!((switched[0].pdu_session_id, switched[0].transfer.as_slice()), (psi(1), &[5][..]));
}

#[test] // TS 23.502 §4.9.1.2.2 step 7: no session could be switched
fn a_path_that_the_smf_does_not_switch_fails_the_xn_handover() {
    let mut harness = with_next_hop();
    let m = path_switch_request(&harness, vec![4]);
    let batch = harness.ngap(m);
    let (to, _) = change(&harness, &batch);
    let refused = SmfAnswer::Refused { status: 500, message: Box::default() };
    let batch = answer(&mut harness, to, refused);
    assert!(n2(&batch).iter().any(|m| matches!(m, Message::PathSwitchRequestFailure(_))));
}

#[test]
fn an_order_for_an_unknown_session_changes_nothing() {
    let mut harness = registered();
    let batch = order(&mut harness, transfer(Some(&ACCEPT), Some(setup())));
    assert!(batch.outputs.is_empty() && batch.no_effect);
    let batch = order(&mut harness, SmfOrder::Released);
    assert!(batch.outputs.is_empty() && batch.no_effect);
}

#[test] // a UE that sends without end while its SMF is silent
fn the_work_of_a_session_is_bounded() {
    let mut harness = with_session();
    for _ in 0..100 {
        session_message(&mut harness, &[0x2e, 1, 2, 0xd6, 95]);
    }
    assert!(harness.context().unwrap().remote_sessions.are_bounded());
}

fn with_next_hop() -> UeHarness {
    let mut harness = with_session();
    let mut ue = Box::new(harness.context().unwrap().clone());
    crate::amf::as_security::begin_chain(&mut ue.amf, &whimbrel_security::KGnb::new([3; 32]));
    harness.shard.restore(ue);
    harness
}

fn path_switch_request(harness: &UeHarness, transfer: Vec<u8>) -> PathSwitchRequest {
    let sessions: Vec<PduSessionResourceItem> =
        vec![PduSessionResourceItem::new(PduSessionId::new(1).unwrap(), transfer)];
    PathSwitchRequest::new(whimbrel_ids::RanUeNgapId(71), harness.connection(), sessions)
}
