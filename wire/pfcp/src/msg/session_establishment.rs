//! Messages that establish a session.

use whimbrel_ids::{Dnn, SNssai};

use super::control_information::{LoadControlInformation, OverloadControlInformation};
use crate::codec::grouped;
use crate::ie::{
    Cause, FSeid, FailedRuleId, NodeId, OffendingIe, OnArrival, PdnType, SessionEstablishmentFlags, UserId,
    UserPlaneInactivityTimer,
};
use crate::rule::{
    CreateBar, CreateFar, CreatePdr, CreateQer, CreateTrafficEndpoint, CreateUrr, CreatedPdr,
    CreatedTrafficEndpoint,
};

grouped! {
    /// Session Establishment Request (table 7.5.2.1-1).
    pub struct SessionEstablishmentRequest: "Session Establishment Request" {
        /// The CP function.
        60 => node_id: required NodeId,
        /// Its end of the session.
        57 => cp_f_seid: required FSeid,
        /// Detection rules, at least one.
        1 => create_pdrs: many CreatePdr,
        /// Forwarding rules, at least one.
        3 => create_fars: many CreateFar,
        /// URRs, which measure usage.
        6 => create_urrs: many CreateUrr,
        /// QERs, which enforce QoS.
        7 => create_qers: many CreateQer,
        /// BARs, which say how packets are buffered.
        85 => create_bars: many CreateBar,
        /// Endpoints to which PDRs refer.
        127 => create_traffic_endpoints: many CreateTrafficEndpoint,
        /// Type of the PDU session.
        113 => pdn_type: conditional PdnType,
        /// User plane inactivity timer.
        117 => user_plane_inactivity_timer: optional UserPlaneInactivityTimer,
        /// Whose session it is.
        141 => user_id: optional UserId,
        /// Its data network.
        159 => apn_dnn: optional Dnn,
        /// Slice of the session.
        257 => s_nssai: conditional SNssai,
        /// What kind of establishment it is.
        186 => pfcpsereq_flags: conditional SessionEstablishmentFlags,
        /// The rules begin when the UE arrives.
        0x8001 => on_arrival: optional OnArrival,
    }

    /// Session Establishment Response (table 7.5.3.1-1).
    pub struct SessionEstablishmentResponse: "Session Establishment Response" {
        /// The UP function.
        60 => node_id: required NodeId,
        /// Cause: accepted, or the reason of the refusal.
        19 => cause: required Cause,
        /// What was missing or wrong.
        40 => offending_ie: conditional OffendingIe,
        /// The UP function's end of the session, when accepted.
        57 => up_f_seid: conditional FSeid,
        /// What the UP function chose for PDRs.
        8 => created_pdrs: many CreatedPdr,
        /// How loaded the UP function is.
        51 => load_control_information: optional LoadControlInformation,
        /// Overload control information.
        54 => overload_control_information: optional OverloadControlInformation,
        /// The rule that failed.
        114 => failed_rule_id: conditional FailedRuleId,
        /// What the UP function chose for traffic endpoints.
        128 => created_traffic_endpoints: many CreatedTrafficEndpoint,
    }
}

impl SessionEstablishmentRequest {
    /// A request without rules yet.
    pub const fn new(node_id: NodeId, cp_f_seid: FSeid) -> Self {
        Self {
            node_id,
            cp_f_seid,
            create_pdrs: Vec::new(),
            create_fars: Vec::new(),
            create_urrs: Vec::new(),
            create_qers: Vec::new(),
            create_bars: Vec::new(),
            create_traffic_endpoints: Vec::new(),
            pdn_type: None,
            user_plane_inactivity_timer: None,
            user_id: None,
            apn_dnn: None,
            s_nssai: None,
            pfcpsereq_flags: None,
            on_arrival: None,
        }
    }
}

impl SessionEstablishmentResponse {
    /// An answer of one cause.
    pub const fn new(node_id: NodeId, cause: Cause) -> Self {
        Self {
            node_id,
            cause,
            offending_ie: None,
            up_f_seid: None,
            created_pdrs: Vec::new(),
            load_control_information: None,
            overload_control_information: None,
            failed_rule_id: None,
            created_traffic_endpoints: Vec::new(),
        }
    }
}
