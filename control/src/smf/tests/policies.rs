//! Policies of a PCF for a session whose UPF has too few resources.

use whimbrel_ids::{Seid, Teid};
use whimbrel_nas::ie::{IntegrityDataRate, IntegrityMaxDataRate, PduSessionType, RequestType};
use whimbrel_nas::sm::EstablishmentRequest;
use whimbrel_pfcp::ie::{Cause as PfcpCause, Choice, FSeid, FTeid, UeIpAddress};
use whimbrel_pfcp::msg::{SessionEstablishmentResponse, SessionModificationResponse};
use whimbrel_pfcp::rule::CreatedPdr;

use super::*;
use crate::config::FailureHandling;
use crate::envelope::OutputId;
use crate::services::npcf::{
    PccRule, PolicyAnswer, PolicyAssociation, PolicyDecision, PolicyOperation, PolicyReport, PolicyRequest,
    RuleFailure, RuleQos,
};

/// The UPF's answer to what a batch asks of it.
fn upf_answers(harness: &mut UeHarness, batch: &Batch, answer: impl Into<whimbrel_pfcp::Message>) -> Batch {
    let index = batch.outputs.iter().position(|o| matches!(o.effect, Effect::N4 { .. })).unwrap() as u16;
    let to = OutputId { clock: harness.clock(), index };
    let octets = answer.into().to_octets(Some(Seid(1)), 0);
    harness.input(Payload::PfcpAnswer { to, upf: crate::upf::UpfId(0), octets: Some(octets.into()) })
}

/// The request to the PCF in a batch.
fn to_pcf(harness: &UeHarness, batch: &Batch) -> Option<(OutputId, PolicyRequest)> {
    (0u16..).zip(&batch.outputs).find_map(|(index, output)| match &output.effect {
        Effect::Policy(request) => Some((OutputId { clock: harness.clock(), index }, (**request).clone())),
        _ => None,
    })
}

/// A rule of guaranteed rates, and one without.
fn decision() -> PolicyDecision {
    let rule = |port: u16, qos: &str| {
        let filter = packet_filter(&format!("permit out 17 from any {port} to assigned")).unwrap();
        Some(PccRule { filters: vec![filter], qos: Some(qos.into()), ..PccRule::default() })
    };
    let rate = Ambr { ul_kbps: 64, dl_kbps: 64 };
    let qos = |five_qi: u8, gbr| {
        Some(RuleQos { five_qi: Some(FiveQi(five_qi)), arp: None, gbr, is_default_flow: false })
    };
    PolicyDecision {
        rules: vec![("voice".into(), rule(5004, "q1")), ("game".into(), rule(6000, "q7"))],
        qos: vec![
            ("q1".into(), qos(1, Some(Gbr { guaranteed: rate, maximum: rate }))),
            ("q7".into(), qos(7, None)),
        ],
        ..PolicyDecision::default()
    }
}

#[test] // TS 29.512 §4.2.4.15, TS 29.244 §6.3.3.3: the rules without guaranteed rates are installed, the others are reported
fn a_session_begins_without_a_guaranteed_rate_that_the_upf_lacks_and_the_pcf_gets_a_report() {
    let mut config = config();
    config.smf.pcf = Some(FailureHandling::Terminate);
    let mut harness = UeHarness::registered_with(config);
    let full = IntegrityDataRate::Full;
    let mut request = EstablishmentRequest::new(IntegrityMaxDataRate { uplink: full, downlink: full });
    request.pdu_session_type = Some(PduSessionType::Ipv4);
    let octets = sm::Message::new(psi(2), Pti(5), request).to_octets();
    let mut message =
        UlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, PayloadContainer::new(octets).unwrap());
    (message.pdu_session_id, message.request_type) = (Some(psi(2)), Some(RequestType::InitialRequest));
    let batch = harness.nas(CIPHERED, message);

    let upf = std::net::Ipv4Addr::new(127, 0, 0, 8);
    let node = std::net::IpAddr::V4(upf).into();
    let mut answer = SessionEstablishmentResponse::new(node, PfcpCause::RequestAccepted);
    answer.up_f_seid = Some(FSeid { seid: Seid(77), ipv4: Some(upf), ipv6: None });
    let ipv4 = Some(Choice::Given([10, 45, 0, 7].into()));
    let pdr = CreatedPdr {
        pdr_id: crate::smf::rules::UPLINK_PDR,
        local_f_teid: Some(FTeid::Given { teid: Teid(9), ipv4: Some(upf), ipv6: None }),
        ue_ip_addresses: vec![UeIpAddress { destination: true, ipv4, ..UeIpAddress::default() }],
    };
    answer.created_pdrs = vec![pdr];
    let batch = upf_answers(&mut harness, &batch, answer);

    let (to, request) = to_pcf(&harness, &batch).expect("the PCF is asked when the address is known");
    assert!(matches!(&request.operation, PolicyOperation::Create(session) if session.address.ipv4.is_some()));
    let association = PolicyAssociation { reference: "1".into(), decision: decision() };
    let answer = Box::new(PolicyAnswer::Decided(association.into()));
    let batch = harness.input(Payload::Policy { to, answer });
    let refused = SessionModificationResponse::new(PfcpCause::NoResourcesAvailable);
    let batch = upf_answers(&mut harness, &batch, refused);
    let mut batches = harness.settle(batch);

    let session = &harness.context().unwrap().sessions[&psi(2)];
    let flows: Vec<String> = session.qos.flows.iter().map(|flow| flow.name.to_string()).collect();
    assert_eq!(flows, ["game"]);
    assert!(refusals(&batches).is_empty(), "{:?}", refusals(&batches));
    assert!(!batches.iter().flat_map(n2).collect::<Vec<_>>().is_empty(), "the gNB sets the session up");
    let last = batches.pop().unwrap();
    let (_, report) = to_pcf(&harness, &last).expect("a report");
    let PolicyOperation::Update { report, .. } = report.operation else { panic!("{report:?}") };
    let failed = vec![("voice".into(), RuleFailure::AllocationFailed)];
    assert_eq!(*report, PolicyReport { failed, ..PolicyReport::default() });
}
