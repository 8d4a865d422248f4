//! Sessions that UEs ask for, change and give back, and what is wrong with how they ask: TS 24.501 §5.4.5, §6.4, §7.

use std::sync::Arc;

use whimbrel_ids::{SNssai, Teid};
use whimbrel_nas::ie::{
    AlwaysOn, IntegrityDataRate, IntegrityMaxDataRate, MmCause, PduSessionType, RequestType,
};
use whimbrel_nas::mm::DlNasTransport;
use whimbrel_nas::sm::{EstablishmentReject, EstablishmentRequest};
use whimbrel_pfcp::ie::Cause as PfcpCause;

use super::*;
use crate::config::{Config, Emergency, N3IpVersion, UpProtection, UpSecurity};
use crate::envelope::OutputId;
use crate::smf::n4;
use crate::state::{Marks, SessionTypes, Subscription, Tunnel};

fn wish() -> EstablishmentRequest {
    let full = IntegrityDataRate::Full;
    EstablishmentRequest::new(IntegrityMaxDataRate { uplink: full, downlink: full })
}

/// UL NAS TRANSPORT of these octets under this identity.
fn transport(n: u8, kind: Option<RequestType>, octets: Vec<u8>) -> UlNasTransport {
    let mut m =
        UlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, PayloadContainer::new(octets).unwrap());
    (m.pdu_session_id, m.request_type) = (Some(psi(n)), kind);
    m
}

fn sends(
    harness: &mut UeHarness,
    n: u8,
    kind: Option<RequestType>,
    pti: u8,
    body: impl Into<sm::Body>,
) -> Batch {
    let octets = sm::Message::new(psi(n), Pti(pti), body).to_octets();
    harness.nas(CIPHERED, transport(n, kind, octets))
}

/// The UE asks for session 2.
fn asks(harness: &mut UeHarness, request: EstablishmentRequest) -> Batch {
    sends(harness, 2, Some(RequestType::InitialRequest), 5, request)
}

fn rejected(harness: &mut UeHarness, batch: &Batch) -> Option<EstablishmentReject> {
    downlink_5gsm(harness, std::slice::from_ref(batch)).into_iter().find_map(|m| match m.body {
        sm::Body::EstablishmentReject(m) => Some(m),
        _ => None,
    })
}

/// What the AMF gives back to the UE.
fn returned(harness: &mut UeHarness, batch: &Batch) -> Option<DlNasTransport> {
    harness.downlink(batch).into_iter().find_map(|m| match m {
        mm::Message::DlNasTransport(m) if m.cause.is_some() => Some(m),
        _ => None,
    })
}

fn status(harness: &mut UeHarness, batch: &Batch) -> Option<SmCause> {
    downlink_5gsm(harness, std::slice::from_ref(batch)).into_iter().find_map(|m| match m.body {
        sm::Body::SmStatus(m) => Some(m.cause),
        _ => None,
    })
}

fn with(change: impl FnOnce(&mut Config)) -> UeHarness {
    let mut config = config();
    change(&mut config);
    UeHarness::registered_with(config)
}

fn subscribed(mut harness: UeHarness, change: impl FnOnce(&mut Subscription)) -> UeHarness {
    let mut ue = harness.shard.checkpoint(harness.id).unwrap();
    let mut subscription = (**ue.amf.subscription.as_ref().unwrap()).clone();
    change(&mut subscription);
    ue.amf.subscription = Some(Arc::new(subscription));
    harness.shard.restore(ue);
    harness
}

/// The UPF's answer to the establishment that a batch asks for.
fn upf_refuses(harness: &mut UeHarness, batch: &Batch, cause: PfcpCause) -> Batch {
    let clock = harness.clock();
    let index = batch.outputs.iter().position(|o| matches!(o.effect, Effect::N4 { .. })).unwrap() as u16;
    let node = std::net::IpAddr::from([127, 0, 0, 8]);
    let answer = whimbrel_pfcp::msg::SessionEstablishmentResponse::new(node.into(), cause);
    let octets = whimbrel_pfcp::Message::from(answer).to_octets(Some(whimbrel_ids::Seid(1)), 0);
    harness.input(Payload::PfcpAnswer {
        to: OutputId { clock, index },
        upf: crate::upf::UpfId(0),
        octets: Some(octets.into()),
    })
}

#[test] // TS 24.501 §6.4.1.4.1 #26, §6.4.1.4.2: no address is left: a back-off timer, and that it is of this network alone
fn no_address_is_left() {
    let mut harness = UeHarness::registered();
    let batch = asks(&mut harness, wish());
    let batch = upf_refuses(&mut harness, &batch, PfcpCause::AllDynamicAddressesAreOccupied);
    let m = rejected(&mut harness, &batch).unwrap();
    assert_eq!(m.cause, SmCause::InsufficientResources);
    assert!(m.back_off_timer.unwrap().duration().unwrap().as_secs() >= 60);
    assert!(m.congestion_reattempt.is_some_and(|i| !i.all_plmns()) && m.reattempt.is_none());
    assert_eq!(harness.context().unwrap().sessions.len(), 1);
}

#[test] // TS 24.501 §6.4.1.4.3: a wait that the operator set for another cause: the UE has nowhere else to turn to
fn a_wait_for_another_cause() {
    use crate::config::RefusalAnswer;
    use crate::refusal::RefusalKind;
    let wait = std::time::Duration::from_secs(600);
    let mut harness = with(|c| {
        c.refusals.insert(RefusalKind::NetworkFailure, RefusalAnswer { cause: None, back_off: Some(wait) });
        c.refusals.insert(RefusalKind::SessionType, RefusalAnswer { cause: None, back_off: Some(wait) });
    });
    let batch = asks(&mut harness, wish());
    let batch = upf_refuses(&mut harness, &batch, PfcpCause::SystemFailure);
    let m = rejected(&mut harness, &batch).unwrap();
    assert_eq!((m.cause, m.back_off_timer.unwrap().duration()), (SmCause::NetworkFailure, Some(wait)));
    let reattempt = m.reattempt.unwrap();
    assert!(
        reattempt.not_in_s1_mode() && reattempt.not_in_equivalent_plmn() && m.congestion_reattempt.is_none()
    );
    // A cause that says itself what may be asked for.
    let mut request = wish();
    request.pdu_session_type = Some(PduSessionType::Ethernet);
    let batch = asks(&mut harness, request);
    let m = rejected(&mut harness, &batch).unwrap();
    assert!(m.back_off_timer.is_some() && m.reattempt.is_none() && m.congestion_reattempt.is_none());
}

#[test] // TS 24.501 §6.4.1.3 #51: both families asked for, IPv6 had
fn narrowed_to_ipv6() {
    let mut harness = subscribed(UeHarness::registered(), |s| {
        s.slices[0].dnns[0].session_types = SessionTypes { ipv6: true, ..SessionTypes::NONE };
    });
    let mut request = wish();
    request.pdu_session_type = Some(PduSessionType::Ipv4v6);
    let batch = asks(&mut harness, request);
    let established = batch.outputs.iter().any(|o| matches!(o.effect, Effect::N4 { .. }));
    assert!(established);
    assert_eq!(harness.context().unwrap().sessions[&psi(2)].session_type, PduSessionType::Ipv6);
}

#[test] // TS 29.244 §8.2.118: named only to UPFs that need it
fn rules_name_3gpp_interfaces_if_the_upf_needs_them() {
    use whimbrel_pfcp::Message as Pfcp;
    use whimbrel_pfcp::ie::InterfaceType;
    for needed in [false, true] {
        let mut harness = with(|c| c.smf.upfs[0].interface_types = needed);
        let batch = asks(&mut harness, wish());
        let request = batch.outputs.iter().find_map(|o| match &o.effect {
            Effect::N4 { octets, .. } => {
                Some(Pfcp::parse(&whimbrel_pfcp::Frame::parse(octets).unwrap()).unwrap())
            }
            _ => None,
        });
        let Some(Pfcp::SessionEstablishmentRequest(m)) = request else { panic!("{request:?}") };
        let named: Vec<_> = m.create_pdrs.iter().map(|pdr| pdr.pdi.source_interface_type).collect();
        let to = m.create_fars[0].forwarding_parameters.as_ref().unwrap().destination_interface_type;
        let types = |t| needed.then_some(t);
        assert_eq!(named, [types(InterfaceType::N3), types(InterfaceType::N6)]);
        assert_eq!(to, types(InterfaceType::N6));
    }
}

#[test] // TS 29.244 §8.2.3, §8.2.64: of the IP version that the UPF's tunnels have
fn tunnels_are_chosen_and_outer_headers_removed_in_the_upf_s_ip_version() {
    use whimbrel_pfcp::Message as Pfcp;
    use whimbrel_pfcp::ie::{FTeid, OuterHeaderRemovalDescription as Removal};
    let versions = [
        (N3IpVersion::Ipv4, (true, false), Removal::GtpuUdpIpv4),
        (N3IpVersion::Ipv6, (false, true), Removal::GtpuUdpIpv6),
        (N3IpVersion::Both, (true, true), Removal::GtpuUdpIp),
    ];
    for (version, (v4, v6), removal) in versions {
        let mut harness = with(|c| c.smf.upfs[0].n3_ip_version = version);
        let batch = asks(&mut harness, wish());
        let request = batch.outputs.iter().find_map(|o| match &o.effect {
            Effect::N4 { octets, .. } => {
                Some(Pfcp::parse(&whimbrel_pfcp::Frame::parse(octets).unwrap()).unwrap())
            }
            _ => None,
        });
        let Some(Pfcp::SessionEstablishmentRequest(m)) = request else { panic!("{request:?}") };
        let [up, down] = &m.create_pdrs[..] else { panic!("{m:?}") };
        let Some(FTeid::Choose { ipv4, ipv6, .. }) = up.pdi.f_teid else { panic!("{up:?}") };
        assert_eq!((ipv4, ipv6, up.outer_header_removal), (v4, v6, Some(removal.into())), "{version:?}");
        assert_eq!((down.pdi.f_teid, down.outer_header_removal), (None, None));
        // Forwarding tunnels of a handover, likewise.
        let target = Tunnel { teid: Teid(9), address: "192.0.2.9".parse().unwrap() };
        let m = n4::departure(&[target], false, &Marks::default(), version);
        let pdr = &m.create_pdrs[0];
        let Some(FTeid::Choose { ipv4, ipv6, .. }) = pdr.pdi.f_teid else { panic!("{pdr:?}") };
        assert_eq!((ipv4, ipv6, pdr.outer_header_removal), (v4, v6, Some(removal.into())), "{version:?}");
    }
}

#[test] // TS 24.501 §6.4.1.4.1 #27, TS 23.502 §4.3.2.2.1 emergency: the emergency data network is not configured; no subscription is asked
fn an_emergency_data_network_that_is_not_configured() {
    let mut harness = with(|c| c.amf.access.emergency = Some(emergency("sos")));
    let batch = sends(&mut harness, 2, Some(RequestType::InitialEmergencyRequest), 5, wish());
    assert_eq!(rejected(&mut harness, &batch).unwrap().cause, SmCause::MissingOrUnknownDnn);
}

fn emergency(dnn: &str) -> Emergency {
    Emergency {
        unauthenticated: false,
        s_nssai: SNssai::sst(1),
        dnn: dnn.parse().unwrap(),
        arp: Arp { priority: 1, may_preempt: true, preemptable: false },
        five_qi: FiveQi(5),
        ambr: Ambr { ul_kbps: 1000, dl_kbps: 1000 },
    }
}

#[test] // TS 24.501 §6.4.1.7 c, TS 23.502 §4.3.2.2.1 emergency: a UE has one emergency session: another takes its place
fn an_emergency_session_exists_already() {
    let mut harness = with(|c| c.amf.access.emergency = Some(emergency("internet")));
    sends(&mut harness, 2, Some(RequestType::InitialEmergencyRequest), 5, wish());
    sends(&mut harness, 3, Some(RequestType::InitialEmergencyRequest), 6, wish());
    let ue = harness.context().unwrap();
    let emergencies: Vec<_> = ue.sessions.values().filter(|s| s.emergency).map(|s| s.psi).collect();
    assert_eq!((emergencies, ue.sessions.len()), (vec![psi(3)], 2));
}

#[test] // TS 24.501 §6.4.1.4.1 #28: no type is to be had at all
fn no_session_type_is_allowed() {
    let mut harness =
        subscribed(UeHarness::registered(), |s| s.slices[0].dnns[0].session_types = SessionTypes::NONE);
    let batch = asks(&mut harness, wish());
    assert_eq!(rejected(&mut harness, &batch).unwrap().cause, SmCause::UnknownPduSessionType);
}

#[test] // TS 24.501 §6.4.1.4.1 #54, §5.4.5.2.6 b, TS 23.502 §4.3.2.2.1 existing: an existing session of the UE that the network does not have
fn an_existing_session_without_context_is_rejected() {
    let mut harness = UeHarness::registered();
    let batch = sends(&mut harness, 2, Some(RequestType::ExistingPduSession), 5, wish());
    assert_eq!(rejected(&mut harness, &batch).unwrap().cause, SmCause::PduSessionDoesNotExist);
}

#[test] // TS 24.501 §6.4.1.4.1 #68: an SSC mode that is not subscribed: the reject lists those that are
fn an_ssc_mode_that_is_not_subscribed() {
    for (subscribed_mode, asked) in [(SscMode::One, SscMode::Two), (SscMode::Three, SscMode::Two)] {
        let mut harness =
            subscribed(UeHarness::registered(), |s| s.slices[0].dnns[0].ssc_mode = subscribed_mode);
        let mut request = wish();
        request.ssc_mode = Some(asked);
        let batch = asks(&mut harness, request);
        let m = rejected(&mut harness, &batch).unwrap();
        assert_eq!(m.cause, SmCause::NotSupportedSscMode);
        let allowed = m.allowed_ssc_mode.unwrap();
        assert!(allowed.one && !allowed.two && allowed.three == (subscribed_mode == SscMode::Three));
    }
}

#[test] // TS 24.501 §6.4.1.4.1 #82, TS 23.501 §5.10.3: a UE that cannot protect a session that must be protected
fn integrity_that_a_ue_does_not_have() {
    let kbps = IntegrityDataRate::Kbps64;
    for (rate, refused) in [(IntegrityDataRate::Null, true), (kbps, false), (IntegrityDataRate::Full, false)]
    {
        let mut harness = with(|c| {
            let integrity = UpProtection::Required;
            let policy = UpSecurity { integrity, confidentiality: UpProtection::Preferred };
            c.smf.data_networks.values_mut().for_each(|n| n.up_security = Some(policy));
        });
        let rate = IntegrityMaxDataRate { uplink: rate, downlink: IntegrityDataRate::Full };
        let batch = asks(&mut harness, EstablishmentRequest::new(rate));
        let cause = rejected(&mut harness, &batch).map(|m| m.cause);
        assert_eq!(cause, refused.then_some(SmCause::IntegrityProtectionDataRateTooLow));
    }
}

#[test] // TS 24.501 §6.4.1.7 a, §5.4.5.2.6 a: a session of this identity exists: that ends, and the new one is made
fn an_identity_that_is_in_use() {
    let mut harness = UeHarness::registered();
    let before = harness.context().unwrap().sessions[&psi(1)].cp_seid;
    let batch = sends(&mut harness, 1, Some(RequestType::InitialRequest), 5, wish());
    let n4 = batch.outputs.iter().filter(|o| matches!(o.effect, Effect::N4 { .. })).count();
    assert_eq!(n4, 2, "the UPF loses the one and gets the other");
    assert!(n2(&batch).iter().any(|m| matches!(m, Message::PduSessionResourceReleaseCommand(_))));
    assert_ne!(harness.context().unwrap().sessions[&psi(1)].cp_seid, before);
}

#[test] // TS 24.501 §6.4.1.7 b: the same request again, while it is being worked on
fn the_same_request_again() {
    let mut harness = UeHarness::registered();
    let first = asks(&mut harness, wish());
    let seid = harness.context().unwrap().sessions[&psi(2)].cp_seid;
    let second = asks(&mut harness, wish());
    assert!(!first.outputs.is_empty() && second.outputs.is_empty());
    assert_eq!(harness.context().unwrap().sessions[&psi(2)].cp_seid, seid);
    let other = sends(&mut harness, 2, Some(RequestType::InitialRequest), 6, wish());
    assert!(!other.outputs.is_empty(), "another request starts over");
}

#[test] // TS 24.501 §6.4.1.7 d, §7.3.2: no session identity: ignored; another than its envelope's: 5GSM STATUS
fn an_invalid_session_identity() {
    let mut harness = UeHarness::registered();
    let mut octets = sm::Message::new(psi(2), Pti(5), wish()).to_octets();
    octets[1] = 0;
    let batch = harness.nas(CIPHERED, transport(2, Some(RequestType::InitialRequest), octets.clone()));
    assert!(batch.outputs.is_empty() && harness.context().unwrap().sessions.len() == 1);
    octets[1] = 3;
    let batch = harness.nas(CIPHERED, transport(2, Some(RequestType::InitialRequest), octets));
    assert_eq!(status(&mut harness, &batch), Some(SmCause::InvalidPduSessionIdentity));
}

#[test] // TS 24.501 §7.3.1, §6.2.1: a transaction identity that is reserved
fn a_reserved_transaction() {
    let mut harness = UeHarness::registered();
    let batch = sends(&mut harness, 2, Some(RequestType::InitialRequest), 255, wish());
    assert!(batch.outputs.is_empty());
    let batch = sends(&mut harness, 2, Some(RequestType::InitialRequest), 0, wish());
    assert_eq!(status(&mut harness, &batch), Some(SmCause::InvalidPtiValue));
}

#[test] // TS 24.501 §7.5.1: a request without what it must have, or with an element that demands comprehension, is rejected with #96
fn unreadable_requests_are_rejected() {
    let mut harness = UeHarness::registered();
    let mut octets = sm::Message::new(psi(2), Pti(5), wish()).to_octets();
    octets.truncate(4);
    let batch = harness.nas(CIPHERED, transport(2, Some(RequestType::InitialRequest), octets));
    assert_eq!(rejected(&mut harness, &batch).unwrap().cause, SmCause::InvalidMandatoryInformation);
    let unknown = [0x0f, 1, 0]; // bits 8 to 5 are zero (TS 24.007 §11.2.4)
    let mut octets = sm::Message::new(psi(1), Pti(5), sm::ModificationRequest::new()).to_octets();
    octets.extend(unknown);
    let batch = harness.nas(CIPHERED, transport(1, None, octets));
    assert_eq!(cause(&mut harness, &[batch]), Some((Pti(5), SmCause::InvalidMandatoryInformation)));
    let mut octets = sm::Message::new(psi(1), Pti(5), sm::ReleaseRequest::new()).to_octets();
    octets.extend(unknown);
    let batch = harness.nas(CIPHERED, transport(1, None, octets));
    assert_eq!(release_rejected(&mut harness, &batch), Some(SmCause::InvalidMandatoryInformation));
    let octets = sm::Message::new(psi(1), Pti(0), sm::SmStatus::new(SmCause::NetworkFailure)).to_octets();
    let batch = harness.nas(CIPHERED, transport(1, None, octets[..4].to_vec()));
    assert_eq!(status(&mut harness, &batch), Some(SmCause::InvalidMandatoryInformation));
    assert_eq!(harness.context().unwrap().sessions.len(), 1);
}

fn release_rejected(harness: &mut UeHarness, batch: &Batch) -> Option<SmCause> {
    downlink_5gsm(harness, std::slice::from_ref(batch)).into_iter().find_map(|m| match m.body {
        sm::Body::ReleaseReject(m) => Some(m.cause),
        _ => None,
    })
}

#[test] // TS 24.501 §6.4.3.4, §7.3.1: the transaction is another session's
fn a_release_under_another_sessions_transaction() {
    let mut harness = UeHarness::registered();
    let mut ue = harness.shard.checkpoint(harness.id).unwrap();
    let mut second = ue.sessions[&psi(1)].clone();
    second.psi = psi(2);
    ue.sessions.insert(psi(2), second);
    harness.shard.restore(ue);
    says(&mut harness, 9, sm::ReleaseRequest::new());
    let batch = sends(&mut harness, 2, None, 9, sm::ReleaseRequest::new());
    assert_eq!(release_rejected(&mut harness, &batch), Some(SmCause::PtiAlreadyInUse));
}

#[test] // TS 23.501 §5.6.2, TS 24.501 §6.4.2.6 a, §6.4.3.6 a, §5.4.5.2.6 c, §5.4.5.2.5 #90: a message of an unknown session is returned
fn a_message_of_an_unknown_session_is_returned() {
    for body in [sm::Body::from(sm::ModificationRequest::new()), sm::ReleaseRequest::new().into()] {
        let mut harness = UeHarness::registered();
        let batch = sends(&mut harness, 2, None, 5, body.clone());
        let back = returned(&mut harness, &batch).unwrap();
        assert_eq!((back.cause, back.pdu_session_id), (Some(MmCause::PayloadWasNotForwarded), Some(psi(2))));
        assert_eq!(*back.payload_container, *sm::Message::new(psi(2), Pti(5), body).to_octets());
    }
}

#[test] // TS 24.501 §5.4.5.2.5 #65: the UE has as many sessions as it may
fn too_many_sessions() {
    let mut harness = with(|c| c.limits.sessions_per_ue = 1);
    let batch = asks(&mut harness, wish());
    let back = returned(&mut harness, &batch).unwrap();
    assert_eq!(back.cause, Some(MmCause::MaximumNumberOfPduSessionsReached));
    assert_eq!(harness.context().unwrap().sessions.len(), 1);
}

#[test] // TS 24.501 §5.4.5.2.3, §7.7.2: 5GSM goes to the SMF whatever its request type; without the mandatory session identity, the UE gets #100
fn nas_transport_of_5gsm() {
    let mut harness = UeHarness::registered();
    let batch =
        sends(&mut harness, 1, Some(RequestType::ModificationRequest), 5, sm::ModificationRequest::new());
    let batches = harness.settle(batch);
    assert!(command(&mut harness, &batches).is_some());
    let mut harness = UeHarness::registered();
    let mut m = transport(1, None, sm::Message::new(psi(1), Pti(5), sm::ReleaseRequest::new()).to_octets());
    m.pdu_session_id = None;
    let batch = harness.nas(CIPHERED, m);
    let cause = harness.downlink(&batch).into_iter().find_map(|m| match m {
        mm::Message::MmStatus(m) => Some(m.cause),
        _ => None,
    });
    assert_eq!(cause, Some(MmCause::ConditionalIeError));
}

#[test] // TS 24.501 §5.4.5.3.1: 5GSM to the UE names its session, and no cause
fn nas_transport_to_the_ue() {
    let mut harness = UeHarness::registered();
    let batch = sends(&mut harness, 1, None, 0, sm::ReleaseRequest::new());
    let sent = harness.downlink(&batch).into_iter().find_map(|m| match m {
        mm::Message::DlNasTransport(m) => Some(m),
        _ => None,
    });
    let sent = sent.unwrap();
    assert_eq!((sent.pdu_session_id, sent.cause), (Some(psi(1)), None));
    assert_eq!(sent.payload_container_type, PayloadContainerType::N1_SM_INFORMATION);
}

#[test] // TS 24.501 §6.3.3.5 b, c: the network's release goes on, whatever the UE asks of the session meanwhile
fn a_release_by_the_network_goes_on() {
    for body in [sm::Body::from(sm::ReleaseRequest::new()), sm::ModificationRequest::new().into()] {
        let mut harness = harness();
        let order = Command::ModifySession(psi(1), Modification::Release);
        let batch = harness.input(Payload::Command(order));
        harness.settle(batch);
        let batches = says(&mut harness, 9, body);
        assert!(downlink_5gsm(&mut harness, &batches).is_empty());
        says(&mut harness, 0, sm::ReleaseComplete::new());
        assert!(harness.context().unwrap().sessions.is_empty());
    }
}

#[test] // TS 23.501 §5.6.13, TS 24.501 §6.4.1.3 always-on: granted where the operator has it and the UE asks for it
fn always_on() {
    for (offered, asked, granted) in [
        (true, Some(true), true),
        (false, Some(true), false),
        (true, None, false),
        (true, Some(false), false),
    ] {
        let mut harness = with(|c| c.smf.data_networks.values_mut().for_each(|n| n.always_on = offered));
        let mut request = wish();
        request.always_on_requested = asked.map(|on| AlwaysOn { on });
        asks(&mut harness, request);
        assert_eq!(harness.context().unwrap().sessions[&psi(2)].always_on, granted);
    }
}

#[test] // TS 23.502 §4.2.3.3 connected: packets for a session without user plane, of a UE that is there: it is set up without paging
fn a_connected_ues_user_plane_is_set_up_for_packets() {
    let mut harness = harness();
    let batch = harness.input(Payload::Command(Command::ModifySession(psi(1), Modification::Deactivate)));
    harness.settle(batch);
    let batches = super::area::downlink_data(&mut harness);
    let asked = batches.iter().flat_map(n2);
    assert!(asked.into_iter().any(|m| matches!(m, Message::PduSessionResourceSetupRequest(_))));
    let pages = |b: &Batch| b.outputs.iter().any(|o| matches!(o.effect, Effect::Page { .. }));
    assert!(!batches.iter().any(pages));
}

#[test] // TS 23.502 §4.3.4.2 step 1d: the gNB gave the session's resources up: its packets wait, and the UE keeps it
fn a_gnb_releases_a_session() {
    use whimbrel_ngap::transfer::PduSessionResourceNotifyReleasedTransfer;
    let mut harness = harness();
    let cause = CauseRadioNetwork::RadioResourcesNotAvailable;
    let transfer = PduSessionResourceNotifyReleasedTransfer::new(cause.into()).to_vec();
    let mut m = PduSessionResourceNotify::new(harness.connection(), RAN_ID);
    m.pdu_session_resource_released_list_not = vec![PduSessionResourceItem::new(psi(1), transfer)];
    let batch = harness.ngap(m);
    let batches = harness.settle(batch);
    assert_eq!(harness.context().unwrap().sessions[&psi(1)].up, crate::state::UpState::Inactive);
    assert!(downlink_5gsm(&mut harness, &batches).is_empty());
}

/// The transfer of a gNB that has set a session up.
fn set_up() -> Vec<u8> {
    use whimbrel_ngap::transfer::PduSessionResourceSetupResponseTransfer;
    let tunnel = GtpTunnel::new(TransportLayerAddress::V4([127, 0, 1, 1].into()), whimbrel_ids::Teid(0x55));
    let there = QosFlowPerTnlInformation::new(
        UpTransportLayerInformation::GtpTunnel(tunnel),
        vec![AssociatedQosFlowItem::new(qfi(1))],
    );
    PduSessionResourceSetupResponseTransfer::new(there).to_vec()
}

#[test] // TS 23.502 §4.3.7: a report of inactivity from before is not about the user plane that is being set up
fn a_report_of_inactivity_does_not_end_a_user_plane_that_is_being_set_up() {
    use whimbrel_nas::ie::{PduSessionSet, ServiceType};
    use whimbrel_ngap::msg::InitialContextSetupResponse;
    use whimbrel_pfcp::{ie::ReportType, msg::SessionReportRequest};
    let mut harness = UeHarness::registered();
    let association = harness.association();
    let batch = harness.input(Payload::Command(Command::ConnectionLost(association)));
    harness.settle(batch);
    super::area::service_request(&mut harness, ServiceType::Data, Some(PduSessionSet::from_iter([psi(1)])));
    let session = |harness: &UeHarness| harness.context().unwrap().sessions[&psi(1)].clone();
    let report = SessionReportRequest::new(ReportType::UPIR);
    let octets = whimbrel_pfcp::Message::from(report).to_octets(Some(session(&harness).cp_seid), 9);
    let upf = crate::upf::UpfId(0);
    let batch = harness.input(Payload::PfcpReport { psi: 1, upf, octets: octets.into() });
    harness.settle(batch);
    let mut m = InitialContextSetupResponse::new(harness.connection(), RAN_ID);
    m.pdu_session_resource_setup_list_cxt_res = vec![PduSessionResourceItem::new(psi(1), set_up())];
    let batch = harness.ngap(m);
    let batches = harness.settle(batch);
    assert_eq!(session(&harness).up, crate::state::UpState::Active);
    let released = |m: &Message| {
        matches!(m, Message::PduSessionResourceReleaseCommand(_) | Message::UeContextReleaseCommand(_))
    };
    assert!(!batches.iter().flat_map(n2).any(|m| released(&m)));
}

#[test] // TS 23.502 §4.2.3.2 step 12, step 14: the gNB sets one of two sessions up: that one's packets flow, the other waits
fn a_gnb_sets_up_one_session_of_two() {
    use whimbrel_nas::ie::{PduSessionSet, ServiceType};
    use whimbrel_ngap::msg::InitialContextSetupResponse;
    use whimbrel_ngap::transfer::PduSessionResourceSetupUnsuccessfulTransfer;
    let mut harness = UeHarness::registered();
    let mut ue = harness.shard.checkpoint(harness.id).unwrap();
    let mut second = ue.sessions[&psi(1)].clone();
    second.psi = psi(2);
    ue.sessions.insert(psi(2), second);
    harness.shard.restore(ue);
    let association = harness.association();
    let batch = harness.input(Payload::Command(Command::ConnectionLost(association)));
    harness.settle(batch);
    let both = PduSessionSet::from_iter([psi(1), psi(2)]);
    let batches = super::area::service_request(&mut harness, ServiceType::Data, Some(both));
    let asked = batches.iter().flat_map(n2).find_map(|m| match m {
        Message::InitialContextSetupRequest(m) => Some(m.pdu_session_resource_setup_list_cxt_req.len()),
        _ => None,
    });
    assert_eq!(asked, Some(2));
    let cause = CauseRadioNetwork::RadioResourcesNotAvailable;
    let failed = PduSessionResourceSetupUnsuccessfulTransfer::new(cause.into()).to_vec();
    let mut m = InitialContextSetupResponse::new(harness.connection(), RAN_ID);
    m.pdu_session_resource_setup_list_cxt_res = vec![PduSessionResourceItem::new(psi(1), set_up())];
    m.pdu_session_resource_failed_to_setup_list_cxt_res = vec![PduSessionResourceItem::new(psi(2), failed)];
    let batch = harness.ngap(m);
    harness.settle(batch);
    let up = |n| harness.context().unwrap().sessions[&psi(n)].up;
    assert_eq!((up(1), up(2)), (crate::state::UpState::Active, crate::state::UpState::Inactive));
}
