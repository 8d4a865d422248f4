//! REGISTRATION ACCEPT and REGISTRATION COMPLETE.

use crate::codec::message;
use crate::ie::*;

message! {
    /// REGISTRATION ACCEPT, from the network (TS 24.501 §8.2.7).
    RegistrationAccept {
        "5GS registration result" registration_result: RegistrationResult => lv,
    }
    optional {
        0x77 "5G-GUTI" guti: MobileIdentity => tlve,
        0x4A "Equivalent PLMNs" equivalent_plmns: PlmnList => tlv,
        0x54 "TAI list" tai_list: TaiList => tlv,
        0x15 "Allowed NSSAI" allowed_nssai: Nssai => tlv,
        0x11 "Rejected NSSAI" rejected_nssai: RejectedNssai => tlv,
        0x31 "Configured NSSAI" configured_nssai: Nssai => tlv,
        0x21 "5GS network feature support" network_feature_support: NetworkFeatureSupport => tlv,
        0x50 "PDU session status" pdu_session_status: PduSessionSet => tlv,
        0x26 "PDU session reactivation result" reactivation_result: PduSessionSet => tlv,
        0x72 "PDU session reactivation result error cause" reactivation_errors: ReactivationErrors => tlve,
        0x79 "LADN information" ladn_information: LadnInformation => tlve,
        0xB0 "MICO indication" mico_indication: MicoIndication => tv1,
        0x90 "Network slicing indication" network_slicing_indication: NetworkSlicingIndication => tv1,
        0x27 "Service area list" service_area_list: ServiceAreaList => tlv,
        0x5E "T3512 value" t3512: GprsTimer3 => tlv,
        0x5D "Non-3GPP de-registration timer value" non_3gpp_deregistration_timer: GprsTimer => tlv,
        0x16 "T3502 value" t3502: GprsTimer => tlv,
        0x34 "Emergency number list" emergency_number_list: EmergencyNumberList => tlv,
        0x7A "Extended emergency number list" extended_emergency_number_list: ExtendedEmergencyNumberList => tlve,
        0x73 "SOR transparent container" sor_transparent_container: SorContainer => tlve,
        0x78 "EAP message" eap_message: EapMessage => tlve,
        0xA0 "NSSAI inclusion mode" nssai_inclusion_mode: NssaiInclusionMode => tv1,
        0x76 "Operator-defined access category definitions"
            operator_access_categories: OperatorAccessCategories => tlve,
        0x51 "Negotiated DRX parameters" negotiated_drx_parameters: DrxParameters => tlv,
        0xD0 "Non-3GPP NW policies" non_3gpp_policies: Non3gppProvidedPolicies => tv1,
        0x60 "EPS bearer context status" eps_bearer_context_status: [u8; 2] => tlv,
        0x6E "Negotiated extended DRX parameters" negotiated_extended_drx: Opaque => tlv,
        0x6C "T3447 value" t3447: GprsTimer3 => tlv,
        0x6B "T3448 value" t3448: GprsTimer => tlv,
        0x6A "T3324 value" t3324: GprsTimer3 => tlv,
        0x67 "UE radio capability ID" radio_capability_id: Opaque => tlv,
        0xE0 "UE radio capability ID deletion indication"
            radio_capability_id_deletion: RadioCapabilityIdDeletion => tv1,
        0x39 "Pending NSSAI" pending_nssai: Nssai => tlv,
        0x74 "Ciphering key data" ciphering_key_data: LongOpaque => tlve,
        0x75 "CAG information list" cag_information_list: LongOpaque => tlve,
        0x1B "Truncated 5G-S-TMSI configuration" truncated_s_tmsi: Opaque => tlv,
        0x1C "Negotiated WUS assistance information" negotiated_wus_assistance: Opaque => tlv,
        0x29 "Negotiated NB-N1 mode DRX parameters" negotiated_nb_n1_drx: Opaque => tlv,
        0x68 "Extended rejected NSSAI" extended_rejected_nssai: Opaque => tlv,
        0x7B "Service-level-AA container" service_level_aa_container: LongOpaque => tlve,
        0x33 "Negotiated PEIPS assistance information" negotiated_peips_assistance: Opaque => tlv,
        0x35 "5GS additional request result" additional_request_result: Opaque => tlv,
        0x70 "NSSRG information" nssrg_information: LongOpaque => tlve,
        0x14 "Disaster roaming wait range" disaster_roaming_wait_range: [u8; 2] => tlv,
        0x2C "Disaster return wait range" disaster_return_wait_range: [u8; 2] => tlv,
        0x13 "List of PLMNs to be used in disaster condition" disaster_plmns: Opaque => tlv,
        0x1D "Forbidden TAIs for roaming" forbidden_tais_roaming: TaiList => tlv,
        0x1E "Forbidden TAIs for regional provision of service" forbidden_tais_regional: TaiList => tlv,
        0x71 "Extended CAG information list" extended_cag_information_list: LongOpaque => tlve,
        0x7C "NSAG information" nsag_information: LongOpaque => tlve,
    }
}

message! {
    /// REGISTRATION COMPLETE, from the UE (TS 24.501 §8.2.8).
    RegistrationComplete {}
    optional {
        0x73 "SOR transparent container" sor_transparent_container: SorContainer => tlve,
    }
}
