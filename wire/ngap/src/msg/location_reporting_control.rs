//! Procedure 16: location reporting control.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::ie::LocationReportingRequestType;

message! {
    /// LOCATION REPORTING CONTROL: TS 38.413 §9.2.11.1.
    pub struct LocationReportingControl {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `LocationReportingRequestType`.
        33 ignore opt location_reporting_request_type: LocationReportingRequestType,
    }
}
