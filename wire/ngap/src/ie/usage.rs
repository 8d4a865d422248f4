//! Data volume over secondary RATs.

use whimbrel_ids::Qfi;

use crate::aper::codec::{Int, List};

sequence! {
    /// Secondary RAT Usage Information (TS 38.413 §9.3.1.114).
    pub struct SecondaryRatUsageInformation {
        /// `pDUSessionUsageReport`.
        opt pdu_session_usage_report: PduSessionUsageReport,
        /// `qosFlowsUsageReportList`.
        lst qos_flows_usage_report_list: Vec<QosFlowsUsageReportItem> as List<1, 64>,
    }
}

sequence! {
    /// `PDUSessionUsageReport` (TS 38.413 §9.4.5).
    pub struct PduSessionUsageReport {
        /// `rATType`.
        req rat_type: PduSessionUsageReportRatType,
        /// `pDUSessionTimedReportList`.
        req pdu_session_timed_report_list: Vec<VolumeTimedReportItem> as List<1, 2>,
    }
}

enumerated! {
    /// `PDUSessionUsageReport-rATType` (TS 38.413 §9.4.5).
    pub enum PduSessionUsageReportRatType {
        Nr "nr", Eutra "eutra",
    } + {
        NrUnlicensed "nr-unlicensed", EUtraUnlicensed "e-utra-unlicensed",
    }
}

sequence! {
    /// An item of the Volume Timed Report List. Volumes in octets. TS 38.413 §9.3.1.115.
    pub struct VolumeTimedReportItem {
        /// `startTimeStamp`. Begin of the period: seconds since 1900.
        req start_time_stamp: [u8; 4],
        /// `endTimeStamp`. End of the period: seconds since 1900.
        req end_time_stamp: [u8; 4],
        /// `usageCountUL`. In octets.
        req usage_count_ul: u64 as Int<0, 18446744073709551615>,
        /// `usageCountDL`. In octets.
        req usage_count_dl: u64 as Int<0, 18446744073709551615>,
    }
}

sequence! {
    /// `QoSFlowsUsageReport-Item` (TS 38.413 §9.4.5).
    pub struct QosFlowsUsageReportItem {
        /// `qosFlowIdentifier`.
        req qos_flow_identifier: Qfi,
        /// `rATType`.
        req rat_type: QosFlowsUsageReportItemRatType,
        /// `qoSFlowsTimedReportList`.
        req qos_flows_timed_report_list: Vec<VolumeTimedReportItem> as List<1, 2>,
    }
}

enumerated! {
    /// `QoSFlowsUsageReport-Item-rATType` (TS 38.413 §9.4.5).
    pub enum QosFlowsUsageReportItemRatType {
        Nr "nr", Eutra "eutra",
    } + {
        NrUnlicensed "nr-unlicensed", EUtraUnlicensed "e-utra-unlicensed",
    }
}
