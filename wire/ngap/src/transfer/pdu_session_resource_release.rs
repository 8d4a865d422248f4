//! Transfers of the PDU session resource release (TS 38.413 §9.3.4).

use crate::ie::{Cause, SecondaryRatUsageInformation};

sequence! {
    /// `PDUSessionResourceReleaseCommandTransfer`.
    pub struct PduSessionResourceReleaseCommandTransfer {
        /// `cause`.
        req cause: Cause,
    }
}

sequence! {
    /// `PDUSessionResourceReleaseResponseTransfer`.
    pub struct PduSessionResourceReleaseResponseTransfer {
        ;
        /// `SecondaryRATUsageInformation`.
        144 ignore opt secondary_rat_usage_information: SecondaryRatUsageInformation,
    }
}
