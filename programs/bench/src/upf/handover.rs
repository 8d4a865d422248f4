//! Handover and paging while packets come: packets lost, reordered and delayed, by where they are buffered meanwhile.
//!
//! The UPF is the real one, driven in virtual time, and asked what the SMF asks it; gNBs, the path between and the host that keeps packets
//! are modelled. Their figures are the paper's where it has them, and printed.

mod live;
mod smf_side;
mod tcp;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use whimbrel_control::config::N3IpVersion;
use whimbrel_control::smf::{Downlink, Marks, Tunnel, departure, modification};
use whimbrel_gtpu::{Gtpu, message_type};
use whimbrel_ids::{Instant, Teid};
use whimbrel_pfcp::ie::{FTeid, QerBitRate};
use whimbrel_pfcp::msg::SessionModificationRequest;
use whimbrel_user::{BurstPacket, Destination, DnIndex, DropReason, Origin, Packet, PacketVerdict};

use super::smf::{GNB, Net, SERVER, Session, activation, config, establishment, from_gnb, udp4};
use super::{change, finish};
use crate::plot::{Axis, Plot, Series};

/// Time between two packets of a UE: 10,000 a second (L25GC §5.4.2).
const INTERVAL_US: u64 = 100;
/// From the UPF to a gNB, or back (L25GC §5.4.2).
const PATH_US: u64 = 10_000;
/// From the UPF to a host that buffers, or back.
const HOST_US: u64 = 50;
/// Time that such a host takes to give out one packet.
const HOST_PACKET_US: u64 = 2;
/// How long a handover takes (L25GC table 2).
const HANDOVER_MS: u64 = 130;
/// How long packets wait: a handover, and a paging cycle (Synergy §IV-D).
const WAITS_MS: [u64; 5] = [135, 300, 600, 900, 1_280];
/// Tunnels of source and target gNB, and of the host.
const SOURCE: Teid = Teid(1);
const TARGET: Teid = Teid(2);
const HOST: Teid = Teid(3);

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Packets that may be buffered.
    #[arg(long, value_delimiter = ',', default_values_t = [500, 1_500, 3_000])]
    buffers: Vec<u16>,
    /// Other UEs whose packets come at the same rate (L25GC table 2, experiment ii).
    #[arg(long, default_value_t = 4)]
    others: usize,
    /// Seconds of each download by TCP through handovers; zero for none.
    #[arg(long, default_value_t = 10)]
    tcp_seconds: u64,
    /// Handovers by each kind of I/O; zero for none.
    #[arg(long, default_value_t = 10)]
    live: u32,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.buffers, self.tcp_seconds, self.live) = (vec![500], 1, 1);
    }
}

/// Where packets are buffered meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeper {
    /// The UPF, in the session (the product's `handover.downlink: buffer`).
    Upf,
    /// A host beside the UPF, which gives them out while newer ones already go the direct way.
    Host,
    /// The source gNB, which sends them back through the UPF to the target (3GPP's indirect forwarding; `forward`).
    Hairpin,
}

impl Keeper {
    const ALL: [Self; 3] = [Self::Upf, Self::Host, Self::Hairpin];

    fn name(self) -> &'static str {
        match self {
            Self::Upf => "ours",
            Self::Host => "host buffer",
            Self::Hairpin => "hairpin",
        }
    }

    /// The N4 request to the UPF when the UE leaves; a forwarding tunnel leads to this tunnel of the target.
    fn leaving(self, forwarded: Teid) -> SessionModificationRequest {
        match self {
            Self::Upf => departure(&[], true, &Marks::default(), N3IpVersion::Both),
            Self::Host => modification(Downlink::To(at_gnb(HOST)), &Marks::default()),
            Self::Hairpin => departure(&[at_gnb(forwarded)], false, &Marks::default(), N3IpVersion::Both),
        }
    }

    /// The N4 request when the UE has come to this tunnel.
    fn arrived(self, target: Teid) -> SessionModificationRequest {
        let downlink = match self {
            Self::Host => Downlink::To(at_gnb(target)),
            Self::Upf | Self::Hairpin => Downlink::SwitchTo(at_gnb(target)),
        };
        modification(downlink, &Marks::default())
    }
}

fn at_gnb(teid: Teid) -> Tunnel {
    Tunnel { teid, address: GNB.ip() }
}

/// What arrives where.
enum Delivery {
    /// At the host: a packet that it is to keep.
    Host(Vec<u8>),
    /// At the source gNB: a datagram.
    Source(Vec<u8>),
    /// At the UPF, from the source gNB: a datagram of the forwarding tunnel.
    Back(Vec<u8>),
    /// At the target gNB: a datagram, and whether it came by the forwarding tunnel.
    Target(Vec<u8>, bool),
}

/// What became of the packets.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    sent: u64,
    lost: u64,
    reordered: u64,
    duplicated: u64,
    longest_ms: f64,
    others_lost: u64,
}

struct World {
    net: Net,
    ue: Session,
    others: Vec<Session>,
    keeper: Keeper,
    buffer: usize,
    /// The forwarding tunnel of the UPF.
    forwarding: Option<Teid>,
    under_way: BTreeMap<(u64, u64), Delivery>,
    order: u64,
    /// Kept by host or source gNB, while they keep.
    kept: Vec<Vec<u8>>,
    keeping: bool,
    /// The target keeps what comes the direct way until the forwarding tunnel has ended.
    behind: Option<Vec<Vec<u8>>>,
    sent_us: Vec<u64>,
    arrived: Vec<u32>,
    latest: Option<u64>,
    outcome: Outcome,
}

impl World {
    fn new(keeper: Keeper, buffer: u16, others: usize) -> Self {
        let mut config = config();
        config.buffering.packets_per_session = buffer;
        config.data_networks[0].ipv4_pools[0].prefix = 16;
        let mut net = Net::with(config);
        let mut sessions = (1..=others as u64 + 1).map(|n| {
            let mut request = establishment(n, true, false);
            for qer in &mut request.create_qers {
                qer.mbr = Some(QerBitRate { ul_kbps: 1_000_000, dl_kbps: 1_000_000 });
            }
            let response = net.establish(request);
            let session = net.seated(n, &response);
            net.modify(&session, activation(SOURCE, GNB.ip()));
            session
        });
        let ue = sessions.next().expect("a session");
        let others = sessions.collect();
        Self {
            net,
            ue,
            others,
            keeper,
            buffer: buffer.into(),
            forwarding: None,
            under_way: BTreeMap::new(),
            order: 0,
            kept: Vec::new(),
            keeping: false,
            behind: None,
            sent_us: Vec::new(),
            arrived: Vec::new(),
            latest: None,
            outcome: Outcome::default(),
        }
    }

    fn now_us(&self) -> u64 {
        self.net.now.0 - super::smf::START.0
    }

    fn arrive_in(&mut self, us: u64, arrival: Delivery) {
        self.order += 1;
        self.under_way.insert((self.now_us() + us, self.order), arrival);
    }

    /// What the UPF sends.
    fn leave(&mut self, to: Destination, octets: Vec<u8>) {
        let Destination::N3 { .. } = to else { return };
        let Ok(m) = Gtpu::parse(&octets) else { return };
        match m.teid {
            SOURCE => self.arrive_in(PATH_US, Delivery::Source(octets)),
            HOST => self.arrive_in(HOST_US, Delivery::Host(octets)),
            _ => self.arrive_in(PATH_US, Delivery::Target(octets, false)),
        }
    }

    /// A packet for each UE comes from the network.
    fn packets(&mut self) {
        let n = self.sent_us.len() as u64;
        self.sent_us.push(self.now_us());
        self.arrived.push(0);
        let network = Origin::N6 { dn: DnIndex(0) };
        let slot = |s: &Session| {
            let mut octets = udp4(SERVER, s.ipv4.expect("IPv4"), (1, 2), 100);
            let at = octets.len() - 8;
            octets[at..].copy_from_slice(&n.to_be_bytes());
            let mut packet = Packet::with_room(2048);
            packet.fill(&octets);
            BurstPacket { origin: network, packet, verdict: PacketVerdict::Pending }
        };
        let mut slots: Vec<_> = std::iter::once(&self.ue).chain(&self.others).map(slot).collect();
        self.net.upf.u.burst(self.net.now, &mut slots);
        let mut slots = slots.into_iter();
        if let Some(BurstPacket { verdict: PacketVerdict::Send(to), packet, .. }) = slots.next() {
            self.leave(to, packet.octets().to_vec());
        }
        let lost = slots.filter(|s| !matches!(s.verdict, PacketVerdict::Send(_))).count();
        self.outcome.others_lost += lost as u64;
        self.net.upf.settle(self.net.now, &mut self.net.out);
    }

    fn change(&mut self, m: SessionModificationRequest) -> Option<Teid> {
        let ue = self.ue.clone();
        let answer = self.net.modify(&ue, m);
        for (to, octets) in self.net.outputs() {
            self.leave(to, octets);
        }
        answer.created_pdrs.first().and_then(|p| match p.local_f_teid {
            Some(FTeid::Given { teid, .. }) => Some(teid),
            _ => None,
        })
    }

    /// The UE is on its way from one gNB to the other, or asleep.
    fn begin(&mut self) {
        let forwarding = self.change(self.keeper.leaving(TARGET));
        if self.keeper == Keeper::Hairpin {
            self.forwarding = forwarding;
            self.behind = Some(Vec::new());
        }
        self.keeping = true;
    }

    /// The UE is at the target.
    fn end(&mut self) {
        self.change(self.keeper.arrived(TARGET));
        self.keeping = false;
        for (n, octets) in std::mem::take(&mut self.kept).into_iter().enumerate() {
            match self.keeper {
                Keeper::Host => {
                    let us = HOST_PACKET_US * n as u64 + HOST_US + PATH_US;
                    self.arrive_in(us, Delivery::Target(octets, false));
                }
                _ => self.arrive_in(PATH_US, Delivery::Back(octets)),
            }
        }
    }

    fn arrive(&mut self, arrival: Delivery) {
        match arrival {
            Delivery::Host(octets) if self.keeping => self.keep(octets),
            Delivery::Source(octets) if self.keeping && self.forwarding.is_some() => self.keep(octets),
            Delivery::Host(octets) => self.arrive_in(HOST_US + PATH_US, Delivery::Target(octets, false)),
            // Before the handover the UE is there; after it everything goes on into the forwarding tunnel.
            Delivery::Source(octets) if self.forwarding.is_none() => self.receive(&octets),
            Delivery::Source(octets) => self.arrive_in(PATH_US, Delivery::Back(octets)),
            Delivery::Back(octets) => self.hairpin(octets),
            Delivery::Target(octets, forwarded) => self.at_target(octets, forwarded),
        }
    }

    /// What finds the buffer full is lost.
    fn keep(&mut self, octets: Vec<u8>) {
        if self.kept.len() < self.buffer {
            self.kept.push(octets);
        }
    }

    /// A datagram of the source gNB goes through the UPF to the target.
    fn hairpin(&mut self, mut octets: Vec<u8>) {
        let Some(forwarding) = self.forwarding else { return };
        octets[4..8].copy_from_slice(&forwarding.0.to_be_bytes());
        let (verdict, octets) = self.net.packet(from_gnb(), &octets);
        if let PacketVerdict::Send(_) = verdict {
            self.arrive_in(PATH_US, Delivery::Target(octets, true));
        }
    }

    fn at_target(&mut self, octets: Vec<u8>, forwarded: bool) {
        let end = Gtpu::parse(&octets).is_ok_and(|m| m.message_type == message_type::END_MARKER);
        match &mut self.behind {
            Some(behind) if forwarded && end => {
                let behind = std::mem::take(behind);
                self.behind = None;
                behind.iter().for_each(|o| self.receive(o));
            }
            Some(behind) if !forwarded => behind.push(octets),
            _ => self.receive(&octets),
        }
    }

    /// The UE has a packet.
    fn receive(&mut self, octets: &[u8]) {
        let Some(n) = octets.last_chunk().map(|n| u64::from_be_bytes(*n)) else { return };
        let Some(arrived) = self.arrived.get_mut(n as usize) else { return };
        *arrived += 1;
        self.outcome.duplicated += u64::from(*arrived > 1);
        self.outcome.reordered += u64::from(self.latest.is_some_and(|l| n < l));
        self.latest = self.latest.max(Some(n));
        let ms = (self.now_us() - self.sent_us[n as usize]) as f64 / 1e3;
        self.outcome.longest_ms = self.outcome.longest_ms.max(ms);
    }

    /// Until then, a packet for each UE whenever one is due.
    fn run(&mut self, until_us: u64, traffic: bool) {
        let mut next = self.now_us() + INTERVAL_US;
        loop {
            let arrival = self.under_way.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
            let packet = if traffic { next } else { u64::MAX };
            let at = arrival.min(packet);
            if at > until_us {
                break;
            }
            self.net.now = Instant(super::smf::START.0 + at);
            if arrival <= packet {
                if let Some((_, arrival)) = self.under_way.pop_first() {
                    self.arrive(arrival);
                }
            } else {
                self.packets();
                next += INTERVAL_US;
            }
        }
        self.net.now = Instant(super::smf::START.0 + until_us);
    }
}

/// One wait, from half a second on; packets come until half a second after it.
fn outcome(keeper: Keeper, buffer: u16, wait: Duration, others: usize) -> Outcome {
    let mut world = World::new(keeper, buffer, others);
    let (begin, wait) = (500_000, wait.as_micros() as u64);
    world.run(begin, true);
    world.begin();
    world.run(begin + wait, true);
    world.end();
    world.run(begin + wait + 500_000, true);
    world.run(begin + wait + 2_000_000, false);
    let mut o = world.outcome;
    o.sent = world.sent_us.len() as u64;
    o.lost = world.arrived.iter().filter(|n| **n == 0).count() as u64;
    o
}

/// What becomes of packets that a UPF was to keep and could not. It drops the kernels' own chatter too, which is none of them.
const LOST: [DropReason; 3] =
    [DropReason::BufferFull, DropReason::BuffersExhausted, DropReason::BufferDiscarded];

/// Environment variable that names the measurement, for the process inside the network namespace.
const INSIDE: &str = "WHIMBREL_BENCH_HANDOVER";
const TCP: &str = "TCP through handovers";
const LIVE: &str = "handovers by kind of I/O";

/// Measures in a namespace of its own; the figures, or none with a sentence why.
fn aside(what: &str) -> Value {
    let outside = || {
        let (exe, arguments) = (std::env::current_exe()?, std::env::args_os().skip(1));
        let mut child = Command::new("unshare")
            .arg("-n")
            .arg(exe)
            .args(arguments)
            .env(INSIDE, what)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut figures = Value::Null;
        for line in child.stdout.take().into_iter().flat_map(|o| BufReader::new(o).lines()) {
            let line = line?;
            match serde_json::from_str(&line) {
                Ok(rows) => figures = rows,
                Err(_) => println!("{line}"),
            }
        }
        match child.wait()?.success() {
            true => Ok(figures),
            false => Err(io::Error::other("it needs root, `ip`, `nft`, `tc`, XDP and /dev/net/tun")),
        }
    };
    outside().unwrap_or_else(|e| {
        println!("\n{what} could not be tried here: {e}");
        Value::Null
    })
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    if let Ok(what) = std::env::var(INSIDE) {
        let figures = match what.as_str() {
            TCP => tcp::inside(Duration::from_secs(options.tcp_seconds)),
            _ => live::inside(options.live),
        }?;
        println!("{figures}");
        return Ok(());
    }
    println!("handover and paging: 10,000 packets a second to the UE, and to {} others", options.others);
    println!(
        "modelled: 10 ms between UPF and gNB, {HOST_US} us and {HOST_PACKET_US} us a packet for a host, gNBs that buffer as much as the UPF"
    );
    println!(
        "paper (L25GC §5.4.2, 130 ms): 500 packets everywhere lose 800; 1,500 at the UPF lose none; hairpin waits 20 ms longer"
    );
    println!("\n  wait   buffer  kept by         lost  reordered  duplicated  longest ms   others lost");
    let mut rows: Vec<(u64, u16, Keeper, Outcome)> = Vec::new();
    for wait_ms in std::iter::once(HANDOVER_MS).chain(WAITS_MS) {
        for &buffer in &options.buffers {
            for keeper in Keeper::ALL {
                let o = outcome(keeper, buffer, Duration::from_millis(wait_ms), options.others);
                println!(
                    "{wait_ms:>6} {buffer:>8}  {:<12} {:>7} {:>10} {:>11} {:>11.1} {:>13}",
                    keeper.name(),
                    o.lost,
                    o.reordered,
                    o.duplicated,
                    o.longest_ms,
                    o.others_lost
                );
                rows.push((wait_ms, buffer, keeper, o));
            }
        }
    }
    let within = rows.iter().filter(|(wait, buffer, keeper, _)| {
        *keeper == Keeper::Upf && wait * 1_000 / INTERVAL_US <= u64::from(*buffer)
    });
    let bad: u64 = within.map(|(.., o)| o.lost + o.reordered + o.duplicated + o.others_lost).sum();
    println!("ours, where the buffer is large enough: {bad} lost, reordered or duplicated; aim 0");
    draw(&rows, &options.buffers, plots)?;
    let rows: Vec<Value> = rows
        .iter()
        .map(|(wait, buffer, keeper, o)| {
            json!({
                "wait_ms": wait, "buffer": buffer, "kept_by": keeper.name(), "sent": o.sent, "lost": o.lost,
                "reordered": o.reordered, "duplicated": o.duplicated, "longest_ms": o.longest_ms,
                "others_lost": o.others_lost,
            })
        })
        .collect();
    let mut figures = json!({ "rows": rows, "ours_within_the_bound": bad });
    if let Some(seen) = change::seen() {
        let [median, p90, p99] = seen.us;
        println!(
            "a change stored by UPF-C is seen by a packet after {median:.1} us (median; p90 {p90:.1}, p99 {p99:.1}; a burst takes {:.1}): two \
             cores, packets all the while; aim 5",
            seen.burst_us
        );
        figures["store_to_seen_us"] = json!(seen.us);
        figures["burst_us"] = json!(seen.burst_us);
    }
    if options.live > 0 {
        figures["live"] = aside(LIVE);
        if let Some(rows) = figures["live"].as_array() {
            draw_live(rows, plots)?;
        }
    }
    if options.tcp_seconds > 0 {
        figures["tcp"] = aside(TCP);
    }
    finish("handover", &figures);
    Ok(())
}

fn draw(rows: &[(u64, u16, Keeper, Outcome)], buffers: &[u16], plots: &Path) -> io::Result<()> {
    let series = buffers.iter().flat_map(|buffer| {
        [Keeper::Upf, Keeper::Hairpin].map(|keeper| Series {
            name: format!("{}, {buffer}", keeper.name()),
            points: rows
                .iter()
                .filter(|(_, b, k, _)| b == buffer && *k == keeper)
                .map(|(wait, .., o)| (*wait as f64, o.lost as f64 * 100.0 / o.sent.max(1) as f64))
                .collect(),
        })
    });
    Plot {
        title: "Loss against the time that packets wait (Synergy, figure 12c)",
        x: "ms",
        y: "percent lost",
        log_y: false,
        axis: Axis::Numbers,
        series: series.collect(),
    }
    .write(plots, "upf-handover")
}

fn draw_live(rows: &[Value], plots: &Path) -> io::Result<()> {
    let series = ["lost", "reordered", "longest_ms"].map(|name| Series {
        name: name.into(),
        points: (0..).map(f64::from).zip(rows.iter().filter_map(|r| r[name].as_f64())).collect(),
    });
    Plot {
        title: "Through handovers by kind of I/O, 10,000 packets a second",
        x: "",
        y: "packets, and ms",
        log_y: false,
        axis: Axis::Names(rows.iter().filter_map(|r| Some(r["io"].as_str()?.to_owned())).collect()),
        series: series.into(),
    }
    .write(plots, "upf-handover-live")
}
