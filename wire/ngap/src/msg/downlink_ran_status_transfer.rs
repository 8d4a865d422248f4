//! Procedure 7: downlink RAN status transfer.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::Raw;

message! {
    /// DOWNLINK RAN STATUS TRANSFER: TS 38.413 §9.2.3.14.
    pub struct DownlinkRanStatusTransfer {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `RANStatusTransfer-TransparentContainer`.
        84 reject req ran_status_transfer_transparent_container: Vec<u8> as Raw,
    }
}
