//! What an NG RESET resets.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::List;

choice! {
    /// `ResetType` (TS 38.413 §9.4.5).
    pub enum ResetType {
        /// `nG-Interface`.
        NgInterface(ResetAll),
        /// `partOfNG-Interface`.
        PartOfNgInterface(Vec<UeAssociatedLogicalNgConnectionItem> as List<1, 65536>),
    }
}

enumerated! {
    /// `ResetAll` (TS 38.413 §9.4.5).
    pub enum ResetAll { ResetAll "reset-all" } + {}
}

sequence! {
    /// An item of the UE-associated Logical NG-connection List (TS 38.413 §9.3.3.25).
    pub struct UeAssociatedLogicalNgConnectionItem {
        /// `aMF-UE-NGAP-ID`.
        opt amf_ue_ngap_id: AmfUeNgapId,
        /// `rAN-UE-NGAP-ID`.
        opt ran_ue_ngap_id: RanUeNgapId,
    }
}
