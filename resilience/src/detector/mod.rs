//! Failure detection: heartbeats in the manner of seamless BFD (RFC 7880), between processes of a cluster.
//!
//! A [`Detector`] sends probes to the processes that it watches; a [`Reflector`] answers each without state per sender. Both take octets
//! and time and give octets: sockets and clocks are the caller's. A closed connection is reported to the detector as well, and is a verdict
//! at once.
//!
//! What a verdict means, and what it does not:
//!
//! - It needs as many probes without an answer as the multiplier says, each of which had a whole interval. So a detector that is itself
//!   held up grows slow, and reports no false failure.
//! - It is on one [`Incarnation`] of a process, and final: what is heard of that incarnation later is a false alarm, counted, and the
//!   process learns with each further probe that it was replaced. It comes back under a new incarnation. That it could do no harm meanwhile
//!   does not rest on this, but on the terms of assignments ([`UeLog`](crate::replication::UeLog)).
//! - A process that restarted is a new incarnation: its first answer is the verdict on the former one.
//!
//! Datagrams are authenticated under a key of the cluster. An answer repeats the probe's number and the detector's incarnation, so
//! that it cannot be made up or recorded before; what is forged, late, repeated or not for us is ignored and counted.

mod datagram;
mod reflector;
mod watch;

use std::fmt;
use std::time::Duration;

pub use datagram::LENGTH;
pub use reflector::{ReflectedProbe, Reflector, ReflectorCounters};
pub use watch::{Counters, Detector, Input, Outbox, PeerChange, PeerDownCause, PeerState, PeerView};

/// Names a process in heartbeats (RFC 7880 §3): unique in the cluster, whatever its role. Not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Discriminator(pub u32);

/// Which life of a process this is: it rises with each start and each rejoining, and is never 0. What makes it rise is the
/// caller's: the membership takes the revision at which a process joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// How often, and how patiently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    interval: Duration,
    multiplier: u8,
}

/// A timing that does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTiming;

impl fmt::Display for InvalidTiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("heartbeats take an interval of 20 ms to 1 s and a multiplier of 2 to 16")
    }
}

impl std::error::Error for InvalidTiming {}

impl Timing {
    const INTERVAL_MAX: Duration = Duration::from_secs(1);
    const MULTIPLIER_MAX: u8 = 16;

    /// A probe every `interval`, 20 ms to 1 s, and a verdict after `multiplier` of them without an answer, 2 to 16. Errors: others.
    pub fn new(interval: Duration, multiplier: u8) -> Result<Self, InvalidTiming> {
        Self::checked(interval, multiplier, Duration::from_millis(20), 2)
    }

    /// As [`Self::new`], from 1 ms and from one probe: for experiments that provoke false alarms. Errors: others.
    #[cfg(any(test, feature = "experiments"))]
    pub fn experiment(interval: Duration, multiplier: u8) -> Result<Self, InvalidTiming> {
        Self::checked(interval, multiplier, Duration::from_millis(1), 1)
    }

    fn checked(
        interval: Duration,
        multiplier: u8,
        least: Duration,
        fewest: u8,
    ) -> Result<Self, InvalidTiming> {
        let serves = (least..=Self::INTERVAL_MAX).contains(&interval)
            && (fewest..=Self::MULTIPLIER_MAX).contains(&multiplier);
        serves.then_some(Self { interval, multiplier }).ok_or(InvalidTiming)
    }

    /// Time between probes.
    pub fn interval(self) -> Duration {
        self.interval
    }

    /// Within this a death is found: the last answered probe may have been answered as late as the next was due.
    pub fn detection_max(self) -> Duration {
        self.interval * (u32::from(self.multiplier) + 1)
    }

    /// Probes without an answer after which a peer is suspected: more than half.
    fn suspected_at(self) -> u8 {
        self.multiplier / 2 + 1
    }
}

impl Default for Timing {
    /// 20 ms three times: a death is found in 60 to 80 ms, before a UE repeats anything.
    fn default() -> Self {
        Self { interval: Duration::from_millis(20), multiplier: 3 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timings_of_experiments_are_from_one_millisecond_and_one_probe() {
        assert!(Timing::experiment(Duration::from_millis(1), 1).is_ok());
        assert!(Timing::experiment(Duration::from_micros(999), 3).is_err());
        assert!(Timing::experiment(Duration::from_millis(1), 0).is_err());
    }
}
