//! AUTHENTICATION REQUEST, RESPONSE, RESULT, FAILURE and REJECT.

use crate::codec::message;
use crate::ie::*;

message! {
    /// AUTHENTICATION REQUEST, from the network (TS 24.501 §8.2.1).
    AuthenticationRequest {
        "ngKSI" ng_ksi: NgKsi => low_only,
        "ABBA" abba: Abba => lv,
    }
    optional {
        0x21 "Authentication parameter RAND" rand: Rand => tv(16),
        0x20 "Authentication parameter AUTN" autn: Autn => tlv,
        0x78 "EAP message" eap_message: EapMessage => tlve,
    }
}

message! {
    /// AUTHENTICATION RESPONSE, from the UE (TS 24.501 §8.2.2).
    AuthenticationResponse {}
    optional {
        0x2D "Authentication response parameter" res_star: ResStar => tlv,
        0x78 "EAP message" eap_message: EapMessage => tlve,
    }
}

message! {
    /// AUTHENTICATION RESULT, from the network (TS 24.501 §8.2.3).
    AuthenticationResult {
        "ngKSI" ng_ksi: NgKsi => low_only,
        "EAP message" eap_message: EapMessage => lve,
    }
    optional {
        0x38 "ABBA" abba: Abba => tlv,
    }
}

message! {
    /// AUTHENTICATION FAILURE, from the UE (TS 24.501 §8.2.4).
    AuthenticationFailure {
        "5GMM cause" cause: MmCause => v(1),
    }
    optional {
        0x30 "Authentication failure parameter" auts: Auts => tlv,
    }
}

message! {
    /// AUTHENTICATION REJECT, from the network (TS 24.501 §8.2.5).
    AuthenticationReject {}
    optional {
        0x78 "EAP message" eap_message: EapMessage => tlve,
    }
}
