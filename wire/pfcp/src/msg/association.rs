//! Association set-up, update and release.

use crate::codec::grouped;
use crate::ie::{
    AlternativeSmfIpAddress, AnnouncedPools, AssociationReleaseRequest as ReleaseFlags,
    AssociationSetupResponseFlags, Cause, CpFunctionFeatures, CpPfcpEntityIpAddress, NodeId, PackedTimer,
    RecoveryTimeStamp, SmfSetId, UpFunctionFeatures, UserPlaneIpResourceInformation,
};

grouped! {
    /// Association Setup Request (table 7.4.4.1-1).
    pub struct AssociationSetupRequest: "Association Setup Request" {
        /// Node identity of the sender.
        60 => node_id: required NodeId,
        /// When it last started.
        96 => recovery_time_stamp: required RecoveryTimeStamp,
        /// What it can do as a UP function.
        43 => up_function_features: conditional UpFunctionFeatures,
        /// What it can do as a CP function.
        89 => cp_function_features: conditional CpFunctionFeatures,
        /// Its user-plane addresses, as peers of release 15 tell them.
        116 => user_plane_ip_resource_information: many UserPlaneIpResourceInformation,
        /// Further source addresses of its SMF.
        178 => alternative_smf_ip_addresses: many AlternativeSmfIpAddress,
        /// Its SMF set: another SMF of that may go on with its sessions (TS 29.244 §5.22.3).
        180 => smf_set_id: optional SmfSetId,
        /// Asks that the sessions of an earlier association be kept.
        183 => session_retention_information: optional SessionRetentionInformation,
        /// The pools of UE addresses of a UP function of ours.
        0x8002 => announced_pools: optional AnnouncedPools,
    }

    /// PFCP Session Retention Information (table 7.4.4.1-2).
    #[derive(Default)]
    pub struct SessionRetentionInformation: "PFCP Session Retention Information" {
        /// Whose sessions; all of the node where none is named.
        185 => cp_pfcp_entity_ip_addresses: many CpPfcpEntityIpAddress,
    }

    /// Association Setup Response (table 7.4.4.2-1).
    pub struct AssociationSetupResponse: "Association Setup Response" {
        /// Node identity of the sender.
        60 => node_id: required NodeId,
        /// Cause: accepted, or the reason of the refusal.
        19 => cause: required Cause,
        /// When it last started.
        96 => recovery_time_stamp: required RecoveryTimeStamp,
        /// What it can do as a UP function.
        43 => up_function_features: conditional UpFunctionFeatures,
        /// What it can do as a CP function.
        89 => cp_function_features: conditional CpFunctionFeatures,
        /// Its user-plane addresses, as peers of release 15 tell them.
        116 => user_plane_ip_resource_information: many UserPlaneIpResourceInformation,
        /// Whether sessions were kept.
        184 => pfcpasrsp_flags: optional AssociationSetupResponseFlags,
        /// The pools of UE addresses of a UP function of ours.
        0x8002 => announced_pools: optional AnnouncedPools,
    }

    /// Association Update Request (table 7.4.4.3-1).
    pub struct AssociationUpdateRequest: "Association Update Request" {
        /// Node identity of the sender.
        60 => node_id: required NodeId,
        /// What it can do as a UP function, now.
        43 => up_function_features: optional UpFunctionFeatures,
        /// What it can do as a CP function, now.
        89 => cp_function_features: optional CpFunctionFeatures,
        /// The UP function requests the release of the association.
        111 => pfcp_association_release_request: conditional ReleaseFlags,
        /// How long it grants for that.
        112 => graceful_release_period: conditional PackedTimer,
        /// Its user-plane addresses, as peers of release 15 tell them.
        116 => user_plane_ip_resource_information: many UserPlaneIpResourceInformation,
        /// Further source addresses of its SMF.
        178 => alternative_smf_ip_addresses: many AlternativeSmfIpAddress,
    }

    /// Association Update Response (table 7.4.4.4-1).
    pub struct AssociationUpdateResponse: "Association Update Response" {
        /// Node identity of the sender.
        60 => node_id: required NodeId,
        /// Cause: accepted, or the reason of the refusal.
        19 => cause: required Cause,
        /// What it can do as a UP function.
        43 => up_function_features: optional UpFunctionFeatures,
        /// What it can do as a CP function.
        89 => cp_function_features: optional CpFunctionFeatures,
    }

    /// Association Release Request (table 7.4.4.5-1).
    pub struct AssociationReleaseRequest: "Association Release Request" {
        /// Node identity of the sender.
        60 => node_id: required NodeId,
    }

    /// Association Release Response (table 7.4.4.6-1).
    pub struct AssociationReleaseResponse: "Association Release Response" {
        /// Node identity of the sender.
        60 => node_id: required NodeId,
        /// Cause: accepted, or the reason of the refusal.
        19 => cause: required Cause,
    }
}
