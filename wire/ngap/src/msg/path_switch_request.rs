//! Procedure 25: path switch request.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId, SNssai};

use crate::aper::codec::{Alone, List, Octets};
use crate::ie::{
    CnAssistedRanTuning, CoreNetworkAssistanceInformationForInactive, CriticalityDiagnostics,
    EnhancedCoverageRestriction, NewSecurityContextInd, PduSessionResourceItem, RedirectionVoiceFallback,
    RrcEstablishmentCause, RrcInactiveTransitionReportRequest, SecurityContext, UeSecurityCapabilities,
    UserLocationInformation,
};

message! {
    /// PATH SWITCH REQUEST: TS 38.413 §9.2.3.8.
    pub struct PathSwitchRequest {
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `SourceAMF-UE-NGAP-ID`.
        100 reject req source_amf_ue_ngap_id: AmfUeNgapId,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
        /// `UESecurityCapabilities`.
        119 ignore opt ue_security_capabilities: UeSecurityCapabilities,
        /// `PDUSessionResourceToBeSwitchedDLList`.
        76 reject req pdu_session_resource_to_be_switched_dl_list: Vec<PduSessionResourceItem>
            as List<1, 256>,
        /// `PDUSessionResourceFailedToSetupListPSReq`.
        57 ignore lst pdu_session_resource_failed_to_setup_list_ps_req: Vec<PduSessionResourceItem>
            as List<1, 256>,
        /// `RRC-Resume-Cause`.
        237 ignore opt rrc_resume_cause: RrcEstablishmentCause,
    }
}

message! {
    /// PATH SWITCH REQUEST ACKNOWLEDGE: TS 38.413 §9.2.3.9.
    pub struct PathSwitchRequestAcknowledge {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `UESecurityCapabilities`.
        119 reject opt ue_security_capabilities: UeSecurityCapabilities,
        /// `SecurityContext`.
        93 reject req security_context: SecurityContext,
        /// `NewSecurityContextInd`.
        41 reject opt new_security_context_ind: NewSecurityContextInd,
        /// `PDUSessionResourceSwitchedList`.
        77 ignore lst pdu_session_resource_switched_list: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `PDUSessionResourceReleasedListPSAck`.
        68 ignore lst pdu_session_resource_released_list_ps_ack: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `AllowedNSSAI`. Allowed NSSAI (TS 38.413 §9.3.1.31).
        0 reject req allowed_nssai: Vec<SNssai> as List<1, 8, Alone>,
        /// `CoreNetworkAssistanceInformationForInactive`.
        18 ignore opt core_network_assistance_information_for_inactive: CoreNetworkAssistanceInformationForInactive,
        /// `RRCInactiveTransitionReportRequest`.
        91 ignore opt rrc_inactive_transition_report_request: RrcInactiveTransitionReportRequest,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
        /// `RedirectionVoiceFallback`.
        146 ignore opt redirection_voice_fallback: RedirectionVoiceFallback,
        /// `CNAssistedRANTuning`.
        165 ignore opt cn_assisted_ran_tuning: CnAssistedRanTuning,
        /// `Enhanced-CoverageRestriction`.
        205 ignore opt enhanced_coverage_restriction: EnhancedCoverageRestriction,
        /// `UERadioCapabilityID`.
        264 reject opt ue_radio_capability_id: Vec<u8> as Octets,
    }
}

message! {
    /// PATH SWITCH REQUEST FAILURE: TS 38.413 §9.2.3.10.
    pub struct PathSwitchRequestFailure {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `PDUSessionResourceReleasedListPSFail`.
        69 ignore lst pdu_session_resource_released_list_ps_fail: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
