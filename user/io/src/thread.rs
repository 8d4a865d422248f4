//! The packet thread: changes, then a burst, then what came of it; and sleep when there is nothing.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_user::{
    Change, Counters, Destination, DnIndex, Origin, Packet, REPORTS_MAX, Report, SessionCounters, SessionId,
    Slot, UpfU, Verdict,
};

use crate::channel::{Receiver, Sender, channel};
use crate::config::Clock;
use crate::ports::af_xdp::lent::Lent;
use crate::ports::{BURST, Ports};
use crate::sys::poll;
use crate::tap::{Tap, Tapped};

/// Changes that may wait for the packet thread: a full second of a busy control plane.
pub const CHANGES_MAX: usize = 65_536;
/// Changes that are applied between two bursts, at a microsecond or two each: a flood of them delays packets no more than a burst does.
pub const CHANGES_AT_ONCE: usize = 32;
/// Empty looks at the sources before the thread sleeps: about 20 µs, less than waking up costs.
const SPINS: u32 = 8;
/// Sleep at most, so that a lost wake-up costs no more than this.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// Pause after a failed reception, so that a device that somebody deleted does not keep a core busy.
const ERROR_PAUSE: Duration = Duration::from_millis(5);
/// Time between two publications of the counters while packets flow.
const PUBLISH_EVERY: Duration = Duration::from_millis(20);

/// What the sockets and devices did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// Datagrams received from gNBs.
    pub n3_received: u64,
    /// Datagrams sent to gNBs.
    pub n3_sent: u64,
    /// Packets received from data networks.
    pub n6_received: u64,
    /// Packets sent into data networks.
    pub n6_sent: u64,
    /// Packets dropped because the kernel's queue was full.
    pub send_full: u64,
    /// Packets that the kernel refused to send (no route, too long).
    pub send_errors: u64,
    /// Failed receptions.
    pub receive_errors: u64,
    /// Packets lost because the thread did not take them in time: the kernel's queue in front of it was full.
    pub receive_full: u64,
    /// Frames that AF_XDP received whose IP or UDP header was none, or had a wrong checksum.
    pub malformed: u64,
    /// Datagrams sent to gNBs by a socket although AF_XDP is in use: the gNB is behind another interface, or its Ethernet
    /// address was not known yet.
    pub n3_sent_by_socket: u64,
    /// Packets from phones that the fast path sent into data networks: they came to no socket and no ring.
    pub fast_uplink: u64,
    /// Packets to phones that it sent to gNBs, likewise.
    pub fast_downlink: u64,
    /// Sessions that it has now.
    pub fast_sessions: u64,
    /// Packets that it had counted when the driver left no room for their headers: they were lost.
    pub fast_no_room: u64,
    /// Packets sent into data networks by a TUN device although the network has an interface of its own: to this host, from
    /// phone to phone, too long, or the router's Ethernet address was not known yet.
    pub n6_sent_by_device: u64,
}

/// What other threads ask of the packet thread.
pub(crate) enum Request {
    Change(Change),
    SessionCounters(SessionId, mpsc::SyncSender<Option<SessionCounters>>),
}

/// What the packet thread and the others share.
pub(crate) struct Shared {
    pub(crate) requests: Sender<Request>,
    pub(crate) counters: Mutex<(Counters, IoCounters)>,
    pub(crate) tap: Tap,
    pub(crate) stop: AtomicBool,
}

impl Shared {
    /// What is shared, the thread's ends of the ways, and the others' end of the way of reports.
    pub(crate) fn new() -> std::io::Result<(Self, Ends, Receiver<Report>)> {
        let (to_thread, requests) = channel(CHANGES_MAX)?;
        let (reports, from_thread) = channel(REPORTS_MAX)?;
        let shared = Self {
            requests: to_thread,
            counters: Mutex::default(),
            tap: Tap::new()?,
            stop: AtomicBool::new(false),
        };
        Ok((shared, Ends { requests, reports }, from_thread))
    }
}

/// The thread's ends of the ways from and to the others.
pub(crate) struct Ends {
    requests: Receiver<Request>,
    reports: Sender<Report>,
}

/// The thread's state.
struct Worker<'s, P> {
    shared: &'s Shared,
    ends: Ends,
    /// There is a fast path.
    fast: bool,
    upf: UpfU,
    ports: P,
    io: IoCounters,
    /// Reports that found no room.
    reports: VecDeque<Report>,
    published: Instant,
    /// Where N3 is, for copies of what leaves it.
    own: Vec<SocketAddr>,
    /// Copies of this turn.
    copies: Vec<Tapped>,
}

/// Runs until told to stop.
pub(crate) fn run<P: Ports>(
    (shared, ends): (&Shared, Ends),
    mut upf: UpfU,
    ports: P,
    clock: &Clock,
    room: usize,
    own: Vec<SocketAddr>,
) {
    let origin = Origin::N6 { dn: DnIndex(0) };
    let slot = |_| Slot { origin, packet: Packet::with_room(room), verdict: Verdict::Pending };
    let mut slots: Vec<Slot> = (0..BURST).map(slot).collect();
    let path = ports.fast_path();
    let fast = path.is_some();
    path.into_iter().for_each(|memory| upf.lend_to(Box::new(Lent::new(memory))));
    let mut w = Worker {
        shared,
        ends,
        fast,
        upf,
        ports,
        io: IoCounters::default(),
        reports: VecDeque::new(),
        published: Instant::ZERO,
        own,
        copies: Vec::new(),
    };
    let mut idle = 0;
    while !shared.stop.load(Ordering::Acquire) {
        let now = clock();
        let errors = w.io.receive_errors;
        let n = w.ports.receive(&mut slots, &mut w.io);
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
            w.copy_received(now, &slots[..n]);
        }
        w.upf.burst(now, &mut slots[..n]);
        if w.upf.next_deadline().is_some_and(|at| at <= now) {
            w.upf.tick(now); // what the burst itself has made due: router advertisements
        }
        w.send(now, &slots[..n], tapped);
        w.upf.lend(now, n < BURST);
        w.tell(now, n == 0 && idle == SPINS);
        idle = if n == 0 { idle + 1 } else { 0 };
        if idle > SPINS {
            w.sleep(clock);
            idle = SPINS - 1;
        }
    }
    w.tell(clock(), true);
}

/// What the pipeline lets pass.
fn passed(slots: &[Slot]) -> impl Iterator<Item = (Destination, &Packet)> {
    slots.iter().filter_map(|s| match s.verdict {
        Verdict::Send(to) => Some((to, &s.packet)),
        _ => None,
    })
}

impl<P: Ports> Worker<'_, P> {
    fn requests(&mut self, now: Instant) {
        for request in self.ends.requests.take(CHANGES_AT_ONCE) {
            match request {
                Request::Change(change) => self.upf.apply(now, change),
                Request::SessionCounters(id, answer) => {
                    // The asker may have given up.
                    answer.try_send(self.upf.session_counters(id)).ok();
                }
            }
        }
    }

    /// Copies the datagrams of a burst, before the pipeline takes their headers off.
    fn copy_received(&mut self, at: Instant, slots: &[Slot]) {
        for slot in slots {
            let Origin::N3 { peer, local } = slot.origin else { continue };
            let Some(&to) = self.own.iter().find(|own| own.ip() == local) else { continue };
            self.copies.push(Tapped { at, from: peer, to, octets: slot.packet.octets().to_vec() });
        }
    }

    /// Copies the datagrams of what is to be sent.
    fn copy_sent<'p>(&mut self, at: Instant, packets: impl Iterator<Item = (Destination, &'p Packet)>) {
        for (to, packet) in packets {
            let Destination::N3 { peer, .. } = to else { continue };
            let Some(&from) = self.own.iter().find(|own| own.is_ipv4() == peer.is_ipv4()) else { continue };
            self.copies.push(Tapped { at, from, to: peer, octets: packet.octets().to_vec() });
        }
    }

    /// Sends what the pipeline made, then what it passed.
    fn send(&mut self, now: Instant, slots: &[Slot], tapped: bool) {
        let mut own: Vec<(Destination, Packet)> = Vec::new();
        while let Some(output) = self.upf.next_output() {
            own.push(output);
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
            self.upf.gather();
            self.io.fast_sessions = self.upf.lent();
            let mut public = self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner);
            *public = (self.upf.counters().clone(), self.io);
        }
    }

    fn sleep(&mut self, clock: &Clock) {
        use std::os::fd::AsFd;
        if !self.ends.requests.sleep() || self.shared.stop.load(Ordering::Acquire) {
            return self.ends.requests.awake();
        }
        // What passes by the thread is to be told as often as if it came here.
        let longest = if self.fast { PUBLISH_EVERY } else { SLEEP_MAX };
        let next = [self.upf.next_deadline(), self.upf.next_lending()].into_iter().flatten().min();
        let until = next.map_or(longest, |at| at.since(clock()).min(longest));
        let mut fds = self.ports.descriptors();
        fds.push(self.ends.requests.as_fd());
        let failed = poll::readable(&fds, until).is_err();
        drop(fds);
        self.ends.requests.awake();
        self.io.receive_errors += u64::from(failed);
    }
}
