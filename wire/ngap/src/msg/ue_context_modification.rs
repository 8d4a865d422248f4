//! Procedure 40: UE context modification.

use whimbrel_ids::{AmfUeNgapId, Guami, RanUeNgapId};

use crate::aper::codec::{Int, IntExt, List, Octets};
use crate::ie::{
    Cause, CnAssistedRanTuning, CoreNetworkAssistanceInformationForInactive, CriticalityDiagnostics,
    EmergencyFallbackIndicator, RrcInactiveTransitionReportRequest, RrcState, SecurityKey,
    UeAggregateMaximumBitRate, UeSecurityCapabilities, UeSliceMaximumBitRateItem, UserLocationInformation,
};

message! {
    /// UE CONTEXT MODIFICATION REQUEST: TS 38.413 §9.2.2.7.
    pub struct UeContextModificationRequest {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `RANPagingPriority`. 1 is the most important, 256 the least.
        83 ignore opt ran_paging_priority: u16 as Int<1, 256>,
        /// `SecurityKey`. KgNB.
        94 reject opt security_key: SecurityKey,
        /// `IndexToRFSP`. Index to RAT/Frequency Selection Priority (TS 38.413 §9.3.1.61).
        31 ignore opt index_to_rfsp: u16 as IntExt<1, 256>,
        /// `UEAggregateMaximumBitRate`.
        110 ignore opt ue_aggregate_maximum_bit_rate: UeAggregateMaximumBitRate,
        /// `UESecurityCapabilities`.
        119 reject opt ue_security_capabilities: UeSecurityCapabilities,
        /// `CoreNetworkAssistanceInformationForInactive`.
        18 ignore opt core_network_assistance_information_for_inactive: CoreNetworkAssistanceInformationForInactive,
        /// `EmergencyFallbackIndicator`.
        24 reject opt emergency_fallback_indicator: EmergencyFallbackIndicator,
        /// `NewAMF-UE-NGAP-ID`.
        40 reject opt new_amf_ue_ngap_id: AmfUeNgapId,
        /// `RRCInactiveTransitionReportRequest`.
        91 ignore opt rrc_inactive_transition_report_request: RrcInactiveTransitionReportRequest,
        /// `NewGUAMI`.
        162 reject opt new_guami: Guami,
        /// `CNAssistedRANTuning`.
        165 ignore opt cn_assisted_ran_tuning: CnAssistedRanTuning,
        /// `UERadioCapabilityID`.
        264 reject opt ue_radio_capability_id: Vec<u8> as Octets,
        /// `UESliceMaximumBitRateList`.
        335 ignore lst ue_slice_maximum_bit_rate_list: Vec<UeSliceMaximumBitRateItem> as List<1, 8>,
    }
}

message! {
    /// UE CONTEXT MODIFICATION RESPONSE: TS 38.413 §9.2.2.8.
    pub struct UeContextModificationResponse {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `RRCState`.
        92 ignore opt rrc_state: RrcState,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}

message! {
    /// UE CONTEXT MODIFICATION FAILURE: TS 38.413 §9.2.2.9.
    pub struct UeContextModificationFailure {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `Cause`.
        15 ignore dft cause: Cause,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
