//! Procedure 9: error indication.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId, STmsi};

use crate::ie::{Cause, CriticalityDiagnostics};

message! {
    /// ERROR INDICATION: TS 38.413 §9.2.6.13.
    pub struct ErrorIndication {
        /// `AMF-UE-NGAP-ID`.
        10 ignore opt amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore opt ran_ue_ngap_id: RanUeNgapId,
        /// `Cause`.
        15 ignore opt cause: Cause,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
        /// `FiveG-S-TMSI`.
        26 ignore opt five_g_s_tmsi: STmsi,
    }
}
