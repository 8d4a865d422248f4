//! UL NAS TRANSPORT and DL NAS TRANSPORT.

use whimbrel_ids::{Dnn, PduSessionId};

use crate::codec::message;
use crate::ie::*;

message! {
    /// UL NAS TRANSPORT, from the UE (TS 24.501 §8.2.10).
    UlNasTransport {
        "Payload container type" payload_container_type: PayloadContainerType => low_only,
        "Payload container" payload_container: PayloadContainer => lve,
    }
    optional {
        0x12 "PDU session ID" pdu_session_id: PduSessionId => tv(1),
        0x59 "Old PDU session ID" old_pdu_session_id: PduSessionId => tv(1),
        0x80 "Request type" request_type: RequestType => tv1,
        0x22 "S-NSSAI" s_nssai: MappedSNssai => tlv,
        0x25 "DNN" dnn: Dnn => tlv,
        0x24 "Additional information" additional_information: Opaque => tlv,
        0xA0 "MA PDU session information" ma_pdu_session_information: MaPduSessionInformation => tv1,
        0xF0 "Release assistance indication" release_assistance: ReleaseAssistanceIndication => tv1,
    }
}

message! {
    /// DL NAS TRANSPORT, from the network (TS 24.501 §8.2.11).
    DlNasTransport {
        "Payload container type" payload_container_type: PayloadContainerType => low_only,
        "Payload container" payload_container: PayloadContainer => lve,
    }
    optional {
        0x12 "PDU session ID" pdu_session_id: PduSessionId => tv(1),
        0x24 "Additional information" additional_information: Opaque => tlv,
        0x58 "5GMM cause" cause: MmCause => tv(1),
        0x37 "Back-off timer value" back_off_timer: GprsTimer3 => tlv,
        0x3A "Lower bound timer value" lower_bound_timer: GprsTimer3 => tlv,
    }
}
