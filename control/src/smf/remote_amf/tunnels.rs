//! A gNB of another vendor's AMF changes its end of a session's tunnel: Xn handover (TS 23.502 §4.9.1.2, TS 29.502 §5.2.2.3.3), and PDU
//! SESSION RESOURCE MODIFY INDICATION (TS 38.413 §8.2.5).

use whimbrel_ids::PduSessionId;
use whimbrel_ngap::ie::{Cause, CauseMisc, PduSessionResourceItem};
use whimbrel_ngap::transfer::PathSwitchRequestUnsuccessfulTransfer;

use super::super::path_switch::is_being_released;
use super::exchange::{decide, open, refuse};
use super::with_amf;
use crate::procedure::{Lane, Procedure, Ue};
use crate::services::remote_amf::{
    N2SmKind, SmContextAnswer, SmContextError, SmContextExchange, SmContextUpdated, UserPlaneState,
};
use crate::state::ExchangeKind;

/// PATH_SWITCH_REQ: the downlink path leads to the target from now on.
pub(super) fn switch_path(ue: Ue, psi: PduSessionId, exchange: SmContextExchange, transfer: &[u8]) {
    if is_being_released(ue, psi) {
        return refuse(ue, exchange, SmContextError::HigherPriorityRequestOngoing, None, None);
    }
    if !open(ue, psi, exchange, ExchangeKind::Procedure) {
        return;
    }
    let items = vec![PduSessionResourceItem::new(psi, transfer.to_vec())];
    let tac = with_amf(ue, |amf| amf.tai.map(|tai| tai.tac)).flatten();
    let ue = ue.on(Lane::Session(psi));
    ue.start(Lane::Session(psi), Procedure::PathSwitch, async move {
        let Ok(switched) = ue.smf().switch_paths(ue, &items, tac).await else { return };
        let none = || Err(CauseMisc::NotEnoughUserPlaneProcessingResources.into());
        let outcome = switched.into_iter().next().map_or_else(none, |s| s.transfer);
        let answer = match outcome {
            Ok(transfer) => {
                with_amf(ue, |amf| amf.connected = true);
                done(Some(UserPlaneState::Activated), (N2SmKind::PathSwitchReqAck, transfer))
            }
            Err(cause) => {
                let error = failure(&cause);
                let transfer = PathSwitchRequestUnsuccessfulTransfer::new(cause).to_vec();
                let n2 = Some((N2SmKind::PathSwitchReqFail, transfer));
                SmContextAnswer::Refused { error, n1: None, n2 }
            }
        };
        decide(ue, psi, exchange, answer);
    });
}

/// PDU_RES_MOD_IND: the gNB moves its end of the tunnel.
pub(super) fn move_tunnel(ue: Ue, psi: PduSessionId, exchange: SmContextExchange, transfer: &[u8]) {
    if !open(ue, psi, exchange, ExchangeKind::Procedure) {
        return;
    }
    let items = vec![PduSessionResourceItem::new(psi, transfer.to_vec())];
    let ue = ue.on(Lane::Session(psi));
    ue.follow(Lane::Session(psi), Procedure::PduSessionModifyIndication, async move {
        let Ok(moved) = ue.smf().move_tunnels(ue, &items).await else { return };
        let none = || Err(CauseMisc::NotEnoughUserPlaneProcessingResources.into());
        let answer = match moved.into_iter().next().map_or_else(none, |m| m.transfer) {
            Ok(transfer) => done(None, (N2SmKind::PduResModCfm, transfer)),
            Err(cause) => SmContextAnswer::Refused { error: failure(&cause), n1: None, n2: None },
        };
        decide(ue, psi, exchange, answer);
    });
}

fn done(user_plane: Option<UserPlaneState>, n2: (N2SmKind, Vec<u8>)) -> SmContextAnswer {
    let updated = SmContextUpdated { user_plane, n2: Some(n2), ..SmContextUpdated::default() };
    SmContextAnswer::Updated(updated.into())
}

/// Distinguishes a failure of the UPF from a fault of what the gNB has sent.
fn failure(cause: &Cause) -> SmContextError {
    match cause {
        Cause::Misc(_) => SmContextError::UpfNotResponding,
        _ => SmContextError::N2SmError,
    }
}
