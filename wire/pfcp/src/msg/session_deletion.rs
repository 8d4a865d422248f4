//! Session deletion.

use crate::codec::grouped;
use crate::ie::{Cause, OffendingIe};
use crate::rule::UsageReport;

grouped! {
    /// Session Deletion Request (TS 29.244 §7.5.6): the header says it all.
    #[derive(Default)]
    pub struct SessionDeletionRequest: "Session Deletion Request" {}

    /// Session Deletion Response (table 7.5.7.1-1).
    pub struct SessionDeletionResponse: "Session Deletion Response" {
        /// Outcome.
        19 => cause: required Cause,
        /// What was missing or wrong.
        40 => offending_ie: conditional OffendingIe,
        /// Last usage of every usage rule.
        79 => usage_reports: many UsageReport,
    }
}

impl SessionDeletionResponse {
    /// An answer of one cause.
    pub const fn new(cause: Cause) -> Self {
        Self { cause, offending_ie: None, usage_reports: Vec::new() }
    }
}
