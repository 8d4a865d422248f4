//! Packets that wait for idle UEs, in memory that outlives the process: what a takeover on the same host would lose otherwise.
//!
//! Each packet has a place of one size. Its octets are written before its head, which has a checksum over all: a process that dies while it writes leaves a
//! place without a packet. A place is freed before its packet is sent, so none is sent twice.

use whimbrel_ids::Instant;

use super::{StateMemory, Stored, StoredReader, crc32c};
use crate::session_id::SessionId;

/// Octets of a place.
const PLACE_OCTETS: usize = 2048;
/// Octets of its head.
const HEAD_OCTETS: usize = 4 + 2 + 4 + 4 + 8 + 8;
/// Places of all packet threads: 8 MiB, which are taken when packets wait. Packets beyond these wait in the process alone.
pub(super) const PLACES: u32 = 4096;
/// Octets of all places.
pub(super) const HELD_OCTETS: u64 = PLACES as u64 * PLACE_OCTETS as u64;

/// A packet that waited when the process ended.
pub(crate) struct KeptPacket {
    pub(crate) session: SessionId,
    pub(crate) since: Instant,
    pub(crate) octets: Vec<u8>,
    number: u64,
}

/// The places of one packet thread.
pub(crate) struct HeldPackets {
    memory: Box<dyn StateMemory>,
    /// Where they begin.
    at: u64,
    free: Vec<u32>,
    /// Packets written; later ones have higher numbers.
    written: u64,
}

impl HeldPackets {
    /// The places of a packet thread of so many, in a memory that has them from `at` on.
    pub(crate) fn new(memory: Box<dyn StateMemory>, at: u64, thread: u8, threads: u8) -> Self {
        let own = PLACES / u32::from(threads.max(1));
        let at = at + u64::from(own) * u64::from(thread) * PLACE_OCTETS as u64;
        Self { memory, at, free: (0..own).rev().collect(), written: 0 }
    }

    fn place(&self, place: u32) -> u64 {
        self.at + u64::from(place) * PLACE_OCTETS as u64
    }

    /// Takes all packets that another process has left, in the order in which they came. The places are free then.
    pub(crate) fn take_all(&mut self) -> Vec<KeptPacket> {
        let mut all: Vec<KeptPacket> = Vec::new();
        for place in std::mem::take(&mut self.free) {
            let mut head = [0; HEAD_OCTETS];
            self.memory.read(self.place(place), &mut head);
            if head == [0; HEAD_OCTETS] {
                self.free.push(place);
                continue;
            }
            all.extend(self.read(place, &head));
            self.free(Some(place));
        }
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        all.sort_unstable_by_key(|k| k.number);
        self.written = all.last().map_or(0, |k| k.number);
        all
    }

    fn read(&self, place: u32, head: &[u8; HEAD_OCTETS]) -> Option<KeptPacket> {
        let mut from = StoredReader::new(head);
        let (sum, len): (u32, u16) = Stored::restore(&mut from)?;
        let (index, generation): (u32, u32) = Stored::restore(&mut from)?;
        let (since, number): (Instant, u64) = Stored::restore(&mut from)?;
        let mut octets = vec![0; usize::from(len)];
        if octets.len() > PLACE_OCTETS - HEAD_OCTETS {
            return None;
        }
        self.memory.read(self.place(place) + HEAD_OCTETS as u64, &mut octets);
        let known = crc32c(crc32c(0, &head[4..]), &octets) == sum;
        known.then_some(KeptPacket { session: SessionId { index, generation }, since, octets, number })
    }

    /// Keeps a packet. `None`: it is too long, or all places are taken.
    pub(crate) fn put(&mut self, session: SessionId, since: Instant, octets: &[u8]) -> Option<u32> {
        if octets.len() > PLACE_OCTETS - HEAD_OCTETS {
            return None;
        }
        let place = self.free.pop()?;
        self.written += 1;
        let mut head = Vec::with_capacity(HEAD_OCTETS);
        (0u32, octets.len() as u16).store(&mut head);
        (session.index, session.generation).store(&mut head);
        (since, self.written).store(&mut head);
        let sum = crc32c(crc32c(0, &head[4..]), octets);
        head[..4].copy_from_slice(&sum.to_le_bytes());
        let at = self.place(place);
        if !self.memory.reserve(at + PLACE_OCTETS as u64) {
            self.free.push(place);
            return None;
        }
        self.memory.write(at + HEAD_OCTETS as u64, octets);
        self.memory.write(at, &head);
        Some(place)
    }

    /// A packet waits no longer.
    pub(crate) fn free(&mut self, place: Option<u32>) {
        let Some(place) = place else { return };
        self.memory.write(self.place(place), &[0; HEAD_OCTETS]);
        self.free.push(place);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone)]
    struct HeldMemory(Arc<Mutex<Vec<u8>>>);

    impl StateMemory for HeldMemory {
        fn octets(&self) -> u64 {
            self.0.lock().unwrap().len() as u64
        }

        fn read(&self, at: u64, to: &mut [u8]) {
            to.copy_from_slice(&self.0.lock().unwrap()[at as usize..][..to.len()]);
        }

        fn write(&mut self, at: u64, octets: &[u8]) {
            self.0.lock().unwrap()[at as usize..][..octets.len()].copy_from_slice(octets);
        }
    }

    fn memory() -> HeldMemory {
        HeldMemory(Arc::new(Mutex::new(vec![0; 100 + HELD_OCTETS as usize])))
    }

    fn session(index: u32) -> SessionId {
        SessionId { index, generation: 3 }
    }

    #[test]
    fn packets_of_a_process_that_ended_are_taken_once_and_in_order() {
        let memory = memory();
        let of = |thread| HeldPackets::new(Box::new(memory.clone()), 100, thread, 2);
        let (mut one, mut other) = (of(0), of(1));
        let first = one.put(session(1), Instant(5), &[1; 1500]);
        one.put(session(2), Instant(6), &[2; 40]).unwrap();
        one.free(first);
        one.put(session(1), Instant(7), &[3; 9]).unwrap();
        other.put(session(4), Instant(8), &[4]).unwrap();
        assert_eq!(one.put(session(1), Instant(7), &[0; PLACE_OCTETS]), None);
        let of_one: Vec<_> = of(0).take_all().into_iter().map(|k| (k.session, k.since, k.octets)).collect();
        assert_eq!(of_one, [(session(2), Instant(6), vec![2; 40]), (session(1), Instant(7), vec![3; 9])]);
        assert!(of(0).take_all().is_empty());
        assert_eq!(of(1).take_all().len(), 1);
    }

    #[test]
    fn a_packet_that_was_not_written_whole_is_none() {
        let memory = memory();
        let of = || HeldPackets::new(Box::new(memory.clone()), 100, 0, 1);
        of().put(session(1), Instant(5), &[1; 100]).unwrap();
        memory.0.lock().unwrap()[100 + HEAD_OCTETS + 50] ^= 1;
        assert!(of().take_all().is_empty());
        assert!(of().take_all().is_empty());
    }

    #[test]
    fn packets_beyond_the_places_are_not_kept_until_one_is_free() {
        let mut packets = HeldPackets::new(Box::new(memory()), 100, 0, 64);
        let all: Vec<_> = (0..PLACES / 64).map(|_| packets.put(session(1), Instant(5), &[1])).collect();
        assert!(all.iter().all(Option::is_some));
        assert_eq!(packets.put(session(1), Instant(5), &[1]), None);
        packets.free(all[3]);
        assert_eq!(packets.put(session(1), Instant(5), &[1]), all[3]);
    }
}
