//! The CTA replica.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_control::AssociationId;
use whimbrel_control::udm::{Directory, Subscribers};
use whimbrel_ids::Instant;

use super::machine::{InputOutcome, Machine};
use super::record::{Beside, RecordedStep, Shape, Snapshot, read};
use super::{PrimaryCta, ReplicaFault};
use crate::cta::ExternalSource;
use crate::{Cta, Entropy, Inspect, Outbox};

/// The CTA that follows the primary. Its outputs do not leave.
pub struct CtaReplica<S, E, I = ()> {
    machine: Machine<S, E, I>,
    /// Outputs that are not known to have left the primary.
    doubtful: VecDeque<(u64, Outbox)>,
    fault: Option<ReplicaFault>,
    /// The last message that it has of each association, by its number there.
    received: BTreeMap<AssociationId, u64>,
    /// How far the primary's clock is ahead of this host's, in microseconds, and the input at which that was measured.
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
        let (doubtful, received) = (VecDeque::new(), BTreeMap::new());
        Ok(Self { machine, doubtful, fault: None, received, ahead_us: 0, timed: None })
    }

    /// The CTA itself.
    pub fn cta(&self) -> &Cta<S, E, I> {
        &self.machine.cta
    }

    /// The last input that is held.
    pub fn held(&self) -> u64 {
        self.machine.number
    }

    /// Measures the offset of the clocks at the newest input: UEs' timers run by the primary's clock.
    pub fn timed(&mut self, now: Instant) {
        if self.timed.replace(self.machine.number) != Some(self.machine.number) {
            self.ahead_us = self.machine.now.0.wrapping_sub(now.0) as i64;
        }
    }

    /// Takes a record. Returns the number of the last input that is held, to be acknowledged.
    ///
    /// Errors: why this replica cannot continue, from then on.
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
        let down = if let RecordedStep::AssociationDown(name) = &step { Some(*name) } else { None };
        let mut out = Outbox::default();
        let InputOutcome { outside, .. } =
            self.machine.run(now, step, ExternalSource::Replayed(taken), &mut out);
        let exhausted = matches!(outside, ExternalSource::Replayed(rest) if rest.is_empty());
        if !exhausted || Shape::of(&out) != shape {
            return Err(ReplicaFault::Diverged);
        }
        self.doubtful.push_back((number, out));
        self.received.extend(head.received);
        if let Some(down) = down {
            self.received.remove(&down);
        }
        Ok(number)
    }

    /// Takes over; it is certain that the former primary's outputs do not leave any more. The outbox leaves first: all that the former
    /// primary may not have sent. [`PrimaryCta::take_sent_message_numbers`] has the marks of its NGAP messages, for an edge that knows which of them have
    /// left.
    ///
    /// It may have sent the newest of them. A PFCP request is known by its number, and answered again. NGAP has no such number, but a
    /// message that comes twice is not processed twice: NAS messages are dropped by their COUNT (TS 33.501 §6.4.3.1), and a challenge is
    /// answered as before (TS 24.501 §5.4.1.3.2); a repeated context, session or release request changes nothing or gets a failure that no
    /// procedure waits for; of two contexts that HANDOVER REQUEST has made the second is released. A message that is not sent at all costs
    /// its UE a timer of seconds, so doubtful messages are sent.
    ///
    /// Deviation: the first design sent N2 messages at most once, and in doubt not at all.
    pub fn take_over(mut self) -> (PrimaryCta<S, E, I>, Outbox) {
        let (mut first, mut ngap_left) = (Outbox::default(), Vec::new());
        for (number, out) in std::mem::take(&mut self.doubtful) {
            ngap_left.push((number, out.ngap.len()));
            first.append(out);
        }
        first.cpfs.clear(); // their links have them, and are resumed
        let unsettled = self.machine.cta.trusted().collect();
        let mut primary = PrimaryCta::of(self.machine, unsettled, self.ahead_us);
        primary.set_sent_ngap(ngap_left);
        (primary, first)
    }

    /// How many messages of each association this replica has, of those that came since its snapshot.
    pub fn received(&self) -> &BTreeMap<AssociationId, u64> {
        &self.received
    }

    /// The outputs of the newest input here, which do not leave.
    pub fn newest(&self) -> Option<&Outbox> {
        self.doubtful.back().map(|(_, out)| out)
    }
}
