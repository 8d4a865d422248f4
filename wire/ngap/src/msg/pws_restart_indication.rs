//! Procedure 34: PWS restart indication.

use whimbrel_ids::Tai;

use crate::aper::codec::List;
use crate::ie::{CellIdListForRestart, GlobalRanNodeId};

message! {
    /// PWS RESTART INDICATION: TS 38.413 §9.2.8.5.
    pub struct PwsRestartIndication {
        /// `CellIDListForRestart`.
        16 reject req cell_id_list_for_restart: CellIdListForRestart,
        /// `GlobalRANNodeID`.
        27 reject req global_ran_node_id: GlobalRanNodeId,
        /// `TAIListForRestart`.
        104 reject req tai_list_for_restart: Vec<Tai> as List<1, 2048>,
        /// `EmergencyAreaIDListForRestart`.
        23 reject lst emergency_area_id_list_for_restart: Vec<[u8; 3]> as List<1, 256>,
    }
}
