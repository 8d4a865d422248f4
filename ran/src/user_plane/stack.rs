//! The IP stack of one session; it runs one task at a time.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::{icmp, tcp, udp};
use smoltcp::time::Instant as StackInstant;
use smoltcp::wire::{
    HardwareAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpAddress, IpCidr, IpEndpoint,
};
use whimbrel_ids::Instant;

use super::device::Queues;
use super::dns;
use super::http;
use super::router::{self, RouterAdvertisement};

/// Default MTU: Ethernet's, less the tunnel (TS 23.060 Annex C: 1358, rounded up).
const MTU_DEFAULT: u16 = 1400;
/// TCP window: a page of a scenario in a few round trips.
const TCP_RECEIVE_OCTETS: usize = 64 * 1024;
/// A request fits.
const TCP_SEND_OCTETS: usize = 4 * 1024;
/// Initial retransmission interval of echo requests, queries and solicitations; it doubles up to one second. Short at
/// first, because the first packet of a session may arrive at the UPF before the downlink tunnel is set.
const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(1);
/// Timeout of a task.
const PATIENCE: Duration = Duration::from_secs(10);
/// The well-known port of DNS.
const DNS_PORT: u16 = 53;
/// The first ephemeral port (RFC 6335 §6).
const PORTS_FROM: u16 = 49_152;
const PING_DATA: &[u8] = b"whimbrel";

/// The addresses of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4 address of the session.
    pub ipv4: Option<Ipv4Addr>,
    /// Interface identifier of the IPv6 addresses.
    pub interface_id: Option<[u8; 8]>,
}

/// A task over the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Find the IPv6 prefix by router solicitation.
    SolicitRouter,
    /// One ICMP echo.
    Ping {
        /// Address that is pinged.
        to: IpAddr,
    },
    /// The addresses of a name.
    Resolve {
        /// Name that is looked up.
        name: String,
        /// The DNS server.
        server: IpAddr,
        /// AAAA instead of A.
        ipv6: bool,
    },
    /// One page over HTTP.
    Fetch {
        /// Address of the server.
        to: IpAddr,
        /// Port of the server.
        port: u16,
        /// The Host header.
        host: String,
        /// The path, with its slash.
        path: String,
    },
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskOutcome {
    /// The router advertisement; the stack uses its prefix from now on.
    Router(RouterAdvertisement),
    /// The echo came back.
    Pong,
    /// Addresses of the name.
    Resolved(Vec<IpAddr>),
    /// The page was fetched.
    Fetched {
        /// HTTP status of the answer.
        status: u16,
        /// Octets of its body.
        octets: u64,
    },
}

/// Why a task failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskError {
    /// No answer came in time.
    TimedOut,
    /// The name is invalid, or the server's response code is an error.
    NoSuchName(u8),
    /// The connection was refused or cut.
    Reset,
    /// The response is no HTTP.
    NotHttp,
    /// The session has no address of the needed family.
    NoAddress,
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("nothing came back within 10 s"),
            Self::NoSuchName(rcode) => write!(f, "the name has no address (DNS response code {rcode})"),
            Self::Reset => f.write_str("the connection was refused or cut"),
            Self::NotHttp => f.write_str("the server does not speak HTTP"),
            Self::NoAddress => f.write_str("the session has no address of that family"),
        }
    }
}

impl core::error::Error for TaskError {}

#[derive(Debug)]
struct RunningTask {
    task: Task,
    socket: Option<SocketHandle>,
    until: Instant,
    again: Instant,
    pause: Duration,
    id: u16,
    response: http::Response,
    requested: bool,
}

/// An IP stack of one session.
pub struct Stack {
    device: Queues,
    interface: Interface,
    sockets: SocketSet<'static>,
    addresses: Addresses,
    running: Option<RunningTask>,
    advertisement: Option<RouterAdvertisement>,
    next_id: u16,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").field("running", &self.running).finish_non_exhaustive()
    }
}

fn stack_time(now: Instant) -> StackInstant {
    StackInstant::from_micros(now.0 as i64)
}

impl Stack {
    /// The stack of a session. `seed` determines its ports and sequence numbers.
    pub fn new(now: Instant, addresses: Addresses, mtu: Option<u16>, seed: u64) -> Self {
        let mut device = Queues::new(usize::from(mtu.unwrap_or(MTU_DEFAULT)));
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut device, stack_time(now));
        interface.update_ip_addrs(|list| {
            if let Some(ipv4) = addresses.ipv4 {
                let _full = list.push(IpCidr::new(ipv4.into(), 32));
            }
            if let Some(id) = addresses.interface_id {
                let _full = list.push(IpCidr::new(router::link_local(id).into(), 64));
            }
        });
        // A tunnel has no gateway; the next hop is not used.
        if let Some(ipv4) = addresses.ipv4 {
            let _full = interface.routes_mut().add_default_ipv4_route(ipv4);
        }
        if let Some(id) = addresses.interface_id {
            let _full = interface.routes_mut().add_default_ipv6_route(router::link_local(id));
        }
        Self {
            device,
            interface,
            sockets: SocketSet::new(Vec::new()),
            addresses,
            running: None,
            advertisement: None,
            next_id: seed as u16,
        }
    }

    /// The router advertisement, once received.
    pub fn advertisement(&self) -> Option<&RouterAdvertisement> {
        self.advertisement.as_ref()
    }

    /// Whether a task runs.
    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// Starts a task; a running one is dropped. [`Stack::poll`] returns its outcome.
    pub fn start(&mut self, now: Instant, task: Task) {
        self.drop_socket();
        self.next_id = self.next_id.wrapping_add(1);
        self.running = Some(RunningTask {
            task,
            socket: None,
            until: now + PATIENCE,
            again: now,
            pause: AGAIN_FIRST,
            id: self.next_id,
            response: http::Response::default(),
            requested: false,
        });
    }

    /// Handles a packet from the network.
    pub fn receive(&mut self, packet: &[u8]) {
        match router::advertisement(packet) {
            Some(Ok(m)) => self.advertised(m),
            Some(Err(_)) => {}
            None => self.device.receive(packet),
        }
    }

    fn advertised(&mut self, m: RouterAdvertisement) {
        let Some(id) = self.addresses.interface_id else { return };
        let address = IpCidr::new(router::with_interface_id(m.prefix, id).into(), 64);
        self.interface.update_ip_addrs(|list| {
            if !list.contains(&address) {
                let _full = list.push(address);
            }
        });
        self.advertisement = Some(m);
    }

    /// When [`Stack::poll`] is due without a packet.
    pub fn next_deadline(&mut self, now: Instant) -> Option<Instant> {
        let stack = self.interface.poll_at(stack_time(now), &self.sockets);
        let stack = stack.map(|at| Instant(u64::try_from(at.total_micros()).unwrap_or(0)).max(now));
        let task = self.running.as_ref().map(|r| r.again.min(r.until));
        stack.into_iter().chain(task).min()
    }

    /// Runs the stack; passes packets for the network to `send`, and returns the outcome of the task once it has ended.
    pub fn poll(
        &mut self,
        now: Instant,
        send: &mut dyn FnMut(Vec<u8>),
    ) -> Option<Result<TaskOutcome, TaskError>> {
        self.interface.poll(stack_time(now), &mut self.device, &mut self.sockets);
        let outcome = self.work(now);
        if outcome.is_some() {
            self.interface.poll(stack_time(now), &mut self.device, &mut self.sockets);
            self.drop_socket();
            self.running = None;
        }
        self.interface.poll(stack_time(now), &mut self.device, &mut self.sockets);
        self.device.to_send.drain(..).for_each(send);
        outcome
    }

    fn drop_socket(&mut self) {
        if let Some(socket) = self.running.as_mut().and_then(|r| r.socket.take()) {
            self.sockets.remove(socket);
        }
    }

    fn work(&mut self, now: Instant) -> Option<Result<TaskOutcome, TaskError>> {
        let running = self.running.as_mut()?;
        if running.until <= now {
            return Some(Err(TaskError::TimedOut));
        }
        let due = running.again <= now;
        if due {
            running.again = now + running.pause;
            running.pause = (running.pause * 2).min(AGAIN_MAX);
        }
        match running.task.clone() {
            Task::SolicitRouter => self.solicit(due),
            Task::Ping { to } => self.ping(due, to),
            Task::Resolve { name, server, ipv6 } => self.resolve(due, &name, server, ipv6),
            Task::Fetch { to, port, host, path } => self.fetch(to, port, &host, &path),
        }
    }

    fn solicit(&mut self, due: bool) -> Option<Result<TaskOutcome, TaskError>> {
        if let Some(m) = &self.advertisement {
            return Some(Ok(TaskOutcome::Router(m.clone())));
        }
        let Some(id) = self.addresses.interface_id else { return Some(Err(TaskError::NoAddress)) };
        if due {
            self.device.to_send.push_back(router::solicitation(router::link_local(id)));
        }
        None
    }

    /// The source address for packets to `to`, if the session has one of that family.
    fn source(&self, to: IpAddr) -> Option<IpAddress> {
        let has_one = match to {
            IpAddr::V4(_) => self.addresses.ipv4.is_some(),
            IpAddr::V6(to) => {
                self.advertisement.is_some() || self.addresses.interface_id.is_some() && is_near(to)
            }
        };
        self.interface.get_source_address(&to.into()).filter(|_| has_one)
    }

    fn ping(&mut self, due: bool, to: IpAddr) -> Option<Result<TaskOutcome, TaskError>> {
        let Some(source) = self.source(to) else {
            return Some(Err(TaskError::NoAddress));
        };
        let running = self.running.as_mut()?;
        let id = running.id;
        let handle = *running.socket.get_or_insert_with(|| {
            let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 4], vec![0; 1024]);
            let mut socket = icmp::Socket::new(buffer(), buffer());
            // Only fails on a socket that is bound already.
            let _bound = socket.bind(icmp::Endpoint::Ident(id));
            self.sockets.add(socket)
        });
        let socket = self.sockets.get_mut::<icmp::Socket<'_>>(handle);
        if socket.can_recv() {
            return socket.recv().ok().map(|_| Ok(TaskOutcome::Pong));
        }
        if due {
            send_echo(socket, id, source, to.into());
        }
        None
    }

    fn resolve(
        &mut self,
        due: bool,
        name: &str,
        server: IpAddr,
        ipv6: bool,
    ) -> Option<Result<TaskOutcome, TaskError>> {
        if self.source(server).is_none() {
            return Some(Err(TaskError::NoAddress));
        }
        let running = self.running.as_mut()?;
        let id = running.id;
        let handle = *running.socket.get_or_insert_with(|| {
            let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 4], vec![0; 2048]);
            let mut socket = udp::Socket::new(buffer(), buffer());
            let _bound = socket.bind(PORTS_FROM | id);
            self.sockets.add(socket)
        });
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(handle);
        if let Ok((octets, _)) = socket.recv()
            && let Ok(answer) = dns::answer(id, octets)
        {
            return Some(match answer.addresses.is_empty() {
                true => Err(TaskError::NoSuchName(answer.rcode)),
                false => Ok(TaskOutcome::Resolved(answer.addresses)),
            });
        }
        if due {
            let Some(query) = dns::query(id, name, ipv6) else { return Some(Err(TaskError::NoSuchName(0))) };
            // If the buffer is full, the earlier query is still queued.
            let _full = socket.send_slice(&query, IpEndpoint::new(server.into(), DNS_PORT));
        }
        None
    }

    fn fetch(
        &mut self,
        to: IpAddr,
        port: u16,
        host: &str,
        path: &str,
    ) -> Option<Result<TaskOutcome, TaskError>> {
        if self.source(to).is_none() {
            return Some(Err(TaskError::NoAddress));
        }
        let running = self.running.as_mut()?;
        let handle = match running.socket {
            Some(handle) => handle,
            None => {
                let receive = tcp::SocketBuffer::new(vec![0; TCP_RECEIVE_OCTETS]);
                let mut socket = tcp::Socket::new(receive, tcp::SocketBuffer::new(vec![0; TCP_SEND_OCTETS]));
                let own_port = PORTS_FROM | running.id;
                if socket.connect(self.interface.context(), (IpAddress::from(to), port), own_port).is_err() {
                    return Some(Err(TaskError::NoAddress));
                }
                let handle = self.sockets.add(socket);
                running.socket = Some(handle);
                handle
            }
        };
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(handle);
        if !running.requested && socket.may_send() {
            running.requested = socket.send_slice(&http::request(host, path)).is_ok();
        }
        let mut is_http = true;
        while socket.can_recv() && is_http {
            let response = &mut running.response;
            let taken = socket.recv(|octets| {
                is_http = response.take(octets);
                (octets.len(), ())
            });
            if taken.is_err() {
                break;
            }
        }
        if !is_http {
            return Some(Err(TaskError::NotHttp));
        }
        let closed = running.requested && !socket.may_recv();
        if let Some((status, octets)) = running.response.whole(closed) {
            socket.close();
            return Some(Ok(TaskOutcome::Fetched { status, octets }));
        }
        (closed || !socket.is_open()).then_some(Err(TaskError::Reset))
    }
}

/// Whether an address can be reached without a prefix.
fn is_near(to: Ipv6Addr) -> bool {
    to.is_unicast_link_local() || to.is_multicast()
}

fn send_echo(socket: &mut icmp::Socket<'_>, id: u16, source: IpAddress, to: IpAddress) {
    let checksums = ChecksumCapabilities::default();
    match (source, to) {
        (IpAddress::Ipv4(_), IpAddress::Ipv4(_)) => {
            let echo = Icmpv4Repr::EchoRequest { ident: id, seq_no: 1, data: PING_DATA };
            if let Ok(room) = socket.send(echo.buffer_len(), to) {
                echo.emit(&mut Icmpv4Packet::new_unchecked(room), &checksums);
            }
        }
        (IpAddress::Ipv6(source), IpAddress::Ipv6(v6)) => {
            let echo = Icmpv6Repr::EchoRequest { ident: id, seq_no: 1, data: PING_DATA };
            if let Ok(room) = socket.send(echo.buffer_len(), to) {
                echo.emit(&source, &v6, &mut Icmpv6Packet::new_unchecked(room), &checksums);
            }
        }
        _ => {}
    }
}
