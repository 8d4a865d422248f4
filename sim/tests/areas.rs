//! Where a UE may be, and what it may start there: TS 23.501 §5.3.4.1, TS 24.501 §5.3.5; registration areas and
//! mobility registration: TS 23.501 §5.9.4, TS 24.501 §5.5.1.3, TS 23.502 §4.9.1.3.3 step 12.

use crate::common::*;
use whimbrel_control::config::{Config, RefusalAnswer};
use whimbrel_control::refusal::RefusalKind;
use whimbrel_control::smf::UpState;
use whimbrel_control::udm::{MobilityRestrictions, ServiceArea};
use whimbrel_control::{Refusal, UeContext};
use whimbrel_ids::Tac;
use whimbrel_nas::ie::{MmCause, SmCause};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::gnb::{Event as GnbEvent, Via};
use whimbrel_ran::ue::{Event, MmState, Reason, SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, default_config, ue_config};

fn tac(n: u32) -> Tac {
    Tac::new(n).expect("24 bits")
}

/// Tracking areas 1, 2 and 3, each with a gNB, and these registration areas.
fn several_areas(seed: u64, areas: &[&[u32]], change: impl FnOnce(&mut Config)) -> (Sim, UeIndex) {
    let mut config = default_config();
    config.amf.tacs = vec![tac(1), tac(2), tac(3)];
    config.amf.areas.registration = areas.iter().map(|a| a.iter().map(|&n| tac(n)).collect()).collect();
    change(&mut config);
    let mut net = Sim::builder(seed).config(config).build();
    for n in 1..=3 {
        let mut gnb = gnb_config(n);
        gnb.supported_tas[0].tac = tac(n);
        net.add_gnb(gnb);
    }
    let ue = net.add_ue(GnbIndex(0), ue_config(1));
    net.settle(SECOND / 10);
    (net, ue)
}

fn restricted(net: &mut Sim, restrictions: MobilityRestrictions) {
    net.home().subscribe(whimbrel_control::udm::Subscription { restrictions, ..subscription() });
}

fn on_air(net: &mut Sim, ue: UeIndex) {
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
}

fn context(net: &Sim) -> &UeContext {
    net.cta().contexts().next().expect("a UE")
}

fn area(net: &Sim) -> Vec<u32> {
    context(net).amf.location.registration_area.iter().map(|t| t.tac.value()).collect()
}

#[test] // TS 23.501 §5.9.4; TS 24.501 §5.3.4: the list that names where the UE is, its own area first
fn registration_areas_as_configured() {
    let cases: [(&[&[u32]], &[u32]); 4] =
        [(&[], &[1, 2, 3]), (&[&[2, 1], &[3]], &[1, 2]), (&[&[2, 3]], &[1]), (&[&[1, 77]], &[1])];
    for (areas, expected) in cases {
        let (mut net, ue) = several_areas(1, areas, |_| {});
        on_air(&mut net, ue);
        assert_eq!(area(&net), expected);
    }
}

#[test] // TS 23.502 §4.9.1.3.3 step 12; TS 24.501 §5.5.1.3.2, §5.5.1.3.4: a UE that is handed over out of its area registers there; its sessions go on
fn mobility_registration_after_a_handover() {
    for via in [Via::Xn, Via::N2] {
        let (mut net, ue) = several_areas(2, &[&[1, 2], &[3]], |_| {});
        on_air(&mut net, ue);
        let guti = net.ue_ref(ue).guti();
        net.hand_over(ue, GnbIndex(1), via);
        net.settle(SECOND * 3);
        assert_eq!((net.gnb_of(ue), area(&net), net.ue_ref(ue).guti()), (GnbIndex(1), vec![1, 2], guti));
        net.hand_over(ue, GnbIndex(2), via);
        net.settle(SECOND * 3);
        if net.ue_ref(ue).guti() == guti {
            net.command(ue, UeCommand::Register);
            net.settle(SECOND);
        }
        assert_eq!((net.gnb_of(ue), area(&net)), (GnbIndex(2), vec![3]));
        assert_ne!(net.ue_ref(ue).guti(), guti, "it has registered");
        assert!(registered(&net, ue));
        assert!(context(&net).sessions.values().all(|s| s.up == UpState::Active), "{via:?}");
        no_violations(&net);
    }
}

#[test] // TS 23.501 §5.3.4.1.1; TS 24.501 §5.5.1.2.5 #12, #13, #15; §5.3.13: a forbidden area, with the cause that the operator chose
fn a_forbidden_area() {
    for (configured, cause) in [
        (None, MmCause::TrackingAreaNotAllowed),
        (Some(13), MmCause::RoamingNotAllowedInTrackingArea),
        (Some(15), MmCause::NoSuitableCellsInTrackingArea),
    ] {
        let (mut net, ue) = several_areas(3, &[], |c| {
            let answer = RefusalAnswer { cause: configured, back_off: None };
            c.refusals.insert(RefusalKind::ForbiddenArea, answer);
        });
        restricted(&mut net, MobilityRestrictions { forbidden_areas: vec![tac(1)], ..Default::default() });
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        assert!(refused_with(&net, ue, Reason::Mm(cause)), "{cause:?}");
        assert!(matches!(first_refusal(&net), Some(Refusal::AreaForbidden(_))));
        assert_eq!(net.cta().contexts().count(), 0);
    }
}

#[test] // TS 24.501 §5.5.1.2.5 #27; TS 23.501 §5.3.4.1.1 RAT: a subscription that bars New Radio
fn a_radio_that_is_barred() {
    let (mut net, ue) = several_areas(4, &[], |_| {});
    restricted(&mut net, MobilityRestrictions { nr_barred: true, ..Default::default() });
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::N1ModeNotAllowed)));
}

#[test] // TS 23.501 §5.3.4.1.1 handover: no UE is handed over to a forbidden area, and gNBs get the list of them
fn no_handover_to_a_forbidden_area() {
    let (mut net, ue) = several_areas(5, &[], |_| {});
    restricted(&mut net, MobilityRestrictions { forbidden_areas: vec![tac(2)], ..Default::default() });
    net.tap();
    on_air(&mut net, ue);
    let reported = net.tapped().into_iter().find_map(|m| match m {
        Message::InitialContextSetupRequest(m) => m.mobility_restriction_list,
        _ => None,
    });
    assert_eq!(reported.expect("a list").forbidden_area_information[0].forbidden_tacs, [tac(2)]);
    assert_eq!(area(&net), [1, 3]);
    net.hand_over(ue, GnbIndex(1), Via::N2);
    net.settle(SECOND * 3);
    let refused = net.events.gnbs.iter().find_map(|(_, e)| match e {
        GnbEvent::HandoverFailed { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    assert_eq!(refused, Some(Cause::RadioNetwork(CauseRadioNetwork::HoTargetNotAllowed)));
    assert_eq!(net.gnb_of(ue), GnbIndex(0));
    net.tap();
    net.hand_over(ue, GnbIndex(2), Via::N2);
    net.settle(SECOND * 3);
    assert_eq!(net.gnb_of(ue), GnbIndex(2));
    let reported = net.tapped().into_iter().find_map(|m| match m {
        Message::HandoverRequest(m) => m.mobility_restriction_list,
        _ => None,
    });
    assert!(reported.is_some());
}

#[test] // TS 23.501 §5.3.4.1.1 service area; TS 24.501 §5.3.5; §5.6.1.5 #28: registered where no services may be started
fn a_non_allowed_area() {
    for service_area in [ServiceArea::NotAllowed(vec![tac(1)]), ServiceArea::Allowed(vec![tac(2), tac(3)])] {
        let (mut net, ue) = several_areas(6, &[], |_| {});
        let restrictions =
            MobilityRestrictions { service_area: Some(service_area.clone()), ..Default::default() };
        restricted(&mut net, restrictions);
        on_air(&mut net, ue);
        assert!(registered(&net, ue), "registration is allowed");
        assert!(context(&net).sessions.is_empty(), "sessions are not");
        let why = core_events(&net).any(|e| {
            let whimbrel_control::Event::Refused { refusal, .. } = e else { return false };
            matches!(refusal, Refusal::RestrictedServiceArea(_))
        });
        assert!(why);
        go_idle(&mut net, ue);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND);
        assert!(context(&net).amf.registered, "{service_area:?}: the registration stands");
        assert_ne!(net.ue_ref(ue).state(), MmState::Deregistered);
    }
}

#[test] // TS 24.501 §5.3.5: where services are allowed, they are
fn an_allowed_area() {
    let (mut net, ue) = several_areas(7, &[], |_| {});
    let service_area = Some(ServiceArea::Allowed(vec![tac(1)]));
    restricted(&mut net, MobilityRestrictions { service_area, ..Default::default() });
    on_air(&mut net, ue);
    assert_eq!(context(&net).sessions.len(), 1);
    go_idle(&mut net, ue);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert!(context(&net).sessions.values().all(|s| s.up == UpState::Active));
}

#[test] // TS 23.501 §5.3.4.1.1 service area, TS 23.502 §4.3.7: a UE that is handed over where no services may be started stays connected, and its user planes go
fn a_handover_into_a_non_allowed_area() {
    for via in [Via::Xn, Via::N2] {
        let (mut net, ue) = several_areas(10, &[], |_| {});
        let service_area = Some(ServiceArea::NotAllowed(vec![tac(2)]));
        restricted(&mut net, MobilityRestrictions { service_area, ..Default::default() });
        on_air(&mut net, ue);
        assert!(context(&net).sessions.values().all(|s| s.up == UpState::Active));
        net.hand_over(ue, GnbIndex(1), via);
        net.settle(SECOND * 3);
        assert_eq!(net.gnb_of(ue), GnbIndex(1));
        assert!(context(&net).sessions.values().all(|s| s.up == UpState::Inactive), "{via:?}");
        assert!(!net.ue_ref(ue).has_user_plane(context(&net).sessions.values().next().expect("one").psi));
        assert!(registered(&net, ue));
        no_violations(&net);
    }
}

#[test] // TS 23.501 §5.6.5, TS 24.501 §6.2.6, §6.3.3.2: a UE that leaves the area of its local data network: its session waits for its return, or ends with #46
fn a_handover_out_of_a_local_area() {
    use whimbrel_control::config::Ladn;
    for (via, release) in [(Via::Xn, false), (Via::N2, false), (Via::Xn, true), (Via::N2, true)] {
        let (mut net, ue) = several_areas(11, &[], |c| {
            let ladn = Ladn { tacs: [tac(1), tac(3)].into(), release };
            c.smf.data_networks.values_mut().for_each(|n| n.ladn = Some(ladn.clone()));
        });
        on_air(&mut net, ue);
        net.hand_over(ue, GnbIndex(1), via);
        net.settle(SECOND * 3);
        if release {
            assert!(context(&net).sessions.is_empty() && net.upf_sessions() == 0, "{via:?}");
            let cause = net.ue_events(ue).iter().find_map(|(_, e)| match e {
                Event::SessionReleased { cause, .. } => *cause,
                _ => None,
            });
            assert_eq!(cause, Some(SmCause::OutOfLadnServiceArea));
            continue;
        }
        assert!(context(&net).sessions.values().all(|s| s.up == UpState::Inactive), "{via:?}");
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND);
        assert!(context(&net).sessions.values().all(|s| s.up == UpState::Inactive), "not here");
        go_idle(&mut net, ue);
        net.move_ue(ue, GnbIndex(2));
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND * 2);
        assert!(context(&net).sessions.values().all(|s| s.up == UpState::Active), "{via:?}: it is back");
        no_violations(&net);
    }
}
