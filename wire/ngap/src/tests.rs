//! Properties of the whole codec over messages made at random.

use proptest::prelude::*;

use crate::aper::sample::Source;
use crate::{Message, peek};

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parse_of_emit_is_the_message(seed: u64) {
        let message = Message::sample(&mut Source::new(seed));
        let octets = message.to_vec();
        let parsed = Message::decode(&octets).map_err(|e| TestCaseError::fail(format!("{e} in {message:?}")))?;
        prop_assert_eq!(&parsed, &message);
        prop_assert_eq!(parsed.to_vec(), octets.clone());
        let peek = peek(&octets).unwrap();
        prop_assert_eq!(peek.procedure_code, message.procedure_code());
        prop_assert_eq!(peek.kind, message.kind());
    }
}
