//! Sessions that carry no IP, from the UE to the UPF: TS 23.501 §5.6.10.2 (Ethernet), §5.6.10.3 (unstructured).

use crate::common::*;
use whimbrel_control::smf::UpState;
use whimbrel_control::udm::SessionTypes;
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ran::ue::{Event, SessionRequest, UeCommand};
use whimbrel_sim::{Sim, UeIndex};
use whimbrel_user::{DnIndex, Origin};

/// A registered UE that may have sessions of every type, in a network that has them.
fn on_air(seed: u64) -> (Sim, UeIndex) {
    let mut config = whimbrel_sim::default_config();
    config.smf.data_networks.values_mut().for_each(|n| (n.ethernet, n.unstructured) = (true, true));
    let mut net = Sim::builder(seed).config(config).recorded().build();
    let mut subscription = subscription();
    let all = SessionTypes { ethernet: true, unstructured: true, ..SessionTypes::IP };
    subscription.slices[0].dnns[0].session_types = all;
    net.home().subscribe(subscription);
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, whimbrel_sim::ue_config(1));
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    (net, ue)
}

fn establish(net: &mut Sim, ue: UeIndex, pdu_session_type: PduSessionType) {
    let dnn = Some("internet".parse().expect("a DNN"));
    net.command(ue, UeCommand::EstablishSession(SessionRequest { dnn, s_nssai: None, pdu_session_type }));
    net.settle(SECOND);
}

/// The session is up at the UE, the SMF and the UPF.
fn is_up(net: &mut Sim, ue: UeIndex, pdu_session_type: PduSessionType) {
    let up = net.ue_events(ue).iter().find_map(|(_, e)| match e {
        Event::SessionUp { session, .. } => Some((**session).clone()),
        _ => None,
    });
    let up = up.expect("a session");
    assert_eq!((up.pdu_session_type, up.ipv4), (pdu_session_type, None));
    let session =
        net.cta().contexts().flat_map(|p| p.sessions.values()).next().expect("a session of the SMF");
    assert_eq!(session.up, UpState::Active);
    assert_eq!(net.upf().c.session_count(), 1);
    no_violations(net);
}

#[test] // TS 23.502 §4.3.2.2.1 Ethernet, TS 24.501 §6.4.1.3 Ethernet: a session of type Ethernet
fn ethernet_session() {
    let (mut net, ue) = on_air(1);
    establish(&mut net, ue, PduSessionType::Ethernet);
    is_up(&mut net, ue, PduSessionType::Ethernet);
}

#[test] // TS 23.502 §4.3.2.2.1 unstructured, TS 24.501 §6.4.1.3 unstructured: a session of type Unstructured, and its prefix of the UPF alone
fn unstructured_session() {
    let (mut net, ue) = on_air(2);
    let free = net.upf().c.free_addresses(DnIndex(0)).expect("internet").1;
    establish(&mut net, ue, PduSessionType::Unstructured);
    is_up(&mut net, ue, PduSessionType::Unstructured);
    assert_eq!(net.upf().c.free_addresses(DnIndex(0)).expect("internet").1, free - 1);
}

#[test] // TS 23.501 §5.6.14: a network behind a UE, from its subscription to the UPF: its packets in both directions, and no others
fn networks_behind_a_ue() {
    use std::net::Ipv4Addr;
    let (mut net, ue) = one_ue(9);
    let mut subscribed = crate::common::subscription();
    for dnn in &mut subscribed.slices[0].dnns {
        dnn.framed_routes = vec![([192, 168, 7, 0].into(), 24), ("2001:db8:99::".parse().expect("IPv6"), 48)];
    }
    net.home().subscribe(subscribed);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(
        ue,
        UeCommand::EstablishSession(SessionRequest {
            dnn: None,
            s_nssai: None,
            pdu_session_type: PduSessionType::Ipv4,
        }),
    );
    net.settle(SECOND);
    let packet = |to: Ipv4Addr| {
        let mut p = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1];
        p.extend_from_slice(&to.octets());
        p.extend_from_slice(&[0, 7, 0, 7, 0, 8, 0, 0]);
        p
    };
    let from = Origin::N6 { dn: DnIndex(0) };
    assert_eq!(net.packet(from, &packet([192, 168, 7, 77].into())).len(), 1, "to the gNB");
    assert_eq!(net.packet(from, &packet([192, 168, 8, 77].into())).len(), 0);
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND);
    assert_eq!(net.packet(from, &packet([192, 168, 7, 77].into())).len(), 0);
    no_violations(&net);
}
