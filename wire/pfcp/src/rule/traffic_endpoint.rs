//! Traffic endpoints: tunnel, network instance and UE address shared by several PDRs.

use crate::codec::grouped;
use crate::ie::{FTeid, NetworkInstance, TrafficEndpointId, UeIpAddress};

grouped! {
    /// Create Traffic Endpoint (table 7.5.2.7-1).
    pub struct CreateTrafficEndpoint: "Create Traffic Endpoint" {
        /// Identifier of the endpoint.
        131 => traffic_endpoint_id: required TrafficEndpointId,
        /// Local tunnel of the endpoint.
        21 => local_f_teid: conditional FTeid,
        /// Network instance of the endpoint.
        22 => network_instance: conditional NetworkInstance,
        /// The UE's addresses.
        93 => ue_ip_addresses: many UeIpAddress,
    }

    /// Created Traffic Endpoint (table 7.5.3.5-1).
    pub struct CreatedTrafficEndpoint: "Created Traffic Endpoint" {
        /// Identifier of the endpoint.
        131 => traffic_endpoint_id: required TrafficEndpointId,
        /// The tunnel chosen.
        21 => local_f_teid: conditional FTeid,
        /// The UE addresses chosen.
        93 => ue_ip_addresses: many UeIpAddress,
    }

    /// Update Traffic Endpoint (table 7.5.4.13-1).
    pub struct UpdateTrafficEndpoint: "Update Traffic Endpoint" {
        /// Identifier of the endpoint.
        131 => traffic_endpoint_id: required TrafficEndpointId,
        /// Local tunnel of the endpoint.
        21 => local_f_teid: conditional FTeid,
        /// Network instance of the endpoint.
        22 => network_instance: conditional NetworkInstance,
        /// The UE's addresses.
        93 => ue_ip_addresses: many UeIpAddress,
    }

    /// Remove Traffic Endpoint (table 7.5.4.14-1).
    pub struct RemoveTrafficEndpoint: "Remove Traffic Endpoint" {
        /// Identifier of the endpoint.
        131 => traffic_endpoint_id: required TrafficEndpointId,
    }
}
