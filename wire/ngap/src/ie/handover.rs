//! Targets, keys and forwarding of a handover.

use whimbrel_ids::{PlmnId, SNssai, Tai};

use crate::aper::codec::{Alone, Int, IntExt, List};
use crate::ie::{GlobalNgEnbId, GlobalRanNodeId, SecurityKey, UpTransportLayerInformation};

sequence! {
    /// `TargetNSSAIInformation`.
    pub struct TargetNssaiInformation {
        /// `targetNSSAI`.
        req target_nssai: Vec<SNssai> as List<1, 8, Alone>,
        /// `indexToRFSP`.
        req index_to_rfsp: u16 as IntExt<1, 256>,
    }
}

enumerated! {
    /// `HandoverType`.
    pub enum HandoverType {
        Intra5gs "intra5gs", FivegsToEps "fivegs-to-eps", EpsTo5gs "eps-to-5gs",
    } + {
        FivegsToUtran "fivegs-to-utran",
    }
}

choice! {
    /// `TargetID`.
    pub enum TargetId {
        /// `targetRANNodeID`.
        TargetRanNodeId(TargetRanNodeId),
        /// `targeteNB-ID`.
        TargetEnbId(TargetEnbId),
    } other Other
}

sequence! {
    /// `TargetRANNodeID`.
    pub struct TargetRanNodeId {
        /// `globalRANNodeID`.
        req global_ran_node_id: GlobalRanNodeId,
        /// `selectedTAI`.
        req selected_tai: Tai,
    }
}

sequence! {
    /// `TargeteNB-ID`.
    pub struct TargetEnbId {
        /// `globalENB-ID`.
        req global_enb_id: GlobalNgEnbId,
        /// `selected-EPS-TAI`.
        req selected_eps_tai: EpsTai,
    }
}

sequence! {
    /// `EPS-TAI`.
    pub struct EpsTai {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `ePS-TAC`.
        req eps_tac: [u8; 2],
    }
}

enumerated! {
    /// `DirectForwardingPathAvailability`.
    pub enum DirectForwardingPathAvailability { DirectPathAvailable "direct-path-available" } + {}
}

sequence! {
    /// `SecurityContext`.
    pub struct SecurityContext {
        /// `nextHopChainingCount`.
        req next_hop_chaining_count: u8 as Int<0, 7>,
        /// `nextHopNH`.
        req next_hop_nh: SecurityKey,
    }
}

enumerated! {
    /// `NewSecurityContextInd`.
    pub enum NewSecurityContextInd { True "true" } + {}
}

enumerated! {
    /// `NoPDUSessionIndication`.
    pub enum NoPduSessionIndication { True "true" } + {}
}

enumerated! {
    /// `NotifySourceNGRANNode`.
    pub enum NotifySourceNgranNode { NotifySource "notifySource" } + {}
}

enumerated! {
    /// `HandoverFlag`.
    pub enum HandoverFlag { HandoverPreparation "handover-preparation" } + {}
}

sequence! {
    /// `DataForwardingResponseDRBItem`.
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
    /// `DataForwardingResponseERABListItem`.
    pub struct DataForwardingResponseErabListItem {
        /// `e-RAB-ID`.
        req e_rab_id: u8 as IntExt<0, 15>,
        /// `dLForwardingUP-TNLInformation`.
        req dl_forwarding_up_tnl_information: UpTransportLayerInformation,
    }
}

enumerated! {
    /// `DataForwardingAccepted`.
    pub enum DataForwardingAccepted { DataForwardingAccepted "data-forwarding-accepted" } + {}
}
