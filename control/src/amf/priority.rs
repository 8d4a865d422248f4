//! Priority: TS 23.501 §5.22.2 (by subscription), TS 23.501 §5.22.3 (by establishment cause); access identities of TS
//! 24.501 §4.5.2; exemptions from congestion control, TS 23.501 §5.19.7.2, TS 24.501 §5.3.9.
//!
//! A subscriber of multimedia priority or mission critical services is informed at registration, and from then on uses
//! the matching establishment cause. Before the UE is authenticated the cause is trusted; afterwards its subscription
//! decides.

use whimbrel_nas::ie::NetworkFeatureSupport;
use whimbrel_ngap::ie::RrcEstablishmentCause;

use crate::procedure::Ue;
use crate::refusal::Refusal;
use crate::state::{Priority, UeContext};

/// Rejects requests without priority under congestion, before the UE is authenticated.
pub(crate) fn uncongested(ue: Ue) -> Result<(), Refusal> {
    uncongested_for(ue, |p| cause(p).is_some_and(claims_urgency))
}

/// The same once the subscription is known: a priority that is not subscribed does not count.
pub(crate) fn entitled(ue: Ue) -> Result<(), Refusal> {
    uncongested_for(ue, |p| {
        let subscribed = p.amf.subscription.as_ref().map(|s| s.priority).unwrap_or_default();
        p.amf.emergency || cause(p).is_some_and(|c| is_urgent(c, subscribed))
    })
}

fn uncongested_for(ue: Ue, passes: fn(&UeContext) -> bool) -> Result<(), Refusal> {
    if ue.config().amf.access.congestion.general && !ue.with(|p| passes(p)) {
        return Err(Refusal::Congested("general"));
    }
    Ok(())
}

fn cause(p: &UeContext) -> Option<RrcEstablishmentCause> {
    p.amf.connection.as_ref().map(|c| c.establishment_cause)
}

fn claims_urgency(cause: RrcEstablishmentCause) -> bool {
    is_urgent(cause, Priority { mps: true, mcs: true })
}

/// Emergencies, answers to paging, and access identities 11 to 15 (stored on the USIM, not in the subscription) are exempt;
/// 1 and 2 if they are subscribed.
fn is_urgent(cause: RrcEstablishmentCause, subscribed: Priority) -> bool {
    match cause {
        RrcEstablishmentCause::Emergency
        | RrcEstablishmentCause::HighPriorityAccess
        | RrcEstablishmentCause::MtAccess => true,
        RrcEstablishmentCause::MpsPriorityAccess => subscribed.mps,
        RrcEstablishmentCause::McsPriorityAccess => subscribed.mcs,
        _ => false,
    }
}

/// Adds the valid access identities to REGISTRATION ACCEPT's features (TS 24.501 §5.5.1.2.4, §9.11.3.5).
pub(crate) fn with_priority(ue: Ue, features: NetworkFeatureSupport) -> NetworkFeatureSupport {
    let subscribed = ue.with(|p| p.amf.subscription.as_ref().map(|s| s.priority)).unwrap_or_default();
    if subscribed == Priority::default() {
        return features;
    }
    features.with_mps(subscribed.mps).with_mcs(subscribed.mcs)
}
