//! Procedure 21: NG setup.

use crate::aper::codec::{Int, List, StringExt};
use crate::ie::{
    Cause, CriticalityDiagnostics, ExtendedAmfName, ExtendedRanNodeName, GlobalRanNodeId, PagingDrx,
    PlmnSupportItem, ServedGuamiItem, SupportedTaItem, TimeToWait, UeRetentionInformation,
};

message! {
    /// NG SETUP REQUEST: TS 38.413 §9.2.6.1.
    pub struct NgSetupRequest {
        /// `GlobalRANNodeID`.
        27 reject req global_ran_node_id: GlobalRanNodeId,
        /// `RANNodeName`.
        82 ignore opt ran_node_name: String as StringExt<1, 150>,
        /// `SupportedTAList`.
        102 reject req supported_ta_list: Vec<SupportedTaItem> as List<1, 256>,
        /// `DefaultPagingDRX`.
        21 ignore dft default_paging_drx: PagingDrx,
        /// `UERetentionInformation`.
        147 ignore opt ue_retention_information: UeRetentionInformation,
        /// `Extended-RANNodeName`.
        273 ignore opt extended_ran_node_name: ExtendedRanNodeName,
    }
}

message! {
    /// NG SETUP RESPONSE: TS 38.413 §9.2.6.2.
    pub struct NgSetupResponse {
        /// `AMFName`. AMF Name (TS 38.413 §9.3.3.21).
        1 reject req amf_name: String as StringExt<1, 150>,
        /// `ServedGUAMIList`.
        96 reject req served_guami_list: Vec<ServedGuamiItem> as List<1, 256>,
        /// `RelativeAMFCapacity`. Weight against the other AMFs of the set: 255 is the largest, 0 asks for no
        /// new UEs.
        86 ignore req relative_amf_capacity: u8 as Int<0, 255>,
        /// `PLMNSupportList`.
        80 reject req plmn_support_list: Vec<PlmnSupportItem> as List<1, 12>,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
        /// `UERetentionInformation`.
        147 ignore opt ue_retention_information: UeRetentionInformation,
        /// `Extended-AMFName`.
        274 ignore opt extended_amf_name: ExtendedAmfName,
    }
}

message! {
    /// NG SETUP FAILURE: TS 38.413 §9.2.6.3.
    pub struct NgSetupFailure {
        /// `Cause`.
        15 ignore dft cause: Cause,
        /// `TimeToWait`.
        107 ignore opt time_to_wait: TimeToWait,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
