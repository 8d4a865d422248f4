//! Procedure 32: PWS cancel.

use crate::aper::codec::Bits;
use crate::ie::{
    BroadcastCancelledAreaList, CancelAllWarningMessages, CriticalityDiagnostics, WarningAreaList,
};

message! {
    /// PWS CANCEL REQUEST: TS 38.413 §9.2.8.3.
    pub struct PwsCancelRequest {
        /// `MessageIdentifier`.
        35 reject req message_identifier: u16 as Bits<16>,
        /// `SerialNumber`.
        95 reject req serial_number: u16 as Bits<16>,
        /// `WarningAreaList`.
        122 ignore opt warning_area_list: WarningAreaList,
        /// `CancelAllWarningMessages`.
        14 reject opt cancel_all_warning_messages: CancelAllWarningMessages,
    }
}

message! {
    /// PWS CANCEL RESPONSE: TS 38.413 §9.2.8.4.
    pub struct PwsCancelResponse {
        /// `MessageIdentifier`.
        35 reject req message_identifier: u16 as Bits<16>,
        /// `SerialNumber`.
        95 reject req serial_number: u16 as Bits<16>,
        /// `BroadcastCancelledAreaList`.
        12 ignore opt broadcast_cancelled_area_list: BroadcastCancelledAreaList,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
