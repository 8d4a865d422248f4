//! The user plane of a session, set up at a gNB and released: TS 23.502 §4.2.3.2 steps 14 to 18, §4.2.6 steps 5 to 7.

use whimbrel_ids::{PduSessionId, Qfi};
use whimbrel_nas::ie::SmCause;
use whimbrel_nas::sm;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ngap::transfer::{
    PduSessionResourceSetupResponseTransfer, PduSessionResourceSetupUnsuccessfulTransfer,
};

use super::context::an_tunnel;
use super::establishment::emit_change;
use super::n4::{Downlink, modify, restore};
use super::path_switch::is_being_released;
use super::pending_change;
use super::release_at_gnb;
use super::restoration::is_lost;
use crate::event::SessionChange;
use crate::input::Input;
use crate::procedure::{Interrupt, Lane, Procedure, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::services::namf::HANDOVER_EXECUTION;
use crate::services::nsmf::N2Outcome;
use crate::state::{DEFAULT_QFI, SmContext, Tunnel, UeContext, UpState};

/// Why there is no tunnel of the gNB.
pub(super) enum UpConnectionFailure {
    /// The gNB refused, and has not delivered the NAS message.
    Refused(Refusal),
    /// The gNB did not answer: its state is unknown.
    Unknown(Refusal),
    /// The wait was interrupted.
    Interrupted(Interrupt),
}

/// A gNB's answer to a setup.
enum GnbAnswer {
    /// Resources are set up; the transfer has the tunnel.
    SetUp(Vec<u8>),
    /// The UE was handed over before the answer.
    Left,
    /// Refused because of an imminent handover (TS 38.413 §9.3.1.2).
    HandsOver,
}

/// Setup attempts for one session: a UE may be handed over twice in a row.
const ASKED_MAX: u8 = 3;

/// Requests a session's resources at the gNB, with a message to the UE, and awaits the transfer with its tunnel. After a handover
/// meanwhile, the new serving gNB is asked (TS 23.502 §4.9.1.3.1).
pub(super) async fn set_up(
    ue: Ue,
    psi: PduSessionId,
    n1: Option<&sm::Message>,
) -> Result<Vec<u8>, UpConnectionFailure> {
    for asked in 1..=ASKED_MAX {
        match ue.amf().set_up_session_resources(ue, psi, n1).await {
            Ok(()) => {}
            Err(ProcedureEnd::Refused(refusal)) => return Err(UpConnectionFailure::Refused(refusal)),
            Err(ProcedureEnd::Interrupted(why)) => return Err(UpConnectionFailure::Interrupted(why)),
        }
        match gnb_answer(ue).await? {
            GnbAnswer::SetUp(transfer) => return Ok(transfer),
            GnbAnswer::HandsOver if asked < ASKED_MAX => handed_over(ue).await?,
            GnbAnswer::Left | GnbAnswer::HandsOver => {}
        }
    }
    Err(UpConnectionFailure::Refused(Refusal::RadioFailure(
        "it hands the UE over each time that it is asked for the session",
    )))
}

/// Awaits the handover because of which a gNB has refused. If none starts, the gNB is asked again.
async fn handed_over(ue: Ue) -> Result<(), UpConnectionFailure> {
    match ue.receive(|i| matches!(i, Input::HandoverOver), HANDOVER_EXECUTION).await {
        Ok(_) | Err(Interrupt::TimedOut) => Ok(()),
        Err(other) => Err(UpConnectionFailure::Interrupted(other)),
    }
}

/// Awaits the gNB's answer to a setup.
async fn gnb_answer(ue: Ue) -> Result<GnbAnswer, UpConnectionFailure> {
    let answered = |i: &Input| {
        matches!(i, Input::N2Sm(N2Outcome::SetUp | N2Outcome::SetupFailed | N2Outcome::GnbLeft, _))
    };
    match ue.receive(answered, ue.config().timers.session_setup).await {
        Ok(Input::N2Sm(N2Outcome::SetUp, transfer)) => Ok(GnbAnswer::SetUp(transfer)),
        Ok(Input::N2Sm(N2Outcome::GnbLeft, _)) => Ok(GnbAnswer::Left),
        Ok(Input::N2Sm(_, transfer)) if is_for_handover(&transfer) => Ok(GnbAnswer::HandsOver),
        Ok(answer) => Err(UpConnectionFailure::Refused(setup_refused(&answer))),
        Err(Interrupt::TimedOut) => Err(UpConnectionFailure::Unknown(Refusal::RadioFailure(
            "no answer to PDU SESSION RESOURCE SETUP REQUEST",
        ))),
        Err(other) => Err(UpConnectionFailure::Interrupted(other)),
    }
}

/// TS 38.413 §8.2.1.3: the session is among those that failed to be set up, with a cause.
fn setup_refused(answer: &Input) -> Refusal {
    let cause = match answer {
        Input::N2Sm(_, transfer) => PduSessionResourceSetupUnsuccessfulTransfer::decode(transfer).ok(),
        _ => None,
    };
    Refusal::RefusedByGnb {
        message: "the session in its list of PDU session resources that failed to be set up",
        cause: cause.map_or_else(|| "not readable".into(), |t| t.cause.in_words()),
    }
}

/// Whether a gNB refuses a setup because of a handover.
fn is_for_handover(transfer: &[u8]) -> bool {
    let cause = PduSessionResourceSetupUnsuccessfulTransfer::decode(transfer).map(|t| t.cause);
    matches!(
        cause,
        Ok(Cause::RadioNetwork(
            CauseRadioNetwork::XnHandoverTriggered
                | CauseRadioNetwork::NgIntraSystemHandoverTriggered
                | CauseRadioNetwork::NgInterSystemHandoverTriggered
        ))
    )
}

/// Sets the UPF's downlink tunnel to the gNB's.
pub(super) async fn set_downlink_tunnel(
    ue: Ue,
    psi: PduSessionId,
    transfer: &[u8],
) -> Result<(), ProcedureEnd> {
    let transfer = PduSessionResourceSetupResponseTransfer::decode(transfer).ok();
    let named = transfer.as_ref().and_then(tunnel_of);
    let tunnel = named.ok_or(Refusal::RadioFailure("its setup response names no tunnel"))?;
    let failed = transfer.map(|t| t.qos_flow_failed_to_setup_list).unwrap_or_default();
    let failed: Vec<Qfi> = failed.into_iter().map(|f| f.qos_flow_identifier).collect();
    if failed.contains(&DEFAULT_QFI) {
        return Err(Refusal::RadioFailure("it did not set the default QoS flow up").into());
    }
    if ue.with(|p| p.sessions.get(&psi).is_some_and(|s| is_lost(s))) {
        restore(ue, psi).await?;
    }
    modify(ue, psi, Downlink::To(tunnel)).await?;
    ue.with(|p| {
        if let Some(s) = p.sessions.get_mut(&psi) {
            s.active_at(tunnel);
        }
    });
    ue.amf().user_plane_activated(ue);
    // TS 23.502 §4.3.2.2.1 step 16, §4.2.3.2 step 15: the flows that the gNB refused are removed at UE and UPF.
    pending_change::without(ue, psi, &failed);
    Ok(())
}

fn tunnel_of(transfer: &PduSessionResourceSetupResponseTransfer) -> Option<Tunnel> {
    an_tunnel(&transfer.dl_qos_flow_per_tnl_information.up_transport_layer_information)
}

/// Whether a session is inactive, so that its user plane can be set up.
pub(crate) fn can_be_activated(s: &SmContext) -> bool {
    s.up == UpState::Inactive && s.n3.is_some()
}

/// Whether it has a user plane.
pub(crate) fn is_active(s: &SmContext) -> bool {
    s.up == UpState::Active
}

/// Whether its user plane is being set up: the gNB's or the UPF's answer is outstanding.
pub(crate) fn is_coming_up(ue: Ue, psi: PduSessionId) -> bool {
    let lane = Lane::Session(psi);
    ue.with(|p| {
        let has_tunnel = p.sessions.get(&psi).is_some_and(|s| s.up != UpState::Active && s.n3.is_some());
        let begun = matches!(
            p.lanes.procedure(lane),
            Some(Procedure::PduSessionEstablishment | Procedure::UpConnectionActivation)
        );
        // A procedure that has not asked its gNB yet may itself wait for the handover, so it does not count.
        let held = [Input::HandoverOver, Input::ContextSetUp, Input::SessionSettled];
        let held = held.iter().any(|i| p.lanes.awaits(lane, i));
        has_tunnel && begun && !held
    })
}

/// The sessions whose downlink packets go to the serving gNB, or for which the UPF's answer to that is outstanding.
pub(super) fn at_gnb(ue: Ue) -> Vec<PduSessionId> {
    let asked = Input::N2Sm(N2Outcome::SetUp, Vec::new());
    let all: Vec<_> = ue.with(|p| p.sessions.iter().map(|(&psi, s)| (psi, s.up)).collect());
    let led = |psi| is_coming_up(ue, psi) && !ue.with(|p| p.lanes.awaits(Lane::Session(psi), &asked));
    let at_gnb = all.into_iter().filter(|&(psi, up)| up == UpState::Active || led(psi));
    at_gnb.map(|(psi, _)| psi).collect()
}

/// Whether downlink packets of any session wait.
pub(crate) fn awaited(ue: &UeContext) -> bool {
    ue.sessions.values().any(|s| s.awaited && s.up == UpState::Inactive)
}

/// The highest priority among the sessions that downlink packets wait for (TS 23.502 §4.2.3.3 step 3a).
pub(crate) fn awaited_priority(ue: &UeContext) -> Option<u8> {
    let waiting = ue.sessions.values().filter(|s| s.awaited && s.up == UpState::Inactive);
    waiting.map(|s| s.qos.arp.priority).min()
}

/// A connected UE's session has downlink packets: its user plane is set up (TS 23.502 §4.2.3.3 step 4a).
pub(crate) fn reactivate(ue: Ue, psi: PduSessionId) {
    if super::area::is_barred_here(ue, psi) {
        return give_up_waiting(ue); // TS 23.501 §5.3.4.1.1, §5.6.5: not allowed in this area
    }
    if is_being_released(ue, psi) {
        return; // the release discards the waiting packets
    }
    let ue = ue.on(Lane::Session(psi));
    ue.start(Lane::Session(psi), Procedure::UpConnectionActivation, async move {
        if let Ok(transfer) = set_up(ue, psi, None).await {
            activated(ue, psi, &transfer).await;
        }
    });
}

/// A session's setup was requested at the gNB: awaits it, and sends its buffered packets. Another procedure of the session, as its release,
/// goes on.
pub(crate) fn asked_for(ue: Ue, psi: PduSessionId) {
    let lane = Lane::Session(psi);
    let ends_for_it =
        |running| matches!(running, Procedure::UpConnectionDeactivation | Procedure::SessionRestoration);
    if ue.with(|p| p.lanes.procedure(lane)).is_none_or(ends_for_it) {
        let ue = ue.on(lane);
        ue.start(lane, Procedure::UpConnectionActivation, answered(ue, psi));
    }
}

async fn answered(ue: Ue, psi: PduSessionId) {
    let transfer = match gnb_answer(ue).await {
        Ok(GnbAnswer::SetUp(transfer)) => Ok(transfer),
        Ok(GnbAnswer::Left) => set_up(ue, psi, None).await,
        Ok(GnbAnswer::HandsOver) if handed_over(ue).await.is_ok() => set_up(ue, psi, None).await,
        Ok(GnbAnswer::HandsOver) | Err(_) => return,
    };
    if let Ok(transfer) = transfer {
        activated(ue, psi, &transfer).await;
    }
}

async fn activated(ue: Ue, psi: PduSessionId, transfer: &[u8]) {
    match set_downlink_tunnel(ue, psi, transfer).await {
        Ok(()) => emit_change(ue, psi, SessionChange::Activated),
        Err(ProcedureEnd::Refused(_)) => lost_at_upf(ue, psi),
        Err(ProcedureEnd::Interrupted(_)) => {}
    }
}

/// The UE could not be found: waiting packets are discarded, and the next one is reported (TS 23.502 §4.2.3.3 step 5).
pub(crate) fn give_up_waiting(ue: Ue) {
    let waiting: Vec<PduSessionId> = ue.with(|p| {
        let sessions = p.sessions.iter_mut();
        sessions.filter_map(|(&psi, s)| std::mem::take(&mut s.awaited).then_some(psi)).collect()
    });
    for psi in waiting {
        let ue = ue.on(Lane::Session(psi));
        ue.start(Lane::Session(psi), Procedure::UpConnectionDeactivation, async move {
            if modify(ue, psi, Downlink::Discard).await.is_ok() {
                let _ = modify(ue, psi, Downlink::Buffer).await; // the loss of the UPF is handled elsewhere
            }
        });
    }
}

/// Selective deactivation (TS 23.502 §4.3.7): the gNB releases the session's resources, and the UPF buffers its packets.
/// The UE stays connected, and requests the user plane when it has data. Returns whether there was a user plane.
pub(super) fn deactivate_at_gnb(ue: Ue, psi: PduSessionId) -> bool {
    let active = ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.up == UpState::Active));
    if active {
        release_at_gnb(ue, psi);
        deactivate(ue.on(Lane::Session(psi)), psi);
    }
    active
}

/// User plane inactivity of a session (TS 23.502 §4.3.7, §4.2.6): it is deactivated, and with the last one the UE becomes idle. Another
/// procedure of the session, or a handover, has precedence.
///
/// What is reported while the session has no user plane is about a former one, as from a UPF that has started again: it does not end the one that is
/// being set up, whose packets the gNB would drop.
pub(super) fn inactive(ue: Ue, psi: PduSessionId) {
    if ue.with(|p| p.sessions.get(&psi).is_none_or(|s| s.up == UpState::Inactive)) {
        return;
    }
    let ue = ue.on(Lane::Session(psi));
    ue.follow(Lane::Session(psi), Procedure::UpConnectionDeactivation, async move {
        if ue.amf().handover_over(ue).await.is_err() {
            return;
        }
        let (active, others, at_rest) = ue.with(|p| {
            let up = |s: &SmContext| s.up != UpState::Inactive;
            let others = p.sessions.iter().any(|(&other, s)| other != psi && up(s));
            let active = p.sessions.get(&psi).is_some_and(|s| s.up == UpState::Active);
            (active, others, p.lanes.no_other_lane_runs(Lane::Session(psi)))
        });
        match (active, others || !at_rest) {
            (false, _) => {}
            (true, true) => {
                deactivate_at_gnb(ue, psi);
            }
            (true, false) => ue.amf().release_for_inactivity(ue),
        }
    });
}

/// The gNB's state of a session is unknown: its resources are released, and are set up again when packets arrive. The
/// session's procedure goes on.
pub(super) fn give_up_at_gnb(ue: Ue, psi: PduSessionId) {
    let held = ue.with(|p| {
        let session = p.sessions.get_mut(&psi).filter(|s| s.up == UpState::Active);
        session.map(|s| s.inactive()).is_some()
    });
    if held {
        release_at_gnb(ue, psi);
        let _ = super::n4::ask_downlink(ue, psi, Downlink::Buffer);
        emit_change(ue, psi, SessionChange::Deactivated);
    }
}

/// The gNB released a session's resources on its own (TS 38.413 §8.2.4): the UPF buffers its packets.
pub(super) fn released_by_gnb(ue: Ue, psi: PduSessionId) {
    if ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.up == UpState::Active)) {
        deactivate(ue.on(Lane::Session(psi)), psi);
    }
}

/// A gNB has set an existing session up again.
pub(super) fn activate(ue: Ue, psi: PduSessionId, transfer: Vec<u8>) {
    let ue = ue.on(Lane::Session(psi));
    ue.start(Lane::Session(psi), Procedure::UpConnectionActivation, async move {
        activated(ue, psi, &transfer).await;
    });
}

/// The UPF has lost the session, or does not answer: it is released, and a connected UE is asked to set it up again (TS
/// 23.527 §4.3.2).
fn lost_at_upf(ue: Ue, psi: PduSessionId) {
    if ue.amf().ue_state(ue).connected {
        super::release::by_network(ue, psi, SmCause::ReactivationRequested);
    } else {
        super::n4::delete(ue, psi);
    }
}

/// Deactivates a session without a connection: the UPF buffers its packets.
pub(super) fn rest(ue: Ue, psi: PduSessionId) {
    if ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.up == UpState::Inactive)) {
        deactivate(ue.on(Lane::Session(psi)), psi);
    }
}

/// The sessions to deactivate when the connection ends: active ones, and those for which the UPF has not answered the gNB's
/// tunnel. One that is being established is released instead.
pub(crate) fn with_user_plane(ue: Ue) -> Vec<PduSessionId> {
    let mut sessions = at_gnb(ue);
    sessions.retain(|psi| ue.with(|p| p.sessions.get(psi).is_some_and(|s| s.up != UpState::Establishing)));
    sessions
}

pub(super) fn deactivate(ue: Ue, psi: PduSessionId) {
    let ours = ue.with(|p| {
        p.sessions.get_mut(&psi).is_none_or(|s| {
            s.inactive();
            s.up_seid.is_some()
        })
    });
    if !ours && ue.amf().ue_state(ue).incoming {
        return; // the UPF is updated once the former SMF has handed the session over
    }
    ue.start(Lane::Session(psi), Procedure::UpConnectionDeactivation, async move {
        match modify(ue, psi, Downlink::Buffer).await {
            Ok(()) => emit_change(ue, psi, SessionChange::Deactivated),
            Err(ProcedureEnd::Refused(_)) => lost_at_upf(ue, psi),
            Err(ProcedureEnd::Interrupted(_)) => {}
        }
    });
}
