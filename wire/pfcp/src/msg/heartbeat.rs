//! Heartbeat, and the answer to a version that is not ours.

use crate::codec::grouped;
use crate::ie::RecoveryTimeStamp;

grouped! {
    /// Heartbeat Request (TS 29.244 §7.4.2.1).
    pub struct HeartbeatRequest: "Heartbeat Request" {
        /// When the sender last started.
        96 => recovery_time_stamp: required RecoveryTimeStamp,
    }

    /// Heartbeat Response (TS 29.244 §7.4.2.2).
    pub struct HeartbeatResponse: "Heartbeat Response" {
        /// When the sender last started.
        96 => recovery_time_stamp: required RecoveryTimeStamp,
    }

    /// Version Not Supported Response (TS 29.244 §7.4.4.7): a header alone.
    pub struct VersionNotSupportedResponse: "Version Not Supported Response" {}
}
