//! A DNS server, a web server and a server of streams on the data network, for UEs to use.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use whimbrel_ran::user_plane::{PacketArrivals, StreamServer};

/// The name that UEs resolve.
pub(crate) const NAME: &str = "www.whimbrel.test";
/// The page that UEs fetch.
const PAGE: &str = "<!doctype html><title>Whimbrel</title><p>A UE reads this through its PDU session.</p>\n";
/// Octets of `/picture`.
const PICTURE_OCTETS: usize = 128 << 10;
/// UDP port of the streams.
const STREAM_PORT: u16 = 5001;
/// Receive buffer of the streams' socket, in octets.
const RECEIVE_BUFFER_OCTETS: usize = 16 << 20;
/// Longest wait for a packet of a stream.
const STREAM_WAIT: Duration = Duration::from_millis(20);
/// Packets that are taken before due ones are sent.
const AT_ONCE_MAX: usize = 64;
/// The address exists once the core has made its TUN device.
const BIND_WITHIN: Duration = Duration::from_secs(5);

/// The running servers; they end with the process.
pub(crate) struct Servers {
    served: Arc<Served>,
    gaps: Gaps,
}

/// Time between packets of a stream that is counted packet by packet.
pub(crate) const FAST_INTERVAL: Duration = Duration::from_millis(1);

/// What UEs' streams have shown.
#[derive(Clone, Default)]
pub(crate) struct Gaps(Arc<Mutex<Streams>>);

#[derive(Default)]
struct Streams {
    server: StreamServer,
    /// The arrival time of each UE's last packet, and whether its stream is fast.
    last: BTreeMap<SocketAddr, (Instant, bool)>,
    longest: Longest,
}

/// The longest times between two packets of one UE.
#[derive(Clone, Copy, Default)]
pub(crate) struct Longest {
    /// Of all UEs.
    pub(crate) all: Duration,
    /// Of those with fast streams.
    pub(crate) fast: Duration,
    /// UEs that have sent.
    pub(crate) ues: usize,
}

impl Longest {
    fn add(&mut self, gap: Duration, fast: bool) {
        self.all = self.all.max(gap);
        if fast {
            self.fast = self.fast.max(gap);
        }
    }
}

impl Gaps {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest times since the last call: also a UE that has stopped counts.
    pub(crate) fn longest(&self) -> Longest {
        let now = Instant::now();
        let mut streams = self.streams();
        let mut longest = std::mem::take(&mut streams.longest);
        streams.last.values().for_each(|(last, fast)| longest.add(now - *last, *fast));
        longest.ues = streams.last.len();
        longest
    }

    /// When the last packet came from each address.
    pub(crate) fn last_arrivals(&self) -> BTreeMap<IpAddr, Instant> {
        let mut arrivals = BTreeMap::new();
        for (from, (last, _)) in &self.streams().last {
            let of = arrivals.entry(from.ip()).or_insert(*last);
            *of = (*of).max(*last);
        }
        arrivals
    }

    /// What has become of the packets of fast streams: uplink and downlink.
    pub(crate) fn fast_arrivals(&self) -> [PacketArrivals; 2] {
        self.streams().server.arrivals(FAST_INTERVAL)
    }

    /// The streams so far are over: others with the same addresses follow.
    fn forget(&self) {
        *self.streams() = Streams::default();
    }
}

impl Streams {
    fn receive(
        &mut self,
        now: whimbrel_ids::Instant,
        from: SocketAddr,
        octets: &[u8],
        send: &mut dyn FnMut(SocketAddr, Vec<u8>),
    ) {
        self.server.receive(now, from, octets, send);
        let fast = self.server.interval_of(&from) == Some(FAST_INTERVAL);
        let now = Instant::now();
        if let Some((last, _)) = self.last.insert(from, (now, fast)) {
            self.longest.add(now - last, fast);
        }
    }
}

/// Number of requests to each server.
#[derive(Default)]
struct Served {
    names: AtomicU64,
    pages: AtomicU64,
}

impl Servers {
    /// Starts both at an address of the data network. Errors: one sentence.
    pub(crate) fn start(address: Ipv4Addr) -> Result<Self, String> {
        let dns = bind(|| UdpSocket::bind(SocketAddr::from((address, 53))))?;
        let web = bind(|| TcpListener::bind(SocketAddr::from((address, 80))))?;
        let stream = bind(|| UdpSocket::bind(SocketAddr::from((address, STREAM_PORT))))?;
        let gaps = Gaps::default();
        let seen = gaps.clone();
        std::thread::spawn(move || streams(&stream, &seen));
        let served = Arc::new(Served::default());
        let (names, pages) = (served.clone(), served.clone());
        std::thread::spawn(move || resolve(&dns, address, &names.names));
        std::thread::spawn(move || serve(&web, &pages));
        Ok(Self { served, gaps })
    }

    /// The streams so far are over: others with the same addresses follow.
    pub(crate) fn forget_streams(&self) {
        self.gaps.forget();
    }

    /// The gaps in the received streams.
    pub(crate) fn gaps(&self) -> Gaps {
        self.gaps.clone()
    }

    /// Names resolved and pages served.
    pub(crate) fn served(&self) -> (u64, u64) {
        (self.served.names.load(Ordering::Relaxed), self.served.pages.load(Ordering::Relaxed))
    }
}

fn bind<T>(mut attempt: impl FnMut() -> std::io::Result<T>) -> Result<T, String> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Ok(socket) => return Ok(socket),
            Err(e) if e.kind() == ErrorKind::AddrNotAvailable && begin.elapsed() < BIND_WITHIN => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(e) => return Err(format!("the servers of the data network cannot listen: {e}")),
        }
    }
}

/// Serves the UEs' streams.
fn streams(socket: &UdpSocket, gaps: &Gaps) {
    // Large, so that no packet is lost here on a busy host: the core is measured.
    let _as_it_is = rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER_OCTETS);
    let clock = whimbrel_ran::edge::Clock::default();
    let mut octets = [0; 2048];
    let mut send = |to: SocketAddr, payload: Vec<u8>| {
        let _lost = socket.send_to(&payload, to);
    };
    let _as_it_is = socket.set_nonblocking(true);
    loop {
        let now = clock.now();
        let next = {
            let server = &mut gaps.streams().server;
            server.tick(now, &mut send);
            server.next_deadline()
        };
        let wait = next.map_or(STREAM_WAIT, |at| at.since(clock.now()).min(STREAM_WAIT));
        // A receive timeout would be rounded up to a tick of the kernel, and packets would leave milliseconds late.
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
        for _ in 0..AT_ONCE_MAX {
            let Ok((n, from)) = socket.recv_from(&mut octets) else { break };
            gaps.streams().receive(clock.now(), from, octets.get(..n).unwrap_or_default(), &mut send);
        }
    }
}

/// Answers every query for an A record with our address, and every other query without a record (RFC 1035 §4).
fn resolve(socket: &UdpSocket, address: Ipv4Addr, count: &AtomicU64) {
    let mut octets = [0; 512];
    while let Ok((n, from)) = socket.recv_from(&mut octets) {
        let Some(answer) = answer(&octets[..n], address) else { continue };
        count.fetch_add(1, Ordering::Relaxed);
        let _ = socket.send_to(&answer, from);
    }
}

fn answer(query: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    let mut end = 12;
    while *query.get(end)? != 0 {
        end += usize::from(query[end]) + 1;
    }
    let question = query.get(12..end + 5)?;
    let is_a = question.ends_with(&[0, 1, 0, 1]);
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(&query[..2]);
    out.extend_from_slice(&[0x84, 0x00, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]); // authoritative answer, one question
    out.extend_from_slice(question);
    if is_a {
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]); // the question's name, A, IN, 60 s
        out.extend_from_slice(&address.octets());
    }
    Some(out)
}

fn serve(listener: &TcpListener, served: &Arc<Served>) {
    for stream in listener.incoming().flatten() {
        let served = served.clone();
        std::thread::spawn(move || page(stream, &served.pages));
    }
}

fn page(mut stream: TcpStream, count: &AtomicU64) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let mut request = [0; 1024];
    if stream.read(&mut request).is_ok_and(|n| request[..n].starts_with(b"GET ")) {
        count.fetch_add(1, Ordering::Relaxed);
        // A picture is the page again and again.
        let repeated = if request.starts_with(b"GET /picture ") { PICTURE_OCTETS / PAGE.len() } else { 1 };
        let body = PAGE.repeat(repeated);
        let length = body.len();
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_for_an_address_is_answered_and_others_are_not() {
        let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, b'w', b'w', b'w', 0, 0, 1, 0, 1];
        let a = answer(&query, Ipv4Addr::new(10, 0, 0, 1)).unwrap();
        assert!(a.ends_with(&[10, 0, 0, 1]));
        assert_eq!(a[6..8], [0, 1]);
        let at = query.len() - 3;
        query[at] = 28; // AAAA
        assert_eq!(answer(&query, Ipv4Addr::LOCALHOST).unwrap()[6..8], [0, 0]);
        assert_eq!(answer(&query[..14], Ipv4Addr::LOCALHOST), None);
        assert_eq!(answer(&[], Ipv4Addr::LOCALHOST), None);
    }
}
