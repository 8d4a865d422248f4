//! A UE that presents another AMF's 5G-GUTI registers here: its context is fetched from there, with its keys and sessions, so that it need not be
//! identified (TS 23.502 §4.2.2.2.2 steps 4, 5, 10, TS 29.518 §5.2.2.2.1, §5.2.2.2.2, TS 33.501 §6.9.3). From another AMF of the set it may come with
//! SERVICE REQUEST too, and stays registered (TS 23.501 §5.21.2.2.2).
//!
//! The former AMF returns a context only for a request that verifies under the UE's keys, and keeps the UE until it is informed that the UE
//! is registered. If anything fails before, the UE is identified like any unknown UE.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_ids::{AmfId, Instant, PduSessionId, Tai, Tmsi};
use whimbrel_nas::ie::{MobileIdentity, RegistrationKind};
use whimbrel_nas::mm::{self, RegistrationRequest, ServiceRequest};
use whimbrel_ngap::ie::CauseRadioNetwork;
use whimbrel_security::NasSecurityContext;

use super::source::{self, alone};
use super::target::{PATIENCE, completed, record};
use super::{removal, send_n14};
use crate::amf::connection::lost;
use crate::amf::deregistration;
use crate::amf::n2::{note_released, send_release_command};
use crate::amf::{nas, registration};
use crate::envelope::UeId;
use crate::event::{DeregistrationReason, Event};
use crate::flat::Checkpoint;
use crate::input::Input;
use crate::n14::{N14Body, PeerAmfId, Relation, TransferCompletion, TransferredUe, UeProof};
use crate::procedure::{Interrupt, Lane, Procedure, ProcedureEnd, Ue, out_of_state};
use crate::services::nsmf::TakenOverSessions;
use crate::state::{
    AmfContext, ContextTransfer, InboundTransfer, IncomingSession, OutboundTransfer, SmContext, UeContext,
};

/// How long a UE may take to register elsewhere: it may be authenticated there, each message of which may be repeated four times
/// (T3560).
const REGISTRATION: Duration = Duration::from_secs(60);

// The former AMF.

/// Step 4: UEContextTransfer. It proves that the UE is in a cell of the requesting AMF if the request in it verifies.
pub(crate) fn transfer(ue: Ue, to: PeerAmfId, relation: Relation, shown: UeProof) {
    let asker = relation.source;
    let relation = Relation { source: ue.with(|p| p.id), ..relation };
    if ue.with(|p| p.amf.outbound().is_some_and(|d| d.is(to, relation))) {
        return super::deliver(ue, N14Body::TransferUeContext(shown)); // the answer was lost
    }
    // It is given to one AMF at this moment. The request is repeated.
    if ue.with(|p| p.amf.outbound().is_some_and(|d| d.given.is_none()) || p.amf.inbound().is_some()) {
        return out_of_state(ue);
    }
    let Some(before) = ue.with(|p| signed(p, &shown.nas)) else {
        return send_n14(ue, to, relation, N14Body::UeContextNotTransferred(asker));
    };
    if let Some((association, name)) =
        ue.with(|p| p.amf.connection.as_ref().map(|c| (c.association, c.amf_ue_ngap_id)))
    {
        send_release_command(ue, CauseRadioNetwork::ReleaseDueTo5gcGeneratedReason);
        note_released(ue, association, name);
        lost(ue);
    }
    let ue = ue.on(Lane::Mobility);
    ue.start(Lane::Mobility, Procedure::UeContextTransfer, async move {
        let began = ue.now();
        let departure = OutboundTransfer::idle(to, relation);
        ue.with(|p| p.amf.mobility.context_transfer = Some(ContextTransfer::Outbound(departure).into()));
        let give = || give(ue, to, relation, asker, before.clone());
        if alone(ue, Lane::Mobility).await.is_err() || !give() {
            if let Some(d) = ue.with(|p| p.amf.abort_outbound()) {
                send_n14(ue, to, relation, N14Body::UeContextNotTransferred(asker));
                source::over(ue, &d);
            }
            return;
        }
        leave(ue, began, REGISTRATION, false, give).await;
    });
}

/// The UE's state was sent: awaits that the other AMF has the UE, for `patience`. `give` sends the state again. `forwarded`: the other AMF had not asked for it.
pub(super) async fn leave(
    ue: Ue,
    began: Instant,
    patience: Duration,
    forwarded: bool,
    give: impl Fn() -> bool,
) {
    match registered(ue, patience, give).await {
        Ok(()) => {
            let (subject, took) = (ue.with(|p| p.subject()), ue.now().since(began));
            ue.event(Event::Completed { procedure: Procedure::UeContextTransfer, subject, took });
            removal::pass_on_held(ue);
            source::repeat_answer(ue, source::REPEAT_ANSWER).await;
            ue.with(|p| p.amf.connection = None); // it is the other AMF's
        }
        Err(NotLeft::RegisteredThere) => {
            ue.with(|p| (p.amf.registered, p.amf.mobility.context_transfer) = (false, None));
            deregistration::implicitly(ue, DeregistrationReason::Superseded);
        }
        Err(why) => {
            let aborted = ue.with(|p| match (why, forwarded) {
                // An AMF that refuses a context before it has the UE has sent it nothing.
                (NotLeft::Refused, true) => p.amf.abort_unused_outbound(),
                _ => p.amf.abort_outbound(),
            });
            if let Some(d) = aborted {
                if why == NotLeft::Silent {
                    send_n14(ue, d.to, d.relation, N14Body::ReleaseUeContext);
                }
                source::over(ue, &d);
            }
        }
    }
}

/// Verifies the message under the UE's keys and advances the uplink COUNT. Returns the security context as it was before.
fn signed(p: &mut UeContext, nas: &[u8]) -> Option<Box<NasSecurityContext>> {
    let free = p.amf.registered
        && !p.amf.emergency
        && p.amf.mobility.context_transfer.is_none()
        && p.amf.mobility.target.is_none();
    let security = p.amf.security.current.as_deref_mut().filter(|_| free)?;
    let before = Box::new(security.clone());
    security.unprotect(nas, &mut Vec::new()).ok()?;
    Some(before)
}

/// Step 5: sends the UE's state.
fn give(ue: Ue, to: PeerAmfId, relation: Relation, asker: UeId, before: Box<NasSecurityContext>) -> bool {
    let upfs = ue.smf().session_upfs(ue);
    let transferred = ue.with(|p| {
        let mut rests = p.clone();
        rests.lanes = Default::default();
        rests.intermediate_upfs = Vec::new(); // sessions with one are not given
        rests.amf.security.current = Some(before);
        let state = Checkpoint::of(&rests)?.into_flat();
        p.amf.outbound_mut()?.executing();
        Some(TransferredUe { asker, state, upfs })
    });
    match transferred {
        Some(transferred) => {
            send_n14(ue, to, relation, N14Body::UeContextTransferred(transferred.into()));
            true
        }
        None => false,
    }
}

/// Why a UE that was to go to another AMF is still here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NotLeft {
    /// The other AMF has reported that it does not have the UE.
    Refused,
    /// The other AMF may believe that it has the UE.
    Silent,
    /// The UE has registered there by itself.
    RegisteredThere,
}

/// Step 10: RegistrationStatusUpdate. The sessions that the peer AMF takes are its own from now on; the others end with the UE's context. A
/// repeated request is answered again.
async fn registered(ue: Ue, patience: Duration, give: impl Fn() -> bool) -> Result<(), NotLeft> {
    let until = ue.now() + patience;
    let answers = |i: &Input| matches!(i, Input::PeerAmf(b) if matches!(**b, N14Body::Registered { .. } | N14Body::NotRegistered | N14Body::RegisteredThere | N14Body::TransferUeContext(_)));
    loop {
        let Ok(Input::PeerAmf(body)) = ue.receive(answers, until.since(ue.now())).await else {
            return Err(NotLeft::Silent);
        };
        match *body {
            N14Body::Registered { smf, sessions } => {
                let stays = ue.with(|p| p.amf.outbound().is_some_and(|d| d.is_connected));
                source::leaves(ue);
                let admitted: Option<&[_]> = if stays { None } else { Some(&[]) };
                let given = ue
                    .smf()
                    .hand_over_sessions(ue, &sessions, smf, admitted)
                    .await
                    .map_err(|_| NotLeft::Silent)?;
                source::settle(ue, given);
                return Ok(());
            }
            N14Body::TransferUeContext(_) if give() => {}
            N14Body::RegisteredThere => return Err(NotLeft::RegisteredThere),
            _ => return Err(NotLeft::Refused),
        }
    }
}

// The AMF to which the UE comes.

/// The context that was transferred for a UE.
pub(crate) struct BroughtContext {
    /// The UE's request, deciphered with its keys.
    pub(crate) request: Box<mm::Message>,
    pub(crate) sessions: BroughtSessions,
}

/// The sessions that come with it.
pub(crate) struct BroughtSessions {
    pub(super) sessions: BTreeMap<PduSessionId, Box<SmContext>>,
    pub(super) coming: Vec<IncomingSession>,
}

/// Where the UE is after its transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UeHolder {
    /// The UE is one of this AMF.
    Here,
    /// The source has given the transfer up, and keeps the sessions.
    AtSource,
}

/// Steps 4 and 5, if the UE presents the 5G-GUTI of a peer AMF. `None`: the UE has to be identified. `sealed`: the
/// request as received.
pub(crate) async fn fetch(
    ue: Ue,
    request: &RegistrationRequest,
    sealed: Option<Box<[u8]>>,
) -> Result<Option<BroughtContext>, ProcedureEnd> {
    match (sealed, &request.mobile_identity) {
        (Some(nas), MobileIdentity::Guti(guti)) if guti.guami.plmn == ue.config().amf.plmn => {
            Box::pin(fetch_from_any(ue, (guti.guami.amf_id, guti.tmsi), &nas)).await
        }
        _ => Ok(None),
    }
}

/// The same for a UE that requests service: it is registered at another AMF of the set.
pub(crate) async fn fetch_in_set(
    ue: Ue,
    request: &ServiceRequest,
    sealed: &[u8],
) -> Result<Option<BroughtContext>, ProcedureEnd> {
    match is_of_set(ue, request) {
        Some(guti) => Box::pin(fetch_from_any(ue, guti, sealed)).await,
        None => Ok(None),
    }
}

/// The 5G-GUTI in a SERVICE REQUEST, if it is of this AMF's set and there are other AMFs in that.
pub(crate) fn is_of_set(ue: Ue, request: &ServiceRequest) -> Option<(AmfId, Tmsi)> {
    let MobileIdentity::STmsi(s_tmsi) = &request.s_tmsi else { return None };
    let config = ue.config();
    let amf_id = AmfId::new(config.amf.amf_id.region, s_tmsi.set, s_tmsi.pointer)?;
    let shared = config.amf.is_of_set(amf_id) && config.amf.others_of_set().next().is_some();
    shared.then_some((amf_id, s_tmsi.tmsi))
}

/// Asks the AMF that gave the UE its 5G-GUTI, then the others of that AMF's set: one of them may have taken the UE over (TS 23.501 §5.21.2.2). Only then may the
/// replica of a lost AMF answer: it does not show that the UE has gone on elsewhere.
async fn fetch_from_any(
    ue: Ue,
    guti: (AmfId, Tmsi),
    nas: &[u8],
) -> Result<Option<BroughtContext>, ProcedureEnd> {
    let config = ue.config();
    let owner = config.amf.peer_amf(guti.0);
    let of_set: Vec<PeerAmfId> =
        config.amf.peers_of_set(guti.0).filter(|peer| Some(*peer) != owner).collect();
    let living = owner.into_iter().chain(of_set).map(|to| (to, false));
    for (to, by_replica) in living.chain(owner.map(|to| (to, true))) {
        let shown = UeProof { amf_id: guti.0, tmsi: guti.1, nas: nas.to_vec(), by_replica };
        if let Some(brought) = fetch_from(ue, to, shown).await? {
            return Ok(Some(brought));
        }
    }
    Ok(None)
}

async fn fetch_from(ue: Ue, to: PeerAmfId, shown: UeProof) -> Result<Option<BroughtContext>, ProcedureEnd> {
    let relation = Relation { source: ue.with(|p| p.id), token: ue.random() };
    ue.with(|p| {
        p.amf.mobility.context_transfer =
            Some(ContextTransfer::Inbound(InboundTransfer::asked(to, relation)).into())
    });
    let brought = match transferred(ue, to, relation, &shown).await {
        Ok(Input::PeerAmf(body)) => match *body {
            N14Body::UeContextTransferred(transferred) => take(ue, to, &transferred, &shown.nas),
            _ => None,
        },
        Ok(_) | Err(Interrupt::TimedOut) => None,
        Err(why) => {
            not_here(ue);
            return Err(why.into());
        }
    };
    if brought.is_none() {
        not_here(ue);
    }
    Ok(brought)
}

/// The request is repeated until the former AMF answers: a request or an answer may be lost with a CTA.
async fn transferred(ue: Ue, to: PeerAmfId, relation: Relation, shown: &UeProof) -> Result<Input, Interrupt> {
    let answers = |i: &Input| matches!(i, Input::PeerAmf(b) if matches!(**b, N14Body::UeContextTransferred(_) | N14Body::UeContextNotTransferred(_)));
    let until = ue.now() + ue.config().timers.guard;
    loop {
        send_n14(ue, to, relation, N14Body::TransferUeContext(shown.clone()));
        match ue.receive(answers, PATIENCE.min(until.since(ue.now()))).await {
            Err(Interrupt::TimedOut) if ue.now() < until => {}
            answer => return answer,
        }
    }
}

/// Takes the received context over if its keys verify the request.
fn take(ue: Ue, from: PeerAmfId, transferred: &TransferredUe, nas: &[u8]) -> Option<BroughtContext> {
    let config = ue.config();
    let UeContext { amf, sessions, grant, veil, .. } =
        *Checkpoint::from_octets(transferred.state.octets()).ok()?.context().ok()?;
    let complete = is_complete(&amf);
    let tai = ue.with(|p| p.amf.location.tai).filter(|_| complete)?;
    let registers = !nas::requests_service(nas);
    let taken = if registers {
        let allowed = amf.slices.allowed.iter().copied().filter(|s| config.amf.slices.contains(s)).collect();
        record(amf, allowed, tai)
    } else {
        still_registered(ue, from, amf, tai)?
    };
    let former = ue.with(|p| {
        let own = std::mem::take(&mut p.amf);
        let mut taken = taken;
        taken.connection.clone_from(&own.connection);
        taken.location.seen.clone_from(&own.location.seen);
        taken.initial_nas_digest = own.initial_nas_digest;
        taken.mobility.context_transfer.clone_from(&own.mobility.context_transfer);
        p.amf = taken;
        own
    });
    let request = match nas::receive(ue, nas) {
        Ok(nas::Received {
            message: message @ mm::Message::RegistrationRequest(_), protected: true, ..
        }) if registers => message,
        Ok(nas::Received { message: message @ mm::Message::ServiceRequest(_), protected: true, .. })
            if !registers =>
        {
            message
        }
        _ => {
            ue.with(|p| p.amf = former);
            return None;
        }
    };
    // An initial registration begins without sessions (TS 24.501 §5.5.1.2.4).
    let initial = matches!(&request, mm::Message::RegistrationRequest(m) if m.registration_type.kind == RegistrationKind::Initial);
    let sessions = if initial { BTreeMap::new() } else { sessions };
    let TakenOverSessions { sessions, coming, .. } =
        ue.smf().take_over_sessions(ue, sessions, &transferred.upfs);
    ue.with(|p| (p.grant, p.veil) = (grant, veil));
    Some(BroughtContext { request: request.into(), sessions: BroughtSessions { sessions, coming } })
}

/// True for a context with all that one of a registered UE has.
pub(super) fn is_complete(amf: &AmfContext) -> bool {
    amf.supi.is_some()
        && amf.registered
        && !amf.emergency
        && amf.security.current.is_some()
        && amf.security.k_amf.is_some()
        && amf.ue_security_capability.is_some()
}

/// The context of a UE that stays registered while another AMF of its set takes it over from the one that `from` is: it keeps its 5G-GUTI until it gets
/// another one, its registration area and what was negotiated. `None`: it may use no slice here, or was allowed to roam where this AMF does not serve.
pub(super) fn still_registered(ue: Ue, from: PeerAmfId, amf: AmfContext, tai: Tai) -> Option<AmfContext> {
    let config = ue.config();
    let source = config.amf.peer_amfs.get(usize::from(from.0))?.amf_id;
    let area = amf.location.registration_area.clone();
    let allowed: Vec<_> =
        amf.slices.allowed.iter().copied().filter(|s| config.amf.slices.contains(s)).collect();
    let served = !allowed.is_empty() && area.iter().all(|tai| config.amf.serves(*tai));
    if !served {
        return None;
    }
    let gutis: Vec<_> = amf.gutis(source).collect();
    let mut newest = gutis.into_iter().rev();
    let peer_gutis = Some(Box::new([newest.next(), newest.next()]));
    let reach = amf.reach.clone();
    let deregistration_requested = amf.deregistration_requested;
    let mut taken = record(amf, allowed, tai);
    taken.location.registration_area = area;
    Some(AmfContext { registered: true, peer_gutis, reach, deregistration_requested, ..taken })
}

/// A UE that stays registered, of another AMF of the set, is taken over with its sessions. The UDM learns of this AMF when it has the UE: if the source keeps it, its
/// registration stays as it is.
pub(crate) async fn take_over(ue: Ue, brought: BroughtSessions) -> Result<UeHolder, ProcedureEnd> {
    if let Err(why) = registration::subscribed(ue).await {
        not_here(ue);
        return Err(why);
    }
    let holder = here(ue, brought).await?;
    if holder == UeHolder::AtSource {
        ue.with(|p| p.amf.subscription = None); // of a registration that is not this AMF's
    }
    // The subscription was read a moment ago. A UDM that cannot register the UE now is asked at the UE's next registration.
    if holder == UeHolder::Here
        && let Err(ProcedureEnd::Interrupted(why)) = registration::subscribe(ue, None).await
    {
        return Err(why.into());
    }
    Ok(holder)
}

/// Step 10: the UE and its sessions are taken over.
pub(crate) async fn here(ue: Ue, brought: BroughtSessions) -> Result<UeHolder, ProcedureEnd> {
    let BroughtSessions { sessions, coming } = brought;
    let Some((from, relation, forwarded)) = ue.with(|p| {
        let Some(ContextTransfer::Inbound(a)) = p.amf.mobility.context_transfer.as_deref_mut() else {
            return None;
        };
        a.coming.clone_from(&coming);
        p.sessions = sessions;
        let forwarded = a.is_forwarded();
        a.status_to().map(|(from, relation)| (from, relation, forwarded))
    }) else {
        return Ok(UeHolder::Here);
    };
    if ue.with(|p| p.amf.connection.as_ref().is_none_or(|c| !c.context_set_up)) {
        ue.smf().await_sessions(ue, &[]); // the UPF buffers its packets
    }
    let smf = ue.config().smf.node_id;
    let taken: Vec<(PduSessionId, _)> = coming.iter().map(|c| (c.psi, c.cp_seid)).collect();
    let status = || N14Body::Registered { smf, sessions: taken.clone() };
    send_n14(ue, from, relation, status());
    let answer = completed(ue, (from, relation), status).await;
    let settled = settle_sessions(ue, &coming, forwarded, answer).await;
    // Only now another AMF may get the UE.
    ue.with(|p| p.amf.mobility.context_transfer = None);
    settled
}

async fn settle_sessions(
    ue: Ue,
    coming: &[IncomingSession],
    forwarded: bool,
    answer: Result<Option<TransferCompletion>, Interrupt>,
) -> Result<UeHolder, ProcedureEnd> {
    let answer = answer.inspect_err(|_| {
        // The registration goes on without these sessions. If they are this AMF's by now, the UPF deletes them.
        ue.with(|p| p.sessions.clear());
        ue.smf().disown_sessions(ue, coming);
    })?;
    match answer {
        Some(TransferCompletion::HandedOver(given)) => ue.smf().sessions_handed_over(ue, coming, &given),
        Some(TransferCompletion::Cancelled) => {
            ue.with(|p| p.sessions.clear());
            return Ok(UeHolder::AtSource);
        }
        // A source that keeps a UE which it has forwarded says nothing; the UPF knows whose the sessions are.
        None if forwarded => {
            ue.with(|p| p.sessions.clear());
            ue.smf().disown_sessions(ue, coming);
            return Ok(UeHolder::AtSource);
        }
        Some(TransferCompletion::Gone) | None => ue.smf().claim_sessions(ue, coming, &[]).await?,
    }
    Ok(UeHolder::Here)
}

/// The UE is not registered here with the transferred context.
pub(crate) fn not_here(ue: Ue) {
    let from = ue.with(|p| {
        let to = p.amf.inbound()?.status_to();
        p.amf
            .mobility
            .context_transfer
            .take_if(|b| matches!(**b, ContextTransfer::Inbound(ref a) if !a.is_handover()));
        to
    });
    if let Some((from, relation)) = from {
        send_n14(ue, from, relation, N14Body::NotRegistered);
    }
}

/// The former AMF's answer, recognised by the random number of the request.
pub(crate) fn answered(ue: Ue, from: PeerAmfId, relation: Relation, body: N14Body) {
    let ours = ue.with(|p| match p.amf.mobility.context_transfer.as_deref_mut() {
        Some(ContextTransfer::Inbound(a)) => a.answered(from, relation),
        _ => false,
    });
    if ours {
        return super::deliver(ue, body);
    }
    if matches!(body, N14Body::UeContextTransferred(_)) {
        send_n14(ue, from, relation, N14Body::NotRegistered); // too late
    }
    out_of_state(ue);
}
