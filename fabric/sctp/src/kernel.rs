//! The kernel's SCTP behind one one-to-many socket (RFC 6458 §3). The kernel keeps time, order and acknowledgements;
//! what is left here is names: its association identifiers against ours.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_sctp::{AssociationId, DownReason, Event, Events, RequestRefusal};

use crate::report::{Mode, Obstacle};
use crate::sys;
use crate::{IoCounters, TransportSettings};

// Values of the kernel's <linux/sctp.h>, which libc lacks or names differently.
const SCTP_RTOINFO: i32 = 0;
const SCTP_ASSOCINFO: i32 = 1;
const SCTP_INITMSG: i32 = 2;
const SCTP_NODELAY: i32 = 3;
const SCTP_ADAPTATION_LAYER: i32 = 7;
const SCTP_PEER_ADDR_PARAMS: i32 = 9;
const SCTP_EVENTS: i32 = 11;
const SCTP_DELAYED_SACK: i32 = 16;
const SCTP_SOCKOPT_BINDX_ADD: i32 = 100;
const SCTP_GET_PEER_ADDRS: i32 = 108;
const SCTP_GET_ASSOC_STATS: i32 = 112;
const SCTP_SNDRCV: i32 = 1;
const SCTP_EOF: u16 = 0x200;
const SCTP_ABORT: u16 = 0x4;
const MSG_NOTIFICATION: i32 = 0x8000;
const SCTP_ASSOC_CHANGE: u16 = 0x8001;
const SCTP_PEER_ADDR_CHANGE: u16 = 0x8002;
const SCTP_ADAPTATION_INDICATION: u16 = 0x8007;
const SPP_HB_ENABLE: u32 = 1;
const SPP_HB_DISABLE: u32 = 2;
const SPP_HB_DEMAND: u32 = 4;

/// Octets read with one call; the kernel hands a longer message out in parts.
const READ_OCTETS: usize = 65_536;
/// Most messages taken in one drain, before the thread's other work has its turn.
const MESSAGES_PER_DRAIN: usize = 1024;
/// The longest message that is put together from parts; a peer that sends more is cut off. Signalling stays far below.
const MESSAGE_OCTETS_MAX: usize = 1024 * 1024;
/// Probes of one association are at least this far apart. Linux counts an error on the path and doubles its RTO for each HEARTBEAT that is
/// demanded while the one before is unanswered; a peer that is alive answers sooner, so that it costs its association nothing.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Associations that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// An association of the kernel's.
#[derive(Debug, Default)]
struct KernelAssociation {
    generation: u32,
    kernel: Option<i32>,
    outbound_streams: u16,
    established: bool,
    /// The peer's adaptation code point.
    adaptation: Option<u32>,
    aborted: bool,
    /// When its peer was last probed.
    probed: Option<Instant>,
    /// Parts of a message that is not whole yet.
    partial: Vec<u8>,
}

pub(crate) struct KernelTransport {
    fd: OwnedFd,
    v6: bool,
    slots: Vec<KernelAssociation>,
    free: VecDeque<u32>,
    by_kernel: BTreeMap<i32, u32>,
    /// An association that is up, with its streams: the peer's adaptation indication is next in the queue, or does not come.
    coming: Option<(i32, u16, u16)>,
    buffer: Vec<u8>,
    counters: IoCounters,
    associations_max: usize,
    path_max_retrans: u16,
    /// The endpoint stops: associations that still stand then are aborted.
    stop_by: Option<Instant>,
}

/// `struct sctp_sndrcvinfo`, the parts that are used.
struct Info {
    stream: u16,
    flags: u16,
    ppid: u32,
    association: i32,
}

impl Info {
    fn octets(&self) -> [u8; 32] {
        let mut o = [0; 32];
        o[0..2].copy_from_slice(&self.stream.to_ne_bytes());
        o[4..6].copy_from_slice(&self.flags.to_ne_bytes());
        o[8..12].copy_from_slice(&self.ppid.to_be_bytes());
        o[28..32].copy_from_slice(&self.association.to_ne_bytes());
        o
    }

    fn read(o: &[u8]) -> Option<Self> {
        Some(Self {
            stream: read_u16(o, 0)?,
            flags: read_u16(o, 4)?,
            ppid: u32::from_be_bytes(*o.get(8..)?.first_chunk()?),
            association: read_i32(o, 28)?,
        })
    }
}

fn read_u16(o: &[u8], at: usize) -> Option<u16> {
    o.get(at..)?.first_chunk().map(|o| u16::from_ne_bytes(*o))
}

fn read_i32(o: &[u8], at: usize) -> Option<i32> {
    o.get(at..)?.first_chunk().map(|o| i32::from_ne_bytes(*o))
}

impl KernelTransport {
    pub(crate) fn open(settings: &TransportSettings) -> Result<Self, Obstacle> {
        let config = &settings.endpoint;
        let locals = &config.local_addresses;
        let fail = |what: String| move |e: io::Error| Obstacle::of(Mode::Kernel, &what, &e);
        let all_v4 = !locals.is_empty() && locals.iter().all(IpAddr::is_ipv4);
        let open = |family| sys::socket(family, libc::SOCK_SEQPACKET, libc::IPPROTO_SCTP);
        let (fd, v6) =
            match if all_v4 { Err(io::ErrorKind::Unsupported.into()) } else { open(libc::AF_INET6) } {
                Ok(fd) => (fd, true),
                // A host without IPv6, or no need of it.
                Err(_) => (open(libc::AF_INET).map_err(fail("opening a socket".into()))?, false),
            };
        set_options(fd.as_fd(), settings, v6).map_err(fail("setting socket options".into()))?;
        let any = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
        let first = SocketAddr::new(locals.first().copied().unwrap_or(any), config.port);
        sys::bind(fd.as_fd(), family_form(first, v6)).map_err(fail(format!("binding to {first}")))?;
        for local in locals.iter().skip(1) {
            let more = family_form(SocketAddr::new(*local, config.port), v6);
            let octets = sys::sockaddr_octets(more);
            sys::set_option_octets(fd.as_fd(), libc::IPPROTO_SCTP, SCTP_SOCKOPT_BINDX_ADD, &octets)
                .map_err(fail(format!("binding to {local}")))?;
        }
        if config.accept_inbound {
            sys::listen(fd.as_fd(), BACKLOG).map_err(fail(format!("listening on {first}")))?;
        }
        Ok(Self {
            fd,
            v6,
            slots: Vec::new(),
            free: VecDeque::new(),
            by_kernel: BTreeMap::new(),
            coming: None,
            buffer: vec![0; READ_OCTETS],
            counters: IoCounters::default(),
            associations_max: config.associations_max,
            path_max_retrans: retransmissions(config.path_max_retrans),
            stop_by: None,
        })
    }

    pub(crate) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.fd.as_fd()]
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.stop_by // all other time the kernel keeps
    }

    pub(crate) fn counters(&self) -> IoCounters {
        self.counters
    }

    pub(crate) fn drain(&mut self, now: Instant, events: &mut Events) {
        events.clear();
        if self.stop_by.is_some_and(|by| by <= now) {
            self.stop_by = None;
            self.associations().collect::<Vec<_>>().into_iter().for_each(|a| self.abort(a));
        }
        let mut buffer = core::mem::take(&mut self.buffer);
        for _ in 0..MESSAGES_PER_DRAIN {
            match sys::receive_message(self.fd.as_fd(), &mut buffer) {
                Ok(got) => {
                    let octets = buffer.get(..got.len).unwrap_or(&[]);
                    self.came(octets, got.flags & MSG_NOTIFICATION != 0, events);
                    if got.flags & MSG_NOTIFICATION != 0 {
                        self.notification(octets, events);
                    } else if let Some(info) = got.control.as_ref().and_then(|(_, c)| Info::read(c)) {
                        self.data(&info, octets, got.flags & libc::MSG_EOR != 0, events);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.came(&[], false, events);
                    break;
                }
                Err(_) => {
                    self.counters.receive_errors += 1;
                    break;
                }
            }
        }
        self.buffer = buffer;
    }

    fn data(&mut self, info: &Info, octets: &[u8], whole: bool, events: &mut Events) {
        let Some(association) = self.name_of(info.association) else { return };
        let Some(slot) = self.slots.get_mut(association.slot as usize) else { return };
        if whole && slot.partial.is_empty() {
            return events.push(Event::Data { association, stream: info.stream, ppid: info.ppid, octets });
        }
        slot.partial.extend_from_slice(octets);
        if slot.partial.len() > MESSAGE_OCTETS_MAX {
            return self.abort(association);
        }
        if whole {
            let octets = core::mem::take(&mut slot.partial);
            let (stream, ppid) = (info.stream, info.ppid);
            events.push(Event::Data { association, stream, ppid, octets: &octets });
        }
    }

    fn notification(&mut self, o: &[u8], events: &mut Events) {
        match read_u16(o, 0) {
            Some(SCTP_ASSOC_CHANGE) => self.association_change(o, events),
            Some(SCTP_PEER_ADDR_CHANGE) => self.address_change(o, events),
            _ => {}
        }
    }

    /// `struct sctp_assoc_change`: type, flags, length, state, error, outbound, inbound, association, info.
    fn association_change(&mut self, o: &[u8], events: &mut Events) {
        let (Some(state), Some(error), Some(kernel)) = (read_u16(o, 8), read_u16(o, 10), read_i32(o, 16))
        else {
            return;
        };
        let (outbound_streams, inbound_streams) =
            (read_u16(o, 12).unwrap_or(1), read_u16(o, 14).unwrap_or(1));
        match state {
            0 => self.coming = Some((kernel, outbound_streams, inbound_streams)),
            2 => {
                let Some(association) = self.name_of(kernel) else { return };
                let Some(slot) = self.slots.get_mut(association.slot as usize) else { return };
                if slot.adaptation.is_some() {
                    // The kernel keeps to itself what the peer says now: it has to come as a new one, so that both know.
                    return self.abort(association);
                }
                slot.outbound_streams = outbound_streams;
                slot.partial = Vec::new();
                let adaptation = None;
                events.push(Event::Restarted { association, inbound_streams, outbound_streams, adaptation });
            }
            _ => {
                let reason = match state {
                    3 => DownReason::Shutdown,
                    4 => DownReason::NoAnswer,
                    // An ABORT chunk follows the structure if the peer sent one; the error is its first cause.
                    _ if o.len() > 20 || error != 0 => {
                        DownReason::AbortedByPeer { cause: (error != 0).then_some(u16::from_be(error)) }
                    }
                    _ => DownReason::Lost,
                };
                self.down(kernel, reason, events);
            }
        }
    }

    /// What follows the news of an association that is up: `struct sctp_adaptation_event` (type, flags, length, code point, association),
    /// or anything else.
    fn came(&mut self, o: &[u8], notification: bool, events: &mut Events) {
        let Some((kernel, outbound_streams, inbound_streams)) = self.coming.take() else { return };
        let its = notification
            && read_u16(o, 0) == Some(SCTP_ADAPTATION_INDICATION)
            && read_i32(o, 12) == Some(kernel);
        let adaptation = o.get(8..).and_then(<[u8]>::first_chunk).filter(|_| its);
        let adaptation = adaptation.map(|code_point| u32::from_ne_bytes(*code_point));
        self.up(kernel, outbound_streams, inbound_streams, adaptation, events);
    }

    fn up(
        &mut self,
        kernel: i32,
        outbound_streams: u16,
        inbound_streams: u16,
        adaptation: Option<u32>,
        events: &mut Events,
    ) {
        let known = self.by_kernel.get(&kernel).copied();
        let Some(slot) = known.or_else(|| self.allocate(kernel)) else {
            let info = Info { stream: 0, flags: SCTP_ABORT, ppid: 0, association: kernel };
            let _ = sys::send_message(self.fd.as_fd(), &[], SCTP_SNDRCV, &info.octets());
            return;
        };
        let peers = self.peer_addresses(kernel);
        if let Ok(paths @ 2..) = u16::try_from(peers.len()) {
            // As in our own endpoint: losses on several paths at once are no more than each may have.
            let most = paths.saturating_mul(self.path_max_retrans);
            let info = association_parameters(kernel, most);
            let _ = sys::set_option_octets(self.fd.as_fd(), libc::IPPROTO_SCTP, SCTP_ASSOCINFO, &info);
        }
        let Some(s) = self.slots.get_mut(slot as usize) else { return };
        s.outbound_streams = outbound_streams;
        s.established = true;
        s.adaptation = adaptation;
        let peer: Vec<IpAddr> = peers.iter().map(SocketAddr::ip).collect();
        events.push(Event::Up {
            association: AssociationId { slot, generation: s.generation },
            peer: &peer,
            peer_port: peers.first().map_or(0, SocketAddr::port),
            inbound_streams,
            outbound_streams,
            adaptation,
        });
    }

    fn down(&mut self, kernel: i32, reason: DownReason, events: &mut Events) {
        let Some(slot) = self.by_kernel.remove(&kernel) else { return };
        let Some(s) = self.slots.get_mut(slot as usize) else { return };
        let association = AssociationId { slot, generation: s.generation };
        let reason = if s.aborted { DownReason::Aborted } else { reason };
        *s = KernelAssociation { generation: s.generation.wrapping_add(1), ..KernelAssociation::default() };
        self.free.push_back(slot);
        events.push(Event::Down { association, reason });
    }

    /// `struct sctp_paddr_change`: type, flags, length, address (128 octets), state, error, association.
    fn address_change(&mut self, o: &[u8], events: &mut Events) {
        let address = o.get(8..136).and_then(sys::read_sockaddr);
        let (Some(address), Some(state), Some(kernel)) = (address, read_i32(o, 136), read_i32(o, 144)) else {
            return;
        };
        let (remote, Some(association)) = (address.ip(), self.name_of(kernel)) else { return };
        match state {
            // Available, or confirmed by its first HEARTBEAT ACK.
            0 | 5 => events.push(Event::PathUp { association, remote }),
            1 => events.push(Event::PathDown { association, remote }),
            _ => {}
        }
    }

    /// `struct sctp_getaddrs`: association, count, then packed socket addresses.
    fn peer_addresses(&self, kernel: i32) -> Vec<SocketAddr> {
        let mut o = vec![0; 1024];
        o[..4].copy_from_slice(&kernel.to_ne_bytes());
        let level = libc::IPPROTO_SCTP;
        if sys::get_option_octets(self.fd.as_fd(), level, SCTP_GET_PEER_ADDRS, &mut o).is_err() {
            return Vec::new();
        }
        let count = usize::try_from(read_i32(&o, 4).unwrap_or(0)).unwrap_or(0);
        let mut addresses = Vec::new();
        let mut at = 8;
        while let Some(a) = o.get(at..).and_then(sys::read_sockaddr)
            && addresses.len() < count
        {
            at += if read_u16(&o, at).map(i32::from) == Some(libc::AF_INET) { 16 } else { 28 };
            addresses.push(a);
        }
        addresses
    }

    pub(crate) fn associations(&self) -> impl Iterator<Item = AssociationId> {
        self.by_kernel.keys().filter_map(|k| self.name_of(*k))
    }

    fn name_of(&self, kernel: i32) -> Option<AssociationId> {
        let slot = *self.by_kernel.get(&kernel)?;
        Some(AssociationId { slot, generation: self.slots.get(slot as usize)?.generation })
    }

    fn find(&mut self, association: AssociationId) -> Option<(i32, &mut KernelAssociation)> {
        let slot = self.slots.get_mut(association.slot as usize)?;
        let kernel = slot.kernel.filter(|_| slot.generation == association.generation)?;
        Some((kernel, slot))
    }

    fn allocate(&mut self, kernel: i32) -> Option<u32> {
        let slot = match self.free.pop_front() {
            Some(slot) => slot,
            None if self.slots.len() >= self.associations_max => return None,
            None => {
                self.slots.push(KernelAssociation::default());
                u32::try_from(self.slots.len() - 1).ok()?
            }
        };
        self.slots.get_mut(slot as usize)?.kernel = Some(kernel);
        self.by_kernel.insert(kernel, slot);
        Some(slot)
    }

    pub(crate) fn connect(
        &mut self,
        addresses: &[IpAddr],
        port: u16,
    ) -> Result<AssociationId, RequestRefusal> {
        if addresses.is_empty() || port == 0 {
            return Err(RequestRefusal::InvalidAddress);
        }
        let v6 = self.v6;
        let of = |a: &IpAddr| sys::sockaddr_octets(family_form(SocketAddr::new(*a, port), v6));
        let packed: Vec<u8> = addresses.iter().flat_map(of).collect();
        let kernel = sys::connectx(self.fd.as_fd(), &packed).map_err(|e| match e.raw_os_error() {
            Some(libc::EISCONN | libc::EALREADY) => RequestRefusal::NoRoom,
            _ => RequestRefusal::InvalidAddress,
        })?;
        let slot = self.allocate(kernel).ok_or(RequestRefusal::NoRoom)?;
        self.name_of(kernel).filter(|n| n.slot == slot).ok_or(RequestRefusal::NoRoom)
    }

    pub(crate) fn send(
        &mut self,
        association: AssociationId,
        stream: u16,
        ppid: u32,
        octets: &[u8],
    ) -> Result<(), RequestRefusal> {
        let (kernel, slot) = self.find(association).ok_or(RequestRefusal::UnknownAssociation)?;
        if !slot.established {
            return Err(RequestRefusal::NotEstablished);
        }
        if stream >= slot.outbound_streams {
            return Err(RequestRefusal::InvalidStream);
        }
        if octets.is_empty() {
            return Err(RequestRefusal::EmptyMessage);
        }
        let info = Info { stream, flags: 0, ppid, association: kernel };
        match sys::send_message(self.fd.as_fd(), octets, SCTP_SNDRCV, &info.octets()) {
            Ok(()) => {
                self.counters.packets_sent += 1;
                Ok(())
            }
            Err(e) => {
                self.counters.send_errors += 1;
                Err(match e.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EMSGSIZE) => RequestRefusal::SendBufferFull,
                    _ => RequestRefusal::NotEstablished,
                })
            }
        }
    }

    pub(crate) fn shutdown(&mut self, association: AssociationId) {
        self.end(association, SCTP_EOF);
    }

    /// The kernel refuses new associations from now on, ends all that stand gracefully, and aborts them when `by` has passed.
    pub(crate) fn stop(&mut self, now: Instant, by: Instant) {
        let _ = sys::listen(self.fd.as_fd(), 0);
        let all: Vec<AssociationId> = self.associations().collect();
        if by <= now {
            return all.into_iter().for_each(|a| self.abort(a));
        }
        self.stop_by = Some(by);
        all.into_iter().for_each(|a| self.shutdown(a));
    }

    pub(crate) fn abort(&mut self, association: AssociationId) {
        if let Some((_, slot)) = self.find(association) {
            slot.aborted = true;
        }
        self.end(association, SCTP_ABORT);
    }

    /// HEARTBEAT on each path, now; nothing if the last one is younger than [`PROBE_INTERVAL`].
    pub(crate) fn probe(&mut self, now: Instant, association: AssociationId) {
        let Some((kernel, slot)) = self.find(association) else { return };
        if slot.probed.is_some_and(|at| now.since(at) < PROBE_INTERVAL) {
            return;
        }
        slot.probed = Some(now);
        // struct sctp_paddrparams, as in `set_options`: no address stands for all, and zeros leave what is there.
        let mut o = kernel.to_ne_bytes().to_vec();
        o.resize(146, 0);
        o.extend_from_slice(&SPP_HB_DEMAND.to_ne_bytes());
        o.resize(152, 0);
        if sys::set_option_octets(self.fd.as_fd(), libc::IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &o).is_err() {
            self.counters.send_errors += 1;
        }
    }

    /// Control chunks of the peer: the last of fifteen numbers of `struct sctp_assoc_stats`, behind the association (8 octets with what
    /// aligns it) and an address (128).
    pub(crate) fn heard(&self, association: AssociationId) -> Option<u64> {
        const INPUT_CONTROL_CHUNKS: usize = 8 + 128 + 14 * 8;
        let slot = self.slots.get(association.slot as usize)?;
        let kernel = slot.kernel.filter(|_| slot.generation == association.generation)?;
        let mut o = vec![0; INPUT_CONTROL_CHUNKS + 8];
        o.get_mut(..4)?.copy_from_slice(&kernel.to_ne_bytes());
        let level = libc::IPPROTO_SCTP;
        sys::get_option_octets(self.fd.as_fd(), level, SCTP_GET_ASSOC_STATS, &mut o).ok()?;
        o.get(INPUT_CONTROL_CHUNKS..)?.first_chunk().map(|o| u64::from_ne_bytes(*o))
    }

    fn end(&mut self, association: AssociationId, flags: u16) {
        let Some((kernel, _)) = self.find(association) else { return };
        let info = Info { stream: 0, flags, ppid: 0, association: kernel };
        if sys::send_message(self.fd.as_fd(), &[], SCTP_SNDRCV, &info.octets()).is_err() {
            self.counters.send_errors += 1;
        }
    }
}

/// An address as a socket of the given family takes it.
fn family_form(a: SocketAddr, v6: bool) -> SocketAddr {
    match a.ip() {
        IpAddr::V4(ip) if v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), a.port()),
        _ => a,
    }
}

fn retransmissions(most: u32) -> u16 {
    u16::try_from(most).unwrap_or(u16::MAX)
}

/// `struct sctp_assocparams`: association, maximum of retransmissions, addresses of the peer, windows of both, life of a cookie. Zeros
/// leave what is there.
fn association_parameters(association: i32, max_retrans: u16) -> Vec<u8> {
    let mut o = association.to_ne_bytes().to_vec();
    o.extend_from_slice(&max_retrans.to_ne_bytes());
    o.resize(20, 0);
    o
}

fn set_options(fd: BorrowedFd<'_>, settings: &TransportSettings, v6: bool) -> io::Result<()> {
    let config = &settings.endpoint;
    let sctp = |name, value: &[u8]| sys::set_option_octets(fd, libc::IPPROTO_SCTP, name, value);
    let millis = |d: core::time::Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX);
    // struct sctp_event_subscribe: data I/O, association, address; the eighth is adaptation.
    sctp(SCTP_EVENTS, &[1, 1, 1, 0, 0, 0, 0, u8::from(config.adaptation.is_some())])?;
    if let Some(code_point) = config.adaptation {
        sctp(SCTP_ADAPTATION_LAYER, &code_point.to_ne_bytes())?;
    }
    sys::set_option(fd, libc::IPPROTO_SCTP, SCTP_NODELAY, 1)?;
    let mut init = Vec::new();
    for v in [config.outbound_streams, config.inbound_streams_max, 0, 0] {
        init.extend_from_slice(&v.to_ne_bytes());
    }
    sctp(SCTP_INITMSG, &init)?;
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
    // struct sctp_sack_info: association, delay, packets per SACK; one packet means at once.
    let frequency = u32::from(config.sack_delay.is_zero());
    sctp(SCTP_DELAYED_SACK, &words(&[0, millis(config.sack_delay), frequency]))?;
    let rto = [0, millis(config.rto_initial), millis(config.rto_max), millis(config.rto_min)];
    sctp(SCTP_RTOINFO, &words(&rto))?;
    // struct sctp_paddrparams, packed: association, address (128), interval, max. retransmissions, MTU, SACK delay,
    // flags; the kernel also takes the form without what was added later.
    // Linux waits the interval both before the first HEARTBEAT of an idle path and before it counts that as lost; from then on it
    // waits the RTO alone (RFC 7829 §3.2). With half of it a silent peer is noticed as soon as by our own endpoint.
    let interval = config.heartbeat_interval / 2;
    let mut path = vec![0; 132];
    path.extend_from_slice(&millis(interval).to_ne_bytes());
    path.extend_from_slice(&retransmissions(config.path_max_retrans).to_ne_bytes());
    path.extend_from_slice(&words(&[0, 0, if interval.is_zero() { SPP_HB_DISABLE } else { SPP_HB_ENABLE }]));
    path.resize(152, 0);
    sctp(SCTP_PEER_ADDR_PARAMS, &path)?;
    sctp(SCTP_ASSOCINFO, &association_parameters(0, retransmissions(config.association_max_retrans)))?;
    let tos = i32::from(settings.dscp) << 2;
    let buffer = i32::try_from(settings.socket_buffer_octets).unwrap_or(i32::MAX);
    let _ = sys::set_option(fd, libc::IPPROTO_IP, libc::IP_TOS, tos);
    if v6 {
        let _ = sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos);
    }
    let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, buffer);
    let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, buffer);
    Ok(())
}
