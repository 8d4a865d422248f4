//! Load and overload control: information of a UP function in its session messages (TS 29.244 §6.2.3, §6.2.4).

use crate::codec::grouped;
use crate::ie::{Metric, PackedTimer, SequenceNumber};

grouped! {
    /// Load Control Information (table 7.5.3.3-1): how much of its capacity the sender uses.
    #[derive(Copy)]
    pub struct LoadControlInformation: "Load Control Information" {
        /// Grows with each new information; the newest counts.
        52 => sequence_number: required SequenceNumber,
        /// Percent of its capacity.
        53 => metric: required Metric,
    }

    /// Overload Control Information (table 7.5.3.4-1): the reduction that the sender requests.
    #[derive(Copy)]
    pub struct OverloadControlInformation: "Overload Control Information" {
        /// Grows with each new information; the newest counts.
        52 => sequence_number: required SequenceNumber,
        /// Percentage of requests to suppress; 0: the overload has ended.
        53 => metric: required Metric,
        /// For how long this holds.
        55 => period_of_validity: required PackedTimer,
    }
}
