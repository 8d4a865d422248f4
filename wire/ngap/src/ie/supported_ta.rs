//! Tracking areas that a RAN node serves, with networks and slices.

use whimbrel_ids::{PlmnId, SNssai, Tac};

use crate::aper::codec::{Alone, List};
use crate::ie::NpnSupport;

sequence! {
    /// `SupportedTAItem` (TS 38.413 §9.4.5).
    pub struct SupportedTaItem {
        /// `tAC`.
        req tac: Tac,
        /// `broadcastPLMNList`.
        req broadcast_plmn_list: Vec<BroadcastPlmnItem> as List<1, 12>,
        ;
        /// `ConfiguredTACIndication`.
        272 ignore opt configured_tac_indication: ConfiguredTacIndication,
        /// `RAT-Information`.
        179 reject opt rat_information: RatInformation,
    }
}

sequence! {
    /// `BroadcastPLMNItem` (TS 38.413 §9.4.5).
    pub struct BroadcastPlmnItem {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `tAISliceSupportList`.
        req tai_slice_support_list: Vec<SNssai> as List<1, 1024, Alone>,
        ;
        /// `NPN-Support`.
        258 reject opt npn_support: NpnSupport,
        /// `ExtendedTAISliceSupportList`. What exceeds 1024 slices.
        271 reject lst extended_tai_slice_support_list: Vec<SNssai> as List<1, 65535, Alone>,
    }
}

enumerated! {
    /// Configured TAC Indication (TS 38.413 §9.3.3.50).
    pub enum ConfiguredTacIndication { True "true" } + {}
}

enumerated! {
    /// RAT Information (TS 38.413 §9.3.1.125).
    pub enum RatInformation {
        Unlicensed "unlicensed", NbIot "nb-IoT",
    } + {
        NrLeo "nR-LEO", NrMeo "nR-MEO", NrGeo "nR-GEO", NrOthersat "nR-OTHERSAT",
    }
}
