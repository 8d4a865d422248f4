//! Transfers of the PDU session resource release (TS 38.413 §9.3.4).

use crate::ie::{Cause, SecondaryRatUsageInformation};

sequence! {
    /// PDU Session Resource Release Command Transfer (TS 38.413 §9.3.4.12).
    pub struct PduSessionResourceReleaseCommandTransfer {
        /// `cause`.
        req cause: Cause,
    }
}

sequence! {
    /// PDU Session Resource Release Response Transfer (TS 38.413 §9.3.4.21).
    pub struct PduSessionResourceReleaseResponseTransfer {
        ;
        /// `SecondaryRATUsageInformation`.
        144 ignore opt secondary_rat_usage_information: SecondaryRatUsageInformation,
    }
}
