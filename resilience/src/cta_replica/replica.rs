//! The CTA that follows.

use std::collections::VecDeque;

use whimbrel_control::udm::{Directory, Subscribers};
use whimbrel_ids::Instant;

use super::machine::{Machine, Outcome};
use super::record::{Beside, Shape, Snapshot, read};
use super::{PrimaryCta, ReplicaFault};
use crate::cta::ExternalSource;
use crate::{Cta, Entropy, Inspect, Outbox};

/// The CTA that follows an active one. Nothing of it leaves.
pub struct CtaReplica<S, E, I = ()> {
    machine: Machine<S, E, I>,
    /// What the inputs caused that are not known to have left the other one.
    doubtful: VecDeque<(u64, Outbox)>,
    fault: Option<ReplicaFault>,
    /// How far the other one's clock is ahead of this host's, in microseconds, and of which input that is known.
    ahead_us: i64,
    timed: Option<u64>,
}

impl<S: Subscribers, E: Entropy, I: Inspect> CtaReplica<S, E, I> {
    /// One that follows from a snapshot, with the same subscribers and keys, and entropy of its own.
    ///
    /// Errors: [`ReplicaFault::Unreadable`], [`ReplicaFault::OtherVersion`].
    pub fn new(
        snapshot: &[u8],
        directory: Directory,
        subscribers: S,
        entropy: E,
        inspect: I,
    ) -> Result<Self, ReplicaFault> {
        let (state, Beside { links, number, now }) = Snapshot::read(snapshot)?;
        let cta = Cta::from_state(state, directory, subscribers, entropy, inspect);
        let machine = Machine { cta, links, number, now, replicable: true };
        Ok(Self { machine, doubtful: VecDeque::new(), fault: None, ahead_us: 0, timed: None })
    }

    /// The CTA itself.
    pub fn cta(&self) -> &Cta<S, E, I> {
        &self.machine.cta
    }

    /// The last input that is held.
    pub fn held(&self) -> u64 {
        self.machine.number
    }

    /// What has come until now came at this time of this host's clock: no two hosts' clocks agree, and UEs' timers run by the other one's.
    pub fn timed(&mut self, now: Instant) {
        if self.timed.replace(self.machine.number) != Some(self.machine.number) {
            self.ahead_us = self.machine.now.0.wrapping_sub(now.0) as i64;
        }
    }

    /// Takes a record. Gives the number of the last input that is held, to be told the active one.
    ///
    /// Errors: why this one cannot follow, from then on.
    pub fn take(&mut self, octets: &[u8]) -> Result<u64, ReplicaFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let taken = self.try_take(octets);
        self.fault = taken.err();
        taken
    }

    fn try_take(&mut self, octets: &[u8]) -> Result<u64, ReplicaFault> {
        let (head, body) = read(octets)?;
        while self.doubtful.front().is_some_and(|(number, _)| *number <= head.left) {
            self.doubtful.pop_front();
        }
        let (Some((number, now)), Some((step, taken, shape))) = (head.input, body) else {
            return Ok(self.machine.number);
        };
        if number != self.machine.number + 1 {
            return Err(ReplicaFault::OutOfOrder);
        }
        let mut out = Outbox::default();
        let Outcome { outside, .. } = self.machine.run(now, step, ExternalSource::Replayed(taken), &mut out);
        let exhausted = matches!(outside, ExternalSource::Replayed(rest) if rest.is_empty());
        if !exhausted || Shape::of(&out) != shape {
            return Err(ReplicaFault::Diverged);
        }
        self.doubtful.push_back((number, out));
        Ok(number)
    }

    /// Goes on in the other one's place: it is certain that nothing of that one gets out any more, but what had left by then. What is in the outbox leaves first: all that the other one may not have sent.
    ///
    /// Of that it may have sent the newest. A PFCP request is known by its number, and answered again. NGAP has no such number, and a
    /// message that comes twice is not served twice: NAS messages are dropped by their COUNT (TS 33.501 §6.4.3.1), and a challenge
    /// is answered as before (TS 24.501 §5.4.1.3.2); a context, session or release that is asked for twice is as it was asked for, or
    /// is answered by a failure that nobody waits for; of two contexts that HANDOVER REQUEST has made the second is let go. A message that is not sent at all costs its UE a timer of seconds, so what is
    /// in doubt is sent.
    ///
    /// Deviation: DESIGN has N2 leave once at most, in doubt not at all.
    pub fn take_over(mut self) -> (PrimaryCta<S, E, I>, Outbox) {
        let mut first = Outbox::default();
        for (_, out) in std::mem::take(&mut self.doubtful) {
            first.append(out);
        }
        first.cpfs.clear(); // their links have them, and are resumed
        let unsettled = self.machine.cta.trusted().collect();
        (PrimaryCta::of(self.machine, unsettled, self.ahead_us), first)
    }

    /// What the newest input has caused here, which stays here.
    pub fn newest(&self) -> Option<&Outbox> {
        self.doubtful.back().map(|(_, out)| out)
    }
}
