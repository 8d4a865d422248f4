//! Procedure 10: handover cancel.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::ie::{Cause, CriticalityDiagnostics};

message! {
    /// HANDOVER CANCEL: TS 38.413 §9.2.3.11.
    pub struct HandoverCancel {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `Cause`.
        15 ignore dft cause: Cause,
    }
}

message! {
    /// HANDOVER CANCEL ACKNOWLEDGE: TS 38.413 §9.2.3.12.
    pub struct HandoverCancelAcknowledge {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
