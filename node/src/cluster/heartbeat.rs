//! Heartbeats on the host: the socket from which a CTA sends them, and the socket and thread that answer them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Add;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::warn;
use whimbrel_ids::Instant;
use whimbrel_resilience::detector::{
    Counters, Detector, Discriminator, Incarnation, Input, LENGTH, Outbox, PeerChange, PeerDownCause,
    Reflector, ReflectorCounters, Timing,
};
use whimbrel_resilience::membership::MemberId;
use whimbrel_resilience::sbfd::{SBFD_OCTETS, SbfdChange, SbfdDiscriminator, SbfdReflector, SbfdTarget};
use whimbrel_user_io::{TtlSocket, run_in_real_time};

use crate::clock;
use crate::config::ProbingConfig;
use crate::observation::{Metric, MetricSample};
use crate::sbfd::{DropLog, SbfdFigures, SbfdProber, SbfdVerdict};

/// Heartbeats taken in one turn.
const PER_TURN_MAX: usize = 256;
/// How long the answering thread sleeps after a turn that was full: a flood must not take a processor away from ordinary threads.
const FLOOD_PAUSE: Duration = Duration::from_millis(1);
/// How often the answering thread checks whether it is to end.
const STOP_CHECKED_EVERY: Duration = Duration::from_millis(200);
/// The version in the first three bits of a BFD packet (RFC 5880 §4.1).
const BFD_VERSION: u8 = 1;
/// The discriminator of the sender. Those of members are lower.
const SENDER: Discriminator = Discriminator(u32::MAX);
/// Members get a new number each time they join, so an incarnation is not needed.
const INCARNATION: Incarnation = Incarnation(1);
/// How long answers of a member that was declared lost are still received, to count false alarms.
const FALSE_ALARM_WINDOW: Duration = Duration::from_secs(10);

/// Heartbeats that were ignored, by the sender or by the responder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IgnoredHeartbeats {
    malformed: u64,
    forged: u64,
    foreign: u64,
    stale: u64,
}

impl From<Counters> for IgnoredHeartbeats {
    fn from(of: Counters) -> Self {
        Self { malformed: of.malformed, forged: of.forged, foreign: of.foreign, stale: of.stale }
    }
}

impl From<ReflectorCounters> for IgnoredHeartbeats {
    fn from(of: ReflectorCounters) -> Self {
        Self { malformed: of.malformed, forged: of.forged, foreign: of.foreign, stale: 0 }
    }
}

impl Add for IgnoredHeartbeats {
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

impl IgnoredHeartbeats {
    /// For the metrics.
    pub(super) fn samples(self) -> [MetricSample; 4] {
        let all = [
            ("malformed", self.malformed),
            ("forged", self.forged),
            ("foreign", self.foreign),
            ("stale", self.stale),
        ];
        all.map(|(why, value)| MetricSample {
            metric: Metric::HeartbeatsIgnored,
            label: Some(why.into()),
            value,
        })
    }
}

/// What a member does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    Heartbeats,
    /// S-BFD probes: the member, or the path to it, has failed.
    Probes,
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Heartbeats => "heartbeats are not answered",
            Self::Probes => {
                "S-BFD probes are not answered: the process, its host or the path to it has failed"
            }
        })
    }
}

/// Sends heartbeats, and S-BFD probes where they are configured, to members and notices those that do not answer.
pub(super) struct HeartbeatMonitor {
    socket: UdpSocket,
    sbfd: Option<SbfdProber<MemberId>>,
    sbfd_drops: DropLog,
    detector: Detector,
    places: BTreeMap<Discriminator, (MemberId, SocketAddr)>,
    /// Members that were declared lost, and until when a false alarm would be noticed.
    declared_lost: Vec<(Instant, Discriminator)>,
    out: Outbox,
}

impl HeartbeatMonitor {
    /// Errors: those of `bind`.
    pub(super) fn open(at: SocketAddr, key: &[u8; 32], timing: Timing) -> std::io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        let detector = Detector::new(SENDER, INCARNATION, key, timing);
        let (places, declared_lost, out) = (BTreeMap::new(), Vec::new(), Outbox::default());
        Ok(Self { socket, sbfd: None, sbfd_drops: DropLog::default(), detector, places, declared_lost, out })
    }

    /// Probes members by S-BFD too, from the same address; `None`: it does not. Errors: one sentence.
    pub(super) fn probing(mut self, probing: Option<ProbingConfig>) -> Result<Self, String> {
        let from = self.socket.local_addr().map_err(|e| format!("S-BFD probes cannot be sent: {e}"))?.ip();
        self.sbfd = probing.map(|probing| SbfdProber::start(from, probing)).transpose()?;
        Ok(self)
    }

    /// All members run on this host, as in a unit.
    pub(super) fn set_one_host(&mut self) {
        self.detector.set_one_host(true);
    }

    /// Sets the interval and the detection time.
    pub(super) fn set_timing(&mut self, timing: Timing) {
        self.detector.set_timing(timing);
    }

    /// Begins to send heartbeats to a member. A CTA may be back that was declared lost a moment ago: that verdict is dropped.
    pub(super) fn begin(&mut self, now: Instant, member: MemberId, at: SocketAddr) {
        let name = member.discriminator();
        self.declared_lost.retain(|(_, of)| *of != name);
        self.detector.forget(name);
        self.places.insert(name, (member, at));
        if let (Some(sbfd), Some(discriminator)) = (&mut self.sbfd, SbfdDiscriminator::new(name.0)) {
            // A process that answers heartbeats alone, one of a former version, is never up, and heartbeats judge it.
            let among = matches!(member, MemberId::Cpf(_));
            sbfd.watch(member, SbfdTarget { address: at, discriminator, among });
        }
        match member {
            MemberId::Cpf(_) => self.detector.watch_among(now, name),
            MemberId::Cta(_) => self.detector.watch(now, name),
        }
    }

    /// A member answers, but is lost all the same: its further heartbeats tell it so, because its link does not.
    pub(super) fn replaced(&mut self, now: Instant, member: MemberId) {
        let name = member.discriminator();
        self.sbfd.iter_mut().for_each(|sbfd| sbfd.forget(member));
        self.detector.handle(now, Input::Closed(name), &mut self.out);
        self.declared_lost.push((now + FALSE_ALARM_WINDOW, name));
    }

    /// A member left, or its link was lost.
    pub(super) fn end(&mut self, member: MemberId) {
        self.sbfd.iter_mut().for_each(|sbfd| sbfd.forget(member));
        let name = member.discriminator();
        if self.declared_lost.iter().all(|(_, d)| *d != name) {
            self.places.remove(&name);
            self.detector.forget(name);
        }
    }

    /// Sends the heartbeats that are due and receives answers. Returns the members that do not answer, and what they do not answer.
    pub(super) fn turn(&mut self, now: Instant) -> Vec<(MemberId, Unanswered)> {
        let failed = self.failed_by_sbfd();
        for (member, _) in &failed {
            self.replaced(now, *member);
        }
        let mut octets = [0; LENGTH + 1];
        for _ in 0..PER_TURN_MAX {
            match self.socket.recv(&mut octets) {
                Ok(n) => self.detector.handle(now, Input::Datagram(&octets[..n]), &mut self.out),
                // An ICMP error of an earlier heartbeat is reported here.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::Interrupted) => {}
                Err(_) => break,
            }
        }
        if self.detector.next_deadline().is_some_and(|due| due <= now) {
            self.detector.handle(now, Input::Tick, &mut self.out);
        }
        for (to, probe) in self.out.probes.drain(..) {
            // A heartbeat that is not sent is not answered.
            let _ = self.places.get(&to).map(|(_, at)| self.socket.send_to(&probe, at));
        }
        let mut silent = failed;
        for (of, change) in self.out.changes.drain(..) {
            let Some((member, _)) = self.places.get(&of).copied() else { continue };
            match change {
                PeerChange::Down(_, PeerDownCause::Silent) => {
                    self.declared_lost.push((now + FALSE_ALARM_WINDOW, of));
                    silent.push((member, Unanswered::Heartbeats));
                }
                PeerChange::FalseAlarm(_) => {
                    warn!(%member, "a process that was declared lost is alive: it has to join again")
                }
                _ => {}
            }
        }
        let over = |(until, _): &(Instant, Discriminator)| *until <= now;
        for (_, of) in self.declared_lost.extract_if(.., |d| over(d)) {
            self.places.remove(&of);
            self.detector.forget(of);
        }
        silent
    }

    /// The members that S-BFD has found failed, and that heartbeats have not.
    fn failed_by_sbfd(&mut self) -> Vec<(MemberId, Unanswered)> {
        let verdicts = self.sbfd.iter_mut().flat_map(SbfdProber::take);
        let failed = verdicts.filter(|SbfdVerdict { change, .. }| *change == SbfdChange::Failed);
        failed.map(|SbfdVerdict { peer, .. }| (peer, Unanswered::Probes)).collect()
    }

    /// Logs S-BFD packets that were dropped, each reason once an hour.
    pub(super) fn log_drops(&mut self, now: Instant) {
        let counters = self.sbfd_figures().probing;
        self.sbfd_drops.log(now, counters);
    }

    /// What S-BFD counted.
    pub(super) fn sbfd_figures(&self) -> SbfdFigures {
        self.sbfd.as_ref().map(SbfdProber::figures).unwrap_or_default()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.detector.next_deadline()
    }

    pub(super) fn counters(&self) -> Counters {
        self.detector.counters()
    }
}

impl HeartbeatMonitor {
    /// What to wait on.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.socket.as_fd()).chain(self.sbfd.iter().map(AsFd::as_fd))
    }
}

/// The present member number and key, if any, and what earlier ones ignored.
#[derive(Default)]
struct Identity {
    reflector: Option<Reflector>,
    ignored: IgnoredHeartbeats,
    /// Answers S-BFD probes to the member's number, on the same port: several processes of a host share its address, and port 7784 is for one.
    sbfd: Option<SbfdReflector>,
    sbfd_before: SbfdFigures,
}

/// Answers heartbeats on a thread of its own: a working thread that is held up for a moment is not lost.
pub(super) struct HeartbeatResponder {
    identity: Arc<Mutex<Identity>>,
    replaced: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    /// Wakes the thread when it is to end: a datagram to itself.
    wakes: UdpSocket,
    thread: Option<JoinHandle<()>>,
}

impl HeartbeatResponder {
    /// Errors: those of `bind`, and of the start of the thread.
    pub(super) fn start(at: SocketAddr) -> std::io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        let wakes = socket.try_clone()?;
        let socket = TtlSocket::of(socket)?;
        let identity: Arc<Mutex<Identity>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let replaced = Arc::new(AtomicBool::new(false));
        let (shared, is_replaced, stopping) = (identity.clone(), replaced.clone(), stop.clone());
        let answer = move || {
            // Without the permission it is an ordinary thread, which a loaded host delays.
            run_in_real_time();
            while !stopping.load(Ordering::Acquire) {
                match answer_waiting(&socket, &shared, &is_replaced) {
                    PER_TURN_MAX => std::thread::sleep(FLOOD_PAUSE),
                    _ => wait_for(&socket),
                }
            }
        };
        let thread = Some(std::thread::Builder::new().name("heartbeat".into()).spawn(answer)?);
        Ok(Self { identity, replaced, stop, wakes, thread })
    }

    /// Sets the member that it answers for, and the key; `None`: it answers nothing.
    pub(super) fn set_identity(&self, member: Option<(MemberId, &[u8; 32])>) {
        let reflector = member.map(|(member, key)| Reflector::new(member.discriminator(), INCARNATION, key));
        let number = member.and_then(|(member, _)| SbfdDiscriminator::new(member.discriminator().0));
        // An initiator on the same link checks the answer's TTL, which a router would have lowered on the way back.
        let sbfd = number.map(|number| SbfdReflector::new(number, false));
        let mut identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        let (ignored, sbfd_before) = (identity.ignored(), identity.sbfd_figures());
        *identity = Identity { ignored, reflector, sbfd, sbfd_before };
        self.replaced.store(false, Ordering::Release);
    }

    /// What was ignored since the start, while it had an identity.
    pub(super) fn ignored(&self) -> IgnoredHeartbeats {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).ignored()
    }

    /// What S-BFD counted since the start.
    pub(super) fn sbfd_figures(&self) -> SbfdFigures {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).sbfd_figures()
    }

    /// Whether the sender has declared this member lost.
    pub(super) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }
}

impl Identity {
    fn ignored(&self) -> IgnoredHeartbeats {
        let present = self.reflector.as_ref().map(|r| r.counters().into()).unwrap_or_default();
        self.ignored + present
    }

    fn sbfd_figures(&self) -> SbfdFigures {
        let reflecting = self.sbfd.as_ref().map(SbfdReflector::counters).unwrap_or_default();
        self.sbfd_before + SbfdFigures { reflecting, ..SbfdFigures::default() }
    }
}

/// Answers what waits. Returns how many datagrams there were.
fn answer_waiting(socket: &TtlSocket, identity: &Mutex<Identity>, is_replaced: &AtomicBool) -> usize {
    let mut octets = [0; LENGTH + 1];
    for n in 0..PER_TURN_MAX {
        let Ok((len, from, ttl)) = socket.receive(&mut octets) else { return n };
        let octets = &octets[..len];
        let mut identity = identity.lock().unwrap_or_else(PoisonError::into_inner);
        // A BFD packet begins with its version, in three bits; a heartbeat's first octet is less.
        if octets.first().is_some_and(|first| first >> 5 == BFD_VERSION) {
            let answer =
                identity.sbfd.as_mut().and_then(|sbfd| sbfd.handle(clock::now(), from.ip(), ttl, octets));
            let _ = answer.map(|answer: [u8; SBFD_OCTETS]| socket.send_to(&answer, from));
        } else if let Some(reflected) = identity.reflector.as_mut().and_then(|r| r.handle(octets)) {
            if reflected.replaced_by.is_some() {
                is_replaced.store(true, Ordering::Release);
            }
            let _ = socket.send_to(&reflected.answer, from);
        }
    }
    PER_TURN_MAX
}

fn wait_for(socket: &TtlSocket) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: STOP_CHECKED_EVERY.subsec_nanos().into() };
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    // An interrupted wait is a short one.
    let _ = poll(&mut fds, Some(&timeout));
}

impl Drop for HeartbeatResponder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // One that is not woken looks by itself before long.
        let _ = self.wakes.local_addr().and_then(|at| self.wakes.send_to(&[0], at));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_resilience::sbfd::SbfdTiming;

    use super::*;

    const THREE: MemberId = MemberId::Cta(3);

    #[test]
    fn a_member_that_stops_answering_is_reported() {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = probe.local_addr().unwrap();
        drop(probe);
        let responder = HeartbeatResponder::start(at).unwrap();
        responder.set_identity(Some((THREE, &[7; 32])));
        let mut monitor =
            HeartbeatMonitor::open("127.0.0.1:0".parse().unwrap(), &[7; 32], Timing::default()).unwrap();
        monitor.begin(clock::now(), THREE, at);
        while monitor.counters().answers < 5 {
            assert_eq!(monitor.turn(clock::now()), []);
            std::thread::sleep(Duration::from_millis(1));
        }
        responder.set_identity(None);
        assert_eq!(silent(&mut monitor), [(THREE, Unanswered::Heartbeats)]);
    }

    /// The members that stop answering next, within a second.
    fn silent(monitor: &mut HeartbeatMonitor) -> Vec<(MemberId, Unanswered)> {
        for _ in 0..1000 {
            let silent = monitor.turn(clock::now());
            if !silent.is_empty() {
                return silent;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Vec::new()
    }

    #[test]
    fn ignored_heartbeats_stay_counted_when_the_identity_changes() {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = probe.local_addr().unwrap();
        drop(probe);
        let responder = HeartbeatResponder::start(at).unwrap();
        let mut others =
            HeartbeatMonitor::open("127.0.0.1:0".parse().unwrap(), &[8; 32], Timing::default()).unwrap();
        others.begin(clock::now(), THREE, at);
        let (mut forged, end) = (0, clock::now() + Duration::from_secs(20));
        for round in 1..=2 {
            responder.set_identity(Some((THREE, &[7; 32])));
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"nonsense", at).unwrap();
            while responder.ignored().malformed < round || responder.ignored().forged <= forged {
                assert!(clock::now() < end, "{:?}", responder.ignored());
                others.turn(clock::now());
                std::thread::sleep(Duration::from_millis(1));
            }
            responder.set_identity(None);
            forged = responder.ignored().forged;
        }
        assert_eq!(
            responder.ignored(),
            IgnoredHeartbeats { malformed: 2, forged, ..IgnoredHeartbeats::default() }
        );
    }

    #[test] // heartbeats of a second and 16 misses would take 17 s
    fn a_member_that_does_not_answer_probes_is_reported_before_its_heartbeats_are_missed() {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = probe.local_addr().unwrap();
        drop(probe);
        let responder = HeartbeatResponder::start(at).unwrap();
        let patient = Timing::new(Duration::from_secs(1), 16).unwrap();
        let timing = SbfdTiming::new(Duration::from_millis(100), 4).unwrap();
        let probing = Some(ProbingConfig { timing, one_link: true, real_time: false });
        let monitor = HeartbeatMonitor::open("127.0.0.1:0".parse().unwrap(), &[7; 32], patient).unwrap();
        let mut monitor = monitor.probing(probing).unwrap();
        for round in 1..=2 {
            responder.set_identity(Some((THREE, &[7; 32])));
            monitor.begin(clock::now(), THREE, at);
            let until = clock::now() + Duration::from_secs(20);
            while monitor.sbfd_figures().sessions != (1, 1) {
                assert_eq!(monitor.turn(clock::now()), []);
                assert!(clock::now() < until, "{:?}", monitor.sbfd_figures());
                std::thread::sleep(Duration::from_millis(1));
            }
            responder.set_identity(None);
            assert_eq!(silent(&mut monitor), [(THREE, Unanswered::Probes)], "round {round}");
            monitor.end(THREE);
        }
        assert!(responder.sbfd_figures().reflecting.sent >= 2);
    }

    #[test] // SIGSTOP and SIGCONT of the CTA replica: it comes back under its number, within the window for false alarms
    fn a_cta_that_returns_after_it_was_declared_lost_is_monitored_again() {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = probe.local_addr().unwrap();
        drop(probe);
        let responder = HeartbeatResponder::start(at).unwrap();
        let mut monitor =
            HeartbeatMonitor::open("127.0.0.1:0".parse().unwrap(), &[7; 32], Timing::default()).unwrap();
        for round in 1..=2 {
            responder.set_identity(Some((THREE, &[7; 32])));
            monitor.begin(clock::now(), THREE, at);
            let answers = monitor.counters().answers + 5;
            while monitor.counters().answers < answers {
                assert_eq!(monitor.turn(clock::now()), []);
                std::thread::sleep(Duration::from_millis(1));
            }
            responder.set_identity(None);
            assert_eq!(silent(&mut monitor), [(THREE, Unanswered::Heartbeats)], "round {round}");
            monitor.end(THREE);
        }
    }
}
