//! PDU SESSION ESTABLISHMENT REQUEST, ACCEPT and REJECT.

use whimbrel_ids::Dnn;

use crate::codec::message;
use crate::ie::*;

message! {
    /// PDU SESSION ESTABLISHMENT REQUEST, from the UE (TS 24.501 §8.3.1).
    EstablishmentRequest {
        "Integrity protection maximum data rate" integrity_max_data_rate: IntegrityMaxDataRate => v(2),
    }
    optional {
        0x90 "PDU session type" pdu_session_type: PduSessionType => tv1,
        0xA0 "SSC mode" ssc_mode: SscMode => tv1,
        0x28 "5GSM capability" sm_capability: SmCapability => tlv,
        0x55 "Maximum number of supported packet filters" max_packet_filters: MaxPacketFilters => tv(2),
        0xB0 "Always-on PDU session requested" always_on_requested: AlwaysOn => tv1,
        0x39 "SM PDU DN request container" sm_pdu_dn_request_container: SmPduDnRequestContainer => tlv,
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
        0x66 "IP header compression configuration" ip_header_compression: Opaque => tlv,
        0x6E "DS-TT Ethernet port MAC address" ds_tt_mac_address: [u8; 6] => tlv,
        0x6F "UE-DS-TT residence time" ds_tt_residence_time: [u8; 8] => tlv,
        0x74 "Port management information container" port_management_information: LongOpaque => tlve,
        0x1F "Ethernet header compression configuration" ethernet_header_compression: Opaque => tlv,
        0x29 "Suggested interface identifier" suggested_interface_identifier: PduAddress => tlv,
        0x72 "Service-level-AA container" service_level_aa_container: LongOpaque => tlve,
        0x70 "Requested MBS container" requested_mbs_container: LongOpaque => tlve,
        0x34 "PDU session pair ID" pdu_session_pair_id: Opaque => tlv,
        0x35 "RSN" rsn: Opaque => tlv,
    }
}

message! {
    /// PDU SESSION ESTABLISHMENT ACCEPT, from the network (TS 24.501 §8.3.2).
    EstablishmentAccept {
        "Selected PDU session type" pdu_session_type: PduSessionType => low,
        "Selected SSC mode" ssc_mode: SscMode => high,
        "Authorized QoS rules" qos_rules: QosRules => lve,
        "Session AMBR" session_ambr: SessionAmbr => lv,
    }
    optional {
        0x59 "5GSM cause" cause: SmCause => tv(1),
        0x29 "PDU address" pdu_address: PduAddress => tlv,
        0x56 "RQ timer value" rq_timer: GprsTimer => tv(1),
        0x22 "S-NSSAI" s_nssai: MappedSNssai => tlv,
        0x80 "Always-on PDU session indication" always_on: AlwaysOn => tv1,
        0x75 "Mapped EPS bearer contexts" mapped_eps_bearer_contexts: MappedEpsBearerContexts => tlve,
        0x78 "EAP message" eap_message: EapMessage => tlve,
        0x79 "Authorized QoS flow descriptions" qos_flow_descriptions: QosFlowDescriptions => tlve,
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
        0x25 "DNN" dnn: Dnn => tlv,
        0x17 "5GSM network feature support" network_feature_support: SmNetworkFeatureSupport => tlv,
        0x18 "Serving PLMN rate control" serving_plmn_rate_control: [u8; 2] => tlv,
        0x77 "ATSSS container" atsss_container: LongOpaque => tlve,
        0xC0 "Control plane only indication" control_plane_only: ControlPlaneOnly => tv1,
        0x66 "IP header compression configuration" ip_header_compression: Opaque => tlv,
        0x1F "Ethernet header compression configuration" ethernet_header_compression: Opaque => tlv,
        0x72 "Service-level-AA container" service_level_aa_container: LongOpaque => tlve,
        0x71 "Received MBS container" received_mbs_container: LongOpaque => tlve,
    }
}

message! {
    /// PDU SESSION ESTABLISHMENT REJECT, from the network (TS 24.501 §8.3.3).
    EstablishmentReject {
        "5GSM cause" cause: SmCause => v(1),
    }
    optional {
        0x37 "Back-off timer value" back_off_timer: GprsTimer3 => tlv,
        0xF0 "Allowed SSC mode" allowed_ssc_mode: AllowedSscMode => tv1,
        0x78 "EAP message" eap_message: EapMessage => tlve,
        0x61 "5GSM congestion re-attempt indicator" congestion_reattempt: CongestionReattemptIndicator => tlv,
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
        0x1D "Re-attempt indicator" reattempt: ReattemptIndicator => tlv,
        0x72 "Service-level-AA container" service_level_aa_container: LongOpaque => tlve,
    }
}
