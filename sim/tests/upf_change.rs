//! The change of a session's UPF in a handover: TS 23.502 §4.9.1.2.3, §4.9.1.2.4, §4.9.1.3: three areas, each with a gNB and a UPF of its own.

use std::time::Duration;

use crate::common::{SECOND, core_events, gnb_config, go_idle, no_violations};
use whimbrel_control::config::{HandoverDownlink, Upf};
use whimbrel_control::event::Sign;
use whimbrel_control::{Event as CoreEvent, UpfId};
use whimbrel_ids::{GlobalGnbId, PduSessionId, PlmnId, Tac, Tai};
use whimbrel_nas::ie::{PduSessionType, SmCause};
use whimbrel_ran::gnb::{Faults as GnbFaults, SupportedTa, Via};
use whimbrel_ran::ue::{Event, SessionRequest, UeCommand};
use whimbrel_sim::{CpfLoss, GnbIndex, Sim, UeIndex, UpfState, default_config, ue_config};

const UE: UeIndex = UeIndex(0);
const GNBS: [GnbIndex; 3] = [GnbIndex(0), GnbIndex(1), GnbIndex(2)];
/// The intermediate UPF of the second area.
const B: UpfId = UpfId(1);
/// Packets of a handover.
const PACKETS: u32 = 60;
/// Time between two packets.
const INTERVAL: Duration = Duration::from_millis(1);

fn tac(n: u32) -> Tac {
    Tac::new(n).expect("24 bits")
}

/// How the network differs from the usual one.
#[derive(Clone, Copy, Default)]
struct Scene {
    cpfs: u16,
    direct: bool,
    forward: bool,
    predicted: bool,
}

/// A UE with a session at the first gNB; user packets travel.
fn scene(seed: u64, Scene { cpfs, direct, forward, predicted }: Scene) -> (Sim, PduSessionId) {
    let mut config = default_config();
    config.amf.tacs = (1..=3).map(tac).collect();
    let upf = |n| Upf { name: format!("upf-{n}"), tacs: vec![tac(n)], predicts: predicted, ..Upf::default() };
    config.smf.upfs = (1..=3).map(upf).collect();
    if forward {
        config.smf.handover_downlink = HandoverDownlink::Forward;
    }
    (config.amf.signs, config.amf.prediction.early_containers) = (predicted, predicted);
    let builder = Sim::builder(seed).config(config);
    let mut net = if cpfs > 0 { builder.cpfs(cpfs, 1).build() } else { builder.build() };
    for n in 1..=3 {
        let mut gnb = gnb_config(n);
        let SupportedTa { plmns, .. } = gnb.supported_tas.remove(0);
        gnb.supported_tas = vec![SupportedTa { tac: tac(n), plmns }];
        (gnb.direct_forwarding, gnb.hands_over_early) = (direct, predicted);
        net.add_gnb(gnb);
    }
    net.add_ue(GNBS[0], ue_config(1));
    net.settle(SECOND / 10);
    net.command(UE, UeCommand::Register);
    net.settle(SECOND);
    let pdu_session_type = PduSessionType::Ipv4;
    net.command(UE, UeCommand::EstablishSession(SessionRequest { pdu_session_type, ..Default::default() }));
    net.settle(SECOND);
    let session = net.ue_ref(UE).sessions().next().expect("a session").id;
    net.carry();
    (net, session)
}

/// How many N4 sessions each UPF has.
fn sessions(net: &mut Sim) -> [usize; 3] {
    [0, 1, 2].map(|n| net.nth_upf(UpfId(n)).c.session_count())
}

/// The UPF to which the UE's gNB sends uplink packets: 1 to 3.
fn uplink_upf(net: &Sim) -> u8 {
    let served = net.gnb_ref(net.gnb_of(UE)).served().flat_map(|ue| ue.sessions).next();
    match served.expect("a session").uplink.0 {
        std::net::IpAddr::V4(a) => a.octets()[3] - 7,
        other => panic!("{other}"),
    }
}

/// Sends the packets of these numbers, one each interval.
fn send(net: &mut Sim, session: PduSessionId, numbers: std::ops::Range<u32>) {
    for number in numbers {
        net.send_down(UE, session, number);
        net.advance(INTERVAL);
    }
}

/// A handover with packets before, while and after it happens: those that the UE has got.
fn hand_over(net: &mut Sim, session: PduSessionId, to: usize, via: Via) -> Vec<u32> {
    send(net, session, 0..20);
    net.hand_over(UE, GNBS[to - 1], via);
    send(net, session, 20..PACKETS);
    net.settle(SECOND * 3);
    net.received(UE)
}

fn all() -> Vec<u32> {
    Vec::from_iter(0..PACKETS)
}

#[test] // TS 23.502 §4.9.1.3.2 steps 5, 6, 11, §4.9.1.3.3 steps 8 to 10, 15; §4.9.1.2.3, §4.9.1.2.4; TS 23.501 §5.8.2.9: nothing is lost, and the UPFs that the UE has left have nothing of it
fn an_intermediate_upf_is_inserted_relocated_and_removed() {
    let scenes =
        [(Via::N2, true, false), (Via::N2, false, false), (Via::N2, false, true), (Via::Xn, true, false)];
    for (seed, (via, direct, forward)) in (1..).zip(scenes) {
        let what = |step: &str| format!("{step}, {via:?}, direct {direct}, forward {forward}");
        let (mut net, session) = scene(seed, Scene { direct, forward, ..Scene::default() });
        let steps = [
            ("insertion", 2, [1, 1, 0]),
            ("relocation", 3, [1, 0, 1]),
            ("removal", 1, [1, 0, 0]),
            ("insertion again", 3, [1, 0, 1]),
        ];
        for (step, to, at_upfs) in steps {
            assert_eq!(hand_over(&mut net, session, to, via), all(), "{}", what(step));
            assert_eq!(net.gnb_of(UE), GNBS[to - 1]);
            assert_eq!((sessions(&mut net), uplink_upf(&net)), (at_upfs, to as u8), "{}", what(step));
            net.check_user_plane();
        }
        net.command(UE, UeCommand::Deregister { switch_off: false });
        net.settle(SECOND);
        assert_eq!(sessions(&mut net), [0; 3], "{}", what("deregistration"));
        no_violations(&net);
    }
}

#[test] // TS 23.502 §4.9.1.2.3, §4.9.1.2.4, §4.9.1.3: the target's uplink packets pass the former UPF until the gNB has the new tunnel
fn no_uplink_packet_is_lost_in_a_change_of_upf() {
    for (seed, via) in [(50, Via::Xn), (51, Via::N2)] {
        let (mut net, session) = scene(seed, Scene { direct: true, ..Scene::default() });
        for (step, to) in [("insertion", 2), ("relocation", 3), ("removal", 1), ("insertion again", 3)] {
            let mut sent = Vec::new();
            for number in 0..10 * PACKETS {
                if number == 20 {
                    net.hand_over(UE, GNBS[to - 1], via);
                }
                sent.extend(net.send_up(UE, session, number).then_some(number));
                net.advance(INTERVAL / 10); // several between the request for the path switch and its acknowledgement
            }
            net.settle(SECOND * 3);
            let mut received = net.received_by_network();
            received.sort_unstable();
            assert_eq!(received, sent, "{step}, {via:?}");
            assert_eq!((net.gnb_of(UE), uplink_upf(&net)), (GNBS[to - 1], to as u8), "{step}, {via:?}");
        }
        net.check_user_plane();
        no_violations(&net);
    }
}

#[test] // TS 23.502 §4.9.1.3; Neutrino §4.2.5: a CPF is lost at each message of insertion, relocation and removal
fn no_packet_is_lost_with_a_cpf_in_a_change_of_upf() {
    use CpfLoss::{AfterOutput, BeforeOutput};
    let steps: [(Via, &[usize], usize, &[CpfLoss]); 4] = [
        (Via::N2, &[], 2, &[BeforeOutput]),
        (Via::N2, &[2], 3, &[BeforeOutput, AfterOutput]),
        (Via::N2, &[2], 1, &[BeforeOutput]),
        (Via::Xn, &[2], 3, &[BeforeOutput]),
    ];
    for (via, before, to, losses) in steps {
        let region = || {
            let (mut net, session) = scene(6, Scene { cpfs: 3, direct: via == Via::Xn, ..Scene::default() });
            before.iter().for_each(|&to| {
                hand_over(&mut net, session, to, Via::N2);
            });
            (net, session)
        };
        let (mut net, session) = region();
        let first = net.links_taken() + 1;
        assert_eq!(hand_over(&mut net, session, to, via), all());
        let last = net.links_taken();
        assert!(last > first + 4, "{first} to {last}");
        for (message, &how) in (first..=last).flat_map(|n| losses.iter().map(move |how| (n, how))) {
            let what = || format!("{via:?} to {to}: {how:?} at message {message} of {first} to {last}");
            let (mut net, session) = region();
            net.lose_cpf_at(message, how);
            assert_eq!(hand_over(&mut net, session, to, via), all(), "{}", what());
            assert_eq!((net.gnb_of(UE), uplink_upf(&net)), (GNBS[to - 1], to as u8), "{}", what());
            let counts = net.cta().replication_counters();
            assert_eq!((counts.cpfs_lost, counts.lost, counts.diverged), (1, 0, 0), "{}", what());
            net.check_user_plane();
        }
    }
}

#[test] // TS 23.502 §4.9.1.3.2 step 6: no UPF of the target's area can be used: by N2 the UE stays where it is, by Xn its path stays
fn a_target_whose_upf_does_not_answer() {
    for (seed, state) in [(10, UpfState::Silent), (11, UpfState::Mute)] {
        let (mut net, session) = scene(seed, Scene::default());
        net.set_nth_upf(B, state);
        net.hand_over(UE, GNBS[1], Via::N2);
        send(&mut net, session, 0..50);
        net.settle(SECOND * 15);
        assert_eq!((net.gnb_of(UE), uplink_upf(&net)), (GNBS[0], 1), "{state:?}");
        assert_eq!(net.received(UE), Vec::from_iter(0..50));
        net.hand_over(UE, GNBS[1], Via::Xn);
        net.settle(SECOND * 15);
        send(&mut net, session, 0..50);
        net.settle(SECOND);
        assert_eq!((net.gnb_of(UE), uplink_upf(&net)), (GNBS[1], 1), "{state:?}");
        assert_eq!(net.received(UE), Vec::from_iter(0..50));
        net.set_nth_upf(B, UpfState::Answering);
        net.settle(SECOND * 60);
        assert_eq!(sessions(&mut net), [1, 0, 0], "what a late request has established is deleted");
        no_violations(&net);
    }
}

#[test] // TS 23.502 §4.9.1.3.2 step 6; TS 29.244 §7.5.3.1: a UPF that refuses is passed over for another of the area
fn a_upf_that_refuses_is_passed_over() {
    let (mut net, session) = scene(12, Scene::default());
    let mut config = (*net.config()).clone();
    config.smf.upfs[2].tacs = vec![tac(2), tac(3)];
    config.smf.upfs[2].priority = 1;
    net.configure(config);
    net.replace_upf(B, |config| drop(config.data_networks.remove(0)));
    net.settle(SECOND * 30);
    assert_eq!(hand_over(&mut net, session, 2, Via::N2), all());
    assert_eq!((sessions(&mut net), uplink_upf(&net)), ([1, 0, 1], 3));
}

#[test] // TS 23.502 §4.9.1.4, §4.9.1.3.2 failure: a UE that stays gets all its packets, and the new UPF nothing of it
fn a_handover_that_fails_releases_the_prepared_upf() {
    let refuse = whimbrel_ngap::ie::CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell;
    let faults = [
        (0, GnbFaults { cancel_at_command: true, ..Default::default() }),
        (1, GnbFaults { refuse_handover: Some(refuse.into()), ..Default::default() }),
        (1, GnbFaults { ignore_handover_request: true, ..Default::default() }),
    ];
    for (seed, (whose, fault)) in (20..).zip(&faults) {
        let (mut net, session) = scene(seed, Scene::default());
        *net.gnb_mut(GNBS[*whose]).faults_mut() = fault.clone();
        assert_eq!(hand_over(&mut net, session, 2, Via::N2), all(), "{fault:?}");
        net.settle(SECOND * 30);
        assert_eq!((net.gnb_of(UE), sessions(&mut net)), (GNBS[0], [1, 0, 0]), "{fault:?}");
        // At an intermediate UPF, on the way back to the anchor's area.
        *net.gnb_mut(GNBS[*whose]).faults_mut() = GnbFaults::default();
        assert_eq!(hand_over(&mut net, session, 2, Via::N2), all());
        *net.gnb_mut(GNBS[1 - *whose]).faults_mut() = fault.clone();
        assert_eq!(hand_over(&mut net, session, 1, Via::N2), all(), "{fault:?}");
        net.settle(SECOND * 30);
        assert_eq!((net.gnb_of(UE), sessions(&mut net)), (GNBS[1], [1, 1, 0]), "{fault:?}");
        net.check_user_plane();
    }
}

#[test] // TS 23.502 §4.2.3.3, §4.2.6: the intermediate UPF buffers for an idle UE, and reports its packets
fn an_idle_ue_is_paged_for_packets_at_its_intermediate_upf() {
    let (mut net, session) = scene(30, Scene::default());
    hand_over(&mut net, session, 2, Via::N2);
    go_idle(&mut net, UE);
    assert_eq!(sessions(&mut net), [1, 1, 0]);
    send(&mut net, session, 0..10);
    net.settle(SECOND * 5);
    assert_eq!(net.received(UE), Vec::from_iter(0..10));
    assert_eq!(uplink_upf(&net), 2);
}

#[test] // TS 23.527 §4.3.2: an intermediate UPF has lost the session: the UE is asked to set it up again, and gets it where it is
fn a_session_whose_intermediate_upf_restarts_is_set_up_again() {
    let (mut net, session) = scene(31, Scene::default());
    hand_over(&mut net, session, 2, Via::N2);
    net.advance(SECOND * 5); // recovery time stamps count seconds
    net.restart_nth_upf(B);
    net.settle(SECOND * 60);
    let again = |e: &Event| matches!(e, Event::SessionReleased { cause: Some(c), .. } if *c == SmCause::ReactivationRequested);
    assert!(net.ue_events(UE).iter().any(|(_, e)| again(e)));
    assert_eq!(sessions(&mut net), [0, 0, 0]);
    net.check_user_plane();
}

#[test] // Synergy §III-C across UPFs: the UPF and the target are prepared; the anchor switches with the first packet that comes by the new UPF
fn a_predicted_change_of_upf_is_prepared() {
    let (mut net, session) = scene(40, Scene { predicted: true, ..Scene::default() });
    let predict = |net: &mut Sim, to: u32| {
        let id = net.cta().contexts().next().expect("a UE").id;
        let gnb = GlobalGnbId::new(PlmnId::TEST, to, 28).expect("28 bits");
        net.predict(id, gnb, Tai { plmn: PlmnId::TEST, tac: tac(to) });
        net.settle(SECOND / 10);
    };
    predict(&mut net, 2);
    assert_eq!(sessions(&mut net), [1, 1, 0], "it is at the new UPF already");
    assert_eq!(hand_over(&mut net, session, 2, Via::N2), all());
    assert_eq!((sessions(&mut net), uplink_upf(&net)), ([1, 1, 0], 2));
    // A wrong one, and one that does not come true, leave nothing.
    predict(&mut net, 3);
    assert_eq!(sessions(&mut net), [1, 1, 1]);
    assert_eq!(hand_over(&mut net, session, 1, Via::N2), all());
    assert_eq!((sessions(&mut net), uplink_upf(&net)), ([1, 0, 0], 1));
    predict(&mut net, 3);
    net.settle(SECOND * 6);
    assert_eq!(sessions(&mut net), [1, 0, 0]);
    let prepared = core_events(&net).filter(|e| matches!(e, CoreEvent::Sign { sign: Sign::Prepared, .. }));
    assert_eq!(prepared.count(), 3);
    net.check_user_plane();
    no_violations(&net);
}
