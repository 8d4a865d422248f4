//! Procedure 52: secondary RAT data usage report.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::List;
use crate::ie::{HandoverFlag, PduSessionResourceItem, UserLocationInformation};

message! {
    /// SECONDARY RAT DATA USAGE REPORT: TS 38.413 §9.2.14.1.
    pub struct SecondaryRatDataUsageReport {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `PDUSessionResourceSecondaryRATUsageList`.
        142 ignore lst pdu_session_resource_secondary_rat_usage_list: Vec<PduSessionResourceItem>
            as List<1, 256>,
        /// `HandoverFlag`.
        143 ignore opt handover_flag: HandoverFlag,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
    }
}
