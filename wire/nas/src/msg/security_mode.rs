//! SECURITY MODE COMMAND, COMPLETE and REJECT.

use crate::codec::message;
use crate::ie::*;

message! {
    /// SECURITY MODE COMMAND, from the network (TS 24.501 §8.2.25).
    SecurityModeCommand {
        "Selected NAS security algorithms" selected_algorithms: SecurityAlgorithms => v(1),
        "ngKSI" ng_ksi: NgKsi => low_only,
        "Replayed UE security capabilities" replayed_ue_security_capability: UeSecurityCapability => lv,
    }
    optional {
        0xE0 "IMEISV request" imeisv_request: ImeisvRequest => tv1,
        0x57 "Selected EPS NAS security algorithms" selected_eps_algorithms: SecurityAlgorithms => tv(1),
        0x36 "Additional 5G security information" additional_security: AdditionalSecurityInformation => tlv,
        0x78 "EAP message" eap_message: EapMessage => tlve,
        0x38 "ABBA" abba: Abba => tlv,
        0x19 "Replayed S1 UE security capabilities"
            replayed_s1_ue_security_capability: S1UeSecurityCapability => tlv,
    }
}

message! {
    /// SECURITY MODE COMPLETE, from the UE (TS 24.501 §8.2.26).
    SecurityModeComplete {}
    optional {
        0x77 "IMEISV" imeisv: MobileIdentity => tlve,
        0x71 "NAS message container" nas_message_container: NasMessageContainer => tlve,
        0x78 "non-IMEISV PEI" non_imeisv_pei: MobileIdentity => tlve,
    }
}

message! {
    /// SECURITY MODE REJECT, from the UE (TS 24.501 §8.2.27).
    SecurityModeReject {
        "5GMM cause" cause: MmCause => v(1),
    }
    optional {}
}
