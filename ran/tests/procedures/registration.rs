//! Registration, authentication and security mode of the emulated UE against a scripted core.

use std::time::Duration;

use crate::fake_core::{NOW, Net, SLICE};
use whimbrel_ids::SNssai;
use whimbrel_nas::ie::{IdentityType, MmCause, MobileIdentity, RegistrationKind, UeSecurityCapability};
use whimbrel_nas::mm::MessageType;
use whimbrel_open::crypto::{PrivateKey, Seed, SigningKey};
use whimbrel_open::id::UserId;
use whimbrel_open::msg::EpochKey;
use whimbrel_open::user::UserSim;
use whimbrel_ran::ue::{Event, MeasuredProcedure, MmState, Reason, SapCard, SuciSource, Timer, UeCommand};
use whimbrel_security::{HomeNetworkPrivateKey, K, Sqn, UsimSqn};

fn refusals(events: &[Event]) -> Vec<Reason> {
    let reason = |e: &Event| match e {
        Event::Refused { reason, .. } => Some(*reason),
        _ => None,
    };
    events.iter().filter_map(reason).collect()
}

#[test] // TS 24.501 §5.5.1.2, §4.4.6: cleartext elements first, the whole message in SECURITY MODE COMPLETE
fn initial_registration_with_suci() {
    let mut net = Net::registered();
    let kind = RegistrationKind::Initial;
    assert_eq!(net.take_events(), [Event::Registered { since: NOW, kind }, Event::Idle]);
    use MessageType::*;
    let sent = [RegistrationRequest, AuthenticationResponse, SecurityModeComplete, RegistrationComplete];
    assert_eq!(net.core.uplink, sent);
    let whole = &net.core.initial[0];
    assert!(matches!(whole.mobile_identity, MobileIdentity::Suci(_)));
    assert_eq!(whole.requested_nssai.as_ref().unwrap().0[0].s_nssai, SLICE);
    assert!(matches!(net.core.imeisv, Some(MobileIdentity::Pei(pei)) if pei.is_imeisv()));
    assert_eq!(net.ue.guti(), Some(net.core.guti()));
    assert_eq!(net.core.radio_capability.as_ref(), Some(&net.gnb.config().radio_capability));
    assert_eq!(net.gnb.contexts(), 0);
}

#[test] // TS 24.501 §4.4.6: with keys, the whole message goes ciphered in the NAS message container
fn registration_with_guti_after_deregistration() {
    let mut net = Net::registered();
    net.command(UeCommand::Deregister { switch_off: false });
    assert_eq!(net.ue.state(), MmState::Deregistered);
    net.core.uplink.clear();
    net.command(UeCommand::Register);
    assert_eq!(net.core.uplink, [MessageType::RegistrationRequest, MessageType::RegistrationComplete]);
    assert!(matches!(net.core.initial[1].mobile_identity, MobileIdentity::Guti(_)));
    assert_eq!(net.ue.state(), MmState::Registered);
    net.take_events();
}

#[test] // TS 24.501 §5.5.1.3: T3512 leads to periodic registration
fn periodic_registration() {
    let mut net = Net::registered();
    net.until_next_timer(); // T3519 or T3512, whichever is first
    while net.core.initial.len() < 2 {
        net.until_next_timer();
    }
    assert_eq!(net.now.since(NOW), Duration::from_secs(3600));
    assert_eq!(net.core.initial[1].registration_type.kind, RegistrationKind::PeriodicUpdating);
    net.take_events();
}

#[test] // TS 24.501 §5.4.1: a core that lost the keys challenges again; the UE takes the new ones
fn reauthentication_after_the_core_lost_its_keys() {
    let mut net = Net::registered();
    net.core.forget();
    net.command(UeCommand::Register);
    assert_eq!(net.ue.state(), MmState::Registered);
    net.take_events();
}

#[test] // TS 33.501 Annex C: profiles A and B
fn concealed_identities() {
    for key in
        [HomeNetworkPrivateKey::profile_a([7; 32]), HomeNetworkPrivateKey::profile_b(&[7; 32]).unwrap()]
    {
        let public = std::sync::Arc::new(key.public_key());
        let mut net = Net::with(|c| c.suci = SuciSource::Concealed { key: public, key_id: 5, seed: [9; 32] });
        net.command(UeCommand::Register);
        net.take_events();
        let MobileIdentity::Suci(whimbrel_nas::ie::Suci::Imsi { output, .. }) =
            &net.core.initial[0].mobile_identity
        else {
            panic!("no SUCI");
        };
        let whimbrel_nas::ie::SchemeOutput::Concealed { scheme, key_id: 5, output } = output else {
            panic!("plain")
        };
        assert_eq!(scheme.value(), key.scheme().identifier());
        assert_eq!(key.deconceal(output).unwrap(), [0x00, 0x00, 0x00, 0x00, 0x10]);
    }
}

#[test] // TS 33.501 §6.12.2: computed before, the same afterwards
fn precomputed_identity() {
    let public = std::sync::Arc::new(HomeNetworkPrivateKey::profile_a([7; 32]).public_key());
    let mut net = Net::with(|c| {
        c.suci = SuciSource::Concealed { key: public, key_id: 5, seed: [9; 32] };
        c.precompute_suci();
    });
    net.command(UeCommand::Register);
    net.take_events();
    let SuciSource::Precomputed(suci) = &net.ue.config().suci else { panic!("not computed") };
    assert_eq!(net.core.initial[0].mobile_identity, MobileIdentity::Suci(suci.clone()));
}

#[test] // TS 24.501 §5.3.1.3: the next registration waits until the old connection is gone, by T3540 if need be
fn registration_waits_for_the_release() {
    let mut net = Net::new();
    net.core.knobs.keep_connection = true;
    net.command(UeCommand::Register);
    net.core.knobs.silent = true;
    net.command(UeCommand::Deregister { switch_off: true });
    net.core.knobs.silent = false;
    net.command(UeCommand::Register);
    assert_eq!(net.ue.state(), MmState::Deregistered);
    net.until_next_timer();
    while net.ue.state() == MmState::Deregistered {
        net.until_next_timer();
    }
    assert_eq!(net.now.since(NOW), Timer::T3540.default_value());
    net.take_events();
}

#[test] // TS 24.501 §5.4.1.3.7 c: wrong K at either side is a MAC failure
fn wrong_key() {
    let mut net = Net::with(|c| c.k = K::new([0x12; 16]));
    net.command(UeCommand::Register);
    assert_eq!(net.core.uplink, [MessageType::RegistrationRequest, MessageType::AuthenticationFailure]);
    assert_eq!(refusals(&net.take_events()), [Reason::AuthenticationRejected]);
    assert_eq!(net.ue.state(), MmState::Deregistered);
}

#[test] // TS 24.501 §5.4.1.3.7 c: a forged challenge, then a right one
fn forged_challenge_is_followed_by_a_right_one() {
    let mut net = Net::new();
    net.core.knobs.forged_challenges = 1;
    net.core.knobs.reject_authentication = false;
    net.command(UeCommand::Register);
    // The fake core gives up after its last forged challenge; a real one may ask for the identity.
    assert_eq!(refusals(&net.take_events()), [Reason::AuthenticationRejected]);
    net.core.knobs.forged_challenges = 2;
    net.command(UeCommand::Register);
    assert!(net.core.uplink.ends_with(&[MessageType::AuthenticationFailure; 2]));
}

#[test] // CellBricks: a UE of class 3 is never made to fall back to class 2
fn a_sap_ue_refuses_every_challenge() {
    let signing = SigningKey::new(&[1; 32]);
    let sim = UserSim {
        user: UserId([2; 16]),
        broker: "b.example".parse().unwrap(),
        broker_key: signing.verifying_key(),
        epoch: EpochKey { id: 1, public: PrivateKey::new([3; 32]).share() },
        signing,
        counter: 0,
        ticket: None,
    };
    let mut net =
        Net::with(|c| c.suci = SuciSource::Sap(Box::new(SapCard { sim, seed: Seed::new([4; 32]) })));
    net.command(UeCommand::Register);
    assert_eq!(net.core.uplink, [MessageType::RegistrationRequest, MessageType::AuthenticationFailure]);
    assert_eq!(net.ue.state(), MmState::Deregistered);
}

#[test] // TS 24.501 §5.4.1.3.7 e: the UE's SQN is far ahead, the core resynchronises
fn resynchronisation() {
    let mut net = Net::with(|c| {
        let mut sqn = UsimSqn::default();
        (0..32).for_each(|ind| sqn.accept(Sqn::new(1000, ind)).unwrap());
        c.sqn = sqn;
    });
    net.command(UeCommand::Register);
    assert_eq!(net.core.auts, 1);
    assert!(matches!(net.take_events()[0], Event::Registered { .. }));
}

#[test] // TS 24.501 §5.4.1.3.7 d
fn challenge_without_the_separation_bit() {
    let mut net = Net::new();
    net.core.knobs.no_separation_bit = true;
    net.command(UeCommand::Register);
    assert_eq!(net.core.uplink, [MessageType::RegistrationRequest, MessageType::AuthenticationFailure]);
    net.take_events();
}

#[test] // TS 24.501 §5.4.1.3.5
fn wrong_res_star() {
    let mut net = Net::new();
    net.ue.faults_mut().wrong_res_star = true;
    net.command(UeCommand::Register);
    assert_eq!(refusals(&net.take_events()), [Reason::AuthenticationRejected]);
}

#[test] // TS 24.501 §5.4.2.5: capabilities that were not replayed as sent, or not offered as meant
fn bidding_down_is_refused() {
    for by_network in [true, false] {
        let mut net = Net::new();
        let other = UeSecurityCapability::new(0x80, 0x80);
        match by_network {
            true => net.core.knobs.altered_capabilities = Some(other),
            false => net.ue.faults_mut().bid_down = Some(other),
        }
        net.command(UeCommand::Register);
        let own = Reason::SecurityModeRefused(MmCause::UeSecurityCapabilitiesMismatch);
        assert_eq!(refusals(&net.take_events()), [own]);
    }
}

#[test] // TS 33.501 §5.2.3: null integrity is refused
fn null_integrity_is_refused() {
    let mut net = Net::new();
    net.core.knobs.integrity = Some(whimbrel_nas::ie::IntegrityAlgorithm::Nia0);
    net.command(UeCommand::Register);
    assert_eq!(net.core.uplink.last(), Some(&MessageType::SecurityModeReject));
}

#[test] // TS 33.501 §5.11.1: each algorithm
fn each_algorithm() {
    use whimbrel_nas::ie::{CipheringAlgorithm, IntegrityAlgorithm};
    for id in 0..4 {
        let mut net = Net::new();
        net.core.knobs.ciphering = CipheringAlgorithm::from_u8(id);
        net.core.knobs.integrity = IntegrityAlgorithm::from_u8(id.max(1));
        net.command(UeCommand::Register);
        assert_eq!(net.take_events().len(), 2, "algorithm {id}");
    }
}

#[test] // TS 33.501 §6.8.1.1.2.2
fn another_k_gnb_is_a_violation() {
    let mut net = Net::new();
    net.core.knobs.wrong_k_gnb = true;
    net.command(UeCommand::Register);
    assert_eq!(net.violations(), ["K_gNB of the gNB is not the one that the UE derives"]);
}

#[test] // TS 24.501 §5.5.1.3.5: cause #9 has the UE come again with its SUCI, once
fn identity_that_cannot_be_derived() {
    let mut net = Net::registered();
    net.take_events();
    net.core.uplink.clear();
    net.core.knobs.reject_registration = Some(MmCause::UeIdentityCannotBeDerived);
    net.command(UeCommand::Register);
    assert_eq!(net.core.uplink, [MessageType::RegistrationRequest; 2]);
    assert_eq!(net.ue.guti(), None);
    net.core.knobs.reject_registration = None;
    net.until_next_timer();
    while net.ue.state() != MmState::Registered {
        net.until_next_timer();
    }
    assert_eq!(net.now.since(NOW), Timer::T3511.default_value());
    assert!(matches!(net.core.initial.last().unwrap().mobile_identity, MobileIdentity::Suci(_)));
}

#[test] // TS 24.501 §5.5.1.2.5: causes that end it
fn rejected_for_good() {
    for cause in [MmCause::IllegalUe, MmCause::PlmnNotAllowed, MmCause::NoNetworkSlicesAvailable] {
        let mut net = Net::new();
        net.core.knobs.reject_registration = Some(cause);
        net.command(UeCommand::Register);
        let events = net.take_events();
        assert!(
            matches!(
                events[..],
                [Event::Refused { procedure: MeasuredProcedure::Registration, reason: Reason::Mm(c), retry_after: None, .. }]
                if c == cause
            ),
            "{events:?}"
        );
    }
}

#[test] // TS 24.501 §5.3.9, §5.5.1.2.5: congestion with T3346
fn back_off() {
    let mut net = Net::new();
    net.core.knobs.reject_registration = Some(MmCause::Congestion);
    net.core.knobs.t3346 = Some(Duration::from_secs(120));
    net.command(UeCommand::Register);
    net.command(UeCommand::Register);
    let events = net.take_events();
    assert_eq!(refusals(&events), [Reason::Mm(MmCause::Congestion), Reason::NotPossible]);
    net.core.knobs.reject_registration = None;
    while net.ue.state() != MmState::Registered {
        net.until_next_timer();
    }
    assert_eq!(net.now.since(NOW), Duration::from_secs(120));
}

#[test] // TS 24.501 §5.5.1.2.7 c, d: T3510, then T3511 four times, then T3502
fn a_silent_core() {
    let mut net = Net::new();
    net.core.knobs.silent = true;
    net.command(UeCommand::Register);
    let mut waits = Vec::new();
    while waits.len() < 5 {
        net.until_next_timer();
        for event in net.take_events() {
            if let Event::Refused { reason: Reason::TimedOut, retry_after: Some(wait), .. } = event {
                waits.push(wait);
            }
        }
    }
    assert_eq!(waits[..4], [Timer::T3511.default_value(); 4]);
    assert_eq!(waits[4], Timer::T3502.default_value());
}

#[test] // TS 24.501 §5.4.1.3.7: a repeated challenge, whose answer was lost, is answered alike
fn lost_challenge() {
    let mut net = Net::new();
    net.ue.faults_mut().ignore = vec![(MessageType::AuthenticationRequest, 1)];
    net.command(UeCommand::Register);
    assert_eq!(net.ue.state(), MmState::RegisteredInitiated);
    net.core(|core, out| core.challenge(out));
    assert_eq!(net.ue.state(), MmState::Registered);
    net.take_events();
}

#[test] // TS 24.501 §4.4.4.2: the IMEI is not sent in clear
fn identity_in_clear() {
    let mut net = Net::new();
    net.ue.faults_mut().ignore = vec![(MessageType::AuthenticationRequest, 1)];
    net.command(UeCommand::Register);
    net.core(|core, out| core.identity_request_plain(IdentityType::Suci, out));
    assert!(net.core.uplink.contains(&MessageType::IdentityResponse));
    let mut net = Net::new();
    net.ue.faults_mut().ignore = vec![(MessageType::AuthenticationRequest, 1)];
    net.command(UeCommand::Register);
    net.core(|core, out| core.identity_request_plain(IdentityType::Imei, out));
    assert!(!net.core.uplink.contains(&MessageType::IdentityResponse));
    assert_eq!(net.violations(), ["IDENTITY REQUEST came without protection"]);
}

#[test] // TS 24.501 §5.4.4
fn configuration_update_with_a_new_guti() {
    let mut net = Net::new();
    net.core.knobs.keep_connection = true;
    net.command(UeCommand::Register);
    net.core(|core, out| core.update_configuration(out));
    assert_eq!(net.ue.guti(), Some(net.core.guti()));
    assert_eq!(net.core.uplink.last(), Some(&MessageType::ConfigurationUpdateComplete));
    assert!(net.take_events().contains(&Event::ConfigurationUpdated { new_guti: true }));
}

#[test] // TS 24.501 §5.5.2.3
fn deregistration_by_the_network() {
    for again in [false, true] {
        let mut net = Net::new();
        net.core.knobs.keep_connection = true;
        net.command(UeCommand::Register);
        net.take_events();
        net.core(|core, out| core.deregister(again, out));
        let expected = if again { MmState::Registered } else { MmState::Deregistered };
        assert_eq!(net.ue.state(), expected);
        assert_eq!(net.take_events()[0], Event::Deregistered { since: None, cause: None });
    }
}

#[test] // TS 24.501 §5.5.2.2
fn deregistration_by_the_ue() {
    for switch_off in [false, true] {
        let mut net = Net::registered();
        net.take_events();
        net.command(UeCommand::Deregister { switch_off });
        assert_eq!(net.take_events(), [Event::Deregistered { since: Some(NOW), cause: None }]);
        assert!(!net.ue.is_connected());
    }
}

#[test] // TS 24.501 §4.6.2: an acceptance without any slice that was asked for
fn allowed_nssai_of_others() {
    let mut net = Net::with(|c| {
        let mut profile = (*c.profile).clone();
        profile.requested_nssai = vec![SNssai::sst(7)];
        c.profile = profile.into();
    });
    net.command(UeCommand::Register);
    assert_eq!(
        net.violations(),
        ["the allowed NSSAI is empty, or another than was asked for without a word of that"]
    );
}

#[test] // DESIGN of the load generator: what a UE without sessions and timers takes in memory
fn size_of_a_ue() {
    let size = core::mem::size_of::<whimbrel_ran::ue::Ue>();
    println!("a UE: {size} octets");
    assert!(size <= 2048, "{size}");
}
