//! UEs that an AMF of another vendor serves (TS 29.502 §5.2.2, TS 29.518 §5.2.2.3): the SMF of this core has their sessions, and their
//! machine has no AMF.
//!
//! The procedures of the SMF do not know of it: they call [`RemoteAmf`] as they call this core's AMF. A request of the AMF is an input of the UE and
//! stays open until the session's procedure has what answers it ([`exchange`]); what a procedure has for UE or gNB at other times is sent
//! by N1N2MessageTransfer.

mod client;
mod creation;
mod exchange;
mod handover;
#[cfg(test)]
mod tests;
mod tunnels;

use whimbrel_ids::PduSessionId;
use whimbrel_nas::ie::SmCause;
use whimbrel_ngap::ie::CauseRadioNetwork;
use whimbrel_ngap::transfer::{
    PduSessionResourceSetupResponseTransfer, PduSessionResourceSetupUnsuccessfulTransfer,
};

use super::{area, modification, operation, policy_change, release, udm_client, up_connection};
use crate::envelope::{Disposition, UeId};
use crate::input::Input;
use crate::procedure::{Lane, Procedure, Ue};
use crate::services::nsmf::{N2Outcome, SmContextReleaseData, SmContextUpdateData};
use crate::services::remote_amf::{
    HandoverStep, N2SmKind, SmContextError, SmContextExchange, SmContextOperation, SmContextRef,
    SmContextRequest, SmContextUpdate, TransferAnswer, TransferOutcome, UserPlaneState,
};
use crate::state::{ExchangeKind, RemoteAmfContext};

pub(crate) use client::RemoteAmf;
use exchange::{answer_update, open, refuse};

/// A request of the AMF.
pub(crate) fn request(ue: Ue, request: &SmContextRequest) {
    let exchange = request.exchange;
    match &request.operation {
        SmContextOperation::Create(creation) => creation::create_sm_context(ue, exchange, creation),
        SmContextOperation::Update(reference, update) => match session(ue, *reference) {
            Some(psi) => update_sm_context(ue, psi, exchange, update),
            None => refuse(ue, exchange, SmContextError::ContextNotFound, None, None),
        },
        SmContextOperation::Release(reference) => match session(ue, *reference) {
            Some(psi) => {
                release_by_amf(ue, psi);
                answer_update(ue, exchange, Default::default());
            }
            None => refuse(ue, exchange, SmContextError::ContextNotFound, None, None),
        },
        SmContextOperation::TransferFailed(reference) => match session(ue, *reference) {
            Some(psi) => {
                not_reached(ue, psi, true);
                answer_update(ue, exchange, Default::default());
            }
            None => refuse(ue, exchange, SmContextError::ContextNotFound, None, None),
        },
    }
}

/// The session that an SM context's name leads to.
fn session(ue: Ue, reference: SmContextRef) -> Option<PduSessionId> {
    let (_, psi) = UeId::from_seid(reference)?;
    let psi = PduSessionId::new(psi)?;
    ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.cp_seid == reference)).then_some(psi)
}

/// Changes what is known of the AMF.
fn with_amf<R>(ue: Ue, f: impl FnOnce(&mut RemoteAmfContext) -> R) -> Option<R> {
    ue.with(|p| p.remote_amf.as_deref_mut().map(f))
}

/// Nsmf_PDUSession_UpdateSMContext (TS 29.502 §5.2.2.3).
fn update_sm_context(ue: Ue, psi: PduSessionId, exchange: SmContextExchange, update: &SmContextUpdate) {
    note(ue, psi, update);
    if update.release {
        release_by_amf(ue, psi);
        return answer_update(ue, exchange, Default::default());
    }
    if update.handover.is_some() {
        return handover::step(ue, psi, exchange, update);
    }
    let left = matches!(update.n2, Some((N2SmKind::PathSwitchSetupFail, _)));
    if update.failed_to_be_switched || left {
        // TS 23.502 §4.9.1.2.2 step 2: the session is deactivated until the UE requests it.
        if !open(ue, psi, exchange, ExchangeKind::Deactivate) {
            return;
        }
        return up_connection::deactivate(ue.on(Lane::Session(psi)), psi);
    }
    match (&update.n1, &update.n2, update.user_plane) {
        (_, Some((kind, transfer)), _) => n2_information(ue, psi, exchange, *kind, transfer),
        (Some(n1), None, _) => {
            with_amf(ue, |amf| amf.connected = true);
            if open(ue, psi, exchange, ExchangeKind::N1) {
                ue.smf().update_sm_context(ue, psi, SmContextUpdateData::N1Sm(n1));
            }
        }
        (None, None, Some(UserPlaneState::Activating | UserPlaneState::Activated)) => {
            activate(ue, psi, exchange);
        }
        (None, None, Some(UserPlaneState::Deactivated)) => deactivate(ue, psi, exchange),
        // Where the UE is, or its AMF, has changed.
        (None, None, None) => answer_update(ue, exchange, Default::default()),
    }
    // A message of the UE beside one of its gNB.
    if let (Some(n1), Some(_)) = (&update.n1, &update.n2)
        && ue.with(|p| p.sessions.contains_key(&psi))
    {
        ue.smf().update_sm_context(ue, psi, SmContextUpdateData::N1Sm(n1));
    }
}

/// Stores what an update says of the AMF and of the UE.
fn note(ue: Ue, psi: PduSessionId, update: &SmContextUpdate) {
    let moved = with_amf(ue, |amf| {
        if let Some(other) = &update.amf {
            amf.amf = other.clone();
        }
        if let (Some(uri), Some(session)) = (&update.status_uri, amf.sessions.get_mut(&psi)) {
            session.status_uri.clone_from(uri);
        }
        let moved = update.tai.is_some() && amf.tai != update.tai;
        amf.tai = update.tai.or(amf.tai);
        moved
    });
    if moved == Some(true) && update.handover.is_none() {
        area::area_changed(ue);
    }
}

/// upCnxState ACTIVATING (TS 23.502 §4.2.3.2 steps 4 to 11): the answer has the setup request for the gNB.
fn activate(ue: Ue, psi: PduSessionId, exchange: SmContextExchange) {
    with_amf(ue, |amf| amf.connected = true);
    if area::is_barred_here(ue, psi) {
        return refuse(ue, exchange, SmContextError::OutOfLadnServiceArea, None, None);
    }
    if super::path_switch::is_being_released(ue, psi) {
        return refuse(ue, exchange, SmContextError::HigherPriorityRequestOngoing, None, None);
    }
    if open(ue, psi, exchange, ExchangeKind::Activate) {
        ue.smf().update_sm_context(ue, psi, SmContextUpdateData::Activate);
    }
}

/// upCnxState DEACTIVATED (TS 23.502 §4.2.6 steps 5 to 7). The gNB has released the resources, or will.
fn deactivate(ue: Ue, psi: PduSessionId, exchange: SmContextExchange) {
    if !open(ue, psi, exchange, ExchangeKind::Deactivate) {
        return;
    }
    let establishing = ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.n3.is_none()));
    if establishing {
        return; // its own procedure finds that its gNB does not answer
    }
    up_connection::deactivate(ue.on(Lane::Session(psi)), psi);
    let idle = ue.with(|p| !super::any_active(p));
    with_amf(ue, |amf| amf.connected = amf.connected && !idle);
}

/// The session's part of a gNB's message (TS 29.502 §6.1.6.3.15).
fn n2_information(ue: Ue, psi: PduSessionId, exchange: SmContextExchange, kind: N2SmKind, transfer: &[u8]) {
    let outcome = match kind {
        N2SmKind::PduResSetupRsp => {
            // The session would end, although the gNB has it.
            if PduSessionResourceSetupResponseTransfer::decode(transfer).is_err() {
                return refuse(ue, exchange, SmContextError::N2SmError, None, None);
            }
            N2Outcome::SetUp
        }
        N2SmKind::PduResSetupFail => N2Outcome::SetupFailed,
        N2SmKind::PduResRelRsp => N2Outcome::Released,
        N2SmKind::PduResModRsp => N2Outcome::Modified,
        N2SmKind::PduResModFail => N2Outcome::ModifyFailed,
        N2SmKind::PduResNtyRel => N2Outcome::Lost,
        N2SmKind::PathSwitchReq => return tunnels::switch_path(ue, psi, exchange, transfer),
        N2SmKind::PduResModInd => return tunnels::move_tunnel(ue, psi, exchange, transfer),
        N2SmKind::PduResNty => {
            if open(ue, psi, exchange, ExchangeKind::N2) {
                ue.smf().update_sm_context(ue, psi, SmContextUpdateData::Notify(transfer));
            }
            return;
        }
        N2SmKind::SecondaryRatUsage => {
            ue.smf().update_sm_context(ue, psi, SmContextUpdateData::SecondaryRatUsage(transfer));
            return answer_update(ue, exchange, Default::default());
        }
        // Information that an SMF sends, and what belongs to a step of a handover.
        N2SmKind::PduResSetupReq
        | N2SmKind::PduResRelCmd
        | N2SmKind::PduResModReq
        | N2SmKind::PduResModCfm
        | N2SmKind::PathSwitchSetupFail
        | N2SmKind::PathSwitchReqAck
        | N2SmKind::PathSwitchReqFail
        | N2SmKind::HandoverRequired
        | N2SmKind::HandoverCmd
        | N2SmKind::HandoverPrepFail
        | N2SmKind::HandoverReqAck
        | N2SmKind::HandoverResAllocFail => {
            return refuse(ue, exchange, SmContextError::N2SmError, None, None);
        }
    };
    if matches!(outcome, N2Outcome::SetUp) {
        with_amf(ue, |amf| amf.connected = true);
    }
    if open(ue, psi, exchange, ExchangeKind::N2) {
        let data = SmContextUpdateData::N2Sm { outcome, transfer: transfer.to_vec(), serving: true };
        ue.smf().update_sm_context(ue, psi, data);
    }
}

/// The AMF releases a session: it and its UE need no message (TS 29.502 §5.2.2.4).
fn release_by_amf(ue: Ue, psi: PduSessionId) {
    with_amf(ue, |amf| amf.sessions.get_mut(&psi).map(|s| s.created = false));
    ue.smf().release_sm_context(ue, psi, SmContextReleaseData::WithConnection);
}

/// The AMF has answered a transfer.
pub(crate) fn transfer_answered(ue: Ue, answer: TransferAnswer) {
    match answer.outcome {
        TransferOutcome::Initiated => ue.update_batch(|b| b.no_effect = true),
        // The AMF has no context of the UE, or of the session.
        TransferOutcome::UeUnknown => release_by_amf(ue, answer.psi),
        TransferOutcome::NotReachable | TransferOutcome::Failed(_) => {
            not_reached(ue, answer.psi, answer.set_up);
        }
    }
}

/// A transfer did not reach the UE, or its gNB: a setup has failed, and waiting packets are discarded (TS 23.502 §4.2.3.3 step 5).
fn not_reached(ue: Ue, psi: PduSessionId, set_up: bool) {
    if set_up {
        let cause = CauseRadioNetwork::UeInRrcInactiveStateNotReachable.into();
        let transfer = PduSessionResourceSetupUnsuccessfulTransfer::new(cause).to_vec();
        let failed = Input::N2Sm(N2Outcome::SetupFailed, transfer);
        // A procedure that does not wait for the gNB returns it.
        let _ = ue.with(|p| p.lanes.deliver(Lane::Session(psi), failed));
    }
    let why = "the AMF did not reach the UE";
    if ue.with(|p| up_connection::awaited(p)) {
        ue.smf().paging_failed(ue, why);
    } else {
        operation::deferred(ue, why);
    }
}

/// Nudm_SDM_Notification: the subscription is read again when no other procedure of the UE runs.
pub(crate) fn subscription_changed(ue: Ue) {
    with_amf(ue, |amf| amf.subscription_stale = true);
}

/// The UE's sessions are to end here: it is registered elsewhere, or the operator has ordered it.
pub(crate) fn release_all(ue: Ue) {
    for psi in ue.smf().session_ids(ue) {
        release::withdraw(ue, psi, SmCause::RegularDeactivation);
    }
}

/// After each input: answers requests that wait for nothing more, and deletes the context of a UE without sessions.
pub(crate) fn housekeeping(ue: Ue) {
    exchange::close(ue);
    begin_subscription_change(ue);
    modification::begin_pending_changes(ue);
    let ended = ue.with(|p| {
        let settled = p.remote_amf.as_ref().is_none_or(|amf| amf.is_settled());
        settled && p.lanes.idle() && p.sessions.is_empty()
    });
    if ended {
        ue.forget_queued();
        ue.update_batch(|b| b.disposition = Disposition::Ended);
    }
}

fn begin_subscription_change(ue: Ue) {
    let due = ue.with(|p| {
        let stale = p.remote_amf.as_ref().is_some_and(|amf| amf.subscription_stale);
        stale && p.lanes.procedure(Lane::Mobility).is_none()
    });
    let supi = ue.with(|p| p.subject().supi);
    let (true, Some(supi)) = (due, supi) else { return };
    with_amf(ue, |amf| amf.subscription_stale = false);
    let ue = ue.on(Lane::Mobility);
    ue.start(Lane::Mobility, Procedure::SubscriptionChange, async move {
        // Without an answer the sessions keep what was subscribed.
        let Ok(subscription) = udm_client::subscription(ue, supi).await else { return };
        if let Some(former) = ue.with(|p| p.set_subscription(subscription)) {
            policy_change::subscription_changed(ue, &former);
        }
    });
}

/// True for an update that is one of these steps of a handover.
fn is_step(input: &Input, steps: &[HandoverStep]) -> bool {
    matches!(input, Input::Handover(_, update) if update.handover.is_some_and(|step| steps.contains(&step)))
}
