//! Packets that are too long for a link: their sender gets an ICMP error (RFC 1191, RFC 8201), or they go in fragments; both ways, both
//! families, whether the data network is reached through the kernel or past it.

use super::common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use common::*;
use whimbrel_gtpu::Gtpu;
use whimbrel_ids::Teid;
use whimbrel_user_io::{Config, N3Io, RouterLink};

const SERVER_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 2);
/// Of the data network, and so of UEs.
const MTU: usize = 1_400;
/// Of the link to the server, where it is to be the narrower one.
const NARROW: usize = 1_300;

/// By sockets and a TUN device, by rings and a TUN device, past the kernel, and in the driver.
fn each_way(test: &str, run: impl Fn(Config, Namespace)) {
    let (udp, af_xdp) = (N3Io::Udp, N3Io::AfXdp);
    let kinds = [
        ("udp", udp),
        ("udp/threads", udp),
        ("af_xdp", af_xdp),
        ("past the kernel", af_xdp),
        ("past the kernel/threads", af_xdp),
        ("xdp", N3Io::Xdp),
    ];
    with_io(test, &kinds, |io, ran| {
        ran.takes_redirected("gnb");
        let mut config = config(io);
        let past = std::env::var(INSIDE).is_ok_and(|name| name.starts_with("past") || name == "xdp");
        let link = RouterLink {
            interface: "n6".into(),
            routers: vec![SERVER.into(), SERVER_IPV6.into()],
            vlan: None,
            tunnel: None,
        };
        config.devices[0].link = past.then_some(link);
        run(config, ran);
    });
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

/// What comes to the gNB, until it is the expected inner packet.
fn until(gnb: &UdpSocket, mut ask: impl FnMut(), expected: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    for _ in 0..100 {
        ask();
        let end = Instant::now() + Duration::from_millis(200);
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            let Some(message) = answered(gnb, left.max(Duration::from_millis(1))) else { break };
            let payload = Gtpu::parse(&message).unwrap().payload.to_vec();
            if expected(&payload) {
                return payload;
            }
        }
    }
    panic!("nothing of that kind came");
}

fn uplink(gnb: &UdpSocket, teid: Teid, inner: &[u8]) {
    gnb.send_to(&g_pdu(teid, inner), (UPF, 2152)).unwrap();
}

/// A packet of so many octets that is not to be fragmented.
fn whole4(from: Ipv4Addr, octets: usize) -> Vec<u8> {
    let mut p = ping4(from, SERVER, 1, octets - 28);
    p[6] = 0x40;
    p[10..12].fill(0);
    let sum = checksum(&p[..20], 0);
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    p
}

#[test]
fn a_server_learns_the_mtu_of_ues() {
    each_way("a_server_learns_the_mtu_of_ues", |config, ran| {
        let server = server();
        let Some(mut net) = Control::start(config) else { return };
        let (_, _, ue, prefix) = net.session();
        let ue6 = Ipv6Addr::from_bits(prefix.to_bits() | 9);
        let gnb = ran.socket(GNB.into());
        for (own, ue) in [(IpAddr::from(SERVER), IpAddr::from(ue)), (SERVER_IPV6.into(), ue6.into())] {
            let socket = server.socket(own);
            // Longer than the UE's link, but not than the server's: it is refused until the kernel there knows better.
            let send = || drop(socket.send_to(&[7; 1_430], (ue, 9)));
            let fragment = until(&gnb, send, |p| match p.first().map(|o| o >> 4) {
                Some(4) => ue.is_ipv4() && p[9] == 17,
                Some(6) => ue.is_ipv6() && p[6] == 44,
                _ => false,
            });
            assert!(fragment.len() <= MTU, "{}", fragment.len());
            assert!(ue.is_ipv6() || fragment[6] & 0x20 != 0, "a first fragment: {:?}", &fragment[..20]);
            let route = server.sh(&format!("ip route get {ue}"));
            assert!(route.contains("mtu 1400"), "{route}");
        }
    });
}

#[test]
fn a_ue_learns_the_mtu_beyond_the_upf() {
    each_way("a_ue_learns_the_mtu_beyond_the_upf", |config, ran| {
        let server = server();
        sh(&format!("ip link set n6 mtu {NARROW}"));
        server.sh(&format!("ip link set server mtu {NARROW}"));
        let Some(mut net) = Control::start(config) else { return };
        let (_, teid, ue, prefix) = net.session();
        let ue6 = Ipv6Addr::from_bits(prefix.to_bits() | 9);
        let gnb = ran.socket(GNB.into());
        // Fragmentation needed and DF set; packet too big: each with the MTU.
        let error =
            until(&gnb, || uplink(&gnb, teid, &whole4(ue, MTU)), |p| p[0] == 0x45 && p[20..22] == [3, 4]);
        assert_eq!(error[26..28], (NARROW as u16).to_be_bytes());
        let long = ping6(ue6, SERVER_IPV6, 1, MTU - 48);
        let error = until(&gnb, || uplink(&gnb, teid, &long), |p| p[0] == 0x60 && p[40] == 2);
        assert_eq!(error[44..48], (NARROW as u32).to_be_bytes());
        // What fits passes whole, and what may be fragmented passes in fragments, there and back.
        let fits = whole4(ue, NARROW);
        let reply = until(&gnb, || uplink(&gnb, teid, &fits), |p| p[0] == 0x45 && p[20] == 0 && p[9] == 1);
        assert_eq!(reply.len(), NARROW);
        let mut long = ping4(ue, SERVER, 77, MTU - 28);
        long[4..6].copy_from_slice(&77u16.to_be_bytes());
        long[10..12].fill(0);
        let sum = checksum(&long[..20], 0);
        long[10..12].copy_from_slice(&sum.to_be_bytes());
        let first = until(&gnb, || uplink(&gnb, teid, &long), |p| p[0] == 0x45 && p[6] & 0x20 != 0);
        assert!(first.len() <= NARROW && first[20] == 0 && first[26..28] == 77u16.to_be_bytes());
        let io = net.handle.io_counters();
        assert_eq!((io.send_errors, io.malformed), (0, 0), "{io:?}");
    });
}
