//! The user plane of a session, set up at a gNB and let go: TS 23.502 §4.2.3.2 steps 14 to 18, §4.2.6 steps 5 to 7.

use whimbrel_ids::PduSessionId;
use whimbrel_ngap::transfer::{
    PduSessionResourceSetupResponseTransfer, PduSessionResourceSetupUnsuccessfulTransfer,
};

use super::N2Outcome;
use super::context::{Tunnel, UpState, an_tunnel};
use super::establishment::tell;
use super::n4::{Downlink, modify};
use crate::event::SessionChange;
use crate::input::Input;
use crate::procedure::End;
use crate::refusal::Refusal;
use crate::shard::{Interrupt, Lane, Procedure, Ue};

/// Awaits the gNB's tunnel and leads downlink packets into it.
pub(super) async fn set_up(ue: Ue, psi: PduSessionId) -> Result<(), End> {
    let answered = |i: &Input| matches!(i, Input::N2Sm(N2Outcome::SetUp | N2Outcome::SetupFailed, _));
    match ue.receive(answered, ue.config().timers.guard).await {
        Ok(Input::N2Sm(N2Outcome::SetUp, transfer)) => lead(ue, psi, &transfer).await,
        Ok(Input::N2Sm(_, transfer)) => {
            let _cause = PduSessionResourceSetupUnsuccessfulTransfer::decode(&transfer).ok();
            Err(Refusal::RadioFailure("it could not set up the session's resources").into())
        }
        Ok(_) | Err(Interrupt::TimedOut) => {
            Err(Refusal::RadioFailure("no answer to PDU SESSION RESOURCE SETUP REQUEST").into())
        }
        Err(other) => Err(other.into()),
    }
}

async fn lead(ue: Ue, psi: PduSessionId, transfer: &[u8]) -> Result<(), End> {
    let tunnel = tunnel_of(transfer).ok_or(Refusal::RadioFailure("its setup response names no tunnel"))?;
    modify(ue, psi, Downlink::To(tunnel)).await?;
    ue.with(|p| {
        if let Some(s) = p.sessions.get_mut(&psi) {
            s.up = UpState::Active;
        }
        p.amf.connection_until = None;
    });
    Ok(())
}

fn tunnel_of(transfer: &[u8]) -> Option<Tunnel> {
    let transfer = PduSessionResourceSetupResponseTransfer::decode(transfer).ok()?;
    an_tunnel(&transfer.dl_qos_flow_per_tnl_information.up_transport_layer_information)
}

/// Whether a session waits for a user plane.
pub(crate) fn can_be_activated(ue: Ue, psi: PduSessionId) -> bool {
    ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.up == UpState::Inactive && s.n3.is_some()))
}

/// A gNB has set a known session up again.
pub(super) fn activate(ue: Ue, psi: PduSessionId, transfer: Vec<u8>) {
    let ue = ue.on(Lane::Session(psi));
    ue.start(Lane::Session(psi), Procedure::UpConnectionActivation, async move {
        match lead(ue, psi, &transfer).await {
            Ok(()) => tell(ue, psi, SessionChange::Activated),
            Err(End::Refused(_)) => super::n4::delete(ue, psi),
            Err(End::Interrupted(_)) => {}
        }
    });
}

/// The connection is gone: every session's packets wait in the UPF.
pub(crate) fn deactivate_all(ue: Ue) {
    let active: Vec<PduSessionId> = ue
        .with(|p| p.sessions.iter().filter(|(_, s)| s.up == UpState::Active).map(|(&psi, _)| psi).collect());
    for psi in active {
        deactivate(ue.on(Lane::Session(psi)), psi);
    }
}

pub(super) fn deactivate(ue: Ue, psi: PduSessionId) {
    ue.with(|p| {
        if let Some(s) = p.sessions.get_mut(&psi) {
            s.up = UpState::Inactive;
        }
    });
    ue.start(Lane::Session(psi), Procedure::UpConnectionDeactivation, async move {
        match modify(ue, psi, Downlink::Buffer).await {
            Ok(()) => tell(ue, psi, SessionChange::Deactivated),
            // A UPF that does not know the session, or does not answer, has nothing to buffer.
            Err(End::Refused(_)) => super::n4::delete(ue, psi),
            Err(End::Interrupted(_)) => {}
        }
    });
}
