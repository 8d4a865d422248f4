//! PDU SESSION RELEASE REQUEST, REJECT, COMMAND and COMPLETE, and 5GSM STATUS.

use crate::codec::message;
use crate::ie::*;

message! {
    /// PDU SESSION RELEASE REQUEST, from the UE (TS 24.501 §8.3.12).
    ReleaseRequest {}
    optional {
        0x59 "5GSM cause" cause: SmCause => tv(1),
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
    }
}

message! {
    /// PDU SESSION RELEASE REJECT, from the network (TS 24.501 §8.3.13).
    ReleaseReject {
        "5GSM cause" cause: SmCause => v(1),
    }
    optional {
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
    }
}

message! {
    /// PDU SESSION RELEASE COMMAND, from the network (TS 24.501 §8.3.14).
    ReleaseCommand {
        "5GSM cause" cause: SmCause => v(1),
    }
    optional {
        0x37 "Back-off timer value" back_off_timer: GprsTimer3 => tlv,
        0x78 "EAP message" eap_message: EapMessage => tlve,
        0x61 "5GSM congestion re-attempt indicator" congestion_reattempt: CongestionReattemptIndicator => tlv,
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
        0xD0 "Access type" access_type: AccessType => tv1,
        0x72 "Service-level-AA container" service_level_aa_container: LongOpaque => tlve,
    }
}

message! {
    /// PDU SESSION RELEASE COMPLETE, from the UE (TS 24.501 §8.3.15).
    ReleaseComplete {}
    optional {
        0x59 "5GSM cause" cause: SmCause => tv(1),
        0x7B "Extended protocol configuration options" extended_pco: ExtendedPco => tlve,
    }
}

message! {
    /// 5GSM STATUS, from either side (TS 24.501 §8.3.16).
    SmStatus {
        "5GSM cause" cause: SmCause => v(1),
    }
    optional {}
}
