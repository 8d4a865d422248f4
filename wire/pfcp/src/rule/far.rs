//! Forwarding action rules: what becomes of a packet.

use crate::codec::grouped;
use crate::ie::{
    ApplyAction, BarId, DestinationInterface, FarId, ForwardingPolicy, InterfaceType, NetworkInstance,
    OuterHeaderCreation, SessionModificationFlags, TrafficEndpointId, TransportLevelMarking,
};

grouped! {
    /// Create FAR (table 7.5.2.3-1).
    pub struct CreateFar: "Create FAR" {
        /// Identifier of the FAR.
        108 => far_id: required FarId,
        /// What to do.
        44 => apply_action: required ApplyAction,
        /// How to forward; there when FORW is set.
        4 => forwarding_parameters: conditional ForwardingParameters,
        /// How to duplicate.
        5 => duplicating_parameters: many DuplicatingParameters,
        /// How to buffer.
        88 => bar_id: optional BarId,
    }

    /// Forwarding Parameters (table 7.5.2.3-2).
    pub struct ForwardingParameters: "Forwarding Parameters" {
        /// Side to which packets go.
        42 => destination_interface: required DestinationInterface,
        /// Network to which they go.
        22 => network_instance: conditional NetworkInstance,
        /// Outer header that they get.
        84 => outer_header_creation: conditional OuterHeaderCreation,
        /// Marking of that header.
        30 => transport_level_marking: conditional TransportLevelMarking,
        /// Policy of the UP function that they follow.
        41 => forwarding_policy: conditional ForwardingPolicy,
        /// Traffic endpoint that they belong to.
        131 => linked_traffic_endpoint_id: conditional TrafficEndpointId,
        /// The 3GPP interface by which they go.
        160 => destination_interface_type: optional InterfaceType,
    }

    /// Duplicating Parameters (table 7.5.2.3-3).
    pub struct DuplicatingParameters: "Duplicating Parameters" {
        /// Side to which copies go.
        42 => destination_interface: required DestinationInterface,
        /// Outer header that they get.
        84 => outer_header_creation: conditional OuterHeaderCreation,
        /// Marking of that header.
        30 => transport_level_marking: conditional TransportLevelMarking,
        /// Policy of the UP function that they follow.
        41 => forwarding_policy: conditional ForwardingPolicy,
    }

    /// Update FAR (table 7.5.4.3-1). What is absent stays.
    pub struct UpdateFar: "Update FAR" {
        /// Identifier of the FAR.
        108 => far_id: required FarId,
        /// What to do.
        44 => apply_action: conditional ApplyAction,
        /// How to forward.
        11 => update_forwarding_parameters: conditional UpdateForwardingParameters,
        /// How to duplicate.
        105 => update_duplicating_parameters: many UpdateDuplicatingParameters,
        /// How to buffer.
        88 => bar_id: conditional BarId,
    }

    /// Update Duplicating Parameters (table 7.5.4.3-3). What is absent stays.
    pub struct UpdateDuplicatingParameters: "Update Duplicating Parameters" {
        /// Side to which copies go.
        42 => destination_interface: conditional DestinationInterface,
        /// Outer header that they get.
        84 => outer_header_creation: conditional OuterHeaderCreation,
        /// Marking of that header.
        30 => transport_level_marking: conditional TransportLevelMarking,
        /// Policy of the UP function that they follow.
        41 => forwarding_policy: conditional ForwardingPolicy,
    }

    /// Update Forwarding Parameters (table 7.5.4.3-2). What is absent stays.
    pub struct UpdateForwardingParameters: "Update Forwarding Parameters" {
        /// Side to which packets go.
        42 => destination_interface: conditional DestinationInterface,
        /// Network to which they go.
        22 => network_instance: conditional NetworkInstance,
        /// Outer header that they get.
        84 => outer_header_creation: conditional OuterHeaderCreation,
        /// Marking of that header.
        30 => transport_level_marking: conditional TransportLevelMarking,
        /// Policy of the UP function that they follow.
        41 => forwarding_policy: conditional ForwardingPolicy,
        /// SNDEM here asks for end markers to the tunnel that this update replaces.
        49 => pfcpsmreq_flags: conditional SessionModificationFlags,
        /// Traffic endpoint that they belong to.
        131 => linked_traffic_endpoint_id: conditional TrafficEndpointId,
        /// The 3GPP interface by which they go.
        160 => destination_interface_type: conditional InterfaceType,
    }

    /// Remove FAR (table 7.5.4.7-1).
    pub struct RemoveFar: "Remove FAR" {
        /// Identifier of the FAR.
        108 => far_id: required FarId,
    }
}

impl ForwardingParameters {
    /// To one side, as the packet is.
    pub const fn to(destination_interface: DestinationInterface) -> Self {
        Self {
            destination_interface,
            network_instance: None,
            outer_header_creation: None,
            transport_level_marking: None,
            forwarding_policy: None,
            linked_traffic_endpoint_id: None,
            destination_interface_type: None,
        }
    }
}

impl UpdateForwardingParameters {
    /// An empty update.
    pub const fn new() -> Self {
        Self {
            destination_interface: None,
            network_instance: None,
            outer_header_creation: None,
            transport_level_marking: None,
            forwarding_policy: None,
            pfcpsmreq_flags: None,
            linked_traffic_endpoint_id: None,
            destination_interface_type: None,
        }
    }
}

impl Default for UpdateForwardingParameters {
    fn default() -> Self {
        Self::new()
    }
}

impl CreateFar {
    /// A rule that forwards.
    pub const fn forward(far_id: FarId, parameters: ForwardingParameters) -> Self {
        Self {
            far_id,
            apply_action: ApplyAction::FORW,
            forwarding_parameters: Some(parameters),
            duplicating_parameters: Vec::new(),
            bar_id: None,
        }
    }

    /// A rule that does something else than forward.
    pub const fn action(far_id: FarId, apply_action: ApplyAction) -> Self {
        Self {
            far_id,
            apply_action,
            forwarding_parameters: None,
            duplicating_parameters: Vec::new(),
            bar_id: None,
        }
    }
}

impl UpdateFar {
    /// An empty update.
    pub const fn new(far_id: FarId) -> Self {
        Self {
            far_id,
            apply_action: None,
            update_forwarding_parameters: None,
            update_duplicating_parameters: Vec::new(),
            bar_id: None,
        }
    }
}
