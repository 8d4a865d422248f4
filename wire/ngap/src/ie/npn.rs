//! Elements of non-public networks.

use whimbrel_ids::PlmnId;

use crate::aper::codec::{Alone, Bits, List};

choice! {
    /// NPN Support (TS 38.413 §9.3.3.44).
    pub enum NpnSupport {
        /// `sNPN`.
        Snpn(u64 as Bits<44>),
    }
}

choice! {
    /// NPN Access Information (TS 38.413 §9.3.3.46).
    pub enum NpnAccessInformation {
        /// `pNI-NPN-Access-Information`.
        PniNpnAccessInformation(Vec<u32> as List<1, 64, Bits<32>>),
    }
}

choice! {
    /// NPN Mobility Information (TS 38.413 §9.3.1.184).
    pub enum NpnMobilityInformation {
        /// `sNPN-MobilityInformation`.
        SnpnMobilityInformation(u64 as Alone<Bits<44>>),
        /// `pNI-NPN-MobilityInformation`.
        PniNpnMobilityInformation(Vec<AllowedPniNpnItem> as Alone<List<1, 16>>),
    }
}

sequence! {
    /// An item of the Allowed PNI-NPN List (TS 38.413 §9.3.3.45).
    pub struct AllowedPniNpnItem {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `pNI-NPN-restricted`.
        req pni_npn_restricted: AllowedPniNpnItemPniNpnRestricted,
        /// `allowed-CAG-List-per-PLMN`.
        req allowed_cag_list_per_plmn: Vec<u32> as List<1, 256, Bits<32>>,
    }
}

enumerated! {
    /// `Allowed-PNI-NPN-Item-pNI-NPN-restricted` (TS 38.413 §9.4.5).
    pub enum AllowedPniNpnItemPniNpnRestricted {
        Restricted "restricted", NotRestricted "not-restricted",
    } + {}
}
