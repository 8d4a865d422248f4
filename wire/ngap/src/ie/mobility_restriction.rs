//! Where and how a UE may move (TS 38.413 §9.3.1.85).

use whimbrel_ids::{PlmnId, Tac};

use crate::aper::codec::{BitsExt, List};
use crate::ie::NpnMobilityInformation;

sequence! {
    /// Mobility Restriction List (TS 38.413 §9.3.1.85).
    pub struct MobilityRestrictionList {
        /// `servingPLMN`.
        req serving_plmn: PlmnId,
        /// `equivalentPLMNs`.
        lst equivalent_plmns: Vec<PlmnId> as List<1, 15>,
        /// `rATRestrictions`.
        lst rat_restrictions: Vec<RatRestrictionsItem> as List<1, 16>,
        /// `forbiddenAreaInformation`.
        lst forbidden_area_information: Vec<ForbiddenAreaInformationItem> as List<1, 16>,
        /// `serviceAreaInformation`.
        lst service_area_information: Vec<ServiceAreaInformationItem> as List<1, 16>,
        ;
        /// `LastEUTRAN-PLMNIdentity`.
        150 ignore opt last_eutran_plmn_identity: PlmnId,
        /// `CNTypeRestrictionsForServing`.
        161 ignore opt cn_type_restrictions_for_serving: CnTypeRestrictionsForServing,
        /// `CNTypeRestrictionsForEquivalent`.
        160 ignore lst cn_type_restrictions_for_equivalent: Vec<CnTypeRestrictionsForEquivalentItem>
            as List<1, 15>,
        /// `NPN-MobilityInformation`.
        261 reject opt npn_mobility_information: NpnMobilityInformation,
    }
}

sequence! {
    /// RATs that a UE may not use in a PLMN (TS 38.413 §9.3.1.85).
    pub struct RatRestrictionsItem {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `rATRestrictionInformation`. E-UTRA in the highest bit, then NR, NR unlicensed, and the rest of TS
        /// 38.413 §9.3.1.85.
        req rat_restriction_information: u8 as BitsExt<8>,
        ;
        /// `ExtendedRATRestrictionInformation`.
        180 ignore opt extended_rat_restriction_information: ExtendedRatRestrictionInformation,
    }
}

sequence! {
    /// Extended RAT Restriction Information (TS 38.413 §9.3.1.126).
    pub struct ExtendedRatRestrictionInformation {
        /// `primaryRATRestriction`.
        req primary_rat_restriction: u8 as BitsExt<8>,
        /// `secondaryRATRestriction`.
        req secondary_rat_restriction: u8 as BitsExt<8>,
    }
}

sequence! {
    /// Areas that a UE may not use in a PLMN (TS 38.413 §9.3.1.85).
    pub struct ForbiddenAreaInformationItem {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `forbiddenTACs`.
        req forbidden_tacs: Vec<Tac> as List<1, 4096>,
    }
}

sequence! {
    /// Areas where a UE may, or may not, start services (TS 38.413 §9.3.1.85).
    pub struct ServiceAreaInformationItem {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `allowedTACs`.
        lst allowed_tacs: Vec<Tac> as List<1, 16>,
        /// `notAllowedTACs`.
        lst not_allowed_tacs: Vec<Tac> as List<1, 16>,
    }
}

enumerated! {
    /// `CNTypeRestrictionsForServing` (TS 38.413 §9.4.5).
    pub enum CnTypeRestrictionsForServing { EpcForbidden "epc-forbidden" } + {}
}

sequence! {
    /// `CNTypeRestrictionsForEquivalentItem` (TS 38.413 §9.4.5).
    pub struct CnTypeRestrictionsForEquivalentItem {
        /// `plmnIdentity`.
        req plmn_identity: PlmnId,
        /// `cn-Type`.
        req cn_type: CnTypeRestrictionsForEquivalentItemCnType,
    }
}

enumerated! {
    /// `CNTypeRestrictionsForEquivalentItem-cn-Type` (TS 38.413 §9.4.5).
    pub enum CnTypeRestrictionsForEquivalentItemCnType {
        EpcForbidden "epc-forbidden", FiveGcForbidden "fiveGC-forbidden",
    } + {}
}
