//! What an NG RESET resets.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::List;

choice! {
    /// `ResetType`.
    pub enum ResetType {
        /// `nG-Interface`.
        NgInterface(ResetAll),
        /// `partOfNG-Interface`.
        PartOfNgInterface(Vec<UeAssociatedLogicalNgConnectionItem> as List<1, 65536>),
    }
}

enumerated! {
    /// `ResetAll`.
    pub enum ResetAll { ResetAll "reset-all" } + {}
}

sequence! {
    /// `UE-associatedLogicalNG-connectionItem`.
    pub struct UeAssociatedLogicalNgConnectionItem {
        /// `aMF-UE-NGAP-ID`.
        opt amf_ue_ngap_id: AmfUeNgapId,
        /// `rAN-UE-NGAP-ID`.
        opt ran_ue_ngap_id: RanUeNgapId,
    }
}
