//! Procedure 14: initial context setup.

use whimbrel_ids::{AmfUeNgapId, Guami, RanUeNgapId, SNssai};

use crate::aper::codec::{Alone, Bits, IntExt, List, Octets, StringExt};
use crate::ie::{
    Cause, CnAssistedRanTuning, CoreNetworkAssistanceInformationForInactive, CriticalityDiagnostics,
    EmergencyFallbackIndicator, EnhancedCoverageRestriction, ExtendedAmfName, LocationReportingRequestType,
    MobilityRestrictionList, PduSessionResourceItem, PduSessionResourceSetupItemCxtReq,
    RedirectionVoiceFallback, RrcInactiveTransitionReportRequest, SecurityKey, TargetNssaiInformation,
    UeAggregateMaximumBitRate, UeRadioCapabilityForPaging, UeSecurityCapabilities, UeSliceMaximumBitRateItem,
};

message! {
    /// INITIAL CONTEXT SETUP REQUEST: TS 38.413 §9.2.2.1.
    pub struct InitialContextSetupRequest {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `OldAMF`. The AMF that served the UE before, by name.
        48 reject opt old_amf: String as StringExt<1, 150>,
        /// `UEAggregateMaximumBitRate`.
        110 reject opt ue_aggregate_maximum_bit_rate: UeAggregateMaximumBitRate,
        /// `CoreNetworkAssistanceInformationForInactive`.
        18 ignore opt core_network_assistance_information_for_inactive: CoreNetworkAssistanceInformationForInactive,
        /// `GUAMI`.
        28 reject req guami: Guami,
        /// `PDUSessionResourceSetupListCxtReq`.
        71 reject lst pdu_session_resource_setup_list_cxt_req: Vec<PduSessionResourceSetupItemCxtReq>
            as List<1, 256>,
        /// `AllowedNSSAI`. Allowed NSSAI (TS 38.413 §9.3.1.31).
        0 reject req allowed_nssai: Vec<SNssai> as List<1, 8, Alone>,
        /// `UESecurityCapabilities`.
        119 reject req ue_security_capabilities: UeSecurityCapabilities,
        /// `SecurityKey`. KgNB.
        94 reject req security_key: SecurityKey,
        /// `MobilityRestrictionList`.
        36 ignore opt mobility_restriction_list: MobilityRestrictionList,
        /// `UERadioCapability`. UE Radio Capability (TS 38.413 §9.3.1.74), unread here.
        117 ignore opt ue_radio_capability: Vec<u8> as Octets,
        /// `IndexToRFSP`. Index to RAT/Frequency Selection Priority (TS 38.413 §9.3.1.61).
        31 ignore opt index_to_rfsp: u16 as IntExt<1, 256>,
        /// `MaskedIMEISV`. IMEISV of 16 digits, the last four of the serial number masked with 1s (TS 38.413
        /// §9.3.1.54).
        34 ignore opt masked_imeisv: u64 as Bits<64>,
        /// `NAS-PDU`. A NAS message.
        38 ignore opt nas_pdu: Vec<u8> as Octets,
        /// `EmergencyFallbackIndicator`.
        24 reject opt emergency_fallback_indicator: EmergencyFallbackIndicator,
        /// `RRCInactiveTransitionReportRequest`.
        91 ignore opt rrc_inactive_transition_report_request: RrcInactiveTransitionReportRequest,
        /// `UERadioCapabilityForPaging`.
        118 ignore opt ue_radio_capability_for_paging: UeRadioCapabilityForPaging,
        /// `RedirectionVoiceFallback`.
        146 ignore opt redirection_voice_fallback: RedirectionVoiceFallback,
        /// `LocationReportingRequestType`.
        33 ignore opt location_reporting_request_type: LocationReportingRequestType,
        /// `CNAssistedRANTuning`.
        165 ignore opt cn_assisted_ran_tuning: CnAssistedRanTuning,
        /// `Enhanced-CoverageRestriction`.
        205 ignore opt enhanced_coverage_restriction: EnhancedCoverageRestriction,
        /// `UERadioCapabilityID`.
        264 reject opt ue_radio_capability_id: Vec<u8> as Octets,
        /// `TargetNSSAIInformation`.
        334 ignore opt target_nssai_information: TargetNssaiInformation,
        /// `UESliceMaximumBitRateList`.
        335 ignore lst ue_slice_maximum_bit_rate_list: Vec<UeSliceMaximumBitRateItem> as List<1, 8>,
        /// `ExtendedOldAMF`.
        443 ignore opt extended_old_amf: ExtendedAmfName,
    }
}

message! {
    /// INITIAL CONTEXT SETUP RESPONSE: TS 38.413 §9.2.2.2.
    pub struct InitialContextSetupResponse {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `PDUSessionResourceSetupListCxtRes`.
        72 ignore lst pdu_session_resource_setup_list_cxt_res: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `PDUSessionResourceFailedToSetupListCxtRes`.
        55 ignore lst pdu_session_resource_failed_to_setup_list_cxt_res: Vec<PduSessionResourceItem>
            as List<1, 256>,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}

message! {
    /// INITIAL CONTEXT SETUP FAILURE: TS 38.413 §9.2.2.3.
    pub struct InitialContextSetupFailure {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `PDUSessionResourceFailedToSetupListCxtFail`.
        132 ignore lst pdu_session_resource_failed_to_setup_list_cxt_fail: Vec<PduSessionResourceItem>
            as List<1, 256>,
        /// `Cause`.
        15 ignore dft cause: Cause,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
