//! Procedure 6: downlink RAN configuration transfer.

use crate::aper::codec::Raw;

message! {
    /// DOWNLINK RAN CONFIGURATION TRANSFER: TS 38.413 §9.2.7.2.
    pub struct DownlinkRanConfigurationTransfer {
        /// `SONConfigurationTransferDL`.
        98 ignore opt son_configuration_transfer_dl: Vec<u8> as Raw,
        /// `ENDC-SONConfigurationTransferDL`.
        157 ignore opt endc_son_configuration_transfer_dl: Vec<u8> as Raw,
        /// `IntersystemSONConfigurationTransferDL`.
        250 ignore opt intersystem_son_configuration_transfer_dl: Vec<u8> as Raw,
    }
}
