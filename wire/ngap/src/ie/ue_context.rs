//! Properties of a UE context.

use crate::aper::codec::{BitsExt, IntExt};

enumerated! {
    /// `RRCEstablishmentCause`.
    pub enum RrcEstablishmentCause {
        Emergency "emergency", HighPriorityAccess "highPriorityAccess", MtAccess "mt-Access",
        MoSignalling "mo-Signalling", MoData "mo-Data", MoVoiceCall "mo-VoiceCall",
        MoVideoCall "mo-VideoCall", MoSms "mo-SMS", MpsPriorityAccess "mps-PriorityAccess",
        McsPriorityAccess "mcs-PriorityAccess",
    } + {
        NotAvailable "notAvailable", MoExceptionData "mo-ExceptionData",
    }
}

enumerated! {
    /// `UEContextRequest`.
    pub enum UeContextRequest { Requested "requested" } + {}
}

enumerated! {
    /// `IABNodeIndication`.
    pub enum IabNodeIndication { True "true" } + {}
}

enumerated! {
    /// `CEmodeBSupport-Indicator`.
    pub enum CeModeBSupportIndicator { Supported "supported" } + {}
}

enumerated! {
    /// `AuthenticatedIndication`.
    pub enum AuthenticatedIndication { True "true" } + {}
}

sequence! {
    /// `UEAggregateMaximumBitRate`.
    pub struct UeAggregateMaximumBitRate {
        /// `uEAggregateMaximumBitRateDL`.
        req ue_aggregate_maximum_bit_rate_dl: u64 as IntExt<0, 4000000000000>,
        /// `uEAggregateMaximumBitRateUL`.
        req ue_aggregate_maximum_bit_rate_ul: u64 as IntExt<0, 4000000000000>,
    }
}

enumerated! {
    /// `Enhanced-CoverageRestriction`.
    pub enum EnhancedCoverageRestriction { Restricted "restricted" } + {}
}

enumerated! {
    /// `EndIndication`.
    pub enum EndIndication {
        NoFurtherData "no-further-data", FurtherDataExists "further-data-exists",
    } + {}
}

sequence! {
    /// `UESecurityCapabilities`.
    pub struct UeSecurityCapabilities {
        /// `nRencryptionAlgorithms`.
        req nr_encryption_algorithms: u16 as BitsExt<16>,
        /// `nRintegrityProtectionAlgorithms`.
        req nr_integrity_protection_algorithms: u16 as BitsExt<16>,
        /// `eUTRAencryptionAlgorithms`.
        req eutra_encryption_algorithms: u16 as BitsExt<16>,
        /// `eUTRAintegrityProtectionAlgorithms`.
        req eutra_integrity_protection_algorithms: u16 as BitsExt<16>,
    }
}

sequence! {
    /// `EmergencyFallbackIndicator`.
    pub struct EmergencyFallbackIndicator {
        /// `emergencyFallbackRequestIndicator`.
        req emergency_fallback_request_indicator: EmergencyFallbackRequestIndicator,
        /// `emergencyServiceTargetCN`.
        opt emergency_service_target_cn: EmergencyServiceTargetCn,
    }
}

enumerated! {
    /// `EmergencyFallbackRequestIndicator`.
    pub enum EmergencyFallbackRequestIndicator {
        EmergencyFallbackRequested "emergency-fallback-requested",
    } + {}
}

enumerated! {
    /// `EmergencyServiceTargetCN`.
    pub enum EmergencyServiceTargetCn { FiveGc "fiveGC", Epc "epc" } + {}
}

enumerated! {
    /// `RRCInactiveTransitionReportRequest`.
    pub enum RrcInactiveTransitionReportRequest {
        SubsequentStateTransitionReport "subsequent-state-transition-report",
        SingleRrcConnectedStateReport "single-rrc-connected-state-report",
        CancelReport "cancel-report",
    } + {}
}

enumerated! {
    /// `RedirectionVoiceFallback`.
    pub enum RedirectionVoiceFallback { Possible "possible", NotPossible "not-possible" } + {}
}

enumerated! {
    /// `RRCState`.
    pub enum RrcState { Inactive "inactive", Connected "connected" } + {}
}

sequence! {
    /// `PacketErrorRate`.
    pub struct PacketErrorRate {
        /// `pERScalar`.
        req per_scalar: u8 as IntExt<0, 9>,
        /// `pERExponent`.
        req per_exponent: u8 as IntExt<0, 9>,
    }
}

/// Stands for the cause that a peer left out, though it had to give one.
impl Default for RrcEstablishmentCause {
    fn default() -> Self {
        RrcEstablishmentCause::NotAvailable
    }
}
