//! What a machine does with messages that no UE in order sends, one case each.

use whimbrel_ids::Tmsi;
use whimbrel_nas::ie::{
    Accesses, DeregistrationType, MmCause, MobileIdentity, NgKsi, PayloadContainer, PayloadContainerType,
    RegistrationKind, RequestType, SmCause,
};
use whimbrel_nas::mm::{
    self, DeregistrationRequestUeOriginating, IdentityResponse, RegistrationComplete, UlNasTransport,
};
use whimbrel_nas::sm::{self, Pti};
use whimbrel_ngap::Message;
use whimbrel_security::NasCounts;

use crate::envelope::{Batch, Command, Disposition, Effect, Payload};
use crate::event::{DeregistrationReason, Event, MessageDropReason};
use crate::services::nudm::{Identity, UdmRequest};
use crate::state::{SmContext, UeContext};
use crate::udm;
use crate::ue_harness::{CIPHERED, INTEGRITY, UeHarness, n2, psi, registration_request, supi};

fn sm_container(n: u8, pti: u8, body: impl Into<sm::Body>) -> UlNasTransport {
    let mut octets = Vec::new();
    sm::Message::new(psi(n), Pti(pti), body).encode(&mut octets);
    let container = PayloadContainer::new(octets).unwrap();
    let mut m = UlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, container);
    m.pdu_session_id = Some(psi(1));
    m
}

/// The 5GSM cause of a 5GSM STATUS in a batch.
fn sm_status(harness: &mut UeHarness, batch: &Batch) -> Option<SmCause> {
    harness.downlink(batch).into_iter().find_map(|m| {
        let mm::Message::DlNasTransport(m) = m else { return None };
        match sm::Message::decode(&m.payload_container).ok()?.body {
            sm::Body::SmStatus(status) => Some(status.cause),
            _ => None,
        }
    })
}

fn dropped(batch: &Batch) -> Option<MessageDropReason> {
    batch.events.iter().find_map(|e| if let Event::Dropped { why, .. } = e { Some(*why) } else { None })
}

fn accept_in(harness: &mut UeHarness, batch: &Batch) -> Option<Box<mm::RegistrationAccept>> {
    harness.downlink(batch).into_iter().find_map(|m| match m {
        mm::Message::RegistrationAccept(m) => Some(Box::new(m)),
        _ => None,
    })
}

#[test] // TS 24.501 §9.3.1, §4.4.5: only initial messages may be integrity protected without being ciphered
fn a_message_under_the_wrong_header_type_is_dropped() {
    let mut harness = UeHarness::registered();
    let batch = harness.nas(INTEGRITY, sm_container(1, 7, sm::ReleaseRequest::new()));
    assert_eq!(dropped(&batch), Some(MessageDropReason::Integrity));
    assert!(batch.outputs.is_empty());
    let header = whimbrel_security::SecurityHeaderType::IntegrityProtectedAndCipheredWithNewContext;
    let batch = harness.nas(header, sm_container(1, 7, sm::ReleaseRequest::new()));
    assert_eq!(dropped(&batch), Some(MessageDropReason::Integrity), "nothing is being proposed");
}

#[test] // TS 24.501 §4.4.3.5: a UE whose COUNT runs out is authenticated again
fn a_count_near_its_wrap_leads_to_new_keys() {
    let near = NasCounts { uplink_next: (1 << 24) - 1000, downlink_next: 6 };
    let mut harness = UeHarness::registered_at(near);
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::MobilityUpdating));
    let asks =
        batch.outputs.iter().any(|o| matches!(o.effect, Effect::Udm(UdmRequest::GenerateAuthData { .. })));
    assert!(asks, "{:?}", batch.outputs);
    let mut harness = UeHarness::registered();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::MobilityUpdating));
    assert!(accept_in(&mut harness, &batch).is_some(), "one that is far from it is not");
}

#[test] // TS 24.501 §5.5.1.2.8 d 2, §5.5.1.3.8 d 2: the same request again, under its new COUNT, has the accept sent again
fn a_repeated_registration_request_is_answered_with_the_same_accept() {
    let mut harness = UeHarness::registered();
    let request = registration_request(RegistrationKind::MobilityUpdating);
    let batch = harness.nas(CIPHERED, request.clone());
    let first = accept_in(&mut harness, &batch).unwrap();
    let batch = harness.nas(CIPHERED, request);
    let second = accept_in(&mut harness, &batch).unwrap();
    assert_eq!(first, second);
    let batch = harness.nas(CIPHERED, RegistrationComplete::new());
    assert!(batch.idle, "the UE has confirmed");
    assert_eq!(harness.context().unwrap().amf.former_tmsi, None);
}

#[test] // TS 24.501 §5.5.1.2.8 d 1, §5.5.1.3.8 d 1: a request that differs starts over
fn a_different_registration_request_starts_over() {
    let mut harness = UeHarness::registered();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::MobilityUpdating));
    let first = accept_in(&mut harness, &batch).unwrap();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::PeriodicUpdating));
    let second = accept_in(&mut harness, &batch).unwrap();
    assert_ne!(first.guti, second.guti);
}

#[test] // TS 24.501 §5.5.1.2.8 c, §5.5.1.3.8 c: after the fifth expiry of T3550 the UE is registered, under both 5G-GUTIs
fn an_accept_that_is_never_confirmed_leaves_the_ue_registered() {
    let mut harness = UeHarness::registered();
    let mut batch = harness.nas(CIPHERED, registration_request(RegistrationKind::MobilityUpdating));
    let mut accepts = usize::from(accept_in(&mut harness, &batch).is_some());
    for _ in 0..5 {
        batch = harness.expire(&batch);
        accepts += usize::from(accept_in(&mut harness, &batch).is_some());
    }
    assert_eq!(accepts, 5);
    assert!(n2(&batch).iter().any(|m| matches!(m, Message::UeContextReleaseCommand(_))));
    let ue = harness.context().unwrap();
    assert!(ue.amf.registered && ue.amf.former_tmsi == Some(Tmsi(0x1234)) && ue.amf.tmsi.is_some());
}

#[test] // TS 24.501 §5.5.1.2.4: the 5G-GUTI that the UE shows is the one that it has
fn the_ue_settles_which_guti_is_good() {
    let mut harness = UeHarness::registered();
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::MobilityUpdating));
    assert!(accept_in(&mut harness, &batch).is_some());
    // It never got the accept, and comes again, differently, under its old 5G-GUTI.
    harness.nas(CIPHERED, registration_request(RegistrationKind::PeriodicUpdating));
    assert_eq!(harness.context().unwrap().amf.former_tmsi, Some(Tmsi(0x1234)), "that one must stay good");
}

#[test] // TS 24.501 §7.3.1, §6.2.1: a request without a transaction
fn a_request_without_pti_gets_5gsm_status() {
    for (pti, cause) in [(0, Some(SmCause::InvalidPtiValue)), (255, None)] {
        let mut harness = UeHarness::registered();
        let batch = harness.nas(CIPHERED, sm_container(1, pti, sm::ReleaseRequest::new()));
        assert_eq!(sm_status(&mut harness, &batch), cause, "a reserved one is ignored");
        assert!(harness.context().unwrap().sessions.contains_key(&psi(1)));
    }
}

#[test] // TS 24.501 §7.3.1: a completion of an unknown transaction
fn a_completion_with_another_pti_is_a_mismatch() {
    let mut harness = UeHarness::registered();
    let batch = harness.nas(CIPHERED, sm_container(1, 9, sm::ReleaseRequest::new()));
    assert!(n2(&batch).iter().any(|m| matches!(m, Message::PduSessionResourceReleaseCommand(_))));
    harness.downlink(&batch);
    let batch = harness.nas(CIPHERED, sm_container(1, 10, sm::ReleaseComplete::new()));
    assert_eq!(sm_status(&mut harness, &batch), Some(SmCause::PtiMismatch));
    harness.nas(CIPHERED, sm_container(1, 9, sm::ReleaseComplete::new()));
    assert!(harness.context().unwrap().sessions.is_empty());
}

#[test] // TS 24.501 §7.3.2: the 5GSM header names another session than its envelope
fn a_message_of_another_session_gets_5gsm_status() {
    let mut harness = UeHarness::registered();
    let batch = harness.nas(CIPHERED, sm_container(2, 9, sm::ReleaseRequest::new()));
    assert_eq!(sm_status(&mut harness, &batch), Some(SmCause::InvalidPduSessionIdentity));
}

#[test] // TS 24.501 §6.5.3: the UE does not have the session
fn a_status_that_denies_a_session_ends_it() {
    let mut harness = UeHarness::registered();
    harness.nas(CIPHERED, sm_container(1, 0, sm::SmStatus::new(SmCause::InvalidPduSessionIdentity)));
    assert!(harness.context().unwrap().sessions.is_empty());
}

#[test] // TS 24.501 §5.4.5.2.5: no emergency service here
fn an_emergency_session_is_not_forwarded() {
    let mut harness = UeHarness::registered();
    let mut m = sm_container(1, 9, sm::ReleaseRequest::new());
    m.request_type = Some(RequestType::InitialEmergencyRequest);
    let batch = harness.nas(CIPHERED, m);
    let answers = harness.downlink(&batch);
    let [mm::Message::DlNasTransport(m)] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(m.cause, Some(MmCause::PayloadWasNotForwarded));
}

#[test] // TS 24.501 §5.4.5.2.5: SMS, LPP, SOR and UE policy have no function here and harm nothing
fn payloads_without_a_function_are_ignored() {
    use PayloadContainerType as Kind;
    for kind in [Kind::SMS, Kind::LPP, Kind::SOR, Kind::UE_POLICY, Kind::UE_PARAMETERS_UPDATE] {
        let mut harness = UeHarness::registered();
        let payload = PayloadContainer::new(vec![1, 2, 3]).unwrap();
        let batch = harness.nas(CIPHERED, UlNasTransport::new(kind, payload));
        assert_eq!(dropped(&batch), Some(MessageDropReason::UnservedPayload));
        assert!(batch.outputs.is_empty() && harness.context().unwrap().amf.registered);
    }
}

#[test] // TS 24.501 §5.5.1.2.6: an emergency registration is refused without harm to the USIM
fn an_emergency_registration_is_refused() {
    let mut harness = UeHarness::unknown();
    let batch = harness.first_plain(registration_request(RegistrationKind::Emergency));
    let answers = harness.downlink(&batch);
    let reject = answers.iter().find_map(|m| match m {
        mm::Message::RegistrationReject(m) => Some(m.cause),
        _ => None,
    });
    assert_eq!(reject, Some(MmCause::PeiNotAccepted));
    assert_eq!(batch.disposition, Disposition::Ended);
}

#[test] // TS 24.501 §5.5.2.2.2: an unknown UE deregisters and gets an accept
fn an_unknown_ue_that_deregisters_gets_its_accept() {
    let mut harness = UeHarness::unknown();
    let kind = DeregistrationType {
        switch_off: false,
        re_registration_required: false,
        accesses: Accesses::ThreeGpp,
    };
    let guti = registration_request(RegistrationKind::Initial).mobile_identity;
    let request = DeregistrationRequestUeOriginating::new(kind, NgKsi::native(0).unwrap(), guti);
    let batch = harness.first_plain(request);
    let accept = |m: &mm::Message| matches!(m, mm::Message::DeregistrationAcceptUeOriginating(_));
    assert!(harness.downlink(&batch).iter().any(accept));
    assert_eq!(batch.disposition, Disposition::Ended);
}

#[test] // what begins no connection leaves nothing behind, or a flood of it would fill the table
fn a_first_message_that_starts_no_procedure_is_released() {
    let mut harness = UeHarness::unknown();
    let batch = harness.first_plain(IdentityResponse::new(MobileIdentity::NoIdentity));
    assert_eq!(batch.disposition, Disposition::Ended);
    assert!(n2(&batch).iter().any(|m| matches!(m, Message::UeContextReleaseCommand(_))));
    assert_eq!(harness.shard.ues(), 0);
}

#[test] // TS 24.501 §4.4.4.3: one that names this UE and is not protected is not this UE's
fn an_unprotected_request_does_not_change_the_ue_that_it_names() {
    let mut harness = UeHarness::registered();
    let mut plain = Vec::new();
    mm::Message::from(registration_request(RegistrationKind::Initial)).encode(&mut plain);
    let batch = harness.first(plain, Some(Tmsi(0x1234)));
    assert_eq!(batch.disposition, Disposition::OtherUe);
    assert!(batch.outputs.is_empty());
    assert_eq!(harness.context().unwrap().sessions.len(), 1);
}

#[test] // TS 38.413 §10.6: both identities must be those of the connection; else both sides release it
fn an_inconsistent_remote_identity_ends_the_connection() {
    let mut harness = UeHarness::registered();
    let ids = (
        harness.context().unwrap().amf.connection.clone().unwrap().amf_ue_ngap_id,
        whimbrel_ids::RanUeNgapId(71),
    );
    let batch = harness.ngap(whimbrel_ngap::msg::UplinkNasTransport::new(ids.0, ids.1, vec![0x7e, 0, 0x43]));
    assert!(n2(&batch).iter().any(|m| matches!(m, Message::ErrorIndication(_))));
    let ue = harness.context().unwrap();
    assert!(!ue.is_connected() && ue.amf.registered);
}

#[test] // DESIGN: "terms and fencing"
fn an_input_of_a_lower_term_is_refused() {
    let mut harness = UeHarness::registered();
    harness.terms = (3, 2);
    assert_eq!(harness.input(Payload::Tick).terms, (3, 2));
    for lower in [(2, 2), (3, 1)] {
        harness.terms = lower;
        let batch = harness.input(Payload::Command(Command::Deregister));
        assert!(batch.no_effect && batch.outputs.is_empty());
    }
    assert!(harness.context().unwrap().amf.registered);
}

#[test] // DESIGN: "key stream": a replayed output must match its digest, so different ones must differ
fn digests_of_different_udm_requests_differ() {
    let other: whimbrel_ids::Supi = "999700000000002".parse().unwrap();
    let ask = |supi, rand| UdmRequest::GenerateAuthData {
        identity: Identity::Supi(supi),
        rand: [rand; 16],
        resynchronisation: None,
    };
    let requests = [
        ask(supi(), 1),
        ask(supi(), 2),
        ask(other, 1),
        UdmRequest::Register(supi()),
        UdmRequest::Register(other),
        UdmRequest::Deregister(supi()),
    ];
    let mut digests: Vec<_> = requests.iter().map(UdmRequest::digest_octets).collect();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), requests.len());
}

#[test] // what an idle UE with a session takes; 4 KB with its heap is the bound of the product
fn a_ue_at_rest_is_small() {
    let sizes =
        [size_of::<UeContext>(), size_of::<SmContext>(), size_of::<whimbrel_security::NasSecurityContext>()];
    println!("UE {}, SmContext {}, NasSecurityContext {} octets", sizes[0], sizes[1], sizes[2]);
    assert!(sizes[0] <= 608 && sizes[1] <= 256 && sizes[2] <= 64, "{sizes:?}");
}

#[test] // TS 24.501 §5.5.1.2.4 MICO: granted with the active time and the periodic timer that were asked for; or left out
fn mico_is_granted_as_requested_or_left_out() {
    let timer = |s| whimbrel_nas::ie::GprsTimer3::from_duration(std::time::Duration::from_secs(s));
    let mut request = registration_request(RegistrationKind::MobilityUpdating);
    request.mico_indication = Some(Default::default());
    request.t3324 = Some(timer(60));
    request.requested_t3512 = Some(timer(7200));
    for granted in [true, false] {
        let mut config = crate::ue_harness::config();
        config.amf.access.mico = granted;
        let mut harness = UeHarness::registered();
        harness.shard.configure(config.into());
        let batch = harness.nas(CIPHERED, request.clone());
        let accept = accept_in(&mut harness, &batch).unwrap();
        assert_eq!(accept.mico_indication.is_some(), granted);
        assert_eq!((accept.t3324, accept.t3512), (granted.then(|| timer(60)), Some(timer(7200))));
    }
}

#[test] // TS 24.501 §5.6.1.5 #9: the UE is unknown, and registers again
fn a_service_request_of_an_unknown_ue_is_rejected() {
    let mut harness = UeHarness::unknown();
    let identity = MobileIdentity::STmsi(whimbrel_ids::STmsi { set: 1, pointer: 0, tmsi: Tmsi(77) });
    let request =
        mm::ServiceRequest::new(NgKsi::native(0).unwrap(), whimbrel_nas::ie::ServiceType::Data, identity);
    let batch = harness.first_plain(request);
    let cause = harness.downlink(&batch).into_iter().find_map(|m| match m {
        mm::Message::ServiceReject(m) => Some(m.cause),
        _ => None,
    });
    assert_eq!(cause, Some(MmCause::UeIdentityCannotBeDerived));
    // §5.3.1.3: its connection is released when it has not registered again in time.
    assert_eq!((batch.disposition, batch.idle), (Disposition::Keep, true));
    let batch = harness.expire(&batch);
    assert_eq!(batch.disposition, Disposition::Ended);
    assert!(matches!(n2(&batch).as_slice(), [whimbrel_ngap::Message::UeContextReleaseCommand(_)]));
}

#[test] // TS 24.501 §5.5.2.3.5 d, e: the network's deregistration outlasts a mobility update and yields to an initial registration
fn a_registration_collides_with_a_network_deregistration() {
    let mut harness = UeHarness::registered();
    let batch = harness.input(Payload::Command(Command::Deregister));
    let asked = |m: &mm::Message| matches!(m, mm::Message::DeregistrationRequestUeTerminated(_));
    assert!(harness.downlink(&batch).iter().any(asked));
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::MobilityUpdating));
    assert!(batch.outputs.is_empty() && !batch.idle);
    let batch = harness.nas(CIPHERED, registration_request(RegistrationKind::Initial));
    assert!(accept_in(&mut harness, &batch).is_some());
    assert!(harness.context().is_some_and(|p| p.amf.registered && p.sessions.is_empty()));
}

#[test] // TS 24.501 §5.5.2.3.5 d: a UE that is paged to be deregistered comes with an initial registration, which takes its place
fn an_initial_registration_of_a_ue_paged_to_be_deregistered() {
    let mut harness = UeHarness::registered();
    let association = harness.association();
    harness.input(Payload::Command(Command::ConnectionLost(association)));
    let batch = harness.input(Payload::Command(Command::Deregister));
    assert!(batch.outputs.iter().any(|o| matches!(o.effect, Effect::Page { .. })));
    let request = registration_request(RegistrationKind::Initial);
    let pdu = harness.protect(INTEGRITY, request);
    let tmsi = harness.context().unwrap().amf.tmsi;
    let batch = harness.first(pdu, tmsi);
    let left = |e: &Event| matches!(e, Event::Deregistered { why: DeregistrationReason::ByOperator, .. });
    assert!(batch.events.iter().any(left));
    assert!(accept_in(&mut harness, &batch).is_some());
    assert!(harness.context().is_some_and(|p| p.amf.registered && p.sessions.is_empty()));
}

#[test] // TS 24.501 §5.5.2.3.5 a: the UE never answers; after the fifth expiry of T3522 it is deregistered all the same
fn a_deregistration_that_is_never_answered_ends() {
    let mut harness = UeHarness::registered();
    let mut batch = harness.input(Payload::Command(Command::Deregister));
    for _ in 0..5 {
        assert_eq!(batch.disposition, Disposition::Keep);
        batch = harness.expire(&batch);
    }
    assert_eq!(batch.disposition, Disposition::Ended);
}

#[test] // TS 24.501 §6.3.3.5 a: after the fifth expiry of T3592 the session is gone all the same
fn a_session_release_that_is_never_answered_ends() {
    let mut harness = UeHarness::registered();
    let mut batch = harness.nas(CIPHERED, sm_container(1, 9, sm::ReleaseRequest::new()));
    for _ in 0..5 {
        assert_eq!(harness.context().unwrap().sessions.len(), 1);
        batch = harness.expire(&batch);
    }
    assert!(harness.context().unwrap().sessions.is_empty());
}

/// An authentication vector of the UE.
fn vector() -> (udm::UdmAnswer, whimbrel_security::AuthenticationVector) {
    use whimbrel_security::{AuthenticationManagementField, K, Milenage, Opc, Rand, ServingNetworkName, Sqn};
    let functions = Milenage::new(&K::new([1; 16]), Opc::new([2; 16])).into();
    let (amf, name) =
        (AuthenticationManagementField::FIVE_G, ServingNetworkName::new(whimbrel_ids::PlmnId::TEST));
    let sqn = Sqn::new(5, 1);
    let vector =
        whimbrel_security::AuthenticationVector::generate(&functions, Rand([3; 16]), sqn, amf, &name);
    let data = udm::AuthData { supi: supi(), vector: udm::Vector::FiveGAka(Box::new(vector.clone())) };
    (udm::UdmAnswer::AuthData(Ok(data)), vector)
}

/// A registered UE whose uplink COUNT is near its end, after a message that shows it.
fn near_its_end() -> (UeHarness, Batch) {
    let counts = NasCounts { uplink_next: (1 << 24) - 1000, downlink_next: 6 };
    let mut harness = UeHarness::registered_at(counts);
    let batch = harness.nas(CIPHERED, mm::MmStatus::new(MmCause::ProtocolErrorUnspecified));
    (harness, batch)
}

#[test] // TS 24.501 §4.4.3.5, §4.4.2.5; TS 33.501 §6.4.5, §6.9.4.2: new keys before the COUNT ends, while the UE is connected
fn a_connected_ue_gets_new_keys_before_its_count_ends() {
    let (mut harness, batch) = near_its_end();
    let (answer, vector) = vector();
    let batch = harness.udm(&batch, answer);
    let request = harness.downlink(&batch).pop();
    let Some(mm::Message::AuthenticationRequest(request)) = request else { panic!("{request:?}") };
    assert_eq!(request.ng_ksi, NgKsi::native(1).unwrap(), "another than the one in use");
    let mut response = mm::AuthenticationResponse::new();
    response.res_star = Some(whimbrel_nas::ie::ResStar(*vector.xres_star.octets()));
    let batch = harness.nas(CIPHERED, response);
    let k_amf = vector.k_seaf.k_amf(supi(), whimbrel_security::Abba::RELEASE_15);
    harness.renew(&k_amf);
    let command = harness.downlink(&batch).pop();
    assert!(matches!(command, Some(mm::Message::SecurityModeCommand(_))), "{command:?}");
    let header = whimbrel_security::SecurityHeaderType::IntegrityProtectedAndCipheredWithNewContext;
    let batch = harness.nas(header, mm::SecurityModeComplete::new());
    // TS 33.501 §6.9.4.2: the gNB gets the key of the new K_AMF.
    let key = n2(&batch).into_iter().find_map(|m| match m {
        Message::UeContextModificationRequest(m) => m.security_key,
        _ => None,
    });
    let k_gnb = k_amf.k_gnb(whimbrel_security::NasCount::default());
    assert_eq!(key.map(|k| k.0), Some(*k_gnb.octets()));
    let ue = harness.context().unwrap();
    assert!(ue.amf.security.current.as_ref().is_some_and(|s| s.counts().uplink_next < 10));
}

#[test] // TS 24.501 §5.4.1.3.7 e: #71: the same challenge under another ngKSI
fn an_ngksi_in_use_is_replaced() {
    let (mut harness, batch) = near_its_end();
    let batch = harness.udm(&batch, vector().0);
    let Some(mm::Message::AuthenticationRequest(first)) = harness.downlink(&batch).pop() else { panic!() };
    let batch = harness.nas(CIPHERED, mm::AuthenticationFailure::new(MmCause::NgKsiAlreadyInUse));
    let batch = harness.udm(&batch, vector().0);
    let Some(mm::Message::AuthenticationRequest(second)) = harness.downlink(&batch).pop() else { panic!() };
    assert_ne!(first.ng_ksi, second.ng_ksi);
}

#[test] // TS 24.501 §5.4.1.3.7 d: #26: the UE does not take the challenge for one of 5G
fn a_challenge_refused_as_not_5g_leads_to_identification_and_fails() {
    let (mut harness, batch) = near_its_end();
    let batch = harness.udm(&batch, vector().0);
    assert!(!harness.downlink(&batch).is_empty());
    let cause = MmCause::Non5gAuthenticationUnacceptable;
    let batch = harness.nas(CIPHERED, mm::AuthenticationFailure::new(cause));
    // It was named by its context, so it is identified first.
    assert!(matches!(harness.downlink(&batch).pop(), Some(mm::Message::IdentityRequest(_))));
}

#[test] // TS 24.501 §5.4.1.3.5: RES* is wrong, and the UE was named by its context: it is identified again, then rejected
fn a_wrong_answer_of_a_known_ue_is_asked_about_and_rejected() {
    let (mut harness, batch) = near_its_end();
    let batch = harness.udm(&batch, vector().0);
    assert!(!harness.downlink(&batch).is_empty());
    let batch = harness.nas(CIPHERED, mm::AuthenticationResponse::new());
    assert!(matches!(harness.downlink(&batch).pop(), Some(mm::Message::IdentityRequest(_))));
    let suci = whimbrel_nas::ie::Suci::null(
        supi(),
        whimbrel_ids::PlmnId::TEST,
        whimbrel_nas::ie::RoutingIndicator::NONE,
    );
    let batch = harness.nas(CIPHERED, IdentityResponse::new(MobileIdentity::Suci(suci.unwrap())));
    let batch = harness.udm(&batch, vector().0);
    assert!(matches!(harness.downlink(&batch).pop(), Some(mm::Message::AuthenticationRequest(_))));
    let batch = harness.nas(CIPHERED, mm::AuthenticationResponse::new());
    assert!(matches!(harness.downlink(&batch).first(), Some(mm::Message::AuthenticationReject(_))));
    assert!(matches!(batch.disposition, Disposition::Ended));
}

#[test] // TS 33.501 §6.4.5: a UE that does not answer keeps what is left of its COUNTs for later
fn a_ue_that_does_not_answer_the_new_challenge_is_released() {
    let (mut harness, batch) = near_its_end();
    let mut batch = harness.udm(&batch, vector().0);
    for _ in 0..5 {
        batch = harness.expire(&batch);
    }
    assert!(n2(&batch).iter().any(|m| matches!(m, Message::UeContextReleaseCommand(_))));
    assert!(harness.context().is_some_and(|p| p.amf.registered));
}

/// A UE to which SECURITY MODE COMMAND is under way, with the key that it proposes.
fn being_rekeyed() -> (UeHarness, whimbrel_security::KAmf) {
    let (mut harness, batch) = near_its_end();
    let (answer, vector) = vector();
    let batch = harness.udm(&batch, answer);
    assert!(matches!(harness.downlink(&batch).pop(), Some(mm::Message::AuthenticationRequest(_))));
    let mut response = mm::AuthenticationResponse::new();
    response.res_star = Some(whimbrel_nas::ie::ResStar(*vector.xres_star.octets()));
    harness.nas(CIPHERED, response);
    (harness, vector.k_seaf.k_amf(supi(), whimbrel_security::Abba::RELEASE_15))
}

#[test] // TS 24.501 §5.4.2.7 d: a session is released while SECURITY MODE COMMAND is under way: both go on
fn a_payload_during_security_mode_control() {
    let (mut harness, k_amf) = being_rekeyed();
    let batch = harness.nas(CIPHERED, sm_container(1, 9, sm::ReleaseRequest::new()));
    assert!(n2(&batch).iter().any(|m| matches!(m, Message::PduSessionResourceReleaseCommand(_))));
    harness.renew(&k_amf);
    let header = whimbrel_security::SecurityHeaderType::IntegrityProtectedAndCipheredWithNewContext;
    let batch = harness.nas(header, mm::SecurityModeComplete::new());
    assert!(n2(&batch).iter().any(|m| matches!(m, Message::UeContextModificationRequest(_))));
    harness.nas(CIPHERED, sm_container(1, 9, sm::ReleaseComplete::new()));
    assert!(harness.context().unwrap().sessions.is_empty(), "its completion came under the new keys");
}

#[test] // TS 24.501 §5.4.2.7 e: SECURITY MODE COMMAND could not be delivered for a handover: it is sent again
fn a_security_mode_command_that_was_not_delivered() {
    let (mut harness, k_amf) = being_rekeyed();
    let ids = (harness.connection(), crate::ue_harness::RAN_ID);
    let cause = whimbrel_ngap::ie::CauseRadioNetwork::XnHandoverTriggered;
    let m = whimbrel_ngap::msg::NasNonDeliveryIndication::new(ids.0, ids.1, cause.into());
    let batch = harness.ngap(m);
    harness.renew(&k_amf);
    let again = harness.downlink(&batch).pop();
    assert!(matches!(again, Some(mm::Message::SecurityModeCommand(_))), "{again:?}");
}

#[test] // TS 24.501 §5.6.1.3: a service request of a UE whose COUNTs come to their end: it is served, and authenticated again
fn a_service_request_leads_to_a_challenge() {
    let mut harness = UeHarness::registered_at(NasCounts { uplink_next: (1 << 24) - 1000, downlink_next: 6 });
    let identity = MobileIdentity::STmsi(whimbrel_ids::STmsi { set: 1, pointer: 0, tmsi: Tmsi(0x1234) });
    let service = whimbrel_nas::ie::ServiceType::Signalling;
    let request = mm::ServiceRequest::new(NgKsi::native(0).unwrap(), service, identity);
    let batch = harness.nas(CIPHERED, request);
    let downlink = harness.downlink(&batch);
    assert!(matches!(downlink.as_slice(), [mm::Message::ServiceAccept(_)]), "{downlink:?}");
    let batch = harness.udm(&batch, vector().0);
    assert!(matches!(harness.downlink(&batch).pop(), Some(mm::Message::AuthenticationRequest(_))));
}
