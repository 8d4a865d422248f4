//! Reachability of UEs and its reports, and priorities of UEs: TS 23.502 §4.2.5, TS 24.501 §5.3.7, TS 23.501 §5.22.

use std::time::Duration;

use crate::common::*;
use whimbrel_control::udm::{Priority, Subscription};
use whimbrel_control::{Command as Order, Event as CoreEvent};
use whimbrel_nas::ie::{GprsTimer3, MicoIndication, MmCause};
use whimbrel_ngap::ie::RrcEstablishmentCause;
use whimbrel_ran::ue::{AskFor, MmState, Reason, SessionRequest, UeCommand};
use whimbrel_sim::{Sim, UeIndex, default_config, ue_config};

const MINUTE: Duration = Duration::from_secs(60);

fn on_air(seed: u64, ask: AskFor) -> (Sim, UeIndex) {
    let (mut net, ue) = one_ue(seed);
    net.ue_mut(ue).faults_mut().ask_for = Some(ask.into());
    net.command(ue, UeCommand::Register);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    assert!(registered(&net, ue));
    (net, ue)
}

fn reports(net: &Sim) -> usize {
    core_events(net).filter(|e| matches!(e, CoreEvent::Reachable { .. })).count()
}

fn order(net: &mut Sim) {
    let id = net.cta().contexts().next().expect("a UE").id;
    net.order(id, Order::NotifyReachable);
}

#[test] // TS 23.502 §4.2.5.2: a connected UE can be reached now
fn reachability_of_a_connected_ue_is_reported_at_once() {
    let (mut net, _) = on_air(1, AskFor::default());
    order(&mut net);
    assert_eq!(reports(&net), 1);
}

#[test] // TS 23.502 §4.2.5.2, §4.2.5.3: the report about an idle UE is sent when it connects, once per request
fn reachability_of_an_idle_ue_is_reported_at_its_next_connection() {
    for come in [UeCommand::ServiceRequest, UeCommand::PeriodicRegistration] {
        let (mut net, ue) = on_air(2, AskFor::default());
        go_idle(&mut net, ue);
        order(&mut net);
        net.settle(SECOND);
        assert_eq!(reports(&net), 0, "it was not paged for that");
        net.command(ue, come);
        net.settle(SECOND);
        assert_eq!(reports(&net), 1);
        go_idle(&mut net, ue);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND);
        assert_eq!(reports(&net), 1, "it was asked for once");
        no_violations(&net);
    }
}

#[test] // TS 23.502 §4.2.5.2: an unauthenticated UE with the same identity causes no report
fn an_unauthenticated_ue_with_the_same_identity_is_not_reported_as_reachable() {
    let (mut net, ue) = on_air(3, AskFor::default());
    go_idle(&mut net, ue);
    order(&mut net);
    net.ue_mut(ue).faults_mut().wrong_mac = 1;
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert_eq!(reports(&net), 0);
}

fn strict() -> AskFor {
    let mico = MicoIndication { all_plmn_registration_area: false, strictly_periodic: true };
    let hour = GprsTimer3::from_duration(60 * MINUTE);
    AskFor { mico: Some(mico), t3512: Some(hour), ..AskFor::default() }
}

#[test] // TS 24.501 §5.3.7 strictly periodic; TS 23.501 §5.4.1.3: T3512 runs from the registration, connected or not
fn a_strictly_periodic_ue_comes_by_the_clock() {
    let (mut net, ue) = on_air(4, strict());
    go_idle(&mut net, ue);
    let registrations = |net: &Sim| {
        let done = core_events(net).filter(|e| {
            matches!(e, CoreEvent::Completed { procedure: whimbrel_control::Procedure::Registration, .. })
        });
        done.count()
    };
    net.advance(50 * MINUTE);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert!(net.ue_ref(ue).is_connected());
    go_idle(&mut net, ue);
    assert_eq!(registrations(&net), 1);
    net.advance(11 * MINUTE);
    assert_eq!(registrations(&net), 2, "at the hour, not an hour after it went idle");
    net.advance(60 * MINUTE);
    assert!(registered(&net, ue));
    no_violations(&net);
}

#[test] // TS 24.501 §5.3.7 strictly periodic: one that does not come by the clock is given up by the clock
fn a_strictly_periodic_ue_is_given_up_by_the_clock() {
    let (mut net, ue) = on_air(5, strict());
    go_idle(&mut net, ue);
    net.advance(50 * MINUTE);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    go_idle(&mut net, ue);
    // It loses its power: nothing is heard of it any more.
    net.lose_power(ue);
    net.advance(17 * MINUTE); // 67 since the registration
    assert_eq!(net.cta().contexts().count(), 1);
    net.advance(2 * MINUTE); // T3512, four minutes, and four more for the implicit deregistration
    assert_eq!(net.cta().contexts().count(), 0);
    assert_eq!(net.upf_sessions(), 0);
}

#[test] // TS 24.501 §5.3.7 strictly periodic: the time that passes while the UE is connected is counted, too
fn a_strictly_periodic_timer_runs_while_connected() {
    let (mut net, ue) = on_air(6, strict());
    net.advance(62 * MINUTE); // connected all the time: the UE has registered once more, at the hour
    assert!(registered(&net, ue) && net.ue_ref(ue).is_connected());
    go_idle(&mut net, ue);
    net.lose_power(ue);
    net.advance(65 * MINUTE);
    assert_eq!(net.cta().contexts().count(), 1);
    net.advance(2 * MINUTE); // 128 after the first, 68 after the second
    assert_eq!(net.cta().contexts().count(), 0);
}

/// A network that keeps back what is not urgent, with a UE that is registered and idle since before.
fn congested(seed: u64, priority: Priority) -> (Sim, UeIndex) {
    let mut net = Sim::builder(seed).build();
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, ue_config(1));
    net.home().subscribe(Subscription { priority, ..subscription() });
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    go_idle(&mut net, ue);
    let mut busy = default_config();
    (busy.amf.access.congestion.general, busy.version) = (true, 2);
    net.configure(busy);
    (net, ue)
}

#[test] // TS 23.501 §5.22.2, §5.22.3, §5.19.7.2; TS 24.501 §4.5.2: a subscriber of priority services learns so, says so, and passes congestion
fn subscribed_priority_passes_congestion() {
    for (seed, mps, mcs) in [(7, true, false), (8, false, true)] {
        let (mut net, ue) = congested(seed, Priority { mps, mcs });
        for come in [UeCommand::ServiceRequest, UeCommand::PeriodicRegistration] {
            net.command(ue, come);
            net.settle(SECOND);
            assert!(net.ue_ref(ue).is_connected(), "{:?}", net.ue_events(ue));
            go_idle(&mut net, ue);
        }
        no_violations(&net);
    }
    let (mut net, ue) = congested(9, Priority::default());
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::Congestion)));
}

#[test] // TS 23.501 §5.22.3: a priority that is claimed and not subscribed does not pass, at registration nor for service
fn priority_that_is_not_subscribed() {
    for claim in [RrcEstablishmentCause::MpsPriorityAccess, RrcEstablishmentCause::McsPriorityAccess] {
        let (mut net, ue) = congested(10, Priority::default());
        net.ue_mut(ue).faults_mut().claim = Some(claim);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND);
        assert!(refused_with(&net, ue, Reason::Mm(MmCause::Congestion)));
        assert!(registered(&net, ue), "it is kept back, not thrown out");
        let unsubscribed = net.add_ue(whimbrel_sim::GnbIndex(0), ue_config(2));
        net.ue_mut(unsubscribed).faults_mut().claim = Some(claim);
        net.command(unsubscribed, UeCommand::Register);
        net.settle(SECOND);
        assert!(refused_with(&net, unsubscribed, Reason::Mm(MmCause::Congestion)));
        assert_eq!(net.ue_ref(unsubscribed).state(), MmState::Deregistered);
        assert_eq!(net.cta().occupancy(), (1, 0));
    }
}

#[test] // TS 23.501 §5.22.3, §5.19.7.2: access identities 11 to 15 and answers to paging pass congestion
fn urgent_causes_pass_congestion() {
    for claim in [RrcEstablishmentCause::HighPriorityAccess, RrcEstablishmentCause::MtAccess] {
        let (mut net, ue) = congested(11, Priority::default());
        net.ue_mut(ue).faults_mut().claim = Some(claim);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND);
        assert!(net.ue_ref(ue).is_connected());
        no_violations(&net);
    }
}
