//! Messages with a session's reports.

use super::control_information::{LoadControlInformation, OverloadControlInformation};
use crate::codec::grouped;
use crate::ie::{
    Cause, DataServiceInformation, DataStatus, DlDataPacketsSize, FSeid, FTeid, OffendingIe, PdrId,
    ReportType, SessionReportRequestFlags, SessionReportResponseFlags,
};
use crate::rule::{UpdateBarInReportResponse, UsageReport};

grouped! {
    /// Session Report Request (table 7.5.8.1-1).
    pub struct SessionReportRequest: "Session Report Request" {
        /// What it reports.
        39 => report_type: required ReportType,
        /// Downlink data for a UE without a tunnel.
        83 => downlink_data_report: conditional DownlinkDataReport,
        /// Usage of the session's URRs.
        80 => usage_reports: many UsageReport,
        /// A tunnel that is unknown at its other end.
        99 => error_indication_report: conditional ErrorIndicationReport,
        /// How loaded the UP function is.
        51 => load_control_information: optional LoadControlInformation,
        /// Overload control information.
        54 => overload_control_information: optional OverloadControlInformation,
        /// The session's former CP F-SEID: the report goes to another SMF of the set (§5.22.3).
        57 => old_cp_f_seid: conditional FSeid,
        /// Whether the UP function has deleted the session.
        161 => pfcpsrreq_flags: optional SessionReportRequestFlags,
    }

    /// Downlink Data Report (table 7.5.8.2-1).
    pub struct DownlinkDataReport: "Downlink Data Report" {
        /// The rules that matched.
        56 => pdr_ids: many PdrId,
        /// QoS flow of the packets.
        45 => downlink_data_service_information: many DataServiceInformation,
        /// Size of the packet.
        250 => dl_data_packets_size: conditional DlDataPacketsSize,
        /// What became of it.
        260 => data_status: conditional DataStatus,
    }

    /// Error Indication Report (table 7.5.8.4-1).
    pub struct ErrorIndicationReport: "Error Indication Report" {
        /// The tunnel, as its other end names it.
        21 => remote_f_teids: many FTeid,
    }

    /// Session Report Response (table 7.5.9.1-1).
    pub struct SessionReportResponse: "Session Report Response" {
        /// Cause: accepted, or the reason of the refusal.
        19 => cause: required Cause,
        /// What was missing or wrong.
        40 => offending_ie: conditional OffendingIe,
        /// Changes to buffering.
        12 => update_bar: conditional UpdateBarInReportResponse,
        /// Drop buffered packets.
        50 => pfcpsrrsp_flags: conditional SessionReportResponseFlags,
    }
}

impl SessionReportRequest {
    /// A report without content yet.
    pub const fn new(report_type: ReportType) -> Self {
        Self {
            report_type,
            downlink_data_report: None,
            usage_reports: Vec::new(),
            error_indication_report: None,
            load_control_information: None,
            overload_control_information: None,
            old_cp_f_seid: None,
            pfcpsrreq_flags: None,
        }
    }
}

impl SessionReportResponse {
    /// An answer of one cause.
    pub const fn new(cause: Cause) -> Self {
        Self { cause, offending_ie: None, update_bar: None, pfcpsrrsp_flags: None }
    }
}
