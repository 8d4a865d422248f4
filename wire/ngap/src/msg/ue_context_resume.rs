//! Procedure 58: UE context resume. The core has suspended none; its answer is the failure.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::List;
use crate::ie::{
    Cause, CriticalityDiagnostics, PduSessionResourceFailedToResumeItem, PduSessionResourceItem,
    RrcEstablishmentCause, UserLocationInformation,
};

message! {
    /// UE CONTEXT RESUME REQUEST: TS 38.413 §9.2.2.14.
    pub struct UeContextResumeRequest {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `RRC-Resume-Cause`.
        237 ignore dft rrc_resume_cause: RrcEstablishmentCause,
        /// `PDUSessionResourceResumeListRESReq`.
        232 reject lst pdu_session_resource_resume_list_res_req: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `PDUSessionResourceFailedToResumeListRESReq`.
        229 reject lst pdu_session_resource_failed_to_resume_list_res_req: Vec<PduSessionResourceFailedToResumeItem>
            as List<1, 256>,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
    }
}

message! {
    /// UE CONTEXT RESUME FAILURE: TS 38.413 §9.2.2.16.
    pub struct UeContextResumeFailure {
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
