//! Procedure 45: uetnla binding release.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

message! {
    /// UE TNLA BINDING RELEASE REQUEST: TS 38.413 §9.2.12.1.
    pub struct UeTnlaBindingReleaseRequest {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
    }
}
