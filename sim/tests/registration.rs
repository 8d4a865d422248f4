//! Registration: TS 24.501 §5.5.1.2, §5.5.1.3 and what runs within it (§5.4).

use std::time::Duration;

use crate::common::*;
use whimbrel_control::{Event as CoreEvent, Refusal};
use whimbrel_nas::ie::MmCause;
use whimbrel_nas::mm::MessageType;
use whimbrel_ngap::Message;
use whimbrel_ran::ue::{Event, Reason, UeCommand};

#[test] // TS 24.501 §5.5.1.2.2 to §5.5.1.2.4, §5.4.1.3.2, §5.4.1.3.4, §5.4.2.4; TS 23.502 §4.2.2.2.2 initial, step 9, step 21, step 22; TS 38.413 §8.6.1.2, §8.6.2.2, §8.6.3.2: with SUCI, 5G-AKA, security mode, new 5G-GUTI
fn initial_registration() {
    let (mut net, ue) = one_ue(1);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    assert!(net.ue_ref(ue).guti().is_some());
    no_violations(&net);
}

#[test] // TS 24.501 §5.5.1.3.4; TS 23.502 §4.2.2.2.2 mobility: a UE that is known registers again under its security context, without a challenge
fn mobility_registration_under_the_context_in_force() {
    let (mut net, ue) = one_ue(2);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let first = net.ue_ref(ue).guti();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    assert_ne!(net.ue_ref(ue).guti(), first, "every registration gives a new 5G-GUTI (TS 33.501 §6.12.3)");
    no_violations(&net);
}

#[test] // TS 24.501 §5.5.1.3.4 periodic; TS 23.502 §4.2.2.2.2 periodic: the periodic registration, from idle
fn periodic_registration_from_idle() {
    let (mut net, ue) = one_ue(3);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    go_idle(&mut net, ue);
    net.command(ue, UeCommand::PeriodicRegistration);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    no_violations(&net);
}

#[test] // TS 24.501 §5.3.7; TS 23.501 §5.4.1.1: T3512 on the UE's side brings it back before the network gives it up
fn a_ue_keeps_its_registration_for_a_day() {
    let (mut net, ue) = one_ue(4);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    go_idle(&mut net, ue);
    net.advance(Duration::from_secs(24 * 3600));
    assert!(registered(&net, ue));
    assert!(net.cta().contexts().next().is_some_and(|p| p.amf.registered));
    no_violations(&net);
}

#[test] // TS 24.501 §5.5.1.2.8 c: REGISTRATION ACCEPT is sent again when T3550 expires
fn registration_accept_lost_once() {
    let (mut net, ue) = one_ue(5);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::RegistrationAccept, 1));
    net.command(ue, UeCommand::Register);
    net.settle(Duration::from_secs(10));
    assert!(registered(&net, ue));
    assert!(core_events(&net).any(|e| matches!(e, CoreEvent::Repeated("REGISTRATION ACCEPT"))));
}

#[test] // TS 24.501 §5.4.1.3.7 b: AUTHENTICATION REQUEST is sent again when T3560 expires
fn authentication_request_lost_once() {
    let (mut net, ue) = one_ue(6);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::AuthenticationRequest, 1));
    net.command(ue, UeCommand::Register);
    net.settle(Duration::from_secs(12));
    assert!(registered(&net, ue));
}

#[test] // TS 24.501 §5.4.1.3.7 b: after the fifth expiry of T3560 the network gives up
fn authentication_request_never_answered() {
    let mut config = whimbrel_sim::default_config();
    config.timers.t3560 = Duration::from_secs(2); // five of them pass before the UE's own T3510 does
    let mut net = whimbrel_sim::Sim::builder(7).config(config).build();
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, whimbrel_sim::ue_config(1));
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::AuthenticationRequest, 99));
    net.command(ue, UeCommand::Register);
    net.settle(Duration::from_secs(40));
    let refusal = first_refusal(&net).expect("the core says why");
    assert_eq!(refusal, Refusal::NoAnswer("AUTHENTICATION REQUEST"));
}

#[test] // TS 24.501 §5.4.2.7 b: SECURITY MODE COMMAND is sent again when T3560 expires
fn security_mode_command_lost_once() {
    let (mut net, ue) = one_ue(8);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::SecurityModeCommand, 1));
    net.command(ue, UeCommand::Register);
    net.settle(Duration::from_secs(12));
    assert!(registered(&net, ue));
}

#[test] // TS 24.501 §5.4.1.3.5; TS 33.512 §4.2.2.1.2; TS 33.501 §6.1.3.2: RES* is wrong
fn wrong_res_star_is_rejected() {
    let (mut net, ue) = one_ue(9);
    net.ue_mut(ue).faults_mut().wrong_res_star = true;
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::AuthenticationRejected));
    assert_eq!(first_refusal(&net), Some(Refusal::WrongResponse));
    assert_eq!(net.cta().occupancy(), (0, 0), "nothing is left of it");
}

#[test] // TS 24.501 §5.4.1.3.7 c: the UE finds the MAC wrong: its key is another
fn wrong_key_is_rejected() {
    let mut net = network(10);
    let gnb = net.add_gnb(gnb_config(1));
    let mut config = whimbrel_sim::ue_config(1);
    config.k = whimbrel_security::K::new([0x5a; 16]);
    let ue = net.add_ue(gnb, config);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(first_refusal(&net), Some(Refusal::MacFailure));
}

#[test] // TS 33.102 §6.3.5, TS 24.501 §5.4.1.3.7 f, TS 33.512 §4.2.2.1.1, TS 33.514 §4.2.2.1, TS 33.501 §6.1.3.3: the USIM is ahead and resynchronises
fn sqn_out_of_range_is_repaired() {
    let (mut net, ue) = one_ue(11); // a fresh USIM, to which the time is too far ahead
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let asks = |m: &Message| matches!(m, Message::DownlinkNasTransport(m) if m.nas_pdu.get(2) == Some(&0x56));
    assert_eq!(net.tapped().iter().filter(|m| asks(m)).count(), 2, "AUTHENTICATION REQUEST");
    assert!(registered(&net, ue));
}

#[test] // TS 29.524 §4.3.2: an unknown subscriber
fn an_unknown_subscriber_is_rejected() {
    let (mut net, ue) = one_ue(12);
    let supi = net.ue_ref(ue).config().supi;
    net.home().unknown.push(supi);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::IllegalUe)));
    assert_eq!(first_refusal(&net), Some(Refusal::UnknownSubscriber));
}

#[test] // TS 24.501 §5.5.1.2.5 #15: the tracking area is not served
fn tracking_area_not_served() {
    let mut net = network(13);
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, whimbrel_sim::ue_config(1));
    let mut elsewhere = gnb_config(2);
    elsewhere.supported_tas.insert(0, area(7));
    // The gNB broadcasts a served area too, or it could not set up; its cell is in the other.
    let gnb = net.add_gnb(elsewhere);
    let far = net.add_ue(gnb, whimbrel_sim::ue_config(2));
    net.command(ue, UeCommand::Register);
    net.command(far, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    assert!(refused_with(&net, far, Reason::Mm(MmCause::NoSuitableCellsInTrackingArea)));
}

#[test] // TS 24.501 §5.4.2.2, §5.5.1.2.8 i; TS 33.512 §4.2.2.6.1: no algorithm in common
fn no_common_algorithm() {
    let mut net = network(14);
    let gnb = net.add_gnb(gnb_config(1));
    let mut config = whimbrel_sim::ue_config(1);
    let mut profile = (*config.profile).clone();
    profile.security_capability = whimbrel_nas::ie::UeSecurityCapability::with_eps(0xf0, 0x80, 0, 0);
    config.profile = profile.into();
    let ue = net.add_ue(gnb, config);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::UeSecurityCapabilitiesMismatch)));
}

#[test] // TS 24.501 §5.5.1.2.5 #62: no slice in common
fn no_slice_in_common() {
    let mut config = whimbrel_sim::default_config();
    config.amf.slices.push(whimbrel_ids::SNssai::sst(2));
    let mut net = whimbrel_sim::Sim::builder(15).config(config).build();
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, whimbrel_sim::ue_config(1));
    let mut subscription = subscription();
    subscription.slices[0].s_nssai = whimbrel_ids::SNssai::sst(9);
    net.home().subscribe(subscription);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::NoNetworkSlicesAvailable)));
}

#[test] // TS 23.502 §4.2.2.2.2 step 14: the subscriber appears elsewhere; its former context ends
fn a_second_ue_with_the_same_sim_ends_the_first() {
    let mut net = network(16);
    let gnb = net.add_gnb(gnb_config(1));
    let first = net.add_ue(gnb, whimbrel_sim::ue_config(1));
    let second = net.add_ue(gnb, whimbrel_sim::ue_config(1));
    net.command(first, UeCommand::Register);
    net.settle(SECOND);
    net.command(second, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, second));
    assert_eq!(net.cta().contexts().filter(|p| p.amf.registered).count(), 1);
}

#[test] // TS 24.501 §4.4.4.3; TS 33.512 §4.2.2.1.4: a wrong MAC touches nothing; the UE starts over by its own timer
fn a_message_with_a_wrong_mac_is_dropped() {
    let (mut net, ue) = one_ue(17);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.ue_mut(ue).faults_mut().wrong_mac = 1;
    net.command(ue, UeCommand::Register);
    net.settle(Duration::from_secs(60));
    assert!(registered(&net, ue));
}

#[test] // TS 24.501 §5.5.1.2.4, §5.4.3.2, §5.4.3.4; TS 23.502 §4.2.2.2.2 step 4, step 6; TS 23.527 §6.2.2: an unknown UE sends a 5G-GUTI and is asked for its SUCI
fn unknown_guti_is_identified() {
    let (mut net, ue) = one_ue(18);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    go_idle(&mut net, ue);
    let context = net.cta().contexts().next().expect("it is registered").id;
    net.order(context, whimbrel_control::Command::Superseded); // it does not learn it
    assert_eq!(net.cta().contexts().count(), 0);
    net.command(ue, UeCommand::PeriodicRegistration);
    net.settle(Duration::from_secs(30));
    assert!(registered(&net, ue), "{:?} {:?}", net.ue_events(ue), net.events.ues);
}

#[test] // TS 23.502 §4.2.6 loss: the connection is lost at every point of a registration: the next attempt succeeds, nothing is left over
fn a_gnb_restart_at_any_point() {
    for millis in 0..60 {
        let (mut net, ue) = one_ue(100 + millis);
        net.command(ue, UeCommand::Register);
        net.settle(Duration::from_millis(millis));
        let gnb = whimbrel_sim::GnbIndex(0);
        net.restart_gnb(gnb);
        net.settle(Duration::from_secs(120));
        let ue_state = net.ue_events(ue).last().map(|(_, e)| e.clone());
        assert!(registered(&net, ue), "restart after {millis} ms: {ue_state:?}");
        assert!(net.cta().contexts().count() <= 1, "restart after {millis} ms left a context behind");
        assert!(!net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Violation(_))));
    }
}

#[test] // TS 24.501 §5.5.1.2.5 #22, §5.3.9: the operator's own cause and T3346 (a wrong cause makes UEs retry thousands of times)
fn configured_cause_and_back_off() {
    let mut config = whimbrel_sim::default_config();
    let answer =
        whimbrel_control::config::RefusalAnswer { cause: Some(22), back_off: Some(Duration::from_secs(900)) };
    config.refusals.insert(whimbrel_control::refusal::RefusalKind::UnknownSubscriber, answer);
    let mut net = whimbrel_sim::Sim::builder(20).config(config).build();
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, whimbrel_sim::ue_config(1));
    net.settle(SECOND / 10);
    let supi = net.ue_ref(ue).config().supi;
    net.home().unknown.push(supi);
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::Congestion)));
    let reject = net.tapped().into_iter().find_map(|m| match m {
        Message::DownlinkNasTransport(m) => match whimbrel_nas::mm::Message::decode(&m.nas_pdu) {
            Ok(whimbrel_nas::mm::Message::RegistrationReject(m)) => Some(m),
            _ => None,
        },
        _ => None,
    });
    assert!(reject.is_some_and(|m| m.t3346.is_some()), "T3346 goes along");
}

#[test] // TS 23.501 §5.4.4.1: what one gNB learned of the UE's radio, the next gets in INITIAL CONTEXT SETUP REQUEST
fn radio_capability_is_stored_and_returned() {
    let (mut net, ue) = one_ue(21);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    go_idle(&mut net, ue);
    net.tap();
    net.command(ue, UeCommand::ServiceRequest);
    net.command(ue, UeCommand::PeriodicRegistration);
    net.settle(SECOND);
    let returned = net.tapped().into_iter().find_map(|m| match m {
        Message::InitialContextSetupRequest(m) => m.ue_radio_capability,
        _ => None,
    });
    assert_eq!(returned, Some(gnb_config(1).radio_capability));
    no_violations(&net);
}

#[test] // equal radio capabilities are kept once, for the memory of a million UEs
fn ues_of_one_make_share_their_radio_capability() {
    let mut net = network(23);
    let gnb = net.add_gnb(gnb_config(1));
    net.settle(SECOND / 10);
    for n in 0..2 {
        let ue = net.add_ue(gnb, whimbrel_sim::ue_config(n));
        net.command(ue, UeCommand::Register);
    }
    net.settle(SECOND);
    let kept: Vec<_> = net.cta().contexts().filter_map(|p| p.amf.radio.capability.clone()).collect();
    assert!(kept.len() == 2 && std::sync::Arc::ptr_eq(&kept[0], &kept[1]));
}

#[test] // the slot of a subscriber that is refused after authentication is forgotten at the UDM too
fn a_refused_ue_leaves_nothing_at_the_udm() {
    let (mut net, ue) = one_ue(22);
    let mut subscription = subscription();
    subscription.slices[0].s_nssai = whimbrel_ids::SNssai::sst(9);
    net.home().subscribe(subscription);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(net.cta().find(net.ue_ref(ue).config().supi), None);
}

#[test] // TS 23.501 §5.15.5.2.1: the subscribed default stands in for slices that are not allowed, which are in the rejected NSSAI
fn a_ue_that_asks_for_a_slice_in_vain_gets_its_default() {
    let mut net = network(19);
    let gnb = net.add_gnb(gnb_config(1));
    let mut config = whimbrel_sim::ue_config(1);
    let mut profile = (*config.profile).clone();
    profile.requested_nssai = vec![whimbrel_ids::SNssai::sst(9)];
    config.profile = profile.into();
    let ue = net.add_ue(gnb, config);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    assert_eq!(net.ue_ref(ue).allowed_nssai(), [whimbrel_ids::SNssai::sst(1)]);
    no_violations(&net);
}
