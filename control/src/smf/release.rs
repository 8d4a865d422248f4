//! PDU session release: TS 23.502 §4.3.4.2; NAS part TS 24.501 §6.3.3, §6.4.3.

use whimbrel_ids::PduSessionId;
use whimbrel_nas::ie::SmCause;
use whimbrel_nas::sm::{self, Pti, ReleaseCommand};

use super::{N2Outcome, n4, operation, up_connection};
use crate::amf;
use crate::event::{Event, SessionOutcome};
use crate::input::Input;
use crate::procedure::{End, Interrupt, Lane, Procedure, Repeated, Ue, attempt};
use crate::state::{UeContext, UpState};
use crate::upf::UpfId;

/// The UE asks (TS 24.501 §6.4.3).
pub(super) fn by_ue(ue: Ue, psi: PduSessionId, pti: Pti) {
    start(ue, psi, pti, SmCause::RegularDeactivation, Procedure::PduSessionReleaseByUe);
}

/// The network wants the session gone (TS 24.501 §6.3.3).
pub(super) fn by_network(ue: Ue, psi: PduSessionId, cause: SmCause) {
    start(ue, psi, Pti::UNASSIGNED, cause, Procedure::PduSessionReleaseByNetwork);
}

/// The AMF wants a session gone (TS 23.502 §4.3.4.2 step 1f): a UE that is there is told, an idle one learns it when it
/// returns.
pub(crate) fn withdraw(ue: Ue, psi: PduSessionId, cause: SmCause) {
    if ue.with(|p| p.amf.connection.is_some()) {
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
            Err(End::Refused(refusal)) => {
                Some(SessionOutcome::Refused { refusal: refusal.clone(), more: false })
            }
            Err(End::Interrupted(_)) => None, // the end of the session says it
        };
        outcome.into_iter().for_each(|outcome| operation::ended(ue, psi, procedure, outcome));
        n4::delete(ue, psi);
        if released.is_ok() {
            let subject = ue.with(|p| p.subject());
            let took = ue.now().since(began);
            ue.event(Event::Completed { procedure, subject, took });
        }
        amf::let_go_when_unused(ue);
    });
}

/// The UE and the gNB let go, also where the gNB was only asked for it. After the fifth expiry of T3592 the session is gone all the same (TS 24.501 §6.3.3.5 a).
async fn release(ue: Ue, psi: PduSessionId, pti: Pti, cause: SmCause, coming_up: bool) -> Result<(), End> {
    let command = sm::Message::new(psi, pti, ReleaseCommand::new(cause));
    amf::handover_over(ue).await?;
    let at_gnb = ue.with(|p| {
        let session = p.sessions.get_mut(&psi);
        let stands = session.is_some_and(|s| {
            s.pti = pti;
            s.up != UpState::Inactive || coming_up
        });
        stands && p.amf.connection.as_ref().is_some_and(|c| c.context_set_up)
    });
    let mut timer = Repeated::new("PDU SESSION RELEASE COMMAND", "T3592", ue.config().timers.t3592);
    if at_gnb {
        amf::release_session_resources(ue, psi, Some(&command));
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
            // It was asked for the session before, and has it now.
            Some(Input::N2Sm(N2Outcome::SetUp, _)) if !at_gnb => {
                amf::release_session_resources(ue, psi, None)
            }
            Some(_gnb_let_go) => {}
            None => super::send(ue, psi, command.clone()),
        }
    }
}

/// A session ends without a word to the UE, which knows or will learn. Its gNB is told.
pub(crate) fn release_locally(ue: Ue, psi: PduSessionId) {
    let coming_up = up_connection::is_coming_up(ue, psi);
    let at_gnb = ue.with(|p| {
        let active = p.sessions.get(&psi).is_some_and(|s| s.up == UpState::Active);
        (active || coming_up) && p.amf.connection.as_ref().is_some_and(|c| c.context_set_up)
    });
    if at_gnb {
        amf::release_session_resources(ue, psi, None);
    }
    forget(ue, psi);
}

fn forget(ue: Ue, psi: PduSessionId) {
    ue.with(|p| {
        p.lanes.interrupt(Lane::Session(psi), Interrupt::Superseded(Procedure::PduSessionReleaseByNetwork))
    });
    n4::delete(ue, psi);
}

/// All sessions end without a word to the UE.
pub(crate) fn release_all(ue: Ue) {
    super::keep_only(ue, |_| false);
}

/// All sessions end with the connection.
pub(crate) fn forget_all(ue: Ue) {
    for psi in ue.with(|p| p.sessions.keys().copied().collect::<Vec<_>>()) {
        forget(ue, psi);
    }
}

/// The sessions without a user plane end.
pub(crate) fn forget_inactive(ue: Ue) {
    let inactive = |p: &mut UeContext| {
        let idle = p.sessions.values().filter(|s| s.up != UpState::Active);
        idle.map(|s| s.psi).collect::<Vec<_>>()
    };
    ue.with(inactive).into_iter().for_each(|psi| forget(ue, psi));
}

/// A UPF has lost its sessions (TS 23.527 §4.3.2): a UE that is there is told to ask anew, the others learn it when
/// they return.
pub(crate) fn upf_restarted(ue: Ue, upf: UpfId) {
    ue.with(|p| p.sessions.values_mut().filter(|s| s.upf == upf).for_each(|s| s.up_seid = None));
    leave_upf(ue, upf);
}

/// The sessions of a UPF end, and UEs that are there ask anew, which leads them to another (TS 29.244 §6.2.8.3).
pub(crate) fn leave_upf(ue: Ue, upf: UpfId) {
    let sessions: Vec<PduSessionId> =
        ue.with(|p| p.sessions.values().filter(|s| s.upf == upf).map(|s| s.psi).collect());
    let connected = ue.with(|p| p.amf.connection.is_some());
    for psi in sessions {
        let establishing = ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.n3.is_none()));
        if establishing {
            continue; // its own procedure learns it from the request that is not answered
        } else if connected {
            by_network(ue, psi, SmCause::ReactivationRequested);
        } else {
            release_locally(ue, psi);
        }
    }
}
