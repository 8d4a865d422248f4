//! Buffering action rules.

use crate::codec::grouped;
use crate::ie::{BarId, DownlinkDataNotificationDelay, PackedTimer, SuggestedBufferingPacketsCount};

grouped! {
    /// Create BAR (table 7.5.2.6-1).
    pub struct CreateBar: "Create BAR" {
        /// Identifier of the BAR.
        88 => bar_id: required BarId,
        /// Downlink data notification delay.
        46 => downlink_data_notification_delay: conditional DownlinkDataNotificationDelay,
        /// Suggested number of buffered packets.
        140 => suggested_buffering_packets_count: conditional SuggestedBufferingPacketsCount,
    }

    /// Update BAR within a modification (table 7.5.4.11-1).
    pub struct UpdateBar: "Update BAR" {
        /// Identifier of the BAR.
        88 => bar_id: required BarId,
        /// Downlink data notification delay.
        46 => downlink_data_notification_delay: conditional DownlinkDataNotificationDelay,
        /// Suggested number of buffered packets.
        140 => suggested_buffering_packets_count: conditional SuggestedBufferingPacketsCount,
    }

    /// Update BAR within a Session Report Response (table 7.5.9.2-1).
    pub struct UpdateBarInReportResponse: "Update BAR" {
        /// Identifier of the BAR.
        88 => bar_id: required BarId,
        /// Downlink data notification delay.
        46 => downlink_data_notification_delay: conditional DownlinkDataNotificationDelay,
        /// How long to buffer.
        47 => dl_buffering_duration: conditional PackedTimer,
        /// Suggested number of buffered packets.
        140 => suggested_buffering_packets_count: conditional SuggestedBufferingPacketsCount,
    }

    /// Remove BAR (table 7.5.4.12-1).
    pub struct RemoveBar: "Remove BAR" {
        /// Identifier of the BAR.
        88 => bar_id: required BarId,
    }
}
