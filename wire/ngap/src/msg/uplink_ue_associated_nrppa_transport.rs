//! Procedure 50: uplink UE associated NRPPA transport.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::Octets;

message! {
    /// UPLINK UE ASSOCIATED NRPPA TRANSPORT: TS 38.413 §9.2.9.2.
    pub struct UplinkUeAssociatedNrppaTransport {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `RoutingID`.
        89 reject req routing_id: Vec<u8> as Octets,
        /// `NRPPa-PDU`.
        46 reject req nrppa_pdu: Vec<u8> as Octets,
    }
}
