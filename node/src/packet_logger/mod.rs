//! The packet logger's process: the sockets of N3 and N4, the devices of N6, and the links to the UPFs behind it (docs/design/packet-logger.md).

mod members;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};
use whimbrel_ids::Instant;
use whimbrel_link::{Event, LinkEvents, LinkId, Links};
use whimbrel_user::logger::datagram::{self, DatagramHead, DatagramKind};
use whimbrel_user::logger::{
    ControlLog, DataLog, DataLogBounds, LoggerFrame, LoggerHello, PacketDirection, ReleasedMessage,
    SmfMessage,
};
use whimbrel_user::{Destination, Origin, Packet};
use whimbrel_user_io::LoggerFront;

use crate::clock;
use crate::cluster::rejected_peers::RejectedPeers;
use crate::config::Config;
use crate::core::{N4Peers, logger_link, plane_config, user_plane_config};
use crate::log_limiter::LogLimiter;
use crate::observation::{Condition, Console, Metric, MetricSample};
use members::{MemberAction, Members, ServiceStart};

/// N4 datagrams that are taken in one turn.
const N4_PER_TURN_MAX: usize = 64;
/// The largest datagram of UDP.
const DATAGRAM_OCTETS_MAX: usize = 65_535;
/// Time between two looks for packets that were lost on their way, and two reports of the counters.
const HOUSEKEEPING: Duration = Duration::from_millis(100);
/// Time between two requests for a UPF's address.
const ADDRESS_ASKED_EVERY: Duration = Duration::from_millis(20);
/// How long a UPF that has taken over may take to handle the messages of SMFs that it is given again, before it gets packets: a hundred messages.
const REPLAYED_WITHIN: Duration = Duration::from_millis(100);
/// Turns without work before the process sleeps: what waking up costs.
const SPINS: u32 = 8;
/// Bursts of UPFs' datagrams that are taken in one turn: twice the window of both directions. A flood from elsewhere must not keep this thread from its other
/// work.
const BURSTS_PER_TURN_MAX: usize = 128;
/// The same when a UPF has been lost: more than its socket holds, so that nothing that it has sent is sent again.
const BURSTS_OF_LOST_UPF_MAX: usize = 1_024;
/// Sleep at most.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// What the UPF that serves has shown.
struct Liveness {
    /// The first probe that was not answered, and no later one either.
    asked: Option<Instant>,
    probe_at: Instant,
}

/// The packet logger.
pub struct PacketLogger {
    front: LoggerFront,
    n4: UdpSocket,
    peers: N4Peers,
    buffer: Vec<u8>,
    links: Links,
    events: LinkEvents,
    configuration: u64,
    detection: Duration,
    members: Members,
    data: DataLog<(Origin, Packet)>,
    control: ControlLog,
    /// After a takeover: packets wait until messages of SMFs up to this one are handled, or that time has come.
    data_waits: Option<(u64, Instant)>,
    liveness: Liveness,
    leaving: Vec<(Destination, Packet)>,
    /// The last turn did not take all datagrams of UPFs.
    more_waits: bool,
    housekeeping: Instant,
    address_asked: Instant,
    takeovers: u64,
    rejected: RejectedPeers,
    drops: DropLog,
    idle: u32,
    console: Arc<Console>,
}

impl PacketLogger {
    /// Opens everything. Errors: one sentence.
    pub fn open(c: &Config, console: Arc<Console>) -> Result<Self, String> {
        let settings = &c.packet_logger;
        let at = settings.address.ok_or(
            "there is no packet logger in the configuration: write the address at which its UPFs reach it, as `packet_logger.address`",
        )?;
        let listen = c.n4.listen.ok_or("`n4.listen` is not configured")?;
        let mut user = user_plane_config(c, 0);
        user.shards = 1;
        let configuration = user.state_key();
        let front = LoggerFront::open(plane_config(c, &user, false, true), at).map_err(|e| e.to_string())?;
        front.host_changes().iter().for_each(|change| info!("N6: {change}"));
        front.notices().iter().for_each(|notice| warn!("N6: {notice}"));
        let n4 = UdpSocket::bind(listen)
            .and_then(|n4| n4.set_nonblocking(true).map(|()| n4))
            .map_err(|e| crate::port_owner::cannot_listen("n4.listen", "UDP", listen, &e))?;
        let peers = N4Peers::of(c);
        if peers.is_open() {
            warn!(
                "N4: every host that reaches {listen} may set up an association: list the SMFs in `n4.peers`"
            );
        }
        let mut link_settings = logger_link::settings(Vec::new(), settings.key_file.as_deref())?;
        link_settings.listen = Some(at);
        let links = Links::open(link_settings).map_err(|e| e.to_string())?;
        info!("N3: GTP-U on {}; N4: PFCP on {listen}; UPFs connect to {at}", c.n3.address);
        let now = clock::now();
        let bounds = DataLogBounds { packets: settings.packets as usize, ..DataLogBounds::default() };
        let it = Self {
            front,
            n4,
            peers,
            buffer: vec![0; DATAGRAM_OCTETS_MAX],
            links,
            events: LinkEvents::default(),
            configuration,
            detection: settings.detection,
            members: Members::new(now),
            data: DataLog::new(bounds),
            control: ControlLog::default(),
            data_waits: None,
            liveness: Liveness { asked: None, probe_at: now },
            leaving: Vec::new(),
            more_waits: false,
            housekeeping: now,
            address_asked: now,
            takeovers: 0,
            rejected: RejectedPeers::default(),
            drops: DropLog::default(),
            idle: 0,
            console,
        };
        it.show();
        Ok(it)
    }

    /// One turn; waits where there was nothing to do.
    pub fn turn(&mut self, now: Instant) {
        let mut busy = self.take_from_links(now);
        busy |= self.take_from_upfs(BURSTS_PER_TURN_MAX);
        self.watch(now);
        busy |= self.take_from_smfs();
        busy |= self.take_from_outside();
        busy |= self.give_packets(now);
        if self.housekeeping <= now {
            self.housekeeping = now + HOUSEKEEPING;
            self.front.host_report().put_back.iter().for_each(|line| warn!("N6: {line}"));
            self.data.give_up_lost(now);
            self.drops.log(now, self.data.counters().refused, self.control.refused());
            self.report();
        }
        self.links.flush();
        self.idle = if busy { 0 } else { self.idle.saturating_add(1) };
        if self.idle > SPINS {
            self.wait(now);
        }
    }

    fn wait(&mut self, now: Instant) {
        let waits = self.data_waits.map(|(_, until)| until);
        let own = [Some(self.liveness.probe_at), Some(self.housekeeping), self.links.next_deadline(), waits];
        let until = own.into_iter().flatten().chain(self.members.next_deadline()).min().unwrap_or(now);
        let within = until.since(now).min(SLEEP_MAX);
        if !within.is_zero() {
            // A failure makes this thread look more often.
            let _ = self.front.wait(&[self.links.fd(), self.n4.as_fd()], within);
        }
    }

    /// Takes what UPFs have sent over their links.
    fn take_from_links(&mut self, now: Instant) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(now, &mut events);
        for event in events.iter() {
            match event {
                Event::Up { link, peer, hello, .. } => match LoggerHello::read(hello) {
                    Some(hello) if hello.configuration == self.configuration => {
                        let changes = self.members.joined(now, link, peer, hello);
                        self.follow(now, changes);
                    }
                    Some(_) => self.reject(
                        (now, link, peer),
                        "configuration",
                        "its addresses, data networks or bounds are not those of this configuration",
                    ),
                    None => self.reject((now, link, peer), "version", "it is no UPF of this version"),
                },
                Event::Frame { link, octets } => match (LoggerFrame::read(octets), self.members.peer(link)) {
                    (Some(frame), _) => self.frame(now, link, frame),
                    (None, Some(peer)) => {
                        self.reject(
                            (now, link, peer),
                            "frame",
                            "it sent a frame that this version does not know",
                        );
                        let changes = self.members.left(now, link);
                        self.follow(now, changes);
                    }
                    (None, None) => self.links.close(link),
                },
                Event::Down { link, reason } => {
                    if let Some(peer) = self.members.peer(link) {
                        warn!("the link to the UPF at {peer} has ended: {reason}");
                    }
                    let changes = self.members.left(now, link);
                    self.follow(now, changes);
                }
                Event::Rejected { peer, reason } => {
                    if self.rejected.allows(now, peer, reason.label()) {
                        warn!(
                            "a link of {peer} is refused: {reason}; further ones from this address are only counted"
                        );
                    }
                }
            }
        }
        let busy = !events.is_empty();
        self.events = events;
        let changes = self.members.elect(now);
        self.follow(now, changes);
        busy
    }

    /// Closes the link of a process that cannot be a UPF here. It connects again and again, so each reason is logged once an hour.
    fn reject(&mut self, (now, link, peer): (Instant, LinkId, SocketAddr), label: &'static str, why: &str) {
        if self.rejected.allows(now, peer, label) {
            warn!("the UPF at {peer} is refused: {why}; further refusals of this address are only counted");
        }
        self.links.close(link);
    }

    /// Does what has changed among the UPFs.
    fn follow(&mut self, now: Instant, changes: Vec<MemberAction>) {
        for change in &changes {
            match *change {
                MemberAction::Serve { link, term, how } => {
                    if how == ServiceStart::TakesOver {
                        // What the former UPF has sent already is not sent again.
                        self.take_from_upfs(BURSTS_OF_LOST_UPF_MAX);
                    }
                    self.links
                        .send(link, &LoggerFrame::host_addresses(self.front.host_addresses()).to_octets());
                    self.links.send(link, &LoggerFrame::Serve { term }.to_octets());
                    self.links.flush();
                    self.data_waits = None;
                    (self.liveness.asked, self.liveness.probe_at) = (None, now);
                    if how != ServiceStart::Again {
                        self.data.take_over();
                    }
                    if how == ServiceStart::TakesOver {
                        self.takeovers += 1;
                        let peer = self.members.peer(link).map(|p| p.to_string()).unwrap_or_default();
                        let kept = self.data.len();
                        warn!("the UPF at {peer} takes over, in term {term}; {kept} packets are kept for it");
                    }
                }
                MemberAction::Follow { link } => {
                    self.links
                        .send(link, &LoggerFrame::host_addresses(self.front.host_addresses()).to_octets());
                    self.links.send(link, &LoggerFrame::Follow.to_octets());
                    if let Some(serving) = self.members.serving() {
                        self.links.send(serving, &LoggerFrame::SendState.to_octets());
                    }
                }
                MemberAction::Replaced { link } => {
                    self.links.send(link, &LoggerFrame::Replaced.to_octets());
                    self.links.flush();
                    self.links.close(link);
                }
                MemberAction::WithoutReplica => {
                    let released = self.control.without_replica();
                    self.release(released);
                }
            }
        }
        if !changes.is_empty() {
            self.show();
        }
    }

    /// A frame of a UPF.
    fn frame(&mut self, now: Instant, link: LinkId, frame: LoggerFrame) {
        let serves = self.members.serving() == Some(link);
        match frame {
            LoggerFrame::Serves if serves => self.begin(now, link),
            LoggerFrame::ToSmf { to, octets } if serves => {
                let released = self
                    .control
                    .from_upf(ReleasedMessage::Datagram { to, octets }, self.members.has_whole_replica());
                self.release(released);
            }
            LoggerFrame::Handled { counter } if serves => {
                let released = self
                    .control
                    .from_upf(ReleasedMessage::Handled(counter), self.members.has_whole_replica());
                self.release(released);
            }
            LoggerFrame::State { .. } if serves => {
                if let Some(replica) = self.members.replica() {
                    self.links.send(replica, &frame.to_octets());
                }
            }
            LoggerFrame::Records { complete, records, .. } if serves => {
                if let Some(replica) = self.members.replica() {
                    let batch = self.control.records_given();
                    self.members.records_given(batch, complete);
                    self.links.send(replica, &LoggerFrame::Records { batch, complete, records }.to_octets());
                }
            }
            LoggerFrame::Acknowledge { batch } if self.members.replica() == Some(link) => {
                if self.members.acknowledged(batch) {
                    info!("the replica has the whole state of the UPF that serves");
                    self.show();
                }
                let released = self.control.acknowledge(batch);
                self.release(released);
            }
            // Of one that was replaced, and what no UPF sends.
            _ => debug!("a frame of a UPF that does not serve is ignored"),
        }
        if self.control.is_full() {
            self.end_slow_replica(now);
        }
    }

    /// Too much waits for the replica's acknowledgement: the UPF goes on without it.
    fn end_slow_replica(&mut self, now: Instant) {
        let Some(replica) = self.members.replica() else { return };
        let peer = self.members.peer(replica).map(|p| p.to_string()).unwrap_or_default();
        warn!(
            "the replica at {peer} reads too slowly: its link is closed, and the UPF serves without a replica"
        );
        self.links.close(replica);
        let changes = self.members.left(now, replica);
        self.follow(now, changes);
    }

    /// The UPF that serves takes messages and packets from now on.
    fn begin(&mut self, now: Instant, link: LinkId) {
        if !self.members.begins() {
            return;
        }
        let requests = self.control.take_over();
        let last = requests.last().map(|r| r.counter);
        for SmfMessage { counter, peer, octets } in requests {
            self.links.send(link, &LoggerFrame::FromSmf { counter, peer, octets }.to_octets());
        }
        self.data_waits = last.map(|last| (last, now + REPLAYED_WITHIN));
        self.liveness.asked = None;
        let counters = self.data.counters();
        info!(
            "the UPF that serves has begun: it gets {} packets and {} messages of SMFs that were kept; of {} packets {} have left, {} were refused by the bound",
            self.data.len(),
            self.control.requests(),
            counters.accepted,
            counters.left,
            counters.refused
        );
    }

    fn release(&mut self, released: Vec<ReleasedMessage>) {
        for what in released {
            if let ReleasedMessage::Datagram { to, octets } = what
                && let Err(e) = self.n4.send_to(&octets, to)
            {
                debug!("N4: a datagram to {to} is not sent: {e}");
            }
        }
    }

    /// Takes messages of SMFs.
    fn take_from_smfs(&mut self) -> bool {
        for n in 0..N4_PER_TURN_MAX {
            match self.n4.recv_from(&mut self.buffer) {
                Ok((octets, peer)) => {
                    if !self.peers.permits(clock::now(), peer) {
                        continue;
                    }
                    let octets = self.buffer.get(..octets).unwrap_or_default().to_vec();
                    let request = self.control.accept(peer, octets);
                    if let (Some(SmfMessage { counter, peer, octets }), Some(link)) =
                        (request, self.members.begun())
                    {
                        self.links.send(link, &LoggerFrame::FromSmf { counter, peer, octets }.to_octets());
                    }
                }
                // An ICMP error of an earlier datagram.
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(_) => return n > 0,
            }
        }
        true
    }

    /// Takes packets of gNBs and data networks.
    fn take_from_outside(&mut self) -> bool {
        let Self { front, data, .. } = self;
        let received = front.receive_outside(|origin, packet| {
            let direction = match origin {
                Origin::N3 { .. } => PacketDirection::Uplink,
                Origin::N6 { .. } | Origin::Frames { .. } => PacketDirection::Downlink,
            };
            let other = data.take_spare().map(|(_, packet)| packet);
            let other = other.unwrap_or_else(|| Packet::with_room(packet.room().len()));
            let taken = std::mem::replace(packet, other);
            // Beyond the bound it is dropped and counted.
            let _ = data.accept(direction, (origin, taken));
        });
        received > 0
    }

    /// Gives packets to the UPF that serves.
    fn give_packets(&mut self, now: Instant) -> bool {
        if let Some((last, until)) = self.data_waits {
            if self.control.first_request().is_some_and(|first| first <= last) && now < until {
                return false;
            }
            self.data_waits = None;
        }
        let Some((to, token)) = self.members.packets_go_to() else { return false };
        let mut given = false;
        while let Some((counter, _, (origin, packet))) = self.data.send_next(now) {
            self.front.send_inside(to, DatagramHead::from(*origin, token, counter), packet.octets());
            given = true;
        }
        self.front.flush_inside();
        given
    }

    /// Takes what packet threads have sent, up to so many bursts. Returns whether there was anything.
    fn take_from_upfs(&mut self, bursts_max: usize) -> bool {
        self.more_waits = true;
        for bursts in 0..bursts_max {
            let Self { front, data, members, leaving, liveness, .. } = self;
            let serving = members.packets_go_to();
            let received = front.receive_inside(|peer, head, packet| {
                if head.kind == DatagramKind::Address {
                    members.has_address(head.token, peer);
                    return;
                }
                // What a UPF sends that was replaced has no effect.
                if serving != Some((peer, head.token)) {
                    return;
                }
                match head.kind {
                    DatagramKind::Packet if head.counter == 0 || data.leaves(head.counter) => {
                        let other = data.take_spare().map(|(_, p)| p);
                        let other = other.unwrap_or_else(|| Packet::with_room(packet.room().len()));
                        leaving.push((head.destination(), std::mem::replace(packet, other)));
                    }
                    DatagramKind::Answer => liveness.asked = None,
                    DatagramKind::Outcome => {
                        for (counter, holds) in datagram::outcomes(packet.octets()) {
                            if holds {
                                data.held(counter);
                            } else {
                                data.ended(counter);
                            }
                        }
                    }
                    DatagramKind::Packet | DatagramKind::Probe | DatagramKind::Address => {}
                }
            });
            self.front.send_outside(self.leaving.iter());
            self.leaving.clear();
            if received == 0 {
                self.more_waits = false;
                return bursts > 0;
            }
        }
        true
    }

    /// Asks the UPF that serves for a sign of life, and has its replica take over if there is none.
    fn watch(&mut self, now: Instant) {
        if self.address_asked <= now {
            self.address_asked = now + ADDRESS_ASKED_EVERY;
            for link in self.members.without_address() {
                self.links.send(link, &LoggerFrame::SendAddress.to_octets());
            }
        }
        if self.liveness.probe_at > now {
            return;
        }
        self.liveness.probe_at = now + self.detection / 4;
        let Some((to, token)) = self.members.packets_go_to() else {
            self.liveness.asked = None;
            return;
        };
        // What had come was looked at just now, so a stall of this process does no harm to the UPF; nor does a flood behind which its answer waits.
        let silent = now.since(self.liveness.asked.unwrap_or(now));
        if silent > self.detection && !self.more_waits && self.members.has_whole_replica() {
            let ms = silent.as_millis();
            warn!("the UPF at {} has given no sign of life for {ms} ms, and is replaced", to.ip());
            let changes = self.members.replace(now);
            return self.follow(now, changes);
        }
        self.liveness.asked.get_or_insert(now);
        self.front.send_inside(to, DatagramHead::of(DatagramKind::Probe, token, now.0), &[]);
        self.front.flush_inside();
    }

    /// What the API shows.
    fn show(&self) {
        let of = |link: Option<LinkId>| {
            link.and_then(|l| self.members.peer(l)).map(|p: SocketAddr| p.ip().to_string())
        };
        let (serving, replica) = (of(self.members.serving()), of(self.members.replica()));
        let (condition, detail) = match (serving, replica, self.members.has_whole_replica()) {
            (None, ..) => (Condition::Down, "no UPF serves".to_string()),
            (Some(s), None, _) => (Condition::Limited, format!("the UPF at {s} serves, without a replica")),
            (Some(s), Some(r), false) => {
                (Condition::Limited, format!("the UPF at {s} serves; its replica at {r} gets the state"))
            }
            (Some(s), Some(r), true) => {
                (Condition::Up, format!("the UPF at {s} serves; its replica at {r} stands ready"))
            }
        };
        self.console.components(|c| c.set("upf", condition, detail));
    }

    fn report(&self) {
        let (c, io) = (self.data.counters(), self.front.io_counters());
        let one = |metric, value| MetricSample { metric, label: None, value };
        let with =
            |metric, label: &str, value| MetricSample { metric, label: Some(label.to_string()), value };
        self.console.metrics.set_samples(vec![
            one(Metric::LoggerPackets, c.accepted),
            one(Metric::LoggerKept, self.data.len() as u64),
            with(Metric::LoggerOutcomes, "left", c.left),
            with(Metric::LoggerOutcomes, "ended", c.ended),
            with(Metric::LoggerOutcomes, "refused", c.refused),
            with(Metric::LoggerOutcomes, "evicted", c.evicted),
            with(Metric::LoggerOutcomes, "overtaken", c.overtaken),
            with(Metric::LoggerOutcomes, "lost", c.lost),
            one(Metric::LoggerReceiveFull, io.receive_full),
            one(Metric::LoggerSendErrors, io.send_full + io.send_errors),
            one(Metric::LoggerReplayed, c.replayed),
            one(Metric::LoggerDoubled, c.doubled),
            one(Metric::LoggerTakeovers, self.takeovers),
            one(Metric::LoggerReplica, self.members.has_whole_replica().into()),
            one(Metric::LoggerLinksRejected, self.rejected.total()),
            one(Metric::LoggerRequestsRefused, self.control.refused()),
        ]);
    }
}

/// Logs once an hour that a queue is full, when its counter has grown.
struct DropLog {
    logged: LogLimiter<&'static str>,
    packets: u64,
    requests: u64,
}

impl Default for DropLog {
    fn default() -> Self {
        Self { logged: LogLimiter::new("full queues of the packet logger"), packets: 0, requests: 0 }
    }
}

impl DropLog {
    fn log(&mut self, now: Instant, packets: u64, requests: u64) {
        if packets > self.packets && self.logged.allows(now, "packets") {
            warn!(
                "packets are dropped: as many wait for the UPF as `packet_logger.packets` permits; further ones are only counted ({})",
                Metric::LoggerOutcomes.name()
            );
        }
        if requests > self.requests && self.logged.allows(now, "requests") {
            warn!(
                "PFCP messages of SMFs are dropped: too many wait for the UPF; further ones are only counted ({})",
                Metric::LoggerRequestsRefused.name()
            );
        }
        (self.packets, self.requests) = (packets, requests);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::log_limiter::Lines;

    #[test]
    fn a_full_queue_is_logged_once_an_hour() {
        let lines = Arc::new(AtomicUsize::new(0));
        let mut drops = DropLog::default();
        let at = |s: u64| Instant::ZERO + Duration::from_secs(s);
        crate::log_limiter::with_subscriber(Lines(lines.clone()), || {
            drops.log(at(1), 0, 0);
            assert_eq!(lines.load(Ordering::Relaxed), 0);
            (2..100).for_each(|n| drops.log(at(n), n, 0));
            assert_eq!(lines.load(Ordering::Relaxed), 1);
            (2..100).for_each(|n| drops.log(at(100 + n), 99, n));
            assert_eq!(lines.load(Ordering::Relaxed), 2);
            drops.log(at(4000), 99, 99);
            assert_eq!(lines.load(Ordering::Relaxed), 2, "none was dropped since");
            drops.log(at(4001), 100, 99);
            assert_eq!(lines.load(Ordering::Relaxed), 3);
        });
    }
}
