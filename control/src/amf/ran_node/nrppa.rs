//! NRPPa transport without a UE: TS 38.413 §8.10.5.

use super::RanOutput;
use crate::envelope::AssociationId;
use crate::event::RanEvent;

/// There is no LMF for the Routing ID; the procedure has no answer, so the message is dropped and counted.
pub(super) fn without_lmf(association: AssociationId, out: &mut RanOutput) {
    out.events.push(RanEvent::Unserved { association, what: "NRPPa: there is no LMF" });
}
