//! TUAK: the authentication and key functions of TS 35.231, over one permutation of Keccak.
//!
//! A vector of 5G takes MAC, CK and IK of 64, 128 and 128 bits (TS 33.102 §6.3.7); RES is of 64 bits here, one iteration of
//! Keccak is applied, as USIMs have it unless their operator asks for more (TS 35.231 §6.2).

use core::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::aka::{AuthenticationManagementField, Rand};
use crate::milenage::{Ak, Ck, F2345, Ik, K, Mac, Res};
use crate::secret::secret;
use crate::sqn::Sqn;

secret!(
    /// The permanent key of a subscriber in its long form (TS 35.231 §6.1: 128 or 256 bits).
    K256,
    32
);
secret!(
    /// The operator's variant constant TOP (TS 35.231 §6.1).
    Top,
    32
);
secret!(
    /// TOP bound to the subscriber's key, as a USIM holds it (TS 35.231 §6.3).
    Topc,
    32
);

/// The permanent key in either length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LongTermKey {
    /// A key of 128 bits.
    K128(K),
    /// A key of 256 bits.
    K256(K256),
}

impl From<K> for LongTermKey {
    fn from(k: K) -> Self {
        LongTermKey::K128(k)
    }
}

impl LongTermKey {
    /// Its 16 or 32 octets: secret, so hand them only to what must hold them.
    pub fn octets(&self) -> &[u8] {
        match self {
            LongTermKey::K128(k) => k.octets(),
            LongTermKey::K256(k) => k.octets(),
        }
    }
}

impl Topc {
    /// TOPc of a key and TOP (TS 35.231 §6.3).
    pub fn derive(k: &LongTermKey, top: &Top) -> Self {
        Self::iterated(k, top, ITERATIONS)
    }

    fn iterated(k: &LongTermKey, top: &Top, iterations: u32) -> Self {
        let state = permute(k, top.octets(), 0, None, iterations);
        Self::new(state.take(0))
    }
}

/// The functions of one subscriber, keyed with K and TOPc.
#[derive(Clone)]
pub struct Tuak {
    k: LongTermKey,
    topc: Topc,
}

impl fmt::Debug for Tuak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tuak(…)")
    }
}

/// How often the permutation is applied (TS 35.231 §6.2).
const ITERATIONS: u32 = 1;

// INSTANCE: which function, with outputs of which lengths (TS 35.231 §6.4 to §6.6), its first bit the most significant.
const INSTANCE_F1_STAR: u8 = 0x80;
const INSTANCE_F2345: u8 = 0x40;
const INSTANCE_F5_STAR: u8 = 0xc0;
/// MAC, or RES, of 64 bits; 128 and 256 are the next bits.
const INSTANCE_64: u8 = 0x08;
const INSTANCE_KEY_256: u8 = 0x01;

/// Where f2 to f5 find their outputs in the permuted state, in octets (TS 35.231 §6.5).
const AT_RES: usize = 0;
const AT_CK: usize = 32;
const AT_IK: usize = 64;
const AT_AK: usize = 96;

impl Tuak {
    /// Keyed with K and TOPc.
    pub fn new(k: LongTermKey, topc: Topc) -> Self {
        Self { k, topc }
    }

    /// Keyed with K and TOP.
    pub fn from_top(k: LongTermKey, top: &Top) -> Self {
        let topc = Topc::derive(&k, top);
        Self::new(k, topc)
    }

    /// The function f1: MAC-A.
    pub fn f1(&self, rand: &Rand, sqn: Sqn, amf: AuthenticationManagementField) -> Mac {
        Mac::new(self.run(INSTANCE_64, &Variable { rand, sqn, amf }).take(0))
    }

    /// The function f1*: MAC-S.
    pub fn f1_star(&self, rand: &Rand, sqn: Sqn, amf: AuthenticationManagementField) -> Mac {
        Mac::new(self.run(INSTANCE_F1_STAR | INSTANCE_64, &Variable { rand, sqn, amf }).take(0))
    }

    /// RES, CK, IK and AK: f2 to f5.
    pub fn f2345(&self, rand: &Rand) -> F2345 {
        let state = self.run(INSTANCE_F2345 | INSTANCE_64, &Variable::of(rand));
        F2345 {
            res: Res::new(state.take(AT_RES)),
            ck: Ck::new(state.take(AT_CK)),
            ik: Ik::new(state.take(AT_IK)),
            ak: Ak::new(state.take(AT_AK)),
        }
    }

    /// AK for resynchronisation: f5*.
    pub fn f5_star(&self, rand: &Rand) -> Ak {
        Ak::new(self.run(INSTANCE_F5_STAR, &Variable::of(rand)).take(AT_AK))
    }

    fn run(&self, instance: u8, input: &Variable<'_>) -> PermutedState {
        permute(&self.k, self.topc.octets(), instance, Some(input), ITERATIONS)
    }
}

/// What changes from challenge to challenge.
struct Variable<'a> {
    rand: &'a Rand,
    sqn: Sqn,
    amf: AuthenticationManagementField,
}

impl<'a> Variable<'a> {
    /// f2 to f5* know nothing of SQN and AMF.
    fn of(rand: &'a Rand) -> Self {
        Self { rand, sqn: Sqn::ZERO, amf: AuthenticationManagementField([0, 0]) }
    }
}

/// Octets of the state of Keccak-f[1600].
const STATE: usize = 200;
/// Octets of the rate beside a capacity of 512 bits: the padding ends there (TS 35.231 §7.2).
const RATE: usize = 136;
/// The name of the algorithm and its version, part of each input (TS 35.231 §6.2).
const ALGONAME: &[u8; 7] = b"TUAK1.0";

/// The permuted state, wiped when dropped.
struct PermutedState(Zeroizing<[u8; STATE]>);

impl PermutedState {
    /// `N` octets from `at` on: the standard numbers bits the other way round, so strings stand backwards in the state.
    fn take<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        for (to, from) in out.iter_mut().rev().zip(self.0.iter().skip(at)) {
            *to = *from;
        }
        out
    }
}

/// One input block and its permutation (TS 35.231 §6.2, §7).
fn permute(
    k: &LongTermKey,
    top_or_topc: &[u8; 32],
    instance: u8,
    variable: Option<&Variable<'_>>,
    iterations: u32,
) -> PermutedState {
    let mut block = Zeroizing::new([0; STATE]);
    let mut at = 0;
    let mut push = |octets: &[u8], width: usize| {
        for (to, from) in block[at..].iter_mut().zip(octets.iter().rev()) {
            *to = *from;
        }
        at += width;
    };
    let long = if matches!(k, LongTermKey::K256(_)) { INSTANCE_KEY_256 } else { 0 };
    push(top_or_topc, 32);
    push(&[instance | long], 1);
    push(ALGONAME, 7);
    match variable {
        Some(Variable { rand, sqn, amf }) => {
            push(&rand.0, 16);
            push(&amf.0, 2);
            push(&sqn.octets(), 6);
        }
        None => push(&[], 24),
    }
    push(k.octets(), 32);
    block[at] = 0x1f;
    block[RATE - 1] = 0x80;

    let mut lanes = [0u64; STATE / 8];
    for (lane, octets) in lanes.iter_mut().zip(block.chunks_exact(8)) {
        *lane = octets.iter().rev().fold(0, |v, &o| v << 8 | u64::from(o));
    }
    let keccak = keccak::Keccak::new();
    keccak.with_f1600(|f1600| (0..iterations).for_each(|_| f1600(&mut lanes)));
    for (octets, lane) in block.chunks_exact_mut(8).zip(lanes) {
        octets.copy_from_slice(&lane.to_le_bytes());
    }
    lanes.zeroize();
    PermutedState(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bytes, lines, octets};

    fn key(hex: &str) -> LongTermKey {
        if hex.len() == 64 {
            LongTermKey::K256(K256::new(octets(hex)))
        } else {
            LongTermKey::K128(K::new(octets(hex)))
        }
    }

    /// The bits of INSTANCE for an output of so many octets; 32 bits have none.
    fn length(octets: usize) -> u8 {
        match octets {
            4 => 0,
            8 => 0x08,
            16 => 0x10,
            _ => 0x20,
        }
    }

    fn output(state: &PermutedState, at: usize, octets: usize) -> Vec<u8> {
        state.0[at..at + octets].iter().rev().copied().collect()
    }

    #[test] // TS 35.233 §6
    fn f1_and_f1_star_of_all_conformance_sets() {
        let sets = lines(include_str!("../testdata/tuak_f1.txt"));
        assert_eq!(sets.len(), 6);
        for set in &sets {
            let [n, k, rand, sqn, amf, top, topc, f1, f1s] = set.fields();
            let (n, k, rand) = (n.parse().unwrap(), key(k), Rand(octets(rand)));
            let found = Topc::iterated(&k, &Top::new(octets(top)), n);
            assert_eq!(found.octets(), &octets::<32>(topc), "TOPc of {}", set.name);
            let (sqn, amf) = (Sqn::from_octets(octets(sqn)), AuthenticationManagementField(octets(amf)));
            let mac = bytes(f1).len();
            for (which, expected) in [(0, f1), (INSTANCE_F1_STAR, f1s)] {
                let variable = Variable { rand: &rand, sqn, amf };
                let state = permute(&k, found.octets(), which | length(mac), Some(&variable), n);
                assert_eq!(output(&state, 0, mac), bytes(expected), "{}", set.name);
            }
            if n == ITERATIONS && mac == 8 {
                let tuak = Tuak::from_top(k, &Top::new(octets(top)));
                assert_eq!(tuak.f1(&rand, sqn, amf).octets(), &octets::<8>(f1));
                assert_eq!(tuak.f1_star(&rand, sqn, amf).octets(), &octets::<8>(f1s));
            }
        }
    }

    #[test] // TS 35.233 §7
    fn f2_to_f5_star_of_all_conformance_sets() {
        let sets = lines(include_str!("../testdata/tuak_f2345.txt"));
        assert_eq!(sets.len(), 6);
        for set in &sets {
            let [n, k, rand, top, f2, f3, f4, f5, f5s] = set.fields();
            let (n, k, rand) = (n.parse().unwrap(), key(k), Rand(octets(rand)));
            let topc = Topc::iterated(&k, &Top::new(octets(top)), n);
            let [res, ck, ik] = [f2, f3, f4].map(|f| bytes(f).len());
            let wide = u8::from(ck == 32) << 2 | u8::from(ik == 32) << 1;
            let variable = Variable::of(&rand);
            let state = permute(&k, topc.octets(), INSTANCE_F2345 | length(res) | wide, Some(&variable), n);
            assert_eq!(output(&state, AT_RES, res), bytes(f2), "f2 of {}", set.name);
            assert_eq!(output(&state, AT_CK, ck), bytes(f3), "f3 of {}", set.name);
            assert_eq!(output(&state, AT_IK, ik), bytes(f4), "f4 of {}", set.name);
            assert_eq!(output(&state, AT_AK, 6), bytes(f5), "f5 of {}", set.name);
            let state = permute(&k, topc.octets(), INSTANCE_F5_STAR, Some(&variable), n);
            assert_eq!(output(&state, AT_AK, 6), bytes(f5s), "f5* of {}", set.name);
            if (n, res, ck, ik) == (ITERATIONS, 8, 16, 16) {
                let found = Tuak::new(k, topc).f2345(&rand);
                assert_eq!(found.res.octets(), &octets::<8>(f2));
                assert_eq!(found.ck.octets(), &octets::<16>(f3));
                assert_eq!(found.ik.octets(), &octets::<16>(f4));
                assert_eq!(found.ak.octets(), &octets::<6>(f5));
            }
        }
    }
}
