//! What the fuzzer does to a proof, and what it kept: `fuzz/seeds/verify`.
//!
//! The first octet says what the rest is: 0: octets in place of a proof; else: changes of a true one, each a kind (one octet), a place (three
//! octets) and an octet.

use std::sync::OnceLock;

use whimbrel_claims::{Claim, ClaimSecret, Row, Slots, Table, nonce, prove, verify};

fn proved() -> &'static (Claim, Vec<u8>) {
    static PROVED: OnceLock<(Claim, Vec<u8>)> = OnceLock::new();
    PROVED.get_or_init(|| {
        let secrets = [1, 2, 3].map(|n| ClaimSecret::new(&[n; 32]));
        let mut rows = secrets.map(|secret| Row { nonce: nonce(&secret), units: 9 });
        rows.sort();
        let table = Table::new(rows.to_vec()).expect("three rows are a table");
        let slots = Slots::new(Slots::MIN).expect("the fewest slots");
        prove(&table, &secrets[..2], slots, [7; 32], &[1; 32]).expect("both stand in the table")
    })
}

/// Judges one input.
pub fn judge(octets: &[u8]) {
    let Some((first, rest)) = octets.split_first() else { return };
    let (claim, proof) = proved();
    if *first == 0 {
        assert!(verify(claim, rest).is_err());
        return;
    }
    let mut changed = proof.clone();
    for [kind, high, middle, low, octet] in rest.as_chunks::<5>().0 {
        if changed.is_empty() {
            break;
        }
        let at = u32::from_be_bytes([0, *high, *middle, *low]) as usize % changed.len();
        match kind % 4 {
            0 => changed[at] ^= octet,
            1 => changed[at] = *octet,
            2 => changed.truncate(at),
            _ => changed.insert(at, *octet),
        }
    }
    assert_eq!(verify(claim, &changed).is_ok(), changed == *proof);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "what was kept is in files")]
fn what_the_fuzzer_kept_is_refused() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/verify");
    let mut judged = 0;
    for file in std::fs::read_dir(seeds).expect("the folder is there") {
        let path = file.expect("it is read").path();
        judge(&std::fs::read(&path).expect("it is read"));
        judged += 1;
    }
    assert!(judged >= 4, "{judged}");
}

#[test]
fn a_proof_with_a_changed_octet_is_not_believed() {
    let length = proved().1.len() as u32;
    for (n, at) in (0..length).step_by(length as usize / 150).enumerate() {
        let [_, high, middle, low] = at.to_be_bytes();
        judge(&[1, n as u8 % 4, high, middle, low, 0x80 | n as u8]);
    }
}
