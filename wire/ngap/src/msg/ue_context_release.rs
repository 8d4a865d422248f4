//! Procedure 41: UE context release.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::List;
use crate::ie::{
    Cause, CriticalityDiagnostics, InfoOnRecommendedCellsAndRanNodesForPaging,
    PduSessionResourceItemCxtRelCpl, UeNgapIds, UserLocationInformation,
};

message! {
    /// UE CONTEXT RELEASE COMMAND: TS 38.413 §9.2.2.5.
    pub struct UeContextReleaseCommand {
        /// `UE-NGAP-IDs`.
        114 reject req ue_ngap_ids: UeNgapIds,
        /// `Cause`.
        15 ignore dft cause: Cause,
    }
}

message! {
    /// UE CONTEXT RELEASE COMPLETE: TS 38.413 §9.2.2.6.
    pub struct UeContextReleaseComplete {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
        /// `InfoOnRecommendedCellsAndRANNodesForPaging`.
        32 ignore opt info_on_recommended_cells_and_ran_nodes_for_paging: InfoOnRecommendedCellsAndRanNodesForPaging,
        /// `PDUSessionResourceListCxtRelCpl`.
        60 reject lst pdu_session_resource_list_cxt_rel_cpl: Vec<PduSessionResourceItemCxtRelCpl>
            as List<1, 256>,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
