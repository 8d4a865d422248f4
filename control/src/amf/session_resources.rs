//! Forwards gNBs' answers and reports of PDU session resources to the SM contexts (TS 38.413 §8.2; TS 23.502 §4.3.2.2.1 step 14), and ends
//! sessions with the UE's registration or connection.

use whimbrel_ids::PduSessionId;
use whimbrel_ngap::ie::PduSessionResourceItem;

use super::context_setup::release_session_resources;
use super::n2::is_releasing;
use super::pending_setup::setup_answered;
use super::target::{awaits_source, has_left};
use crate::procedure::Ue;
use crate::services::nsmf::{N2Outcome, SmContextReleaseData, SmContextUpdateData};
use crate::state::SetupUse;

/// Nsmf_PDUSession_UpdateSMContext with N2 SM information: each session gets its part of a gNB's answer.
pub(crate) fn n2_items(ue: Ue, items: Vec<PduSessionResourceItem>, outcome: N2Outcome) {
    for item in items {
        let psi = item.pdu_session_id;
        let setup = match outcome {
            N2Outcome::SetUp | N2Outcome::SetupFailed => setup_answered(ue, psi),
            _ => None,
        };
        let ended = setup == Some(SetupUse::Obsolete) || !has_session(ue, psi);
        if ended && setup != Some(SetupUse::ReleaseSent) && outcome == N2Outcome::SetUp {
            // The session ended before the gNB had answered.
            release_session_resources(ue, psi, None);
        }
        if ended || setup == Some(SetupUse::ReleaseSent) {
            continue;
        }
        // The downlink tunnel is not set to a gNB that the UE has left, or that is being released, unless a handover waits for this setup.
        let serving = !(ue.with(|p| has_left(p) && !awaits_source(p)) || is_releasing(ue));
        let data = SmContextUpdateData::N2Sm { outcome, transfer: item.transfer, serving };
        ue.smf().update_sm_context(ue, psi, data);
    }
}

/// Whether the UE has this session.
pub(crate) fn has_session(ue: Ue, psi: PduSessionId) -> bool {
    ue.smf().session_ids(ue).contains(&psi)
}

/// PDU SESSION RESOURCE NOTIFY (TS 38.413 §8.2.4).
pub(crate) fn notified(ue: Ue, items: &[PduSessionResourceItem]) {
    for item in items {
        ue.smf().update_sm_context(ue, item.pdu_session_id, SmContextUpdateData::Notify(&item.transfer));
    }
}

/// SECONDARY RAT DATA USAGE REPORT (TS 38.413 §8.15.1.2).
pub(crate) fn secondary_rat_usage(ue: Ue, items: &[PduSessionResourceItem]) {
    for item in items {
        let psi = item.pdu_session_id;
        ue.smf().update_sm_context(ue, psi, SmContextUpdateData::SecondaryRatUsage(&item.transfer));
    }
}

/// Releases the sessions that the UE's PDU session status does not list (TS 24.501 §5.5.1.3.4, §5.6.1.4.1).
pub(crate) fn keep_only(ue: Ue, keep: impl Fn(PduSessionId) -> bool) {
    for psi in ue.smf().session_ids(ue).into_iter().filter(|&psi| !keep(psi)) {
        ue.smf().release_sm_context(ue, psi, SmContextReleaseData::Local);
    }
}

/// Releases all sessions; the UE gets no message.
pub(crate) fn release_all(ue: Ue) {
    keep_only(ue, |_| false);
}

/// Releases all sessions with the connection.
pub(crate) fn forget_all(ue: Ue) {
    for psi in ue.smf().session_ids(ue) {
        ue.smf().release_sm_context(ue, psi, SmContextReleaseData::WithConnection);
    }
}

/// Releases the sessions without a user plane.
pub(crate) fn forget_inactive(ue: Ue) {
    for s in ue.smf().sm_contexts(ue).into_iter().filter(|s| !s.active) {
        ue.smf().release_sm_context(ue, s.psi, SmContextReleaseData::WithConnection);
    }
}

/// The connection has ended: the UPF buffers the packets of these sessions.
pub(crate) fn deactivate_all(ue: Ue, sessions: Vec<PduSessionId>) {
    for psi in sessions {
        ue.smf().update_sm_context(ue, psi, SmContextUpdateData::Deactivate);
    }
}
