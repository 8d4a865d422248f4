//! The packet thread: changes, then a burst, then what came of it; and sleep when there is nothing.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use whimbrel_gtpu::message_type;
use whimbrel_ids::Instant;
use whimbrel_user::{
    BurstPacket, Counters, Destination, DnIndex, HostAddresses, Origin, Packet, PacketVerdict, PathUse,
    REPORTS_MAX, SessionCounters, SessionId, UpfU, UserPlaneChange, UserPlaneReport,
};

use crate::beats::Beats;
use crate::channel::{Receiver, Sender, channel};
use crate::config::Clock;
use crate::harvest::{Background, Harvest, HarvestCounters};
use crate::inter_thread_queues::{InterThreadQueues, inter_thread_queues};
use crate::ports::af_xdp::xdp_fast_path::XdpFastPath;
use crate::ports::{BURST, Ports};
use crate::state::StateFile;
use crate::sys::poll;
use crate::tap::{Tap, TappedDatagram};

/// Changes that may wait for the packet thread: a full second of a busy control plane.
pub const CHANGES_MAX: usize = 65_536;
/// Changes that are applied between two bursts, at a microsecond or two each: a flood of them delays packets no more than a burst does.
pub const CHANGES_AT_ONCE: usize = 32;
/// Empty looks at the sources before the thread sleeps: about 20 µs, less than waking up costs.
const SPINS: u32 = 8;
/// Sleep at most, so that a lost wake-up costs no more than this.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// Pause after a failed reception, so that a deleted device does not keep a core busy.
const ERROR_PAUSE: Duration = Duration::from_millis(5);
/// How long an end marker waits where there is a fast path: packets to the same tunnel that a driver has decided on may still be in its
/// hands, and it comes behind the last (TS 23.501 §5.8.2.9). A burst of 64, many times over.
const END_MARKER_AFTER: Duration = Duration::from_micros(100);
/// Time between two publications of the counters while packets flow.
const PUBLISH_EVERY: Duration = Duration::from_millis(20);

macro_rules! io_counters {
    ($( $(#[doc = $doc:literal])+ $name:ident, )*) => {
        /// What the sockets and devices did.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct IoCounters { $( $(#[doc = $doc])+ pub $name: u64, )* }

        impl std::ops::Add for IoCounters {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self { $( $name: self.$name + other.$name, )* }
            }
        }
    };
}

io_counters! {
    /// Datagrams received from gNBs.
    n3_received,
    /// Datagrams sent to gNBs.
    n3_sent,
    /// Packets received from data networks.
    n6_received,
    /// Packets received from data networks that the kernel had left whole, and that were cut into those that are counted.
    n6_long,
    /// Packets sent into data networks.
    n6_sent,
    /// Packets dropped because the kernel's queue was full.
    send_full,
    /// Packets that the kernel refused to send (no route, too long).
    send_errors,
    /// Receptions that have failed.
    receive_errors,
    /// Packets lost because the thread did not take them in time: the kernel's queue in front of it was full.
    receive_full,
    /// Frames that AF_XDP received whose IP or UDP header was none, or had a wrong checksum.
    malformed,
    /// Datagrams sent to gNBs by a socket although AF_XDP is in use: the gNB is behind another interface, or its Ethernet
    /// address was not known yet.
    n3_sent_by_socket,
    /// Packets from UEs that the fast path sent into data networks: they came to no socket and no ring.
    fast_uplink,
    /// Packets to UEs that it sent to gNBs, likewise.
    fast_downlink,
    /// Sessions that it has now.
    fast_sessions,
    /// Packets that it had counted when the driver left no room for their headers: they were lost.
    fast_no_room,
    /// Packets sent into data networks by a TUN device although the network has an interface of its own: to this host, from
    /// UE to UE, too long, or the router's Ethernet address was not known yet.
    n6_sent_by_device,
    /// Packets that a thread received and handed to the one that has their session.
    handed_over,
    /// Packets that it could not hand over because too many waited there.
    hand_over_full,
}

/// What other threads ask of a packet thread.
pub(crate) enum ThreadRequest {
    Change(UserPlaneChange),
    SessionCounters(SessionId, mpsc::SyncSender<Option<SessionCounters>>),
    /// What another thread has to tell of a peer: for the thread that supervises paths.
    PathUsed(IpAddr, PathUse),
    /// The host takes packets for these addresses.
    HostAddresses(Arc<HostAddresses>),
    /// How much background work may cost.
    Harvest(Harvest),
}

/// What one packet thread and the others share.
pub(crate) struct Public {
    pub(crate) requests: Sender<ThreadRequest>,
    pub(crate) counters: Mutex<(Counters, IoCounters, HarvestCounters)>,
}

/// What all packet threads and the others share.
pub(crate) struct ThreadsState {
    pub(crate) threads: Vec<Public>,
    pub(crate) tap: Tap,
    pub(crate) stop: AtomicBool,
    /// No packet is taken yet: sessions of a former process come first.
    pub(crate) waits: AtomicBool,
    /// Where the threads show that they live, if another process watches them.
    pub(crate) beats: OnceLock<Beats>,
}

impl ThreadsState {
    /// What is shared by so many threads, their ends of the ways, and the others' end of the way of reports.
    pub(crate) fn new(
        threads: usize,
        room: usize,
    ) -> std::io::Result<(Self, Vec<Ends>, Receiver<UserPlaneReport>)> {
        let (reports, from_threads) = channel(REPORTS_MAX)?;
        let ways = (0..threads).map(|_| channel(CHANGES_MAX)).collect::<std::io::Result<Vec<_>>>()?;
        let (to, from): (Vec<_>, Vec<_>) = ways.into_iter().unzip();
        let queues = inter_thread_queues(&to, room);
        let ends = from.into_iter().zip(queues).enumerate();
        let ends = ends.map(|(number, (requests, queues))| Ends {
            number,
            requests,
            reports: reports.clone(),
            queues,
        });
        let public = |requests| Public { requests, counters: Mutex::default() };
        let shared = Self {
            threads: to.into_iter().map(public).collect(),
            tap: Tap::new()?,
            stop: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            beats: OnceLock::new(),
        };
        Ok((shared, ends.collect(), from_threads))
    }
}

/// A thread's ends of the ways from and to the others.
pub(crate) struct Ends {
    number: usize,
    requests: Receiver<ThreadRequest>,
    reports: Sender<UserPlaneReport>,
    queues: InterThreadQueues,
}

/// The thread's state.
struct Worker<'s, P> {
    shared: &'s ThreadsState,
    ends: Ends,
    /// There is a fast path.
    fast: bool,
    upf: UpfU,
    ports: P,
    io: IoCounters,
    /// Reports that found no room.
    reports: VecDeque<UserPlaneReport>,
    /// End markers that wait.
    ends_of_paths: VecDeque<(Instant, Destination, Packet)>,
    /// Path uses for the first thread that found no room.
    path_uses: VecDeque<(IpAddr, PathUse)>,
    published: Instant,
    /// Where N3 is, for copies of what leaves it.
    own: Vec<SocketAddr>,
    /// Copies of this turn.
    copies: Vec<TappedDatagram>,
    /// Work for the time that packets leave.
    background: Option<Background>,
}

/// Runs until stopped.
pub(crate) fn run<P: Ports>(
    (shared, ends): (&ThreadsState, Ends),
    (mut upf, held): (UpfU, Option<(StateFile, whimbrel_user::Config)>),
    ports: P,
    clock: &Clock,
    room: usize,
    own: Vec<SocketAddr>,
) {
    let origin = Origin::N6 { dn: DnIndex(0) };
    let slot = |_| BurstPacket { origin, packet: Packet::with_room(room), verdict: PacketVerdict::Pending };
    let mut slots: Vec<BurstPacket> = (0..BURST).map(slot).collect();
    let path = ports.fast_path();
    let fast = path.is_some();
    path.into_iter().for_each(|memory| upf.attach_fast_path(Box::new(XdpFastPath::new(memory))));
    let mut w = Worker {
        shared,
        ends,
        fast,
        upf,
        ports,
        io: IoCounters::default(),
        reports: VecDeque::new(),
        ends_of_paths: VecDeque::new(),
        path_uses: VecDeque::new(),
        published: Instant::ZERO,
        own,
        copies: Vec::new(),
        background: None,
    };
    while shared.waits.load(Ordering::Acquire) && !shared.stop.load(Ordering::Acquire) {
        if w.requests(clock()) == 0 {
            w.await_request();
        }
    }
    while w.requests(clock()) > 0 {}
    // Before any packet that comes: those that waited are older.
    if let Some((file, config)) = held.filter(|_| !shared.stop.load(Ordering::Acquire)) {
        w.upf.keep_held(clock(), Box::new(file), &config);
    }
    let (mut idle, mut last) = (0u32, Instant::ZERO);
    while !shared.stop.load(Ordering::Acquire) {
        let now = clock();
        w.shared.beats.get().into_iter().for_each(|beats| beats.turn(w.ends.number));
        let errors = w.io.receive_errors;
        // What other threads took in before, and no more than leaves room for what comes here.
        let handed = w.ends.queues.receive(&mut slots[..BURST / 2]);
        slots[handed..].iter_mut().for_each(|s| s.verdict = PacketVerdict::Pending);
        let received = w.ports.receive(&mut slots[handed..], &mut w.io);
        let n = handed + received;
        if w.io.receive_errors != errors {
            std::thread::sleep(ERROR_PAUSE);
        }
        // After what came: a packet that follows a change of rules meets the new ones.
        w.requests(now);
        if w.upf.next_deadline().is_some_and(|at| at <= now) {
            w.upf.tick(now);
        }
        let tapped = w.shared.tap.is_on();
        w.ports.all_up(tapped);
        if tapped {
            w.copy_received(now, &slots[handed..n]);
        }
        w.burst(now, &mut slots[..n]);
        if w.upf.next_deadline().is_some_and(|at| at <= now) {
            w.upf.tick(now); // what the burst itself has made due: router advertisements
        }
        w.send(now, &slots[..n], tapped);
        if P::LOGGED {
            let ended = w.upf.take_ended();
            w.ports.decided(&slots[handed..n], ended);
        }
        w.hand_over(&mut slots[..n]);
        w.upf.offload_ready(now, n < BURST);
        w.tell(now, n == 0 && idle == SPINS);
        let (background, upf) = (w.background.as_mut(), &w.upf);
        let worked = background.is_some_and(|background| background.looked(now, n, upf));
        (idle, last) = if n == 0 { (idle.saturating_add(1), last) } else { (0, now) };
        if idle > SPINS && !worked && now.since(last) >= w.ports.busy_poll() {
            w.sleep(clock);
            w.background.iter_mut().for_each(Background::woke);
            idle = SPINS - 1;
        }
    }
    w.tell(clock(), true);
}

/// What the pipeline lets pass.
fn passed(slots: &[BurstPacket]) -> impl Iterator<Item = (Destination, &Packet)> {
    slots.iter().filter_map(|s| match s.verdict {
        PacketVerdict::Send(to) => Some((to, &s.packet)),
        _ => None,
    })
}

/// Whether a packet of the pipeline's own ends a path to a gNB.
fn is_end_marker(to: Destination, packet: &Packet) -> bool {
    let message = packet.octets().get(1).copied();
    matches!(to, Destination::N3 { .. }) && message == Some(message_type::END_MARKER)
}

impl<P: Ports> Worker<'_, P> {
    /// Sees to some requests; to how many.
    fn requests(&mut self, now: Instant) -> usize {
        let mut requests = 0;
        for request in self.ends.requests.take(CHANGES_AT_ONCE) {
            requests += 1;
            match request {
                ThreadRequest::Change(change) => self.upf.apply(now, change),
                ThreadRequest::PathUsed(peer, what) => self.upf.path_used(now, peer, what),
                ThreadRequest::HostAddresses(host) => self.upf.set_host_addresses(host),
                ThreadRequest::Harvest(harvest) => self.background = Background::new(harvest, now),
                ThreadRequest::SessionCounters(id, answer) => {
                    // The asker may have given up.
                    answer.try_send(self.upf.session_counters(id)).ok();
                }
            }
        }
        requests
    }

    /// Decides on a burst, with background work while its memory is loaded.
    fn burst(&mut self, now: Instant, slots: &mut [BurstPacket]) {
        let packets = slots.len();
        match self.background.as_mut().and_then(|background| background.in_stalls(now, packets)) {
            None => self.upf.burst(now, slots),
            Some(mut in_stalls) => self.upf.burst_observed(now, slots, &mut in_stalls),
        }
    }

    /// Copies the datagrams of a burst, before the pipeline takes their headers off.
    fn copy_received(&mut self, at: Instant, slots: &[BurstPacket]) {
        for slot in slots {
            let Origin::N3 { peer, local } = slot.origin else { continue };
            let Some(&to) = self.own.iter().find(|own| own.ip() == local) else { continue };
            self.copies.push(TappedDatagram { at, from: peer, to, octets: slot.packet.octets().to_vec() });
        }
    }

    /// Copies the datagrams of what is to be sent.
    fn copy_sent<'p>(&mut self, at: Instant, packets: impl Iterator<Item = (Destination, &'p Packet)>) {
        for (to, packet) in packets {
            let Destination::N3 { peer, .. } = to else { continue };
            let Some(&from) = self.own.iter().find(|own| own.is_ipv4() == peer.is_ipv4()) else { continue };
            self.copies.push(TappedDatagram { at, from, to: peer, octets: packet.octets().to_vec() });
        }
    }

    /// Sends what the pipeline made, then what it passed.
    fn send(&mut self, now: Instant, slots: &[BurstPacket], tapped: bool) {
        let mut own: Vec<(Destination, Packet)> = Vec::new();
        while let Some((to, packet)) = self.upf.next_output() {
            if self.fast && is_end_marker(to, &packet) {
                self.ends_of_paths.push_back((now + END_MARKER_AFTER, to, packet));
            } else {
                own.push((to, packet));
            }
        }
        while self.ends_of_paths.front().is_some_and(|(at, ..)| *at <= now) {
            own.extend(self.ends_of_paths.pop_front().map(|(_, to, packet)| (to, packet)));
        }
        if tapped {
            self.copy_sent(now, own.iter().map(|(to, p)| (*to, p)));
            self.copy_sent(now, passed(slots));
            self.shared.tap.hand_out(&mut self.copies);
        }
        if !own.is_empty() {
            self.ports.send(&mut own.iter().map(|(to, p)| (*to, p)), &mut self.io);
            own.into_iter().for_each(|(_, p)| self.upf.recycle(p));
        }
        self.ports.send(&mut passed(slots), &mut self.io);
    }

    /// Hands packets to the threads that have their sessions, and what is to be known of paths to the first.
    fn hand_over(&mut self, slots: &mut [BurstPacket]) {
        let queues = &mut self.ends.queues;
        if let Some(first) = queues.first() {
            self.path_uses.extend(self.upf.take_path_uses());
            while let Some((peer, what)) = self.path_uses.pop_front() {
                if first.send(ThreadRequest::PathUsed(peer, what)).is_err() {
                    self.path_uses.push_front((peer, what));
                    break;
                }
            }
        }
        let (handed, lost) = queues.hand_over(slots);
        self.io.handed_over += handed;
        self.io.hand_over_full += lost;
    }

    /// Hands out reports and figures.
    fn tell(&mut self, now: Instant, at_rest: bool) {
        self.reports.extend(self.upf.take_reports());
        while let Some(report) = self.reports.pop_front() {
            if let Err(report) = self.ends.reports.send(report) {
                self.reports.push_front(report);
                break;
            }
        }
        if at_rest || now.since(self.published) >= PUBLISH_EVERY {
            self.published = now;
            self.io.receive_full = self.ports.lost();
            [self.io.fast_uplink, self.io.fast_downlink, self.io.fast_no_room] = self.ports.in_driver();
            self.upf.collect_counters();
            self.io.fast_sessions = self.upf.offloaded();
            let mut public =
                self.shared.threads[self.ends.number].counters.lock().unwrap_or_else(PoisonError::into_inner);
            let harvested = self.background.as_ref().map(|b| b.counters().clone()).unwrap_or_default();
            *public = (self.upf.counters().clone(), self.io, harvested);
        }
    }

    /// Sleeps until something is asked, or packets may be taken, or all is to end: a thread that stands by takes no time of a processor.
    fn await_request(&mut self) {
        let waits = |shared: &ThreadsState| {
            shared.waits.load(Ordering::SeqCst) && !shared.stop.load(Ordering::SeqCst)
        };
        if self.ends.requests.sleep() && waits(self.shared) {
            // A failure makes this thread look more often.
            let _ = poll::until_readable(&[self.ends.requests.as_fd()]);
        }
        self.ends.requests.awake();
    }

    fn sleep(&mut self, clock: &Clock) {
        if !self.ends.requests.sleep()
            || !self.ends.queues.is_idle()
            || self.shared.stop.load(Ordering::Acquire)
        {
            return self.ends.requests.awake();
        }
        // Packets of the fast path are reported as often as if they came here.
        let longest = if self.fast { PUBLISH_EVERY } else { SLEEP_MAX };
        let end_of_path = self.ends_of_paths.front().map(|(at, ..)| *at);
        let background = self.background.as_ref().map(Background::next_deadline);
        let next = [self.upf.next_deadline(), self.upf.next_offload(), end_of_path, background];
        let next = next.into_iter().flatten().min();
        let until = next.map_or(longest, |at| at.since(clock()).min(longest));
        let mut fds = self.ports.descriptors();
        fds.push(self.ends.requests.as_fd());
        let beats = self.shared.beats.get();
        beats.into_iter().for_each(|beats| beats.sleeps(self.ends.number, true));
        let failed = poll::readable(&fds, until).is_err();
        beats.into_iter().for_each(|beats| beats.sleeps(self.ends.number, false));
        drop(fds);
        self.ends.requests.awake();
        self.io.receive_errors += u64::from(failed);
    }
}
