//! Usage reporting rules, and the reports.

use crate::codec::grouped;
use crate::ie::{
    ApplicationId, DurationMeasurement, EthernetInactivityTimer, EventQuota, EventThreshold,
    InactivityDetectionTime, MacAddresses, MeasurementInformation, MeasurementMethod, MeasurementPeriod,
    NtpTime, QueryUrrReference, QuotaHoldingTime, ReportingTriggers, TimeQuota, TimeThreshold, UeIpAddress,
    UrSeqn, UrrId, UsageInformation, UsageReportTrigger, Volume, VolumeMeasurement,
};

grouped! {
    /// Create URR (table 7.5.2.4-1).
    pub struct CreateUrr: "Create URR" {
        /// Identifier of the URR.
        81 => urr_id: required UrrId,
        /// What is measured.
        62 => measurement_method: required MeasurementMethod,
        /// When it is reported.
        37 => reporting_triggers: required ReportingTriggers,
        /// Time between periodic reports.
        64 => measurement_period: conditional MeasurementPeriod,
        /// Octets after which a report is due.
        31 => volume_threshold: conditional Volume,
        /// Octets after which traffic stops.
        73 => volume_quota: conditional Volume,
        /// Time of use after which a report is due.
        32 => time_threshold: conditional TimeThreshold,
        /// Time of use after which traffic stops.
        74 => time_quota: conditional TimeQuota,
        /// Silence after which the quota is given back.
        71 => quota_holding_time: conditional QuotaHoldingTime,
        /// When to begin a separate measurement.
        33 => monitoring_time: optional NtpTime,
        /// Other URRs whose report makes this one report.
        82 => linked_urr_ids: many UrrId,
        /// Silence after which time of use stops counting.
        36 => inactivity_detection_time: conditional InactivityDetectionTime,
        /// Refinements of the measurement.
        100 => measurement_information: conditional MeasurementInformation,
        /// Silence after which a MAC address is forgotten.
        146 => ethernet_inactivity_timer: conditional EthernetInactivityTimer,
        /// Events after which traffic stops.
        148 => event_quota: conditional EventQuota,
        /// Events after which a report is due.
        149 => event_threshold: conditional EventThreshold,
    }

    /// Update URR (table 7.5.4.4-1). What is absent stays.
    pub struct UpdateUrr: "Update URR" {
        /// Identifier of the URR.
        81 => urr_id: required UrrId,
        /// What is measured.
        62 => measurement_method: conditional MeasurementMethod,
        /// When it is reported.
        37 => reporting_triggers: conditional ReportingTriggers,
        /// Time between periodic reports.
        64 => measurement_period: conditional MeasurementPeriod,
        /// Octets after which a report is due.
        31 => volume_threshold: conditional Volume,
        /// Octets after which traffic stops, counted from now.
        73 => volume_quota: conditional Volume,
        /// Time of use after which a report is due.
        32 => time_threshold: conditional TimeThreshold,
        /// Time of use after which traffic stops, counted from now.
        74 => time_quota: conditional TimeQuota,
        /// Silence after which the quota is given back.
        71 => quota_holding_time: conditional QuotaHoldingTime,
        /// When to begin a separate measurement.
        33 => monitoring_time: conditional NtpTime,
        /// Other URRs whose report makes this one report.
        82 => linked_urr_ids: many UrrId,
        /// Silence after which time of use stops counting.
        36 => inactivity_detection_time: conditional InactivityDetectionTime,
        /// Refinements of the measurement.
        100 => measurement_information: conditional MeasurementInformation,
        /// Silence after which a MAC address is forgotten.
        146 => ethernet_inactivity_timer: conditional EthernetInactivityTimer,
        /// Events after which traffic stops, counted from now.
        148 => event_quota: conditional EventQuota,
        /// Events after which a report is due.
        149 => event_threshold: conditional EventThreshold,
    }

    /// Remove URR (table 7.5.4.8-1).
    pub struct RemoveUrr: "Remove URR" {
        /// Identifier of the URR.
        81 => urr_id: required UrrId,
    }

    /// Query URR (table 7.5.4.10-1): report it now.
    pub struct QueryUrr: "Query URR" {
        /// Identifier of the URR.
        81 => urr_id: required UrrId,
    }

    /// Ethernet Traffic Information (table 7.5.8.3-3).
    #[derive(Default)]
    pub struct EthernetTrafficInformation: "Ethernet Traffic Information" {
        /// Addresses newly in use.
        144 => mac_addresses_detected: many MacAddresses,
        /// Addresses that are no longer used.
        145 => mac_addresses_removed: many MacAddresses,
    }

    /// Application Detection Information (table 7.5.8.3-2). The instance of the application is not reported.
    pub struct ApplicationDetectionInformation: "Application Detection Information" {
        /// Identifier of the application.
        24 => application_id: required ApplicationId,
    }

    /// Usage Report (tables 7.5.5.2-1, 7.5.7.2-1, 7.5.8.3-1: the same group under three code points).
    pub struct UsageReport: "Usage Report" {
        /// Identifier of the URR.
        81 => urr_id: required UrrId,
        /// Orders the reports of the rule.
        104 => ur_seqn: required UrSeqn,
        /// Why it reports.
        63 => usage_report_trigger: required UsageReportTrigger,
        /// Begin of the measurement.
        75 => start_time: conditional NtpTime,
        /// End of the measurement.
        76 => end_time: conditional NtpTime,
        /// Octets and packets.
        66 => volume_measurement: conditional VolumeMeasurement,
        /// Time of use.
        67 => duration_measurement: conditional DurationMeasurement,
        /// Whose traffic starts or stops.
        68 => application_detection_information: conditional ApplicationDetectionInformation,
        /// The UE's address, for reports of the start of traffic.
        93 => ue_ip_address: conditional UeIpAddress,
        /// Time of the first packet.
        69 => time_of_first_packet: conditional NtpTime,
        /// Time of the last packet.
        70 => time_of_last_packet: conditional NtpTime,
        /// MAC addresses learnt and forgotten.
        143 => ethernet_traffic_information: conditional EthernetTrafficInformation,
        /// To which part of the measurement it belongs.
        90 => usage_information: conditional UsageInformation,
        /// The query that it answers.
        125 => query_urr_reference: conditional QueryUrrReference,
        /// When each event was.
        156 => event_time_stamps: many NtpTime,
    }
}

impl CreateUrr {
    /// A rule that counts octets and reports when asked or deleted, or by the triggers given.
    pub const fn new(urr_id: UrrId, method: MeasurementMethod, triggers: ReportingTriggers) -> Self {
        Self {
            urr_id,
            measurement_method: method,
            reporting_triggers: triggers,
            measurement_period: None,
            volume_threshold: None,
            volume_quota: None,
            time_threshold: None,
            time_quota: None,
            quota_holding_time: None,
            monitoring_time: None,
            linked_urr_ids: Vec::new(),
            inactivity_detection_time: None,
            measurement_information: None,
            ethernet_inactivity_timer: None,
            event_quota: None,
            event_threshold: None,
        }
    }
}

impl UpdateUrr {
    /// An empty update.
    pub const fn new(urr_id: UrrId) -> Self {
        Self {
            urr_id,
            measurement_method: None,
            reporting_triggers: None,
            measurement_period: None,
            volume_threshold: None,
            volume_quota: None,
            time_threshold: None,
            time_quota: None,
            quota_holding_time: None,
            monitoring_time: None,
            linked_urr_ids: Vec::new(),
            inactivity_detection_time: None,
            measurement_information: None,
            ethernet_inactivity_timer: None,
            event_quota: None,
            event_threshold: None,
        }
    }
}

impl UsageReport {
    /// A report without figures yet.
    pub const fn new(urr_id: UrrId, ur_seqn: UrSeqn, trigger: UsageReportTrigger) -> Self {
        Self {
            urr_id,
            ur_seqn,
            usage_report_trigger: trigger,
            start_time: None,
            end_time: None,
            volume_measurement: None,
            duration_measurement: None,
            application_detection_information: None,
            ue_ip_address: None,
            time_of_first_packet: None,
            time_of_last_packet: None,
            ethernet_traffic_information: None,
            usage_information: None,
            query_urr_reference: None,
            event_time_stamps: Vec::new(),
        }
    }
}
