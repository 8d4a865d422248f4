//! The transfer of the secondary RAT data usage report (TS 38.413 §9.3.4).

use crate::ie::SecondaryRatUsageInformation;

sequence! {
    /// `SecondaryRATDataUsageReportTransfer`.
    pub struct SecondaryRatDataUsageReportTransfer {
        /// `secondaryRATUsageInformation`.
        opt secondary_rat_usage_information: SecondaryRatUsageInformation,
    }
}
