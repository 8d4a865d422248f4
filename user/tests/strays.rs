//! Packets that no session has, where they may wait for one: Synergy §III-C, figure 8; TS 29.281 §7.3.1.

use super::common;

use std::time::Duration;

use common::*;
use whimbrel_gtpu::{Gtpu, message_type};
use whimbrel_ids::{Seid, Teid};
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::*;
use whimbrel_user::*;

fn net(strays: u16) -> Net {
    let mut config = config();
    config.data_networks[0].ipv4_pools[0].prefix = 24;
    config.buffering.strays = strays;
    Net::with(config)
}

/// Sessions that UPF-C has made and the pipeline has not heard of yet.
fn behind(net: &mut Net, sessions: u64) -> (Vec<Session>, Vec<UserPlaneChange>) {
    let mut made = Vec::new();
    for n in 1..=sessions {
        let mut ask = |seid, m: Message| {
            let octets = m.to_octets(Some(seid), (n as u32) << 8 | u32::from(seid != Seid(0)));
            net.upf.c.handle(net.now, Input::Pfcp { peer: SMF, octets: &octets }, &mut net.out);
            let (_, answer) = net.out.datagrams.pop().expect("an answer");
            Message::parse(&whimbrel_pfcp::Frame::parse(&answer).unwrap()).unwrap()
        };
        let Message::SessionEstablishmentResponse(r) = ask(Seid(0), establishment(n, true, false).into())
        else {
            panic!()
        };
        let s = net.seated(n, &r);
        let mut activation = activation(Teid(n as u32), GNB.ip());
        activation.update_fars[0].far_id = FarId(2);
        let octets = Message::from(activation).to_octets(Some(s.up_seid), (n as u32) << 8 | 2);
        net.upf.c.handle(net.now, Input::Pfcp { peer: SMF, octets: &octets }, &mut net.out);
        net.out.datagrams.clear();
        made.push(s);
    }
    let changes = std::mem::take(&mut net.out.changes);
    changes.iter().for_each(|c| net.upf.u.announce(c));
    (made, changes)
}

/// Both directions' packets for a session, with a number.
fn packets(net: &mut Net, s: &Session, number: u16) -> [PacketVerdict; 2] {
    let ue = s.ipv4.unwrap();
    [net.uplink(s, &udp4(ue, SERVER, (number, 9), 0)).0, net.downlink(&udp4(SERVER, ue, (9, number), 0)).0]
}

#[test]
fn behind_a_flood_of_changes_packets_wait_for_their_sessions_and_go_first_in_order() {
    let net = &mut net(1_024);
    let (sessions, changes) = behind(net, 60);
    assert_eq!(changes.len(), 120);
    let (soon, later) = changes.split_at(32); // as many as are applied between two bursts
    soon.iter().for_each(|c| net.upf.u.apply(net.now, c.clone()));
    let (mut waited, mut passed) = (0, 0);
    for number in 1..=3 {
        for s in &sessions {
            for verdict in packets(net, s, number) {
                match verdict {
                    PacketVerdict::Taken => waited += 1,
                    PacketVerdict::Send(_) => passed += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert_eq!((passed, waited), (16 * 6, 44 * 6));
    assert_eq!(net.outputs(), []);
    later.iter().for_each(|c| net.upf.u.apply(net.now, c.clone()));
    let sent = net.outputs();
    assert_eq!(sent.len(), 44 * 6);
    for (n, s) in sessions.iter().enumerate().skip(16) {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for (to, octets) in &sent {
            match to {
                Destination::N6 { .. } if octets[12..16] == s.ipv4.unwrap().octets() => up.push(octets[21]),
                Destination::N3 { .. } if at_gnb(octets).0 == Teid(n as u32 + 1) => {
                    down.push(at_gnb(octets).2[23])
                }
                _ => {}
            }
        }
        assert_eq!((up, down), (vec![1, 2, 3], vec![1, 2, 3]));
    }
    assert_eq!(net.upf.u.counters().dropped.iter().sum::<u64>(), 0);
}

#[test]
fn without_room_for_them_they_are_dropped_at_once() {
    let net = &mut net(0);
    let (sessions, _changes) = behind(net, 1);
    let [up, down] = packets(net, &sessions[0], 1);
    assert_eq!(up, PacketVerdict::Drop(DropReason::UnknownTunnel));
    assert_eq!(down, PacketVerdict::Drop(DropReason::UnknownUeAddress));
}

#[test]
fn those_that_upf_c_does_not_know_either_are_dropped_by_their_own_names() {
    let net = &mut net(64);
    let unknown = Session {
        up_seid: Seid(1),
        cp_seid: Seid(1),
        teid: Teid(0x7700_0001),
        ipv4: Some("10.45.0.200".parse().unwrap()),
        ipv6: None,
    };
    assert_eq!(packets(net, &unknown, 1), [PacketVerdict::Taken; 2], "the answer comes after");
    assert_eq!((net.dropped(DropReason::UnknownTunnel), net.dropped(DropReason::UnknownUeAddress)), (1, 1));
    let outputs = net.outputs();
    let [(_, error)] = outputs.as_slice() else { panic!("{outputs:?}") };
    assert_eq!(Gtpu::parse(error).unwrap().message_type, message_type::ERROR_INDICATION);
}

#[test]
fn what_waits_is_bounded_in_packets_of_one_and_of_all_and_in_time() {
    // Of several pipelines each has its part.
    let net = &mut net(16 * u16::from(SHARDS));
    let (sessions, changes) = behind(net, 8);
    for n in 0..6 {
        let [up, _] = packets(net, &sessions[0], n);
        let expected = if n < 4 { PacketVerdict::Taken } else { PacketVerdict::Drop(DropReason::StraysFull) };
        assert_eq!(up, expected, "{n}");
    }
    for s in &sessions[1..] {
        packets(net, s, 1);
    }
    let waiting = net.upf.u.counters().strays;
    let full = net.dropped(DropReason::StraysFull);
    assert_eq!((waiting + full, full), if SHARDS == 1 { (26, 10) } else { (26, 4) });
    net.advance(net.now + Duration::from_millis(199));
    assert_eq!(net.dropped(DropReason::StrayAge), 0);
    net.advance(net.now + Duration::from_millis(1));
    assert_eq!(net.dropped(DropReason::StrayAge), waiting);
    changes.into_iter().for_each(|c| net.upf.u.apply(net.now, c));
    assert_eq!(net.outputs(), []);
}

#[test]
fn a_session_that_buffers_keeps_what_waited_for_it() {
    let net = &mut net(64);
    let (sessions, changes) = behind(net, 1);
    let s = &sessions[0];
    assert_eq!(net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (9, 1), 0)).0, PacketVerdict::Taken);
    let mut changes = changes.into_iter();
    net.upf.u.apply(net.now, changes.next().expect("its establishment"));
    assert_eq!((net.outputs().len(), net.upf.u.counters().held), (0, 1));
    net.upf.u.apply(net.now, changes.next().expect("its activation"));
    assert_eq!(net.outputs().len(), 1);
}
