//! Messages that modify a session.

use super::control_information::{LoadControlInformation, OverloadControlInformation};
use crate::codec::grouped;
use crate::ie::{
    Cause, FSeid, FailedRuleId, OffendingIe, OnArrival, QueryUrrReference, SessionModificationFlags,
    UserPlaneInactivityTimer,
};
use crate::rule::{
    CreateBar, CreateFar, CreatePdr, CreateQer, CreateTrafficEndpoint, CreateUrr, CreatedPdr,
    CreatedTrafficEndpoint, QueryUrr, RemoveBar, RemoveFar, RemovePdr, RemoveQer, RemoveTrafficEndpoint,
    RemoveUrr, UpdateBar, UpdateFar, UpdatePdr, UpdateQer, UpdateTrafficEndpoint, UpdateUrr, UsageReport,
};

grouped! {
    /// Session Modification Request (table 7.5.4.1-1).
    #[derive(Default)]
    pub struct SessionModificationRequest: "Session Modification Request" {
        /// The CP function's end of the session, when it has moved.
        57 => cp_f_seid: conditional FSeid,
        /// Detection rules to remove.
        15 => remove_pdrs: many RemovePdr,
        /// Forwarding rules to remove.
        16 => remove_fars: many RemoveFar,
        /// Usage rules to remove.
        17 => remove_urrs: many RemoveUrr,
        /// QoS rules to remove.
        18 => remove_qers: many RemoveQer,
        /// Buffering rule to remove.
        87 => remove_bars: many RemoveBar,
        /// Traffic endpoints to remove.
        130 => remove_traffic_endpoints: many RemoveTrafficEndpoint,
        /// Detection rules to add.
        1 => create_pdrs: many CreatePdr,
        /// Forwarding rules to add.
        3 => create_fars: many CreateFar,
        /// Usage rules to add.
        6 => create_urrs: many CreateUrr,
        /// QoS rules to add.
        7 => create_qers: many CreateQer,
        /// Buffering rule to add.
        85 => create_bars: many CreateBar,
        /// Traffic endpoints to add.
        127 => create_traffic_endpoints: many CreateTrafficEndpoint,
        /// Detection rules to change.
        9 => update_pdrs: many UpdatePdr,
        /// Forwarding rules to change.
        10 => update_fars: many UpdateFar,
        /// Usage rules to change.
        13 => update_urrs: many UpdateUrr,
        /// QoS rules to change.
        14 => update_qers: many UpdateQer,
        /// Buffering rule to change.
        86 => update_bars: many UpdateBar,
        /// Traffic endpoints to change.
        129 => update_traffic_endpoints: many UpdateTrafficEndpoint,
        /// Drop buffered packets; end markers; report all usage.
        49 => pfcpsmreq_flags: conditional SessionModificationFlags,
        /// Usage rules to report at once.
        77 => query_urrs: many QueryUrr,
        /// User plane inactivity timer.
        117 => user_plane_inactivity_timer: conditional UserPlaneInactivityTimer,
        /// Correlates the reports with this query.
        125 => query_urr_reference: optional QueryUrrReference,
        /// The rules begin when the UE arrives.
        0x8001 => on_arrival: optional OnArrival,
    }

    /// Session Modification Response (table 7.5.5.1-1).
    pub struct SessionModificationResponse: "Session Modification Response" {
        /// Cause: accepted, or the reason of the refusal.
        19 => cause: required Cause,
        /// What was missing or wrong.
        40 => offending_ie: conditional OffendingIe,
        /// What the UP function chose for PDRs.
        8 => created_pdrs: many CreatedPdr,
        /// How loaded the UP function is.
        51 => load_control_information: optional LoadControlInformation,
        /// Overload control information.
        54 => overload_control_information: optional OverloadControlInformation,
        /// Usage asked for, or of rules removed.
        78 => usage_reports: many UsageReport,
        /// The rule that failed.
        114 => failed_rule_id: conditional FailedRuleId,
        /// What the UP function chose for traffic endpoints.
        128 => created_traffic_endpoints: many CreatedTrafficEndpoint,
    }
}

impl SessionModificationResponse {
    /// An answer of one cause.
    pub const fn new(cause: Cause) -> Self {
        Self {
            cause,
            offending_ie: None,
            created_pdrs: Vec::new(),
            load_control_information: None,
            overload_control_information: None,
            usage_reports: Vec::new(),
            failed_rule_id: None,
            created_traffic_endpoints: Vec::new(),
        }
    }
}
