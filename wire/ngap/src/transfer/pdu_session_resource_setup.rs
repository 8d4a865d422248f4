//! Transfers of the PDU session resource setup (TS 38.413 §9.3.4).

use crate::aper::codec::{Alone, IntExt, List, Octets};
use crate::ie::{
    Cause, CriticalityDiagnostics, DataForwardingNotPossible, DirectForwardingPathAvailability,
    PduSessionAggregateMaximumBitRate, PduSessionType, QosFlowPerTnlInformation, QosFlowSetupRequestItem,
    QosFlowWithCauseItem, SecurityIndication, SecurityResult, UpTransportLayerInformation,
};

message! {
    /// PDU Session Resource Setup Request Transfer (TS 38.413 §9.3.4.1).
    pub struct PduSessionResourceSetupRequestTransfer {
        /// `PDUSessionAggregateMaximumBitRate`.
        130 reject opt pdu_session_aggregate_maximum_bit_rate: PduSessionAggregateMaximumBitRate,
        /// `UL-NGU-UP-TNLInformation`.
        139 reject req ul_ngu_up_tnl_information: UpTransportLayerInformation,
        /// `AdditionalUL-NGU-UP-TNLInformation`.
        126 reject lst additional_ul_ngu_up_tnl_information: Vec<UpTransportLayerInformation>
            as List<1, 3, Alone>,
        /// `DataForwardingNotPossible`.
        127 reject opt data_forwarding_not_possible: DataForwardingNotPossible,
        /// `PDUSessionType`.
        134 reject req pdu_session_type: PduSessionType,
        /// `SecurityIndication`.
        138 reject opt security_indication: SecurityIndication,
        /// `NetworkInstance`.
        129 reject opt network_instance: u16 as IntExt<1, 256>,
        /// `QosFlowSetupRequestList`.
        136 reject req qos_flow_setup_request_list: Vec<QosFlowSetupRequestItem> as List<1, 64>,
        /// `CommonNetworkInstance`.
        166 ignore opt common_network_instance: Vec<u8> as Octets,
        /// `DirectForwardingPathAvailability`.
        22 ignore opt direct_forwarding_path_availability: DirectForwardingPathAvailability,
        /// `RedundantUL-NGU-UP-TNLInformation`.
        195 ignore opt redundant_ul_ngu_up_tnl_information: UpTransportLayerInformation,
        /// `AdditionalRedundantUL-NGU-UP-TNLInformation`.
        186 ignore lst additional_redundant_ul_ngu_up_tnl_information: Vec<UpTransportLayerInformation>
            as List<1, 3, Alone>,
        /// `RedundantCommonNetworkInstance`.
        190 ignore opt redundant_common_network_instance: Vec<u8> as Octets,
    }
}

sequence! {
    /// PDU Session Resource Setup Response Transfer (TS 38.413 §9.3.4.2).
    pub struct PduSessionResourceSetupResponseTransfer {
        /// `dLQosFlowPerTNLInformation`.
        req dl_qos_flow_per_tnl_information: QosFlowPerTnlInformation,
        /// `additionalDLQosFlowPerTNLInformation`.
        lst additional_dl_qos_flow_per_tnl_information: Vec<QosFlowPerTnlInformation> as List<1, 3, Alone>,
        /// `securityResult`.
        opt security_result: SecurityResult,
        /// `qosFlowFailedToSetupList`.
        lst qos_flow_failed_to_setup_list: Vec<QosFlowWithCauseItem> as List<1, 64>,
    }
}

sequence! {
    /// PDU Session Resource Setup Unsuccessful Transfer (TS 38.413 §9.3.4.16).
    pub struct PduSessionResourceSetupUnsuccessfulTransfer {
        /// `cause`.
        req cause: Cause,
        /// `criticalityDiagnostics`.
        opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
