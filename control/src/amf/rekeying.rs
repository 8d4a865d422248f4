//! New keys while the UE is connected, before a COUNT wraps: TS 24.501 §4.4.3.5, TS 33.501 §6.4.5, TS 33.501 §6.9.4.2.

use whimbrel_nas::ie::NgKsi;

use super::authentication::ClaimedIdentity;
use super::security_mode::secure_nas;
use super::{an_release, end, open_attach, ue_context_modification};
use crate::event::Event;
use crate::procedure::{Lane, Procedure, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::services::nudm::Identity;

/// After each message of a UE: authenticates it again if a NAS COUNT comes near its end and no other procedure runs.
pub(crate) fn begin_if_due(ue: Ue) {
    let due = ue.with(|p| {
        let near = p.amf.security.current.as_ref().is_some_and(|s| s.wrap_is_near());
        let secured = p.amf.connection.as_ref().is_some_and(|c| c.secured);
        near && secured && p.amf.registered && !p.amf.emergency && p.lanes.procedure(Lane::Mobility).is_none()
    });
    if due {
        start(ue);
    }
}

fn start(ue: Ue) {
    let ue = ue.on(Lane::Mobility);
    ue.start(Lane::Mobility, Procedure::Authentication, async move {
        let began = ue.now();
        match rekeying(ue).await {
            Ok(()) => {
                let subject = ue.with(|p| p.subject());
                let took = ue.now().since(began);
                ue.event(Event::Completed { procedure: Procedure::Authentication, subject, took });
                end::arm_inactivity_timer(ue);
            }
            // The UE failed authentication, so it is not the registered subscriber.
            Err(ProcedureEnd::Refused(refusal)) if refusal.reject_was_sent() => {
                end::refused(ue, Procedure::Authentication, refusal);
            }
            // The UE does not answer: its remaining COUNTs are used when it comes back.
            Err(ProcedureEnd::Refused(_)) => {
                an_release::start(ue, whimbrel_ngap::ie::CauseNas::AuthenticationFailure.into());
            }
            Err(ProcedureEnd::Interrupted(why)) => end::interrupted(ue, why),
        }
    });
}

async fn rekeying(ue: Ue) -> Result<(), ProcedureEnd> {
    authenticate(ue).await?;
    ue_context_modification::new_key(ue).await
}

/// Authenticates a UE that has a context, and takes new keys into use.
pub(crate) async fn authenticate(ue: Ue) -> Result<(), ProcedureEnd> {
    let supi = ue.with(|p| p.amf.supi).ok_or(Refusal::NoIdentity)?;
    let offered = ue.with(|p| p.amf.security.ng_ksi).unwrap_or(NgKsi::NO_KEY);
    let open_attach::Authentication { proof, granted } =
        open_attach::authenticate(ue, ClaimedIdentity::Remembered(Identity::Supi(supi)), offered).await?;
    let supi = proof.supi;
    secure_nas(ue, None, proof, false).await?;
    if granted.is_some() {
        let subscription = open_attach::register(ue, supi, granted).await?;
        ue.with(|p| p.amf.subscription = Some(subscription));
    }
    Ok(())
}
