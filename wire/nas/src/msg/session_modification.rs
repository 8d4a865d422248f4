//! PDU SESSION MODIFICATION REQUEST, REJECT, COMMAND, COMPLETE and COMMAND REJECT.

use crate::codec::message;
use crate::ie::*;

message! {
    /// PDU SESSION MODIFICATION REQUEST, from the UE (TS 24.501 §8.3.7).
    ModificationRequest {}
    optional {
        0x28 "5GSM capability" sm_capability: SmCapability => tlv,
        0x59 "5GSM cause" cause: SmCause => tv(1),
        0x55 "Maximum number of supported packet filters" max_packet_filters: MaxPacketFilters => tv(2),
        0xB0 "Always-on PDU session requested" always_on_requested: AlwaysOn => tv1,
        0x13 "Integrity protection maximum data rate" integrity_max_data_rate: IntegrityMaxDataRate => tv(2),
        0x7A "Requested QoS rules" qos_rules: QosRules => tlve,
        0x79 "Requested QoS flow descriptions" qos_flow_descriptions: QosFlowDescriptions => tlve,
        0x75 "Mapped EPS bearer contexts" mapped_eps_bearer_contexts: MappedEpsBearerContexts => tlve,
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
        0x74 "Port management information container" port_management_information: LongOpaque => tlve,
        0x66 "IP header compression configuration" ip_header_compression: Opaque => tlv,
        0x1F "Ethernet header compression configuration" ethernet_header_compression: Opaque => tlv,
        0x70 "Requested MBS container" requested_mbs_container: LongOpaque => tlve,
        0x72 "Service-level-AA container" service_level_aa_container: LongOpaque => tlve,
    }
}

message! {
    /// PDU SESSION MODIFICATION REJECT, from the network (TS 24.501 §8.3.8).
    ModificationReject {
        "5GSM cause" cause: SmCause => v(1),
    }
    optional {
        0x37 "Back-off timer value" back_off_timer: GprsTimer3 => tlv,
        0x61 "5GSM congestion re-attempt indicator" congestion_reattempt: CongestionReattemptIndicator => tlv,
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
        0x1D "Re-attempt indicator" reattempt: ReattemptIndicator => tlv,
    }
}

message! {
    /// PDU SESSION MODIFICATION COMMAND, from the network (TS 24.501 §8.3.9).
    ModificationCommand {}
    optional {
        0x59 "5GSM cause" cause: SmCause => tv(1),
        0x2A "Session AMBR" session_ambr: SessionAmbr => tlv,
        0x56 "RQ timer value" rq_timer: GprsTimer => tv(1),
        0x80 "Always-on PDU session indication" always_on: AlwaysOn => tv1,
        0x7A "Authorized QoS rules" qos_rules: QosRules => tlve,
        0x75 "Mapped EPS bearer contexts" mapped_eps_bearer_contexts: MappedEpsBearerContexts => tlve,
        0x79 "Authorized QoS flow descriptions" qos_flow_descriptions: QosFlowDescriptions => tlve,
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
        0x77 "ATSSS container" atsss_container: LongOpaque => tlve,
        0x66 "IP header compression configuration" ip_header_compression: Opaque => tlv,
        0x74 "Port management information container" port_management_information: LongOpaque => tlve,
        0x1E "Serving PLMN rate control" serving_plmn_rate_control: [u8; 2] => tlv,
        0x1F "Ethernet header compression configuration" ethernet_header_compression: Opaque => tlv,
        0x71 "Received MBS container" received_mbs_container: LongOpaque => tlve,
        0x72 "Service-level-AA container" service_level_aa_container: LongOpaque => tlve,
    }
}

message! {
    /// PDU SESSION MODIFICATION COMPLETE, from the UE (TS 24.501 §8.3.10).
    ModificationComplete {}
    optional {
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
        0x74 "Port management information container" port_management_information: LongOpaque => tlve,
    }
}

message! {
    /// PDU SESSION MODIFICATION COMMAND REJECT, from the UE (TS 24.501 §8.3.11).
    ModificationCommandReject {
        "5GSM cause" cause: SmCause => v(1),
    }
    optional {
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
    }
}
