//! QoS flows and their parameters.

use whimbrel_ids::{FiveQi, Qfi};

use crate::aper::codec::{Int, IntExt, List};
use crate::ie::{Cause, DataForwardingAccepted, PacketErrorRate};

sequence! {
    /// `QosFlowSetupRequestItem`.
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
    /// `QosFlowLevelQosParameters`.
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
    /// `QosCharacteristics`.
    pub enum QosCharacteristics {
        /// `nonDynamic5QI`.
        NonDynamic5qi(NonDynamic5qiDescriptor),
        /// `dynamic5QI`.
        Dynamic5qi(Dynamic5qiDescriptor),
    }
}

sequence! {
    /// `NonDynamic5QIDescriptor`.
    pub struct NonDynamic5qiDescriptor {
        /// `fiveQI`.
        req five_qi: FiveQi,
        /// `priorityLevelQos`.
        opt priority_level_qos: u8 as IntExt<1, 127>,
        /// `averagingWindow`.
        opt averaging_window: u16 as IntExt<0, 4095>,
        /// `maximumDataBurstVolume`.
        opt maximum_data_burst_volume: u16 as IntExt<0, 4095>,
        ;
        /// `CNPacketDelayBudgetDL`.
        187 ignore opt cn_packet_delay_budget_dl: u16 as IntExt<1, 65535>,
        /// `CNPacketDelayBudgetUL`.
        188 ignore opt cn_packet_delay_budget_ul: u16 as IntExt<1, 65535>,
    }
}

sequence! {
    /// `Dynamic5QIDescriptor`.
    pub struct Dynamic5qiDescriptor {
        /// `priorityLevelQos`.
        req priority_level_qos: u8 as IntExt<1, 127>,
        /// `packetDelayBudget`.
        req packet_delay_budget: u16 as IntExt<0, 1023>,
        /// `packetErrorRate`.
        req packet_error_rate: PacketErrorRate,
        /// `fiveQI`.
        opt five_qi: FiveQi,
        /// `delayCritical`.
        opt delay_critical: DelayCritical,
        /// `averagingWindow`.
        opt averaging_window: u16 as IntExt<0, 4095>,
        /// `maximumDataBurstVolume`.
        opt maximum_data_burst_volume: u16 as IntExt<0, 4095>,
        ;
        /// `ExtendedPacketDelayBudget`.
        189 ignore opt extended_packet_delay_budget: u16 as IntExt<1, 65535>,
        /// `CNPacketDelayBudgetDL`.
        187 ignore opt cn_packet_delay_budget_dl: u16 as IntExt<1, 65535>,
        /// `CNPacketDelayBudgetUL`.
        188 ignore opt cn_packet_delay_budget_ul: u16 as IntExt<1, 65535>,
    }
}

enumerated! {
    /// `DelayCritical`.
    pub enum DelayCritical {
        DelayCritical "delay-critical", NonDelayCritical "non-delay-critical",
    } + {}
}

sequence! {
    /// `AllocationAndRetentionPriority`.
    pub struct AllocationAndRetentionPriority {
        /// `priorityLevelARP`.
        req priority_level_arp: u8 as Int<1, 15>,
        /// `pre-emptionCapability`.
        req pre_emption_capability: PreEmptionCapability,
        /// `pre-emptionVulnerability`.
        req pre_emption_vulnerability: PreEmptionVulnerability,
    }
}

enumerated! {
    /// `Pre-emptionCapability`.
    pub enum PreEmptionCapability {
        ShallNotTriggerPreEmption "shall-not-trigger-pre-emption",
        MayTriggerPreEmption "may-trigger-pre-emption",
    } + {}
}

enumerated! {
    /// `Pre-emptionVulnerability`.
    pub enum PreEmptionVulnerability {
        NotPreEmptable "not-pre-emptable", PreEmptable "pre-emptable",
    } + {}
}

sequence! {
    /// `GBR-QosInformation`.
    pub struct GbrQosInformation {
        /// `maximumFlowBitRateDL`.
        req maximum_flow_bit_rate_dl: u64 as IntExt<0, 4000000000000>,
        /// `maximumFlowBitRateUL`.
        req maximum_flow_bit_rate_ul: u64 as IntExt<0, 4000000000000>,
        /// `guaranteedFlowBitRateDL`.
        req guaranteed_flow_bit_rate_dl: u64 as IntExt<0, 4000000000000>,
        /// `guaranteedFlowBitRateUL`.
        req guaranteed_flow_bit_rate_ul: u64 as IntExt<0, 4000000000000>,
        /// `notificationControl`.
        opt notification_control: NotificationControl,
        /// `maximumPacketLossRateDL`.
        opt maximum_packet_loss_rate_dl: u16 as IntExt<0, 1000>,
        /// `maximumPacketLossRateUL`.
        opt maximum_packet_loss_rate_ul: u16 as IntExt<0, 1000>,
        ;
        /// `AlternativeQoSParaSetList`.
        220 ignore lst alternative_qos_para_set_list: Vec<AlternativeQosParaSetItem> as List<1, 8>,
    }
}

enumerated! {
    /// `NotificationControl`.
    pub enum NotificationControl { NotificationRequested "notification-requested" } + {}
}

sequence! {
    /// `AlternativeQoSParaSetItem`.
    pub struct AlternativeQosParaSetItem {
        /// `alternativeQoSParaSetIndex`.
        req alternative_qos_para_set_index: u8 as IntExt<1, 8>,
        /// `guaranteedFlowBitRateDL`.
        opt guaranteed_flow_bit_rate_dl: u64 as IntExt<0, 4000000000000>,
        /// `guaranteedFlowBitRateUL`.
        opt guaranteed_flow_bit_rate_ul: u64 as IntExt<0, 4000000000000>,
        /// `packetDelayBudget`.
        opt packet_delay_budget: u16 as IntExt<0, 1023>,
        /// `packetErrorRate`.
        opt packet_error_rate: PacketErrorRate,
    }
}

enumerated! {
    /// `ReflectiveQosAttribute`.
    pub enum ReflectiveQosAttribute { SubjectTo "subject-to" } + {}
}

enumerated! {
    /// `AdditionalQosFlowInformation`.
    pub enum AdditionalQosFlowInformation { MoreLikely "more-likely" } + {}
}

enumerated! {
    /// `QosMonitoringRequest`.
    pub enum QosMonitoringRequest { Ul "ul", Dl "dl", Both "both" } + { Stop "stop" }
}

sequence! {
    /// `AssociatedQosFlowItem`.
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
    /// `AssociatedQosFlowItem-qosFlowMappingIndication`.
    pub enum AssociatedQosFlowItemQosFlowMappingIndication { Ul "ul", Dl "dl" } + {}
}

sequence! {
    /// `QosFlowWithCauseItem`.
    pub struct QosFlowWithCauseItem {
        /// `qosFlowIdentifier`.
        req qos_flow_identifier: Qfi,
        /// `cause`.
        req cause: Cause,
    }
}

sequence! {
    /// `QosFlowAddOrModifyRequestItem`.
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
    /// `QosFlowNotifyItem`.
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
    /// `NotificationCause`.
    pub enum NotificationCause { Fulfilled "fulfilled", NotFulfilled "not-fulfilled" } + {}
}

sequence! {
    /// `QosFlowAcceptedItem`.
    pub struct QosFlowAcceptedItem {
        /// `qosFlowIdentifier`.
        req qos_flow_identifier: Qfi,
        ;
        /// `CurrentQoSParaSetIndex`.
        221 ignore opt current_qos_para_set_index: u8 as IntExt<1, 8>,
    }
}

sequence! {
    /// `QosFlowItemWithDataForwarding`.
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
