//! Transport associations between AMF and RAN node.

use crate::aper::codec::Int;
use crate::ie::{Cause, TransportLayerAddress};

sequence! {
    /// `NGRAN-TNLAssociationToRemoveItem` (TS 38.413 §9.4.5).
    pub struct NgranTnlAssociationToRemoveItem [closed] {
        /// `tNLAssociationTransportLayerAddress`.
        req tnl_association_transport_layer_address: CpTransportLayerInformation,
        /// `tNLAssociationTransportLayerAddressAMF`.
        opt tnl_association_transport_layer_address_amf: CpTransportLayerInformation,
    }
}

choice! {
    /// CP Transport Layer Information (TS 38.413 §9.3.2.6).
    pub enum CpTransportLayerInformation {
        /// `endpointIPAddress`.
        EndpointIpAddress(TransportLayerAddress),
        ;
        /// `EndpointIPAddressAndPort`.
        169 reject EndpointIpAddressAndPort(EndpointIpAddressAndPort),
    }
}

sequence! {
    /// `EndpointIPAddressAndPort` (TS 38.413 §9.4.5).
    pub struct EndpointIpAddressAndPort [closed] {
        /// `endpointIPAddress`.
        req endpoint_ip_address: TransportLayerAddress,
        /// `portNumber`. UDP port, big-endian.
        req port_number: [u8; 2],
    }
}

sequence! {
    /// `AMF-TNLAssociationToAddItem` (TS 38.413 §9.4.5).
    pub struct AmfTnlAssociationToAddItem {
        /// `aMF-TNLAssociationAddress`.
        req amf_tnl_association_address: CpTransportLayerInformation,
        /// `tNLAssociationUsage`.
        opt tnl_association_usage: TnlAssociationUsage,
        /// `tNLAddressWeightFactor`.
        req tnl_address_weight_factor: u8 as Int<0, 255>,
    }
}

enumerated! {
    /// TNL Association Usage (TS 38.413 §9.3.2.9).
    pub enum TnlAssociationUsage { Ue "ue", NonUe "non-ue", Both "both" } + {}
}

sequence! {
    /// `AMF-TNLAssociationToRemoveItem` (TS 38.413 §9.4.5).
    pub struct AmfTnlAssociationToRemoveItem {
        /// `aMF-TNLAssociationAddress`.
        req amf_tnl_association_address: CpTransportLayerInformation,
        ;
        /// `TNLAssociationTransportLayerAddressNGRAN`.
        168 reject opt tnl_association_transport_layer_address_ngran: CpTransportLayerInformation,
    }
}

sequence! {
    /// `AMF-TNLAssociationToUpdateItem` (TS 38.413 §9.4.5).
    pub struct AmfTnlAssociationToUpdateItem {
        /// `aMF-TNLAssociationAddress`.
        req amf_tnl_association_address: CpTransportLayerInformation,
        /// `tNLAssociationUsage`.
        opt tnl_association_usage: TnlAssociationUsage,
        /// `tNLAddressWeightFactor`.
        opt tnl_address_weight_factor: u8 as Int<0, 255>,
    }
}

sequence! {
    /// An item of the TNL Association List (TS 38.413 §9.3.2.7).
    pub struct TnlAssociationItem {
        /// `tNLAssociationAddress`.
        req tnl_association_address: CpTransportLayerInformation,
        /// `cause`.
        req cause: Cause,
    }
}
