//! 5GMM STATUS, NOTIFICATION and NOTIFICATION RESPONSE.

use crate::codec::message;
use crate::ie::*;

message! {
    /// 5GMM STATUS, from either side (TS 24.501 §8.2.29).
    MmStatus {
        "5GMM cause" cause: MmCause => v(1),
    }
    optional {}
}

message! {
    /// NOTIFICATION, from the network (TS 24.501 §8.2.23).
    Notification {
        "Access type" access_type: AccessType => low_only,
    }
    optional {}
}

message! {
    /// NOTIFICATION RESPONSE, from the UE (TS 24.501 §8.2.24).
    NotificationResponse {}
    optional {
        0x50 "PDU session status" pdu_session_status: PduSessionSet => tlv,
    }
}
