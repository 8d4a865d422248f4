//! The test cases of TS 33.512 for the AMF, as far as they apply, each named after its case.
//!
//! Not here: NAS-based redirection to EPS and the control plane CIoT cases (there is no EPS and no CIoT here), and the change
//! of AMF (one AMF).

use crate::common::by_hand::{self, context, octets};
use crate::common::*;
use whimbrel_control::event::MessageDropReason;
use whimbrel_control::{Event as CoreEvent, Payload, Refusal};
use whimbrel_nas::ie::{MmCause, UeSecurityCapability};
use whimbrel_nas::mm::{self, MessageType};
use whimbrel_ngap::Message;
use whimbrel_ngap::msg::UplinkNasTransport;
use whimbrel_ran::ue::{Event, Reason, UeCommand};
use whimbrel_security::{CipheringAlgorithm, IntegrityAlgorithm};
use whimbrel_sim::{Sim, UeIndex, default_config, ue_config};

/// A registered UE whose inputs are recorded.
fn one_registered(seed: u64) -> (Sim, UeIndex) {
    let (mut net, ue) = one_ue(seed);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    (net, ue)
}

/// The uplink NAS messages of the only UE, as they came, with the NGAP message around each.
fn uplink(net: &mut Sim) -> Vec<(Vec<u8>, UplinkNasTransport)> {
    let recorded = net.recorder().contexts().flat_map(|(_, inputs)| inputs.iter());
    let ngap = recorded.filter_map(|r| match &r.envelope.payload {
        Payload::Ngap { octets, .. } => Some(octets.to_vec()),
        _ => None,
    });
    ngap.filter_map(|o| match Message::decode(&o) {
        Ok(Message::UplinkNasTransport(m)) => Some((o, m)),
        _ => None,
    })
    .collect()
}

fn dropped(net: &Sim, expected: MessageDropReason) -> usize {
    core_events(net).filter(|e| matches!(e, CoreEvent::Dropped { why, .. } if *why == expected)).count()
}

/// A plain NAS message on the UE's connection.
fn inject_plain(net: &mut Sim, message: impl Into<mm::Message>) {
    let mut pdu = Vec::new();
    message.into().encode(&mut pdu);
    inject(net, pdu);
}

fn inject(net: &mut Sim, pdu: Vec<u8>) {
    let c = by_hand::connection(net);
    let m = UplinkNasTransport::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, pdu);
    net.inject(by_hand::SOURCE, &octets(m));
    net.settle(SECOND);
}

fn algorithms(net: &Sim) -> (CipheringAlgorithm, IntegrityAlgorithm) {
    let security = context(net).amf.security.current.as_ref().expect("a security context");
    (security.ciphering(), security.integrity())
}

/// A UE of these algorithms.
fn with_capability(seed: u64, capability: UeSecurityCapability) -> (Sim, UeIndex) {
    let mut net = Sim::builder(seed).build();
    let gnb = net.add_gnb(gnb_config(1));
    let mut config = ue_config(1);
    let mut profile = (*config.profile).clone();
    profile.security_capability = capability;
    config.profile = profile.into();
    let ue = net.add_ue(gnb, config);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    (net, ue)
}

#[test] // TS 33.512 §4.2.2.1.1 TC_SYNC_FAIL_SEAF_AMF: no new challenge before the token of the failure was used
fn tc_sync_fail_seaf_amf() {
    let (mut net, ue) = one_ue(1); // a fresh USIM refuses the first SQN, which is the time
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let challenges: Vec<_> = net
        .tapped()
        .into_iter()
        .filter_map(|m| match m {
            Message::DownlinkNasTransport(m) => mm::Message::decode(&m.nas_pdu).ok(),
            _ => None,
        })
        .filter_map(|m| match m {
            mm::Message::AuthenticationRequest(m) => m.rand,
            _ => None,
        })
        .collect();
    assert_eq!(challenges.len(), 2, "one, and one after resynchronisation");
    assert!(challenges[0] != challenges[1] && registered(&net, ue));
}

#[test] // TS 33.512 §4.2.2.1.2 TC_RES_STAR_VERIFICATION_FAILURE
fn tc_res_star_verification_failure() {
    let (mut net, ue) = one_ue(2);
    net.ue_mut(ue).faults_mut().wrong_res_star = true;
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::AuthenticationRejected));
    assert_eq!((first_refusal(&net), net.cta().occupancy()), (Some(Refusal::WrongResponse), (0, 0)));
}

#[test] // TS 33.512 §4.2.2.1.4 TC_NAS_INT_FAILURE_AMF: messages whose integrity check fails are discarded
fn tc_nas_int_failure_amf() {
    let (mut net, ue) = one_registered(3);
    let messages = uplink(&mut net);
    let (_, last) = messages.last().expect("REGISTRATION COMPLETE");
    let mut pdu = last.nas_pdu.clone();
    pdu[3] ^= 1;
    inject(&mut net, pdu);
    assert_eq!(dropped(&net, MessageDropReason::Integrity), 1);
    assert!(registered(&net, ue));
    net.ue_mut(ue).faults_mut().wrong_mac = 1;
    net.command(ue, UeCommand::Deregister { switch_off: true });
    net.settle(SECOND);
    assert!(net.cta().contexts().any(|p| p.amf.registered), "a message that fails its check ends nothing");
}

#[test] // TS 33.512 §4.2.2.3.1 TC_NAS_REPLAY_AMF: what was taken once is not taken again
fn tc_nas_replay_amf() {
    let (mut net, ue) = one_registered(4);
    let messages = uplink(&mut net);
    let protected = messages.iter().filter(|(_, m)| m.nas_pdu.get(1).is_some_and(|h| *h != 0));
    let replayed: Vec<_> = protected.map(|(o, _)| o.clone()).collect();
    assert!(replayed.len() >= 2, "SECURITY MODE COMPLETE and REGISTRATION COMPLETE");
    for octets in &replayed {
        net.inject(by_hand::SOURCE, octets);
        net.settle(SECOND);
    }
    assert_eq!(dropped(&net, MessageDropReason::Integrity), replayed.len());
    assert!(registered(&net, ue));
    no_violations(&net);
}

#[test] // TS 33.512 §4.2.2.3.2 TC_NAS_NULL_INT_AMF: NIA0 is never chosen, whatever the UE offers
fn tc_nas_null_int_amf() {
    let (net, _) = with_capability(5, UeSecurityCapability::with_eps(0xf0, 0xf0, 0xf0, 0xf0));
    assert_eq!(algorithms(&net).1, IntegrityAlgorithm::Nia2);
    let (net, ue) = with_capability(6, UeSecurityCapability::with_eps(0xf0, 0x80, 0xf0, 0x80));
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::UeSecurityCapabilitiesMismatch)));
    assert_eq!(net.cta().occupancy(), (0, 0));
}

#[test] // TS 33.501 §6.7.1.1; TS 33.512 §4.2.2.3.3 TC_NAS_INT_SELECTION_USE_AMF: the operator's priority, and SECURITY MODE COMMAND under it
fn tc_nas_int_selection_use_amf() {
    for (seed, integrity) in
        [(7, IntegrityAlgorithm::Nia1), (8, IntegrityAlgorithm::Nia2), (9, IntegrityAlgorithm::Nia3)]
    {
        let mut config = default_config();
        config.amf.integrity.sort_by_key(|i| *i != integrity);
        let mut net = Sim::builder(seed).config(config).build();
        let gnb = net.add_gnb(gnb_config(1));
        let ue = net.add_ue(gnb, ue_config(1));
        net.tap();
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        assert_eq!(algorithms(&net).1, integrity);
        let commands = net.tapped().into_iter().filter_map(|m| match m {
            Message::DownlinkNasTransport(m) => Some(m.nas_pdu),
            _ => None,
        });
        // Integrity protected with a new context, not ciphered, and its MAC is not nothing.
        let command = commands.into_iter().find(|pdu| pdu.get(1) == Some(&3)).expect("a command");
        assert!(command[2..6] != [0; 4] && command[7] == 0x7e);
        no_violations(&net);
    }
    let (net, _) = with_capability(10, UeSecurityCapability::with_eps(0xa0, 0x10, 0xf0, 0x70));
    assert_eq!(algorithms(&net), (CipheringAlgorithm::Nea2, IntegrityAlgorithm::Nia3), "what the UE has");
}

#[test] // TS 33.512 §4.2.2.4.1 TC_BIDDING_DOWN_XN_AMF: capabilities that a gNB changes in a path switch are put right
fn tc_bidding_down_xn_amf() {
    let (mut net, _) = by_hand::two_gnbs(11, 1);
    let mut request = by_hand::path_switch_request(&net, &[1]);
    let right = by_hand::capabilities(&net);
    let mut lowered = right.clone();
    lowered.nr_integrity_protection_algorithms = 0;
    request.ue_security_capabilities = Some(lowered);
    net.inject(by_hand::TARGET, &octets(request));
    net.settle(SECOND);
    let reported = net.take_ngap(by_hand::TARGET).into_iter().find_map(|m| match m {
        Message::PathSwitchRequestAcknowledge(m) => m.ue_security_capabilities,
        _ => None,
    });
    assert_eq!(reported, Some(right));
}

#[test] // TS 24.501 §5.3.3; TS 33.512 §4.2.2.5.1 TC_5G_GUTI_ALLOCATION_AMF: a new 5G-GUTI at each registration and after paging
fn tc_5g_guti_allocation_amf() {
    let (mut net, ue) = one_registered(12);
    let mut seen = vec![net.ue_ref(ue).guti()];
    for command in [UeCommand::Register, UeCommand::PeriodicRegistration, UeCommand::Register] {
        net.command(ue, command);
        net.settle(SECOND);
        let guti = net.ue_ref(ue).guti();
        assert!(guti.is_some() && !seen.contains(&guti), "{guti:?} was used before");
        seen.push(guti);
    }
    // It cannot be foreseen: neither the next number nor near it (TS 33.501 §6.12.3).
    let tmsis: Vec<u32> = seen.iter().flatten().map(|g| g.tmsi.0).collect();
    assert!(tmsis.windows(2).all(|w| w[0].abs_diff(w[1]) > 0xff), "{tmsis:x?}");
}

#[test] // TS 33.512 §4.2.2.6.1 TC_UE_SEC_CAP_HANDLING_AMF: none, or none that is acceptable: the UE is refused
fn tc_ue_sec_cap_handling_amf() {
    for (seed, nea, nia) in [(13, 0xf0, 0), (14, 0, 0x70), (15, 0, 0), (16, 0x80, 0x80)] {
        let (net, ue) = with_capability(seed, UeSecurityCapability::with_eps(nea, nia, 0, 0));
        assert!(
            refused_with(&net, ue, Reason::Mm(MmCause::UeSecurityCapabilitiesMismatch)),
            "{nea:x} {nia:x}"
        );
        assert_eq!(net.cta().occupancy(), (0, 0), "nothing is left of it");
    }
}

#[test] // TS 33.512 §4.2.2.6.2 TC_UE_SEC_CAP_AS_AMF: the gNB gets the capabilities that the UE sent
fn tc_ue_sec_cap_as_amf() {
    let (mut net, ue) = one_ue(17);
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let reported = net.tapped().into_iter().find_map(|m| match m {
        Message::InitialContextSetupRequest(m) => Some(m.ue_security_capabilities),
        _ => None,
    });
    assert_eq!(reported, Some(by_hand::capabilities(&net)));
    assert!(registered(&net, ue));
}

#[test] // TS 33.501 §6.7.2, TS 24.501 §5.4.2.5: a man in the middle lowers the capabilities: the UE sees it
fn tc_bidding_down_at_registration() {
    let (mut net, ue) = one_ue(18);
    net.ue_mut(ue).faults_mut().bid_down = Some(UeSecurityCapability::with_eps(0x40, 0x40, 0, 0));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(!registered(&net, ue));
    assert!(
        matches!(first_refusal(&net), Some(Refusal::SecurityModeRejected(23))),
        "{:?}",
        first_refusal(&net)
    );
}

#[test] // TS 24.501 §4.4.4.3: plain messages are not taken once a connection is protected, of any kind
fn tc_plain_nas_after_security() {
    let (mut net, ue) = one_registered(19);
    let guti = net.ue_ref(ue).guti().expect("a 5G-GUTI");
    let identity = whimbrel_nas::ie::MobileIdentity::Guti(guti);
    let kind = whimbrel_nas::ie::DeregistrationType {
        switch_off: true,
        re_registration_required: false,
        accesses: whimbrel_nas::ie::Accesses::ThreeGpp,
    };
    let ksi = whimbrel_nas::ie::NgKsi::NO_KEY;
    inject_plain(&mut net, mm::DeregistrationRequestUeOriginating::new(kind, ksi, identity.clone()));
    inject_plain(&mut net, mm::IdentityResponse::new(identity));
    inject_plain(&mut net, mm::SecurityModeReject::new(MmCause::SecurityModeRejectedUnspecified));
    inject_plain(&mut net, mm::AuthenticationFailure::new(MmCause::MacFailure));
    assert_eq!(dropped(&net, MessageDropReason::Unprotected), 4);
    assert!(registered(&net, ue));
    no_violations(&net);
}

#[test] // TS 33.501 §6.4.3.1, TS 24.501 §4.4.3.1: a COUNT that jumps is taken, one that goes back is not
fn tc_nas_count_jump() {
    let (mut net, ue) = one_registered(20);
    // Deregistration by switch-off is sent and lost; the network hears a later message.
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::MmStatus, 1));
    let taken = context(&net).amf.security.current.as_ref().map(|s| s.counts().uplink_next);
    let messages = uplink(&mut net);
    let (octets, _) = messages.last().expect("REGISTRATION COMPLETE").clone();
    for _ in 0..300 {
        net.inject(by_hand::SOURCE, &octets); // an old COUNT, three hundred times
    }
    net.settle(SECOND);
    assert_eq!(context(&net).amf.security.current.as_ref().map(|s| s.counts().uplink_next), taken);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    assert!(!net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Violation(_))));
}

#[test] // TS 33.117 §4.2.3.2.2, §4.2.3.2.3: keys and identities do not show in what can be printed
fn keys_and_identities_are_not_printed() {
    let (mut net, ue) = one_registered(21);
    let config = net.ue_ref(ue).config().clone();
    let shown = format!("{:?}", context(&net));
    let recorded: String = {
        let inputs = net.recorder().contexts().flat_map(|(_, inputs)| inputs.iter());
        inputs.map(|r| format!("{:?}", (&r.envelope.ue, &r.envelope.time))).collect()
    };
    let events: String = core_events(&net).map(|e| format!("{e:?}")).collect();
    let hex = |octets: &[u8]| octets.iter().map(|o| format!("{o:02x}")).collect::<String>();
    let list = |octets: &[u8]| format!("{octets:?}");
    let imsi = config.supi.imsi();
    let pei: String = config.pei.digits().map(|d| char::from(b'0' + d)).collect();
    for text in [&shown, &recorded, &events] {
        for secret in [&config.k.octets()[..], &config.opc.octets()[..]] {
            assert!(!text.contains(&hex(secret)) && !text.contains(&list(secret)), "a key");
        }
        assert!(!text.contains(&imsi), "a SUPI");
        assert!(!text.contains(&pei), "an equipment's identity");
    }
    for (what, redacted) in [
        (format!("{:?}", config.k), "K(…)"),
        (format!("{:?}", config.opc), "Opc(…)"),
        (format!("{:?}", config.supi), "Supi(…)"),
        (format!("{:?}", whimbrel_security::KAmf::new([7; 32])), "KAmf(…)"),
        (format!("{:?}", whimbrel_security::KAusf::new([7; 32])), "KAusf(…)"),
        (format!("{:?}", whimbrel_security::KSeaf::new([7; 32])), "KSeaf(…)"),
        (format!("{:?}", whimbrel_security::KGnb::new([7; 32])), "KGnb(…)"),
        (format!("{:?}", whimbrel_security::Nh::new([7; 32])), "Nh(…)"),
        (format!("{:?}", whimbrel_security::Topc::new([7; 32])), "Topc(…)"),
        (format!("{:?}", whimbrel_security::K256::new([7; 32])), "K256(…)"),
        (format!("{:?}", whimbrel_sim::tuak_of(config.supi)), "Tuak(…)"),
    ] {
        assert_eq!(what, redacted);
    }
}
