//! Requests of AMF and AUSF to the UDM, as async calls.

use std::sync::Arc;

use whimbrel_ids::{SNssai, Supi};

use crate::config::UdmFunction;
use crate::envelope::Effect;
use crate::input::Input;
use crate::procedure::{Interrupt, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::services::nudm::{
    AuthData, AuthMethod, Identity, Resynchronisation, UdmAnswer, UdmError, UdmRequest,
};
use crate::services::{NfType, ServiceFault};
use crate::state::Subscription;

/// Nudm_UEAuthentication_Get: the vector of a challenge.
pub(crate) async fn auth_data(
    ue: Ue,
    identity: Identity,
    resynchronisation: Option<Resynchronisation>,
) -> Result<AuthData, ProcedureEnd> {
    let rand = ue.random();
    match ask(ue, UdmRequest::GenerateAuthData { identity, rand, resynchronisation }).await? {
        UdmAnswer::AuthData(Ok(data)) => Ok(data),
        UdmAnswer::AuthData(Err((why, supi))) => {
            ue.with(|p| p.amf.claimed = supi);
            Err(refusal(ue, why).into())
        }
        _ => Err(Refusal::StoreUnavailable.into()),
    }
}

/// Nudm_UECM_Registration and Nudm_SDM_Get.
pub(crate) async fn register(ue: Ue, supi: Supi) -> Result<Arc<Subscription>, ProcedureEnd> {
    match ask(ue, UdmRequest::Register(supi)).await? {
        UdmAnswer::Registered(Ok(subscription)) => Ok(subscription),
        UdmAnswer::Registered(Err(why)) => Err(refusal(ue, why).into()),
        _ => Err(Refusal::StoreUnavailable.into()),
    }
}

/// Nudm_SDM_Get: the subscription of a UE.
pub(crate) async fn subscription(ue: Ue, supi: Supi) -> Result<Arc<Subscription>, ProcedureEnd> {
    match ask(ue, UdmRequest::Subscription(supi)).await? {
        UdmAnswer::Registered(Ok(subscription)) => Ok(subscription),
        UdmAnswer::Registered(Err(why)) => Err(refusal(ue, why).into()),
        _ => Err(Refusal::StoreUnavailable.into()),
    }
}

/// Registers a broker's user under the pseudonym of its present session in place of the former one.
pub(crate) async fn register_guest(ue: Ue, supi: Supi, former: Option<Supi>) -> Result<(), ProcedureEnd> {
    match ask(ue, UdmRequest::RegisterGuest { supi, former }).await? {
        UdmAnswer::GuestRegistered => Ok(()),
        _ => Err(Refusal::StoreUnavailable.into()),
    }
}

/// Nnsacf_NSAC_NumOfUEsUpdate: returns the slices that are full.
pub(crate) async fn enter_slices(ue: Ue, slices: Vec<(SNssai, u32)>) -> Result<Vec<SNssai>, ProcedureEnd> {
    match ask(ue, UdmRequest::EnterSlices(slices)).await? {
        UdmAnswer::Full(full) => Ok(full),
        _ => Err(Refusal::StoreUnavailable.into()),
    }
}

/// Nudm_UECM_Deregistration; nothing waits for it.
pub(crate) fn deregister(ue: Ue) {
    if let Some(supi) = ue.with(|p| p.amf.supi) {
        ue.emit(Effect::Udm(UdmRequest::Deregister(supi)), None);
    }
}

/// Nudm_UEAuthentication_ResultConfirmation; nothing waits for it, and the embedded UDM needs none.
pub(crate) fn confirm_authentication(ue: Ue, supi: Supi, method: AuthMethod, success: bool) {
    if ue.config().udm == UdmFunction::Remote {
        ue.emit(Effect::Udm(UdmRequest::ConfirmAuthentication { supi, method, success }), None);
    }
}

/// The embedded UDM answers in the same turn. A remote one is asked a second time after half of the guard: a takeover between question and
/// answer loses the answer.
async fn ask(ue: Ue, request: UdmRequest) -> Result<UdmAnswer, ProcedureEnd> {
    let config = ue.config();
    let guard = config.timers.guard;
    let answer = match config.udm {
        UdmFunction::Embedded => ue.answer(ue.emit(Effect::Udm(request), None), guard).await,
        UdmFunction::Remote => {
            let first = ue.emit(Effect::Udm(request.clone()), None);
            match ue.answer(first, guard / 2).await {
                Err(Interrupt::TimedOut) => {
                    let second = ue.emit(Effect::Udm(request), None);
                    ue.any_answer(vec![first, second], guard / 2).await
                }
                answer => answer,
            }
        }
    };
    match (answer, config.udm) {
        (Ok(Input::Udm(answer)), _) => Ok(*answer),
        (Err(Interrupt::TimedOut), UdmFunction::Remote) => {
            Err(Refusal::NetworkFunction(NfType::Udm, ServiceFault::TimedOut).into())
        }
        (Ok(_) | Err(Interrupt::TimedOut), _) => Err(Refusal::StoreUnavailable.into()),
        (Err(other), _) => Err(other.into()),
    }
}

fn refusal(ue: Ue, why: UdmError) -> Refusal {
    match why {
        UdmError::UserNotFound if ue.config().udm == UdmFunction::Remote => Refusal::UnknownToUdm,
        UdmError::UserNotFound => Refusal::UnknownSubscriber,
        UdmError::Barred => Refusal::Barred,
        UdmError::UnknownHomeNetworkKey(id) => Refusal::UnknownHomeNetworkKey(id),
        UdmError::OtherHomeNetwork(plmn) => Refusal::OtherHomeNetwork(plmn),
        UdmError::BadSchemeOutput => Refusal::BadSuci,
        UdmError::BadAuts => Refusal::BadAuts,
        UdmError::Unavailable => Refusal::StoreUnavailable,
        UdmError::ServingNetworkNotAuthorized => Refusal::ServingNetworkNotAuthorized,
        UdmError::RoamingNotAllowed => Refusal::RoamingNotAllowed,
        UdmError::Remote(fault) => Refusal::NetworkFunction(NfType::Udm, fault),
    }
}
