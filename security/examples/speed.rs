//! Prints what the operations of a registration cost on this machine, in nanoseconds: the best of many batches.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use whimbrel_ids::PlmnId;
use whimbrel_security::{
    Abba, AkaFunctions, AuthenticationManagementField, AuthenticationVector, Bearer, CipheringAlgorithm,
    Direction, HomeNetworkPrivateKey, IntegrityAlgorithm, K, KAmf, Milenage, NasCounts, NasSecurityContext,
    NasSide, Opc, Rand, SecurityHeaderType, ServingNetworkName, Sqn, nea::Nea, nia::Nia,
};

fn measure(what: &str, per_batch: u32, mut f: impl FnMut()) {
    let mut batches: Vec<f64> = (0..41)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..per_batch {
                f();
            }
            start.elapsed().as_nanos() as f64 / f64::from(per_batch)
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    println!("{what:<48} {:>9.0} ns", batches[0]);
}

fn main() {
    let (k, opc) = (K::new([1; 16]), Opc::new([2; 16]));
    let milenage: AkaFunctions = Milenage::new(&k, opc.clone()).into();
    let name = ServingNetworkName::new(PlmnId::TEST);
    let amf = AuthenticationManagementField::FIVE_G;
    let vector =
        |m: &AkaFunctions| AuthenticationVector::generate(m, Rand([3; 16]), Sqn::new(5, 1), amf, &name);
    measure("5G-AKA vector, keyed subscriber", 2_000, || drop(black_box(vector(black_box(&milenage)))));
    measure("5G-AKA vector, K and OPc", 2_000, || {
        drop(black_box(vector(&Milenage::new(black_box(&k), opc.clone()).into())))
    });
    measure("Milenage f1 to f5, keyed subscriber", 2_000, || {
        drop(black_box(milenage.f12345(black_box(&Rand([3; 16])), Sqn::new(5, 1), amf)));
    });
    let v = vector(&milenage);
    let supi = "imsi-999700000000001".parse().expect("a SUPI");
    measure("K_AMF", 2_000, || drop(black_box(v.k_seaf.k_amf(black_box(supi), Abba::RELEASE_15))));
    let k_amf = KAmf::new([4; 32]);
    let message = [0u8; 64];
    for (c, i) in CipheringAlgorithm::ALL.into_iter().zip(IntegrityAlgorithm::ALL).skip(1) {
        let (nea, nia) = (Nea::new(c, &[5; 16]), Nia::new(i, &[6; 16]));
        let mut data = message;
        measure(&format!("{c:?} of 64 octets"), 2_000, || {
            nea.apply(black_box(7), Bearer::NAS_3GPP, Direction::Uplink, black_box(&mut data));
        });
        measure(&format!("{i:?} of 64 octets"), 2_000, || {
            black_box(nia.mac(black_box(7), Bearer::NAS_3GPP, Direction::Uplink, black_box(&message)));
        });
    }
    let (c, i) = (CipheringAlgorithm::Nea2, IntegrityAlgorithm::Nia2);
    let context =
        || NasSecurityContext::new(NasSide::Network, Bearer::NAS_3GPP, &k_amf, c, i, NasCounts::default());
    let mut out = Vec::new();
    measure("a NAS context and its first message", 2_000, || {
        out.clear();
        let header = SecurityHeaderType::IntegrityProtectedAndCiphered;
        let _ = black_box(context().protect(header, &message, &mut out));
    });
    let mut amf = context();
    measure("protect 64 octets", 2_000, || {
        out.clear();
        let _ = black_box(amf.protect(SecurityHeaderType::IntegrityProtectedAndCiphered, &message, &mut out));
    });
    let b = HomeNetworkPrivateKey::profile_b(&[7; 32]).expect("a key under the order");
    for (what, key) in [("A", HomeNetworkPrivateKey::profile_a([7; 32])), ("B", b)] {
        let suci = key.public_key().conceal(&[8; 32], &[0x12, 0x34, 0x56, 0x78, 0x90]).expect("concealed");
        measure(&format!("SUCI of profile {what} revealed"), 50, || {
            drop(black_box(key.deconceal(black_box(&suci))))
        });
    }
}
