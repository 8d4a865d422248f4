//! The session management function (TS 23.501 §6.2.2): one file a procedure, one lane a session.
//!
//! The AMF calls it through [`crate::services::nsmf`], it calls the AMF through [`crate::services::namf`].

pub(crate) mod area;
pub(crate) mod charging;
mod context;
mod establishment;
pub(crate) mod handover;
pub(crate) mod interception;
pub(crate) mod intermediate_upf;
mod marking;
pub(crate) mod modification;
mod modify_indication;
pub(crate) mod n4;
mod notify;
mod operation;
mod path_switch;
mod pco;
pub(crate) mod pending_change;
pub(crate) mod policy_change;
mod qos;
pub(crate) mod reanchoring;
pub(crate) mod release;
mod relocation;
pub(crate) mod remote_amf;
mod requested_qos;
pub(crate) mod restoration;
mod rule_change;
mod rules;
mod secondary_rat;
mod selection;
pub(crate) mod service;
pub(crate) mod sm_policy;
mod status;
#[cfg(test)]
mod tests;
mod udm_client;
mod up_connection;
pub(crate) mod upf_drain;
mod usage;

use whimbrel_ids::{PduSessionId, SNssai};
use whimbrel_nas::ie::{PduSessionType, SmCause};
use whimbrel_nas::sm;

use crate::collision;
use crate::event::Event;
use crate::input::Input;
use crate::procedure::{Lane, Procedure, Ue, out_of_state};
use crate::refusal::Refusal;
use crate::services::namf::N2SmInformation;
use crate::services::nsmf::N2Outcome;
use crate::state::{Ambr, UeContext};
use status::{pti_is_taken, status};

pub use crate::state::{
    CountedReports, FlowRule, Marks, Modification, PendingChange, QosFlow, SessionCharging, SmContext,
    Tunnel, UpState,
};
pub use charging::add_last_usage;
pub use n4::{
    Downlink, changes_cp_f_seid, deletion, deletion_of_orphan, departure, modification, no_forwarding,
    no_such_session,
};
pub use selection::served_by_none_but;
pub use upf_drain::DrainStep;

/// A 5GSM message of the UE (TS 23.502 §4.3.3, §4.3.4).
fn n1_message(ue: Ue, psi: PduSessionId, n1: &[u8]) {
    let message = match sm::Message::decode(n1) {
        Ok(m) => m,
        Err(e) => return status::unreadable(ue, psi, &e),
    };
    if status::is_unaddressed(&message) || !ue.with(|p| p.sessions.contains_key(&psi)) {
        return out_of_state(ue);
    }
    // §7.3.2 b: the message names another session than its envelope.
    if message.pdu_session_id != Some(psi) {
        return status(ue, psi, message.pti, SmCause::InvalidPduSessionIdentity);
    }
    match message.body {
        // §7.3.1: a procedure of the UE has a transaction identity.
        sm::Body::ReleaseRequest(_) | sm::Body::ModificationRequest(_) if !message.pti.is_assigned() => {
            status(ue, psi, message.pti, SmCause::InvalidPtiValue);
        }
        // §7.3.1 c, d: another session's procedure uses the identity.
        sm::Body::ReleaseRequest(_) if pti_is_taken(ue, psi, message.pti) => {
            let reject = sm::ReleaseReject::new(SmCause::PtiAlreadyInUse);
            send(ue, psi, sm::Message::new(psi, message.pti, reject));
        }
        sm::Body::ModificationRequest(_) if pti_is_taken(ue, psi, message.pti) => {
            let reject = sm::ModificationReject::new(SmCause::PtiAlreadyInUse);
            send(ue, psi, sm::Message::new(psi, message.pti, reject));
        }
        sm::Body::ReleaseRequest(_) => match collision::release_meets(running(ue, psi)) {
            collision::CollisionVerdict::Ignore => out_of_state(ue),
            _ => release::by_ue(ue, psi, message.pti),
        },
        sm::Body::ModificationRequest(m) => match collision::modification_meets(running(ue, psi)) {
            collision::CollisionVerdict::Ignore => out_of_state(ue),
            _ => modification::by_ue(ue, psi, message.pti, Box::new(m)),
        },
        sm::Body::SmStatus(m) => status::received(ue, psi, m.cause),
        // §7.3.1 reserved: a completion of an unknown transaction.
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
                out_of_state(ue);
                status(ue, psi, pti, SmCause::MessageTypeNotCompatible);
            }
        }
    }
}

/// The running procedure of a session, or a modification that is about to start.
fn running(ue: Ue, psi: PduSessionId) -> Option<Procedure> {
    ue.with(|p| {
        let pending = p.sessions.get(&psi).is_some_and(|s| s.qos.pending_change.is_some());
        let about_to = pending.then_some(Procedure::PduSessionModificationByNetwork);
        p.lanes.procedure(Lane::Session(psi)).or(about_to)
    })
}

/// Reports a refused procedure of a session.
fn refused(ue: Ue, procedure: Procedure, refusal: Refusal) {
    let subject = ue.with(|p| p.subject());
    let ran_ue_ngap_id = ue.with(|p| p.ran_ue_ngap_id());
    ue.event(Event::Refused { procedure, subject, ran_ue_ngap_id, refusal });
}

/// A 5GSM message to the UE, through the AMF.
fn send(ue: Ue, psi: PduSessionId, message: sm::Message) {
    ue.amf().n1_n2_message_transfer(ue, psi, Some(&message), N2SmInformation::None);
}

/// Delivers the session's part of a gNB's answer to the procedure that awaits it.
fn n2_information(ue: Ue, psi: PduSessionId, outcome: N2Outcome, transfer: Vec<u8>, serving: bool) {
    let input = Input::N2Sm(outcome, transfer);
    let Err(Input::N2Sm(_, transfer)) = ue.with(|p| p.lanes.deliver(Lane::Session(psi), input)) else {
        return;
    };
    match outcome {
        N2Outcome::SetUp if serving => up_connection::activate(ue, psi, transfer),
        N2Outcome::Lost => up_connection::released_by_gnb(ue, psi),
        N2Outcome::SetUp
        | N2Outcome::SetupFailed
        | N2Outcome::Modified
        | N2Outcome::ModifyFailed
        | N2Outcome::Released
        | N2Outcome::GnbLeft => {}
    }
}

/// The gNB releases the session's resources; the UE gets no message.
fn release_at_gnb(ue: Ue, psi: PduSessionId) {
    ue.amf().n1_n2_message_transfer(ue, psi, None, N2SmInformation::Release);
}

/// The N2 SM information that sets a session up at a gNB (TS 38.413 §9.3.4.1).
pub(crate) fn n2_setup_info(ue: Ue, psi: PduSessionId) -> Option<(SNssai, Vec<u8>)> {
    ue.with(|p| {
        let session = p.sessions.get(&psi)?;
        Some((session.s_nssai, session.setup_request_transfer(p.uplink_tunnel(psi)?).to_vec()))
    })
}

/// The address families of a session: IPv4, IPv6 (TS 23.501 §5.6.10).
fn families(session_type: PduSessionType) -> (bool, bool) {
    match session_type {
        PduSessionType::Ipv4 => (true, false),
        PduSessionType::Ipv6 => (false, true),
        PduSessionType::Ipv4v6 => (true, true),
        PduSessionType::Ethernet | PduSessionType::Unstructured => (false, false),
    }
}

/// The UE-AMBR: the sum of the session AMBRs with a user plane and of these, limited by the subscription (TS 23.501
/// §5.7.2.6).
pub(crate) fn aggregate(ue: &UeContext, coming: &[PduSessionId]) -> Option<Ambr> {
    let most = ue.subscription()?.ue_ambr;
    let counts = |s: &SmContext| s.up != UpState::Inactive || coming.contains(&s.psi);
    let all = ue.sessions.values().filter(|s| counts(s)).map(|s| s.qos.ambr);
    let sum = all.fold(Ambr { ul_kbps: 0, dl_kbps: 0 }, |sum, a| Ambr {
        ul_kbps: sum.ul_kbps.saturating_add(a.ul_kbps),
        dl_kbps: sum.dl_kbps.saturating_add(a.dl_kbps),
    });
    Some(Ambr { ul_kbps: sum.ul_kbps.min(most.ul_kbps), dl_kbps: sum.dl_kbps.min(most.dl_kbps) })
}

/// Whether any session has a user plane.
pub(crate) fn any_active(ue: &UeContext) -> bool {
    ue.sessions.values().any(|s| s.up != UpState::Inactive)
}
