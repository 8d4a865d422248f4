//! What a packet costs the packet thread by each kind of I/O, between virtual Ethernet interfaces in network namespaces.
//!
//! One core generates: the frames' way into the kernel, to the socket or the ring, is paid there, as interrupts are on
//! virtual interfaces. The other core has the packet thread; its time a packet is what is compared, with what it does in
//! the kernel and the far end's reception of what it sends, which drops it at once. All kinds alternate in one run. The fast path in the
//! driver needs neither socket nor thread: `fast.rs` measures it.

pub(super) mod fast;

use std::fs;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::upf::classifier::common::rule_sets::Random;
use clap::Args;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use serde_json::{Value, json};
use whimbrel_ids::{Seid, Teid};
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::samples::SampleSession;
use whimbrel_user::{Input, Ipv4Net, Outbox, SessionId, UpfC, UserPlaneChange};
use whimbrel_user_io::measure::Rows;
use whimbrel_user_io::{Config, Handle, N3Io, RouterLink, UserPlane};

use super::finish;
use super::smf::{self, SMF, START, activation, association, smf_establishment};
use crate::measure::median;
use crate::plot::{Axis, Plot, Series};

pub(super) const UPF: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
pub(super) const GNB: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
pub(super) const ROUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
/// Beyond the router, where packets end.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub(super) const UES: u32 = 1_000;
/// Datagrams of one segmentation offload (UDP GSO), not segmented before the UPF's kernel.
const ROW: usize = 32;
/// Datagrams of one system call of the generator.
const BATCH: usize = 64;
/// Until the generator's first packets come out, on a machine that does other things too.
const BEGINS_WITHIN: Duration = Duration::from_secs(20);
/// Packets that show that it has begun: the kernels have less than that to say to each other.
const BEGUN: u64 = 1_000;
/// Until neighbours are known and caches warm.
pub(super) const WARM_UP: Duration = Duration::from_millis(150);
/// Says that we are in the namespace already.
pub(super) const INSIDE: &str = "WHIMBREL_BENCH_INSIDE";

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Octets of a UE's packet.
    #[arg(long, value_delimiter = ',', default_values_t = [68, 1_400])]
    sizes: Vec<usize>,
    /// Times that everything is measured; medians are shown.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Milliseconds of one measurement.
    #[arg(long, default_value_t = 300)]
    milliseconds: u64,
    /// Sessions of the fast path.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 1_000_000])]
    sessions: Vec<u32>,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.sizes, self.rounds, self.milliseconds, self.sessions) = (vec![68], 1, 20, vec![100]);
    }
}

/// A kind of I/O.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    SocketsAndTun,
    /// The same, where packets come in unsegmented rows.
    Rows,
    RingsAndTun,
    Rings,
}

impl Kind {
    const ALL: [Self; 4] = [Self::SocketsAndTun, Self::Rows, Self::RingsAndTun, Self::Rings];

    fn name(self) -> &'static str {
        match self {
            Self::SocketsAndTun => "UDP and TUN",
            Self::Rows => "UDP and TUN, uncut",
            Self::RingsAndTun => "AF_XDP and TUN",
            Self::Rings => "AF_XDP on both sides",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::SocketsAndTun => "udp_tun",
            Self::Rows => "udp_tun_uncut",
            Self::RingsAndTun => "af_xdp_tun",
            Self::Rings => "af_xdp",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

impl Way {
    const ALL: [Self; 2] = [Self::Up, Self::Down];

    /// Address of the sending end.
    pub(super) fn local(self) -> IpAddr {
        if self == Self::Up { GNB.into() } else { ROUTER.into() }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Up => "uplink",
            Self::Down => "downlink",
        }
    }
}

/// What is sent at once, and for how long.
pub(super) struct Load<'a> {
    pub(super) ways: &'a [Way],
    /// Of a UE's packet.
    pub(super) octets: usize,
    /// In unsegmented rows.
    pub(super) rows: bool,
    pub(super) within: Duration,
}

/// What one measurement showed.
#[derive(Clone, Copy)]
pub(super) struct Sighting {
    /// Packets a second that came out.
    delivered: f64,
    /// Nanoseconds of the packet thread for each of them.
    pub(super) thread_ns: f64,
    /// Part of those that were sent that came out.
    part: f64,
}

/// What one kind reached at one size, one way.
struct Cell {
    kind: Kind,
    way: Way,
    octets: usize,
    sightings: Vec<Sighting>,
}

impl Cell {
    fn look(
        &mut self,
        plane: &Plane,
        options: &Options,
        ran: &Namespace,
        network: &Namespace,
    ) -> io::Result<()> {
        let load = Load {
            ways: &[self.way],
            octets: self.octets,
            rows: self.kind == Kind::Rows,
            within: Duration::from_millis(options.milliseconds),
        };
        self.sightings.push(plane.loaded(&load, ran, network)?);
        Ok(())
    }

    fn median(&self, of: fn(&Sighting) -> f64) -> f64 {
        median(self.sightings.iter().map(of).collect())
    }
}

/// Measures.
///
/// Errors: where there is no right to make namespaces or to load XDP programs, and those of writing the plot.
pub(crate) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    if let Some(ran) = again_inside()? {
        return if ran {
            Ok(())
        } else {
            Err(io::Error::other("it needs root, `ip`, `nft` and a kernel with XDP"))
        };
    }
    println!(
        "packets between virtual interfaces, {UES} UEs; the packet thread has a core, the generator another"
    );
    let (ran, network) = (ran()?, network()?);
    let mut cells = Vec::new();
    for kind in Kind::ALL {
        for &octets in &options.sizes {
            cells.extend(Way::ALL.map(|way| Cell { kind, way, octets, sightings: Vec::new() }));
        }
    }
    for _ in 0..options.rounds {
        for kind in Kind::ALL {
            let plane = Plane::start(kind)?;
            for cell in cells.iter_mut().filter(|c| c.kind == kind) {
                cell.look(&plane, options, &ran, &network)?;
            }
        }
    }
    show(&cells);
    draw(&cells, options, plots)?;
    let floors = floors(options, &ran, &network)?;
    let fast = fast::run(options, &ran, &network)?;
    fast::show(&fast, &floors);
    finish("xdp", &json!({ "kinds": figures(&cells), "fast_path": fast::figures(&fast, &floors) }));
    Ok(())
}

/// What the fast path is compared with: sockets and TUN, with as many sessions of the same rules, in no order either.
fn floors(options: &Options, ran: &Namespace, network: &Namespace) -> io::Result<Vec<(u32, Cell)>> {
    let mut floors = Vec::new();
    for &sessions in &options.sessions {
        let plane = Plane::with(N3Io::Udp, sessions, false, Duration::ZERO)?;
        let (kind, octets) = (Kind::SocketsAndTun, fast::OCTETS);
        let mut cells = Way::ALL.map(|way| Cell { kind, way, octets, sightings: Vec::new() });
        for _ in 0..options.rounds {
            for cell in &mut cells {
                cell.look(&plane, options, ran, network)?;
            }
        }
        floors.extend(cells.map(|cell| (sessions, cell)));
    }
    Ok(floors)
}

/// Runs the program again in a network namespace of its own, if it is not there yet: whether all went well there.
pub(crate) fn again_inside() -> io::Result<Option<bool>> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(None);
    }
    let exe = std::env::current_exe()?;
    let arguments = std::env::args_os().skip(1);
    let status = Command::new("unshare").arg("-n").arg(exe).args(arguments).env(INSIDE, "1").status()?;
    Ok(Some(status.success()))
}

/// A network namespace beside ours, kept alive by a process in it.
pub(crate) struct Namespace(Child);

impl Namespace {
    pub(crate) fn new(set_up: &str) -> io::Result<Self> {
        let child = Command::new("unshare").args(["-n", "sleep", "3600"]).spawn()?;
        let (pid, own) = (child.id(), fs::read_link("/proc/self/ns/net")?);
        let end = Instant::now() + Duration::from_secs(5);
        while fs::read_link(format!("/proc/{pid}/ns/net"))? == own && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let it = Self(child);
        sh(&set_up.replace("PID", &pid.to_string()).replace("THERE", &format!("nsenter -t {pid} -n")))?;
        Ok(it)
    }

    /// Packets that its interface has received.
    pub(super) fn received(&self, interface: &str) -> io::Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/net/dev", self.0.id()))?;
        let line = text.lines().find_map(|l| l.trim().strip_prefix(interface)?.strip_prefix(':'));
        let packets = line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok());
        packets.ok_or_else(|| io::Error::other(format!("no figures of {interface}")))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Runs commands in it.
    pub(crate) fn sh(&self, commands: &str) -> io::Result<()> {
        sh(&format!("nsenter -t {} -n sh -ec '{commands}'", self.0.id()))
    }

    /// A socket in it that does not wait.
    pub(super) fn socket(&self, local: SocketAddr) -> io::Result<UdpSocket> {
        let pid = self.0.id();
        let bound = thread::spawn(move || {
            Self::enter(pid)?;
            let socket = UdpSocket::bind(local)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        bound.join().map_err(|_| io::Error::other("a thread ended"))?
    }

    /// Moves the calling thread there.
    pub(crate) fn enter(pid: u32) -> io::Result<()> {
        let namespace = fs::File::open(format!("/proc/{pid}/ns/net"))?;
        Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

pub(super) fn sh(commands: &str) -> io::Result<()> {
    let out = Command::new("sh").args(["-ec", commands]).output()?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    if out.status.success() { Ok(()) } else { Err(io::Error::other(text)) }
}

/// gNBs; what reaches them is dropped as soon as it can be.
pub(super) fn ran() -> io::Result<Namespace> {
    Namespace::new(
        "ip link set lo up; ip link add n3 type veth peer name gnb; ip link set gnb netns PID
         ip address add 192.0.2.7/24 dev n3; ip link set n3 up
         ip link add n3-bare type veth peer name gnb-bare; ip link set gnb-bare netns PID
         ip link set n3-bare up; THERE ip link set gnb-bare up
         THERE ip address add 192.0.2.9/24 dev gnb; THERE ip link set gnb up
         THERE nft add table netdev end
         THERE nft add chain netdev end in '{ type filter hook ingress device gnb priority 0; }'
         THERE nft add rule netdev end in udp dport 2152 drop",
    )
}

/// The data network's router, likewise.
pub(super) fn network() -> io::Result<Namespace> {
    Namespace::new(
        "ip link add n6 type veth peer name router; ip link set router netns PID
         ip address add 203.0.113.1/24 dev n6; ip link set n6 up
         ip link add n6-bare type veth peer name router-bare; ip link set router-bare netns PID
         ip link set n6-bare up; THERE ip link set router-bare up
         ip route add 198.51.100.0/24 via 203.0.113.2
         THERE ip address add 203.0.113.2/24 dev router; THERE ip link set router up
         THERE ip route add 10.0.0.0/8 via 203.0.113.1
         THERE nft add table netdev end
         THERE nft add chain netdev end in '{ type filter hook ingress device router priority 0; }'
         THERE nft add rule netdev end in ip daddr 198.51.100.0/24 drop",
    )
}

/// A user plane with UEs.
pub(super) struct Plane {
    pub(super) handle: Handle,
    sample: SampleSession,
    pub(super) teids: Vec<Teid>,
    pub(super) thread: i32,
}

/// A user plane between gNBs and the router, which has an interface of the user plane's or not.
pub(super) fn between(n3_io: N3Io, ues: u32, router: bool) -> Config {
    let mut user = smf::config();
    user.isolation.ue_to_host = true; // what stands for the data network is this host
    user.n3_ipv4 = Some(UPF);
    user.sessions_max = ues.next_power_of_two().max(2 * UES) - 1;
    user.echo_interval = None;
    user.data_networks.truncate(1);
    user.data_networks[0].ipv4_pools = vec![Ipv4Net { address: Ipv4Addr::new(10, 0, 0, 0), prefix: 8 }];
    let mut config = Config { forwarding: true, n3_io, ..Config::new(user, "upf") };
    config.devices[0].frames = None;
    let routers = vec![ROUTER.into()];
    config.devices[0].link =
        router.then(|| RouterLink { interface: "n6".into(), routers, vlan: None, tunnel: None });
    config
}

/// Starts it, with its packet thread on a core of its own.
pub(super) fn begun(config: Config) -> io::Result<(Handle, i32)> {
    let handle = UserPlane::start(config).map_err(|e| io::Error::other(e.to_string()))?;
    // The thread takes its name when it begins to run.
    let begins = (0..1_000).find_map(|_| {
        named("upf-u").or_else(|| {
            thread::sleep(Duration::from_millis(1));
            None
        })
    });
    let thread = begins.ok_or_else(|| io::Error::other("no packet thread"))?;
    pin(thread, 1)?;
    Ok((handle, thread))
}

/// The address that UPF-C gives to session `n`.
pub(super) fn ue(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() + whimbrel_user::POOL_RESERVED_FIRST + n)
}

impl Plane {
    fn start(kind: Kind) -> io::Result<Self> {
        let sockets = matches!(kind, Kind::SocketsAndTun | Kind::Rows);
        let n3_io = if sockets { N3Io::Udp } else { N3Io::AfXdp };
        Self::with(n3_io, UES, kind == Kind::Rings, Duration::ZERO)
    }

    pub(super) fn with(n3_io: N3Io, ues: u32, router: bool, busy_poll: Duration) -> io::Result<Self> {
        let config = Config { busy_poll, ..between(n3_io, ues, router) };
        let user = config.user.clone();
        let (handle, thread) = begun(config)?;
        let sample = SampleSession::of(&asked_for(&user), user.sessions_max, user.seed)
            .ok_or_else(|| io::Error::other("no rules"))?;
        let mut it = Self { handle, sample, teids: Vec::new(), thread };
        for n in 0..ues {
            let teid = it.put(n, n)?;
            it.teids.push(teid);
        }
        let begun = Instant::now();
        while it.handle.counters().sessions < u64::from(ues) {
            if begun.elapsed() > BEGINS_WITHIN {
                return Err(io::Error::other("not all sessions are there"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(it)
    }

    /// Gives UE `n` its session, or another tunnel at the gNB.
    fn put(&self, n: u32, gnb_teid: u32) -> io::Result<Teid> {
        let (teid, mut change) =
            self.sample.session(SessionId { index: n, generation: n }, ue(n), Teid(gnb_teid));
        let end = Instant::now() + Duration::from_secs(10);
        while let Err(full) = self.handle.apply(change) {
            if Instant::now() > end {
                return Err(io::Error::other("the queue is full"));
            }
            change = full.0;
            thread::sleep(Duration::from_micros(100));
        }
        Ok(teid)
    }

    /// A datagram of each UE, the UEs in no order, and where to: of a gNB, or to a UE from beyond the router, whose kernel writes the headers.
    pub(super) fn datagrams(&self, way: Way, octets: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        let one = |n: u32, teid: Teid| match way {
            Way::Up => {
                let packet = packet_to(SERVER, ue(n), octets);
                (SocketAddr::new(UPF.into(), 2152), smf::g_pdu(teid, 1, &packet))
            }
            Way::Down => (SocketAddr::new(ue(n).into(), 9), vec![7; octets.max(28) - 28]),
        };
        let mut all: Vec<_> = (0..).zip(&self.teids).map(|(n, teid)| one(n, *teid)).collect();
        let random = &mut Random::new(1);
        for at in (1..all.len()).rev() {
            all.swap(at, random.below(at as u64 + 1) as usize);
        }
        all
    }

    /// What comes out while more is sent than the packet thread can take.
    pub(super) fn loaded(
        &self,
        load: &Load<'_>,
        ran: &Namespace,
        network: &Namespace,
    ) -> io::Result<Sighting> {
        let stop = Arc::new(AtomicBool::new(false));
        let generator = |&way: &Way| {
            let pid = if way == Way::Up { ran.pid() } else { network.pid() };
            let (datagrams, stopped, rows) = (self.datagrams(way, load.octets), Arc::clone(&stop), load.rows);
            thread::spawn(move || {
                Namespace::enter(pid)?;
                if rows {
                    generate_rows(way.local(), way, &datagrams, &stopped)
                } else {
                    generate(way.local(), &datagrams, &stopped)
                }
            })
        };
        let generators: Vec<_> = load.ways.iter().map(generator).collect();
        // What goes to gNBs in rows is one packet to their interface; the thread knows better, and says so each 20 ms.
        let out = |way: Way| match way {
            Way::Up => network.received("router"),
            Way::Down => Ok(self.handle.io_counters().n3_sent),
        };
        let all_out = || load.ways.iter().map(|way| out(*way)).sum::<io::Result<u64>>();
        let look = || io::Result::Ok((Instant::now(), all_out()?, spent(self.thread)?));
        // With many UEs the generators have much to lay out before they begin.
        for way in load.ways {
            let (before, begun) = (out(*way)?, Instant::now());
            while out(*way)? < before + BEGUN && begun.elapsed() < BEGINS_WITHIN {
                thread::sleep(Duration::from_millis(1));
            }
        }
        thread::sleep(WARM_UP);
        let (t0, out0, cpu0) = look()?;
        thread::sleep(load.within);
        let (t1, out1, cpu1) = look()?;
        stop.store(true, Ordering::Relaxed);
        let ended =
            generators.into_iter().map(|g| g.join().map_err(|_| io::Error::other("a generator ended"))?);
        let offered = ended.sum::<io::Result<f64>>()?;
        let delivered = (out1 - out0) as f64;
        let seconds = (t1 - t0).as_secs_f64();
        if delivered == 0.0 {
            return Err(io::Error::other(format!("nothing came out: {:?}", self.handle.io_counters())));
        }
        Ok(Sighting {
            delivered: delivered / seconds,
            thread_ns: (cpu1 - cpu0) as f64 / delivered,
            part: delivered / seconds / offered,
        })
    }
}

/// A UE's packet.
pub(super) fn packet_to(to: Ipv4Addr, from: Ipv4Addr, octets: usize) -> Vec<u8> {
    let mut p = smf::udp4(from, to, (1, 9), octets.max(28) - 28);
    let sum: u32 = p[..20].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    p[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    p
}

/// Sends datagrams in turn until stopped; how many a second.
pub(super) fn generate(
    local: IpAddr,
    datagrams: &[(SocketAddr, Vec<u8>)],
    stop: &AtomicBool,
) -> io::Result<f64> {
    pin(0, 0)?;
    let socket = UdpSocket::bind((local, 2152))?;
    let parts: Vec<[IoSlice<'_>; 1]> = datagrams.iter().map(|(_, d)| [IoSlice::new(d)]).collect();
    let addresses: Vec<SocketAddrAny> = datagrams.iter().map(|(to, _)| SocketAddrAny::from(*to)).collect();
    let (start, mut sent) = (Instant::now(), 0u64);
    while !stop.load(Ordering::Relaxed) {
        for (parts, addresses) in parts.chunks(BATCH).zip(addresses.chunks(BATCH)) {
            let mut controls: Vec<_> = parts.iter().map(|_| SendAncillaryBuffer::default()).collect();
            let both = parts.iter().zip(addresses).zip(&mut controls);
            let mut messages: Vec<_> =
                both.map(|((part, to), control)| MMsgHdr::new_with_addr(to, part, control)).collect();
            sent += rustix::net::sendmmsg(&socket, &mut messages, SendFlags::empty())? as u64;
        }
    }
    Ok(sent as f64 / start.elapsed().as_secs_f64())
}

/// Likewise, in messages of [`ROW`] datagrams that the kernel is to cut: of any UEs to the UPF, or to one UE after the other.
fn generate_rows(
    local: IpAddr,
    way: Way,
    datagrams: &[(SocketAddr, Vec<u8>)],
    stop: &AtomicBool,
) -> io::Result<f64> {
    pin(0, 0)?;
    let mut rows = Rows::bind(SocketAddr::new(local, 2152))?;
    let (start, mut sent) = (Instant::now(), 0u64);
    while !stop.load(Ordering::Relaxed) {
        match way {
            Way::Up => {
                for row in datagrams.chunks(ROW) {
                    sent += rows.send(row.iter().map(|(to, d)| (*to, d.as_slice())))? as u64;
                }
            }
            Way::Down => {
                for (to, d) in datagrams {
                    sent += rows.send(std::iter::repeat_n((*to, d.as_slice()), ROW))? as u64;
                }
            }
        }
    }
    Ok(sent as f64 / start.elapsed().as_secs_f64())
}

/// What UPF-C makes of an SMF's requests for one session: its packets are metered and counted, whatever the kind of I/O.
fn asked_for(user: &whimbrel_user::Config) -> UserPlaneChange {
    let mut c = UpfC::new(user.clone(), START).expect("a configuration");
    let mut out = Outbox::default();
    let mut ask = |seid: Option<Seid>, message: Message, sequence: u32| {
        let octets = message.to_octets(seid, sequence);
        c.handle(START, Input::Pfcp { peer: SMF, octets: &octets }, &mut out);
        let (_, answer) = out.datagrams.pop().expect("an answer");
        (Message::parse(&Frame::parse(&answer).expect("a frame")).expect("a message"), out.changes.pop())
    };
    ask(None, association(1).into(), 1);
    let session = smf_establishment(1, true, false);
    let (Message::SessionEstablishmentResponse(answer), _) = ask(Some(Seid(0)), session.into(), 2) else {
        panic!("another answer")
    };
    let seid = answer.up_f_seid.map(|f| f.seid);
    let (_, change) = ask(seid, activation(Teid(1), GNB.into()).into(), 3);
    change.expect("rules")
}

/// The thread of ours with a name.
fn named(name: &str) -> Option<i32> {
    let tasks = fs::read_dir("/proc/self/task").ok()?.flatten();
    let mut of_name =
        tasks.filter(|t| fs::read_to_string(t.path().join("comm")).is_ok_and(|n| n.trim() == name));
    of_name.next()?.file_name().to_str()?.parse().ok()
}

/// Puts a thread (0: this one) on a core, if there are several.
pub(super) fn pin(thread: i32, core: usize) -> io::Result<()> {
    if thread::available_parallelism()?.get() < 2 {
        return Ok(());
    }
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(rustix::thread::Pid::from_raw(thread), &cores)?)
}

/// Nanoseconds that a thread of ours has run.
pub(super) fn spent(thread: i32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"))?;
    let first = text.split_whitespace().next().and_then(|n| n.parse().ok());
    first.ok_or_else(|| io::Error::other("the kernel keeps no schedstat"))
}

fn show(cells: &[Cell]) {
    println!(
        "{:>22} {:>9} {:>6} {:>12} {:>12} {:>10}",
        "", "", "octets", "ns/packet", "Mpackets/s", "came out"
    );
    for c in cells {
        println!(
            "{:>22} {:>9} {:>6} {:>12.0} {:>12.3} {:>9.0}%",
            c.kind.name(),
            c.way.name(),
            c.octets,
            c.median(|s| s.thread_ns),
            c.median(|s| s.delivered) / 1e6,
            c.median(|s| s.part) * 100.0
        );
    }
    println!("\ntimes the packets of a core of UDP and TUN:");
    for c in cells.iter().filter(|c| c.kind != Kind::SocketsAndTun) {
        println!("{:>22} {:>9} {:>6} {:>12.2}", c.kind.name(), c.way.name(), c.octets, gain(cells, c));
    }
    println!(
        "\nL25GC, on other machines: 27 times the packets of free5GC at 68 octets, by DPDK on one core (Fig. 10a); 10 Gbit/s \
         of packets of full size with a core for the UPF and one for the NF manager (§5.3)."
    );
}

/// How many times as many packets a core carries as by sockets and TUN.
fn gain(cells: &[Cell], c: &Cell) -> f64 {
    let floor =
        cells.iter().find(|f| f.kind == Kind::SocketsAndTun && f.way == c.way && f.octets == c.octets);
    floor.map_or(f64::NAN, |f| f.median(|s| s.thread_ns) / c.median(|s| s.thread_ns))
}

fn draw(cells: &[Cell], options: &Options, plots: &Path) -> io::Result<()> {
    let names = |octets: &usize| Way::ALL.map(|w| format!("{}, {octets}", w.name()));
    let series = Kind::ALL.iter().map(|kind| Series {
        name: kind.name().into(),
        points: cells
            .iter()
            .filter(|c| c.kind == *kind)
            .enumerate()
            .map(|(at, c)| (at as f64, c.median(|s| s.thread_ns)))
            .collect(),
    });
    Plot {
        title: "What a packet costs the packet thread, by kind of I/O",
        x: "direction, octets of a UE's packet",
        y: "ns a packet",
        log_y: false,
        axis: Axis::Names(options.sizes.iter().flat_map(names).collect()),
        series: series.collect(),
    }
    .write(plots, "upf-xdp")
}

fn figures(cells: &[Cell]) -> Value {
    let cell = |c: &Cell| {
        json!({
            "io": c.kind.key(),
            "way": c.way.name(),
            "octets": c.octets,
            "ns": c.median(|s| s.thread_ns).round(),
            "packets_per_s": c.median(|s| s.delivered).round(),
            "of_udp_tun": (gain(cells, c) * 100.0).round() / 100.0,
        })
    };
    cells.iter().map(cell).collect()
}
