//! Deregistration from either side: TS 23.502 §4.2.2.3, TS 24.501 §5.5.2.

use whimbrel_nas::ie::{Accesses, DeregistrationType};
use whimbrel_nas::mm::{
    self, DeregistrationAcceptUeOriginating, DeregistrationAcceptUeTerminated,
    DeregistrationRequestUeOriginating, DeregistrationRequestUeTerminated,
};

use super::connection::send_nas;
use super::end;
use super::nas::Security;
use crate::event::{Deregistered, Event};
use crate::input::Input;
use crate::procedure::{End, Repeated, ask};
use crate::shard::{Interrupt, Lane, Procedure, Ue};

/// The phone leaves (TS 23.502 §4.2.2.3.2). Nothing of this procedure waits: it is done in one step.
pub(crate) fn by_ue(ue: Ue, request: &DeregistrationRequestUeOriginating) {
    if !request.deregistration_type.switch_off {
        send_nas(ue, &DeregistrationAcceptUeOriginating {}.into(), Security::Current);
    }
    let subject = ue.with(|p| p.subject());
    let took = std::time::Duration::ZERO;
    ue.event(Event::Completed { procedure: Procedure::DeregistrationByUe, subject, took });
    end::dismiss(ue);
}

/// The operator has the phone leave (TS 23.502 §4.2.2.3.3). A phone that is idle is dropped here and told when it
/// returns.
pub(crate) fn by_network(ue: Ue) {
    let ue = ue.on(Lane::Mobility);
    if ue.with(|p| p.amf.connection.is_none() || !p.amf.registered) {
        return implicitly(ue, Deregistered::ByOperator);
    }
    ue.start(Lane::Mobility, Procedure::DeregistrationByNetwork, async move {
        match request(ue).await {
            // After the fifth expiry the phone is deregistered all the same (TS 24.501 §5.5.2.3.5 a).
            Ok(()) | Err(End::Refused(_)) => implicitly(ue, Deregistered::ByOperator),
            // §5.5.2.3.5: an initial registration has taken its place; the phone has begun anew.
            Err(End::Interrupted(Interrupt::Superseded(Procedure::Registration))) => {
                let subject = ue.with(|p| p.subject());
                ue.event(Event::Deregistered { subject, why: Deregistered::ByOperator });
            }
            Err(End::Interrupted(_)) => implicitly(ue, Deregistered::ByOperator),
        }
    });
}

async fn request(ue: Ue) -> Result<(), End> {
    let kind = DeregistrationType {
        switch_off: false,
        re_registration_required: false,
        accesses: Accesses::ThreeGpp,
    };
    let message = Box::new(DeregistrationRequestUeTerminated::new(kind).into());
    let timer = Repeated::new("DEREGISTRATION REQUEST", ue.config().timers.t3522);
    let accepts = |i: &Input| matches!(i, Input::Mm(m) if matches!(**m, mm::Message::DeregistrationAcceptUeTerminated(DeregistrationAcceptUeTerminated {})));
    ask(ue, message, Security::Current, timer, accepts).await.map(drop)
}

/// The phone's context ends without the phone's asking.
pub(crate) fn implicitly(ue: Ue, why: Deregistered) {
    let subject = ue.with(|p| p.subject());
    ue.event(Event::Deregistered { subject, why });
    end::dismiss(ue);
}
