//! Procedure 15: initial UE message.

use whimbrel_ids::{PlmnId, RanUeNgapId, SNssai, STmsi};

use crate::aper::codec::{Alone, Bits, List, Octets};
use crate::ie::{
    AuthenticatedIndication, CeModeBSupportIndicator, IabNodeIndication, NpnAccessInformation,
    RrcEstablishmentCause, SourceToTargetAmfInformationReroute, UeContextRequest, UserLocationInformation,
};

message! {
    /// INITIAL UE MESSAGE: TS 38.413 §9.2.5.1.
    pub struct InitialUeMessage {
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `NAS-PDU`. A NAS message.
        38 reject req nas_pdu: Vec<u8> as Octets,
        /// `UserLocationInformation`.
        121 reject req user_location_information: UserLocationInformation,
        /// `RRCEstablishmentCause`.
        90 ignore dft rrc_establishment_cause: RrcEstablishmentCause,
        /// `FiveG-S-TMSI`.
        26 reject opt five_g_s_tmsi: STmsi,
        /// `AMFSetID`. AMF Set ID (TS 38.413 §9.3.3.12), of the AMF that the UE should be given.
        3 ignore opt amf_set_id: u16 as Bits<10>,
        /// `UEContextRequest`.
        112 ignore opt ue_context_request: UeContextRequest,
        /// `AllowedNSSAI`. Allowed NSSAI (TS 38.413 §9.3.1.31).
        0 reject lst allowed_nssai: Vec<SNssai> as List<1, 8, Alone>,
        /// `SourceToTarget-AMFInformationReroute`.
        171 ignore opt source_to_target_amf_information_reroute: SourceToTargetAmfInformationReroute,
        /// `SelectedPLMNIdentity`.
        174 ignore opt selected_plmn_identity: PlmnId,
        /// `IABNodeIndication`.
        201 reject opt iab_node_indication: IabNodeIndication,
        /// `CEmodeBSupport-Indicator`.
        224 reject opt ce_mode_b_support_indicator: CeModeBSupportIndicator,
        /// `AuthenticatedIndication`.
        245 ignore opt authenticated_indication: AuthenticatedIndication,
        /// `NPN-AccessInformation`.
        259 reject opt npn_access_information: NpnAccessInformation,
        /// `SelectedNID`.
        371 ignore opt selected_nid: u64 as Bits<44>,
    }
}
