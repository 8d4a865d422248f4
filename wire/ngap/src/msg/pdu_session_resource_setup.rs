//! Procedure 29: PDU session resource setup.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::{Int, List, Octets};
use crate::ie::{
    CriticalityDiagnostics, PduSessionResourceItem, PduSessionResourceSetupItemSuReq,
    UeAggregateMaximumBitRate, UeSliceMaximumBitRateItem, UserLocationInformation,
};

message! {
    /// PDU SESSION RESOURCE SETUP REQUEST: TS 38.413 §9.2.1.1.
    pub struct PduSessionResourceSetupRequest {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `RANPagingPriority`. 1 is the most important, 256 the least.
        83 ignore opt ran_paging_priority: u16 as Int<1, 256>,
        /// `NAS-PDU`. A NAS message.
        38 reject opt nas_pdu: Vec<u8> as Octets,
        /// `PDUSessionResourceSetupListSUReq`.
        74 reject req pdu_session_resource_setup_list_su_req: Vec<PduSessionResourceSetupItemSuReq>
            as List<1, 256>,
        /// `UEAggregateMaximumBitRate`.
        110 ignore opt ue_aggregate_maximum_bit_rate: UeAggregateMaximumBitRate,
        /// `UESliceMaximumBitRateList`.
        335 ignore lst ue_slice_maximum_bit_rate_list: Vec<UeSliceMaximumBitRateItem> as List<1, 8>,
    }
}

message! {
    /// PDU SESSION RESOURCE SETUP RESPONSE: TS 38.413 §9.2.1.2.
    pub struct PduSessionResourceSetupResponse {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `PDUSessionResourceSetupListSURes`.
        75 ignore lst pdu_session_resource_setup_list_su_res: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `PDUSessionResourceFailedToSetupListSURes`.
        58 ignore lst pdu_session_resource_failed_to_setup_list_su_res: Vec<PduSessionResourceItem>
            as List<1, 256>,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
    }
}
