//! Uplink and Downlink RAN Configuration Transfer: TS 38.413 §8.8.1.2, §8.8.2.2.

use whimbrel_ngap::ie::SonConfigurationTransferEnds;
use whimbrel_ngap::msg::{DownlinkRanConfigurationTransfer, UplinkRanConfigurationTransfer};

use super::setup::gnb_id;
use super::{RanNodes, RanOutput};
use crate::envelope::AssociationId;
use crate::event::RanEvent;

impl RanNodes {
    /// §8.8.1.2: the content is forwarded unread to the node that it names, in DOWNLINK RAN CONFIGURATION TRANSFER
    /// (§8.8.2.2).
    ///
    /// If it cannot be delivered it is dropped: the procedure has no failure message.
    pub(super) fn configuration_transfer(
        &mut self,
        association: AssociationId,
        m: UplinkRanConfigurationTransfer,
        out: &mut RanOutput,
    ) {
        let dropped = |what| RanEvent::Unserved { association, what };
        let Some(son) = m.son_configuration_transfer_ul else {
            // EN-DC and inter-system transfers are for MMEs, of which there are none here.
            return out.events.push(dropped("a configuration transfer that names no NG-RAN node"));
        };
        let Some(ends) = SonConfigurationTransferEnds::read(&son) else {
            return out.events.push(dropped("a configuration transfer whose target cannot be read"));
        };
        let Some(target) = gnb_id(&ends.target) else {
            return out.events.push(dropped("a configuration transfer to something that is no gNB"));
        };
        let from = self.nodes.get(&association).and_then(|n| n.gnb);
        if gnb_id(&ends.source) != from {
            return out.events.push(dropped("a configuration transfer in another node's name"));
        }
        if from == Some(target) {
            return out.events.push(dropped("a configuration transfer to its own sender"));
        }
        let Some(to) = self.find(target) else {
            return out.events.push(dropped("a configuration transfer to a gNB that is not here"));
        };
        let mut transfer = DownlinkRanConfigurationTransfer::new();
        transfer.son_configuration_transfer_dl = Some(son);
        out.messages.push((to, transfer.into()));
        out.events.push(RanEvent::Transferred { from: association, to });
    }
}
