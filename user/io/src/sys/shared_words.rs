//! Octets in memory that other processes read and write meanwhile, as atomic words: what is read while it is written is an old word or a new one.

use std::sync::atomic::{AtomicU64, Ordering};

/// Octets of a word.
const WORD: usize = size_of::<AtomicU64>();

/// Reads octets from there on. Panics: beyond the end.
pub(crate) fn read(words: &[AtomicU64], at: usize, mut to: &mut [u8]) {
    let (mut word, mut skip) = (at / WORD, at % WORD);
    while !to.is_empty() {
        let n = (WORD - skip).min(to.len());
        let (now, rest) = to.split_at_mut(n);
        now.copy_from_slice(&words[word].load(Ordering::Relaxed).to_ne_bytes()[skip..skip + n]);
        (to, word, skip) = (rest, word + 1, 0);
    }
}

/// Writes octets from there on. Adjacent octets in the first and last word are left as
/// they are, also if another process writes them at the same time. Panics: beyond the end.
pub(crate) fn write(words: &[AtomicU64], at: usize, mut octets: &[u8]) {
    let (mut word, mut skip) = (at / WORD, at % WORD);
    while !octets.is_empty() {
        let n = (WORD - skip).min(octets.len());
        let (now, rest) = octets.split_at(n);
        match now.first_chunk() {
            Some(whole) => words[word].store(u64::from_ne_bytes(*whole), Ordering::Relaxed),
            None => {
                let mut was = words[word].load(Ordering::Relaxed);
                loop {
                    let mut is = was.to_ne_bytes();
                    is[skip..skip + n].copy_from_slice(now);
                    let is = u64::from_ne_bytes(is);
                    let put =
                        words[word].compare_exchange_weak(was, is, Ordering::Relaxed, Ordering::Relaxed);
                    match put {
                        Ok(_) => break,
                        Err(other) => was = other,
                    }
                }
            }
        }
        (octets, word, skip) = (rest, word + 1, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_at_any_place_and_of_any_length_are_read_as_written_and_leave_others_alone() {
        for at in 0..20 {
            for n in 0..20 {
                let words = [const { AtomicU64::new(u64::MAX) }; 5];
                let octets: Vec<u8> = (0..n).collect();
                write(&words, at, &octets);
                let mut all = [0; 40];
                read(&words, 0, &mut all);
                let mut expected = [0xff; 40];
                expected[at..at + n as usize].copy_from_slice(&octets);
                assert_eq!(all, expected, "{n} at {at}");
                let mut part = vec![0; n.into()];
                read(&words, at, &mut part);
                assert_eq!(part, octets);
            }
        }
    }

    #[test] // Miri reports a data race if a copy is not of atomic words
    fn words_are_read_whole_while_another_thread_writes_and_neighbours_in_one_word_are_kept() {
        const ROUNDS: u8 = if cfg!(miri) { 20 } else { 200 };
        let words = [const { AtomicU64::new(0) }; 4];
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=ROUNDS).for_each(|n| write(&words, 8, &[n; 12])));
            // Another writer has the rest of the third word.
            scope.spawn(|| (1..=ROUNDS).for_each(|n| write(&words, 20, &[n; 4])));
            for _ in 0..ROUNDS {
                let mut first = [0; 8];
                read(&words, 8, &mut first);
                assert_eq!(first, [first[0]; 8], "a word of one write");
            }
        });
        let mut all = [0; 16];
        read(&words, 8, &mut all);
        assert_eq!(all, [ROUNDS; 16]);
    }
}
