//! The packets that the UPF has not done with.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_ids::Instant;

/// How long a packet may be on its way to the UPF and back when later ones have come back: a loaded host's stall. What takes longer was lost on the way.
const LOST_AFTER: Duration = Duration::from_millis(200);

/// How long it may be in any case: a UPF that has taken nothing for so long has lost its link, and gets the packets that come then.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(1);

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PacketDirection {
    /// From a gNB.
    Uplink,
    /// From a data network.
    Downlink,
}

/// Bounds of the packets that are kept, each for one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataLogBounds {
    /// Packets that are kept in each direction.
    pub packets: usize,
    /// Packets that are with the UPF at a time, so that they find room in the socket of one that has just taken over. Those that it holds for idle UEs do
    /// not count.
    pub window: usize,
}

impl Default for DataLogBounds {
    fn default() -> Self {
        Self {
            // 100 ms at 160,000 packets a second, in 32 MiB.
            packets: 16_384,
            // 2 KiB each, in a socket of 4 MiB.
            window: 1_024,
        }
    }
}

/// What became of packets. At any time `accepted` is the sum of `left`, `ended`, `evicted`, `overtaken`, `lost` and the packets that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataLogCounters {
    /// Packets that were given a counter.
    pub accepted: u64,
    /// Packets that were refused because the bound was reached.
    pub refused: u64,
    /// Packets that have left.
    pub left: u64,
    /// Packets that ended in the UPF: dropped by a rule or bound of its own and counted there, or for the UPF itself.
    pub ended: u64,
    /// Packets that the UPF holds for an idle UE and that are no longer kept here, because the bound was reached. They are lost if that UPF is.
    pub evicted: u64,
    /// Packets that did not return before a takeover while later ones of their direction did: they were lost on the way, and are not sent out of order.
    pub overtaken: u64,
    /// Packets that did not return without a takeover.
    pub lost: u64,
    /// Packets that a replica was given again.
    pub replayed: u64,
    /// Packets that came back and had left already, or were not known.
    pub doubled: u64,
}

/// Where a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketState {
    /// The packet is here and nowhere else.
    Waits,
    /// With the UPF since then.
    Sent(Instant),
    /// With the UPF, which holds it for an idle UE.
    Held,
}

struct LoggedPacket<P> {
    place: PacketState,
    packet: P,
}

/// The queue of one direction.
struct DirectionQueue<P> {
    entries: BTreeMap<u64, LoggedPacket<P>>,
    /// Counters of those that wait here are this or higher.
    next: u64,
    sent: usize,
    held: usize,
    /// The highest counter that has come back.
    back: u64,
}

impl<P> Default for DirectionQueue<P> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), next: 0, sent: 0, held: 0, back: 0 }
    }
}

impl<P> DirectionQueue<P> {
    /// The oldest that waits here.
    fn first_waiting(&self) -> Option<u64> {
        self.entries.range(self.next..).find(|(_, e)| e.place == PacketState::Waits).map(|(n, _)| *n)
    }

    fn take(&mut self, counter: u64) -> Option<P> {
        let entry = self.entries.remove(&counter)?;
        match entry.place {
            PacketState::Waits => {}
            PacketState::Sent(_) => self.sent -= 1,
            PacketState::Held => self.held -= 1,
        }
        Some(entry.packet)
    }
}

/// Packets of both directions under one counter.
pub struct DataLog<P> {
    bounds: DataLogBounds,
    uplink: DirectionQueue<P>,
    downlink: DirectionQueue<P>,
    /// The last that was given.
    counter: u64,
    counters: DataLogCounters,
    /// Packets that are not needed any more, for their buffers.
    spare: Vec<P>,
}

impl<P> DataLog<P> {
    /// A log without packets.
    pub fn new(bounds: DataLogBounds) -> Self {
        let (uplink, downlink) = (DirectionQueue::default(), DirectionQueue::default());
        Self { bounds, uplink, downlink, counter: 0, counters: DataLogCounters::default(), spare: Vec::new() }
    }

    /// What became of packets.
    pub fn counters(&self) -> &DataLogCounters {
        &self.counters
    }

    /// Packets that are kept.
    pub fn len(&self) -> usize {
        self.uplink.entries.len() + self.downlink.entries.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A packet whose buffer can be used again.
    pub fn take_spare(&mut self) -> Option<P> {
        self.spare.pop()
    }

    fn queue(&mut self, direction: PacketDirection) -> &mut DirectionQueue<P> {
        match direction {
            PacketDirection::Uplink => &mut self.uplink,
            PacketDirection::Downlink => &mut self.downlink,
        }
    }

    /// Keeps a packet, under the next counter. Errors: the packet, which is dropped, for its direction's bound is reached; none before it is given up for
    /// it but those that the UPF holds for idle UEs, the oldest first.
    pub fn accept(&mut self, direction: PacketDirection, packet: P) -> Result<u64, P> {
        let most = self.bounds.packets;
        let queue = self.queue(direction);
        if queue.entries.len() >= most {
            let held = queue.entries.iter().find(|(_, e)| e.place == PacketState::Held).map(|(n, _)| *n);
            let Some(evicted) = held.filter(|_| queue.held > 0).and_then(|n| queue.take(n)) else {
                self.counters.refused += 1;
                return Err(packet);
            };
            self.spare.push(evicted);
            self.counters.evicted += 1;
        }
        self.counter += 1;
        let counter = self.counter;
        self.queue(direction).entries.insert(counter, LoggedPacket { place: PacketState::Waits, packet });
        self.counters.accepted += 1;
        Ok(counter)
    }

    /// The next packet for the UPF that serves, if it may be given one more: the lowest counter of both directions.
    pub fn send_next(&mut self, now: Instant) -> Option<(u64, PacketDirection, &P)> {
        let of = |q: &DirectionQueue<P>| {
            q.first_waiting().filter(|_| q.sent < self.bounds.window).unwrap_or(u64::MAX)
        };
        let (up, down) = (of(&self.uplink), of(&self.downlink));
        let (counter, direction) =
            if up < down { (up, PacketDirection::Uplink) } else { (down, PacketDirection::Downlink) };
        let queue = self.queue(direction);
        let entry = queue.entries.get_mut(&counter)?;
        entry.place = PacketState::Sent(now);
        (queue.sent, queue.next) = (queue.sent + 1, counter + 1);
        Some((counter, direction, &entry.packet))
    }

    /// A packet has come back under its counter. Whether it may leave: for the first time.
    pub fn leaves(&mut self, counter: u64) -> bool {
        let is_known = self.done(counter);
        if is_known {
            self.counters.left += 1;
        } else {
            self.counters.doubled += 1;
        }
        is_known
    }

    /// The UPF has done with a packet, and nothing of it comes back.
    pub fn ended(&mut self, counter: u64) {
        self.counters.ended += u64::from(self.done(counter));
    }

    fn done(&mut self, counter: u64) -> bool {
        for queue in [&mut self.uplink, &mut self.downlink] {
            // One that waits here is not with the UPF: a number that was made up.
            if queue.entries.get(&counter).is_none_or(|e| e.place == PacketState::Waits) {
                continue;
            }
            queue.back = queue.back.max(counter);
            self.spare.extend(queue.take(counter));
            return true;
        }
        false
    }

    /// The UPF holds a packet until its UE is reached.
    pub fn held(&mut self, counter: u64) {
        for queue in [&mut self.uplink, &mut self.downlink] {
            let Some(entry) = queue.entries.get_mut(&counter) else { continue };
            if let PacketState::Sent(_) = entry.place {
                entry.place = PacketState::Held;
                (queue.sent, queue.held) = (queue.sent - 1, queue.held + 1);
            }
        }
    }

    /// Gives up packets that were lost on the way to the UPF or back: later ones came back long since, or nothing did.
    pub fn give_up_lost(&mut self, now: Instant) {
        for queue in [&mut self.uplink, &mut self.downlink] {
            let lost = |(n, e): (&u64, &LoggedPacket<P>)| match e.place {
                PacketState::Sent(at) => {
                    let most = if *n < queue.back { LOST_AFTER } else { GIVEN_UP_AFTER };
                    (now.since(at) >= most).then_some(*n)
                }
                PacketState::Waits | PacketState::Held => None,
            };
            let lost: Vec<u64> = queue.entries.range(..queue.next).filter_map(lost).collect();
            self.counters.lost += lost.len() as u64;
            self.spare.extend(lost.into_iter().filter_map(|n| queue.take(n)));
        }
    }

    /// Another UPF serves from now on: it gets all that has not left, in the order of the counter. What the former one sends is not to be given to
    /// [`Self::leaves`] any more.
    pub fn take_over(&mut self) {
        for queue in [&mut self.uplink, &mut self.downlink] {
            let overtaken = |(n, e): (&u64, &LoggedPacket<P>)| {
                (matches!(e.place, PacketState::Sent(_)) && *n < queue.back).then_some(*n)
            };
            let overtaken: Vec<u64> = queue.entries.range(..queue.back).filter_map(overtaken).collect();
            self.counters.overtaken += overtaken.len() as u64;
            self.spare.extend(overtaken.into_iter().filter_map(|n| queue.take(n)));
            for entry in queue.entries.values_mut().filter(|e| e.place != PacketState::Waits) {
                entry.place = PacketState::Waits;
                self.counters.replayed += 1;
            }
            (queue.next, queue.sent, queue.held, queue.back) = (0, 0, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use proptest::prelude::*;

    use super::*;

    const BOUNDS: DataLogBounds = DataLogBounds { packets: 8, window: 4 };

    /// What happens next.
    #[derive(Clone, Copy, Debug)]
    enum RandomStep {
        Arrives(PacketDirection),
        Given,
        /// The UPF takes the next packet that it was given: and forwards it, drops it, holds it, or it was lost on its way.
        Forwarded,
        Ended,
        Held,
        LostOnTheWay,
        /// What the UPF has sent reaches the logger.
        Returns,
        /// The UEs of all packets that are held return.
        Released,
        Dies,
    }

    fn step() -> impl Strategy<Value = RandomStep> {
        prop_oneof![
            4 => Just(RandomStep::Arrives(PacketDirection::Uplink)),
            4 => Just(RandomStep::Arrives(PacketDirection::Downlink)),
            6 => Just(RandomStep::Given),
            6 => Just(RandomStep::Forwarded),
            1 => Just(RandomStep::Ended),
            1 => Just(RandomStep::Held),
            1 => Just(RandomStep::LostOnTheWay),
            6 => Just(RandomStep::Returns),
            1 => Just(RandomStep::Released),
            1 => Just(RandomStep::Dies),
        ]
    }

    /// What a UPF sends back.
    enum Back {
        Forwarded(u64),
        Ended(u64),
        Held(u64),
    }

    /// A UPF that takes packets in order, and what is on the way to it and back.
    #[derive(Default)]
    struct LoggedUpf {
        given: VecDeque<u64>,
        held: Vec<u64>,
        back: VecDeque<Back>,
    }

    proptest! {
        /// Each packet that was accepted has left once, is counted for what became of it, or waits; those of a direction leave in order, but for those
        /// that waited for an idle UE.
        #[test]
        fn every_packet_is_accounted_for_and_none_leaves_twice_or_out_of_order(
            steps in proptest::collection::vec(step(), 1..400),
        ) {
            let mut log: DataLog<u64> = DataLog::new(BOUNDS);
            let (mut upf, mut direction_of) = (LoggedUpf::default(), std::collections::BTreeMap::new());
            let (mut left, mut were_held) = (BTreeSet::new(), BTreeSet::new());
            let mut last = std::collections::BTreeMap::new();
            let (mut arrived, mut now) = (0, Instant(1));
            for step in steps {
                now = now + Duration::from_millis(1);
                match step {
                    RandomStep::Arrives(direction) => {
                        arrived += 1;
                        if let Ok(counter) = log.accept(direction, arrived) {
                            direction_of.insert(counter, direction);
                        }
                    }
                    RandomStep::Given => {
                        if let Some((counter, direction, _)) = log.send_next(now) {
                            prop_assert_eq!(direction_of[&counter], direction);
                            upf.given.push_back(counter);
                        }
                    }
                    RandomStep::Forwarded => upf.back.extend(upf.given.pop_front().map(Back::Forwarded)),
                    RandomStep::Ended => upf.back.extend(upf.given.pop_front().map(Back::Ended)),
                    RandomStep::Held => {
                        let held = upf.given.pop_front();
                        upf.held.extend(held);
                        were_held.extend(held);
                        upf.back.extend(held.map(Back::Held));
                    }
                    RandomStep::LostOnTheWay => _ = upf.given.pop_front(),
                    RandomStep::Returns => match upf.back.pop_front() {
                        Some(Back::Forwarded(n)) if log.leaves(n) => {
                            prop_assert!(left.insert(n), "{n} left twice");
                            let last = last.entry(direction_of[&n]).or_insert(0);
                            if !were_held.contains(&n) {
                                prop_assert!(n > *last, "{n} left behind {last}");
                                *last = n;
                            }
                        }
                        Some(Back::Forwarded(_)) => {}
                        Some(Back::Ended(n)) => log.ended(n),
                        Some(Back::Held(n)) => log.held(n),
                        None => {}
                    },
                    RandomStep::Released => upf.back.extend(upf.held.drain(..).map(Back::Forwarded)),
                    RandomStep::Dies => {
                        upf = LoggedUpf::default();
                        log.take_over();
                    }
                }
                let c = *log.counters();
                let known = c.left + c.ended + c.evicted + c.overtaken + c.lost;
                prop_assert_eq!(c.accepted, known + log.len() as u64);
                prop_assert_eq!(c.accepted + c.refused, arrived);
                prop_assert!(log.uplink.entries.len() <= BOUNDS.packets && log.downlink.entries.len() <= BOUNDS.packets);
                prop_assert!(log.uplink.sent <= BOUNDS.window && log.downlink.sent <= BOUNDS.window);
            }
            // Without losses on the way the next UPF forwards all that is left.
            log.take_over();
            let waiting = log.len() as u64;
            let before = log.counters().left;
            while let Some((counter, ..)) = log.send_next(now) {
                prop_assert!(log.leaves(counter) && left.insert(counter));
            }
            prop_assert_eq!(log.counters().left - before, waiting);
            prop_assert!(log.is_empty());
        }
    }

    #[test]
    fn packets_that_the_upf_had_are_given_to_the_next_in_the_order_of_their_counter() {
        let mut log = DataLog::new(BOUNDS);
        let all = [
            PacketDirection::Uplink,
            PacketDirection::Downlink,
            PacketDirection::Downlink,
            PacketDirection::Uplink,
        ];
        all.into_iter().for_each(|d| _ = log.accept(d, ()));
        let mut given =
            || std::iter::from_fn(|| log.send_next(Instant(1)).map(|(n, ..)| n)).collect::<Vec<_>>();
        assert_eq!(given(), [1, 2, 3, 4]);
        assert!(log.leaves(2));
        log.take_over();
        let mut given =
            || std::iter::from_fn(|| log.send_next(Instant(1)).map(|(n, ..)| n)).collect::<Vec<_>>();
        assert_eq!(given(), [1, 3, 4]);
        assert_eq!(log.counters().replayed, 3);
    }

    #[test]
    fn a_packet_that_was_overtaken_is_not_sent_behind_those_that_have_left() {
        let mut log = DataLog::new(BOUNDS);
        (0..3).for_each(|_| _ = log.accept(PacketDirection::Uplink, ()));
        (0..3).for_each(|_| _ = log.send_next(Instant(1)));
        assert!(log.leaves(2));
        log.take_over();
        assert_eq!(log.send_next(Instant(1)).map(|(n, ..)| n), Some(3));
        assert_eq!(log.counters().overtaken, 1);
    }

    #[test]
    fn a_packet_that_did_not_come_back_is_given_up_when_later_ones_have() {
        let mut log = DataLog::new(BOUNDS);
        (0..3).for_each(|_| _ = log.accept(PacketDirection::Uplink, ()));
        (0..3).for_each(|_| _ = log.send_next(Instant(1)));
        assert!(log.leaves(2));
        log.give_up_lost(Instant(1) + LOST_AFTER);
        assert_eq!((log.counters().lost, log.len()), (1, 1));
        assert!(!log.leaves(1), "it is not known any more");
        log.give_up_lost(Instant(1) + GIVEN_UP_AFTER);
        assert_eq!((log.counters().lost, log.len()), (2, 0));
    }

    #[test]
    fn a_full_direction_takes_no_packet_from_the_other_and_drops_the_newest_of_its_own() {
        let mut log = DataLog::new(BOUNDS);
        (0..8).for_each(|_| assert!(log.accept(PacketDirection::Downlink, ()).is_ok()));
        assert_eq!(log.accept(PacketDirection::Downlink, ()), Err(()));
        assert!(log.accept(PacketDirection::Uplink, ()).is_ok());
        assert_eq!(log.counters().refused, 1);
    }

    #[test]
    fn of_packets_for_idle_ues_the_oldest_gives_way_to_one_that_arrives() {
        let mut log = DataLog::new(BOUNDS);
        (0..8).for_each(|_| _ = log.accept(PacketDirection::Downlink, ()));
        (0..2).for_each(|_| _ = log.send_next(Instant(1)));
        log.held(1);
        log.held(2);
        assert!(log.accept(PacketDirection::Downlink, ()).is_ok());
        assert_eq!(log.counters().evicted, 1);
        log.take_over();
        assert_eq!(log.send_next(Instant(1)).map(|(n, ..)| n), Some(2));
    }
}
