//! N2 handover of a session whose UE another vendor's AMF serves: TS 29.502 §5.2.2.3.4, TS 23.502 §4.9.1.3. Each step is a request of the AMF.

use std::time::Duration;

use whimbrel_ids::PduSessionId;
use whimbrel_ngap::ie::{Cause, CauseMisc, CauseRadioNetwork};
use whimbrel_ngap::transfer::{
    HandoverPreparationUnsuccessfulTransfer, HandoverRequiredTransfer,
    HandoverResourceAllocationUnsuccessfulTransfer,
};

use super::super::path_switch::is_being_released;
use super::exchange::{answer_update, decide, open, refuse};
use super::is_step;
use crate::input::Input;
use crate::procedure::{Interrupt, Lane, Procedure, Ue};
use crate::services::namf::HANDOVER_EXECUTION;
use crate::services::nsmf::AdmittedSession;
use crate::services::remote_amf::{
    HandoverStep, N2SmKind, SmContextAnswer, SmContextError, SmContextExchange, SmContextUpdate,
    SmContextUpdated, UserPlaneState,
};
use crate::state::ExchangeKind;

/// How long the forwarding tunnels are kept for packets that are still under way (TS 23.502 §4.9.1.3.3 step 15).
const FORWARDING: Duration = Duration::from_secs(1);

/// A step of a handover.
pub(super) fn step(ue: Ue, psi: PduSessionId, exchange: SmContextExchange, update: &SmContextUpdate) {
    let lane = Lane::Session(psi);
    let hands_over = ue.with(|p| p.lanes.procedure(lane)) == Some(Procedure::Handover);
    match update.handover {
        Some(HandoverStep::Preparing) if is_being_released(ue, psi) => {
            refuse(ue, exchange, SmContextError::HigherPriorityRequestOngoing, None, None);
        }
        Some(HandoverStep::Preparing) => {
            let required = match &update.n2 {
                Some((N2SmKind::HandoverRequired, transfer)) => HandoverRequiredTransfer::decode(transfer),
                _ => return refuse(ue, exchange, SmContextError::N2SmError, None, None),
            };
            let Ok(required) = required else {
                return refuse(ue, exchange, SmContextError::N2SmError, None, None);
            };
            if open(ue, psi, exchange, ExchangeKind::Procedure) {
                let direct = required.direct_forwarding_path_availability.is_some();
                let ue = ue.on(lane);
                ue.start(lane, Procedure::Handover, Box::pin(handover(ue, psi, exchange, direct)));
            }
        }
        Some(_) if hands_over => {
            if open(ue, psi, exchange, ExchangeKind::Procedure) {
                let input = Input::Handover(exchange, Box::new(update.clone()));
                if ue.with(|p| p.lanes.deliver(lane, input)).is_err() {
                    let error = SmContextError::HigherPriorityRequestOngoing;
                    decide(ue, psi, exchange, SmContextAnswer::Refused { error, n1: None, n2: None });
                }
            }
        }
        // A handover that has ended already.
        Some(HandoverStep::Cancelled) => {
            let handover = Some(HandoverStep::Cancelled);
            answer_update(ue, exchange, SmContextUpdated { handover, ..SmContextUpdated::default() });
        }
        Some(HandoverStep::Prepared | HandoverStep::Completed) | None => {
            refuse(ue, exchange, SmContextError::N2SmError, None, None);
        }
    }
}

async fn handover(ue: Ue, psi: PduSessionId, exchange: SmContextExchange, direct: bool) {
    // §4.9.1.3.2 steps 4 to 7.
    let Some((_, request)) = ue.smf().prepare_handover(ue, psi) else {
        let cause = CauseRadioNetwork::InteractionWithOtherProcedure.into();
        return decide(ue, psi, exchange, preparation_failed(cause));
    };
    let n2 = (N2SmKind::PduResSetupReq, request);
    decide(ue, psi, exchange, taken(HandoverStep::Preparing, None, Some(n2)));
    let ended = match execution(ue, psi, direct).await {
        Ok(ended) => ended,
        Err(Interrupt::Superseded(_)) => return ended_at_source(ue), // the session ends, or begins again
        Err(_) => HandoverEnd::AtSource(None),
    };
    match ended {
        HandoverEnd::AtSource(exchange) => {
            ended_at_source(ue);
            if let Some(exchange) = exchange {
                decide(ue, psi, exchange, taken(HandoverStep::Cancelled, None, None));
            }
        }
        HandoverEnd::AtTarget => stop_forwarding_later(ue),
    }
}

/// How a handover ended.
enum HandoverEnd {
    /// The UE stays at its source; the request that says so, if there is one.
    AtSource(Option<SmContextExchange>),
    /// The UE is at the target.
    AtTarget,
}

/// The steps after the first one.
async fn execution(ue: Ue, psi: PduSessionId, direct: bool) -> Result<HandoverEnd, Interrupt> {
    // §4.9.1.3.2 steps 10 and 11.
    let (exchange, prepared) =
        next(ue, |i| is_step(i, &[HandoverStep::Prepared, HandoverStep::Cancelled])).await?;
    if prepared.handover == Some(HandoverStep::Cancelled) {
        return Ok(HandoverEnd::AtSource(Some(exchange)));
    }
    let admitted = match &prepared.n2 {
        Some((N2SmKind::HandoverReqAck, transfer)) => ue.smf().handover_admitted(ue, psi, transfer),
        Some((N2SmKind::HandoverResAllocFail, transfer)) => {
            let why = HandoverResourceAllocationUnsuccessfulTransfer::decode(transfer);
            Err(why.map_or_else(|_| no_room(), |t| t.cause))
        }
        _ => Err(no_room()),
    };
    let session = match admitted {
        Ok(session) => session,
        Err(cause) => {
            decide(ue, psi, exchange, preparation_failed(cause));
            return Ok(HandoverEnd::AtSource(None));
        }
    };
    let directly = if direct { vec![psi] } else { Vec::new() };
    let admitted = ue.smf().start_forwarding(ue, vec![session], directly, false).await?;
    let Some(session) = admitted.first() else {
        let cause: Cause = CauseMisc::NotEnoughUserPlaneProcessingResources.into();
        decide(ue, psi, exchange, preparation_failed(cause));
        return Ok(HandoverEnd::AtSource(None));
    };
    let command = (N2SmKind::HandoverCmd, session.command.to_vec());
    decide(ue, psi, exchange, taken(HandoverStep::Prepared, None, Some(command)));

    // §4.9.1.3.3 steps 7 to 10.
    let (exchange, over) =
        next(ue, |i| is_step(i, &[HandoverStep::Completed, HandoverStep::Cancelled])).await?;
    if over.handover == Some(HandoverStep::Cancelled) {
        return Ok(HandoverEnd::AtSource(Some(exchange)));
    }
    arrived(ue, psi, &admitted, exchange).await?;
    Ok(HandoverEnd::AtTarget)
}

async fn arrived(
    ue: Ue,
    psi: PduSessionId,
    admitted: &[AdmittedSession],
    exchange: SmContextExchange,
) -> Result<(), Interrupt> {
    let asked = ue.smf().complete_handover(ue, admitted);
    for (psi, (), answer) in super::super::n4::modifications_answered(ue, asked).await? {
        if answer.is_err() && !is_being_released(ue, psi) {
            super::super::release::by_network(ue, psi, whimbrel_nas::ie::SmCause::NetworkFailure);
        }
    }
    let user_plane = Some(UserPlaneState::Activated);
    decide(ue, psi, exchange, taken(HandoverStep::Completed, user_plane, None));
    Ok(())
}

/// The next request of the AMF that fits.
async fn next(
    ue: Ue,
    fits: fn(&Input) -> bool,
) -> Result<(SmContextExchange, Box<SmContextUpdate>), Interrupt> {
    loop {
        if let Input::Handover(exchange, update) = ue.receive(fits, HANDOVER_EXECUTION).await? {
            return Ok((exchange, update));
        }
    }
}

/// §4.9.1.3.3 step 15: nothing waits for it, and the session may have its next procedure meanwhile.
fn stop_forwarding_later(ue: Ue) {
    let ue = ue.on(Lane::Handover);
    ue.start(Lane::Handover, Procedure::Handover, async move {
        let _ = ue.receive(|_| false, FORWARDING).await;
        ue.smf().stop_forwarding(ue);
    });
}

/// hoState CANCELLED: the UPF removes its forwarding tunnels, and packets go to the source.
fn ended_at_source(ue: Ue) {
    ue.smf().stop_forwarding(ue);
    ue.smf().handover_ended(ue);
}

fn taken(
    step: HandoverStep,
    user_plane: Option<UserPlaneState>,
    n2: Option<(N2SmKind, Vec<u8>)>,
) -> SmContextAnswer {
    let updated = SmContextUpdated { handover: Some(step), user_plane, n2, ..SmContextUpdated::default() };
    SmContextAnswer::Updated(updated.into())
}

fn preparation_failed(cause: Cause) -> SmContextAnswer {
    let transfer = HandoverPreparationUnsuccessfulTransfer::new(cause).to_vec();
    let n2 = Some((N2SmKind::HandoverPrepFail, transfer));
    SmContextAnswer::Refused { error: SmContextError::N2SmError, n1: None, n2 }
}

fn no_room() -> Cause {
    CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell.into()
}
