//! Session resource setups that a gNB has not answered yet: TS 38.413 §8.2.1, §8.3.1.
//!
//! NGAP does not number its requests: an answer names the session and nothing else. The AMF therefore has at most one setup of a
//! session outstanding at a gNB, and an answer always belongs to that setup, however late it comes. A setup whose procedure has ended
//! is still awaited on a lane of its own, so that its resources are either used or released: no gNB keeps resources of a session that
//! the SMF does not have.

use whimbrel_ids::PduSessionId;

use crate::input::Input;
use crate::procedure::{Interrupt, Lane, Procedure, Ue};
use crate::services::nsmf::N2Outcome;
use crate::state::{PendingSetup, SetupUse, UeContext};

/// The gNB is asked for the resources of a session.
pub(crate) fn setup_requested(ue: Ue, psi: PduSessionId, in_context: bool) {
    ue.with(|p| {
        if let Some(c) = &mut p.amf.connection {
            c.pending_setups.retain(|s| s.psi != psi);
            c.pending_setups.push(PendingSetup { psi, in_context, use_of: SetupUse::Session });
        }
    });
}

/// Whether the gNB has yet to answer a setup of this session.
pub(crate) fn is_setup_pending(ue: Ue, psi: PduSessionId) -> bool {
    ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| c.pending_setups.iter().any(|s| s.psi == psi)))
}

/// The gNB is to release the resources of a session.
pub(crate) fn release_sent(ue: Ue, psi: PduSessionId) {
    ue.with(|p| mark(p, psi, SetupUse::ReleaseSent));
}

/// The session has ended.
pub(crate) fn session_ended(ue: Ue, psi: PduSessionId) {
    ue.with(|p| {
        if use_of(p, psi) == Some(SetupUse::Session) {
            mark(p, psi, SetupUse::Obsolete);
        }
    });
}

/// The gNB has answered a setup: what is done with the resources. `None`: no setup was outstanding.
pub(crate) fn setup_answered(ue: Ue, psi: PduSessionId) -> Option<SetupUse> {
    ue.with(|p| {
        let use_of = use_of(p, psi)?;
        p.amf.connection.as_mut()?.pending_setups.retain(|s| s.psi != psi);
        // The lane that awaits answers of ended sessions; if there is none, the input is returned.
        let _ = p.lanes.deliver(Lane::PendingSetup(psi), Input::N2Sm(N2Outcome::SetUp, Vec::new()));
        Some(use_of)
    })
}

/// The gNB has answered INITIAL CONTEXT SETUP REQUEST: a session that its answer does not name was not set up.
pub(crate) fn context_answered(ue: Ue) {
    let left_out: Vec<PduSessionId> = ue.with(|p| {
        let pending = p.amf.connection.iter().flat_map(|c| &c.pending_setups);
        pending.filter(|s| s.in_context).map(|s| s.psi).collect()
    });
    for psi in left_out {
        setup_answered(ue, psi);
    }
}

/// The UE has left the gNB that was asked: its answer is ignored, and a session that waits for it asks the next gNB.
pub(crate) fn gnb_left(ue: Ue, pending: &[PendingSetup]) {
    ue.with(|p| {
        for lane in pending.iter().flat_map(|s| [Lane::Session(s.psi), Lane::PendingSetup(s.psi)]) {
            // A lane that does not await it returns it.
            let _ = p.lanes.deliver(lane, Input::N2Sm(N2Outcome::GnbLeft, Vec::new()));
        }
    });
}

/// Awaits the answers that no procedure awaits any more, for at most the longest time that a setup may take.
pub(crate) fn await_abandoned_setups(ue: Ue) {
    let abandoned: Vec<PduSessionId> = ue.with(|p| {
        let pending = p.amf.connection.iter().flat_map(|c| &c.pending_setups);
        pending.filter(|s| !is_awaited(p, s)).map(|s| s.psi).collect()
    });
    for psi in abandoned {
        let lane = Lane::PendingSetup(psi);
        let ue = ue.on(lane);
        ue.start(lane, Procedure::PduSessionResourceSetup, async move {
            let answer = |i: &Input| matches!(i, Input::N2Sm(..));
            if let Err(Interrupt::TimedOut) = ue.receive(answer, ue.config().timers.session_setup).await {
                setup_answered(ue, psi);
            }
        });
    }
}

/// Whether some procedure awaits the answer. Registration and service request await the answer to INITIAL CONTEXT SETUP REQUEST.
fn is_awaited(ue: &UeContext, setup: &PendingSetup) -> bool {
    let in_procedure = setup.in_context && ue.lanes.procedure(Lane::Mobility).is_some();
    let answer = Input::N2Sm(N2Outcome::SetUp, Vec::new());
    in_procedure
        || ue.lanes.awaits(Lane::Session(setup.psi), &answer)
        || ue.lanes.procedure(Lane::PendingSetup(setup.psi)).is_some()
}

fn use_of(ue: &UeContext, psi: PduSessionId) -> Option<SetupUse> {
    ue.amf.connection.as_ref()?.pending_setups.iter().find(|s| s.psi == psi).map(|s| s.use_of)
}

fn mark(ue: &mut UeContext, psi: PduSessionId, use_of: SetupUse) {
    if let Some(c) = &mut ue.amf.connection {
        c.pending_setups.iter_mut().filter(|s| s.psi == psi).for_each(|s| s.use_of = use_of);
    }
}
