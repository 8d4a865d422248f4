//! REGISTRATION REQUEST, from the UE.

use whimbrel_ids::{PlmnId, Tai};

use crate::codec::message;
use crate::ie::*;

message! {
    /// REGISTRATION REQUEST, from the UE (TS 24.501 §8.2.6).
    RegistrationRequest {
        "5GS registration type" registration_type: RegistrationType => low,
        "ngKSI" ng_ksi: NgKsi => high,
        "5GS mobile identity" mobile_identity: MobileIdentity => lve,
    }
    optional {
        0xC0 "Non-current native NAS key set identifier" non_current_native_ng_ksi: NgKsi => tv1,
        0x10 "5GMM capability" mm_capability: MmCapability => tlv,
        0x2E "UE security capability" ue_security_capability: UeSecurityCapability => tlv,
        0x2F "Requested NSSAI" requested_nssai: Nssai => tlv,
        0x52 "Last visited registered TAI" last_visited_registered_tai: Tai => tv(6),
        0x17 "S1 UE network capability" s1_ue_network_capability: S1UeNetworkCapability => tlv,
        0x40 "Uplink data status" uplink_data_status: PduSessionSet => tlv,
        0x50 "PDU session status" pdu_session_status: PduSessionSet => tlv,
        0xB0 "MICO indication" mico_indication: MicoIndication => tv1,
        0x2B "UE status" ue_status: UeStatus => tlv,
        0x77 "Additional GUTI" additional_guti: MobileIdentity => tlve,
        0x25 "Allowed PDU session status" allowed_pdu_session_status: PduSessionSet => tlv,
        0x18 "UE's usage setting" usage_setting: UsageSetting => tlv,
        0x51 "Requested DRX parameters" requested_drx_parameters: DrxParameters => tlv,
        0x70 "EPS NAS message container" eps_nas_message_container: EpsNasMessageContainer => tlve,
        0x74 "LADN indication" ladn_indication: LadnIndication => tlve,
        0x80 "Payload container type" payload_container_type: PayloadContainerType => tv1,
        0x7B "Payload container" payload_container: PayloadContainer => tlve,
        0x90 "Network slicing indication" network_slicing_indication: NetworkSlicingIndication => tv1,
        0x53 "5GS update type" update_type: UpdateType => tlv,
        0x41 "Mobile station classmark 2" mobile_station_classmark_2: [u8; 3] => tlv,
        0x42 "Supported codecs" supported_codecs: Opaque => tlv,
        0x71 "NAS message container" nas_message_container: NasMessageContainer => tlve,
        0x60 "EPS bearer context status" eps_bearer_context_status: [u8; 2] => tlv,
        0x6E "Requested extended DRX parameters" requested_extended_drx: Opaque => tlv,
        0x6A "T3324 value" t3324: GprsTimer3 => tlv,
        0x67 "UE radio capability ID" radio_capability_id: Opaque => tlv,
        0x35 "Requested mapped NSSAI" requested_mapped_nssai: Opaque => tlv,
        0x48 "Additional information requested"
            additional_information_requested: AdditionalInformationRequested => tlv,
        0x1A "Requested WUS assistance information" requested_wus_assistance: Opaque => tlv,
        0xA0 "N5GC indication" n5gc_indication: N5gcIndication => tv1,
        0x30 "Requested NB-N1 mode DRX parameters" requested_nb_n1_drx: Opaque => tlv,
        0x29 "UE request type" ue_request_type: Opaque => tlv,
        0x28 "Paging restriction" paging_restriction: Opaque => tlv,
        0x72 "Service-level-AA container" service_level_aa_container: LongOpaque => tlve,
        0x32 "NID" nid: [u8; 6] => tlv,
        0x16 "MS determined PLMN with disaster condition" disaster_plmn: PlmnId => tlv,
        0x2A "Requested PEIPS assistance information" requested_peips_assistance: Opaque => tlv,
        0x3B "Requested T3512 value" requested_t3512: GprsTimer3 => tlv,
    }
}
