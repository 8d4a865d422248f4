//! Procedure 27: PDU session resource modify indication.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::List;
use crate::ie::{CriticalityDiagnostics, PduSessionResourceItem, UserLocationInformation};

message! {
    /// PDU SESSION RESOURCE MODIFY INDICATION: TS 38.413 §9.2.1.8.
    pub struct PduSessionResourceModifyIndication {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `PDUSessionResourceModifyListModInd`.
        63 reject req pdu_session_resource_modify_list_mod_ind: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
    }
}

message! {
    /// PDU SESSION RESOURCE MODIFY CONFIRM: TS 38.413 §9.2.1.9.
    pub struct PduSessionResourceModifyConfirm {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `PDUSessionResourceModifyListModCfm`.
        62 ignore lst pdu_session_resource_modify_list_mod_cfm: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `PDUSessionResourceFailedToModifyListModCfm`.
        131 ignore lst pdu_session_resource_failed_to_modify_list_mod_cfm: Vec<PduSessionResourceItem>
            as List<1, 256>,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
