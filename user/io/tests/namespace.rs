//! A ping from a phone through the real sockets and devices: gNB socket, UPF, TUN device, address translation, a server
//! in another network namespace, and back. Each test runs itself again inside namespaces of its own, as root of a user
//! namespace where it is not root already; where the host permits neither, it says so and passes.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use whimbrel_gtpu::{GpduHeader, Gtpu, PduSessionInformation, message_type};
use whimbrel_ids::{Qfi, Seid, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::{Change, DataNetwork, Input, Ipv4Net, Ipv6Net, Outbox, SessionId, UpfC};
use whimbrel_user_io::{Config, FramesDevice, Handle, StartError, UserPlane};

const INSIDE: &str = "WHIMBREL_INSIDE_NAMESPACE";
const UPF: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 7);
const GNB: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const SMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3)), 8805);
const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
const GNB_TEID: Teid = Teid(0x6e62_0001);

/// Runs the named test in namespaces of its own; true if that is where we are already.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        sh("ip link set lo up");
        return true;
    }
    if fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_err() {
        eprintln!("skipped: /dev/net/tun cannot be opened here");
        return false;
    }
    // Everything from here on happens in a network namespace that ends with the process.
    let root = fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    let flags = if root { "-n" } else { "-Urn" };
    let permitted = Command::new("unshare").args([flags, "true"]).stderr(Stdio::null()).status();
    if !permitted.is_ok_and(|s| s.success()) {
        eprintln!("skipped: unshare {flags} is not permitted here");
        return false;
    }
    let exe = std::env::current_exe().unwrap();
    let status = Command::new("unshare")
        .arg(flags)
        .arg(exe)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success());
    false
}

fn sh(command: &str) -> String {
    let out = Command::new("sh").args(["-ec", command]).output().unwrap();
    assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// The server's namespace, kept alive by a process in it.
struct Server(Child);

impl Server {
    fn start() -> Self {
        let child = Command::new("unshare").args(["-n", "sleep", "60"]).spawn().unwrap();
        let (pid, own) = (child.id(), fs::read_link("/proc/self/ns/net").unwrap());
        let other = || fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|l| l != own);
        let end = Instant::now() + Duration::from_secs(5);
        while !other() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        sh(&format!(
            "ip link add n6 type veth peer name server
             ip link set server netns {pid}
             ip address add 203.0.113.1/24 dev n6
             ip address add 2001:db8:113::1/64 dev n6 nodad
             ip link set n6 up
             nsenter -t {pid} -n ip address add 203.0.113.2/24 dev server
             nsenter -t {pid} -n ip address add 2001:db8:113::2/64 dev server nodad
             nsenter -t {pid} -n ip link set server up"
        ));
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn config() -> Config {
    let user = whimbrel_user::Config {
        node_id: NodeId::Ipv4(UPF),
        n4: UPF.into(),
        n3_ipv4: Some(UPF),
        n3_ipv6: None,
        data_networks: vec![DataNetwork {
            dnn: "internet".parse().unwrap(),
            ipv4_pools: vec![Ipv4Net { address: Ipv4Addr::new(10, 45, 0, 0), prefix: 16 }],
            ipv6_pools: vec![Ipv6Net { address: "2001:db8:45::".parse().unwrap(), prefix: 48 }],
            dns_ipv6: vec![],
            mtu: 1400,
            ethernet: false,
            unstructured: None,
            reserved: Vec::new(),
        }],
        sessions_max: 100,
        heartbeat_interval: None,
        path_failure: whimbrel_user::Config::PATH_FAILURE,
        echo_interval: None,
        cp_port: 8805,
        seed: 7,
    };
    Config { forwarding: true, ..Config::new(user, "upf") }
}

/// The control side by function calls, the packet side by its handle.
struct Control {
    c: UpfC,
    handle: Handle,
    config: Config,
    sequence: u32,
}

impl Control {
    fn start(config: Config) -> Self {
        let handle = UserPlane::start(config.clone()).unwrap_or_else(|e| panic!("{e}"));
        let c = UpfC::new(config.user.clone(), (config.clock)()).unwrap();
        let mut it = Self { c, handle, config, sequence: 1 };
        it.ask(
            None,
            AssociationSetupRequest {
                node_id: NodeId::from(SMF.ip()),
                recovery_time_stamp: RecoveryTimeStamp(1),
                up_function_features: None,
                cp_function_features: None,
                user_plane_ip_resource_information: vec![],
                session_retention_information: None,
            }
            .into(),
        );
        it
    }

    fn ask(&mut self, seid: Option<Seid>, m: Message) -> Message {
        let mut out = Outbox::default();
        let octets = m.to_octets(seid, self.sequence);
        self.sequence += 1;
        self.c.handle((self.config.clock)(), Input::Pfcp { peer: SMF, octets: &octets }, &mut out);
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            for change in out.changes.drain(..) {
                let _: Result<(), _> = self.handle.apply(change);
            }
            if let Some((_, answer)) = out.datagrams.pop() {
                return Message::parse(&Frame::parse(&answer).unwrap()).unwrap();
            }
            assert!(Instant::now() < end, "no answer");
            std::thread::sleep(Duration::from_millis(1));
            for report in self.handle.take_reports() {
                self.c.handle((self.config.clock)(), Input::Report(report), &mut out);
            }
        }
    }

    /// A session with the gNB's tunnel known: its id, its tunnel, the phone's addresses.
    fn session(&mut self) -> (SessionId, Teid, Ipv4Addr, std::net::Ipv6Addr) {
        let r = self.establish(PdnType::Ipv4v6);
        let pdr = &r.created_pdrs[0];
        let Some(FTeid::Given { teid, .. }) = pdr.local_f_teid else { panic!() };
        let address = pdr.ue_ip_addresses[0];
        let id = SessionId::from_seid(r.up_f_seid.unwrap().seid).unwrap();
        (id, teid, address.ipv4.unwrap().given().unwrap(), address.ipv6.unwrap().given().unwrap())
    }

    fn establish(&mut self, pdn_type: PdnType) -> SessionEstablishmentResponse {
        let addresses = |destination| match pdn_type {
            PdnType::Ipv4v6 => vec![ue(destination)],
            _ => vec![],
        };
        let ue_ip_addresses = addresses(false);
        let up = Pdi {
            f_teid: Some(FTeid::Choose { ipv4: true, ipv6: false, choose_id: None }),
            ue_ip_addresses,
            ..Pdi::from(SourceInterface::Access)
        };
        let down = Pdi { ue_ip_addresses: addresses(true), ..Pdi::from(SourceInterface::Core) };
        let to_gnb = ForwardingParameters {
            outer_header_creation: Some(OuterHeaderCreation::gtpu(GNB_TEID, GNB.into())),
            transport_level_marking: Some(TransportLevelMarking { value: 0xb8, mask: 0xfc }),
            ..ForwardingParameters::to(DestinationInterface::Access)
        };
        let with = |pdr: CreatePdr| CreatePdr { qer_ids: vec![QerId(1)], urr_ids: vec![UrrId(1)], ..pdr };
        let m = SessionEstablishmentRequest {
            create_pdrs: vec![
                with(CreatePdr::new(PdrId(1), Precedence(255), up, FarId(1))),
                with(CreatePdr::new(PdrId(2), Precedence(255), down, FarId(2))),
            ],
            create_fars: vec![
                CreateFar::forward(FarId(1), ForwardingParameters::to(DestinationInterface::Core)),
                CreateFar::forward(FarId(2), to_gnb),
            ],
            create_qers: vec![CreateQer { qfi: Qfi::new(9), ..CreateQer::new(QerId(1)) }],
            create_urrs: vec![CreateUrr::new(
                UrrId(1),
                MeasurementMethod::VOLUM,
                ReportingTriggers::default(),
            )],
            pdn_type: Some(pdn_type),
            ..SessionEstablishmentRequest::new(NodeId::from(SMF.ip()), FSeid::new(Seid(1), SMF.ip()))
        };
        let Message::SessionEstablishmentResponse(r) = self.ask(Some(Seid(0)), m.into()) else { panic!() };
        assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
        *r
    }
}

/// Addresses that the UPF is to choose.
fn ue(destination: bool) -> UeIpAddress {
    let (ipv4, ipv6) = (Some(Choice::Choose), Some(Choice::Choose));
    UeIpAddress { destination, ipv4, ipv6, ..UeIpAddress::default() }
}

fn checksum(octets: &[u8], start: u32) -> u16 {
    let words = octets.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)])));
    let mut sum = start + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn ping4(source: Ipv4Addr, destination: Ipv4Addr, sequence: u16, payload: usize) -> Vec<u8> {
    let len = 28 + payload;
    let mut p = vec![0x45, 0, (len >> 8) as u8, len as u8, 0, 1, 0, 0, 64, 1, 0, 0];
    p.extend_from_slice(&source.octets());
    p.extend_from_slice(&destination.octets());
    let sum = checksum(&p, 0);
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    p.extend_from_slice(&[8, 0, 0, 0, 0, 7]);
    p.extend_from_slice(&sequence.to_be_bytes());
    p.resize(len, 0x5a);
    let sum = checksum(&p[20..], 0);
    p[22..24].copy_from_slice(&sum.to_be_bytes());
    p
}

fn g_pdu(teid: Teid, inner: &[u8]) -> Vec<u8> {
    let header = GpduHeader::new(teid, Some(PduSessionInformation::Ul { qfi: Qfi::new(9).unwrap() }));
    let mut m = vec![0; header.octets_len()];
    header.write_before(inner.len(), &mut m).unwrap();
    m.extend_from_slice(inner);
    m
}

fn gnb() -> UdpSocket {
    let socket = UdpSocket::bind((GNB, 2152)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// The next G-PDU that is not a router advertisement: its flow and inner packet.
fn receive(socket: &UdpSocket) -> (u8, Vec<u8>) {
    let mut b = [0; 4096];
    loop {
        let (n, from) = socket.recv_from(&mut b).expect("a packet within five seconds");
        assert_eq!(from, SocketAddr::new(UPF.into(), 2152));
        let m = Gtpu::parse(&b[..n]).unwrap();
        if m.message_type == message_type::G_PDU && m.payload.get(40) != Some(&134) {
            assert_eq!(m.teid, GNB_TEID);
            return (m.pdu_session.unwrap().qfi().value(), m.payload.to_vec());
        }
    }
}

/// The host's settings that the user plane may touch.
fn host() -> String {
    sh("grep -rs '' /proc/sys/net/ipv4 /proc/sys/net/ipv6 | sort; ip link; ip address; \
        for v in -4 -6; do ip $v rule; ip $v route show table all; done; nft list ruleset 2>/dev/null || true")
}

/// Settings that the kernel changes by itself when the host is told to forward, at other values than its own, and rules of
/// somebody else.
fn peculiar_host() {
    sh("ip tuntap add odd0 mode tun; ip link set odd0 up; ip rule add from 192.0.2.1 lookup 77 || true
        cd /proc/sys/net; echo 0 >ipv4/conf/all/accept_redirects
        echo 1 >ipv4/conf/odd0/forwarding; echo 1 >ipv6/conf/odd0/forwarding");
    sh("nft add table inet theirs 2>/dev/null || true");
}

#[test]
fn a_phone_pings_a_server_and_the_host_is_as_before() {
    if !inside("a_phone_pings_a_server_and_the_host_is_as_before") {
        return;
    }
    let _server = Server::start();
    peculiar_host();
    let before = host();
    let mut config = config();
    config.devices[0].nat = true;
    let mut net = Control::start(config);
    assert!(net.handle.notices().is_empty(), "{}", net.handle.notices()[0]);
    for line in net.handle.host_changes() {
        eprintln!("{line}");
    }
    let (id, teid, phone, _) = net.session();
    let gnb = gnb();
    for sequence in 0..100 {
        gnb.send_to(&g_pdu(teid, &ping4(phone, SERVER, sequence, 1300)), (UPF, 2152)).unwrap();
        let (qfi, reply) = receive(&gnb);
        assert_eq!(qfi, 9);
        assert_eq!(
            (reply[12..16].to_vec(), reply[16..20].to_vec()),
            (SERVER.octets().to_vec(), phone.octets().to_vec())
        );
        assert_eq!((reply[20], &reply[26..28]), (0, &sequence.to_be_bytes()[..]), "echo reply");
        assert_eq!(reply.len(), 1328);
    }
    let counters = net.handle.session_counters(id).unwrap();
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
}

#[test] // TS 23.501 §5.6.10.2: a phone's frames reach a bridge of the host, and what answers there reaches the phone
fn a_phone_finds_a_host_behind_the_bridge_by_arp() {
    if !inside("a_phone_finds_a_host_behind_the_bridge_by_arp") {
        return;
    }
    sh("ip link add br0 type bridge; ip link set br0 up; ip address add 198.51.100.1/24 dev br0");
    let mut config = config();
    config.user.data_networks[0].ethernet = true;
    let bridge = Some("br0".to_owned());
    config.devices[0].frames = Some(FramesDevice { device: "upf-eth".into(), bridge });
    let mut net = Control::start(config);
    let r = net.establish(PdnType::Ethernet);
    let Some(FTeid::Given { teid, .. }) = r.created_pdrs[0].local_f_teid else { panic!() };
    let gnb = gnb();
    let own = [2, 0, 0, 0, 0, 0x77];
    // ARP (RFC 826): who has 198.51.100.1, tell 198.51.100.9.
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
            assert_eq!((m.teid, &m.payload[..6]), (GNB_TEID, &own[..]), "a reply to the phone");
            assert_eq!(m.payload[28..32], [198, 51, 100, 1]);
            break;
        }
    }
}

#[test]
fn a_burst_of_packets_passes_whole_and_in_order() {
    if !inside("a_burst_of_packets_passes_whole_and_in_order") {
        return;
    }
    let mut net = Control::start(config());
    let (_, teid, phone, _) = net.session();
    let gnb = gnb();
    let gateway = Ipv4Addr::new(10, 45, 0, 1);
    for round in 0..20u16 {
        for i in 0..50 {
            gnb.send_to(&g_pdu(teid, &ping4(phone, gateway, round * 50 + i, 64)), (UPF, 2152)).unwrap();
        }
        for i in 0..50 {
            let (_, reply) = receive(&gnb);
            assert_eq!(reply[26..28], (round * 50 + i).to_be_bytes());
        }
    }
    let io = net.handle.io_counters();
    assert_eq!((io.send_errors, io.receive_errors, io.send_full), (0, 0, 0));
}

#[test] // TS 29.281 §4.4: GTP-U over IPv6
fn gnb_is_reached_over_ipv6() {
    if !inside("gnb_is_reached_over_ipv6") {
        return;
    }
    sh("ip address add fd00::7/128 dev lo nodad; ip address add fd00::9/128 dev lo nodad");
    let mut config = config();
    config.user.n3_ipv6 = Some("fd00::7".parse().unwrap());
    let handle = UserPlane::start(config).unwrap_or_else(|e| panic!("{e}"));
    let gnb = UdpSocket::bind("[fd00::9]:2152").unwrap();
    gnb.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    // A busy kernel may take a while to make the route to an address that it has just been given, and what is sent until
    // then is lost. A gNB repeats its ECHO REQUEST (TS 29.281 §11); so do we.
    let mut b = [0; 100];
    let answer = (0..100).find_map(|_| {
        gnb.send_to(whimbrel_gtpu::signalling::echo_request(5).as_ref(), "[fd00::7]:2152").ok()?;
        gnb.recv_from(&mut b).ok()
    });
    let (n, from) = answer.unwrap_or_else(|| panic!("no answer; {:?}", handle.io_counters()));
    assert_eq!(
        (&b[..n], from),
        (whimbrel_gtpu::signalling::echo_response(5).as_ref(), "[fd00::7]:2152".parse().unwrap())
    );
    handle.stop().unwrap();
}

#[test]
fn each_missing_thing_is_one_sentence() {
    if !inside("each_missing_thing_is_one_sentence") {
        return;
    }
    let refused = |config: Config| UserPlane::start(config).err().expect("refused").to_string();
    let holder = UdpSocket::bind((UPF, 2152)).unwrap();
    let text = refused(config());
    assert!(text.contains("another program has UDP port 2152 on 127.0.0.7"), "{text}");
    drop(holder);
    let mut wrong = config();
    wrong.user.n3_ipv4 = Some(Ipv4Addr::new(198, 51, 100, 1));
    let text = refused(wrong);
    assert!(text.contains("this host has no address 198.51.100.1"), "{text}");
    let first = UserPlane::start(config()).unwrap_or_else(|e| panic!("{e}"));
    let mut second = config();
    second.user.n3_ipv4 = Some(Ipv4Addr::new(127, 0, 0, 8));
    let text = refused(second);
    assert!(text.contains("another program has the interface upf0"), "{text}");
    drop(first);
    let mut none = config();
    none.devices.clear();
    assert!(matches!(UserPlane::start(none), Err(StartError::Devices { devices: 0, networks: 1 })));
}

#[test] // a program that was killed leaves a note, and its successor puts the host back
fn settings_of_a_killed_predecessor_are_put_back() {
    if !inside("settings_of_a_killed_predecessor_are_put_back") {
        return;
    }
    let journal = std::env::temp_dir().join(format!("whimbrel-journal-{}", std::process::id()));
    peculiar_host();
    let with_journal = || Config { journal: Some(journal.clone()), ..config() };
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
    let config = config();
    let (handle, memory) = UserPlane::start_in_memory(config.clone()).unwrap_or_else(|e| panic!("{e}"));
    let echo = whimbrel_gtpu::signalling::echo_request(3);
    let origin = whimbrel_user::Origin::N3 { peer: SocketAddr::new(GNB.into(), 2152), local: UPF.into() };
    assert!(memory.put(origin, echo.as_ref()));
    let unknown = SessionId { index: 0, generation: 0 };
    assert_eq!(handle.session_counters(unknown), None);
    handle.apply(Change::Remove { session: unknown, token: Some(whimbrel_user::Token(1)) }).unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    let (mut sent, mut reports) = (vec![], vec![]);
    while (sent.is_empty() || reports.is_empty()) && Instant::now() < end {
        sent.extend(memory.take());
        reports.extend(handle.take_reports());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].1, whimbrel_gtpu::signalling::echo_response(3).as_ref());
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
    assert_eq!(answered.octets, whimbrel_gtpu::signalling::echo_response(3).as_ref());
    assert_eq!(handle.tapped_lost(), 0);
    assert!(handle.is_running());
    handle.stop().unwrap();
}
