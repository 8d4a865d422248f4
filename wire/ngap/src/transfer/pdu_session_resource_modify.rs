//! Transfers of the PDU session resource modification (TS 38.413 §9.3.4).

use whimbrel_ids::Qfi;

use crate::aper::codec::{Alone, IntExt, List, Octets};
use crate::ie::{
    Cause, CriticalityDiagnostics, PduSessionAggregateMaximumBitRate, QosFlowAddOrModifyRequestItem,
    QosFlowPerTnlInformation, QosFlowWithCauseItem, SecondaryRatUsageInformation, SecurityIndication,
    UlNguUpTnlModifyItem, UpTransportLayerInformation, UpTransportLayerInformationPairItem,
};

message! {
    /// PDU Session Resource Modify Request Transfer (TS 38.413 §9.3.4.3).
    pub struct PduSessionResourceModifyRequestTransfer {
        /// `PDUSessionAggregateMaximumBitRate`.
        130 reject opt pdu_session_aggregate_maximum_bit_rate: PduSessionAggregateMaximumBitRate,
        /// `UL-NGU-UP-TNLModifyList`.
        140 reject lst ul_ngu_up_tnl_modify_list: Vec<UlNguUpTnlModifyItem> as List<1, 4>,
        /// `NetworkInstance`.
        129 reject opt network_instance: u16 as IntExt<1, 256>,
        /// `QosFlowAddOrModifyRequestList`.
        135 reject lst qos_flow_add_or_modify_request_list: Vec<QosFlowAddOrModifyRequestItem> as List<1, 64>,
        /// `QosFlowToReleaseList`.
        137 reject lst qos_flow_to_release_list: Vec<QosFlowWithCauseItem> as List<1, 64>,
        /// `AdditionalUL-NGU-UP-TNLInformation`.
        126 reject lst additional_ul_ngu_up_tnl_information: Vec<UpTransportLayerInformation>
            as List<1, 3, Alone>,
        /// `CommonNetworkInstance`.
        166 ignore opt common_network_instance: Vec<u8> as Octets,
        /// `AdditionalRedundantUL-NGU-UP-TNLInformation`.
        186 ignore lst additional_redundant_ul_ngu_up_tnl_information: Vec<UpTransportLayerInformation>
            as List<1, 3, Alone>,
        /// `RedundantCommonNetworkInstance`.
        190 ignore opt redundant_common_network_instance: Vec<u8> as Octets,
        /// `RedundantUL-NGU-UP-TNLInformation`.
        195 ignore opt redundant_ul_ngu_up_tnl_information: UpTransportLayerInformation,
        /// `SecurityIndication`.
        138 ignore opt security_indication: SecurityIndication,
    }
}

sequence! {
    /// PDU Session Resource Modify Response Transfer (TS 38.413 §9.3.4.4).
    pub struct PduSessionResourceModifyResponseTransfer {
        /// `dL-NGU-UP-TNLInformation`.
        opt dl_ngu_up_tnl_information: UpTransportLayerInformation,
        /// `uL-NGU-UP-TNLInformation`.
        opt ul_ngu_up_tnl_information: UpTransportLayerInformation,
        /// `qosFlowAddOrModifyResponseList`.
        lst qos_flow_add_or_modify_response_list: Vec<Qfi> as List<1, 64, Alone>,
        /// `additionalDLQosFlowPerTNLInformation`.
        lst additional_dl_qos_flow_per_tnl_information: Vec<QosFlowPerTnlInformation> as List<1, 3, Alone>,
        /// `qosFlowFailedToAddOrModifyList`.
        lst qos_flow_failed_to_add_or_modify_list: Vec<QosFlowWithCauseItem> as List<1, 64>,
        ;
        /// `AdditionalNGU-UP-TNLInformation`.
        154 ignore lst additional_ngu_up_tnl_information: Vec<UpTransportLayerInformationPairItem>
            as List<1, 3>,
        /// `SecondaryRATUsageInformation`.
        144 ignore opt secondary_rat_usage_information: SecondaryRatUsageInformation,
    }
}

sequence! {
    /// PDU Session Resource Modify Unsuccessful Transfer (TS 38.413 §9.3.4.17).
    pub struct PduSessionResourceModifyUnsuccessfulTransfer {
        /// `cause`.
        req cause: Cause,
        /// `criticalityDiagnostics`.
        opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
