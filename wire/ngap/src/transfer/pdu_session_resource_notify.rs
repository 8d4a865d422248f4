//! Transfers of the PDU session resource notification (TS 38.413 §9.3.4).

use crate::aper::codec::List;
use crate::ie::{Cause, QosFlowNotifyItem, QosFlowWithCauseItem, SecondaryRatUsageInformation};

sequence! {
    /// PDU Session Resource Notify Transfer (TS 38.413 §9.3.4.5).
    pub struct PduSessionResourceNotifyTransfer {
        /// `qosFlowNotifyList`.
        lst qos_flow_notify_list: Vec<QosFlowNotifyItem> as List<1, 64>,
        /// `qosFlowReleasedList`.
        lst qos_flow_released_list: Vec<QosFlowWithCauseItem> as List<1, 64>,
        ;
        /// `SecondaryRATUsageInformation`.
        144 ignore opt secondary_rat_usage_information: SecondaryRatUsageInformation,
    }
}

sequence! {
    /// PDU Session Resource Notify Released Transfer (TS 38.413 §9.3.4.13).
    pub struct PduSessionResourceNotifyReleasedTransfer {
        /// `cause`.
        req cause: Cause,
        ;
        /// `SecondaryRATUsageInformation`.
        144 ignore opt secondary_rat_usage_information: SecondaryRatUsageInformation,
    }
}
