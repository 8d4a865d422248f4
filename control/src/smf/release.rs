//! PDU session release: TS 23.502 §4.3.4.2; NAS part TS 24.501 §6.3.3, §6.4.3.

use whimbrel_ids::PduSessionId;
use whimbrel_nas::ie::SmCause;
use whimbrel_nas::sm::{self, Pti, ReleaseCommand};

use super::release_at_gnb;
use super::{n4, operation, up_connection};
use crate::event::{Event, SessionOutcome};
use crate::input::Input;
use crate::procedure::{Interrupt, Lane, Procedure, ProcedureEnd, RepeatedMessage, Ue, attempt};
use crate::services::namf::N2SmInformation;
use crate::services::nsmf::N2Outcome;
use crate::state::UpState;
use crate::upf::UpfId;

/// UE-requested release (TS 24.501 §6.4.3).
pub(super) fn by_ue(ue: Ue, psi: PduSessionId, pti: Pti) {
    start(ue, psi, pti, SmCause::RegularDeactivation, Procedure::PduSessionReleaseByUe);
}

/// Network-requested release (TS 24.501 §6.3.3).
pub(super) fn by_network(ue: Ue, psi: PduSessionId, cause: SmCause) {
    start(ue, psi, Pti::UNASSIGNED, cause, Procedure::PduSessionReleaseByNetwork);
}

/// The AMF releases a session (TS 23.502 §4.3.4.2 step 1f): a connected UE gets the command; an idle one sees it in the
/// PDU session status when it returns.
pub(crate) fn withdraw(ue: Ue, psi: PduSessionId, cause: SmCause) {
    if ue.amf().ue_state(ue).connected {
        by_network(ue, psi, cause);
    } else {
        release_locally(ue, psi);
    }
}

fn start(ue: Ue, psi: PduSessionId, pti: Pti, cause: SmCause, procedure: Procedure) {
    let ue = ue.on(Lane::Session(psi));
    let coming_up = up_connection::is_coming_up(ue, psi); // which this procedure ends
    ue.start(Lane::Session(psi), procedure, async move {
        let began = ue.now();
        let released = release(ue, psi, pti, cause, coming_up).await;
        let outcome = match &released {
            Ok(()) => {
                let (failed_flows, not_at_gnb) = (Vec::new(), None);
                Some(SessionOutcome::Completed { failed_flows, not_at_gnb, more: false })
            }
            Err(ProcedureEnd::Refused(refusal)) => {
                Some(SessionOutcome::Refused { refusal: refusal.clone(), more: false })
            }
            Err(ProcedureEnd::Interrupted(_)) => None, // reported with the end of the session
        };
        outcome.into_iter().for_each(|outcome| operation::ended(ue, psi, procedure, outcome));
        n4::delete(ue, psi);
        if released.is_ok() {
            let subject = ue.with(|p| p.subject());
            let took = ue.now().since(began);
            ue.event(Event::Completed { procedure, subject, took });
        }
        ue.amf().arm_inactivity_timer(ue);
    });
}

/// Commands UE and gNB to release the session, also if the gNB has not answered its setup yet. After the fifth expiry of T3592 the session
/// ends all the same (TS 24.501 §6.3.3.5 a).
async fn release(
    ue: Ue,
    psi: PduSessionId,
    pti: Pti,
    cause: SmCause,
    coming_up: bool,
) -> Result<(), ProcedureEnd> {
    let command = sm::Message::new(psi, pti, ReleaseCommand::new(cause));
    ue.amf().handover_over(ue).await?;
    let at_gnb = ue.with(|p| {
        let session = p.sessions.get_mut(&psi);
        session.is_some_and(|s| {
            s.pti = pti;
            s.up != UpState::Inactive || coming_up
        })
    }) && ue.amf().ue_state(ue).context_set_up;
    let mut timer = RepeatedMessage::new("PDU SESSION RELEASE COMMAND", "T3592", ue.config().timers.t3592);
    if at_gnb {
        ue.amf().n1_n2_message_transfer(ue, psi, Some(&command), N2SmInformation::Release);
    } else {
        super::send(ue, psi, command.clone());
    }
    loop {
        let accepts = |i: &Input| match i {
            Input::Sm(m) => matches!(m.body, sm::Body::ReleaseComplete(_)),
            Input::N2Sm(N2Outcome::Released | N2Outcome::SetUp, _) => true,
            _ => false,
        };
        match attempt(ue, &mut timer, accepts).await? {
            Some(Input::Sm(_)) => return Ok(()),
            // The gNB has set up the resources meanwhile.
            Some(Input::N2Sm(N2Outcome::SetUp, _)) if !at_gnb => release_at_gnb(ue, psi),
            Some(_gnb_released) => {}
            None => super::send(ue, psi, command.clone()),
        }
    }
}

/// Releases a session without a message to the UE. Its gNB gets the command.
pub(crate) fn release_locally(ue: Ue, psi: PduSessionId) {
    let coming_up = up_connection::is_coming_up(ue, psi);
    let active = ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.up == UpState::Active));
    if (active || coming_up) && ue.amf().ue_state(ue).context_set_up {
        release_at_gnb(ue, psi);
    }
    forget(ue, psi);
}

pub(crate) fn forget(ue: Ue, psi: PduSessionId) {
    ue.with(|p| {
        p.lanes.interrupt(Lane::Session(psi), Interrupt::Superseded(Procedure::PduSessionReleaseByNetwork))
    });
    n4::delete(ue, psi);
}

/// A UPF has lost its sessions (TS 23.527 §4.3.2). They are restored as soon as it is connected again, or released by [`leave_upf`]; a procedure that
/// needs one restores it itself.
///
/// Those for which it is an intermediate UPF are set up again.
pub(crate) fn upf_restarted(ue: Ue, upf: UpfId) {
    let lost: Vec<PduSessionId> = ue.with(|p| {
        p.sessions.values_mut().filter(|s| s.upf == upf).for_each(|s| s.up_seid = None);
        p.intermediate_upfs.extract_if(.., |i| i.upf == upf).map(|i| i.psi).collect()
    });
    set_up_again(ue, lost);
}

/// A UPF goes, or has gone with its sessions: connected UEs are asked to set them up again, at another UPF (TS 29.244 §6.2.8.3, TS 23.527
/// §4.4).
pub(crate) fn leave_upf(ue: Ue, upf: UpfId) {
    let sessions = ue.with(|p| {
        let through = |psi| p.intermediate_upfs.iter().any(|i| i.upf == upf && i.psi == psi);
        p.sessions.values().filter(|s| s.upf == upf || through(s.psi)).map(|s| s.psi).collect()
    });
    set_up_again(ue, sessions);
}

/// A connected UE is asked to set the sessions up again; those of an idle UE are released locally.
fn set_up_again(ue: Ue, sessions: Vec<PduSessionId>) {
    let connected = ue.amf().ue_state(ue).connected;
    for psi in sessions {
        let establishing = ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.n3.is_none()));
        if establishing {
            continue; // its own procedure finds that its request is not answered
        } else if connected {
            by_network(ue, psi, SmCause::ReactivationRequested);
        } else {
            release_locally(ue, psi);
        }
    }
}
