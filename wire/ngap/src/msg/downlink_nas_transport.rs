//! Procedure 4: downlink NAS transport.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId, SNssai};

use crate::aper::codec::{Alone, Bits, Int, IntExt, List, Octets, StringExt};
use crate::ie::{
    EndIndication, EnhancedCoverageRestriction, ExtendedAmfName, MobilityRestrictionList,
    TargetNssaiInformation, UeAggregateMaximumBitRate, UeCapabilityInfoRequest,
};

message! {
    /// DOWNLINK NAS TRANSPORT: TS 38.413 §9.2.5.2.
    pub struct DownlinkNasTransport {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `OldAMF`. The AMF that served the UE before, by name.
        48 reject opt old_amf: String as StringExt<1, 150>,
        /// `RANPagingPriority`. 1 is the most important, 256 the least.
        83 ignore opt ran_paging_priority: u16 as Int<1, 256>,
        /// `NAS-PDU`. A NAS message.
        38 reject req nas_pdu: Vec<u8> as Octets,
        /// `MobilityRestrictionList`.
        36 ignore opt mobility_restriction_list: MobilityRestrictionList,
        /// `IndexToRFSP`. Index to RAT/Frequency Selection Priority (TS 38.413 §9.3.1.61).
        31 ignore opt index_to_rfsp: u16 as IntExt<1, 256>,
        /// `UEAggregateMaximumBitRate`.
        110 ignore opt ue_aggregate_maximum_bit_rate: UeAggregateMaximumBitRate,
        /// `AllowedNSSAI`. Allowed NSSAI (TS 38.413 §9.3.1.31).
        0 reject lst allowed_nssai: Vec<SNssai> as List<1, 8, Alone>,
        /// `Enhanced-CoverageRestriction`.
        205 ignore opt enhanced_coverage_restriction: EnhancedCoverageRestriction,
        /// `UERadioCapability`. UE Radio Capability (TS 38.413 §9.3.1.74), unread here.
        117 ignore opt ue_radio_capability: Vec<u8> as Octets,
        /// `UECapabilityInfoRequest`.
        228 ignore opt ue_capability_info_request: UeCapabilityInfoRequest,
        /// `EndIndication`.
        226 ignore opt end_indication: EndIndication,
        /// `UERadioCapabilityID`.
        264 reject opt ue_radio_capability_id: Vec<u8> as Octets,
        /// `TargetNSSAIInformation`.
        334 ignore opt target_nssai_information: TargetNssaiInformation,
        /// `MaskedIMEISV`. IMEISV of 16 digits, the last four of the serial number masked with 1s (TS 38.413
        /// §9.3.1.54).
        34 ignore opt masked_imeisv: u64 as Bits<64>,
        /// `ExtendedOldAMF`.
        443 ignore opt extended_old_amf: ExtendedAmfName,
    }
}
