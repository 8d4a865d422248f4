//! The SMF's part of a PDU session resource modify indication: TS 38.413 §8.2.5, §9.3.4.6, §9.3.4.7: a gNB moves its end of
//! sessions' tunnels, as it does for dual connectivity (TS 37.340 §10.14.2).

use whimbrel_ids::Qfi;
use whimbrel_ngap::ie::{
    Cause, CauseMisc, CauseProtocol, CauseRadioNetwork, PduSessionResourceItem, QosFlowWithCauseItem,
};
use whimbrel_ngap::transfer::{
    PduSessionResourceModifyConfirmTransfer, PduSessionResourceModifyIndicationTransfer,
};

use super::context::{an_tunnel, tunnel};
use super::n4::{self, Downlink};
use crate::procedure::{Interrupt, Ue};
use crate::services::nsmf::MovedTunnel;
use crate::state::{DEFAULT_QFI, Tunnel, UpState};

/// Sets each session's downlink tunnel to the gNB's new one.
pub(crate) async fn move_tunnels(
    ue: Ue,
    items: &[PduSessionResourceItem],
) -> Result<Vec<MovedTunnel>, Interrupt> {
    let (mut moved, mut asked) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
    for (i, item) in items.iter().enumerate() {
        let psi = item.pdu_session_id;
        let twice = items.iter().take(i).any(|other| other.pdu_session_id == psi);
        let judged = if twice {
            Err(CauseRadioNetwork::MultiplePduSessionIdInstances.into())
        } else {
            judge(ue, item)
        };
        match judged {
            Ok((to, transfer)) => match n4::ask_downlink(ue, psi, Downlink::To(to)) {
                Some(request) => asked.push((psi, (to, transfer), request)),
                None => moved.push(MovedTunnel { psi, transfer: Err(no_user_plane()) }),
            },
            Err(cause) => moved.push(MovedTunnel { psi, transfer: Err(cause) }),
        }
    }
    for (psi, (to, transfer), answer) in n4::modifications_answered(ue, asked).await? {
        let there =
            answer.is_ok() && ue.with(|p| p.sessions.get_mut(&psi).map(|s| s.active_at(to))).is_some();
        moved.push(MovedTunnel { psi, transfer: if there { Ok(transfer) } else { Err(no_user_plane()) } });
    }
    Ok(moved)
}

fn no_user_plane() -> Cause {
    CauseMisc::NotEnoughUserPlaneProcessingResources.into()
}

fn judge(ue: Ue, item: &PduSessionResourceItem) -> Result<(Tunnel, Vec<u8>), Cause> {
    let asked = PduSessionResourceModifyIndicationTransfer::decode(&item.transfer);
    ue.with(|p| {
        let session = p.sessions.get(&item.pdu_session_id).filter(|s| s.up == UpState::Active);
        let session = session.ok_or(CauseRadioNetwork::UnknownPduSessionId)?;
        let asked = asked.map_err(|_| CauseProtocol::AbstractSyntaxErrorReject)?;
        let there = &asked.dl_qos_flow_per_tnl_information;
        let to = an_tunnel(&there.up_transport_layer_information).ok_or(CauseProtocol::SemanticError)?;
        let ours = p.uplink_tunnel(session.psi).ok_or(CauseRadioNetwork::UnknownPduSessionId)?;
        let known = |q: &Qfi| *q == DEFAULT_QFI || session.flow(*q).is_some();
        let named: Vec<Qfi> = there.associated_qos_flow_list.iter().map(|f| f.qos_flow_identifier).collect();
        let (flows, unknown): (Vec<Qfi>, Vec<Qfi>) = named.into_iter().partition(known);
        if flows.is_empty() {
            return Err(CauseRadioNetwork::UnkownQosFlowId.into());
        }
        let mut answer = PduSessionResourceModifyConfirmTransfer::new(flows, tunnel(ours));
        // One tunnel per session: flows for which the gNB gives further tunnels stay in it (TS 38.413 §9.3.4.7).
        let elsewhere = asked.additional_dl_qos_flow_per_tnl_information.iter();
        let elsewhere = elsewhere.flat_map(|t| &t.associated_qos_flow_list).map(|f| f.qos_flow_identifier);
        let failed = unknown.iter().map(|q| (*q, CauseRadioNetwork::UnkownQosFlowId));
        let failed = failed.chain(elsewhere.map(|q| (q, CauseRadioNetwork::InvalidQosCombination)));
        answer.qos_flow_failed_to_modify_list =
            failed.map(|(q, cause)| QosFlowWithCauseItem::new(q, cause.into())).collect();
        Ok((to, answer.to_vec()))
    })
}
