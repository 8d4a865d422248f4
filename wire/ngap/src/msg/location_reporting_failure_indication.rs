//! Procedure 17: location reporting failure indication.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::ie::Cause;

message! {
    /// LOCATION REPORTING FAILURE INDICATION: TS 38.413 §9.2.11.2.
    pub struct LocationReportingFailureIndication {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `Cause`.
        15 ignore dft cause: Cause,
    }
}
