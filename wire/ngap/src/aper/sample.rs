//! Values made at random from a seed, for tests: every optional element, list length and alternative gets its turn.

/// A stream of numbers that one seed determines.
#[derive(Clone, Debug)]
pub struct Source {
    state: u64,
    huge: bool,
}

impl Source {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed, huge: true }
    }

    /// The stream of `seed`, for values that need no fragments (X.691 §11.9.3.8).
    pub const fn without_fragments(seed: u64) -> Self {
        Self { state: seed, huge: false }
    }

    /// Whether an octet string should be too long for one fragment.
    pub(crate) fn huge(&mut self) -> bool {
        self.huge && self.number().is_multiple_of(64)
    }

    /// The next number (SplitMix64).
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// True every second time.
    pub fn flip(&mut self) -> bool {
        self.number() & 1 == 1
    }

    /// A number of `lo..=hi`, the bounds more often than the rest.
    pub fn within(&mut self, lo: u64, hi: u64) -> u64 {
        match self.number() % 8 {
            0 => lo,
            1 => hi,
            _ if hi - lo == u64::MAX => self.number(),
            _ => lo + self.number() % (hi - lo + 1),
        }
    }

    /// How many items a list has: few, but now and then many.
    pub(crate) fn length(&mut self, lo: u64, hi: u64) -> usize {
        let most = if self.number().is_multiple_of(32) { 150 } else { 3 };
        (lo + self.number() % (most + 1)).min(hi) as usize
    }

    /// That many octets.
    pub(crate) fn octets(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.number() as u8).collect()
    }

    /// That many letters.
    pub(crate) fn letters(&mut self, n: usize) -> String {
        (0..n).map(|_| char::from(b'A' + (self.number() % 26) as u8)).collect()
    }
}
