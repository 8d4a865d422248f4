//! The thread that probes: it owns the socket and the initiator, and the thread that started it gives it peers and takes its verdicts.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use whimbrel_resilience::sbfd::{
    SbfdChange, SbfdCounters, SbfdDiscriminator, SbfdInitiator, SbfdOutbox, SbfdTarget,
};
use whimbrel_user_io::TtlSocket;

use super::{DATAGRAM_OCTETS, FLOOD_PAUSE, PER_TURN_MAX, STOP_CHECKED_EVERY, SbfdFigures};
use crate::clock;
use crate::config::ProbingConfig;
use crate::entropy::SystemEntropy;

/// What happened to a peer, by the name that its watcher gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SbfdVerdict<K> {
    pub peer: K,
    pub change: SbfdChange,
}

enum SbfdOrder {
    Watch(SbfdDiscriminator, SbfdTarget),
    Forget(SbfdDiscriminator),
}

/// What the thread has found.
#[derive(Default)]
struct SbfdFindings {
    changes: Vec<(SbfdDiscriminator, SbfdChange)>,
    counters: SbfdCounters,
    sessions: (usize, usize),
}

struct InitiatorExchange {
    orders: Mutex<Vec<SbfdOrder>>,
    found: Mutex<SbfdFindings>,
    /// For the thread: there are orders. For its watcher: there are changes.
    ordered: OwnedFd,
    changed: OwnedFd,
    /// There are changes: without a system call.
    has_changes: AtomicBool,
    stop: AtomicBool,
}

/// Probes the peers that it is given, from one socket and on one thread.
pub struct SbfdProber<K> {
    shared: Arc<InitiatorExchange>,
    thread: Option<JoinHandle<()>>,
    entropy: SystemEntropy,
    peers: BTreeMap<SbfdDiscriminator, K>,
}

impl<K: Copy + PartialEq> SbfdProber<K> {
    /// Sends from this address. Errors: one sentence.
    pub fn start(from: IpAddr, probing: ProbingConfig) -> Result<Self, String> {
        let no_socket = |e| format!("S-BFD probes cannot be sent from {from}: {e}");
        let socket = UdpSocket::bind(SocketAddr::new(from, 0)).map_err(no_socket)?;
        let socket = TtlSocket::of(socket).map_err(no_socket)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let new_eventfd = || eventfd(0, flags).map_err(|e| format!("the system gives no eventfd: {e}"));
        let shared = Arc::new(InitiatorExchange {
            orders: Mutex::default(),
            found: Mutex::default(),
            ordered: new_eventfd()?,
            changed: new_eventfd()?,
            has_changes: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let of_thread = shared.clone();
        let run = move || {
            super::take_priority("sends S-BFD probes", probing.real_time);
            let initiator = SbfdInitiator::new(probing.timing, probing.one_link);
            Thread { socket, initiator, out: SbfdOutbox::default(), shared: of_thread }.run();
        };
        let thread = std::thread::Builder::new().name("sbfd".into()).spawn(run);
        let thread =
            thread.map_err(|e| format!("the thread that sends S-BFD probes cannot be started: {e}"))?;
        Ok(Self { shared, thread: Some(thread), entropy: SystemEntropy::new()?, peers: BTreeMap::new() })
    }

    /// Begins to probe a peer, in place of an earlier one of that name.
    pub fn watch(&mut self, peer: K, target: SbfdTarget) {
        self.forget(peer);
        let drawn = std::iter::repeat_with(|| u32::from_ne_bytes(self.entropy.octets()));
        let mine = drawn.filter_map(SbfdDiscriminator::new).find(|mine| !self.peers.contains_key(mine));
        if let Some(mine) = mine {
            self.peers.insert(mine, peer);
            self.order(SbfdOrder::Watch(mine, target));
        }
    }

    /// Probes a peer no longer.
    pub fn forget(&mut self, peer: K) {
        let of_peer = self.peers.iter().find(|(_, watched)| **watched == peer).map(|(mine, _)| *mine);
        if let Some(mine) = of_peer {
            self.peers.remove(&mine);
            self.order(SbfdOrder::Forget(mine));
        }
    }

    fn order(&self, order: SbfdOrder) {
        self.shared.orders.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        // A counter at its limit is readable already, so a failed write loses nothing.
        let _ = rustix::io::write(&self.shared.ordered, &1u64.to_ne_bytes());
    }

    /// What happened since the last call.
    pub fn take(&mut self) -> Vec<SbfdVerdict<K>> {
        if !self.shared.has_changes.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.changed, &mut count);
        let changes = std::mem::take(&mut self.found().changes);
        let of_peer = |(mine, change)| Some(SbfdVerdict { peer: *self.peers.get(&mine)?, change });
        changes.into_iter().filter_map(of_peer).collect()
    }

    fn found(&self) -> std::sync::MutexGuard<'_, SbfdFindings> {
        self.shared.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn figures(&self) -> SbfdFigures {
        let found = self.found();
        let (up, all) = found.sessions;
        SbfdFigures { probing: found.counters, sessions: (up as u64, all as u64), ..SbfdFigures::default() }
    }
}

impl<K> AsFd for SbfdProber<K> {
    /// Readable when [`SbfdProber::take`] returns something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.changed.as_fd()
    }
}

impl<K> Drop for SbfdProber<K> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.ordered, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Thread {
    socket: TtlSocket,
    initiator: SbfdInitiator,
    out: SbfdOutbox,
    shared: Arc<InitiatorExchange>,
}

impl Thread {
    fn run(&mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            self.take_orders();
            if self.receive() == PER_TURN_MAX {
                std::thread::sleep(FLOOD_PAUSE);
                self.receive();
            }
            let now = clock::now();
            if self.initiator.next_deadline().is_some_and(|due| due <= now) {
                self.initiator.tick(now, &mut self.out);
            }
            for (to, probe) in self.out.probes.drain(..) {
                // A probe that is not sent is not answered.
                let _ = self.socket.send_to(&probe, to);
            }
            self.report();
            self.wait();
        }
    }

    /// An order that another thread is just giving is taken in the next turn.
    fn take_orders(&mut self) {
        let Ok(mut orders) = self.shared.orders.try_lock() else { return };
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.ordered, &mut count);
        for order in orders.drain(..) {
            match order {
                SbfdOrder::Watch(mine, target) => self.initiator.watch(clock::now(), mine, target),
                SbfdOrder::Forget(mine) => self.initiator.forget(mine),
            }
        }
    }

    /// Takes answers. Returns how many there were.
    fn receive(&mut self) -> usize {
        let mut octets = [0; DATAGRAM_OCTETS];
        for n in 0..PER_TURN_MAX {
            match self.socket.receive(&mut octets) {
                Ok((len, from, ttl)) => {
                    self.initiator.receive(clock::now(), from, ttl, &octets[..len], &mut self.out);
                }
                // An ICMP error of an earlier probe is reported here.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::Interrupted) => {}
                Err(_) => return n,
            }
        }
        PER_TURN_MAX
    }

    fn report(&mut self) {
        let Ok(mut found) = self.shared.found.try_lock() else { return };
        found.counters = self.initiator.counters();
        found.sessions = self.initiator.sessions();
        if !self.out.changes.is_empty() {
            found.changes.append(&mut self.out.changes);
            self.shared.has_changes.store(true, Ordering::Release);
            let _ = rustix::io::write(&self.shared.changed, &1u64.to_ne_bytes());
        }
    }

    fn wait(&self) {
        let now = clock::now();
        let due = self.initiator.next_deadline().map_or(STOP_CHECKED_EVERY, |due| due.since(now));
        // What could not be reported is reported soon.
        let due = if self.out.changes.is_empty() { due } else { due.min(FLOOD_PAUSE) };
        let wait = due.min(STOP_CHECKED_EVERY);
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        let mut fds = [self.socket.as_fd(), self.shared.ordered.as_fd()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&timeout));
    }
}
