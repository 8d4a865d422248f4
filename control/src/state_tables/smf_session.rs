//! The SMF's PDU session (TS 24.501 §6.1.3, TS 23.502 §4.3), each state against each input.

use std::net::Ipv4Addr;

use whimbrel_ids::{Qfi, Seid, Teid};
use whimbrel_nas::ie::{
    IntegrityDataRate, IntegrityMaxDataRate, PayloadContainer, PayloadContainerType, PduSessionSet,
    PduSessionType, RequestType, ServiceType, SmCause,
};
use whimbrel_nas::mm::UlNasTransport;
use whimbrel_nas::sm::{self, Pti};
use whimbrel_ngap::ie::{
    AssociatedQosFlowItem, Cause, CauseRadioNetwork, GtpTunnel, PduSessionResourceItem,
    QosFlowPerTnlInformation, TransportLayerAddress, UpTransportLayerInformation,
};
use whimbrel_ngap::msg::{
    InitialContextSetupResponse, PduSessionResourceModifyResponse, PduSessionResourceNotify,
    PduSessionResourceReleaseResponse, PduSessionResourceSetupResponse,
};
use whimbrel_ngap::transfer::{
    PduSessionResourceModifyResponseTransfer, PduSessionResourceModifyUnsuccessfulTransfer,
    PduSessionResourceNotifyReleasedTransfer, PduSessionResourceReleaseResponseTransfer,
    PduSessionResourceSetupResponseTransfer, PduSessionResourceSetupUnsuccessfulTransfer,
};
use whimbrel_pfcp::ie::{Cause as PfcpCause, Choice, FSeid, FTeid, PdrId, ReportType, UeIpAddress};
use whimbrel_pfcp::msg::{DownlinkDataReport, SessionEstablishmentResponse, SessionReportRequest};
use whimbrel_pfcp::rule::CreatedPdr;
use whimbrel_state_tables::{Outcome, StateTable, assert_page};

use super::amf_ue::{DrivenUe, UeInput, UeStage, service_request};
use super::{reported, sent, variant, words};
use crate::envelope::{Batch, Command, Effect, OutputId, Payload};
use crate::procedure::Lane;
use crate::state::{Ambr, Modification, UpState};
use crate::ue_harness::{RAN_ID, psi};
use crate::upf::UpfId;

/// States to drive the UE's session 1 to.
#[derive(Clone, Copy, PartialEq)]
enum SessionStage {
    None,
    AtUpf,
    AtGnb,
    Active,
    Modification,
    Release,
    Inactive,
    Activation,
    Idle,
}

const STAGES: [SessionStage; 9] = [
    SessionStage::None,
    SessionStage::AtUpf,
    SessionStage::AtGnb,
    SessionStage::Active,
    SessionStage::Modification,
    SessionStage::Release,
    SessionStage::Inactive,
    SessionStage::Activation,
    SessionStage::Idle,
];

/// The transaction of the UE's requests.
const PTI: Pti = Pti(5);

fn at(stage: SessionStage) -> DrivenUe {
    let mut ue = DrivenUe::at(UeStage::Registered);
    if [SessionStage::None, SessionStage::AtUpf, SessionStage::AtGnb].contains(&stage) {
        let mut context = ue.harness.shard.checkpoint(ue.harness.id).unwrap();
        context.sessions.clear();
        ue.harness.shard.restore(context);
    }
    match stage {
        SessionStage::None | SessionStage::Active => {}
        SessionStage::AtUpf => drop(establishment_request(&mut ue)),
        SessionStage::AtGnb => {
            establishment_request(&mut ue);
            upf_accepts(&mut ue);
        }
        SessionStage::Modification => drop(order(&mut ue, ambr())),
        SessionStage::Release => drop(order(&mut ue, Modification::Release)),
        SessionStage::Inactive | SessionStage::Activation => {
            order(&mut ue, Modification::Deactivate);
            released(&mut ue);
            if stage == SessionStage::Activation {
                service_request_for_data(&mut ue);
            }
        }
        SessionStage::Idle => {
            ue.release_request();
            ue.release_complete();
        }
    }
    ue
}

fn ambr() -> Modification {
    Modification::Ambr(Ambr { ul_kbps: 2000, dl_kbps: 2000 })
}

fn order(ue: &mut DrivenUe, modification: Modification) -> Vec<Batch> {
    ue.command(Command::ModifySession(psi(1), modification))
}

fn uplink(ue: &mut DrivenUe, pti: Pti, kind: Option<RequestType>, body: impl Into<sm::Body>) -> Vec<Batch> {
    let octets = sm::Message::new(psi(1), pti, body).to_octets();
    let container = PayloadContainer::new(octets).unwrap();
    let mut m = UlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, container);
    (m.pdu_session_id, m.request_type) = (Some(psi(1)), kind);
    ue.nas(m)
}

/// The transaction of the command that the UE has to complete: the network's own, or the UE's.
fn completed(ue: &DrivenUe) -> Pti {
    let session = ue.harness.context().and_then(|ue| ue.sessions.get(&psi(1)));
    session.map_or(Pti::UNASSIGNED, |s| s.pti)
}

fn establishment_request(ue: &mut DrivenUe) -> Vec<Batch> {
    let full = IntegrityDataRate::Full;
    let mut request = sm::EstablishmentRequest::new(IntegrityMaxDataRate { uplink: full, downlink: full });
    request.pdu_session_type = Some(PduSessionType::Ipv4);
    uplink(ue, PTI, Some(RequestType::InitialRequest), request)
}

fn service_request_for_data(ue: &mut DrivenUe) -> Vec<Batch> {
    let mut m = service_request(ServiceType::Data);
    m.uplink_data_status = Some([psi(1)].into_iter().collect::<PduSessionSet>());
    ue.nas(m)
}

/// The UPF's answer to the session establishment request of the last input, or to one that is not awaited.
fn upf_answers(ue: &mut DrivenUe, answer: Option<SessionEstablishmentResponse>) -> Vec<Batch> {
    let asks = |e: &Effect| matches!(e, Effect::N4 { .. });
    let index = ue.last.outputs.iter().position(|o| asks(&o.effect));
    let to = match index {
        Some(index) => OutputId { clock: ue.harness.clock(), index: index as u16 },
        None => OutputId { clock: 0, index: 0 },
    };
    let octets = answer.map(|m| whimbrel_pfcp::Message::from(m).to_octets(Some(Seid(1)), 0).into());
    ue.input(Payload::PfcpAnswer { to, upf: UpfId(0), octets })
}

fn upf_accepts(ue: &mut DrivenUe) -> Vec<Batch> {
    let upf = Ipv4Addr::new(127, 0, 0, 8);
    let mut m =
        SessionEstablishmentResponse::new(std::net::IpAddr::from(upf).into(), PfcpCause::RequestAccepted);
    m.up_f_seid = Some(FSeid::new(Seid(9), upf.into()));
    m.created_pdrs = vec![CreatedPdr {
        pdr_id: PdrId(1),
        local_f_teid: Some(FTeid::Given { teid: Teid(9), ipv4: Some(upf), ipv6: None }),
        ue_ip_addresses: vec![UeIpAddress {
            ipv4: Some(Choice::Given(Ipv4Addr::new(10, 45, 0, 2))),
            ..UeIpAddress::default()
        }],
    }];
    upf_answers(ue, Some(m))
}

fn radio_failure() -> Cause {
    CauseRadioNetwork::RadioResourcesNotAvailable.into()
}

fn item(transfer: Vec<u8>) -> Vec<PduSessionResourceItem> {
    vec![PduSessionResourceItem::new(psi(1), transfer)]
}

pub(super) fn set_up() -> Vec<PduSessionResourceItem> {
    let address = TransportLayerAddress::V4(Ipv4Addr::new(127, 0, 1, 1));
    let tunnel = UpTransportLayerInformation::GtpTunnel(GtpTunnel::new(address, Teid(0x55)));
    let flow = AssociatedQosFlowItem::new(Qfi::new(1).unwrap());
    let flows = QosFlowPerTnlInformation::new(tunnel, vec![flow]);
    item(PduSessionResourceSetupResponseTransfer::new(flows).to_vec())
}

fn released(ue: &mut DrivenUe) -> Vec<Batch> {
    let mut m = PduSessionResourceReleaseResponse::new(ue.harness.connection(), RAN_ID);
    m.pdu_session_resource_released_list_rel_res =
        item(PduSessionResourceReleaseResponseTransfer::new().to_vec());
    ue.ngap(m)
}

fn report(ue: &mut DrivenUe, report: SessionReportRequest) -> Vec<Batch> {
    let session = ue.harness.context().and_then(|ue| ue.sessions.get(&psi(1)));
    let seid = session.map_or(Seid(1), |s| s.cp_seid);
    let octets = whimbrel_pfcp::Message::from(report).to_octets(Some(seid), 9);
    ue.input(Payload::PfcpReport { psi: 1, upf: UpfId(0), octets: octets.into() })
}

/// The session's user plane, and the message whose answer is awaited.
fn state(ue: &DrivenUe) -> String {
    let Some(context) = ue.harness.context() else { return "no UE".into() };
    let Some(session) = context.sessions.get(&psi(1)) else { return "no session".into() };
    let lane = Lane::Session(psi(1));
    let timer = context.lanes.timers().find(|(of, ..)| *of == lane).map(|(_, name, _)| name);
    let step = match (context.lanes.procedure(lane), timer) {
        (None, _) => String::new(),
        (_, Some("T3591")) => ": PDU SESSION MODIFICATION COMMAND sent (T3591)".into(),
        (_, Some("T3592")) => ": PDU SESSION RELEASE COMMAND sent (T3592)".into(),
        (Some(_), _) if session.up == UpState::Establishing && session.up_seid.is_none() => {
            ": PFCP session requested".into()
        }
        (Some(_), _) if session.up == UpState::Establishing => ": gNB resources requested".into(),
        (Some(other), _) => format!(": {}", words(&variant(&other))),
    };
    let idle = if context.is_connected() { "" } else { ", UE idle" };
    format!("{}{idle}{step}", words(&variant(&session.up)))
}

const OF_THE_UE: [(&str, UeInput); 8] = [
    ("PDU SESSION ESTABLISHMENT REQUEST", establishment_request),
    ("PDU SESSION MODIFICATION REQUEST", |ue| {
        uplink(ue, PTI, Some(RequestType::ModificationRequest), sm::ModificationRequest::new())
    }),
    ("PDU SESSION MODIFICATION COMPLETE", |ue| {
        uplink(ue, completed(ue), None, sm::ModificationComplete::new())
    }),
    ("PDU SESSION MODIFICATION COMMAND REJECT", |ue| {
        let m = sm::ModificationCommandReject::new(SmCause::SemanticErrorInQosOperation);
        uplink(ue, completed(ue), None, m)
    }),
    ("PDU SESSION RELEASE REQUEST", |ue| uplink(ue, PTI, None, sm::ReleaseRequest::new())),
    ("PDU SESSION RELEASE COMPLETE", |ue| uplink(ue, completed(ue), None, sm::ReleaseComplete::new())),
    ("5GSM STATUS #43", |ue| {
        uplink(ue, completed(ue), None, sm::SmStatus::new(SmCause::InvalidPduSessionIdentity))
    }),
    ("SERVICE REQUEST for its data", service_request_for_data),
];

const OF_THE_GNB: [(&str, UeInput); 7] = [
    ("resources set up", |ue| {
        let mut m = PduSessionResourceSetupResponse::new(ue.harness.connection(), RAN_ID);
        m.pdu_session_resource_setup_list_su_res = set_up();
        ue.ngap(m)
    }),
    ("resources not set up", |ue| {
        let mut m = PduSessionResourceSetupResponse::new(ue.harness.connection(), RAN_ID);
        m.pdu_session_resource_failed_to_setup_list_su_res =
            item(PduSessionResourceSetupUnsuccessfulTransfer::new(radio_failure()).to_vec());
        ue.ngap(m)
    }),
    ("resources modified", |ue| {
        let mut m = PduSessionResourceModifyResponse::new(ue.harness.connection(), RAN_ID);
        m.pdu_session_resource_modify_list_mod_res =
            item(PduSessionResourceModifyResponseTransfer::new().to_vec());
        ue.ngap(m)
    }),
    ("resources not modified", |ue| {
        let mut m = PduSessionResourceModifyResponse::new(ue.harness.connection(), RAN_ID);
        m.pdu_session_resource_failed_to_modify_list_mod_res =
            item(PduSessionResourceModifyUnsuccessfulTransfer::new(radio_failure()).to_vec());
        ue.ngap(m)
    }),
    ("resources released", released),
    ("PDU SESSION RESOURCE NOTIFY, released", |ue| {
        let mut m = PduSessionResourceNotify::new(ue.harness.connection(), RAN_ID);
        m.pdu_session_resource_released_list_not =
            item(PduSessionResourceNotifyReleasedTransfer::new(radio_failure()).to_vec());
        ue.ngap(m)
    }),
    ("INITIAL CONTEXT SETUP RESPONSE without it", |ue| {
        ue.ngap(InitialContextSetupResponse::new(ue.harness.connection(), RAN_ID))
    }),
];

const OF_UPF_AND_NETWORK: [(&str, UeInput); 13] = [
    ("the UPF accepts its establishment", upf_accepts),
    ("the UPF refuses its establishment: no address is left", |ue| {
        let node = std::net::IpAddr::from([127, 0, 0, 8]);
        let cause = PfcpCause::AllDynamicAddressesAreOccupied;
        upf_answers(ue, Some(SessionEstablishmentResponse::new(node.into(), cause)))
    }),
    ("the UPF does not answer its establishment", |ue| upf_answers(ue, None)),
    ("the UPF reports downlink data", |ue| {
        let mut m = SessionReportRequest::new(ReportType::DLDR);
        m.downlink_data_report = Some(DownlinkDataReport {
            pdr_ids: vec![PdrId(2)],
            downlink_data_service_information: Vec::new(),
            dl_data_packets_size: None,
            data_status: None,
        });
        report(ue, m)
    }),
    ("the UPF reports inactivity", |ue| report(ue, SessionReportRequest::new(ReportType::UPIR))),
    ("the next timer expires", DrivenUe::expire),
    ("the gNB's association is lost", |ue| ue.command(Command::ConnectionLost(ue.harness.association()))),
    ("the operator changes its AMBR", |ue| order(ue, ambr())),
    ("the operator deactivates it", |ue| order(ue, Modification::Deactivate)),
    ("the operator releases it", |ue| order(ue, Modification::Release)),
    ("the UPF has lost it", |ue| ue.command(Command::UpfRestarted(UpfId(0)))),
    ("the UPF is connected again", |ue| ue.command(Command::RestoreSessions(UpfId(0)))),
    ("the UPF goes", |ue| ue.command(Command::LeaveUpf(UpfId(0)))),
];

fn outcome(stage: &SessionStage, input: &UeInput) -> Outcome {
    let mut ue = at(*stage);
    let before = state(&ue);
    let batches = input(&mut ue);
    let sent = sent(&mut ue.harness, &batches);
    Outcome::between(&before, &state(&ue), sent, reported(&batches))
}

#[test] // TS 24.501 §6.1.3, §6.3, §6.4; TS 23.502 §4.3: each state against each input
fn every_state_and_input_of_a_pdu_session_is_as_the_page_shows() {
    let names = STAGES.map(|stage| state(&at(stage)));
    for (at, name) in names.iter().enumerate() {
        assert!(!names[..at].contains(name), "two rows have the state {name}");
    }
    let states: Vec<(&str, SessionStage)> = names.iter().map(String::as_str).zip(STAGES).collect();
    let table = |title, inputs: &[(&str, UeInput)]| StateTable::new(title, &states, inputs, outcome);
    assert_page(
        "smf-session.md",
        &[
            table("The UE", &OF_THE_UE),
            table("The gNB", &OF_THE_GNB),
            table("The UPF, timers and the network", &OF_UPF_AND_NETWORK),
        ],
    );
}
