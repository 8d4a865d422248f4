//! Procedure 43: UE radio capability check.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::Octets;
use crate::ie::{CriticalityDiagnostics, ImsVoiceSupportIndicator};

message! {
    /// UE RADIO CAPABILITY CHECK REQUEST: TS 38.413 §9.2.13.2.
    pub struct UeRadioCapabilityCheckRequest {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `UERadioCapability`. UE Radio Capability (TS 38.413 §9.3.1.74), unread here.
        117 ignore opt ue_radio_capability: Vec<u8> as Octets,
        /// `UERadioCapabilityID`.
        264 reject opt ue_radio_capability_id: Vec<u8> as Octets,
    }
}

message! {
    /// UE RADIO CAPABILITY CHECK RESPONSE: TS 38.413 §9.2.13.3.
    pub struct UeRadioCapabilityCheckResponse {
        /// `AMF-UE-NGAP-ID`.
        10 ignore req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 ignore req ran_ue_ngap_id: RanUeNgapId,
        /// `IMSVoiceSupportIndicator`.
        30 reject req ims_voice_support_indicator: ImsVoiceSupportIndicator,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
