//! Procedure 18: location report.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::List;
use crate::ie::{LocationReportingRequestType, UePresenceInAreaOfInterestItem, UserLocationInformation};

message! {
    /// LOCATION REPORT: TS 38.413 §9.2.11.3.
    pub struct LocationReport {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
        /// `UEPresenceInAreaOfInterestList`.
        116 ignore lst ue_presence_in_area_of_interest_list: Vec<UePresenceInAreaOfInterestItem>
            as List<1, 64>,
        /// `LocationReportingRequestType`.
        33 ignore opt location_reporting_request_type: LocationReportingRequestType,
    }
}
