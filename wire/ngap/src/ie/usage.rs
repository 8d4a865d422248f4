//! Data volume over secondary RATs.

use whimbrel_ids::Qfi;

use crate::aper::codec::{Int, List};

sequence! {
    /// `SecondaryRATUsageInformation`.
    pub struct SecondaryRatUsageInformation {
        /// `pDUSessionUsageReport`.
        opt pdu_session_usage_report: PduSessionUsageReport,
        /// `qosFlowsUsageReportList`.
        lst qos_flows_usage_report_list: Vec<QosFlowsUsageReportItem> as List<1, 64>,
    }
}

sequence! {
    /// `PDUSessionUsageReport`.
    pub struct PduSessionUsageReport {
        /// `rATType`.
        req rat_type: PduSessionUsageReportRatType,
        /// `pDUSessionTimedReportList`.
        req pdu_session_timed_report_list: Vec<VolumeTimedReportItem> as List<1, 2>,
    }
}

enumerated! {
    /// `PDUSessionUsageReport-rATType`.
    pub enum PduSessionUsageReportRatType {
        Nr "nr", Eutra "eutra",
    } + {
        NrUnlicensed "nr-unlicensed", EUtraUnlicensed "e-utra-unlicensed",
    }
}

sequence! {
    /// `VolumeTimedReport-Item`.
    pub struct VolumeTimedReportItem {
        /// `startTimeStamp`.
        req start_time_stamp: [u8; 4],
        /// `endTimeStamp`.
        req end_time_stamp: [u8; 4],
        /// `usageCountUL`.
        req usage_count_ul: u64 as Int<0, 18446744073709551615>,
        /// `usageCountDL`.
        req usage_count_dl: u64 as Int<0, 18446744073709551615>,
    }
}

sequence! {
    /// `QoSFlowsUsageReport-Item`.
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
    /// `QoSFlowsUsageReport-Item-rATType`.
    pub enum QosFlowsUsageReportItemRatType {
        Nr "nr", Eutra "eutra",
    } + {
        NrUnlicensed "nr-unlicensed", EUtraUnlicensed "e-utra-unlicensed",
    }
}
