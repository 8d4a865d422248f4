//! Procedure 20: NG reset.

use crate::aper::codec::List;
use crate::ie::{Cause, CriticalityDiagnostics, ResetType, UeAssociatedLogicalNgConnectionItem};

message! {
    /// NG RESET: TS 38.413 §9.2.6.11.
    pub struct NgReset {
        /// `Cause`.
        15 ignore dft cause: Cause,
        /// `ResetType`.
        88 reject req reset_type: ResetType,
    }
}

message! {
    /// NG RESET ACKNOWLEDGE: TS 38.413 §9.2.6.12.
    pub struct NgResetAcknowledge {
        /// `UE-associatedLogicalNG-connectionList`.
        111 ignore lst ue_associated_logical_ng_connection_list: Vec<UeAssociatedLogicalNgConnectionItem>
            as List<1, 65536>,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
