//! Node report: what concerns no single session.

use crate::codec::grouped;
use crate::ie::{Cause, NodeId, NodeReportType, OffendingIe, RemoteGtpuPeer};

grouped! {
    /// Node Report Request (table 7.4.5.1.1-1).
    pub struct NodeReportRequest: "Node Report Request" {
        /// Node identity of the sender.
        60 => node_id: required NodeId,
        /// What it reports.
        101 => node_report_type: required NodeReportType,
        /// Peers that no longer answer.
        102 => user_plane_path_failure_report: conditional UserPlanePathFailureReport,
        /// Peers that answer again.
        187 => user_plane_path_recovery_report: conditional UserPlanePathRecoveryReport,
    }

    /// User Plane Path Failure Report (table 7.4.5.1.2-1).
    pub struct UserPlanePathFailureReport: "User Plane Path Failure Report" {
        /// Peers whose paths have failed.
        103 => remote_gtpu_peers: many RemoteGtpuPeer,
    }

    /// User Plane Path Recovery Report (table 7.4.5.1.3-1).
    pub struct UserPlanePathRecoveryReport: "User Plane Path Recovery Report" {
        /// Peers whose paths are back.
        103 => remote_gtpu_peers: many RemoteGtpuPeer,
    }

    /// Node Report Response (table 7.4.5.2-1).
    pub struct NodeReportResponse: "Node Report Response" {
        /// Node identity of the sender.
        60 => node_id: required NodeId,
        /// Cause: accepted, or the reason of the refusal.
        19 => cause: required Cause,
        /// What was missing or wrong.
        40 => offending_ie: conditional OffendingIe,
    }
}
