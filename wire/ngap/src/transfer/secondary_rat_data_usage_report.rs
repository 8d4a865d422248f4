//! The transfer of the secondary RAT data usage report (TS 38.413 §9.3.4).

use crate::ie::SecondaryRatUsageInformation;

sequence! {
    /// Secondary RAT Data Usage Report Transfer (TS 38.413 §9.3.4.23).
    pub struct SecondaryRatDataUsageReportTransfer {
        /// `secondaryRATUsageInformation`.
        opt secondary_rat_usage_information: SecondaryRatUsageInformation,
    }
}
