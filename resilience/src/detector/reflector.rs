//! The reflector: answers probes.

use whimbrel_security::Hmac;

use super::datagram::{Datagram, LENGTH, ProbeKind, Unread};
use super::{Discriminator, Incarnation};

/// What was ignored, and what was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectorCounters {
    /// Probes that were answered.
    pub answered: u64,
    /// Octets that are no heartbeat.
    pub malformed: u64,
    /// Heartbeats that are not of the cluster.
    pub forged: u64,
    /// Heartbeats that are no probes for this process.
    pub foreign: u64,
}

/// What becomes of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectedProbe {
    /// To be sent to where the probe came from.
    pub answer: [u8; LENGTH],
    /// The process that declared this incarnation failed: it no longer serves what it served for that one, and it is counted again only
    /// after [`Reflector::rejoin`].
    pub replaced_by: Option<Discriminator>,
}

/// Answers probes of detectors. It belongs where it runs as long as the process does its work: in the thread whose stall should count, or,
/// where that one may be busy for longer than an interval, beside it.
#[derive(Debug)]
pub struct Reflector {
    me: Discriminator,
    incarnation: Incarnation,
    key: Hmac,
    counters: ReflectorCounters,
}

impl Reflector {
    /// Of a process, under the cluster's key.
    pub fn new(me: Discriminator, incarnation: Incarnation, key: &[u8; 32]) -> Self {
        Self { me, incarnation, key: Hmac::new(key), counters: ReflectorCounters::default() }
    }

    /// Takes a datagram; `None`: nothing is answered.
    ///
    /// A replayed probe is answered again: the detector ignores that answer, and what a probe reports of replacement stays true.
    pub fn handle(&mut self, octets: &[u8]) -> Option<ReflectedProbe> {
        let probe = match Datagram::read(octets, &self.key) {
            Ok(probe) => probe,
            Err(Unread::Malformed) => {
                self.counters.malformed += 1;
                return None;
            }
            Err(Unread::Forged) => {
                self.counters.forged += 1;
                return None;
            }
        };
        if probe.kind != ProbeKind::Probe || probe.to != self.me {
            self.counters.foreign += 1;
            return None;
        }
        self.counters.answered += 1;
        let answer = Datagram {
            kind: ProbeKind::Answer,
            from: self.me,
            to: probe.from,
            incarnation: self.incarnation,
            number: probe.number,
            other: probe.incarnation,
        };
        Some(ReflectedProbe {
            answer: answer.write(&self.key),
            replaced_by: (probe.other >= self.incarnation).then_some(probe.from),
        })
    }

    /// The process rejoins under a later incarnation. Returns whether it is later.
    pub fn rejoin(&mut self, incarnation: Incarnation) -> bool {
        let later = incarnation > self.incarnation;
        self.incarnation = self.incarnation.max(incarnation);
        later
    }

    /// What was ignored, and what was answered.
    pub fn counters(&self) -> ReflectorCounters {
        self.counters
    }
}
