//! Procedure 59: UE context suspend. The core offers none; its answer is the failure.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::List;
use crate::ie::{
    Cause, CriticalityDiagnostics, InfoOnRecommendedCellsAndRanNodesForPaging, PduSessionResourceItem,
    UserLocationInformation,
};

message! {
    /// UE CONTEXT SUSPEND REQUEST: TS 38.413 §9.2.2.17.
    pub struct UeContextSuspendRequest {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `InfoOnRecommendedCellsAndRANNodesForPaging`.
        32 ignore opt info_on_recommended_cells_and_ran_nodes_for_paging: InfoOnRecommendedCellsAndRanNodesForPaging,
        /// `PDUSessionResourceSuspendListSUSReq`.
        231 reject lst pdu_session_resource_suspend_list_sus_req: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
    }
}

message! {
    /// UE CONTEXT SUSPEND FAILURE: TS 38.413 §9.2.2.19.
    pub struct UeContextSuspendFailure {
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
