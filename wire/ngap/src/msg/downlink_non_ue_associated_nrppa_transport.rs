//! Procedure 5: downlink non UE associated NRPPA transport.

use crate::aper::codec::Octets;

message! {
    /// DOWNLINK NON UE ASSOCIATED NRPPA TRANSPORT: TS 38.413 §9.2.9.3.
    pub struct DownlinkNonUeAssociatedNrppaTransport {
        /// `RoutingID`.
        89 reject req routing_id: Vec<u8> as Octets,
        /// `NRPPa-PDU`.
        46 reject req nrppa_pdu: Vec<u8> as Octets,
    }
}
