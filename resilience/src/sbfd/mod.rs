//! Seamless BFD (RFC 7880): whether a node, and the path to it, passes packets.
//!
//! An [`SbfdInitiator`] sends probes to reflectors and judges the peers that do not answer. An [`SbfdReflector`] answers every initiator of its node from one
//! session, whose state it knows without them: there is no handshake, and nothing is kept of an initiator but the rate of its probes. Both take
//! octets and time and give octets: sockets and clocks are the caller's.
//!
//! | RFC 7880 | here |
//! | --- | --- |
//! | §3 discriminators | a reflector's is configured, or a cluster's number of the process; an initiator's is drawn for each session, so that an answer cannot be guessed |
//! | §7.2 reflector | Demand clear, discriminators swapped, multiplier and Desired Min TX Interval repeated, Up or AdminDown |
//! | §7.3 initiator | Down and Up only; a peer that says AdminDown has not failed |
//! | RFC 5880 §6.8.3 | one probe a second until the first answer |
//! | RFC 5880 §6.8.7 | each interval is shortened by up to a quarter, so that initiators do not fall into step |
//! | RFC 5082 (GTSM) | where both ends are on one link, a packet with another TTL than 255 is dropped |
//! | RFC 5880 §6.7 authentication | not supported: packets with the A bit are dropped |
//!
//! As in [`detector`](crate::detector), a verdict needs as many probes without an answer as the multiplier says, each of which had its interval. So an
//! initiator that is itself held up, or whose clock steps, grows slow and reports no false failure.
//!
//! Deviation: RFC 5880 §6.8.4 measures the detection time from the last packet received; this counts probes, for the reason above.

mod initiator;
mod reflector;

use std::fmt;
use std::time::Duration;

use whimbrel_bfd::Invalid;

pub use initiator::{SbfdChange, SbfdInitiator, SbfdOutbox, SbfdTarget};
pub use reflector::SbfdReflector;
pub use whimbrel_bfd::{Discriminator as SbfdDiscriminator, OCTETS as SBFD_OCTETS, PORT as SBFD_PORT};

/// TTL, or hop limit, of every packet that is sent, and of those that came over one link (RFC 5082).
pub const SBFD_TTL: u8 = 255;

/// How often an initiator asks, and how many probes without an answer are a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SbfdTiming {
    interval: Duration,
    multiplier: u8,
}

/// A timing that does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSbfdTiming;

impl fmt::Display for InvalidSbfdTiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("S-BFD takes an interval of 1 ms to 1 s and a multiplier of 2 to 50")
    }
}

impl std::error::Error for InvalidSbfdTiming {}

impl SbfdTiming {
    /// A thread cannot be relied on to wake more often, with SCHED_FIFO either.
    pub const INTERVAL_MIN: Duration = Duration::from_millis(1);
    /// What an initiator sends while a peer is not up (RFC 5880 §6.8.3).
    pub const INTERVAL_MAX: Duration = Duration::from_secs(1);
    /// One lost packet is no failure.
    pub const MULTIPLIER_MIN: u8 = 2;
    /// With more, heartbeats are faster.
    pub const MULTIPLIER_MAX: u8 = 50;

    /// Errors: out of bounds.
    pub fn new(interval: Duration, multiplier: u8) -> Result<Self, InvalidSbfdTiming> {
        let serves = (Self::INTERVAL_MIN..=Self::INTERVAL_MAX).contains(&interval)
            && (Self::MULTIPLIER_MIN..=Self::MULTIPLIER_MAX).contains(&multiplier);
        serves.then_some(Self { interval, multiplier }).ok_or(InvalidSbfdTiming)
    }

    /// Time between probes, at most.
    pub fn interval(self) -> Duration {
        self.interval
    }

    /// Probes without an answer that are a verdict.
    pub fn multiplier(self) -> u8 {
        self.multiplier
    }

    /// Within this a failure is found: the last answered probe may have been answered just before.
    pub fn detection_max(self) -> Duration {
        self.interval * (u32::from(self.multiplier) + 1)
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SbfdDrop {
    /// It is no control packet, or one that no session takes.
    Invalid(Invalid),
    /// Its TTL is not 255: it came from beyond the link, or says nothing of it.
    Ttl,
    /// A probe to an initiator, or an answer to a reflector (the D bit): it could go round between two reflectors.
    Direction,
    /// No session has its Your Discriminator, or the session's peer another one than its My Discriminator.
    Discriminator,
    /// It came from another address or port than the session's peer.
    Source,
    /// An answer in the state Down or Init, which no reflector has.
    State,
    /// Its source sends more than a reflector answers.
    Rate,
}

impl SbfdDrop {
    const KINDS: usize = Invalid::ALL.len() + 6;

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = [Self::Ttl, Self::Direction, Self::Discriminator, Self::Source, Self::State, Self::Rate];
        Invalid::ALL.into_iter().map(Self::Invalid).chain(own)
    }

    /// A word for counters.
    pub fn label(self) -> &'static str {
        match self {
            Self::Invalid(why) => why.label(),
            Self::Ttl => "ttl",
            Self::Direction => "direction",
            Self::Discriminator => "discriminator",
            Self::Source => "source",
            Self::State => "state",
            Self::Rate => "rate",
        }
    }

    fn index(self) -> usize {
        Self::all().position(|one| one == self).unwrap_or_default()
    }
}

impl fmt::Display for SbfdDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid(why) => return why.fmt(f),
            Self::Ttl => "its TTL is not 255, so it came through a router",
            Self::Direction => "its Demand bit is that of the other direction",
            Self::Discriminator => "its discriminators are of no session",
            Self::Source => "it came from another address than the peer's",
            Self::State => "a reflector is Up or AdminDown",
            Self::Rate => "its source sends more probes than are answered",
        })
    }
}

/// What went over a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SbfdCounters {
    /// Probes of an initiator, answers of a reflector.
    pub sent: u64,
    /// Answers that an initiator accepted, probes that a reflector answered.
    pub accepted: u64,
    /// Peers that an initiator found not to answer.
    pub failures: u64,
    /// Verdicts that waited an interval, because no other peer answered either.
    pub deferred: u64,
    /// Times that an initiator was an interval or more too late to ask.
    pub late: u64,
    dropped: [u64; SbfdDrop::KINDS],
}

impl SbfdCounters {
    /// Packets dropped for this reason.
    pub fn dropped(&self, why: SbfdDrop) -> u64 {
        self.dropped[why.index()]
    }

    fn drop(&mut self, why: SbfdDrop) {
        self.dropped[why.index()] += 1;
    }
}

impl std::ops::Add for SbfdCounters {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.sent += other.sent;
        self.accepted += other.accepted;
        self.failures += other.failures;
        self.deferred += other.deferred;
        self.late += other.late;
        self.dropped.iter_mut().zip(other.dropped).for_each(|(sum, more)| *sum += more);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_to_drop_a_packet_has_a_label_and_a_counter_of_its_own() {
        let mut counters = SbfdCounters::default();
        SbfdDrop::all().for_each(|why| counters.drop(why));
        assert!(SbfdDrop::all().all(|why| counters.dropped(why) == 1));
        let labels: std::collections::BTreeSet<_> = SbfdDrop::all().map(SbfdDrop::label).collect();
        assert_eq!(labels.len(), SbfdDrop::KINDS);
    }

    #[test]
    fn timings_have_bounds() {
        let of = |us, multiplier| SbfdTiming::new(Duration::from_micros(us), multiplier);
        assert!(of(1_000, 2).is_ok() && of(1_000_000, 50).is_ok());
        for (us, multiplier) in [(999, 3), (1_000_001, 3), (5_000, 1), (5_000, 51)] {
            assert_eq!(of(us, multiplier), Err(InvalidSbfdTiming));
        }
        assert_eq!(of(5_000, 3).unwrap().detection_max(), Duration::from_millis(20));
    }
}
