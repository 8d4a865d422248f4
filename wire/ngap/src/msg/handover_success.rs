//! Procedure 61: handover success.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

message! {
    /// HANDOVER SUCCESS: TS 38.413 §9.2.3.15.
    pub struct HandoverSuccess {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
    }
}
