//! Targets, keys and forwarding of a handover.

use whimbrel_ids::{PlmnId, SNssai, Tai};

use crate::aper::codec::{Alone, Int, IntExt, List};
use crate::ie::{GlobalNgEnbId, GlobalRanNodeId, SecurityKey, UpTransportLayerInformation};

sequence! {
    /// `TargetNSSAIInformation` (TS 38.413 §9.4.5).
    pub struct TargetNssaiInformation {
        /// `targetNSSAI`.
        req target_nssai: Vec<SNssai> as List<1, 8, Alone>,
        /// `indexToRFSP`. Index to RAT/Frequency Selection Priority (TS 38.413 §9.3.1.61).
        req index_to_rfsp: u16 as IntExt<1, 256>,
    }
}

enumerated! {
    /// Handover Type (TS 38.413 §9.3.1.22).
    pub enum HandoverType {
        Intra5gs "intra5gs", FivegsToEps "fivegs-to-eps", EpsTo5gs "eps-to-5gs",
    } + {
        FivegsToUtran "fivegs-to-utran",
    }
}

choice! {
    /// Target ID (TS 38.413 §9.3.1.25).
    pub enum TargetId {
        /// `targetRANNodeID`.
        TargetRanNodeId(TargetRanNodeId),
        /// `targeteNB-ID`.
        TargetEnbId(TargetEnbId),
    } other Other
}

sequence! {
    /// A target NG-RAN node (TS 38.413 §9.3.1.25).
    pub struct TargetRanNodeId {
        /// `globalRANNodeID`.
        req global_ran_node_id: GlobalRanNodeId,
        /// `selectedTAI`.
        req selected_tai: Tai,
    }
}

sequence! {
    /// A target eNB (TS 38.413 §9.3.1.25).
    pub struct TargetEnbId {
        /// `globalENB-ID`.
        req global_enb_id: GlobalNgEnbId,
        /// `selected-EPS-TAI`.
        req selected_eps_tai: EpsTai,
    }
}

sequence! {
    /// EPS TAI (TS 38.413 §9.3.3.17).
    pub struct EpsTai {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `ePS-TAC`.
        req eps_tac: [u8; 2],
    }
}

enumerated! {
    /// Direct Forwarding Path Availability (TS 38.413 §9.3.1.64).
    pub enum DirectForwardingPathAvailability { DirectPathAvailable "direct-path-available" } + {}
}

sequence! {
    /// Security Context: NH and its chaining count (TS 38.413 §9.3.1.88).
    pub struct SecurityContext {
        /// `nextHopChainingCount`. NCC.
        req next_hop_chaining_count: u8 as Int<0, 7>,
        /// `nextHopNH`. NH.
        req next_hop_nh: SecurityKey,
    }
}

enumerated! {
    /// New Security Context Indicator (TS 38.413 §9.3.1.55).
    pub enum NewSecurityContextInd { True "true" } + {}
}

enumerated! {
    /// `NoPDUSessionIndication` (TS 38.413 §9.4.5).
    pub enum NoPduSessionIndication { True "true" } + {}
}

enumerated! {
    /// `NotifySourceNGRANNode` (TS 38.413 §9.4.5).
    pub enum NotifySourceNgranNode { NotifySource "notifySource" } + {}
}

enumerated! {
    /// `HandoverFlag` (TS 38.413 §9.4.5).
    pub enum HandoverFlag { HandoverPreparation "handover-preparation" } + {}
}

sequence! {
    /// An item of the Data Forwarding Response DRB List (TS 38.413 §9.3.1.77).
    pub struct DataForwardingResponseDrbItem {
        /// `dRB-ID`.
        req drb_id: u8 as IntExt<1, 32>,
        /// `dLForwardingUP-TNLInformation`.
        opt dl_forwarding_up_tnl_information: UpTransportLayerInformation,
        /// `uLForwardingUP-TNLInformation`.
        opt ul_forwarding_up_tnl_information: UpTransportLayerInformation,
    }
}

sequence! {
    /// An item of the Data Forwarding Response E-RAB List (TS 38.413 §9.3.1.121).
    pub struct DataForwardingResponseErabListItem {
        /// `e-RAB-ID`.
        req e_rab_id: u8 as IntExt<0, 15>,
        /// `dLForwardingUP-TNLInformation`.
        req dl_forwarding_up_tnl_information: UpTransportLayerInformation,
    }
}

enumerated! {
    /// Data Forwarding Accepted (TS 38.413 §9.3.1.62).
    pub enum DataForwardingAccepted { DataForwardingAccepted "data-forwarding-accepted" } + {}
}
