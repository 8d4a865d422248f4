//! UEs reach the world through the real sockets, rings and devices: gNB, UPF, TUN device, address translation, a server,
//! and back; with each kind of N3's I/O.

use super::common;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use common::*;
use whimbrel_gtpu::Gtpu;
use whimbrel_gtpu::signalling::{echo_request, echo_response};
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_user::{SessionId, UserPlaneChange};
use whimbrel_user_io::{Config, FramesDevice, N3Io, Notice, StartError, UserPlane};

#[test]
fn a_ue_pings_a_server_and_the_host_is_as_before() {
    with_each_io("a_ue_pings_a_server_and_the_host_is_as_before", |io, ran| {
        let _server = Namespace::server();
        peculiar_host();
        let before = host();
        let mut config = config(io);
        config.devices[0].nat = true;
        let Some(mut net) = Control::start(config) else { return };
        // Only root may have the kernel steer packets to threads.
        let missing = net.handle.notices().iter().find(|n| !matches!(n, Notice::Steering(_)));
        assert!(missing.is_none(), "{missing:?}");
        for line in net.handle.host_changes() {
            eprintln!("{line}");
        }
        let (id, teid, ue, _) = net.session();
        let gnb = ran.socket(GNB.into());
        for sequence in 0..100 {
            gnb.send_to(&g_pdu(teid, &ping4(ue, SERVER, sequence, 1300)), (UPF, 2152)).unwrap();
            let (qfi, reply) = receive(&gnb);
            assert_eq!(qfi, 9);
            assert_eq!(
                (reply[12..16].to_vec(), reply[16..20].to_vec()),
                (SERVER.octets().to_vec(), ue.octets().to_vec())
            );
            assert_eq!((reply[20], &reply[26..28]), (0, &sequence.to_be_bytes()[..]), "echo reply");
            assert_eq!(reply.len(), 1328);
        }
        let counters = net.session_counters(id);
        assert_eq!((counters.ul_packets, counters.dl_packets, counters.dl_octets), (100, 100, 132_800));
        // Usage reaches the SMF through both threads.
        let Message::SessionDeletionResponse(r) = net.ask(Some(id.seid()), SessionDeletionRequest {}.into())
        else {
            panic!()
        };
        let usage = r.usage_reports[0].volume_measurement.unwrap();
        assert_eq!((usage.ul, usage.dl), (Some(132_800), Some(132_800)));
        net.handle.stop().unwrap();
        assert_eq!(host(), before, "the host is as it was");
    });
}

#[test] // TS 23.501 §5.6.10.2: a UE's frames reach a bridge of the host, and what answers there reaches the UE
fn a_ue_finds_a_host_behind_the_bridge_by_arp() {
    with_each_io("a_ue_finds_a_host_behind_the_bridge_by_arp", |io, ran| {
        sh("ip link add br0 type bridge; ip link set br0 up; ip address add 198.51.100.1/24 dev br0");
        let mut config = config(io);
        config.user.data_networks[0].ethernet = true;
        let bridge = Some("br0".to_owned());
        config.devices[0].frames = Some(FramesDevice { device: "upf-eth".into(), bridge });
        let Some(mut net) = Control::start(config) else { return };
        let r = net.establish(PdnType::Ethernet);
        let Some(FTeid::Given { teid, .. }) = r.created_pdrs[0].local_f_teid else { panic!() };
        let gnb = ran.socket(GNB.into());
        let own = [2, 0, 0, 0, 0, 0x77];
        // ARP (RFC 826): 198.51.100.9 asks for 198.51.100.1.
        let mut request = [&[0xff; 6][..], &own, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &own].concat();
        request.extend_from_slice(&[198, 51, 100, 9, 0, 0, 0, 0, 0, 0, 198, 51, 100, 1]);
        // A port of a bridge may take its time until it forwards.
        gnb.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut b = [0; 4096];
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < end, "no answer");
            gnb.send_to(&g_pdu(teid, &request), (UPF, 2152)).unwrap();
            let Ok((n, _)) = gnb.recv_from(&mut b) else { continue };
            let m = Gtpu::parse(&b[..n]).unwrap();
            // The host's own chatter comes to every port.
            if m.payload.get(12..22) == Some(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]) {
                assert_eq!((m.teid, &m.payload[..6]), (GNB_TEID, &own[..]), "a reply to the UE");
                assert_eq!(m.payload[28..32], [198, 51, 100, 1]);
                break;
            }
        }
    });
}

#[test]
fn a_burst_of_packets_passes_whole_and_in_order() {
    with_each_io("a_burst_of_packets_passes_whole_and_in_order", |io, ran| {
        let Some(mut net) = Control::start(config(io)) else { return };
        let (_, teid, ue, _) = net.session();
        let gnb = ran.socket(GNB.into());
        let gateway = Ipv4Addr::new(10, 45, 0, 1);
        for round in 0..20u16 {
            for i in 0..50 {
                gnb.send_to(&g_pdu(teid, &ping4(ue, gateway, round * 50 + i, 64)), (UPF, 2152)).unwrap();
            }
            for i in 0..50 {
                let (_, reply) = receive(&gnb);
                assert_eq!(reply[26..28], (round * 50 + i).to_be_bytes());
            }
        }
        let io = net.handle.io_counters();
        assert_eq!((io.send_errors, io.receive_errors, io.send_full), (0, 0, 0));
    });
}

#[test] // TS 29.281 §4.4: GTP-U over IPv6
fn gnb_is_reached_over_ipv6() {
    with_each_io("gnb_is_reached_over_ipv6", |io, ran| {
        let mut config = config(io);
        config.user.n3_ipv6 = Some(UPF_IPV6);
        let Some(Control { handle, .. }) = Control::start(config) else { return };
        let gnb = ran.socket(GNB_IPV6.into());
        // A busy kernel may take a while to make the route to an address that it has just been given, and what is sent until
        // then is lost. A gNB repeats its ECHO REQUEST (TS 29.281 §11); so do we.
        let answer = (0..100).find_map(|_| {
            gnb.send_to(echo_request(5).as_ref(), (UPF_IPV6, 2152)).ok()?;
            answered(&gnb, Duration::from_millis(200))
        });
        let answer = answer.unwrap_or_else(|| panic!("no answer; {:?}", handle.io_counters()));
        assert_eq!(answer, echo_response(5).as_ref());
        handle.stop().unwrap();
    });
}

#[test] // RFC 791 §3.2, RFC 8200 §4.5: the outer packet is fragmented in both directions
fn a_packet_that_is_too_long_for_n3_goes_in_fragments() {
    with_each_io("a_packet_that_is_too_long_for_n3_goes_in_fragments", |io, ran| {
        let mut config = config(io);
        config.user.data_networks[0].mtu = 1500;
        let Some(mut net) = Control::start(config) else { return };
        let (_, teid, ue, _) = net.session();
        let gnb = ran.socket(GNB.into());
        let gateway = Ipv4Addr::new(10, 45, 0, 1);
        for sequence in 0..40 {
            let payload = [1472, 1430, 8, 1471][usize::from(sequence % 4)];
            gnb.send_to(&g_pdu(teid, &ping4(ue, gateway, sequence, payload)), (UPF, 2152)).unwrap();
            let (_, reply) = receive(&gnb);
            assert_eq!((reply.len(), &reply[26..28]), (28 + payload, &sequence.to_be_bytes()[..]));
            assert!(reply[28..].iter().all(|&b| b == 0x5a));
        }
        // Many at once, which the kernel takes as one message where it can cut it.
        for payload in [1472, 1300, 1472] {
            for sequence in 0..30 {
                gnb.send_to(&g_pdu(teid, &ping4(ue, gateway, sequence, payload)), (UPF, 2152)).unwrap();
            }
            for sequence in 0..30u16 {
                let (_, reply) = receive(&gnb);
                assert_eq!((reply.len(), &reply[26..28]), (28 + payload, &sequence.to_be_bytes()[..]));
            }
        }
        let io = net.handle.io_counters();
        assert_eq!((io.send_errors, io.malformed), (0, 0));
    });
}

#[test] // RFC 768: a datagram with a wrong checksum is lost before the UPF, one without a checksum is not
fn a_datagram_with_a_wrong_checksum_is_dropped() {
    with_each_io("a_datagram_with_a_wrong_checksum_is_dropped", |io, ran| {
        let Some(net) = Control::start(config(io)) else { return };
        let (gnb, raw) = (ran.socket(GNB.into()), ran.raw_socket(UPF.into()));
        let datagram = |checksum: u16| {
            let message = echo_request(7);
            let octets = (8 + message.as_ref().len()) as u16;
            let words = [2152, 2152, octets, checksum].map(u16::to_be_bytes);
            [words.as_flattened(), message.as_ref()].concat()
        };
        raw.send(&datagram(0x1234)).unwrap();
        raw.send(&datagram(0)).unwrap();
        assert_eq!(answered(&gnb, SURELY).as_deref(), Some(echo_response(7).as_ref()));
        assert_eq!(answered(&gnb, Duration::from_millis(100)), None, "one answer");
        // The kernel drops it else.
        let malformed = || net.handle.io_counters().malformed;
        eventually(|| malformed() == u64::from(io == N3Io::AfXdp), || format!("{}", malformed()));
    });
}

#[test]
fn what_is_not_gtpu_for_the_upf_stays_with_the_host() {
    with_each_io("what_is_not_gtpu_for_the_upf_stays_with_the_host", |io, ran| {
        let Some(_net) = Control::start(config(io)) else { return };
        let gnb = ran.socket(GNB.into());
        let other_port = UdpSocket::bind((UPF, 2153)).unwrap();
        gnb.send_to(b"to another port", (UPF, 2153)).unwrap();
        assert_eq!(answered(&other_port, SURELY).as_deref(), Some(&b"to another port"[..]));
        sh("ip address add 192.0.2.8/24 dev n3");
        let other_address = UdpSocket::bind((Ipv4Addr::new(192, 0, 2, 8), 2152)).unwrap();
        gnb.send_to(b"to another address", (Ipv4Addr::new(192, 0, 2, 8), 2152)).unwrap();
        let there = answered(&other_address, SURELY);
        assert_eq!(there.as_deref(), Some(&b"to another address"[..]));
        let listener = std::net::TcpListener::bind((UPF, 2152)).unwrap();
        let connected = ran.connect((UPF, 2152).into());
        assert_eq!(listener.accept().unwrap().1.ip(), connected.local_addr().unwrap().ip());
    });
}

#[test]
fn a_gnb_that_gets_another_ethernet_address_is_reached_again() {
    with_each_io("a_gnb_that_gets_another_ethernet_address_is_reached_again", |io, ran| {
        let Some(net) = Control::start(config(io)) else { return };
        let gnb = ran.socket(GNB.into());
        let asked = |within| {
            gnb.send_to(echo_request(1).as_ref(), (UPF, 2152)).unwrap();
            answered(&gnb, within)
        };
        assert!((0..50).any(|_| asked(Duration::from_millis(100)).is_some()));
        if io == N3Io::AfXdp {
            let by_rings = || {
                let io = net.handle.io_counters();
                asked(Duration::from_millis(50));
                io.n3_sent > io.n3_sent_by_socket
            };
            eventually(by_rings, || format!("the neighbour becomes known: {:?}", net.handle.io_counters()));
        }
        ran.sh("ip link set gnb down; ip link set gnb address 02:00:00:00:00:77; ip link set gnb up");
        assert!(
            (0..100).any(|_| asked(Duration::from_millis(100)).is_some()),
            "{:?}",
            net.handle.io_counters()
        );
    });
}

#[test] // which cannot be polled: the log says so
fn af_xdp_on_a_bridge_works_behind_the_driver() {
    if !inside("af_xdp_on_a_bridge_works_behind_the_driver") {
        return;
    }
    let ran = Namespace::ran();
    sh("ip address flush dev n3; ip link add br0 type bridge; ip link set n3 master br0; ip link set br0 up
        ip address add 192.0.2.7/24 dev br0");
    let Some(net) = Control::start(Config { busy_poll: Duration::from_millis(1), ..config(N3Io::AfXdp) })
    else {
        return;
    };
    let rings = net.handle.rings().unwrap();
    assert_eq!((rings.interface.as_str(), rings.in_driver, rings.zero_copy), ("br0", false, false));
    let notices = net.handle.notices().iter().map(ToString::to_string).collect::<String>();
    assert!(notices.contains("br0 has its XDP program behind the driver"), "{notices}");
    let gnb = ran.socket(GNB.into());
    let by_rings = || {
        let io = net.handle.io_counters();
        gnb.send_to(echo_request(1).as_ref(), (UPF, 2152)).unwrap();
        answered(&gnb, Duration::from_millis(50)).is_some() && io.n3_sent > io.n3_sent_by_socket
    };
    // A port of a bridge may take its time until it forwards.
    eventually(by_rings, || format!("{:?}", net.handle.io_counters()));
}

#[test]
fn af_xdp_takes_each_queue_of_an_interface() {
    if !inside("af_xdp_takes_each_queue_of_an_interface") {
        return;
    }
    let ran = Namespace::ran();
    sh("ip link delete n3; ip link add n3 numrxqueues 3 numtxqueues 3 type veth peer name x; ip link set n3 up
        ip address add 192.0.2.7/24 dev n3");
    drop(ran);
    let Some(net) = Control::start(config(N3Io::AfXdp)) else { return };
    assert_eq!(net.handle.rings().unwrap().queues, 3);
}

#[test]
fn af_xdp_that_cannot_be_had_is_one_sentence_and_auto_goes_without() {
    if !inside("af_xdp_that_cannot_be_had_is_one_sentence_and_auto_goes_without") {
        return;
    }
    let _ran = Namespace::ran();
    let on_loopback = |n3_io| {
        let mut config = config(n3_io);
        config.user.n3_ipv4 = Some(Ipv4Addr::LOCALHOST);
        UserPlane::start(config)
    };
    let text = on_loopback(N3Io::AfXdp).err().expect("refused").to_string();
    assert!(text.contains("it would be on lo, which is no Ethernet interface"), "{text}");
    let handle = on_loopback(N3Io::Auto).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(handle.rings(), None);
    assert!(handle.obstacle().unwrap().to_string().contains("on lo, which"));
    drop(handle);
    let handle = UserPlane::start(config(N3Io::Auto)).unwrap_or_else(|e| panic!("{e}"));
    let text = handle.obstacle().unwrap().to_string();
    assert!(
        handle.rings().is_none() && (text.contains("no zero-copy") || text.contains("does not say")),
        "{text}"
    );
}

#[test]
fn each_missing_thing_is_one_sentence() {
    if !inside("each_missing_thing_is_one_sentence") {
        return;
    }
    let _ran = Namespace::ran();
    let refused = |config: Config| UserPlane::start(config).err().expect("refused").to_string();
    let holder = UdpSocket::bind((UPF, 2152)).unwrap();
    let text = refused(config(N3Io::Udp));
    assert!(text.contains("another program has UDP port 2152 on 192.0.2.7"), "{text}");
    drop(holder);
    let mut wrong = config(N3Io::Udp);
    wrong.user.n3_ipv4 = Some(Ipv4Addr::new(198, 51, 100, 1));
    let text = refused(wrong);
    assert!(text.contains("this host has no address 198.51.100.1"), "{text}");
    let first = UserPlane::start(config(N3Io::Udp)).unwrap_or_else(|e| panic!("{e}"));
    let mut second = config(N3Io::Udp);
    second.user.n3_ipv4 = Some(Ipv4Addr::new(127, 0, 0, 8));
    let text = refused(second);
    assert!(text.contains("another program has the interface upf0"), "{text}");
    drop(first);
    let mut none = config(N3Io::Udp);
    none.devices.clear();
    assert!(matches!(UserPlane::start(none), Err(StartError::Devices { devices: 0, networks: 1 })));
}

#[test] // a program that was killed leaves a note, and its successor puts the host back
fn settings_of_a_killed_predecessor_are_put_back() {
    if !inside("settings_of_a_killed_predecessor_are_put_back") {
        return;
    }
    let _ran = Namespace::ran();
    let journal = std::env::temp_dir().join(format!("whimbrel-journal-{}", std::process::id()));
    peculiar_host();
    let with_journal = || Config { journal: Some(journal.clone()), ..config(N3Io::Udp) };
    let before = host();
    let killed = UserPlane::start(with_journal()).unwrap_or_else(|e| panic!("{e}"));
    let note = fs::read_to_string(&journal).unwrap();
    killed.stop().unwrap();
    assert!(!journal.exists());
    // As a kill would leave it: changed, with the note.
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    fs::write(&journal, note).unwrap();
    UserPlane::start(with_journal()).unwrap_or_else(|e| panic!("{e}")).stop().unwrap();
    assert_eq!(host(), before);
    assert!(!journal.exists());
}

#[test]
fn changes_reach_the_packet_thread_without_sockets() {
    let config = config(N3Io::Udp);
    let (handle, memory) = UserPlane::start_in_memory(config.clone()).unwrap_or_else(|e| panic!("{e}"));
    let echo = echo_request(3);
    let origin = whimbrel_user::Origin::N3 { peer: SocketAddr::new(GNB.into(), 2152), local: UPF.into() };
    assert!(memory.put(origin, echo.as_ref()));
    let unknown = SessionId { index: 0, generation: 0 };
    assert_eq!(handle.session_counters(unknown), None);
    handle
        .apply(UserPlaneChange::Remove { session: unknown, token: Some(whimbrel_user::UsageToken(1)) })
        .unwrap();
    let end = Instant::now() + SURELY;
    let (mut sent, mut reports) = (vec![], vec![]);
    while (sent.is_empty() || reports.is_empty()) && Instant::now() < end {
        sent.extend(memory.take());
        reports.extend(handle.take_reports());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].1, echo_response(3).as_ref());
    assert_eq!(reports.len(), 1);
    assert_eq!(handle.take_tapped(), [], "nothing is copied unless asked for");
    handle.tap(true);
    assert!(memory.put(origin, echo.as_ref()));
    let mut copies = vec![];
    while copies.len() < 2 && Instant::now() < end {
        copies.extend(handle.take_tapped());
        std::thread::sleep(Duration::from_millis(1));
    }
    let [asked, answered] = &copies[..] else { panic!("{copies:?}") };
    let (upf, gnb) = (SocketAddr::new(UPF.into(), 2152), SocketAddr::new(GNB.into(), 2152));
    assert_eq!((asked.from, asked.to, &asked.octets[..]), (gnb, upf, echo.as_ref()));
    assert_eq!((answered.from, answered.to), (upf, gnb));
    assert_eq!(answered.octets, echo_response(3).as_ref());
    assert_eq!(handle.tapped_lost(), 0);
    assert!(handle.is_running());
    handle.stop().unwrap();
}

#[test]
fn an_interface_that_goes_away_takes_no_more_than_its_packets() {
    with_each_io("an_interface_that_goes_away_takes_no_more_than_its_packets", |io, ran| {
        let Some(net) = Control::start(config(io)) else { return };
        let gnb = ran.socket(GNB.into());
        // What was asked before may be answered late.
        let asked = |number| {
            gnb.send_to(echo_request(number).as_ref(), (UPF, 2152)).ok()?;
            let own = |m: &Vec<u8>| *m == echo_response(number).as_ref();
            std::iter::from_fn(|| answered(&gnb, Duration::from_millis(100))).find(own)
        };
        assert!((0..100).any(|n| asked(n).is_some()));
        sh("ip link set n3 down");
        assert_eq!(asked(100), None);
        sh("ip link set n3 up");
        assert!((101..200).any(|n| asked(n).is_some()), "{:?}", net.handle.io_counters());
        sh("ip link delete n3");
        // What is left: a gNB on this host, by the loopback interface.
        sh("ip address add 192.0.2.7/32 dev lo; ip address add 192.0.2.10/32 dev lo");
        let gnb = UdpSocket::bind("192.0.2.10:2152").unwrap();
        let asked = || {
            gnb.send_to(echo_request(2).as_ref(), (UPF, 2152)).ok()?;
            answered(&gnb, Duration::from_millis(100))
        };
        assert!((0..100).any(|_| asked().is_some()), "{:?}", net.handle.io_counters());
        assert!(net.handle.is_running());
        net.handle.stop().unwrap();
    });
}
