//! Procedure 48: uplink RAN configuration transfer.

use crate::aper::codec::Raw;

message! {
    /// UPLINK RAN CONFIGURATION TRANSFER: TS 38.413 §9.2.7.1.
    pub struct UplinkRanConfigurationTransfer {
        /// `SONConfigurationTransferUL`.
        99 ignore opt son_configuration_transfer_ul: Vec<u8> as Raw,
        /// `ENDC-SONConfigurationTransferUL`.
        158 ignore opt endc_son_configuration_transfer_ul: Vec<u8> as Raw,
        /// `IntersystemSONConfigurationTransferUL`.
        251 ignore opt intersystem_son_configuration_transfer_ul: Vec<u8> as Raw,
    }
}
