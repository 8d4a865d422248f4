//! PDU session resource modify indication: TS 38.413 §8.2.5.

use whimbrel_ngap::ie::PduSessionResourceItem;
use whimbrel_ngap::msg::{PduSessionResourceModifyConfirm, PduSessionResourceModifyIndication};
use whimbrel_ngap::transfer::PduSessionResourceModifyIndicationUnsuccessfulTransfer;

use super::n2::send;
use crate::event::Event;
use crate::procedure::{Lane, Procedure, Ue};
use crate::services::nsmf::MovedTunnel;

/// A gNB changes its downlink tunnels. It is confirmed once the UPF uses the new ones.
pub(crate) fn start(ue: Ue, m: PduSessionResourceModifyIndication) {
    let ue = ue.on(Lane::Mobility);
    let procedure = Procedure::PduSessionModifyIndication;
    ue.follow(Lane::Mobility, procedure, async move {
        let began = ue.now();
        let mut answer = PduSessionResourceModifyConfirm::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id);
        let items = m.pdu_session_resource_modify_list_mod_ind;
        let Ok(moved) = ue.smf().move_tunnels(ue, &items).await else { return };
        for MovedTunnel { psi, transfer } in moved {
            match transfer {
                Ok(transfer) => answer
                    .pdu_session_resource_modify_list_mod_cfm
                    .push(PduSessionResourceItem::new(psi, transfer)),
                Err(cause) => {
                    let transfer =
                        PduSessionResourceModifyIndicationUnsuccessfulTransfer::new(cause).to_vec();
                    answer
                        .pdu_session_resource_failed_to_modify_list_mod_cfm
                        .push(PduSessionResourceItem::new(psi, transfer));
                }
            }
        }
        send(ue, &answer.into(), None);
        let subject = ue.with(|p| p.subject());
        ue.event(Event::Completed { procedure, subject, took: ue.now().since(began) });
    });
}
