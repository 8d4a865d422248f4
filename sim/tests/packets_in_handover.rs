//! What becomes of packets while their UE is handed over through the core: TS 23.502 §4.9.1.3, L25GC §3.3.

use std::time::Duration;

use crate::common::by_hand::{
    self, SOURCE, TARGET, acknowledgement, admitted, command, handover_required, say,
};
use crate::common::{SECOND, gnb_config, no_violations};
use whimbrel_control::config::HandoverDownlink;
use whimbrel_ids::PduSessionId;
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::ie::CauseRadioNetwork;
use whimbrel_ngap::msg::{HandoverCancel, UeContextReleaseRequest};
use whimbrel_ran::gnb::{Event as GnbEvent, Faults as GnbFaults, Via};
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_sim::{CpfLoss, GnbIndex, N3_LATENCY, Sim, UeIndex, default_config, ue_config};

/// Time between two packets.
const INTERVAL: Duration = Duration::from_micros(250);
/// Packets of a run.
const PACKETS: u32 = 1_200;
/// The first packets come before the handover.
const BEFORE: u32 = 100;

const GNBS: [GnbIndex; 2] = [GnbIndex(0), GnbIndex(1)];
const UE: UeIndex = UeIndex(0);

fn network(seed: u64, mode: HandoverDownlink, cpfs: u16) -> Sim {
    let mut config = default_config();
    config.smf.handover_downlink = mode;
    match cpfs {
        0 => Sim::builder(seed).config(config).build(),
        cpfs => Sim::builder(seed).config(config).cpfs(cpfs, 1).build(),
    }
}

/// Two gNBs, and a UE with a session at the first.
fn scene(mut net: Sim, direct: bool) -> (Sim, PduSessionId) {
    for n in 1..=2 {
        let mut config = gnb_config(n);
        config.direct_forwarding = direct;
        net.add_gnb(config);
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

/// Sends the packets of these numbers, one each interval.
fn send(net: &mut Sim, session: PduSessionId, numbers: std::ops::Range<u32>) {
    for number in numbers {
        net.send_down(UE, session, number);
        net.advance(INTERVAL);
    }
}

/// What the UE has got of a run with a handover in its midst.
fn handed_over(net: &mut Sim, session: PduSessionId) -> Vec<u32> {
    send(net, session, 0..BEFORE);
    net.hand_over(UE, GNBS[1], Via::N2);
    send(net, session, BEFORE..PACKETS);
    net.advance(SECOND);
    net.received(UE)
}

/// How many were lost; none came twice, or after a later one.
fn lost(received: &[u32], what: &dyn Fn() -> String) -> u32 {
    let order = received.windows(2).find(|pair| pair[0] >= pair[1]);
    assert_eq!(order, None, "{}", what());
    PACKETS - received.len() as u32
}

#[test] // TS 23.502 §4.9.1.3.2 steps 11 and 12; L25GC §3.3: nothing is lost, repeated or out of order where gNBs forward, whoever holds the rest
fn no_packet_is_lost_where_gnbs_forward() {
    for (seed, mode) in [(1, HandoverDownlink::Buffer), (2, HandoverDownlink::Forward)] {
        for direct in [true, false] {
            let what = || format!("{mode:?}, direct {direct}");
            let (mut net, session) = scene(network(seed, mode, 0), direct);
            let held = held_most(&mut net, session);
            assert_eq!(lost(&net.received(UE), &what), 0, "{}", what());
            assert_eq!(net.gnb_of(UE), GNBS[1]);
            // The UE is on its way for some milliseconds; only in the one mode the UPF has its packets.
            assert_eq!(held > 10, mode == HandoverDownlink::Buffer, "{held}: {}", what());
            assert_eq!(net.upf().u.counters().held, 0);
            no_violations(&net);
        }
    }
}

/// [`handed_over`]; how many packets the UPF held at most.
fn held_most(net: &mut Sim, session: PduSessionId) -> u64 {
    send(net, session, 0..BEFORE);
    net.hand_over(UE, GNBS[1], Via::N2);
    let held = (BEFORE..PACKETS).map(|n| {
        send(net, session, n..n + 1);
        net.upf().u.counters().held
    });
    let most = held.max().unwrap_or(0);
    net.advance(SECOND);
    most
}

#[test] // L25GC §3.3: without forwarding, packets on N3 are lost, and in the standard's way all that arrive meanwhile
fn without_forwarding_only_what_is_on_n3_is_lost() {
    let on_n3 = (N3_LATENCY.as_micros() / INTERVAL.as_micros()) as u32 + 1;
    let lost = [HandoverDownlink::Buffer, HandoverDownlink::Forward].map(|mode| {
        let (mut net, session) = scene(network(3, mode, 0), true);
        net.gnb_mut(GNBS[1]).faults_mut().refuse_forwarding = true;
        let received = handed_over(&mut net, session);
        assert_eq!(net.gnb_of(UE), GNBS[1]);
        no_violations(&net);
        lost(&received, &|| format!("{mode:?}"))
    });
    assert!((1..=on_n3).contains(&lost[0]), "{lost:?}");
    assert!(lost[1] > 4 * on_n3, "{lost:?}");
}

#[test] // TS 23.502 §4.9.1.4, §4.9.1.3.2 failure and silence: a UE that stays gets everything where it is
fn a_ue_that_stays_gets_all_its_packets() {
    let refuse = CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell;
    let faults = [
        (0, GnbFaults { cancel_at_command: true, ..Default::default() }),
        (1, GnbFaults { refuse_handover: Some(refuse.into()), ..Default::default() }),
        (1, GnbFaults { ignore_handover_request: true, ..Default::default() }),
    ];
    for (seed, mode) in [(4, HandoverDownlink::Buffer), (5, HandoverDownlink::Forward)] {
        for (whose, faults) in &faults {
            let what = || format!("{mode:?}, {faults:?}");
            let (mut net, session) = scene(network(seed, mode, 0), false);
            *net.gnb_mut(GNBS[*whose]).faults_mut() = faults.clone();
            let received = handed_over(&mut net, session);
            assert_eq!(lost(&received, &what), 0, "{}", what());
            assert_eq!(net.gnb_of(UE), GNBS[0]);
            net.settle(SECOND * 20);
            net.check_path(UE, session);
        }
    }
}

#[test] // Neutrino §4.2.5: a CPF is lost at each message of the handover
fn no_packet_is_lost_with_a_cpf() {
    let region = || scene(network(6, HandoverDownlink::Buffer, 3), false);
    let (mut net, session) = region();
    let first = net.links_taken() + 1;
    let received = handed_over(&mut net, session);
    assert_eq!(lost(&received, &|| "no loss".into()), 0);
    let last = net.links_taken();
    assert!(last > first + 5, "{first} to {last}");
    for how in CpfLoss::ALL {
        for message in first..=last {
            let what = || format!("{how:?} at message {message} of {first} to {last}");
            let (mut net, session) = region();
            net.lose_cpf_at(message, how);
            let received = handed_over(&mut net, session);
            assert_eq!(lost(&received, &what), 0, "{}", what());
            assert_eq!(net.gnb_of(UE), GNBS[1], "{}", what());
            let counts = net.cta().replication_counters();
            assert_eq!((counts.cpfs_lost, counts.lost, counts.diverged), (1, 0, 0), "{}", what());
        }
    }
}

/// Packets of these numbers for the only session of a UE whose gNBs are driven by hand: where each of those that leave goes.
fn by_hand(net: &mut Sim, packets: usize) -> Vec<Option<by_hand::End>> {
    let mut to = Vec::new();
    for _ in 0..packets {
        let (last, earlier) = by_hand::downlink(net, 1);
        let g_pdus = earlier.into_iter().filter(|(_, kind)| *kind == by_hand::G_PDU);
        to.extend(g_pdus.map(|(to, _)| Some(to)));
        to.extend(last.map(Some));
    }
    to
}

#[test] // TS 23.502 §4.9.1.3.3 lost; TS 38.413 §8.4.1.3, §8.3.2: packets are held from HANDOVER COMMAND on; a UE that stays, for whatever reason, gets them first
fn what_was_held_goes_where_the_ue_is() {
    type Then = fn(&mut Sim, whimbrel_ids::AmfUeNgapId);
    let arrives: Then = |net, id| say(net, TARGET, by_hand::notify(id));
    let ends: [(Then, bool); 5] = [
        (arrives, true),
        (
            |net, _| {
                let c = by_hand::connection(net).clone();
                let cause = CauseRadioNetwork::HandoverCancelled.into();
                say(net, SOURCE, HandoverCancel::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause));
            },
            false,
        ),
        (|net, _| net.settle(SECOND * 20), false),
        (|net, _| net.disconnect(TARGET), false),
        (
            |net, id| {
                let cause = CauseRadioNetwork::RadioConnectionWithUeLost.into();
                say(net, TARGET, UeContextReleaseRequest::new(id, by_hand::RAN_ID, cause));
            },
            false,
        ),
    ];
    for (seed, (end, arrives)) in (10..).zip(ends) {
        let (mut net, _) = by_hand::two_gnbs(seed, 1);
        net.take_over(SOURCE);
        let source = by_hand::an(&net, 1);
        let m = handover_required(&net, &[1]);
        say(&mut net, SOURCE, m);
        let id = by_hand::request(&mut net).amf_ue_ngap_id;
        assert_eq!(by_hand(&mut net, 2), [source; 2], "the UE is at its source while the target thinks");
        say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, seed % 2 == 0)]));
        assert_eq!(by_hand(&mut net, 4), [], "they wait, and are before HANDOVER COMMAND");
        command(&mut net);
        end(&mut net, id);
        net.settle(SECOND / 10);
        let there = if arrives { by_hand::at_target(1) } else { source };
        assert_eq!(by_hand(&mut net, 1), [there; 5], "four that were held and a newer one, seed {seed}");
        net.settle(SECOND * 3);
        assert!(by_hand::context(&net).sessions.values().all(|s| !s.departing && s.forwarding.is_none()));
        assert_eq!(by_hand(&mut net, 1), [there]);
    }
}

#[test] // TS 23.502 §4.9.1.3.3, §4.2.3.3: the UE is lost between its gNBs: what was held waits on, and pages it
fn what_was_held_for_a_ue_that_is_lost_pages_it() {
    let (mut net, session) = scene(network(20, HandoverDownlink::Buffer, 0), false);
    net.gnb_mut(GNBS[0]).faults_mut().lose_command = true;
    send(&mut net, session, 0..10);
    net.settle(SECOND / 10);
    net.hand_over(UE, GNBS[1], Via::N2);
    net.advance(SECOND);
    send(&mut net, session, 10..50);
    assert_eq!(net.upf().u.counters().held, 40);
    net.lose_radio(UE);
    net.settle(SECOND * 30);
    assert!(net.events.gnbs.iter().any(|(_, e)| matches!(e, GnbEvent::HandoverFailed { .. })));
    send(&mut net, session, 50..60);
    net.settle(SECOND * 5);
    assert_eq!(net.received(UE), Vec::from_iter(0..60));
}
