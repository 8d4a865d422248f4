//! Procedure 44: UE radio capability info indication.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::Octets;
use crate::ie::UeRadioCapabilityForPaging;

message! {
    /// UE RADIO CAPABILITY INFO INDICATION: TS 38.413 §9.2.13.1.
    pub struct UeRadioCapabilityInfoIndication {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `UERadioCapability`. UE Radio Capability (TS 38.413 §9.3.1.74), unread here.
        117 ignore lst ue_radio_capability: Vec<u8> as Octets,
        /// `UERadioCapabilityForPaging`.
        118 ignore opt ue_radio_capability_for_paging: UeRadioCapabilityForPaging,
        /// `UERadioCapability-EUTRA-Format`.
        265 ignore opt ue_radio_capability_eutra_format: Vec<u8> as Octets,
    }
}
