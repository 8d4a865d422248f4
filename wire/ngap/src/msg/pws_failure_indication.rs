//! Procedure 33: PWS failure indication.

use crate::ie::{GlobalRanNodeId, PwsFailedCellIdList};

message! {
    /// PWS FAILURE INDICATION: TS 38.413 §9.2.8.6.
    pub struct PwsFailureIndication {
        /// `PWSFailedCellIDList`.
        81 reject req pws_failed_cell_id_list: PwsFailedCellIdList,
        /// `GlobalRANNodeID`.
        27 reject req global_ran_node_id: GlobalRanNodeId,
    }
}
