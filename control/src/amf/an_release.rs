//! AN release: TS 23.502 §4.2.6, TS 38.413 §8.3.2, §8.3.3.

use whimbrel_ngap::Message;
use whimbrel_ngap::ie::Cause;

use super::connection::lost;
use super::n2::send_release_command;
use super::{end, nas_dispatch, reach, session_resources, target};
use crate::event::Event;
use crate::input::Input;
use crate::procedure::{Interrupt, Lane, Procedure, Ue};

/// Starts the AN release, whether the gNB requested it or not.
pub(crate) fn start(ue: Ue, cause: Cause) {
    let ue = ue.on(Lane::Mobility);
    ue.start(Lane::Mobility, Procedure::AnRelease, async move {
        let began = ue.now();
        drop(target::abandon(ue)); // the release ends any handover
        send_release_command(ue, cause); // step 2
        session_resources::deactivate_all(ue, ue.smf().sessions_with_user_plane(ue)); // steps 5 to 7, on each session's lane
        let complete =
            |i: &Input| matches!(i, Input::Ngap(m) if matches!(**m, Message::UeContextReleaseComplete(_)));
        // Step 4. If the gNB does not answer, the UE is CM-IDLE all the same.
        let answer = ue.receive(complete, ue.config().timers.guard).await;
        if let Err(Interrupt::Superseded(_) | Interrupt::ConnectionLost) = answer {
            return; // the UE came back on a new connection before this one was gone
        }
        let subject = ue.with(|p| p.subject());
        let took = ue.now().since(began);
        ue.event(Event::Completed { procedure: Procedure::AnRelease, subject, took });
        lost(ue);
    });
}

/// UE CONTEXT RELEASE REQUEST (TS 23.502 §4.2.6 step 1b). Procedures that run over the connection do not delay it.
pub(crate) fn requested(ue: Ue, cause: Cause) {
    if ue.with(|p| p.lanes.procedure(Lane::Mobility)) == Some(Procedure::AnRelease) {
        return nas_dispatch::duplicate(ue);
    }
    if ue.with(|p| p.awaits_release()) {
        return end::dismiss(ue);
    }
    if target::source_leaves(ue, &cause) {
        return; // the UE is in handover: the target gNB serves it
    }
    start(ue, cause);
}

/// Starts the timers of an idle UE: it registers within the periodic registration timer, or is deregistered (TS 24.501
/// §5.3.7, TS 23.501 §5.4.1.1). Not for a UE that is not registered.
pub(crate) fn begin_reachability(ue: Ue) {
    let timers = ue.config().timers;
    let now = ue.now();
    let has_sessions = !ue.smf().session_ids(ue).is_empty();
    let registered = ue.with(|p| {
        // An emergency registration ends with the connection (TS 24.501 §5.3.7).
        if p.amf.emergency && !has_sessions {
            p.amf.registered = false;
        }
        if p.amf.registered {
            p.amf.implicit_deregistration_at = Some(reach::implicitly_deregistered_at(p, &timers, now));
            reach::becomes_idle(p, now);
            if let Some(security) = &mut p.amf.security.current {
                security.release_schedules();
            }
        }
        p.amf.registered
    });
    if !registered {
        end::dismiss(ue);
    }
}
