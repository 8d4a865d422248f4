//! Outcomes of the operator's orders for PDU sessions: TS 23.502 §4.3.3.2 step 1d, §4.3.4.2 step 1e, §4.3.7.
//!
//! A change of a session ends at once, with the answers of UE and gNB, or when an idle UE connects. An event reports the
//! outcome.

use whimbrel_ids::PduSessionId;

use crate::event::{Event, SessionOutcome};
use crate::procedure::{Procedure, Ue};
use crate::state::Modification;

/// Reports the end of a procedure that may carry out operator orders. A procedure of the UE does not.
pub(super) fn ended(ue: Ue, psi: PduSessionId, procedure: Procedure, outcome: SessionOutcome) {
    if !matches!(procedure, Procedure::PduSessionModificationByUe | Procedure::PduSessionReleaseByUe) {
        let subject = ue.with(|p| p.subject());
        ue.event(Event::SessionOperation { subject, psi, procedure, order: None, outcome });
    }
}

/// Reports the outcome of an order that needs no procedure.
pub(super) fn answered(ue: Ue, psi: PduSessionId, order: Modification, outcome: SessionOutcome) {
    let subject = ue.with(|p| p.subject());
    let procedure = match order {
        Modification::Release => Procedure::PduSessionReleaseByNetwork,
        Modification::Deactivate => Procedure::UpConnectionDeactivation,
        Modification::AddFlow(_)
        | Modification::RemoveFlow(_)
        | Modification::Ambr(_)
        | Modification::Gate(..)
        | Modification::Reanchor => Procedure::PduSessionModificationByNetwork,
    };
    ue.event(Event::SessionOperation { subject, psi, procedure, order: Some(order), outcome });
}

/// The UE cannot be reached: its pending changes are made when it connects.
pub(crate) fn deferred(ue: Ue, why: &'static str) {
    let waiting: Vec<PduSessionId> =
        ue.with(|p| p.sessions.values().filter(|s| s.qos.pending_change.is_some()).map(|s| s.psi).collect());
    for psi in waiting {
        ended(ue, psi, Procedure::PduSessionModificationByNetwork, SessionOutcome::Deferred(why));
    }
}
