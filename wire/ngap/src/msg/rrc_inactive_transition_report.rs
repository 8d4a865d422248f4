//! Procedure 37: RRC inactive transition report.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::ie::{RrcState, UserLocationInformation};

message! {
    /// RRC INACTIVE TRANSITION REPORT: TS 38.413 §9.2.2.10.
    pub struct RrcInactiveTransitionReport {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `RRCState`.
        92 ignore opt rrc_state: RrcState,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
    }
}
