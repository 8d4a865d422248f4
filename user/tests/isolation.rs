//! What UEs do not reach through their sessions, and whose GTP-U is taken: TS 33.513 §4.2.2, TS 29.281 §4.3.0.

use super::common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use common::*;
use whimbrel_gtpu::signalling::echo_request;
use whimbrel_ids::Teid;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

const N6: PacketVerdict = PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) });
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 1);
/// An address of this host on which nothing of the core listens by name.
const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
/// Another process of the cluster.
const MEMBER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 3);
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
/// By which address packets come that nothing names.
const FOREIGN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77));

/// Where the core of these tests listens: N2, N3, N4, API, cluster links and heartbeats, those of another member too.
fn core() -> Vec<CoreEndpoint> {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let at = |address, protocol, port| CoreEndpoint { address, protocol, port };
    vec![
        at(Ipv4Addr::new(192, 0, 2, 5).into(), SCTP, 38412),
        at(any, UDP, 9899),
        at(UPF.into(), UDP, 2152),
        at(UPF.into(), UDP, 8805),
        at(any, TCP, 8080),
        at(any, TCP, 7380),
        at(any, UDP, 7380),
        at(MEMBER.into(), UDP, 7380),
    ]
}

fn net_with(change: impl FnOnce(&mut Isolation)) -> Net {
    let mut config = config();
    config.isolation.core = core();
    change(&mut config.isolation);
    let mut net = Net::with(config);
    net.upf.u.set_host_addresses(host(&[]));
    net
}

/// The host's addresses, and some that were added.
fn host(added: &[&str]) -> HostAddresses {
    let own = ["192.0.2.5", "192.0.2.7", "192.0.2.200", "192.0.2.255", "10.45.0.1", "2001:db8::7", "fd00::7"];
    own.iter().chain(added).map(|a| IpNetwork::host(a.parse().unwrap())).collect()
}

/// An IPv4 packet of any protocol.
fn ip4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut p = udp4(source, destination, (0, 0), 0)[..20].to_vec();
    p[9] = protocol;
    let len = (20 + payload.len()) as u16;
    p[2..4].copy_from_slice(&len.to_be_bytes());
    p.extend_from_slice(payload);
    p
}

fn ports(source: u16, destination: u16, rest: &[u8]) -> Vec<u8> {
    [&source.to_be_bytes()[..], &destination.to_be_bytes(), rest].concat()
}

/// UDP with a payload.
fn datagram(to: u16, payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    ports(40_000, to, &[&len.to_be_bytes()[..], &[0, 0], payload].concat())
}

/// What a UE would say to each part of the core: its name, the protocol, and what is behind the IP header.
fn sayings(victim: Teid) -> Vec<(&'static str, u8, Vec<u8>)> {
    let chunk = |port| {
        ports(
            36_412,
            port,
            &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 10, 0, 10, 0, 0, 0, 1],
        )
    };
    let syn = |port| ports(40_000, port, &[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 255, 255, 0, 0, 0, 0]);
    let inner = udp4(Ipv4Addr::new(10, 45, 0, 3), SERVER, (1, 2), 40);
    vec![
        ("NG SETUP by SCTP to N2", SCTP, chunk(38412)),
        ("SCTP over UDP to N2", UDP, datagram(9899, &chunk(38412))),
        (
            "a PFCP heartbeat to N4",
            UDP,
            datagram(8805, &[0x20, 1, 0, 12, 0, 0, 1, 0, 0, 96, 0, 4, 1, 2, 3, 4]),
        ),
        ("a GTP-U echo to N3", UDP, datagram(2152, echo_request(7).as_ref())),
        ("GTP-U in GTP-U to N3", UDP, datagram(2152, &g_pdu(victim, 1, &inner))),
        ("TCP to the API", TCP, syn(8080)),
        ("TCP to a cluster's link", TCP, syn(7380)),
        ("a cluster's heartbeat", UDP, datagram(7380, &[1; 48])),
        ("ssh to the host", TCP, syn(22)),
    ]
}

#[test] // TS 33.513 §4.2.2.7: whatever a UE sends to any address of the core or the host
fn no_protocol_of_a_ue_reaches_any_address_of_the_core_or_the_host() {
    let mut net = net_with(|_| ());
    let (s, other) = (net.session(1, true, true), net.session(2, true, false));
    let ue = s.ipv4.unwrap();
    let mut denied = 0;
    for (what, protocol, payload) in sayings(other.teid) {
        for to in ["192.0.2.5", "192.0.2.7", "192.0.2.200", "192.0.2.255", "10.45.0.1", "198.51.100.3"] {
            let (verdict, _) = net.uplink(&s, &ip4(ue, to.parse().unwrap(), protocol, &payload));
            let expected = [DropReason::UeToCore, DropReason::UeToHost];
            assert!(expected.iter().any(|r| verdict == PacketVerdict::Drop(*r)), "{what}, {to}: {verdict:?}");
            denied += 1;
        }
        for to in
            ["2001:db8::7", "fd00::7", "::ffff:192.0.2.7", "::1", "fe80::1", "ff02::1", "64:ff9b::c000:207"]
        {
            let own = Ipv6Addr::from_bits(s.ipv6.unwrap().to_bits() | 9);
            let (verdict, _) = net.uplink(&s, &ipv6(own, to.parse().unwrap(), protocol, &payload));
            assert!(matches!(verdict, PacketVerdict::Drop(_)), "{what}, {to}: {verdict:?}");
        }
        for to in ["127.0.0.1", "127.0.0.5", "0.0.0.0", "255.255.255.255", "224.0.0.1", "169.254.169.254"] {
            let (verdict, _) = net.uplink(&s, &ip4(ue, to.parse().unwrap(), protocol, &payload));
            let core = verdict == PacketVerdict::Drop(DropReason::UeToCore);
            assert!(
                core || verdict == PacketVerdict::Drop(DropReason::LinkScope),
                "{what}, {to}: {verdict:?}"
            );
        }
    }
    assert_eq!(net.uplink(&s, &udp4(ue, SERVER, (1, 2), 0)).0, N6, "a data network is reached");
    let counted = net.dropped(DropReason::UeToCore) + net.dropped(DropReason::UeToHost);
    assert!(counted >= denied && net.dropped(DropReason::UeToCore) >= 9, "{counted} of {denied}");
    assert!(net.outputs().iter().all(|(_, o)| o[1] == 255), "no echo, no error indication, no answer");
}

#[test]
fn each_part_of_the_core_is_denied_by_a_reason_of_its_own_even_where_the_host_is_reached() {
    let mut net = net_with(|i| i.ue_to_host = true);
    let s = net.session(1, true, false);
    let ue = s.ipv4.unwrap();
    let mut verdict =
        |to: Ipv4Addr, protocol, payload: &[u8]| net.uplink(&s, &ip4(ue, to, protocol, payload)).0;
    let core = PacketVerdict::Drop(DropReason::UeToCore);
    for (what, protocol, payload) in sayings(Teid(7)) {
        let to = match what {
            "NG SETUP by SCTP to N2" => Ipv4Addr::new(192, 0, 2, 5),
            "ssh to the host" => continue,
            _ => UPF,
        };
        assert_eq!(verdict(to, protocol, &payload), core, "{what}");
    }
    assert_eq!(verdict(UPF, TCP, &ports(40_000, 22, &[0; 16])), N6, "the host's own service");
    assert_eq!(verdict(HOST, TCP, &ports(40_000, 8080, &[0; 16])), core, "the API listens on every address");
    assert_eq!(verdict(MEMBER, TCP, &ports(40_000, 22, &[0; 16])), core, "another process's host");
}

#[test]
fn fragments_do_not_reach_what_whole_packets_do_not() {
    for ue_to_host in [false, true] {
        let mut net = net_with(|i| i.ue_to_host = ue_to_host);
        let s = net.session(1, true, false);
        let mut first = ip4(s.ipv4.unwrap(), UPF, UDP, &datagram(8805, &[0; 32]));
        first[6] = 0x20;
        assert_eq!(net.uplink(&s, &first).0, PacketVerdict::Drop(DropReason::UeToCore));
        let mut later = ip4(s.ipv4.unwrap(), UPF, UDP, &[0; 32]);
        later[7] = 5;
        // Without its first one it is never put together.
        let expected = if ue_to_host { N6 } else { PacketVerdict::Drop(DropReason::UeToHost) };
        assert_eq!(net.uplink(&s, &later).0, expected);
        let mut cut = ip4(s.ipv4.unwrap(), UPF, UDP, &[0x9c]);
        cut[6] = 0x20;
        assert_eq!(
            net.uplink(&s, &cut).0,
            PacketVerdict::Drop(DropReason::UeToCore),
            "its port is not to be seen"
        );
    }
}

#[test]
fn a_ue_reaches_no_other_ue_unless_that_is_configured() {
    let other = Ipv4Addr::new(10, 46, 3, 4); // of another data network
    for allowed in [false, true] {
        let mut net = net_with(|i| i.ue_to_ue = allowed);
        let (s, t) = (net.session(1, true, true), net.session(2, true, true));
        let expected = if allowed { N6 } else { PacketVerdict::Drop(DropReason::UeToUe) };
        let own = Ipv6Addr::from_bits(s.ipv6.unwrap().to_bits() | 9);
        let theirs = Ipv6Addr::from_bits(t.ipv6.unwrap().to_bits() | 9);
        assert_eq!(net.uplink(&s, &udp4(s.ipv4.unwrap(), t.ipv4.unwrap(), (1, 2), 0)).0, expected);
        assert_eq!(net.uplink(&s, &udp4(s.ipv4.unwrap(), other, (1, 2), 0)).0, expected);
        assert_eq!(net.uplink(&s, &ipv6(own, theirs, UDP, &datagram(2, &[]))).0, expected);
        // What came back from a router that does not know.
        let (verdict, _) = net.downlink(&udp4(s.ipv4.unwrap(), t.ipv4.unwrap(), (1, 2), 0));
        let expected =
            if allowed { PacketVerdict::Send(to_gnb()) } else { PacketVerdict::Drop(DropReason::UeToUe) };
        assert_eq!(verdict, expected);
        assert_eq!(
            net.downlink(&udp4(GATEWAY, t.ipv4.unwrap(), (1, 2), 0)).0,
            PacketVerdict::Send(to_gnb()),
            "the host's own"
        );
    }
}

#[test] // RFC 792, RFC 4443: a ping of the first address is how a session is tried
fn a_ue_may_ask_its_router_for_an_echo_and_nothing_else() {
    let mut net = net_with(|_| ());
    let s = net.session(1, true, true);
    let ue = s.ipv4.unwrap();
    let echo = |kind: u8| [kind, 0, 0, 0, 0, 1, 0, 1];
    for (kind, expected) in [(8, N6), (0, N6), (5, PacketVerdict::Drop(DropReason::UeToHost))] {
        assert_eq!(net.uplink(&s, &ip4(ue, GATEWAY, 1, &echo(kind))).0, expected, "type {kind}");
    }
    assert_eq!(net.uplink(&s, &ip4(ue, HOST, 1, &echo(8))).0, PacketVerdict::Drop(DropReason::UeToHost));
    let (own, router) =
        (Ipv6Addr::from_bits(s.ipv6.unwrap().to_bits() | 9), "2001:db8:45::1".parse().unwrap());
    for (kind, expected) in [(128, N6), (129, N6), (137, PacketVerdict::Drop(DropReason::UeToHost))] {
        assert_eq!(net.uplink(&s, &ipv6(own, router, 58, &echo(kind))).0, expected, "type {kind}");
    }
}

#[test]
fn exceptions_and_denied_networks_are_the_operators() {
    let rule = |text: &str| text.parse::<FirewallRule>().unwrap();
    let mut net = net_with(|i| {
        i.allow = vec![
            rule("permit in 17 from any to 10.45.0.1 53"),
            rule("permit in ip from any to 239.1.0.0/16"),
        ];
        i.deny = vec!["172.16.0.0", "203.0.113.5"].into_iter().zip([12, 32]).map(network).collect();
    });
    let s = net.session(1, true, false);
    let ue = s.ipv4.unwrap();
    let mut to =
        |address: &str, port| net.uplink(&s, &udp4(ue, address.parse().unwrap(), (40_000, port), 0)).0;
    let (host, denied) =
        (PacketVerdict::Drop(DropReason::UeToHost), PacketVerdict::Drop(DropReason::UeToDenied));
    for (address, port, expected) in [
        ("10.45.0.1", 53, N6),
        ("10.45.0.1", 54, host),
        ("239.1.2.3", 5000, N6),
        ("239.2.2.3", 5000, PacketVerdict::Drop(DropReason::LinkScope)),
        ("172.31.255.255", 80, denied),
        ("172.32.0.1", 80, N6),
        ("203.0.113.5", 80, denied),
        ("203.0.113.6", 80, N6),
    ] {
        assert_eq!(to(address, port), expected, "{address}:{port}");
    }
    let mut later = udp4(ue, GATEWAY, (40_000, 53), 40);
    later[7] = 3;
    assert_eq!(net.uplink(&s, &later).0, N6, "a later fragment of what is allowed");
}

fn network((address, prefix): (&str, u8)) -> IpNetwork {
    IpNetwork { address: address.parse().unwrap(), prefix }
}

#[test]
fn an_address_that_the_host_gets_later_is_denied_from_then_on() {
    let mut net = net_with(|_| ());
    let s = net.session(1, true, false);
    let p = udp4(s.ipv4.unwrap(), "203.0.113.9".parse().unwrap(), (1, 22), 0);
    assert_eq!(net.uplink(&s, &p).0, N6);
    net.upf.u.set_host_addresses(host(&["203.0.113.9"]));
    assert_eq!(net.uplink(&s, &p).0, PacketVerdict::Drop(DropReason::UeToHost));
    net.upf.u.set_host_addresses(host(&[]));
    assert_eq!(net.uplink(&s, &p).0, N6, "and no longer than it has it");
    net.upf.u.set_host_addresses([network(("203.0.113.0", 24))].into_iter().collect());
    assert_eq!(net.uplink(&s, &p).0, PacketVerdict::Drop(DropReason::UeToHost), "a whole network of its own");
}

#[test] // else a UE would send its packets to another one by way of that one's gNB
fn a_ue_does_not_reach_the_gnbs_of_any_session() {
    let mut net = net_with(|_| ());
    let (s, t) = (net.session(1, true, false), net.session(2, true, false));
    let other_gnb = Ipv4Addr::new(192, 0, 2, 66);
    let p = ip4(s.ipv4.unwrap(), other_gnb, UDP, &datagram(2152, &g_pdu(Teid(1), 1, &[0x45])));
    assert_eq!(net.uplink(&s, &p).0, N6, "no session has it yet");
    net.modify(&t, activation(Teid(9), other_gnb.into()));
    assert_eq!(net.uplink(&s, &p).0, PacketVerdict::Drop(DropReason::UeToCore));
}

#[test] // a session of two cache lines stays one, whatever its UE tries
fn what_is_denied_costs_a_session_its_form_as_little_as_what_is_allowed() {
    let mut net = net_with(|i| i.allow = vec!["permit in 17 from any to 10.45.0.1 53".parse().unwrap()]);
    let s = net.session(1, true, false);
    let ue = s.ipv4.unwrap();
    let plain = |net: &mut Net| net.upf.u.only().map_or(1, |u| u.plain());
    assert_eq!(plain(&mut net), 1);
    let dropped = |net: &Net| net.upf.u.session_counters(s.id()).unwrap().dropped;
    net.uplink(&s, &udp4(ue, UPF, (1, 2152), 0));
    net.uplink(&s, &udp4(ue, Ipv4Addr::new(10, 45, 0, 6), (1, 2), 0));
    assert_eq!(net.uplink(&s, &udp4(ue, GATEWAY, (1, 53), 0)).0, N6);
    let foreign = Origin::N3 { peer: SocketAddr::new(FOREIGN, 2152), local: UPF.into() };
    assert_eq!(net.packet(foreign, &g_pdu(s.teid, 1, &udp4(ue, SERVER, (1, 2), 0))).0, PacketVerdict::Taken);
    assert_eq!((plain(&mut net), dropped(&net)), (1, 2));
}

#[test] // TS 23.501 §5.6.10.2: frames are inspected, and the LAN of the sessions stands
fn frames_of_ethernet_sessions_do_not_reach_the_host_either() {
    let mut config = config();
    config.data_networks[0].ethernet = true;
    config.isolation.core = core();
    let mut net = Net::with(config);
    net.upf.u.set_host_addresses(host(&[]));
    let mut m = establishment(1, false, false);
    m.pdn_type = Some(PdnType::Ethernet);
    m.create_pdrs.iter_mut().for_each(|p| p.pdi.ue_ip_addresses.clear());
    m.create_pdrs[1].pdi.ethernet_pdu_session_information = Some(EthernetPduSessionInformation::ETHI);
    let r = net.establish(m);
    let s = net.seated(1, &r);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    let frames = PacketVerdict::Send(Destination::Frames { dn: DnIndex(0) });
    let own = Ipv4Addr::new(10, 9, 0, 2);
    for (to, port, tag, expected) in [
        (UPF, 8805, &[][..], PacketVerdict::Drop(DropReason::UeToCore)),
        (UPF, 8805, &[0x81, 0, 0, 7], PacketVerdict::Drop(DropReason::UeToCore)),
        (Ipv4Addr::BROADCAST, 7380, &[], PacketVerdict::Drop(DropReason::UeToCore)),
        (HOST, 67, &[], PacketVerdict::Drop(DropReason::UeToHost)),
        (Ipv4Addr::BROADCAST, 67, &[], frames),
        (Ipv4Addr::new(10, 9, 0, 3), 80, &[], frames),
    ] {
        let packet = udp4(own, to, (68, port), 0);
        let frame = [&[2, 0xee, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1], tag, &[8, 0], &packet].concat();
        assert_eq!(net.packet(from_gnb(), &g_pdu(s.teid, 1, &frame)).0, expected, "{to}:{port}");
    }
}

fn from(peer: IpAddr) -> Origin {
    Origin::N3 { peer: SocketAddr::new(peer, 2152), local: UPF.into() }
}

fn up(s: &Session, n: usize) -> Vec<u8> {
    g_pdu(s.teid, 1, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), n))
}

#[test] // TS 23.502 §4.3.2.2.1 steps 14 to 16: a gNB sends as soon as it has answered, and the SMF's word comes later
fn uplink_before_the_gnb_is_known_waits_until_the_smf_names_it() {
    let mut net = Net::new();
    let s = net.idle_session(1, true, false);
    for n in 0..3 {
        assert_eq!(net.packet(from_gnb(), &up(&s, n)).0, PacketVerdict::Taken);
        assert_eq!(net.packet(from(FOREIGN), &up(&s, 9)).0, PacketVerdict::Taken);
    }
    assert!(net.outputs().is_empty());
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    let sent: Vec<_> = net.outputs().into_iter().map(|(to, o)| (PacketVerdict::Send(to), o.len())).collect();
    assert_eq!(sent, [(N6, 28), (N6, 29), (N6, 30)], "those of the gNB, in order");
    assert_eq!(net.packet(from_gnb(), &up(&s, 0)).0, N6);
    assert_eq!(net.dropped(DropReason::GtpuForeignPeer), 0);
    net.advance(START + Duration::from_millis(500));
    assert_eq!(net.dropped(DropReason::GtpuForeignPeer), 3, "those of unknown peers");
}

#[test] // TS 29.281 §4.3.0: another session names the gNB first
fn packets_that_wait_for_their_gnb_leave_before_later_ones() {
    let mut net = Net::new();
    let (s, other) = (net.idle_session(1, true, false), net.idle_session(2, true, false));
    for n in 0..3 {
        assert_eq!(net.packet(from_gnb(), &up(&s, n)).0, PacketVerdict::Taken);
    }
    net.modify(&other, activation(GNB_TEID, GNB.ip()));
    let later = net.packet(from_gnb(), &up(&s, 3)).0;
    let sent: Vec<_> = net.outputs().into_iter().map(|(to, o)| (PacketVerdict::Send(to), o.len())).collect();
    assert_eq!((sent, later), (vec![(N6, 28), (N6, 29), (N6, 30)], N6));
}

#[test]
fn packets_that_wait_for_their_gnb_are_bounded_and_end_with_their_session() {
    let mut net = Net::new();
    let s = net.idle_session(1, true, false);
    for _ in 0..UNKNOWN_PEER_PACKETS_PER_SESSION_MAX {
        assert_eq!(net.packet(from(FOREIGN), &up(&s, 0)).0, PacketVerdict::Taken);
    }
    assert_eq!(net.packet(from(FOREIGN), &up(&s, 0)).0, PacketVerdict::Drop(DropReason::GtpuForeignPeer));
    net.delete(&s);
    assert_eq!(net.dropped(DropReason::GtpuForeignPeer), UNKNOWN_PEER_PACKETS_PER_SESSION_MAX as u64 + 1);
    assert!(net.outputs().is_empty());
}

#[test] // TS 29.281 §4.3.0
fn a_tunnel_takes_nothing_from_an_address_that_nothing_names() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    assert_eq!(net.packet(from(FOREIGN), &up(&s, 0)).0, PacketVerdict::Taken);
    net.advance(START + Duration::from_secs(1));
    assert_eq!(net.dropped(DropReason::GtpuForeignPeer), 1);
    assert!(net.outputs().is_empty());
    assert_eq!(net.upf.u.counters().ul_packets, 0);
}

#[test] // TS 23.502 §4.9.1.2.2, §4.9.1.3.3: in a handover the target's packets come before the SMF has named it
fn a_gnb_that_any_session_names_is_believed_until_ten_seconds_after() {
    let target: IpAddr = Ipv4Addr::new(192, 0, 2, 10).into();
    let mut net = Net::new();
    let (s, t) = (net.session(1, true, false), net.session(2, true, false));
    net.modify(&t, activation(Teid(5), target));
    assert_eq!(net.packet(from(target), &up(&s, 0)).0, N6);
    net.modify(&s, activation(Teid(6), target));
    assert_eq!(net.packet(from(target), &up(&s, 0)).0, N6);
    assert_eq!(net.packet(from_gnb(), &up(&s, 0)).0, N6, "what is under way from the source");
    net.advance(START + Duration::from_secs(10));
    assert_eq!(net.packet(from_gnb(), &up(&s, 0)).0, PacketVerdict::Taken, "nothing has led there for long");
}

#[test]
fn gnbs_with_several_addresses_are_where_the_operator_says() {
    let mut config = config();
    config.isolation.gnb_networks = vec![network(("192.0.2.64", 27)), network(("2001:db8:9::", 48))];
    let mut net = Net::with(config);
    let s = net.session(1, true, false);
    assert_eq!(net.packet(from(FOREIGN), &up(&s, 0)).0, N6);
    assert_eq!(net.packet(from("2001:db8:9::7".parse().unwrap()), &up(&s, 0)).0, N6);
    assert_eq!(net.packet(from("192.0.2.96".parse().unwrap()), &up(&s, 0)).0, PacketVerdict::Taken);
    assert_eq!(net.upf.u.counters().ul_packets, 2);
}

#[test]
fn no_gtpu_is_taken_from_a_ue() {
    let mut config = config();
    config.isolation.gnb_networks = vec![network(("0.0.0.0", 0))];
    let mut net = Net::with(config);
    let (s, t) = (net.session(1, true, false), net.session(2, true, false));
    let ue = from(s.ipv4.unwrap().into());
    let end_marker = [&[0x30, 254, 0, 0][..], &t.teid.0.to_be_bytes()].concat();
    let echo = echo_request(1);
    for octets in
        [&up(&t, 0)[..], echo.as_ref(), &end_marker, &up(&Session { teid: Teid(7), ..t.clone() }, 0)]
    {
        assert_eq!(net.packet(ue, octets).0, PacketVerdict::Drop(DropReason::GtpuFromUe));
    }
    assert!(net.outputs().is_empty());
    assert_eq!(
        net.packet(from(GATEWAY.into()), echo.as_ref()).0,
        PacketVerdict::Taken,
        "the host's own address there"
    );
}

#[test] // a gNB that names them would have the UPF send packets to itself, or to a UE as its gNB
fn a_tunnel_does_not_lead_to_a_ue_or_to_the_upf_itself() {
    let mut net = Net::new();
    let s = net.idle_session(1, true, false);
    for address in [UPF, Ipv4Addr::new(10, 45, 0, 6), Ipv4Addr::new(10, 46, 1, 1)] {
        let r = net.modify(&s, activation(GNB_TEID, address.into()));
        assert_ne!(r.cause, Cause::RequestAccepted, "{address}");
    }
    assert_eq!(net.modify(&s, activation(GNB_TEID, GNB.ip())).cause, Cause::RequestAccepted);
}

#[test] // TS 23.502 §4.9.1.3.2 steps 11 and 12: the source's packets, and its end marker, are those of the session
fn a_forwarding_tunnel_takes_packets_of_the_sessions_gnb_alone() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let pdi = Pdi {
        f_teid: Some(FTeid::Choose { ipv4: true, ipv6: false, choose_id: None }),
        ..Pdi::from(SourceInterface::Access)
    };
    let target = Ipv4Addr::new(192, 0, 2, 10);
    let parameters = ForwardingParameters {
        outer_header_creation: Some(OuterHeaderCreation::gtpu(Teid(78), target.into())),
        ..ForwardingParameters::to(DestinationInterface::Access)
    };
    let removal = Some(OuterHeaderRemovalDescription::GtpuUdpIp.into());
    let r = net.modify(
        &s,
        SessionModificationRequest {
            create_pdrs: vec![CreatePdr {
                outer_header_removal: removal,
                ..CreatePdr::new(PdrId(9), Precedence(1), pdi, FarId(9))
            }],
            create_fars: vec![CreateFar::forward(FarId(9), parameters)],
            ..Default::default()
        },
    );
    let Some(FTeid::Given { teid, .. }) = r.created_pdrs[0].local_f_teid else { panic!("{r:?}") };
    let to_target =
        PacketVerdict::Send(Destination::N3 { peer: SocketAddr::new(target.into(), 2152), tos: 0 });
    let end_marker = [&[0x30, 254, 0, 0][..], &teid.0.to_be_bytes()].concat();
    assert_eq!(net.packet(from(FOREIGN), &g_pdu(teid, 1, &[1, 2, 3])).0, PacketVerdict::Taken);
    assert_eq!(net.packet(from(FOREIGN), &end_marker).0, PacketVerdict::Drop(DropReason::GtpuForeignPeer));
    assert_eq!(net.packet(from_gnb(), &g_pdu(teid, 1, &[1, 2, 3])).0, to_target);
    assert_eq!(net.packet(from_gnb(), &end_marker).0, to_target);
}

#[test] // a peer that guesses tunnels reaches only its own sessions
fn a_gnb_that_names_many_wrong_tunnels_is_believed_for_its_own_sessions_alone() {
    let target: IpAddr = Ipv4Addr::new(192, 0, 2, 10).into();
    let mut net = Net::new();
    let (s, t) = (net.session(1, true, false), net.session(2, true, false));
    net.modify(&t, activation(Teid(5), target));
    assert_eq!(net.packet(from(target), &up(&s, 0)).0, N6);
    // Each pipeline counts for itself.
    for n in 0..(UNKNOWN_TUNNELS_PER_PEER_MAX + 100) * u32::from(SHARDS) {
        let guess = Session { teid: Teid(n.wrapping_mul(0x9e37_79b9) | 1), ..t.clone() };
        assert_eq!(
            net.packet(from(target), &up(&guess, 0)).0,
            PacketVerdict::Drop(DropReason::UnknownTunnel)
        );
    }
    assert_eq!(net.upf.u.counters().peers_suspended, u64::from(SHARDS));
    assert_eq!(net.packet(from(target), &up(&s, 0)).0, PacketVerdict::Taken, "another's session");
    assert_eq!(net.packet(from(target), &up(&t, 0)).0, N6, "its own");
    net.now = net.now + Duration::from_secs(61);
    assert_eq!(net.packet(from(target), &up(&s, 0)).0, N6);
}
