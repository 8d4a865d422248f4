//! Handovers of emulated phones between emulated gNBs, which judge what the core does about them.

mod common;

use common::{SECOND, gnb_config, network, no_violations};
use whimbrel_ran::gnb::{Event as GnbEvent, Via};
use whimbrel_ran::ue::{Command, Event, SessionRequest};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, phone_config};

/// Two gNBs, and a phone with two sessions at the first.
fn two_gnbs(seed: u64) -> (Sim, UeIndex, [GnbIndex; 2]) {
    let mut net = network(seed);
    let gnbs = [net.add_gnb(gnb_config(1)), net.add_gnb(gnb_config(2))];
    let ue = net.add_ue(gnbs[0], phone_config(1));
    net.settle(SECOND / 10);
    net.command(ue, Command::Register);
    net.settle(SECOND);
    for dnn in ["internet", "ims"] {
        let request = SessionRequest { dnn: dnn.parse().ok(), ..SessionRequest::default() };
        net.command(ue, Command::EstablishSession(request));
        net.settle(SECOND);
    }
    assert_eq!(net.ue_ref(ue).sessions().count(), 2);
    (net, ue, gnbs)
}

fn handed_over(net: &Sim) -> usize {
    net.gnb_events.iter().filter(|(_, e)| matches!(e, GnbEvent::HandedOver { .. })).count()
}

#[test] // TS 23.502 §4.9.1.2.2; TS 33.501 §6.9.2.3.2: over the end of the three bits of NCC
fn xn_handover_there_and_back() {
    let (mut net, ue, gnbs) = two_gnbs(1);
    for n in 1..=11 {
        net.hand_over(ue, gnbs[n % 2], Via::Xn);
        net.settle(SECOND);
        assert_eq!((handed_over(&net), net.gnb_of(ue)), (n, gnbs[n % 2]));
        assert_eq!(net.gnb_ref(gnbs[(n + 1) % 2]).contexts(), 0);
    }
    assert!(net.ue_ref(ue).sessions().all(|s| net.ue_ref(ue).has_user_plane(s.id)));
    net.command(ue, Command::Deregister { switch_off: false });
    net.settle(SECOND);
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Deregistered { .. })));
    assert_eq!(net.upf_sessions(), 0);
    no_violations(&net);
}
