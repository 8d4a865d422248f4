//! Keys, algorithms and identities between UE, gNB and core: TS 33.501.

use std::sync::Arc;

use crate::common::by_hand::{connection, context, octets};
use crate::common::*;
use whimbrel_control::{Payload, Refusal};
use whimbrel_nas::ie::{IdentityType, MmCause, UeSecurityCapability};
use whimbrel_nas::mm;
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::SecurityKey;
use whimbrel_ngap::msg::UplinkNasTransport;
use whimbrel_ran::ue::{Event, MmState, Reason, SessionRequest, SuciSource, UeCommand, UeConfig};
use whimbrel_security::{
    CipheringAlgorithm, HomeNetworkKeys, HomeNetworkPrivateKey, HomeNetworkPublicKey, IntegrityAlgorithm,
};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, default_config, ue_config};

fn on_air(seed: u64) -> (Sim, UeIndex) {
    let (mut net, ue) = one_ue(seed);
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    (net, ue)
}

/// The NAS messages that the core has sent.
fn downlink(net: &mut Sim) -> Vec<Vec<u8>> {
    let sent = net.tapped().into_iter().filter_map(|m| match m {
        Message::DownlinkNasTransport(m) => Some(m.nas_pdu),
        Message::InitialContextSetupRequest(m) => m.nas_pdu,
        _ => None,
    });
    sent.collect()
}

/// Security header type.
fn header(pdu: &[u8]) -> Option<u8> {
    pdu.get(1).copied()
}

#[test] // TS 33.501 §5.11.1.1, §5.11.1.2, §6.7.1.1: each cipher with each integrity algorithm, from registration to deregistration
fn each_algorithm_serves() {
    for c in 0..4u8 {
        for i in 1..4u8 {
            let mut config = default_config();
            config.amf.ciphering = vec![CipheringAlgorithm::ALL[usize::from(c)]];
            config.amf.integrity = vec![IntegrityAlgorithm::ALL[usize::from(i)]];
            let mut net = Sim::builder(1).config(config).build();
            let gnb = net.add_gnb(gnb_config(1));
            let mut config = ue_config(1);
            let mut profile = (*config.profile).clone();
            profile.security_capability =
                UeSecurityCapability::with_eps(0x80 >> c | 0x80, 0x80 >> i, 0xf0, 0x70);
            config.profile = profile.into();
            let ue = net.add_ue(gnb, config);
            net.command(ue, UeCommand::Register);
            net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
            net.settle(SECOND);
            let security = context(&net).amf.security.current.as_ref().expect("a security context");
            assert_eq!((security.ciphering().identity(), security.integrity().identity()), (c, i));
            assert_eq!(net.upf_sessions(), 1, "the UE's message was accepted");
            net.command(ue, UeCommand::Deregister { switch_off: false });
            net.settle(SECOND);
            assert_eq!((net.ue_ref(ue).state(), net.cta().occupancy()), (MmState::Deregistered, (0, 0)));
            no_violations(&net);
        }
    }
}

#[test] // TS 24.501 §4.4.4.2: only messages that a UE accepts without protection are sent so, and none after the keys are there
fn messages_accepted_without_integrity_protection() {
    let (mut net, ue) = on_air(2);
    let sent = downlink(&mut net);
    let secured = sent.iter().position(|pdu| header(pdu) == Some(3)).expect("SECURITY MODE COMMAND");
    for pdu in &sent[..secured] {
        let plain = mm::Message::decode(pdu);
        assert!(matches!(plain, Ok(mm::Message::AuthenticationRequest(_) | mm::Message::IdentityRequest(_))));
    }
    assert!(sent.len() > secured + 1 && sent[secured + 1..].iter().all(|pdu| header(pdu) == Some(2)));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND);
    let sent = downlink(&mut net);
    assert!(sent.len() >= 2 && sent.iter().all(|pdu| header(pdu) == Some(2)));
    // A reject before there are keys is plain.
    let supi = net.ue_ref(ue).config().supi;
    net.home().unknown.push(supi);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 20);
    let rejects = downlink(&mut net).into_iter().filter_map(|pdu| mm::Message::decode(&pdu).ok());
    assert!(rejects.into_iter().any(|m| matches!(m, mm::Message::RegistrationReject(_))));
}

#[test] // TS 33.501 §6.12.4, §6.12.2; TS 24.501 §5.4.3.2: a UE is identified by its SUCI only
fn the_identity_is_asked_for_concealed() {
    let (mut net, ue) = on_air(3);
    go_idle(&mut net, ue);
    let id = context(&net).id;
    net.order(id, whimbrel_control::Command::Superseded); // it does not learn it
    net.tapped();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 5);
    let asked: Vec<_> = downlink(&mut net)
        .into_iter()
        .filter_map(|pdu| match mm::Message::decode(&pdu) {
            Ok(mm::Message::IdentityRequest(m)) => Some(m.identity_type),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [IdentityType::Suci]);
    assert!(registered(&net, ue));
}

fn setups(net: &mut Sim) -> Vec<SecurityKey> {
    let sent = net.tapped().into_iter().filter_map(|m| match m {
        Message::InitialContextSetupRequest(m) => Some(m.security_key),
        _ => None,
    });
    sent.collect()
}

#[test] // TS 33.501 §6.8.1.1.2, §6.8.1.2.2: the gNB's key is the UE's, after registration and after idle, and never twice the same
fn each_connection_has_a_key_of_its_own() {
    let (mut net, ue) = one_ue(4);
    net.tap();
    net.command(ue, UeCommand::Register);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    let mut keys = setups(&mut net);
    for come in [UeCommand::ServiceRequest, UeCommand::Register, UeCommand::ServiceRequest] {
        go_idle(&mut net, ue);
        net.command(ue, come);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND);
        keys.extend(setups(&mut net));
    }
    assert_eq!(keys.len(), 4);
    assert!(keys.iter().enumerate().all(|(i, k)| !keys[..i].contains(k)), "a key was used twice");
    no_violations(&net); // the UE compares each with its own
}

/// Home network keys 1 (profile A), 2 (profile B) and 7 (profile A), and a network that has them.
fn home(seed: u64) -> (Sim, [HomeNetworkPublicKey; 3]) {
    let private = |profile_a: bool, octet: u8| match profile_a {
        true => HomeNetworkPrivateKey::profile_a([octet; 32]),
        false => HomeNetworkPrivateKey::profile_b(&[octet; 32]).expect("a scalar of the curve"),
    };
    let kinds = [(1, true, 0x11), (2, false, 0x22), (7, true, 0x77)];
    let mut keys = HomeNetworkKeys::new();
    for (id, profile_a, octet) in kinds {
        keys.insert(id, private(profile_a, octet));
    }
    let mut net = Sim::builder(seed).home_keys(keys).recorded().build();
    net.add_gnb(gnb_config(1));
    (net, kinds.map(|(_, profile_a, octet)| private(profile_a, octet).public_key()))
}

fn concealed(n: u32, key: &HomeNetworkPublicKey, key_id: u8) -> UeConfig {
    let suci = SuciSource::Concealed { key: Arc::new(key.clone()), key_id, seed: [n as u8; 32] };
    UeConfig { suci, ..ue_config(n) }
}

#[test] // TS 33.501 §6.12.2, §C.3.4.1, §C.3.4.2; TS 33.514 §4.2.1.1: UEs of several home network keys and of both profiles, and one without
fn several_home_network_keys() {
    let (mut net, [a, b, other]) = home(5);
    let mut ues: Vec<_> = [(1, &a, 1), (2, &b, 2), (3, &other, 7)]
        .map(|(n, key, id)| net.add_ue(GnbIndex(0), concealed(n, key, id)))
        .into();
    ues.push(net.add_ue(GnbIndex(0), ue_config(4))); // the null scheme
    for &ue in &ues {
        net.command(ue, UeCommand::Register);
    }
    net.settle(SECOND);
    assert!(ues.iter().all(|&ue| registered(&net, ue)));
    no_violations(&net);
}

#[test] // TS 33.501 §6.12.2: what is concealed under a key that is not here, or another's of that name, is refused and says why
fn a_home_network_key_that_is_not_ours() {
    let (mut net, [a, _, other]) = home(6);
    let unknown = net.add_ue(GnbIndex(0), concealed(1, &a, 3));
    net.command(unknown, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(first_refusal(&net), Some(Refusal::UnknownHomeNetworkKey(3)));
    net.events.ues.clear();
    let mistaken = net.add_ue(GnbIndex(0), concealed(2, &other, 1));
    net.command(mistaken, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(first_refusal(&net), Some(Refusal::BadSuci));
    for ue in [unknown, mistaken] {
        assert!(refused_with(&net, ue, Reason::Mm(MmCause::IllegalUe)));
    }
    assert_eq!(net.cta().occupancy(), (0, 0));
}

#[test] // TS 33.501 §6.12.2: each SUCI is new, so that two registrations cannot be linked
fn a_suci_is_not_used_twice() {
    let (mut net, [a, ..]) = home(7);
    let ue = net.add_ue(GnbIndex(0), concealed(1, &a, 1));
    for _ in 0..3 {
        net.command(ue, UeCommand::Register);
        net.settle(SECOND * 70);
        assert!(registered(&net, ue));
        go_idle(&mut net, ue);
        let id = context(&net).id;
        net.order(id, whimbrel_control::Command::Superseded); // its next 5G-GUTI leads nowhere: it is asked
    }
    let recorded = net.recorder().contexts().flat_map(|(_, inputs)| inputs.iter());
    let ngap = recorded.filter_map(|r| match &r.envelope.payload {
        Payload::InitialUeMessage { octets, .. } | Payload::Ngap { octets, .. } => {
            Message::decode(octets).ok()
        }
        _ => None,
    });
    let nas = ngap.filter_map(|m| match m {
        Message::InitialUeMessage(m) => Some(m.nas_pdu),
        Message::UplinkNasTransport(m) => Some(m.nas_pdu),
        _ => None,
    });
    let sucis: Vec<_> = nas
        .filter_map(|pdu| match mm::Message::decode(&pdu).ok()? {
            mm::Message::RegistrationRequest(m) => Some(m.mobile_identity),
            mm::Message::IdentityResponse(m) => Some(m.mobile_identity),
            _ => None,
        })
        .filter(|identity| matches!(identity, whimbrel_nas::ie::MobileIdentity::Suci(_)))
        .collect();
    assert_eq!(sucis.len(), 3);
    assert!(sucis.iter().enumerate().all(|(i, s)| !sucis[..i].contains(s)));
}

#[test] // TS 33.501 §6.3.2.1, §6.4.3: a message under one UE's keys says nothing on another's connection
fn a_context_is_of_one_ue() {
    let (mut net, ue) = one_ue(8);
    let other = net.add_ue(GnbIndex(0), ue_config(2));
    for ue in [ue, other] {
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
    }
    let supi = net.ue_ref(ue).config().supi;
    let victim = |net: &Sim| net.cta().contexts().find(|p| p.amf.supi == Some(supi)).map(|p| p.id);
    let id = victim(&net).expect("registered");
    // The other's uplink messages, put on the connection of the first.
    let recorded = net.recorder().contexts().flat_map(|(_, inputs)| inputs.iter());
    let foreign: Vec<_> = recorded
        .filter_map(|r| match &r.envelope.payload {
            Payload::Ngap { octets, .. } if r.envelope.ue != id => Message::decode(octets).ok(),
            _ => None,
        })
        .filter_map(|m| match m {
            Message::UplinkNasTransport(m) => Some(m.nas_pdu),
            _ => None,
        })
        .collect();
    assert!(foreign.len() >= 3);
    let before = net.cta().context(id).and_then(|p| p.amf.security.current.as_ref().map(|s| s.counts()));
    let c = net.cta().context(id).and_then(|p| p.amf.connection.clone()).expect("connected");
    for pdu in foreign {
        net.inject(GnbIndex(0), &octets(UplinkNasTransport::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, pdu)));
        net.settle(SECOND / 10);
    }
    let after = net.cta().context(id).and_then(|p| p.amf.security.current.as_ref().map(|s| s.counts()));
    assert_eq!(before, after);
    assert!(registered(&net, ue) && registered(&net, other));
}

#[test] // TS 24.501 §4.4.2.5: until SECURITY MODE COMPLETE the former keys are in force, and messages under them are taken
fn the_former_context_holds_until_the_new_one_is_confirmed() {
    let mut config = default_config();
    config.amf.access.authentication.every_registrations = Some(1);
    let mut net = Sim::builder(9).config(config).build();
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, ue_config(1));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.ue_mut(ue).faults_mut().ignore.push((mm::MessageType::SecurityModeCommand, 99));
    net.command(ue, UeCommand::Register); // it is challenged, and does not hear SECURITY MODE COMMAND
    net.settle(SECOND);
    assert!(connection(&net).secured && context(&net).amf.registered);
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND * 20);
    assert!(!net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Violation(_))));
    assert_eq!(net.cta().occupancy(), (0, 0), "its deregistration under the former keys was taken");
}
