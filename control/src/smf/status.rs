//! Erroneous 5GSM messages: unknown transactions (TS 24.501 §6.2.1, §7.3.1) and sessions (TS 24.501 §7.3.2), missing or wrong
//! mandatory elements (TS 24.501 §7.5.1), and 5GSM STATUS of either side (TS 24.501 §6.5.2, §6.5.3).

use whimbrel_ids::PduSessionId;
use whimbrel_nas::NasError;
use whimbrel_nas::ie::SmCause;
use whimbrel_nas::sm::{
    Body, EstablishmentReject, Message, MessageType, ModificationReject, Pti, ReleaseReject, SmStatus,
};

use super::release::release_locally;
use super::send;
use crate::procedure::{Lane, Procedure, Ue, out_of_state};

/// 5GSM STATUS (§6.5.2).
pub(super) fn status(ue: Ue, psi: PduSessionId, pti: Pti, cause: SmCause) {
    send(ue, psi, Message::new(psi, pti, SmStatus::new(cause)));
}

/// 5GSM STATUS of the UE (§6.5.3): after #43 the UE does not have the session, so it is released.
pub(super) fn received(ue: Ue, psi: PduSessionId, cause: SmCause) {
    if cause == SmCause::InvalidPduSessionIdentity {
        release_locally(ue, psi);
    }
}

/// A message that cannot be read: a request is rejected, any other message answered with 5GSM STATUS (§7.5.1); one that is
/// too short, or without session identity, is ignored (§7.2.1, §7.3.2).
pub(super) fn unreadable(ue: Ue, psi: PduSessionId, e: &NasError) {
    let Some(cause) = e.sm_cause() else { return out_of_state(ue) };
    let pti = e.sm_header.map_or(Pti::UNASSIGNED, |(_, pti)| Pti(pti));
    let body: Body = match e.message_type.and_then(MessageType::from_u8) {
        Some(MessageType::EstablishmentRequest) => EstablishmentReject::new(cause).into(),
        Some(MessageType::ModificationRequest) => ModificationReject::new(cause).into(),
        Some(MessageType::ReleaseRequest) => ReleaseReject::new(cause).into(),
        _ => SmStatus::new(cause).into(),
    };
    send(ue, psi, Message::new(psi, pti, body));
}

/// Whether a message is to be ignored (§7.3.1, a reserved transaction identity; §7.3.2, no session identity).
pub(super) fn is_unaddressed(message: &Message) -> bool {
    message.pti == Pti::RESERVED || message.pdu_session_id.is_none()
}

/// Whether a procedure that the UE began for another session bears this transaction identity (§7.3.1).
pub(super) fn pti_is_taken(ue: Ue, psi: PduSessionId, pti: Pti) -> bool {
    ue.with(|p| {
        let asked = |psi| {
            matches!(
                p.lanes.procedure(Lane::Session(psi)),
                Some(Procedure::PduSessionModificationByUe | Procedure::PduSessionReleaseByUe)
            )
        };
        p.sessions.iter().any(|(&other, s)| other != psi && s.pti == pti && asked(other))
    })
}
