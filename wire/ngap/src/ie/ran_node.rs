//! Names of RAN nodes.

use whimbrel_ids::{GlobalGnbId, PlmnId};

use crate::aper::codec::{Bits, StringExt, Utf8};

choice! {
    /// Global RAN Node ID (TS 38.413 §9.3.1.5).
    pub enum GlobalRanNodeId {
        /// `globalGNB-ID`.
        GlobalGnbId(GlobalGnbId),
        /// `globalNgENB-ID`.
        GlobalNgEnbId(GlobalNgEnbId),
        /// `globalN3IWF-ID`.
        GlobalN3iwfId(GlobalN3iwfId),
    } other Other
}

sequence! {
    /// Global ng-eNB ID (TS 38.413 §9.3.1.8).
    pub struct GlobalNgEnbId {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `ngENB-ID`.
        req ng_enb_id: NgEnbId,
    }
}

choice! {
    /// The identity of an ng-eNB within its PLMN (TS 38.413 §9.3.1.8).
    pub enum NgEnbId {
        /// `macroNgENB-ID`.
        MacroNgEnbId(u32 as Bits<20>),
        /// `shortMacroNgENB-ID`.
        ShortMacroNgEnbId(u32 as Bits<18>),
        /// `longMacroNgENB-ID`.
        LongMacroNgEnbId(u32 as Bits<21>),
    }
}

sequence! {
    /// Global N3IWF ID (TS 38.413 §9.3.1.57).
    pub struct GlobalN3iwfId {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `n3IWF-ID`.
        req n3iwf_id: N3iwfId,
    }
}

choice! {
    /// The identity of an N3IWF within its PLMN (TS 38.413 §9.3.1.57).
    pub enum N3iwfId {
        /// `n3IWF-ID`.
        N3iwfId(u16 as Bits<16>),
    }
}

enumerated! {
    /// Paging DRX, in radio frames (TS 38.413 §9.3.1.90).
    pub enum PagingDrx { V32 "v32", V64 "v64", V128 "v128", V256 "v256" } + {}
}

sequence! {
    /// Extended RAN Node Name (TS 38.413 §9.3.1.193).
    pub struct ExtendedRanNodeName {
        /// `rANNodeNameVisibleString`.
        opt ran_node_name_visible_string: String as StringExt<1, 150>,
        /// `rANNodeNameUTF8String`.
        opt ran_node_name_utf8_string: String as Utf8,
    }
}

/// Stands for the default paging DRX that a peer left out, though it had to give one.
impl Default for PagingDrx {
    fn default() -> Self {
        PagingDrx::V128
    }
}
