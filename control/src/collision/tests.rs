//! Two procedures of one UE at once: the lists of TS 24.501 §5.4, §5.5 and §5.6, one case a test.

use whimbrel_ids::{PlmnId, STmsi, Tmsi};
use whimbrel_nas::ie::{
    Accesses, DeregistrationType, MmCause, MobileIdentity, NgKsi, PduSessionSet, RegistrationKind,
    ServiceType,
};
use whimbrel_nas::mm::{
    self, AuthenticationFailure, ConfigurationUpdateComplete, DeregistrationRequestUeOriginating, Message,
    RegistrationComplete, ServiceRequest,
};
use whimbrel_security::{
    AuthenticationManagementField, AuthenticationVector, K, Milenage, NasCounts, Opc, Rand,
    ServingNetworkName, Sqn,
};

use crate::envelope::{Batch, Command, Disposition, Effect, OutputId, Payload};
use crate::event::{Event, MessageDropReason};
use crate::procedure::Procedure;
use crate::services::nudm::{AuthData, UdmAnswer, UdmRequest, Vector};
use crate::ue_harness::{CIPHERED, INTEGRITY, UeHarness, n2, psi, registration_request, supi};

const TMSI: Tmsi = Tmsi(0x1234);

/// A UE whose COUNTs run out: a request under the context in force starts an authentication, so that there is a time before
/// REGISTRATION ACCEPT.
fn to_be_authenticated() -> UeHarness {
    UeHarness::registered_at(NasCounts { uplink_next: (1 << 24) - 1000, downlink_next: 6 })
}

fn deregistration(switch_off: bool) -> DeregistrationRequestUeOriginating {
    let kind =
        DeregistrationType { switch_off, re_registration_required: false, accesses: Accesses::ThreeGpp };
    let guti = registration_request(RegistrationKind::Initial).mobile_identity;
    DeregistrationRequestUeOriginating::new(kind, NgKsi::native(0).unwrap(), guti)
}

fn service_request(service_type: ServiceType) -> ServiceRequest {
    let identity = MobileIdentity::STmsi(STmsi { set: 1, pointer: 0, tmsi: TMSI });
    let mut m = ServiceRequest::new(NgKsi::native(0).unwrap(), service_type, identity);
    if service_type == ServiceType::Data {
        m.uplink_data_status = Some([psi(1)].into_iter().collect::<PduSessionSet>());
    }
    m
}

/// A service request as the first message of a connection: its procedure awaits the gNB.
fn serving() -> (UeHarness, Batch) {
    let mut harness = UeHarness::registered();
    let pdu = harness.protect(INTEGRITY, service_request(ServiceType::Signalling));
    let batch = harness.first(pdu, Some(TMSI));
    let asked = n2(&batch).iter().any(|m| matches!(m, whimbrel_ngap::Message::InitialContextSetupRequest(_)));
    assert!(asked, "the gNB has not answered yet");
    (harness, batch)
}

/// The UE was paged and came: it gets a new 5G-GUTI.
fn being_updated() -> (UeHarness, Batch) {
    let mut harness = UeHarness::registered();
    let batch = harness.nas(CIPHERED, service_request(ServiceType::MobileTerminatedServices));
    assert!(
        has_downlink(&mut harness, &batch, |m| matches!(m, Message::ConfigurationUpdateCommand(_))),
        "{:?}",
        batch.events
    );
    (harness, batch)
}

fn has_downlink(harness: &mut UeHarness, batch: &Batch, what: fn(&Message) -> bool) -> bool {
    harness.downlink(batch).iter().any(what)
}

fn accepted(harness: &mut UeHarness, batch: &Batch) -> bool {
    has_downlink(harness, batch, |m| matches!(m, Message::RegistrationAccept(_)))
}

fn deactivate_at_gnb(harness: &mut UeHarness, batch: &Batch) -> bool {
    let accept = has_downlink(harness, batch, |m| matches!(m, Message::DeregistrationAcceptUeOriginating(_)));
    accept && batch.disposition == Disposition::Ended
}

/// Where a batch asks for a vector.
fn vector_asked(harness: &UeHarness, batch: &Batch) -> Option<OutputId> {
    let asks = |e: &Effect| matches!(e, Effect::Udm(UdmRequest::GenerateAuthData { .. }));
    let index = batch.outputs.iter().position(|o| asks(&o.effect))?;
    Some(OutputId { clock: harness.clock(), index: u16::try_from(index).unwrap() })
}

fn vector() -> AuthenticationVector {
    AuthenticationVector::generate(
        &Milenage::new(&K::new([1; 16]), Opc::new([2; 16])).into(),
        Rand([3; 16]),
        Sqn::new(77, 0),
        AuthenticationManagementField::FIVE_G,
        &ServingNetworkName::new(PlmnId::TEST),
    )
}

/// Gives the UE a challenge; which key it proposes.
fn challenge(harness: &mut UeHarness, to: OutputId) -> Option<NgKsi> {
    let vector = Vector::FiveGAka(Box::new(vector()));
    let answer = UdmAnswer::AuthData(Ok(AuthData { supi: supi(), vector }));
    let batch = harness.input(Payload::Udm { to, answer });
    harness.downlink(&batch).into_iter().find_map(|m| match m {
        Message::AuthenticationRequest(m) => Some(m.ng_ksi),
        _ => None,
    })
}

fn duplicate(batch: &Batch) -> bool {
    let dropped = |e: &Event| matches!(e, Event::Dropped { why: MessageDropReason::Duplicate, .. });
    batch.outputs.is_empty() && batch.events.iter().any(dropped)
}

#[test] // TS 24.501 §5.5.1.2.8 e 2, §5.5.1.3.8 e 2: the same request again before the accept changes nothing
fn the_same_request_before_the_accept() {
    let mut harness = to_be_authenticated();
    let request = registration_request(RegistrationKind::MobilityUpdating);
    let batch = harness.nas(CIPHERED, request.clone());
    assert!(vector_asked(&harness, &batch).is_some());
    let batch = harness.nas(CIPHERED, request);
    assert!(duplicate(&batch) && !batch.idle, "{:?}", batch.events);
}

#[test] // TS 24.501 §5.5.1.2.8 e 1, §5.5.1.3.8 e 1: another request before the accept starts over
fn another_request_before_the_accept() {
    let mut harness = to_be_authenticated();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::MobilityUpdating));
    let first = vector_asked(&harness, &batch).unwrap();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::Initial));
    assert!(vector_asked(&harness, &batch).is_some(), "it is authenticated for the new request");
    assert_eq!(challenge(&mut harness, first), None, "no procedure awaits the answer any more");
}

#[test] // TS 24.501 §5.5.1.2.8 f, §5.5.1.2.4 sessions: a UE that is registered registers initially: without its sessions
fn an_initial_registration_of_a_registered_ue() {
    let mut harness = UeHarness::registered();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::Initial));
    assert!(accepted(&mut harness, &batch));
    let deletes = batch.outputs.iter().any(|o| matches!(o.effect, Effect::N4 { .. }));
    assert!(deletes && harness.context().unwrap().sessions.is_empty());
}

#[test] // TS 24.501 §5.5.1.2.8 g: an update before the initial registration is confirmed: that is aborted, this is served
fn an_update_before_the_completion() {
    let mut harness = UeHarness::registered();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::Initial));
    assert!(accepted(&mut harness, &batch));
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::MobilityUpdating));
    assert!(accepted(&mut harness, &batch));
    let batch = harness.nas(CIPHERED, RegistrationComplete::new());
    assert!(batch.idle && harness.context().unwrap().amf.registered);
}

#[test] // TS 24.501 §5.5.1.3.8 f: an initial registration before the update is confirmed takes its place
fn an_initial_registration_before_the_completion() {
    let mut harness = UeHarness::registered();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::MobilityUpdating));
    assert!(accepted(&mut harness, &batch) && !harness.context().unwrap().sessions.is_empty());
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::Initial));
    assert!(accepted(&mut harness, &batch) && harness.context().unwrap().sessions.is_empty());
}

#[test] // TS 24.501 §5.5.1.2.8 h, §5.5.1.3.8 g: the UE leaves before it has confirmed
fn a_deregistration_before_the_completion() {
    for kind in [RegistrationKind::Initial, RegistrationKind::MobilityUpdating] {
        let mut harness = UeHarness::registered();
        let batch = harness.nas(CIPHERED, registration_request(kind));
        assert!(accepted(&mut harness, &batch));
        let batch = harness.nas(CIPHERED, deregistration(false));
        assert!(deactivate_at_gnb(&mut harness, &batch));
    }
}

#[test] // TS 24.501 §5.4.1.3.7 e: #71, the UE has a key of that name: it is challenged again under another
fn a_key_name_in_use() {
    let mut harness = to_be_authenticated();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::MobilityUpdating));
    let to = vector_asked(&harness, &batch).unwrap();
    let first = challenge(&mut harness, to).unwrap();
    let batch = harness.nas(CIPHERED, AuthenticationFailure::new(MmCause::NgKsiAlreadyInUse));
    let to = vector_asked(&harness, &batch).unwrap();
    let second = challenge(&mut harness, to).unwrap();
    assert_ne!(first, second);
}

#[test] // TS 24.501 §5.4.1.3.7 d: #26, non-5G authentication unacceptable: a UE named by its 5G-GUTI is identified
fn a_challenge_that_is_not_of_5g() {
    let mut harness = to_be_authenticated();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::MobilityUpdating));
    let to = vector_asked(&harness, &batch).unwrap();
    assert!(challenge(&mut harness, to).is_some());
    let batch = harness.nas(CIPHERED, AuthenticationFailure::new(MmCause::Non5gAuthenticationUnacceptable));
    assert!(has_downlink(&mut harness, &batch, |m| matches!(m, Message::IdentityRequest(_))));
}

#[test] // TS 24.501 §5.5.2.3.5 c, §5.5.2.2.7 b: both sides want the UE deregistered: it gets its accept, and is
fn deregistrations_from_both_sides() {
    let mut harness = UeHarness::registered();
    harness.input(Payload::Command(Command::Deregister));
    let batch = harness.nas(CIPHERED, deregistration(false));
    assert!(deactivate_at_gnb(&mut harness, &batch));
    assert!(harness.context().is_none());
}

#[test] // TS 24.501 §5.5.2.3.5 f: a service request while the network deregisters the UE changes nothing
fn a_service_request_during_a_deregistration_by_the_network() {
    let mut harness = UeHarness::registered();
    harness.input(Payload::Command(Command::Deregister));
    let batch = harness.nas(CIPHERED, service_request(ServiceType::Signalling));
    assert!(batch.outputs.is_empty() && !batch.idle);
}

#[test] // TS 24.501 §5.4.4.6 c: the UE leaves while its configuration is updated
fn a_deregistration_during_a_configuration_update() {
    let (mut harness, _) = being_updated();
    let batch = harness.nas(CIPHERED, deregistration(false));
    assert!(deactivate_at_gnb(&mut harness, &batch));
}

#[test] // TS 24.501 §5.4.4.6 d: a registration during a configuration update goes first; either 5G-GUTI finds the UE
fn a_registration_during_a_configuration_update() {
    let (mut harness, _) = being_updated();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::MobilityUpdating));
    assert!(accepted(&mut harness, &batch));
    let ue = harness.context().unwrap();
    assert_eq!(ue.amf.former_tmsi, Some(TMSI), "it showed the one that it has");
}

#[test] // TS 24.501 §5.4.4.6 e: a service request during a configuration update: both go on
fn a_service_request_during_a_configuration_update() {
    let (mut harness, _) = being_updated();
    let batch = harness.nas(CIPHERED, service_request(ServiceType::Signalling));
    assert!(has_downlink(&mut harness, &batch, |m| matches!(m, Message::ServiceAccept(_))));
    let batch = harness.nas(CIPHERED, ConfigurationUpdateComplete {});
    assert!(!has_downlink(&mut harness, &batch, |m| matches!(m, Message::MmStatus(_))), "it was asked for");
}

#[test] // TS 24.501 §5.6.1.8 c: the same service request again changes nothing
fn a_service_request_twice() {
    let (mut harness, _) = serving();
    let batch = harness.nas(CIPHERED, service_request(ServiceType::Signalling));
    assert!(duplicate(&batch), "{:?}", batch.events);
}

#[test] // TS 24.501 §5.6.1.8 d: an initial registration takes the place of a service request
fn an_initial_registration_during_a_service_request() {
    let (mut harness, _) = serving();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::Initial));
    assert!(accepted(&mut harness, &batch) && harness.context().unwrap().sessions.is_empty());
}

#[test] // TS 24.501 §5.6.1.8 e: so does an update, which keeps the sessions
fn an_update_during_a_service_request() {
    let (mut harness, _) = serving();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::PeriodicUpdating));
    assert!(accepted(&mut harness, &batch) && harness.context().unwrap().sessions.len() == 1);
}

#[test] // TS 24.501 §5.6.1.8 f: the UE leaves during its service request
fn a_deregistration_during_a_service_request() {
    let (mut harness, _) = serving();
    let batch = harness.nas(CIPHERED, deregistration(true));
    assert_eq!(batch.disposition, Disposition::Ended);
    assert!(!has_downlink(&mut harness, &batch, |m| matches!(
        m,
        mm::Message::DeregistrationAcceptUeOriginating(_)
    )));
}

#[test] // TS 24.501 §5.4.6.3: 5GMM STATUS is not answered
fn a_status_is_not_answered() {
    let mut harness = UeHarness::registered();
    let batch = harness.nas(CIPHERED, mm::MmStatus::new(MmCause::ProtocolErrorUnspecified));
    assert!(batch.outputs.is_empty() && harness.context().unwrap().amf.registered);
}

const OF_SESSIONS: [Procedure; 7] = [
    Procedure::PduSessionEstablishment,
    Procedure::PduSessionModificationByUe,
    Procedure::PduSessionModificationByNetwork,
    Procedure::PduSessionReleaseByUe,
    Procedure::PduSessionReleaseByNetwork,
    Procedure::UpConnectionActivation,
    Procedure::UpConnectionDeactivation,
];

#[test] // TS 24.501 §6.4.2.6 b, §6.4.2.6 c
fn a_modification_meets_each_procedure() {
    use super::CollisionVerdict::{Ignore, Wait};
    let verdicts = OF_SESSIONS.map(|p| super::modification_meets(Some(p)));
    assert_eq!(verdicts, [Wait, Ignore, Ignore, Ignore, Ignore, Wait, Wait]);
    assert_eq!(super::modification_meets(None), super::CollisionVerdict::Proceed);
}

#[test] // TS 23.502 §4.9.1 collision, TS 38.413 §8.4.1.2, §8.4.4.2: a handover is refused while its connection is released, and by nothing else
fn a_handover_meets_each_procedure() {
    use super::CollisionVerdict::{Ignore, Proceed};
    for p in OF_SESSIONS.into_iter().chain([
        Procedure::Registration,
        Procedure::UeContextTransfer,
        Procedure::DeregistrationByNetwork,
        Procedure::Authentication,
        Procedure::ServiceRequest,
        Procedure::ConfigurationUpdate,
        Procedure::Handover,
        Procedure::PathSwitch,
    ]) {
        assert_eq!(super::handover_meets(Some(p)), Proceed, "{p:?}");
    }
    assert_eq!(super::handover_meets(Some(Procedure::AnRelease)), Ignore);
}

#[test] // TS 33.501 §6.9.5: no new NAS keys while the radio gets new keys; nothing at all to a UE on its way
fn a_message_meets_each_phase_of_a_handover() {
    use super::CollisionVerdict::{Proceed, Wait};
    use crate::state::{DownlinkProtection, Phase};
    for security in [DownlinkProtection::Plain, DownlinkProtection::Current, DownlinkProtection::Proposed] {
        let preparing = super::message_meets(Some(Phase::Preparing), security);
        assert_eq!(super::message_meets(Some(Phase::Waiting), security), preparing);
        assert_eq!(preparing == Proceed, security != DownlinkProtection::Proposed);
        for phase in [Some(Phase::Executing), None] {
            assert_eq!(super::message_meets(phase, security), Wait);
        }
    }
}

#[test] // TS 24.501 §6.4.3.6 b
fn a_release_meets_each_procedure() {
    use super::CollisionVerdict::{Ignore, Proceed};
    let verdicts = OF_SESSIONS.map(|p| super::release_meets(Some(p)));
    assert_eq!(verdicts, [Proceed, Proceed, Proceed, Ignore, Ignore, Proceed, Proceed]);
}

#[test] // TS 24.501 §5.4.3.6 c: a registration during identification: the same request changes nothing, another starts over
fn a_registration_during_the_identification() {
    let mut harness = UeHarness::unknown();
    let request = registration_request(RegistrationKind::MobilityUpdating);
    let batch = harness.first_plain(request.clone());
    let asked = |m: &Message| matches!(m, Message::IdentityRequest(_));
    assert!(has_downlink(&mut harness, &batch, asked));
    let batch = harness.nas_plain(request);
    assert!(duplicate(&batch), "{:?}", batch.events);
    let batch = harness.nas_plain(registration_request(RegistrationKind::Initial));
    assert!(has_downlink(&mut harness, &batch, asked) && !batch.idle);
}

#[test] // TS 24.501 §5.5.1.3.5 #9: a periodic registration of an unknown UE
fn a_periodic_registration_of_an_unknown_ue_is_rejected() {
    let mut harness = UeHarness::unknown();
    let mut request = registration_request(RegistrationKind::PeriodicUpdating);
    request.ue_security_capability = None;
    let batch = harness.first_plain(request);
    let cause = harness.downlink(&batch).into_iter().find_map(|m| match m {
        Message::RegistrationReject(m) => Some(m.cause),
        _ => None,
    });
    assert_eq!(cause, Some(MmCause::UeIdentityCannotBeDerived));
    // §5.3.1.3: its connection is released when it has not registered again in time.
    assert_eq!((batch.disposition, batch.idle), (Disposition::Keep, true));
    let batch = harness.expire(&batch);
    assert_eq!(batch.disposition, Disposition::Ended);
    assert!(matches!(n2(&batch).as_slice(), [whimbrel_ngap::Message::UeContextReleaseCommand(_)]));
}

#[test] // TS 24.501 §5.5.1.3.4 status: a session that the UE does not have ends, and the UE learns what the network has
fn a_session_that_the_ue_has_lost() {
    let mut harness = UeHarness::registered();
    let mut request = registration_request(RegistrationKind::MobilityUpdating);
    request.pdu_session_status = Some([psi(5)].into_iter().collect::<PduSessionSet>());
    let batch = harness.nas(CIPHERED, request);
    let status = harness.downlink(&batch).into_iter().find_map(|m| match m {
        Message::RegistrationAccept(m) => m.pdu_session_status,
        _ => None,
    });
    assert_eq!(status, Some(PduSessionSet::default()));
    assert!(harness.context().unwrap().sessions.is_empty());
}
