//! Policing of a QER's maximum bit rate (TS 29.244 §5.4.4): one token bucket per direction.

use whimbrel_ids::Instant;

use crate::rules::Qer;
use crate::state::stored;

/// Depth of a bucket, in time at full rate, where the SMF gives no averaging window. TS 23.501 §5.7.3.6
/// averages over 2 s; a tenth of that lets TCP grow without letting bursts flood a gNB.
const WINDOW_MS: u64 = 200;
/// A bucket's depth in time at most: a window of an hour would police nothing.
const WINDOW_MS_MAX: u64 = 10_000;
/// A bucket holds this many octets at least, so that a low rate still passes whole packets: ten of 1,500.
const DEPTH_OCTETS_MIN: u64 = 15_000;
/// The same in tokens.
pub(super) const DEPTH_MIN: u64 = DEPTH_OCTETS_MIN * 8000;

/// One direction's bucket. A token is a thousandth of a bit, so that 1 kbit/s is one token per microsecond.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: u64,
    filled: Instant,
}

/// Tokens that a bucket holds. A rate of zero lets nothing pass.
#[inline]
pub(super) fn depth(rate_kbps: u64, window_ms: u64) -> u64 {
    if rate_kbps == 0 {
        return 0;
    }
    rate_kbps.saturating_mul(window_ms * 1000).max(DEPTH_MIN)
}

/// The tokens of a bucket some time later.
#[inline]
pub(super) fn refilled(tokens: u64, elapsed_us: u64, rate_kbps: u64, window_ms: u64) -> u64 {
    tokens.saturating_add(rate_kbps.saturating_mul(elapsed_us)).min(depth(rate_kbps, window_ms))
}

impl Bucket {
    fn fill(&mut self, now: Instant, rate_kbps: u64, window_ms: u64) {
        let elapsed_us = now.0.saturating_sub(self.filled.0);
        self.tokens = refilled(self.tokens, elapsed_us, rate_kbps, window_ms);
        self.filled = self.filled.max(now);
    }

    /// Takes a packet's tokens, if there are enough.
    fn take(&mut self, now: Instant, rate_kbps: u64, window_ms: u64, octets: usize) -> bool {
        self.fill(now, rate_kbps, window_ms);
        match self.tokens.checked_sub(cost(octets)) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }
}

/// Time in which the buckets of a QER fill.
pub(super) fn window_ms(qer: &Qer) -> u64 {
    qer.window_ms.map_or(WINDOW_MS, u64::from).clamp(1, WINDOW_MS_MAX)
}

/// Tokens of a packet.
#[inline]
pub(super) fn cost(octets: usize) -> u64 {
    octets as u64 * 8000
}

/// The meter of one QER.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    ul: Bucket,
    dl: Bucket,
    /// What of each direction is guaranteed.
    guaranteed: [Bucket; 2],
}

stored!(Bucket { tokens, filled });
stored!(Meter { ul, dl, guaranteed });

impl Meter {
    /// With full buckets.
    pub(crate) fn new(now: Instant) -> Self {
        // As full as any bucket can be; the first use cuts it to its depth.
        let full = Bucket { tokens: u64::MAX, filled: now };
        Self { ul: full, dl: full, guaranteed: [full; 2] }
    }

    /// With so many tokens, uplink and downlink.
    pub(crate) fn of(ul: u64, dl: u64, filled: Instant) -> Self {
        let bucket = |tokens| Bucket { tokens, filled };
        Self { ul: bucket(ul), dl: bucket(dl), guaranteed: [bucket(u64::MAX); 2] }
    }

    /// The tokens of both directions, and when it was that there were so many.
    pub(crate) fn level(mut self, qer: &Qer) -> (u64, u64, Instant) {
        let at = self.ul.filled.max(self.dl.filled);
        for (bucket, rate) in [(&mut self.ul, qer.mbr_ul_kbps), (&mut self.dl, qer.mbr_dl_kbps)] {
            if let Some(rate) = rate {
                bucket.fill(at, rate, window_ms(qer));
            }
        }
        (self.ul.tokens, self.dl.tokens, at)
    }

    /// Reads a part of it, so that it is in the cache.
    pub(crate) fn touch(&self) -> u32 {
        self.dl.tokens as u32
    }

    /// Whether a packet keeps the rate; one that does is counted.
    #[inline]
    pub(crate) fn take(&mut self, now: Instant, qer: &Qer, uplink: bool, octets: usize) -> bool {
        let (bucket, rate) =
            if uplink { (&mut self.ul, qer.mbr_ul_kbps) } else { (&mut self.dl, qer.mbr_dl_kbps) };
        let Some(rate) = rate else { return true };
        bucket.take(now, rate, window_ms(qer), octets)
    }

    /// Whether a packet is within the guaranteed rate; one that is counts.
    pub(crate) fn is_guaranteed(&mut self, now: Instant, qer: &Qer, uplink: bool, octets: usize) -> bool {
        let [ul, dl] = &mut self.guaranteed;
        let (bucket, rate) = if uplink { (ul, qer.gbr_ul_kbps) } else { (dl, qer.gbr_dl_kbps) };
        rate > 0 && bucket.take(now, rate.into(), window_ms(qer), octets)
    }

    /// A packet that was counted does not go.
    pub(crate) fn give_back(&mut self, qer: &Qer, uplink: bool, octets: usize) {
        let (bucket, rate) =
            if uplink { (&mut self.ul, qer.mbr_ul_kbps) } else { (&mut self.dl, qer.mbr_dl_kbps) };
        if rate.is_some() {
            bucket.tokens = bucket.tokens.saturating_add(cost(octets));
        }
    }
}
