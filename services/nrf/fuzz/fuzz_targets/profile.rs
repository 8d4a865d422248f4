//! A profile of any octets is refused, or found as it was registered.
#![no_main]

use whimbrel_ids::Instant;
use whimbrel_nrf::{DiscoveryParameters, Nrf, NrfIdentity, StoredProfile};
use whimbrel_sbi_types::nnrf::{NfProfile, NfStatus, NfType};

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    let Ok(json) = serde_json::from_slice(octets) else { return };
    let Ok(stored) = StoredProfile::read(json) else { return };
    stored.addresses();
    let id = "00000000-0000-4000-8000-0000000000ff".parse().unwrap();
    let profile = NfProfile::new(id, NfType::Nrf, NfStatus::Registered);
    let plmn = serde_json::from_str(r#"{"mcc":"999","mnc":"70"}"#).unwrap();
    let root = "http://192.0.2.1".into();
    let mut nrf = Nrf::new(NrfIdentity { profile, root, plmn, demands_heartbeats: true }).unwrap();
    let (id, nf_type) = (stored.id(), stored.profile().nf_type.clone());
    let Ok(registered) = nrf.register(Instant::ZERO, &id, stored) else { return };
    assert_eq!(nrf.profile(&id), Ok(registered.profile));
    if let Ok(query) = DiscoveryParameters::read(&format!("target-nf-type={nf_type}&requester-nf-type=AMF")) {
        assert!(nrf.discover(&query)["nfInstances"].as_array().unwrap().len() <= 2);
    }
});
