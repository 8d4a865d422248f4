//! A download by the kernel's TCP through repeated handovers (L25GC, figure 12 and appendix C): server and UPF in one network
//! namespace, the UE in another; between them the UPF's real sockets and device, and a gNB of ours.
//!
//! What is modelled is the gNB: it delays what it passes on, and has the UE away while it changes the cell.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_tcp_congestion};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};
use whimbrel_control::smf::no_forwarding;
use whimbrel_gtpu::{Gtpu, message_type};
use whimbrel_ids::Teid;
use whimbrel_pfcp::ie::FTeid;
use whimbrel_ran::edge::{Tun, TunConfig};
use whimbrel_user::Ipv4Net;
use whimbrel_user_io::{Config, N3Io, UserPlane};

use super::super::smf::{self, GNB, UPF, g_pdu};
use super::super::xdp::sh;
use super::smf_side::Smf;
use super::{HOST, Keeper, LOST, SOURCE, TARGET};
use crate::measure::median;

/// Where a forwarding tunnel leads.
const FORWARDED: Teid = Teid(9);
/// Between gNB and UPF: half of the paper's 20 ms there and back (§5.4.1).
const PATH: Duration = Duration::from_millis(10);
/// The paper's (§5.4.1).
const CONNECTIONS: usize = 6;
const RATE: &str = "30mbit";
/// Time between the beginnings of two handovers.
const EVERY: Duration = Duration::from_secs(2);
/// What the gNBs' and the host's buffers hold, and the UPF's for a UE.
const BUFFER: usize = 1_500;
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 1);
const PROBES: u16 = 7_000;
const DOWNLOADS: u16 = 7_001;

/// A way to go through handovers.
struct Case {
    name: &'static str,
    keeper: Option<Keeper>,
    wait: Duration,
}

/// The paper's L25GC takes 130 ms for a handover, free5GC 463 (table 2 and figure 12).
const CASES: [Case; 5] = [
    Case { name: "no handover", keeper: None, wait: Duration::ZERO },
    Case { name: "ours, 130 ms", keeper: Some(Keeper::Upf), wait: Duration::from_millis(130) },
    Case { name: "host buffer, 130 ms", keeper: Some(Keeper::Host), wait: Duration::from_millis(130) },
    Case { name: "hairpin, 130 ms", keeper: Some(Keeper::Hairpin), wait: Duration::from_millis(130) },
    Case { name: "ours, 463 ms", keeper: Some(Keeper::Upf), wait: Duration::from_millis(463) },
];

/// In the namespace: measures and prints a table; the figures.
pub(super) fn inside(within: Duration) -> io::Result<Value> {
    let gnb = GNB.ip();
    sh(&format!("ip link set lo up; ip address add {UPF}/32 dev lo; ip address add {gnb}/32 dev lo"))?;
    println!(
        "\nTCP through handovers: {CONNECTIONS} downloads by the kernel's TCP for {} s, {RATE} and 20 ms there and back, a handover every {} s; gNB modelled",
        within.as_secs(),
        EVERY.as_secs()
    );
    println!(
        "paper (L25GC §5.4.1): 96 ms more and no timeout with L25GC; 463 ms and some 1,500 spurious retransmissions with free5GC, 12.5 % slower pages"
    );
    println!(
        "                        goodput Mbit/s   round trip ms: median      most   retransmitted   timeouts   spurious   lost by the UPF"
    );
    let mut rows = Vec::new();
    for case in &CASES {
        let s = Run::start()?.measure(case, within)?;
        println!(
            "  {:<20} {:>15.2} {:>23.1} {:>9.1} {:>15} {:>10} {:>10} {:>20}",
            case.name,
            s.goodput_mbps,
            s.median_ms,
            s.longest_ms,
            s.retransmitted,
            s.timeouts,
            s.spurious,
            s.lost
        );
        rows.push(json!({
            "case": case.name, "wait_ms": case.wait.as_millis() as u64, "goodput_mbps": s.goodput_mbps, "rtt_median_ms": s.median_ms,
            "rtt_longest_ms": s.longest_ms, "retransmitted": s.retransmitted, "timeouts": s.timeouts, "spurious": s.spurious,
            "lost_by_upf": s.lost,
        }));
    }
    Ok(Value::Array(rows))
}

/// What was seen of a case.
struct Sighting {
    goodput_mbps: f64,
    median_ms: f64,
    longest_ms: f64,
    retransmitted: u64,
    timeouts: u64,
    spurious: u64,
    lost: u64,
}

/// The UE's network namespace.
struct Ue(Child);

impl Ue {
    fn new() -> io::Result<Self> {
        let child = Command::new("unshare").args(["-n", "sleep", "600"]).spawn()?;
        let (it, own) = (Self(child), fs::read_link("/proc/self/ns/net")?);
        let end = Instant::now() + Duration::from_secs(5);
        while fs::read_link(format!("/proc/{}/ns/net", it.0.id()))? == own && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        Ok(it)
    }

    /// Does something on a thread that is there.
    fn there<T: Send>(&self, what: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let path = format!("/proc/{}/ns/net", self.0.id());
        let run = move || {
            let namespace = fs::File::open(path)?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            what()
        };
        thread::scope(|s| s.spawn(run).join()).unwrap_or_else(|_| Err(io::Error::other("a thread ended")))
    }
}

impl Drop for Ue {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What the gNB's thread and the one that moves the UE both see.
#[derive(Default)]
struct Radio {
    /// The UE is between two cells.
    away: AtomicBool,
    /// The tunnel of the cell that it has left, while what comes there is kept or sent back; zero for none.
    left: AtomicU32,
    /// The forwarding tunnel of the UPF; zero for none.
    forwarding: AtomicU32,
    /// The target keeps what comes directly until the forwarding tunnel has ended.
    behind: AtomicBool,
    stop: AtomicBool,
}

/// One UPF, one UE.
struct Run {
    smf: Smf,
    ue: Ue,
    tun: Tun,
    gnb: UdpSocket,
}

impl Run {
    fn start() -> io::Result<Self> {
        let mut user = smf::config();
        user.isolation.ue_to_host = true; // the server is this host
        user.buffering.packets_per_session = BUFFER as u16;
        user.data_networks.truncate(1);
        user.data_networks[0].ipv4_pools = vec![Ipv4Net { address: Ipv4Addr::new(10, 45, 0, 0), prefix: 16 }];
        let config = Config { n3_io: N3Io::Udp, ..Config::new(user, "upf") };
        let (user, clock) = (config.user.clone(), config.clock.clone());
        let handle = UserPlane::start(config).map_err(|e| io::Error::other(e.to_string()))?;
        // The bottleneck is in front of the UPF, so that what it keeps comes at that rate.
        sh(&format!("tc qdisc add dev upf0 root tbf rate {RATE} burst 32k limit 200k"))?;
        let smf = Smf::new(handle, user, clock, GNB.ip())?;
        let address = smf.address;
        let ue = Ue::new()?;
        let tun = ue.there(|| {
            sh("ip link set lo up")?;
            let config = TunConfig {
                name: "ue".into(),
                ipv4: Some(address),
                mtu: Some(1_400),
                ..TunConfig::default()
            };
            let tun = Tun::open(config, None);
            let tun = tun.map_err(|e| io::Error::other(e.to_string()))?;
            sh("ip route add default dev ue")?;
            Ok(tun)
        })?;
        let gnb = UdpSocket::bind(GNB)?;
        gnb.set_nonblocking(true)?;
        // All that the UPF has kept comes at once.
        set_socket_recv_buffer_size_force(&gnb, 16 << 20)?;
        Ok(Self { smf, ue, tun, gnb })
    }

    fn measure(mut self, case: &Case, within: Duration) -> io::Result<Sighting> {
        let radio = Radio::default();
        let (received, trips) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        let (probes, downloads) =
            (UdpSocket::bind((SERVER, PROBES))?, TcpListener::bind((SERVER, DOWNLOADS))?);
        probes.set_nonblocking(true)?;
        // What Linux has by default, and the paper had.
        set_tcp_congestion(&downloads, "cubic")?;
        let echo = self.ue.there(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PROBES)))?;
        echo.set_read_timeout(Some(Duration::from_millis(100)))?;
        let (teid, address) = (self.smf.teid, self.smf.address);
        let Self { smf, ue, tun, gnb } = &mut self;
        let (radio, received, trips) = (&radio, &received, &trips);
        let before = Figures::now()?;
        let sighting = thread::scope(|s| {
            s.spawn(move || Gnb::new(tun, gnb, teid, radio).run());
            s.spawn(move || {
                let mut b = [0; 64];
                while !radio.stop.load(Ordering::Relaxed) {
                    if let Ok((n, from)) = echo.recv_from(&mut b) {
                        echo.send_to(&b[..n], from).ok();
                    }
                }
            });
            s.spawn(move || probe(&probes, (address, PROBES).into(), radio, trips));
            s.spawn(move || {
                for stream in downloads.incoming().take(CONNECTIONS).flatten() {
                    thread::spawn(move || serve(stream));
                }
            });
            let begin = Instant::now();
            let result = (|| {
                for _ in 0..CONNECTIONS {
                    let stream = ue.there(|| TcpStream::connect((SERVER, DOWNLOADS)))?;
                    s.spawn(move || download(stream, received, radio));
                }
                handovers(smf, case, within.saturating_sub(begin.elapsed()), radio)
            })();
            let (octets, took) = (received.load(Ordering::Relaxed), begin.elapsed());
            radio.stop.store(true, Ordering::Relaxed);
            result?;
            Ok::<_, io::Error>(octets as f64 * 8e-6 / took.as_secs_f64())
        })?;
        let after = Figures::now()?;
        thread::sleep(Duration::from_millis(100)); // until counters are published
        let counters = self.smf.handle.counters();
        let trips = std::mem::take(&mut *trips.lock().unwrap_or_else(|e| e.into_inner()));
        Ok(Sighting {
            goodput_mbps: sighting,
            median_ms: median(trips.clone()),
            longest_ms: trips.into_iter().fold(0.0, f64::max),
            retransmitted: after.retransmitted - before.retransmitted,
            timeouts: after.timeouts - before.timeouts,
            spurious: after.spurious - before.spurious,
            lost: LOST.into_iter().map(|reason| counters.dropped(reason)).sum(),
        })
    }
}

/// Moves the UE from cell to cell.
fn handovers(smf: &mut Smf, case: &Case, within: Duration, radio: &Radio) -> io::Result<()> {
    let end = Instant::now() + within;
    let (mut here, mut there) = (SOURCE, TARGET);
    loop {
        let next = Instant::now() + EVERY;
        let Some(keeper) = case.keeper.filter(|_| next + EVERY / 2 < end) else { break };
        thread::sleep(next - Instant::now());
        let answer = smf.change(keeper.leaving(FORWARDED))?;
        if keeper == Keeper::Hairpin {
            let teid = answer.created_pdrs.first().and_then(|p| match p.local_f_teid {
                Some(FTeid::Given { teid, .. }) => Some(teid.0),
                _ => None,
            });
            radio.behind.store(true, Ordering::Relaxed);
            radio.forwarding.store(teid.unwrap_or(0), Ordering::Relaxed);
        }
        radio.left.store(here.0, Ordering::Relaxed);
        radio.away.store(true, Ordering::Release);
        thread::sleep(case.wait);
        smf.change(keeper.arrived(there))?;
        radio.away.store(false, Ordering::Release);
        (here, there) = (there, here);
        thread::sleep(Duration::from_millis(500));
        if keeper == Keeper::Hairpin {
            smf.change(no_forwarding(1))?;
            radio.forwarding.store(0, Ordering::Relaxed);
        }
        radio.left.store(0, Ordering::Relaxed);
    }
    thread::sleep(end.saturating_duration_since(Instant::now()));
    Ok(())
}

/// Sends a datagram every 10 ms, and takes the time of each that comes back.
fn probe(socket: &UdpSocket, ue: SocketAddr, radio: &Radio, trips: &Mutex<Vec<f64>>) {
    let begin = Instant::now();
    let mut b = [0; 64];
    while !radio.stop.load(Ordering::Relaxed) {
        let now = begin.elapsed().as_micros() as u64;
        socket.send_to(&now.to_be_bytes(), ue).ok();
        thread::sleep(Duration::from_millis(10));
        while let Ok((n, _)) = socket.recv_from(&mut b) {
            let Some(sent) = b[..n].first_chunk().map(|s| u64::from_be_bytes(*s)) else { continue };
            let ms = (begin.elapsed().as_micros() as u64).saturating_sub(sent) as f64 / 1e3;
            trips.lock().unwrap_or_else(|e| e.into_inner()).push(ms);
        }
    }
}

/// Sends until the other end has gone.
fn serve(mut stream: TcpStream) {
    while stream.write_all(&[0; 16_384]).is_ok() {}
}

fn download(mut stream: TcpStream, received: &AtomicU64, radio: &Radio) {
    stream.set_read_timeout(Some(Duration::from_millis(100))).ok();
    let mut b = vec![0; 65_536];
    while !radio.stop.load(Ordering::Relaxed) {
        if let Ok(n) = stream.read(&mut b) {
            received.fetch_add(n as u64, Ordering::Relaxed);
        }
    }
}

/// What the server's kernel counts.
struct Figures {
    retransmitted: u64,
    timeouts: u64,
    spurious: u64,
}

impl Figures {
    fn now() -> io::Result<Self> {
        let text =
            fs::read_to_string("/proc/self/net/snmp")? + &fs::read_to_string("/proc/self/net/netstat")?;
        // Of each group a line of names, then one of values.
        let lines: Vec<&str> = text.lines().collect();
        let pairs = lines.chunks(2).filter_map(|c| Some((c.first()?, c.get(1)?)));
        let all: Vec<_> = pairs.flat_map(|(n, v)| n.split_whitespace().zip(v.split_whitespace())).collect();
        let of = |name| all.iter().find(|(n, _)| *n == name).and_then(|(_, v)| v.parse().ok()).unwrap_or(0);
        Ok(Self {
            retransmitted: of("RetransSegs"),
            timeouts: of("TCPTimeouts"),
            spurious: of("TCPSpuriousRTOs") + of("TCPDSACKRecv"),
        })
    }
}

/// What is on its way to the UE or to the UPF.
enum Parcel {
    /// A datagram from the UPF.
    Down(Vec<u8>),
    /// A datagram to the UPF.
    Up(Vec<u8>),
}

/// Both cells, and the host that keeps packets.
struct Gnb<'a> {
    tun: &'a Tun,
    socket: &'a UdpSocket,
    teid: Teid,
    radio: &'a Radio,
    /// All wait as long, so they are in order.
    under_way: VecDeque<(Instant, Parcel)>,
    kept: VecDeque<Vec<u8>>,
    behind: VecDeque<Vec<u8>>,
    /// What the UE has to say while it is away.
    unsent: VecDeque<Vec<u8>>,
}

impl<'a> Gnb<'a> {
    fn new(tun: &'a Tun, socket: &'a UdpSocket, teid: Teid, radio: &'a Radio) -> Self {
        let empty = VecDeque::new;
        Self {
            tun,
            socket,
            teid,
            radio,
            under_way: VecDeque::new(),
            kept: empty(),
            behind: empty(),
            unsent: empty(),
        }
    }

    fn run(mut self) {
        let mut b = vec![0; 65_536];
        while !self.radio.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            let until = self
                .under_way
                .front()
                .map_or(Duration::from_millis(5), |(at, _)| at.saturating_duration_since(now));
            let mut fds = [
                PollFd::new(self.socket, PollFlags::IN),
                PollFd::from_borrowed_fd(self.tun.fd(), PollFlags::IN),
            ];
            let until = Timespec::try_from(until.min(Duration::from_millis(5))).ok();
            poll(&mut fds, until.as_ref()).ok();
            let away = self.radio.away.load(Ordering::Acquire);
            while let Ok(n) = self.socket.recv(&mut b) {
                self.post(Parcel::Down(b[..n].to_vec()));
            }
            while let Some(n) = self.tun.read(&mut b) {
                self.unsent.push_back(b[..n].to_vec());
            }
            if !away {
                self.arrived();
            }
            while self.under_way.front().is_some_and(|(at, _)| *at <= Instant::now()) {
                match self.under_way.pop_front() {
                    Some((_, Parcel::Down(octets))) => self.down(octets, away),
                    Some((_, Parcel::Up(octets))) => {
                        self.socket.send_to(&octets, (UPF, 2152)).ok();
                    }
                    None => {}
                }
            }
        }
    }

    fn post(&mut self, parcel: Parcel) {
        self.under_way.push_back((Instant::now() + PATH, parcel));
    }

    /// The UE is in a cell: it says what it had to, and what was kept for it goes on.
    fn arrived(&mut self) {
        while let Some(inner) = self.unsent.pop_front() {
            self.post(Parcel::Up(g_pdu(self.teid, 1, &inner)));
        }
        while let Some(octets) = self.kept.pop_front() {
            let forwarding = self.radio.forwarding.load(Ordering::Relaxed);
            if forwarding == 0 { self.deliver(&octets) } else { self.back(octets, forwarding) }
        }
    }

    /// Into the forwarding tunnel.
    fn back(&mut self, mut octets: Vec<u8>, forwarding: u32) {
        octets[4..8].copy_from_slice(&forwarding.to_be_bytes());
        self.post(Parcel::Up(octets));
    }

    fn down(&mut self, octets: Vec<u8>, away: bool) {
        let Ok(m) = Gtpu::parse(&octets) else { return };
        let ends = m.message_type == message_type::END_MARKER;
        let forwarding = self.radio.forwarding.load(Ordering::Relaxed);
        let left = self.radio.left.load(Ordering::Relaxed);
        if m.teid == HOST && away || m.teid.0 == left && forwarding != 0 && away {
            if self.kept.len() < BUFFER {
                self.kept.push_back(octets);
            }
        } else if m.teid.0 == left && forwarding != 0 {
            self.back(octets, forwarding);
        } else if m.teid == FORWARDED && ends {
            self.radio.behind.store(false, Ordering::Relaxed);
            while let Some(octets) = self.behind.pop_front() {
                self.deliver(&octets);
            }
        } else if m.teid != FORWARDED
            && m.teid != HOST
            && self.radio.behind.load(Ordering::Relaxed)
            && left != 0
        {
            self.behind.push_back(octets);
        } else {
            self.deliver(&octets);
        }
    }

    fn deliver(&self, octets: &[u8]) {
        if let Ok(m) = Gtpu::parse(octets)
            && m.message_type == message_type::G_PDU
        {
            self.tun.write(m.payload);
        }
    }
}
