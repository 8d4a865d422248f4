//! What memory allows: an index, then the record that it names, in large pages, prefetched in bursts, and nothing else done.

use std::hint::black_box;

use crate::upf::classifier::common::rule_sets::Random;
use whimbrel_pages::Pages;
use whimbrel_prefetch::prefetch;

use crate::measure::{core_time, median};

/// Accesses prefetched together: more gain nothing, as there are no more line fill buffers.
const BURST: usize = 16;
/// Accesses of a round.
const ACCESSES: usize = 32_768;

/// Two cache lines: what is read of a session, and what is written.
#[repr(C, align(128))]
#[derive(Clone, Copy, Default)]
struct Record {
    read: [u64; 8],
    written: [u64; 8],
}

/// As many records as there are sessions, and an index of them.
pub(super) struct Limit {
    index: Pages<u32>,
    records: Pages<Record>,
    keys: Vec<u32>,
}

impl Limit {
    pub(super) fn new(sessions: u32) -> Self {
        // Neighbours in the index are none in the records.
        let place = |n: u32| ((u64::from(n) * 0x9e37_79b1) % u64::from(sessions)) as u32;
        let mut index = Pages::<u32>::new(sessions as usize);
        (0..sessions).zip(&mut *index).for_each(|(n, at)| *at = place(n));
        Self { index, records: Pages::new(sessions as usize), keys: vec![0; ACCESSES] }
    }

    /// The median of rounds, an access.
    pub(super) fn nanoseconds(&mut self, rounds: usize) -> f64 {
        let random = &mut Random::new(7);
        let rounds = (0..rounds).map(|_| {
            let sessions = self.index.len() as u64;
            self.keys.iter_mut().for_each(|k| *k = random.below(sessions) as u32);
            let begin = core_time();
            black_box(self.round());
            (core_time() - begin).as_nanos() as f64 / ACCESSES as f64
        });
        median(rounds.collect())
    }

    fn round(&mut self) -> u64 {
        let mut last = 0;
        for keys in self.keys.chunks(BURST) {
            keys.iter().for_each(|k| prefetch(&self.index[*k as usize]));
            let mut places = [0; BURST];
            for (place, key) in places.iter_mut().zip(keys) {
                *place = self.index[*key as usize] as usize;
                prefetch(&self.records[*place].read);
                prefetch(&self.records[*place].written);
            }
            for place in &places[..keys.len()] {
                // Each waits for the one before: what is read is zero, though the processor does not know.
                let record = &mut self.records[*place ^ last as usize];
                last = record.read[0];
                record.written[0] += 1;
            }
        }
        last
    }
}
