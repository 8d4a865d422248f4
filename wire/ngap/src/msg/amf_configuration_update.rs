//! Procedure 0: AMF configuration update.

use crate::aper::codec::{Alone, Int, List, StringExt};
use crate::ie::{
    AmfTnlAssociationToAddItem, AmfTnlAssociationToRemoveItem, AmfTnlAssociationToUpdateItem, Cause,
    CpTransportLayerInformation, CriticalityDiagnostics, ExtendedAmfName, PlmnSupportItem, ServedGuamiItem,
    TimeToWait, TnlAssociationItem,
};

message! {
    /// AMF CONFIGURATION UPDATE: TS 38.413 §9.2.6.7.
    pub struct AmfConfigurationUpdate {
        /// `AMFName`. AMF Name (TS 38.413 §9.3.3.21).
        1 reject opt amf_name: String as StringExt<1, 150>,
        /// `ServedGUAMIList`.
        96 reject lst served_guami_list: Vec<ServedGuamiItem> as List<1, 256>,
        /// `RelativeAMFCapacity`. Weight against the other AMFs of the set: 255 is the largest, 0 asks for no
        /// new UEs.
        86 ignore opt relative_amf_capacity: u8 as Int<0, 255>,
        /// `PLMNSupportList`.
        80 reject lst plmn_support_list: Vec<PlmnSupportItem> as List<1, 12>,
        /// `AMF-TNLAssociationToAddList`.
        6 ignore lst amf_tnl_association_to_add_list: Vec<AmfTnlAssociationToAddItem> as List<1, 32>,
        /// `AMF-TNLAssociationToRemoveList`.
        7 ignore lst amf_tnl_association_to_remove_list: Vec<AmfTnlAssociationToRemoveItem> as List<1, 32>,
        /// `AMF-TNLAssociationToUpdateList`.
        8 ignore lst amf_tnl_association_to_update_list: Vec<AmfTnlAssociationToUpdateItem> as List<1, 32>,
        /// `Extended-AMFName`.
        274 ignore opt extended_amf_name: ExtendedAmfName,
    }
}

message! {
    /// AMF CONFIGURATION UPDATE ACKNOWLEDGE: TS 38.413 §9.2.6.8.
    pub struct AmfConfigurationUpdateAcknowledge {
        /// `AMF-TNLAssociationSetupList`.
        5 ignore lst amf_tnl_association_setup_list: Vec<CpTransportLayerInformation> as List<1, 32, Alone>,
        /// `AMF-TNLAssociationFailedToSetupList`.
        4 ignore lst amf_tnl_association_failed_to_setup_list: Vec<TnlAssociationItem> as List<1, 32>,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}

message! {
    /// AMF CONFIGURATION UPDATE FAILURE: TS 38.413 §9.2.6.9.
    pub struct AmfConfigurationUpdateFailure {
        /// `Cause`.
        15 ignore dft cause: Cause,
        /// `TimeToWait`.
        107 ignore opt time_to_wait: TimeToWait,
        /// `CriticalityDiagnostics`.
        19 ignore opt criticality_diagnostics: CriticalityDiagnostics,
    }
}
