//! REGISTRATION REJECT, to the UE.

use crate::codec::message;
use crate::ie::*;

message! {
    /// REGISTRATION REJECT, from the network (TS 24.501 §8.2.9).
    RegistrationReject {
        "5GMM cause" cause: MmCause => v(1),
    }
    optional {
        0x5F "T3346 value" t3346: GprsTimer => tlv,
        0x16 "T3502 value" t3502: GprsTimer => tlv,
        0x78 "EAP message" eap_message: EapMessage => tlve,
        0x69 "Rejected NSSAI" rejected_nssai: RejectedNssai => tlv,
        0x75 "CAG information list" cag_information_list: LongOpaque => tlve,
        0x68 "Extended rejected NSSAI" extended_rejected_nssai: Opaque => tlv,
        0x2C "Disaster return wait range" disaster_return_wait_range: [u8; 2] => tlv,
        0x71 "Extended CAG information list" extended_cag_information_list: LongOpaque => tlve,
        0x3A "Lower bound timer value" lower_bound_timer: GprsTimer3 => tlv,
        0x1D "Forbidden TAIs for roaming" forbidden_tais_roaming: TaiList => tlv,
        0x1E "Forbidden TAIs for regional provision of service" forbidden_tais_regional: TaiList => tlv,
    }
}
