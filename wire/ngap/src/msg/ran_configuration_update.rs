//! Procedure 35: RAN configuration update.

use crate::aper::codec::{List, StringExt};
use crate::ie::{
    Cause, CriticalityDiagnostics, ExtendedRanNodeName, GlobalRanNodeId, NgranTnlAssociationToRemoveItem,
    PagingDrx, SupportedTaItem, TimeToWait,
};

message! {
    /// RAN CONFIGURATION UPDATE: TS 38.413 §9.2.6.4.
    pub struct RanConfigurationUpdate {
        /// `RANNodeName`.
        82 ignore opt ran_node_name: String as StringExt<1, 150>,
        /// `SupportedTAList`.
        102 reject lst supported_ta_list: Vec<SupportedTaItem> as List<1, 256>,
        /// `DefaultPagingDRX`.
        21 ignore opt default_paging_drx: PagingDrx,
        /// `GlobalRANNodeID`.
        27 ignore opt global_ran_node_id: GlobalRanNodeId,
        /// `NGRAN-TNLAssociationToRemoveList`.
        167 reject lst ngran_tnl_association_to_remove_list: Vec<NgranTnlAssociationToRemoveItem>
            as List<1, 32>,
        /// `Extended-RANNodeName`.
        273 ignore opt extended_ran_node_name: ExtendedRanNodeName,
    }
}

message! {
    /// RAN CONFIGURATION UPDATE ACKNOWLEDGE: TS 38.413 §9.2.6.5.
    pub struct RanConfigurationUpdateAcknowledge {
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}

message! {
    /// RAN CONFIGURATION UPDATE FAILURE: TS 38.413 §9.2.6.6.
    pub struct RanConfigurationUpdateFailure {
        /// `Cause`.
        15 ignore dft cause: Cause,
        /// `TimeToWait`.
        107 ignore opt time_to_wait: TimeToWait,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
