//! Milenage: the authentication and key functions of TS 35.206.
//!
//! A [`Milenage`] holds the AES key schedule of one subscriber, so that all of a vector costs seven blocks.

use core::fmt;

use aes::Aes128Enc;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

use crate::aka::{AuthenticationManagementField, Rand};
use crate::secret::secret;
use crate::sqn::Sqn;

secret!(
    /// The subscriber's permanent key K (TS 33.501 §6.2.1).
    K,
    16
);
secret!(
    /// The operator's variant constant OP (TS 35.206 §5.1).
    Op,
    16
);
secret!(
    /// OP enciphered under K, as a USIM holds it (TS 35.206 §4.1).
    Opc,
    16
);
secret!(
    /// Cipher key CK: the output of f3.
    Ck,
    16
);
secret!(
    /// Integrity key IK: the output of f4.
    Ik,
    16
);
secret!(
    /// Anonymity key AK: the output of f5 or f5*.
    Ak,
    6
);
secret!(
    /// Network authentication code: MAC-A of f1 or MAC-S of f1*.
    Mac,
    8
);
secret!(
    /// Response RES: the output of f2.
    Res,
    8
);

impl Opc {
    /// OPc = OP ⊕ E_K(OP) (TS 35.206 §4.1).
    pub fn derive(k: &K, op: &Op) -> Self {
        let aes = Aes128Enc::new(k.octets().into());
        Self(xor(encrypt(&aes, *op.octets()), *op.octets()))
    }
}

/// What RAND alone determines: f2 to f5.
#[derive(Debug)]
pub struct F2345 {
    /// The response RES.
    pub res: Res,
    /// The ciphering key CK.
    pub ck: Ck,
    /// The integrity key IK.
    pub ik: Ik,
    /// The anonymity key AK.
    pub ak: Ak,
}

/// The functions of one subscriber, keyed with K and OPc.
#[derive(Clone)]
pub struct Milenage {
    aes: Aes128Enc,
    opc: Opc,
}

impl fmt::Debug for Milenage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Milenage(…)")
    }
}

impl Milenage {
    /// Keyed with K and OPc.
    pub fn new(k: &K, opc: Opc) -> Self {
        Self { aes: Aes128Enc::new(k.octets().into()), opc }
    }

    /// Keyed with K and OP.
    pub fn from_op(k: &K, op: &Op) -> Self {
        Self::new(k, Opc::derive(k, op))
    }

    /// The function f1: MAC-A.
    pub fn f1(&self, rand: &Rand, sqn: Sqn, amf: AuthenticationManagementField) -> Mac {
        let temp = self.temp(rand);
        Mac(first(self.out(self.in1(&temp, sqn, amf))))
    }

    /// The function f1*: MAC-S.
    pub fn f1_star(&self, rand: &Rand, sqn: Sqn, amf: AuthenticationManagementField) -> Mac {
        let temp = self.temp(rand);
        Mac(last(self.out(self.in1(&temp, sqn, amf))))
    }

    /// RES, CK, IK and AK: f2 to f5.
    pub fn f2345(&self, rand: &Rand) -> F2345 {
        let temp = self.temp(rand);
        let mut blocks = self.in_2_to_4(&temp).map(Into::into);
        self.aes.encrypt_blocks(&mut blocks);
        let [out2, out3, out4] = blocks.map(|b: aes::Block| xor(b.into(), *self.opc.octets()));
        F2345 { res: Res(last(out2)), ck: Ck::new(out3), ik: Ik::new(out4), ak: Ak(first(out2)) }
    }

    /// MAC-A and all of f2 to f5 at once, as a vector needs them.
    pub fn f12345(&self, rand: &Rand, sqn: Sqn, amf: AuthenticationManagementField) -> (Mac, F2345) {
        let temp = self.temp(rand);
        let [in2, in3, in4] = self.in_2_to_4(&temp);
        let mut blocks = [self.in1(&temp, sqn, amf), in2, in3, in4].map(Into::into);
        self.aes.encrypt_blocks(&mut blocks);
        let [out1, out2, out3, out4] = blocks.map(|b: aes::Block| xor(b.into(), *self.opc.octets()));
        let rest = F2345 { res: Res(last(out2)), ck: Ck::new(out3), ik: Ik::new(out4), ak: Ak(first(out2)) };
        (Mac(first(out1)), rest)
    }

    /// AK for resynchronisation: f5*.
    pub fn f5_star(&self, rand: &Rand) -> Ak {
        let temp = self.temp(rand);
        Ak(first(self.out(self.input(&temp, R5, 8))))
    }

    /// TEMP = E_K(RAND ⊕ OPc).
    fn temp(&self, rand: &Rand) -> [u8; 16] {
        encrypt(&self.aes, xor(rand.0, *self.opc.octets()))
    }

    /// What is enciphered for OUT1: TEMP ⊕ rot(IN1 ⊕ OPc, r1) ⊕ c1.
    fn in1(&self, temp: &[u8; 16], sqn: Sqn, amf: AuthenticationManagementField) -> [u8; 16] {
        let mut in1 = [0; 16];
        in1[..6].copy_from_slice(&sqn.octets());
        in1[6..8].copy_from_slice(&amf.0);
        in1.copy_within(..8, 8);
        // c1 is zero.
        xor(*temp, rotate(xor(in1, *self.opc.octets()), R1))
    }

    /// What is enciphered for OUT2, OUT3 and OUT4.
    fn in_2_to_4(&self, temp: &[u8; 16]) -> [[u8; 16]; 3] {
        [self.input(temp, R2, 1), self.input(temp, R3, 2), self.input(temp, R4, 4)]
    }

    /// rot(TEMP ⊕ OPc, r) ⊕ c, where c is zero but for its last octet.
    fn input(&self, temp: &[u8; 16], r: u32, c: u8) -> [u8; 16] {
        let mut x = rotate(xor(*temp, *self.opc.octets()), r);
        x[15] ^= c;
        x
    }

    fn out(&self, input: [u8; 16]) -> [u8; 16] {
        xor(encrypt(&self.aes, input), *self.opc.octets())
    }
}

// Rotations of TS 35.206 §4.1, in bits.
const R1: u32 = 64;
const R2: u32 = 0;
const R3: u32 = 32;
const R4: u32 = 64;
const R5: u32 = 96;

fn encrypt(aes: &Aes128Enc, block: [u8; 16]) -> [u8; 16] {
    let mut block = block.into();
    aes.encrypt_block(&mut block);
    block.into()
}

fn xor(a: [u8; 16], b: [u8; 16]) -> [u8; 16] {
    (u128::from_ne_bytes(a) ^ u128::from_ne_bytes(b)).to_ne_bytes()
}

/// Cyclic rotation towards the most significant bit.
fn rotate(x: [u8; 16], bits: u32) -> [u8; 16] {
    u128::from_be_bytes(x).rotate_left(bits).to_be_bytes()
}

fn first<const N: usize>(x: [u8; 16]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&x[..N]);
    out
}

fn last(x: [u8; 16]) -> [u8; 8] {
    let mut out = [0; 8];
    out.copy_from_slice(&x[8..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Line, lines, octets};

    fn check(set: &Line<'_>) {
        let [k, rand, sqn, amf, op, opc, f1, f1s, f2, f5, f3, f4, f5s] = set.fields();
        let k = K::new(octets(k));
        let m = Milenage::from_op(&k, &Op::new(octets(op)));
        assert_eq!(m.opc.octets(), &octets::<16>(opc), "OPc of {}", set.name);
        let (rand, amf) = (Rand(octets(rand)), AuthenticationManagementField(octets(amf)));
        let sqn = Sqn::from_octets(octets(sqn));
        assert_eq!(m.f1(&rand, sqn, amf).octets(), &octets::<8>(f1), "f1 of {}", set.name);
        assert_eq!(m.f1_star(&rand, sqn, amf).octets(), &octets::<8>(f1s), "f1* of {}", set.name);
        assert_eq!(m.f5_star(&rand).octets(), &octets::<6>(f5s), "f5* of {}", set.name);
        let (mac, all) = m.f12345(&rand, sqn, amf);
        assert_eq!(mac.octets(), &octets::<8>(f1));
        for out in [all, m.f2345(&rand)] {
            assert_eq!(out.res.octets(), &octets::<8>(f2), "f2 of {}", set.name);
            assert_eq!(out.ck.octets(), &octets::<16>(f3), "f3 of {}", set.name);
            assert_eq!(out.ik.octets(), &octets::<16>(f4), "f4 of {}", set.name);
            assert_eq!(out.ak.octets(), &octets::<6>(f5), "f5 of {}", set.name);
        }
    }

    #[test] // TS 35.208 §4.3
    fn all_conformance_sets() {
        let sets = lines(include_str!("../testdata/milenage.txt"));
        assert_eq!(sets.len(), 20);
        sets.iter().for_each(check);
    }
}
