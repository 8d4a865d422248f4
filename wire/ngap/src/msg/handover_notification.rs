//! Procedure 11: handover notification.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::ie::{NotifySourceNgranNode, UserLocationInformation};

message! {
    /// HANDOVER NOTIFY: TS 38.413 §9.2.3.7.
    pub struct HandoverNotify {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
        /// `NotifySourceNGRANNode`.
        269 ignore opt notify_source_ngran_node: NotifySourceNgranNode,
    }
}
