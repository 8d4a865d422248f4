//! Procedure 46: uplink NAS transport.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::aper::codec::Octets;
use crate::ie::UserLocationInformation;

message! {
    /// UPLINK NAS TRANSPORT: TS 38.413 §9.2.5.3.
    pub struct UplinkNasTransport {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `NAS-PDU`. A NAS message.
        38 reject req nas_pdu: Vec<u8> as Octets,
        /// `UserLocationInformation`.
        121 ignore opt user_location_information: UserLocationInformation,
        /// `W-AGFIdentityInformation`.
        239 reject opt w_agf_identity_information: Vec<u8> as Octets,
        /// `TNGFIdentityInformation`.
        246 reject opt tngf_identity_information: Vec<u8> as Octets,
        /// `TWIFIdentityInformation`.
        247 reject opt twif_identity_information: Vec<u8> as Octets,
    }
}
