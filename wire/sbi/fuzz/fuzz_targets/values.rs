//! A text that is understood as a value is understood the same when it is written again.
#![no_main]

use core::fmt::{Debug, Display};
use core::str::FromStr;

use whimbrel_sbi_types::common::{
    AmfId, AmfSetId, Base64Octets, SbiBitRate, DateTime, Fqdn, Ipv6Prefix, RatType, SnssaiKey, Supi, SupportedFeatures,
    Tac, Uri,
};
use whimbrel_sbi_types::nnrf::push_encoded;
use whimbrel_sbi_types::nudm_ueau::{ServingNetworkName, Xres};

fn check<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string().parse().ok().as_ref(), Some(&value));
    }
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    check::<AmfId>(text);
    check::<AmfSetId>(text);
    check::<Base64Octets<64>>(text);
    check::<SbiBitRate>(text);
    check::<DateTime>(text);
    check::<Fqdn>(text);
    check::<Ipv6Prefix>(text);
    check::<RatType>(text);
    check::<ServingNetworkName>(text);
    check::<Supi>(text);
    check::<Tac>(text);
    check::<Uri>(text);
    check::<Xres>(text);
    if let Ok(features) = text.parse::<SupportedFeatures>() {
        (0..300).for_each(|number| drop(features.has(number)));
    }
    if let Ok(key) = text.parse::<SnssaiKey>() {
        key.snssai();
    }
    let mut encoded = String::new();
    push_encoded(&mut encoded, text);
    assert!(encoded.is_ascii() && encoded.len() <= text.len() * 3);
});
