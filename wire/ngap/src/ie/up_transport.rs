//! User plane tunnels.

use whimbrel_ids::Teid;

use crate::aper::codec::List;
use crate::ie::{AssociatedQosFlowItem, QosFlowItemWithDataForwarding, TransportLayerAddress};

choice! {
    /// UP Transport Layer Information (TS 38.413 §9.3.2.2).
    pub enum UpTransportLayerInformation {
        /// `gTPTunnel`.
        GtpTunnel(GtpTunnel),
    }
}

sequence! {
    /// A GTP tunnel endpoint (TS 38.413 §9.3.2.2).
    pub struct GtpTunnel {
        /// `transportLayerAddress`.
        req transport_layer_address: TransportLayerAddress,
        /// `gTP-TEID`.
        req gtp_teid: Teid,
    }
}

sequence! {
    /// QoS Flow per TNL Information: a tunnel and the flows in it (TS 38.413 §9.3.2.8).
    pub struct QosFlowPerTnlInformation {
        /// `uPTransportLayerInformation`.
        req up_transport_layer_information: UpTransportLayerInformation,
        /// `associatedQosFlowList`.
        req associated_qos_flow_list: Vec<AssociatedQosFlowItem> as List<1, 64>,
    }
}

sequence! {
    /// `UL-NGU-UP-TNLModifyItem` (TS 38.413 §9.4.5).
    pub struct UlNguUpTnlModifyItem {
        /// `uL-NGU-UP-TNLInformation`.
        req ul_ngu_up_tnl_information: UpTransportLayerInformation,
        /// `dL-NGU-UP-TNLInformation`.
        req dl_ngu_up_tnl_information: UpTransportLayerInformation,
    }
}

sequence! {
    /// An item of the UP Transport Layer Information Pair List (TS 38.413 §9.3.2.11).
    pub struct UpTransportLayerInformationPairItem {
        /// `uL-NGU-UP-TNLInformation`.
        req ul_ngu_up_tnl_information: UpTransportLayerInformation,
        /// `dL-NGU-UP-TNLInformation`.
        req dl_ngu_up_tnl_information: UpTransportLayerInformation,
    }
}

enumerated! {
    /// `DL-NGU-TNLInformationReused` (TS 38.413 §9.4.5).
    pub enum DlNguTnlInformationReused { True "true" } + {}
}

sequence! {
    /// `AdditionalDLUPTNLInformationForHOItem` (TS 38.413 §9.4.5).
    pub struct AdditionalDlUpTnlInformationForHoItem {
        /// `additionalDL-NGU-UP-TNLInformation`.
        req additional_dl_ngu_up_tnl_information: UpTransportLayerInformation,
        /// `additionalQosFlowSetupResponseList`.
        req additional_qos_flow_setup_response_list: Vec<QosFlowItemWithDataForwarding> as List<1, 64>,
        /// `additionalDLForwardingUPTNLInformation`.
        opt additional_dl_forwarding_up_tnl_information: UpTransportLayerInformation,
    }
}
