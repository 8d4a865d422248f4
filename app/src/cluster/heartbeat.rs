//! Heartbeats on the host: the socket from which a CTA asks, and that of who is asked, where a thread of its own answers.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Add;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::warn;
use whimbrel_ids::Instant;
use whimbrel_resilience::detector::{
    Cause, Change, Counters, Detector, Discriminator, Incarnation, Input, LENGTH, Outbox, Reflector,
    ReflectorCounters, Timing,
};
use whimbrel_resilience::membership::MemberId;

use crate::console::Sample;

/// Heartbeats taken in one turn.
const PER_TURN_MAX: usize = 256;
/// How often the answering thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
/// Who asks. Those that answer have the numbers below.
const ASKS: Discriminator = Discriminator(u32::MAX);
/// A number is one life.
const LIFE: Incarnation = Incarnation(1);
/// How long one that was taken for dead is listened to still, to count whether that was wrong.
const DOUBT: Duration = Duration::from_secs(10);

/// Heartbeats that did not count, of who asks and of who answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ignored {
    malformed: u64,
    forged: u64,
    foreign: u64,
    stale: u64,
}

impl From<Counters> for Ignored {
    fn from(of: Counters) -> Self {
        Self { malformed: of.malformed, forged: of.forged, foreign: of.foreign, stale: of.stale }
    }
}

impl From<ReflectorCounters> for Ignored {
    fn from(of: ReflectorCounters) -> Self {
        Self { malformed: of.malformed, forged: of.forged, foreign: of.foreign, stale: 0 }
    }
}

impl Add for Ignored {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            malformed: self.malformed + other.malformed,
            forged: self.forged + other.forged,
            foreign: self.foreign + other.foreign,
            stale: self.stale + other.stale,
        }
    }
}

impl Ignored {
    /// For the metrics.
    pub(super) fn samples(self) -> [Sample; 4] {
        let all = [
            ("malformed", self.malformed),
            ("forged", self.forged),
            ("foreign", self.foreign),
            ("stale", self.stale),
        ];
        all.map(|(why, value)| Sample {
            name: "whimbrel_heartbeats_ignored_total",
            help: "Heartbeats that were ignored",
            label: Some(("why", why.into())),
            value,
        })
    }
}

/// Whom a CTA watches.
pub(super) struct HeartbeatMonitor {
    socket: UdpSocket,
    detector: Detector,
    places: BTreeMap<Discriminator, (MemberId, SocketAddr)>,
    /// Who was taken for dead, and until when that is doubted.
    doubted: Vec<(Instant, Discriminator)>,
    out: Outbox,
}

impl HeartbeatMonitor {
    /// Errors: those of `bind`.
    pub(super) fn open(at: SocketAddr, key: &[u8; 32], timing: Timing) -> std::io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        let detector = Detector::new(ASKS, LIFE, key, timing);
        let (places, doubted, out) = (BTreeMap::new(), Vec::new(), Outbox::default());
        Ok(Self { socket, detector, places, doubted, out })
    }

    /// How often, and how patiently, from now on.
    pub(super) fn set_timing(&mut self, timing: Timing) {
        self.detector.set_timing(timing);
    }

    /// Somebody is watched from now on. A CTA may be there again that was taken for dead just now: what was thought of it is over.
    pub(super) fn begin(&mut self, now: Instant, who: MemberId, at: SocketAddr) {
        let name = who.discriminator();
        self.doubted.retain(|(_, of)| *of != name);
        self.detector.forget(name);
        self.places.insert(name, (who, at));
        match who {
            MemberId::Cpf(_) => self.detector.watch_among(now, name),
            MemberId::Cta(_) => self.detector.watch(now, name),
        }
    }

    /// It answers, and is lost all the same: its further heartbeats tell it so, for links do not.
    pub(super) fn replaced(&mut self, now: Instant, who: MemberId) {
        let name = who.discriminator();
        self.detector.handle(now, Input::Closed(name), &mut self.out);
        self.doubted.push((now + DOUBT, name));
    }

    /// It has left, or its link has broken.
    pub(super) fn end(&mut self, who: MemberId) {
        let name = who.discriminator();
        if self.doubted.iter().all(|(_, d)| *d != name) {
            self.places.remove(&name);
            self.detector.forget(name);
        }
    }

    /// UeQueries who is to be asked and takes what was answered. Gives who does not answer.
    pub(super) fn turn(&mut self, now: Instant) -> Vec<MemberId> {
        let mut octets = [0; LENGTH + 1];
        for _ in 0..PER_TURN_MAX {
            match self.socket.recv(&mut octets) {
                Ok(n) => self.detector.handle(now, Input::Datagram(&octets[..n]), &mut self.out),
                // What an earlier heartbeat met is told here.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::Interrupted) => {}
                Err(_) => break,
            }
        }
        if self.detector.next_deadline().is_some_and(|due| due <= now) {
            self.detector.handle(now, Input::Tick, &mut self.out);
        }
        for (to, probe) in self.out.probes.drain(..) {
            // One that is not sent is one that is not answered.
            let _ = self.places.get(&to).map(|(_, at)| self.socket.send_to(&probe, at));
        }
        let mut silent = Vec::new();
        for (of, change) in self.out.changes.drain(..) {
            let Some((who, _)) = self.places.get(&of).copied() else { continue };
            match change {
                Change::Down(_, Cause::Silent) => {
                    self.doubted.push((now + DOUBT, of));
                    silent.push(who);
                }
                Change::FalseAlarm(_) => {
                    warn!(member = %who, "a process that was declared lost is alive: it has to join again")
                }
                _ => {}
            }
        }
        let over = |(until, _): &(Instant, Discriminator)| *until <= now;
        for (_, of) in self.doubted.extract_if(.., |d| over(d)) {
            self.places.remove(&of);
            self.detector.forget(of);
        }
        silent
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.detector.next_deadline()
    }

    pub(super) fn counters(&self) -> Counters {
        self.detector.counters()
    }
}

impl AsFd for HeartbeatMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Who it is, if it is somebody, and what was ignored by whom it was before.
#[derive(Default)]
struct Held {
    reflector: Option<Reflector>,
    ignored: Ignored,
}

/// Answers heartbeats, beside the thread that works: what holds that one up for a moment is no death.
pub(super) struct HeartbeatResponder {
    place: Arc<Mutex<Held>>,
    replaced: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HeartbeatResponder {
    /// Errors: those of `bind`, and where no thread can be had.
    pub(super) fn start(at: SocketAddr) -> std::io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        socket.set_read_timeout(Some(LOOK))?;
        let place: Arc<Mutex<Held>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let replaced = Arc::new(AtomicBool::new(false));
        let (shared, told, stopping) = (place.clone(), replaced.clone(), stop.clone());
        let answer = move || {
            let mut octets = [0; LENGTH + 1];
            while !stopping.load(Ordering::Acquire) {
                let Ok((n, from)) = socket.recv_from(&mut octets) else { continue };
                let mut place = shared.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(reflected) = place.reflector.as_mut().and_then(|r| r.handle(&octets[..n])) {
                    if reflected.replaced_by.is_some() {
                        told.store(true, Ordering::Release);
                    }
                    let _ = socket.send_to(&reflected.answer, from);
                }
            }
        };
        let thread = Some(std::thread::Builder::new().name("heartbeat".into()).spawn(answer)?);
        Ok(Self { place, replaced, stop, thread })
    }

    /// It is somebody now and answers under a key, or is nobody any more.
    pub(super) fn be(&self, who: Option<(MemberId, &[u8; 32])>) {
        let reflector = who.map(|(who, key)| Reflector::new(who.discriminator(), LIFE, key));
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Held { ignored: place.ignored(), reflector };
        self.replaced.store(false, Ordering::Release);
    }

    /// What was ignored since the start. What comes while it is nobody does not count.
    pub(super) fn ignored(&self) -> Ignored {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).ignored()
    }

    /// Whether somebody else serves in this one's place: it was taken for dead.
    pub(super) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }
}

impl Held {
    fn ignored(&self) -> Ignored {
        let present = self.reflector.as_ref().map(|r| r.counters().into()).unwrap_or_default();
        self.ignored + present
    }
}

impl Drop for HeartbeatResponder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const THREE: MemberId = MemberId::Cta(3);

    #[test]
    fn who_answers_is_left_alone_and_who_falls_silent_is_told() {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = probe.local_addr().unwrap();
        drop(probe);
        let answering = HeartbeatResponder::start(at).unwrap();
        answering.be(Some((THREE, &[7; 32])));
        let mut watch =
            HeartbeatMonitor::open("127.0.0.1:0".parse().unwrap(), &[7; 32], Timing::default()).unwrap();
        watch.begin(clock::now(), THREE, at);
        while watch.counters().answers < 5 {
            assert_eq!(watch.turn(clock::now()), []);
            std::thread::sleep(Duration::from_millis(1));
        }
        answering.be(None);
        assert_eq!(silent(&mut watch), [THREE]);
    }

    /// Who falls silent next, within a second.
    fn silent(watch: &mut HeartbeatMonitor) -> Vec<MemberId> {
        for _ in 0..1000 {
            let silent = watch.turn(clock::now());
            if !silent.is_empty() {
                return silent;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Vec::new()
    }

    #[test]
    fn what_is_no_heartbeat_for_who_answers_is_counted_and_stays_so_when_it_is_somebody_else() {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = probe.local_addr().unwrap();
        drop(probe);
        let answering = HeartbeatResponder::start(at).unwrap();
        let mut others =
            HeartbeatMonitor::open("127.0.0.1:0".parse().unwrap(), &[8; 32], Timing::default()).unwrap();
        others.begin(clock::now(), THREE, at);
        let (mut forged, end) = (0, clock::now() + Duration::from_secs(20));
        for life in 1..=2 {
            answering.be(Some((THREE, &[7; 32])));
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"nonsense", at).unwrap();
            while answering.ignored().malformed < life || answering.ignored().forged <= forged {
                assert!(clock::now() < end, "{:?}", answering.ignored());
                others.turn(clock::now());
                std::thread::sleep(Duration::from_millis(1));
            }
            answering.be(None);
            forged = answering.ignored().forged;
        }
        assert_eq!(answering.ignored(), Ignored { malformed: 2, forged, ..Ignored::default() });
    }

    #[test] // SIGSTOP and SIGCONT of the CTA replica: it comes back under its number, within the time for which the verdict on it is doubted
    fn a_cta_that_was_taken_for_dead_and_came_back_is_watched_again() {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = probe.local_addr().unwrap();
        drop(probe);
        let answering = HeartbeatResponder::start(at).unwrap();
        let mut watch =
            HeartbeatMonitor::open("127.0.0.1:0".parse().unwrap(), &[7; 32], Timing::default()).unwrap();
        for life in 1..=2 {
            answering.be(Some((THREE, &[7; 32])));
            watch.begin(clock::now(), THREE, at);
            let answers = watch.counters().answers + 5;
            while watch.counters().answers < answers {
                assert_eq!(watch.turn(clock::now()), []);
                std::thread::sleep(Duration::from_millis(1));
            }
            answering.be(None);
            assert_eq!(silent(&mut watch), [THREE], "life {life}");
            watch.end(THREE);
        }
    }
}
