//! Procedure 28: PDU session resource release.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::{Int, List, Octets};
use crate::ie::{CriticalityDiagnostics, PduSessionResourceItem, UserLocationInformation};

message! {
    /// PDU SESSION RESOURCE RELEASE COMMAND: TS 38.413 §9.2.1.3.
    pub struct PduSessionResourceReleaseCommand {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `RANPagingPriority`. 1 is the most important, 256 the least.
        83 ignore opt ran_paging_priority: u16 as Int<1, 256>,
        /// `NAS-PDU`. A NAS message.
        38 ignore opt nas_pdu: Vec<u8> as Octets,
        /// `PDUSessionResourceToReleaseListRelCmd`.
        79 reject req pdu_session_resource_to_release_list_rel_cmd: Vec<PduSessionResourceItem>
            as List<1, 256>,
    }
}

message! {
    /// PDU SESSION RESOURCE RELEASE RESPONSE: TS 38.413 §9.2.1.4.
    pub struct PduSessionResourceReleaseResponse {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `PDUSessionResourceReleasedListRelRes`.
        70 ignore lst pdu_session_resource_released_list_rel_res: Vec<PduSessionResourceItem> as List<1, 256>,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
