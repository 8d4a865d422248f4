//! Bit rates per slice, and what an AMF hands on when it reroutes.

use whimbrel_ids::SNssai;

use crate::aper::codec::IntExt;

sequence! {
    /// Source to Target AMF Information Reroute (TS 38.413 §9.3.3.27).
    pub struct SourceToTargetAmfInformationReroute {
        /// `configuredNSSAI`.
        opt configured_nssai: [u8; 128],
        /// `rejectedNSSAIinPLMN`.
        opt rejected_nssai_in_plmn: [u8; 32],
        /// `rejectedNSSAIinTA`.
        opt rejected_nssai_in_ta: [u8; 32],
    }
}

sequence! {
    /// `UESliceMaximumBitRateItem` (TS 38.413 §9.4.5).
    pub struct UeSliceMaximumBitRateItem {
        /// `s-NSSAI`.
        req s_nssai: SNssai,
        /// `uESliceMaximumBitRateDL`. In bit/s.
        req ue_slice_maximum_bit_rate_dl: u64 as IntExt<0, 4000000000000>,
        /// `uESliceMaximumBitRateUL`. In bit/s.
        req ue_slice_maximum_bit_rate_ul: u64 as IntExt<0, 4000000000000>,
    }
}
