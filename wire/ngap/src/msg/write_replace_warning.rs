//! Procedure 51: write replace warning.

use crate::aper::codec::{Bits, Int, OctetsSized};
use crate::ie::{
    BroadcastCompletedAreaList, ConcurrentWarningMessageInd, CriticalityDiagnostics, WarningAreaList,
};

message! {
    /// WRITE-REPLACE WARNING REQUEST: TS 38.413 §9.2.8.1.
    pub struct WriteReplaceWarningRequest {
        /// `MessageIdentifier`.
        35 reject req message_identifier: u16 as Bits<16>,
        /// `SerialNumber`.
        95 reject req serial_number: u16 as Bits<16>,
        /// `WarningAreaList`.
        122 ignore opt warning_area_list: WarningAreaList,
        /// `RepetitionPeriod`. In seconds.
        87 reject req repetition_period: u32 as Int<0, 131071>,
        /// `NumberOfBroadcastsRequested`.
        47 reject req number_of_broadcasts_requested: u16 as Int<0, 65535>,
        /// `WarningType`.
        125 ignore opt warning_type: [u8; 2],
        /// `WarningSecurityInfo`.
        124 ignore opt warning_security_info: [u8; 50],
        /// `DataCodingScheme`. Data Coding Scheme (TS 38.413 §9.3.1.41).
        20 ignore opt data_coding_scheme: u8 as Bits<8>,
        /// `WarningMessageContents`.
        123 ignore opt warning_message_contents: Vec<u8> as OctetsSized<1, 9600>,
        /// `ConcurrentWarningMessageInd`.
        17 reject opt concurrent_warning_message_ind: ConcurrentWarningMessageInd,
        /// `WarningAreaCoordinates`.
        141 ignore opt warning_area_coordinates: Vec<u8> as OctetsSized<1, 1024>,
    }
}

message! {
    /// WRITE-REPLACE WARNING RESPONSE: TS 38.413 §9.2.8.2.
    pub struct WriteReplaceWarningResponse {
        /// `MessageIdentifier`.
        35 reject req message_identifier: u16 as Bits<16>,
        /// `SerialNumber`.
        95 reject req serial_number: u16 as Bits<16>,
        /// `BroadcastCompletedAreaList`.
        13 ignore opt broadcast_completed_area_list: BroadcastCompletedAreaList,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
