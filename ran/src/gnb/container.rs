//! Transparent containers between gNBs, which the core forwards unread: TS 38.413 §9.3.1.20, §9.3.1.21, §9.3.1.108.
//!
//! The RRC messages inside are as short as TS 38.331 permits; the emulated radio's data are in a late non-critical
//! extension of RRCReconfiguration, which decoders skip.

use whimbrel_ids::{GlobalGnbId, Qfi, RanUeNgapId};
use whimbrel_ngap::{
    CellSize, CellType, DlForwarding, LastVisitedCellInformation, LastVisitedCellItem,
    LastVisitedNgranCellInformation, NgranCgi, NrCgi, PduSessionResourceInformationItem,
    QosFlowInformationItem, SourceToTargetTransparentContainer, TargetToSourceTransparentContainer,
};

use super::config::cell_of;
use super::tunnel::GnbSession;

/// HandoverPreparationInformation without any optional part.
const HANDOVER_PREPARATION_INFORMATION: [u8; 2] = [0, 0];
/// The octets before the extension in HandoverCommand: RRCReconfiguration with only that extension.
const RRC_RECONFIGURATION: [u8; 2] = [0x02, EXTENSION_OCTETS as u8];
/// RAN UE NGAP ID, next hop chaining count and keySetChangeIndicator.
const EXTENSION_OCTETS: usize = 5;

/// One bearer whose sequence numbers of 18 bits continue at 1000 and 2000, encoded by an independent codec (pycrate).
/// The emulated radio has no PDCP; the core must forward it unchanged.
pub(super) const RAN_STATUS: [u8; 12] =
    [0x00, 0x00, 0x81, 0x03, 0xe8, 0x00, 0x02, 0x41, 0x07, 0xd0, 0x00, 0x03];

/// The target's parameters for the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TargetParameters {
    /// The target's identifier of the context.
    pub(super) target: RanUeNgapId,
    /// Next hop chaining count of the target's key.
    pub(super) ncc: u8,
    /// The element keySetChangeIndicator.
    pub(super) key_set_change: bool,
}

/// Its bit beside the count.
const KEY_SET_CHANGE: u8 = 0x80;

impl TargetParameters {
    /// Encodes HandoverCommand: four bits (one message, no extension), the length and the message.
    pub(super) fn to_container(self) -> Vec<u8> {
        let mut message = RRC_RECONFIGURATION.to_vec();
        message.extend_from_slice(&self.target.0.to_be_bytes());
        message.push(self.ncc | if self.key_set_change { KEY_SET_CHANGE } else { 0 });
        let mut nibbles = vec![0];
        nibbles.extend([message.len() as u8 >> 4, message.len() as u8 & 15]);
        nibbles.extend(message.iter().flat_map(|o| [o >> 4, o & 15]));
        nibbles.push(0);
        let rrc = nibbles.chunks_exact(2).filter_map(|n| Some(n.first()? << 4 | n.get(1)?)).collect();
        TargetToSourceTransparentContainer::new(rrc).to_vec()
    }

    /// Decodes it; `None` if it was not written by [`TargetParameters::to_container`].
    pub(super) fn of_container(octets: &[u8]) -> Option<Self> {
        let rrc = TargetToSourceTransparentContainer::decode(octets).ok()?.rrc_container;
        let nibbles: Vec<u8> = rrc.iter().flat_map(|o| [o >> 4, o & 15]).collect();
        let octet = |i: usize| Some(nibbles.get(2 * i + 3)? << 4 | nibbles.get(2 * i + 4)?);
        let head = [octet(0)?, octet(1)?];
        let target = u32::from_be_bytes([octet(2)?, octet(3)?, octet(4)?, octet(5)?]);
        let (target, last) = (RanUeNgapId(target), octet(6)?);
        let (ncc, key_set_change) = (last & !KEY_SET_CHANGE, last & KEY_SET_CHANGE != 0);
        let command = Self { target, ncc, key_set_change };
        (head == RRC_RECONFIGURATION && command.to_container() == octets).then_some(command)
    }
}

/// The source's container: the sessions, with forwarding proposed for all flows or none.
pub(super) fn source_to_target(
    source: GlobalGnbId,
    target: GlobalGnbId,
    sessions: &[GnbSession],
    forwarding: bool,
) -> Vec<u8> {
    let cell = |gnb: GlobalGnbId| NgranCgi::NrCgi(NrCgi::new(gnb.plmn, cell_of(gnb)));
    let flow = |qfi: Qfi| {
        let mut item = QosFlowInformationItem::new(qfi);
        item.dl_forwarding = forwarding.then_some(DlForwarding::DlForwardingProposed);
        item
    };
    let last = LastVisitedNgranCellInformation::new(cell(source), CellType::new(CellSize::Medium), 1);
    let last = LastVisitedCellItem::new(LastVisitedCellInformation::NgranCell(last));
    let rrc = HANDOVER_PREPARATION_INFORMATION.to_vec();
    let mut m = SourceToTargetTransparentContainer::new(rrc, cell(target), vec![last]);
    let item = |s: &GnbSession| {
        PduSessionResourceInformationItem::new(s.id, s.flows.iter().map(|f| flow(f.qfi)).collect())
    };
    m.pdu_session_resource_information_list = sessions.iter().map(item).collect();
    m.to_vec()
}

/// The flows for which forwarding is proposed, by session; `None` if it cannot be read, or is for another cell.
pub(super) fn forwarding_proposed(
    own: GlobalGnbId,
    octets: &[u8],
) -> Option<Vec<whimbrel_ids::PduSessionId>> {
    let m = SourceToTargetTransparentContainer::decode(octets).ok()?;
    let NgranCgi::NrCgi(cell) = &m.target_cell_id else { return None };
    if cell.nr_cell_identity != cell_of(own) || m.rrc_container != HANDOVER_PREPARATION_INFORMATION {
        return None;
    }
    let proposed = |s: &&PduSessionResourceInformationItem| {
        s.qos_flow_information_list.iter().any(|f| f.dl_forwarding.is_some())
    };
    Some(m.pdu_session_resource_information_list.iter().filter(proposed).map(|s| s.pdu_session_id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 38.413 §9.3.1.21
    fn a_command_comes_back_and_an_altered_one_does_not() {
        let command = TargetParameters { target: RanUeNgapId(0x1234_5678), ncc: 5, key_set_change: true };
        let octets = command.to_container();
        assert_eq!(TargetParameters::of_container(&octets), Some(command));
        for i in 0..octets.len() {
            let mut altered = octets.clone();
            altered[i] ^= 0x10;
            assert_ne!(TargetParameters::of_container(&altered), Some(command), "octet {i}");
        }
        assert_eq!(TargetParameters::of_container(&[]), None);
    }
}
