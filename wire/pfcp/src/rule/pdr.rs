//! Packet detection rules: which packets, and which other rules they meet.

use whimbrel_ids::Qfi;

use crate::codec::grouped;
use crate::ie::{
    ApplicationId, EthernetFilterId, EthernetFilterProperties, EthernetPduSessionInformation, Ethertype,
    FTeid, FarId, FramedIpv6Route, FramedRoute, InterfaceType, MacAddress, NetworkInstance,
    OuterHeaderRemoval, PdrId, Precedence, PredefinedRules, QerId, SdfFilter, SourceInterface,
    TrafficEndpointId, UeIpAddress, UeIpAddressPoolIdentity, UrrId, VlanTag,
};

grouped! {
    /// Create PDR (table 7.5.2.2-1).
    pub struct CreatePdr: "Create PDR" {
        /// Identifier of the PDR.
        56 => pdr_id: required PdrId,
        /// Order among the session's PDRs, lowest first.
        29 => precedence: required Precedence,
        /// What to look for.
        2 => pdi: required Pdi,
        /// Which outer header matching packets lose.
        95 => outer_header_removal: conditional OuterHeaderRemoval,
        /// The FAR; absent only with predefined rules.
        108 => far_id: conditional FarId,
        /// Where they are counted.
        81 => urr_ids: many UrrId,
        /// Which rates they keep.
        109 => qer_ids: many QerId,
        /// Rules of the UP function's own to activate.
        106 => activate_predefined_rules: many PredefinedRules,
        /// Pools from which the UP function is to choose the UE's addresses.
        177 => ue_ip_address_pool_identities: many UeIpAddressPoolIdentity,
    }

    /// Packet detection information (table 7.5.2.2-2): all of it must match.
    pub struct Pdi: "PDI" {
        /// Side from which the packet comes.
        20 => source_interface: required SourceInterface,
        /// Tunnel by which it comes; absent if a traffic endpoint has it.
        21 => f_teid: conditional FTeid,
        /// Network by which it comes.
        22 => network_instance: conditional NetworkInstance,
        /// The UE's addresses.
        93 => ue_ip_addresses: many UeIpAddress,
        /// Traffic endpoint instead of tunnel, network instance and UE address.
        131 => traffic_endpoint_ids: many TrafficEndpointId,
        /// Flows: one of them must match.
        23 => sdf_filters: many SdfFilter,
        /// An application that the UP function detects.
        24 => application_id: conditional ApplicationId,
        /// Filters of an Ethernet session.
        132 => ethernet_packet_filters: many EthernetPacketFilter,
        /// All frames to addresses learnt in the session.
        142 => ethernet_pdu_session_information: optional EthernetPduSessionInformation,
        /// QoS flows: one of them must match.
        124 => qfis: many Qfi,
        /// Networks behind the UE.
        153 => framed_routes: many FramedRoute,
        /// Networks behind the UE.
        155 => framed_ipv6_routes: many FramedIpv6Route,
        /// The 3GPP interface by which it comes.
        160 => source_interface_type: optional InterfaceType,
    }

    /// Ethernet Packet Filter (table 7.5.2.2-3).
    pub struct EthernetPacketFilter: "Ethernet Packet Filter" {
        /// Identifier of the filter.
        138 => ethernet_filter_id: conditional EthernetFilterId,
        /// Whether it is bidirectional.
        139 => ethernet_filter_properties: conditional EthernetFilterProperties,
        /// MAC addresses of the filter.
        133 => mac_addresses: many MacAddress,
        /// Type of the payload.
        136 => ethertype: conditional Ethertype,
        /// Customer VLAN tag.
        134 => c_tag: conditional VlanTag,
        /// Service VLAN tag.
        135 => s_tag: conditional VlanTag,
        /// Filters of the IP packet within.
        23 => sdf_filters: many SdfFilter,
    }

    /// Created PDR (table 7.5.3.2-1): the UP function's choices for a PDR.
    pub struct CreatedPdr: "Created PDR" {
        /// Identifier of the PDR.
        56 => pdr_id: required PdrId,
        /// The tunnel chosen.
        21 => local_f_teid: conditional FTeid,
        /// The UE addresses chosen.
        93 => ue_ip_addresses: many UeIpAddress,
    }

    /// Update PDR (table 7.5.4.2-1). What is absent stays.
    pub struct UpdatePdr: "Update PDR" {
        /// Identifier of the PDR.
        56 => pdr_id: required PdrId,
        /// Which outer header matching packets lose.
        95 => outer_header_removal: conditional OuterHeaderRemoval,
        /// Order among the session's PDRs.
        29 => precedence: conditional Precedence,
        /// What to look for, in full.
        2 => pdi: conditional Pdi,
        /// What becomes of matching packets.
        108 => far_id: conditional FarId,
        /// Where they are counted, in full.
        81 => urr_ids: many UrrId,
        /// Which rates they keep, in full.
        109 => qer_ids: many QerId,
        /// Rules of the UP function's own to activate.
        106 => activate_predefined_rules: many PredefinedRules,
        /// Rules of the UP function's own to deactivate.
        107 => deactivate_predefined_rules: many PredefinedRules,
    }

    /// Remove PDR (table 7.5.4.6-1).
    pub struct RemovePdr: "Remove PDR" {
        /// Identifier of the PDR.
        56 => pdr_id: required PdrId,
    }
}

impl Pdi {
    /// Packets from one side, not narrowed further.
    pub const fn from(source_interface: SourceInterface) -> Self {
        Self {
            source_interface,
            f_teid: None,
            network_instance: None,
            ue_ip_addresses: Vec::new(),
            traffic_endpoint_ids: Vec::new(),
            sdf_filters: Vec::new(),
            application_id: None,
            ethernet_packet_filters: Vec::new(),
            ethernet_pdu_session_information: None,
            qfis: Vec::new(),
            framed_routes: Vec::new(),
            framed_ipv6_routes: Vec::new(),
            source_interface_type: None,
        }
    }
}

impl CreatePdr {
    /// A rule that leads to one FAR, without QER and URR.
    pub const fn new(pdr_id: PdrId, precedence: Precedence, pdi: Pdi, far_id: FarId) -> Self {
        Self {
            pdr_id,
            precedence,
            pdi,
            outer_header_removal: None,
            far_id: Some(far_id),
            urr_ids: Vec::new(),
            qer_ids: Vec::new(),
            activate_predefined_rules: Vec::new(),
            ue_ip_address_pool_identities: Vec::new(),
        }
    }
}

impl UpdatePdr {
    /// An empty update.
    pub const fn new(pdr_id: PdrId) -> Self {
        Self {
            pdr_id,
            outer_header_removal: None,
            precedence: None,
            pdi: None,
            far_id: None,
            urr_ids: Vec::new(),
            qer_ids: Vec::new(),
            activate_predefined_rules: Vec::new(),
            deactivate_predefined_rules: Vec::new(),
        }
    }
}
