//! N2 handover within the AMF: TS 23.502 §4.9.1.3, TS 38.413 §8.4.1 to §8.4.3, §8.4.5 to §8.4.7, §8.4.9, §8.4.10.
//!
//! It runs on a lane of its own beside the UE's other procedures. A procedure that needs the serving gNB awaits
//! [`super::target::handover_over`].

use std::rc::Rc;
use std::time::Duration;

use whimbrel_ids::{AmfUeNgapId, PduSessionId, Tai};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    Cause, CauseMisc, CauseRadioNetwork, HandoverType, PduSessionResourceItem, TargetId,
};
use whimbrel_ngap::msg::{
    DownlinkRanEarlyStatusTransfer, DownlinkRanStatusTransfer, HandoverCommand, HandoverFailure,
    HandoverNotify, HandoverPreparationFailure, HandoverRequestAcknowledge, HandoverRequired,
    PathSwitchRequest, UplinkRanEarlyStatusTransfer, UplinkRanStatusTransfer,
};
use whimbrel_ngap::transfer::{
    HandoverPreparationUnsuccessfulTransfer, HandoverRequiredTransfer,
    HandoverResourceAllocationUnsuccessfulTransfer,
};

use super::as_security::settle_chain;
use super::context_setup::release_session_resources;
use super::handover_request::request;
use super::mobility_restrictions::permitted;
use super::n2::{emit, ids, note_released, send};
use super::target;
use super::user_location::{locate, location};
use super::{end, location_reporting, n14, path_switch, pending_setup, predicted_handover};
use crate::collision::{self, CollisionVerdict};
use crate::envelope::{AssociationId, HandoverTarget};
use crate::event::{Event, MessageDropReason, Sign};
use crate::input::Input;
use crate::procedure::{Interrupt, Lane, Procedure, Ue, out_of_state};
use crate::refusal::Refusal;
use crate::services::namf::HANDOVER_EXECUTION;
use crate::services::nsmf::AdmittedSession;
use crate::state::{
    Connection, HandoverKind, HandoverSessions, HandoverSource, Phase, PredictedHandover, Target, UeContext,
};

/// How long the source and the forwarding tunnels are kept for packets that are still under way (TS 23.502 §4.9.1.3.3
/// steps 6b, 14 and 15 leave it to the AMF). A gNB forwards what it has buffered within a fraction of it.
pub(crate) const FORWARDING: Duration = Duration::from_secs(1);

/// Why a handover failed.
pub(crate) enum FailedHandover {
    /// `cause` goes to the source gNB, `refusal` to the operator.
    Refused {
        cause: Cause,
        refusal: Refusal,
        /// The target's container for the source.
        container: Option<Vec<u8>>,
        /// The target has no resources for the UE.
        target_knows: bool,
    },
    /// Another procedure superseded it.
    Interrupted(Interrupt),
}

impl FailedHandover {
    pub(crate) fn new(cause: impl Into<Cause>, refusal: Refusal) -> Self {
        Self::Refused { cause: cause.into(), refusal, container: None, target_knows: false }
    }

    /// Before the target was asked.
    pub(crate) fn early(cause: Cause, refusal: Refusal) -> Self {
        Self::Refused { cause, refusal, container: None, target_knows: true }
    }
}

impl From<Interrupt> for FailedHandover {
    fn from(why: Interrupt) -> Self {
        Self::Interrupted(why)
    }
}

/// Step 1 of §4.9.1.3.2: HANDOVER REQUIRED. `to`: the gNB that the target identity names, if it is connected here. It supersedes an earlier
/// handover (TS 38.413 §8.4.1.4): the source has started again without a cancel, or another gNB serves the UE by now.
pub(crate) fn start(ue: Ue, m: Box<HandoverRequired>, to: Option<HandoverTarget>) {
    if let Ok(tai) = to_gnb(&m) {
        location_reporting::sign(ue, || Sign::Required(m.cause.to_string(), tai));
    }
    // No gNB of this AMF: perhaps one of a peer AMF.
    if to.is_none()
        && let Ok(tai) = to_gnb(&m)
        && let Some(targets) = n14::source::TargetAmfs::of(ue, tai)
    {
        predicted_handover::withdraw(ue);
        return n14::source::start(ue, m, targets);
    }
    let to = match check(ue, &m, to) {
        Ok(to) => to,
        Err((cause, refusal)) => {
            preparation_failure(ue, cause.into(), None);
            return refused(ue, refusal);
        }
    };
    let there = |t: &Target| t.by.phase() == Some(Phase::Executing) && t.association == to.association;
    if ue.with(|p| p.amf.mobility.target.as_deref().is_some_and(there)) {
        let subject = ue.with(|p| p.subject());
        return ue.event(Event::Dropped { subject, why: MessageDropReason::Duplicate }); // it has its HANDOVER COMMAND
    }
    let predicted = predicted_handover::take(ue, &m, &to);
    let ue = ue.on(Lane::Handover);
    ue.start(Lane::Handover, Procedure::Handover, async move {
        let began = ue.now();
        match handover(ue, m.into(), to.into(), predicted).await {
            Ok(further) => {
                end::arm_inactivity_timer(ue);
                let subject = ue.with(|p| p.subject());
                let took = ue.now().since(began);
                ue.event(Event::Completed { procedure: Procedure::Handover, subject, took });
                target::release_source_later(ue);
                if let Some(request) = further {
                    path_switch::resume_queued(ue, request);
                }
            }
            Err(FailedHandover::Refused { cause, refusal, container, target_knows }) => {
                failed(ue, cause, refusal, container, target_knows);
            }
            // Another handover has superseded it. In all other cases the target has been released already.
            Err(FailedHandover::Interrupted(Interrupt::Superseded(_))) => {
                if let Some(target) = target::abandon(ue) {
                    target::over(ue, *target);
                }
            }
            Err(FailedHandover::Interrupted(_)) => {}
        }
    });
}

/// The conditions that are checked before the target is asked (TS 38.413 §8.4.1.3, §8.4.1.4).
fn check(
    ue: Ue,
    m: &HandoverRequired,
    to: Option<HandoverTarget>,
) -> Result<HandoverTarget, (CauseRadioNetwork, Refusal)> {
    let tai = to_gnb(m)?;
    let unknown = |what| Err((CauseRadioNetwork::UnknownTargetId, Refusal::Protocol(what)));
    let Some(to) = to else { return unknown("HANDOVER REQUIRED to a gNB that is not connected here") };
    if !ue.config().amf.serves(tai) {
        return Err((CauseRadioNetwork::UnknownTargetId, Refusal::TaiNotServed(tai)));
    }
    // TS 23.501 §5.3.4.1.1: the source gNB has the mobility restriction list, but may ignore it.
    if let Err(refusal) = permitted(ue, tai) {
        return Err((CauseRadioNetwork::HoTargetNotAllowed, refusal));
    }
    if !to.tacs.contains(&tai.tac) {
        return unknown("HANDOVER REQUIRED to a tracking area that its gNB does not broadcast");
    }
    ready(ue)?;
    Ok(to)
}

/// The target tracking area of a handover within 5GS.
pub(crate) fn to_gnb(m: &HandoverRequired) -> Result<Tai, (CauseRadioNetwork, Refusal)> {
    match m.handover_type {
        HandoverType::Intra5gs => {}
        // There is no interface to an MME (TS 23.502 §4.11).
        HandoverType::FivegsToEps | HandoverType::FivegsToUtran => {
            let what = Refusal::Protocol("HANDOVER REQUIRED to another system");
            return Err((CauseRadioNetwork::N26InterfaceNotAvailable, what));
        }
        _ => {
            let what = Refusal::Protocol("HANDOVER REQUIRED of a type that no gNB asks for");
            return Err((CauseRadioNetwork::HoTargetNotAllowed, what));
        }
    }
    match &m.target_id {
        TargetId::TargetRanNodeId(node) => Ok(node.selected_tai),
        _ => {
            let what = Refusal::Protocol("HANDOVER REQUIRED to something that is no gNB");
            Err((CauseRadioNetwork::UnknownTargetId, what))
        }
    }
}

/// Whether the UE's state allows a handover (TS 38.413 §8.4.1.4).
pub(crate) fn ready(ue: Ue) -> Result<(), (CauseRadioNetwork, Refusal)> {
    let connected = ue.with(|p| {
        let there = p.amf.connection.as_ref().is_some_and(|c| c.context_set_up);
        there && p.amf.registered && p.amf.security.next_hop.is_some() && p.amf.subscription.is_some()
    });
    if !connected {
        let what = Refusal::Protocol("HANDOVER REQUIRED for a UE without context");
        return Err((CauseRadioNetwork::HoTargetNotAllowed, what));
    }
    if ue.with(|p| p.amf.inbound().is_some()) {
        let what = Refusal::Protocol(
            "HANDOVER REQUIRED for a UE whose context transfer from a peer AMF is not complete",
        );
        return Err((CauseRadioNetwork::InteractionWithOtherProcedure, what));
    }
    if collision::handover_meets(ue.with(|p| p.lanes.procedure(Lane::Mobility))) != CollisionVerdict::Proceed
    {
        let what = Refusal::Protocol("HANDOVER REQUIRED for a connection that is being released");
        return Err((CauseRadioNetwork::InteractionWithOtherProcedure, what));
    }
    Ok(())
}

/// Returns the PATH SWITCH REQUEST of the UE's next gNB, if the UE has moved on by Xn already. `predicted`: what was prepared before.
async fn handover(
    ue: Ue,
    m: Rc<HandoverRequired>,
    to: Rc<HandoverTarget>,
    predicted: Option<Box<PredictedHandover>>,
) -> Result<Option<Box<PathSwitchRequest>>, FailedHandover> {
    target::release_source(ue); // of an earlier handover
    let (expected, predicted) = (predicted.is_some(), predicted.map(|p| *p));
    let (target, prepared) = match predicted {
        Some(PredictedHandover { target, request: Some(r), .. }) => (target, Some((r.asked, r.answer))),
        _ => (Target::asked_for(&to), None),
    };
    ue.with(|p| p.amf.mobility.target = Some(target.into()));
    let (asked, answer) = match prepared {
        Some(prepared) => prepared,
        None => {
            target::await_setups(ue, &named(&m)).await?;
            let tac =
                to_gnb(&m).map_err(|(cause, refusal)| FailedHandover::early(cause.into(), refusal))?.tac;
            let unserved = ue.smf().prepare_upfs(ue, &named(&m), tac).await?; // §4.9.1.3.2 steps 5 and 6
            (request(ue, &m, &to, None, &unserved)?, None) // steps 3 to 9: the sessions and the keys for the target
        }
    };
    let answer = match answer {
        Some(answer) => answer,
        None => resources(ue).await?, // step 10
    };
    let (admitted, failed) = admit(ue, &asked, &answer)?;
    let admitted = ue.smf().start_forwarding(ue, admitted, direct(&m), expected).await?; // steps 11 and 12
    if admitted.is_empty() {
        let cause = CauseMisc::NotEnoughUserPlaneProcessingResources;
        return Err(FailedHandover::new(cause, Refusal::Upf(None)));
    }
    command(ue, &m, &asked, &answer, &admitted, &failed); // §4.9.1.3.3 steps 1 and 2
    let notify = notified(ue).await?; // steps 3 to 5
    Ok(arrive(ue, &notify, &admitted, &not_admitted(&answer, &admitted)).await?) // steps 7 to 13
}

/// The sessions that HANDOVER REQUIRED lists.
pub(crate) fn named(m: &HandoverRequired) -> Vec<PduSessionId> {
    m.pdu_session_resource_list_ho_rqd.iter().map(|i| i.pdu_session_id).collect()
}

/// Step 10: awaits the target's answer.
pub(crate) async fn resources(ue: Ue) -> Result<Box<HandoverRequestAcknowledge>, FailedHandover> {
    let answers = |i: &Input| matches!(i, Input::Ngap(m) if matches!(**m, Message::HandoverRequestAcknowledge(_) | Message::HandoverFailure(_)));
    match ue.receive(answers, ue.config().timers.gnb_answer).await {
        Ok(Input::Ngap(m)) => match *m {
            Message::HandoverRequestAcknowledge(m) => {
                ue.with(|p| {
                    if let Some(t) = &mut p.amf.mobility.target {
                        t.ran_ue_ngap_id = Some(m.ran_ue_ngap_id);
                    }
                });
                Ok(m.into())
            }
            Message::HandoverFailure(m) => Err(resources_refused(m)),
            _ => Err(silent()),
        },
        Ok(_) | Err(Interrupt::TimedOut) => Err(silent()),
        Err(why) => Err(why.into()),
    }
}

/// TS 38.413 §8.4.2.3.
fn resources_refused(m: HandoverFailure) -> FailedHandover {
    FailedHandover::Refused {
        refusal: Refusal::RefusedByGnb { message: "HANDOVER FAILURE", cause: m.cause.in_words() },
        cause: m.cause,
        container: m.target_to_source_failure_transparent_container,
        target_knows: true,
    }
}

fn silent() -> FailedHandover {
    let cause = CauseRadioNetwork::HoFailureInTarget5GcNgranNodeOrTargetSystem;
    FailedHandover::new(cause, Refusal::RadioFailure("no answer to HANDOVER REQUEST"))
}

/// The sessions that the target admits, and those that it does not admit, each with the cause for the source.
pub(crate) type TargetSessions = (Vec<AdmittedSession>, Vec<(PduSessionId, Cause)>);

/// A session that is neither admitted nor refused is refused; one that was not asked for is passed over (TS 38.413
/// §8.4.2.4).
pub(crate) fn admit(
    ue: Ue,
    asked: &HandoverSessions,
    answer: &HandoverRequestAcknowledge,
) -> Result<TargetSessions, FailedHandover> {
    let mut admitted: Vec<AdmittedSession> = Vec::new();
    let mut failed = Vec::new();
    for &psi in &asked.sessions {
        let of = |list: &[PduSessionResourceItem]| {
            list.iter().find(|i| i.pdu_session_id == psi).map(|i| i.transfer.clone())
        };
        let verdict = match of(&answer.pdu_session_resource_admitted_list) {
            Some(transfer) => ue.smf().handover_admitted(ue, psi, &transfer),
            None => {
                let list = &answer.pdu_session_resource_failed_to_setup_list_ho_ack;
                Err(of(list).and_then(|t| why_not_admitted(&t)).unwrap_or_else(no_room))
            }
        };
        match verdict {
            Ok(session) => admitted.push(session),
            Err(cause) => failed.push((psi, cause)),
        }
    }
    if admitted.is_empty() {
        let cause = failed.first().map_or_else(no_room, |(_, cause)| cause.clone());
        return Err(FailedHandover::new(
            cause,
            Refusal::RadioFailure("the target admits none of its sessions"),
        ));
    }
    Ok((admitted, failed))
}

/// Why the target does not take a session.
fn why_not_admitted(transfer: &[u8]) -> Option<Cause> {
    HandoverResourceAllocationUnsuccessfulTransfer::decode(transfer).ok().map(|t| t.cause)
}

/// The sessions that the target lists as admitted and that are not handed over: it was not asked for them, or did not
/// accept the default flow.
pub(crate) fn not_admitted(
    answer: &HandoverRequestAcknowledge,
    admitted: &[AdmittedSession],
) -> Vec<PduSessionId> {
    let list = answer.pdu_session_resource_admitted_list.iter().map(|i| i.pdu_session_id);
    list.filter(|psi| !admitted.iter().any(|a| a.psi == *psi)).collect()
}

fn no_room() -> Cause {
    CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell.into()
}

/// The sessions for which the source has a direct forwarding path to the target.
pub(crate) fn direct(m: &HandoverRequired) -> Vec<PduSessionId> {
    let all = m.direct_forwarding_path_availability.is_some();
    let of = |i: &PduSessionResourceItem| {
        let transfer = HandoverRequiredTransfer::decode(&i.transfer).ok();
        all || transfer.is_some_and(|t| t.direct_forwarding_path_availability.is_some())
    };
    m.pdu_session_resource_list_ho_rqd.iter().filter(|i| of(i)).map(|i| i.pdu_session_id).collect()
}

/// §4.9.1.3.3 step 1: HANDOVER COMMAND.
pub(crate) fn command(
    ue: Ue,
    m: &HandoverRequired,
    asked: &HandoverSessions,
    answer: &HandoverRequestAcknowledge,
    admitted: &[AdmittedSession],
    failed: &[(PduSessionId, Cause)],
) {
    let Some((amf_id, ran_id)) = ids(ue) else { return };
    let container = answer.target_to_source_transparent_container.clone();
    let mut command = HandoverCommand::new(amf_id, ran_id, m.handover_type, container);
    command.pdu_session_resource_handover_list =
        admitted.iter().map(|a| PduSessionResourceItem::new(a.psi, a.command.to_vec())).collect();
    let released = failed.iter().chain(&asked.refused).map(|(psi, cause)| {
        let transfer = HandoverPreparationUnsuccessfulTransfer::new(cause.clone()).to_vec();
        PduSessionResourceItem::new(*psi, transfer)
    });
    command.pdu_session_resource_to_release_list_ho_cmd = released.collect();
    send(ue, &command.into(), None);
    executing_now(ue);
}

/// HANDOVER COMMAND was sent, or is about to be.
pub(crate) fn executing_now(ue: Ue) {
    ue.with(|p| {
        if let Some(t) = &mut p.amf.mobility.target {
            t.by = HandoverKind::N2(Phase::Executing);
        }
    });
}

/// §4.9.1.3.3 step 5: awaits HANDOVER NOTIFY.
pub(crate) async fn notified(ue: Ue) -> Result<Box<HandoverNotify>, FailedHandover> {
    let notify = |i: &Input| matches!(i, Input::Ngap(m) if matches!(**m, Message::HandoverNotify(_)));
    match ue.receive(notify, HANDOVER_EXECUTION).await {
        Ok(Input::Ngap(m)) => match *m {
            Message::HandoverNotify(m) => Ok(m.into()),
            _ => Err(ue_did_not_arrive()),
        },
        Ok(_) | Err(Interrupt::TimedOut) => Err(ue_did_not_arrive()),
        Err(why) => Err(why.into()),
    }
}

pub(crate) fn ue_did_not_arrive() -> FailedHandover {
    let refusal = Refusal::RadioFailure("no HANDOVER NOTIFY: the UE did not come to the target");
    FailedHandover::new(CauseRadioNetwork::TngrelocoverallExpiry, refusal)
}

/// §4.9.1.3.3 steps 5 to 13: the target serves the UE, and its sessions' downlink paths are switched.
async fn arrive(
    ue: Ue,
    m: &HandoverNotify,
    admitted: &[AdmittedSession],
    not_admitted: &[PduSessionId],
) -> Result<Option<Box<PathSwitchRequest>>, Interrupt> {
    if let Some((association, amf_id)) = ue.with(released_source) {
        note_released(ue, association, amf_id);
    }
    let Some((mut target, pending)) = ue.with(|p| {
        let (target, mut source) = (p.amf.mobility.target.take()?, p.amf.connection.take()?);
        let pending = std::mem::take(&mut source.pending_setups);
        p.amf.connection = Some(Box::new(Connection {
            association: target.association,
            amf_ue_ngap_id: target.amf_ue_ngap_id,
            ran_ue_ngap_id: m.ran_ue_ngap_id,
            context_pending: false,
            context_requested: false,
            releasing: false,
            ambr_sent: None, // HANDOVER REQUEST had a UE-AMBR; it is sent again when it changes
            rrc_inactive: false,
            ..(*source).clone()
        }));
        settle_chain(&mut p.amf);
        p.amf.mobility.forwarding_source =
            (!target.source_lost).then(|| HandoverSource { connection: Some(*source), until: None }.into());
        Some((target, pending))
    }) else {
        return Ok(None);
    };
    pending_setup::gnb_left(ue, &pending);
    if let Some(l) = m.user_location_information.as_ref().filter(|l| location(l).is_some()) {
        locate(ue, l);
        location_reporting::found(ue);
    }
    location_reporting::sign(ue, || Sign::Arrived);
    let asked = ue.smf().complete_handover(ue, admitted);
    let further = target.further.take();
    match &further {
        // It has moved on.
        Some(further) => {
            let next = path_switch::target(further.association, &further.request);
            ue.with(|p| p.amf.mobility.target = Some(Box::new(Target { held: target.held, ..next })));
        }
        None => target::over(ue, *target),
    }
    for psi in not_admitted {
        release_session_resources(ue, *psi, None);
    }
    ue.smf().path_updates_answered(ue, asked).await?;
    Ok(further.map(|f| f.request))
}

/// The connection at the source if that was released before the UE arrived.
fn released_source(ue: &mut UeContext) -> Option<(AssociationId, AmfUeNgapId)> {
    let (target, source) = (ue.amf.mobility.target.as_ref()?, ue.amf.connection.as_ref()?);
    target.source_lost.then_some((source.association, source.amf_ue_ngap_id))
}

/// The handover failed: the source serves the UE, if it is not lost.
fn failed(ue: Ue, cause: Cause, refusal: Refusal, container: Option<Vec<u8>>, target_knows: bool) {
    let Some(mut target) = ue.with(|p| p.amf.mobility.target.take()) else { return };
    target::reject_queued_path_switch(ue, &mut target);
    if !target_knows {
        target::release_target(ue, &target, cause.clone());
    }
    if target.by.is_at_source() {
        preparation_failure(ue, cause, container);
    }
    ue.smf().stop_forwarding(ue);
    refused(ue, refusal);
    target::back(ue, *target);
}

/// HANDOVER PREPARATION FAILURE (TS 38.413 §8.4.1.3).
pub(crate) fn preparation_failure(ue: Ue, cause: Cause, container: Option<Vec<u8>>) {
    let Some((amf_id, ran_id)) = ids(ue) else { return };
    let mut failure = HandoverPreparationFailure::new(amf_id, ran_id, cause);
    failure.target_to_source_failure_transparent_container = container;
    send(ue, &failure.into(), None);
}

pub(crate) fn refused(ue: Ue, refusal: Refusal) {
    let subject = ue.with(|p| p.subject());
    let ran_ue_ngap_id = ids(ue).map(|(_, ran)| ran);
    ue.event(Event::Refused { procedure: Procedure::Handover, subject, ran_ue_ngap_id, refusal });
}

/// §4.9.1.3.3 steps 2a and 2b: forwards the PDCP status of the source to the target. It is dropped if no handover is in
/// execution.
pub(crate) fn ran_status_transfer(ue: Ue, m: UplinkRanStatusTransfer) {
    let Some((target, ran_id)) = executing(ue) else {
        if !n14::source::ran_status(ue, &m.into()) {
            out_of_state(ue);
        }
        return;
    };
    let container = m.ran_status_transfer_transparent_container;
    let transfer = DownlinkRanStatusTransfer::new(target.amf_ue_ngap_id, ran_id, container);
    emit(ue, target.association, &transfer.into(), None);
}

/// The same for a DAPS handover (TS 38.413 §8.4.9, §8.4.10).
pub(crate) fn ran_early_status_transfer(ue: Ue, m: UplinkRanEarlyStatusTransfer) {
    let Some((target, ran_id)) = executing(ue) else {
        if !n14::source::ran_status(ue, &m.into()) {
            out_of_state(ue);
        }
        return;
    };
    let container = m.early_status_transfer_transparent_container;
    let transfer = DownlinkRanEarlyStatusTransfer::new(target.amf_ue_ngap_id, ran_id, container);
    emit(ue, target.association, &transfer.into(), None);
}

fn executing(ue: Ue) -> Option<(Target, whimbrel_ids::RanUeNgapId)> {
    let target = ue.with(|p| p.amf.mobility.target.as_deref().cloned())?;
    let ran_id = target.ran_ue_ngap_id.filter(|_| target.by.phase() == Some(Phase::Executing))?;
    Some((target, ran_id))
}
