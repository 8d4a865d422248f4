//! UE radio capabilities.

use crate::aper::codec::Octets;

enumerated! {
    /// `UECapabilityInfoRequest`.
    pub enum UeCapabilityInfoRequest { Requested "requested" } + {}
}

sequence! {
    /// `UERadioCapabilityForPaging`.
    pub struct UeRadioCapabilityForPaging {
        /// `uERadioCapabilityForPagingOfNR`.
        opt ue_radio_capability_for_paging_of_nr: Vec<u8> as Octets,
        /// `uERadioCapabilityForPagingOfEUTRA`.
        opt ue_radio_capability_for_paging_of_eutra: Vec<u8> as Octets,
    }
}

enumerated! {
    /// `IMSVoiceSupportIndicator`.
    pub enum ImsVoiceSupportIndicator { Supported "supported", NotSupported "not-supported" } + {}
}
