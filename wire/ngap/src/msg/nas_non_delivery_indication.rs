//! Procedure 19: NAS non delivery indication.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::Octets;
use crate::ie::Cause;

message! {
    /// NAS NON DELIVERY INDICATION: TS 38.413 §9.2.5.4.
    pub struct NasNonDeliveryIndication {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `NAS-PDU`. A NAS message.
        38 ignore lst nas_pdu: Vec<u8> as Octets,
        /// `Cause`.
        15 ignore dft cause: Cause,
    }
}
