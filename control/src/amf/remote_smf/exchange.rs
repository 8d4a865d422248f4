//! The exchange with another vendor's SMF: requests of one session, one after the other, and what their answers mean.

use whimbrel_ids::PduSessionId;
use whimbrel_nas::ie::{MmCause, PayloadContainer};

use super::messages::pass_on;
use super::{release, with_session};
use crate::amf::context_setup::{self, release_session_resources};
use crate::amf::nas_transport::{N1Sm, not_forwarded};
use crate::amf::pending_setup;
use crate::envelope::Effect;
use crate::event::Event;
use crate::input::Input;
use crate::procedure::{Interrupt, Lane, Procedure, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::services::sm_contexts::{
    N2SmKind, NewSmContext, SmContextChange, SmfAnswer, SmfMessage, SmfOperation, SmfRequest, UePlace,
    UserPlaneChange,
};
use crate::services::{NfType, ServiceFault};
use crate::state::{SessionWork, UpState};

/// The HTTP status of an SM context that the SMF does not have.
const NOT_FOUND: u16 = 404;

/// Adds work to a session, which goes on with it when what was added before is done.
pub(super) fn add(ue: Ue, psi: PduSessionId, work: SessionWork) {
    let lane = Lane::Session(psi);
    if with_session(ue, psi, |s| s.add(work)).is_some() && ue.with(|p| p.lanes.procedure(lane)).is_none() {
        let ue = ue.on(lane);
        ue.follow(lane, Procedure::SmContextUpdate, work_off(ue, psi));
    }
}

async fn work_off(ue: Ue, psi: PduSessionId) {
    while let Some(work) = with_session(ue, psi, |s| s.work.pop_front()).flatten() {
        match work {
            SessionWork::Create(new) => Box::pin(create(ue, psi, new)).await,
            SessionWork::Update(change) => Box::pin(update(ue, psi, change)).await,
            SessionWork::SetUp(n1) => Box::pin(set_up(ue, psi, n1)).await,
        }
    }
}

/// Nsmf_PDUSession_CreateSMContext (TS 23.502 §4.3.2.2.1 step 3).
async fn create(ue: Ue, psi: PduSessionId, new: Box<NewSmContext>) {
    let n1 = new.n1.clone();
    let answer = ask(ue, psi, SmfOperation::Create(new)).await;
    let (fault, message) = match answer {
        Ok(SmfAnswer::Created { reference }) => {
            with_session(ue, psi, |s| s.reference = reference);
            return;
        }
        Ok(SmfAnswer::Refused { status, message }) => (ServiceFault::Status(status), *message),
        Ok(SmfAnswer::Failed(fault)) => (fault, SmfMessage::default()),
        Ok(SmfAnswer::Done(_)) => (ServiceFault::InvalidAnswer, SmfMessage::default()),
        Err(_superseded) => return, // the session has ended
    };
    release(ue, psi, false);
    report(ue, Procedure::PduSessionEstablishment, fault);
    match (message.n1, PayloadContainer::new(n1)) {
        // PDU SESSION ESTABLISHMENT REJECT.
        (Some(n1), _) => pass_on(ue, psi, SmfMessage { n1: Some(n1), ..SmfMessage::default() }),
        (None, Some(payload)) => not_forwarded(ue, psi, payload, MmCause::PayloadWasNotForwarded),
        (None, None) => {}
    }
}

/// Nsmf_PDUSession_UpdateSMContext (TS 29.502 §5.2.2.3).
async fn update(ue: Ue, psi: PduSessionId, change: Box<SmContextChange>) {
    let kind = change.n2.as_ref().map(|(kind, _)| *kind);
    let user_plane = change.user_plane;
    let answer = match send(ue, psi, change).await {
        Ok(answer) => answer,
        Err(_superseded) => return,
    };
    match &answer {
        SmfAnswer::Done(_) if kind == Some(N2SmKind::PduResSetupRsp) => activated(ue, psi),
        SmfAnswer::Done(_) | SmfAnswer::Created { .. } => {}
        SmfAnswer::Refused { status, .. } => {
            report(ue, Procedure::SmContextUpdate, ServiceFault::Status(*status))
        }
        SmfAnswer::Failed(fault) => report(ue, Procedure::SmContextUpdate, *fault),
    }
    match answer {
        SmfAnswer::Done(message) => pass_on(ue, psi, *message),
        // The SMF has lost the session: the UE learns of it from the PDU session status of its next message.
        SmfAnswer::Refused { status: NOT_FOUND, .. } => forget(ue, psi),
        SmfAnswer::Refused { message, .. } => {
            not_activated(ue, psi, kind, user_plane);
            pass_on(ue, psi, *message);
        }
        SmfAnswer::Failed(_) => not_activated(ue, psi, kind, user_plane),
        SmfAnswer::Created { .. } => {}
    }
}

/// The SMF leads packets to the gNB.
fn activated(ue: Ue, psi: PduSessionId) {
    let former = with_session(ue, psi, |s| (s.activated(), s.began));
    ue.amf().user_plane_activated(ue);
    if let Some((UpState::Establishing, began)) = former {
        let (procedure, subject) = (Procedure::PduSessionEstablishment, ue.with(|p| p.subject()));
        ue.event(Event::Completed { procedure, subject, took: ue.now().since(began) });
    }
}

/// The SMF has not taken the gNB's tunnel, or gives no resources: the gNB releases what it has.
fn not_activated(ue: Ue, psi: PduSessionId, kind: Option<N2SmKind>, user_plane: Option<UserPlaneChange>) {
    if kind == Some(N2SmKind::PduResSetupRsp) {
        with_session(ue, psi, |s| s.up = UpState::Inactive);
        release_session_resources(ue, psi, None);
    }
    if user_plane == Some(UserPlaneChange::Activating) {
        with_session(ue, psi, |s| s.up = UpState::Inactive);
    }
}

/// The gNB is asked for the session's resources as soon as it may be (TS 23.502 §4.3.2.2.1 step 12).
async fn set_up(ue: Ue, psi: PduSessionId, n1: Option<Vec<u8>>) {
    let asked = context_setup::n1_n2_message_transfer(ue, psi, n1.as_deref().map(N1Sm::Octets)).await;
    if let Err(ProcedureEnd::Refused(refusal)) = asked {
        let subject = ue.with(|p| p.subject());
        let ran_ue_ngap_id = ue.with(|p| p.ran_ue_ngap_id());
        ue.event(Event::Refused { procedure: Procedure::SmContextUpdate, subject, ran_ue_ngap_id, refusal });
    }
}

/// The session ends at the gNB and here; its SMF does not have it any more.
pub(super) fn forget(ue: Ue, psi: PduSessionId) {
    with_session(ue, psi, |s| s.reference = Box::default());
    release(ue, psi, true);
}

/// A change is sent, and its answer awaited.
pub(super) async fn send(
    ue: Ue,
    psi: PduSessionId,
    change: Box<SmContextChange>,
) -> Result<SmfAnswer, Interrupt> {
    match with_session(ue, psi, |s| s.reference.clone()) {
        Some(reference) if !reference.is_empty() => {
            ask(ue, psi, SmfOperation::Update { reference, change }).await
        }
        _ => Ok(SmfAnswer::Failed(ServiceFault::InvalidAnswer)),
    }
}

/// Asks a second time after half of the guard, since a takeover between question and answer loses the answer.
async fn ask(ue: Ue, psi: PduSessionId, operation: SmfOperation) -> Result<SmfAnswer, Interrupt> {
    let guard = ue.config().timers.guard;
    let Some(supi) = with_session(ue, psi, |s| s.supi) else {
        return Ok(SmfAnswer::Failed(ServiceFault::InvalidAnswer));
    };
    let request = SmfRequest { supi, psi, operation };
    let mut asked = Vec::new();
    for _ in 0..2 {
        asked.push(ue.emit(Effect::SmContext(request.clone().into()), None));
        let until = ue.now() + guard / 2;
        loop {
            match ue.any_answer(asked.clone(), until.since(ue.now())).await {
                Ok(Input::SmContext(answer)) => return Ok(*answer),
                // What the SMF has to know does not need the connection.
                Err(Interrupt::ConnectionLost) => {}
                Ok(_) | Err(Interrupt::TimedOut) => break,
                Err(other) => return Err(other),
            }
        }
    }
    Ok(SmfAnswer::Failed(ServiceFault::TimedOut))
}

/// An answer for which nothing waits: a context that was created for a session that has ended is released.
pub(crate) fn answered_late(ue: Ue, psi: PduSessionId, answer: &SmfAnswer) {
    let SmfAnswer::Created { reference } = answer else {
        return ue.update_batch(|b| b.no_effect = true);
    };
    let known = with_session(ue, psi, |s| s.reference.clone());
    let supi = ue.with(|p| p.amf.supi);
    match (known, supi) {
        (known, Some(supi)) if known.as_ref() != Some(reference) => {
            let operation = SmfOperation::Release { reference: reference.clone(), place: UePlace::default() };
            ue.emit(Effect::SmContext(SmfRequest { supi, psi, operation }.into()), None);
        }
        _ => ue.update_batch(|b| b.no_effect = true),
    }
}

fn report(ue: Ue, procedure: Procedure, fault: ServiceFault) {
    let subject = ue.with(|p| p.subject());
    let ran_ue_ngap_id = ue.with(|p| p.ran_ue_ngap_id());
    let refusal = Refusal::NetworkFunction(NfType::Smf, fault);
    ue.event(Event::Refused { procedure, subject, ran_ue_ngap_id, refusal });
}

/// The session of an order has ended: its SM context is gone.
pub(super) fn ended(ue: Ue, psi: PduSessionId) {
    forget(ue, psi);
    pending_setup::session_ended(ue, psi);
}
