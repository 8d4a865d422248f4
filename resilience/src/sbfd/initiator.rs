//! The initiator (RFC 7880 §7.3): sends probes, and decides which peers have failed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::time::Duration;

use whimbrel_bfd::{ControlPacket, Diagnostic, Discriminator, OCTETS, State};
use whimbrel_ids::Instant;

use super::{SBFD_TTL, SbfdCounters, SbfdDrop, SbfdTiming};

/// A peer to be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SbfdTarget {
    /// Its reflector's address and port.
    pub address: SocketAddr,
    /// Its reflector's discriminator.
    pub discriminator: Discriminator,
    /// It is one of several that can replace one another: it is not declared failed while none of the others answers, because none could take over, and this host or
    /// its link is more likely at fault than all of them.
    pub among: bool,
}

/// What changed with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SbfdChange {
    /// The peer answers probes.
    Up,
    /// It, or the path to it, has failed.
    Failed,
    /// It says that it is out of service, which is no failure (RFC 5880 §6.8.16).
    OutOfService,
}

/// What an initiator gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SbfdOutbox {
    /// To be sent.
    pub probes: Vec<(SocketAddr, [u8; OCTETS])>,
    /// What changed, in order, by the session's own discriminator.
    pub changes: Vec<(Discriminator, SbfdChange)>,
}

#[derive(Debug)]
struct SbfdSession {
    target: SbfdTarget,
    state: State,
    diagnostic: Diagnostic,
    out_of_service: bool,
    /// Probes since an answer came.
    unanswered: u8,
    sent_at: Instant,
    next: Instant,
    /// What the peer accepts (Required Min RX Interval).
    peer_interval: Duration,
    /// For the length of the next interval.
    draw: u32,
}

/// Probes peers from one socket.
#[derive(Debug)]
pub struct SbfdInitiator {
    timing: SbfdTiming,
    multiplier: NonZeroU8,
    one_link: bool,
    sessions: BTreeMap<Discriminator, SbfdSession>,
    counters: SbfdCounters,
}

impl SbfdInitiator {
    /// `one_link`: peers are on the links of this node, so answers with another TTL than 255 are forged (RFC 5082).
    pub fn new(timing: SbfdTiming, one_link: bool) -> Self {
        let multiplier = super::reflector::nonzero(timing.multiplier());
        Self { timing, multiplier, one_link, sessions: BTreeMap::new(), counters: SbfdCounters::default() }
    }

    /// Begins a session. `mine`: its discriminator here, which no other host can guess and no other session has or had a moment ago.
    pub fn watch(&mut self, now: Instant, mine: Discriminator, target: SbfdTarget) {
        self.sessions.insert(
            mine,
            SbfdSession {
                target,
                state: State::Down,
                diagnostic: Diagnostic::NONE,
                out_of_service: false,
                unanswered: 0,
                sent_at: now,
                next: now,
                peer_interval: Duration::ZERO,
                draw: mine.number(),
            },
        );
    }

    /// Ends a session.
    pub fn forget(&mut self, mine: Discriminator) {
        self.sessions.remove(&mine);
    }

    /// Sessions that are up, and all.
    pub fn sessions(&self) -> (usize, usize) {
        let up = self.sessions.values().filter(|s| s.state == State::Up).count();
        (up, self.sessions.len())
    }

    /// Takes a datagram. `ttl`: that of its packet, as far as the system says.
    pub fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        ttl: Option<u8>,
        octets: &[u8],
        out: &mut SbfdOutbox,
    ) {
        match self.accept(now, from, ttl, octets, out) {
            Ok(()) => self.counters.accepted += 1,
            Err(why) => self.counters.drop(why),
        }
    }

    fn accept(
        &mut self,
        now: Instant,
        from: SocketAddr,
        ttl: Option<u8>,
        octets: &[u8],
        out: &mut SbfdOutbox,
    ) -> Result<(), SbfdDrop> {
        if self.one_link && ttl.is_some_and(|ttl| ttl != SBFD_TTL) {
            return Err(SbfdDrop::Ttl);
        }
        let answer = ControlPacket::parse(octets).map_err(SbfdDrop::Invalid)?;
        if answer.demand {
            return Err(SbfdDrop::Direction);
        }
        let mine = answer.yours.ok_or(SbfdDrop::Discriminator)?;
        let session = self.sessions.get_mut(&mine).ok_or(SbfdDrop::Discriminator)?;
        if answer.mine != session.target.discriminator {
            return Err(SbfdDrop::Discriminator);
        }
        let at = session.target.address;
        if (from.ip().to_canonical(), from.port()) != (at.ip().to_canonical(), at.port()) {
            return Err(SbfdDrop::Source);
        }
        match answer.state {
            State::Up => session.answered(now, &answer, mine, out),
            State::AdminDown => session.out_of_service(mine, out),
            State::Down | State::Init => return Err(SbfdDrop::State),
        }
        Ok(())
    }

    /// Judges and asks the peers that are due. What has arrived by then is to be given before.
    pub fn tick(&mut self, now: Instant, out: &mut SbfdOutbox) {
        let answering = self.sessions.iter().filter(|(_, s)| s.target.among && s.answers(now, self.timing));
        let answering: Vec<Discriminator> = answering.map(|(mine, _)| *mine).take(2).collect();
        for (mine, session) in &mut self.sessions {
            let longest = session.interval(self.timing);
            if session.next > now + longest {
                session.next = now + longest; // the clock stepped back
            }
            if session.next > now {
                continue;
            }
            let late = now.since(session.next) >= longest;
            self.counters.late += u64::from(late);
            if session.state == State::Up && session.unanswered >= self.timing.multiplier() {
                if session.target.among && answering.iter().all(|other| other == mine) {
                    self.counters.deferred += 1;
                } else {
                    session.state = State::Down;
                    session.diagnostic = Diagnostic::DETECTION_TIME_EXPIRED;
                    self.counters.failures += 1;
                    out.changes.push((*mine, SbfdChange::Failed));
                }
            }
            out.probes.push((session.target.address, session.probe(*mine, self.timing, self.multiplier)));
            self.counters.sent += 1;
            session.asked(now, self.timing);
        }
    }

    /// When [`Self::tick`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.sessions.values().map(|session| session.next).min()
    }

    /// What went over its socket.
    pub fn counters(&self) -> SbfdCounters {
        self.counters
    }
}

impl SbfdSession {
    fn answered(&mut self, now: Instant, answer: &ControlPacket, mine: Discriminator, out: &mut SbfdOutbox) {
        self.unanswered = 0;
        self.out_of_service = false;
        // A peer cannot slow its own detection down beyond what is sent to one that is down.
        let required = Duration::from_micros(answer.required_min_rx_us.into());
        self.peer_interval = required.min(SbfdTiming::INTERVAL_MAX);
        if self.state != State::Up {
            self.state = State::Up;
            self.diagnostic = Diagnostic::NONE;
            self.next = now;
            out.changes.push((mine, SbfdChange::Up));
        }
    }

    fn out_of_service(&mut self, mine: Discriminator, out: &mut SbfdOutbox) {
        self.unanswered = 0;
        self.state = State::Down;
        self.diagnostic = Diagnostic::NEIGHBOR_SIGNALED_DOWN;
        if !std::mem::replace(&mut self.out_of_service, true) {
            out.changes.push((mine, SbfdChange::OutOfService));
        }
    }

    /// Whether it has answered the last probe, or the one before and was asked again only just now.
    fn answers(&self, now: Instant, timing: SbfdTiming) -> bool {
        let just_asked = now.since(self.sent_at) < timing.interval() / 4;
        self.state == State::Up && self.unanswered <= u8::from(just_asked)
    }

    fn interval(&self, timing: SbfdTiming) -> Duration {
        match self.state {
            State::Up => timing.interval().max(self.peer_interval),
            _ => SbfdTiming::INTERVAL_MAX,
        }
    }

    fn probe(&self, mine: Discriminator, timing: SbfdTiming, multiplier: NonZeroU8) -> [u8; OCTETS] {
        let packet = ControlPacket {
            diagnostic: self.diagnostic,
            state: self.state,
            poll: false,
            r#final: false,
            control_plane_independent: false,
            demand: true,
            multiplier,
            mine,
            yours: Some(self.target.discriminator),
            desired_min_tx_us: self.interval(timing).as_micros() as u32,
            required_min_rx_us: 0,
            required_min_echo_rx_us: 0,
        };
        packet.to_octets()
    }

    /// A probe leaves. An initiator that is late does not catch up: each probe has its whole interval. RFC 5880 §6.8.7: 75 to 100 % of it.
    fn asked(&mut self, now: Instant, timing: SbfdTiming) {
        self.unanswered = self.unanswered.saturating_add(1);
        self.sent_at = now;
        self.draw = self.draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let longest = self.interval(timing);
        self.next = now + longest - longest / 4 * (self.draw >> 24) / 256;
    }
}
