//! Transfers of the PDU session resource modify indication (TS 38.413 §9.3.4).

use whimbrel_ids::Qfi;

use crate::aper::codec::{Alone, List};
use crate::ie::{
    Cause, QosFlowPerTnlInformation, QosFlowWithCauseItem, SecondaryRatUsageInformation, SecurityResult,
    UpTransportLayerInformation, UpTransportLayerInformationPairItem,
};

sequence! {
    /// PDU Session Resource Modify Indication Transfer (TS 38.413 §9.3.4.6).
    pub struct PduSessionResourceModifyIndicationTransfer {
        /// `dLQosFlowPerTNLInformation`.
        req dl_qos_flow_per_tnl_information: QosFlowPerTnlInformation,
        /// `additionalDLQosFlowPerTNLInformation`.
        lst additional_dl_qos_flow_per_tnl_information: Vec<QosFlowPerTnlInformation> as List<1, 3, Alone>,
        ;
        /// `SecondaryRATUsageInformation`.
        144 ignore opt secondary_rat_usage_information: SecondaryRatUsageInformation,
        /// `SecurityResult`.
        156 ignore opt security_result: SecurityResult,
    }
}

sequence! {
    /// PDU Session Resource Modify Confirm Transfer (TS 38.413 §9.3.4.7).
    pub struct PduSessionResourceModifyConfirmTransfer {
        /// `qosFlowModifyConfirmList`.
        req qos_flow_modify_confirm_list: Vec<Qfi> as List<1, 64, Alone>,
        /// `uLNGU-UP-TNLInformation`.
        req ul_ngu_up_tnl_information: UpTransportLayerInformation,
        /// `additionalNG-UUPTNLInformation`.
        lst additional_ngu_up_tnl_information: Vec<UpTransportLayerInformationPairItem> as List<1, 3>,
        /// `qosFlowFailedToModifyList`.
        lst qos_flow_failed_to_modify_list: Vec<QosFlowWithCauseItem> as List<1, 64>,
    }
}

sequence! {
    /// PDU Session Resource Modify Indication Unsuccessful Transfer (TS 38.413 §9.3.4.22).
    pub struct PduSessionResourceModifyIndicationUnsuccessfulTransfer {
        /// `cause`.
        req cause: Cause,
    }
}
