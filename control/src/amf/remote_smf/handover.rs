//! Handovers and path switches of sessions of another vendor's SMF: TS 23.502 §4.9.1.2.2, §4.9.1.3, TS 29.502 §5.2.2.3.4.

use whimbrel_ids::PduSessionId;
use whimbrel_ngap::ie::{Cause, CauseMisc, CauseProtocol, CauseRadioNetwork, PduSessionResourceItem};
use whimbrel_ngap::transfer::{
    HandoverCommandTransfer, HandoverRequestAcknowledgeTransfer, HandoverRequiredTransfer,
};

use super::exchange::{forget, send};
use super::{change, deactivate, place, sessions, with_session};
use crate::envelope::Effect;
use crate::procedure::{Interrupt, Ue};
use crate::services::nsmf::{AdmittedSession, MovedTunnel, PathUpdates, SwitchedSession};
use crate::services::sm_contexts::{
    HandoverStep, N2Part, N2SmKind, SmContextChange, SmfAnswer, SmfOperation, SmfRequest,
};
use crate::state::{Tunnel, UpState};

/// The transfer of an answer, if it is of the kind that the request is answered with.
async fn exchange(
    ue: Ue,
    psi: PduSessionId,
    request: SmContextChange,
    expected: N2SmKind,
) -> Result<Option<Vec<u8>>, Interrupt> {
    let request = SmContextChange { place: place(ue), ..request };
    let n2: Option<N2Part> = match send(ue, psi, request.into()).await? {
        SmfAnswer::Done(message) => message.n2,
        SmfAnswer::Refused { .. } | SmfAnswer::Failed(_) | SmfAnswer::Created { .. } => None,
    };
    Ok(n2.filter(|(kind, _)| *kind == expected).map(|(_, transfer)| transfer))
}

/// hoState PREPARING (§4.9.1.3.2 steps 4 to 7): the SMF gives the N2 SM information for the target. Returns the sessions for which it gives none.
///
/// Deviation: HANDOVER REQUIRED TRANSFER says that the gNBs have no direct path, so that the SMF offers tunnels through the UPF.
pub(super) async fn prepare(ue: Ue, named: &[PduSessionId]) -> Result<Vec<PduSessionId>, Interrupt> {
    let mut unserved = Vec::new();
    for &psi in named {
        if with_session(ue, psi, |s| s.up == UpState::Active) != Some(true) {
            continue; // it is refused as unknown
        }
        let required = HandoverRequiredTransfer::new().to_vec();
        let request = SmContextChange {
            n2: Some((N2SmKind::HandoverRequired, required)),
            handover: Some(HandoverStep::Preparing),
            ..SmContextChange::default()
        };
        match exchange(ue, psi, request, N2SmKind::PduResSetupReq).await? {
            Some(setup) => {
                with_session(ue, psi, |s| (s.setup, s.handover) = (setup, Some(HandoverStep::Preparing)));
            }
            None => unserved.push(psi),
        }
    }
    Ok(unserved)
}

/// Reads the target's answer for an admitted session, which the SMF gets with hoState PREPARED.
pub(super) fn admitted(ue: Ue, psi: PduSessionId, transfer: &[u8]) -> Result<AdmittedSession, Cause> {
    let read = HandoverRequestAcknowledgeTransfer::decode(transfer)
        .map_err(|_| CauseProtocol::AbstractSyntaxErrorReject)?;
    let tunnel = Tunnel::of_gnb(&read.dl_ngu_up_tnl_information);
    with_session(ue, psi, |s| s.admitted = transfer.to_vec())
        .ok_or(CauseRadioNetwork::UnknownPduSessionId)?;
    Ok(AdmittedSession { psi, command: HandoverCommandTransfer::new(), tunnel })
}

/// hoState PREPARED (step 11): the SMF gives the transfer of HANDOVER COMMAND.
pub(super) async fn prepared(
    ue: Ue,
    admitted: Vec<AdmittedSession>,
) -> Result<Vec<AdmittedSession>, Interrupt> {
    let mut done = Vec::with_capacity(admitted.len());
    for mut session in admitted {
        let psi = session.psi;
        let transfer = with_session(ue, psi, |s| std::mem::take(&mut s.admitted)).unwrap_or_default();
        let request = SmContextChange {
            n2: Some((N2SmKind::HandoverReqAck, transfer)),
            handover: Some(HandoverStep::Prepared),
            ..SmContextChange::default()
        };
        let command = exchange(ue, psi, request, N2SmKind::HandoverCmd).await?;
        if let Some(command) = command.and_then(|octets| HandoverCommandTransfer::decode(&octets).ok()) {
            session.command = command;
            with_session(ue, psi, |s| (s.handover, s.forwarding) = (Some(HandoverStep::Prepared), true));
            done.push(session);
        }
    }
    Ok(done)
}

/// hoState COMPLETED (§4.9.1.3.3 step 7): packets go to the target.
pub(super) fn complete(ue: Ue, admitted: &[AdmittedSession]) -> PathUpdates {
    let place = place(ue);
    let mut asked = Vec::with_capacity(admitted.len());
    for psi in admitted.iter().map(|s| s.psi) {
        let session = with_session(ue, psi, |s| {
            s.handover = None;
            (s.supi, s.reference.clone())
        });
        let Some((supi, reference)) = session else { continue };
        let change = SmContextChange {
            handover: Some(HandoverStep::Completed),
            place: place.clone(),
            ..SmContextChange::default()
        };
        let operation = SmfOperation::Update { reference, change: change.into() };
        let to = ue.emit(Effect::SmContext(SmfRequest { supi, psi, operation }.into()), None);
        asked.push((psi, (), to));
    }
    asked
}

/// Steps 8 to 10: the SMF's answers. A session that was not handed over is deactivated until the UE requests it.
pub(super) async fn completed(ue: Ue, asked: PathUpdates) -> Result<(), Interrupt> {
    let taken: Vec<PduSessionId> = asked.iter().map(|(psi, ..)| *psi).collect();
    for psi in sessions(ue, |s| s.up == UpState::Active && !taken.contains(&s.psi)) {
        deactivate(ue, psi);
    }
    let guard = ue.config().timers.guard;
    for (psi, (), to) in asked {
        match ue.answer(to, guard).await {
            Ok(crate::input::Input::SmContext(answer)) if matches!(*answer, SmfAnswer::Refused { .. }) => {
                forget(ue, psi);
            }
            Ok(_) | Err(Interrupt::TimedOut) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// The UE stays at its source: hoState CANCELLED for what the SMF has prepared (§4.9.1.4).
pub(super) fn cancel(ue: Ue) {
    for psi in sessions(ue, |s| s.handover.is_some()) {
        with_session(ue, psi, |s| s.handover = None);
        let handover = Some(HandoverStep::Cancelled);
        change(ue, psi, SmContextChange { handover, ..SmContextChange::default() });
    }
}

/// Steps 2 to 6 of an Xn handover (§4.9.1.2.2): PATH SWITCH REQUEST TRANSFERs, and the SMF's acknowledgements.
pub(super) async fn switch_paths(
    ue: Ue,
    items: &[PduSessionResourceItem],
) -> Result<Vec<SwitchedSession>, Interrupt> {
    let mut switched = Vec::with_capacity(items.len());
    for item in items {
        let psi = item.pdu_session_id;
        let request = SmContextChange {
            n2: Some((N2SmKind::PathSwitchReq, item.transfer.clone())),
            path_switch: Some(true),
            ..SmContextChange::default()
        };
        let transfer = match with_session(ue, psi, |s| s.releasing) {
            Some(false) => exchange(ue, psi, request, N2SmKind::PathSwitchReqAck)
                .await?
                .ok_or_else(|| CauseMisc::NotEnoughUserPlaneProcessingResources.into()),
            Some(true) | None => Err(CauseRadioNetwork::UnknownPduSessionId.into()),
        };
        if transfer.is_ok() {
            with_session(ue, psi, |s| s.up = UpState::Active);
        }
        switched.push(SwitchedSession { psi, transfer });
    }
    Ok(switched)
}

/// Steps 2 and 7: sessions that the target could not set up, and those that it does not name.
pub(super) fn not_switched(ue: Ue, switched: &[SwitchedSession], failed: &[PduSessionResourceItem]) {
    for item in failed {
        let psi = item.pdu_session_id;
        with_session(ue, psi, |s| s.up = UpState::Inactive);
        let request = SmContextChange {
            n2: Some((N2SmKind::PathSwitchSetupFail, item.transfer.clone())),
            path_switch: Some(false),
            ..SmContextChange::default()
        };
        change(ue, psi, request);
    }
    let is_switched = |psi| switched.iter().any(|s| s.psi == psi && s.transfer.is_ok());
    for psi in sessions(ue, |s| s.up == UpState::Active && !is_switched(s.psi)) {
        deactivate(ue, psi);
    }
}

/// PDU SESSION RESOURCE MODIFY INDICATION (TS 38.413 §8.2.5).
pub(super) async fn move_tunnels(
    ue: Ue,
    items: &[PduSessionResourceItem],
) -> Result<Vec<MovedTunnel>, Interrupt> {
    let mut moved = Vec::with_capacity(items.len());
    for item in items {
        let psi = item.pdu_session_id;
        let request = SmContextChange {
            n2: Some((N2SmKind::PduResModInd, item.transfer.clone())),
            ..SmContextChange::default()
        };
        let transfer = exchange(ue, psi, request, N2SmKind::PduResModCfm).await?;
        let transfer = transfer.ok_or_else(|| CauseRadioNetwork::UnknownPduSessionId.into());
        moved.push(MovedTunnel { psi, transfer });
    }
    Ok(moved)
}
