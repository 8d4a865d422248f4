//! Any octets as the file of a predictor, unsigned and signed by a trusted key: what is read is written again in the same octets.
#![no_main]

use ed25519_dalek::{Signer, SigningKey};
use libfuzzer_sys::fuzz_target;
use whimbrel_prediction::{TrainedNetwork, public_key};

const SEED: [u8; 32] = [7; 32];

fuzz_target!(|octets: &[u8]| {
    let trusted = [public_key(&SEED)];
    let _ = TrainedNetwork::from_file(octets, &trusted);
    let mut signed = octets.to_vec();
    signed.extend(SigningKey::from_bytes(&SEED).sign(octets).to_bytes());
    if let Ok(network) = TrainedNetwork::from_file(&signed, &trusted) {
        assert_eq!(network.to_file(&SEED), signed);
    }
});
