//! Transfers of the handover (TS 38.413 §9.3.4).

use whimbrel_ids::Qfi;

use crate::aper::codec::{Alone, List};
use crate::ie::{
    AdditionalDlUpTnlInformationForHoItem, Cause, CriticalityDiagnostics, DataForwardingResponseDrbItem,
    DataForwardingResponseErabListItem, DirectForwardingPathAvailability, QosFlowItemWithDataForwarding,
    QosFlowPerTnlInformation, QosFlowWithCauseItem, SecurityResult, UpTransportLayerInformation,
};

sequence! {
    /// Handover Required Transfer (TS 38.413 §9.3.4.14).
    pub struct HandoverRequiredTransfer {
        /// `directForwardingPathAvailability`.
        opt direct_forwarding_path_availability: DirectForwardingPathAvailability,
    }
}

sequence! {
    /// Handover Command Transfer (TS 38.413 §9.3.4.10).
    pub struct HandoverCommandTransfer {
        /// `dLForwardingUP-TNLInformation`.
        opt dl_forwarding_up_tnl_information: UpTransportLayerInformation,
        /// `qosFlowToBeForwardedList`.
        lst qos_flow_to_be_forwarded_list: Vec<Qfi> as List<1, 64, Alone>,
        /// `dataForwardingResponseDRBList`.
        lst data_forwarding_response_drb_list: Vec<DataForwardingResponseDrbItem> as List<1, 32>,
        ;
        /// `AdditionalDLForwardingUPTNLInformation`.
        152 ignore lst additional_dl_forwarding_up_tnl_information: Vec<QosFlowPerTnlInformation>
            as List<1, 3, Alone>,
        /// `ULForwardingUP-TNLInformation`.
        164 reject opt ul_forwarding_up_tnl_information: UpTransportLayerInformation,
        /// `AdditionalULForwardingUPTNLInformation`.
        172 reject lst additional_ul_forwarding_up_tnl_information: Vec<UpTransportLayerInformation>
            as List<1, 3, Alone>,
        /// `DataForwardingResponseERABList`.
        249 ignore lst data_forwarding_response_erab_list: Vec<DataForwardingResponseErabListItem>
            as List<1, 256>,
    }
}

sequence! {
    /// Handover Request Acknowledge Transfer (TS 38.413 §9.3.4.11).
    pub struct HandoverRequestAcknowledgeTransfer {
        /// `dL-NGU-UP-TNLInformation`.
        req dl_ngu_up_tnl_information: UpTransportLayerInformation,
        /// `dLForwardingUP-TNLInformation`.
        opt dl_forwarding_up_tnl_information: UpTransportLayerInformation,
        /// `securityResult`.
        opt security_result: SecurityResult,
        /// `qosFlowSetupResponseList`.
        req qos_flow_setup_response_list: Vec<QosFlowItemWithDataForwarding> as List<1, 64>,
        /// `qosFlowFailedToSetupList`.
        lst qos_flow_failed_to_setup_list: Vec<QosFlowWithCauseItem> as List<1, 64>,
        /// `dataForwardingResponseDRBList`.
        lst data_forwarding_response_drb_list: Vec<DataForwardingResponseDrbItem> as List<1, 32>,
        ;
        /// `AdditionalDLUPTNLInformationForHOList`.
        153 ignore lst additional_dl_up_tnl_information_for_ho_list: Vec<AdditionalDlUpTnlInformationForHoItem>
            as List<1, 3>,
        /// `ULForwardingUP-TNLInformation`.
        164 reject opt ul_forwarding_up_tnl_information: UpTransportLayerInformation,
        /// `AdditionalULForwardingUPTNLInformation`.
        172 reject lst additional_ul_forwarding_up_tnl_information: Vec<UpTransportLayerInformation>
            as List<1, 3, Alone>,
        /// `DataForwardingResponseERABList`.
        249 ignore lst data_forwarding_response_erab_list: Vec<DataForwardingResponseErabListItem>
            as List<1, 256>,
    }
}

sequence! {
    /// Handover Preparation Unsuccessful Transfer (TS 38.413 §9.3.4.18).
    pub struct HandoverPreparationUnsuccessfulTransfer {
        /// `cause`.
        req cause: Cause,
    }
}

sequence! {
    /// Handover Resource Allocation Unsuccessful Transfer (TS 38.413 §9.3.4.19).
    pub struct HandoverResourceAllocationUnsuccessfulTransfer {
        /// `cause`.
        req cause: Cause,
        /// `criticalityDiagnostics`.
        opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
