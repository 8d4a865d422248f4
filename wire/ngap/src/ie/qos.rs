//! QoS flows and their parameters.

use whimbrel_ids::{FiveQi, Qfi};

use crate::aper::codec::{Int, IntExt, List};
use crate::ie::{Cause, DataForwardingAccepted, PacketErrorRate};

sequence! {
    /// `QosFlowSetupRequestItem` (TS 38.413 §9.4.5).
    pub struct QosFlowSetupRequestItem {
        /// `qosFlowIdentifier`.
        req qos_flow_identifier: Qfi,
        /// `qosFlowLevelQosParameters`.
        req qos_flow_level_qos_parameters: QosFlowLevelQosParameters,
        /// `e-RAB-ID`.
        opt e_rab_id: u8 as IntExt<0, 15>,
    }
}

sequence! {
    /// QoS Flow Level QoS Parameters (TS 38.413 §9.3.1.12).
    pub struct QosFlowLevelQosParameters {
        /// `qosCharacteristics`.
        req qos_characteristics: QosCharacteristics,
        /// `allocationAndRetentionPriority`.
        req allocation_and_retention_priority: AllocationAndRetentionPriority,
        /// `gBR-QosInformation`.
        opt gbr_qos_information: GbrQosInformation,
        /// `reflectiveQosAttribute`.
        opt reflective_qos_attribute: ReflectiveQosAttribute,
        /// `additionalQosFlowInformation`.
        opt additional_qos_flow_information: AdditionalQosFlowInformation,
        ;
        /// `QosMonitoringRequest`.
        181 ignore opt qos_monitoring_request: QosMonitoringRequest,
        /// `QosMonitoringReportingFrequency`.
        276 ignore opt qos_monitoring_reporting_frequency: u16 as IntExt<1, 1800>,
    }
}

choice! {
    /// QoS Characteristics: a standardised or pre-configured 5QI, or parameters of their own (TS 38.413
    /// §9.3.1.12).
    pub enum QosCharacteristics {
        /// `nonDynamic5QI`.
        NonDynamic5qi(NonDynamic5qiDescriptor),
        /// `dynamic5QI`.
        Dynamic5qi(Dynamic5qiDescriptor),
    }
}

sequence! {
    /// Non Dynamic 5QI Descriptor (TS 38.413 §9.3.1.28).
    pub struct NonDynamic5qiDescriptor {
        /// `fiveQI`.
        req five_qi: FiveQi,
        /// `priorityLevelQos`.
        opt priority_level_qos: u8 as IntExt<1, 127>,
        /// `averagingWindow`. In ms.
        opt averaging_window: u16 as IntExt<0, 4095>,
        /// `maximumDataBurstVolume`. In octets.
        opt maximum_data_burst_volume: u16 as IntExt<0, 4095>,
        ;
        /// `CNPacketDelayBudgetDL`. In units of 0.01 ms.
        187 ignore opt cn_packet_delay_budget_dl: u16 as IntExt<1, 65535>,
        /// `CNPacketDelayBudgetUL`. In units of 0.01 ms.
        188 ignore opt cn_packet_delay_budget_ul: u16 as IntExt<1, 65535>,
    }
}

sequence! {
    /// Dynamic 5QI Descriptor (TS 38.413 §9.3.1.18).
    pub struct Dynamic5qiDescriptor {
        /// `priorityLevelQos`.
        req priority_level_qos: u8 as IntExt<1, 127>,
        /// `packetDelayBudget`. In units of 0.5 ms.
        req packet_delay_budget: u16 as IntExt<0, 1023>,
        /// `packetErrorRate`.
        req packet_error_rate: PacketErrorRate,
        /// `fiveQI`.
        opt five_qi: FiveQi,
        /// `delayCritical`.
        opt delay_critical: DelayCritical,
        /// `averagingWindow`. In ms.
        opt averaging_window: u16 as IntExt<0, 4095>,
        /// `maximumDataBurstVolume`. In octets.
        opt maximum_data_burst_volume: u16 as IntExt<0, 4095>,
        ;
        /// `ExtendedPacketDelayBudget`. In units of 0.01 ms.
        189 ignore opt extended_packet_delay_budget: u16 as IntExt<1, 65535>,
        /// `CNPacketDelayBudgetDL`. In units of 0.01 ms.
        187 ignore opt cn_packet_delay_budget_dl: u16 as IntExt<1, 65535>,
        /// `CNPacketDelayBudgetUL`. In units of 0.01 ms.
        188 ignore opt cn_packet_delay_budget_ul: u16 as IntExt<1, 65535>,
    }
}

enumerated! {
    /// `DelayCritical` (TS 38.413 §9.4.5).
    pub enum DelayCritical {
        DelayCritical "delay-critical", NonDelayCritical "non-delay-critical",
    } + {}
}

sequence! {
    /// Allocation and Retention Priority (TS 38.413 §9.3.1.19).
    pub struct AllocationAndRetentionPriority {
        /// `priorityLevelARP`. 1 is the most important, 15 the least.
        req priority_level_arp: u8 as Int<1, 15>,
        /// `pre-emptionCapability`.
        req pre_emption_capability: PreEmptionCapability,
        /// `pre-emptionVulnerability`.
        req pre_emption_vulnerability: PreEmptionVulnerability,
    }
}

enumerated! {
    /// `Pre-emptionCapability` (TS 38.413 §9.4.5).
    pub enum PreEmptionCapability {
        ShallNotTriggerPreEmption "shall-not-trigger-pre-emption",
        MayTriggerPreEmption "may-trigger-pre-emption",
    } + {}
}

enumerated! {
    /// `Pre-emptionVulnerability` (TS 38.413 §9.4.5).
    pub enum PreEmptionVulnerability {
        NotPreEmptable "not-pre-emptable", PreEmptable "pre-emptable",
    } + {}
}

sequence! {
    /// GBR QoS Flow Information. Rates in bit/s. TS 38.413 §9.3.1.10.
    pub struct GbrQosInformation {
        /// `maximumFlowBitRateDL`. In bit/s.
        req maximum_flow_bit_rate_dl: u64 as IntExt<0, 4000000000000>,
        /// `maximumFlowBitRateUL`. In bit/s.
        req maximum_flow_bit_rate_ul: u64 as IntExt<0, 4000000000000>,
        /// `guaranteedFlowBitRateDL`. In bit/s.
        req guaranteed_flow_bit_rate_dl: u64 as IntExt<0, 4000000000000>,
        /// `guaranteedFlowBitRateUL`. In bit/s.
        req guaranteed_flow_bit_rate_ul: u64 as IntExt<0, 4000000000000>,
        /// `notificationControl`.
        opt notification_control: NotificationControl,
        /// `maximumPacketLossRateDL`. In tenths of a percent.
        opt maximum_packet_loss_rate_dl: u16 as IntExt<0, 1000>,
        /// `maximumPacketLossRateUL`. In tenths of a percent.
        opt maximum_packet_loss_rate_ul: u16 as IntExt<0, 1000>,
        ;
        /// `AlternativeQoSParaSetList`.
        220 ignore lst alternative_qos_para_set_list: Vec<AlternativeQosParaSetItem> as List<1, 8>,
    }
}

enumerated! {
    /// `NotificationControl` (TS 38.413 §9.4.5).
    pub enum NotificationControl { NotificationRequested "notification-requested" } + {}
}

sequence! {
    /// An item of the Alternative QoS Parameters Set List. Rates in bit/s. TS 38.413 §9.3.1.151.
    pub struct AlternativeQosParaSetItem {
        /// `alternativeQoSParaSetIndex`.
        req alternative_qos_para_set_index: u8 as IntExt<1, 8>,
        /// `guaranteedFlowBitRateDL`. In bit/s.
        opt guaranteed_flow_bit_rate_dl: u64 as IntExt<0, 4000000000000>,
        /// `guaranteedFlowBitRateUL`. In bit/s.
        opt guaranteed_flow_bit_rate_ul: u64 as IntExt<0, 4000000000000>,
        /// `packetDelayBudget`. In units of 0.5 ms.
        opt packet_delay_budget: u16 as IntExt<0, 1023>,
        /// `packetErrorRate`.
        opt packet_error_rate: PacketErrorRate,
    }
}

enumerated! {
    /// `ReflectiveQosAttribute` (TS 38.413 §9.4.5).
    pub enum ReflectiveQosAttribute { SubjectTo "subject-to" } + {}
}

enumerated! {
    /// `AdditionalQosFlowInformation` (TS 38.413 §9.4.5).
    pub enum AdditionalQosFlowInformation { MoreLikely "more-likely" } + {}
}

enumerated! {
    /// `QosMonitoringRequest` (TS 38.413 §9.4.5).
    pub enum QosMonitoringRequest { Ul "ul", Dl "dl", Both "both" } + { Stop "stop" }
}

sequence! {
    /// An item of the Associated QoS Flow List (TS 38.413 §9.3.1.99).
    pub struct AssociatedQosFlowItem {
        /// `qosFlowIdentifier`.
        req qos_flow_identifier: Qfi,
        /// `qosFlowMappingIndication`.
        opt qos_flow_mapping_indication: AssociatedQosFlowItemQosFlowMappingIndication,
        ;
        /// `CurrentQoSParaSetIndex`.
        221 ignore opt current_qos_para_set_index: u8 as IntExt<1, 8>,
    }
}

enumerated! {
    /// `AssociatedQosFlowItem-qosFlowMappingIndication` (TS 38.413 §9.4.5).
    pub enum AssociatedQosFlowItemQosFlowMappingIndication { Ul "ul", Dl "dl" } + {}
}

sequence! {
    /// An item of the QoS Flow List with Cause (TS 38.413 §9.3.1.13).
    pub struct QosFlowWithCauseItem {
        /// `qosFlowIdentifier`.
        req qos_flow_identifier: Qfi,
        /// `cause`.
        req cause: Cause,
    }
}

sequence! {
    /// `QosFlowAddOrModifyRequestItem` (TS 38.413 §9.4.5).
    pub struct QosFlowAddOrModifyRequestItem {
        /// `qosFlowIdentifier`.
        req qos_flow_identifier: Qfi,
        /// `qosFlowLevelQosParameters`.
        opt qos_flow_level_qos_parameters: QosFlowLevelQosParameters,
        /// `e-RAB-ID`.
        opt e_rab_id: u8 as IntExt<0, 15>,
    }
}

sequence! {
    /// `QosFlowNotifyItem` (TS 38.413 §9.4.5).
    pub struct QosFlowNotifyItem {
        /// `qosFlowIdentifier`.
        req qos_flow_identifier: Qfi,
        /// `notificationCause`.
        req notification_cause: NotificationCause,
        ;
        /// `CurrentQoSParaSetIndex`.
        221 ignore opt current_qos_para_set_index: u8 as IntExt<0, 8>,
    }
}

enumerated! {
    /// `NotificationCause` (TS 38.413 §9.4.5).
    pub enum NotificationCause { Fulfilled "fulfilled", NotFulfilled "not-fulfilled" } + {}
}

sequence! {
    /// `QosFlowAcceptedItem` (TS 38.413 §9.4.5).
    pub struct QosFlowAcceptedItem {
        /// `qosFlowIdentifier`.
        req qos_flow_identifier: Qfi,
        ;
        /// `CurrentQoSParaSetIndex`.
        221 ignore opt current_qos_para_set_index: u8 as IntExt<1, 8>,
    }
}

sequence! {
    /// An item of the QoS Flow List with Data Forwarding (TS 38.413 §9.3.2.13).
    pub struct QosFlowItemWithDataForwarding {
        /// `qosFlowIdentifier`.
        req qos_flow_identifier: Qfi,
        /// `dataForwardingAccepted`.
        opt data_forwarding_accepted: DataForwardingAccepted,
        ;
        /// `CurrentQoSParaSetIndex`.
        221 ignore opt current_qos_para_set_index: u8 as IntExt<1, 8>,
    }
}
