//! A broker's user is served as long as its broker's grant lasts (CellBricks, chapter 3.4.1): until the end of its validity, and for what
//! its credit pays. Then the UE is deregistered with "re-registration required" (TS 24.501 §5.5.2.3.1): it registers again, and the broker
//! decides again. An idle UE is deregistered without a message, and learns it when it comes (TS 24.501 §5.3.7).

use super::deregistration;
use crate::event::DeregistrationReason;
use crate::procedure::{Lane, Ue};

/// After each input: ends the registration of a UE whose grant is over, once no procedure of mobility management runs.
pub(crate) fn end_if_over(ue: Ue) {
    let now = ue.now();
    let why = ue.with(|p| {
        let open = p.grant.as_ref().map(|grant| (grant.until(), grant.is_used_up()));
        let veil = p.veil.as_ref().map(|session| (session.until(), session.is_used_up()));
        let (until, used_up) = open.or(veil)?;
        if !p.amf.registered || p.lanes.procedure(Lane::Mobility).is_some() {
            return None;
        }
        match (now >= until, used_up) {
            (true, _) => Some(DeregistrationReason::GrantExpired),
            (false, true) => Some(DeregistrationReason::CreditUsedUp),
            (false, false) => None,
        }
    });
    if let Some(why) = why {
        deregistration::by_network_with(ue, None, why);
    }
}
