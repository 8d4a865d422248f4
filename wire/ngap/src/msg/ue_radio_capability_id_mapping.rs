//! Procedure 60: UE radio capability ID mapping.

use crate::aper::codec::Octets;
use crate::ie::CriticalityDiagnostics;

message! {
    /// UE RADIO CAPABILITY ID MAPPING REQUEST: TS 38.413 §9.2.13.4.
    pub struct UeRadioCapabilityIdMappingRequest {
        /// `UERadioCapabilityID`.
        264 reject req ue_radio_capability_id: Vec<u8> as Octets,
    }
}

message! {
    /// UE RADIO CAPABILITY ID MAPPING RESPONSE: TS 38.413 §9.2.13.5.
    pub struct UeRadioCapabilityIdMappingResponse {
        /// `UERadioCapabilityID`.
        264 reject req ue_radio_capability_id: Vec<u8> as Octets,
        /// `UERadioCapability`. UE Radio Capability (TS 38.413 §9.3.1.74), unread here.
        117 ignore lst ue_radio_capability: Vec<u8> as Octets,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
