//! Procedure 42: UE context release request.

use whimbrel_ids::{AmfUeNgapId, PduSessionId, RanUeNgapId};

use crate::aper::codec::{Alone, List};
use crate::ie::Cause;

message! {
    /// UE CONTEXT RELEASE REQUEST: TS 38.413 §9.2.2.4.
    pub struct UeContextReleaseRequest {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `PDUSessionResourceListCxtRelReq`.
        133 reject lst pdu_session_resource_list_cxt_rel_req: Vec<PduSessionId> as List<1, 256, Alone>,
        /// `Cause`.
        15 ignore dft cause: Cause,
    }
}
