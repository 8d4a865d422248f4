//! Downloads by the kernel's TCP, and a numbered datagram each millisecond, between a server of the data network and a UE that has a network
//! namespace of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_tcp_congestion};
use whimbrel_ran::edge::Namespace;

use super::tcp_info::{Diagnosis, TcpInfo};
use crate::playground::GATEWAY;

/// Ports of the server, which the playground's UPF lets UEs reach; UEs answer probes at the second one.
const DOWNLOADS: u16 = 80;
const PROBES: u16 = 5001;
const PROBE_INTERVAL: Duration = Duration::from_millis(1);
/// Receive buffer of probes: some seconds of them.
const BUFFER_OCTETS: usize = 4 << 20;
/// How often TCP_INFO is read.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// A thread looks this often whether the flows have ended.
const LOOK: Duration = Duration::from_millis(50);
/// How long a connection may take to be set up.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long the last segments and probes may take.
const DRAINED_WITHIN: Duration = Duration::from_secs(5);
/// Width of the steps in which goodput is drawn.
const STEP: Duration = Duration::from_millis(20);

/// A span of time, from the beginning of the flows on.
pub(super) type Span = (Duration, Duration);

/// TCP_INFO of all connections, at the server.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    info: TcpInfo,
}

/// What the threads see.
#[derive(Debug, Default)]
struct Seen {
    /// Octets that the UE's programs read, and when.
    reads: Vec<(Duration, usize)>,
    /// When each probe was sent.
    sent: Vec<Duration>,
    /// Probes that arrived at the UE.
    at_ue: Vec<(u32, Duration)>,
    /// Probes that came back.
    back: Vec<(u32, Duration)>,
    samples: Vec<Sample>,
}

struct Shared {
    begin: Instant,
    /// Nothing more is sent.
    stop: AtomicBool,
    /// All threads end.
    over: AtomicBool,
    seen: Mutex<Seen>,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runs(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    fn sends(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Flows that run.
pub(super) struct Flows {
    shared: Arc<Shared>,
    namespace: Arc<Namespace>,
    /// Both ends of each connection stay open until the flows are dropped.
    connections: Vec<(TcpStream, TcpStream)>,
    threads: Vec<JoinHandle<()>>,
}

impl Flows {
    /// Starts the downloads and the probes. Errors: one sentence.
    pub(super) fn start(namespace: &Arc<Namespace>, ue: Ipv4Addr, downloads: usize) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("the flows cannot be started: {e}");
        let listener = TcpListener::bind((GATEWAY, DOWNLOADS)).map_err(failed)?;
        // Linux's default, which the paper had.
        set_tcp_congestion(&listener, "cubic").map_err(|e| failed(e.into()))?;
        let probes = UdpSocket::bind((GATEWAY, PROBES)).map_err(failed)?;
        let echo = namespace.inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PROBES)));
        let echo = echo.and_then(|socket| socket).map_err(failed)?;
        for socket in [&probes, &echo] {
            let _as_it_is = set_socket_recv_buffer_size_force(socket, BUFFER_OCTETS);
            socket.set_read_timeout(Some(LOOK)).map_err(failed)?;
        }
        let shared = Arc::new(Shared {
            begin: Instant::now(),
            stop: AtomicBool::new(false),
            over: AtomicBool::new(false),
            seen: Mutex::default(),
        });
        let mut flows =
            Self { shared, namespace: namespace.clone(), connections: Vec::new(), threads: Vec::new() };
        for _ in 0..downloads {
            let to = SocketAddr::from((GATEWAY, DOWNLOADS));
            let client = namespace.inside(|| TcpStream::connect_timeout(&to, CONNECT_WITHIN));
            let client = client.and_then(|stream| stream).map_err(failed)?;
            let (server, _) = listener.accept().map_err(failed)?;
            server.set_write_timeout(Some(LOOK)).map_err(failed)?;
            client.set_read_timeout(Some(LOOK)).map_err(failed)?;
            let ends = (server.try_clone().map_err(failed)?, client.try_clone().map_err(failed)?);
            flows.connections.push(ends);
            flows.spawn(move |shared| serve(server, shared));
            flows.spawn(move |shared| download(client, shared));
        }
        let answers = probes.try_clone().map_err(failed)?;
        let diagnosis = Diagnosis::open().map_err(failed)?;
        flows.spawn(move |shared| answer(&echo, shared));
        flows.spawn(move |shared| take_answers(&answers, shared));
        flows.spawn(move |shared| probe(&probes, (ue, PROBES).into(), shared));
        flows.spawn(move |shared| sample(&diagnosis, shared));
        Ok(flows)
    }

    fn spawn(&mut self, work: impl FnOnce(&Shared) + Send + 'static) {
        let shared = self.shared.clone();
        self.threads.push(thread::spawn(move || work(&shared)));
    }

    /// The time since the beginning of the flows.
    pub(super) fn now(&self) -> Duration {
        self.shared.begin.elapsed()
    }

    /// The time of an event since the beginning of the flows.
    pub(super) fn at(&self, event: Instant) -> Duration {
        event.saturating_duration_since(self.shared.begin)
    }

    /// Whether a probe that was sent after this time has come back.
    pub(super) fn answered_since(&self, at: Duration) -> bool {
        let seen = self.shared.seen();
        let last = seen.back.last().and_then(|(n, _)| seen.sent.get(*n as usize));
        last.is_some_and(|sent| *sent > at)
    }

    /// Ends the flows, when what was sent has arrived.
    pub(super) fn finish(mut self) -> Traffic {
        self.shared.stop.store(true, Ordering::Relaxed);
        let of_ue = self.namespace.inside(Diagnosis::open).and_then(|diagnosis| diagnosis);
        let of_server = Diagnosis::open();
        let both = || {
            let server = of_server.as_ref().ok()?.connections(DOWNLOADS, true).ok()?;
            let ue = of_ue.as_ref().ok()?.connections(DOWNLOADS, false).ok()?;
            let complete = server.len() == self.connections.len() && ue.len() == server.len();
            let sum = |all: Vec<TcpInfo>| all.into_iter().fold(TcpInfo::default(), TcpInfo::add);
            complete.then(|| (sum(server), sum(ue)))
        };
        let until = Instant::now() + DRAINED_WITHIN;
        let mut ends = both();
        while ends.is_none_or(|(server, _)| server.unacknowledged > 0) && Instant::now() < until {
            thread::sleep(LOOK);
            ends = both();
        }
        thread::sleep(2 * LOOK); // for the last probes
        let ends = both();
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
        // The connections are closed while the UE is there: else the server would retransmit its FINs in the next case.
        self.connections.clear();
        thread::sleep(4 * LOOK);
        let seen = std::mem::take(&mut *self.shared.seen());
        Traffic { seen, ends }
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.over.store(true, Ordering::Relaxed);
    }
}

/// Sends as fast as TCP takes it.
fn serve(mut stream: TcpStream, shared: &Shared) {
    let octets = [0; 16_384];
    while shared.sends() {
        match stream.write(&octets) {
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

fn download(mut stream: TcpStream, shared: &Shared) {
    let mut octets = vec![0; 65_536];
    while shared.runs() {
        match stream.read(&mut octets) {
            Ok(0) => return,
            Ok(n) => {
                let at = shared.begin.elapsed();
                shared.seen().reads.push((at, n));
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

/// The server's probes: each has its number.
fn probe(socket: &UdpSocket, ue: SocketAddr, shared: &Shared) {
    let mut due = Instant::now();
    for n in 0u32.. {
        if !shared.sends() {
            return;
        }
        let at = shared.begin.elapsed();
        shared.seen().sent.push(at);
        let _lost = socket.send_to(&n.to_be_bytes(), ue);
        due += PROBE_INTERVAL;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// The UE sends each probe back.
fn answer(socket: &UdpSocket, shared: &Shared) {
    let mut octets = [0; 64];
    while shared.runs() {
        let Ok((n, from)) = socket.recv_from(&mut octets) else { continue };
        let at = shared.begin.elapsed();
        let Some(number) = octets[..n].first_chunk().map(|n| u32::from_be_bytes(*n)) else { continue };
        shared.seen().at_ue.push((number, at));
        let _lost = socket.send_to(&octets[..n], from);
    }
}

fn take_answers(socket: &UdpSocket, shared: &Shared) {
    let mut octets = [0; 64];
    while shared.runs() {
        let Ok((n, _)) = socket.recv_from(&mut octets) else { continue };
        let at = shared.begin.elapsed();
        let Some(number) = octets[..n].first_chunk().map(|n| u32::from_be_bytes(*n)) else { continue };
        shared.seen().back.push((number, at));
    }
}

fn sample(diagnosis: &Diagnosis, shared: &Shared) {
    while shared.runs() {
        let at = shared.begin.elapsed();
        if let Ok(all) = diagnosis.connections(DOWNLOADS, true)
            && let Some(info) = all.into_iter().reduce(TcpInfo::add)
        {
            shared.seen().samples.push(Sample { at, info });
        }
        thread::sleep(SAMPLE_INTERVAL);
    }
}

/// What became of the flows.
pub(super) struct Traffic {
    seen: Seen,
    /// TCP_INFO of all connections, at the server and at the UE; `None`: a connection has ended.
    ends: Option<(TcpInfo, TcpInfo)>,
}

/// What became of probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) sent: u64,
    pub(super) lost_downlink: u64,
    pub(super) lost_uplink: u64,
    pub(super) doubled: u64,
    pub(super) reordered: u64,
}

impl Fate {
    pub(super) fn lost(&self) -> u64 {
        self.lost_downlink + self.lost_uplink
    }
}

impl Traffic {
    pub(super) fn end(&self) -> Duration {
        self.seen.sent.last().copied().unwrap_or_default()
    }

    /// The longest time without a probe at the UE.
    pub(super) fn gap_downlink(&self, span: Span) -> Duration {
        longest_gap(self.seen.at_ue.iter().map(|(_, at)| *at), span)
    }

    /// The longest time without an answer at the server.
    pub(super) fn gap_uplink(&self, span: Span) -> Duration {
        longest_gap(self.seen.back.iter().map(|(_, at)| *at), span)
    }

    /// The longest time in which the UE's programs read nothing.
    pub(super) fn stall(&self, span: Span) -> Duration {
        longest_gap(self.seen.reads.iter().map(|(at, _)| *at), span)
    }

    /// Octets that the UE's programs read.
    pub(super) fn octets(&self, (from, to): Span) -> u64 {
        self.seen.reads.iter().filter(|(at, _)| *at >= from && *at < to).map(|(_, n)| *n as u64).sum()
    }

    /// Probes that were sent in this time.
    pub(super) fn fate(&self, (from, to): Span) -> Fate {
        let sent = |n: u32| self.seen.sent.get(n as usize).is_some_and(|at| *at >= from && *at < to);
        let count = |arrivals: &[(u32, Duration)]| {
            let numbers: Vec<u32> = arrivals.iter().map(|(n, _)| *n).filter(|n| sent(*n)).collect();
            let reordered = numbers.iter().zip(numbers.iter().skip(1)).filter(|(a, b)| b < a).count() as u64;
            let mut distinct = numbers.clone();
            distinct.sort_unstable();
            distinct.dedup();
            (distinct.len() as u64, (numbers.len() - distinct.len()) as u64, reordered)
        };
        let all = (0..self.seen.sent.len() as u32).filter(|n| sent(*n)).count() as u64;
        let (at_ue, doubled_down, reordered_down) = count(&self.seen.at_ue);
        let (back, doubled_up, reordered_up) = count(&self.seen.back);
        Fate {
            sent: all,
            lost_downlink: all - at_ue,
            lost_uplink: at_ue.saturating_sub(back),
            // What is doubled on the way to the UE comes back twice.
            doubled: doubled_down.max(doubled_up),
            reordered: reordered_down + reordered_up,
        }
    }

    /// TCP's segments that were sent and did not arrive, in both directions; `None`: a connection has ended.
    pub(super) fn segments_lost(&self) -> Option<u64> {
        let (server, ue) = self.ends?;
        let lost = |sent: u32, received: u32| u64::from(sent.saturating_sub(received));
        // The server does not count its SYN, and sends hardly anything but data.
        Some(lost(server.data_segments_out, ue.data_segments_in) + lost(ue.segments_out, server.segments_in))
    }

    /// Segments that TCP retransmitted, and those of them that the UE had received already.
    pub(super) fn retransmitted(&self) -> Option<(u32, u32)> {
        self.ends.map(|(server, _)| (server.retransmitted, server.repeated))
    }

    /// The round-trip times of probes by when they were sent, in milliseconds; those that were lost are left out.
    fn round_trips(&self) -> impl Iterator<Item = (Duration, f64)> {
        let trip = |(n, at): &(u32, Duration)| {
            let sent = *self.seen.sent.get(*n as usize)?;
            Some((sent, at.saturating_sub(sent).as_secs_f64() * 1e3))
        };
        self.seen.back.iter().filter_map(trip)
    }

    /// The longest round trip of probes that were sent in this time, in milliseconds.
    pub(super) fn longest_round_trip(&self, (from, to): Span) -> f64 {
        self.round_trips().filter(|(at, _)| *at >= from && *at < to).map(|(_, ms)| ms).fold(0.0, f64::max)
    }

    /// The median round trip of probes that were sent in this time, in milliseconds.
    pub(super) fn median_round_trip(&self, (from, to): Span) -> f64 {
        let mut all: Vec<f64> =
            self.round_trips().filter(|(at, _)| *at >= from && *at < to).map(|(_, ms)| ms).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    }

    /// TCP's longest smoothed round-trip time, in milliseconds.
    pub(super) fn longest_smoothed(&self, (from, to): Span) -> f64 {
        let within = self.seen.samples.iter().filter(|s| s.at >= from && s.at < to);
        within.map(|s| f64::from(s.info.rtt_us) / 1e3).fold(0.0, f64::max)
    }

    /// Goodput over time: seconds and Mbit/s.
    pub(super) fn goodput(&self) -> Vec<(f64, f64)> {
        let steps = (self.end().as_nanos() / STEP.as_nanos()) as usize;
        let mut octets = vec![0usize; steps];
        for (at, n) in &self.seen.reads {
            if let Some(step) = octets.get_mut((at.as_nanos() / STEP.as_nanos()) as usize) {
                *step += n;
            }
        }
        let seconds = STEP.as_secs_f64();
        octets.iter().enumerate().map(|(i, n)| (i as f64 * seconds, *n as f64 * 8e-6 / seconds)).collect()
    }

    /// Round-trip times of probes over time: seconds, and the longest of each step in milliseconds.
    pub(super) fn round_trips_over_time(&self) -> Vec<(f64, f64)> {
        let mut steps: Vec<(f64, f64)> = Vec::new();
        for (at, ms) in self.round_trips() {
            let step = (at.as_nanos() / STEP.as_nanos()) as f64 * STEP.as_secs_f64();
            match steps.last_mut() {
                Some((at, longest)) if *at == step => *longest = longest.max(ms),
                _ => steps.push((step, ms)),
            }
        }
        steps
    }

    /// TCP's congestion window over time: seconds and segments.
    pub(super) fn window(&self) -> Vec<(f64, f64)> {
        self.seen.samples.iter().map(|s| (s.at.as_secs_f64(), f64::from(s.info.window))).collect()
    }
}

/// The longest time between two arrivals, or from the last one to the end, of which a part is in this time.
fn longest_gap(arrivals: impl Iterator<Item = Duration>, (from, to): Span) -> Duration {
    let (mut before, mut longest) = (None, Duration::ZERO);
    for at in arrivals {
        if before.is_some_and(|before| before >= to) {
            break;
        }
        if at > from {
            longest = longest.max(at.saturating_sub(before.unwrap_or(from)));
        }
        before = Some(at);
    }
    longest.max(to.saturating_sub(before.unwrap_or(from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn traffic(sent: u64, at_ue: &[(u32, u64)], back: &[(u32, u64)]) -> Traffic {
        let arrivals = |all: &[(u32, u64)]| all.iter().map(|(n, at)| (*n, ms(*at))).collect();
        let seen = Seen {
            sent: (0..sent).map(ms).collect(),
            at_ue: arrivals(at_ue),
            back: arrivals(back),
            ..Seen::default()
        };
        Traffic { seen, ends: None }
    }

    #[test]
    fn the_longest_gap_begins_or_ends_in_the_span() {
        let arrivals = || [0, 1, 2, 40, 41, 42, 142, 143].into_iter().map(ms);
        assert_eq!(longest_gap(arrivals(), (ms(10), ms(42))), ms(38));
        assert_eq!(longest_gap(arrivals(), (ms(2), ms(43))), ms(100));
        assert_eq!(longest_gap(arrivals(), (ms(143), ms(200))), ms(57));
        assert_eq!(longest_gap(std::iter::empty(), (ms(5), ms(7))), ms(2));
    }

    #[test]
    fn probes_are_counted_by_what_became_of_them() {
        let traffic =
            traffic(6, &[(0, 10), (2, 12), (1, 13), (1, 14), (4, 15)], &[(0, 20), (1, 21), (2, 22)]);
        let fate = traffic.fate((ms(0), ms(6)));
        assert_eq!(fate, Fate { sent: 6, lost_downlink: 2, lost_uplink: 1, doubled: 1, reordered: 1 });
        assert_eq!(traffic.fate((ms(5), ms(6))).lost(), 1);
        assert_eq!(
            (traffic.gap_downlink((ms(0), ms(10))), traffic.longest_round_trip((ms(0), ms(6)))),
            (ms(10), 20.0)
        );
    }

    #[test]
    fn lost_segments_are_those_that_the_other_end_has_not_counted() {
        let server = TcpInfo { data_segments_out: 100, segments_in: 50, ..TcpInfo::default() };
        let ue = TcpInfo { segments_out: 51, data_segments_in: 97, ..TcpInfo::default() };
        let traffic = Traffic { seen: Seen::default(), ends: Some((server, ue)) };
        assert_eq!(traffic.segments_lost(), Some(4));
    }
}
