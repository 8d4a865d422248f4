//! Several UPFs: TS 23.501 §6.3.3 (choice), TS 23.527 §4.3, §4.4 (one dies), TS 29.244 §6.2.8 (one is left).

use std::time::Duration;

use crate::common::*;
use whimbrel_control::config::{Config, Upf};
use whimbrel_control::{Refusal, UpfId};
use whimbrel_ids::{SNssai, Tac};
use whimbrel_nas::ie::{PduSessionType, SmCause};
use whimbrel_ran::ue::{Event, Reason, SessionRequest, UeCommand};
use whimbrel_sim::{Sim, UeIndex, UpfState, default_config, ue_config};

const A: UpfId = UpfId(0);
const B: UpfId = UpfId(1);
const C: UpfId = UpfId(2);

fn upf(name: &str) -> Upf {
    Upf { name: name.into(), ..Upf::default() }
}

fn session_of(dnn: &str) -> UeCommand {
    UeCommand::EstablishSession(SessionRequest {
        dnn: Some(dnn.parse().expect("a DNN")),
        s_nssai: None,
        pdu_session_type: PduSessionType::Ipv4,
    })
}

/// A network of these UPFs with so many registered UEs.
fn network_of(seed: u64, upfs: &[Upf], ues: u32) -> (Sim, Vec<UeIndex>) {
    let mut config: Config = default_config();
    config.smf.upfs = upfs.to_vec();
    let mut net = Sim::builder(seed).config(config).recorded().build();
    let gnb = net.add_gnb(gnb_config(1));
    let ues: Vec<UeIndex> = (1..=ues).map(|n| net.add_ue(gnb, ue_config(n))).collect();
    net.settle(SECOND / 10);
    ues.iter().for_each(|&ue| net.command(ue, UeCommand::Register));
    net.settle(SECOND);
    (net, ues)
}

/// How many sessions each UPF has.
fn sessions(net: &mut Sim) -> Vec<usize> {
    let upfs = net.upfs();
    (0..upfs).map(|n| net.nth_upf(UpfId(n)).c.session_count()).collect()
}

fn replays(net: &mut Sim) {
    let config = net.config();
    let ues: Vec<_> = net.recorder().contexts().map(|(id, _)| id).collect();
    for id in ues {
        net.recorder().replay(id, &config);
    }
}

#[test] // TS 23.501 §6.3.3, TS 23.502 §4.3.2.2.1 step 8: by data network; both carry what they were given
fn each_data_network_at_its_upf() {
    let dnns = |dnn: &str| vec![dnn.parse().expect("a DNN")];
    let upfs = [Upf { dnns: dnns("internet"), ..upf("a") }, Upf { dnns: dnns("ims"), ..upf("b") }];
    let (mut net, ues) = network_of(1, &upfs, 2);
    for &ue in &ues {
        net.command(ue, session_of("internet"));
        net.settle(SECOND);
    }
    net.command(ues[0], session_of("ims"));
    net.settle(SECOND);
    assert_eq!(sessions(&mut net), [2, 1]);
    net.check_user_plane();
    let ids: Vec<_> = net.ue_ref(ues[0]).sessions().map(|s| s.id).collect();
    assert_eq!(ids.len(), 2);
    for id in ids {
        net.check_path(ues[0], id);
    }
    net.command(ues[0], UeCommand::Deregister { switch_off: false });
    net.settle(SECOND);
    assert_eq!(sessions(&mut net), [1, 0]);
    replays(&mut net);
    no_violations(&net);
}

#[test] // TS 23.501 §6.3.3: by area and slice; where no UPF serves, none is asked
fn each_area_at_its_upf() {
    let tac = |n| vec![Tac::new(n).expect("24 bits")];
    let near = Upf { tacs: tac(1), ..upf("near") };
    let far = Upf { tacs: tac(2), ..upf("far") };
    let (mut net, ues) = network_of(2, &[far.clone(), near], 1);
    net.command(ues[0], session_of("internet"));
    net.settle(SECOND);
    assert_eq!(sessions(&mut net), [0, 1]);

    let other_slice = Upf { slices: vec![SNssai::sst(2)], ..upf("other") };
    let (mut net, ues) = network_of(2, &[far, other_slice], 1);
    net.command(ues[0], session_of("internet"));
    net.settle(SECOND);
    assert_eq!(sessions(&mut net), [0, 0]);
    assert!(refused_with(&net, ues[0], Reason::Sm(SmCause::NetworkFailure)));
    assert_eq!(first_refusal(&net), Some(Refusal::Upf(None)));
}

#[test] // TS 23.501 §6.3.3: by priority, then by weight and load
fn sessions_are_shared_out() {
    let spare = Upf { priority: 1, ..upf("spare") };
    let big = Upf { weight: 300, ..upf("big") };
    let (mut net, ues) = network_of(3, &[spare, big, upf("small")], 40);
    for &ue in &ues {
        net.command(ue, session_of("internet"));
    }
    net.settle(Duration::from_secs(5));
    let each = sessions(&mut net);
    assert_eq!(each.iter().sum::<usize>(), 40, "{each:?}");
    assert!(each[0] == 0 && each[1] > each[2] && each[2] > 0, "{each:?}");
    net.check_user_plane();
    replays(&mut net);
}

#[test] // TS 23.502 §4.3.2.2.1 step 10: a UPF that is silent, though its association stands, costs the UE nothing but time
fn a_silent_upf_is_passed_over() {
    let (mut net, ues) = network_of(4, &[upf("a"), Upf { priority: 1, ..upf("b") }], 2);
    net.set_nth_upf(A, UpfState::Silent);
    net.command(ues[0], session_of("internet"));
    net.settle(Duration::from_secs(10));
    assert_eq!((sessions(&mut net), net.ue_ref(ues[0]).sessions().count()), (vec![0, 1], 1));
    net.advance(Duration::from_secs(20));
    assert!(!net.cta().upf_states().get(A).usable, "its heartbeats are not answered");
    net.command(ues[1], session_of("internet"));
    net.settle(SECOND);
    assert_eq!(sessions(&mut net), [0, 2], "and no request waits for it any more");
    net.set_nth_upf(A, UpfState::Answering);
    net.settle(Duration::from_secs(60));
    net.check_user_plane();
    no_violations(&net);
}

#[test] // TS 23.502 §4.3.2.2.1 step 10: what was set up at a UPF whose answer came too late is taken down there, and there alone
fn a_late_answer_does_not_harm_the_session_elsewhere() {
    let (mut net, ues) = network_of(5, &[upf("a"), Upf { priority: 1, ..upf("b") }], 1);
    net.set_nth_upf(A, UpfState::Mute);
    net.command(ues[0], session_of("internet"));
    net.settle(Duration::from_secs(10));
    assert_eq!(sessions(&mut net), [1, 1], "one without a UE, and the UE's");
    net.set_nth_upf(A, UpfState::Answering);
    net.settle(Duration::from_secs(60));
    assert_eq!(sessions(&mut net), [0, 1]);
    net.check_user_plane();
    let session = net.ue_ref(ues[0]).sessions().next().expect("its session").id;
    net.check_path(ues[0], session);
    no_violations(&net);
}

#[test] // TS 23.501 §6.3.3, TS 23.502 §4.3.2.2.1 step 10: a UPF without free addresses sends UEs to the next
fn a_upf_whose_pool_is_empty_is_passed_over() {
    let (mut net, ues) = network_of(6, &[upf("a"), Upf { priority: 1, ..upf("b") }], 2);
    net.replace_upf(A, |config| {
        // The network's, the broadcast's and the core's own: one is left.
        config.data_networks[0].ipv4_pools[0].prefix = 30;
    });
    net.settle(Duration::from_secs(30));
    for &ue in &ues {
        net.command(ue, session_of("internet"));
        net.settle(SECOND);
    }
    assert_eq!(sessions(&mut net), [1, 1]);
    net.check_user_plane();
}

#[test] // TS 23.527 §4.3.2, §4.3: of two UPFs one restarts: its sessions are set up again, the other's continue
fn one_of_two_restarts() {
    let dnns = |dnn: &str| vec![dnn.parse().expect("a DNN")];
    let upfs = [Upf { dnns: dnns("internet"), ..upf("a") }, Upf { dnns: dnns("ims"), ..upf("b") }];
    let (mut net, ues) = network_of(7, &upfs, 1);
    let ue = ues[0];
    net.command(ue, session_of("internet"));
    net.settle(SECOND);
    net.command(ue, session_of("ims"));
    net.settle(SECOND);
    net.advance(Duration::from_secs(5)); // recovery time stamps count seconds
    net.restart_nth_upf(A);
    net.settle(Duration::from_secs(60));
    let released = net.ue_events(ue).iter().filter(|(_, e)| matches!(e, Event::SessionReleased { .. }));
    assert_eq!(released.count(), 1, "the session at the other UPF is as it was");
    assert_eq!(sessions(&mut net), [0, 1]);
    net.command(ue, session_of("internet"));
    net.settle(SECOND);
    assert_eq!(sessions(&mut net), [1, 1]);
    net.check_user_plane();
    replays(&mut net);
    no_violations(&net);
}

#[test] // TS 23.527 §4.3: a restarted UPF is detected by the first session that it refuses, not by the next heartbeat
fn a_restart_between_two_heartbeats() {
    let (mut net, ues) = network_of(15, &[upf("a")], 2);
    net.advance(Duration::from_secs(5));
    net.restart_nth_upf(A);
    net.command(ues[0], session_of("internet"));
    net.settle(SECOND);
    net.command(ues[1], session_of("internet"));
    net.settle(SECOND);
    assert_eq!((sessions(&mut net), net.ue_ref(ues[1]).sessions().count()), (vec![1], 1));
    net.check_user_plane();
}

#[test] // TS 23.527 §4.4: of three UPFs one dies: its UEs have to request their sessions again, and get them at the others
fn one_of_three_dies() {
    let (mut net, ues) = network_of(8, &[upf("a"), upf("b"), upf("c")], 30);
    for &ue in &ues {
        net.command(ue, session_of("internet"));
    }
    net.settle(Duration::from_secs(5));
    let before = sessions(&mut net);
    assert!(before.iter().all(|&n| n > 0), "{before:?}");
    net.set_nth_upf(B, UpfState::Silent);
    net.advance(Duration::from_secs(120));
    let asked = |net: &Sim, ue: UeIndex| {
        let asked = SmCause::ReactivationRequested;
        let events = net.ue_events(ue);
        events.iter().any(|(_, e)| matches!(e, Event::SessionReleased { cause: Some(c), .. } if *c == asked))
    };
    let reported: Vec<UeIndex> = ues.iter().copied().filter(|&ue| asked(&net, ue)).collect();
    assert_eq!(reported.len(), before[1]);
    for &ue in &reported {
        net.command(ue, session_of("internet"));
    }
    net.settle(Duration::from_secs(5));
    let after = sessions(&mut net);
    assert_eq!(after[0] + after[2], 30, "{after:?}");
    assert!(ues.iter().all(|&ue| net.ue_ref(ue).sessions().count() == 1 && registered(&net, ue)));
    // It comes back with its sessions: they have no owner, and end with the new association.
    net.set_nth_upf(B, UpfState::Answering);
    net.settle(Duration::from_secs(30));
    assert_eq!(sessions(&mut net)[1], 0);
    net.check_user_plane();
    replays(&mut net);
    no_violations(&net);
}

#[test] // TS 23.527 §4.4: the path to a UPF fails for a while: its sessions are there afterwards, packets never stopped
fn the_path_to_a_upf_fails_and_comes_back() {
    let (mut net, ues) = network_of(9, &[upf("a"), Upf { priority: 1, ..upf("b") }], 2);
    let ue = ues[0];
    net.command(ue, session_of("internet"));
    net.settle(SECOND);
    let session = net.ue_ref(ue).sessions().next().expect("its session").id;
    net.set_nth_upf(A, UpfState::Silent);
    net.advance(Duration::from_secs(20));
    assert!(!net.cta().upf_is_up());
    net.check_path(ue, session);
    net.set_nth_upf(A, UpfState::Answering);
    net.advance(Duration::from_secs(10));
    assert!(net.cta().upf_is_up());
    net.check_path(ue, session);
    assert_eq!(sessions(&mut net), [1, 0]);
    net.command(ues[1], session_of("internet"));
    net.settle(SECOND);
    assert_eq!(sessions(&mut net), [2, 0], "and it is chosen again");
    net.check_user_plane();
    no_violations(&net);
}

#[test] // TS 29.244 §6.2.8.3, TS 23.502 §4.4.3.3: a UPF asks to be left: its UEs go to another, and it is released
fn a_upf_is_left() {
    let (mut net, ues) = network_of(10, &[upf("a"), Upf { priority: 1, ..upf("b") }], 3);
    for &ue in &ues {
        net.command(ue, session_of("internet"));
    }
    net.settle(SECOND);
    assert_eq!(sessions(&mut net), [3, 0]);
    go_idle(&mut net, ues[2]);
    net.retire_upf(A, Duration::from_secs(60));
    net.settle(SECOND * 5);
    assert_eq!(sessions(&mut net), [0, 0], "connected UEs are informed, an idle one when it returns");
    assert_eq!(net.nth_upf(A).c.associations().count(), 0, "and the UPF may go");
    for &ue in &ues {
        net.command(ue, session_of("internet"));
        net.settle(SECOND);
    }
    assert_eq!(sessions(&mut net), [0, 3]);
    net.check_user_plane();
    replays(&mut net);
    no_violations(&net);
}

#[test] // TS 29.244 §6.2.8.2, TS 23.502 §4.4.3.3: the operator has the SMF release a UPF
fn a_upf_is_released() {
    let (mut net, ues) = network_of(11, &[upf("a"), Upf { priority: 1, ..upf("b") }], 1);
    net.command(ues[0], session_of("internet"));
    net.settle(SECOND);
    net.release_upf(A);
    net.settle(SECOND * 5);
    assert_eq!(sessions(&mut net), [0, 0]);
    assert_eq!(net.nth_upf(A).c.associations().count(), 0);
    net.command(ues[0], session_of("internet"));
    net.settle(SECOND);
    assert_eq!(sessions(&mut net), [0, 1]);
    net.advance(Duration::from_secs(90));
    assert!(net.cta().upf_is_up(), "after a while it is asked again");
    no_violations(&net);
}

#[test] // TS 29.244 §6.2.6.3, TS 23.502 §4.4.3.1: a UPF that starts does not wait to be asked
fn a_upf_sets_its_association_up() {
    let (mut net, ues) = network_of(12, &[upf("a")], 1);
    net.release_upf(A);
    net.settle(SECOND);
    assert!(!net.cta().upf_is_up());
    net.associate_upf(A);
    net.settle(SECOND);
    assert!(net.cta().upf_is_up());
    net.command(ues[0], session_of("internet"));
    net.settle(SECOND);
    assert_eq!(sessions(&mut net), [1]);
    net.check_user_plane();
}

#[test] // TS 29.244 §6.2.3: a loaded UPF gets less, by its own load report
fn a_full_upf_gets_less() {
    let (mut net, ues) = network_of(13, &[upf("a"), upf("b")], 20);
    net.replace_upf(A, |config| config.sessions_max = 10);
    net.settle(Duration::from_secs(30));
    for &ue in &ues {
        net.command(ue, session_of("internet"));
        net.settle(SECOND);
    }
    let each = sessions(&mut net);
    assert_eq!(each[0] + each[1], 20);
    assert!(each[0] < each[1], "{each:?}");
    assert!(net.cta().upf_states().get(A).load >= 50);
    net.check_user_plane();
}

#[test] // TS 23.501 §6.3.3.3: by load, as the SMF counts it against the configured capacity, for UPFs that do not report any
fn a_upf_gets_less_the_more_of_its_capacity_is_used() {
    let small = Upf { capacity: Some(10), ..upf("small") };
    let (mut net, ues) = network_of(16, &[small, Upf { capacity: Some(1000), ..upf("big") }], 60);
    for &ue in &ues {
        net.command(ue, session_of("internet"));
        net.settle(SECOND);
    }
    let each = sessions(&mut net);
    assert!(each[0] <= 12 && each[0] + each[1] == 60, "{each:?}"); // without a capacity it would be 30
    assert_eq!(net.cta().upf_states().get(A).load, (each[0] as u8 * 10).min(100));
    for &ue in &ues {
        net.command(ue, UeCommand::Deregister { switch_off: false });
    }
    net.settle(SECOND * 5);
    assert_eq!(net.cta().upf_states().get(A).load, 0);
    replays(&mut net);
    no_violations(&net);
}

#[test] // TS 23.501 §5.8.2.2.1: no address is given to two UEs: of two UPFs with a common pool, one has sessions while it is there
fn a_upf_that_shares_a_pool_with_another_gets_no_session() {
    let (mut net, ues) = network_of(17, &[upf("a"), upf("b"), upf("c")], 12);
    let usable = |net: &Sim| [A, B, C].map(|upf| net.cta().upf_states().get(upf).usable);
    assert_eq!(usable(&net), [true; 3]);
    net.replace_upf(B, |config| config.data_networks[0].ipv4_pools[0].address = [10, 45, 128, 0].into());
    net.settle(Duration::from_secs(30));
    assert_eq!(usable(&net), [true, false, true]);
    for &ue in &ues {
        net.command(ue, session_of("internet"));
    }
    net.settle(Duration::from_secs(5));
    let each = sessions(&mut net);
    assert!(each[1] == 0 && each[0] + each[2] == 12, "{each:?}");
    net.set_nth_upf(A, UpfState::Silent);
    net.advance(Duration::from_secs(60));
    assert_eq!(usable(&net), [false, true, true], "it is free when the other one is gone");
    net.set_nth_upf(A, UpfState::Answering);
    net.settle(Duration::from_secs(30));
    assert_eq!(usable(&net), [false, true, true], "which comes second now");
    net.restart_nth_upf(B); // with pools of its own
    net.settle(Duration::from_secs(30));
    assert_eq!(usable(&net), [true; 3]);
}

#[test] // TS 29.244 §6.3.5.3: a UPF does not speak of a session that another has
fn a_report_of_another_upf_is_refused() {
    use whimbrel_pfcp::Message;
    use whimbrel_pfcp::ie::{FTeid, ReportType};
    use whimbrel_pfcp::msg::{ErrorIndicationReport, SessionReportRequest};
    let (mut net, ues) = network_of(14, &[upf("a"), Upf { priority: 1, ..upf("b") }], 1);
    net.command(ues[0], session_of("internet"));
    net.settle(SECOND);
    let (seid, an) = {
        let session = net.cta().contexts().flat_map(|p| p.sessions.values()).next().expect("the session");
        (session.cp_seid, *session.an.clone().expect("it is active"))
    };
    let report = SessionReportRequest {
        error_indication_report: Some(ErrorIndicationReport {
            remote_f_teids: vec![FTeid::given(an.teid, an.address)],
        }),
        ..SessionReportRequest::new(ReportType::ERIR)
    };
    let octets = Message::from(report).to_octets(Some(seid), 5);
    net.inject_pfcp_of(B, &octets);
    net.settle(SECOND);
    let still = net.cta().contexts().flat_map(|p| p.sessions.values()).all(|s| s.an.is_some());
    assert!(still, "the session goes on");
    net.inject_pfcp_of(C, &octets); // one that is not configured
    net.inject_pfcp_of(A, &octets);
    net.settle(SECOND);
    let gone = net.cta().contexts().flat_map(|p| p.sessions.values()).all(|s| s.an.is_none());
    assert!(gone, "its own UPF is believed");
}
