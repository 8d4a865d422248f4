//! A UPF on real interfaces, with a gNB and a server in network namespaces of their own. Each test runs itself again
//! inside a namespace of its own, as root of a user namespace where it is not root already; where the host permits
//! neither, it says so and passes.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use whimbrel_gtpu::{GpduHeader, Gtpu, PduSessionInformation, message_type};
use whimbrel_ids::{Qfi, Seid, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::{
    DataNetwork, Input, Ipv4Net, Ipv6Net, Isolation, Outbox, SessionCounters, SessionId, SessionMemory, UpfC,
};
use whimbrel_user_io::{Config, Handle, N3Io, Obstacle, StartError, UserPlane};

pub(crate) const INSIDE: &str = "WHIMBREL_INSIDE_NAMESPACE";
pub(crate) const UPF: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
pub(crate) const GNB: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
pub(crate) const UPF_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 7);
pub(crate) const GNB_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 9);
pub(crate) const SMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3)), 8805);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
pub(crate) const GNB_TEID: Teid = Teid(0x6e62_0001);

/// Runs the named test in a namespace of its own, with a radio access network beside it, for each kind of N3's I/O, with one packet thread
/// and with several.
#[track_caller]
pub(crate) fn with_each_io(test: &str, run: impl FnOnce(N3Io, Namespace)) {
    let (udp, af_xdp) = (N3Io::Udp, N3Io::AfXdp);
    with_io(test, &[("udp", udp), ("af_xdp", af_xdp), ("udp/threads", udp), ("af_xdp/threads", af_xdp)], run);
}

/// Likewise, for some kinds.
#[track_caller]
pub(crate) fn with_io(test: &str, kinds: &[(&str, N3Io)], run: impl FnOnce(N3Io, Namespace)) {
    match std::env::var(INSIDE) {
        Ok(name) => {
            sh("ip link set lo up");
            // A new namespace has what the host has: containers on it switch forwarding on, and the kernel would pass packets on itself.
            fs::write("/proc/sys/net/ipv4/ip_forward", "0").expect("a namespace of its own");
            let (_, kind) = kinds.iter().find(|(n, _)| *n == name).unwrap();
            run(*kind, Namespace::ran());
        }
        Err(_) => {
            let test = with_its_file(test);
            kinds.iter().for_each(|(name, _)| again_inside(&test, name));
        }
    }
}

/// Packet threads of the UPF in this namespace.
pub(crate) fn threads() -> u8 {
    if std::env::var(INSIDE).is_ok_and(|name| name.ends_with("/threads")) { 4 } else { 1 }
}

/// Runs the named test in a namespace of its own; true if that is where we are already.
#[track_caller]
pub(crate) fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_none() {
        again_inside(&with_its_file(test), "once");
        return false;
    }
    sh("ip link set lo up");
    true
}

/// Until what must come is given up, on a machine that does other things too.
pub(crate) const SURELY: Duration = Duration::from_secs(20);

/// Waits until a condition holds: the packet thread publishes its counters now and then, answers come faster.
pub(crate) fn eventually(holds: impl Fn() -> bool, or: impl Fn() -> String) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < SURELY, "{}", or());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A test's name as the test program has it: behind that of the file that calls.
#[track_caller]
fn with_its_file(test: &str) -> String {
    let (_, path) = std::panic::Location::caller().file().rsplit_once("tests/").unwrap();
    let file = path.split(['/', '.']).next().unwrap();
    format!("{file}::{test}")
}

/// Everything there happens in a network namespace that ends with the process.
fn again_inside(test: &str, how: &str) {
    if fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_err() {
        eprintln!("skipped: /dev/net/tun cannot be opened here");
        return;
    }
    let root = fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    let flags = if root { "-n" } else { "-Urn" };
    let permitted = Command::new("unshare").args([flags, "true"]).stderr(Stdio::null()).status();
    if !permitted.is_ok_and(|s| s.success()) {
        eprintln!("skipped: unshare {flags} is not permitted here");
        return;
    }
    let exe = std::env::current_exe().unwrap();
    let found = Command::new(&exe).args(["--list", "--exact", test]).output().unwrap();
    assert!(String::from_utf8_lossy(&found.stdout).contains("1 test,"), "no test has the name {test}");
    let status = Command::new("unshare")
        .arg(flags)
        .arg(exe)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, how)
        .status()
        .unwrap();
    assert!(status.success(), "{how}");
}

pub(crate) fn sh(command: &str) -> String {
    let out = Command::new("sh").args(["-ec", command]).output().unwrap();
    assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// A network namespace beside ours, kept alive by a process in it.
pub(crate) struct Namespace(Child);

impl Namespace {
    /// One that is joined to ours by a pair of virtual Ethernet interfaces, ours with `address` and `address6`, the other
    /// with `peer` and `peer6`.
    pub(crate) fn beside(ours: &str, theirs: &str, addresses: [&str; 2], peers: [&str; 2]) -> Self {
        Self::beside_by(ours, theirs, addresses, peers, threads())
    }

    /// The same, of which the other end sends by so many queues.
    fn beside_by(ours: &str, theirs: &str, addresses: [&str; 2], peers: [&str; 2], sends_by: u8) -> Self {
        // It reads until we end, however we do.
        let child = Command::new("unshare").args(["-n", "cat"]).stdin(Stdio::piped()).spawn().unwrap();
        let (pid, own) = (child.id(), fs::read_link("/proc/self/ns/net").unwrap());
        let other = || fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|l| l != own);
        eventually(other, || "no namespace".into());
        let ([a4, a6], [p4, p6]) = (addresses, peers);
        let queues = format!("numrxqueues {0} numtxqueues", threads());
        sh(&format!(
            "ip link add {ours} {queues} {0} type veth peer name {theirs} {queues} {sends_by}
             ip link set {theirs} netns {pid}
             ip address add {a4} dev {ours}
             ip address add {a6} dev {ours} nodad
             ip link set {ours} up
             nsenter -t {pid} -n ip address add {p4} dev {theirs}
             nsenter -t {pid} -n ip address add {p6} dev {theirs} nodad
             nsenter -t {pid} -n ip link set {theirs} up",
            threads()
        ));
        Self(child)
    }

    /// The data network's, with the server.
    pub(crate) fn server() -> Self {
        Self::server_by(threads())
    }

    /// The same, whose interface sends by so many queues: by one, all flows of a UE come in one order.
    pub(crate) fn server_by(queues: u8) -> Self {
        let (ours, theirs) =
            (["203.0.113.1/24", "2001:db8:113::1/64"], ["203.0.113.2/24", "2001:db8:113::2/64"]);
        Self::beside_by("n6", "server", ours, theirs, queues)
    }

    /// The radio access network's, with the gNB.
    pub(crate) fn ran() -> Self {
        let (ours, theirs) = (["192.0.2.7/24", "2001:db8:3::7/64"], ["192.0.2.9/24", "2001:db8:3::9/64"]);
        Self::beside("n3", "gnb", ours, theirs)
    }

    /// A UDP socket in it.
    pub(crate) fn socket(&self, address: IpAddr) -> UdpSocket {
        self.socket_at(address, 2152)
    }

    /// The same at another port; zero: any.
    pub(crate) fn socket_at(&self, address: IpAddr, port: u16) -> UdpSocket {
        let socket = self.enter(move || UdpSocket::bind((address, port)).unwrap());
        socket.set_read_timeout(Some(SURELY)).unwrap();
        socket
    }

    /// A socket in it that sends UDP datagrams whose headers the test writes itself.
    pub(crate) fn raw_socket(&self, address: IpAddr) -> UdpSocket {
        self.enter(move || {
            // SAFETY: plain values in, a descriptor or -1 out, which nothing else has.
            let socket = unsafe {
                let fd = libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_UDP);
                assert!(fd >= 0, "{}", std::io::Error::last_os_error());
                UdpSocket::from_raw_fd(fd)
            };
            socket.connect((address, 0)).unwrap();
            socket
        })
    }

    /// Listens in it.
    pub(crate) fn listen(&self, address: SocketAddr) -> TcpListener {
        self.enter(move || TcpListener::bind(address).unwrap())
    }

    /// A TAP or TUN device in it, of which we have the other end.
    pub(crate) fn device(&self, name: &'static str, frames: bool) -> fs::File {
        self.enter(move || device(name, frames))
    }

    /// A TUN device in it, of a UE's addresses, by which it reaches the data network.
    pub(crate) fn ue(&self, ipv4: Ipv4Addr, ipv6: Ipv6Addr) -> fs::File {
        let device = self.device("ue", false);
        self.sh(&format!(
            "ip address add {ipv4}/32 dev ue; ip address add {ipv6}/128 dev ue nodad; ip link set ue mtu 1400 up
             ip route add 203.0.113.0/24 dev ue src {ipv4}; ip route add 2001:db8:113::/64 dev ue src {ipv6}"
        ));
        device
    }

    /// A connection from it.
    pub(crate) fn connect(&self, to: SocketAddr) -> TcpStream {
        self.enter(move || TcpStream::connect_timeout(&to, Duration::from_secs(5)).unwrap())
    }

    /// Does something on a thread in it.
    pub(crate) fn enter<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        let path = format!("/proc/{}/ns/net", self.0.id());
        let run = move || {
            let namespace = fs::File::open(path).unwrap();
            // SAFETY: plain values in; it changes this thread alone, which ends with the closure.
            let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
            what()
        };
        std::thread::spawn(run).join().unwrap()
    }

    /// Has a virtual interface in it take frames that a program redirects: with GRO it has a queue for them.
    pub(crate) fn takes_redirected(&self, interface: &'static str) {
        const ETHTOOL_SGRO: u32 = 0x2c;
        self.ethtool(interface, ETHTOOL_SGRO, 1);
    }

    /// Has one write checksums itself.
    pub(crate) fn leaves_no_checksums(&self, interface: &'static str) {
        const ETHTOOL_STXCSUM: u32 = 0x17;
        self.ethtool(interface, ETHTOOL_STXCSUM, 0);
    }

    fn ethtool(&self, interface: &'static str, command: u32, data: u32) {
        self.enter(move || ethtool(interface, command, data));
    }

    /// Runs a command in it.
    pub(crate) fn sh(&self, command: &str) -> String {
        sh(&format!("nsenter -t {} -n sh -ec '{command}'", self.0.id()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Has a virtual interface of ours give all its frames to its other end by one queue, redirected ones and those of rings and sockets: else
/// some overtake others there.
pub(crate) fn sends_in_order(interface: &'static str) {
    const ETHTOOL_STSO: u32 = 0x1f;
    ethtool(interface, ETHTOOL_STSO, 0);
}

fn ethtool(interface: &'static str, command: u32, data: u32) {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let mut value = Value { command, data };
    // SAFETY: for this plain C struct all zeroes are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names the value, which has the form that the command wants, and both live through the call.
    let set = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// A TAP or TUN device here, of which we have the other end.
pub(crate) fn device(name: &str, frames: bool) -> fs::File {
    let file = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").unwrap();
    // SAFETY: for this plain C struct all zeroes are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let kind = if frames { libc::IFF_TAP } else { libc::IFF_TUN };
    request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI) as _;
    // SAFETY: TUNSETIFF reads and writes one struct ifreq, which lives through the call.
    let set = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    file
}

/// Sends an inner packet until something comes back that is expected.
pub(crate) fn exchange(
    gnb: &UdpSocket,
    teid: Teid,
    inner: &[u8],
    expected: impl Fn(&[u8]) -> bool,
) -> Vec<u8> {
    for _ in 0..50 {
        gnb.send_to(&g_pdu(teid, inner), (UPF, 2152)).unwrap();
        let end = Instant::now() + Duration::from_millis(200);
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            let Some(message) = answered(gnb, left.max(Duration::from_millis(1))) else { break };
            let message = Gtpu::parse(&message).unwrap();
            if expected(message.payload) {
                return message.payload.to_vec();
            }
        }
    }
    panic!("no answer");
}

pub(crate) fn config(n3_io: N3Io) -> Config {
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
            firewall: None,
            reserved: Vec::new(),
        }],
        sessions_max: 100,
        heartbeat_interval: None,
        path_failure: whimbrel_user::Config::PATH_FAILURE,
        echo_interval: None,
        guaranteed: None,
        slices: Vec::new(),
        shards: threads(),
        applications: whimbrel_user::Applications::default(),
        buffering: whimbrel_user::Buffering::default(),
        flows_first: whimbrel_user::Config::FLOWS_FIRST,
        isolation: Isolation::default(),
        flows_second: whimbrel_user::Config::FLOWS_SECOND,
        smf_f_teids: false,
        cp_port: 8805,
        seed: 7,
    };
    Config { forwarding: true, n3_io, ..Config::new(user, "upf") }
}

/// A user plane; `None`, with a sentence, where the host does not permit what is asked for.
pub(crate) fn started(config: &Config) -> Option<Handle> {
    let handle = match UserPlane::start(config.clone()) {
        Err(StartError::AfXdp(Obstacle::Program(e))) if e.kind() == ErrorKind::PermissionDenied => {
            eprintln!("skipped: XDP programs are not permitted here ({e})");
            return None;
        }
        other => other.unwrap_or_else(|e| panic!("{e}")),
    };
    assert_eq!(handle.rings().is_some(), matches!(config.n3_io, N3Io::AfXdp | N3Io::Xdp));
    Some(handle)
}

/// The control side by function calls, the packet side by its handle.
pub(crate) struct Control {
    c: UpfC,
    pub(crate) handle: Handle,
    config: Config,
    sequence: u32,
    sessions: u64,
}

impl Control {
    /// `None`, with a sentence, where the host does not permit what is asked for.
    pub(crate) fn start(config: Config) -> Option<Self> {
        Some(Self::with(started(&config)?, config))
    }

    /// On a user plane that runs.
    pub(crate) fn with(handle: Handle, mut config: Config) -> Self {
        config.user.shards = handle.threads();
        // The time of the start is part of what TEIDs are drawn from: with the same one, sessions are the same each time.
        let c = UpfC::new(config.user.clone(), whimbrel_ids::Instant(1 << 50)).unwrap();
        let mut it = Self { c, handle, config, sequence: 1, sessions: 1 };
        it.associate();
        it
    }

    /// On a user plane that waits for the sessions of a state: how many there are.
    pub(crate) fn keeping(handle: Handle, config: Config, state: SessionMemory) -> (Self, usize) {
        let mut out = Outbox::default();
        let user = whimbrel_user::Config { shards: handle.threads(), ..config.user.clone() };
        let (c, restored) = UpfC::with_state(user, (config.clock)(), state, &mut out).unwrap();
        for change in out.changes {
            handle.apply(change).unwrap();
        }
        handle.begin();
        let mut it = Self { c, handle, config, sequence: 1, sessions: 1 };
        if restored.associations == 0 {
            it.associate();
        }
        (it, restored.sessions)
    }

    fn associate(&mut self) {
        self.ask(
            None,
            AssociationSetupRequest {
                announced_pools: None,
                smf_set_id: None,
                node_id: NodeId::from(SMF.ip()),
                recovery_time_stamp: RecoveryTimeStamp(1),
                up_function_features: None,
                cp_function_features: None,
                user_plane_ip_resource_information: vec![],
                session_retention_information: None,
                alternative_smf_ip_addresses: Vec::new(),
            }
            .into(),
        );
    }

    pub(crate) fn ask(&mut self, seid: Option<Seid>, m: Message) -> Message {
        let mut out = Outbox::default();
        let octets = m.to_octets(seid, self.sequence);
        self.sequence += 1;
        self.c.handle((self.config.clock)(), Input::Pfcp { peer: SMF, octets: &octets }, &mut out);
        let end = Instant::now() + SURELY;
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

    /// What a session has counted. A packet thread that a busy machine lets wait does not answer in time.
    pub(crate) fn session_counters(&self, id: SessionId) -> SessionCounters {
        let end = Instant::now() + SURELY;
        loop {
            match self.handle.session_counters(id) {
                Some(counters) => return counters,
                None => assert!(Instant::now() < end, "no such session, or no answer"),
            }
        }
    }

    /// One more session, as [`Self::session`].
    pub(crate) fn next_session(&mut self) -> (SessionId, Teid, Ipv4Addr, Ipv6Addr) {
        self.sessions += 1;
        self.session()
    }

    pub(crate) fn delete(&mut self, id: SessionId) {
        self.ask(Some(id.seid()), SessionDeletionRequest {}.into());
    }

    /// A session with the gNB's tunnel known: its id, its tunnel, the UE's addresses.
    pub(crate) fn session(&mut self) -> (SessionId, Teid, Ipv4Addr, Ipv6Addr) {
        let r = self.establish(PdnType::Ipv4v6);
        let pdr = &r.created_pdrs[0];
        let Some(FTeid::Given { teid, .. }) = pdr.local_f_teid else { panic!() };
        let address = pdr.ue_ip_addresses[0];
        let id = SessionId::from_seid(r.up_f_seid.unwrap().seid).unwrap();
        (id, teid, address.ipv4.unwrap().given().unwrap(), address.ipv6.unwrap().given().unwrap())
    }

    pub(crate) fn establish(&mut self, pdn_type: PdnType) -> SessionEstablishmentResponse {
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
            ..SessionEstablishmentRequest::new(
                NodeId::from(SMF.ip()),
                FSeid::new(Seid(self.sessions), SMF.ip()),
            )
        };
        let Message::SessionEstablishmentResponse(r) = self.ask(Some(Seid(0)), m.into()) else { panic!() };
        assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
        *r
    }
}

/// Addresses that the UPF is to choose.
pub(crate) fn ue(destination: bool) -> UeIpAddress {
    let (ipv4, ipv6) = (Some(Choice::Choose), Some(Choice::Choose));
    UeIpAddress { destination, ipv4, ipv6, ..UeIpAddress::default() }
}

pub(crate) fn checksum(octets: &[u8], start: u32) -> u16 {
    let words = octets.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)])));
    let mut sum = start + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

pub(crate) fn ping4(source: Ipv4Addr, destination: Ipv4Addr, sequence: u16, payload: usize) -> Vec<u8> {
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

/// What a gNB's or a UE's socket is sent first within some time, if anything.
pub(crate) fn answered(socket: &UdpSocket, within: Duration) -> Option<Vec<u8>> {
    socket.set_read_timeout(Some(within)).unwrap();
    let mut b = [0; 4096];
    let (n, _) = socket.recv_from(&mut b).ok()?;
    Some(b[..n].to_vec())
}

pub(crate) fn ping6(source: Ipv6Addr, destination: Ipv6Addr, sequence: u16, payload: usize) -> Vec<u8> {
    let len = (8 + payload) as u16;
    let mut p = vec![0x60, 0, 0, 0, (len >> 8) as u8, len as u8, 58, 64];
    p.extend_from_slice(&source.octets());
    p.extend_from_slice(&destination.octets());
    p.extend_from_slice(&[128, 0, 0, 0, 0, 7]);
    p.extend_from_slice(&sequence.to_be_bytes());
    p.resize(48 + payload, 0x5a);
    let sum = checksum(&p[8..], u32::from(len) + 58);
    p[42..44].copy_from_slice(&sum.to_be_bytes());
    p
}

pub(crate) fn g_pdu(teid: Teid, inner: &[u8]) -> Vec<u8> {
    let header = GpduHeader::new(teid, Some(PduSessionInformation::Ul { qfi: Qfi::new(9).unwrap() }));
    let mut m = vec![0; header.octets_len()];
    header.write_before(inner.len(), &mut m).unwrap();
    m.extend_from_slice(inner);
    m
}

/// The next G-PDU that is not a router advertisement: its flow and inner packet.
pub(crate) fn receive(socket: &UdpSocket) -> (u8, Vec<u8>) {
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

/// The host's settings that the user plane may touch, when it is at rest.
pub(crate) fn host() -> String {
    // An interface gets an address of its link some time after it is up, and a second later duplicate address detection is over.
    let at_rest = || {
        let addresses = sh("ip -o -6 address show scope link -tentative");
        sh("ip -o link show up").lines().filter(|l| !l.contains("LOOPBACK")).all(|link| {
            let name = link.split([':', '@']).nth(1).unwrap().trim();
            let has_address = addresses.contains(&format!(" {name} "));
            if link.contains("NO-CARRIER") { link.contains("state DOWN") } else { has_address }
        })
    };
    eventually(at_rest, || sh("ip link; ip address"));
    sh("grep -rs '' /proc/sys/net/ipv4 /proc/sys/net/ipv6 | sort; ip link; ip address; \
        for v in -4 -6; do ip $v rule; ip $v route show table all; done; nft list ruleset 2>/dev/null || true")
}

/// Settings that the kernel changes by itself when forwarding is enabled, at other values than its own, and rules of
/// another program.
pub(crate) fn peculiar_host() {
    sh("ip tuntap add odd0 mode tun; ip link set odd0 up; ip rule add from 192.0.2.1 lookup 77 || true
        cd /proc/sys/net; echo 0 >ipv4/conf/all/accept_redirects
        echo 1 >ipv4/conf/odd0/forwarding; echo 1 >ipv6/conf/odd0/forwarding");
    sh("nft add table inet theirs 2>/dev/null || true");
}
