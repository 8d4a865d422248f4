//! The pipeline on each kind of I/O, between virtual interfaces: packets of one core, and how long a packet takes from one end to the
//! other. The second half of `throughput`; the scene is that of `xdp`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use whimbrel_user_io::N3Io;

use super::smf;
use super::xdp::{
    GNB, Load, Namespace, Plane, ROUTER, SERVER, UES, UPF, Way, fast, network, packet_to, pin, ran, sh, ue,
};
use crate::measure::median;

/// Where packets go that are timed: the far end takes them.
pub(super) const TIMED: Ipv4Addr = Ipv4Addr::new(198, 51, 101, 1);
/// How long one that is timed is waited for.
const LOST_AFTER: Duration = Duration::from_millis(50);
/// A kind of I/O.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) n3_io: N3Io,
    /// The data network has an interface of its own.
    pub(super) rings_on_both: bool,
    /// How long the packet thread looks at rings before it sleeps.
    pub(super) busy_poll: Duration,
}

const fn kind(name: &'static str, key: &'static str, n3_io: N3Io, rings_on_both: bool) -> Kind {
    Kind { name, key, n3_io, rings_on_both, busy_poll: Duration::ZERO }
}

pub(super) const KINDS: [Kind; 5] = [
    kind("UDP and TUN", "udp_tun", N3Io::Udp, false),
    kind("AF_XDP and TUN", "af_xdp_tun", N3Io::AfXdp, false),
    kind("AF_XDP on both sides", "af_xdp", N3Io::AfXdp, true),
    Kind {
        busy_poll: Duration::from_millis(1),
        ..kind("the same, polled busily", "af_xdp_polled", N3Io::AfXdp, true)
    },
    kind("fast path in the driver", "xdp", N3Io::Xdp, true),
];

/// What is sent at a time.
pub(super) const WAYS: [(&str, &[Way]); 3] =
    [("uplink", &[Way::Up]), ("downlink", &[Way::Down]), ("both", &[Way::Up, Way::Down])];

/// How much is measured.
pub(super) struct Plan {
    pub(super) sizes: Vec<usize>,
    /// With the first of these all is measured; with the others what packets of the first size cost.
    pub(super) sessions: Vec<u32>,
    pub(super) rounds: usize,
    pub(super) within: Duration,
    /// Packets that are timed, one after the other, of each size.
    pub(super) timed: usize,
}

/// Packets by one kind.
pub(super) struct Row {
    pub(super) kind: &'static Kind,
    pub(super) sessions: u32,
    pub(super) way: &'static str,
    ways: &'static [Way],
    pub(super) octets: usize,
    /// Nanoseconds of the core a packet.
    ns: Vec<f64>,
}

impl Row {
    pub(super) fn mpps(&self) -> f64 {
        1e3 / median(self.ns.clone())
    }
}

/// Microseconds from one end to the other, by one kind, of one packet at a time.
pub(super) struct Delay {
    kind: &'static Kind,
    way: &'static str,
    octets: usize,
    median_us: f64,
    p99_us: f64,
    lost: usize,
}

/// What all kinds showed.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) rows: Vec<Row>,
    delays: Vec<Delay>,
}

/// gNBs and the data network's router, with the host beyond it that takes what is timed.
pub(super) fn scene() -> io::Result<(Namespace, Namespace)> {
    let (ran, network) = (ran()?, network()?);
    network.sh(&format!("ip address add {TIMED}/32 dev lo; ip link set lo up"))?;
    sh(&format!("ip route add {TIMED}/32 via {ROUTER}"))?;
    Ok((ran, network))
}

/// Measures. Errors: where it is not permitted.
pub(super) fn run(plan: &Plan) -> io::Result<Shown> {
    let (ran, network) = scene()?;
    let mut shown = Shown::default();
    for (n, &sessions) in plan.sessions.iter().enumerate() {
        let sizes = if n == 0 { &plan.sizes[..] } else { &plan.sizes[..1] };
        for kind in &KINDS {
            for (way, ways) in WAYS {
                let row = |&octets| Row { kind, sessions, way, ways, octets, ns: Vec::new() };
                shown.rows.extend(sizes.iter().map(row));
            }
        }
    }
    for &sessions in &plan.sessions {
        for _ in 0..plan.rounds {
            for kind in KINDS.iter().filter(|k| k.n3_io != N3Io::Xdp) {
                let plane = kind.plane(sessions)?;
                for row in shown.rows.iter_mut().filter(|r| (r.kind.key, r.sessions) == (kind.key, sessions))
                {
                    let load = Load { ways: row.ways, octets: row.octets, rows: false, within: plan.within };
                    row.ns.push(plane.loaded(&load, &ran, &network)?.thread_ns);
                }
            }
        }
    }
    for kind in &KINDS {
        delays(kind, plan, &ran, &network, &mut shown.delays)?;
    }
    for &sessions in &plan.sessions {
        let by_driver = |r: &&mut Row| (r.kind.n3_io, r.sessions) == (N3Io::Xdp, sessions);
        let mut rows: Vec<&mut Row> = shown.rows.iter_mut().filter(by_driver).collect();
        let of: Vec<_> = rows.iter().map(|r| (r.ways, r.octets)).collect();
        let all = fast::costs(&of, plan.rounds, plan.within, sessions, &ran, &network)?;
        rows.iter_mut().zip(all).for_each(|(row, ns)| row.ns = ns);
    }
    Ok(shown)
}

impl Kind {
    fn plane(&self, sessions: u32) -> io::Result<Plane> {
        Plane::with(self.n3_io, sessions, self.rings_on_both, self.busy_poll)
    }
}

/// Times packets, one after the other.
fn delays(
    kind: &'static Kind,
    plan: &Plan,
    ran: &Namespace,
    network: &Namespace,
    shown: &mut Vec<Delay>,
) -> io::Result<()> {
    let plane = kind.plane(UES)?;
    // What takes frames at once elsewhere would have them seen by none; a program that takes none has interfaces take what is redirected.
    let _programs = fast::pass(ran, network)?;
    deliver(ran, network)?;
    let gnb = ran.socket(SocketAddr::new(GNB.into(), 2152))?;
    let server = network.socket(SocketAddr::new(TIMED.into(), 9))?;
    pin(0, 0)?;
    for &octets in &plan.sizes {
        let up = smf::g_pdu(plane.teids[0], 1, &packet_to(TIMED, ue(0), octets));
        let down = vec![7; octets.max(28) - 28];
        let ways = [
            (Way::Up, &gnb, SocketAddr::new(UPF.into(), 2152), up, &server),
            (Way::Down, &server, SocketAddr::new(ue(0).into(), 9), down, &gnb),
        ];
        for (way, from, to, octets_sent, at) in ways {
            let mut all = Vec::new();
            let mut lost = 0;
            for n in 0..plan.timed + plan.timed / 10 {
                let us = timed(from, to, &octets_sent, at)?;
                // The first show the way to caches and neighbours.
                match us {
                    _ if n < plan.timed / 10 => {}
                    Some(us) => all.push(us),
                    None => lost += 1,
                }
            }
            all.sort_by(f64::total_cmp);
            let at = |part: f64| all.get((all.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN);
            let (median_us, p99_us) = (at(0.5), at(0.99));
            shown.push(Delay { kind, way: way.name(), octets, median_us, p99_us, lost });
        }
    }
    ran.sh("nft add rule netdev end in udp dport 2152 drop")?;
    network.sh(&format!("nft add rule netdev end in ip daddr {SERVER}/24 drop"))
}

/// From now on both ends have what comes.
pub(super) fn deliver(ran: &Namespace, network: &Namespace) -> io::Result<()> {
    [ran, network].into_iter().try_for_each(|end| end.sh("nft flush chain netdev end in"))
}

/// Microseconds until a packet is at the other end; `None` where it does not come.
fn timed(from: &UdpSocket, to: SocketAddr, octets: &[u8], at: &UdpSocket) -> io::Result<Option<f64>> {
    let mut room = [0; 2048];
    while at.recv(&mut room).is_ok() {} // what came too late
    let start = Instant::now();
    from.send_to(octets, to)?;
    while start.elapsed() < LOST_AFTER {
        match at.recv(&mut room) {
            Ok(_) => return Ok(Some(start.elapsed().as_nanos() as f64 / 1e3)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

/// Prints the line of a measurement.
pub(super) fn show(shown: &Shown) {
    println!(
        "\nby kind of I/O, between virtual interfaces that copy: millions of packets that one core carries\n\
         (of the packet thread; of the fast path, all that is done on the core besides generating)"
    );
    let alike = |a: &Row, b: &Row| (a.kind.key, a.sessions, a.way) == (b.kind.key, b.sessions, b.way);
    let first = shown.rows.chunk_by(alike).next().unwrap_or_default();
    let heads: String = first.iter().map(|r| format!("{:>8}", r.octets)).collect();
    println!("{:>24} {:>9} {:>9} {heads}", "", "sessions", "octets");
    for rows in shown.rows.chunk_by(alike) {
        let cells: String = rows.iter().map(|r| format!("{:>8.3}", r.mpps())).collect();
        println!("{:>24} {:>9} {:>9} {cells}", rows[0].kind.name, rows[0].sessions, rows[0].way);
    }
    println!("\nmicroseconds from one end to the other, one packet at a time: median and 99th percentile");
    for d in &shown.delays {
        println!(
            "{:>24} {:>9} {:>6} {:>9.1} {:>9.1}{}",
            d.kind.name,
            d.way,
            d.octets,
            d.median_us,
            d.p99_us,
            if d.lost > 0 { format!("   {} lost", d.lost) } else { String::new() }
        );
    }
    println!(
        "paper (L25GC §5.3, figure 10, other machines): by DPDK on one core 27 times the packets of free5GC's kernel module at 68 \
         octets, and a fifteenth of its delay; 10 Gbit/s of full size on a core and one that moves packets"
    );
}

/// The same for the line at the end.
pub(super) fn figures(shown: &Shown) -> Value {
    let rounded = |v: f64| (v * 1000.0).round() / 1000.0;
    let row = |r: &Row| json!({ "io": r.kind.key, "sessions": r.sessions, "way": r.way, "octets": r.octets, "mpps": rounded(r.mpps()) });
    let delay = |d: &Delay| {
        json!({
            "io": d.kind.key, "way": d.way, "octets": d.octets,
            "us": [rounded(d.median_us), rounded(d.p99_us)], "lost": d.lost,
        })
    };
    json!({
        "rows": shown.rows.iter().map(row).collect::<Vec<_>>(),
        "delays": shown.delays.iter().map(delay).collect::<Vec<_>>(),
    })
}
