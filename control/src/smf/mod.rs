//! The session management function (TS 23.501 §6.2.2): one file a procedure, one lane a session.
//!
//! The AMF calls it as TS 29.502 names it (`create_sm_context`, `update_sm_context`), and it calls the AMF as TS 29.518
//! does (`n1_n2_message_transfer`). In one process both are function calls within the UE's machine.

pub(crate) mod area;
mod context;
mod establishment;
pub(crate) mod handover;
mod marking;
pub(crate) mod modification;
mod modify_indication;
pub(crate) mod n4;
mod notify;
mod operation;
mod path_switch;
mod pco;
pub(crate) mod pending_setup;
pub(crate) mod policy_change;
mod qos;
pub(crate) mod reanchoring;
pub(crate) mod release;
mod relocation;
mod requested_qos;
mod rule_change;
mod rules;
mod secondary_rat;
mod selection;
mod status;
#[cfg(test)]
mod tests;
mod up_connection;
mod usage;
pub(crate) mod wanted;

use whimbrel_ids::{PduSessionId, SNssai};
use whimbrel_nas::ie::{PduSessionType, SmCause};
use whimbrel_nas::sm;
use whimbrel_ngap::ie::PduSessionResourceItem;

use crate::amf;
use crate::collision;
use crate::event::Event;
use crate::input::Input;
use crate::procedure::{Lane, Procedure, Ue};
use crate::refusal::Refusal;
use crate::state::{Ambr, Security, SetupUse, UeContext};
use status::{pti_is_taken, status};

pub use crate::state::{Counted, FlowRule, Marks, Modification, QosFlow, SmContext, Tunnel, UpState, Wanted};
pub use n4::{
    Downlink, deletion, deletion_of_orphan, departure, gives_away, modification, no_forwarding,
    no_such_session,
};

pub(crate) use area::{barred, where_awaited};
pub(crate) use establishment::{SmContextCreateData, create_sm_context};
pub(crate) use handover::{
    Admitted, admitted, ask_paths, handover_required, is_forwarding, no_departure, paths_switched,
    ready_for_departure, release_at_gnb, stop_forwarding, why_not_admitted,
};
pub(crate) use modification::is_wanted;
pub(crate) use modify_indication::{Moved, move_tunnels};
pub(crate) use notify::notified;
pub(crate) use operation::deferred;
pub(crate) use path_switch::{Switched, is_being_released, not_switched, switch_paths};
pub(crate) use pending_setup::{context_answered, gnb_left, is_setup_pending, release_sent, setup_requested};
pub(crate) use policy_change::subscription_changed;
pub(crate) use release::{forget_all, forget_inactive, release_all, release_locally, withdraw};
pub(crate) use relocation::{await_paths, came, claim, disown, give_away, take, upfs};
pub(crate) use secondary_rat::secondary_rat_usage;
pub(crate) use up_connection::{
    asked_for, awaited, awaited_priority, can_be_activated, deactivate_all, give_up_waiting, is_active,
    is_coming_up, reactivate, with_user_plane,
};

/// What a gNB did with a session (TS 38.413 §8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum N2Outcome {
    /// Its resources are set up; the transfer names the tunnel.
    SetUp,
    /// They are not; the transfer says why.
    SetupFailed,
    /// They are changed, but for the flows that the transfer names.
    Modified,
    /// They are as they were; the transfer says why.
    ModifyFailed,
    /// They are gone, as was commanded.
    Released,
    /// They are gone, and nobody had commanded it (PDU SESSION RESOURCE NOTIFY).
    Lost,
    /// The UE was handed over to another gNB before this one had answered.
    GnbLeft,
}

/// Nsmf_PDUSession_UpdateSMContext with an N1 message of a session (TS 23.502 §4.3.3, §4.3.4).
pub(crate) fn update_sm_context(ue: Ue, psi: PduSessionId, n1: &[u8]) {
    let message = match sm::Message::decode(n1) {
        Ok(m) => m,
        Err(e) => return status::unreadable(ue, psi, &e),
    };
    if status::is_of_nobody(&message) || !ue.with(|p| p.sessions.contains_key(&psi)) {
        return amf::out_of_state(ue);
    }
    // §7.3.2 b: the message names another session than its envelope.
    if message.pdu_session_id != Some(psi) {
        return status(ue, psi, message.pti, SmCause::InvalidPduSessionIdentity);
    }
    match message.body {
        // §7.3.1: what a UE begins has a transaction identity of its own.
        sm::Body::ReleaseRequest(_) | sm::Body::ModificationRequest(_) if !message.pti.is_assigned() => {
            status(ue, psi, message.pti, SmCause::InvalidPtiValue);
        }
        // §7.3.1 c, d: another session's procedure bears the identity.
        sm::Body::ReleaseRequest(_) if pti_is_taken(ue, psi, message.pti) => {
            let reject = sm::ReleaseReject::new(SmCause::PtiAlreadyInUse);
            send(ue, psi, sm::Message::new(psi, message.pti, reject));
        }
        sm::Body::ModificationRequest(_) if pti_is_taken(ue, psi, message.pti) => {
            let reject = sm::ModificationReject::new(SmCause::PtiAlreadyInUse);
            send(ue, psi, sm::Message::new(psi, message.pti, reject));
        }
        sm::Body::ReleaseRequest(_) => match collision::release_meets(running(ue, psi)) {
            collision::Verdict::Ignore => amf::out_of_state(ue),
            _ => release::by_ue(ue, psi, message.pti),
        },
        sm::Body::ModificationRequest(m) => match collision::modification_meets(running(ue, psi)) {
            collision::Verdict::Ignore => amf::out_of_state(ue),
            _ => modification::by_ue(ue, psi, message.pti, Box::new(m)),
        },
        sm::Body::SmStatus(m) => status::told(ue, psi, m.cause),
        // §7.3.1 reserved: a completion of a transaction that nobody has.
        sm::Body::ReleaseComplete(_)
        | sm::Body::ModificationComplete(_)
        | sm::Body::ModificationCommandReject(_)
            if ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.pti != message.pti)) =>
        {
            status(ue, psi, message.pti, SmCause::PtiMismatch);
        }
        _ => {
            let pti = message.pti;
            let stray =
                ue.with(|p| p.lanes.deliver(Lane::Session(psi), Input::Sm(Box::new(message)))).is_err();
            if stray {
                amf::out_of_state(ue);
                status(ue, psi, pti, SmCause::MessageTypeNotCompatible);
            }
        }
    }
}

/// What the session is at; a modification that is about to begin counts.
fn running(ue: Ue, psi: PduSessionId) -> Option<Procedure> {
    ue.with(|p| {
        let wanted = p.sessions.get(&psi).is_some_and(|s| s.wanted.is_some());
        let about_to = wanted.then_some(Procedure::PduSessionModificationByNetwork);
        p.lanes.procedure(Lane::Session(psi)).or(about_to)
    })
}

/// A procedure of a session was refused: the operator learns why.
fn refused(ue: Ue, procedure: Procedure, refusal: Refusal) {
    let subject = ue.with(|p| p.subject());
    let ran_ue_ngap_id = amf::ids(ue).map(|(_, ran)| ran);
    ue.event(Event::Refused { procedure, subject, ran_ue_ngap_id, refusal });
}

/// A 5GSM message to the UE, through the AMF.
fn send(ue: Ue, psi: PduSessionId, message: sm::Message) {
    if let Some(n1) = amf::n1_sm(psi, &message) {
        amf::send_nas(ue, &n1, Security::Current);
    }
}

/// Nsmf_PDUSession_UpdateSMContext with N2 SM information: each session gets its part of a gNB's answer.
pub(crate) fn n2_items(ue: Ue, items: Vec<PduSessionResourceItem>, outcome: N2Outcome) {
    for item in items {
        let psi = item.pdu_session_id;
        let setup = match outcome {
            N2Outcome::SetUp | N2Outcome::SetupFailed => pending_setup::setup_answered(ue, psi),
            _ => None,
        };
        let ended = setup == Some(SetupUse::Unwanted) || !ue.with(|p| p.sessions.contains_key(&psi));
        if ended && setup != Some(SetupUse::ReleaseSent) && outcome == N2Outcome::SetUp {
            // The session ended while the gNB was at it.
            amf::release_session_resources(ue, psi, None);
        }
        if ended || setup == Some(SetupUse::ReleaseSent) {
            continue;
        }
        let input = Input::N2Sm(outcome, item.transfer);
        let Err(Input::N2Sm(_, transfer)) = ue.with(|p| p.lanes.deliver(Lane::Session(psi), input)) else {
            continue;
        };
        match outcome {
            // It comes late, of a gNB that the UE has left: where its packets go from here on, the next one says, unless that
            // one waits for this. Or it was told to let the UE go.
            N2Outcome::SetUp
                if ue.with(|p| amf::has_left(p) && !amf::awaits_source(p)) || amf::is_releasing(ue) => {}
            N2Outcome::SetUp => up_connection::activate(ue, psi, transfer),
            N2Outcome::Lost => up_connection::gnb_let_go(ue, psi),
            N2Outcome::SetupFailed
            | N2Outcome::Modified
            | N2Outcome::ModifyFailed
            | N2Outcome::Released
            | N2Outcome::GnbLeft => {}
        }
    }
}

/// The N2 SM information that sets a session up at a gNB (TS 38.413 §9.3.4.1).
pub(crate) fn n2_setup_info(ue: Ue, psi: PduSessionId) -> Option<(SNssai, Vec<u8>)> {
    ue.with(|p| {
        let session = p.sessions.get(&psi)?;
        Some((session.s_nssai, session.setup_request_transfer()?.to_vec()))
    })
}

/// The UE has only these sessions left: the others end here too (TS 24.501 §5.5.1.3.4, §5.6.1.4.1).
pub(crate) fn keep_only(ue: Ue, keep: impl Fn(PduSessionId) -> bool) {
    let gone: Vec<_> = ue.with(|p| p.sessions.keys().copied().filter(|&psi| !keep(psi)).collect());
    for psi in gone {
        release_locally(ue, psi);
    }
}

/// Which addresses a session has: IPv4, IPv6 (TS 23.501 §5.6.10).
fn families(session_type: PduSessionType) -> (bool, bool) {
    match session_type {
        PduSessionType::Ipv4 => (true, false),
        PduSessionType::Ipv6 => (false, true),
        PduSessionType::Ipv4v6 => (true, true),
        PduSessionType::Ethernet | PduSessionType::Unstructured => (false, false),
    }
}

/// The UE-AMBR: that of the sessions with a user plane, these among them, up to what is subscribed (TS 23.501 §5.7.2.6).
pub(crate) fn aggregate(ue: &UeContext, coming: &[PduSessionId]) -> Option<Ambr> {
    let most = ue.amf.subscription.as_ref()?.ue_ambr;
    let counts = |s: &SmContext| s.up != UpState::Inactive || coming.contains(&s.psi);
    let all = ue.sessions.values().filter(|s| counts(s)).map(|s| s.ambr);
    let sum = all.fold(Ambr { ul_kbps: 0, dl_kbps: 0 }, |sum, a| Ambr {
        ul_kbps: sum.ul_kbps.saturating_add(a.ul_kbps),
        dl_kbps: sum.dl_kbps.saturating_add(a.dl_kbps),
    });
    Some(Ambr { ul_kbps: sum.ul_kbps.min(most.ul_kbps), dl_kbps: sum.dl_kbps.min(most.dl_kbps) })
}

/// Whether some session can carry packets now.
pub(crate) fn any_active(ue: &UeContext) -> bool {
    ue.sessions.values().any(|s| s.up != UpState::Inactive)
}
