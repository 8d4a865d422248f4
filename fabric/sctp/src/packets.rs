//! Our own endpoint on sockets that carry packets: raw IP, or UDP (RFC 6951).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use whimbrel_ids::Instant;
use whimbrel_sctp::{
    AdoptedAssociation, AssociationId, Connect, Counters, Defect, Endpoint, Events, Former, Input, Outbox,
    Packets, Path, RequestRefusal, Send, Store,
};

use crate::guard::PortGuard;
use crate::report::{Mode, Obstacle};
use crate::store::AssociationStore;
use crate::sys::{self, ReceiveBatch};
use crate::{IoCounters, TransportSettings};

/// Most batches taken from one socket before the others and the timers have their turn.
const BATCHES_PER_DRAIN: usize = 8;

/// One socket and the address that it is bound to, which may be unspecified.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) fd: OwnedFd,
    pub(crate) local: IpAddr,
}

/// The endpoint and its sockets.
pub(crate) struct PacketTransport {
    mode: Mode,
    endpoint: Endpoint,
    sockets: Vec<Socket>,
    batch: ReceiveBatch,
    out: Outbox,
    counters: IoCounters,
    store: Option<AssociationStore>,
    /// Another process has taken the store over: nothing leaves here any more.
    fenced: bool,
    _guards: Vec<PortGuard>,
}

impl PacketTransport {
    pub(crate) fn open(
        mode: Mode,
        settings: &TransportSettings,
        secret: [u8; 32],
        now: Instant,
        limits: &mut Vec<String>,
    ) -> Result<Self, Obstacle> {
        if mode == Mode::Raw {
            refuse_beside_kernel_sctp()?;
        }
        if settings.endpoint.port != 0 {
            return Self::open_port(mode, settings, mode == Mode::Raw, secret, now, limits);
        }
        let mut settings = settings.clone();
        let mut last = None;
        for port in ephemeral_ports(secret) {
            settings.endpoint.port = port;
            match Self::open_port(mode, &settings, true, secret, now, limits) {
                Err(o) if o.errno == Some(libc::EADDRINUSE) => last = Some(o),
                done => return done,
            }
        }
        Err(last
            .unwrap_or_else(|| Obstacle::of(mode, "finding a free port", &io::ErrorKind::AddrInUse.into())))
    }

    fn open_port(
        mode: Mode,
        settings: &TransportSettings,
        claim: bool,
        secret: [u8; 32],
        now: Instant,
        limits: &mut Vec<String>,
    ) -> Result<Self, Obstacle> {
        let opened = open_sockets(mode, settings, claim, limits)?;
        Ok(Self::over(mode, opened, Endpoint::new(settings.endpoint.clone(), secret, now), None))
    }

    /// `store`: where the state of associations outlives this process.
    pub(crate) fn over(
        mode: Mode,
        (sockets, guards): (Vec<Socket>, Vec<PortGuard>),
        endpoint: Endpoint,
        store: Option<AssociationStore>,
    ) -> Self {
        Self {
            mode,
            endpoint,
            sockets,
            batch: ReceiveBatch::new(),
            out: Outbox::default(),
            counters: IoCounters::default(),
            store,
            fenced: false,
            _guards: guards,
        }
    }

    pub(crate) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.sockets.iter().map(|s| s.fd.as_fd()).collect()
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if self.out.events.is_empty() { self.endpoint.next_deadline() } else { Some(Instant::ZERO) }
    }

    pub(crate) fn counters(&self) -> (Counters, IoCounters) {
        (self.endpoint.counters(), self.counters)
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Takes the packets that are there and the timers that are due; what happened is left in `events`.
    pub(crate) fn drain(&mut self, now: Instant, events: &mut Events) {
        if !self.owns_store() {
            return events.clear();
        }
        for at in 0..self.sockets.len() {
            self.drain_socket(at, now);
        }
        self.endpoint.handle(now, Input::Tick, &mut self.out);
        // A replica may have what the events cause before the next flush: it then has to find them here.
        if let Some(store) = self.store.as_mut().filter(|_| self.endpoint.holds_acknowledgements()) {
            self.endpoint.export(store);
        }
        events.clear();
        core::mem::swap(events, &mut self.out.events);
    }

    fn drain_socket(&mut self, at: usize, now: Instant) {
        let Some(socket) = self.sockets.get(at) else { return };
        for _ in 0..BATCHES_PER_DRAIN {
            let n = match self.batch.receive(socket.fd.as_fd()) {
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // ICMP errors of earlier packets surface here; SCTP's own timers judge paths (RFC 9260 §10).
                Err(_) => {
                    self.counters.receive_errors += 1;
                    continue;
                }
            };
            for i in 0..n {
                let Some((octets, from, to)) = self.batch.packet(i) else { continue };
                let Some((path, octets)) = received(self.mode, socket.local, octets, from, to) else {
                    continue;
                };
                self.endpoint.handle(now, Input::Packet { path, octets }, &mut self.out);
            }
            if n < sys::BATCH {
                return;
            }
        }
    }

    /// Whether this process still owns the store, or has none.
    fn owns_store(&mut self) -> bool {
        self.fenced |= self.store.as_ref().is_some_and(|store| !store.is_owner());
        !self.fenced
    }

    pub(crate) fn is_fenced(&mut self) -> bool {
        !self.owns_store()
    }

    /// Continues what a former owner of the store had. Returns it, and the slots that cannot be continued.
    pub(crate) fn adopt(&mut self, now: Instant) -> (Vec<AdoptedAssociation>, Vec<(u32, Defect)>) {
        let (mut adopted, mut refused) = (Vec::new(), Vec::new());
        let Some(store) = &self.store else { return (adopted, refused) };
        for slot in 0..store.slots() {
            match self.endpoint.adopt(now, slot, store) {
                Ok(found) => adopted.extend(found),
                Err(defect) => refused.push((slot, defect)),
            }
        }
        (adopted, refused)
    }

    pub(crate) fn resume(&mut self, now: Instant, association: AssociationId, messages: u64) {
        self.endpoint.resume(now, association, messages, &mut self.out);
    }

    /// All that is continued is resumed: a successor continues from here.
    pub(crate) fn settle(&mut self) {
        if let Some(store) = &mut self.store {
            self.endpoint.export(store);
            store.settle();
        }
    }

    pub(crate) fn connect(&mut self, now: Instant, to: Connect<'_>) -> Result<AssociationId, RequestRefusal> {
        let udp_port = if self.mode == Mode::Udp { to.udp_port } else { 0 };
        let to = Connect { udp_port, ..to };
        let id = self.endpoint.connect(now, to, &mut self.out)?;
        self.flush(now);
        Ok(id)
    }

    pub(crate) fn send(&mut self, s: Send<'_>) -> Result<(), RequestRefusal> {
        self.endpoint.send(s)
    }

    pub(crate) fn input(&mut self, now: Instant, input: Input<'_>) {
        self.endpoint.handle(now, input, &mut self.out);
        self.flush(now);
    }

    pub(crate) fn flush(&mut self, now: Instant) {
        self.endpoint.flush(now, &mut self.out);
        self.send_packets();
    }

    pub(crate) fn abort_former(&mut self, former: &Former) {
        self.endpoint.abort_former(former, &mut self.out);
        self.send_packets();
    }

    /// Sends what the endpoint says; what a successor needs is written before.
    fn send_packets(&mut self) {
        if let Some(store) = self.store.as_mut().filter(|_| !self.fenced) {
            self.endpoint.export(store);
        }
        // After the export: a process that takes the store over now reads the state that these packets depend on.
        if !self.owns_store() {
            self.out.packets.clear();
        }
        let Self { mode, sockets, out, counters, .. } = self;
        send_packets(*mode, sockets, &out.packets, counters);
        out.packets.clear();
    }
}

/// Sends packets, each run of one socket in batches. What the host refuses is lost, as on a network: SCTP repeats it.
fn send_packets(mode: Mode, sockets: &[Socket], packets: &Packets, counters: &mut IoCounters) {
    let mut run: Vec<(&[u8], SocketAddr, Option<IpAddr>)> = Vec::with_capacity(packets.len().min(sys::BATCH));
    let mut current: Option<&Socket> = None;
    for (path, octets) in packets.iter() {
        let Some(socket) = socket_for(sockets, path) else {
            counters.send_errors += 1;
            continue;
        };
        if current.is_some_and(|c| !core::ptr::eq(c, socket)) || run.len() == sys::BATCH {
            send_run(current, &mut run, counters);
        }
        current = Some(socket);
        let port = if mode == Mode::Udp { path.udp_port } else { 0 };
        let source = (socket.local.is_unspecified() && !path.local.is_unspecified()).then_some(path.local);
        run.push((octets, SocketAddr::new(path.remote, port), source));
    }
    send_run(current, &mut run, counters);
}

fn send_run(
    socket: Option<&Socket>,
    run: &mut Vec<(&[u8], SocketAddr, Option<IpAddr>)>,
    counters: &mut IoCounters,
) {
    let Some(socket) = socket else { return };
    let mut rest = run.as_slice();
    while !rest.is_empty() {
        let done = match sys::send_batch(socket.fd.as_fd(), rest) {
            Ok(n) if n > 0 => {
                counters.packets_sent += n as u64;
                n
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            // The first of the rest was refused, by a full buffer or for want of a route.
            _ => {
                counters.send_errors += 1;
                1
            }
        };
        rest = rest.get(done..).unwrap_or(&[]);
    }
    run.clear();
}

/// SCTP ports to try for a client, beginning anywhere in the dynamic range (RFC 6335 §6).
fn ephemeral_ports(secret: [u8; 32]) -> impl Iterator<Item = u16> {
    const FIRST: u16 = 49_152;
    const ATTEMPTS_MAX: u16 = 256;
    let [a, b, ..] = secret;
    let start = u16::from_be_bytes([a, b]);
    (0..ATTEMPTS_MAX).map(move |i| FIRST + start.wrapping_add(i) % (u16::MAX - FIRST))
}

/// The socket bound to a path's local address, or one of its family that is bound to all.
fn socket_for(sockets: &[Socket], path: Path) -> Option<&Socket> {
    let of_family = || sockets.iter().filter(|s| s.local.is_ipv4() == path.remote.is_ipv4());
    of_family()
        .find(|s| s.local == path.local)
        .or_else(|| of_family().find(|s| s.local.is_unspecified()))
        .or_else(|| of_family().next())
}

/// The path of a received packet, and its octets from the SCTP common header on.
fn received(
    mode: Mode,
    bound: IpAddr,
    octets: &[u8],
    from: SocketAddr,
    to: Option<IpAddr>,
) -> Option<(Path, &[u8])> {
    if mode == Mode::Udp {
        let path = Path { local: to.unwrap_or(bound), remote: from.ip(), udp_port: from.port() };
        return Some((path, octets));
    }
    if bound.is_ipv6() {
        return Some((Path { local: to.unwrap_or(bound), remote: from.ip(), udp_port: 0 }, octets));
    }
    // A raw IPv4 socket shows the IP header: its length is in words in the low half of the first octet.
    let header = usize::from(octets.first()? & 0xf) * 4;
    let local = Ipv4Addr::from(*octets.get(16..)?.first_chunk::<4>()?);
    Some((Path { local: local.into(), remote: from.ip(), udp_port: 0 }, octets.get(header..)?))
}

/// Raw sockets and the kernel's SCTP exclude each other.
pub(crate) fn refuse_beside_kernel_sctp() -> Result<(), Obstacle> {
    if !std::path::Path::new("/proc/net/sctp").exists() {
        return Ok(());
    }
    Err(Obstacle {
        mode: Mode::Raw,
        cause: "the kernel's own SCTP is loaded".into(),
        effect: "it would abort every association that it does not know, and so all of ours",
        fix: "use `sctp: kernel`, or unload the sctp module",
        errno: None,
    })
}

/// Opens the sockets. `claim`: takes the lock on the port, which UDP sockets have of their own unless the port was ours to choose.
pub(crate) fn open_sockets(
    mode: Mode,
    settings: &TransportSettings,
    claim: bool,
    limits: &mut Vec<String>,
) -> Result<(Vec<Socket>, Vec<PortGuard>), Obstacle> {
    let wildcard = settings.endpoint.local_addresses.is_empty();
    let locals = if wildcard {
        vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]
    } else {
        settings.endpoint.local_addresses.clone()
    };
    let (mut sockets, mut guards) = (Vec::new(), Vec::new());
    for local in locals {
        let claimed = if claim { claim_port(mode, local, settings) } else { Ok(None) };
        let opened = claimed.and_then(|g| open_socket(mode, local, settings).map(|fd| (g, fd)));
        match opened {
            Ok((guard, fd)) => {
                guards.extend(guard);
                sockets.push(Socket { fd, local });
            }
            // A host without IPv6 serves IPv4 all the same, unless an IPv6 address is configured.
            Err(o) if wildcard && local.is_ipv6() && o.errno != Some(libc::EADDRINUSE) => {
                limits.push(format!("no IPv6 ({})", o.cause))
            }
            Err(o) => return Err(o),
        }
    }
    Ok((sockets, guards))
}

fn claim_port(
    mode: Mode,
    local: IpAddr,
    settings: &TransportSettings,
) -> Result<Option<PortGuard>, Obstacle> {
    let port = settings.endpoint.port;
    let explain = |e: io::Error| Obstacle::of(mode, &format!("taking {local} port {port}"), &e);
    PortGuard::take(local, port).map(Some).map_err(explain)
}

fn open_socket(mode: Mode, local: IpAddr, settings: &TransportSettings) -> Result<OwnedFd, Obstacle> {
    let port = settings.endpoint.port;
    let (kind, protocol, bind_port) = match mode {
        Mode::Udp => (libc::SOCK_DGRAM, libc::IPPROTO_UDP, settings.udp_port),
        _ => (libc::SOCK_RAW, libc::IPPROTO_SCTP, 0),
    };
    let fail = |what: String| move |e: io::Error| Obstacle::of(mode, &what, &e);
    let fd = sys::socket(sys::family(local), kind, protocol).map_err(fail("opening a socket".into()))?;
    if mode == Mode::Raw {
        // Without the filter all works too: the endpoint ignores other ports.
        let _ = sys::attach_filter(fd.as_fd(), &port_filter(local, port));
    }
    tune(fd.as_fd(), local, settings);
    let to = SocketAddr::new(local, bind_port);
    sys::bind(fd.as_fd(), to).map_err(fail(format!("binding to {to}")))?;
    Ok(fd)
}

/// Options that make things better and may fail without harm.
fn tune(fd: BorrowedFd<'_>, local: IpAddr, settings: &TransportSettings) {
    let tos = i32::from(settings.dscp) << 2;
    let set = |level, name, value| drop(sys::set_option(fd, level, name, value));
    let buffer = i32::try_from(settings.socket_buffer_octets).unwrap_or(i32::MAX);
    for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        if sys::set_option(fd, libc::SOL_SOCKET, force, buffer).is_err() {
            set(libc::SOL_SOCKET, plain, buffer);
        }
    }
    // IP may fragment what is longer than a path: the MTU is configured, not discovered.
    if local.is_ipv4() {
        set(libc::IPPROTO_IP, libc::IP_TOS, tos);
        set(libc::IPPROTO_IP, libc::IP_PKTINFO, 1);
        set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT);
    } else {
        set(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos);
        set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1);
        set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1);
        set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT);
    }
}

/// Lets only packets to our port through, so that several endpoints on one host do not wake each other.
fn port_filter(local: IpAddr, port: u16) -> Vec<libc::sock_filter> {
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    // The destination port is two octets into the SCTP header, which a raw IPv4 socket shows behind the IP header.
    let load = if local.is_ipv4() {
        vec![
            op(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0),
            op(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 0, 0, 2),
        ]
    } else {
        vec![op(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, 2)]
    };
    let decide = [
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::from(port)),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    load.into_iter().chain(decide).collect()
}
