//! PDU session modification, in the UE harness: TS 24.501 §6.3.2, §6.4.2, TS 23.502 §4.3.3.2.

use whimbrel_ids::{FiveQi, Qfi};
use whimbrel_nas::ie::{
    FlowOperation, FlowParameter, PayloadContainer, PayloadContainerType, QosFlowBinding, QosFlowDescription,
    QosFlowDescriptions, QosRule, QosRules, RuleOperation, SmCause, SscMode,
};
use whimbrel_nas::mm::{self, UlNasTransport};
use whimbrel_nas::sm::{self, Pti};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    AssociatedQosFlowItem, Cause, CauseRadioNetwork, GtpTunnel, NotificationCause, PduSessionResourceItem,
    QosFlowNotifyItem, QosFlowPerTnlInformation, QosFlowWithCauseItem, TransportLayerAddress,
    UpTransportLayerInformation,
};
use whimbrel_ngap::msg::{
    PduSessionResourceModifyIndication, PduSessionResourceModifyResponse, PduSessionResourceNotify,
};
use whimbrel_ngap::transfer::{
    PduSessionResourceModifyConfirmTransfer, PduSessionResourceModifyIndicationTransfer,
    PduSessionResourceModifyRequestTransfer, PduSessionResourceModifyResponseTransfer,
    PduSessionResourceModifyUnsuccessfulTransfer, PduSessionResourceNotifyTransfer,
};

use crate::envelope::{Batch, Command, Effect, Payload};
use crate::event::{Event, FailedFlow, SessionOutcome};
use crate::policy::{FlowGate, FlowPolicy, Gbr, Setup, packet_filter};
use crate::procedure::Procedure;
use crate::refusal::Refusal;
use crate::state::{Ambr, Arp, Modification};
use crate::ue_harness::{CIPHERED, RAN_ID, UeHarness, config, n2, psi};

mod area;
mod operations;
mod policies;
mod requests;
mod terms;

fn flow(name: &str, five_qi: u8, precedence: u8, setup: Setup) -> FlowPolicy {
    let rate = Ambr { ul_kbps: 64, dl_kbps: 64 };
    FlowPolicy {
        name: name.parse().unwrap(),
        five_qi: FiveQi(five_qi),
        arp: Arp { priority: 2, may_preempt: true, preemptable: false },
        gbr: Some(Gbr { guaranteed: rate, maximum: rate }),
        precedence,
        filters: vec![packet_filter("permit out 17 from any 5004 to assigned").unwrap()],
        gate: FlowGate::default(),
        setup,
    }
}

/// A UE with one session, and a policy of two flows for the operator and one for UEs.
fn harness() -> UeHarness {
    let mut config = config();
    config.smf.data_networks.values_mut().for_each(|n| {
        n.flows = vec![
            flow("voice", 1, 10, Setup::ByOperator),
            flow("video", 2, 11, Setup::ByOperator),
            flow("game", 3, 12, Setup::OnRequest),
        ];
    });
    UeHarness::registered_with(config)
}

fn add(name: &str) -> Payload {
    Payload::Command(Command::ModifySession(psi(1), Modification::AddFlow(name.parse().unwrap())))
}

/// The 5GSM messages for the UE in these batches.
fn downlink_5gsm(harness: &mut UeHarness, batches: &[Batch]) -> Vec<sm::Message> {
    let transports = batches.iter().flat_map(|b| harness.downlink(b)).collect::<Vec<_>>();
    let payloads = transports.into_iter().filter_map(|m| match m {
        mm::Message::DlNasTransport(m) => Some(m.payload_container),
        _ => None,
    });
    payloads.map(|p| sm::Message::decode(&p).unwrap()).collect()
}

fn command(harness: &mut UeHarness, batches: &[Batch]) -> Option<(Pti, sm::ModificationCommand)> {
    downlink_5gsm(harness, batches).into_iter().find_map(|m| match m.body {
        sm::Body::ModificationCommand(c) => Some((m.pti, c)),
        _ => None,
    })
}

/// What the gNB is asked to change.
fn asked(batches: &[Batch]) -> Option<PduSessionResourceModifyRequestTransfer> {
    batches.iter().flat_map(n2).find_map(|m| match m {
        Message::PduSessionResourceModifyRequest(m) => {
            let item = m.pdu_session_resource_modify_list_mod_req.into_iter().next()?;
            Some(
                PduSessionResourceModifyRequestTransfer::decode(
                    &item.pdu_session_resource_modify_request_transfer,
                )
                .unwrap(),
            )
        }
        _ => None,
    })
}

fn uplink(pti: u8, body: impl Into<sm::Body>) -> UlNasTransport {
    let container = PayloadContainer::new(sm::Message::new(psi(1), Pti(pti), body).to_octets()).unwrap();
    let mut m = UlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, container);
    m.pdu_session_id = Some(psi(1));
    m
}

fn says(harness: &mut UeHarness, pti: u8, body: impl Into<sm::Body>) -> Vec<Batch> {
    let batch = harness.nas(CIPHERED, uplink(pti, body));
    harness.settle(batch)
}

/// The gNB has changed the session, but for these flows.
fn modified(harness: &mut UeHarness, failed: &[u8]) -> Vec<Batch> {
    let mut transfer = PduSessionResourceModifyResponseTransfer::new();
    let cause = || Cause::RadioNetwork(CauseRadioNetwork::RadioResourcesNotAvailable);
    transfer.qos_flow_failed_to_add_or_modify_list =
        failed.iter().map(|q| QosFlowWithCauseItem::new(qfi(*q), cause())).collect();
    let mut m = PduSessionResourceModifyResponse::new(harness.connection(), RAN_ID);
    m.pdu_session_resource_modify_list_mod_res = vec![PduSessionResourceItem::new(psi(1), transfer.to_vec())];
    let batch = harness.ngap(m);
    harness.settle(batch)
}

fn qfi(n: u8) -> Qfi {
    Qfi::new(n).unwrap()
}

fn flows(harness: &UeHarness) -> Vec<&str> {
    harness.context().unwrap().sessions[&psi(1)].qos.flows.iter().map(|f| f.name.as_str()).collect()
}

/// The identities of the PDRs that the UPF is asked to create and to remove.
fn pdrs(batches: &[Batch]) -> (Vec<u16>, Vec<u16>) {
    let (mut created, mut removed) = (Vec::new(), Vec::new());
    for output in batches.iter().flat_map(|b| &b.outputs) {
        let Effect::N4 { octets, .. } = &output.effect else { continue };
        let frame = whimbrel_pfcp::Frame::parse(octets).unwrap();
        if let Ok(whimbrel_pfcp::Message::SessionModificationRequest(m)) =
            whimbrel_pfcp::Message::parse(&frame)
        {
            created.extend(m.create_pdrs.iter().map(|p| p.pdr_id.0));
            removed.extend(m.remove_pdrs.iter().map(|p| p.pdr_id.0));
        }
    }
    (created, removed)
}

fn refusals(batches: &[Batch]) -> Vec<Refusal> {
    let events = batches.iter().flat_map(|b| &b.events);
    let refused = events.filter_map(|e| match e {
        Event::Refused { refusal, .. } => Some(refusal.clone()),
        _ => None,
    });
    refused.collect()
}

#[test] // TS 23.502 §4.3.3.2 step 1d, §4.3.3.2 steps 1d to 12, TS 24.501 §6.3.2.2, §6.3.2.3, TS 38.413 §8.2.3.2: uplink at the UPF, then gNB and UE, then downlink at the UPF
fn the_operator_sets_a_flow_up() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    let batches = harness.settle(batch);
    assert_eq!(pdrs(&batches), (vec![3], vec![]), "uplink first");
    let transfer = asked(&batches).unwrap();
    assert_eq!(transfer.qos_flow_add_or_modify_request_list[0].qos_flow_identifier, qfi(2));
    let (pti, m) = command(&mut harness, &batches).unwrap();
    assert!(!pti.is_assigned());
    assert_eq!(m.qos_rules.unwrap().rules().unwrap()[0].binding.unwrap().qfi, qfi(2));
    assert_eq!(m.qos_flow_descriptions.unwrap().flows().unwrap()[0].operation, FlowOperation::Create);
    let batches = modified(&mut harness, &[]);
    assert_eq!(pdrs(&batches), (vec![], vec![]), "the UE has not answered");
    let batches = says(&mut harness, 0, sm::ModificationComplete::new());
    assert_eq!(pdrs(&batches), (vec![4], vec![]), "downlink last");
    assert_eq!(flows(&harness), ["voice"]);
    assert!(harness.context().unwrap().is_idle());
}

#[test] // TS 23.502 §4.3.3.2: the UE may answer before its gNB does
fn the_answers_come_in_any_order() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    harness.settle(batch);
    says(&mut harness, 0, sm::ModificationComplete::new());
    assert!(flows(&harness).is_empty());
    modified(&mut harness, &[]);
    assert_eq!(flows(&harness), ["voice"]);
}

fn with_voice() -> UeHarness {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    harness.settle(batch);
    modified(&mut harness, &[]);
    says(&mut harness, 0, sm::ModificationComplete::new());
    harness
}

#[test] // TS 23.502 §4.3.3.2: no more downlink by the flow, then gNB and UE, then no more uplink
fn the_operator_removes_a_flow() {
    let mut harness = with_voice();
    let name = "voice".parse().unwrap();
    let remove = Command::ModifySession(psi(1), Modification::RemoveFlow(name));
    let batch = harness.input(Payload::Command(remove));
    let batches = harness.settle(batch);
    assert_eq!(pdrs(&batches), (vec![], vec![4]));
    assert_eq!(asked(&batches).unwrap().qos_flow_to_release_list.len(), 1);
    let (_, m) = command(&mut harness, &batches).unwrap();
    assert_eq!(m.qos_rules.unwrap().rules().unwrap()[0].operation, RuleOperation::Delete);
    modified(&mut harness, &[]);
    let batches = says(&mut harness, 0, sm::ModificationComplete::new());
    assert_eq!(pdrs(&batches), (vec![], vec![3]));
    assert!(flows(&harness).is_empty());
}

#[test] // TS 23.502 §4.3.3.2: a change that only the UPF and the UE see needs no gNB
fn a_gate_is_closed() {
    let mut harness = with_voice();
    let closed = FlowGate { uplink: false, downlink: false };
    let order = Modification::Gate("voice".parse().unwrap(), closed);
    let batch = harness.input(Payload::Command(Command::ModifySession(psi(1), order)));
    let batches = harness.settle(batch);
    assert!(asked(&batches).is_none());
    says(&mut harness, 0, sm::ModificationComplete::new());
    assert_eq!(harness.context().unwrap().sessions[&psi(1)].qos.flows[0].gate, closed);
}

#[test] // TS 23.502 §4.3.3.2 step 5, step 6, TS 38.413 §8.2.3.3: a flow that the gNB does not take is taken back from UE and UPF
fn a_flow_that_the_gnb_refuses_is_removed() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    harness.settle(batch);
    modified(&mut harness, &[2]);
    let batches = says(&mut harness, 0, sm::ModificationComplete::new());
    let (_, m) = command(&mut harness, &batches).unwrap();
    assert_eq!(m.qos_rules.unwrap().rules().unwrap()[0].operation, RuleOperation::Delete);
    modified(&mut harness, &[]);
    says(&mut harness, 0, sm::ModificationComplete::new());
    assert!(flows(&harness).is_empty());
    assert!(harness.context().unwrap().is_idle());
}

#[test] // TS 38.413 §8.2.3.3: the gNB changes nothing, and neither does the core
fn a_gnb_refuses_the_whole_modification() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    harness.settle(batch);
    let transfer = PduSessionResourceModifyUnsuccessfulTransfer::new(
        CauseRadioNetwork::RadioResourcesNotAvailable.into(),
    );
    let mut m = PduSessionResourceModifyResponse::new(harness.connection(), RAN_ID);
    m.pdu_session_resource_failed_to_modify_list_mod_res =
        vec![PduSessionResourceItem::new(psi(1), transfer.to_vec())];
    let batch = harness.ngap(m);
    let batches = harness.settle(batch);
    assert_eq!(pdrs(&batches), (vec![], vec![3]), "the UPF goes back");
    let refused = Refusal::RefusedByGnb {
        message: "PDU SESSION RESOURCE MODIFY RESPONSE (PDUSessionResourceFailedToModifyListModRes)",
        cause: "radioNetwork radio-resources-not-available (22)".into(),
    };
    assert_eq!(refusals(&batches), [refused]);
    assert!(flows(&harness).is_empty());
}

#[test] // TS 24.501 §6.3.2.4: the UE refuses; everybody goes back
fn a_ue_rejects_the_command() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    harness.settle(batch);
    modified(&mut harness, &[]);
    let batches =
        says(&mut harness, 0, sm::ModificationCommandReject::new(SmCause::SemanticErrorsInPacketFilters));
    assert_eq!(pdrs(&batches), (vec![], vec![3]));
    assert_eq!(asked(&batches).unwrap().qos_flow_to_release_list.len(), 1);
    assert!(flows(&harness).is_empty());
}

#[test] // TS 24.501 §6.3.2.5 b: #43, the UE does not have the session, so neither has the network
fn a_ue_that_does_not_have_the_session_loses_it() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    harness.settle(batch);
    says(&mut harness, 0, sm::ModificationCommandReject::new(SmCause::InvalidPduSessionIdentity));
    assert!(harness.context().unwrap().sessions.is_empty());
}

#[test] // TS 24.501 §6.3.2.5 a: T3591 expires five times; the session stays as it was
fn a_command_without_an_answer_is_aborted() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    harness.settle(batch);
    let mut batch = modified(&mut harness, &[]).pop().unwrap();
    let mut commands = 0;
    while !harness.context().unwrap().is_idle() {
        batch = harness.expire(&batch);
        commands += usize::from(command(&mut harness, std::slice::from_ref(&batch)).is_some());
    }
    assert_eq!(commands, 4, "five in all");
    assert!(flows(&harness).is_empty());
    assert_eq!(harness.context().unwrap().sessions.len(), 1);
}

#[test] // TS 24.501 §6.3.2.5 c: the UE's release takes the place of the network's modification
fn a_release_collides_with_a_modification() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    harness.settle(batch);
    let batches = says(&mut harness, 7, sm::ReleaseRequest::new());
    let commanded =
        downlink_5gsm(&mut harness, &batches).iter().any(|m| matches!(m.body, sm::Body::ReleaseCommand(_)));
    assert!(commanded);
    says(&mut harness, 7, sm::ReleaseComplete::new());
    assert!(harness.context().unwrap().sessions.is_empty());
}

fn request(five_qi: u8) -> sm::ModificationRequest {
    let rule = QosRule {
        id: 0,
        operation: RuleOperation::Create(vec![
            packet_filter("permit out 17 from any 27015 to assigned").unwrap(),
        ]),
        default: false,
        binding: Some(QosFlowBinding { precedence: 71, segregation: false, qfi: qfi(0) }),
    };
    let description = QosFlowDescription {
        qfi: qfi(0),
        operation: FlowOperation::Create,
        e_bit: true,
        parameters: vec![FlowParameter::FiveQi(FiveQi(five_qi))],
    };
    let mut m = sm::ModificationRequest::new();
    m.qos_rules = QosRules::new(&[rule]);
    m.qos_flow_descriptions = QosFlowDescriptions::new(&[description]);
    m
}

#[test] // TS 23.502 §4.3.3.2 step 1a, TS 24.501 §6.4.2.2, §6.4.2.3: the answer bears the transaction of the request
fn a_ue_asks_for_a_flow() {
    let mut harness = harness();
    let batches = says(&mut harness, 9, request(3));
    let (pti, m) = command(&mut harness, &batches).unwrap();
    assert_eq!(pti, Pti(9));
    let rule = m.qos_rules.unwrap().rules().unwrap().remove(0);
    assert_eq!((rule.id, rule.binding.unwrap().qfi), (2, qfi(2)), "the network gives the names");
    modified(&mut harness, &[]);
    says(&mut harness, 9, sm::ModificationComplete::new());
    assert_eq!(flows(&harness), ["game"]);
}

fn cause(harness: &mut UeHarness, batches: &[Batch]) -> Option<(Pti, SmCause)> {
    downlink_5gsm(harness, batches).into_iter().find_map(|m| match m.body {
        sm::Body::ModificationReject(r) => Some((m.pti, r.cause)),
        _ => None,
    })
}

#[test] // TS 24.501 §6.4.2.4 #59: a 5QI that the policy does not give to UEs
fn a_ue_asks_for_what_it_may_not_have() {
    let mut harness = harness();
    let batches = says(&mut harness, 9, request(1));
    assert_eq!(cause(&mut harness, &batches), Some((Pti(9), SmCause::Unsupported5qiValue)));
    assert!(harness.context().unwrap().is_idle() && flows(&harness).is_empty());
}

#[test] // TS 24.501 §6.4.2.4, §7.8: the default rule stays
fn a_ue_deletes_the_default_rule() {
    let mut harness = harness();
    let rule = QosRule { id: 1, operation: RuleOperation::Delete, default: false, binding: None };
    let mut m = sm::ModificationRequest::new();
    m.qos_rules = QosRules::new(&[rule]);
    let batches = says(&mut harness, 9, m);
    assert_eq!(cause(&mut harness, &batches), Some((Pti(9), SmCause::SemanticErrorInQosOperation)));
}

#[test] // TS 24.501 §6.4.2.4: octets that are no rules
fn a_ue_sends_rules_that_cannot_be_read() {
    // The rule's length goes beyond the element; a filter without contents; a description cut off.
    for (rules, flows, expected) in [
        (Some(vec![0x00, 0xff, 0xff, 0x21, 0x31]), None, SmCause::SyntacticalErrorInQosOperation),
        (
            Some(vec![0x00, 0x00, 0x05, 0x21, 0x30, 0x00, 70, 0x02]),
            None,
            SmCause::SyntacticalErrorInPacketFilters,
        ),
        (None, Some(vec![0x00, 0x20, 0x41]), SmCause::SyntacticalErrorInQosOperation),
    ] {
        let mut harness = harness();
        let mut octets = sm::Message::new(psi(1), Pti(9), sm::ModificationRequest::new()).to_octets();
        for (iei, element) in [(0x7a, rules), (0x79, flows)] {
            let Some(element) = element else { continue };
            octets.push(iei);
            octets.extend_from_slice(&(element.len() as u16).to_be_bytes());
            octets.extend_from_slice(&element);
        }
        let mut m = UlNasTransport::new(
            PayloadContainerType::N1_SM_INFORMATION,
            PayloadContainer::new(octets).unwrap(),
        );
        m.pdu_session_id = Some(psi(1));
        let batch = harness.nas(CIPHERED, m);
        assert_eq!(cause(&mut harness, &[batch]), Some((Pti(9), expected)));
    }
}

#[test] // TS 24.501 §6.4.2.6 b, §6.4.2.5 b, §6.3.2.5 d: the UE's request gives way to the network's command
fn a_request_collides_with_the_networks_modification() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    harness.settle(batch);
    let batches = says(&mut harness, 9, request(3));
    assert!(downlink_5gsm(&mut harness, &batches).is_empty());
    modified(&mut harness, &[]);
    says(&mut harness, 0, sm::ModificationComplete::new());
    assert_eq!(flows(&harness), ["voice"]);
}

#[test] // TS 24.501 §7.3.1: a completion of an unknown transaction
fn a_completion_of_another_transaction_gets_5gsm_status() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    harness.settle(batch);
    let batches = says(&mut harness, 44, sm::ModificationComplete::new());
    let status = downlink_5gsm(&mut harness, &batches).into_iter().find_map(|m| match m.body {
        sm::Body::SmStatus(s) => Some(s.cause),
        _ => None,
    });
    assert_eq!(status, Some(SmCause::PtiMismatch));
}

fn notify(harness: &mut UeHarness, transfer: &PduSessionResourceNotifyTransfer) -> Vec<Batch> {
    let mut m = PduSessionResourceNotify::new(harness.connection(), RAN_ID);
    m.pdu_session_resource_notify_list = vec![PduSessionResourceItem::new(psi(1), transfer.to_vec())];
    let batch = harness.ngap(m);
    harness.settle(batch)
}

#[test] // TS 38.413 §8.2.4.2: a flow that the gNB released goes from UE and UPF too
fn a_gnb_releases_a_flow() {
    let mut harness = with_voice();
    let mut transfer = PduSessionResourceNotifyTransfer::new();
    let cause = Cause::RadioNetwork(CauseRadioNetwork::RadioResourcesNotAvailable);
    transfer.qos_flow_released_list = vec![QosFlowWithCauseItem::new(qfi(2), cause)];
    let batches = notify(&mut harness, &transfer);
    assert!(command(&mut harness, &batches).is_some());
    modified(&mut harness, &[]);
    says(&mut harness, 0, sm::ModificationComplete::new());
    assert!(flows(&harness).is_empty());
}

#[test] // TS 23.502 §4.3.3.2 step 1e, TS 23.501 §5.7.2.4, TS 38.413 §8.2.4.2: the gNB says when it cannot keep a guarantee, and when it can again
fn a_gnb_cannot_fulfil_a_guarantee() {
    let mut harness = with_voice();
    for (cause, kept) in [(NotificationCause::NotFulfilled, false), (NotificationCause::Fulfilled, true)] {
        let mut transfer = PduSessionResourceNotifyTransfer::new();
        transfer.qos_flow_notify_list = vec![QosFlowNotifyItem::new(qfi(2), cause)];
        notify(&mut harness, &transfer);
        assert_eq!(harness.context().unwrap().sessions[&psi(1)].qos.flows[0].fulfilled, kept);
    }
}

fn indication(harness: &mut UeHarness, sessions: &[u8]) -> Vec<Batch> {
    let tunnel = GtpTunnel::new(TransportLayerAddress::V4([127, 0, 3, 3].into()), whimbrel_ids::Teid(0x99));
    let there = QosFlowPerTnlInformation::new(
        UpTransportLayerInformation::GtpTunnel(tunnel),
        vec![AssociatedQosFlowItem::new(qfi(1)), AssociatedQosFlowItem::new(qfi(9))],
    );
    let transfer = PduSessionResourceModifyIndicationTransfer::new(there).to_vec();
    let items = sessions.iter().map(|n| PduSessionResourceItem::new(psi(*n), transfer.clone())).collect();
    let batch = harness.ngap(PduSessionResourceModifyIndication::new(harness.connection(), RAN_ID, items));
    harness.settle(batch)
}

#[test] // TS 38.413 §8.2.5.2, §8.2.5.3, §8.2.5.4: the UPF sends to the new tunnel, then the gNB is confirmed what became of each session
fn a_gnb_moves_its_tunnel() {
    let mut harness = harness();
    let batches = indication(&mut harness, &[1, 2, 1]);
    let confirm = batches.iter().flat_map(n2).find_map(|m| match m {
        Message::PduSessionResourceModifyConfirm(m) => Some(m),
        _ => None,
    });
    let confirm = confirm.unwrap();
    let done = &confirm.pdu_session_resource_modify_list_mod_cfm;
    assert_eq!((done.len(), confirm.pdu_session_resource_failed_to_modify_list_mod_cfm.len()), (1, 2));
    let transfer = PduSessionResourceModifyConfirmTransfer::decode(&done[0].transfer).unwrap();
    assert_eq!(transfer.qos_flow_modify_confirm_list, [qfi(1)]);
    assert_eq!(transfer.qos_flow_failed_to_modify_list.len(), 1, "an unknown flow");
    let an = harness.context().unwrap().sessions[&psi(1)].an.clone().unwrap();
    assert_eq!(an.teid, whimbrel_ids::Teid(0x99));
}

#[test] // TS 23.502 §4.3.3.2 idle: an idle UE is paged, and gets the command once it is connected
fn an_idle_ue_is_paged_for_a_modification() {
    let mut harness = harness();
    let association = harness.association();
    let batch = harness.input(Payload::Command(Command::ConnectionLost(association)));
    harness.settle(batch);
    let batch = harness.input(add("voice"));
    assert!(batch.outputs.iter().any(|o| matches!(o.effect, Effect::Page { .. })));
    assert!(harness.context().unwrap().sessions[&psi(1)].qos.pending_change.is_some());
}

#[test] // TS 24.501 §6.3.2.5: the connection is lost in the middle; the change is made again when the UE is back
fn a_modification_outlives_the_connection() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    harness.settle(batch);
    let association = harness.association();
    let batch = harness.input(Payload::Command(Command::ConnectionLost(association)));
    let batches = harness.settle(batch);
    assert_eq!(pdrs(&batches), (vec![], vec![3]), "the UPF goes back");
    let session = &harness.context().unwrap().sessions[&psi(1)];
    assert!(session.qos.flows.is_empty() && session.qos.pending_change.is_some());
}

#[test] // TS 23.502 §4.3.5.1, TS 23.501 §5.6.9.2.2: SSC mode 2: the session is released with #39, and the UE asks for another
fn a_session_of_ssc_mode_2_is_moved() {
    for (mode, moved) in [(SscMode::One, false), (SscMode::Two, true)] {
        let mut harness = harness();
        let mut ue = harness.shard.checkpoint(harness.id).unwrap();
        ue.sessions.get_mut(&psi(1)).unwrap().ssc_mode = mode;
        harness.shard.restore(ue);
        let order = Command::ModifySession(psi(1), Modification::Reanchor);
        let batch = harness.input(Payload::Command(order));
        let batches = harness.settle(batch);
        let cause = downlink_5gsm(&mut harness, &batches).into_iter().find_map(|m| match m.body {
            sm::Body::ReleaseCommand(c) => Some(c.cause),
            _ => None,
        });
        assert_eq!(cause, moved.then_some(SmCause::ReactivationRequested));
    }
}
