//! When the connection of a UE is released after a reject or a deregistration: TS 24.501 §5.3.1.3. UEs that register again at once, on the
//! connection that they have, are served there.

use std::time::Duration;

use crate::common::*;
use whimbrel_control::config::{Config, RefusalAnswer};
use whimbrel_control::refusal::RefusalKind;
use whimbrel_control::udm::{MobilityRestrictions, ServiceArea, Subscription};
use whimbrel_control::{Command as CoreCommand, UeContext};
use whimbrel_ids::{Instant, Tac};
use whimbrel_nas::ie::MmCause;
use whimbrel_nas::mm::MessageType;
use whimbrel_ngap::Message;
use whimbrel_ran::ue::{AtOnce, Event, MmState, Reason, SessionRequest, UeCommand};
use whimbrel_sim::{CpfLoss, CtaLoss, Sim, UeIndex, default_config, ue_config};

/// Within it a request that follows at once is answered; it is shorter than `release_delay`.
const AT_ONCE: Duration = Duration::from_millis(150);

fn with(seed: u64, change: impl FnOnce(&mut Config)) -> (Sim, UeIndex) {
    let mut config = default_config();
    change(&mut config);
    on_air(Sim::builder(seed).config(config).build())
}

fn on_air(mut net: Sim) -> (Sim, UeIndex) {
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, ue_config(1));
    net.settle(SECOND);
    (net, ue)
}

fn context(net: &Sim) -> &UeContext {
    net.contexts().next().expect("a context")
}

/// Registered with a session, idle, and unknown to the core, as after a restart.
fn unknown_to_the_core(net: &mut Sim, ue: UeIndex) {
    net.command(ue, UeCommand::Register);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    go_idle(net, ue);
    let id = context(net).id;
    net.order(id, CoreCommand::Superseded);
    net.settle(SECOND);
    assert_eq!(net.contexts().count(), 0);
}

fn releases(net: &mut Sim) -> usize {
    net.tapped().iter().filter(|m| matches!(m, Message::UeContextReleaseCommand(_))).count()
}

fn at(net: &Sim, ue: UeIndex, which: impl Fn(&Event) -> bool) -> Instant {
    net.ue_events(ue).iter().rev().find(|(_, e)| which(e)).expect("it has happened").0
}

/// How long the UE was without service: from its request that was refused until it was registered.
fn out_of_service(net: &Sim, ue: UeIndex) -> Duration {
    let refused = at(net, ue, |e| matches!(e, Event::Refused { .. }));
    at(net, ue, |e| matches!(e, Event::Registered { .. })).since(refused)
}

#[test] // TS 24.501 §5.6.1.5 #9, §5.3.1.3: a UE that does not wait for the release registers on the connection that it has
fn a_ue_that_registers_at_once_after_service_reject_9_is_served_on_its_connection() {
    for how in [AtOnce::WithKeys, AtOnce::WithoutKeys] {
        let (mut net, ue) = on_air(Sim::builder(1).build());
        unknown_to_the_core(&mut net, ue);
        net.ue_mut(ue).faults_mut().at_once = Some(how);
        net.tap();
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(AT_ONCE);
        assert!(refused_with(&net, ue, Reason::Mm(MmCause::UeIdentityCannotBeDerived)));
        assert!(registered(&net, ue), "{:?}", net.ue_events(ue));
        assert_eq!(releases(&mut net), 0);
        assert!(out_of_service(&net, ue) < AT_ONCE);
        net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
        net.settle(SECOND);
        assert_eq!((context(&net).sessions.len(), net.upf_sessions()), (1, 1));
        no_violations(&net);
    }
}

#[test] // TS 24.501 §5.3.1.3: a UE that waits for the release, as T3540 has it, is kept waiting for `release_delay`
fn a_ue_that_waits_after_service_reject_9_is_released_after_the_delay() {
    let (mut net, ue) = on_air(Sim::builder(2).build());
    unknown_to_the_core(&mut net, ue);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(AT_ONCE);
    assert!(net.ue_ref(ue).is_connected() && net.contexts().all(|p| p.amf.inactivity_deadline.is_some()));
    assert_eq!(net.cta().occupancy(), (1, 1));
    net.settle(SECOND);
    assert!(registered(&net, ue));
    let waited = out_of_service(&net, ue);
    assert!(
        waited >= default_config().timers.release_delay && waited < Duration::from_millis(400),
        "{waited:?}"
    );
    no_violations(&net);
}

#[test] // TS 24.501 §5.5.1.3.5 #9
fn a_ue_that_registers_at_once_after_registration_reject_9_is_served_on_its_connection() {
    let (mut net, ue) = on_air(Sim::builder(3).build());
    unknown_to_the_core(&mut net, ue);
    net.ue_mut(ue).faults_mut().at_once = Some(AtOnce::WithKeys);
    net.tap();
    net.command(ue, UeCommand::PeriodicRegistration);
    net.settle(AT_ONCE);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::UeIdentityCannotBeDerived)));
    assert!(registered(&net, ue), "{:?}", net.ue_events(ue));
    assert_eq!(releases(&mut net), 0);
    no_violations(&net);
}

#[test] // TS 24.501 §5.5.1.2.5 #10: whatever the operator answers with it
fn a_ue_that_registers_at_once_after_cause_10_is_served_on_its_connection() {
    let (mut net, ue) = with(4, |c| {
        c.refusals.insert(RefusalKind::ForbiddenArea, RefusalAnswer { cause: Some(10), back_off: None });
    });
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    go_idle(&mut net, ue);
    let forbidden_areas = vec![Tac::new(1).expect("24 bits")];
    let restrictions = MobilityRestrictions { forbidden_areas, ..Default::default() };
    net.home().subscribe(Subscription { restrictions, ..subscription() });
    let supi = net.ue_ref(ue).config().supi;
    net.subscriber_changed(supi);
    net.settle(SECOND);
    net.ue_mut(ue).faults_mut().at_once = Some(AtOnce::WithKeys);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(Duration::from_millis(10));
    net.home().subscribe(subscription());
    net.settle(AT_ONCE);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::ImplicitlyDeregistered)), "{:?}", net.ue_events(ue));
    assert!(registered(&net, ue), "{:?}", net.ue_events(ue));
    no_violations(&net);
}

#[test] // TS 24.501 §5.6.1.5 #28: it stays registered, and updates its registration
fn a_ue_that_updates_its_registration_after_service_reject_28_is_served_on_its_connection() {
    let (mut net, ue) = on_air(Sim::builder(5).build());
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    go_idle(&mut net, ue);
    let service_area = Some(ServiceArea::NotAllowed(vec![Tac::new(1).expect("24 bits")]));
    let restrictions = MobilityRestrictions { service_area, ..Default::default() };
    net.home().subscribe(Subscription { restrictions, ..subscription() });
    let supi = net.ue_ref(ue).config().supi;
    net.subscriber_changed(supi);
    net.settle(SECOND);
    net.ue_mut(ue).faults_mut().at_once = Some(AtOnce::WithKeys);
    net.tap();
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(AT_ONCE);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::RestrictedServiceArea)), "{:?}", net.ue_events(ue));
    assert!(registered(&net, ue) && out_of_service(&net, ue) < AT_ONCE);
    assert_eq!(releases(&mut net), 0);
    no_violations(&net);
}

#[test] // TS 24.501 §5.5.2.2.2; TS 33.501 §6.8.1.1.1: with the keys that it keeps, or in clear; what its gNB had of its session goes
fn a_ue_that_registers_at_once_after_deregistration_accept_is_served_on_its_connection() {
    for how in [AtOnce::WithKeys, AtOnce::WithoutKeys] {
        let (mut net, ue) = on_air(Sim::builder(6).build());
        net.command(ue, UeCommand::Register);
        net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
        net.settle(SECOND);
        net.ue_mut(ue).faults_mut().at_once = Some(how);
        net.tap();
        net.command(ue, UeCommand::Deregister { switch_off: false });
        net.command(ue, UeCommand::Register);
        net.settle(AT_ONCE);
        let left = at(&net, ue, |e| matches!(e, Event::Deregistered { .. }));
        assert!(
            at(&net, ue, |e| matches!(e, Event::Registered { .. })) > left,
            "{how:?}: {:?}",
            net.ue_events(ue)
        );
        assert!(registered(&net, ue), "{how:?}: {:?}", net.ue_events(ue));
        let tapped = net.tapped();
        let count = |of: fn(&Message) -> bool| tapped.iter().filter(|m| of(m)).count();
        assert_eq!(count(|m| matches!(m, Message::UeContextReleaseCommand(_))), 0);
        assert_eq!(count(|m| matches!(m, Message::PduSessionResourceReleaseCommand(_))), 1);
        assert_eq!((context(&net).sessions.len(), net.upf_sessions()), (0, 0));
        net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
        net.settle(SECOND);
        assert_eq!((context(&net).sessions.len(), net.upf_sessions()), (1, 1));
        no_violations(&net);
    }
}

#[test] // TS 23.502 §4.2.2.3.2 step 8
fn after_deregistration_accept_the_connection_and_all_that_is_left_go_after_the_delay() {
    let (mut net, ue) = on_air(Sim::builder(7).build());
    net.command(ue, UeCommand::Register);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(AT_ONCE);
    assert_eq!((net.cta().registered(), net.cta().occupancy()), (0, (1, 0)), "it is deregistered at once");
    net.settle(SECOND);
    assert_eq!((net.cta().occupancy(), net.upf_sessions()), ((0, 0), 0));
    assert!(!net.ue_ref(ue).is_connected());
    no_violations(&net);
}

#[test] // TS 24.501 §5.5.1.2.5, §5.4.1.3.5: a UE that goes elsewhere, waits, or has no valid USIM does not register again on its connection
fn after_every_other_reject_the_connection_is_released_at_once() {
    for cause in [3, 5, 6, 7, 11, 12, 13, 15, 22, 27, 31, 62, 72, 73, 74, 75, 76, 77, 90, 95, 111] {
        let (mut net, ue) = with(8, |c| {
            c.refusals
                .insert(RefusalKind::UnknownSubscriber, RefusalAnswer { cause: Some(cause), back_off: None });
        });
        let supi = net.ue_ref(ue).config().supi;
        net.home().unknown.push(supi);
        net.command(ue, UeCommand::Register);
        net.settle(AT_ONCE);
        let reported =
            |e: &Event| matches!(e, Event::Refused { reason: Reason::Mm(m), .. } if m.value() == cause);
        assert!(net.ue_events(ue).iter().any(|(_, e)| reported(e)), "#{cause}: {:?}", net.ue_events(ue));
        assert_eq!((net.cta().occupancy(), net.ue_ref(ue).is_connected()), ((0, 0), false), "#{cause}");
    }
    let (mut net, ue) = on_air(Sim::builder(9).build());
    net.ue_mut(ue).faults_mut().wrong_res_star = true;
    net.command(ue, UeCommand::Register);
    net.settle(AT_ONCE);
    assert_eq!(
        (net.cta().occupancy(), net.ue_ref(ue).is_connected()),
        ((0, 0), false),
        "AUTHENTICATION REJECT"
    );
}

#[test] // a UE that is being switched off does not come back
fn a_ue_that_is_switched_off_is_released_at_once() {
    let (mut net, ue) = on_air(Sim::builder(10).build());
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, UeCommand::Deregister { switch_off: true });
    net.settle(AT_ONCE);
    assert_eq!(net.cta().occupancy(), (0, 0));
}

#[test]
fn without_a_delay_the_connection_is_released_with_the_reject() {
    let (mut net, ue) = with(11, |c| c.timers.release_delay = Duration::ZERO);
    unknown_to_the_core(&mut net, ue);
    net.tap();
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(Duration::from_millis(20));
    assert_eq!(releases(&mut net), 1);
}

#[test] // repeated refused requests do not keep the connection
fn a_second_request_that_is_refused_ends_the_delay() {
    let (mut net, ue) = on_air(Sim::builder(12).build());
    unknown_to_the_core(&mut net, ue);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::ServiceReject, 9));
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(Duration::from_millis(30));
    assert_eq!(net.cta().occupancy(), (1, 1));
    let s_tmsi = [0, 7, 0xf4, 0, 0x40, 1, 2, 3, 4];
    net.command(ue, UeCommand::Say([&[0x7e, 0, 0x4c, 0x10][..], &s_tmsi].concat()));
    net.settle(Duration::from_millis(30));
    assert_eq!(net.cta().occupancy(), (0, 0));
}

#[test] // TS 33.117 §4.2.3.3.3: UEs that were rejected, and only they, give way to one that asks for a slot
fn a_flood_of_rejected_ues_keeps_no_other_ue_out() {
    let mut config = default_config();
    (config.limits.unauthenticated_ues, config.limits.unauthenticated_ues_per_gnb) = (4, 4);
    let mut net = Sim::builder(13).config(config).build();
    let gnb = net.add_gnb(gnb_config(1));
    let ues: Vec<UeIndex> = (1..=12).map(|n| net.add_ue(gnb, ue_config(n))).collect();
    net.settle(SECOND);
    for ue in &ues[..11] {
        net.command(*ue, UeCommand::Register);
        net.settle(SECOND);
        go_idle(&mut net, *ue);
    }
    for id in net.contexts().map(|p| p.id).collect::<Vec<_>>() {
        net.order(id, CoreCommand::Superseded);
    }
    net.settle(SECOND);
    assert_eq!(net.cta().occupancy(), (0, 0));
    net.tap();
    for ue in &ues[..11] {
        net.command(*ue, UeCommand::ServiceRequest);
        net.advance(Duration::from_millis(12));
        net.lose_power(*ue);
    }
    let tapped = net.tapped();
    let count = |of: fn(&Message) -> bool| tapped.iter().filter(|m| of(m)).count();
    assert_eq!(count(|m| matches!(m, Message::DownlinkNasTransport(_))), 11, "each gets its SERVICE REJECT");
    assert_eq!(count(|m| matches!(m, Message::UeContextReleaseCommand(_))), 9);
    assert_eq!(count(|m| matches!(m, Message::OverloadStart(_))), 0);
    assert_eq!(net.cta().occupancy(), (2, 2), "the last ones are kept, up to half of the limit");
    net.command(ues[11], UeCommand::Register);
    net.settle(AT_ONCE);
    assert!(registered(&net, ues[11]), "{:?}", net.ue_events(ues[11]));
    net.settle(SECOND);
    assert_eq!(net.cta().occupancy(), (1, 0));
}

#[test] // UEs that are being authenticated are not rejected ones
fn a_ue_that_is_being_authenticated_does_not_give_way() {
    let mut config = default_config();
    (config.limits.unauthenticated_ues, config.limits.unauthenticated_ues_per_gnb) = (1, 1);
    let mut net = Sim::builder(14).config(config).build();
    let gnb = net.add_gnb(gnb_config(1));
    let (slow, late) = (net.add_ue(gnb, ue_config(1)), net.add_ue(gnb, ue_config(2)));
    net.settle(SECOND);
    net.ue_mut(slow).faults_mut().ignore.push((MessageType::AuthenticationRequest, 1));
    net.command(slow, UeCommand::Register);
    net.settle(SECOND);
    net.advance(Duration::from_millis(4900)); // T3560 is about to expire
    net.command(late, UeCommand::Register);
    net.settle(SECOND * 2);
    assert!(registered(&net, slow) && !registered(&net, late));
}

/// The UE is rejected with #9, the core suffers `loss` at each of the next messages in turn, and the UE registers on its connection.
fn survives(net: impl Fn() -> Sim, loss: impl Fn(&mut Sim, u64)) {
    for message in 1..=6 {
        let (mut net, ue) = on_air(net());
        unknown_to_the_core(&mut net, ue);
        net.ue_mut(ue).faults_mut().at_once = Some(AtOnce::WithKeys);
        loss(&mut net, message);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND * 3);
        assert!(registered(&net, ue), "message {message}: {:?}", net.ue_events(ue));
        let refused = net.ue_events(ue).iter().filter(|(_, e)| matches!(e, Event::Refused { .. })).count();
        assert_eq!((refused, net.ue_ref(ue).state()), (1, MmState::Registered), "message {message}");
        no_violations(&net);
    }
}

#[test] // the wait is part of the UE's state: the CPF that takes it over continues it
fn the_delay_survives_the_loss_of_a_cpf() {
    let region = || Sim::builder(15).cpfs(3, 2).build();
    survives(region, |net, message| net.lose_cpf_at(net.links_taken() + message, CpfLoss::ALL[0]));
}

#[test]
fn the_delay_survives_the_loss_of_the_cta() {
    let replicated = || Sim::builder(16).cpfs(3, 1).cta_replica().build();
    survives(replicated, |net, message| {
        net.lose_cta_at(net.inputs_taken() + message, CtaLoss::AfterReplication)
    });
}

#[test] // and it ends, though its timer was another's
fn the_delay_ends_after_a_takeover() {
    for loss in CpfLoss::ALL {
        let (mut net, ue) = on_air(Sim::builder(17).cpfs(3, 2).build());
        unknown_to_the_core(&mut net, ue);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(Duration::from_millis(50));
        let message = net.links_taken() + 1;
        net.lose_cpf_at(message, loss);
        net.lose_power(ue);
        net.settle(SECOND * 20);
        assert_eq!(net.cta().occupancy(), (0, 0), "{loss:?}");
    }
}

#[test] // TS 38.413 §8.3.2: the gNB asks first
fn a_gnb_that_asks_for_the_release_ends_the_delay() {
    let (mut net, ue) = on_air(Sim::builder(18).build());
    unknown_to_the_core(&mut net, ue);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(Duration::from_millis(50));
    net.tap();
    net.release(ue, whimbrel_ngap::ie::CauseRadioNetwork::UserInactivity.into());
    net.settle(Duration::from_millis(50));
    assert_eq!(releases(&mut net), 1);
    no_violations(&net);
}
