//! Names of a UE-associated logical NG-connection.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

choice! {
    /// `UE-NGAP-IDs` (TS 38.413 §9.4.5).
    pub enum UeNgapIds {
        /// `uE-NGAP-ID-pair`.
        UeNgapIdPair(UeNgapIdPair),
        /// `aMF-UE-NGAP-ID`.
        AmfUeNgapId(AmfUeNgapId),
    }
}

sequence! {
    /// `UE-NGAP-ID-pair` (TS 38.413 §9.4.5).
    pub struct UeNgapIdPair {
        /// `aMF-UE-NGAP-ID`.
        req amf_ue_ngap_id: AmfUeNgapId,
        /// `rAN-UE-NGAP-ID`.
        req ran_ue_ngap_id: RanUeNgapId,
    }
}
