//! Messages that delete a session.

use super::control_information::{LoadControlInformation, OverloadControlInformation};
use crate::codec::grouped;
use crate::ie::{Cause, OffendingIe};
use crate::rule::UsageReport;

grouped! {
    /// Session Deletion Request (TS 29.244 §7.5.6): only a header.
    #[derive(Default)]
    pub struct SessionDeletionRequest: "Session Deletion Request" {}

    /// Session Deletion Response (table 7.5.7.1-1).
    pub struct SessionDeletionResponse: "Session Deletion Response" {
        /// Cause: accepted, or the reason of the refusal.
        19 => cause: required Cause,
        /// What was missing or wrong.
        40 => offending_ie: conditional OffendingIe,
        /// How loaded the UP function is.
        51 => load_control_information: optional LoadControlInformation,
        /// Overload control information.
        54 => overload_control_information: optional OverloadControlInformation,
        /// Last usage of every usage rule.
        79 => usage_reports: many UsageReport,
    }
}

impl SessionDeletionResponse {
    /// An answer of one cause.
    pub const fn new(cause: Cause) -> Self {
        Self {
            cause,
            offending_ie: None,
            load_control_information: None,
            overload_control_information: None,
            usage_reports: Vec::new(),
        }
    }
}
