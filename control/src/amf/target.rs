//! The target gNB of a handover, until the UE has arrived.
//!
//! A UE in handover has two N2 connections: the serving one, and that of the target. The second is stored in the UE's
//! context, so that any procedure that ends the handover can release the target.

use whimbrel_ids::PduSessionId;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork, UeNgapIdPair, UeNgapIds};
use whimbrel_ngap::msg::{HandoverCancel, HandoverCancelAcknowledge, UeContextReleaseCommand};

use super::connection::lost;
use super::context_setup::is_context_pending;
use super::n2::{emit, ids, note_released, release_command, send, send_nas};
use super::{handover, location_reporting, n14, path_switch, predicted_handover};
use crate::envelope::AssociationId;
use crate::event::{Event, MessageDropReason};
use crate::input::Input;
use crate::procedure::{Interrupt, Lane, ProcedureEnd, Ue, out_of_state};
use crate::refusal::Refusal;
use crate::services::namf::HANDOVER_EXECUTION;
use crate::state::{
    Connection, DownlinkProtection, HandoverKind, Phase, QueuedPathSwitch, Target, UeContext,
};

/// Awaits the end of a running handover: during it the AMF starts no NGAP procedure of the UE (TS 38.413 §8.4.1.2, TS
/// 23.502 §4.9.1.3.1).
pub(crate) async fn handover_over(ue: Ue) -> Result<(), ProcedureEnd> {
    // Bounded, as a handover waits for source, target, UE and UPF for a bounded time each.
    let timers = ue.config().timers;
    let patience = HANDOVER_EXECUTION + timers.gnb_answer + timers.guard * 4;
    while ue.with(|p| p.amf.mobility.target.is_some() || p.amf.outbound().is_some()) {
        match ue.receive(|i| matches!(i, Input::HandoverOver), patience).await {
            Ok(_) => {}
            Err(Interrupt::TimedOut) => return Err(Refusal::RadioFailure("a handover does not end").into()),
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}

/// Awaits the setups that are outstanding at the source gNB: the UE context and the user planes of these sessions. The
/// source's answer may arrive later over another association (TS 23.502 §4.9.1.2.2), or the UPF's answer is awaited. After
/// the guard time the handover goes on with what is set up then.
pub(crate) async fn await_setups(ue: Ue, sessions: &[PduSessionId]) -> Result<(), Interrupt> {
    let until = ue.now() + ue.config().timers.guard;
    while is_context_pending(ue) || sessions.iter().any(|&psi| ue.smf().is_coming_up(ue, psi)) {
        let changes = |i: &Input| matches!(i, Input::ContextSetUp | Input::SessionSettled);
        match ue.receive(changes, until.since(ue.now())).await {
            Ok(_) => {}
            Err(Interrupt::TimedOut) => return Ok(()),
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// Whether a path switch runs: the UE has left its serving gNB.
pub(crate) fn has_left(ue: &UeContext) -> bool {
    ue.amf.mobility.target.as_ref().is_some_and(|t| matches!(t.by, HandoverKind::PathSwitch(_)))
}

/// Whether a handover waits for setups at its source ([`await_setups`]). The UPF's downlink tunnel is set to the source first: the
/// target waits for end markers in that tunnel (TS 23.502 §4.9.1.2.2 step 5).
pub(crate) fn awaits_source(ue: &UeContext) -> bool {
    ue.lanes.awaits(Lane::Handover, &Input::SessionSettled)
}

/// The former gNB has released its connection. Packets that it forwards still pass.
pub(crate) fn source_gone(ue: Ue, is_it: impl FnOnce(&mut Connection) -> bool) {
    ue.with(|p| {
        if let Some(source) = &mut p.amf.mobility.forwarding_source {
            source.connection.take_if(is_it);
        }
    });
}

/// HANDOVER CANCEL (TS 38.413 §8.4.5, TS 23.502 §4.9.1.4): the source keeps the UE. It is acknowledged also if no
/// handover runs.
pub(crate) fn cancel(ue: Ue, m: HandoverCancel) {
    if n14::source::cancel(ue, &m) {
        return;
    }
    send(ue, &HandoverCancelAcknowledge::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id).into(), None);
    if !ue.with(|p| p.amf.mobility.target.as_ref().is_some_and(|t| t.by.phase().is_some())) {
        return out_of_state(ue);
    }
    if let Some(target) = abandon(ue) {
        back(ue, *target);
    }
}

/// The source releases the UE during handover execution (TS 38.413 §8.3.2): its connection ends, the target's does not (TS
/// 23.502 §4.9.1.3.3). If the UE does not arrive at the target, it is idle. Returns whether a handover is in execution.
pub(crate) fn source_leaves(ue: Ue, cause: &Cause) -> bool {
    if n14::source::source_leaves(ue, Some(cause)) {
        return true;
    }
    let was_lost = ue.with(|p| {
        let target = p.amf.mobility.target.as_mut().filter(|t| t.by.phase() == Some(Phase::Executing))?;
        Some(std::mem::replace(&mut target.source_lost, true))
    });
    if let (Some(false), Some((amf, ran))) = (was_lost, ids(ue)) {
        send(ue, &release_command(UeNgapIdPair::new(amf, ran), cause.clone()).into(), None);
    }
    was_lost.is_some()
}

/// The target has released the UE, or is lost. The source serves the UE, if it is not lost.
pub(crate) fn gone(ue: Ue) {
    let Some(target) = take(ue) else { return };
    if target.by.is_at_source() {
        let cause = CauseRadioNetwork::HoFailureInTarget5GcNgranNodeOrTargetSystem;
        handover::preparation_failure(ue, cause.into(), None);
    }
    ue.smf().stop_forwarding(ue);
    back(ue, *target);
}

/// The handover ends: the UE's connection ends, the UE is found elsewhere, or its source cancels it. The target is released,
/// and so is the former gNB of an earlier handover.
pub(crate) fn abandon(ue: Ue) -> Option<Box<Target>> {
    release_source(ue);
    predicted_handover::withdraw(ue);
    drop(n14::source::abandon(ue));
    let target = take(ue)?;
    match &target.by {
        HandoverKind::PathSwitch(_) => path_switch::send_failure(ue, &target),
        HandoverKind::N2(_) => release_target(ue, &target, CauseRadioNetwork::HandoverCancelled.into()),
    }
    ue.smf().stop_forwarding(ue);
    Some(target)
}

fn take(ue: Ue) -> Option<Box<Target>> {
    let mut target = ue.with(|p| {
        let target = p.amf.mobility.target.take()?;
        p.lanes.interrupt(Lane::Handover, Interrupt::ConnectionLost);
        Some(target)
    })?;
    reject_queued_path_switch(ue, &mut target);
    Some(target)
}

/// The UE never was at the target, so a path switch that waits for its arrival is refused.
pub(crate) fn reject_queued_path_switch(ue: Ue, target: &mut Target) {
    if let Some(further) = target.further.take() {
        path_switch::fail_queued(ue, &further);
    }
}

/// PATH SWITCH REQUEST for a UE that has moved on from its handover target before HANDOVER NOTIFY arrived: it waits for that.
/// Returned if the UE cannot have been at the target.
pub(crate) fn further(ue: Ue, further: QueuedPathSwitch) -> Option<QueuedPathSwitch> {
    enum QueuedSwitchChange {
        Duplicate,
        InsteadOf(Option<QueuedPathSwitch>),
    }
    let kept = ue.with(|p| {
        let names = |t: &&mut Box<Target>| {
            t.by.phase() == Some(Phase::Executing)
                && t.amf_ue_ngap_id == further.request.source_amf_ue_ngap_id
        };
        let Some(target) = p.amf.mobility.target.as_mut().filter(names) else { return Err(further) };
        let same = |f: &QueuedPathSwitch| {
            f.association == further.association && f.request.ran_ue_ngap_id == further.request.ran_ue_ngap_id
        };
        match target.further.as_ref().is_some_and(same) {
            true => Ok(QueuedSwitchChange::Duplicate),
            false => Ok(QueuedSwitchChange::InsteadOf(target.further.replace(further))),
        }
    });
    match kept {
        Err(further) => return Some(further),
        Ok(QueuedSwitchChange::Duplicate) => {
            let subject = ue.with(|p| p.subject());
            ue.event(Event::Dropped { subject, why: MessageDropReason::Duplicate });
        }
        // The UE is at the gNB that asked last.
        Ok(QueuedSwitchChange::InsteadOf(former)) => {
            former.iter().for_each(|f| path_switch::fail_queued(ue, f))
        }
    }
    None
}

/// The UE did not arrive at its target.
pub(crate) fn back(ue: Ue, target: Target) {
    if target.source_lost {
        lost(ue);
    } else {
        over(ue, target);
    }
}

/// The handover has ended: held messages are sent, and waiting procedures continue.
pub(crate) fn over(ue: Ue, target: Target) {
    for (message, security) in &target.held {
        // A SECURITY MODE COMMAND whose procedure has ended is not sent.
        if *security != DownlinkProtection::Proposed || ue.with(|p| p.amf.security.proposed.is_some()) {
            send_nas(ue, message, *security);
        }
    }
    go_on(ue);
}

/// Resumes the procedures that waited for the end of the handover.
pub(crate) fn go_on(ue: Ue) {
    ue.smf().handover_ended(ue); // the UPF sends what it has buffered
    location_reporting::resume(ue);
    let sessions = ue.smf().session_ids(ue);
    ue.with(|p| {
        for psi in sessions {
            // A lane that does not wait for it returns it.
            let _ = p.lanes.deliver(Lane::Session(psi), Input::HandoverOver);
        }
    });
}

/// UE CONTEXT RELEASE COMMAND to the target, with both identities if the target has assigned its own (TS 38.413 §8.3.3). Nothing is sent to
/// a target that was not asked yet.
pub(crate) fn release_target(ue: Ue, target: &Target, cause: Cause) {
    if target.by.phase() == Some(Phase::Waiting) {
        return;
    }
    let ids = match target.ran_ue_ngap_id {
        Some(ran) => UeNgapIds::UeNgapIdPair(UeNgapIdPair::new(target.amf_ue_ngap_id, ran)),
        None => UeNgapIds::AmfUeNgapId(target.amf_ue_ngap_id),
    };
    emit(ue, target.association, &UeContextReleaseCommand::new(ids, cause).into(), None);
    note_released(ue, target.association, target.amf_ue_ngap_id);
}

/// The UE has arrived: the source gNB is released once forwarded packets have passed. No lane waits meanwhile, so the UE
/// may move to another CPF or be handed over again.
pub(crate) fn release_source_later(ue: Ue) {
    if ue.smf().is_forwarding(ue) && !ue.with(|p| has_left(p)) {
        let until = ue.now() + handover::FORWARDING;
        ue.with(|p| p.amf.mobility.forwarding_source.get_or_insert_default().until = Some(until));
    } else {
        release_source(ue);
    }
}

/// The source gNB is released, and forwarding ends (TS 23.502 §4.9.1.3.3 steps 14 and 15).
pub(crate) fn release_source(ue: Ue) {
    if let Some(source) = ue.with(|p| p.amf.mobility.forwarding_source.take()?.connection) {
        let ids = UeNgapIdPair::new(source.amf_ue_ngap_id, source.ran_ue_ngap_id);
        let command = release_command(ids, CauseRadioNetwork::SuccessfulHandover);
        emit(ue, source.association, &command.into(), None);
        note_released(ue, source.association, source.amf_ue_ngap_id);
    }
    if ue.with(|p| p.amf.mobility.target.as_ref().is_none_or(|t| t.by.phase().is_none())) {
        ue.smf().stop_forwarding(ue);
    }
}

/// A gNB's association, or its connection of this UE, is lost: at the serving gNB, at the target, or both.
pub(crate) fn association_lost(ue: Ue, association: AssociationId) {
    predicted_handover::association_lost(ue, association);
    source_gone(ue, |c| c.association == association);
    let (serving, target) = ue.with(|p| {
        p.amf
            .mobility
            .target
            .iter_mut()
            .for_each(|t| drop(t.further.take_if(|f| f.association == association)));
        let serving = p.amf.connection.as_ref().is_some_and(|c| c.association == association);
        (serving, p.amf.mobility.target.as_ref().map(|t| t.association == association))
    });
    match (serving, target) {
        (true, Some(false)) => serving_lost(ue),
        (true, None) if n14::source::source_lost(ue, association) => {}
        (true, _) => lost(ue),
        (false, Some(true)) => gone(ue),
        (false, _) => {}
    }
}

/// The serving gNB, or its connection of the UE, is lost. During handover execution the UE may still arrive at the
/// target.
pub(crate) fn serving_lost(ue: Ue) {
    let left = ue.with(|p| match &mut p.amf.mobility.target {
        Some(target) if !target.by.is_at_source() => {
            target.source_lost = true;
            true
        }
        _ => false,
    });
    if !left && !n14::source::source_leaves(ue, None) {
        lost(ue);
    }
}

/// Whether the UE has a serving gNB to which the AMF may send requests.
pub(crate) fn is_settled(ue: Ue) -> bool {
    ids(ue).is_some() && ue.with(|p| p.amf.mobility.target.is_none() && p.amf.outbound().is_none())
}
