//! Messages of another vendor's SMF for a UE and its gNB (N1N2MessageTransfer, TS 29.518 §5.2.2.3.1), and UEs that are paged for them
//! (TS 23.502 §4.2.3.3).

use whimbrel_ids::PduSessionId;

use super::{change, exchange, with_session};
use crate::amf::context_setup::{modify_session_resources, release_session_resources_as};
use crate::amf::nas_transport::N1Sm;
use crate::amf::{n2, paging};
use crate::envelope::Effect;
use crate::procedure::{Ue, out_of_state};
use crate::services::sm_contexts::{
    N2SmKind, SmContextChange, SmfMessage, SmfOperation, SmfOrder, SmfRequest, UserPlaneChange,
};
use crate::state::{DownlinkProtection, SessionWork, UpState};

/// An order of the SMF for a session.
pub(crate) fn ordered(ue: Ue, psi: PduSessionId, order: SmfOrder) {
    if !ue.with(|p| p.remote_sessions.get(psi).is_some()) {
        return ue.update_batch(|b| b.no_effect = true);
    }
    match order {
        SmfOrder::Transfer(message) => pass_on(ue, psi, message),
        SmfOrder::Released => exchange::ended(ue, psi),
    }
}

/// Passes messages on to UE and gNB; an idle UE is paged first.
pub(super) fn pass_on(ue: Ue, psi: PduSessionId, message: SmfMessage) {
    if message.n1.is_none() && message.n2.is_none() {
        return;
    }
    if !ue.amf().ue_state(ue).secured {
        if !message.skip && with_session(ue, psi, |s| s.waiting = Some(message.into())).is_some() {
            paging::page_if_awaited(ue);
        }
        return;
    }
    let SmfMessage { n1, n2, .. } = message;
    let to_ue = n1.as_deref().map(N1Sm::Octets);
    match n2 {
        None => {
            if let Some(m) = to_ue.and_then(|n1| n1.transport(psi)) {
                n2::send_nas(ue, &m, DownlinkProtection::Current);
            }
            // Not every SMF notifies the end of a session that it has rejected after its answer to the creation.
            if n1.as_deref().is_some_and(is_establishment_reject) {
                super::release(ue, psi, false);
            }
        }
        Some((N2SmKind::PduResSetupReq, transfer)) => {
            with_session(ue, psi, |s| s.setup = transfer);
            exchange::add(ue, psi, SessionWork::SetUp(n1));
        }
        Some((N2SmKind::PduResModReq, transfer)) => modify_session_resources(ue, psi, transfer, to_ue),
        Some((N2SmKind::PduResRelCmd, transfer)) => {
            with_session(ue, psi, |s| {
                s.releasing = true;
                s.up = UpState::Inactive;
            });
            release_session_resources_as(ue, psi, transfer, to_ue);
        }
        Some(_) => out_of_state(ue),
    }
}

/// PDU SESSION ESTABLISHMENT REJECT (TS 24.501 §8.3.3, §9.7): the message type is the fourth octet.
fn is_establishment_reject(n1: &[u8]) -> bool {
    n1.get(3) == Some(&0xc3)
}

/// The user plane of a session is to be set up, or the UE was reached (TS 23.502 §4.2.3.2 steps 4 and 11).
pub(super) fn activate(ue: Ue, psi: PduSessionId) {
    let waiting = with_session(ue, psi, |s| s.waiting.take()).flatten();
    let is_for_user_plane =
        |message: &SmfMessage| message.n2.as_ref().is_some_and(|(kind, _)| *kind == N2SmKind::PduResSetupReq);
    if let Some(message) = waiting.filter(|message| !is_for_user_plane(message)) {
        return pass_on(ue, psi, *message);
    }
    let user_plane = Some(UserPlaneChange::Activating);
    change(ue, psi, SmContextChange { user_plane, ..SmContextChange::default() });
}

/// The UE was paged for a message in vain: its SMF gets a notification.
pub(super) fn not_reached(ue: Ue, psi: PduSessionId) {
    let Some((supi, waiting)) = with_session(ue, psi, |s| (s.supi, s.waiting.take())) else { return };
    if let Some(uri) = waiting.and_then(|message| message.failure_uri) {
        let operation = SmfOperation::ReportFailure { uri };
        ue.emit(Effect::SmContext(SmfRequest { supi, psi, operation }.into()), None);
    }
}
