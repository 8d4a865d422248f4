//! PFD management: how packets of applications are detected (TS 29.244 §6.2.5).

use crate::codec::grouped;
use crate::ie::{ApplicationId, Cause, NodeId, OffendingIe, PfdContents};

grouped! {
    /// PFCP PFD Management Request (table 7.4.3.1-1). Without any application, all PFDs go.
    #[derive(Default)]
    pub struct PfdManagementRequest: "PFD Management Request" {
        /// The provisioned applications; others do not change.
        58 => applications: many ApplicationPfds,
        /// Node identity of the sender.
        60 => node_id: optional NodeId,
    }

    /// Application ID's PFDs (table 7.4.3.1-2). Without a context, those of the application go.
    pub struct ApplicationPfds: "Application ID's PFDs" {
        /// Identifier of the application.
        24 => application_id: required ApplicationId,
        /// What takes the place of the PFDs that were.
        59 => pfd_contexts: many PfdContext,
    }

    /// PFD context (table 7.4.3.1-3).
    #[derive(Default)]
    pub struct PfdContext: "PFD context" {
        /// The PFDs: a packet is the application's if it meets one.
        61 => pfd_contents: many PfdContents,
    }

    /// PFCP PFD Management Response (table 7.4.3.2-1).
    pub struct PfdManagementResponse: "PFD Management Response" {
        /// Cause: accepted, or the reason of the refusal.
        19 => cause: required Cause,
        /// What was missing or wrong.
        40 => offending_ie: conditional OffendingIe,
        /// Node identity of the sender.
        60 => node_id: optional NodeId,
    }
}
