//! IEs of an AMF: names, GUAMIs, slices, load.

use whimbrel_ids::{Guami, PlmnId, SNssai};

use crate::aper::codec::{Alone, Int, List, StringExt, Utf8};
use crate::ie::NpnSupport;

enumerated! {
    /// UE Retention Information (TS 38.413 §9.3.1.117).
    pub enum UeRetentionInformation { UesRetained "ues-retained" } + {}
}

sequence! {
    /// `ServedGUAMIItem` (TS 38.413 §9.4.5).
    pub struct ServedGuamiItem {
        /// `gUAMI`.
        req guami: Guami,
        /// `backupAMFName`.
        opt backup_amf_name: String as StringExt<1, 150>,
        ;
        /// `GUAMIType`.
        176 ignore opt guami_type: GuamiType,
    }
}

enumerated! {
    /// `GUAMIType` (TS 38.413 §9.4.5).
    pub enum GuamiType { Native "native", Mapped "mapped" } + {}
}

sequence! {
    /// `PLMNSupportItem` (TS 38.413 §9.4.5).
    pub struct PlmnSupportItem {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `sliceSupportList`.
        req slice_support_list: Vec<SNssai> as List<1, 1024, Alone>,
        ;
        /// `NPN-Support`.
        258 reject opt npn_support: NpnSupport,
        /// `ExtendedSliceSupportList`. What exceeds 1024 slices.
        270 reject lst extended_slice_support_list: Vec<SNssai> as List<1, 65535, Alone>,
        /// `OnboardingSupport`.
        325 ignore opt onboarding_support: OnboardingSupport,
    }
}

enumerated! {
    /// `OnboardingSupport` (TS 38.413 §9.4.5).
    pub enum OnboardingSupport { True "true" } + {}
}

sequence! {
    /// Extended AMF Name (TS 38.413 §9.3.3.51).
    pub struct ExtendedAmfName {
        /// `aMFNameVisibleString`.
        opt amf_name_visible_string: String as StringExt<1, 150>,
        /// `aMFNameUTF8String`.
        opt amf_name_utf8_string: String as Utf8,
    }
}

enumerated! {
    /// Time to Wait (TS 38.413 §9.3.1.56).
    pub enum TimeToWait {
        V1s "v1s", V2s "v2s", V5s "v5s", V10s "v10s", V20s "v20s", V60s "v60s",
    } + {}
}

sequence! {
    /// `UnavailableGUAMIItem` (TS 38.413 §9.4.5).
    pub struct UnavailableGuamiItem {
        /// `gUAMI`.
        req guami: Guami,
        /// `timerApproachForGUAMIRemoval`.
        opt timer_approach_for_guami_removal: TimerApproachForGuamiRemoval,
        /// `backupAMFName`.
        opt backup_amf_name: String as StringExt<1, 150>,
    }
}

enumerated! {
    /// `TimerApproachForGUAMIRemoval` (TS 38.413 §9.4.5).
    pub enum TimerApproachForGuamiRemoval { ApplyTimer "apply-timer" } + {}
}

choice! {
    /// Overload Response (TS 38.413 §9.3.1.104).
    pub enum OverloadResponse {
        /// `overloadAction`.
        OverloadAction(OverloadAction),
    }
}

enumerated! {
    /// Overload Action (TS 38.413 §9.3.1.105).
    pub enum OverloadAction {
        RejectNonEmergencyMoDt "reject-non-emergency-mo-dt",
        RejectRrcCrSignalling "reject-rrc-cr-signalling",
        PermitEmergencySessionsAndMobileTerminatedServicesOnly "permit-emergency-sessions-and-mobile-terminated-services-only",
        PermitHighPrioritySessionsAndMobileTerminatedServicesOnly "permit-high-priority-sessions-and-mobile-terminated-services-only",
    } + {}
}

sequence! {
    /// `OverloadStartNSSAIItem` (TS 38.413 §9.4.5).
    pub struct OverloadStartNssaiItem {
        /// `sliceOverloadList`.
        req slice_overload_list: Vec<SNssai> as List<1, 1024, Alone>,
        /// `sliceOverloadResponse`.
        opt slice_overload_response: OverloadResponse,
        /// `sliceTrafficLoadReductionIndication`.
        opt slice_traffic_load_reduction_indication: u8 as Int<1, 99>,
    }
}
