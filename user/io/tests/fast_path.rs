//! Packets of plain sessions go from interface to interface in the driver, and are judged and counted as anywhere else.

use super::common;

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use whimbrel_gtpu::{Gtpu, message_type};
use whimbrel_ids::Teid;
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::{DropReason, SessionId};
use whimbrel_user_io::{Config, N3Io, RouterLink, UserPlane};

const SERVER_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 2);

fn fast() -> Config {
    // The host forwards what comes before the router's Ethernet address is known, so that no packet is lost.
    let mut config = config(N3Io::Xdp);
    config.devices[0].link =
        Some(RouterLink { interface: "n6".into(), routers: vec![SERVER.into()], vlan: None, tunnel: None });
    config
}

/// gNB, server and user plane, in a namespace of the test's own.
fn scene(test: &str) -> Option<(Control, Namespace, Namespace)> {
    if !inside(test) {
        return None;
    }
    let (ran, server) = (Namespace::ran(), Namespace::server());
    ran.takes_redirected("gnb");
    server.takes_redirected("server");
    ["n3", "n6"].into_iter().for_each(sends_in_order);
    server.sh("ip route add 10.45.0.0/16 via 203.0.113.1");
    let net = Control::start(fast())?;
    assert!(net.handle.rings().unwrap().fast_path);
    Some((net, ran, server))
}

/// Until one that need not come is.
const PERHAPS: Duration = Duration::from_millis(200);

/// Sends a ping and takes what comes back, if anything does.
fn ping(gnb: &UdpSocket, teid: Teid, ue: Ipv4Addr, sequence: u16, within: Duration) -> bool {
    gnb.send_to(&g_pdu(teid, &ping4(ue, SERVER, sequence, 56)), (UPF, 2152)).unwrap();
    while let Some(message) = answered(gnb, within) {
        let message = Gtpu::parse(&message).unwrap();
        if message.payload.get(26..28) == Some(&sequence.to_be_bytes()) {
            assert_eq!((message.teid, message.payload[8], message.payload.len()), (GNB_TEID, 63, 84));
            assert_eq!(checksum(&message.payload[..20], 0), 0);
            return true;
        }
    }
    false
}

/// Pings until both ways are the driver's; how many came back, and the next number.
fn until_fast(net: &Control, gnb: &UdpSocket, teid: Teid, ue: Ipv4Addr, mut sequence: u16) -> (u64, u16) {
    let (before, mut back, begun) = (net.handle.io_counters(), 0, Instant::now());
    loop {
        let io = net.handle.io_counters();
        if io.fast_uplink > before.fast_uplink && io.fast_downlink > before.fast_downlink {
            return (back, sequence);
        }
        assert!(begun.elapsed() < SURELY, "{io:?}");
        back += u64::from(ping(gnb, teid, ue, sequence, SURELY));
        sequence = sequence.wrapping_add(1);
    }
}

#[test]
fn what_the_driver_forwards_is_counted_to_the_octet() {
    let Some((mut net, ran, _server)) = scene("what_the_driver_forwards_is_counted_to_the_octet") else {
        return;
    };
    let (id, teid, ue, _) = net.session();
    let gnb = ran.socket(GNB.into());
    let (mut back, mut sequence) = until_fast(&net, &gnb, teid, ue, 1);
    let before = net.handle.io_counters();
    for _ in 0..500 {
        back += u64::from(ping(&gnb, teid, ue, sequence, SURELY));
        sequence = sequence.wrapping_add(1);
    }
    let all_fast = || {
        let io = net.handle.io_counters();
        io.fast_uplink >= before.fast_uplink + 400 && io.fast_downlink >= before.fast_downlink + 400
    };
    eventually(all_fast, || format!("{before:?} {:?}", net.handle.io_counters()));
    // Another UE's address: dropped there, by its name, and counted with the session.
    for _ in 0..10 {
        let other = Ipv4Addr::from_bits(ue.to_bits() + 1);
        gnb.send_to(&g_pdu(teid, &ping4(other, SERVER, 1, 56)), (UPF, 2152)).unwrap();
    }
    let spoofed = || net.handle.counters().dropped(DropReason::SpoofedSource) == 10;
    eventually(spoofed, || format!("{:?}", net.handle.counters()));
    let counters = net.session_counters(id);
    // An answer may come after we have stopped waiting for it.
    assert!(counters.dl_packets >= back && counters.dl_packets <= u64::from(sequence), "{back} {counters:?}");
    assert_eq!((counters.dl_octets, counters.dropped), (counters.dl_packets * 84, 10));
    assert!(counters.ul_packets >= back && counters.ul_octets == counters.ul_packets * 84, "{counters:?}");
    let all = || {
        let all = net.handle.counters();
        (all.ul_packets, all.dl_packets) == (counters.ul_packets, counters.dl_packets)
    };
    eventually(all, || format!("{:?}", net.handle.counters()));
    let Message::SessionDeletionResponse(r) = net.ask(Some(id.seid()), SessionDeletionRequest {}.into())
    else {
        panic!()
    };
    let usage = r.usage_reports[0].volume_measurement.unwrap();
    assert_eq!((usage.ul, usage.dl), (Some(counters.ul_octets), Some(counters.dl_octets)));
    // A session that is gone has no packet forwarded.
    assert!(!ping(&gnb, teid, ue, sequence, PERHAPS));
    assert_eq!(net.handle.io_counters().fast_no_room, 0);
}

#[test]
fn ipv6_packets_of_a_ue_are_the_drivers_too() {
    let test = "ipv6_packets_of_a_ue_are_the_drivers_too";
    if !inside(test) {
        return;
    }
    let (ran, server) = (Namespace::ran(), Namespace::server());
    ran.takes_redirected("gnb");
    server.takes_redirected("server");
    server.sh("ip route add 2001:db8:45::/48 via 2001:db8:113::1");
    let mut config = fast();
    config.devices[0].link.as_mut().unwrap().routers.push(SERVER_IPV6.into());
    let Some(mut net) = Control::start(config) else { return };
    let (id, teid, _, ue) = net.session();
    let gnb = ran.socket(GNB.into());
    let begun = Instant::now();
    let (mut sequence, mut back) = (0u16, 0);
    while net.handle.io_counters().fast_uplink < 100 || net.handle.io_counters().fast_downlink < 100 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", net.handle.io_counters());
        sequence += 1;
        gnb.send_to(&g_pdu(teid, &ping6(ue, SERVER_IPV6, sequence, 56)), (UPF, 2152)).unwrap();
        while let Some(message) = answered(&gnb, SURELY) {
            let message = Gtpu::parse(&message).unwrap();
            if message.payload.get(46..48) == Some(&sequence.to_be_bytes()) {
                assert_eq!((message.teid, message.payload[7], message.payload.len()), (GNB_TEID, 63, 104));
                back += 1;
                break;
            }
        }
    }
    // Another UE's address.
    let other = Ipv6Addr::from_bits(ue.to_bits() + (1 << 64));
    gnb.send_to(&g_pdu(teid, &ping6(other, SERVER_IPV6, 1, 56)), (UPF, 2152)).unwrap();
    let spoofed = || net.handle.counters().dropped(DropReason::SpoofedSource) == 1;
    eventually(spoofed, || format!("{:?}", net.handle.counters()));
    let counters = net.session_counters(id);
    assert!(counters.ul_packets >= back && counters.dl_packets >= back, "{back} {counters:?}");
    assert_eq!(counters.ul_octets, counters.ul_packets * 104);
    assert_eq!(net.handle.io_counters().fast_no_room, 0);
}

#[test]
fn a_change_of_rules_holds_for_the_next_packet() {
    let Some((mut net, ran, _server)) = scene("a_change_of_rules_holds_for_the_next_packet") else { return };
    let (id, teid, ue, _) = net.session();
    let gnb = ran.socket(GNB.into());
    let mut sequence = 1;
    let gate =
        |ul| UpdateQer { gate_status: Some(GateStatus { ul, dl: Gate::Open }), ..UpdateQer::new(QerId(1)) };
    for _ in 0..20 {
        (_, sequence) = until_fast(&net, &gnb, teid, ue, sequence);
        let before = net.session_counters(id);
        let closed =
            SessionModificationRequest { update_qers: vec![gate(Gate::Closed)], ..Default::default() };
        net.ask(Some(id.seid()), closed.into());
        gnb.send_to(&g_pdu(teid, &ping4(ue, SERVER, 1, 56)), (UPF, 2152)).unwrap();
        let after = || net.session_counters(id);
        eventually(|| after().dropped == before.dropped + 1, || format!("{before:?} {:?}", after()));
        assert_eq!(after().ul_packets, before.ul_packets);
        let open = SessionModificationRequest { update_qers: vec![gate(Gate::Open)], ..Default::default() };
        net.ask(Some(id.seid()), open.into());
        assert!(ping(&gnb, teid, ue, sequence, SURELY));
        sequence = sequence.wrapping_add(1);
    }
}

/// Puts a session on another of the gNB's tunnels.
fn switch(net: &mut Control, id: SessionId, teid: Teid) {
    let mut forwarding = UpdateForwardingParameters::new();
    forwarding.outer_header_creation = Some(OuterHeaderCreation::gtpu(teid, GNB.into()));
    forwarding.pfcpsmreq_flags = Some(SessionModificationFlags::SNDEM);
    let update_forwarding_parameters = Some(forwarding);
    let update_fars = vec![UpdateFar { update_forwarding_parameters, ..UpdateFar::new(FarId(2)) }];
    net.ask(Some(id.seid()), SessionModificationRequest { update_fars, ..Default::default() }.into());
}

/// The numbers of the packets that still come: whether one was lost, or overtaken.
fn numbers(gnb: &UdpSocket) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(octets) = answered(gnb, PERHAPS).filter(|_| numbers.len() < 100) {
        let message = Gtpu::parse(&octets).unwrap();
        let number = message.payload.get(28..36).filter(|_| message.payload.get(9) == Some(&17));
        numbers.extend(number.map(|o| u64::from_be_bytes(o.try_into().unwrap())));
    }
    numbers
}

#[test] // TS 23.501 §5.8.2.9, with packets in the driver's hands all the while
fn an_end_marker_comes_behind_the_last_packet_of_its_tunnel() {
    let Some((mut net, ran, server)) = scene("an_end_marker_comes_behind_the_last_packet_of_its_tunnel")
    else {
        return;
    };
    let (id, teid, ue, _) = net.session();
    let (gnb, socket) = (ran.socket(GNB.into()), server.socket(SERVER.into()));
    until_fast(&net, &gnb, teid, ue, 1);
    // No more on the way than finds room.
    let (sent, came) = (AtomicU64::new(0), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let send = || {
        while !over.load(Ordering::Relaxed) {
            if sent.load(Ordering::Relaxed) < came.load(Ordering::Relaxed) + 64 {
                socket.send_to(&sent.fetch_add(1, Ordering::Relaxed).to_be_bytes(), (ue, 9)).unwrap();
            } else {
                std::thread::yield_now();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(send);
        let ended = AssociationEnd(&over);
        let mut next = 0;
        for round in 0..40 {
            let (old, new) = (Teid(GNB_TEID.0 + round), Teid(GNB_TEID.0 + round + 1));
            let (fast, mut switched, mut marker, mut behind) =
                (net.handle.io_counters().fast_downlink, false, false, 0);
            let begun = Instant::now();
            while !marker || behind < 100 {
                assert!(
                    begun.elapsed() < SURELY,
                    "{round}: {marker} {behind} {:?}",
                    net.handle.io_counters()
                );
                let Some(octets) = answered(&gnb, SURELY) else { panic!("nothing comes") };
                let message = Gtpu::parse(&octets).unwrap();
                if message.message_type == message_type::END_MARKER {
                    assert_eq!((message.teid, marker), (old, false));
                    marker = true;
                } else if message.payload.get(9) == Some(&17) {
                    came.fetch_add(1, Ordering::Relaxed);
                    let number = u64::from_be_bytes(message.payload[28..36].try_into().unwrap());
                    if number != next {
                        panic!("{round}: {number} in place of {next}, and behind it {:?}", numbers(&gnb));
                    }
                    next += 1;
                    assert!(
                        message.teid == new || message.teid == old && !marker,
                        "{round}: {:?}",
                        message.teid
                    );
                    behind += u64::from(marker);
                }
                if !switched && net.handle.io_counters().fast_downlink > fast + 100 {
                    switch(&mut net, id, new);
                    switched = true;
                }
            }
        }
        drop(ended);
    });
}

/// Has a thread end, whatever becomes of this one.
struct AssociationEnd<'a>(&'a AtomicBool);

impl Drop for AssociationEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn neighbours_that_the_operator_has_set_stay_so() {
    let Some((mut net, ran, server)) = scene("neighbours_that_the_operator_has_set_stay_so") else { return };
    let set = |there: &Namespace, interface, address: Ipv4Addr, own| {
        let text = there.sh(&format!("ip -o link show {interface}"));
        let mac = text.split("link/ether ").nth(1).and_then(|t| t.split(' ').next()).unwrap().to_owned();
        // What we tell the kernel in the same moment (that it is used) has the kernel ask it, and then it is no operator's any more.
        for _ in 0..50 {
            sh(&format!("ip neigh replace {address} lladdr {mac} dev {own} nud permanent"));
            std::thread::sleep(Duration::from_millis(100));
            if sh(&format!("ip -4 neigh show {address}")).contains("PERMANENT") {
                return;
            }
        }
    };
    set(&ran, "gnb", GNB, "n3");
    set(&server, "server", SERVER, "n6");
    let (_, teid, ue, _) = net.session();
    let gnb = ran.socket(GNB.into());
    let (begun, mut sequence) = (Instant::now(), 1);
    // Longer than a neighbour entry is valid.
    while begun.elapsed() < Duration::from_millis(2_500) {
        (_, sequence) = until_fast(&net, &gnb, teid, ue, sequence);
    }
    assert_eq!(sh("ip -4 neigh").matches("PERMANENT").count(), 2, "{}", sh("ip -4 neigh"));
}

#[test]
fn a_capture_has_the_packets_that_the_driver_would_forward() {
    let Some((mut net, ran, _server)) = scene("a_capture_has_the_packets_that_the_driver_would_forward")
    else {
        return;
    };
    let (_, teid, ue, _) = net.session();
    let gnb = ran.socket(GNB.into());
    let (_, mut sequence) = until_fast(&net, &gnb, teid, ue, 1);
    net.handle.tap(true);
    let captured = |sequence: u16| {
        assert!(ping(&gnb, teid, ue, sequence, SURELY));
        let copies = net.handle.take_tapped();
        let has =
            |c: &whimbrel_user_io::TappedDatagram| c.octets.windows(2).any(|w| w == sequence.to_be_bytes());
        copies.iter().filter(|c| has(c)).count() >= 2
    };
    let begun = Instant::now();
    // Some may be on their way when it begins; then each has two copies.
    while !captured(sequence) {
        sequence = sequence.wrapping_add(1);
        assert!(begun.elapsed() < Duration::from_secs(20), "copies");
    }
    sequence = sequence.wrapping_add(1);
    assert!((0..50).all(|i| captured(sequence.wrapping_add(i))), "each from then on");
    net.handle.tap(false);
    until_fast(&net, &gnb, teid, ue, sequence.wrapping_add(50));
}

#[test]
fn without_an_interface_for_a_data_network_it_is_one_sentence() {
    if !inside("without_an_interface_for_a_data_network_it_is_one_sentence") {
        return;
    }
    let _ran = Namespace::ran();
    let text = UserPlane::start(config(N3Io::Xdp)).err().expect("refused").to_string();
    assert!(text.contains("a data network with `n6_interface` and an IPv4 router"), "{text}");
}
