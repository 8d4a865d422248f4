//! Configuration of a gNB.

use core::net::IpAddr;
use core::time::Duration;

use whimbrel_ids::{GlobalGnbId, NrCellId, PduSessionId, PlmnId, SNssai, Tac, Tai};
use whimbrel_ngap::{
    BroadcastPlmnItem, Cause, NgSetupRequest, PagingDrx, SupportedTaItem, TransportLayerAddress,
    UeSecurityCapabilities, UserLocationInformation,
};
use whimbrel_ngap::{GlobalRanNodeId, NrCgi, RanConfigurationUpdate, UserLocationInformationNr};

/// One tracking area that a gNB broadcasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupportedTa {
    /// Tracking area code (TAC).
    pub tac: Tac,
    /// The networks in it, with the slices of each.
    pub plmns: Vec<(PlmnId, Vec<SNssai>)>,
}

/// Configuration of a gNB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GnbConfig {
    /// Its global identifier.
    pub id: GlobalGnbId,
    /// Its name, 1 to 150 characters.
    pub name: String,
    /// Its tracking areas; its one cell is in the first.
    pub supported_tas: Vec<SupportedTa>,
    /// Its default paging DRX.
    pub paging_drx: PagingDrx,
    /// Its N3 address.
    pub gtp_address: IpAddr,
    /// UE radio capability that its UEs have (opaque to the core).
    pub radio_capability: Vec<u8>,
    /// It has a direct forwarding path to other gNBs (TS 38.413 §9.3.1.64); without one the core forwards.
    pub direct_forwarding: bool,
    /// TNGRELOCprep: how long the preparation of an N2 handover may take (TS 38.413 §8.4.1); no standard value.
    pub handover_preparation: Duration,
    /// TNGRELOCoverall and TXnRELOCoverall: how long a handover may take from the command on; no standard value.
    pub handover_overall: Duration,
    /// How long it waits for the answer to NG SETUP REQUEST; no standard value, well above any normal answer time.
    pub setup_timeout: Duration,
    /// It offers `fastwire` instead of aligned PER; an AMF without it ignores the offer.
    pub fastwire: bool,
    /// How long a UE is between this gNB's cell and the target of a handover, without either; no standard value: none for tests of the core.
    pub handover_interruption: Duration,
    /// It hands its container over early when the core predicts a handover ([`whimbrel_ngap::EarlyHandover`]).
    pub hands_over_early: bool,
}

/// Faults and refusals of a gNB, for tests of the core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// As the target of a handover, refuse it with this cause.
    pub refuse_handover: Option<Cause>,
    /// Refuse these sessions in any message.
    pub refuse_sessions: Vec<PduSessionId>,
    /// As the target of an N2 handover, never answer HANDOVER REQUEST.
    pub ignore_handover_request: bool,
    /// As the target of an N2 handover, refuse forwarding.
    pub refuse_forwarding: bool,
    /// As the target, never report to the core that the UE has arrived.
    pub silent_arrival: bool,
    /// As the source of an N2 handover, cancel when HANDOVER COMMAND comes.
    pub cancel_at_command: bool,
    /// As the source, lose the command to the UE, which stays silent from then on.
    pub lose_command: bool,
    /// Send these security capabilities in PATH SWITCH REQUEST, as in a bidding-down attack (TS 33.501 §6.7.3.1).
    pub altered_capabilities: Option<UeSecurityCapabilities>,
}

/// A gNB's cell: its identifier in the upper bits, cell 1 in the rest (TS 38.413 §9.3.1.7).
pub(super) fn cell_of(gnb: GlobalGnbId) -> NrCellId {
    let own = u64::from(gnb.gnb_id) << (36 - u32::from(gnb.bits()));
    NrCellId::new(own | u64::from(gnb.bits() < 36))
        .unwrap_or_else(|| NrCellId::new(1).expect("36 bits hold 1"))
}

impl GnbConfig {
    /// A gNB of one area and one network, as the embedded core expects it.
    pub fn new(id: GlobalGnbId, tac: Tac, slices: Vec<SNssai>, gtp_address: IpAddr) -> Self {
        Self {
            id,
            name: format!("whimbrel-gnb-{:x}", id.gnb_id),
            supported_tas: vec![SupportedTa { tac, plmns: vec![(id.plmn, slices)] }],
            paging_drx: PagingDrx::V128,
            gtp_address,
            // Not a decodable UE-CapabilityRAT-ContainerList: the core must return it unchanged.
            radio_capability: (0u8..96).collect(),
            direct_forwarding: true,
            handover_preparation: Duration::from_secs(5),
            handover_overall: Duration::from_secs(10),
            setup_timeout: Duration::from_secs(10),
            fastwire: false,
            handover_interruption: Duration::ZERO,
            hands_over_early: false,
        }
    }

    /// The tracking area of its cell.
    pub fn tai(&self) -> Tai {
        let tac = self.supported_tas.first().map_or(Tac::from_octets([0; 3]), |t| t.tac);
        Tai { plmn: self.id.plmn, tac }
    }

    pub(super) fn location(&self) -> UserLocationInformation {
        let nr_cgi = NrCgi::new(self.id.plmn, cell_of(self.id));
        UserLocationInformation::UserLocationInformationNr(UserLocationInformationNr::new(nr_cgi, self.tai()))
    }

    pub(super) fn transport_address(&self) -> TransportLayerAddress {
        match self.gtp_address {
            IpAddr::V4(a) => a.into(),
            IpAddr::V6(a) => a.into(),
        }
    }

    fn supported_ta_list(&self) -> Vec<SupportedTaItem> {
        let broadcast =
            |(plmn, slices): &(PlmnId, Vec<SNssai>)| BroadcastPlmnItem::new(*plmn, slices.clone());
        let area = |t: &SupportedTa| SupportedTaItem::new(t.tac, t.plmns.iter().map(broadcast).collect());
        self.supported_tas.iter().map(area).collect()
    }

    pub(super) fn setup_request(&self) -> NgSetupRequest {
        let mut request = NgSetupRequest::new(
            GlobalRanNodeId::GlobalGnbId(self.id),
            self.supported_ta_list(),
            self.paging_drx,
        );
        request.ran_node_name = Some(self.name.clone());
        request
    }

    pub(super) fn configuration_update(&self) -> RanConfigurationUpdate {
        let mut update = RanConfigurationUpdate::new();
        update.ran_node_name = Some(self.name.clone());
        update.supported_ta_list = self.supported_ta_list();
        update.default_paging_drx = Some(self.paging_drx);
        update
    }

    pub(super) fn further_association(&self) -> RanConfigurationUpdate {
        let mut update = RanConfigurationUpdate::new();
        update.global_ran_node_id = Some(GlobalRanNodeId::GlobalGnbId(self.id));
        update
    }

    /// Whether one of its areas is in the list.
    pub(super) fn serves(&self, tais: &[Tai]) -> bool {
        let in_list =
            |t: &SupportedTa| t.plmns.iter().any(|(plmn, _)| tais.contains(&Tai { plmn: *plmn, tac: t.tac }));
        self.supported_tas.iter().any(in_list)
    }

    /// Whether a slice is served in its cell.
    pub(super) fn serves_slice(&self, s: SNssai) -> bool {
        self.supported_tas.iter().flat_map(|t| &t.plmns).any(|(_, slices)| slices.contains(&s))
    }
}
