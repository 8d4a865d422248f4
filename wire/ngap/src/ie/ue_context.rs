//! Properties of a UE context.

use crate::aper::codec::{BitsExt, IntExt};

enumerated! {
    /// RRC Establishment Cause (TS 38.413 §9.3.1.111).
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
    /// `UEContextRequest` (TS 38.413 §9.4.5).
    pub enum UeContextRequest { Requested "requested" } + {}
}

enumerated! {
    /// `IABNodeIndication` (TS 38.413 §9.4.5).
    pub enum IabNodeIndication { True "true" } + {}
}

enumerated! {
    /// CE-mode-B Support Indicator (TS 38.413 §9.3.1.156).
    pub enum CeModeBSupportIndicator { Supported "supported" } + {}
}

enumerated! {
    /// `AuthenticatedIndication` (TS 38.413 §9.4.5).
    pub enum AuthenticatedIndication { True "true" } + {}
}

sequence! {
    /// UE Aggregate Maximum Bit Rate, in bit/s (TS 38.413 §9.3.1.58).
    pub struct UeAggregateMaximumBitRate {
        /// `uEAggregateMaximumBitRateDL`. In bit/s.
        req ue_aggregate_maximum_bit_rate_dl: u64 as IntExt<0, 4000000000000>,
        /// `uEAggregateMaximumBitRateUL`. In bit/s.
        req ue_aggregate_maximum_bit_rate_ul: u64 as IntExt<0, 4000000000000>,
    }
}

enumerated! {
    /// Enhanced Coverage Restriction (TS 38.413 §9.3.1.140).
    pub enum EnhancedCoverageRestriction { Restricted "restricted" } + {}
}

enumerated! {
    /// End Indication (TS 38.413 §9.3.3.32).
    pub enum EndIndication {
        NoFurtherData "no-further-data", FurtherDataExists "further-data-exists",
    } + {}
}

sequence! {
    /// UE Security Capabilities: algorithms by bit, the first bit that of NEA1 or NIA1 (TS 38.413 §9.3.1.86).
    pub struct UeSecurityCapabilities {
        /// `nRencryptionAlgorithms`. 128-NEA1 in the highest bit, then NEA2, NEA3; NEA0 has none.
        req nr_encryption_algorithms: u16 as BitsExt<16>,
        /// `nRintegrityProtectionAlgorithms`. 128-NIA1 in the highest bit, then NIA2, NIA3; NIA0 has none.
        req nr_integrity_protection_algorithms: u16 as BitsExt<16>,
        /// `eUTRAencryptionAlgorithms`. 128-EEA1 in the highest bit, then EEA2, EEA3; EEA0 has none.
        req eutra_encryption_algorithms: u16 as BitsExt<16>,
        /// `eUTRAintegrityProtectionAlgorithms`. 128-EIA1 in the highest bit, then EIA2, EIA3; EIA0 has none.
        req eutra_integrity_protection_algorithms: u16 as BitsExt<16>,
    }
}

sequence! {
    /// Emergency Fallback Indicator (TS 38.413 §9.3.1.26).
    pub struct EmergencyFallbackIndicator {
        /// `emergencyFallbackRequestIndicator`.
        req emergency_fallback_request_indicator: EmergencyFallbackRequestIndicator,
        /// `emergencyServiceTargetCN`.
        opt emergency_service_target_cn: EmergencyServiceTargetCn,
    }
}

enumerated! {
    /// `EmergencyFallbackRequestIndicator` (TS 38.413 §9.4.5).
    pub enum EmergencyFallbackRequestIndicator {
        EmergencyFallbackRequested "emergency-fallback-requested",
    } + {}
}

enumerated! {
    /// `EmergencyServiceTargetCN` (TS 38.413 §9.4.5).
    pub enum EmergencyServiceTargetCn { FiveGc "fiveGC", Epc "epc" } + {}
}

enumerated! {
    /// RRC Inactive Transition Report Request (TS 38.413 §9.3.1.91).
    pub enum RrcInactiveTransitionReportRequest {
        SubsequentStateTransitionReport "subsequent-state-transition-report",
        SingleRrcConnectedStateReport "single-rrc-connected-state-report",
        CancelReport "cancel-report",
    } + {}
}

enumerated! {
    /// Redirection for Voice EPS Fallback (TS 38.413 §9.3.1.116).
    pub enum RedirectionVoiceFallback { Possible "possible", NotPossible "not-possible" } + {}
}

enumerated! {
    /// RRC State (TS 38.413 §9.3.1.92).
    pub enum RrcState { Inactive "inactive", Connected "connected" } + {}
}

sequence! {
    /// Packet Error Rate: scalar times ten to the minus exponent (TS 38.413 §9.3.1.81).
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
