//! Deregistration from either side: TS 23.502 §4.2.2.3, TS 24.501 §5.5.2.

use whimbrel_nas::ie::{Accesses, DeregistrationType, MmCause};
use whimbrel_nas::mm::{
    self, DeregistrationAcceptUeOriginating, DeregistrationAcceptUeTerminated,
    DeregistrationRequestUeOriginating, DeregistrationRequestUeTerminated,
};

use super::ask::ask;
use super::end;
use super::n2::send_nas;
use super::paging::page_if_awaited;
use super::session_resources;
use crate::event::{DeregistrationReason, Event};
use crate::input::Input;
use crate::procedure::{Interrupt, Lane, Procedure, ProcedureEnd, RepeatedMessage, Ue};
use crate::state::DownlinkProtection;

/// UE-initiated deregistration (TS 23.502 §4.2.2.3.2). It awaits nothing, so it is done in one step.
pub(crate) fn by_ue(ue: Ue, request: &DeregistrationRequestUeOriginating) {
    let switch_off = request.deregistration_type.switch_off;
    if !switch_off {
        send_nas(ue, &DeregistrationAcceptUeOriginating {}.into(), DownlinkProtection::Current);
    }
    let subject = ue.with(|p| p.subject());
    let took = std::time::Duration::ZERO;
    ue.event(Event::Completed { procedure: Procedure::DeregistrationByUe, subject, took });
    // The UE may register again at once if it is not switched off. TS 23.502 §4.2.2.3.2 step 8 sets no time for the
    // release.
    if !switch_off && ue.with(|p| p.amf.registered) {
        return end::dismiss_later(ue, end::Keys::Kept);
    }
    end::dismiss(ue);
}

/// Network-initiated deregistration by the operator (TS 23.502 §4.2.2.3.3). An idle UE, or one about to be idle, is paged
/// first, and deregistered implicitly if it does not answer.
pub(crate) fn by_network(ue: Ue) {
    by_network_with(ue, None, DeregistrationReason::ByOperator);
}

/// The same, with a cause for the UE.
pub(crate) fn by_network_with(ue: Ue, cause: Option<MmCause>, why: DeregistrationReason) {
    let ue = ue.on(Lane::Mobility);
    if ue.with(|p| !p.amf.registered) {
        return implicitly(ue, why);
    }
    if ue.with(|p| p.amf.connection.as_ref().is_none_or(|c| c.releasing)) {
        // A UE whose subscription or grant has ended is not paged: its next registration is rejected.
        if matches!(
            why,
            DeregistrationReason::BySubscription
                | DeregistrationReason::GrantExpired
                | DeregistrationReason::CreditUsedUp
        ) {
            return implicitly(ue, why);
        }
        ue.with(|p| p.amf.deregistration_requested = true);
        return page_if_awaited(ue); // step 2
    }
    ue.with(|p| p.amf.deregistration_requested = false);
    ue.start(Lane::Mobility, Procedure::DeregistrationByNetwork, async move {
        let began = ue.now();
        let again = matches!(why, DeregistrationReason::GrantExpired | DeregistrationReason::CreditUsedUp);
        if again {
            // What is served while the UE does not answer is not paid for. TS 23.502 §4.2.2.3.3: the sessions may end before it has.
            session_resources::release_all(ue);
        }
        match request(ue, cause, again).await {
            Ok(()) => {
                let (subject, took) = (ue.with(|p| p.subject()), ue.now().since(began));
                ue.event(Event::Completed { procedure: Procedure::DeregistrationByNetwork, subject, took });
                implicitly(ue, why);
            }
            // After the fifth expiry the UE is deregistered implicitly (TS 24.501 §5.5.2.3.5 a).
            Err(ProcedureEnd::Refused(_)) => implicitly(ue, why),
            // §5.5.2.3.5: superseded by an initial registration.
            Err(ProcedureEnd::Interrupted(Interrupt::Superseded(Procedure::Registration))) => {
                let subject = ue.with(|p| p.subject());
                ue.event(Event::Deregistered { subject, why });
            }
            Err(ProcedureEnd::Interrupted(_)) => implicitly(ue, why),
        }
    });
}

/// After each input: a UE that was paged to be deregistered, and has completed its own procedure, is deregistered.
pub(crate) fn deregister_if_requested(ue: Ue) {
    let due = ue.with(|p| {
        let there = p.amf.connection.as_ref().is_some_and(|c| c.secured && !c.releasing);
        p.amf.deregistration_requested && there && p.lanes.procedure(Lane::Mobility).is_none()
    });
    if due {
        by_network(ue);
    }
}

/// An initial registration supersedes the deregistration for which the UE was paged (TS 24.501 §5.5.2.3.5 d).
pub(crate) fn superseded_by_registration(ue: Ue) {
    if ue.with(|p| std::mem::take(&mut p.amf.deregistration_requested)) {
        let subject = ue.with(|p| p.subject());
        ue.event(Event::Deregistered { subject, why: DeregistrationReason::ByOperator });
    }
}

/// `again`: the UE is to register again.
async fn request(ue: Ue, cause: Option<MmCause>, again: bool) -> Result<(), ProcedureEnd> {
    let kind = DeregistrationType {
        switch_off: false,
        re_registration_required: again,
        accesses: Accesses::ThreeGpp,
    };
    let mut message = DeregistrationRequestUeTerminated::new(kind);
    message.cause = cause;
    let message = Box::new(message.into());
    let timer = RepeatedMessage::new("DEREGISTRATION REQUEST", "T3522", ue.config().timers.t3522);
    let accepts = |i: &Input| matches!(i, Input::Mm(m) if matches!(**m, mm::Message::DeregistrationAcceptUeTerminated(DeregistrationAcceptUeTerminated {})));
    ask(ue, message, DownlinkProtection::Current, timer, accepts).await.map(drop)
}

/// Deletes the UE's context without a request of the UE.
pub(crate) fn implicitly(ue: Ue, why: DeregistrationReason) {
    let subject = ue.with(|p| p.subject());
    ue.event(Event::Deregistered { subject, why });
    end::dismiss(ue);
}
