//! Rates, in thousandths of a bit: those of QERs, and the one that the sessions of a slice share.

use whimbrel_ids::Instant;

/// Octets that every bucket holds at least: ten packets of 1,500.
const LEAST: i128 = 15_000;
/// As full as can be: the first use cuts it.
const FULL: i128 = u64::MAX as i128;

/// Tokens of one direction.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: i128,
    filled: Instant,
}

impl Bucket {
    fn new(now: Instant) -> Self {
        Self { tokens: FULL, filled: now }
    }

    /// As much as comes in so many microseconds, and no rate no tokens.
    fn depth(kbps: u64, window_us: i128) -> i128 {
        if kbps == 0 { 0 } else { (i128::from(kbps) * window_us).max(LEAST * 8_000) }
    }

    fn fill(&mut self, now: Instant, kbps: u64, window_us: i128) {
        let gained = i128::from(kbps) * i128::from(now.0 - self.filled.0);
        self.tokens = (self.tokens + gained).min(Self::depth(kbps, window_us));
        self.filled = now;
    }

    fn take(&mut self, now: Instant, kbps: u64, window_us: i128, octets: usize) -> bool {
        self.fill(now, kbps, window_us);
        let passes = self.tokens >= cost(octets);
        self.tokens -= if passes { cost(octets) } else { 0 };
        passes
    }
}

fn cost(octets: usize) -> i128 {
    octets as i128 * 8_000
}

/// A QER: a packet passes all that its rule has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enforced {
    pub(crate) id: u32,
    /// Closed gates, uplink and downlink.
    pub(crate) closed: [bool; 2],
    /// kbit/s of each direction.
    mbr: Option<[u64; 2]>,
    gbr: [u64; 2],
    /// Time at full rate that a bucket holds.
    window_us: i128,
    buckets: [Bucket; 2],
    guaranteed: [Bucket; 2],
}

/// The window where the SMF names none, in milliseconds.
pub(crate) const WINDOW_MS: u32 = 200;

impl Enforced {
    pub(crate) fn new(now: Instant, id: u32, mbr: Option<[u64; 2]>, gbr: [u64; 2]) -> Self {
        let full = [Bucket::new(now); 2];
        let window_us = i128::from(WINDOW_MS) * 1_000;
        Self { id, closed: [false; 2], mbr, gbr, window_us, buckets: full, guaranteed: full }
    }

    /// Averaged over another time.
    pub(crate) fn over(self, window_ms: u32) -> Self {
        Self { window_us: i128::from(window_ms) * 1_000, ..self }
    }

    pub(crate) fn set_mbr(&mut self, now: Instant, mbr: [u64; 2]) {
        if self.mbr != Some(mbr) {
            *self = Self {
                closed: self.closed,
                window_us: self.window_us,
                ..Self::new(now, self.id, Some(mbr), self.gbr)
            };
        }
    }

    pub(super) fn take(&mut self, now: Instant, way: usize, octets: usize) -> bool {
        self.mbr.is_none_or(|mbr| self.buckets[way].take(now, mbr[way], self.window_us, octets))
    }

    /// Whether a rate is guaranteed.
    pub(super) fn promises(&self, way: usize) -> bool {
        self.gbr[way] > 0
    }

    /// Whether a packet is within the guaranteed rate, of which it takes.
    pub(super) fn guarantees(&mut self, now: Instant, way: usize, octets: usize) -> bool {
        self.gbr[way] > 0 && self.guaranteed[way].take(now, self.gbr[way], self.window_us, octets)
    }
}

/// The rate of a slice, 50 ms of it. All packets here are marked for congestion already, so none is marked by the slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    kbps: [u64; 2],
    buckets: [Bucket; 2],
}

impl Slice {
    pub(crate) fn new(now: Instant, kbps: [u64; 2]) -> Self {
        Self { kbps, buckets: [Bucket::new(now); 2] }
    }

    /// What is guaranteed passes, and takes even of what is yet to come.
    pub(super) fn take(&mut self, now: Instant, way: usize, octets: usize, guaranteed: bool) -> bool {
        let (kbps, bucket) = (self.kbps[way], &mut self.buckets[way]);
        bucket.fill(now, kbps, 50_000);
        let passes = guaranteed || bucket.tokens >= cost(octets);
        let debt = -Bucket::depth(kbps, 50_000);
        bucket.tokens = (bucket.tokens - if passes { cost(octets) } else { 0 }).max(debt);
        passes
    }
}
