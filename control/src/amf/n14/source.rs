//! The AMF that a UE leaves: TS 23.502 §4.9.1.3, TS 29.518 §5.2.2.2.3, TS 33.501 §6.9.2.3.3.
//!
//! Until the target reports that the UE has arrived, this AMF serves it: a failure before that only ends the handover.

use std::rc::Rc;
use std::time::Duration;

use whimbrel_ids::{Instant, Tai};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{Cause, CauseMisc, CauseRadioNetwork, CauseTransport, UeNgapIdPair};
use whimbrel_ngap::msg::{
    HandoverCancel, HandoverCancelAcknowledge, HandoverFailure, HandoverRequestAcknowledge, HandoverRequired,
};

use super::{removal, send_n14};
use crate::amf::as_security::{offer_chain, settle_chain};
use crate::amf::connection::lost;
use crate::amf::handover::{self, FORWARDING, FailedHandover};
use crate::amf::mobility_restrictions::permitted;
use crate::amf::n2::{ids, release_command, send, send_nas, send_release_command};
use crate::amf::{paging, predicted_handover, target, udm_client};
use crate::envelope::AssociationId;
use crate::event::{Event, MessageDropReason};
use crate::flat::{self, Checkpoint};
use crate::input::Input;
use crate::n14::{
    HandedOverSession, Keys, N14Body, PeerAmfId, PreparedResources, Relation, TransferCompletion,
    UeContextCreateData,
};
use crate::procedure::{Interrupt, Lane, Procedure, Ue, out_of_state};
use crate::refusal::Refusal;
use crate::services::namf::HANDOVER_EXECUTION;
use crate::state::{
    ContextTransfer, DownlinkProtection, HandoverSessions, OutboundTransfer, Phase, UeContext,
};

/// The AMFs of a handover's target: all of the set that serves its tracking area. The first is asked, and the next one if that cannot be reached or does not have the gNB.
/// UEs begin at different ones.
pub(crate) struct TargetAmfs {
    first: PeerAmfId,
    others: Vec<PeerAmfId>,
}

impl TargetAmfs {
    /// `None`: no other AMF serves the tracking area.
    pub(crate) fn of(ue: Ue, tai: Tai) -> Option<Self> {
        let mut all: Vec<PeerAmfId> = ue.config().amf.peer_amfs_of(tai).collect();
        let begin = (ue.with(|p| p.id.slot) as usize).checked_rem(all.len())?;
        all.rotate_left(begin);
        let first = all.remove(0);
        Some(Self { first, others: all })
    }
}

/// HANDOVER REQUIRED names a gNB of another AMF (TS 23.502 §4.9.1.3.2 steps 1 and 2).
pub(crate) fn start(ue: Ue, m: Box<HandoverRequired>, targets: TargetAmfs) {
    if let Err((cause, refusal)) = check(ue, &m) {
        handover::preparation_failure(ue, cause.into(), None);
        return handover::refused(ue, refusal);
    }
    let is_target = |amf: PeerAmfId| targets.first == amf || targets.others.contains(&amf);
    let commanded = |d: &OutboundTransfer| d.phase == Phase::Executing && is_target(d.to);
    if ue.with(|p| p.amf.outbound().is_some_and(commanded)) {
        let subject = ue.with(|p| p.subject());
        return ue.event(Event::Dropped { subject, why: MessageDropReason::Duplicate }); // it has its HANDOVER COMMAND
    }
    let ue = ue.on(Lane::Handover);
    ue.start(Lane::Handover, Procedure::Handover, async move {
        let began = ue.now();
        match depart(ue, m.into(), targets).await {
            Ok(()) => left(ue, began).await,
            Err(FailedHandover::Refused { cause, refusal, container, target_knows }) => {
                failed(ue, cause, refusal, container, target_knows);
            }
            // Another handover has superseded it. In all other cases the target has been released already.
            Err(FailedHandover::Interrupted(Interrupt::Superseded(_))) => {
                if let Some(d) = abandon(ue) {
                    over(ue, &d);
                }
            }
            Err(FailedHandover::Interrupted(_)) => {}
        }
    });
}

fn check(ue: Ue, m: &HandoverRequired) -> Result<(), (CauseRadioNetwork, Refusal)> {
    let tai = handover::to_gnb(m)?;
    permitted(ue, tai).map_err(|refusal| (CauseRadioNetwork::HoTargetNotAllowed, refusal))?;
    if ue.with(|p| p.amf.emergency) {
        let what = Refusal::Protocol("HANDOVER REQUIRED to another AMF for a UE that is not authenticated");
        return Err((CauseRadioNetwork::HoTargetNotAllowed, what));
    }
    handover::ready(ue)
}

async fn depart(ue: Ue, m: Rc<HandoverRequired>, targets: TargetAmfs) -> Result<(), FailedHandover> {
    target::release_source(ue); // of an earlier handover
    let relation = Relation { source: ue.with(|p| p.id), token: ue.random() };
    ue.with(|p| {
        p.amf.mobility.context_transfer =
            Some(ContextTransfer::Outbound(OutboundTransfer::idle(targets.first, relation)).into())
    });
    target::await_setups(ue, &handover::named(&m)).await?;
    alone(ue, Lane::Handover).await?;
    let mut others = targets.others.into_iter();
    let (asked, before, answer, created) = loop {
        let (asked, before) = create(ue, &m)?; // §4.9.1.3.2 step 3: CREATE UE CONTEXT
        let failed = match created(ue).await {
            Ok((answer, created)) => break (asked, before, answer, created), // steps 9 to 12
            Err(failed) => failed,
        };
        let Some(to) = others.next().filter(|_| is_worth_another_amf(&failed)) else { return Err(failed) };
        let token = ue.random();
        ue.with(|p| {
            p.amf.outbound_mut().into_iter().for_each(|d| (d.to, d.relation.token) = (to, token));
        });
    };
    let (admitted, refused) = handover::admit(ue, &asked, &answer)?;
    let admitted = ue.smf().start_forwarding(ue, admitted, handover::direct(&m), false).await?;
    if ue.with(|p| !p.lanes.no_other_lane_runs(Lane::Handover) || standing(p) != before) {
        return Err(busy()); // the UE's state has changed since it was sent to the target
    }
    handover::command(ue, &m, &asked, &answer, &admitted, &refused); // §4.9.1.3.3 step 1
    phase(ue, Phase::Executing);
    arrived(ue).await?; // step 6
    leaves(ue);
    let given = ue.smf().hand_over_sessions(ue, &created.sessions, created.smf, Some(&admitted)).await?; // steps 7 to 10
    settle(ue, given);
    Ok(())
}

/// Only an idle UE context can be transferred: waits until the UE's other lanes are free.
pub(super) async fn alone(ue: Ue, lane: Lane) -> Result<(), FailedHandover> {
    predicted_handover::withdraw(ue);
    let until = ue.now() + ue.config().timers.guard;
    while !ue.with(|p| p.lanes.no_other_lane_runs(lane)) {
        match ue.receive(|i| matches!(i, Input::SessionSettled), until.since(ue.now())).await {
            Ok(_) => {}
            Err(Interrupt::TimedOut) => {
                let cause = CauseRadioNetwork::InteractionWithOtherProcedure.into();
                return Err(FailedHandover::early(cause, BUSY));
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}

const BUSY: Refusal =
    Refusal::Protocol("HANDOVER REQUIRED to another AMF for a UE that is at something else");

fn busy() -> FailedHandover {
    FailedHandover::new(CauseRadioNetwork::InteractionWithOtherProcedure, BUSY)
}

/// The part of a UE's state that may not change while its context is being transferred: no COUNT of its keys may be used twice.
fn standing(p: &UeContext) -> u32 {
    let sessions: Vec<_> = p
        .sessions
        .values()
        .map(|s| {
            let mut s = s.clone();
            (s.usage.octets, s.usage.secondary, s.forwarding, s.departing) = ((0, 0), None, None, false);
            s
        })
        .collect();
    let downlink_next = p.amf.security.current.as_ref().map(|s| s.counts().downlink_next);
    flat::digest(&(sessions, downlink_next, p.amf.tmsi, p.amf.security.ng_ksi, &p.amf.slices.allowed))
}

/// The UE's state, with the keys for its next gNB.
fn create(ue: Ue, m: &HandoverRequired) -> Result<(HandoverSessions, u32), FailedHandover> {
    let named = handover::named(m);
    let (sessions, refused): (Vec<_>, Vec<_>) =
        named.into_iter().partition(|&psi| ue.smf().prepare_handover(ue, psi).is_some());
    let unknown = || Cause::from(CauseRadioNetwork::UnknownPduSessionId);
    if sessions.is_empty() {
        let refusal = Refusal::Protocol("HANDOVER REQUIRED names no session that can be handed over");
        return Err(FailedHandover::early(unknown(), refusal));
    }
    let upfs = ue.smf().session_upfs(ue);
    let ready = ue.with(|p| {
        let fresh = offer_chain(&mut p.amf)?;
        let mut rests = p.clone();
        settle_chain(&mut rests.amf);
        rests.lanes = Default::default();
        rests.intermediate_upfs = Vec::new(); // sessions with one are not given
        let state = Checkpoint::of(&rests)?.into_flat();
        let d = p.amf.outbound()?;
        Some((state, upfs, Keys::of(&fresh), d.to, d.relation, standing(p)))
    });
    let Some((state, upfs, keys, to, relation, standing)) = ready else {
        return Err(FailedHandover::early(CauseRadioNetwork::InteractionWithOtherProcedure.into(), BUSY));
    };
    let mut required = Vec::new();
    Message::from(m.clone()).encode(&mut required);
    send_n14(
        ue,
        to,
        relation,
        N14Body::CreateUeContext(UeContextCreateData { state, required, keys, upfs }.into()),
    );
    phase(ue, Phase::Preparing);
    let refused = refused.into_iter().map(|psi| (psi, unknown())).collect();
    Ok((HandoverSessions { sessions, refused }, standing))
}

async fn created(
    ue: Ue,
) -> Result<(Box<HandoverRequestAcknowledge>, Box<PreparedResources>), FailedHandover> {
    let answers = |i: &Input| matches!(i, Input::PeerAmf(b) if matches!(**b, N14Body::UeContextCreated(_) | N14Body::UeContextNotCreated(_)));
    // The target reads the subscription before it asks its gNB.
    let timers = ue.config().timers;
    match ue.receive(answers, timers.guard + timers.gnb_answer).await {
        Ok(Input::PeerAmf(body)) => match *body {
            N14Body::UeContextCreated(created) => match Message::decode(&created.acknowledge) {
                Ok(Message::HandoverRequestAcknowledge(m)) => Ok((m.into(), created)),
                _ => Err(silent("the other AMF's answer holds no HANDOVER REQUEST ACKNOWLEDGE")),
            },
            N14Body::UeContextNotCreated(failure) => Err(not_created(&failure)),
            _ => Err(silent("no answer of the other AMF")),
        },
        Ok(_) | Err(Interrupt::TimedOut) => Err(silent("no answer of the other AMF")),
        Err(why) => Err(why.into()),
    }
}

/// The AMF is not reached, has no association with the gNB, or has no room.
fn is_worth_another_amf(failed: &FailedHandover) -> bool {
    let FailedHandover::Refused { cause, .. } = failed else { return false };
    [
        CauseTransport::TransportResourceUnavailable.into(),
        CauseRadioNetwork::UnknownTargetId.into(),
        CauseMisc::ControlProcessingOverload.into(),
    ]
    .contains(cause)
}

fn silent(what: &'static str) -> FailedHandover {
    FailedHandover::new(
        CauseRadioNetwork::HoFailureInTarget5GcNgranNodeOrTargetSystem,
        Refusal::RadioFailure(what),
    )
}

/// The target refuses the UE, with its cause or its gNB's (TS 38.413 §8.4.2.3).
fn not_created(failure: &[u8]) -> FailedHandover {
    let refusal = Refusal::RadioFailure("the other AMF does not take the UE");
    match Message::decode(failure) {
        Ok(Message::HandoverFailure(m)) => {
            let HandoverFailure { cause, target_to_source_failure_transparent_container: container, .. } = m;
            FailedHandover::Refused { cause, refusal, container, target_knows: true }
        }
        _ => {
            let cause = CauseRadioNetwork::HoFailureInTarget5GcNgranNodeOrTargetSystem;
            FailedHandover::Refused { cause: cause.into(), refusal, container: None, target_knows: true }
        }
    }
}

/// §4.9.1.3.3 step 6: awaits the target's report that the UE has arrived.
async fn arrived(ue: Ue) -> Result<(), FailedHandover> {
    let answers = |i: &Input| matches!(i, Input::PeerAmf(b) if matches!(**b, N14Body::HandoverComplete | N14Body::UeContextNotCreated(_)));
    match ue.receive(answers, HANDOVER_EXECUTION).await {
        Ok(Input::PeerAmf(body)) => match *body {
            N14Body::HandoverComplete => Ok(()),
            N14Body::UeContextNotCreated(failure) => Err(not_created(&failure)),
            _ => Err(handover::ue_did_not_arrive()),
        },
        Ok(_) | Err(Interrupt::TimedOut) => Err(handover::ue_did_not_arrive()),
        Err(why) => Err(why.into()),
    }
}

/// The UE has arrived at the target. Until its sessions are given, nothing else is begun with it here.
pub(super) fn leaves(ue: Ue) {
    ue.with(|p| p.amf.outbound_mut().into_iter().for_each(|d| d.is_leaving = true));
}

/// The target serves the UE from now on: answers HANDOVER COMPLETE and discards held messages.
pub(super) fn settle(ue: Ue, given: Vec<HandedOverSession>) {
    let peer = ue.with(|p| {
        p.amf.registered = false;
        let d = p.amf.outbound_mut()?;
        d.given = Some(given.clone());
        d.held.clear();
        Some((d.to, d.relation))
    });
    if let Some((to, relation)) = peer {
        send_n14(ue, to, relation, N14Body::Completed(TransferCompletion::HandedOver(given)));
        udm_client::deregister(ue); // in this AMF's own directory: the other AMF has registered the UE
    }
}

/// §4.9.1.3.3 step 14: the source gNB is released once forwarded packets have passed. Sessions that were not handed over end with
/// the UE's context.
async fn left(ue: Ue, began: Instant) {
    let subject = ue.with(|p| p.subject());
    ue.event(Event::Completed { procedure: Procedure::Handover, subject, took: ue.now().since(began) });
    repeat_answer(ue, FORWARDING.max(REPEAT_ANSWER)).await;
    send_release_command(ue, CauseRadioNetwork::SuccessfulHandover);
}

/// Repeats the answer to the target as often as it asks.
pub(super) async fn repeat_answer(ue: Ue, patience: Duration) {
    let until = ue.now() + patience;
    while ue.now() < until {
        let again = |i: &Input| matches!(i, Input::PeerAmf(b) if matches!(**b, N14Body::HandoverComplete | N14Body::Registered { .. }));
        let Ok(_) = ue.receive(again, until.since(ue.now())).await else { break };
        let answer = ue.with(|p| {
            let d = p.amf.outbound()?;
            Some((d.to, d.relation, d.given.clone()?))
        });
        if let Some((to, relation, given)) = answer {
            send_n14(ue, to, relation, N14Body::Completed(TransferCompletion::HandedOver(given)));
        }
    }
}

/// How long a repeated request of the target is answered.
pub(super) const REPEAT_ANSWER: Duration = Duration::from_secs(3);

/// The handover failed: the source serves the UE, if it is not lost.
fn failed(ue: Ue, cause: Cause, refusal: Refusal, container: Option<Vec<u8>>, target_knows: bool) {
    let Some(d) = ue.with(|p| p.amf.abort_outbound()) else { return };
    if !target_knows && d.phase != Phase::Waiting {
        send_n14(ue, d.to, d.relation, N14Body::ReleaseUeContext);
    }
    if d.phase != Phase::Executing {
        handover::preparation_failure(ue, cause, container);
    }
    ue.smf().stop_forwarding(ue);
    handover::refused(ue, refusal);
    back(ue, &d);
}

/// HANDOVER CANCEL of an inter-AMF handover (TS 23.502 §4.9.1.4). Returns whether there was one.
pub(crate) fn cancel(ue: Ue, m: &HandoverCancel) -> bool {
    if !ue.with(|p| p.amf.outbound().is_some_and(|d| d.given.is_none())) {
        return false;
    }
    send(ue, &HandoverCancelAcknowledge::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id).into(), None);
    if let Some(d) = abandon(ue) {
        back(ue, &d);
    }
    true
}

/// The handover ends: the UE's connection ends, the UE is found elsewhere, or its source cancels it. The target AMF is informed.
pub(crate) fn abandon(ue: Ue) -> Option<OutboundTransfer> {
    let d = ue.with(|p| {
        if p.amf.outbound().is_none_or(|d| d.given.is_some()) {
            return None;
        }
        let d = p.amf.abort_outbound()?;
        p.lanes.interrupt(Lane::Handover, Interrupt::ConnectionLost);
        Some(d)
    })?;
    if d.phase != Phase::Waiting {
        send_n14(ue, d.to, d.relation, N14Body::ReleaseUeContext);
    }
    ue.smf().stop_forwarding(ue);
    Some(d)
}

fn back(ue: Ue, d: &OutboundTransfer) {
    if d.source_lost { lost(ue) } else { over(ue, d) }
}

/// The UE stays: messages held for it are sent, and waiting procedures continue.
pub(super) fn over(ue: Ue, d: &OutboundTransfer) {
    for (message, security) in &d.held {
        if *security != DownlinkProtection::Proposed || ue.with(|p| p.amf.security.proposed.is_some()) {
            send_nas(ue, message, *security);
        }
    }
    target::go_on(ue);
    removal::handle_held(ue, &d.held_uplink);
    paging::page_if_awaited(ue);
}

/// The source gNB releases the UE, or is lost: the UE may still arrive at the target. Returns whether a transfer is in
/// progress.
pub(crate) fn source_leaves(ue: Ue, cause: Option<&Cause>) -> bool {
    let was_lost = ue.with(|p| {
        let d = p.amf.outbound_mut().filter(|d| d.phase == Phase::Executing && d.given.is_none())?;
        Some(std::mem::replace(&mut d.source_lost, true))
    });
    if let (Some(false), Some(cause), Some((amf, ran))) = (was_lost, cause, ids(ue)) {
        send(ue, &release_command(UeNgapIdPair::new(amf, ran), cause.clone()).into(), None);
    }
    was_lost.is_some()
}

/// The same for the loss of an association.
pub(crate) fn source_lost(ue: Ue, association: AssociationId) -> bool {
    let serving = ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| c.association == association));
    serving && source_leaves(ue, None)
}

/// §4.9.1.3.3 steps 2a and 2b, by way of the target AMF. Returns whether such a handover is in execution.
pub(crate) fn ran_status(ue: Ue, message: &Message) -> bool {
    let to = ue.with(|p| {
        let d = p.amf.outbound().filter(|d| d.phase == Phase::Executing)?;
        Some((d.to, d.relation))
    });
    if let Some((to, relation)) = to {
        let mut octets = Vec::new();
        message.encode(&mut octets);
        send_n14(ue, to, relation, N14Body::RanStatus(octets));
    }
    to.is_some()
}

/// Handles a message of the target AMF.
pub(crate) fn handle(ue: Ue, from: PeerAmfId, relation: Relation, body: N14Body) {
    let ours = ue.with(|p| p.amf.outbound().is_some_and(|d| d.is(from, relation)));
    if !ours {
        // Of a handover that was cancelled.
        return match body {
            N14Body::HandoverComplete | N14Body::Registered { .. } => {
                send_n14(ue, from, relation, N14Body::Completed(TransferCompletion::Cancelled))
            }
            N14Body::UeContextCreated(_) => send_n14(ue, from, relation, N14Body::ReleaseUeContext),
            _ => out_of_state(ue),
        };
    }
    super::deliver(ue, body);
}

fn phase(ue: Ue, phase: Phase) {
    ue.with(|p| p.amf.outbound_mut().into_iter().for_each(|d| d.phase = phase));
}
