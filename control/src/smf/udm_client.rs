//! Requests of the SMF to the UDM. Nothing waits for those about sessions, and the embedded UDM has no use for them.

use std::sync::Arc;

use whimbrel_ids::{PduSessionId, Supi};

use crate::config::UdmFunction;
use crate::envelope::Effect;
use crate::input::Input;
use crate::procedure::{Interrupt, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::services::nudm::{UdmAnswer, UdmError, UdmRequest};
use crate::services::{NfType, ServiceFault};
use crate::state::Subscription;

/// Nudm_SDM_Get (TS 23.502 §4.3.2.2.1 step 4) for a UE that another AMF serves. A remote UDM is asked a second time after half of the guard: a
/// takeover between question and answer loses the answer.
pub(super) async fn subscription(ue: Ue, supi: Supi) -> Result<Arc<Subscription>, ProcedureEnd> {
    let config = ue.config();
    let remote = config.udm == UdmFunction::Remote;
    let mut asked = Vec::new();
    for _ in 0..2 {
        asked.push(ue.emit(Effect::Udm(UdmRequest::Subscription(supi)), None));
        return match ue.any_answer(asked.clone(), config.timers.guard / 2).await {
            Ok(Input::Udm(answer)) => match *answer {
                UdmAnswer::Registered(Ok(subscription)) => Ok(subscription),
                UdmAnswer::Registered(Err(why)) => Err(refusal(why, remote).into()),
                _ => Err(Refusal::StoreUnavailable.into()),
            },
            Ok(_) | Err(Interrupt::TimedOut) if remote => continue,
            Ok(_) | Err(Interrupt::TimedOut) => Err(Refusal::StoreUnavailable.into()),
            Err(other) => Err(other.into()),
        };
    }
    Err(Refusal::NetworkFunction(NfType::Udm, ServiceFault::TimedOut).into())
}

fn refusal(why: UdmError, remote: bool) -> Refusal {
    match why {
        UdmError::UserNotFound if remote => Refusal::UnknownToUdm,
        UdmError::UserNotFound => Refusal::UnknownSubscriber,
        UdmError::Barred => Refusal::Barred,
        UdmError::RoamingNotAllowed => Refusal::RoamingNotAllowed,
        UdmError::ServingNetworkNotAuthorized => Refusal::ServingNetworkNotAuthorized,
        UdmError::Remote(fault) => Refusal::NetworkFunction(NfType::Udm, fault),
        // What is about a SUCI or a vector does not come here.
        UdmError::UnknownHomeNetworkKey(_)
        | UdmError::OtherHomeNetwork(_)
        | UdmError::BadSchemeOutput
        | UdmError::BadAuts
        | UdmError::Unavailable => Refusal::StoreUnavailable,
    }
}

/// Nudm_UECM_Registration (TS 23.502 §4.3.2.2.1 step 4): this SMF serves the session.
pub(super) fn register_session(ue: Ue, psi: PduSessionId) {
    let session = ue.with(|p| p.sessions.get(&psi).map(|s| (s.s_nssai, s.dnn.clone())));
    if let (Some(supi), Some((s_nssai, dnn))) = (subscriber(ue, psi), session) {
        ue.emit(Effect::Udm(UdmRequest::RegisterSession { supi, psi, s_nssai, dnn }), None);
    }
}

/// Nudm_UECM_Deregistration (TS 23.502 §4.3.4.2 step 12): the session has ended.
pub(super) fn deregister_session(ue: Ue, psi: PduSessionId) {
    if let Some(supi) = subscriber(ue, psi) {
        ue.emit(Effect::Udm(UdmRequest::DeregisterSession(supi, psi)), None);
    }
}

/// The subscriber of the remote UDM whose session this is. Emergency sessions and those of brokers' users are not registered.
fn subscriber(ue: Ue, psi: PduSessionId) -> Option<Supi> {
    if ue.config().udm == UdmFunction::Embedded {
        return None;
    }
    ue.with(|p| {
        let ordinary = p.grant.is_none() && p.sessions.get(&psi).is_some_and(|s| !s.emergency);
        p.subject().supi.filter(|supi| ordinary && !supi.is_nai())
    })
}
