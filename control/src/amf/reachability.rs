//! Who asked is told when the UE can be reached: TS 23.502 §4.2.5.2 (UE reachability notification request), TS 23.502 §4.2.5.3
//! (UE activity notification).
//!
//! The operator asks; a UE that is connected can be reached now, of another one it is told once it has shown itself. It is
//! told once.

use crate::event::Event;
use crate::procedure::{Lane, Ue};
use crate::state::UeContext;

/// Somebody wants to know when the UE can be reached.
pub(crate) fn wanted(ue: Ue) {
    ue.with(|p| p.amf.reachability_wanted = p.amf.registered);
    tell_if_wanted(ue);
}

/// After each input: the UE has proved to be there, and has done what it came with.
pub(crate) fn tell_if_wanted(ue: Ue) {
    let due = ue.with(|p| p.amf.reachability_wanted && is_there(p));
    if due {
        ue.with(|p| p.amf.reachability_wanted = false);
        let subject = ue.with(|p| p.subject());
        ue.event(Event::Reachable { subject });
    }
}

fn is_there(p: &UeContext) -> bool {
    let proved = p.amf.connection.as_ref().is_some_and(|c| c.secured && !c.releasing);
    proved && p.amf.registered && p.lanes.procedure(Lane::Mobility).is_none()
}
