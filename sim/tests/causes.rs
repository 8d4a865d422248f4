//! The 5GMM cause that a refused UE hears, and what is left of its registration: TS 24.501 §5.5.1.2.5, §5.5.1.3.5, §5.6.1.5.

use std::time::Duration;

use crate::common::*;
use whimbrel_control::config::{Config, RefusalAnswer};
use whimbrel_control::refusal::RefusalKind;
use whimbrel_control::udm::{MobilityRestrictions, ServiceArea, Subscription};
use whimbrel_control::{Event as CoreEvent, Refusal, UeContext};
use whimbrel_ids::{SNssai, Tac};
use whimbrel_nas::ie::MmCause;
use whimbrel_ran::ue::{MmState, Reason, SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, default_config, ue_config};

fn tac(n: u32) -> Tac {
    Tac::new(n).expect("24 bits")
}

/// Tracking areas 1 and 2, each with a gNB and a registration area of its own.
fn two_areas(seed: u64, change: impl FnOnce(&mut Config)) -> (Sim, UeIndex) {
    let mut config = default_config();
    config.amf.tacs = vec![tac(1), tac(2)];
    config.amf.areas.registration = vec![vec![tac(1)], vec![tac(2)]];
    change(&mut config);
    let mut net = Sim::builder(seed).config(config).build();
    for n in 1..=2 {
        let mut gnb = gnb_config(n);
        gnb.supported_tas[0].tac = tac(n);
        net.add_gnb(gnb);
    }
    let ue = net.add_ue(GnbIndex(0), ue_config(1));
    net.settle(SECOND / 10);
    (net, ue)
}

/// Registered with a session in area 1, and idle.
fn idle_in_area_1(net: &mut Sim, ue: UeIndex) {
    net.command(ue, UeCommand::Register);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    assert!(registered(net, ue) && context(net).sessions.len() == 1);
    go_idle(net, ue);
}

fn context(net: &Sim) -> &UeContext {
    net.cta().contexts().next().expect("a UE")
}

fn forbid(net: &mut Sim, area: u32) {
    let restrictions = MobilityRestrictions { forbidden_areas: vec![tac(area)], ..Default::default() };
    net.home().subscribe(Subscription { restrictions, ..subscription() });
}

fn answer(config: &mut Config, kind: RefusalKind, cause: u8) {
    config.refusals.insert(kind, RefusalAnswer { cause: Some(cause), back_off: None });
}

#[test] // TS 24.501 §5.5.1.2.5 #3: a subscriber that the store does not know
fn illegal_ue() {
    let (mut net, ue) = one_ue(1);
    let supi = net.ue_ref(ue).config().supi;
    net.home().unknown.push(supi);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::IllegalUe)));
    assert_eq!((net.ue_ref(ue).state(), net.cta().occupancy()), (MmState::Deregistered, (0, 0)));
}

#[test] // TS 24.501 §5.5.1.2.5 #7: a subscriber that is barred
fn services_not_allowed() {
    let (mut net, ue) = one_ue(2);
    let supi = net.ue_ref(ue).config().supi;
    net.home().barred.push(supi);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::FiveGsServicesNotAllowed)));
    assert_eq!(first_refusal(&net), Some(Refusal::Barred));
    assert_eq!(net.cta().occupancy(), (0, 0));
}

#[test] // TS 24.501 §5.5.1.2.5 #11, §5.3.13: a subscriber of a network that is not served; its UE keeps the list of such networks
fn plmn_not_allowed() {
    let mut net = network(3);
    let gnb = net.add_gnb(gnb_config(1));
    let mut config = ue_config(1);
    config.supi = "imsi-001010000000001".parse().expect("a SUPI");
    let mut profile = (*config.profile).clone();
    profile.home_plmn = "001/01".parse().expect("a PLMN");
    config.profile = profile.into();
    let ue = net.add_ue(gnb, config);
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::PlmnNotAllowed)), "{:?}", net.ue_events(ue));
    assert!(matches!(first_refusal(&net), Some(Refusal::OtherHomeNetwork(_))));
    assert_eq!(net.cta().occupancy(), (0, 0));
}

#[test] // TS 24.501 §5.5.1.3.5 #12, §5.3.13: a forbidden area reached while idle: the registration is over on both sides
fn tracking_area_not_allowed_on_the_way() {
    let (mut net, ue) = two_areas(4, |_| {});
    forbid(&mut net, 2);
    idle_in_area_1(&mut net, ue);
    net.move_ue(ue, GnbIndex(1));
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::TrackingAreaNotAllowed)));
    assert_eq!((net.ue_ref(ue).state(), net.cta().occupancy()), (MmState::Deregistered, (0, 0)));
    assert_eq!(net.upf_sessions(), 0);
    net.move_ue(ue, GnbIndex(0));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 20);
    assert!(registered(&net, ue), "and registers again elsewhere");
}

#[test] // TS 24.501 §5.5.1.3.5 #13, §5.5.1.3.5 #15: after the reject the UE stays registered, keeps its sessions and goes back where it came from
fn an_area_to_leave_again() {
    for (seed, cause, reported) in
        [(5, 13, MmCause::RoamingNotAllowedInTrackingArea), (6, 15, MmCause::NoSuitableCellsInTrackingArea)]
    {
        let (mut net, ue) = two_areas(seed, |c| answer(c, RefusalKind::ForbiddenArea, cause));
        forbid(&mut net, 2);
        idle_in_area_1(&mut net, ue);
        let guti = net.ue_ref(ue).guti();
        net.move_ue(ue, GnbIndex(1));
        net.settle(SECOND);
        assert!(refused_with(&net, ue, Reason::Mm(reported)));
        assert!(registered(&net, ue) && !context(&net).is_connected());
        net.move_ue(ue, GnbIndex(0));
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND);
        assert_eq!(net.ue_ref(ue).guti(), guti, "it has not registered again");
        assert!(context(&net).is_connected() && context(&net).sessions.len() == 1);
        assert_eq!(net.upf_sessions(), 1);
        no_violations(&net);
    }
}

#[test] // TS 24.501 §5.5.1.3.5 #22: a registered UE is kept back with T3346, and loses nothing
fn congestion_on_the_way() {
    let (mut net, ue) = two_areas(7, |_| {});
    idle_in_area_1(&mut net, ue);
    let mut busy = default_config();
    busy.amf.tacs = vec![tac(1), tac(2)];
    busy.amf.areas.registration = vec![vec![tac(1)], vec![tac(2)]];
    (busy.amf.access.congestion.general, busy.version) = (true, 2);
    let mut free = busy.clone();
    (free.amf.access.congestion.general, free.version) = (false, 3);
    net.configure(busy);
    net.move_ue(ue, GnbIndex(1));
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::Congestion)));
    assert_eq!(first_refusal(&net), Some(Refusal::Congested("general")));
    assert!(registered(&net, ue) && context(&net).sessions.len() == 1);
    net.configure(free);
    net.advance(Duration::from_secs(130)); // the back-off where the operator says nothing: two minutes
    assert!(registered(&net, ue) && context(&net).sessions.len() == 1);
    assert_eq!(
        context(&net).amf.location.registration_area.iter().map(|t| t.tac).collect::<Vec<_>>(),
        [tac(2)]
    );
    no_violations(&net);
}

#[test] // TS 24.501 §5.5.1.3.5 #62: a UE comes where it has no slice
fn no_slice_on_the_way() {
    let (mut net, ue) = two_areas(8, |c| {
        c.amf.access.slice_areas.insert(SNssai::sst(1), [tac(1)].into());
    });
    idle_in_area_1(&mut net, ue);
    net.move_ue(ue, GnbIndex(1));
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::NoNetworkSlicesAvailable)));
    assert_eq!((net.cta().occupancy(), net.upf_sessions()), ((0, 0), 0));
}

#[test] // TS 24.501 §5.5.1.3.4 restricted: registered in a non-allowed area, no user plane there, though its sessions stand
fn no_user_plane_in_a_non_allowed_area() {
    let (mut net, ue) = two_areas(9, |_| {});
    let restrictions = MobilityRestrictions {
        service_area: Some(ServiceArea::NotAllowed(vec![tac(2)])),
        ..Default::default()
    };
    net.home().subscribe(Subscription { restrictions, ..subscription() });
    idle_in_area_1(&mut net, ue);
    net.tap();
    net.move_ue(ue, GnbIndex(1));
    net.settle(SECOND);
    assert!(registered(&net, ue) && context(&net).sessions.len() == 1, "registration is allowed");
    assert!(context(&net).sessions.values().all(|s| s.up != whimbrel_control::smf::UpState::Active));
    no_violations(&net);
}

#[test] // TS 24.501 §5.6.1.5 #9: a service request of an unknown UE: it registers again
fn identity_cannot_be_derived() {
    let (mut net, ue) = two_areas(10, |_| {});
    idle_in_area_1(&mut net, ue);
    let id = context(&net).id;
    net.order(id, whimbrel_control::Command::Superseded); // it does not learn it
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND * 20);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::UeIdentityCannotBeDerived)));
    assert!(registered(&net, ue), "by an initial registration");
}

#[test] // TS 24.501 §5.6.1.5 #15: a UE that asks for service where it is not served is registered still
fn service_where_nothing_is_served() {
    let (mut net, ue) = two_areas(11, |c| answer(c, RefusalKind::ForbiddenArea, 15));
    idle_in_area_1(&mut net, ue);
    forbid(&mut net, 1);
    let supi = net.ue_ref(ue).config().supi;
    net.subscriber_changed(supi);
    net.settle(SECOND);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    let refused = core_events(&net).any(
        |e| matches!(e, CoreEvent::Refused { refusal: Refusal::AreaForbidden(t), .. } if t.tac == tac(1)),
    );
    assert!(refused && context(&net).amf.registered && !context(&net).is_connected());
}
