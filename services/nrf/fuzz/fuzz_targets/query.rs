//! Queries and forms of any text are read or refused, and what is read finds instances within its bounds.
#![no_main]

use std::sync::LazyLock;

use whimbrel_ids::Instant;
use whimbrel_nrf::query::list_parameters;
use whimbrel_nrf::{DiscoveryParameters, Nrf, NrfIdentity, StoredProfile};
use whimbrel_sbi_types::nnrf::{NfProfile, NfStatus, NfType};

static NRF: LazyLock<Nrf> = LazyLock::new(|| {
    let id = "00000000-0000-4000-8000-0000000000ff".parse().unwrap();
    let profile = NfProfile::new(id, NfType::Nrf, NfStatus::Registered);
    let plmn = serde_json::from_str(r#"{"mcc":"999","mnc":"70"}"#).unwrap();
    let root = "http://192.0.2.1".into();
    let mut nrf = Nrf::new(NrfIdentity { profile, root, plmn, demands_heartbeats: true }).unwrap();
    for line in include_str!("../../../../wire/sbi/testdata/recorded.jsonl").lines() {
        let exchange: serde_json::Value = serde_json::from_str(line).unwrap();
        let body = serde_json::from_str(exchange["body"].as_str().unwrap_or_default()).unwrap_or_default();
        if let Ok(profile) = StoredProfile::read(body) {
            let id = profile.id();
            let _ = nrf.register(Instant::ZERO, &id, profile);
        }
    }
    nrf
});

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = list_parameters(text);
    let _ = NRF.token(Instant::ZERO, text.as_bytes());
    let whole = DiscoveryParameters::read(text);
    let added = DiscoveryParameters::read(&format!("target-nf-type=AMF&requester-nf-type=UDM&{text}"));
    for query in [whole, added].into_iter().flatten() {
        let result = NRF.discover(&query);
        let found = result["nfInstances"].as_array().unwrap().len();
        assert!(query.limit.is_none_or(|limit| found <= limit));
        assert!(found == 0 || serde_json::to_vec(&result).unwrap().len() <= query.payload_octets_max);
    }
});
