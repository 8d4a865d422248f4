//! SNOW 3G: the stream cipher under 128-NEA1 and 128-NIA1 (TS 35.216).
//!
//! The tables are computed from their definitions while the crate is built. Look-ups in them take time that depends on
//! the cache: where that matters, configure NEA2 and NIA2, which the processor's AES instructions carry.

/// Multiplication by x in GF(2^8) with feedback `c` (TS 35.216 §3.1.1).
const fn mul_x(v: u8, c: u8) -> u8 {
    if v & 0x80 != 0 { v << 1 ^ c } else { v << 1 }
}

/// Multiplication by x^i (TS 35.216 §3.1.2).
const fn mul_x_pow(v: u8, i: u32, c: u8) -> u8 {
    let mut v = v;
    let mut n = 0;
    while n < i {
        v = mul_x(v, c);
        n += 1;
    }
    v
}

/// Product in GF(2^8) with feedback `c`.
const fn mul(a: u8, b: u8, c: u8) -> u8 {
    let (mut sum, mut a, mut b) = (0, a, b);
    while b != 0 {
        if b & 1 != 0 {
            sum ^= a;
        }
        a = mul_x(a, c);
        b >>= 1;
    }
    sum
}

const fn pow(v: u8, exponent: u32, c: u8) -> u8 {
    let (mut out, mut n) = (1, 0);
    while n < exponent {
        out = mul(out, v, c);
        n += 1;
    }
    out
}

/// The Rijndael S-box S_R: inversion with feedback 0x1b, then its affine map (TS 35.216 §3.3.1).
const fn s_r(v: u8) -> u8 {
    let i = pow(v, 254, 0x1b);
    i ^ i.rotate_left(1) ^ i.rotate_left(2) ^ i.rotate_left(3) ^ i.rotate_left(4) ^ 0x63
}

/// S_Q: a Dickson polynomial with feedback 0x69, plus 0x25 (TS 35.216 §3.3.2).
const fn s_q(v: u8) -> u8 {
    const EXPONENTS: [u32; 9] = [1, 9, 13, 15, 33, 41, 45, 47, 49];
    let (mut sum, mut n) = (0x25, 0);
    while n < EXPONENTS.len() {
        sum ^= pow(v, EXPONENTS[n], 0x69);
        n += 1;
    }
    sum
}

/// An S-box with the column mixing of S1 and S2 folded in: one word for the octet's share in the most significant
/// column; the shares of the other octets are rotations of it.
const fn mixed(rijndael: bool) -> [u32; 256] {
    let mut table = [0; 256];
    let mut v = 0;
    while v < 256 {
        let (s, c) = if rijndael { (s_r(v as u8), 0x1b) } else { (s_q(v as u8), 0x69) };
        let twice = mul_x(s, c);
        table[v] = u32::from_be_bytes([twice, twice ^ s, s, s]);
        v += 1;
    }
    table
}

/// MUL_α (TS 35.216 §3.4.2), or DIV_α (§3.4.3).
const fn alpha(exponents: [u32; 4]) -> [u32; 256] {
    let mut table = [0; 256];
    let mut v = 0;
    while v < 256 {
        table[v] = u32::from_be_bytes([
            mul_x_pow(v as u8, exponents[0], 0xa9),
            mul_x_pow(v as u8, exponents[1], 0xa9),
            mul_x_pow(v as u8, exponents[2], 0xa9),
            mul_x_pow(v as u8, exponents[3], 0xa9),
        ]);
        v += 1;
    }
    table
}

static S1: [u32; 256] = mixed(true);
static S2: [u32; 256] = mixed(false);
static MUL_ALPHA: [u32; 256] = alpha([23, 245, 48, 239]);
static DIV_ALPHA: [u32; 256] = alpha([16, 39, 6, 64]);

/// S1 or S2 of a word: octet i of the input feeds the outputs rotated by i octets.
fn substitute(table: &[u32; 256], w: u32) -> u32 {
    let [a, b, c, d] = w.to_be_bytes();
    table[usize::from(a)]
        ^ table[usize::from(b)].rotate_right(8)
        ^ table[usize::from(c)].rotate_right(16)
        ^ table[usize::from(d)].rotate_right(24)
}

/// The generator after its initialisation.
pub(crate) struct Snow3g {
    /// The shift register as a ring: stage i is at `(at + i) % 16`.
    lfsr: [u32; 16],
    at: usize,
    r: [u32; 3],
}

impl Snow3g {
    /// Initialises with K0‖K1‖K2‖K3 and IV0 to IV3 as TS 35.215 §2.2 orders them (TS 35.216 §4.1).
    pub(crate) fn new(k: [u32; 4], iv: [u32; 4]) -> Self {
        let n = k.map(|k| !k);
        let lfsr = [
            n[0],
            n[1],
            n[2],
            n[3],
            k[0],
            k[1],
            k[2],
            k[3],
            n[0],
            n[1] ^ iv[3],
            n[2] ^ iv[2],
            n[3],
            k[0] ^ iv[1],
            k[1],
            k[2],
            k[3] ^ iv[0],
        ];
        let mut this = Self { lfsr, at: 0, r: [0; 3] };
        for _ in 0..32 {
            let f = this.clock_fsm();
            this.clock_lfsr(f);
        }
        this.clock_fsm(); // TS 35.216 §4.2: the first output is discarded.
        this.clock_lfsr(0);
        this
    }

    fn stage(&self, i: usize) -> u32 {
        self.lfsr[(self.at + i) % 16]
    }

    /// The next word of key stream.
    pub(crate) fn next_word(&mut self) -> u32 {
        let z = self.clock_fsm() ^ self.stage(0);
        self.clock_lfsr(0);
        z
    }

    /// TS 35.216 §3.4.6.
    fn clock_fsm(&mut self) -> u32 {
        let [r1, r2, r3] = self.r;
        let f = self.stage(15).wrapping_add(r1) ^ r2;
        self.r = [r2.wrapping_add(r3 ^ self.stage(5)), substitute(&S1, r1), substitute(&S2, r2)];
        f
    }

    /// TS 35.216 §3.4.4 with the output of the state machine, §3.4.5 with zero.
    fn clock_lfsr(&mut self, f: u32) {
        let (s0, s11) = (self.stage(0), self.stage(11));
        let v = s0 << 8
            ^ MUL_ALPHA[(s0 >> 24) as usize]
            ^ self.stage(2)
            ^ s11 >> 8
            ^ DIV_ALPHA[(s11 & 0xff) as usize]
            ^ f;
        self.lfsr[self.at] = v;
        self.at = (self.at + 1) % 16;
    }
}

impl Drop for Snow3g {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.lfsr);
        zeroize::Zeroize::zeroize(&mut self.r);
    }
}

/// The key's words in the order K0 to K3: TS 35.215 §3.4 loads them from the last to the first.
pub(crate) fn key_words(key: &[u8; 16]) -> [u32; 4] {
    let k = u128::from_be_bytes(*key);
    [k as u32, (k >> 32) as u32, (k >> 64) as u32, (k >> 96) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 35.216 §3.3: first entries of the two boxes
    fn boxes_begin_as_published() {
        assert_eq!([0, 1, 2, 3].map(s_r), [0x63, 0x7c, 0x77, 0x7b]);
        assert_eq!([0, 1, 2, 3, 255].map(s_q)[..4], [0x25, 0x24, 0x73, 0x67]);
    }

    #[test] // TS 35.217 §3.3, set 1
    fn key_stream_of_set_1() {
        let k = [0x2bd6459f, 0x82c5b300, 0x952c4910, 0x4881ff48];
        let iv = [0xea024714, 0xad5c4d84, 0xdf1f9b25, 0x1c0bf45f];
        let mut s = Snow3g::new(k, iv);
        assert_eq!([s.next_word(), s.next_word()], [0xabee9704, 0x7ac31373]);
    }

    #[test] // TS 35.217 §3.6, set 4: the 2,500th word
    fn key_stream_of_set_4() {
        let k = [0x0ded7263, 0x109cf92e, 0x3352255a, 0x140e0f76];
        let iv = [0x6b68079a, 0x41a7c4c9, 0x1befd79f, 0x7fdcc233];
        let mut s = Snow3g::new(k, iv);
        assert_eq!(s.next_word(), 0xd712c05c);
        assert_eq!((1..2500).map(|_| s.next_word()).last(), Some(0x9c0db3aa));
    }
}
