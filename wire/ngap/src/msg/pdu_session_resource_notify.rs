//! Procedure 30: PDU session resource notify.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::List;
use crate::ie::{PduSessionResourceItem, UserLocationInformation};

message! {
    /// PDU SESSION RESOURCE NOTIFY: TS 38.413 §9.2.1.7.
    pub struct PduSessionResourceNotify {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `PDUSessionResourceNotifyList`.
        66 reject lst pdu_session_resource_notify_list: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `PDUSessionResourceReleasedListNot`.
        67 ignore lst pdu_session_resource_released_list_not: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
    }
}
