use super::*;
use crate::testing::{bytes, octets};
use proptest::prelude::*;

// Home network keys and ephemeral keys of TS 33.501 Annex C.4.3 and C.4.4.
const PRIVATE_A: &str = "c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d";
const PUBLIC_A: &str = "5a8d38864820197c3394b92613b20b91633cbd897119273bf8e4a6f4eec0a650";
const EPHEMERAL_A: &str = "c80949f13ebe61af4ebdbd293ea4f942696b9e815d7e8f0096bbf6ed7de62256";
const OUTPUT_A: &str =
    "b2e92f836055a255837debf850b528997ce0201cb82adfe4be1f587d07d8457dcb02352410cddd9e730ef3fa87";
const PRIVATE_B: &str = "f1ab1074477ebcc7f554ea1c5fc368b1616730155e0041ac447d6301975fecda";
const PUBLIC_B: &str = "0472da71976234ce833a6907425867b82e074d44ef907dfb4b3e21c1c2256ebcd15a7ded52fcbb097a4ed250e036c7b9c8c7004c4eedc4f068cd7bf8d3f900e3b4";
const EPHEMERAL_B: &str = "99798858a1dc6a2c68637149a4b1dbfd1fdff5addd62a2142f06699ed7602529";
const OUTPUT_B: &str =
    "039aab8376597021e855679a9778ea0b67396e68c66df32c0f41e9acca2da9b9d146a33fc2716ac7dae96aa30a4d";

fn private_a() -> HomeNetworkPrivateKey {
    HomeNetworkPrivateKey::profile_a(octets(PRIVATE_A))
}

fn private_b() -> HomeNetworkPrivateKey {
    HomeNetworkPrivateKey::profile_b(&octets(PRIVATE_B)).unwrap()
}

fn plmn() -> PlmnId {
    "274/012".parse().unwrap()
}

fn keys() -> HomeNetworkKeys {
    let mut keys = HomeNetworkKeys::new();
    keys.insert(27, private_a());
    keys.insert(27, private_b());
    keys
}

#[test] // TS 33.501 §C.3.4.1, §C.3.4.2, §6.12.2: the sets of Annex C.4
fn published_sets_are_revealed() {
    let supi: Supi = "imsi-274012001002086".parse().unwrap();
    for (scheme, output) in [(ProtectionScheme::ProfileA, OUTPUT_A), (ProtectionScheme::ProfileB, OUTPUT_B)] {
        assert_eq!(keys().deconceal(plmn(), scheme, 27, &bytes(output)), Ok(supi));
    }
    let msin = msin_of_supi(plmn(), supi).unwrap();
    assert_eq!(msin, bytes("00012080f6"));
    assert_eq!(keys().deconceal(plmn(), ProtectionScheme::Null, 0, &msin), Ok(supi));
}

#[test] // TS 33.501 §C.3.4.1, §C.3.4.2: the sets of Annex C.4
fn published_sets_are_concealed() {
    assert_eq!(private_a().public_key().octets(), bytes(PUBLIC_A));
    let b = HomeNetworkPublicKey::profile_b(&bytes(PUBLIC_B)).unwrap();
    assert_eq!(private_b().public_key(), b);
    assert_eq!(HomeNetworkPublicKey::profile_b(&b.octets()).unwrap(), b);
    let msin = bytes("00012080f6");
    assert_eq!(private_a().public_key().conceal(&octets(EPHEMERAL_A), &msin).unwrap(), bytes(OUTPUT_A));
    assert_eq!(b.conceal(&octets(EPHEMERAL_B), &msin).unwrap(), bytes(OUTPUT_B));
}

#[test] // TS 33.501 Annex C.3.4.2; TS 33.514 §4.2.1.3: point compression is part of profile B
fn profile_b_takes_compressed_points_alone() {
    let compressed = bytes(OUTPUT_B);
    let point = p256::PublicKey::from_sec1_bytes(&compressed[..33]).unwrap();
    let mut output = point.to_sec1_point(false).as_bytes().to_vec();
    output.extend_from_slice(&compressed[33..]);
    assert!(private_b().deconceal(&output).is_err());
}

#[test] // TS 33.514 §4.2.1.2: no point of the curve; and others
fn each_failure_has_its_error() {
    let mut wrong = bytes(OUTPUT_A);
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(private_a().deconceal(&wrong), Err(SuciError::TagMismatch));
    let foreign = HomeNetworkPrivateKey::profile_a([0x42; 32]);
    assert_eq!(foreign.deconceal(&bytes(OUTPUT_A)), Err(SuciError::TagMismatch));
    assert_eq!(private_a().deconceal(&[0; 39]), Err(SuciError::InvalidLength));
    assert_eq!(private_a().deconceal(&[0; 40]), Err(SuciError::InvalidPublicKey));
    assert_eq!(private_b().deconceal(&[0xff; 46]), Err(SuciError::InvalidPublicKey));
    assert!(matches!(HomeNetworkPrivateKey::profile_b(&[0; 32]), Err(SuciError::InvalidPrivateKey)));
    let unknown = SuciError::UnknownKey { scheme: ProtectionScheme::ProfileA, key_id: 1 };
    assert_eq!(keys().deconceal(plmn(), ProtectionScheme::ProfileA, 1, &bytes(OUTPUT_A)), Err(unknown));
    for msin in ["", "0a", "fa", "f0f1", "0000000000000000"] {
        let supi = keys().deconceal(plmn(), ProtectionScheme::Null, 0, &bytes(msin));
        assert_eq!(supi, Err(SuciError::InvalidMsin), "{msin}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_concealed_is_revealed(private in any::<[u8; 32]>(), ephemeral in any::<[u8; 32]>(), n in 0u64..10_000_000_000) {
        let supi: Supi = format!("99970{n:010}").parse().unwrap();
        let msin = msin_of_supi(PlmnId::TEST, supi).unwrap();
        let mut keys = HomeNetworkKeys::new();
        keys.insert(1, HomeNetworkPrivateKey::profile_a(private));
        if let Ok(key) = HomeNetworkPrivateKey::profile_b(&private) {
            keys.insert(1, key);
        }
        for key in keys.0.values() {
            let output = key.public_key().conceal(&ephemeral, &msin).unwrap();
            prop_assert_eq!(keys.deconceal(PlmnId::TEST, key.scheme(), 1, &output), Ok(supi));
        }
    }

    #[test]
    fn any_octets_are_answered(scheme in 0u8..3, output in proptest::collection::vec(any::<u8>(), 0..80)) {
        let scheme = ProtectionScheme::from_identifier(scheme).unwrap();
        let _ = keys().deconceal(plmn(), scheme, 27, &output);
    }
}
