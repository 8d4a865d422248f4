//! Procedure 47: uplink non UE associated NRPPA transport.

use crate::aper::codec::Octets;

message! {
    /// UPLINK NON UE ASSOCIATED NRPPA TRANSPORT: TS 38.413 §9.2.9.4.
    pub struct UplinkNonUeAssociatedNrppaTransport {
        /// `RoutingID`.
        89 reject req routing_id: Vec<u8> as Octets,
        /// `NRPPa-PDU`.
        46 reject req nrppa_pdu: Vec<u8> as Octets,
    }
}
