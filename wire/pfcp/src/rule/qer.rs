//! QoS enforcement rules: gates, rates and markings.

use whimbrel_ids::Qfi;

use crate::codec::grouped;
use crate::ie::{
    AveragingWindow, GateStatus, PagingPolicyIndicator, QerBitRate, QerCorrelationId, QerId, Rqi,
};

grouped! {
    /// Create QER (table 7.5.2.5-1).
    pub struct CreateQer: "Create QER" {
        /// Identifier of the QER.
        109 => qer_id: required QerId,
        /// Ties the rule to those of other sessions.
        28 => qer_correlation_id: conditional QerCorrelationId,
        /// Which directions pass.
        25 => gate_status: required GateStatus,
        /// Rates above which packets are dropped.
        26 => mbr: conditional QerBitRate,
        /// Rates that are guaranteed.
        27 => gbr: conditional QerBitRate,
        /// QoS flow identifier for the downlink PDU session container.
        124 => qfi: conditional Qfi,
        /// Reflective QoS indication for the same.
        123 => rqi: conditional Rqi,
        /// Paging policy indicator for the same.
        158 => paging_policy_indicator: conditional PagingPolicyIndicator,
        /// Window over which the rates are averaged.
        157 => averaging_window: optional AveragingWindow,
    }

    /// Update QER (table 7.5.4.5-1). What is absent stays.
    pub struct UpdateQer: "Update QER" {
        /// Identifier of the QER.
        109 => qer_id: required QerId,
        /// Ties the rule to those of other sessions.
        28 => qer_correlation_id: conditional QerCorrelationId,
        /// Which directions pass.
        25 => gate_status: conditional GateStatus,
        /// Rates above which packets are dropped.
        26 => mbr: conditional QerBitRate,
        /// Rates that are guaranteed.
        27 => gbr: conditional QerBitRate,
        /// QoS flow identifier.
        124 => qfi: conditional Qfi,
        /// Reflective QoS indication.
        123 => rqi: conditional Rqi,
        /// Paging policy indicator.
        158 => paging_policy_indicator: conditional PagingPolicyIndicator,
        /// Window over which the rates are averaged.
        157 => averaging_window: optional AveragingWindow,
    }

    /// Remove QER (table 7.5.4.9-1).
    pub struct RemoveQer: "Remove QER" {
        /// Identifier of the QER.
        109 => qer_id: required QerId,
    }
}

impl CreateQer {
    /// A rule with open gates and no limit.
    pub const fn new(qer_id: QerId) -> Self {
        Self {
            qer_id,
            qer_correlation_id: None,
            gate_status: GateStatus::OPEN,
            mbr: None,
            gbr: None,
            qfi: None,
            rqi: None,
            paging_policy_indicator: None,
            averaging_window: None,
        }
    }
}

impl UpdateQer {
    /// An empty update.
    pub const fn new(qer_id: QerId) -> Self {
        Self {
            qer_id,
            qer_correlation_id: None,
            gate_status: None,
            mbr: None,
            gbr: None,
            qfi: None,
            rqi: None,
            paging_policy_indicator: None,
            averaging_window: None,
        }
    }
}
