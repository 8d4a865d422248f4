//! Procedure 24: paging.

use whimbrel_ids::Tai;

use crate::aper::codec::{Alone, List};
use crate::ie::{
    AssistanceDataForPaging, EnhancedCoverageRestriction, NrPagingEdrxInformation, PagingCause, PagingDrx,
    PagingOrigin, PagingPriority, UePagingIdentity, UeRadioCapabilityForPaging,
};

message! {
    /// PAGING: TS 38.413 §9.2.4.1.
    pub struct Paging {
        /// `UEPagingIdentity`.
        115 ignore req ue_paging_identity: UePagingIdentity,
        /// `PagingDRX`.
        50 ignore opt paging_drx: PagingDrx,
        /// `TAIListForPaging`.
        103 ignore lst tai_list_for_paging: Vec<Tai> as List<1, 16, Alone>,
        /// `PagingPriority`.
        52 ignore opt paging_priority: PagingPriority,
        /// `UERadioCapabilityForPaging`.
        118 ignore opt ue_radio_capability_for_paging: UeRadioCapabilityForPaging,
        /// `PagingOrigin`.
        51 ignore opt paging_origin: PagingOrigin,
        /// `AssistanceDataForPaging`.
        11 ignore opt assistance_data_for_paging: AssistanceDataForPaging,
        /// `Enhanced-CoverageRestriction`.
        205 ignore opt enhanced_coverage_restriction: EnhancedCoverageRestriction,
        /// `NR-PagingeDRXInformation`.
        332 ignore opt nr_paging_edrx_information: NrPagingEdrxInformation,
        /// `PagingCause`.
        342 ignore opt paging_cause: PagingCause,
    }
}
