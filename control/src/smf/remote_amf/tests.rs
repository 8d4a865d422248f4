//! Sessions of a UE that another vendor's AMF serves, in the UE harness: TS 29.502 §5.2.2, TS 29.518 §5.2.2.3.

use std::net::Ipv4Addr;
use std::sync::Arc;

use whimbrel_ids::{Qfi, Seid, Teid};
use whimbrel_nas::ie::{IntegrityDataRate, IntegrityMaxDataRate, PduSessionType};
use whimbrel_nas::sm::{self, EstablishmentRequest, Pti};
use whimbrel_ngap::ie::{
    AssociatedQosFlowItem, CauseRadioNetwork, GtpTunnel, QosFlowPerTnlInformation, TransportLayerAddress,
    UpTransportLayerInformation,
};
use whimbrel_ngap::transfer::{
    HandoverCommandTransfer, HandoverRequestAcknowledgeTransfer, HandoverRequiredTransfer,
    PathSwitchRequestAcknowledgeTransfer, PathSwitchRequestTransfer, PduSessionResourceSetupRequestTransfer,
    PduSessionResourceSetupResponseTransfer, PduSessionResourceSetupUnsuccessfulTransfer,
};
use whimbrel_pfcp::ie::{Cause as PfcpCause, Choice, FSeid, FTeid, UeIpAddress};
use whimbrel_pfcp::msg::SessionEstablishmentResponse;
use whimbrel_pfcp::rule::CreatedPdr;

use super::*;
use crate::envelope::{Batch, Command, Effect, OutputId, Payload};
use crate::services::nudm::{UdmAnswer, UdmError};
use crate::services::remote_amf::{
    AmfAddress, AmfOperation, AmfRequest, N1N2Transfer, SmContextAnswer, SmContextCreation, SmContextUpdated,
    TransferAnswer,
};
use crate::state::{Modification, UpState};
use crate::ue_harness::{UeHarness, config, psi, subscription, supi};

const UPF: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 8);

/// A UE whose AMF is another vendor's, with the numbers of that AMF's requests.
struct Remote {
    harness: UeHarness,
    exchange: u64,
}

/// The outputs of one input: answers to the AMF, and requests to it.
#[derive(Debug, Default)]
struct Sent {
    answers: Vec<(u64, SmContextAnswer)>,
    requests: Vec<AmfRequest>,
}

impl Sent {
    fn of(batches: &[Batch]) -> Self {
        let mut sent = Self::default();
        for output in batches.iter().flat_map(|b| &b.outputs) {
            match &output.effect {
                Effect::SmContextAnswered(exchange, answer) => {
                    sent.answers.push((exchange.0, (**answer).clone()));
                }
                Effect::RemoteAmf(request) => sent.requests.push((**request).clone()),
                Effect::N2 { .. } | Effect::Page { .. } => panic!("the AMF has the gNBs"),
                _ => {}
            }
        }
        sent
    }

    /// The one answer.
    fn answer(&self) -> &SmContextAnswer {
        let [(_, answer)] = &self.answers[..] else { panic!("one answer is expected: {self:?}") };
        answer
    }

    fn updated(&self) -> &SmContextUpdated {
        let SmContextAnswer::Updated(updated) = self.answer() else { panic!("{self:?}") };
        updated
    }

    fn error(&self) -> SmContextError {
        let SmContextAnswer::Refused { error, .. } = self.answer() else { panic!("{self:?}") };
        *error
    }

    /// The one transfer.
    fn transfer(&self) -> &N1N2Transfer {
        let transfers = self.requests.iter().filter_map(|r| match &r.operation {
            AmfOperation::Transfer(transfer) => Some(&**transfer),
            AmfOperation::ContextReleased { .. } => None,
        });
        let [transfer] = transfers.collect::<Vec<_>>()[..] else {
            panic!("one transfer is expected: {self:?}")
        };
        transfer
    }

    /// The URIs to which the end of a session is notified.
    fn ends(&self) -> Vec<&str> {
        let ends = self.requests.iter().filter_map(|r| match &r.operation {
            AmfOperation::ContextReleased { uri } => Some(&**uri),
            AmfOperation::Transfer(_) => None,
        });
        ends.collect()
    }
}

fn n1(octets: Option<&Vec<u8>>) -> sm::Body {
    sm::Message::decode(octets.expect("a 5GSM message")).unwrap().body
}

fn establishment_request() -> Vec<u8> {
    let full = IntegrityDataRate::Full;
    let mut request = EstablishmentRequest::new(IntegrityMaxDataRate { uplink: full, downlink: full });
    request.pdu_session_type = Some(PduSessionType::Ipv4);
    sm::Message::new(psi(2), Pti(5), request).to_octets()
}

fn creation() -> SmContextCreation {
    SmContextCreation {
        supi: supi(),
        psi: psi(2),
        s_nssai: whimbrel_ids::SNssai::sst(1),
        dnn: Some("internet".parse().unwrap()),
        existing: false,
        n1: establishment_request(),
        tai: None,
        amf: AmfAddress { instance: None, root: "http://192.0.2.9:7777".into() },
        status_uri: "http://192.0.2.9:7777/status/2".into(),
    }
}

fn tunnel(teid: u32) -> UpTransportLayerInformation {
    let address = TransportLayerAddress::V4(Ipv4Addr::new(127, 0, 1, 1));
    UpTransportLayerInformation::GtpTunnel(GtpTunnel::new(address, Teid(teid)))
}

fn set_up_at_gnb(teid: u32) -> (N2SmKind, Vec<u8>) {
    let flows = vec![AssociatedQosFlowItem::new(Qfi::new(1).unwrap())];
    let information = QosFlowPerTnlInformation::new(tunnel(teid), flows);
    (N2SmKind::PduResSetupRsp, PduSessionResourceSetupResponseTransfer::new(information).to_vec())
}

impl Remote {
    fn new() -> Self {
        Self { harness: UeHarness::with(config()), exchange: 0 }
    }

    fn request(&mut self, operation: SmContextOperation) -> Batch {
        self.exchange += 1;
        let exchange = SmContextExchange(self.exchange);
        self.harness.input(Payload::SmContextRequested(SmContextRequest { exchange, operation }.into()))
    }

    /// A request whose N4 requests are answered.
    fn settled(&mut self, operation: SmContextOperation) -> Sent {
        let batch = self.request(operation);
        Sent::of(&self.harness.settle(batch))
    }

    fn update(&mut self, update: SmContextUpdate) -> Sent {
        let reference = self.reference();
        self.settled(SmContextOperation::Update(reference, update.into()))
    }

    fn n2(&mut self, n2: (N2SmKind, Vec<u8>)) -> Sent {
        self.update(SmContextUpdate { n2: Some(n2), ..SmContextUpdate::default() })
    }

    fn n1(&mut self, pti: u8, body: impl Into<sm::Body>) -> Sent {
        let n1 = sm::Message::new(psi(2), Pti(pti), body).to_octets();
        self.update(SmContextUpdate { n1: Some(n1), ..SmContextUpdate::default() })
    }

    fn user_plane(&mut self, state: UserPlaneState) -> Sent {
        self.update(SmContextUpdate { user_plane: Some(state), ..SmContextUpdate::default() })
    }

    fn step(&mut self, step: HandoverStep, n2: Option<(N2SmKind, Vec<u8>)>) -> Sent {
        self.update(SmContextUpdate { handover: Some(step), n2, ..SmContextUpdate::default() })
    }

    fn reference(&self) -> SmContextRef {
        self.harness.context().map_or(Seid(0), |p| p.sessions.get(&psi(2)).map_or(Seid(0), |s| s.cp_seid))
    }

    /// The UPF answers the establishment that a batch asks for.
    fn upf_establishes(&mut self, batch: &Batch) -> Sent {
        let index = batch.outputs.iter().position(|o| matches!(o.effect, Effect::N4 { .. })).unwrap();
        let to = OutputId { clock: self.harness.clock(), index: index as u16 };
        let node = std::net::IpAddr::V4(UPF).into();
        let mut answer = SessionEstablishmentResponse::new(node, PfcpCause::RequestAccepted);
        answer.up_f_seid = Some(FSeid { seid: Seid(77), ipv4: Some(UPF), ipv6: None });
        let ipv4 = Some(Choice::Given([10, 45, 0, 7].into()));
        answer.created_pdrs = vec![CreatedPdr {
            pdr_id: crate::smf::rules::UPLINK_PDR,
            local_f_teid: Some(FTeid::Given { teid: Teid(9), ipv4: Some(UPF), ipv6: None }),
            ue_ip_addresses: vec![UeIpAddress { destination: true, ipv4, ..UeIpAddress::default() }],
        }];
        let octets = whimbrel_pfcp::Message::from(answer).to_octets(Some(Seid(1)), 0);
        let upf = crate::upf::UpfId(0);
        let batch = self.harness.input(Payload::PfcpAnswer { to, upf, octets: Some(octets.into()) });
        Sent::of(&self.harness.settle(batch))
    }

    /// A session whose creation was answered; the UPF has not answered.
    fn created(&mut self) -> (Batch, Sent) {
        let batch = self.request(SmContextOperation::Create(creation().into()));
        assert!(Sent::of(std::slice::from_ref(&batch)).answers.is_empty(), "the UDM is asked first");
        assert!(batch.authenticated, "it is no UE that no AMF has authenticated");
        let batch = self.harness.udm(&batch, UdmAnswer::Registered(Ok(Arc::new(subscription()))));
        let sent = Sent::of(std::slice::from_ref(&batch));
        (batch, sent)
    }

    /// A session with a user plane.
    fn with_session() -> Self {
        let mut remote = Self::new();
        let (batch, _) = remote.created();
        remote.upf_establishes(&batch);
        remote.n2(set_up_at_gnb(70));
        assert_eq!(remote.up(), UpState::Active);
        remote
    }

    fn idle() -> Self {
        let mut remote = Self::with_session();
        remote.user_plane(UserPlaneState::Deactivated);
        remote
    }

    fn up(&self) -> UpState {
        self.harness.context().unwrap().sessions[&psi(2)].up
    }

    fn an_teid(&self) -> Option<u32> {
        self.harness.context().unwrap().sessions[&psi(2)].an.as_ref().map(|an| an.teid.0)
    }
}

#[test] // TS 29.502 §5.2.2.2.1, TS 23.502 §4.3.2.2.1 steps 3 to 16, TS 29.518 §5.2.2.3.1
fn a_session_is_created_before_its_accept_is_transferred() {
    let mut remote = Remote::new();
    let (batch, sent) = remote.created();
    let SmContextAnswer::Created { reference, psi: of, .. } = sent.answer() else { panic!("{sent:?}") };
    assert_eq!((*reference, *of), (remote.reference(), psi(2)));
    assert!(sent.requests.is_empty());

    let sent = remote.upf_establishes(&batch);
    assert!(sent.answers.is_empty(), "a request is answered once: {sent:?}");
    let transfer = sent.transfer();
    assert!(matches!(n1(transfer.n1.as_ref()), sm::Body::EstablishmentAccept(_)));
    let (kind, octets) = transfer.n2.as_ref().unwrap();
    assert_eq!(*kind, N2SmKind::PduResSetupReq);
    PduSessionResourceSetupRequestTransfer::decode(octets).unwrap();
    assert_eq!(sent.requests[0].supi, supi());

    let sent = remote.n2(set_up_at_gnb(70));
    assert_eq!(sent.updated().user_plane, Some(UserPlaneState::Activated));
    assert_eq!((remote.up(), remote.an_teid()), (UpState::Active, Some(70)));
    assert!(remote.harness.context().unwrap().is_idle());
}

#[test] // TS 29.502 §5.2.2.2.1 2b, TS 24.501 §6.4.1.4: the refusal has PDU SESSION ESTABLISHMENT REJECT
fn a_refused_session_is_answered_with_the_reject_and_leaves_nothing() {
    type CreationChange = fn(&mut SmContextCreation);
    let wrong: [(CreationChange, SmContextError); 3] = [
        (|c| c.dnn = Some("ims".parse().unwrap()), SmContextError::DnnDenied),
        (|c| c.s_nssai = whimbrel_ids::SNssai::sst(9), SmContextError::SNssaiDenied),
        (|c| c.n1 = vec![0x2e], SmContextError::N1SmError),
    ];
    for (change, error) in wrong {
        let mut remote = Remote::new();
        let mut creation = creation();
        change(&mut creation);
        let is_message = creation.n1.len() > 1;
        let batch = remote.request(SmContextOperation::Create(creation.into()));
        let batch = remote.harness.udm(&batch, UdmAnswer::Registered(Ok(Arc::new(subscription()))));
        let sent = Sent::of(&remote.harness.settle(batch.clone()));
        let SmContextAnswer::Refused { error: of, n1: reject, .. } = sent.answer() else {
            panic!("{sent:?}")
        };
        assert_eq!(*of, error);
        if is_message {
            assert!(matches!(n1(reject.as_ref()), sm::Body::EstablishmentReject(_)));
        }
        assert!(sent.requests.is_empty(), "the AMF knows of no session that could end: {sent:?}");
        assert_eq!(batch.disposition, Disposition::Ended);
    }
}

#[test] // TS 29.502 §5.2.2.2.1 2b
fn an_unknown_subscriber_is_denied() {
    let mut remote = Remote::new();
    let batch = remote.request(SmContextOperation::Create(creation().into()));
    let batch = remote.harness.udm(&batch, UdmAnswer::Registered(Err(UdmError::UserNotFound)));
    assert_eq!(Sent::of(&[batch]).error(), SmContextError::SubscriptionDenied);
}

#[test] // TS 29.502 §5.2.2.2.1: a session with the identity of another one replaces it
fn a_session_with_the_same_identity_replaces_the_former_one_without_a_notification() {
    let mut remote = Remote::with_session();
    let former = remote.reference();
    let batch = remote.request(SmContextOperation::Create(creation().into()));
    let batches = remote.harness.settle(batch);
    let sent = Sent::of(&batches);
    assert!(matches!(sent.answer(), SmContextAnswer::Created { .. }));
    assert!(sent.ends().is_empty() && remote.reference() != former);
    let sent = remote.settled(SmContextOperation::Release(former));
    assert_eq!(sent.error(), SmContextError::ContextNotFound);
}

#[test] // TS 23.502 §4.2.6 steps 5 to 7, §4.2.3.2 steps 4 to 14, TS 29.502 §5.2.2.3.2
fn a_user_plane_is_deactivated_and_activated_again() {
    let mut remote = Remote::with_session();
    let sent = remote.user_plane(UserPlaneState::Deactivated);
    assert_eq!(sent.updated().user_plane, Some(UserPlaneState::Deactivated));
    assert_eq!(remote.up(), UpState::Inactive);

    let sent = remote.user_plane(UserPlaneState::Activating);
    let updated = sent.updated();
    assert_eq!(updated.user_plane, Some(UserPlaneState::Activating));
    assert_eq!(updated.n2.as_ref().unwrap().0, N2SmKind::PduResSetupReq);
    assert!(sent.requests.is_empty(), "the answer has it: {sent:?}");
    let sent = remote.n2(set_up_at_gnb(71));
    assert_eq!(sent.updated().user_plane, Some(UserPlaneState::Activated));
    assert_eq!((remote.up(), remote.an_teid()), (UpState::Active, Some(71)));
}

#[test] // TS 29.502 §5.2.2.3.2: the gNB has no resources
fn a_setup_that_the_gnb_refuses_leaves_the_user_plane_deactivated() {
    let mut remote = Remote::idle();
    remote.user_plane(UserPlaneState::Activating);
    let cause = CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell.into();
    let transfer = PduSessionResourceSetupUnsuccessfulTransfer::new(cause).to_vec();
    let sent = remote.n2((N2SmKind::PduResSetupFail, transfer));
    assert_eq!(sent.updated().user_plane, Some(UserPlaneState::Deactivated));
    assert_eq!(remote.up(), UpState::Inactive);
}

/// A packet for the UE waits at the UPF.
fn downlink_data(remote: &mut Remote) -> Sent {
    use whimbrel_pfcp::ie::ReportType;
    use whimbrel_pfcp::msg::{DownlinkDataReport, SessionReportRequest};
    let mut report = SessionReportRequest::new(ReportType::DLDR);
    report.downlink_data_report = Some(DownlinkDataReport {
        pdr_ids: Vec::new(),
        downlink_data_service_information: Vec::new(),
        dl_data_packets_size: None,
        data_status: None,
    });
    let octets = whimbrel_pfcp::Message::from(report).to_octets(Some(remote.reference()), 9);
    let upf = crate::upf::UpfId(0);
    let batch = remote.harness.input(Payload::PfcpReport { upf, psi: 2, octets: octets.into() });
    Sent::of(&remote.harness.settle(batch))
}

#[test] // TS 23.502 §4.2.3.3 steps 2 to 4, TS 29.518 §5.2.2.3.1: the AMF pages
fn downlink_data_have_the_setup_request_transferred() {
    let mut remote = Remote::idle();
    let sent = downlink_data(&mut remote);
    let transfer = sent.transfer();
    assert_eq!((transfer.n1.as_ref(), transfer.n2.as_ref().unwrap().0), (None, N2SmKind::PduResSetupReq));
    assert_eq!(transfer.reference, remote.reference());
    // The AMF activates the session in the service request that follows.
    let sent = remote.user_plane(UserPlaneState::Activating);
    assert_eq!(sent.updated().n2.as_ref().unwrap().0, N2SmKind::PduResSetupReq);
    remote.n2(set_up_at_gnb(72));
    assert_eq!(remote.an_teid(), Some(72));
}

#[test] // TS 29.518 §5.2.2.3.2, TS 23.502 §4.2.3.3 step 5: packets are discarded, and the next one is reported
fn a_ue_that_is_not_reached_is_tried_again_with_its_next_packet() {
    let mut remote = Remote::idle();
    downlink_data(&mut remote);
    let reference = remote.reference();
    let sent = remote.settled(SmContextOperation::TransferFailed(reference));
    assert_eq!(*sent.updated(), SmContextUpdated::default());
    assert!(remote.harness.context().unwrap().is_idle());
    downlink_data(&mut remote).transfer();
    // The AMF refuses at once.
    let answer = TransferAnswer { psi: psi(2), set_up: true, outcome: TransferOutcome::NotReachable };
    let batch = remote.harness.input(Payload::TransferAnswered(answer));
    remote.harness.settle(batch);
    assert!(remote.harness.context().unwrap().is_idle());
    downlink_data(&mut remote).transfer();
}

#[test] // TS 23.502 §4.3.4.2 steps 1a to 11, TS 29.502 §5.2.2.3.1, §5.2.2.5
fn a_release_by_the_ue_is_answered_with_the_command_and_notified_at_its_end() {
    let mut remote = Remote::with_session();
    let sent = remote.n1(7, sm::ReleaseRequest::new());
    let updated = sent.updated();
    assert!(matches!(n1(updated.n1.as_ref()), sm::Body::ReleaseCommand(_)));
    assert_eq!(updated.n2.as_ref().unwrap().0, N2SmKind::PduResRelCmd);
    let sent = remote.n2((N2SmKind::PduResRelRsp, vec![0]));
    assert!(sent.ends().is_empty());
    let reference = remote.reference();
    let complete = sm::Message::new(psi(2), Pti(7), sm::ReleaseComplete::new()).to_octets();
    let update = SmContextUpdate { n1: Some(complete), ..SmContextUpdate::default() };
    let batch = remote.request(SmContextOperation::Update(reference, update.into()));
    let sent = Sent::of(std::slice::from_ref(&batch));
    assert_eq!(*sent.updated(), SmContextUpdated::default());
    assert_eq!(sent.ends(), ["http://192.0.2.9:7777/status/2"]);
    assert_eq!(batch.disposition, Disposition::Ended);
}

#[test] // TS 23.502 §4.3.4.2 step 1e, TS 29.518 §5.2.2.3.1
fn a_release_by_the_network_is_transferred() {
    let mut remote = Remote::with_session();
    let order = Command::ModifySession(psi(2), Modification::Release);
    let batch = remote.harness.input(Payload::Command(order));
    let sent = Sent::of(&remote.harness.settle(batch));
    let transfer = sent.transfer();
    assert!(matches!(n1(transfer.n1.as_ref()), sm::Body::ReleaseCommand(_)));
    assert_eq!(transfer.n2.as_ref().unwrap().0, N2SmKind::PduResRelCmd);
    let sent = remote.n1(0, sm::ReleaseComplete::new());
    assert_eq!(sent.ends().len(), 1);
}

#[test] // TS 29.502 §5.2.2.4: the AMF knows that the session has ended
fn a_release_by_the_amf_is_not_notified() {
    let mut remote = Remote::with_session();
    let reference = remote.reference();
    let batch = remote.request(SmContextOperation::Release(reference));
    let sent = Sent::of(std::slice::from_ref(&batch));
    assert_eq!(*sent.updated(), SmContextUpdated::default());
    assert!(sent.requests.is_empty());
    assert_eq!(batch.disposition, Disposition::Ended);
    assert!(batch.outputs.iter().any(|o| matches!(o.effect, Effect::N4 { .. })), "the UPF deletes it");
}

#[test] // TS 29.502 §5.2.2.3.3, TS 23.502 §4.9.1.2.2
fn a_path_is_switched_to_the_target() {
    let mut remote = Remote::with_session();
    let flows = vec![whimbrel_ngap::ie::QosFlowAcceptedItem::new(Qfi::new(1).unwrap())];
    let transfer = PathSwitchRequestTransfer::new(tunnel(80), flows).to_vec();
    let sent = remote.n2((N2SmKind::PathSwitchReq, transfer));
    let (kind, octets) = sent.updated().n2.as_ref().unwrap();
    assert_eq!(*kind, N2SmKind::PathSwitchReqAck);
    PathSwitchRequestAcknowledgeTransfer::decode(octets).unwrap();
    assert_eq!(remote.an_teid(), Some(80));
}

#[test] // TS 29.502 §5.2.2.3.3: the refusal has PATH_SWITCH_REQ_FAIL, and the path stays
fn a_path_switch_that_cannot_be_read_is_refused() {
    let mut remote = Remote::with_session();
    let sent = remote.n2((N2SmKind::PathSwitchReq, vec![0xff; 3]));
    let SmContextAnswer::Refused { error, n2, .. } = sent.answer() else { panic!("{sent:?}") };
    assert_eq!(*error, SmContextError::N2SmError);
    assert_eq!(n2.as_ref().unwrap().0, N2SmKind::PathSwitchReqFail);
    assert_eq!((remote.up(), remote.an_teid()), (UpState::Active, Some(70)));
}

fn required() -> Option<(N2SmKind, Vec<u8>)> {
    Some((N2SmKind::HandoverRequired, HandoverRequiredTransfer::new().to_vec()))
}

fn acknowledged(teid: u32) -> Option<(N2SmKind, Vec<u8>)> {
    let flows = vec![whimbrel_ngap::ie::QosFlowItemWithDataForwarding::new(Qfi::new(1).unwrap())];
    let transfer = HandoverRequestAcknowledgeTransfer::new(tunnel(teid), flows);
    Some((N2SmKind::HandoverReqAck, transfer.to_vec()))
}

#[test] // TS 29.502 §5.2.2.3.4, TS 23.502 §4.9.1.3.2 steps 4 to 11, §4.9.1.3.3 steps 7 to 15
fn a_session_is_handed_over() {
    let mut remote = Remote::with_session();
    let sent = remote.step(HandoverStep::Preparing, required());
    assert_eq!(sent.updated().handover, Some(HandoverStep::Preparing));
    assert_eq!(sent.updated().n2.as_ref().unwrap().0, N2SmKind::PduResSetupReq);
    let sent = remote.step(HandoverStep::Prepared, acknowledged(90));
    assert_eq!(sent.updated().handover, Some(HandoverStep::Prepared));
    let (kind, octets) = sent.updated().n2.as_ref().unwrap();
    assert_eq!(*kind, N2SmKind::HandoverCmd);
    HandoverCommandTransfer::decode(octets).unwrap();
    assert_eq!(remote.an_teid(), Some(70), "the UE is at its source");
    let sent = remote.step(HandoverStep::Completed, None);
    assert_eq!(sent.updated().handover, Some(HandoverStep::Completed));
    assert_eq!(remote.an_teid(), Some(90));
}

#[test] // TS 29.502 §5.2.2.3.4.4
fn a_cancelled_handover_leaves_the_session_at_its_source() {
    let mut remote = Remote::with_session();
    remote.step(HandoverStep::Preparing, required());
    remote.step(HandoverStep::Prepared, acknowledged(90));
    let sent = remote.step(HandoverStep::Cancelled, None);
    assert_eq!(sent.updated().handover, Some(HandoverStep::Cancelled));
    assert_eq!((remote.up(), remote.an_teid()), (UpState::Active, Some(70)));
    assert!(remote.harness.context().unwrap().is_idle());
    // Steps of a handover that is over.
    assert_eq!(remote.step(HandoverStep::Completed, None).error(), SmContextError::N2SmError);
    assert_eq!(remote.step(HandoverStep::Prepared, acknowledged(91)).error(), SmContextError::N2SmError);
}

#[test] // TS 29.502 §6.1.6.3.15: what a gNB does not send
fn n2_information_of_the_wrong_kind_is_refused() {
    let mut remote = Remote::with_session();
    for kind in [N2SmKind::PduResSetupReq, N2SmKind::HandoverCmd, N2SmKind::PathSwitchReqAck] {
        assert_eq!(remote.n2((kind, Vec::new())).error(), SmContextError::N2SmError, "{kind:?}");
    }
    assert_eq!(remote.n2((N2SmKind::PduResSetupRsp, vec![0xff])).error(), SmContextError::N2SmError);
    assert_eq!(remote.step(HandoverStep::Preparing, None).error(), SmContextError::N2SmError);
    assert_eq!(remote.up(), UpState::Active);
}

#[test] // TS 29.502 Table 6.1.7.3-1
fn an_unknown_context_is_not_found() {
    let mut remote = Remote::with_session();
    let other = Seid(remote.reference().0 ^ 1 << 48);
    for operation in [
        SmContextOperation::Update(other, Box::default()),
        SmContextOperation::Release(other),
        SmContextOperation::TransferFailed(other),
    ] {
        assert_eq!(remote.settled(operation).error(), SmContextError::ContextNotFound);
    }
    assert_eq!(remote.up(), UpState::Active);
}

#[test] // TS 29.518 §5.2.2.3.1: 404
fn a_session_that_the_amf_does_not_have_ends() {
    let mut remote = Remote::with_session();
    let answer = TransferAnswer { psi: psi(2), set_up: false, outcome: TransferOutcome::UeUnknown };
    let batch = remote.harness.input(Payload::TransferAnswered(answer));
    assert_eq!(batch.disposition, Disposition::Ended);
}

#[test] // TS 29.502 §5.2.2.5: the AMF learns that a session it knows was refused
fn a_session_that_fails_at_the_gnb_is_rejected_and_notified() {
    let mut remote = Remote::new();
    let (batch, _) = remote.created();
    remote.upf_establishes(&batch);
    let cause = CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell.into();
    let transfer = PduSessionResourceSetupUnsuccessfulTransfer::new(cause).to_vec();
    let sent = remote.n2((N2SmKind::PduResSetupFail, transfer));
    assert!(matches!(n1(sent.transfer().n1.as_ref()), sm::Body::EstablishmentReject(_)));
    assert_eq!(sent.ends().len(), 1);
    sent.updated();
}

#[test] // TS 23.502 §4.3.3.2: the answer to the UE's message has what answers it
fn a_modification_by_the_ue_is_answered_in_the_answer_to_its_message() {
    let mut remote = Remote::with_session();
    let sent = remote.n1(8, sm::ModificationRequest::new());
    assert!(matches!(n1(sent.updated().n1.as_ref()), sm::Body::ModificationCommand(_)));
    assert!(sent.requests.is_empty());
    let sent = remote.n1(8, sm::ModificationComplete::new());
    assert_eq!(*sent.updated(), SmContextUpdated::default());
    assert!(remote.harness.context().unwrap().is_idle());
}

#[test] // ARCHITECTURE.md, "A takeover": a replay gives the same outputs under the same names
fn a_request_is_answered_once_where_another_cpf_runs_the_log_again() {
    let run = || {
        let mut remote = Remote::new();
        let (batch, _) = remote.created();
        let index = batch.outputs.iter().position(|o| matches!(o.effect, Effect::SmContextAnswered(..)));
        (index, batch.digest())
    };
    let first = run();
    assert_eq!(first, run());
    assert!(first.0.is_some());
}
