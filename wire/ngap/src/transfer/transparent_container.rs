//! Transparent containers between NG-RAN nodes, which the core forwards unread (TS 38.413 §9.3.1.20, §9.3.1.21).

use whimbrel_ids::{PduSessionId, Qfi};

use crate::aper::codec::{Int, IntExt, List, Octets};
use crate::ie::{AssociatedQosFlowItem, Cause, NgranCgi};

sequence! {
    /// Source NG-RAN Node to Target NG-RAN Node Transparent Container (TS 38.413 §9.3.1.20).
    pub struct SourceToTargetTransparentContainer {
        /// `rRCContainer`. HandoverPreparationInformation of TS 38.331.
        req rrc_container: Vec<u8> as Octets,
        /// `pDUSessionResourceInformationList`.
        lst pdu_session_resource_information_list: Vec<PduSessionResourceInformationItem> as List<1, 256>,
        /// `e-RABInformationList`.
        lst e_rab_information_list: Vec<ERabInformationItem> as List<1, 256>,
        /// `targetCell-ID`.
        req target_cell_id: NgranCgi,
        /// `indexToRFSP`.
        opt index_to_rfsp: u16 as IntExt<1, 256>,
        /// `uEHistoryInformation`.
        req ue_history_information: Vec<LastVisitedCellItem> as List<1, 16>,
    }
}

sequence! {
    /// Target NG-RAN Node to Source NG-RAN Node Transparent Container (TS 38.413 §9.3.1.21).
    pub struct TargetToSourceTransparentContainer {
        /// `rRCContainer`. HandoverCommand of TS 38.331.
        req rrc_container: Vec<u8> as Octets,
    }
}

sequence! {
    /// `PDUSessionResourceInformationItem` (TS 38.413 §9.4.5).
    pub struct PduSessionResourceInformationItem {
        /// `pDUSessionID`.
        req pdu_session_id: PduSessionId,
        /// `qosFlowInformationList`.
        req qos_flow_information_list: Vec<QosFlowInformationItem> as List<1, 64>,
        /// `dRBsToQosFlowsMappingList`.
        lst drbs_to_qos_flows_mapping_list: Vec<DrbsToQosFlowsMappingItem> as List<1, 32>,
    }
}

sequence! {
    /// `QosFlowInformationItem` (TS 38.413 §9.4.5).
    pub struct QosFlowInformationItem {
        /// `qosFlowIdentifier`.
        req qos_flow_identifier: Qfi,
        /// `dLForwarding`.
        opt dl_forwarding: DlForwarding,
    }
}

enumerated! {
    /// DL Forwarding (TS 38.413 §9.3.1.33).
    pub enum DlForwarding { DlForwardingProposed "dl-forwarding-proposed" } + {}
}

sequence! {
    /// An item of the DRBs to QoS Flows Mapping List (TS 38.413 §9.3.1.34).
    pub struct DrbsToQosFlowsMappingItem {
        /// `dRB-ID`.
        req drb_id: u8 as IntExt<1, 32>,
        /// `associatedQosFlowList`.
        req associated_qos_flow_list: Vec<AssociatedQosFlowItem> as List<1, 64>,
    }
}

sequence! {
    /// `E-RABInformationItem` (TS 38.413 §9.4.5).
    pub struct ERabInformationItem {
        /// `e-RAB-ID`.
        req e_rab_id: u8 as IntExt<0, 15>,
        /// `dLForwarding`.
        opt dl_forwarding: DlForwarding,
    }
}

sequence! {
    /// An item of the UE History Information (TS 38.413 §9.3.1.95).
    pub struct LastVisitedCellItem {
        /// `lastVisitedCellInformation`.
        req last_visited_cell_information: LastVisitedCellInformation,
    }
}

choice! {
    /// Last Visited Cell Information (TS 38.413 §9.3.1.96).
    pub enum LastVisitedCellInformation {
        /// `nGRANCell`.
        NgranCell(LastVisitedNgranCellInformation),
        /// `eUTRANCell`.
        EutranCell(Vec<u8> as Octets),
        /// `uTRANCell`.
        UtranCell(Vec<u8> as Octets),
        /// `gERANCell`.
        GeranCell(Vec<u8> as Octets),
    } other Other
}

sequence! {
    /// Last Visited NG-RAN Cell Information (TS 38.413 §9.3.1.97).
    pub struct LastVisitedNgranCellInformation {
        /// `globalCellID`.
        req global_cell_id: NgranCgi,
        /// `cellType`.
        req cell_type: CellType,
        /// `timeUEStayedInCell`. In seconds.
        req time_ue_stayed_in_cell: u16 as Int<0, 4095>,
        /// `timeUEStayedInCellEnhancedGranularity`. In tenths of a second.
        opt time_ue_stayed_in_cell_enhanced_granularity: u16 as Int<0, 40950>,
        /// `hOCauseValue`.
        opt ho_cause_value: Cause,
    }
}

sequence! {
    /// Cell Type (TS 38.413 §9.3.1.98).
    pub struct CellType {
        /// `cellSize`.
        req cell_size: CellSize,
    }
}

enumerated! {
    /// `CellSize` (TS 38.413 §9.4.5).
    pub enum CellSize { Verysmall "verysmall", Small "small", Medium "medium", Large "large" } + {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aper::Aper;
    use crate::aper::sample::Source;

    /// Octets of an independent codec (pycrate).
    const SOURCE_TO_TARGET: [u8; 31] = [
        0x40, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x01, 0x01, 0x00, 0x99, 0xf9, 0x07, 0x00, 0x00, 0x00, 0x02,
        0x10, 0x00, 0x00, 0x99, 0xf9, 0x07, 0x00, 0x00, 0x00, 0x01, 0x10, 0x80, 0x00, 0x05,
    ];

    #[test] // TS 38.413 §9.3.1.20
    fn as_an_independent_codec_writes_it() {
        let m = SourceToTargetTransparentContainer::decode(&SOURCE_TO_TARGET).unwrap();
        assert_eq!(m.rrc_container, [0, 0]);
        let session = &m.pdu_session_resource_information_list[0];
        let flow = &session.qos_flow_information_list[0];
        assert_eq!(flow.dl_forwarding, Some(DlForwarding::DlForwardingProposed));
        assert_eq!(m.ue_history_information.len(), 1);
        assert_eq!(m.to_vec(), SOURCE_TO_TARGET);
    }

    #[test]
    fn containers_come_back() {
        for seed in 0..200 {
            let mut s = Source::new(seed);
            let m = SourceToTargetTransparentContainer::sample(&mut s);
            assert_eq!(SourceToTargetTransparentContainer::decode(&m.to_vec()), Ok(m));
            let m = TargetToSourceTransparentContainer::sample(&mut s);
            assert_eq!(TargetToSourceTransparentContainer::decode(&m.to_vec()), Ok(m));
        }
    }
}
