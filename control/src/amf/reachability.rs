//! The operator is notified when the UE becomes reachable: TS 23.502 §4.2.5.2 (UE reachability notification request), TS 23.502 §4.2.5.3
//! (UE activity notification).
//!
//! A connected UE is reachable at once, an idle one after its next contact. There is one
//! notification per request.

use crate::event::Event;
use crate::procedure::{Lane, Ue};
use crate::state::UeContext;

/// A reachability notification is requested.
pub(crate) fn notify(ue: Ue) {
    ue.with(|p| p.amf.reachability_requested = p.amf.registered);
    report_if_requested(ue);
}

/// After each input: emits the notification once the UE is connected and its procedure has ended.
pub(crate) fn report_if_requested(ue: Ue) {
    let due = ue.with(|p| p.amf.reachability_requested && is_there(p));
    if due {
        ue.with(|p| p.amf.reachability_requested = false);
        let subject = ue.with(|p| p.subject());
        ue.event(Event::Reachable { subject });
    }
}

fn is_there(p: &UeContext) -> bool {
    let proved = p.amf.connection.as_ref().is_some_and(|c| c.secured && !c.releasing);
    proved && p.amf.registered && p.lanes.procedure(Lane::Mobility).is_none()
}
