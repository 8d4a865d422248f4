//! The subscription has changed while the UE is registered: TS 23.502 §4.5.1, TS 23.502 §4.2.2.3.3,
//! TS 23.501 §5.15.5.2.2; sent by TS 24.501 §5.4.4.

use std::sync::Arc;

use whimbrel_nas::ie::SmCause;
use whimbrel_ngap::ie::CauseNas;

use super::slices::{admit, configured};
use super::{an_release, configuration_update, deregistration, end, udm_client, ue_context_modification};
use crate::event::{DeregistrationReason, Event};
use crate::procedure::{Lane, Procedure, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::services::nsmf::{SmContextReleaseData, SmContextStatus};
use crate::state::Subscription;

/// Nudm_SDM_Notification. It waits while another procedure of the UE runs.
pub(crate) fn notified(ue: Ue) {
    if ue.with(|p| {
        p.amf.emergency || !p.amf.registered || p.grant.is_some() || p.amf.supi.is_some_and(|s| s.is_nai())
    }) {
        return; // the subscription of an emergency registration (TS 23.501 §5.16.4.1) and of a broker's user is not in the store
    }
    ue.with(|p| p.amf.subscription_stale = true);
    begin_if_due(ue);
}

/// Reads the new subscription as soon as no other procedure runs.
pub(crate) fn begin_if_due(ue: Ue) {
    let due = ue.with(|p| {
        p.amf.subscription_stale && p.amf.registered && p.lanes.procedure(Lane::Mobility).is_none()
    });
    if due {
        ue.with(|p| p.amf.subscription_stale = false);
        start(ue);
    }
}

fn start(ue: Ue) {
    let ue = ue.on(Lane::Mobility);
    ue.start(Lane::Mobility, Procedure::SubscriptionChange, async move {
        let began = ue.now();
        match change(ue).await {
            Ok(released) => {
                let subject = ue.with(|p| p.subject());
                let took = ue.now().since(began);
                ue.event(Event::Completed { procedure: Procedure::SubscriptionChange, subject, took });
                if released {
                    an_release::start(ue, CauseNas::NormalRelease.into());
                } else {
                    end::arm_inactivity_timer(ue);
                }
            }
            // The subscriber is deleted or barred, or has no slice left here: the UE is deregistered with the cause.
            Err(ProcedureEnd::Refused(refusal)) if ends_registration(&refusal) => {
                let cause = refusal.mm_cause(&ue.config());
                deregistration::by_network_with(ue, Some(cause), DeregistrationReason::BySubscription);
            }
            // If the store does not answer, the earlier subscription stays. If the UE does not answer, it gets the new
            // slices at its next registration.
            Err(ProcedureEnd::Refused(_)) => end::arm_inactivity_timer(ue),
            Err(ProcedureEnd::Interrupted(why)) => end::interrupted(ue, why),
        }
    });
}

fn ends_registration(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::UnknownSubscriber | Refusal::Barred | Refusal::NoSlice { .. })
}

/// Applies the new terms; returns whether the connection is to be released so that the UE registers again.
async fn change(ue: Ue) -> Result<bool, ProcedureEnd> {
    let supi = ue.with(|p| p.amf.supi).ok_or(Refusal::NoIdentity)?;
    let new = udm_client::subscription(ue, supi).await?;
    let Some(old) = ue.with(|p| p.amf.subscription.replace(Arc::clone(&new))) else { return Ok(false) };
    if old == new {
        return Ok(false);
    }
    ue.smf().subscription_changed(ue, &old);
    let slices_sent = slices_changed(ue, &old, &new).await?;
    let connected = ue.with(|p| p.amf.connection.is_some());
    if old.ue_ambr != new.ue_ambr && connected {
        ue_context_modification::new_ambr(ue).await?;
    }
    Ok(slices_sent && ue.with(|p| p.amf.connection.is_some()))
}

/// TS 23.501 §5.15.5.2.2: sessions in slices that are no longer allowed end; the UE gets its new slices and registers
/// with them. An idle UE gets them at its next registration.
async fn slices_changed(ue: Ue, old: &Subscription, new: &Subscription) -> Result<bool, ProcedureEnd> {
    let config = ue.config();
    let tai = ue.with(|p| p.amf.location.tai).ok_or(Refusal::NoContext)?;
    let (requested, before) = ue.with(|p| (p.amf.slices.requested.clone(), p.amf.slices.allowed.clone()));
    let slices = admit(&config, new, &requested, tai, &[])?;
    let unchanged = slices.allowed == before && configured(&config, old) == configured(&config, new);
    ue.with(|p| p.amf.slices.allowed.clone_from(&slices.allowed));
    withdraw_sessions(ue, new);
    if unchanged {
        return Ok(false);
    }
    ue.with(|p| p.amf.slices.is_update_pending = true);
    if ue.with(|p| p.amf.connection.is_none()) {
        return Ok(false);
    }
    configuration_update::send_slices(ue, slices, configured(&config, new)).await?;
    ue.with(|p| p.amf.slices.is_update_pending = false);
    Ok(true)
}

/// Releases sessions that are no longer subscribed (TS 23.502 §4.3.4.2, requested by the network). Emergency sessions do
/// not depend on the subscription.
fn withdraw_sessions(ue: Ue, new: &Subscription) {
    let allowed = ue.with(|p| p.amf.slices.allowed.clone());
    let subscribed = |s: &SmContextStatus| {
        let slice = new.slice(s.s_nssai).filter(|_| allowed.contains(&s.s_nssai));
        slice.is_some_and(|slice| slice.dnns.iter().any(|d| d.dnn == s.dnn))
    };
    for s in ue.smf().sm_contexts(ue).iter().filter(|s| !s.emergency && !subscribed(s)) {
        ue.smf().release_sm_context(ue, s.psi, SmContextReleaseData::Command(SmCause::RegularDeactivation));
    }
}
