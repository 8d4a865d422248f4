//! The AMF's UE: 5GMM and NGAP (TS 24.501 §5.1.3.2.3, TS 38.413 §8.3), each state against each input.

use std::net::Ipv4Addr;

use whimbrel_ids::{
    AmfUeNgapId, GlobalGnbId, NrCellId, PlmnId, Qfi, RanUeNgapId, SNssai, STmsi, Tac, Tai, Teid, Tmsi,
};
use whimbrel_nas::ie::{
    Accesses, DeregistrationType, MmCause, MobileIdentity, NasMessageContainer, NgKsi, PayloadContainer,
    PayloadContainerType, RegistrationKind, RegistrationResult, ResStar, RoutingIndicator, ServiceType, Suci,
};
use whimbrel_nas::mm::{self, UlNasTransport};
use whimbrel_nas::sm::{self, Pti};
use whimbrel_ngap::ie::{
    Cause, CauseRadioNetwork, GlobalRanNodeId, GtpTunnel, HandoverType, NrCgi, PduSessionResourceItem,
    QosFlowAcceptedItem, QosFlowItemWithDataForwarding, TargetId, TargetRanNodeId, TransportLayerAddress,
    UpTransportLayerInformation, UserLocationInformation, UserLocationInformationNr,
};
use whimbrel_ngap::msg::*;
use whimbrel_ngap::transfer::{
    HandoverRequestAcknowledgeTransfer, HandoverRequiredTransfer, PathSwitchRequestTransfer,
};
use whimbrel_security::{
    Abba, AuthenticationManagementField, AuthenticationVector, K, Milenage, NasCounts, Opc, Rand,
    SecurityHeaderType, ServingNetworkName, Sqn,
};
use whimbrel_state_tables::{Outcome, StateTable, assert_page};

use super::{reported, sent, udm_name, variant, words};
use crate::envelope::{AssociationId, Batch, Command, Effect, HandoverTarget, Locate, OutputId, Payload};
use crate::procedure::{Lane, Procedure};
use crate::services::nudm::{AuthData, UdmAnswer, UdmError, UdmRequest, Vector};
use crate::state::{Phase, UeContext};
use crate::ue_harness::{
    CIPHERED, INTEGRITY, RAN_ID, UeHarness, psi, registration_request, subscription, supi,
};

const TMSI: Tmsi = Tmsi(0x1234);
/// The gNB to which the UE is handed over, and its identifier of the UE.
const TARGET: AssociationId = AssociationId(5);
const TARGET_RAN_ID: RanUeNgapId = RanUeNgapId(7);

/// A UE in some state, with the output of its last input.
pub(super) struct DrivenUe {
    pub(super) harness: UeHarness,
    pub(super) last: Batch,
    /// The last question to the UDM.
    asked: &'static str,
}

/// The states that are driven. A registration goes through the first seven in their order.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(super) enum UeStage {
    Unknown,
    Identification,
    Vector,
    Authentication,
    SecurityMode,
    Subscription,
    Accept,
    Registered,
    ServiceRequest,
    ConfigurationUpdate,
    Reauthentication,
    NewKeys,
    HandoverPreparation,
    HandoverExecution,
    DeregistrationByNetwork,
    Release,
    Idle,
    Paging,
    Deregistered,
}

const STAGES: [UeStage; 19] = [
    UeStage::Unknown,
    UeStage::Identification,
    UeStage::Vector,
    UeStage::Authentication,
    UeStage::SecurityMode,
    UeStage::Subscription,
    UeStage::Accept,
    UeStage::Registered,
    UeStage::ServiceRequest,
    UeStage::ConfigurationUpdate,
    UeStage::Reauthentication,
    UeStage::NewKeys,
    UeStage::HandoverPreparation,
    UeStage::HandoverExecution,
    UeStage::DeregistrationByNetwork,
    UeStage::Release,
    UeStage::Idle,
    UeStage::Paging,
    UeStage::Deregistered,
];

pub(super) type UeInput = fn(&mut DrivenUe) -> Vec<Batch>;

fn vector() -> AuthenticationVector {
    AuthenticationVector::generate(
        &Milenage::new(&K::new([1; 16]), Opc::new([2; 16])).into(),
        Rand([3; 16]),
        Sqn::new(77, 0),
        AuthenticationManagementField::FIVE_G,
        &ServingNetworkName::new(PlmnId::TEST),
    )
}

fn tunnel() -> UpTransportLayerInformation {
    let address = TransportLayerAddress::V4(Ipv4Addr::new(127, 0, 1, 2));
    UpTransportLayerInformation::GtpTunnel(GtpTunnel::new(address, Teid(77)))
}

fn failure() -> Cause {
    CauseRadioNetwork::RadioConnectionWithUeLost.into()
}

fn tai() -> Tai {
    Tai { plmn: PlmnId::TEST, tac: Tac::new(1).unwrap() }
}

fn location() -> UserLocationInformation {
    let cell = NrCgi::new(PlmnId::TEST, NrCellId::new(2).unwrap());
    UserLocationInformation::UserLocationInformationNr(UserLocationInformationNr::new(cell, tai()))
}

fn target_id() -> AmfUeNgapId {
    AmfUeNgapId::new(4 + (9 << 24)).unwrap()
}

impl DrivenUe {
    pub(super) fn at(stage: UeStage) -> Self {
        let harness = match stage {
            UeStage::Reauthentication | UeStage::NewKeys => {
                UeHarness::registered_at(NasCounts { uplink_next: (1 << 24) - 1000, downlink_next: 6 })
            }
            stage if stage <= UeStage::Accept => UeHarness::unknown(),
            _ => UeHarness::registered(),
        };
        let mut ue = Self { harness, last: Batch::default(), asked: "" };
        if stage >= UeStage::Registered && !matches!(stage, UeStage::Reauthentication | UeStage::NewKeys) {
            ue.come_back();
        }
        match stage {
            UeStage::Unknown | UeStage::Registered => {}
            stage if stage <= UeStage::Accept => ue.register_as_far_as(stage),
            UeStage::ServiceRequest => {
                let pdu = ue.harness.protect(INTEGRITY, service_request(ServiceType::Signalling));
                let batch = ue.harness.first(pdu, Some(TMSI));
                ue.take(batch);
            }
            UeStage::ConfigurationUpdate => {
                ue.nas(service_request(ServiceType::MobileTerminatedServices));
            }
            UeStage::Reauthentication | UeStage::NewKeys => {
                ue.nas(mm::MmStatus::new(MmCause::ProtocolErrorUnspecified));
                ue.vector();
                if stage == UeStage::NewKeys {
                    ue.nas(response(true));
                }
            }
            UeStage::HandoverPreparation => drop(ue.handover_required()),
            UeStage::HandoverExecution => {
                ue.handover_required();
                ue.acknowledge();
            }
            UeStage::DeregistrationByNetwork => drop(ue.command(Command::Deregister)),
            UeStage::Release => drop(ue.release_request()),
            UeStage::Idle | UeStage::Paging => {
                ue.release_request();
                ue.release_complete();
                if stage == UeStage::Paging {
                    ue.command(Command::Locate(Locate::Now));
                }
            }
            _ => drop(ue.nas(deregistration(false))),
        }
        ue
    }

    fn register_as_far_as(&mut self, stage: UeStage) {
        let steps: [UeInput; 6] = [
            |ue| ue.nas(registration_request(RegistrationKind::Initial)),
            |ue| ue.nas(identity()),
            DrivenUe::vector,
            |ue| ue.nas(response(true)),
            |ue| ue.nas(security_mode_complete()),
            DrivenUe::subscription,
        ];
        for step in &steps[..stage as usize] {
            step(self);
        }
    }

    /// A registered UE gets a UE context at its gNB, with the keys that a handover needs, and a user plane.
    fn come_back(&mut self) {
        let mut request = service_request(ServiceType::Data);
        request.uplink_data_status = Some([psi(1)].into_iter().collect());
        let pdu = self.harness.protect(INTEGRITY, request);
        let batch = self.harness.first(pdu, Some(TMSI));
        self.take(batch);
        let mut m = InitialContextSetupResponse::new(self.harness.connection(), RAN_ID);
        m.pdu_session_resource_setup_list_cxt_res = super::smf_session::set_up();
        self.ngap(m);
    }

    /// The UPF accepts what it is asked for at once, and the outputs of all that are returned.
    fn take(&mut self, batch: Batch) -> Vec<Batch> {
        let batches = self.harness.settle(batch);
        self.last = batches.last().unwrap().clone();
        for output in batches.iter().flat_map(|b| &b.outputs) {
            match &output.effect {
                Effect::Udm(UdmRequest::Deregister(_)) => {}
                Effect::Udm(request) => self.asked = udm_name(request),
                _ => {}
            }
        }
        batches
    }

    /// A NAS message, protected as a UE in this state does: under the proposed keys, those in force, or not.
    pub(super) fn nas(&mut self, message: impl Into<mm::Message>) -> Vec<Batch> {
        let message = message.into();
        let context = self.harness.context();
        let is_connected = context.is_some_and(|ue| ue.amf.connection.is_some());
        let has_keys = context.is_some_and(|ue| ue.amf.security.current.is_some());
        let is_proposed = context.is_some_and(|ue| ue.amf.security.proposed.is_some());
        if is_proposed && matches!(message, mm::Message::SecurityModeComplete(_)) {
            self.harness.renew(&vector().k_seaf.k_amf(supi(), Abba::RELEASE_15));
            let header = SecurityHeaderType::IntegrityProtectedAndCipheredWithNewContext;
            let batch = self.harness.nas(header, message);
            return self.take(batch);
        }
        let begins = matches!(
            message,
            mm::Message::RegistrationRequest(_)
                | mm::Message::ServiceRequest(_)
                | mm::Message::DeregistrationRequestUeOriginating(_)
        );
        let batch = match (is_connected, has_keys) {
            (true, true) => self.harness.nas(CIPHERED, message),
            (true, false) => self.harness.nas_plain(message),
            (false, true) => {
                let pdu = self.harness.protect(if begins { INTEGRITY } else { CIPHERED }, message);
                self.harness.first(pdu, Some(TMSI))
            }
            (false, false) => self.harness.first_plain(message),
        };
        self.take(batch)
    }

    pub(super) fn ngap(&mut self, message: impl Into<whimbrel_ngap::Message>) -> Vec<Batch> {
        self.ngap_from(self.harness.association(), message)
    }

    fn ngap_from(
        &mut self,
        association: AssociationId,
        message: impl Into<whimbrel_ngap::Message>,
    ) -> Vec<Batch> {
        let mut octets = Vec::new();
        message.into().encode(&mut octets);
        self.input(Payload::Ngap { association, octets: octets.into() })
    }

    pub(super) fn input(&mut self, payload: Payload) -> Vec<Batch> {
        let batch = self.harness.input(payload);
        self.take(batch)
    }

    pub(super) fn command(&mut self, command: Command) -> Vec<Batch> {
        self.input(Payload::Command(command))
    }

    /// The UDM's answer to the request of the last input, or to one that no procedure awaits.
    fn answer(&mut self, answer: UdmAnswer) -> Vec<Batch> {
        let asks = |e: &Effect| matches!(e, Effect::Udm(r) if !matches!(r, UdmRequest::Deregister(_)));
        let batch = match self.last.outputs.iter().any(|o| asks(&o.effect)) {
            true => self.harness.udm(&self.last.clone(), answer),
            false => self.harness.input(Payload::Udm { to: OutputId { clock: 0, index: 0 }, answer }),
        };
        self.take(batch)
    }

    fn vector(&mut self) -> Vec<Batch> {
        let vector = Vector::FiveGAka(Box::new(vector()));
        self.answer(UdmAnswer::AuthData(Ok(AuthData { supi: supi(), vector })))
    }

    fn subscription(&mut self) -> Vec<Batch> {
        self.answer(UdmAnswer::Registered(Ok(subscription().into())))
    }

    pub(super) fn release_request(&mut self) -> Vec<Batch> {
        self.ngap(UeContextReleaseRequest::new(self.harness.connection(), RAN_ID, failure()))
    }

    pub(super) fn release_complete(&mut self) -> Vec<Batch> {
        self.ngap(UeContextReleaseComplete::new(self.harness.connection(), RAN_ID))
    }

    fn handover_required(&mut self) -> Vec<Batch> {
        let gnb = GlobalGnbId::new(PlmnId::TEST, 2, 22).unwrap();
        let to = TargetRanNodeId::new(GlobalRanNodeId::GlobalGnbId(gnb), tai());
        let m = HandoverRequired::new(
            self.harness.connection(),
            RAN_ID,
            HandoverType::Intra5gs,
            CauseRadioNetwork::HandoverDesirableForRadioReason.into(),
            TargetId::TargetRanNodeId(to),
            vec![PduSessionResourceItem::new(psi(1), HandoverRequiredTransfer::new().to_vec())],
            vec![1, 2, 3, 4],
        );
        let mut octets = Vec::new();
        whimbrel_ngap::Message::from(m).encode(&mut octets);
        let target = HandoverTarget {
            association: TARGET,
            amf_ue_ngap_id: target_id(),
            tacs: vec![tai().tac],
            slices: vec![SNssai::sst(1)],
        };
        let association = self.harness.association();
        self.input(Payload::HandoverRequired { association, octets: octets.into(), target: Some(target) })
    }

    fn acknowledge(&mut self) -> Vec<Batch> {
        let flow = QosFlowItemWithDataForwarding::new(Qfi::new(1).unwrap());
        let transfer = HandoverRequestAcknowledgeTransfer::new(tunnel(), vec![flow]).to_vec();
        let mut m = HandoverRequestAcknowledge::new(target_id(), TARGET_RAN_ID, vec![9, 8, 7]);
        m.pdu_session_resource_admitted_list = vec![PduSessionResourceItem::new(psi(1), transfer)];
        self.ngap_from(TARGET, m)
    }

    pub(super) fn expire(&mut self) -> Vec<Batch> {
        if self.last.next_deadline.is_none() {
            return Vec::new();
        }
        let batch = self.harness.expire(&self.last.clone());
        self.take(batch)
    }

    /// Timers expire until the state changes, as long as there are any.
    fn stay_silent(&mut self) -> Vec<Batch> {
        let (before, mut all) = (self.state(), Vec::new());
        for _ in 0..20 {
            let batches = self.expire();
            if batches.is_empty() || self.state() != before {
                all.extend(batches);
                break;
            }
            all.extend(batches);
        }
        all
    }

    fn state(&self) -> String {
        self.harness.context().map_or("no context".into(), |context| state(context, self.asked))
    }
}

/// The state of 5GMM, the connection, and the message whose answer is awaited. `asked`: the last question to the UDM.
fn state(ue: &UeContext, asked: &str) -> String {
    let registered = if ue.amf.registered { "REGISTERED" } else { "DEREGISTERED" };
    let connection = match ue.amf.connection.as_deref() {
        None => "idle",
        Some(c) if c.releasing => "releasing",
        Some(_) => "connected",
    };
    let timer = ue.lanes.timers().find(|(lane, ..)| *lane == Lane::Mobility).map(|(_, name, _)| name);
    let procedure = ue.lanes.procedure(Lane::Mobility);
    let awaits_gnb = ue.amf.connection.as_ref().is_some_and(|c| c.context_pending);
    let step: Option<String> = procedure.map(|procedure| match (procedure, timer) {
        (_, Some("T3513")) => "PAGING sent (T3513)".into(),
        (_, Some("T3522")) => "DEREGISTRATION REQUEST sent (T3522)".into(),
        (_, Some("T3550")) => "REGISTRATION ACCEPT sent (T3550)".into(),
        (_, Some("T3555")) => "CONFIGURATION UPDATE COMMAND sent (T3555)".into(),
        (_, Some("T3560")) if ue.amf.security.proposed.is_some() => {
            "SECURITY MODE COMMAND sent (T3560)".into()
        }
        (_, Some("T3560")) => "AUTHENTICATION REQUEST sent (T3560)".into(),
        (_, Some("T3570")) => "IDENTITY REQUEST sent (T3570)".into(),
        (Procedure::Registration | Procedure::ServiceRequest, _) if awaits_gnb => {
            "INITIAL CONTEXT SETUP REQUEST sent".into()
        }
        (Procedure::Registration | Procedure::Authentication | Procedure::SubscriptionChange, _) => {
            format!("UDM asked for {asked}")
        }
        (Procedure::AnRelease, _) => "UE CONTEXT RELEASE COMMAND sent".into(),
        (other, _) => words(&variant(&other)),
    });
    let handover = ue.amf.mobility.target.as_ref().map(|target| match target.by.phase() {
        Some(Phase::Waiting | Phase::Preparing) => "HANDOVER REQUEST sent".to_owned(),
        Some(Phase::Executing) => "HANDOVER COMMAND sent".to_owned(),
        None => "path switch".to_owned(),
    });
    let steps: Vec<String> = step.into_iter().chain(handover).collect();
    let awaited = if steps.is_empty() { String::new() } else { format!(": {}", steps.join(", ")) };
    format!("{registered}, {connection}{awaited}")
}

fn deregistration(switch_off: bool) -> mm::DeregistrationRequestUeOriginating {
    let kind =
        DeregistrationType { switch_off, re_registration_required: false, accesses: Accesses::ThreeGpp };
    let guti = registration_request(RegistrationKind::Initial).mobile_identity;
    mm::DeregistrationRequestUeOriginating::new(kind, NgKsi::native(0).unwrap(), guti)
}

pub(super) fn service_request(service_type: ServiceType) -> mm::ServiceRequest {
    let identity = MobileIdentity::STmsi(STmsi { set: 1, pointer: 0, tmsi: TMSI });
    mm::ServiceRequest::new(NgKsi::native(0).unwrap(), service_type, identity)
}

fn identity() -> mm::IdentityResponse {
    let suci = Suci::null(supi(), PlmnId::TEST, RoutingIndicator::NONE).unwrap();
    mm::IdentityResponse::new(MobileIdentity::Suci(suci))
}

fn response(is_right: bool) -> mm::AuthenticationResponse {
    let mut m = mm::AuthenticationResponse::new();
    let right = *vector().xres_star.octets();
    m.res_star = Some(ResStar(if is_right { right } else { [0; 16] }));
    m
}

fn security_mode_complete() -> mm::SecurityModeComplete {
    let request = mm::Message::from(registration_request(RegistrationKind::Initial)).to_octets();
    let mut m = mm::SecurityModeComplete::new();
    m.nas_message_container = NasMessageContainer::new(request);
    m
}

fn transport(kind: PayloadContainerType, octets: Vec<u8>) -> UlNasTransport {
    let mut m = UlNasTransport::new(kind, PayloadContainer::new(octets).unwrap());
    m.pdu_session_id = (kind == PayloadContainerType::N1_SM_INFORMATION).then(|| psi(1));
    m
}

const OF_REGISTRATION: [(&str, UeInput); 8] = [
    ("REGISTRATION REQUEST, initial", |ue| ue.nas(registration_request(RegistrationKind::Initial))),
    ("REGISTRATION REQUEST, mobility", |ue| ue.nas(registration_request(RegistrationKind::MobilityUpdating))),
    ("REGISTRATION COMPLETE", |ue| ue.nas(mm::RegistrationComplete::new())),
    ("SERVICE REQUEST", |ue| ue.nas(service_request(ServiceType::Signalling))),
    ("DEREGISTRATION REQUEST", |ue| ue.nas(deregistration(false))),
    ("DEREGISTRATION REQUEST, switch off", |ue| ue.nas(deregistration(true))),
    ("DEREGISTRATION ACCEPT", |ue| ue.nas(mm::DeregistrationAcceptUeTerminated {})),
    ("CONFIGURATION UPDATE COMPLETE", |ue| ue.nas(mm::ConfigurationUpdateComplete {})),
];

const OF_COMMON_PROCEDURES: [(&str, UeInput); 8] = [
    ("IDENTITY RESPONSE", |ue| ue.nas(identity())),
    ("AUTHENTICATION RESPONSE, right", |ue| ue.nas(response(true))),
    ("AUTHENTICATION RESPONSE, wrong", |ue| ue.nas(response(false))),
    ("AUTHENTICATION FAILURE #20", |ue| ue.nas(mm::AuthenticationFailure::new(MmCause::MacFailure))),
    ("AUTHENTICATION FAILURE #71", |ue| ue.nas(mm::AuthenticationFailure::new(MmCause::NgKsiAlreadyInUse))),
    ("SECURITY MODE COMPLETE", |ue| ue.nas(security_mode_complete())),
    ("SECURITY MODE REJECT #23", |ue| {
        ue.nas(mm::SecurityModeReject::new(MmCause::UeSecurityCapabilitiesMismatch))
    }),
    ("SECURITY MODE COMPLETE without protection", |ue| {
        let batch = ue.harness.nas_plain(security_mode_complete());
        ue.take(batch)
    }),
];

const OTHER_NAS: [(&str, UeInput); 6] = [
    ("UL NAS TRANSPORT, PDU SESSION RELEASE REQUEST", |ue| {
        let octets = sm::Message::new(psi(1), Pti(7), sm::ReleaseRequest::new()).to_octets();
        ue.nas(transport(PayloadContainerType::N1_SM_INFORMATION, octets))
    }),
    ("UL NAS TRANSPORT, SMS", |ue| ue.nas(transport(PayloadContainerType::SMS, vec![1, 2, 3]))),
    ("5GMM STATUS", |ue| ue.nas(mm::MmStatus::new(MmCause::ProtocolErrorUnspecified))),
    ("REGISTRATION ACCEPT, which only a network sends", |ue| {
        ue.nas(mm::RegistrationAccept::new(RegistrationResult::over(Accesses::ThreeGpp)))
    }),
    ("REGISTRATION REQUEST, mobility, without protection", |ue| {
        let request = registration_request(RegistrationKind::MobilityUpdating);
        let is_connected = ue.harness.context().is_some_and(|ue| ue.amf.connection.is_some());
        let batch = match is_connected {
            true => ue.harness.nas_plain(request),
            false => ue.harness.first_plain(request),
        };
        ue.take(batch)
    }),
    ("octets that are no NAS message", |ue| {
        let m = UplinkNasTransport::new(ue.harness.connection(), RAN_ID, vec![0xff, 0, 0]);
        ue.ngap(m)
    }),
];

const OF_THE_GNB: [(&str, UeInput); 9] = [
    ("UE CONTEXT RELEASE REQUEST", DrivenUe::release_request),
    ("UE CONTEXT RELEASE COMPLETE", DrivenUe::release_complete),
    ("INITIAL CONTEXT SETUP RESPONSE", |ue| {
        ue.ngap(InitialContextSetupResponse::new(ue.harness.connection(), RAN_ID))
    }),
    ("INITIAL CONTEXT SETUP FAILURE", |ue| {
        ue.ngap(InitialContextSetupFailure::new(ue.harness.connection(), RAN_ID, failure()))
    }),
    ("NAS NON DELIVERY INDICATION", |ue| {
        let cause = CauseRadioNetwork::XnHandoverTriggered.into();
        ue.ngap(NasNonDeliveryIndication::new(ue.harness.connection(), RAN_ID, cause))
    }),
    ("ERROR INDICATION, unknown local UE NGAP ID", |ue| {
        let mut m = ErrorIndication::new();
        (m.amf_ue_ngap_id, m.ran_ue_ngap_id) = (Some(ue.harness.connection()), Some(RAN_ID));
        m.cause = Some(CauseRadioNetwork::UnknownLocalUeNgapId.into());
        ue.ngap(m)
    }),
    ("UE RADIO CAPABILITY INFO INDICATION", |ue| {
        let mut m = UeRadioCapabilityInfoIndication::new(ue.harness.connection(), RAN_ID);
        m.ue_radio_capability = vec![1, 2, 3];
        ue.ngap(m)
    }),
    ("UE CONTEXT SUSPEND REQUEST", |ue| {
        ue.ngap(UeContextSuspendRequest::new(ue.harness.connection(), RAN_ID))
    }),
    ("a message with another RAN UE NGAP ID", |ue| {
        ue.ngap(UeContextReleaseRequest::new(ue.harness.connection(), RanUeNgapId(71), failure()))
    }),
];

const OF_HANDOVER: [(&str, UeInput); 7] = [
    ("HANDOVER REQUIRED", DrivenUe::handover_required),
    ("HANDOVER REQUEST ACKNOWLEDGE", DrivenUe::acknowledge),
    ("HANDOVER FAILURE", |ue| ue.ngap_from(TARGET, HandoverFailure::new(target_id(), failure()))),
    ("HANDOVER NOTIFY", |ue| {
        let mut m = HandoverNotify::new(target_id(), TARGET_RAN_ID);
        m.user_location_information = Some(location());
        ue.ngap_from(TARGET, m)
    }),
    ("HANDOVER CANCEL", |ue| ue.ngap(HandoverCancel::new(ue.harness.connection(), RAN_ID, failure()))),
    ("UE CONTEXT RELEASE REQUEST of the target", |ue| {
        ue.ngap_from(TARGET, UeContextReleaseRequest::new(target_id(), TARGET_RAN_ID, failure()))
    }),
    ("PATH SWITCH REQUEST", |ue| {
        let flows = vec![QosFlowAcceptedItem::new(Qfi::new(1).unwrap())];
        let transfer = PathSwitchRequestTransfer::new(tunnel(), flows).to_vec();
        let sessions = vec![PduSessionResourceItem::new(psi(1), transfer)];
        let mut m = PathSwitchRequest::new(TARGET_RAN_ID, ue.harness.connection(), sessions);
        m.user_location_information = Some(location());
        ue.ngap_from(TARGET, m)
    }),
];

const OF_TIMERS_AND_THE_NETWORK: [(&str, UeInput); 9] = [
    ("the next timer expires", DrivenUe::expire),
    ("neither UE nor gNB answers", DrivenUe::stay_silent),
    ("the gNB's association is lost", |ue| ue.command(Command::ConnectionLost(ue.harness.association()))),
    ("the UDM sends a vector", DrivenUe::vector),
    ("the UDM sends the subscription", DrivenUe::subscription),
    ("the UDM knows no such subscriber", |ue| match ue.harness.context() {
        Some(context) if context.amf.security.current.is_some() => {
            ue.answer(UdmAnswer::Registered(Err(UdmError::UserNotFound)))
        }
        _ => ue.answer(UdmAnswer::AuthData(Err((UdmError::UserNotFound, None)))),
    }),
    ("the operator deregisters the UE", |ue| ue.command(Command::Deregister)),
    ("the subscription changes", |ue| ue.command(Command::SubscriptionChanged)),
    ("the subscriber registers in another context", |ue| ue.command(Command::Superseded)),
];

fn outcome(stage: &UeStage, input: &UeInput) -> Outcome {
    let mut ue = DrivenUe::at(*stage);
    let before = ue.state();
    let batches = input(&mut ue);
    let sent = sent(&mut ue.harness, &batches);
    Outcome::between(&before, &ue.state(), sent, reported(&batches))
}

#[test] // TS 24.501 §5.1.3.2.3, §5.4, §5.5, §5.6; TS 38.413 §8.3, §8.4, §10.4, §10.6: each state against each input
fn every_state_and_input_of_a_ue_at_the_amf_is_as_the_page_shows() {
    let names = STAGES.map(|stage| DrivenUe::at(stage).state());
    for (at, name) in names.iter().enumerate() {
        assert!(!names[..at].contains(name), "two rows have the state {name}: {names:?}");
    }
    let states: Vec<(&str, UeStage)> = names.iter().map(String::as_str).zip(STAGES).collect();
    let table = |title, inputs: &[(&str, UeInput)]| StateTable::new(title, &states, inputs, outcome);
    assert_page(
        "amf-ue.md",
        &[
            table("NAS: registration, service, deregistration", &OF_REGISTRATION),
            table("NAS: identification, authentication, security mode", &OF_COMMON_PROCEDURES),
            table("NAS: other messages", &OTHER_NAS),
            table("NGAP of the serving gNB", &OF_THE_GNB),
            table("NGAP of handovers", &OF_HANDOVER),
            table("Timers and the network", &OF_TIMERS_AND_THE_NETWORK),
        ],
    );
}
