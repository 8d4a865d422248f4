//! Service areas and local area data networks, in the UE harness: TS 23.501 §5.3.4.1.1, §5.6.5, TS 24.501 §5.3.5,
//! §6.2.6.

use std::sync::Arc;

use whimbrel_ids::{Tac, Tai};
use whimbrel_nas::ie::{
    LadnIndication, MmCause, MobileIdentity, NgKsi, PduSessionSet, RegistrationKind, RegistrationType,
    RequestType, ServiceType,
};
use whimbrel_nas::mm::{RegistrationAccept, RegistrationRequest, ServiceAccept, ServiceRequest};

use super::*;
use crate::config::Ladn;
use crate::state::{MobilityRestrictions, ServiceArea, SmContext, UpState};
use crate::ue_harness::INTEGRITY;

fn tac(n: u32) -> Tac {
    Tac::new(n).unwrap()
}

fn session(harness: &UeHarness) -> &SmContext {
    &harness.context().unwrap().sessions[&psi(1)]
}

/// `internet` is to be had in these tracking areas alone; the UE's is 1.
fn local(tacs: &[u32], release: bool) -> crate::config::Config {
    let mut config = config();
    config.amf.tacs = vec![tac(1), tac(2), tac(7)];
    let ladn = Ladn { tacs: tacs.iter().map(|n| tac(*n)).collect(), release };
    config.smf.data_networks.values_mut().for_each(|n| n.ladn = Some(ladn.clone()));
    config
}

/// A UE that may start no services where it is, unless that is elsewhere.
fn not_allowed(harness: UeHarness, area: u32) -> UeHarness {
    let mut harness = harness;
    let mut ue = harness.shard.checkpoint(harness.id).unwrap();
    let mut subscription = (**ue.amf.subscription.as_ref().unwrap()).clone();
    subscription.restrictions = MobilityRestrictions {
        service_area: Some(ServiceArea::NotAllowed(vec![tac(area)])),
        ..Default::default()
    };
    ue.amf.subscription = Some(Arc::new(subscription));
    harness.shard.restore(ue);
    harness
}

/// The UE goes idle, and its session with it.
fn idle(harness: &mut UeHarness) {
    let association = harness.association();
    let batch = harness.input(Payload::Command(Command::ConnectionLost(association)));
    harness.settle(batch);
    assert_eq!(session(harness).up, UpState::Inactive);
}

pub(super) fn service_request(
    harness: &mut UeHarness,
    service: ServiceType,
    uplink: Option<PduSessionSet>,
) -> Vec<Batch> {
    let s_tmsi = whimbrel_ids::STmsi { set: 1, pointer: 0, tmsi: whimbrel_ids::Tmsi(0x1234) };
    let ksi = NgKsi::native(0).unwrap();
    let mut m = ServiceRequest::new(ksi, service, MobileIdentity::STmsi(s_tmsi));
    m.uplink_data_status = uplink;
    let pdu = harness.protect(INTEGRITY, m);
    let batch = harness.first(pdu, Some(s_tmsi.tmsi));
    harness.settle(batch)
}

/// The UE has packets for its session.
fn one() -> Option<PduSessionSet> {
    Some(PduSessionSet::from_iter([psi(1)]))
}

fn service_accept(harness: &mut UeHarness, batches: &[Batch]) -> Option<ServiceAccept> {
    batches.iter().flat_map(|b| harness.downlink(b)).find_map(|m| match m {
        mm::Message::ServiceAccept(m) => Some(m),
        _ => None,
    })
}

fn reject(harness: &mut UeHarness, batches: &[Batch]) -> Option<MmCause> {
    batches.iter().flat_map(|b| harness.downlink(b)).find_map(|m| match m {
        mm::Message::ServiceReject(m) => Some(m.cause),
        _ => None,
    })
}

#[test] // TS 24.501 §5.3.5, §5.6.1.5 #28: where no services may be started, signalling passes and data does not
fn signalling_in_a_non_allowed_area() {
    let mut harness = not_allowed(UeHarness::registered(), 1);
    idle(&mut harness);
    let batches = service_request(&mut harness, ServiceType::Data, one());
    assert_eq!(reject(&mut harness, &batches), Some(MmCause::RestrictedServiceArea));
    let mut harness = not_allowed(UeHarness::registered(), 1);
    idle(&mut harness);
    let batches = service_request(&mut harness, ServiceType::Signalling, None);
    assert!(service_accept(&mut harness, &batches).is_some());
    assert_eq!(session(&harness).up, UpState::Inactive);
}

#[test] // TS 24.501 §5.6.1.4.1, §9.11.3.43: the user plane is refused with #28 to a UE that answers paging there, and not in an emergency
fn a_user_plane_in_a_non_allowed_area() {
    for (service, refused) in
        [(ServiceType::MobileTerminatedServices, true), (ServiceType::HighPriorityAccess, false)]
    {
        let mut harness = not_allowed(UeHarness::registered(), 1);
        idle(&mut harness);
        let batches = service_request(&mut harness, service, one());
        let accept = service_accept(&mut harness, &batches).unwrap();
        assert_eq!(accept.reactivation_result.unwrap().contains(psi(1)), refused);
        let why = accept.reactivation_errors.map(|e| e.0);
        assert_eq!(why, refused.then(|| vec![(psi(1), MmCause::RestrictedServiceArea)]));
    }
}

#[test] // TS 24.501 §5.6.1.4.1: #43: the user plane of a local data network elsewhere
fn a_user_plane_outside_its_local_area() {
    let mut harness = UeHarness::registered_with(local(&[7], false));
    idle(&mut harness);
    let batches = service_request(&mut harness, ServiceType::Data, one());
    let accept = service_accept(&mut harness, &batches).unwrap();
    assert_eq!(accept.reactivation_errors.unwrap().0, [(psi(1), MmCause::LadnNotAvailable)]);
}

#[test] // TS 24.501 §5.6.1.4.1: what may be had is had, and no cause stands in the accept
fn a_user_plane_within_its_area() {
    let mut harness = not_allowed(UeHarness::registered_with(local(&[1], false)), 7);
    idle(&mut harness);
    let batches = service_request(&mut harness, ServiceType::Data, one());
    let accept = service_accept(&mut harness, &batches).unwrap();
    assert!(accept.reactivation_result.unwrap().is_empty() && accept.reactivation_errors.is_none());
}

/// Downlink packets wait for the session.
pub(super) fn downlink_data(harness: &mut UeHarness) -> Vec<Batch> {
    use whimbrel_pfcp::ie::ReportType;
    use whimbrel_pfcp::msg::SessionReportRequest;
    let mut m = SessionReportRequest::new(ReportType::DLDR);
    m.downlink_data_report = Some(whimbrel_pfcp::msg::DownlinkDataReport {
        pdr_ids: vec![whimbrel_pfcp::ie::PdrId(2)],
        downlink_data_service_information: Vec::new(),
        dl_data_packets_size: None,
        data_status: None,
    });
    let octets = whimbrel_pfcp::Message::from(m).to_octets(Some(session(harness).cp_seid), 9);
    let batch =
        harness.input(Payload::PfcpReport { psi: 1, upf: crate::upf::UpfId(0), octets: octets.into() });
    harness.settle(batch)
}

fn paged(batches: &[Batch]) -> Option<Vec<Tai>> {
    batches.iter().flat_map(|b| &b.outputs).find_map(|o| match &o.effect {
        Effect::Page { tais, .. } => Some(tais.clone()),
        _ => None,
    })
}

/// The UE's registration area is these tracking areas.
fn registered_in(harness: &mut UeHarness, tacs: &[u32]) {
    let mut ue = harness.shard.checkpoint(harness.id).unwrap();
    let plmn = ue.amf.location.tai.unwrap().plmn;
    ue.amf.location.registration_area = tacs.iter().map(|n| Tai { plmn, tac: tac(*n) }).collect();
    harness.shard.restore(ue);
}

#[test] // TS 23.501 §5.3.4.1.1, TS 23.502 §4.2.3.3: a UE is not paged where it may not have what waits for it
fn paging_passes_non_allowed_areas_by() {
    let mut harness = not_allowed(UeHarness::registered(), 1);
    registered_in(&mut harness, &[1, 2]);
    idle(&mut harness);
    let tais = paged(&downlink_data(&mut harness)).unwrap();
    assert_eq!(tais.iter().map(|t| t.tac).collect::<Vec<_>>(), [tac(2)]);
    let mut harness = not_allowed(UeHarness::registered(), 1);
    idle(&mut harness);
    let batches = downlink_data(&mut harness);
    assert_eq!(paged(&batches), None);
    assert!(!session(&harness).awaited, "what waited is thrown away");
}

#[test] // TS 23.501 §5.6.5: nor for a local data network that is elsewhere; a connected UE's is not set up
fn paging_for_a_local_data_network() {
    let mut harness = UeHarness::registered_with(local(&[2], false));
    registered_in(&mut harness, &[1, 2]);
    idle(&mut harness);
    let tais = paged(&downlink_data(&mut harness)).unwrap();
    assert_eq!(tais.iter().map(|t| t.tac).collect::<Vec<_>>(), [tac(2)]);
    let mut harness = UeHarness::registered_with(local(&[2], false));
    let order = Command::ModifySession(psi(1), Modification::Deactivate);
    let batch = harness.input(Payload::Command(order));
    harness.settle(batch);
    let batches = downlink_data(&mut harness);
    assert!(batches.iter().flat_map(n2).next().is_none() && !session(&harness).awaited);
}

#[test] // TS 23.501 §5.6.5, TS 24.501 §6.3.3.2: the operator makes the data network a local one of another place: it waits, or ends with #46
fn a_data_network_becomes_local() {
    for release in [false, true] {
        let mut harness = UeHarness::registered();
        harness.shard.configure(Arc::new(local(&[7], release)));
        let batch = harness.input(Payload::Command(Command::PolicyChanged));
        let batches = harness.settle(batch);
        let cause = downlink_5gsm(&mut harness, &batches).into_iter().find_map(|m| match m.body {
            sm::Body::ReleaseCommand(c) => Some(c.cause),
            _ => None,
        });
        assert_eq!(cause, release.then_some(SmCause::OutOfLadnServiceArea));
        if !release {
            assert_eq!(session(&harness).up, UpState::Inactive);
        }
    }
}

/// A registration update; what it asks of local data networks.
fn register(harness: &mut UeHarness, asked: Option<LadnIndication>) -> Box<RegistrationAccept> {
    let kind = RegistrationType { kind: RegistrationKind::MobilityUpdating, follow_on_request: false };
    let identity = MobileIdentity::Guti(whimbrel_ids::Guti {
        guami: config().amf.guami(),
        tmsi: whimbrel_ids::Tmsi(0x1234),
    });
    let mut m = RegistrationRequest::new(kind, NgKsi::native(0).unwrap(), identity);
    m.ladn_indication = asked;
    let batch = harness.nas(CIPHERED, m);
    let batches = harness.settle(batch);
    let accept = batches.iter().flat_map(|b| harness.downlink(b)).find_map(|m| match m {
        mm::Message::RegistrationAccept(m) => Some(m),
        _ => None,
    });
    Box::new(accept.unwrap())
}

#[test] // TS 24.501 §5.5.1.3.4, §6.2.6, TS 23.501 §5.6.5: LADN information lists the local data networks within the registration area
fn ladn_information_is_limited_to_the_registration_area() {
    let internet = || "internet".parse::<whimbrel_ids::Dnn>().unwrap();
    for (tacs, asked, expected) in [
        (&[1, 9][..], None, true),
        (&[1], Some(vec![]), true),
        (&[1], Some(vec![internet()]), true),
        (&[1], Some(vec!["ims".parse().unwrap()]), false),
        (&[9], None, false),
    ] {
        let mut harness = UeHarness::registered_with(local(tacs, false));
        let accept = register(&mut harness, asked.map(LadnIndication));
        let information = accept.ladn_information.map(|l| l.0);
        assert_eq!(information.is_some(), expected, "{tacs:?}");
        if let Some([(dnn, area)]) = information.as_deref() {
            let here = harness.context().unwrap().amf.location.tai.unwrap();
            assert!(*dnn == internet() && area.contains(here));
            assert!(!area.contains(Tai { tac: tac(9), ..here }));
        }
    }
}

#[test] // TS 24.501 §5.4.4.2: CONFIGURATION UPDATE COMMAND has the changed LADN information for a connected UE
fn a_connected_ue_gets_changed_ladn_information() {
    let mut harness = UeHarness::registered();
    harness.shard.configure(Arc::new(local(&[1], false)));
    let batch = harness.input(Payload::Command(Command::PolicyChanged));
    let command = harness.downlink(&batch).into_iter().find_map(|m| match m {
        mm::Message::ConfigurationUpdateCommand(m) => Some(m),
        _ => None,
    });
    let command = command.unwrap();
    assert_eq!(command.ladn_information.unwrap().0.len(), 1);
    assert!(command.update_indication.unwrap().acknowledgement_requested);
}

/// A request under this identity.
fn asks(harness: &mut UeHarness, n: u8, request_type: RequestType, body: impl Into<sm::Body>) -> Vec<Batch> {
    let octets = sm::Message::new(psi(n), Pti(5), body).to_octets();
    let container = PayloadContainer::new(octets).unwrap();
    let mut m = UlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, container);
    m.pdu_session_id = Some(psi(n));
    m.request_type = Some(request_type);
    let batch = harness.nas(CIPHERED, m);
    harness.settle(batch)
}

fn establishment() -> sm::EstablishmentRequest {
    use whimbrel_nas::ie::{IntegrityDataRate, IntegrityMaxDataRate};
    let full = IntegrityDataRate::Full;
    sm::EstablishmentRequest::new(IntegrityMaxDataRate { uplink: full, downlink: full })
}

#[test] // TS 24.501 §6.4.1.4.1 #46, §6.2.6: a session of a local data network is refused elsewhere
fn a_session_outside_its_local_area() {
    let mut harness = UeHarness::registered_with(local(&[7], false));
    let batches = asks(&mut harness, 2, RequestType::InitialRequest, establishment());
    let cause = downlink_5gsm(&mut harness, &batches).into_iter().find_map(|m| match m.body {
        sm::Body::EstablishmentReject(m) => Some(m.cause),
        _ => None,
    });
    assert_eq!(cause, Some(SmCause::OutOfLadnServiceArea));
    assert!(matches!(refusals(&batches)[..], [Refusal::OutOfLadn(..)]));
}

#[test] // TS 24.501 §5.4.5.2.5 #28: neither are sessions begun nor changed where no services may be started; they may end
fn session_management_in_a_non_allowed_area() {
    let mut harness = not_allowed(UeHarness::registered(), 1);
    let mut returned = |n, kind, body: sm::Body| {
        let batches = asks(&mut harness, n, kind, body);
        batches.iter().flat_map(|b| harness.downlink(b)).find_map(|m| match m {
            mm::Message::DlNasTransport(m) => m.cause,
            _ => None,
        })
    };
    let refused = Some(MmCause::RestrictedServiceArea);
    assert_eq!(returned(2, RequestType::InitialRequest, establishment().into()), refused);
    assert_eq!(returned(1, RequestType::ModificationRequest, sm::ModificationRequest::new().into()), refused);
    let octets = says(&mut harness, 6, sm::ReleaseRequest::new());
    assert!(
        downlink_5gsm(&mut harness, &octets).iter().any(|m| matches!(m.body, sm::Body::ReleaseCommand(_)))
    );
}
