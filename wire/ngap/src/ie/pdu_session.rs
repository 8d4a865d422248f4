//! Properties of a PDU session.

use crate::aper::codec::IntExt;

sequence! {
    /// `PDUSessionAggregateMaximumBitRate`.
    pub struct PduSessionAggregateMaximumBitRate {
        /// `pDUSessionAggregateMaximumBitRateDL`.
        req pdu_session_aggregate_maximum_bit_rate_dl: u64 as IntExt<0, 4000000000000>,
        /// `pDUSessionAggregateMaximumBitRateUL`.
        req pdu_session_aggregate_maximum_bit_rate_ul: u64 as IntExt<0, 4000000000000>,
    }
}

enumerated! {
    /// `DataForwardingNotPossible`.
    pub enum DataForwardingNotPossible {
        DataForwardingNotPossible "data-forwarding-not-possible",
    } + {}
}

enumerated! {
    /// `PDUSessionType`.
    pub enum PduSessionType {
        Ipv4 "ipv4", Ipv6 "ipv6", Ipv4v6 "ipv4v6", Ethernet "ethernet", Unstructured "unstructured",
    } + {}
}

sequence! {
    /// `SecurityIndication`.
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
    /// `IntegrityProtectionIndication`.
    pub enum IntegrityProtectionIndication {
        Required "required", Preferred "preferred", NotNeeded "not-needed",
    } + {}
}

enumerated! {
    /// `ConfidentialityProtectionIndication`.
    pub enum ConfidentialityProtectionIndication {
        Required "required", Preferred "preferred", NotNeeded "not-needed",
    } + {}
}

enumerated! {
    /// `MaximumIntegrityProtectedDataRate`.
    pub enum MaximumIntegrityProtectedDataRate {
        Bitrate64kbs "bitrate64kbs", MaximumUeRate "maximum-UE-rate",
    } + {}
}

sequence! {
    /// `SecurityResult`.
    pub struct SecurityResult {
        /// `integrityProtectionResult`.
        req integrity_protection_result: IntegrityProtectionResult,
        /// `confidentialityProtectionResult`.
        req confidentiality_protection_result: ConfidentialityProtectionResult,
    }
}

enumerated! {
    /// `IntegrityProtectionResult`.
    pub enum IntegrityProtectionResult {
        Performed "performed", NotPerformed "not-performed",
    } + {}
}

enumerated! {
    /// `ConfidentialityProtectionResult`.
    pub enum ConfidentialityProtectionResult {
        Performed "performed", NotPerformed "not-performed",
    } + {}
}

sequence! {
    /// `UserPlaneSecurityInformation`.
    pub struct UserPlaneSecurityInformation {
        /// `securityResult`.
        req security_result: SecurityResult,
        /// `securityIndication`.
        req security_indication: SecurityIndication,
    }
}
