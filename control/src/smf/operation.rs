//! Outcomes of what the operator orders of PDU sessions: TS 23.502 §4.3.3.2 step 1d, §4.3.4.2 step 1e, §4.3.7.
//!
//! A change of a session ends in its own time: at once, with the answers of UE and gNB, or when an idle UE comes. Each end is
//! an event, by which whoever ordered the change learns it.

use whimbrel_ids::PduSessionId;

use crate::event::{Event, SessionOutcome};
use crate::procedure::{Procedure, Ue};
use crate::state::Modification;

/// A procedure has ended that may carry out orders of the operator. A procedure that the UE began does not.
pub(super) fn ended(ue: Ue, psi: PduSessionId, procedure: Procedure, outcome: SessionOutcome) {
    if !matches!(procedure, Procedure::PduSessionModificationByUe | Procedure::PduSessionReleaseByUe) {
        let subject = ue.with(|p| p.subject());
        ue.event(Event::SessionOperation { subject, psi, procedure, order: None, outcome });
    }
}

/// An order of the operator is answered without a procedure.
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

/// The UE cannot be reached for the changes of its sessions: they are made when it connects.
pub(crate) fn deferred(ue: Ue, why: &'static str) {
    let waiting: Vec<PduSessionId> =
        ue.with(|p| p.sessions.values().filter(|s| s.pending_change.is_some()).map(|s| s.psi).collect());
    for psi in waiting {
        ended(ue, psi, Procedure::PduSessionModificationByNetwork, SessionOutcome::Deferred(why));
    }
}
