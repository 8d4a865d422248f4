//! A download that survives the move of its host to another operator, by the kernel's Multipath TCP (RFC 8684), beside TCP in a network that
//! keeps the address (table 3.1, figures 3.8 and 3.9).
//!
//! UE and server are two network namespaces with a link of the operator's rate between them. The UE detaches: its address is gone. It
//! attaches: after the time that an attach takes it has another address, from which its MPTCP opens a subflow, and gives the former address
//! up at once (chapter 3.4.2). Windows are paired: the same link, once with MPTCP and a move, once with TCP and none.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, listen, socket_with};
use serde_json::{Value, json};

use super::finish;
use crate::measure::median;
use crate::plot::{Axis, Plot, Series};
use crate::upf::xdp::{Namespace, again_inside};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const BEFORE: Ipv4Addr = Ipv4Addr::new(10, 99, 1, 1);
const AFTER: Ipv4Addr = Ipv4Addr::new(10, 99, 2, 1);
const PORT: u16 = 9000;
/// From the first octet to the move: the connection is beyond slow start.
const LEAD: Duration = Duration::from_secs(2);
/// How long a client waits for an octet: longer than any stall that counts.
const SILENT_MAX: Duration = Duration::from_secs(8);
/// The wait of the paper's MPTCP before it opens a subflow from a new address (§3.6.2).
const PAPERS_WAIT: Duration = Duration::from_millis(500);
/// The paper's routes: mean time between handovers by day and after dark, in seconds (table 3.1).
const ROUTES: [(&str, [f64; 2]); 3] =
    [("suburb", [73.50, 65.60]), ("downtown", [68.16, 50.60]), ("highway", [44.72, 25.50])];
/// The paper's mean rates by day and after dark, in kbit/s, and its slowdown of downloads over all routes, in per cent (table 3.1).
const RATES_KBPS: [u32; 2] = [1_160, 15_460];
const PAPERS_SLOWDOWN: [f64; 2] = [2.06, 3.06];
/// What is to be reached: a stall of so many milliseconds after a move that takes 32 ms, and so many per cent of slowdown.
const STALL_MS_GOAL: f64 = 80.0;
const SLOWDOWN_GOAL: f64 = 1.0;

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Pairs of windows for each rate and way to move; the full run has 200.
    #[arg(long, default_value_t = 6)]
    windows: usize,
    /// Length of a window from the move on, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Windows that are measured at the same time, each in namespaces of its own.
    #[arg(long, default_value_t = 6)]
    at_once: usize,
    /// How long an attach takes, in milliseconds.
    #[arg(long, value_delimiter = ',', default_values_t = [32, 64, 128])]
    attach_ms: Vec<u64>,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.windows, self.seconds, self.attach_ms) = (1, 1, vec![32]);
    }
}

/// How a window's connection goes through the move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// TCP, and the address stays.
    Tcp,
    /// MPTCP: another address after `attach`, and a subflow from it after `wait` more.
    Mptcp { attach: Duration, wait: Duration },
}

impl Way {
    fn name(self) -> String {
        match self {
            Self::Tcp => "TCP, address stays".into(),
            Self::Mptcp { attach, wait } if wait.is_zero() => {
                format!("MPTCP, attach {} ms", attach.as_millis())
            }
            Self::Mptcp { attach, wait } => {
                format!("MPTCP, attach {} ms, waits {} ms", attach.as_millis(), wait.as_millis())
            }
        }
    }
}

/// The octets that a UE has got: when, in seconds after the move, and how many.
struct Trace(Vec<(f64, usize)>);

impl Trace {
    /// Octets from the move until `seconds` later.
    fn octets(&self, seconds: f64) -> f64 {
        self.0.iter().filter(|(at, _)| (0.0..seconds).contains(at)).map(|(_, n)| *n as f64).sum()
    }

    /// The longest time without an octet that the move falls into or that begins after it, within `seconds`, in milliseconds.
    fn stall_ms(&self, seconds: f64) -> f64 {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        let after = pairs.filter(|((_, _), (to, _))| (0.0..=seconds).contains(to));
        after.map(|((from, _), (to, _))| (to - from) * 1e3).fold(0.0, f64::max)
    }

    /// Rate in Mbit/s in each quarter of a second.
    fn quarters(&self, from: f64, to: f64) -> Vec<(f64, f64)> {
        let bins = ((to - from) * 4.0) as usize;
        let of = |bin: usize| {
            let begin = from + bin as f64 / 4.0;
            let octets: usize =
                self.0.iter().filter(|(at, _)| (begin..begin + 0.25).contains(at)).map(|(_, n)| n).sum();
            (begin, octets as f64 * 8.0 * 4.0 / 1e6)
        };
        (0..bins).map(of).collect()
    }
}

/// What the windows of one way at one rate have shown.
struct Cell {
    rate_kbps: u32,
    way: Way,
    traces: Vec<Trace>,
    /// How long the UE was without an address, measured, in milliseconds.
    away_ms: Vec<f64>,
}

impl Cell {
    fn octets(&self, seconds: f64) -> f64 {
        self.traces.iter().map(|t| t.octets(seconds)).sum::<f64>() / self.traces.len().max(1) as f64
    }

    /// What a move costs beside TCP that does not move, in seconds of download.
    fn lost_seconds(&self, tcp: &Self, seconds: f64) -> f64 {
        (tcp.octets(seconds) - self.octets(seconds)) * 8.0 / (f64::from(self.rate_kbps) * 1e3)
    }
}

/// Measures, prints and draws.
///
/// Errors: where there is no right to make namespaces, where the kernel has no MPTCP, and those of writing the plots.
pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    match again_inside()? {
        Some(true) => return Ok(()),
        Some(false) => return Err(io::Error::other("the measurement in a network namespace failed")),
        None => {}
    }
    let ways = ways(options);
    println!(
        "host mobility: pairs of windows for each row: {}, of {} s; UE and server in namespaces, without a gNB and without delay but the queue's",
        options.windows, options.seconds
    );
    let mut cells: Vec<Cell> = RATES_KBPS
        .iter()
        .flat_map(|&rate_kbps| ways.iter().map(move |&way| (rate_kbps, way)))
        .map(|(rate_kbps, way)| Cell { rate_kbps, way, traces: Vec::new(), away_ms: Vec::new() })
        .collect();
    measure(options, &mut cells)?;
    let figures: Vec<Value> =
        RATES_KBPS.iter().enumerate().map(|(n, _)| report(options, &cells, n)).collect();
    draw(options, &cells, plots)?;
    finish("mobility", &json!({ "windows": options.windows, "seconds": options.seconds, "rates": figures }));
    Ok(())
}

fn ways(options: &Options) -> Vec<Way> {
    let attach = options.attach_ms.iter().map(|ms| Duration::from_millis(*ms));
    let moved = attach.clone().map(|attach| Way::Mptcp { attach, wait: Duration::ZERO });
    let waiting = attach.take(1).map(|attach| Way::Mptcp { attach, wait: PAPERS_WAIT });
    [Way::Tcp].into_iter().chain(moved).chain(waiting).collect()
}

/// Each window in namespaces of its own, the windows of all cells in turn, so that what disturbs this machine disturbs them alike.
fn measure(options: &Options, cells: &mut [Cell]) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    let windows = options.windows * cells.len();
    let (length, cells, failed) = (Duration::from_secs(options.seconds), Mutex::new(cells), Mutex::new(None));
    thread::scope(|scope| {
        for _ in 0..options.at_once.clamp(1, windows) {
            scope.spawn(|| {
                loop {
                    let window = next.fetch_add(1, Ordering::Relaxed);
                    if window >= windows {
                        return;
                    }
                    let (n, rate_kbps, way) = {
                        let cells = cells.lock().unwrap_or_else(PoisonError::into_inner);
                        let n = window % cells.len();
                        (n, cells[n].rate_kbps, cells[n].way)
                    };
                    match Link::new(rate_kbps).and_then(|link| link.window(way, length)) {
                        Ok((trace, away_ms)) => {
                            let cell = &mut cells.lock().unwrap_or_else(PoisonError::into_inner)[n];
                            cell.traces.push(trace);
                            cell.away_ms.extend(away_ms);
                        }
                        Err(e) => *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(e),
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Prints the rows of a rate; its figures.
fn report(options: &Options, cells: &[Cell], n: usize) -> Value {
    let (rate_kbps, time) = (RATES_KBPS[n], ["day", "dark"][n]);
    let seconds = options.seconds as f64;
    let of_rate: Vec<&Cell> = cells.iter().filter(|c| c.rate_kbps == rate_kbps).collect();
    let tcp = of_rate[0];
    println!(
        "\n{:.2} Mbit/s, the paper's mean rate by {time}; its downloads were slower by {:.2} % over all routes",
        f64::from(rate_kbps) / 1e3,
        PAPERS_SLOWDOWN[n]
    );
    println!(
        "                                     away ms   stall ms: median     most   lost a move, s   slowdown %: suburb  downtown  highway"
    );
    let mut rows = Vec::new();
    for cell in of_rate.iter().skip(1) {
        let stalls: Vec<f64> = cell.traces.iter().map(|t| t.stall_ms(3.0_f64.min(seconds))).collect();
        let most = stalls.iter().copied().fold(0.0, f64::max);
        let (away, stall, lost) =
            (median(cell.away_ms.clone()), median(stalls), cell.lost_seconds(tcp, seconds));
        let slowdown = ROUTES.map(|(_, between)| 100.0 * lost / between[n]);
        println!(
            "  {:<32} {away:>9.1} {stall:>18.1} {most:>8.1} {lost:>16.3} {:>20.2} {:>9.2} {:>8.2}",
            cell.way.name(),
            slowdown[0],
            slowdown[1],
            slowdown[2]
        );
        rows.push(json!({
            "way": cell.way.name(), "away_ms": away, "stall_ms": stall, "stall_ms_most": most, "lost_seconds": lost,
            "slowdown_percent": ROUTES.iter().zip(slowdown).map(|((route, _), s)| json!({ *route: s })).collect::<Vec<_>>(),
        }));
    }
    println!(
        "  to reach: a stall under {STALL_MS_GOAL} ms with an attach of 32 ms, a slowdown of {SLOWDOWN_GOAL} % at most"
    );
    json!({ "rate_kbps": rate_kbps, "paper_slowdown_percent": PAPERS_SLOWDOWN[n], "rows": rows })
}

/// Figure 3.8: rate over time. Figure 3.9: octets in the n seconds after the move, relative to TCP's.
fn draw(options: &Options, cells: &[Cell], plots: &Path) -> io::Result<()> {
    let dark: Vec<&Cell> = cells.iter().filter(|c| c.rate_kbps == RATES_KBPS[1]).collect();
    let seconds = options.seconds as f64;
    let over_time = |cell: &&Cell| {
        let first = cell.traces.first().map(|t| t.quarters(-1.0, seconds)).unwrap_or_default();
        Series { name: cell.way.name(), points: first }
    };
    Plot {
        title: "A download through a move to another operator (figure 3.8)",
        x: "seconds after the move",
        y: "Mbit/s",
        log_y: false,
        axis: Axis::Numbers,
        series: dark.iter().map(over_time).collect(),
    }
    .write(plots, "bricks-mobility-rate")?;
    let relative = |cell: &&Cell| {
        let of = |n: u64| (n as f64, cell.octets(n as f64) / dark[0].octets(n as f64));
        Series { name: cell.way.name(), points: (1..=options.seconds).map(of).collect() }
    };
    Plot {
        title: "Octets in the first seconds after a move, TCP without a move = 1 (figure 3.9)",
        x: "seconds after the move",
        y: "relative throughput",
        log_y: false,
        axis: Axis::Numbers,
        series: dark.iter().skip(1).map(relative).collect(),
    }
    .write(plots, "bricks-mobility-relative")
}

/// A UE, a server, and the link between them.
struct Link {
    ue: Namespace,
    server: Namespace,
}

impl Link {
    fn new(rate_kbps: u32) -> io::Result<Self> {
        let on = "ip link set lo up; sysctl -q net.mptcp.enabled=1; ip mptcp limits set subflows 8 add_addr_accepted 8";
        let server = Namespace::new(&format!("THERE sh -ec \"{on}\""))?;
        let ue = Namespace::new(&format!("THERE sh -ec \"{on}\""))?;
        ue.sh(&format!(
            "ip link add ue type veth peer name operator netns {}; ip link set ue up; ip address add {BEFORE}/16 dev ue",
            server.pid()
        ))?;
        server.sh(&format!(
            "ip link set operator up; ip address add {SERVER}/16 dev operator; tc qdisc add dev operator root tbf rate {rate_kbps}kbit burst 32kb latency 50ms"
        ))?;
        Ok(Self { ue, server })
    }

    /// A download through one move: what the UE has got, and how long it was without an address.
    fn window(&self, way: Way, length: Duration) -> io::Result<(Trace, Option<f64>)> {
        let protocol = if way == Way::Tcp { ipproto::TCP } else { ipproto::MPTCP };
        let server = self.server.pid();
        let listening = thread::spawn(move || {
            Namespace::enter(server)?;
            let socket =
                socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, Some(protocol))?;
            bind(&socket, &SocketAddrV4::new(SERVER, PORT))?;
            listen(&socket, 1)?;
            io::Result::Ok(TcpListener::from(socket))
        });
        let listener = listening.join().map_err(|_| io::Error::other("a thread ended"))??;
        // It ends when the UE's socket is closed, or with the program.
        thread::spawn(move || {
            let Ok((mut connection, _)) = listener.accept() else { return };
            let octets = [0; 64 << 10];
            while connection.write_all(&octets).is_ok() {}
        });
        let ue = self.ue.pid();
        let receiving = thread::spawn(move || {
            Namespace::enter(ue)?;
            let socket =
                socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, Some(protocol))?;
            bind(&socket, &SocketAddrV4::new(BEFORE, 0))?;
            retry_on_intr(|| connect(&socket, &SocketAddrV4::new(SERVER, PORT)))?;
            download(TcpStream::from(socket), LEAD + length + Duration::from_millis(500))
        });
        let begun = Instant::now();
        thread::sleep(LEAD);
        let (moved, away) = match way {
            Way::Tcp => (Instant::now(), None),
            Way::Mptcp { attach, wait } => self.changes_address(attach, wait)?,
        };
        let arrived = receiving.join().map_err(|_| io::Error::other("a thread ended"))??;
        if arrived.last().is_none_or(|(at, _)| *at < begun + LEAD + length) {
            return Err(io::Error::other(format!("{}: the download ended early", way.name())));
        }
        let since = |at: Instant| {
            if at >= moved { (at - moved).as_secs_f64() } else { -(moved - at).as_secs_f64() }
        };
        Ok((Trace(arrived.into_iter().map(|(at, n)| (since(at), n)).collect()), away))
    }

    /// The UE leaves one operator and comes to the next. When it left, and how long it had no address, in milliseconds.
    fn changes_address(&self, attach: Duration, wait: Duration) -> io::Result<(Instant, Option<f64>)> {
        self.ue.sh(&format!("ip address del {BEFORE}/16 dev ue"))?;
        let left = Instant::now();
        thread::sleep(attach);
        let subflow =
            format!("ip mptcp endpoint add {AFTER} dev ue subflow; ip mptcp endpoint del id 0 {BEFORE}");
        if wait.is_zero() {
            self.ue.sh(&format!("ip address add {AFTER}/16 dev ue; {subflow}"))?;
        } else {
            self.ue.sh(&format!("ip address add {AFTER}/16 dev ue"))?;
        }
        let away = left.elapsed().as_secs_f64() * 1e3;
        if !wait.is_zero() {
            thread::sleep(wait);
            self.ue.sh(&subflow)?;
        }
        Ok((left, Some(away)))
    }
}

/// Reads for so long: when octets came, and how many.
fn download(mut from: TcpStream, time: Duration) -> io::Result<Vec<(Instant, usize)>> {
    from.set_read_timeout(Some(SILENT_MAX))?;
    let (begun, mut arrived, mut octets) = (Instant::now(), Vec::new(), vec![0; 64 << 10]);
    while begun.elapsed() < time {
        match from.read(&mut octets) {
            Ok(0) => break,
            Ok(n) => arrived.push((Instant::now(), n)),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(arrived)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_move_costs_is_the_difference_to_the_download_that_stays() {
        let steady = Trace((-10..40).map(|n| (f64::from(n) / 10.0, 14_500)).collect());
        let moved = Trace(steady.0.iter().copied().filter(|(at, _)| !(0.0..0.45).contains(at)).collect());
        assert!((steady.stall_ms(3.0) - 100.0).abs() < 1e-6 && (moved.stall_ms(3.0) - 600.0).abs() < 1e-6);
        let cell = |trace, way| Cell { rate_kbps: 1_160, way, traces: vec![trace], away_ms: Vec::new() };
        let tcp = cell(steady, Way::Tcp);
        let mptcp = cell(moved, Way::Mptcp { attach: Duration::from_millis(32), wait: Duration::ZERO });
        assert!((mptcp.lost_seconds(&tcp, 3.0) - 0.5).abs() < 1e-6, "five of ten parts of a second");
    }
}
