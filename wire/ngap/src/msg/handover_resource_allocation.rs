//! Procedure 13: handover resource allocation.

use whimbrel_ids::{AmfUeNgapId, Guami, RanUeNgapId, SNssai};

use crate::aper::codec::{Alone, Bits, List, Octets};
use crate::ie::{
    Cause, CnAssistedRanTuning, CoreNetworkAssistanceInformationForInactive, CriticalityDiagnostics,
    EnhancedCoverageRestriction, HandoverType, LocationReportingRequestType, MobilityRestrictionList,
    NewSecurityContextInd, NoPduSessionIndication, NpnAccessInformation, PduSessionResourceItem,
    PduSessionResourceSetupItemHoReq, RedirectionVoiceFallback, RrcInactiveTransitionReportRequest,
    SecurityContext, UeAggregateMaximumBitRate, UeSecurityCapabilities, UeSliceMaximumBitRateItem,
};

message! {
    /// HANDOVER REQUEST: TS 38.413 §9.2.3.4.
    pub struct HandoverRequest {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `HandoverType`.
        29 reject req handover_type: HandoverType,
        /// `Cause`.
        15 ignore dft cause: Cause,
        /// `UEAggregateMaximumBitRate`.
        110 reject req ue_aggregate_maximum_bit_rate: UeAggregateMaximumBitRate,
        /// `CoreNetworkAssistanceInformationForInactive`.
        18 ignore opt core_network_assistance_information_for_inactive: CoreNetworkAssistanceInformationForInactive,
        /// `UESecurityCapabilities`.
        119 reject req ue_security_capabilities: UeSecurityCapabilities,
        /// `SecurityContext`.
        93 reject req security_context: SecurityContext,
        /// `NewSecurityContextInd`.
        41 reject opt new_security_context_ind: NewSecurityContextInd,
        /// `NASC`.
        37 reject opt nasc: Vec<u8> as Octets,
        /// `PDUSessionResourceSetupListHOReq`.
        73 reject req pdu_session_resource_setup_list_ho_req: Vec<PduSessionResourceSetupItemHoReq>
            as List<1, 256>,
        /// `AllowedNSSAI`. Allowed NSSAI (TS 38.413 §9.3.1.31).
        0 reject req allowed_nssai: Vec<SNssai> as List<1, 8, Alone>,
        /// `MaskedIMEISV`. IMEISV of 16 digits, the last four of the serial number masked with 1s (TS 38.413
        /// §9.3.1.54).
        34 ignore opt masked_imeisv: u64 as Bits<64>,
        /// `SourceToTarget-TransparentContainer`.
        101 reject req source_to_target_transparent_container: Vec<u8> as Octets,
        /// `MobilityRestrictionList`.
        36 ignore opt mobility_restriction_list: MobilityRestrictionList,
        /// `LocationReportingRequestType`.
        33 ignore opt location_reporting_request_type: LocationReportingRequestType,
        /// `RRCInactiveTransitionReportRequest`.
        91 ignore opt rrc_inactive_transition_report_request: RrcInactiveTransitionReportRequest,
        /// `GUAMI`.
        28 reject req guami: Guami,
        /// `RedirectionVoiceFallback`.
        146 ignore opt redirection_voice_fallback: RedirectionVoiceFallback,
        /// `CNAssistedRANTuning`.
        165 ignore opt cn_assisted_ran_tuning: CnAssistedRanTuning,
        /// `Enhanced-CoverageRestriction`.
        205 ignore opt enhanced_coverage_restriction: EnhancedCoverageRestriction,
        /// `UERadioCapabilityID`.
        264 reject opt ue_radio_capability_id: Vec<u8> as Octets,
        /// `UESliceMaximumBitRateList`.
        335 ignore lst ue_slice_maximum_bit_rate_list: Vec<UeSliceMaximumBitRateItem> as List<1, 8>,
        /// `NoPDUSessionIndication`.
        403 ignore opt no_pdu_session_indication: NoPduSessionIndication,
    }
}

message! {
    /// HANDOVER REQUEST ACKNOWLEDGE: TS 38.413 §9.2.3.5.
    pub struct HandoverRequestAcknowledge {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `PDUSessionResourceAdmittedList`.
        53 ignore lst pdu_session_resource_admitted_list: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `PDUSessionResourceFailedToSetupListHOAck`.
        56 ignore lst pdu_session_resource_failed_to_setup_list_ho_ack: Vec<PduSessionResourceItem>
            as List<1, 256>,
        /// `TargetToSource-TransparentContainer`.
        106 reject req target_to_source_transparent_container: Vec<u8> as Octets,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
        /// `NPN-AccessInformation`.
        259 reject opt npn_access_information: NpnAccessInformation,
    }
}

message! {
    /// HANDOVER FAILURE: TS 38.413 §9.2.3.6.
    pub struct HandoverFailure {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `Cause`.
        15 ignore dft cause: Cause,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
        /// `TargettoSource-Failure-TransparentContainer`.
        262 ignore opt target_to_source_failure_transparent_container: Vec<u8> as Octets,
    }
}
