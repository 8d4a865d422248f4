//! Procedure 26: PDU session resource modify.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::{Int, List};
use crate::ie::{
    CriticalityDiagnostics, PduSessionResourceItem, PduSessionResourceModifyItemModReq,
    UserLocationInformation,
};

message! {
    /// PDU SESSION RESOURCE MODIFY REQUEST: TS 38.413 §9.2.1.5.
    pub struct PduSessionResourceModifyRequest {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `RANPagingPriority`. 1 is the most important, 256 the least.
        83 ignore opt ran_paging_priority: u16 as Int<1, 256>,
        /// `PDUSessionResourceModifyListModReq`.
        64 reject req pdu_session_resource_modify_list_mod_req: Vec<PduSessionResourceModifyItemModReq>
            as List<1, 256>,
    }
}

message! {
    /// PDU SESSION RESOURCE MODIFY RESPONSE: TS 38.413 §9.2.1.6.
    pub struct PduSessionResourceModifyResponse {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `PDUSessionResourceModifyListModRes`.
        65 ignore lst pdu_session_resource_modify_list_mod_res: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `PDUSessionResourceFailedToModifyListModRes`.
        54 ignore lst pdu_session_resource_failed_to_modify_list_mod_res: Vec<PduSessionResourceItem>
            as List<1, 256>,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
