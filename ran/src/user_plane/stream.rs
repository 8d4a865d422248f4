//! A stream of numbered packets in both directions, to measure loss, reordering, duplication and gaps of a UE's user
//! plane: the UE's end, and the end in the data network.
//!
//! Each side counts received packets. Each sends its counts in each of its packets, so that both know both directions. The protocol is a private one over UDP; all numbers are in network order.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_ids::Instant;

const MAGIC: [u8; 4] = *b"WBst";
/// Octets of a UE's packet before its padding.
const UPLINK_OCTETS: usize = 48;
/// Octets of a packet of the data network.
const DOWNLINK_OCTETS: usize = 48;
const IPV4_UDP_OCTETS: usize = 28;
/// UEs that one server serves; more are not answered.
const PEERS_MAX: usize = 1 << 16;
/// Attempts of the UE to end its stream.
const STOP_AGAIN: Duration = Duration::from_millis(200);
/// Window of stored numbers, to distinguish a duplicate from a late packet.
const WINDOW: u64 = 64;
/// First UDP port of UEs; one per stream.
const PORTS_FROM: u16 = 0x6000;

/// Results of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracker {
    /// Distinct received packets.
    pub received: u64,
    /// The highest received number, plus one.
    pub next: u64,
    /// Packets that came out of order.
    pub reordered: u32,
    /// Packets that came twice.
    pub duplicated: u32,
    /// The longest time without a packet, since the last reset.
    pub gap: Duration,
    last: Option<Instant>,
    window: u64,
}

/// What has become of packets of one direction, of several streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketArrivals {
    /// Packets of which a later one has come, and those that have come themselves.
    pub expected: u64,
    /// Of these, those that have not come.
    pub lost: u64,
    /// Packets that came behind a later one.
    pub reordered: u64,
    /// Packets that came twice.
    pub duplicated: u64,
}

impl PacketArrivals {
    fn of(tracker: &Tracker) -> Self {
        Self {
            expected: tracker.next,
            lost: tracker.next.saturating_sub(tracker.received),
            reordered: tracker.reordered.into(),
            duplicated: tracker.duplicated.into(),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            expected: self.expected + other.expected,
            lost: self.lost + other.lost,
            reordered: self.reordered + other.reordered,
            duplicated: self.duplicated + other.duplicated,
        }
    }

    /// What has come since an earlier time. A packet that was lost then may have come late.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            expected: self.expected - earlier.expected,
            lost: self.lost.saturating_sub(earlier.lost),
            reordered: self.reordered - earlier.reordered,
            duplicated: self.duplicated - earlier.duplicated,
        }
    }
}

impl Tracker {
    /// Counts a received packet.
    pub fn take(&mut self, now: Instant, number: u64) {
        if let Some(last) = self.last.replace(now) {
            self.gap = self.gap.max(now.since(last));
        }
        if number >= self.next {
            let ahead = number - self.next + 1;
            self.window = if ahead < WINDOW { self.window << ahead | 1 } else { 1 };
            self.next = number + 1;
            self.received += 1;
            return;
        }
        let age = self.next - 1 - number;
        let bit = if age < WINDOW { 1 << age } else { 0 };
        if self.window & bit != 0 {
            self.duplicated += 1;
        } else {
            self.window |= bit;
            self.received += 1;
            self.reordered += 1;
        }
    }
}

/// Parameters of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Address of the server.
    pub server: SocketAddrV4,
    /// Time between packets, in each direction.
    pub interval: Duration,
    /// Octets of the UE's packets, IP header included.
    pub octets: usize,
}

/// Results of both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamReport {
    /// Packets that the UE sent.
    pub uplink_sent: u64,
    /// The uplink's packets, as the server saw them.
    pub uplink: Tracker,
    /// Packets that the data network sent.
    pub downlink_sent: u64,
    /// The downlink's packets, as the UE saw them.
    pub downlink: Tracker,
    /// From the start of the last handover to the UE's arrival at its target.
    pub arrived: Option<Duration>,
    /// From the start of the last handover to the first packet that the UE got at its target.
    pub first_downlink: Option<Duration>,
    /// The time without downlink packets in the last handover: from the last one before the UE's arrival to the first one after it.
    pub silence: Option<Duration>,
}

impl StreamReport {
    /// Lost packets: uplink, downlink.
    pub fn lost(&self) -> (u64, u64) {
        (
            self.uplink_sent.saturating_sub(self.uplink.received),
            self.downlink_sent.saturating_sub(self.downlink.received),
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Running,
    /// The end is requested; next attempt at this time.
    Stopping(Instant),
    Ended,
}

/// The UE's end.
#[derive(Debug)]
pub struct Stream {
    config: StreamConfig,
    local: SocketAddrV4,
    id: u32,
    epoch: u8,
    number: u64,
    due: Instant,
    state: StreamState,
    report: StreamReport,
    /// When the running handover began, and whether the UE is at its target.
    handover: Option<(Instant, bool)>,
}

impl Stream {
    /// A stream that starts at once; `id` distinguishes it from the UE's other ones.
    pub fn new(now: Instant, config: StreamConfig, address: Ipv4Addr, id: u32) -> Self {
        let port = PORTS_FROM | (id & 0x0fff) as u16;
        Self {
            config,
            local: SocketAddrV4::new(address, port),
            id,
            epoch: 0,
            number: 0,
            due: now,
            state: StreamState::Running,
            report: StreamReport::default(),
            handover: None,
        }
    }

    /// When [`Stream::poll`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.state {
            StreamState::Running => Some(self.due),
            StreamState::Stopping(again) => Some(again),
            StreamState::Ended => None,
        }
    }

    /// Whether a packet was received.
    pub fn flows(&self) -> bool {
        self.report.downlink.received > 0
    }

    /// Whether its end was requested and answered.
    pub fn has_ended(&self) -> bool {
        self.state == StreamState::Ended
    }

    /// Its results so far; for the uplink as last reported by the data network.
    pub fn report(&self) -> &StreamReport {
        &self.report
    }

    /// Resets the longest gaps.
    pub fn reset_gap(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.report.uplink.gap = Duration::ZERO;
        self.report.downlink.gap = Duration::ZERO;
    }

    /// A handover of the UE begins.
    pub fn handover_begins(&mut self, now: Instant) {
        self.handover = Some((now, false));
        (self.report.arrived, self.report.first_downlink, self.report.silence) = (None, None, None);
    }

    /// The UE is at the target.
    pub fn at_target(&mut self, now: Instant) {
        if let Some((began, arrived)) = &mut self.handover {
            *arrived = true;
            self.report.arrived = Some(now.since(*began));
        }
    }

    /// Ends the stream at this time.
    pub fn stop(&mut self, now: Instant) {
        if self.state == StreamState::Running {
            self.state = StreamState::Stopping(now);
        }
    }

    /// A packet that makes the server send one packet after this delay, once the stream has ended.
    pub fn ring(&self, after: Duration) -> Vec<u8> {
        self.packet(StreamPacketKind::Ring, u32::try_from(after.as_millis()).unwrap_or(u32::MAX))
    }

    /// Passes due packets to `send`.
    pub fn poll(&mut self, now: Instant, send: &mut dyn FnMut(Vec<u8>)) {
        match self.state {
            StreamState::Running => {
                while self.due <= now {
                    send(self.packet(StreamPacketKind::Data, 0));
                    self.number += 1;
                    self.report.uplink_sent = self.number;
                    self.due = self.due + self.config.interval;
                }
            }
            StreamState::Stopping(again) if again <= now => {
                send(self.packet(StreamPacketKind::Stop, 0));
                self.state = StreamState::Stopping(now + STOP_AGAIN);
            }
            StreamState::Stopping(_) | StreamState::Ended => {}
        }
    }

    fn packet(&self, kind: StreamPacketKind, argument: u32) -> Vec<u8> {
        let mut payload = Vec::with_capacity(UPLINK_OCTETS);
        payload.extend_from_slice(&MAGIC);
        payload.extend_from_slice(&[kind as u8, self.epoch]);
        let interval = u16::try_from(self.config.interval.as_millis()).unwrap_or(u16::MAX);
        payload.extend_from_slice(&interval.to_be_bytes());
        payload.extend_from_slice(&self.id.to_be_bytes());
        payload.extend_from_slice(&self.number.to_be_bytes());
        payload.extend_from_slice(&argument.to_be_bytes());
        let got = &self.report.downlink;
        payload.extend_from_slice(&got.received.to_be_bytes());
        payload.extend_from_slice(&got.next.to_be_bytes());
        payload.extend_from_slice(&got.reordered.to_be_bytes());
        payload.extend_from_slice(&got.duplicated.to_be_bytes());
        payload.resize(self.config.octets.saturating_sub(IPV4_UDP_OCTETS).max(UPLINK_OCTETS), 0);
        udp(self.local, self.config.server, &payload)
    }

    /// Handles a packet of the network, if it belongs to this stream.
    pub fn receive(&mut self, now: Instant, packet: &[u8]) -> bool {
        let Some((from, to, payload)) = parse_udp(packet) else { return false };
        if from != self.config.server || to != self.local {
            return false;
        }
        let Some(m) = FromServer::parse(payload).filter(|m| m.id == self.id) else { return true };
        match m.kind {
            StreamPacketKind::Data => {
                let before = self.report.downlink.last;
                self.report.downlink.take(now, m.number);
                if let Some((began, _)) = self.handover.take_if(|(_, arrived)| *arrived) {
                    self.report.first_downlink = Some(now.since(began));
                    self.report.silence = before.map(|before| now.since(before));
                }
            }
            StreamPacketKind::Stop if matches!(self.state, StreamState::Stopping(_)) => {
                self.report.downlink_sent = m.number;
                self.state = StreamState::Ended;
            }
            StreamPacketKind::Stop | StreamPacketKind::Ring => {}
        }
        let gap = if m.epoch == self.epoch { m.uplink.gap } else { self.report.uplink.gap };
        self.report.uplink = Tracker { gap, ..m.uplink };
        true
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum StreamPacketKind {
    Data = 0,
    Stop = 1,
    Ring = 2,
}

impl StreamPacketKind {
    fn parse(octet: u8) -> Option<Self> {
        [Self::Data, Self::Stop, Self::Ring].into_iter().find(|k| *k as u8 == octet)
    }
}

/// Numbers in network order, one after the other.
struct NetworkOrderReader<'a>(&'a [u8]);

impl NetworkOrderReader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }
}

struct FromServer {
    kind: StreamPacketKind,
    epoch: u8,
    id: u32,
    number: u64,
    uplink: Tracker,
}

impl FromServer {
    fn parse(payload: &[u8]) -> Option<Self> {
        let mut r = NetworkOrderReader(payload);
        if r.array::<4>()? != MAGIC {
            return None;
        }
        let [kind, epoch, _, _] = r.array()?;
        let id = u32::from_be_bytes(r.array()?);
        let number = u64::from_be_bytes(r.array()?);
        let uplink = Tracker {
            received: u64::from_be_bytes(r.array()?),
            next: u64::from_be_bytes(r.array()?),
            reordered: u32::from_be_bytes(r.array()?),
            duplicated: u32::from_be_bytes(r.array()?),
            gap: Duration::from_micros(u32::from_be_bytes(r.array()?).into()),
            ..Tracker::default()
        };
        Some(Self { kind: StreamPacketKind::parse(kind)?, epoch, id, number, uplink })
    }
}

/// The end in the data network: answers the streams of many UEs. Pure: without sockets.
#[derive(Debug, Default)]
pub struct StreamServer {
    peers: BTreeMap<SocketAddr, StreamPeer>,
    due: BTreeSet<(Instant, SocketAddr)>,
}

#[derive(Debug)]
struct StreamPeer {
    id: u32,
    epoch: u8,
    tracker: Tracker,
    /// What the UE has received, as it reported last.
    downlink: Tracker,
    interval: Duration,
    number: u64,
    /// When the next packet is due, if one is.
    due: Option<Instant>,
    /// It sends only one packet.
    ring: bool,
}

impl StreamPeer {
    fn packet(&self, kind: StreamPacketKind) -> Vec<u8> {
        let mut payload = Vec::with_capacity(DOWNLINK_OCTETS);
        payload.extend_from_slice(&MAGIC);
        payload.extend_from_slice(&[kind as u8, self.epoch, 0, 0]);
        payload.extend_from_slice(&self.id.to_be_bytes());
        payload.extend_from_slice(&self.number.to_be_bytes());
        payload.extend_from_slice(&self.tracker.received.to_be_bytes());
        payload.extend_from_slice(&self.tracker.next.to_be_bytes());
        payload.extend_from_slice(&self.tracker.reordered.to_be_bytes());
        payload.extend_from_slice(&self.tracker.duplicated.to_be_bytes());
        let gap = u32::try_from(self.tracker.gap.as_micros()).unwrap_or(u32::MAX);
        payload.extend_from_slice(&gap.to_be_bytes());
        payload
    }
}

impl StreamServer {
    /// Handles a datagram; answers go to `send`.
    pub fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        payload: &[u8],
        send: &mut dyn FnMut(SocketAddr, Vec<u8>),
    ) {
        let Some((kind, epoch, interval, id, number, argument, downlink)) = from_ue(payload) else { return };
        if !self.peers.contains_key(&from) && self.peers.len() >= PEERS_MAX {
            return;
        }
        let fresh = || StreamPeer {
            id,
            epoch,
            tracker: Tracker::default(),
            downlink: Tracker::default(),
            interval,
            number: 0,
            due: None,
            ring: false,
        };
        let peer = self.peers.entry(from).or_insert_with(fresh);
        let armed = peer.due;
        if peer.id != id {
            *peer = fresh();
        }
        if peer.epoch != epoch {
            peer.epoch = epoch;
            peer.tracker.gap = Duration::ZERO;
        }
        // A packet that comes late says less.
        if downlink.next >= peer.downlink.next {
            peer.downlink = downlink;
        }
        match kind {
            StreamPacketKind::Data => {
                peer.tracker.take(now, number);
                peer.ring = false;
                peer.due.get_or_insert(now);
            }
            StreamPacketKind::Stop => {
                peer.due = None;
                send(from, peer.packet(StreamPacketKind::Stop));
            }
            StreamPacketKind::Ring => {
                peer.due = Some(now + Duration::from_millis(argument.into()));
                peer.ring = true;
            }
        }
        let due = peer.due;
        self.arm(from, armed, due);
    }

    fn arm(&mut self, peer: SocketAddr, before: Option<Instant>, after: Option<Instant>) {
        if before != after {
            before.map(|at| self.due.remove(&(at, peer)));
            after.map(|at| self.due.insert((at, peer)));
        }
    }

    /// Sends due packets.
    pub fn tick(&mut self, now: Instant, send: &mut dyn FnMut(SocketAddr, Vec<u8>)) {
        while let Some((at, to)) = self.due.pop_first() {
            if at > now {
                self.due.insert((at, to));
                return;
            }
            let Some(peer) = self.peers.get_mut(&to) else { continue };
            if peer.ring {
                peer.due = None;
                send(to, peer.packet(StreamPacketKind::Ring));
                continue;
            }
            send(to, peer.packet(StreamPacketKind::Data));
            peer.number += 1;
            let next = at + peer.interval;
            peer.due = Some(next);
            self.due.insert((next, to));
        }
    }

    /// What has become of the packets of streams with this interval: uplink, and downlink as the UEs reported last.
    pub fn arrivals(&self, interval: Duration) -> [PacketArrivals; 2] {
        let of_these = self.peers.values().filter(|peer| peer.interval == interval);
        of_these.fold(Default::default(), |[up, down], peer| {
            [up.and(PacketArrivals::of(&peer.tracker)), down.and(PacketArrivals::of(&peer.downlink))]
        })
    }

    /// The time between packets of a stream.
    pub fn interval_of(&self, peer: &SocketAddr) -> Option<Duration> {
        Some(self.peers.get(peer)?.interval)
    }

    /// When [`StreamServer::tick`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }
}

type FromUe = (StreamPacketKind, u8, Duration, u32, u64, u32, Tracker);

fn from_ue(payload: &[u8]) -> Option<FromUe> {
    let mut r = NetworkOrderReader(payload);
    if r.array::<4>()? != MAGIC {
        return None;
    }
    let [kind, epoch] = r.array()?;
    // At most a thousand packets a second to each UE.
    let interval = Duration::from_millis(u64::from(u16::from_be_bytes(r.array()?)).max(1));
    let id = u32::from_be_bytes(r.array()?);
    let number = u64::from_be_bytes(r.array()?);
    let argument = u32::from_be_bytes(r.array()?);
    let downlink = Tracker {
        received: u64::from_be_bytes(r.array()?),
        next: u64::from_be_bytes(r.array()?),
        reordered: u32::from_be_bytes(r.array()?),
        duplicated: u32::from_be_bytes(r.array()?),
        ..Tracker::default()
    };
    Some((StreamPacketKind::parse(kind)?, epoch, interval, id, number, argument, downlink))
}

/// An IPv4 packet with a UDP datagram without checksum (RFC 768).
fn udp(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len() + IPV4_UDP_OCTETS).unwrap_or(u16::MAX);
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&length.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend_from_slice(&from.ip().octets());
    packet.extend_from_slice(&to.ip().octets());
    let words = packet.chunks_exact(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend_from_slice(&from.port().to_be_bytes());
    packet.extend_from_slice(&to.port().to_be_bytes());
    packet.extend_from_slice(&(length - 20).to_be_bytes());
    packet.extend_from_slice(&[0, 0]);
    packet.extend_from_slice(payload);
    packet
}

/// Source, destination and payload of UDP in an unfragmented IPv4 packet.
fn parse_udp(packet: &[u8]) -> Option<(SocketAddrV4, SocketAddrV4, &[u8])> {
    let (head, rest) = packet.split_first_chunk::<20>()?;
    if head[0] != 0x45 || head[9] != 17 || head[6] & 0x3f != 0 || head[7] != 0 {
        return None;
    }
    let address = |at: usize| Some(Ipv4Addr::from(*head.get(at..)?.first_chunk::<4>()?));
    let (udp, payload) = rest.split_first_chunk::<8>()?;
    let length = usize::from(u16::from_be_bytes([udp[4], udp[5]])).checked_sub(8)?;
    let from = SocketAddrV4::new(address(12)?, u16::from_be_bytes([udp[0], udp[1]]));
    let to = SocketAddrV4::new(address(16)?, u16::from_be_bytes([udp[2], udp[3]]));
    Some((from, to, payload.get(..length)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_800_000_000_000_000);
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn lost_late_and_repeated_packets() {
        let mut t = Tracker::default();
        let mut now = NOW;
        for number in [0, 1, 3, 2, 2, 6, 200, 5] {
            now = now + 10 * MS;
            t.take(now, number);
        }
        assert_eq!((t.received, t.next, t.reordered, t.duplicated), (7, 201, 2, 1));
        t.take(now + 50 * MS, 201);
        assert_eq!(t.gap, 50 * MS);
    }

    fn config() -> StreamConfig {
        let server = SocketAddrV4::new(Ipv4Addr::new(10, 45, 0, 1), 5001);
        StreamConfig { server, interval: 20 * MS, octets: 200 }
    }

    /// Runs both ends for some milliseconds; `lose` selects packets to the UE that are lost.
    fn run(stream: &mut Stream, server: &mut StreamServer, from: u64, to: u64, lose: &dyn Fn(u64) -> bool) {
        for ms in from..to {
            let now = NOW + Duration::from_millis(ms);
            let mut down = Vec::new();
            let mut send = |_: SocketAddr, p: Vec<u8>| down.push(p);
            stream.poll(now, &mut |packet| {
                assert_eq!(packet.len(), 200);
                let (from, _, payload) = parse_udp(&packet).unwrap();
                server.receive(now, from.into(), payload, &mut send);
            });
            server.tick(now, &mut send);
            for payload in down.iter().filter(|_| !lose(ms)) {
                assert!(stream.receive(now, &udp(config().server, stream.local, payload)));
            }
        }
    }

    #[test]
    fn both_directions_are_counted() {
        let mut stream = Stream::new(NOW, config(), Ipv4Addr::new(10, 45, 0, 2), 7);
        let mut server = StreamServer::default();
        run(&mut stream, &mut server, 0, 1000, &|_| false);
        assert!(stream.flows());
        assert_eq!(stream.report().downlink.gap, 20 * MS);
        stream.reset_gap();
        run(&mut stream, &mut server, 1000, 2000, &|ms| (1100..1200).contains(&ms));
        assert_eq!(stream.report().downlink.gap, 120 * MS);
        assert_eq!(stream.report().uplink.gap, 20 * MS);
        stream.stop(NOW + 2000 * MS);
        run(&mut stream, &mut server, 2000, 2010, &|_| false);
        assert!(stream.has_ended() && stream.next_deadline().is_none());
        assert_eq!(stream.report().uplink_sent, 100);
        assert_eq!(stream.report().lost(), (0, 5));
        // The server knows both directions, too; of other streams, nothing.
        let [up, down] = server.arrivals(20 * MS);
        assert_eq!((up.expected, up.lost, down.lost, down.duplicated), (100, 0, 5, 0));
        assert_eq!(down.since(PacketArrivals { lost: 4, ..PacketArrivals::default() }).lost, 1);
        assert_eq!(server.arrivals(10 * MS), [PacketArrivals::default(); 2]);
        assert_eq!(server.next_deadline(), None);
        // One packet later, on request; garbage is ignored.
        let ring = stream.ring(300 * MS);
        let (from, _, payload) = parse_udp(&ring).unwrap();
        server.receive(NOW, from.into(), payload, &mut |_, _| {});
        assert_eq!(server.next_deadline(), Some(NOW + 300 * MS));
        let mut rung = 0;
        server.tick(NOW + 300 * MS, &mut |_, _| rung += 1);
        assert_eq!((rung, server.next_deadline()), (1, None));
        server.receive(NOW, from.into(), &payload[..20], &mut |_, _| panic!("no answer"));
        assert!(!stream.receive(NOW, &ring));
    }
}
