//! SERVICE REQUEST, ACCEPT, REJECT and CONTROL PLANE SERVICE REQUEST.

use whimbrel_ids::PduSessionId;

use crate::codec::message;
use crate::ie::*;

message! {
    /// SERVICE REQUEST, from the UE (TS 24.501 §8.2.16).
    ServiceRequest {
        "ngKSI" ng_ksi: NgKsi => low,
        "Service type" service_type: ServiceType => high,
        "5G-S-TMSI" s_tmsi: MobileIdentity => lve,
    }
    optional {
        0x40 "Uplink data status" uplink_data_status: PduSessionSet => tlv,
        0x50 "PDU session status" pdu_session_status: PduSessionSet => tlv,
        0x25 "Allowed PDU session status" allowed_pdu_session_status: PduSessionSet => tlv,
        0x71 "NAS message container" nas_message_container: NasMessageContainer => tlve,
        0x29 "UE request type" ue_request_type: Opaque => tlv,
        0x28 "Paging restriction" paging_restriction: Opaque => tlv,
    }
}

message! {
    /// SERVICE ACCEPT, from the network (TS 24.501 §8.2.17).
    ServiceAccept {}
    optional {
        0x50 "PDU session status" pdu_session_status: PduSessionSet => tlv,
        0x26 "PDU session reactivation result" reactivation_result: PduSessionSet => tlv,
        0x72 "PDU session reactivation result error cause" reactivation_errors: ReactivationErrors => tlve,
        0x78 "EAP message" eap_message: EapMessage => tlve,
        0x6B "T3448 value" t3448: GprsTimer => tlv,
        0x34 "5GS additional request result" additional_request_result: Opaque => tlv,
        0x1D "Forbidden TAIs for roaming" forbidden_tais_roaming: TaiList => tlv,
        0x1E "Forbidden TAIs for regional provision of service" forbidden_tais_regional: TaiList => tlv,
    }
}

message! {
    /// SERVICE REJECT, from the network (TS 24.501 §8.2.18).
    ServiceReject {
        "5GMM cause" cause: MmCause => v(1),
    }
    optional {
        0x50 "PDU session status" pdu_session_status: PduSessionSet => tlv,
        0x5F "T3346 value" t3346: GprsTimer => tlv,
        0x78 "EAP message" eap_message: EapMessage => tlve,
        0x6B "T3448 value" t3448: GprsTimer => tlv,
        0x75 "CAG information list" cag_information_list: LongOpaque => tlve,
        0x2C "Disaster return wait range" disaster_return_wait_range: [u8; 2] => tlv,
        0x71 "Extended CAG information list" extended_cag_information_list: LongOpaque => tlve,
        0x3A "Lower bound timer value" lower_bound_timer: GprsTimer3 => tlv,
        0x1D "Forbidden TAIs for roaming" forbidden_tais_roaming: TaiList => tlv,
        0x1E "Forbidden TAIs for regional provision of service" forbidden_tais_regional: TaiList => tlv,
    }
}

message! {
    /// CONTROL PLANE SERVICE REQUEST, from the UE (TS 24.501 §8.2.30).
    ControlPlaneServiceRequest {
        "Control plane service type" service_type: ControlPlaneServiceType => low,
        "ngKSI" ng_ksi: NgKsi => high,
    }
    optional {
        0x6F "CIoT small data container" ciot_small_data_container: Opaque => tlv,
        0x80 "Payload container type" payload_container_type: PayloadContainerType => tv1,
        0x7B "Payload container" payload_container: PayloadContainer => tlve,
        0x12 "PDU session ID" pdu_session_id: PduSessionId => tv(1),
        0x50 "PDU session status" pdu_session_status: PduSessionSet => tlv,
        0xF0 "Release assistance indication" release_assistance: ReleaseAssistanceIndication => tv1,
        0x40 "Uplink data status" uplink_data_status: PduSessionSet => tlv,
        0x71 "NAS message container" nas_message_container: NasMessageContainer => tlve,
        0x24 "Additional information" additional_information: Opaque => tlv,
        0x25 "Allowed PDU session status" allowed_pdu_session_status: PduSessionSet => tlv,
        0x29 "UE request type" ue_request_type: Opaque => tlv,
        0x28 "Paging restriction" paging_restriction: Opaque => tlv,
    }
}
