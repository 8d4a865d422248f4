//! DEREGISTRATION REQUEST and DEREGISTRATION ACCEPT, from either side.

use crate::codec::message;
use crate::ie::*;

message! {
    /// DEREGISTRATION REQUEST (UE originating de-registration) (TS 24.501 §8.2.12).
    DeregistrationRequestUeOriginating {
        "De-registration type" deregistration_type: DeregistrationType => low,
        "ngKSI" ng_ksi: NgKsi => high,
        "5GS mobile identity" mobile_identity: MobileIdentity => lve,
    }
    optional {}
}

message! {
    /// DEREGISTRATION ACCEPT (UE originating de-registration) (TS 24.501 §8.2.13).
    DeregistrationAcceptUeOriginating {}
    optional {}
}

message! {
    /// DEREGISTRATION REQUEST (UE terminated de-registration) (TS 24.501 §8.2.14).
    DeregistrationRequestUeTerminated {
        "De-registration type" deregistration_type: DeregistrationType => low_only,
    }
    optional {
        0x58 "5GMM cause" cause: MmCause => tv(1),
        0x5F "T3346 value" t3346: GprsTimer => tlv,
        0x6D "Rejected NSSAI" rejected_nssai: RejectedNssai => tlv,
        0x75 "CAG information list" cag_information_list: LongOpaque => tlve,
        0x68 "Extended rejected NSSAI" extended_rejected_nssai: Opaque => tlv,
        0x2C "Disaster return wait range" disaster_return_wait_range: [u8; 2] => tlv,
        0x71 "Extended CAG information list" extended_cag_information_list: LongOpaque => tlve,
        0x3A "Lower bound timer value" lower_bound_timer: GprsTimer3 => tlv,
        0x1D "Forbidden TAIs for roaming" forbidden_tais_roaming: TaiList => tlv,
        0x1E "Forbidden TAIs for regional provision of service" forbidden_tais_regional: TaiList => tlv,
    }
}

message! {
    /// DEREGISTRATION ACCEPT (UE terminated de-registration) (TS 24.501 §8.2.15).
    DeregistrationAcceptUeTerminated {}
    optional {}
}
