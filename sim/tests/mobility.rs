//! Mobility management where peers err, leave or come back: TS 24.501 §5.5, §5.6, §7; TS 23.502 §4.2; TS 23.527 §6.2.

use std::sync::Arc;
use std::time::Duration;

use crate::common::by_hand::{SOURCE, connection, context, octets, psi};
use crate::common::*;
use whimbrel_control::smf::UpState;
use whimbrel_nas::ie::{MmCause, PduSessionType};
use whimbrel_nas::mm::{self, MessageType};
use whimbrel_ngap::Message;
use whimbrel_ngap::msg::UplinkNasTransport;
use whimbrel_ran::ue::{Alter, Event, MmState, Reason, SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex};

fn on_air(seed: u64, sessions: usize) -> (Sim, UeIndex) {
    let (mut net, ue) = one_ue(seed);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    for _ in 0..sessions {
        let request = SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
        net.command(ue, UeCommand::EstablishSession(request));
        net.settle(SECOND);
    }
    assert!(registered(&net, ue) && context(&net).sessions.len() == sessions);
    (net, ue)
}

fn cut_to(octets: usize) -> Option<Alter> {
    Some(Alter(Arc::new(move |message: &mut Vec<u8>| message.truncate(octets))))
}

fn statuses(net: &Sim, ue: UeIndex) -> Vec<MmCause> {
    let reported = net.ue_events(ue).iter().filter_map(|(_, e)| match e {
        Event::Status(cause) => Some(*cause),
        _ => None,
    });
    reported.collect()
}

/// What was rejected on a connection that says this as its first message, without protection.
fn rejected(net: &mut Sim, octets_of_nas: &[u8]) -> Vec<mm::Message> {
    let location = crate::common::by_hand::location(1);
    let cause = whimbrel_ngap::ie::RrcEstablishmentCause::MoSignalling;
    let ran_id = whimbrel_ids::RanUeNgapId(900);
    let m = whimbrel_ngap::msg::InitialUeMessage::new(ran_id, octets_of_nas.to_vec(), location, cause);
    net.tap();
    net.inject(SOURCE, &octets(m));
    let sent = net.tapped();
    assert!(sent.iter().any(|m| matches!(m, Message::UeContextReleaseCommand(_))), "{sent:?}");
    let nas = sent.into_iter().filter_map(|m| match m {
        Message::DownlinkNasTransport(m) => mm::Message::decode(&m.nas_pdu).ok(),
        _ => None,
    });
    nas.collect()
}

#[test] // TS 24.501 §5.5.1.2.8 b, §5.6.1.8 b, §7.5.1: requests without what they must have are rejected with #96, and leave nothing
fn first_messages_that_are_cut_off() {
    let mut net = network(1);
    net.add_gnb(gnb_config(1));
    net.settle(SECOND / 10);
    let answers = rejected(&mut net, &[0x7e, 0, 0x41, 0x79]);
    let [mm::Message::RegistrationReject(m)] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(m.cause, MmCause::InvalidMandatoryInformation);
    let answers = rejected(&mut net, &[0x7e, 0, 0x4c, 0x10]);
    let [mm::Message::ServiceReject(m)] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(m.cause, MmCause::InvalidMandatoryInformation);
    assert_eq!(rejected(&mut net, &[0x7e, 0, 0x7f]), [], "what is no request is not answered");
    assert_eq!(net.cta().occupancy(), (0, 0));
}

#[test] // TS 24.501 §5.5.1.3.8 b, §7.5.1: so is that of a registered UE, which stays registered
fn a_mobility_registration_that_is_cut_off() {
    let (mut net, ue) = on_air(2, 1);
    net.ue_mut(ue).faults_mut().alter = cut_to(4);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let cause = Reason::Mm(MmCause::InvalidMandatoryInformation);
    assert!(refused_with(&net, ue, cause), "{:?}", net.ue_events(ue));
    assert!(context(&net).amf.registered && context(&net).sessions.len() == 1);
    net.settle(SECOND * 60);
    assert!(registered(&net, ue), "{:?}", net.ue_events(ue));
    assert_eq!(net.upf_sessions(), context(&net).sessions.len());
}

#[test] // TS 24.501 §5.6.1.8 b, §7.5.1: so is a SERVICE REQUEST
fn a_service_request_that_is_cut_off() {
    let (mut net, ue) = on_air(3, 1);
    net.tap();
    net.command(ue, UeCommand::Say(vec![0x7e, 0, 0x4c, 0x10, 0, 7]));
    net.settle(SECOND);
    assert!(context(&net).amf.registered && net.upf_sessions() == 1);
    let sent = net.tapped().into_iter().filter(|m| matches!(m, Message::DownlinkNasTransport(_)));
    assert_eq!(sent.count(), 1, "SERVICE REJECT");
}

#[test] // TS 24.501 §7.4, §7.5.1, §7.7.2: what a registered UE says wrong is answered by 5GMM STATUS with its cause, and changes nothing
fn errors_are_answered_by_their_cause() {
    for (seed, message, cause) in [
        (4, &[0x7e, 0, 0x7f, 1, 2][..], MmCause::MessageTypeNonExistent),
        (5, &[0x7e, 0, 0x67, 1, 0, 9, 1], MmCause::InvalidMandatoryInformation), // UL NAS TRANSPORT, cut off
        (6, &[0x7e, 0, 0x67, 1, 0, 4, 0x2e, 1, 1, 0xd6], MmCause::ConditionalIeError), // without its session
        (7, &[0x7e, 0, 0x42, 1, 1], MmCause::MessageTypeNotCompatible),          // REGISTRATION ACCEPT
    ] {
        let (mut net, ue) = on_air(seed, 1);
        net.command(ue, UeCommand::Say(message.to_vec()));
        net.settle(SECOND);
        assert_eq!(statuses(&net, ue), [cause], "{message:x?}");
        assert!(registered(&net, ue) && net.upf_sessions() == 1);
    }
}

#[test] // TS 24.501 §7.4, §4.4.4.2: unauthenticated UEs get no 5GMM STATUS: no UE would accept it
fn errors_of_unauthenticated_ues_are_not_answered() {
    let (mut net, ue) = one_ue(8);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::AuthenticationRequest, 1));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let c = connection(&net).clone();
    net.tap();
    for nas in [&[0x7e, 0, 0x7f][..], &[0x7e, 0, 0x5c], &[0x7e, 0, 0x59]] {
        let m = UplinkNasTransport::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, nas.to_vec());
        net.inject(SOURCE, &octets(m));
    }
    assert_eq!(net.tapped(), []);
}

#[test] // TS 24.501 §7.8: an identity that was not asked for is ignored: the UE is rejected and registers again
fn an_identity_that_was_not_asked_for() {
    let (mut net, ue) = on_air(9, 0);
    go_idle(&mut net, ue);
    let id = context(&net).id;
    net.order(id, whimbrel_control::Command::Superseded); // it does not learn it
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::IdentityRequest, 1));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let guti = net.ue_ref(ue).guti().expect("a 5G-GUTI");
    let m = mm::IdentityResponse::new(whimbrel_nas::ie::MobileIdentity::Guti(guti));
    let c = connection(&net).clone();
    let pdu = mm::Message::from(m).to_octets();
    net.inject(SOURCE, &octets(UplinkNasTransport::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, pdu)));
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::UeIdentityCannotBeDerived)));
    net.settle(SECOND * 20);
    assert!(registered(&net, ue));
}

#[test] // TS 23.502 §4.2.2.3.2 switch off; TS 24.501 §5.5.2.2.2: a UE that is switched off gets no answer, and all of it ends
fn a_ue_that_is_switched_off() {
    let (mut net, ue) = on_air(10, 2);
    net.tap();
    net.command(ue, UeCommand::Deregister { switch_off: true });
    net.settle(SECOND);
    let sent = net.tapped();
    assert!(!sent.iter().any(|m| matches!(m, Message::DownlinkNasTransport(_))), "{sent:?}");
    assert!(sent.iter().any(|m| matches!(m, Message::UeContextReleaseCommand(_))));
    assert_eq!((net.cta().occupancy(), net.upf_sessions()), ((0, 0), 0));
}

#[test] // TS 23.502 §4.2.3.2 step 12, step 14: the gNB cannot bring one session up: the other carries packets, that one waits
fn one_session_of_two_comes_up() {
    let (mut net, ue) = on_air(11, 2);
    go_idle(&mut net, ue);
    net.gnb_mut(GnbIndex(0)).faults_mut().refuse_sessions = vec![psi(1)];
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    let up = |net: &Sim, n| context(net).sessions.get(&psi(n)).map(|s| s.up);
    assert_eq!((up(&net, 1), up(&net, 2)), (Some(UpState::Inactive), Some(UpState::Active)));
    net.gnb_mut(GnbIndex(0)).faults_mut().refuse_sessions.clear();
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert_eq!((up(&net, 1), up(&net, 2)), (Some(UpState::Active), Some(UpState::Active)));
    no_violations(&net);
}

#[test] // TS 23.527 §6.2.1, §6.2.2; TS 23.502 §4.2.2.2.2 step 4: the core restarts: UEs send an unknown 5G-GUTI, are identified, and nothing of before is left
fn the_core_restarts() {
    let (mut net, ue) = on_air(12, 1);
    let guti = net.ue_ref(ue).guti();
    net.restart_core();
    net.settle(SECOND);
    assert_eq!((net.cta().occupancy(), net.upf_sessions()), ((0, 0), 0), "the sessions of before are gone");
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(Duration::from_secs(30));
    assert!(registered(&net, ue), "{:?}", net.ue_events(ue));
    assert_ne!(net.ue_ref(ue).guti(), guti);
    assert_eq!(net.cta().contexts().count(), 1);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    assert_eq!(net.upf_sessions(), context(&net).sessions.len());
}

#[test] // TS 24.501 §5.6.2.4 a: the gNB is lost while it pages: T3513 has the UE paged again where it is found
fn the_gnb_is_lost_while_it_pages() {
    let (mut net, ue) = on_air(13, 1);
    go_idle(&mut net, ue);
    net.disconnect(GnbIndex(0)); // before the page
    let address = context(&net).sessions.get(&psi(1)).and_then(|s| s.address.ipv4).expect("an address");
    let mut packet = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1];
    packet.extend(address.octets());
    packet.extend([0x10, 0, 0x10, 1, 0, 12, 0, 0, 1, 2, 3, 4]);
    net.packet(whimbrel_user::Origin::N6 { dn: whimbrel_user::DnIndex(0) }, &packet);
    net.settle(SECOND / 10);
    assert!(!net.ue_ref(ue).is_connected());
    net.restart_gnb(GnbIndex(0));
    net.settle(SECOND * 4);
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Paged)));
    assert_eq!(context(&net).sessions[&psi(1)].up, UpState::Active);
    assert_eq!(net.ue_ref(ue).state(), MmState::Registered);
}

#[test] // TS 23.501 §5.19.3: the gNB gets the relative AMF capacity by which it shares UEs out
fn the_relative_amf_capacity_is_sent() {
    let mut net = network(14);
    net.tap();
    net.add_gnb(gnb_config(1));
    net.settle(SECOND / 10);
    let reported = net.tapped().into_iter().find_map(|m| match m {
        Message::NgSetupResponse(m) => Some(m.relative_amf_capacity),
        _ => None,
    });
    assert_eq!(reported, Some(255));
}

#[test] // TS 24.501 §5.3.8: T3502 as the operator has it is sent with each REGISTRATION ACCEPT
fn t3502_is_sent() {
    let mut config = whimbrel_sim::default_config();
    config.timers.t3502 = Duration::from_secs(120);
    let mut net = Sim::builder(15).config(config).build();
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, whimbrel_sim::ue_config(1));
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    // Five attempts in vain, ten seconds apart, and then the pause that it got.
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::RegistrationAccept, 99));
    net.command(ue, UeCommand::Register);
    let refused = |net: &Sim| {
        let reported = net.ue_events(ue).iter().filter_map(|(_, e)| match e {
            Event::Refused { retry_after, .. } => *retry_after,
            _ => None,
        });
        reported.collect::<Vec<_>>()
    };
    net.advance(Duration::from_secs(150));
    assert_eq!(refused(&net).last(), Some(&Duration::from_secs(120)), "{:?}", refused(&net));
}

#[test] // TS 23.502 §4.2.3.3 connected: packets for a session without user plane, of a UE that is connected: it is not paged
fn a_connected_ues_idle_session_is_brought_up() {
    let (mut net, ue) = on_air(16, 2);
    go_idle(&mut net, ue);
    net.gnb_mut(GnbIndex(0)).faults_mut().refuse_sessions = vec![psi(1)];
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert_eq!(context(&net).sessions[&psi(1)].up, UpState::Inactive);
    net.gnb_mut(GnbIndex(0)).faults_mut().refuse_sessions.clear();
    net.tap();
    let (to, _) = crate::common::by_hand::downlink(&mut net, 1);
    assert_eq!(to, None, "the packet waits");
    net.settle(SECOND);
    let sent = net.tapped();
    assert!(!sent.iter().any(|m| matches!(m, Message::Paging(_))), "{sent:?}");
    assert!(sent.iter().any(|m| matches!(m, Message::PduSessionResourceSetupRequest(_))), "{sent:?}");
    assert_eq!(context(&net).sessions[&psi(1)].up, UpState::Active);
    no_violations(&net);
}
