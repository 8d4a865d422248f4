//! NETWORK SLICE-SPECIFIC AUTHENTICATION COMMAND, COMPLETE and RESULT.

use crate::codec::message;
use crate::ie::*;

message! {
    /// NETWORK SLICE-SPECIFIC AUTHENTICATION COMMAND, from the network (TS 24.501 §8.2.31).
    SliceAuthenticationCommand {
        "S-NSSAI" s_nssai: MappedSNssai => lv,
        "EAP message" eap_message: EapMessage => lve,
    }
    optional {}
}

message! {
    /// NETWORK SLICE-SPECIFIC AUTHENTICATION COMPLETE, from the UE (TS 24.501 §8.2.32).
    SliceAuthenticationComplete {
        "S-NSSAI" s_nssai: MappedSNssai => lv,
        "EAP message" eap_message: EapMessage => lve,
    }
    optional {}
}

message! {
    /// NETWORK SLICE-SPECIFIC AUTHENTICATION RESULT, from the network (TS 24.501 §8.2.33).
    SliceAuthenticationResult {
        "S-NSSAI" s_nssai: MappedSNssai => lv,
        "EAP message" eap_message: EapMessage => lve,
    }
    optional {}
}
