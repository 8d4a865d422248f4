//! Any octets: decode, encode, decode again; the transfers too. `cargo +nightly fuzz run message`
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_ngap::*;

macro_rules! transfers {
    ($octets:ident: $($t:ident),* $(,)?) => { $(
        if let Ok(v) = $t::decode($octets) {
            assert_eq!($t::decode(&v.to_vec()), Ok(v));
        }
    )* };
}

fuzz_target!(|octets: &[u8]| {
    let _ = peek(octets);
    match Message::decode(octets) {
        Ok(message) => assert_eq!(Message::decode(&message.to_vec()), Ok(message)),
        Err(refusal) => {
            if let Some(answer) = refusal.error_indication() {
                let answer = Message::from(answer);
                assert_eq!(Message::decode(&answer.to_vec()), Ok(answer));
            }
        }
    }
    transfers!(octets: PduSessionResourceSetupRequestTransfer, PduSessionResourceSetupResponseTransfer,
        PduSessionResourceModifyRequestTransfer, PduSessionResourceModifyResponseTransfer,
        PduSessionResourceReleaseResponseTransfer, PduSessionResourceNotifyTransfer,
        PathSwitchRequestTransfer, PathSwitchRequestAcknowledgeTransfer,
        HandoverCommandTransfer, HandoverRequestAcknowledgeTransfer);
});
