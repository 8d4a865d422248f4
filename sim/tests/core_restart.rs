//! The core starts again with the UEs that it has stored: TS 23.527 §4.3, TS 33.501 §6.4.3.1; docs/unit.md.

use std::time::Duration;

use crate::common::*;
use whimbrel_control::{Event as CoreEvent, Procedure, UeContext, UpfId};
use whimbrel_nas::ie::{PduSessionType, RegistrationKind};
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::{Event, SessionRequest, UeCommand};
use whimbrel_sim::{Sim, UeIndex, UpfState, ue_config};

const UES: u32 = 6;

fn session() -> UeCommand {
    UeCommand::EstablishSession(SessionRequest {
        dnn: None,
        s_nssai: None,
        pdu_session_type: PduSessionType::Ipv4,
    })
}

/// UEs with a session each; every second one is idle. The CTA runs them itself, or has so many CPFs.
fn with_sessions(seed: u64, cpfs: u16) -> (Sim, Vec<UeIndex>) {
    let builder = Sim::builder(seed);
    let mut net = if cpfs == 0 { builder.recorded().build() } else { builder.cpfs(cpfs, 1).build() };
    let gnb = net.add_gnb(gnb_config(1));
    let ues: Vec<UeIndex> = (1..=UES).map(|n| net.add_ue(gnb, ue_config(n))).collect();
    net.settle(SECOND / 10);
    ues.iter().for_each(|&ue| net.command(ue, UeCommand::Register));
    net.settle(SECOND);
    ues.iter().for_each(|&ue| net.command(ue, session()));
    net.settle(SECOND);
    ues.iter().step_by(2).for_each(|&ue| go_idle(&mut net, ue));
    net.advance(Duration::from_secs(5)); // recovery time stamps count seconds
    (net, ues)
}

fn registrations(net: &Sim, ue: UeIndex) -> usize {
    let of = |e: &Event| matches!(e, Event::Registered { kind: RegistrationKind::Initial, .. });
    net.ue_events(ue).iter().filter(|(_, e)| of(e)).count()
}

fn sessions_lost(net: &Sim, ue: UeIndex) -> usize {
    net.ue_events(ue).iter().filter(|(_, e)| matches!(e, Event::SessionReleased { .. })).count()
}

fn completed(net: &Sim, procedure: Procedure) -> usize {
    core_events(net)
        .filter(|e| matches!(e, CoreEvent::Completed { procedure: p, .. } if *p == procedure))
        .count()
}

/// Each UE can send and receive with the session that it had, and none has registered initially again.
fn all_are_served(net: &mut Sim, ues: &[UeIndex]) {
    for &ue in ues {
        net.command(ue, UeCommand::ServiceRequest);
    }
    net.settle(SECOND);
    for &ue in ues {
        assert_eq!((registrations(net, ue), sessions_lost(net, ue)), (1, 0), "{ue:?}");
        assert!(net.ue_ref(ue).is_connected() && registered(net, ue), "{ue:?}");
        let sessions: Vec<_> = net.ue_ref(ue).sessions().map(|s| s.id).collect();
        assert_eq!(sessions.len(), 1);
        net.check_path(ue, sessions[0]);
    }
    net.check_user_plane();
    no_violations(net);
}

#[test] // TS 23.527 §4.3 restored; TS 33.501 §6.4.3.1: the same keys and COUNTs, addresses and tunnels go on
fn ues_stay_registered_through_a_restart_in_order() {
    for cpfs in [0, 1, 2] {
        let (mut net, ues) = with_sessions(1, cpfs);
        let gutis: Vec<_> = ues.iter().map(|&ue| net.ue_ref(ue).guti()).collect();
        let restored = net.restart_core_in_order();
        assert_eq!(
            (restored.ues, restored.sessions, restored.doubtful, restored.refused),
            (6, 6, 0, 0),
            "{cpfs}"
        );
        net.settle(SECOND / 10);
        assert!(!net.cta().awaits_upfs(), "{cpfs}");
        assert_eq!(net.cta().registered(), ues.len());
        assert_eq!(ues.iter().map(|&ue| net.ue_ref(ue).guti()).collect::<Vec<_>>(), gutis);
        let before = completed(&net, Procedure::Authentication);
        all_are_served(&mut net, &ues);
        assert_eq!(completed(&net, Procedure::SessionRestoration), ues.len(), "{cpfs}");
        assert_eq!(completed(&net, Procedure::Authentication), before);
        // They can be restored any number of times.
        net.advance(Duration::from_secs(5));
        assert_eq!(net.restart_core_in_order().ues, ues.len());
        net.settle(SECOND / 10);
        all_are_served(&mut net, &ues);
    }
}

#[test] // TS 23.527 §4.3: a UPF alone starts again without its sessions, and gets them from the SMF: a connected UE sends and receives as before
fn a_upf_that_restarts_gets_its_sessions_again_and_no_ue_is_asked() {
    for cpfs in [0, 1, 2] {
        let (mut net, ues) = with_sessions(11, cpfs);
        net.restart_nth_upf_with_its_key(UpfId(0));
        assert_eq!(net.upf_sessions(), 0);
        net.settle(Duration::from_secs(60));
        assert_eq!(net.upf_sessions(), ues.len(), "{cpfs}");
        assert_eq!(completed(&net, Procedure::SessionRestoration), ues.len());
        for (n, &ue) in ues.iter().enumerate() {
            assert_eq!((registrations(&net, ue), sessions_lost(&net, ue)), (1, 0), "{ue:?}");
            let session = net.ue_ref(ue).sessions().next().expect("its session").id;
            if n % 2 == 0 {
                assert!(!net.ue_ref(ue).is_connected());
                net.downlink(ue, session);
                net.settle(SECOND);
                assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Paged)), "{ue:?}");
            }
            assert!(net.ue_ref(ue).is_connected());
            net.check_path(ue, session);
        }
        net.check_user_plane();
        no_violations(&net);
    }
}

#[test] // TS 23.527 §4.3.2: a UPF that is not back in time loses its sessions
fn a_upf_that_restarts_and_stays_away_loses_its_sessions() {
    let (mut net, ues) = with_sessions(12, 0);
    net.restart_nth_upf_with_its_key(UpfId(0));
    net.set_upf(UpfState::Silent);
    net.settle(Duration::from_secs(120));
    assert!(ues.iter().skip(1).step_by(2).all(|&ue| sessions_lost(&net, ue) == 1));
    assert!(
        ues.iter()
            .all(|&ue| registered(&net, ue) && context(&net, ue).is_some_and(|p| p.sessions.is_empty()))
    );
}

#[test] // TS 23.502 §4.2.3.3: packets for a restored UE wait at the UPF, and it is paged
fn downlink_data_pages_a_restored_ue() {
    for cpfs in [0, 2] {
        let (mut net, ues) = with_sessions(2, cpfs);
        net.restart_core_in_order();
        net.settle(SECOND);
        let (ue, session) = (ues[0], net.ue_ref(ues[0]).sessions().next().expect("its session").id);
        net.downlink(ue, session);
        net.settle(SECOND);
        assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Paged)), "{cpfs}");
        assert!(net.ue_ref(ue).is_connected());
        net.check_path(ue, session);
    }
}

#[test] // TS 23.502 §4.2.3.2, §4.2.3.3: packets in both directions while the core starts again: each session is set up once at its gNB
fn packets_in_both_directions_set_up_a_restored_session_once() {
    for (seed, cpfs) in [(4, 0), (5, 2), (6, 2), (7, 1)] {
        let (mut net, ues) = with_sessions(seed, cpfs);
        let sessions: Vec<_> =
            ues.iter().map(|&ue| net.ue_ref(ue).sessions().next().expect("its session").id).collect();
        net.restart_core_in_order();
        for step in 0..200 {
            for (n, (&ue, &session)) in ues.iter().zip(&sessions).enumerate() {
                net.downlink(ue, session);
                if step % 10 == n && !net.ue_ref(ue).is_connected() {
                    net.command(ue, UeCommand::ServiceRequest);
                }
            }
            net.advance(Duration::from_millis(1));
        }
        all_are_served(&mut net, &ues);
    }
}

#[test] // TS 23.502 §4.2.3.3: packets come for a UE that does not answer, and the core is stopped while it pages it
fn a_ue_that_is_paged_when_the_core_stops_is_kept() {
    for cpfs in [0, 2] {
        let (mut net, ues) = with_sessions(3, cpfs);
        let ue = ues[0];
        let session = net.ue_ref(ue).sessions().next().expect("its session").id;
        net.leave_coverage(ue);
        net.downlink(ue, session);
        net.settle(SECOND / 10);
        let pages = |e: &CoreEvent| matches!(e, CoreEvent::Completed { procedure: Procedure::Paging, .. });
        assert!(
            !core_events(&net).any(pages)
                && !net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Paged))
        );
        let restored = net.restart_core_in_order();
        assert_eq!((restored.ues, restored.doubtful), (ues.len(), 0), "{cpfs}");
        net.settle(SECOND / 10);
        assert_eq!(net.cta().registered(), ues.len());
    }
}

#[test] // TS 24.501 §5.5.1.3: a registration update of a restored UE
fn restored_ues_register_periodically() {
    let (mut net, ues) = with_sessions(3, 0);
    net.restart_core_in_order();
    net.settle(SECOND);
    for &ue in &ues {
        net.command(ue, UeCommand::PeriodicRegistration);
        net.settle(SECOND);
    }
    all_are_served(&mut net, &ues);
}

#[test] // TS 24.501 §5.3.7: a restored UE that never comes is deregistered
fn a_restored_ue_that_does_not_come_is_deregistered_implicitly() {
    let (mut net, ues) = with_sessions(4, 0);
    net.restart_core_in_order();
    net.disconnect(net.gnb_of(ues[0]));
    assert_eq!((net.cta().registered(), net.upf_sessions()), (ues.len(), ues.len()));
    net.advance(Duration::from_secs(4 * 3600));
    assert_eq!((net.cta().registered(), net.upf_sessions()), (0, 0));
}

#[test] // TS 33.501 §6.4.3.1: after a kill nothing is protected under keys whose COUNTs are not known; sessions and addresses stay
fn after_a_kill_ues_are_authenticated_before_they_are_served() {
    for cpfs in [0, 2] {
        let (mut net, ues) = with_sessions(5, cpfs);
        net.store_ues();
        // Each uses COUNTs that the disk does not have.
        for &ue in &ues {
            go_idle_if_connected(&mut net, ue);
            net.command(ue, UeCommand::ServiceRequest);
            net.settle(SECOND);
        }
        net.advance(Duration::from_secs(5));
        let restored = net.kill_and_restart_core();
        assert_eq!((restored.ues, restored.doubtful, restored.refused), (6, 6, 0));
        net.settle(SECOND);
        let keys: Vec<_> =
            ues.iter().map(|&ue| context(&net, ue).expect("it is restored").amf.security.ng_ksi).collect();
        all_are_served(&mut net, &ues);
        for (&ue, before) in ues.iter().zip(keys) {
            assert_ne!(
                context(&net, ue).expect("it is served").amf.security.ng_ksi,
                before,
                "{ue:?} has other keys"
            );
        }
    }
}

#[test] // TS 33.501 §6.9.4.2: packets come while a UE is authenticated: its gNB gets the key of the new K_AMF, and each session once
fn packets_that_come_while_a_ue_is_authenticated_wait_for_its_keys() {
    for (seed, cpfs) in [(5, 0), (6, 2), (7, 1)] {
        let (mut net, ues) = with_sessions(seed, cpfs);
        let other = net.add_gnb(gnb_config(2));
        net.settle(SECOND);
        let sessions: Vec<_> =
            ues.iter().map(|&ue| net.ue_ref(ue).sessions().next().expect("its session").id).collect();
        net.store_ues();
        for &ue in &ues {
            go_idle_if_connected(&mut net, ue);
            net.command(ue, UeCommand::ServiceRequest);
            net.settle(SECOND);
        }
        net.advance(Duration::from_secs(5));
        assert_eq!(net.kill_and_restart_core().doubtful, ues.len());
        net.settle(SECOND);
        for &ue in &ues {
            net.command(ue, UeCommand::ServiceRequest);
        }
        // The first packets come before, in and after the authentication.
        for step in 0..100 {
            for (n, (&ue, &session)) in ues.iter().zip(&sessions).enumerate() {
                if step >= 8 * n {
                    net.downlink(ue, session);
                }
            }
            net.advance(Duration::from_millis(1));
        }
        all_are_served(&mut net, &ues);
        for &ue in &ues {
            net.hand_over(ue, other, Via::N2);
            net.settle(SECOND);
            assert_eq!(net.gnb_of(ue), other);
        }
        no_violations(&net);
    }
}

#[test] // TS 23.527 §4.2 retained; TS 29.244 §6.2.6.2.1: nothing but the control plane has stopped: UEs stay connected, and their sessions stand at the UPF
fn ues_whose_last_state_was_stored_notice_nothing_of_a_killed_control_plane() {
    for cpfs in [0, 1, 2] {
        let (mut net, ues) = with_sessions(13, cpfs);
        let other = net.add_gnb(gnb_config(2));
        net.settle(SECOND);
        net.store_ues();
        let before: Vec<bool> = ues.iter().map(|&ue| net.ue_ref(ue).is_connected()).collect();
        let authentications = completed(&net, Procedure::Authentication);
        for _ in 0..2 {
            let restored = net.kill_and_restart_control();
            assert_eq!((restored.ues, restored.continued, restored.doubtful), (6, 6, 0), "{cpfs}");
            for _ in 0..20 {
                assert_eq!(net.upf_sessions(), ues.len());
                net.advance(Duration::from_millis(1));
            }
            net.settle(SECOND);
            net.check_user_plane();
            // What each has done since is stored under the clocks of this run.
            net.store_ues();
        }
        let after: Vec<bool> = ues.iter().map(|&ue| net.ue_ref(ue).is_connected()).collect();
        assert_eq!((after, net.upf_sessions()), (before, ues.len()));
        assert_eq!(completed(&net, Procedure::SessionRestoration), 0);
        // A handover and a new session succeed at once.
        let moved = ues[1];
        net.hand_over(moved, other, Via::N2);
        net.settle(SECOND);
        assert_eq!(net.gnb_of(moved), other);
        net.command(moved, session());
        net.settle(SECOND);
        assert_eq!(net.ue_ref(moved).sessions().count(), 2);
        assert_eq!(completed(&net, Procedure::Authentication), authentications);
        all_are_served(&mut net, &ues[2..]);
        // They are deleted at the UPF like any other.
        for &ue in &ues {
            net.command(ue, UeCommand::Deregister { switch_off: false });
        }
        net.settle(SECOND);
        assert_eq!((net.cta().registered(), net.upf_sessions()), (0, 0), "{cpfs}");
    }
}

#[test] // TS 33.501 §6.4.3.1: what a UE did after its state was stored is not known: its gNB releases it, and it is authenticated when it comes
fn a_ue_that_has_signalled_since_its_state_was_stored_is_released_and_authenticated() {
    for cpfs in [0, 2] {
        let (mut net, ues) = with_sessions(14, cpfs);
        net.store_ues();
        let (rests, moves) = (ues[1], ues[3]);
        net.command(moves, session());
        net.settle(SECOND);
        let restored = net.kill_and_restart_control();
        assert_eq!((restored.ues, restored.continued, restored.doubtful), (6, 5, 1), "{cpfs}");
        net.settle(SECOND);
        assert!(net.ue_ref(rests).is_connected());
        assert!(!net.ue_ref(moves).is_connected(), "its gNB has released it");
        let keys = context(&net, moves).expect("it is restored").amf.security.ng_ksi;
        net.command(moves, UeCommand::ServiceRequest);
        net.settle(SECOND);
        assert!(net.ue_ref(moves).is_connected() && registered(&net, moves));
        assert_ne!(context(&net, moves).expect("it is served").amf.security.ng_ksi, keys);
        assert_eq!(registrations(&net, moves), 1);
        no_violations(&net);
    }
}

#[test] // TS 23.527 §4.3.2: the UPF has restarted meanwhile, and its recovery time stamp says so: it gets its sessions again
fn a_upf_that_restarts_with_the_control_plane_gets_its_sessions_again() {
    for cpfs in [0, 2] {
        let (mut net, ues) = with_sessions(15, cpfs);
        net.store_ues();
        net.kill_and_restart_control();
        net.restart_nth_upf_with_its_key(UpfId(0));
        net.settle(Duration::from_secs(60));
        assert_eq!(net.upf_sessions(), ues.len(), "{cpfs}");
        assert_eq!(completed(&net, Procedure::SessionRestoration), ues.len());
        net.check_user_plane();
        no_violations(&net);
    }
}

#[test] // TS 23.527 §4.3.2: the UPF and gNBs are there before the first CPF; what UEs miss of that is made up for when one has joined
fn what_happens_before_the_first_cpf_has_joined_reaches_restored_ues_when_one_has() {
    for upf_restarts in [true, false] {
        let (mut net, ues) = with_sessions(16, 2);
        net.store_ues();
        let restored = net.kill_and_restart_control_before_its_cpfs();
        assert_eq!(restored.continued, ues.len());
        match upf_restarts {
            true => net.restart_nth_upf_with_its_key(UpfId(0)),
            false => net.restart_gnb(net.gnb_of(ues[1])),
        }
        net.settle(SECOND);
        net.add_cpf();
        net.add_cpf();
        net.settle(Duration::from_secs(60));
        assert_eq!(net.upf_sessions(), ues.len());
        assert_eq!(completed(&net, Procedure::SessionRestoration), if upf_restarts { ues.len() } else { 0 });
        all_are_served(&mut net, &ues);
    }
}

#[test] // TS 38.413 §8.7.4: no CPF has joined yet, so that the AMF lacks resources; it says so, and the UE is served when one has
fn a_restored_ue_that_comes_before_the_first_cpf_is_refused_and_served_later() {
    let (mut net, ues) = with_sessions(17, 2);
    net.store_ues();
    net.kill_and_restart_control_before_its_cpfs();
    net.command(ues[0], UeCommand::ServiceRequest);
    net.settle(SECOND);
    let refused = "ErrorIndicated(Some(Misc(ControlProcessingOverload)))";
    assert_eq!(net.events.gnbs.iter().filter(|(_, e)| format!("{e:?}").contains(refused)).count(), 1);
    net.add_cpf();
    net.settle(Duration::from_secs(60));
    net.command(ues[0], UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert!(net.ue_ref(ues[0]).is_connected());
    assert_eq!(net.upf_sessions(), ues.len());
}

#[test] // docs/unit.md: what has changed since is stored, and what is gone is not
fn ues_that_come_and_go_are_stored_as_they_do() {
    let (mut net, ues) = with_sessions(6, 2);
    net.store_ues();
    net.command(ues[0], UeCommand::Deregister { switch_off: false });
    let late = net.add_ue(net.gnb_of(ues[1]), ue_config(UES + 1));
    net.settle(SECOND);
    net.command(late, UeCommand::Register);
    net.settle(SECOND);
    net.store_changed_ues();
    net.advance(Duration::from_secs(5));
    assert_eq!(net.kill_and_restart_core().ues, ues.len());
    net.settle(SECOND);
    assert!(context(&net, ues[0]).is_none() && context(&net, late).is_some());
    all_are_served(&mut net, &ues[1..]);
}

fn context(net: &Sim, ue: UeIndex) -> Option<&UeContext> {
    let supi = net.ue_ref(ue).config().supi;
    net.contexts().find(|p| p.amf.supi == Some(supi))
}

/// A connected UE becomes idle.
fn go_idle_if_connected(net: &mut Sim, ue: UeIndex) {
    if net.ue_ref(ue).is_connected() {
        go_idle(net, ue);
    }
}
