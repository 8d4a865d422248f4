//! A UPF does not have the core's sessions, because one of the two has started again: they are established there again, with the tunnels and addresses
//! that UEs have (TS 23.527 §4.3).

use std::time::Duration;

use whimbrel_ids::{PduSessionId, Seid};

use super::n4::Downlink;
use super::up_connection::is_active;
use super::{n4, release};
use crate::event::Event;
use crate::procedure::{Interrupt, Lane, Procedure, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::state::SmContext;
use crate::upf::UpfId;

/// How often a UPF that does not answer is asked. After that the session is restored when its UE needs it.
const ATTEMPTS: u32 = 3;
/// Time before the second attempt; twice as much before the third.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether the UPF of a session does not have it, although it stood before.
pub(super) fn is_lost(s: &SmContext) -> bool {
    s.up_seid.is_none() && s.n3.is_some()
}

/// A UPF has restored a session for a procedure that the setup of the session's user plane has replaced, which goes on with it. Returns whether it does.
pub(super) fn take_late(ue: Ue, upf: UpfId, cp_seid: Option<Seid>, up_seid: Seid) -> bool {
    ue.with(|p| {
        let mut lost = p.sessions.values().filter(|s| s.upf == upf && is_lost(s));
        let Some(psi) = lost.find(|s| Some(s.cp_seid) == cp_seid).map(|s| s.psi) else { return false };
        let comes_up = p.lanes.procedure(Lane::Session(psi)) == Some(Procedure::UpConnectionActivation);
        let Some(s) = p.sessions.get_mut(&psi).filter(|_| comes_up) else { return false };
        (s.up_seid, s.usage.counted) = (Some(up_seid), None);
        s.charging.iter_mut().for_each(|c| c.counted = None);
        true
    })
}

/// A UPF is connected again: it gets this UE's sessions. A procedure of a session that runs already restores the session itself when it needs it.
pub(crate) fn restore_sessions(ue: Ue, upf: UpfId) {
    let lost: Vec<PduSessionId> = ue.with(|p| {
        let lost = p.sessions.values().filter(|s| s.upf == upf && is_lost(s)).map(|s| s.psi);
        lost.filter(|psi| p.lanes.procedure(Lane::Session(*psi)).is_none()).collect()
    });
    lost.into_iter().for_each(|psi| start(ue.on(Lane::Session(psi)), psi));
}

fn start(ue: Ue, psi: PduSessionId) {
    ue.start(Lane::Session(psi), Procedure::SessionRestoration, async move {
        let began = ue.now();
        let restored = match restoration(ue, psi).await {
            Ok(()) => downlink(ue, psi).await,
            Err(end) => Err(end),
        };
        match restored {
            Ok(()) => {
                let subject = ue.with(|p| p.subject());
                let took = ue.now().since(began);
                ue.event(Event::Completed { procedure: Procedure::SessionRestoration, subject, took });
            }
            Err(ProcedureEnd::Interrupted(Interrupt::ConnectionLost)) => start(ue, psi),
            // The procedure that replaces this one restores the session if it needs it.
            Err(ProcedureEnd::Interrupted(_)) => {}
            Err(ProcedureEnd::Refused(refusal)) => {
                let ends = !matches!(refusal, Refusal::Upf(None));
                let subject = ue.with(|p| p.subject());
                let procedure = Procedure::SessionRestoration;
                ue.event(Event::Refused { procedure, subject, ran_ue_ngap_id: None, refusal });
                if ends {
                    release::withdraw(ue, psi, whimbrel_nas::ie::SmCause::ReactivationRequested);
                }
            }
        }
    });
}

/// The packets of a UE that is connected go to its gNB again.
async fn downlink(ue: Ue, psi: PduSessionId) -> Result<(), ProcedureEnd> {
    let tunnel = ue.with(|p| p.sessions.get(&psi).filter(|s| is_active(s))?.an.as_deref().copied());
    match tunnel {
        Some(tunnel) => n4::modify(ue, psi, Downlink::To(tunnel)).await,
        None => Ok(()),
    }
}

async fn restoration(ue: Ue, psi: PduSessionId) -> Result<(), ProcedureEnd> {
    for attempt in 1..ATTEMPTS {
        match n4::restore(ue, psi).await {
            Err(ProcedureEnd::Refused(Refusal::Upf(None))) => {}
            done => return done,
        }
        match ue.receive(|_| false, PAUSE * attempt).await {
            Ok(_) | Err(Interrupt::TimedOut) => {}
            Err(other) => return Err(other.into()),
        }
    }
    n4::restore(ue, psi).await
}
