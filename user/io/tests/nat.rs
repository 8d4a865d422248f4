//! UEs behind the UPF's own address translation, through real sockets, rings and devices.

use super::common;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use common::*;
use whimbrel_gtpu::Gtpu;
use whimbrel_ids::Teid;
use whimbrel_user::{DropReason, Firewall, Ipv4Net, Nat};
use whimbrel_user_io::{Config, IoCounters, N3Io, RouterLink};

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 64);

/// UEs stand behind one address of the server's own network, for which this host answers ARP.
fn behind_one_address(io: N3Io, reachable: bool) -> Config {
    sh(&format!("ip neigh add proxy {OUTSIDE} dev n6"));
    let mut config = config(io);
    config.devices[0].nat = true;
    let pools = vec![Ipv4Net { address: OUTSIDE, prefix: 32 }];
    let nat = Some(Nat { pools, ports_per_ue: 100, reachable });
    config.user.data_networks[0].firewall = Some(Firewall { nat, ..Firewall::default() });
    config
}

/// A datagram of UDP with its checksums.
fn udp4(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let (SocketAddr::V4(s), SocketAddr::V4(d)) = (source, destination) else { panic!() };
    let length = 8 + payload.len() as u16;
    let words = [s.port(), d.port(), length, 0].map(u16::to_be_bytes);
    let mut udp = [words.as_flattened(), payload].concat();
    let pseudo = [&s.ip().octets()[..], &d.ip().octets(), &[0, 17], &length.to_be_bytes()].concat();
    let sum = checksum(&[&pseudo[..], &udp].concat(), 0);
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    let [a, b] = (20 + length).to_be_bytes();
    let head = [0x45, 0, a, b, 0, 1, 0, 0, 64, 17, 0, 0];
    let mut p = [&head[..], &s.ip().octets(), &d.ip().octets()].concat();
    let sum = checksum(&p, 0);
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    [p, udp].concat()
}

/// The next packet for a UE that is expected.
fn at_ue(gnb: &UdpSocket, teid: Teid, expected: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    for _ in 0..100 {
        let message = answered(gnb, SURELY).expect("a packet");
        let message = Gtpu::parse(&message).unwrap();
        if message.teid == teid && expected(message.payload) {
            return message.payload.to_vec();
        }
    }
    panic!("other packets only");
}

/// The same, by rings towards the data network too.
fn by_rings(io: N3Io) -> Config {
    let mut config = behind_one_address(io, false);
    config.devices[0].nat = false;
    let (interface, routers) = ("n6".into(), vec![SERVER.into()]);
    config.devices[0].link = Some(RouterLink { interface, routers, vlan: None, tunnel: None });
    config
}

#[test]
fn a_ue_is_seen_under_the_outside_address_and_gets_its_answers() {
    with_each_io("a_ue_is_seen_under_the_outside_address_and_gets_its_answers", |io, ran| {
        let server = Namespace::server();
        let Some(net) = Control::start(behind_one_address(io, false)) else { return };
        seen_and_answered(net, &ran, &server, |c| c.n6_sent >= 4);
    });
}

#[test]
fn the_same_by_rings_on_both_sides() {
    let kinds = [("udp", N3Io::Udp), ("af_xdp", N3Io::AfXdp), ("af_xdp/threads", N3Io::AfXdp)];
    with_io("the_same_by_rings_on_both_sides", &kinds, |io, ran| {
        let server = Namespace::server();
        // It would leave checksums to a device that never comes.
        server.leaves_no_checksums("server");
        let Some(net) = Control::start(by_rings(io)) else { return };
        let counters = seen_and_answered(net, &ran, &server, |c| c.n6_sent > c.n6_sent_by_device);
        assert_eq!(counters.malformed, 0, "{counters:?}");
    });
}

/// A flow of UDP, a ping and errors, both ways; what the sockets, rings and devices did, which has to come to `enough`.
fn seen_and_answered(
    mut net: Control,
    ran: &Namespace,
    server: &Namespace,
    enough: impl Fn(&IoCounters) -> bool,
) -> IoCounters {
    server.sh("ip address add 203.0.113.3/24 dev server");
    assert!(net.handle.host_changes().iter().any(|c| c == "routed 203.0.113.64/32 to upf0"));
    let (_, teid, ue, _) = net.session();
    let gnb = ran.socket(GNB.into());
    let socket = server.socket(SERVER.into());
    let (own, far) = (SocketAddr::from((ue, 5_001)), socket.local_addr().unwrap());
    gnb.send_to(&g_pdu(teid, &udp4(own, far, b"ask")), (UPF, 2152)).unwrap();
    let mut b = [0; 100];
    socket.set_read_timeout(Some(SURELY)).unwrap();
    let (n, seen) = socket.recv_from(&mut b).unwrap();
    assert_eq!((&b[..n], seen.ip()), (&b"ask"[..], OUTSIDE.into()));
    assert_eq!((seen.port() >= 1024, seen.port() % 2), (true, 1), "as odd as the UE's");
    // One of another host comes first, and only the answer arrives.
    let other = server.socket(Ipv4Addr::new(203, 0, 113, 3).into());
    other.send_to(b"unasked", seen).unwrap();
    let unasked = || {
        let c = net.handle.counters();
        c.dropped(DropReason::FirewallUnasked) > 0
    };
    eventually(unasked, || format!("{:?}", net.handle.counters()));
    socket.send_to(b"answer", seen).unwrap();
    let packet = at_ue(&gnb, GNB_TEID, |p| p[9] == 17);
    assert_eq!(packet[20..24], [far.port().to_be_bytes(), own.port().to_be_bytes()].concat());
    assert_eq!((&packet[16..20], &packet[28..]), (&ue.octets()[..], &b"answer"[..]));
    assert_eq!(checksum(&packet[..20], 0), 0);
    // A ping, by its identifier.
    gnb.send_to(&g_pdu(teid, &ping4(ue, SERVER, 3, 8)), (UPF, 2152)).unwrap();
    let reply = at_ue(&gnb, GNB_TEID, |p| p[9] == 1 && p[20] == 0);
    assert_eq!((&reply[12..16], &reply[24..28]), (&SERVER.octets()[..], &ping4(ue, SERVER, 3, 8)[24..28]));
    assert_eq!(checksum(&reply[20..], 0), 0);
    // The kernel's error about a packet that has no hops left names the UE's own end.
    let mut last = udp4(own, far, b"ask");
    last[8] = 1;
    last[10..12].fill(0);
    let sum = checksum(&last[..20], 0);
    last[10..12].copy_from_slice(&sum.to_be_bytes());
    gnb.send_to(&g_pdu(teid, &last), (UPF, 2152)).unwrap();
    let error = at_ue(&gnb, GNB_TEID, |p| p[9] == 1 && p[20] == 11);
    assert_eq!((&error[40..44], &error[48..50]), (&ue.octets()[..], &own.port().to_be_bytes()[..]));
    assert_eq!((checksum(&error[20..], 0), checksum(&error[28..48], 0)), (0, 0));
    // A port without a listener: the server's error does so too.
    gnb.send_to(&g_pdu(teid, &udp4(own, (SERVER, 1).into(), b"ask")), (UPF, 2152)).unwrap();
    let error = at_ue(&gnb, GNB_TEID, |p| p[9] == 1 && p[20] == 3);
    assert_eq!((&error[12..16], &error[40..44]), (&SERVER.octets()[..], &ue.octets()[..]));
    // They are published every 20 ms; and the first packets may be the device's, until it is known how a router is reached by rings.
    let more = || {
        gnb.send_to(&g_pdu(teid, &udp4(own, far, b"ask")), (UPF, 2152)).unwrap();
        enough(&net.handle.io_counters())
    };
    eventually(more, || format!("{:?}", net.handle.io_counters()));
    let counters = net.handle.io_counters();
    net.handle.stop().unwrap();
    counters
}

#[test] // RFC 4787 REQ-9
fn ues_reach_each_other_by_their_outside_ports() {
    with_each_io("ues_reach_each_other_by_their_outside_ports", |io, ran| {
        let server = Namespace::server();
        let mut config = behind_one_address(io, true);
        config.user.isolation.ue_to_ue = true;
        let Some(mut net) = Control::start(config) else { return };
        let ((_, teid_a, a, _), (_, teid_b, b, _)) = (net.session(), net.next_session());
        let gnb = ran.socket(GNB.into());
        let socket = server.socket(SERVER.into());
        socket.set_read_timeout(Some(SURELY)).unwrap();
        let far = socket.local_addr().unwrap();
        let mut seen = Vec::new();
        for (teid, ue) in [(teid_a, a), (teid_b, b)] {
            gnb.send_to(&g_pdu(teid, &udp4((ue, 5_000).into(), far, b"where")), (UPF, 2152)).unwrap();
            seen.push(socket.recv_from(&mut [0; 100]).unwrap().1);
        }
        assert_ne!(seen[0], seen[1]);
        gnb.send_to(&g_pdu(teid_a, &udp4((a, 5_000).into(), seen[1], b"hello")), (UPF, 2152)).unwrap();
        let packet = at_ue(&gnb, GNB_TEID, |p| p[28..] == b"hello"[..]);
        assert_eq!((&packet[12..16], &packet[16..20]), (&OUTSIDE.octets()[..], &b.octets()[..]));
        assert_eq!(packet[20..24], [seen[0].port().to_be_bytes(), 5_000u16.to_be_bytes()].concat());
    });
}
