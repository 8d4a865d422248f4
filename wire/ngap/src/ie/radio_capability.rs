//! UE radio capabilities.

use crate::aper::codec::Octets;

enumerated! {
    /// UE Capability Info Request (TS 38.413 §9.3.1.192).
    pub enum UeCapabilityInfoRequest { Requested "requested" } + {}
}

sequence! {
    /// UE Radio Capability for Paging (TS 38.413 §9.3.1.68).
    pub struct UeRadioCapabilityForPaging {
        /// `uERadioCapabilityForPagingOfNR`.
        opt ue_radio_capability_for_paging_of_nr: Vec<u8> as Octets,
        /// `uERadioCapabilityForPagingOfEUTRA`.
        opt ue_radio_capability_for_paging_of_eutra: Vec<u8> as Octets,
    }
}

enumerated! {
    /// IMS Voice Support Indicator (TS 38.413 §9.3.1.89).
    pub enum ImsVoiceSupportIndicator { Supported "supported", NotSupported "not-supported" } + {}
}
