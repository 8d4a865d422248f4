//! The connection is lost in the middle of a procedure: case a of each list of TS 24.501 §5.4, §5.5 and §5.6, and what leaves
//! a UE that is paged.

use std::time::Duration;

use crate::common::*;
use whimbrel_control::{Command as CoreCommand, Event as CoreEvent};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_nas::mm::MessageType;
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, UpfState};

/// The core awaits the UE's answer to a message that the UE never hears.
fn awaiting(message: MessageType, seed: u64) -> (Sim, UeIndex) {
    let (mut net, ue) = one_ue(seed);
    net.ue_mut(ue).faults_mut().ignore.push((message, 99));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    (net, ue)
}

fn registered_ue(seed: u64) -> (Sim, UeIndex) {
    let (mut net, ue) = one_ue(seed);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    (net, ue)
}

fn idle_with_session(seed: u64) -> (Sim, UeIndex) {
    let (mut net, ue) = registered_ue(seed);
    let request = SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
    net.command(ue, UeCommand::EstablishSession(request));
    net.settle(SECOND);
    go_idle(&mut net, ue);
    (net, ue)
}

/// The gNB loses its association: every connection of it is gone.
fn lose(net: &mut Sim) {
    net.restart_gnb(GnbIndex(0));
}

fn downlink(net: &mut Sim, ue: UeIndex) {
    let id = net.ue_ref(ue).sessions().next().expect("a session").id;
    net.downlink(ue, id);
}

fn pages(net: &mut Sim) -> usize {
    net.tapped().iter().filter(|m| matches!(m, whimbrel_ngap::Message::Paging(_))).count()
}

#[test] // TS 24.501 §5.4.1.3.7 a, §5.4.2.7 a: nothing is left of an unauthenticated UE whose connection is lost
fn an_unauthenticated_ue_is_discarded() {
    for message in [MessageType::AuthenticationRequest, MessageType::SecurityModeCommand] {
        let (mut net, _) = awaiting(message, 1);
        assert_eq!(net.cta().contexts().count(), 1);
        lose(&mut net);
        assert_eq!(net.cta().contexts().count(), 0, "{message:?}");
    }
}

#[test] // TS 24.501 §5.4.3.6 a; TS 23.527 §6.2.2: nor of one whose identity was asked for
fn an_unauthenticated_ue_without_identity_is_discarded() {
    let (mut net, ue) = registered_ue(2);
    net.restart_core();
    net.settle(SECOND);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::IdentityRequest, 99));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(net.cta().contexts().count(), 1);
    lose(&mut net);
    assert_eq!(net.cta().contexts().count(), 0);
}

#[test] // TS 24.501 §5.4.3.6 b: T3570 expires five times, and the UE is forgotten
fn an_identity_request_that_is_never_answered() {
    let (mut net, ue) = registered_ue(3);
    net.restart_core();
    net.settle(SECOND);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::IdentityRequest, 5));
    net.command(ue, UeCommand::Register);
    net.settle(Duration::from_secs(10));
    let repeated =
        |net: &Sim| core_events(net).filter(|e| matches!(e, CoreEvent::Repeated("IDENTITY REQUEST"))).count();
    assert_eq!(repeated(&net), 1);
    // The UE gives up before the network does, and comes again.
    net.advance(Duration::from_secs(300));
    assert!(registered(&net, ue));
}

#[test] // TS 24.501 §5.5.1.2.8 a: the UE that may or may not have got its accept is registered
fn an_initial_registration_that_is_not_confirmed() {
    let (mut net, _) = awaiting(MessageType::RegistrationAccept, 4);
    lose(&mut net);
    let ue = net.cta().contexts().next().expect("it is registered");
    assert!(ue.amf.registered && ue.is_idle() && !ue.is_connected());
}

#[test] // TS 24.501 §5.5.1.3.8 a: so is one whose update was not confirmed, under both its 5G-GUTIs
fn an_update_that_is_not_confirmed() {
    let (mut net, ue) = registered_ue(5);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::RegistrationAccept, 99));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    lose(&mut net);
    let context = net.cta().contexts().next().expect("it is registered");
    assert!(context.amf.registered && context.is_idle() && context.amf.former_tmsi.is_some());
    assert_eq!(context.amf.former_tmsi, net.ue_ref(ue).s_tmsi().map(|t| t.tmsi));
}

#[test] // TS 24.501 §5.6.1.8 a: a service request whose connection is lost is over; the next one is served
fn a_service_request_that_is_cut_off() {
    let (mut net, ue) = idle_with_session(6);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::ServiceAccept, 1));
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    lose(&mut net);
    assert!(net.cta().contexts().all(|p| p.is_idle() && p.amf.registered));
    net.settle(SECOND);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    let id = net.ue_ref(ue).sessions().next().expect("a session").id;
    net.check_path(ue, id);
    assert!(net.ue_ref(ue).is_connected() && registered(&net, ue));
}

#[test] // TS 24.501 §5.5.2.3.5 b: the network's deregistration is done when the connection is lost
fn a_deregistration_by_the_network_that_is_cut_off() {
    let (mut net, ue) = registered_ue(7);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::DeregistrationRequestUeTerminated, 99));
    let id = net.cta().contexts().next().expect("the UE").id;
    net.order(id, CoreCommand::Deregister);
    lose(&mut net);
    assert_eq!(net.cta().contexts().count(), 0);
}

#[test] // TS 24.501 §5.5.2.2.7 a: the accept of a deregistration need not arrive
fn a_deregistration_by_the_ue_that_is_cut_off() {
    let (mut net, ue) = registered_ue(8);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::DeregistrationAcceptUeOriginating, 99));
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND / 100);
    lose(&mut net);
    net.settle(Duration::from_secs(100));
    assert_eq!(net.cta().contexts().count(), 0);
}

#[test] // TS 24.501 §5.4.4.6 a: both 5G-GUTIs stand when the command may have been lost
fn a_configuration_update_that_is_cut_off() {
    let (mut net, ue) = idle_with_session(9);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::ConfigurationUpdateCommand, 99));
    downlink(&mut net, ue);
    net.settle(SECOND);
    lose(&mut net);
    let context = net.cta().contexts().next().expect("the UE");
    assert!(context.amf.tmsi.is_some() && context.amf.former_tmsi.is_some() && context.is_idle());
    assert_eq!(context.amf.former_tmsi, net.ue_ref(ue).s_tmsi().map(|t| t.tmsi));
}

#[test] // TS 24.501 §5.4.2.7 c: a UE that is switched off while SECURITY MODE COMMAND is under way
fn a_deregistration_during_the_security_mode() {
    let (mut net, ue) = awaiting(MessageType::SecurityModeCommand, 10);
    net.command(ue, UeCommand::Deregister { switch_off: true });
    net.settle(SECOND);
    assert_eq!(net.cta().contexts().count(), 0);
}

#[test] // TS 24.501 §5.4.3.6 d: or during the identification procedure
fn a_deregistration_during_the_identification() {
    let (mut net, ue) = registered_ue(11);
    net.restart_core();
    net.settle(SECOND);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::IdentityRequest, 99));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, UeCommand::Deregister { switch_off: true });
    net.settle(SECOND);
    assert_eq!(net.cta().contexts().count(), 0);
}

#[test] // TS 24.501 §5.6.2.4 b: a UE that is paged leaves
fn a_deregistration_while_paged() {
    let (mut net, ue) = idle_with_session(12);
    net.leave_coverage(ue);
    net.tap();
    downlink(&mut net, ue);
    assert_eq!(pages(&mut net), 1);
    net.command(ue, UeCommand::Deregister { switch_off: true });
    net.settle(SECOND);
    assert_eq!(net.cta().contexts().count(), 0);
    net.advance(Duration::from_secs(30));
    assert_eq!(pages(&mut net), 0);
}

#[test] // TS 24.501 §5.6.2.4 c: a UE that is paged registers: that answers, and its packets flow
fn a_registration_while_paged() {
    let (mut net, ue) = idle_with_session(13);
    net.leave_coverage(ue);
    net.tap();
    downlink(&mut net, ue);
    assert_eq!(pages(&mut net), 1);
    net.command(ue, UeCommand::PeriodicRegistration);
    net.settle(SECOND);
    let id = net.ue_ref(ue).sessions().next().expect("a session").id;
    assert!(net.ue_ref(ue).has_user_plane(id));
    net.check_path(ue, id);
    net.advance(Duration::from_secs(30));
    assert_eq!(pages(&mut net), 0);
}

#[test] // TS 38.412 §7; TS 38.413 §8.6.1.3: a UE comes back while its gNB holds its former connection: that one is released on its own stream
fn a_former_connection_is_released_on_its_own_stream() {
    let (mut net, ue) = one_ue(77);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    for _ in 0..5 {
        net.lose_radio(ue);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND);
        assert!(net.ue_ref(ue).is_connected());
        assert_eq!(net.cta().contexts().count(), 1);
    }
    no_violations(&net);
}

#[test] // TS 23.502 §4.2.6 steps 5 to 7: also those of a session whose downlink tunnel the UPF has not confirmed yet
fn packets_wait_whose_gnb_is_lost_while_the_upf_is_led_to_it() {
    let (mut net, ue) = idle_with_session(9);
    net.set_upf(UpfState::Mute);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND / 10);
    assert!(net.ue_ref(ue).is_connected() && net.agree().is_err(), "the SMF awaits the UPF");
    lose(&mut net);
    net.set_upf(UpfState::Answering);
    net.settle(SECOND * 10);
    assert_eq!(net.agree(), Ok(()));
    downlink(&mut net, ue);
    net.settle(SECOND);
    assert!(net.ue_ref(ue).is_connected(), "it was paged");
    assert_eq!(net.agree(), Ok(()));
}
