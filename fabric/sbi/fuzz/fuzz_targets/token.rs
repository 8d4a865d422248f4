//! A token of any octets is refused, and so are any octets for a key.
#![no_main]

use std::sync::LazyLock;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use whimbrel_sbi::token::TokenVerifier;
use whimbrel_sbi_types::common::DateTime;
use whimbrel_sbi_types::nnrf::{NfType, ServiceName};

fn verifier(pem: &[u8]) -> Result<TokenVerifier, String> {
    let id = "00000000-0000-4000-8000-000000000001".parse().map_err(|_| "no identity")?;
    TokenVerifier::new(pem, NfType::Udm, id)
}

static VERIFIER: LazyLock<TokenVerifier> = LazyLock::new(|| {
    verifier(include_bytes!("../../testdata/nrf-rsa.pem")).expect("a certificate").accepting_missing_audience()
});

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    let _ = verifier(octets);
    let Ok(value) = HeaderValue::from_bytes(octets) else { return };
    let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
    let known = include_str!("../../testdata/rs512-free5gc.jwt");
    if VERIFIER.check(&headers, &ServiceName::NudmSdm, DateTime::from_unix_ms(0)).is_ok() {
        let text = String::from_utf8_lossy(octets);
        assert!(text.contains(known) || text.contains(include_str!("../../testdata/rs256.jwt")), "a forged token");
    }
});
