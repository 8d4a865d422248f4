//! A data network with an interface of its own: packets go to its router and come from it by AF_XDP, past the kernel's
//! forwarding, which is switched off here unless a test says otherwise.

use super::common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use common::*;
use whimbrel_user_io::{Config, N3Io, Notice, RouterLink, StartError, UserPlane};

const KINDS: [(&str, N3Io); 3] = [("udp", N3Io::Udp), ("af_xdp", N3Io::AfXdp), ("xdp", N3Io::Xdp)];
const SERVER_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 2);

/// The data network by an interface and routers; nothing goes through the kernel.
fn by_interface(n3_io: N3Io, interface: &str, routers: &[IpAddr]) -> Config {
    let mut config = config(n3_io);
    config.forwarding = false;
    config.devices[0].link =
        Some(RouterLink { interface: interface.into(), routers: routers.into(), vlan: None, tunnel: None });
    config
}

fn to_server(n3_io: N3Io) -> Config {
    by_interface(n3_io, "n6", &[SERVER.into(), SERVER_IPV6.into()])
}

/// The server's network, with the routes back.
fn server() -> Namespace {
    let server = Namespace::server();
    server.takes_redirected("server");
    server.sh(
        "ip route add 10.45.0.0/16 via 203.0.113.1; ip -6 route add 2001:db8:45::/48 via 2001:db8:113::1",
    );
    server
}

#[test]
fn packets_go_to_the_router_and_come_back_past_the_kernel() {
    with_io("packets_go_to_the_router_and_come_back_past_the_kernel", &KINDS, |io, ran| {
        ran.takes_redirected("gnb");
        let _server = server();
        let Some(mut net) = Control::start(to_server(io)) else { return };
        assert!(net.handle.host_changes().iter().any(|c| c.contains("internet is reached by AF_XDP on n6")));
        let (id, teid, ue, prefix) = net.session();
        let ue6 = Ipv6Addr::from_bits(prefix.to_bits() | 5);
        let gnb = ran.socket(GNB.into());
        for (sequence, payload) in [(1, 20), (2, 1300), (3, 1372)] {
            let reply = exchange(&gnb, teid, &ping4(ue, SERVER, sequence, payload), |p| {
                p.first() == Some(&0x45) && p[20] == 0 && p[26..28] == sequence.to_be_bytes()
            });
            assert_eq!(
                (reply.len(), &reply[12..20]),
                (28 + payload, &[SERVER.octets(), ue.octets()].concat()[..])
            );
            assert_eq!((reply[8], checksum(&reply[..20], 0)), (63, 0), "a hop less");
            let reply = exchange(&gnb, teid, &ping6(ue6, SERVER_IPV6, sequence, payload - 20), |p| {
                p.first() == Some(&0x60) && p[40] == 129 && p[46..48] == sequence.to_be_bytes()
            });
            assert_eq!((reply.len(), reply[7]), (28 + payload, 63));
        }
        let counters = net.session_counters(id);
        assert!(counters.ul_packets >= 6 && counters.dl_packets >= 6, "{counters:?}");
        // The host itself is reached through its TUN device.
        let gateway = Ipv4Addr::new(10, 45, 0, 1);
        exchange(&gnb, teid, &ping4(ue, gateway, 9, 8), |p| p.get(12..16) == Some(&gateway.octets()[..]));
        let both_ways = || {
            let io = net.handle.io_counters();
            io.n6_sent + io.fast_uplink > io.n6_sent_by_device && io.n6_sent_by_device > 0
        };
        eventually(both_ways, || format!("{:?}", net.handle.io_counters()));
        let io = net.handle.io_counters();
        assert_eq!((io.malformed, io.send_errors, io.send_full), (0, 0, 0), "{io:?}");
        assert!(sh("ip link").contains("xdp"));
        net.handle.stop().unwrap();
        assert!(!sh("ip link").contains("xdp"), "the program has left with the user plane");
    });
}

#[test] // RFC 792, RFC 1191: what the kernel answers elsewhere it answers here
fn the_kernel_answers_what_has_no_hops_left_or_is_too_long() {
    with_io("the_kernel_answers_what_has_no_hops_left_or_is_too_long", &KINDS, |io, ran| {
        ran.takes_redirected("gnb");
        let server = server();
        let mut config = to_server(io);
        config.forwarding = true;
        let Some(mut net) = Control::start(config) else { return };
        let (_, teid, ue, _) = net.session();
        let gnb = ran.socket(GNB.into());
        exchange(&gnb, teid, &ping4(ue, SERVER, 1, 8), |p| p.first() == Some(&0x45) && p[20] == 0);
        let mut last = ping4(ue, SERVER, 2, 8);
        last[8] = 1;
        last[10..12].fill(0);
        let sum = checksum(&last[..20], 0);
        last[10..12].copy_from_slice(&sum.to_be_bytes());
        exchange(&gnb, teid, &last, |p| p.first() == Some(&0x45) && p[20..22] == [11, 0]);
        // The server learns the path's MTU and sends fragments.
        let socket = server.socket(SERVER.into());
        let fragment = (0..50).find_map(|_| {
            socket.send_to(&[7; 1430], (ue, 9)).ok()?;
            let message = answered(&gnb, Duration::from_millis(100))?;
            let packet = whimbrel_gtpu::Gtpu::parse(&message).unwrap().payload.to_vec();
            (packet[0] == 0x45 && packet[9] == 17).then_some(packet)
        });
        let fragment = fragment.expect("a fragment");
        assert!(fragment.len() <= 1400 && fragment[6] & 0x20 != 0, "{:?}", &fragment[..20]);
    });
}

#[test]
fn n3_and_n6_share_an_interface() {
    with_io("n3_and_n6_share_an_interface", &KINDS, |io, ran| {
        ran.takes_redirected("gnb");
        ran.sh("ip address add 198.51.100.9/32 dev gnb; ip route add 10.45.0.0/16 via 192.0.2.7; \
             echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter");
        let Some(mut net) = Control::start(by_interface(io, "n3", &[GNB.into()])) else { return };
        let (_, teid, ue, _) = net.session();
        let gnb = ran.socket(GNB.into());
        let beyond = Ipv4Addr::new(198, 51, 100, 9);
        let reply =
            exchange(&gnb, teid, &ping4(ue, beyond, 3, 400), |p| p.first() == Some(&0x45) && p[20] == 0);
        assert_eq!(reply[12..16], beyond.octets());
    });
}

#[test]
fn an_interface_that_is_not_there_is_one_sentence() {
    if !inside("an_interface_that_is_not_there_is_one_sentence") {
        return;
    }
    let _ran = Namespace::ran();
    let Err(e @ StartError::AfXdp(_)) = UserPlane::start(by_interface(N3Io::Udp, "eth77", &[])) else {
        panic!()
    };
    assert!(e.to_string().contains("this host has no interface eth77"), "{e}");
}

#[test] // over one queue and over four, of one packet thread and of as many; with pauses that they sleep through
fn rings_that_are_polled_busily_carry_packets_and_wake_up_again() {
    let kinds = [("af_xdp", N3Io::AfXdp), ("af_xdp/threads", N3Io::AfXdp)];
    with_io("rings_that_are_polled_busily_carry_packets_and_wake_up_again", &kinds, |io, ran| {
        let _server = server();
        let mut config = to_server(io);
        config.busy_poll = Duration::from_millis(5);
        let Some(mut net) = Control::start(config) else { return };
        let refused = net.handle.notices().iter().find(|n| matches!(n, Notice::BusyPoll(_)));
        assert!(refused.is_none(), "{refused:?}");
        let (id, teid, ue, _) = net.session();
        let gnb = ran.socket(GNB.into());
        for sequence in 0..200u16 {
            let reply = exchange(&gnb, teid, &ping4(ue, SERVER, sequence, 600), |p| {
                p.first() == Some(&0x45) && p[20] == 0 && p[26..28] == sequence.to_be_bytes()
            });
            assert_eq!(reply.len(), 628);
            if sequence % 40 == 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let counters = net.session_counters(id);
        assert!(counters.ul_packets >= 200 && counters.dl_packets >= 200, "{counters:?}");
        let io = net.handle.io_counters();
        assert_eq!((io.malformed, io.send_errors, io.send_full), (0, 0, 0), "{io:?}");
    });
}
