//! Properties of a PDU session.

use crate::aper::codec::IntExt;

sequence! {
    /// PDU Session Aggregate Maximum Bit Rate, in bit/s (TS 38.413 §9.3.1.102).
    pub struct PduSessionAggregateMaximumBitRate {
        /// `pDUSessionAggregateMaximumBitRateDL`. In bit/s.
        req pdu_session_aggregate_maximum_bit_rate_dl: u64 as IntExt<0, 4000000000000>,
        /// `pDUSessionAggregateMaximumBitRateUL`. In bit/s.
        req pdu_session_aggregate_maximum_bit_rate_ul: u64 as IntExt<0, 4000000000000>,
    }
}

enumerated! {
    /// Data Forwarding Not Possible (TS 38.413 §9.3.1.63).
    pub enum DataForwardingNotPossible {
        DataForwardingNotPossible "data-forwarding-not-possible",
    } + {}
}

enumerated! {
    /// PDU Session Type (TS 38.413 §9.3.1.52).
    pub enum PduSessionType {
        Ipv4 "ipv4", Ipv6 "ipv6", Ipv4v6 "ipv4v6", Ethernet "ethernet", Unstructured "unstructured",
    } + {}
}

sequence! {
    /// Security Indication: the user plane security policy (TS 38.413 §9.3.1.27).
    pub struct SecurityIndication {
        /// `integrityProtectionIndication`.
        req integrity_protection_indication: IntegrityProtectionIndication,
        /// `confidentialityProtectionIndication`.
        req confidentiality_protection_indication: ConfidentialityProtectionIndication,
        /// `maximumIntegrityProtectedDataRate-UL`.
        opt maximum_integrity_protected_data_rate_ul: MaximumIntegrityProtectedDataRate,
        ;
        /// `MaximumIntegrityProtectedDataRate-DL`.
        151 ignore opt maximum_integrity_protected_data_rate_dl: MaximumIntegrityProtectedDataRate,
    }
}

enumerated! {
    /// Whether user plane integrity protection is asked for (TS 38.413 §9.3.1.27).
    pub enum IntegrityProtectionIndication {
        Required "required", Preferred "preferred", NotNeeded "not-needed",
    } + {}
}

enumerated! {
    /// Whether user plane ciphering is asked for (TS 38.413 §9.3.1.27).
    pub enum ConfidentialityProtectionIndication {
        Required "required", Preferred "preferred", NotNeeded "not-needed",
    } + {}
}

enumerated! {
    /// Maximum Integrity Protected Data Rate (TS 38.413 §9.3.1.103).
    pub enum MaximumIntegrityProtectedDataRate {
        Bitrate64kbs "bitrate64kbs", MaximumUeRate "maximum-UE-rate",
    } + {}
}

sequence! {
    /// Security Result: what user plane security a session has got (TS 38.413 §9.3.1.59).
    pub struct SecurityResult {
        /// `integrityProtectionResult`.
        req integrity_protection_result: IntegrityProtectionResult,
        /// `confidentialityProtectionResult`.
        req confidentiality_protection_result: ConfidentialityProtectionResult,
    }
}

enumerated! {
    /// `IntegrityProtectionResult` (TS 38.413 §9.4.5).
    pub enum IntegrityProtectionResult {
        Performed "performed", NotPerformed "not-performed",
    } + {}
}

enumerated! {
    /// `ConfidentialityProtectionResult` (TS 38.413 §9.4.5).
    pub enum ConfidentialityProtectionResult {
        Performed "performed", NotPerformed "not-performed",
    } + {}
}

sequence! {
    /// User Plane Security Information (TS 38.413 §9.3.1.60).
    pub struct UserPlaneSecurityInformation {
        /// `securityResult`.
        req security_result: SecurityResult,
        /// `securityIndication`.
        req security_indication: SecurityIndication,
    }
}
