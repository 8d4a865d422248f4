//! PDU SESSION AUTHENTICATION COMMAND, COMPLETE and RESULT.

use crate::codec::message;
use crate::ie::*;

message! {
    /// PDU SESSION AUTHENTICATION COMMAND, from the network (TS 24.501 §8.3.4).
    SessionAuthenticationCommand {
        "EAP message" eap_message: EapMessage => lve,
    }
    optional {
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
    }
}

message! {
    /// PDU SESSION AUTHENTICATION COMPLETE, from the UE (TS 24.501 §8.3.5).
    SessionAuthenticationComplete {
        "EAP message" eap_message: EapMessage => lve,
    }
    optional {
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
    }
}

message! {
    /// PDU SESSION AUTHENTICATION RESULT, from the network (TS 24.501 §8.3.6).
    SessionAuthenticationResult {}
    optional {
        0x78 "EAP message" eap_message: EapMessage => tlve,
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
    }
}
