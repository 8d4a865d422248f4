//! The gNB that takes a connected UE over, as long as it is not certain that it does.
//!
//! A UE in handover has two N2 connections: the one that serves it, and that of the target. What is kept of the second
//! stands in the UE's context, so that whatever ends the handover can release the target.

use whimbrel_ids::PduSessionId;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork, UeNgapIdPair, UeNgapIds};
use whimbrel_ngap::msg::{HandoverCancel, HandoverCancelAcknowledge, UeContextReleaseCommand};

use super::connection::lost;
use super::context_setup::is_context_pending;
use super::n2::{emit, ids, note_released, release_command, send, send_nas};
use super::{handover, location_reporting, n14, path_switch};
use crate::envelope::AssociationId;
use crate::event::{Dropped, Event};
use crate::input::Input;
use crate::procedure::{End, Interrupt, Lane, Ue, out_of_state};
use crate::refusal::Refusal;
use crate::services::namf::HANDOVER_EXECUTION;
use crate::state::{By, Connection, Phase, QueuedPathSwitch, Security, Target, UeContext};

/// Awaits the end of a handover that runs: meanwhile a gNB is not asked for anything (TS 38.413 §8.4.1.2, TS 23.502
/// §4.9.1.3.1).
pub(crate) async fn handover_over(ue: Ue) -> Result<(), End> {
    // A handover waits for its source, its target, its UE and its UPF, each for a bounded time.
    let timers = ue.config().timers;
    let patience = HANDOVER_EXECUTION + timers.gnb_answer + timers.guard * 4;
    while ue.with(|p| p.amf.target.is_some() || p.amf.outbound().is_some()) {
        match ue.receive(|i| matches!(i, Input::HandoverOver), patience).await {
            Ok(_) => {}
            Err(Interrupt::TimedOut) => return Err(Refusal::RadioFailure("a handover does not end").into()),
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}

/// Awaits what is on its way up at the gNB that the UE leaves: its context, and the user planes of these sessions. What that
/// gNB has answered may arrive later over another association (TS 23.502 §4.9.1.2.2), or its UPF has yet to
/// answer. What is not up after the guard time is judged as it is then.
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

/// Whether the UE has left the gNB that serves it, for one that wants its sessions' paths switched.
pub(crate) fn has_left(ue: &UeContext) -> bool {
    ue.amf.target.as_ref().is_some_and(|t| matches!(t.by, By::PathSwitch(_)))
}

/// Whether a handover waits for what its source has set up ([`await_setups`]). The UPF is led there first: the last packets in the
/// source's tunnel are end markers, for which the target waits (TS 23.502 §4.9.1.2.2 step 5).
pub(crate) fn awaits_source(ue: &UeContext) -> bool {
    ue.lanes.awaits(Lane::Handover, &Input::SessionSettled)
}

/// The gNB that the UE has left has no connection of it any more. What is under way to it from there still passes.
pub(crate) fn source_gone(ue: Ue, is_it: impl FnOnce(&mut Connection) -> bool) {
    ue.with(|p| {
        if let Some(source) = &mut p.amf.source {
            source.connection.take_if(is_it);
        }
    });
}

/// HANDOVER CANCEL (TS 38.413 §8.4.5, TS 23.502 §4.9.1.4): the source keeps the UE. It is acknowledged also where there
/// is nothing to cancel: both agree then.
pub(crate) fn cancel(ue: Ue, m: HandoverCancel) {
    if n14::source::cancel(ue, &m) {
        return;
    }
    send(ue, &HandoverCancelAcknowledge::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id).into(), None);
    if !ue.with(|p| p.amf.target.as_ref().is_some_and(|t| t.by.phase().is_some())) {
        return out_of_state(ue);
    }
    if let Some(target) = abandon(ue) {
        back(ue, *target);
    }
}

/// The source lets a UE go that it has sent on its way (TS 38.413 §8.3.2): its own connection ends with that, not the target's
/// (TS 23.502 §4.9.1.3.3). The UE may arrive there all the same; where it does not, it is lost. Whether it is so.
pub(crate) fn source_leaves(ue: Ue, cause: &Cause) -> bool {
    if n14::source::source_leaves(ue, Some(cause)) {
        return true;
    }
    let told = ue.with(|p| {
        let target = p.amf.target.as_mut().filter(|t| t.by.phase() == Some(Phase::Executing))?;
        Some(std::mem::replace(&mut target.source_lost, true))
    });
    if let (Some(false), Some((amf, ran))) = (told, ids(ue)) {
        send(ue, &release_command(UeNgapIdPair::new(amf, ran), cause.clone()).into(), None);
    }
    told.is_some()
}

/// The target has lost the UE, or is lost itself. The UE stays where it was, if that is still there.
pub(crate) fn gone(ue: Ue) {
    let Some(target) = take(ue) else { return };
    if target.by.is_at_source() {
        let cause = CauseRadioNetwork::HoFailureInTarget5GcNgranNodeOrTargetSystem;
        handover::preparation_failure(ue, cause.into(), None);
    }
    ue.smf().stop_forwarding(ue);
    back(ue, *target);
}

/// The handover ends: the UE's connection ends, the UE is found elsewhere, or its source cancels it. The target is released.
/// What is left of a handover before goes, too.
pub(crate) fn abandon(ue: Ue) -> Option<Box<Target>> {
    release_source(ue);
    drop(n14::source::abandon(ue));
    let target = take(ue)?;
    match &target.by {
        By::PathSwitch(_) => path_switch::send_failure(ue, &target),
        By::N2(_) => release_target(ue, &target, CauseRadioNetwork::HandoverCancelled.into()),
    }
    ue.smf().stop_forwarding(ue);
    Some(target)
}

fn take(ue: Ue) -> Option<Box<Target>> {
    let mut target = ue.with(|p| {
        let target = p.amf.target.take()?;
        p.lanes.interrupt(Lane::Handover, Interrupt::ConnectionLost);
        Some(target)
    })?;
    reject_queued_path_switch(ue, &mut target);
    Some(target)
}

/// The target never had the UE, so no gNB has it from there.
pub(crate) fn reject_queued_path_switch(ue: Ue, target: &mut Target) {
    if let Some(further) = target.further.take() {
        path_switch::refuse(ue, &further);
    }
}

/// A gNB wants the path of a UE that it has from its target, from which nothing was heard yet: it waits for that. Gives it back where
/// the UE cannot have been at the target.
pub(crate) fn further(ue: Ue, further: QueuedPathSwitch) -> Option<QueuedPathSwitch> {
    enum Kept {
        Duplicate,
        InsteadOf(Option<QueuedPathSwitch>),
    }
    let kept = ue.with(|p| {
        let names = |t: &&mut Box<Target>| {
            t.by.phase() == Some(Phase::Executing)
                && t.amf_ue_ngap_id == further.request.source_amf_ue_ngap_id
        };
        let Some(target) = p.amf.target.as_mut().filter(names) else { return Err(further) };
        let same = |f: &QueuedPathSwitch| {
            f.association == further.association && f.request.ran_ue_ngap_id == further.request.ran_ue_ngap_id
        };
        match target.further.as_ref().is_some_and(same) {
            true => Ok(Kept::Duplicate),
            false => Ok(Kept::InsteadOf(target.further.replace(further))),
        }
    });
    match kept {
        Err(further) => return Some(further),
        Ok(Kept::Duplicate) => {
            let subject = ue.with(|p| p.subject());
            ue.event(Event::Dropped { subject, why: Dropped::Duplicate });
        }
        // The later one is where the UE is.
        Ok(Kept::InsteadOf(former)) => former.iter().for_each(|f| path_switch::refuse(ue, f)),
    }
    None
}

/// The UE did not come to its target.
pub(crate) fn back(ue: Ue, target: Target) {
    if target.source_lost {
        lost(ue);
    } else {
        over(ue, target);
    }
}

/// The UE is at a gNB: messages held for it are sent, and waiting procedures continue.
pub(crate) fn over(ue: Ue, target: Target) {
    for (message, security) in &target.held {
        // Keys that are proposed no more are not proposed.
        if *security != Security::Proposed || ue.with(|p| p.amf.proposed.is_some()) {
            send_nas(ue, message, *security);
        }
    }
    go_on(ue);
}

/// What waited for the end of a handover goes on.
pub(crate) fn go_on(ue: Ue) {
    ue.smf().handover_ended(ue); // of what went along nothing is held any more
    location_reporting::resume(ue);
    let sessions = ue.smf().session_ids(ue);
    ue.with(|p| {
        for psi in sessions {
            // Those that do not wait for it give it back.
            let _ = p.lanes.deliver(Lane::Session(psi), Input::HandoverOver);
        }
    });
}

/// UE CONTEXT RELEASE COMMAND to the target, with both identities where the target has given its own (TS 38.413 §8.3.3). One that was not asked
/// knows nothing of the UE.
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

/// The UE has arrived: the source gNB is released once forwarded packets have passed. The UE is at rest meanwhile, so it
/// may change its CPF, or be handed over again.
pub(crate) fn release_source_later(ue: Ue) {
    if ue.smf().is_forwarding(ue) && !ue.with(|p| has_left(p)) {
        let until = ue.now() + handover::FORWARDING;
        ue.with(|p| p.amf.source.get_or_insert_default().until = Some(until));
    } else {
        release_source(ue);
    }
}

/// The source gNB is released, and forwarding ends (TS 23.502 §4.9.1.3.3 steps 14 and 15).
pub(crate) fn release_source(ue: Ue) {
    if let Some(source) = ue.with(|p| p.amf.source.take()?.connection) {
        let ids = UeNgapIdPair::new(source.amf_ue_ngap_id, source.ran_ue_ngap_id);
        let command = release_command(ids, CauseRadioNetwork::SuccessfulHandover);
        emit(ue, source.association, &command.into(), None);
        note_released(ue, source.association, source.amf_ue_ngap_id);
    }
    if ue.with(|p| p.amf.target.as_ref().is_none_or(|t| t.by.phase().is_none())) {
        ue.smf().stop_forwarding(ue);
    }
}

/// A gNB's association, or its part for this UE, is gone: of the one that serves it, of the one that takes it over, or of
/// both.
pub(crate) fn association_lost(ue: Ue, association: AssociationId) {
    source_gone(ue, |c| c.association == association);
    let (serving, target) = ue.with(|p| {
        p.amf.target.iter_mut().for_each(|t| drop(t.further.take_if(|f| f.association == association)));
        let serving = p.amf.connection.as_ref().is_some_and(|c| c.association == association);
        (serving, p.amf.target.as_ref().map(|t| t.association == association))
    });
    match (serving, target) {
        (true, Some(false)) => serving_lost(ue),
        (true, None) if n14::source::source_lost(ue, association) => {}
        (true, _) => lost(ue),
        (false, Some(true)) => gone(ue),
        (false, _) => {}
    }
}

/// The gNB that served the UE is lost, or has lost it. A UE that has left it already may still arrive at its target.
pub(crate) fn serving_lost(ue: Ue) {
    let left = ue.with(|p| match &mut p.amf.target {
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

/// Whether the UE has a gNB that can be asked for something.
pub(crate) fn is_settled(ue: Ue) -> bool {
    ids(ue).is_some() && ue.with(|p| p.amf.target.is_none() && p.amf.outbound().is_none())
}
