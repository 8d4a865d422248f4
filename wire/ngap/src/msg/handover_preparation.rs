//! Procedure 12: handover preparation.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::{List, Octets};
use crate::ie::{
    Cause, CriticalityDiagnostics, DirectForwardingPathAvailability, HandoverType, PduSessionResourceItem,
    TargetId,
};

message! {
    /// HANDOVER REQUIRED: TS 38.413 §9.2.3.1.
    pub struct HandoverRequired {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `HandoverType`.
        29 reject req handover_type: HandoverType,
        /// `Cause`.
        15 ignore dft cause: Cause,
        /// `TargetID`.
        105 reject req target_id: TargetId,
        /// `DirectForwardingPathAvailability`.
        22 ignore opt direct_forwarding_path_availability: DirectForwardingPathAvailability,
        /// `PDUSessionResourceListHORqd`.
        61 reject req pdu_session_resource_list_ho_rqd: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `SourceToTarget-TransparentContainer`.
        101 reject req source_to_target_transparent_container: Vec<u8> as Octets,
    }
}

message! {
    /// HANDOVER COMMAND: TS 38.413 §9.2.3.2.
    pub struct HandoverCommand {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `HandoverType`.
        29 reject req handover_type: HandoverType,
        /// `NASSecurityParametersFromNGRAN`.
        39 reject opt nas_security_parameters_from_ngran: Vec<u8> as Octets,
        /// `PDUSessionResourceHandoverList`.
        59 ignore lst pdu_session_resource_handover_list: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `PDUSessionResourceToReleaseListHOCmd`.
        78 ignore lst pdu_session_resource_to_release_list_ho_cmd: Vec<PduSessionResourceItem>
            as List<1, 256>,
        /// `TargetToSource-TransparentContainer`.
        106 reject req target_to_source_transparent_container: Vec<u8> as Octets,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}

message! {
    /// HANDOVER PREPARATION FAILURE: TS 38.413 §9.2.3.3.
    pub struct HandoverPreparationFailure {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `Cause`.
        15 ignore dft cause: Cause,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
        /// `TargettoSource-Failure-TransparentContainer`.
        262 ignore opt target_to_source_failure_transparent_container: Vec<u8> as Octets,
    }
}
