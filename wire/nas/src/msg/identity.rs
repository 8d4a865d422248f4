//! IDENTITY REQUEST and RESPONSE.

use crate::codec::message;
use crate::ie::*;

message! {
    /// IDENTITY REQUEST, from the network (TS 24.501 §8.2.21).
    IdentityRequest {
        "Identity type" identity_type: IdentityType => low_only,
    }
    optional {}
}

message! {
    /// IDENTITY RESPONSE, from the UE (TS 24.501 §8.2.22).
    IdentityResponse {
        "Mobile identity" mobile_identity: MobileIdentity => lve,
    }
    optional {}
}
