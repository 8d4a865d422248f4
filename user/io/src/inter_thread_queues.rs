//! What packet threads hand to each other: packets of sessions that are another's, by a ring for each two of them.

use whimbrel_user::{BurstPacket, DnIndex, Origin, Packet, PacketVerdict};

use crate::channel::Sender;
use crate::sys::ring::{Giver, Taker, ring};
use crate::thread::ThreadRequest;

/// Packets that may wait on the way to a thread, from all others together: 7 ms of 300,000 a second, in 5 MB.
const WAITING_MAX: usize = 2048;

/// A thread's ends of the ways from and to the others.
pub(crate) struct InterThreadQueues {
    /// By the other's number; none to itself.
    to: Vec<Option<(Giver<BurstPacket>, Sender<ThreadRequest>)>>,
    from: Vec<Taker<BurstPacket>>,
    /// Which is asked first; turns, so that a flood by one thread does not starve the others.
    first: usize,
}

/// The ends of as many threads as there are ways to them, of packets with so much room.
pub(crate) fn inter_thread_queues(requests: &[Sender<ThreadRequest>], room: usize) -> Vec<InterThreadQueues> {
    let threads = requests.len();
    let origin = Origin::N6 { dn: DnIndex(0) };
    let empty = || BurstPacket { origin, packet: Packet::with_room(room), verdict: PacketVerdict::Pending };
    let none = |_| InterThreadQueues { to: Vec::new(), from: Vec::new(), first: 0 };
    let mut all: Vec<_> = (0..threads).map(none).collect();
    for at in 0..threads {
        for (to, requests) in requests.iter().enumerate() {
            let ends = (to != at).then(|| ring((WAITING_MAX / threads).next_power_of_two(), empty));
            let giver = ends.map(|(giver, taker)| {
                all[to].from.push(taker);
                (giver, requests.clone())
            });
            all[at].to.push(giver);
        }
    }
    all
}

impl InterThreadQueues {
    /// Takes what the others have handed over, from the first slot on; how many there are.
    pub(crate) fn receive(&mut self, slots: &mut [BurstPacket]) -> usize {
        let others = self.from.len();
        let mut n = 0;
        for i in 0..others {
            let taker = &mut self.from[(self.first + i) % others];
            while let Some(slot) = slots.get_mut(n)
                && taker.take(slot)
            {
                n += 1;
            }
            taker.release();
        }
        self.first = (self.first + 1) % others.max(1);
        n
    }

    /// Hands over the packets of a burst that are for others; how many there were, and how many of them found no room.
    pub(crate) fn hand_over(&mut self, slots: &mut [BurstPacket]) -> (u64, u64) {
        let (mut handed, mut lost) = (0, 0);
        for slot in slots {
            let PacketVerdict::Hand { to, .. } = slot.verdict else { continue };
            let taken =
                self.to.get_mut(usize::from(to)).and_then(Option::as_mut).is_some_and(|(g, _)| g.put(slot));
            handed += u64::from(taken);
            lost += u64::from(!taken);
        }
        if handed > 0 {
            for (giver, requests) in self.to.iter().flatten() {
                if giver.publish() {
                    requests.rouse();
                }
            }
        }
        (handed, lost)
    }

    /// Whether nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.from.iter().all(Taker::is_empty)
    }

    /// The way to the thread that supervises paths; `None` for that one itself.
    pub(crate) fn first(&self) -> Option<&Sender<ThreadRequest>> {
        self.to.first()?.as_ref().map(|(_, requests)| requests)
    }
}
