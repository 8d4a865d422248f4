//! Numbers from a seed.

/// SplitMix64: small, fast, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.draw() % n }
    }

    /// True once in a thousand, `per_mille` times.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of these.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        if of.len() == 1 { &of[0] } else { &of[self.below(of.len() as u64) as usize] }
    }

    /// Sixteen random octets.
    pub fn octets(&mut self) -> [u8; 16] {
        (u128::from(self.draw()) << 64 | u128::from(self.draw())).to_be_bytes()
    }
}
