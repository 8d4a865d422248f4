//! Requests of an AMF that are not answered yet (TS 29.502 §5.2.2).
//!
//! A request is answered when the session's procedure awaits no other network function on its behalf: it has ended, or it waits for UE or gNB,
//! which the AMF serves. So each request is answered once, by the input that leads to its answer, whichever CPF runs that.

use whimbrel_ids::PduSessionId;

use super::client::user_plane;
use super::with_amf;
use crate::envelope::Effect;
use crate::procedure::{Lane, Ue};
use crate::services::remote_amf::{
    N2SmKind, SmContextAnswer, SmContextError, SmContextExchange, SmContextUpdated, UserPlaneState,
};
use crate::state::{AmfSession, EXCHANGES_MAX, ExchangeKind, OpenExchange};

/// Notes a request. Returns `false` if it is refused, since too many about this session wait.
pub(super) fn open(ue: Ue, psi: PduSessionId, id: SmContextExchange, kind: ExchangeKind) -> bool {
    let exchange = OpenExchange { id, kind, updated: SmContextUpdated::default(), answer: None };
    let noted = with_amf(ue, |amf| {
        let Some(session) = amf.sessions.get_mut(&psi) else { return false };
        let room = session.exchanges.len() < EXCHANGES_MAX;
        if room {
            session.exchanges.push(exchange);
        }
        room
    });
    if noted != Some(true) {
        refuse(ue, id, SmContextError::Congestion, None, None);
    }
    noted == Some(true)
}

/// The request that wants an answer of this kind, the newest first.
fn with_open<R>(
    ue: Ue,
    psi: PduSessionId,
    kinds: &[ExchangeKind],
    f: impl FnOnce(&mut OpenExchange) -> R,
) -> Option<R> {
    with_amf(ue, |amf| {
        let exchanges = &mut amf.sessions.get_mut(&psi)?.exchanges;
        exchanges.iter_mut().rev().find(|e| kinds.contains(&e.kind) && e.answer.is_none()).map(f)
    })
    .flatten()
}

/// Puts messages for UE and gNB into the answer to the UE's message, if that is still open.
pub(super) fn add_messages(
    ue: Ue,
    psi: PduSessionId,
    n1: Option<&[u8]>,
    n2: Option<&(N2SmKind, Vec<u8>)>,
) -> bool {
    with_open(ue, psi, &[ExchangeKind::N1], |exchange| {
        let free = exchange.updated.n1.is_none() && exchange.updated.n2.is_none();
        if free {
            exchange.updated.n1 = n1.map(<[u8]>::to_vec);
            exchange.updated.n2 = n2.cloned();
        }
        free
    }) == Some(true)
}

/// Puts the setup request for the gNB into the answer to the AMF's request for it.
pub(super) fn add_setup(ue: Ue, psi: PduSessionId, n2: &(N2SmKind, Vec<u8>)) -> bool {
    with_open(ue, psi, &[ExchangeKind::Activate], |exchange| {
        exchange.updated.n2 = Some(n2.clone());
        exchange.updated.user_plane = Some(UserPlaneState::Activating);
    })
    .is_some()
}

/// The session is refused before its AMF knows that it exists.
pub(super) fn refuse_creation(ue: Ue, psi: PduSessionId, error: SmContextError, n1: Vec<u8>) -> bool {
    with_open(ue, psi, &[ExchangeKind::Create], |exchange| {
        exchange.answer = Some(SmContextAnswer::Refused { error, n1: Some(n1), n2: None });
    })
    .is_some()
}

/// The answer of a procedure that gives one itself.
pub(super) fn decide(ue: Ue, psi: PduSessionId, id: SmContextExchange, answer: SmContextAnswer) {
    with_amf(ue, |amf| {
        let exchanges = amf.sessions.get_mut(&psi).map(|s| &mut s.exchanges);
        if let Some(exchange) = exchanges.into_iter().flatten().find(|e| e.id == id) {
            exchange.answer = Some(answer);
        }
    });
}

/// Answers a request that no procedure works on.
pub(super) fn answer_update(ue: Ue, id: SmContextExchange, updated: SmContextUpdated) {
    emit(ue, id, SmContextAnswer::Updated(updated.into()));
}

/// Refuses a request.
pub(super) fn refuse(
    ue: Ue,
    id: SmContextExchange,
    error: SmContextError,
    n1: Option<Vec<u8>>,
    n2: Option<(N2SmKind, Vec<u8>)>,
) {
    emit(ue, id, SmContextAnswer::Refused { error, n1, n2 });
}

fn emit(ue: Ue, id: SmContextExchange, answer: SmContextAnswer) {
    ue.emit(Effect::SmContextAnswered(id, answer.into()), None);
}

/// After each input: answers what waits for nothing more.
pub(super) fn close(ue: Ue) {
    let waiting: Vec<PduSessionId> = with_amf(ue, |amf| {
        amf.sessions.iter().filter(|(_, s)| !s.exchanges.is_empty()).map(|(psi, _)| *psi).collect()
    })
    .unwrap_or_default();
    for psi in waiting {
        let exchanges = with_amf(ue, |amf| {
            amf.sessions.get_mut(&psi).map(|s| std::mem::take(&mut s.exchanges)).unwrap_or_default()
        });
        for exchange in exchanges.unwrap_or_default() {
            match answer(ue, psi, &exchange) {
                Some(answer) => {
                    if let SmContextAnswer::Created { .. } = answer {
                        with_session(ue, psi, |session| session.created = true);
                    }
                    emit(ue, exchange.id, answer);
                }
                None => with_session(ue, psi, |session| session.exchanges.push(exchange)),
            }
        }
    }
    // Sessions that have ended, or were refused.
    ue.with(|p| {
        let (lanes, sessions) = (&p.lanes, &p.sessions);
        if let Some(amf) = &mut p.remote_amf {
            amf.sessions.retain(|psi, session| {
                let is_there = sessions.contains_key(psi) || lanes.procedure(Lane::Session(*psi)).is_some();
                is_there || !session.exchanges.is_empty()
            });
        }
    });
}

fn with_session(ue: Ue, psi: PduSessionId, f: impl FnOnce(&mut AmfSession)) {
    with_amf(ue, |amf| amf.sessions.get_mut(&psi).map(f));
}

/// The answer to a request as things stand; `None`: it waits.
fn answer(ue: Ue, psi: PduSessionId, exchange: &OpenExchange) -> Option<SmContextAnswer> {
    if let Some(answer) = &exchange.answer {
        return Some(answer.clone());
    }
    let lane = Lane::Session(psi);
    let (running, waits) = ue.with(|p| (p.lanes.procedure(lane).is_some(), p.lanes.awaits_answer(lane)));
    let session = ue.with(|p| p.sessions.get(&psi).map(|s| (s.cp_seid, s.s_nssai)));
    let mut updated = exchange.updated.clone();
    match exchange.kind {
        ExchangeKind::Create => match session {
            Some((reference, s_nssai)) => return Some(SmContextAnswer::Created { reference, psi, s_nssai }),
            None if running => return None,
            // The UE's message is ignored (TS 24.501 §7.2.1, §7.3.2).
            None => {
                let error = SmContextError::N1SmError;
                return Some(SmContextAnswer::Refused { error, n1: None, n2: None });
            }
        },
        ExchangeKind::Procedure if running => return None,
        ExchangeKind::Procedure => {
            let error = SmContextError::HigherPriorityRequestOngoing;
            return Some(SmContextAnswer::Refused { error, n1: None, n2: None });
        }
        ExchangeKind::N1 if updated.n1.is_some() || updated.n2.is_some() => {}
        ExchangeKind::Activate if updated.n2.is_some() => {}
        _ if waits => return None,
        ExchangeKind::Activate => {
            let error = SmContextError::UpfNotResponding;
            return Some(SmContextAnswer::Refused { error, n1: None, n2: None });
        }
        ExchangeKind::Deactivate => updated.user_plane = user_plane(ue, psi),
        ExchangeKind::N2 => updated.user_plane = user_plane(ue, psi),
        ExchangeKind::N1 => {}
    }
    Some(SmContextAnswer::Updated(updated.into()))
}
