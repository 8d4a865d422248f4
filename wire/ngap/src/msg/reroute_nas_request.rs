//! Procedure 36: reroute NAS request.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId, SNssai};

use crate::aper::codec::{Alone, Bits, List, Octets};
use crate::ie::SourceToTargetAmfInformationReroute;

message! {
    /// REROUTE NAS REQUEST: TS 38.413 §9.2.5.5.
    pub struct RerouteNasRequest {
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `AMF-UE-NGAP-ID`.
        10 ignore opt amf_ue_ngap_id: AmfUeNgapId,
        /// `NGAP-Message`.
        42 reject req ngap_message: Vec<u8> as Octets,
        /// `AMFSetID`. AMF Set ID (TS 38.413 §9.3.3.12), of the AMF that the UE should be given.
        3 reject req amf_set_id: u16 as Bits<10>,
        /// `AllowedNSSAI`. Allowed NSSAI (TS 38.413 §9.3.1.31).
        0 reject lst allowed_nssai: Vec<SNssai> as List<1, 8, Alone>,
        /// `SourceToTarget-AMFInformationReroute`.
        171 ignore opt source_to_target_amf_information_reroute: SourceToTargetAmfInformationReroute,
    }
}
