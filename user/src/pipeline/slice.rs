//! The rate of a network slice: what all its sessions together may send, in each direction.
//!
//! A session's own rates are its QERs'. A slice's rate is below their sum, so now and then it is not enough; then
//!
//! - packets within a flow's guaranteed rate (GBR) pass all the same, and what they take the others lack;
//! - the others are marked before it is too late: when half of the bucket is gone, a growing part of those whose ends know ECN is marked
//!   (RFC 3168), and of those whose ends do not is dropped (RFC 7567), up to [`MARKED_MAX`] when the bucket is nearly empty;
//! - what finds no tokens at all is dropped.
//!
//! Sessions of all shards take from one bucket, without a lock.
//!
//! The bucket stands for a queue that is not there: its empty part is what would wait. So no packet waits for the rate.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use whimbrel_ids::Instant;

use super::DropReason;
use super::meter::{cost, depth};
use crate::config::SliceRate;
use crate::session_id::mix;

/// Depth of the bucket, in time at full rate: the queue of a router that is not to add more delay than a handover.
const WINDOW_MS: u64 = 50;
/// Of 65,536 packets, so many are marked of congestion when the bucket is nearly empty: one in ten, as RFC 2309's authors propose.
const MARKED_MAX: u64 = 6_554;

/// What may become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// The whole packet passes.
    Whole,
    /// It passes, and its ends are to be marked of congestion.
    Marked,
    /// It does not.
    Dropped(DropReason),
}

/// The shaper of one direction.
struct Shaper {
    rate_kbps: u64,
    /// As in a meter; below zero: guaranteed packets have taken what is yet to come.
    tokens: AtomicI64,
    /// When it was filled last, in microseconds.
    filled: AtomicU64,
}

impl Shaper {
    fn new(rate_kbps: u64) -> Self {
        Self { rate_kbps, tokens: AtomicI64::new(depth_of(rate_kbps)), filled: AtomicU64::new(0) }
    }

    /// Adds what has come since it was filled; of threads that would do so at once, one does.
    fn fill(&self, now: Instant) {
        let filled = self.filled.load(Ordering::Relaxed);
        if now.0 <= filled
            || self.filled.compare_exchange(filled, now.0, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let gained = signed(self.rate_kbps.saturating_mul(now.0 - filled));
        let depth = depth_of(self.rate_kbps);
        self.change(|tokens| Some(tokens.saturating_add(gained).min(depth)));
    }

    /// Changes the tokens, if `to` says to what; whether it did.
    fn change(&self, to: impl FnMut(i64) -> Option<i64>) -> bool {
        self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, to).is_ok()
    }

    fn take(&self, now: Instant, octets: usize, guaranteed: bool, knows_ecn: bool, random: &mut u64) -> Pass {
        self.fill(now);
        let (depth, cost) = (depth_of(self.rate_kbps), signed(cost(octets)));
        if guaranteed {
            self.change(|tokens| Some((tokens - cost).max(-depth)));
            return Pass::Whole;
        }
        let tokens = self.tokens.load(Ordering::Relaxed);
        if tokens < cost {
            return Pass::Dropped(DropReason::SliceRateExceeded);
        }
        let marked = is_marked(tokens, depth, random);
        if marked && !knows_ecn {
            return Pass::Dropped(DropReason::EarlyDrop);
        }
        if !self.change(|tokens| (tokens >= cost).then(|| tokens - cost)) {
            return Pass::Dropped(DropReason::SliceRateExceeded); // another thread was faster
        }
        if marked { Pass::Marked } else { Pass::Whole }
    }
}

/// Whether a packet's ends are marked: by chance, the likelier the emptier the bucket.
pub(super) fn is_marked(tokens: i64, depth: i64, random: &mut u64) -> bool {
    let half = depth / 2;
    let lacking = u128::from((half - tokens).max(0).unsigned_abs());
    if lacking == 0 {
        return false;
    }
    *random = mix(*random);
    let of_65536 = lacking * u128::from(MARKED_MAX) / u128::from(half.max(1).unsigned_abs());
    u128::from(*random & 0xffff) < of_65536
}

fn signed(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

fn depth_of(rate_kbps: u64) -> i64 {
    signed(depth(rate_kbps, WINDOW_MS))
}

/// A slice's two directions.
pub(super) struct Slice {
    ul: Shaper,
    dl: Shaper,
}

impl Slice {
    pub(super) fn new(rate: &SliceRate) -> Self {
        Self { ul: Shaper::new(rate.ul_kbps), dl: Shaper::new(rate.dl_kbps) }
    }

    /// Whether a packet passes; one that does is counted. `guaranteed`: it is within its flow's guaranteed rate. `knows_ecn`: its
    /// header says that its ends understand a mark. `random` changes with each use.
    #[allow(clippy::too_many_arguments, reason = "what is to be known of one packet")]
    pub(super) fn take(
        &self,
        now: Instant,
        uplink: bool,
        octets: usize,
        guaranteed: bool,
        knows_ecn: bool,
        random: &mut u64,
    ) -> Pass {
        let shaper = if uplink { &self.ul } else { &self.dl };
        shaper.take(now, octets, guaranteed, knows_ecn, random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant(1_000_000);
    /// 80 Mbit/s: ten octets a microsecond.
    const RATE: u64 = 80_000;

    /// Packets of 1,000 octets for a second, one each `every_us`; how many passed whole, marked, and were dropped early and late.
    fn second(shaper: &Shaper, every_us: usize, guaranteed: bool, knows_ecn: bool) -> [u64; 4] {
        let (mut all, mut random) = ([0; 4], 1);
        for us in (0..1_000_000).step_by(every_us) {
            let at = Instant(START.0 + us as u64);
            match shaper.take(at, 1_000, guaranteed, knows_ecn, &mut random) {
                Pass::Whole => all[0] += 1,
                Pass::Marked => all[1] += 1,
                Pass::Dropped(DropReason::EarlyDrop) => all[2] += 1,
                Pass::Dropped(_) => all[3] += 1,
            }
        }
        all
    }

    #[test]
    fn what_keeps_the_rate_passes_whole() {
        assert_eq!(second(&Shaper::new(RATE), 100, false, false), [10_000, 0, 0, 0]);
    }

    #[test]
    fn ends_that_know_ecn_are_marked_and_the_others_dropped_before_there_are_no_tokens() {
        // A little above the rate: as many are marked as are too many before the bucket is empty.
        let [whole, marked, early, late] = second(&Shaper::new(RATE), 93, false, false);
        assert!(marked == 0 && early > 200 && late == 0 && whole > 9_900, "{whole} {early} {late}");
        let [whole, marked, early, late] = second(&Shaper::new(RATE), 93, false, true);
        assert!(marked > 200 && early == 0 && whole + marked + late == 10_753, "{whole} {marked} {late}");
    }

    #[test]
    fn no_more_than_the_rate_and_one_bucket_passes_however_much_comes() {
        let [whole, _, early, late] = second(&Shaper::new(RATE), 10, false, false);
        assert!((10_400..=10_510).contains(&whole), "{whole}");
        assert!(late > 10 * early, "{early} {late}");
    }

    #[test]
    fn guaranteed_packets_pass_and_the_others_have_the_rest() {
        let (shaper, mut random) = (Shaper::new(RATE), 1);
        let mut passed = [0u64; 2];
        for us in (0..1_000_000u64).step_by(50) {
            let at = Instant(START.0 + us);
            // 60 Mbit/s guaranteed of 80, and 160 Mbit/s more.
            if us % 150 < 50 || us % 600 < 50 {
                assert_eq!(shaper.take(at, 1_000, true, false, &mut random), Pass::Whole);
                passed[0] += 1;
            }
            passed[1] += u64::from(shaper.take(at, 1_000, false, false, &mut random) == Pass::Whole);
        }
        assert!((6_600..7_600).contains(&passed[0]), "{passed:?}");
        assert!((10_300..10_520).contains(&(passed[0] + passed[1])), "{passed:?}");
    }

    #[test]
    fn a_debt_is_paid_before_others_pass() {
        let (shaper, mut random) = (Shaper::new(RATE), 1);
        shaper.fill(START);
        while shaper.tokens.load(Ordering::Relaxed) > -depth_of(RATE) {
            assert_eq!(shaper.take(START, 1_000, true, false, &mut random), Pass::Whole);
        }
        let later = |ms: u64| Instant(START.0 + ms * 1000);
        assert_eq!(
            shaper.take(later(WINDOW_MS), 1_000, false, true, &mut random),
            Pass::Dropped(DropReason::SliceRateExceeded)
        );
        assert_ne!(
            shaper.take(later(WINDOW_MS + 1), 1_000, false, true, &mut random),
            Pass::Dropped(DropReason::SliceRateExceeded)
        );
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "threads are what it is about")]
    fn threads_take_no_more_together_than_one() {
        let shaper = Shaper::new(RATE);
        shaper.fill(START);
        let passed: u64 = std::thread::scope(|scope| {
            let thread = |n| {
                let shaper = &shaper;
                move || {
                    let passes = |us: u64, random: &mut u64| {
                        shaper.take(Instant(START.0 + us), 1_000, false, true, random)
                            != Pass::Dropped(DropReason::SliceRateExceeded)
                    };
                    let mut random = n;
                    (0..400_000).map(|us| u64::from(passes(us, &mut random))).sum::<u64>()
                }
            };
            let threads: Vec<_> = (0..2).map(|n| scope.spawn(thread(n))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        // Ten octets a microsecond for 400 ms, and a bucket of 50 ms.
        assert!((4_400..=4_500).contains(&passed), "{passed}");
    }
}
