//! Each text of the form that a type's schema states is read by that type.

use proptest::prelude::*;
use proptest::string::string_regex;
use whimbrel_ids::{Dnn, SNssai, Supi};
use whimbrel_store::{BitRate, Msisdn, TextForm};

/// Texts of a type's form.
fn texts<T: TextForm>() -> impl Strategy<Value = String> {
    let inner =
        T::PATTERN.strip_prefix('^').and_then(|p| p.strip_suffix('$')).expect("anchored at both ends");
    let most = T::LENGTH_MAX.unwrap_or(usize::MAX);
    string_regex(inner).unwrap().prop_filter("its longest text", move |text| text.len() <= most)
}

proptest! {
    #[test]
    fn supis_of_their_form_are_read(text in texts::<Supi>()) {
        prop_assert!(text.parse::<Supi>().is_ok(), "{text}");
    }

    #[test]
    fn slices_of_their_form_are_read(text in texts::<SNssai>()) {
        prop_assert!(text.parse::<SNssai>().is_ok(), "{text}");
    }

    #[test]
    fn data_network_names_of_their_form_are_read(text in texts::<Dnn>()) {
        prop_assert!(text.parse::<Dnn>().is_ok(), "{text}");
    }

    #[test]
    fn bit_rates_of_their_form_are_read(text in texts::<BitRate>()) {
        prop_assert!(text.parse::<BitRate>().is_ok(), "{text}");
    }

    #[test]
    fn msisdns_of_their_form_are_read(text in texts::<Msisdn>()) {
        prop_assert!(text.parse::<Msisdn>().is_ok(), "{text}");
    }
}
