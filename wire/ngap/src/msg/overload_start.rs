//! Procedure 22: overload start.

use crate::aper::codec::{Int, List};
use crate::ie::{OverloadResponse, OverloadStartNssaiItem};

message! {
    /// OVERLOAD START: TS 38.413 §9.2.6.14.
    pub struct OverloadStart {
        /// `AMFOverloadResponse`.
        2 reject opt amf_overload_response: OverloadResponse,
        /// `AMFTrafficLoadReductionIndication`.
        9 ignore opt amf_traffic_load_reduction_indication: u8 as Int<1, 99>,
        /// `OverloadStartNSSAIList`.
        49 ignore lst overload_start_nssai_list: Vec<OverloadStartNssaiItem> as List<1, 1024>,
    }
}
