//! Procedure 62: uplink RAN early status transfer.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::Raw;

message! {
    /// UPLINK RAN EARLY STATUS TRANSFER: TS 38.413 §9.2.3.16.
    pub struct UplinkRanEarlyStatusTransfer {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `EarlyStatusTransfer-TransparentContainer`.
        268 reject req early_status_transfer_transparent_container: Vec<u8> as Raw,
    }
}
