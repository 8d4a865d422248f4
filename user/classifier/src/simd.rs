//! A packet's key against many rules at once, by columns.
//!
//! The compiler vectorises such loops for the machine that it builds for, not for the one that the program meets: on
//! x86-64 that is SSE2, without what these loops live on (three-way logic, sixteen words at a time, masks). The choice is
//! made at run time, once per classifier. The tests compare each with the scalar one.
//!
//! Every condition is brought to the form "zero if it is met", so that one test serves all of a rule's: for words
//! `(key & mask) ^ value`, for ports the saturating `(port - from) - span`.

#![allow(
    unsafe_code,
    reason = "vector loads, and calls of functions that need the instructions that a token proves"
)]

use crate::block::{Columns, Word};

/// What of a key a block compares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    /// The two words that the block's rules ask most of.
    pub(crate) pair: [u32; 2],
    pub(crate) protocol: u32,
    /// Remote port, local port.
    pub(crate) ports: u32,
}

/// Compares with `N` rules (8 or 16); bit n of an answer is for rule n.
pub(crate) trait Compare: Copy {
    /// Which rules meet the first two words.
    fn pair<const N: usize>(self, words: Words, rules: &Columns<N>) -> u32;

    /// Which rules meet all columns.
    fn all<const N: usize>(self, words: Words, rules: &Columns<N>) -> u32;

    /// Which rules meet one more word.
    fn word<const N: usize>(self, key: u32, rules: &Word<N>) -> u32;

    /// Which tags are this one.
    fn tagged(self, tag: u32, tags: &[u32; 8]) -> u32;

    /// A search as a function of its own, so that what is seldom needed burdens no look-up.
    fn apart<S: Search>(self, search: S) -> S::Found;
}

/// A search that is compiled once for each kind of instructions. Everything on its way is `inline(always)`, and loops have
/// no closures: code that stays a function of its own is compiled without these instructions.
pub(crate) trait Search {
    type Found;

    fn run<C: Compare>(self, c: C) -> Self::Found;
}

/// Without vector instructions of our own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

/// Bit n where word n is zero.
#[inline(always)]
fn zeros<const N: usize>(unmet: &[u32; N]) -> u32 {
    let mut bits = 0;
    for (n, unmet) in unmet.iter().enumerate() {
        bits |= u32::from(*unmet == 0) << n;
    }
    bits
}

impl Compare for Scalar {
    #[inline(always)]
    fn pair<const N: usize>(self, words: Words, rules: &Columns<N>) -> u32 {
        let [first, second] = words.pair;
        let mut unmet = [0; N];
        for (n, unmet) in unmet.iter_mut().enumerate() {
            *unmet = (first & rules.first_mask[n] ^ rules.first_value[n])
                | (second & rules.second_mask[n] ^ rules.second_value[n]);
        }
        zeros(&unmet)
    }

    #[inline(always)]
    fn all<const N: usize>(self, words: Words, rules: &Columns<N>) -> u32 {
        let some = self.pair(words, rules);
        if some == 0 {
            return 0;
        }
        let ports = [words.ports as u16, (words.ports >> 16) as u16];
        let mut unmet = [0; N];
        for (n, unmet) in unmet.iter_mut().enumerate() {
            let ([local_from, remote_from], [local_span, remote_span]) =
                (rules.ports_from[n], rules.ports_span[n]);
            let local = ports[0].wrapping_sub(local_from).saturating_sub(local_span);
            let remote = ports[1].wrapping_sub(remote_from).saturating_sub(remote_span);
            *unmet = (words.protocol & rules.protocol_mask[n] ^ rules.protocol_value[n])
                | u32::from(local | remote);
        }
        some & zeros(&unmet)
    }

    #[inline(always)]
    fn word<const N: usize>(self, key: u32, rules: &Word<N>) -> u32 {
        let mut unmet = [0; N];
        for (n, unmet) in unmet.iter_mut().enumerate() {
            *unmet = key & rules.mask[n] ^ rules.value[n];
        }
        zeros(&unmet)
    }

    #[inline(always)]
    fn tagged(self, tag: u32, tags: &[u32; 8]) -> u32 {
        let mut bits = 0;
        for (n, t) in tags.iter().enumerate() {
            bits |= u32::from(*t == tag) << n;
        }
        bits
    }

    fn apart<S: Search>(self, search: S) -> S::Found {
        scalar(search)
    }
}

/// Vector instructions of this processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instructions {
    /// None but the compiler's.
    Scalar,
    /// AVX2 of x86-64.
    Avx2,
    /// AVX-512 F, BW and VL of x86-64.
    Avx512,
}

impl Instructions {
    /// All, the narrowest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The widest that this processor has.
    pub fn best() -> Self {
        Unit::new(Self::Avx512).instructions()
    }
}

/// What searches run on, with the proof that the processor has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(x86::Avx512),
}

impl Unit {
    /// These instructions, or the widest below them that the processor has.
    pub(crate) fn new(widest: Instructions) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(c) = x86::Avx512::new().filter(|_| widest >= Instructions::Avx512) {
                return Self::Avx512(c);
            }
            if let Some(c) = x86::Avx2::new().filter(|_| widest >= Instructions::Avx2) {
                return Self::Avx2(c);
            }
        }
        let _ = widest;
        Self::Scalar
    }

    pub(crate) fn instructions(self) -> Instructions {
        match self {
            Self::Scalar => Instructions::Scalar,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Instructions::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Instructions::Avx512,
        }
    }

    #[inline(always)]
    pub(crate) fn run<S: Search>(self, search: S) -> S::Found {
        match self {
            Self::Scalar => scalar(search),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(c) => c.run(search),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(c) => c.run(search),
        }
    }
}

/// Apart, so that it burdens no other unit's callers.
#[inline(never)]
fn scalar<S: Search>(search: S) -> S::Found {
    search.run(Scalar)
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86 {
    use std::arch::x86_64::*;

    use super::{Columns, Compare, Search, Word, Words};

    /// Proof that the processor has AVX2: [`Avx2::new`] alone makes one.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Avx2(());

    /// Proof that the processor has AVX-512 F, BW and VL: [`Avx512::new`] alone makes one.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Avx512(());

    impl Avx2 {
        #[inline]
        pub(crate) fn new() -> Option<Self> {
            is_x86_feature_detected!("avx2").then_some(Self(()))
        }

        /// A search, compiled for AVX2.
        #[inline]
        pub(crate) fn run<S: Search>(self, search: S) -> S::Found {
            #[inline(never)]
            #[target_feature(enable = "avx2,bmi1")]
            fn with<S: Search>(token: Avx2, search: S) -> S::Found {
                search.run(token)
            }
            // SAFETY: the processor has AVX2, as `self` exists; every one that has it has BMI1.
            unsafe { with(self, search) }
        }
    }

    impl Avx512 {
        #[inline]
        pub(crate) fn new() -> Option<Self> {
            let there = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl");
            there.then_some(Self(()))
        }

        /// A search, compiled for AVX-512.
        #[inline]
        pub(crate) fn run<S: Search>(self, search: S) -> S::Found {
            #[inline(never)]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1")]
            fn with<S: Search>(token: Avx512, search: S) -> S::Found {
                search.run(token)
            }
            // SAFETY: the processor has them, as `self` exists; every one that has AVX-512 has BMI1.
            unsafe { with(self, search) }
        }
    }

    impl Compare for Avx2 {
        #[inline(always)]
        fn pair<const N: usize>(self, words: Words, rules: &Columns<N>) -> u32 {
            // SAFETY: the processor has AVX2, as `self` exists.
            unsafe { avx2::pair(words, rules) }
        }

        #[inline(always)]
        fn all<const N: usize>(self, words: Words, rules: &Columns<N>) -> u32 {
            // SAFETY: as above.
            unsafe { avx2::all(words, rules) }
        }

        #[inline(always)]
        fn word<const N: usize>(self, key: u32, rules: &Word<N>) -> u32 {
            // SAFETY: as above.
            unsafe { avx2::word(key, rules) }
        }

        #[inline(always)]
        fn tagged(self, tag: u32, tags: &[u32; 8]) -> u32 {
            // SAFETY: as above.
            unsafe { avx2::tagged(tag, tags) }
        }

        fn apart<S: Search>(self, search: S) -> S::Found {
            self.run(search)
        }
    }

    impl Compare for Avx512 {
        #[inline(always)]
        fn pair<const N: usize>(self, words: Words, rules: &Columns<N>) -> u32 {
            // SAFETY: the processor has AVX-512 F, BW and VL, as `self` exists.
            unsafe { avx512::pair(words, rules) }
        }

        #[inline(always)]
        fn all<const N: usize>(self, words: Words, rules: &Columns<N>) -> u32 {
            // SAFETY: as above.
            unsafe { avx512::all(words, rules) }
        }

        #[inline(always)]
        fn word<const N: usize>(self, key: u32, rules: &Word<N>) -> u32 {
            // SAFETY: as above.
            unsafe { avx512::word(key, rules) }
        }

        #[inline(always)]
        fn tagged(self, tag: u32, tags: &[u32; 8]) -> u32 {
            // SAFETY: as above; AVX-512 F is AVX2 and more.
            unsafe { avx2::tagged(tag, tags) }
        }

        fn apart<S: Search>(self, search: S) -> S::Found {
            self.run(search)
        }
    }

    mod avx2 {
        use super::*;

        /// Eight words from place `at` on.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn load<const N: usize, T>(column: &[T; N], at: usize) -> __m256i {
            const { assert!(size_of::<T>() == 4) };
            let eight = &column[at..at + 8];
            // SAFETY: `eight` is 32 octets of plain numbers; the load needs no alignment.
            unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) }
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn unmet<const N: usize>(key: u32, value: &[u32; N], mask: &[u32; N], at: usize) -> __m256i {
            let key = _mm256_set1_epi32(key as i32);
            _mm256_xor_si256(_mm256_and_si256(key, load(mask, at)), load(value, at))
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn unmet_pair<const N: usize>(words: Words, rules: &Columns<N>, at: usize) -> __m256i {
            let [first, second] = words.pair;
            _mm256_or_si256(
                unmet(first, &rules.first_value, &rules.first_mask, at),
                unmet(second, &rules.second_value, &rules.second_mask, at),
            )
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn zeros(unmet: __m256i) -> u32 {
            let zero = _mm256_cmpeq_epi32(unmet, _mm256_setzero_si256());
            _mm256_movemask_ps(_mm256_castsi256_ps(zero)) as u32
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        pub(super) fn pair<const N: usize>(words: Words, rules: &Columns<N>) -> u32 {
            let mut bits = 0;
            for at in (0..N).step_by(8) {
                bits |= zeros(unmet_pair(words, rules, at)) << at;
            }
            bits
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        pub(super) fn all<const N: usize>(words: Words, rules: &Columns<N>) -> u32 {
            let mut bits = 0;
            for at in (0..N).step_by(8) {
                let protocol = unmet(words.protocol, &rules.protocol_value, &rules.protocol_mask, at);
                let ports = _mm256_set1_epi32(words.ports as i32);
                let ports = _mm256_sub_epi16(ports, load(&rules.ports_from, at));
                let ports = _mm256_subs_epu16(ports, load(&rules.ports_span, at));
                let rest = _mm256_or_si256(protocol, ports);
                bits |= zeros(_mm256_or_si256(unmet_pair(words, rules, at), rest)) << at;
            }
            bits
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        pub(super) fn word<const N: usize>(key: u32, rules: &Word<N>) -> u32 {
            let mut bits = 0;
            for at in (0..N).step_by(8) {
                bits |= zeros(unmet(key, &rules.value, &rules.mask, at)) << at;
            }
            bits
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        pub(super) fn tagged(tag: u32, tags: &[u32; 8]) -> u32 {
            zeros(_mm256_xor_si256(_mm256_set1_epi32(tag as i32), load(tags, 0)))
        }
    }

    mod avx512 {
        use super::*;

        /// `(a & b) ^ c`, and `a | b | c`, as tables of three-way logic.
        const AND_XOR: i32 = 0b0110_1010;
        const OR: i32 = 0b1111_1110;

        /// Sixteen words from place `at` on.
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn load16<const N: usize, T>(column: &[T; N], at: usize) -> __m512i {
            const { assert!(size_of::<T>() == 4) };
            let sixteen = &column[at..at + 16];
            // SAFETY: `sixteen` is 64 octets of plain numbers; the load needs no alignment.
            unsafe { _mm512_loadu_si512(sixteen.as_ptr().cast()) }
        }

        /// Eight words from place `at` on.
        #[inline]
        #[target_feature(enable = "avx512f,avx512vl")]
        fn load8<const N: usize, T>(column: &[T; N], at: usize) -> __m256i {
            const { assert!(size_of::<T>() == 4) };
            let eight = &column[at..at + 8];
            // SAFETY: `eight` is 32 octets of plain numbers; the load needs no alignment.
            unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) }
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn unmet16<const N: usize>(key: u32, value: &[u32; N], mask: &[u32; N], at: usize) -> __m512i {
            let key = _mm512_set1_epi32(key as i32);
            _mm512_ternarylogic_epi32::<AND_XOR>(load16(mask, at), key, load16(value, at))
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512vl")]
        fn unmet8<const N: usize>(key: u32, value: &[u32; N], mask: &[u32; N], at: usize) -> __m256i {
            let key = _mm256_set1_epi32(key as i32);
            _mm256_ternarylogic_epi32::<AND_XOR>(load8(mask, at), key, load8(value, at))
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512vl")]
        pub(super) fn pair<const N: usize>(words: Words, rules: &Columns<N>) -> u32 {
            let [first, second] = words.pair;
            if N == 8 {
                let first = unmet8(first, &rules.first_value, &rules.first_mask, 0);
                let second = unmet8(second, &rules.second_value, &rules.second_mask, 0);
                let unmet = _mm256_or_si256(first, second);
                return _mm256_testn_epi32_mask(unmet, unmet).into();
            }
            let mut bits = 0;
            for at in (0..N).step_by(16) {
                let first = unmet16(first, &rules.first_value, &rules.first_mask, at);
                let second = unmet16(second, &rules.second_value, &rules.second_mask, at);
                let unmet = _mm512_or_si512(first, second);
                bits |= u32::from(_mm512_testn_epi32_mask(unmet, unmet)) << at;
            }
            bits
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512vl")]
        pub(super) fn word<const N: usize>(key: u32, rules: &Word<N>) -> u32 {
            if N == 8 {
                let unmet = unmet8(key, &rules.value, &rules.mask, 0);
                return _mm256_testn_epi32_mask(unmet, unmet).into();
            }
            let mut bits = 0;
            for at in (0..N).step_by(16) {
                let unmet = unmet16(key, &rules.value, &rules.mask, at);
                bits |= u32::from(_mm512_testn_epi32_mask(unmet, unmet)) << at;
            }
            bits
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        pub(super) fn all<const N: usize>(words: Words, rules: &Columns<N>) -> u32 {
            let [first, second] = words.pair;
            if N == 8 {
                let first = unmet8(first, &rules.first_value, &rules.first_mask, 0);
                let second = unmet8(second, &rules.second_value, &rules.second_mask, 0);
                let protocol = unmet8(words.protocol, &rules.protocol_value, &rules.protocol_mask, 0);
                let ports =
                    _mm256_sub_epi16(_mm256_set1_epi32(words.ports as i32), load8(&rules.ports_from, 0));
                let ports = _mm256_subs_epu16(ports, load8(&rules.ports_span, 0));
                let unmet = _mm256_ternarylogic_epi32::<OR>(first, second, protocol);
                let unmet = _mm256_or_si256(unmet, ports);
                return _mm256_testn_epi32_mask(unmet, unmet).into();
            }
            let mut bits = 0;
            for at in (0..N).step_by(16) {
                let first = unmet16(first, &rules.first_value, &rules.first_mask, at);
                let second = unmet16(second, &rules.second_value, &rules.second_mask, at);
                let protocol = unmet16(words.protocol, &rules.protocol_value, &rules.protocol_mask, at);
                let ports =
                    _mm512_sub_epi16(_mm512_set1_epi32(words.ports as i32), load16(&rules.ports_from, at));
                let ports = _mm512_subs_epu16(ports, load16(&rules.ports_span, at));
                let unmet = _mm512_ternarylogic_epi32::<OR>(first, second, protocol);
                let unmet = _mm512_or_si512(unmet, ports);
                bits |= u32::from(_mm512_testn_epi32_mask(unmet, unmet)) << at;
            }
            bits
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every answer of `c` is that of the scalar loops.
    fn agrees<const N: usize>(c: impl Compare) {
        let mut state = N as u64;
        let mut bits = || {
            // splitmix64
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ z >> 31) as u32
        };
        let mut matches = 0;
        for _ in 0..5_000 {
            let rules = Columns::<N>::any(&mut bits);
            let words = Words { pair: [bits(), bits()], protocol: bits(), ports: bits() };
            assert_eq!(c.pair(words, &rules), Scalar.pair(words, &rules));
            assert_eq!(c.all(words, &rules), Scalar.all(words, &rules));
            matches += Scalar.all(words, &rules).count_ones();
            let tags = std::array::from_fn(|_| bits() % 4);
            assert_eq!(c.tagged(1, &tags), Scalar.tagged(1, &tags));
        }
        assert!(matches > 0, "some packets match");
    }

    #[test]
    fn vector_comparisons_agree_with_scalar_ones() {
        agrees::<8>(Scalar);
        agrees::<16>(Scalar);
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(c) = x86::Avx2::new() {
                agrees::<8>(c);
                agrees::<16>(c);
            }
            if let Some(c) = x86::Avx512::new() {
                agrees::<8>(c);
                agrees::<16>(c);
            }
        }
    }
}
