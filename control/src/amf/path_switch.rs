//! Xn handover: TS 23.502 §4.9.1.2.2 (the UPF stays), TS 38.413 §8.4.4, TS 33.501 §6.7.3.1, §6.9.2.3.2.
//!
//! The UE is at the target already; its sessions' downlink paths are switched. The request is checked before anything
//! changes, so that a refusal leaves the UE's state as it was.

use whimbrel_ids::{AmfUeNgapId, Instant, PduSessionId, RanUeNgapId};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{CauseRadioNetwork, PduSessionResourceItem};
use whimbrel_ngap::msg::{PathSwitchRequest, PathSwitchRequestAcknowledge, PathSwitchRequestFailure};
use whimbrel_ngap::transfer::PathSwitchRequestUnsuccessfulTransfer;

use super::as_security::{advance_chain, ue_security_capabilities};
use super::mobility_restrictions::permitted;
use super::n2::{emit, note_released, refuse_names, send};
use super::target;
use super::user_location::{locate, location};
use super::{end, location_reporting, pending_setup, predicted_handover, rrc_inactive};
use crate::collision::{self, CollisionVerdict};
use crate::envelope::AssociationId;
use crate::event::{Event, MessageDropReason, Sign};
use crate::procedure::{Interrupt, Lane, Procedure, Ue};
use crate::refusal::Refusal;
use crate::services::nsmf::SwitchedSession;
use crate::state::{Connection, HandoverKind, QueuedPathSwitch, Target};

/// Step 1b: the target gNB identifies the UE by the AMF UE NGAP ID that the source used. An N2 handover that
/// still runs ends (TS 38.413 §8.4.4): the UE is at another gNB than its target.
pub(crate) fn start(ue: Ue, association: AssociationId, m: Box<PathSwitchRequest>) {
    // The UE came to its source by N2 handover, whose HANDOVER NOTIFY has not arrived yet.
    let Some(QueuedPathSwitch { association, request: m }) =
        target::further(ue, QueuedPathSwitch { association, request: m })
    else {
        return;
    };
    let (amf_id, ran_id) = (m.source_amf_ue_ngap_id, m.ran_ue_ngap_id);
    let target = target(association, &m);
    if !ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| c.amf_ue_ngap_id == amf_id)) {
        // The connection ended here while the gNBs handed the UE over: the target gets PATH SWITCH REQUEST FAILURE.
        let now = ue.now();
        if ue.with(|p| p.amf.recently_released.as_ref().is_some_and(|c| c.names(now, amf_id))) {
            return send_failure(ue, &target);
        }
        return refuse_names(ue, association, CauseRadioNetwork::UnknownLocalUeNgapId, amf_id, Some(ran_id));
    }
    let worked_on = ue.with(|p| p.amf.mobility.target.as_ref().is_some_and(|t| is_same_target(t, &target)));
    if worked_on || ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| is_connected_at(c, &target))) {
        let subject = ue.with(|p| p.subject());
        return ue.event(Event::Dropped { subject, why: MessageDropReason::Duplicate }); // the first one is answered, or will be
    }
    if let Err(refusal) = check(ue, &m) {
        send_failure(ue, &target);
        return report_refusal(ue, refusal);
    }
    predicted_handover::withdraw(ue); // it came by Xn
    let ue = ue.on(Lane::Handover);
    ue.start(Lane::Handover, Procedure::PathSwitch, path_switch(ue, m, target));
}

/// Runs a request that was queued until the HANDOVER NOTIFY of its source arrived (`target::further`): that
/// handover ends.
pub(crate) fn resume_queued(ue: Ue, m: Box<PathSwitchRequest>) {
    ue.follow(Lane::Handover, Procedure::PathSwitch, async move {
        if let Some(target) = ue.with(|p| p.amf.mobility.target.take()) {
            path_switch(ue, m, *target).await;
        }
    });
}

/// The gNB at which the UE is.
pub(crate) fn target(association: AssociationId, m: &PathSwitchRequest) -> Target {
    Target {
        association,
        amf_ue_ngap_id: m.source_amf_ue_ngap_id,
        ran_ue_ngap_id: Some(m.ran_ue_ngap_id),
        source_lost: false,
        by: HandoverKind::PathSwitch(requested_sessions(m)),
        held: Vec::new(),
        further: None,
    }
}

async fn path_switch(ue: Ue, m: Box<PathSwitchRequest>, target: Target) {
    let began = ue.now();
    if let Err(refusal) = check(ue, &m) {
        send_failure(ue, &target); // after the superseded procedure there is nothing left to switch
        report_refusal(ue, refusal);
        return target::back(ue, target);
    }
    target::release_source(ue); // of an earlier handover
    ue.with(|p| p.amf.mobility.target = Some(Box::new(target)));
    match switch(ue, &m).await {
        Ok(switched) => {
            if let Some(target) = ue.with(|p| p.amf.mobility.target.take()) {
                complete(ue, &m, *target, switched, began);
            }
        }
        // In all other cases the target has been informed.
        Err(Interrupt::Superseded(_)) => {
            if let Some(target) = ue.with(|p| p.amf.mobility.target.take()) {
                send_failure(ue, &target);
                target::back(ue, *target);
            }
        }
        Err(_) => {}
    }
}

/// Steps 2 to 6. Messages of the source about the UE may still be in transit.
async fn switch(ue: Ue, m: &PathSwitchRequest) -> Result<Vec<SwitchedSession>, Interrupt> {
    target::await_setups(ue, &requested_sessions(m)).await?;
    if !ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| c.context_set_up)) {
        return Ok(Vec::new()); // its source never had a UE context
    }
    let tai = m.user_location_information.as_ref().and_then(location);
    let sessions = &m.pdu_session_resource_to_be_switched_dl_list;
    ue.smf().switch_paths(ue, sessions, tai.map(|tai| tai.tac)).await
}

fn is_same_target(a: &Target, b: &Target) -> bool {
    a.association == b.association && a.ran_ue_ngap_id == b.ran_ue_ngap_id
}

/// The UE is at this target already: a gNB repeats unacknowledged messages after it lost the AMF's endpoint.
fn is_connected_at(c: &Connection, target: &Target) -> bool {
    c.association == target.association && Some(c.ran_ue_ngap_id) == target.ran_ue_ngap_id
}

/// The conditions that are checked before anything changes. A UE context that the source was asked for counts: its
/// answer may be in transit.
fn check(ue: Ue, m: &PathSwitchRequest) -> Result<(), Refusal> {
    let connection = |p: &mut crate::state::UeContext| {
        p.amf.connection.as_ref().is_some_and(|c| {
            (c.context_set_up || c.context_pending) && c.amf_ue_ngap_id == m.source_amf_ue_ngap_id
        })
    };
    if !ue.with(connection) || ue.with(|p| p.amf.security.next_hop.is_none() || !p.amf.registered) {
        return Err(Refusal::Protocol("PATH SWITCH REQUEST for a UE without a UE context at its source gNB"));
    }
    if ue.with(|p| p.amf.inbound().is_some()) {
        return Err(Refusal::Protocol(
            "PATH SWITCH REQUEST for a UE whose context transfer from a peer AMF is not complete",
        ));
    }
    if collision::handover_meets(ue.with(|p| p.lanes.procedure(Lane::Mobility))) != CollisionVerdict::Proceed
    {
        return Err(Refusal::Protocol("PATH SWITCH REQUEST for a connection that is being released"));
    }
    // TS 38.413 §8.4.4.4: one session must not be named twice.
    let list = &m.pdu_session_resource_to_be_switched_dl_list;
    let twice = |(n, i): (usize, &PduSessionResourceItem)| {
        list.iter().take(n).any(|before| before.pdu_session_id == i.pdu_session_id)
    };
    if list.iter().enumerate().any(twice) {
        return Err(Refusal::Protocol("PATH SWITCH REQUEST names a PDU session twice"));
    }
    match m.user_location_information.as_ref().and_then(location) {
        Some(tai) if !ue.config().amf.serves(tai) => Err(Refusal::TaiNotServed(tai)),
        Some(tai) => permitted(ue, tai),
        None => Ok(()),
    }
}

/// Steps 7 and 8, after the UPF's answers: acknowledges the switch, or fails it.
fn complete(ue: Ue, m: &PathSwitchRequest, target: Target, switched: Vec<SwitchedSession>, began: Instant) {
    if !switched.iter().any(|s| s.transfer.is_ok()) {
        send_failure(ue, &target);
        report_refusal(ue, Refusal::RadioFailure("no downlink path of its PDU sessions could be switched"));
        return target::back(ue, target);
    }
    move_to(ue, m, &target);
    acknowledge(ue, m, &switched);
    target::over(ue, target);
    ue.smf().not_switched(ue, &switched, &m.pdu_session_resource_failed_to_setup_list_ps_req);
    target::release_source_later(ue);
    end::arm_inactivity_timer(ue);
    let subject = ue.with(|p| p.subject());
    let took = ue.now().since(began);
    ue.event(Event::Completed { procedure: Procedure::PathSwitch, subject, took });
}

/// The target serves the UE from now on.
fn move_to(ue: Ue, m: &PathSwitchRequest, target: &Target) {
    if let Some((association, amf_id)) =
        ue.with(|p| p.amf.connection.as_ref().map(|c| (c.association, c.amf_ue_ngap_id)))
    {
        note_released(ue, association, amf_id); // the target informs the source (TS 38.423 §8.2.7)
    }
    let pending = ue.with(|p| {
        p.amf.connection.take().map(|mut c| {
            let pending = std::mem::take(&mut c.pending_setups);
            p.amf.connection = Some(Box::new(Connection {
                association: target.association,
                ran_ue_ngap_id: m.ran_ue_ngap_id,
                context_pending: false,
                context_requested: false,
                releasing: false,
                rrc_inactive: false,
                ..*c
            }));
            pending
        })
    });
    pending_setup::gnb_left(ue, &pending.unwrap_or_default());
    if let Some(l) = &m.user_location_information {
        locate(ue, l);
        location_reporting::found(ue);
    }
    location_reporting::sign(ue, || Sign::Arrived);
}

/// PATH SWITCH REQUEST ACKNOWLEDGE, with the next hop for the handover after this one.
fn acknowledge(ue: Ue, m: &PathSwitchRequest, switched: &[SwitchedSession]) {
    let Some((fresh, allowed, ours)) = ue.with(|p| {
        let fresh = advance_chain(&mut p.amf)?;
        let ours = p.amf.ue_security_capability.as_ref().map(ue_security_capabilities);
        Some((fresh, p.amf.slices.allowed.clone(), ours))
    }) else {
        return; // `check` has verified that there is a {NH, NCC} chain
    };
    let mut answer =
        PathSwitchRequestAcknowledge::new(m.source_amf_ue_ngap_id, m.ran_ue_ngap_id, fresh.context, allowed);
    answer.new_security_context_ind = fresh.new;
    answer.core_network_assistance_information_for_inactive = rrc_inactive::assistance(ue);
    answer.rrc_inactive_transition_report_request = rrc_inactive::report_request(ue);
    // TS 33.501 §6.7.3.1, TS 33.512 §4.2.2.4.1: if the target reports other security capabilities than the AMF stores,
    // it gets the AMF's, and an event is logged.
    if m.ue_security_capabilities != ours {
        answer.ue_security_capabilities = ours;
        let subject = ue.with(|p| p.subject());
        ue.event(Event::SecurityCapabilitiesDiffer { subject });
    }
    for SwitchedSession { psi, transfer } in switched {
        match transfer {
            Ok(transfer) => {
                let item = PduSessionResourceItem::new(*psi, transfer.clone());
                answer.pdu_session_resource_switched_list.push(item);
            }
            Err(cause) => {
                let transfer = PathSwitchRequestUnsuccessfulTransfer::new(cause.clone()).to_vec();
                let item = PduSessionResourceItem::new(*psi, transfer);
                answer.pdu_session_resource_released_list_ps_ack.push(item);
            }
        }
    }
    send(ue, &answer.into(), None);
}

/// PATH SWITCH REQUEST FAILURE (TS 38.413 §8.4.4.3): the UE's state does not change.
pub(crate) fn send_failure(ue: Ue, target: &Target) {
    let HandoverKind::PathSwitch(sessions) = &target.by else { return };
    let Some(ran_id) = target.ran_ue_ngap_id else { return };
    emit(ue, target.association, &failure(target.amf_ue_ngap_id, ran_id, sessions.clone()), None);
}

fn failure(amf_id: AmfUeNgapId, ran_id: RanUeNgapId, mut sessions: Vec<PduSessionId>) -> Message {
    sessions.sort_unstable();
    sessions.dedup();
    let cause = CauseRadioNetwork::HoFailureInTarget5GcNgranNodeOrTargetSystem;
    let transfer = PathSwitchRequestUnsuccessfulTransfer::new(cause.into()).to_vec();
    let mut failure = PathSwitchRequestFailure::new(amf_id, ran_id);
    failure.pdu_session_resource_released_list_ps_fail =
        sessions.into_iter().map(|psi| PduSessionResourceItem::new(psi, transfer.clone())).collect();
    failure.into()
}

/// Fails a queued path switch: the UE never reached the source gNB that the target names.
pub(crate) fn fail_queued(ue: Ue, further: &QueuedPathSwitch) {
    send_failure(ue, &target(further.association, &further.request));
    report_refusal(ue, Refusal::RadioFailure("the N2 handover before the path switch failed"));
}

/// The answer to PATH SWITCH REQUEST for a UE whose connection was released during the Xn handover.
pub fn build_failure_after_release(m: &PathSwitchRequest) -> Message {
    failure(m.source_amf_ue_ngap_id, m.ran_ue_ngap_id, requested_sessions(m))
}

/// The sessions whose paths are to be switched.
fn requested_sessions(m: &PathSwitchRequest) -> Vec<PduSessionId> {
    m.pdu_session_resource_to_be_switched_dl_list.iter().map(|i| i.pdu_session_id).collect()
}

fn report_refusal(ue: Ue, refusal: Refusal) {
    let subject = ue.with(|p| p.subject());
    let ran_ue_ngap_id = super::n2::ids(ue).map(|(_, ran)| ran);
    ue.event(Event::Refused { procedure: Procedure::PathSwitch, subject, ran_ue_ngap_id, refusal });
}
